//! Signing in at a provider: who gets in, and that nobody gets in with a forged, replayed or misdirected answer.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Method, redirect};
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_cloud::server::SignInSettings;
use tidewaiter_kit::{Clock as _, SystemClock};
use url::Url;

use crate::browser::hidden;
use crate::fake_provider::{CLIENT, Conduct, FakeProvider, Mood, SECRET, Signed};
use crate::invitations::secret;
use crate::world::{Answer, PASSWORD, World, on_both};

on_both!(
    a_linked_person_signs_in_and_the_last_way_is_kept,
    a_first_sign_in_takes_over_nobody,
    groups_are_teams_and_other_teams_stay,
    an_organization_switches_passwords_off,
    an_old_login_or_a_token_of_a_program_links_nothing,
    links_end_with_the_tokens,
);

/// A browser without JavaScript.
pub struct Browser<'a> {
    world: &'a World,
    http: Client,
    pub cookies: BTreeMap<String, String>,
}

impl<'a> Browser<'a> {
    pub fn new(world: &'a World) -> Self {
        Self::at(world, [127, 0, 0, 1])
    }

    /// A browser with this address.
    pub fn at(world: &'a World, address: [u8; 4]) -> Self {
        let http = Client::builder().redirect(redirect::Policy::none());
        let http = http.local_address(Some(address.into()));
        Self {
            world,
            http: http.build().unwrap(),
            cookies: BTreeMap::new(),
        }
    }

    pub async fn send(&mut self, method: Method, path: &str, form: &[(&str, &str)]) -> Answer {
        let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        let form = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let request = self.http.request(method, format!("{}{path}", self.world.base));
        let request = request.header(COOKIE, cookies).header("sec-fetch-site", "same-origin");
        let answer = self.world.send(request.body(form)).await;
        for cookie in answer.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            assert!(cookie.contains("; HttpOnly; SameSite=Lax; Secure; Path=/"), "{cookie}");
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, &[]).await
    }

    /// Begins to sign in; the request to the provider.
    async fn begin(&mut self, provider: &str, return_to: &str) -> Url {
        let path = format!("/sign-in/with/{provider}?return_to={return_to}");
        let answer = self.get(&path).await.is(303);
        answer.header(LOCATION.as_str()).parse().unwrap()
    }

    /// Comes back to the server with the answer of a provider.
    async fn return_with(&mut self, answer: &Url) -> Answer {
        self.get(&format!("{}?{}", answer.path(), answer.query().unwrap()))
            .await
    }

    /// Signs in at `provider`, which has the name `corp`.
    async fn sign_in(&mut self, provider: &FakeProvider) -> Answer {
        let url = self.begin("corp", "/account/identities").await;
        self.return_with(&provider.authorize(&url)).await
    }

    pub fn token(&self) -> String {
        self.cookies.get("__Host-session").cloned().unwrap_or_default()
    }

    /// The value of the hidden field `csrf` in the forms of the session.
    pub async fn csrf(&mut self) -> String {
        let page = self.get("/account/identities").await.is(200).body;
        hidden(&page, "csrf")
    }

    /// Logs in with a password, through the page.
    async fn log_in(&mut self, email: &str) {
        let form = [("email", email), ("password", PASSWORD), ("return_to", "/")];
        self.send(Method::POST, "/sign-in", &form).await.is(303);
    }

    /// Begins to link the provider `corp`.
    async fn begin_link(&mut self) -> Answer {
        let csrf = self.csrf().await;
        let form = [("csrf", &*csrf), ("provider", "corp")];
        self.send(Method::POST, "/account/identities", &form).await
    }

    /// Links the provider `corp`.
    async fn link(&mut self, provider: &FakeProvider) -> Answer {
        let page = self.begin_link().await.is(200);
        self.return_with(&provider.authorize(&provider_url(&page))).await
    }
}

/// The request to the provider to which a page leads.
fn provider_url(page: &Answer) -> Url {
    let refresh = page.header("refresh");
    refresh.strip_prefix("0; url=").unwrap().parse().unwrap()
}

