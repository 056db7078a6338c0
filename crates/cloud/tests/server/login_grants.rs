//! A person grants a login to a program, and nobody else gets it.

use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _, Executor as _};
use tidewaiter_cloud::server::keys::codes::s256;
use tidewaiter_testkit::eventually;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::browser::{Browser, hidden};
use crate::stream::SOON;
use crate::world::{Answer, PASSWORD, World, on_both};

on_both!(
    a_command_line_gets_the_login_of_a_person,
    a_code_is_for_the_one_that_asked_and_valid_once,
    nobody_grants_for_another_person,
    an_old_login_or_a_token_of_a_program_grants_nothing,
    a_granted_login_is_no_newer_sign_in,
    a_person_types_a_code_and_decides,
    codes_are_not_guessed,
    what_was_granted_ends_with_the_logins,
    a_person_and_a_network_have_few_grants,
    what_has_expired_is_refused_and_deleted,
);

const REDIRECT: &str = "http://127.0.0.1:4711/";
const ISSUER: &str = "https://cloud.example.org";
const VERIFIER: &str = "a-verifier-of-43-characters-that-nobody-has";

impl Browser<'_> {
    /// Sends the form of the page at `page`, with these fields besides its token.
    async fn submit(&self, page: &str, fields: &[(&str, &str)]) -> Answer {
        let shown = self.get(page).await.is(200);
        let csrf = hidden(&shown.body, "csrf");
        let path = page.split('?').next().unwrap();
        let fields = [fields, &[("csrf", &*csrf)]].concat();
        self.send(&self.world.base, path, &fields).await
    }
}