/// The server with `provider` as `corp`, and `change` of its settings.
async fn with_provider(world: World, provider: &FakeProvider, change: Value) -> World {
    let mut settings = of_provider(&world, "corp", provider);
    json_patch::merge(&mut settings, &change);
    with_settings(world, json!({ "providers": [settings] })).await
}

fn of_provider(world: &World, name: &str, provider: &FakeProvider) -> Value {
    let path = world.folder.path().join("client-secret");
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&path);
    file.unwrap().write_all(SECRET.as_bytes()).unwrap();
    json!({"name": name, "title": "Corp", "issuer": provider.issuer(), "clientId": CLIENT, "clientSecretFile": path})
}

async fn with_settings(world: World, settings: Value) -> World {
    let settings: SignInSettings = serde_json::from_value(settings).unwrap();
    world.restarted(|parts| parts.sign_in = settings).await
}

/// Gives the membership of a user an end, which may be in the past.
async fn end_membership(world: &World, user: &str, end: &str) {
    let membership = json!({"user_id": user, "role": "member", "expires_at": end});
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let update = sqlx::query("UPDATE objects SET spec = $1 WHERE kind = 'memberships' AND spec LIKE $2")
        .bind(membership.to_string())
        .bind(format!("%{user}%"));
    update.execute(&mut database).await.unwrap();
}

/// The provider of one organization, which creates users.
fn provisioning(world: &World) -> Value {
    json!({"organization": world.organization, "provision": {"role": "member"}})
}

async fn a_linked_person_signs_in_and_the_last_way_is_kept(world: World) {
    let provider = FakeProvider::start().await;
    let world = with_provider(world, &provider, json!({})).await;
    let mut stranger = Browser::new(&world);
    let page = stranger.get("/sign-in").await.is(200);
    assert!(page.body.contains("Sign in with Corp"), "{page:?}");
    let refused = stranger.sign_in(&provider).await.is(403);
    assert!(refused.body.contains("link Corp under"), "{refused:?}");
    assert_eq!(stranger.token(), "");

    let mut olivia = Browser::new(&world);
    olivia.log_in("olivia@example.org").await;
    assert_eq!(
        olivia.link(&provider).await.is(303).header("location"),
        "/account/identities"
    );
    assert!(
        olivia
            .get("/account/identities")
            .await
            .is(200)
            .body
            .contains("person-1")
    );
    // Once more is no change, and nobody else gets the same person.
    olivia.link(&provider).await.is(303);
    world.user(&olivia.token(), &world.organization, "Max", "member").await;
    let mut max = Browser::new(&world);
    max.log_in("max@example.org").await;
    let taken = max.link(&provider).await.is(409);
    assert!(taken.body.contains("linked with another user"), "{taken:?}");

    let mut again = Browser::new(&world);
    assert_eq!(
        again.sign_in(&provider).await.is(303).header("location"),
        "/account/identities"
    );
    let account = world.get(&again.token(), "/v3/account").await.is(200);
    assert_eq!(account.field("id"), world.owner);
    let audit = world.changes(&again.token(), "~/audit").await;
    let of_identity = audit.iter().filter(|row| row["kind"] == "identities").count();
    assert_eq!(of_identity, 1, "{audit:?}");

    // Without a password it is the last way.
    let linked = world.get(&again.token(), "/v3/account/identities").await.is(200).json();
    let path = format!("/v3/account/identities/{}", linked[0]["id"].as_str().unwrap());
    world.delete(&max.token(), &path).await.is(404);
    world
        .patch(&again.token(), "~", json!({"passwords_disabled": true}))
        .await
        .is(200);
    let kept = world.delete(&again.token(), &path).await.is(409);
    assert!(kept.body.contains("last way to sign in"), "{kept:?}");
    world
        .patch(&again.token(), "~", json!({"passwords_disabled": false}))
        .await
        .is(200);
    let csrf = again.csrf().await;
    let id = linked[0]["id"].as_str().unwrap();
    again
        .send(
            Method::POST,
            "/account/identities/unlink",
            &[("csrf", "forged"), ("id", id)],
        )
        .await
        .is(403);
    let form = [("csrf", &*csrf), ("id", id)];
    again
        .send(Method::POST, "/account/identities/unlink", &form)
        .await
        .is(303);
    Browser::new(&world).sign_in(&provider).await.is(403);
}

async fn a_first_sign_in_takes_over_nobody(world: World) {
    let provider = FakeProvider::start().await;
    let change = provisioning(&world);
    let world = with_provider(world, &provider, change).await;
    let olivia = world.owner().await;
    world.user(&olivia, &world.organization, "Bob", "admin").await;
    for (claims, status, wanted) in [
        // The address of an existing user, in any case.
        (
            json!({"sub": "thief", "email": "Bob@Example.org"}),
            409,
            "link Corp under",
        ),
        (json!({"sub": "thief", "email_verified": false}), 403, "not verified"),
        (json!({"sub": "thief", "email_verified": null}), 403, "not verified"),
        (json!({"sub": "thief", "email": null}), 403, "not verified"),
    ] {
        provider.set_claims(claims.clone());
        let mut thief = Browser::new(&world);
        let refused = thief.sign_in(&provider).await.is(status);
        assert!(refused.body.contains(wanted), "{claims}: {refused:?}");
        assert_eq!(thief.token(), "", "{claims}");
    }
    provider.set_claims(json!({}));
    let mut alice = Browser::new(&world);
    alice.sign_in(&provider).await.is(303);
    let account = world.get(&alice.token(), "/v3/account").await.is(200);
    assert_eq!(account.field("email"), "alice@example.net");
    let role = world
        .get(&alice.token(), &format!("~/users/{}", account.field("id")))
        .await
        .is(200);
    assert_eq!(role.field("role"), "member");
    // The person is the subject: another address is no other user, and the same address with another subject no user.
    provider.set_claims(json!({"email": "other@example.net"}));
    let mut same = Browser::new(&world);
    same.sign_in(&provider).await.is(303);
    assert_eq!(
        world.get(&same.token(), "/v3/account").await.is(200).field("id"),
        account.field("id")
    );
    provider.set_claims(json!({"sub": "person-2"}));
    Browser::new(&world).sign_in(&provider).await.is(409);
    // The provider is for members of its organization alone.
    let elsewhere = world.another_organization(&olivia, "Elsewhere").await;
    world.user(&olivia, &elsewhere, "Eve", "member").await;
    provider.set_claims(json!({"sub": "eve"}));
    let mut eve = Browser::new(&world);
    eve.log_in("eve@example.org").await;
    let refused = eve.link(&provider).await.is(403);
    assert!(refused.body.contains("is for members"), "{refused:?}");
    // A membership that has ended is none.
    provider.set_claims(json!({}));
    let id = account.field("id");
    for (end, status) in [("2020-01-01T00:00:00Z", 403), ("2100-01-01T00:00:00Z", 303)] {
        end_membership(&world, &id, end).await;
        Browser::new(&world).sign_in(&provider).await.is(status);
    }
    // An access that has ended begins at no provider.
    let ended = json!({"name": "Alice", "email": "alice@example.net", "expires_at": "2020-01-01T00:00:00Z"});
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let end = sqlx::query("UPDATE objects SET spec = $1 WHERE kind = 'users' AND id = $2")
        .bind(ended.to_string())
        .bind(id.clone());
    end.execute(&mut database).await.unwrap();
    let refused = Browser::new(&world).sign_in(&provider).await.is(401);
    assert!(refused.body.contains("your access ended"), "{refused:?}");
    // A user who is offboarded comes back by an invitation alone.
    let user = format!("~/users/{id}");
    world.delete(&olivia, &format!("{user}/tokens")).await.is(204);
    world.delete(&olivia, &user).await.is(204);
    let refused = Browser::new(&world).sign_in(&provider).await.is(403);
    assert!(refused.body.contains("was removed"), "{refused:?}");
    let invited = json!({"email": "alice@example.net", "role": "member"});
    let invited = world.invite(&olivia, invited).await;
    world.accept(&secret(&invited), PASSWORD).await.is(200);
    let mut alice = Browser::new(&world);
    alice.log_in("alice@example.net").await;
    alice.link(&provider).await.is(303);
    Browser::new(&world).sign_in(&provider).await.is(303);
}