fn asked() -> [(&'static str, String); 4] {
    [
        ("redirect_uri", REDIRECT.to_owned()),
        ("state", "the state".to_owned()),
        ("code_challenge", s256(VERIFIER)),
        ("name", "laptop".to_owned()),
    ]
}

/// The page that a command line opens, with this field changed.
fn page(field: &str, value: &str) -> String {
    let pairs = asked().map(|(name, asked)| (name, if name == field { value.to_owned() } else { asked }));
    let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
    format!("/sign-in/cli?{query}")
}

/// Sends the decision on that page.
async fn decide(browser: &Browser<'_>, decision: &str) -> Answer {
    let asked = asked();
    let mut fields: Vec<(&str, &str)> = asked.iter().map(|(name, value)| (*name, &**value)).collect();
    fields.push(("decision", decision));
    browser.submit(&page("", ""), &fields).await
}

/// What the redirect has to tell.
fn told(answer: &Answer, name: &str) -> Option<String> {
    let location: Url = answer.header("location").parse().unwrap();
    let mut pairs = location.query_pairs();
    let found = pairs.find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}

async fn code(browser: &Browser<'_>) -> String {
    let answer = decide(browser, "approve").await.is(303);
    told(&answer, "code").unwrap()
}

async fn exchange(world: &World, code: &str, verifier: &str, redirect: &str) -> Answer {
    let body = json!({"code": code, "code_verifier": verifier, "redirect_uri": redirect});
    world.post("", "/v3/login/browser", body).await
}

async fn a_command_line_gets_the_login_of_a_person(world: World) {
    let olivia = world.owner().await;
    let nobody = Browser::of(&world, "").get(&page("", "")).await.is(303);
    assert!(
        nobody
            .header("location")
            .starts_with("/sign-in?return_to=%2Fsign-in%2Fcli%3F"),
        "{nobody:?}"
    );
    let browser = Browser::of(&world, &olivia);
    let shown = browser.get(&page("", "")).await.is(200);
    for text in ["laptop", "Olivia Owner", "olivia@example.org"] {
        assert!(shown.body.contains(text), "{text}: {shown:?}");
    }
    let policy = shown.header("content-security-policy");
    assert!(policy.contains("form-action 'self' http://127.0.0.1:4711;"), "{policy}");
    let granted = decide(&browser, "approve").await.is(303);
    assert!(granted.header("location").starts_with(&format!("{REDIRECT}?code=")));
    assert_eq!(told(&granted, "state").as_deref(), Some("the state"));
    assert_eq!(told(&granted, "iss").as_deref(), Some(ISSUER));
    let code = told(&granted, "code").unwrap();
    let token = exchange(&world, &code, VERIFIER, REDIRECT).await.is(200).field("token");
    assert_ne!(token, olivia);
    let account = world.get(&token, "/v3/account").await.is(200);
    assert_eq!(account.field("id"), world.owner);
    let audit = world.get(&token, "~/audit").await.is(200);
    assert!(audit.body.contains("browser login of laptop"), "{audit:?}");
    assert!(!audit.body.contains(&code), "{audit:?}");
    // A replayed code.
    exchange(&world, &code, VERIFIER, REDIRECT).await.is(401);
    world.get(&token, "/v3/account").await.is(200);
}

async fn a_code_is_for_the_one_that_asked_and_valid_once(world: World) {
    let olivia = world.owner().await;
    let browser = Browser::of(&world, &olivia);
    let other = "another-verifier-of-43-characters-somebodys";
    for (verifier, redirect) in [
        (other, REDIRECT),
        ("", REDIRECT),
        (&*s256(VERIFIER), REDIRECT),
        (VERIFIER, "http://127.0.0.1:4712/"),
        (VERIFIER, ""),
    ] {
        let code = code(&browser).await;
        exchange(&world, &code, verifier, redirect).await.is(401);
        // The first attempt has used it.
        exchange(&world, &code, VERIFIER, REDIRECT).await.is(401);
    }
    exchange(&world, "invented", VERIFIER, REDIRECT).await.is(401);
    let code = code(&browser).await;
    let as_device = world.post("", "/v3/login/device", json!({"device_code": code})).await;
    assert!(as_device.is(400).body.contains("expired_token: "));
    exchange(&world, &code, VERIFIER, REDIRECT).await.is(200);
}

async fn nobody_grants_for_another_person(world: World) {
    let olivia = world.owner().await;
    let (_, alice) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let (browser, other) = (Browser::of(&world, &olivia), Browser::of(&world, &alice));
    let own = hidden(&browser.get(&page("", "")).await.is(200).body, "csrf");
    let others = hidden(&other.get(&page("", "")).await.is(200).body, "csrf");
    let asked = asked();
    let mut fields: Vec<(&str, &str)> = asked.iter().map(|(name, value)| (*name, &**value)).collect();
    fields.push(("decision", "approve"));
    let with = |csrf| [&fields[..], &[("csrf", csrf)]].concat();
    for refused in [
        browser.send(&world.base, "/sign-in/cli", &fields).await,
        browser.send(&world.base, "/sign-in/cli", &with(&others)).await,
        browser.send("https://evil.example", "/sign-in/cli", &with(&own)).await,
        browser
            .send("null", "/device", &[("csrf", &*own), ("user_code", "BCDF-GHJK")])
            .await,
    ] {
        assert_eq!(refused.is(403).header("location"), "");
    }
    let nobody = Browser::of(&world, "");
    let away = nobody.send(&world.base, "/sign-in/cli", &with(&own)).await.is(303);
    assert_eq!(away.header("location"), "/sign-in");
    // A person who does not want it.
    let cancelled = decide(&browser, "deny").await.is(303);
    assert_eq!(told(&cancelled, "error").as_deref(), Some("access_denied"));
    assert_eq!(
        (told(&cancelled, "code"), told(&cancelled, "iss").as_deref()),
        (None, Some(ISSUER))
    );
    // Nowhere but to the own machine.
    for evil in [
        "https://evil.example/",
        "http://evil.example:4711/",
        "http://127.0.0.1:4711@evil.example:80/",
        "http://localhost:4711/",
        "//evil.example/",
        "javascript:alert(1)",
    ] {
        let shown = browser.get(&page("redirect_uri", evil)).await.is(400);
        assert_eq!(shown.header("location"), "", "{evil}");
        for decision in ["approve", "deny"] {
            let mut fields = fields.clone();
            fields.retain(|(name, _)| !["redirect_uri", "decision"].contains(name));
            fields.extend([("redirect_uri", evil), ("decision", decision), ("csrf", &*own)]);
            let sent = browser.send(&world.base, "/sign-in/cli", &fields).await.is(400);
            assert_eq!(sent.header("location"), "", "{evil}");
        }
        let body = json!({"name": "laptop", "redirect_uri": evil, "code_challenge": s256(VERIFIER)});
        let refused = world.post(&olivia, "/v3/account/login-grants", body).await.is(422);
        assert_eq!(refused.json()["field"], "redirect_uri");
    }
    // Each gets the own login.
    let token = exchange(&world, &code(&other).await, VERIFIER, REDIRECT).await;
    let account = world.get(&token.is(200).field("token"), "/v3/account").await.is(200);
    assert_eq!(account.field("email"), "alice@example.org");
}

async fn an_old_login_or_a_token_of_a_program_grants_nothing(world: World) {
    let olivia = world.owner().await;
    let program = json!({"name": "ci", "expires_in_seconds": 3600});
    let program = world
        .post(&olivia, "/v3/account/tokens", program)
        .await
        .is(201)
        .field("token");
    let refused = decide(&Browser::of(&world, &program), "approve").await.is(403);
    assert!(
        refused.body.contains("needs a login of the last 10 minutes"),
        "{refused:?}"
    );
    assert!(
        refused.body.contains("href=\"/sign-in?return_to=%2Fsign-in%2Fcli"),
        "{refused:?}"
    );
    let begun = begin(&world).await;
    let body = json!({"user_code": begun["user_code"], "approved": true});
    world
        .put(&program, "/v3/account/login-grants/device", body)
        .await
        .is(403);
    // Nor does it make operators.
    let (alice, _) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let operator = format!("/v3/operators/{alice}");
    let refused = world.put(&program, &operator, json!({})).await.is(403);
    for text in ["tidewaiter cloud login", "repeat the command"] {
        assert!(refused.body.contains(text), "{refused:?}");
    }
    world.put(&olivia, &operator, json!({})).await.is(200);
}

/// A stolen login that granted one after the other would stay a new one.
async fn a_granted_login_is_no_newer_sign_in(world: World) {
    let olivia = world.owner().await;
    let granted = code(&Browser::of(&world, &olivia)).await;
    let aged = "UPDATE objects SET created_at = '2020-01-01T00:00:00Z' WHERE kind = 'tokens'";
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    database.execute(aged).await.unwrap();
    let token = exchange(&world, &granted, VERIFIER, REDIRECT)
        .await
        .is(200)
        .field("token");
    let refused = decide(&Browser::of(&world, &token), "approve").await.is(403);
    assert!(
        refused.body.contains("needs a login of the last 10 minutes"),
        "{refused:?}"
    );
}

async fn begin(world: &World) -> Value {
    let begun = world
        .post("", "/v3/login/device/authorization", json!({"name": "jump host"}))
        .await;
    begun.is(200).json()
}

/// The word of RFC 8628 with which the request for the token is refused.
async fn poll(world: &World, begun: &Value) -> Result<String, String> {
    let body = json!({"device_code": begun["device_code"]});
    let answer = world.post("", "/v3/login/device", body).await;
    if answer.status == 200 {
        return Ok(answer.field("token"));
    }
    let message = answer.is(400).field("message");
    Err(message.split(':').next().unwrap().to_owned())
}

async fn a_person_types_a_code_and_decides(world: World) {
    let olivia = world.owner().await;
    let browser = Browser::of(&world, &olivia);
    let begun = begin(&world).await;
    let user_code = begun["user_code"].as_str().unwrap();
    assert_eq!(begun["verification_uri"], format!("{ISSUER}/device"));
    assert_eq!(
        begun["verification_uri_complete"],
        format!("{ISSUER}/device?user_code={user_code}")
    );
    assert_eq!(poll(&world, &begun).await.unwrap_err(), "authorization_pending");
    assert_eq!(poll(&world, &begun).await.unwrap_err(), "slow_down");
    let link = format!("/device?user_code={user_code}");
    let shown = browser.get(&link).await.is(200);
    assert!(shown.body.contains(user_code) && shown.body.contains("Never enter a code that somebody sent you"));
    assert!(!shown.body.contains("jump host"), "a link alone looks nothing up");
    let typed = user_code.to_lowercase().replace('-', " ");
    let shown = browser.submit("/device", &[("user_code", &typed)]).await.is(200);
    for text in ["jump host", "127.0.0.1", "Olivia Owner"] {
        assert!(shown.body.contains(text), "{text}: {shown:?}");
    }
    let approve = [("user_code", user_code), ("decision", "approve")];
    browser.submit("/device", &approve).await.is(200);
    let token = eventually("a login", SOON, async || poll(&world, &begun).await).await;
    assert_eq!(world.get(&token, "/v3/account").await.is(200).field("id"), world.owner);
    assert_eq!(poll(&world, &begun).await.unwrap_err(), "expired_token");
    let audit = world.get(&token, "~/audit").await.is(200);
    assert!(audit.body.contains("device login of jump host"), "{audit:?}");
    // Nobody decides twice, and nobody after another person.
    let begun = begin(&world).await;
    let (_, alice) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let decide = async |token: &str, approved: bool| {
        let body = json!({"user_code": begun["user_code"], "approved": approved});
        world.put(token, "/v3/account/login-grants/device", body).await
    };
    decide(&olivia, false).await.is(200);
    decide(&alice, true).await.is(422);
    decide(&olivia, true).await.is(422);
    assert_eq!(poll(&world, &begun).await.unwrap_err(), "access_denied");
}

async fn codes_are_not_guessed(world: World) {
    let olivia = world.owner().await;
    let begun = begin(&world).await;
    let guess = async |code: &Value| {
        let body = json!({ "user_code": code });
        world
            .put(&olivia, "/v3/account/login-grants/device", body)
            .await
            .status
            .as_u16()
    };
    assert_eq!(guess(&begun["user_code"]).await, 200);
    let mut guesses = 0;
    while guess(&json!("BBBB-BBBB")).await == 422 {
        guesses += 1;
        assert!(guesses < 40);
    }
    assert_eq!(guess(&begun["user_code"]).await, 429, "after {guesses} wrong codes");
    // The password of nobody is locked by it.
    world.owner().await;
}

async fn what_was_granted_ends_with_the_logins(world: World) {
    let olivia = world.owner().await;
    let (alice, _) = world.user(&olivia, &world.organization, "Alice", "member").await;
    for (way, status) in [("tokens", 400), ("password", 400), ("logout", 401)] {
        let login = world.log_in("alice@example.org", PASSWORD).await.is(200).field("token");
        let granted = code(&Browser::of(&world, &login)).await;
        let begun = begin(&world).await;
        let body = json!({"user_code": begun["user_code"], "approved": true});
        world.put(&login, "/v3/account/login-grants/device", body).await.is(200);
        let user = format!("~/users/{alice}");
        match way {
            "tokens" => world.delete(&olivia, &format!("{user}/tokens")).await.is(204),
            "password" => {
                let password = json!({"password": PASSWORD});
                world.put(&olivia, &format!("{user}/password"), password).await.is(204)
            }
            _ => world.delete(&login, "/v3/account/tokens/current").await.is(204),
        };
        exchange(&world, &granted, VERIFIER, REDIRECT).await.is(401);
        let body = json!({"device_code": begun["device_code"]});
        world.post("", "/v3/login/device", body).await.is(status);
    }
}

async fn a_person_and_a_network_have_few_grants(world: World) {
    let olivia = world.owner().await;
    let (_, alice) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let grant = async |token: &str| {
        let body = json!({"name": "laptop", "redirect_uri": REDIRECT, "code_challenge": s256(VERIFIER)});
        world
            .post(token, "/v3/account/login-grants", body)
            .await
            .status
            .as_u16()
    };
    let approved = begin(&world).await;
    let body = json!({"user_code": approved["user_code"], "approved": true});
    world
        .put(&olivia, "/v3/account/login-grants/device", body)
        .await
        .is(200);
    let oldest = begin(&world).await;
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    database
        .execute("UPDATE login_grants SET expires_at = expires_at - 60")
        .await
        .unwrap();
    for _ in 0..15 {
        assert_eq!(grant(&olivia).await, 200);
        begin(&world).await;
    }
    // One code more takes the place of the oldest that waits, so that nobody is kept from this way to log in.
    assert_eq!(poll(&world, &oldest).await.unwrap_err(), "expired_token");
    poll(&world, &approved).await.unwrap();
    assert_eq!((grant(&olivia).await, grant(&olivia).await), (200, 429));
    assert_eq!(grant(&alice).await, 200);
}

async fn what_has_expired_is_refused_and_deleted(world: World) {
    let olivia = world.owner().await;
    let granted = code(&Browser::of(&world, &olivia)).await;
    let begun = begin(&world).await;
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    database
        .execute("UPDATE login_grants SET expires_at = 1")
        .await
        .unwrap();
    exchange(&world, &granted, VERIFIER, REDIRECT).await.is(401);
    assert_eq!(poll(&world, &begun).await.unwrap_err(), "expired_token");
    eventually("expired grants to be deleted", SOON, async || {
        let counted = sqlx::query_as("SELECT COUNT(*) FROM login_grants");
        let (left,): (i64,) = counted.fetch_one(&mut database).await.unwrap();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}