async fn groups_are_teams_and_other_teams_stay(world: World) {
    let provider = FakeProvider::start().await;
    let mut change = provisioning(&world);
    change["groupsClaim"] = json!("groups");
    change["teams"] = json!({"ops": "Operations", "sre": "Operations", "dev": "Developers"});
    let world = with_provider(world, &provider, change).await;
    let olivia = world.owner().await;
    let mut teams = Vec::new();
    for name in ["Operations", "Developers", "Others"] {
        let team = json!({"name": name, "description": ""});
        teams.push(world.post(&olivia, "~/teams", team).await.is(201).field("id"));
    }
    let sign_in = async |groups: Value| {
        provider.set_claims(json!({ "groups": groups }));
        let mut alice = Browser::new(&world);
        alice.sign_in(&provider).await.is(303);
        alice.token()
    };
    let has_member = async || {
        let mut found = Vec::new();
        for team in &teams {
            let team = world.get(&olivia, &format!("~/teams/{team}")).await.is(200).json();
            found.push(team["user_ids"] != json!([]));
        }
        found
    };
    let changes = async || {
        let audit = world.changes(&olivia, "~/audit").await;
        audit.iter().filter(|row| row["kind"] == "teams").count()
    };
    let alice = sign_in(json!(["ops", "sre", "unknown"])).await;
    assert_eq!(has_member().await, [true, false, false]);
    let user = world.get(&alice, "/v3/account").await.is(200).field("id");
    let join = json!({ "user_ids": [user] });
    world
        .patch(&olivia, &format!("~/teams/{}", teams[2]), join)
        .await
        .is(200);
    sign_in(json!(["dev"])).await;
    assert_eq!(has_member().await, [false, true, true]);
    // Nothing changes, and nothing is written.
    let before = changes().await;
    sign_in(json!(["dev"])).await;
    assert_eq!(changes().await, before);
    sign_in(json!(null)).await;
    assert_eq!(has_member().await, [false, false, true]);
    provider.set_claims(json!({"_claim_names": {"groups": "src1"}}));
    let refused = Browser::new(&world).sign_in(&provider).await.is(403);
    assert!(refused.body.contains("too many groups"), "{refused:?}");
}

async fn an_organization_switches_passwords_off(world: World) {
    let provider = FakeProvider::start().await;
    let world = with_provider(world, &provider, json!({})).await;
    let owner = world.owner().await;
    let off = json!({"passwords_disabled": true});
    let refused = world.patch(&owner, "~", off.clone()).await.is(422);
    assert!(refused.body.contains("link a provider"), "{refused:?}");
    let another = json!({"name": "Another", "passwords_disabled": true});
    world.post(&owner, "/v3/organizations", another).await.is(422);
    let mut olivia = Browser::new(&world);
    olivia.log_in("olivia@example.org").await;
    olivia.link(&provider).await.is(303);
    world.patch(&owner, "~", off).await.is(200);
    // A client that does not know the field switches them on no more.
    world.put(&owner, "~", json!({"name": "Renamed"})).await.is(200);
    let organization = world.get(&owner, "~").await.is(200).json();
    assert_eq!(organization["passwords_disabled"], json!(true));
    // A new user has a password until a provider is linked.
    let invited = json!({"email": "ivy@example.org", "role": "member"});
    let invited = world.invite(&owner, invited).await;
    let accepted = world.accept(&secret(&invited), PASSWORD).await.is(200);
    let mut ivy = Browser::new(&world);
    ivy.log_in("ivy@example.org").await;
    provider.set_claims(json!({"sub": "ivy"}));
    ivy.link(&provider).await.is(303);
    // Only anyone who has the password learns it.
    let wrong = world.log_in("ivy@example.org", "not this one at all").await.is(401);
    assert!(wrong.body.contains("is wrong"), "{wrong:?}");
    let refused = world.log_in("ivy@example.org", PASSWORD).await.is(401);
    assert!(refused.body.contains("sign in with its provider"), "{refused:?}");
    Browser::new(&world).sign_in(&provider).await.is(303);
    // An identity counts for a membership that has not ended.
    end_membership(&world, &accepted.field("user_id"), "2020-01-01T00:00:00Z").await;
    world.log_in("ivy@example.org", PASSWORD).await.is(200);
    // A user with another home is not concerned.
    let elsewhere = world.another_organization(&owner, "Elsewhere").await;
    world.user(&owner, &elsewhere, "Eve", "member").await;
}

async fn an_old_login_or_a_token_of_a_program_links_nothing(world: World) {
    let provider = FakeProvider::start().await;
    let world = with_provider(world, &provider, json!({})).await;
    let mut olivia = Browser::new(&world);
    olivia.log_in("olivia@example.org").await;
    let program = json!({"name": "ci", "expires_in_seconds": 3600});
    let program = world.post(&olivia.token(), "/v3/account/tokens", program).await;
    let mut thief = Browser::new(&world);
    thief
        .cookies
        .insert("__Host-session".to_owned(), program.is(201).field("token"));
    let refused = thief.begin_link().await.is(403);
    for text in [
        "needs a login of the last 10 minutes",
        "href=\"/sign-in?return_to=%2Faccount%2Fidentities\"",
    ] {
        assert!(refused.body.contains(text), "{text}: {refused:?}");
    }
    // It is checked again when the provider sends the person back.
    let answer = provider.authorize(&provider_url(&olivia.begin_link().await.is(200)));
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let aged = sqlx::query("UPDATE objects SET created_at = '2020-01-01T00:00:00Z' WHERE kind = 'tokens'");
    aged.execute(&mut database).await.unwrap();
    let refused = olivia.return_with(&answer).await.is(403);
    assert!(refused.body.contains("needs a login of the last"), "{refused:?}");
    let linked = world.get(&olivia.token(), "/v3/account/identities").await.is(200);
    assert_eq!(linked.json(), json!([]));
}

async fn links_end_with_the_tokens(world: World) {
    let provider = FakeProvider::start().await;
    let world = with_provider(world, &provider, json!({})).await;
    let owner = world.owner().await;
    let (id, _) = world.user(&owner, &world.organization, "Bob", "member").await;
    for by_password in [false, true] {
        let mut bob = Browser::new(&world);
        bob.log_in("bob@example.org").await;
        bob.link(&provider).await.is(303);
        Browser::new(&world).sign_in(&provider).await.is(303);
        if by_password {
            let new = "another good password";
            let body = json!({"old_password": PASSWORD, "new_password": new, "end_tokens": true});
            world.put(&bob.token(), "/v3/account/password", body).await.is(204);
        } else {
            world.delete(&owner, &format!("~/users/{id}/tokens")).await.is(204);
        }
        Browser::new(&world).sign_in(&provider).await.is(403);
    }
}

/// Each answer that is not the right one, and that it begins no session.
#[tokio::test]
async fn a_forged_answer_signs_nobody_in() {
    let world = World::sqlite().await;
    let provider = FakeProvider::start().await;
    let change = provisioning(&world);
    let world = with_provider(world, &provider, change).await;
    let now = SystemClock.now().as_second();
    let claims = |claims| Conduct {
        claims,
        ..Conduct::default()
    };
    let signed = |signed| Conduct {
        signed,
        ..Conduct::default()
    };
    for (name, conduct) in [
        ("alg none", signed(Signed::Not)),
        ("HS256 with the public key", signed(Signed::WithPublicKey)),
        ("HS256 with the client's secret", signed(Signed::WithClientSecret)),
        ("another key", signed(Signed::WithOtherKey)),
        ("another issuer", claims(json!({"iss": "https://evil.example"}))),
        ("another audience", claims(json!({"aud": "another"}))),
        ("a further audience", claims(json!({"aud": [CLIENT, "another"]}))),
        ("another authorized party", claims(json!({"azp": "another"}))),
        ("expired", claims(json!({"exp": now - 1}))),
        (
            "issued in the future",
            claims(json!({"iat": now + 600, "exp": now + 900})),
        ),
        ("another nonce", claims(json!({"nonce": "another"}))),
        ("no nonce", claims(json!({"nonce": null}))),
        ("another at_hash", claims(json!({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}))),
        ("an empty subject", claims(json!({"sub": ""}))),
        ("a subject that is no text", claims(json!({"sub": 1}))),
    ] {
        provider.set(conduct);
        let mut browser = Browser::new(&world);
        let refused = browser.sign_in(&provider).await;
        assert_eq!(refused.status, 403, "{name}: {refused:?}");
        assert_eq!(browser.cookies, BTreeMap::new(), "{name}");
    }
    provider.set(Conduct::default());
    Browser::new(&world).sign_in(&provider).await.is(303);
}

#[tokio::test]
async fn an_answer_counts_once_in_the_browser_that_began() {
    let world = World::sqlite().await;
    let (provider, other) = (FakeProvider::start().await, FakeProvider::start().await);
    let mut corp = of_provider(&world, "corp", &provider);
    json_patch::merge(&mut corp, &provisioning(&world));
    let settings = json!({"providers": [corp, of_provider(&world, "other", &other)]});
    let world = with_settings(world, settings).await;

    // Replayed, also with the cookie.
    let mut browser = Browser::new(&world);
    let answer = provider.authorize(&browser.begin("corp", "/").await);
    let cookies = browser.cookies.clone();
    browser.return_with(&answer).await.is(303);
    browser.return_with(&answer).await.is(403);
    browser.cookies = cookies;
    let refused = browser.return_with(&answer).await.is(403);
    assert!(refused.body.contains("begin again"), "{refused:?}");

    // Another browser's answer, with and without a sign-in of its own; and a state that was swapped.
    let mut attacker = Browser::new(&world);
    let answer = provider.authorize(&attacker.begin("corp", "/").await);
    let mut victim = Browser::new(&world);
    victim.return_with(&answer).await.is(403);
    let own = victim.begin("corp", "/").await;
    victim.return_with(&answer).await.is(403);
    assert_eq!(victim.cookies, BTreeMap::new());
    let own = provider.authorize(&own);
    let mut swapped = own.clone();
    let pairs = own.query_pairs().into_owned();
    let pairs = pairs.map(|(name, value)| (name.clone(), if name == "state" { "swapped".to_owned() } else { value }));
    swapped
        .query_pairs_mut()
        .clear()
        .extend_pairs(pairs.collect::<Vec<_>>());
    victim.begin("corp", "/").await;
    victim.return_with(&swapped).await.is(403);

    // Mixed up: the answer of one provider where the other one was asked, and no issuer where one is promised.
    let begun = victim.begin("corp", "/").await;
    victim.return_with(&other.authorize(&begun)).await.is(403);
    let mut silent = provider.authorize(&victim.begin("corp", "/").await);
    let pairs = silent.query_pairs().into_owned().filter(|(name, _)| name != "iss");
    let pairs = pairs.collect::<Vec<_>>();
    silent.query_pairs_mut().clear().extend_pairs(pairs);
    victim.return_with(&silent).await.is(403);

    // A cookie that the server did not make.
    let answer = provider.authorize(&victim.begin("corp", "/").await);
    victim.cookies.insert("__Host-sign-in".to_owned(), "AAAA".to_owned());
    victim.return_with(&answer).await.is(403);

    // A link that another user began, and one without a session.
    let mut olivia = Browser::new(&world);
    olivia.log_in("olivia@example.org").await;
    let answer = provider.authorize(&provider_url(&olivia.begin_link().await.is(200)));
    let pending = olivia.cookies["__Host-sign-in"].clone();
    world.user(&olivia.token(), &world.organization, "Max", "member").await;
    let (mut nobody, mut max) = (Browser::new(&world), Browser::new(&world));
    max.log_in("max@example.org").await;
    for thief in [&mut nobody, &mut max] {
        thief.cookies.insert("__Host-sign-in".to_owned(), pending.clone());
        thief.return_with(&answer).await.is(403);
    }
    let linked = world.get(&max.token(), "/v3/account/identities").await.is(200);
    assert_eq!(linked.json(), json!([]));
}

#[tokio::test]
async fn restrictions_errors_and_paths_to_return_to() {
    let world = World::sqlite().await;
    let provider = FakeProvider::start().await;
    let mut change = provisioning(&world);
    change["hostedDomain"] = json!("example.net");
    change["tenant"] = json!("tenant-1");
    let world = with_provider(world, &provider, change).await;
    let right = json!({"hd": "example.net", "tid": "tenant-1"});
    for wrong in [
        json!({"hd": "evil.example"}),
        json!({"hd": null}),
        json!({"tid": "tenant-2"}),
        json!({"tid": ["tenant-1"]}),
    ] {
        let mut claims = right.clone();
        json_patch::merge(&mut claims, &wrong);
        provider.set_claims(claims);
        let refused = Browser::new(&world).sign_in(&provider).await.is(403);
        assert!(refused.body.contains("with another account"), "{wrong}: {refused:?}");
    }
    provider.set_claims(right);
    for (asked, page) in [
        ("/organizations?a=b", "/organizations"),
        ("//evil.example", "/"),
        ("/%5Cevil.example", "/"),
        ("https://evil.example", "/"),
    ] {
        let mut browser = Browser::new(&world);
        let url = browser.begin("corp", asked).await;
        let answer = browser.return_with(&provider.authorize(&url)).await.is(303);
        assert_eq!(answer.header("location").split('?').next(), Some(page), "{asked}");
    }
    // What the provider says is not repeated, unless it is a word.
    for (error, shown) in [("access_denied", true), ("<script>alert(1)</script>", false)] {
        let mut browser = Browser::new(&world);
        let mut answer = provider.authorize(&browser.begin("corp", "/").await);
        answer
            .query_pairs_mut()
            .append_pair("error", error)
            .append_pair("error_description", "hunter2");
        let page = browser.return_with(&answer).await.is(403);
        assert_eq!(page.body.contains(error), shown, "{page:?}");
        assert!(
            !page.body.contains("hunter2") && !page.body.contains("<script>"),
            "{page:?}"
        );
    }
    Browser::new(&world).get("/sign-in/with/unknown").await.is(404);
}

#[tokio::test]
async fn a_provider_that_fails_delays_nobody_else() {
    let world = World::sqlite().await;
    let provider = FakeProvider::start().await;
    for mood in [Mood::Silent, Mood::Huge, Mood::Redirects] {
        provider.set(Conduct {
            document: mood,
            ..Conduct::default()
        });
        // The server starts, and passwords work meanwhile.
        let world = with_provider(World::sqlite().await, &provider, json!({})).await;
        let mut browser = Browser::new(&world);
        let (answer, _) = futures::join!(browser.get("/sign-in/with/corp"), world.owner());
        let refused = answer.is(503);
        assert!(refused.body.contains("Corp does not answer"), "{mood:?}: {refused:?}");
    }
    provider.set(Conduct::default());
    let change = provisioning(&world);
    let world = with_provider(world, &provider, change).await;
    for (mood, status) in [(Mood::Silent, 503), (Mood::Huge, 503), (Mood::Redirects, 403)] {
        provider.set(Conduct {
            token: mood,
            ..Conduct::default()
        });
        Browser::new(&world).sign_in(&provider).await.is(status);
    }
    provider.set(Conduct::default());
    Browser::new(&world).sign_in(&provider).await.is(303);
}

/// One address cannot take all places at a provider that is silent.
#[tokio::test]
async fn an_address_has_few_sign_ins_in_progress() {
    let provider = FakeProvider::start().await;
    provider.set(Conduct {
        document: Mood::Silent,
        ..Conduct::default()
    });
    let world = with_provider(World::sqlite().await, &provider, json!({})).await;
    let world = &world;
    let begun = (0..17).map(|_| async move { Browser::new(world).get("/sign-in/with/corp").await.status.as_u16() });
    let mut statuses = futures::future::join_all(begun).await;
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (429, &[503; 16][..]));
}

/// A token with an unknown key has the keys read again, but not each time: they were read within the minute.
#[tokio::test]
async fn unknown_keys_are_no_load_on_a_provider() {
    let world = World::sqlite().await;
    let provider = FakeProvider::start().await;
    let change = provisioning(&world);
    let world = with_provider(world, &provider, change).await;
    Browser::new(&world).sign_in(&provider).await.is(303);
    provider.rotate();
    for _ in 0..3 {
        Browser::new(&world).sign_in(&provider).await.is(403);
    }
    assert_eq!(provider.reads(), 1);
}
