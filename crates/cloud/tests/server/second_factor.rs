//! Security keys and recovery codes: a password alone gets nobody in, and neither does a key or a code that is forged,
//! replayed or another user's.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _, Executor as _};
use tidewaiter_testkit::eventually;
use uuid::Uuid;

use crate::sign_in::Browser;
use crate::stream::SOON;
use crate::world::{Answer, PASSWORD, World, on_both};

on_both!(
    a_key_or_a_code_signs_in_beside_the_password,
    a_password_alone_is_no_login,
    a_forged_signature_signs_nobody_in,
    a_forged_registration_adds_no_key,
    a_code_is_used_once_by_its_user,
    guesses_of_codes_are_limited,
    keys_change_with_a_recent_login,
    an_organization_requires_a_second_factor,
    admins_and_offboarding_remove_a_second_factor,
);

const ORIGIN: &str = "https://cloud.example.org";
const HOST: &str = "cloud.example.org";
const STEP: &str = "/sign-in/second-factor";
const KEYS: &str = "/v3/account/security-keys";

/// The part of an answer that is not as an honest browser and key make it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Forged {
    Nothing,
    Origin,
    Subdomain,
    CrossOrigin,
    Type,
    Challenge,
    Host,
    UserPresence,
    Signature,
    SignedData,
    KeyId,
}

/// A security key in software.
struct SecurityKey {
    pair: EcdsaKeyPair,
    id: Vec<u8>,
    counter: u32,
}

impl SecurityKey {
    fn new() -> Self {
        Self {
            pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap(),
            id: Uuid::new_v4().as_bytes().to_vec(),
            counter: 0,
        }
    }

    /// The authenticator data (WebAuthn 2, 6.1).
    fn data(&self, forged: Forged, attested: bool) -> Vec<u8> {
        let host = if forged == Forged::Host { "example.net" } else { HOST };
        let present = u8::from(forged != Forged::UserPresence);
        let mut data = digest(&SHA256, host.as_bytes()).as_ref().to_vec();
        data.push(present | if attested { 0x40 } else { 0 });
        data.extend(self.counter.to_be_bytes());
        if attested {
            data.extend([0; 16]);
            data.extend(u16::try_from(self.id.len()).unwrap().to_be_bytes());
            data.extend(&self.id);
            // A COSE key of ES256 (RFC 9053, 7.1.1).
            let point = self.pair.public_key().as_ref();
            data.extend([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20]);
            data.extend(&point[1..33]);
            data.extend([0x22, 0x58, 0x20]);
            data.extend(&point[33..65]);
        }
        data
    }

    fn answer(&self, response: &Value) -> Value {
        let id = URL_SAFE_NO_PAD.encode(&self.id);
        json!({"id": id, "rawId": id, "type": "public-key", "response": response})
    }

    /// Registers at a server, as `navigator.credentials.create` does.
    fn create(&self, options: &Value, forged: Forged) -> Value {
        let data = self.data(forged, true);
        let mut object = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58".to_vec();
        object.push(u8::try_from(data.len()).unwrap());
        object.extend(data);
        let client = client_data("webauthn.create", options, forged);
        self.answer(&json!({
            "clientDataJSON": URL_SAFE_NO_PAD.encode(client),
            "attestationObject": URL_SAFE_NO_PAD.encode(object),
        }))
    }

    /// Signs a challenge, as `navigator.credentials.get` does.
    fn get(&mut self, options: &Value, forged: Forged) -> Value {
        self.counter += 1;
        let mut data = self.data(forged, false);
        let client = client_data("webauthn.get", options, forged);
        let mut signed = data.clone();
        signed.extend(digest(&SHA256, client.as_bytes()).as_ref());
        let signature = self.pair.sign(&SystemRandom::new(), &signed).unwrap();
        let mut signature = signature.as_ref().to_vec();
        match forged {
            Forged::Signature => *signature.last_mut().unwrap() ^= 1,
            // A counter that was not signed.
            Forged::SignedData => *data.last_mut().unwrap() ^= 0x80,
            _ => {}
        }
        let mut answer = self.answer(&json!({
            "clientDataJSON": URL_SAFE_NO_PAD.encode(client),
            "authenticatorData": URL_SAFE_NO_PAD.encode(data),
            "signature": URL_SAFE_NO_PAD.encode(signature),
        }));
        if forged == Forged::KeyId {
            answer["rawId"] = json!(URL_SAFE_NO_PAD.encode(b"another"));
        }
        answer
    }
}

fn client_data(kind: &str, options: &Value, forged: Forged) -> String {
    let origin = match forged {
        Forged::Origin => "https://evil.example",
        Forged::Subdomain => "https://evil.cloud.example.org",
        _ => ORIGIN,
    };
    let kind = if forged == Forged::Type { "payment.get" } else { kind };
    let challenge = match forged {
        Forged::Challenge => json!(URL_SAFE_NO_PAD.encode([7_u8; 32])),
        _ => options["challenge"].clone(),
    };
    let is_cross = forged == Forged::CrossOrigin;
    json!({"type": kind, "challenge": challenge, "origin": origin, "crossOrigin": is_cross}).to_string()
}

/// The value of an attribute that is once in the page.
fn attribute(page: &Answer, before: &str) -> String {
    let (_, after) = page.body.split_once(before).unwrap_or_else(|| panic!("{page:?}"));
    let value = after.split('"').next().unwrap();
    value.replace("&quot;", "\"").replace("&amp;", "&")
}

/// The options of the page for a security key.
fn options(page: &Answer) -> Value {
    serde_json::from_str(&attribute(page, "data-options=\"")).unwrap()
}

/// The codes that the page shows.
fn codes(page: &Answer) -> Vec<String> {
    let (_, after) = page.body.split_once("<code>").unwrap_or_else(|| panic!("{page:?}"));
    let codes: Vec<String> = after
        .split("</code>")
        .next()
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(codes.len(), 10, "{codes:?}");
    codes
}

/// Sends the password through the page.
async fn password(browser: &mut Browser<'_>, email: &str) -> Answer {
    let form = [("email", email), ("password", PASSWORD), ("return_to", "/account")];
    browser.send(Method::POST, "/sign-in", &form).await
}

/// Sends the second factor.
async fn second(browser: &mut Browser<'_>, field: &str, value: &str) -> Answer {
    let form = [(field, value), ("return_to", "/account")];
    browser.send(Method::POST, STEP, &form).await
}

/// Signs in with a recovery code.
async fn with_code(world: &World, email: &str, code: &str) -> Answer {
    let mut browser = Browser::new(world);
    password(&mut browser, email).await.is(200);
    second(&mut browser, "code", code).await
}

/// Begins to register a key, through the API.
async fn challenge(world: &World, token: &str) -> Answer {
    world
        .send(world.request(token, Method::POST, &format!("{KEYS}/challenge")))
        .await
}

/// Sends the registration of a key, through the API.
async fn add(world: &World, token: &str, begun: &Answer, credential: Value) -> Answer {
    let body = json!({"name": "Blue key", "challenge": begun.field("challenge"), "credential": credential});
    world.post(token, KEYS, body).await
}

/// Registers a key of the user of `token`. Returns the recovery codes, if the key is the first one.
async fn register(world: &World, token: &str, key: &SecurityKey) -> Vec<String> {
    let begun = challenge(world, token).await.is(200);
    let credential = key.create(&begun.json()["options"], Forged::Nothing);
    let added = add(world, token, &begun, credential).await.is(200).json();
    let codes = added["recovery_codes"].as_array().into_iter().flatten();
    codes.map(|code| code.as_str().unwrap().to_owned()).collect()
}

async fn execute(world: &World, statement: &'static str) {
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    database.execute(statement).await.unwrap();
}

#[track_caller]
fn is_refused(browser: &Browser<'_>, refused: Answer) {
    let refused = refused.is(401);
    assert!(refused.body.contains("sign in again"), "{refused:?}");
    assert_eq!((browser.token(), browser.cookies.len()), (String::new(), 0));
}

async fn a_key_or_a_code_signs_in_beside_the_password(world: World) {
    let olivia = world.owner().await;
    world.user(&olivia, &world.organization, "Alice", "member").await;
    let mut browser = Browser::new(&world);
    password(&mut browser, "alice@example.org").await.is(303);
    // Through the pages, as a person does.
    let csrf = browser.csrf().await;
    let new = "/account/security-keys/new";
    let page = browser.send(Method::POST, new, &[("csrf", &*csrf)]).await.is(200);
    assert_eq!(options(&page)["rp"]["id"], HOST);
    // Chromium refuses the protection of a key unless its user must be verified, too.
    assert_eq!(options(&page)["extensions"]["credentialProtectionPolicy"], Value::Null);
    let mut key = SecurityKey::new();
    let credential = key.create(&options(&page), Forged::Nothing).to_string();
    let begun = attribute(&page, "name=\"challenge\" value=\"");
    let form = [
        ("csrf", &*csrf),
        ("name", "Blue key"),
        ("challenge", &*begun),
        ("credential", &*credential),
    ];
    let added = browser
        .send(Method::POST, "/account/security-keys", &form)
        .await
        .is(200);
    let codes = codes(&added);
    let account = browser.get("/account").await.is(200).body;
    assert!(account.contains("Blue key") && account.contains("never"), "{account}");
    assert!(!account.contains(&codes[0]), "{account}");

    let mut browser = Browser::new(&world);
    let page = password(&mut browser, "alice@example.org").await.is(200);
    assert_eq!(browser.token(), "");
    let answer = key.get(&options(&page), Forged::Nothing).to_string();
    let signed_in = second(&mut browser, "credential", &answer).await.is(303);
    assert_eq!(signed_in.header("location"), "/account");
    assert_eq!(browser.cookies.len(), 1, "{:?}", browser.cookies);
    let account = browser.get("/account").await.is(200).body;
    assert!(!account.contains("never"), "{account}");
    let listed = world.get(&browser.token(), KEYS).await.is(200).json();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["name"]),
        (1, &json!("Blue key"))
    );
    with_code(&world, "alice@example.org", &codes[3].to_lowercase())
        .await
        .is(303);
    // The audit log has the key and no credential.
    let audit = world.get(&olivia, "~/audit").await.is(200).body;
    assert!(
        audit.contains("security-keys") && audit.contains("recovery-codes"),
        "{audit}"
    );
    assert!(!audit.contains(&codes[0]), "{audit}");
    // Others sign in as before.
    password(&mut Browser::new(&world), "olivia@example.org").await.is(303);
}

async fn a_password_alone_is_no_login(world: World) {
    let olivia = world.owner().await;
    let codes = register(&world, &olivia, &SecurityKey::new()).await;
    let login = json!({"email": "olivia@example.org", "password": PASSWORD});
    for method in ["password", "email"] {
        let path = format!("/v3/login/{method}");
        let refused = world.post("", &path, login.clone()).await.is(401);
        for text in ["tidewaiter cloud login", "--device"] {
            assert!(refused.body.contains(text), "{refused:?}");
        }
        let wrong = json!({"email": "olivia@example.org", "password": "not her password"});
        let wrong = world.post("", &path, wrong).await.is(401);
        assert!(!wrong.body.contains("security key"), "{wrong:?}");
    }
    let mut browser = Browser::new(&world);
    password(&mut browser, "olivia@example.org").await.is(200);
    let grant = browser.cookies["__Host-second-factor"].clone();
    // It is no token, no session, and no code of another login.
    world.get(&grant, "/v3/account").await.is(401);
    browser.cookies.insert("__Host-session".to_owned(), grant.clone());
    assert_eq!(
        browser.get("/account").await.is(303).header("location"),
        "/sign-in?return_to=%2Faccount"
    );
    let device = json!({"device_code": grant});
    world.post("", "/v3/login/device", device).await.is(400);
    let code = json!({"code": grant, "code_verifier": "a", "redirect_uri": "http://127.0.0.1:4711/"});
    world.post("", "/v3/login/browser", code).await.is(401);
    // The API ends no second step, even with the right code.
    let step = json!({"grant": grant, "code": codes[0]});
    world.post("", "/v3/login/second_factor", step).await.is(404);
    // In another browser, there is nothing to end.
    let mut other = Browser::new(&world);
    let refused = second(&mut other, "code", &codes[0]).await;
    is_refused(&other, refused);
}

async fn a_forged_signature_signs_nobody_in(world: World) {
    let olivia = world.owner().await;
    let (_, alice) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let (mut key, mut other) = (SecurityKey::new(), SecurityKey::new());
    register(&world, &olivia, &key).await;
    register(&world, &alice, &other).await;
    let mut browser = Browser::new(&world);
    for forged in [
        Forged::Origin,
        Forged::Subdomain,
        Forged::Type,
        Forged::Challenge,
        Forged::Host,
        Forged::UserPresence,
        Forged::Signature,
        Forged::SignedData,
        Forged::KeyId,
    ] {
        let page = password(&mut browser, "olivia@example.org").await.is(200);
        let answer = key.get(&options(&page), forged).to_string();
        let refused = second(&mut browser, "credential", &answer).await;
        assert_eq!(refused.status, 401, "{forged:?}");
        is_refused(&browser, refused);
    }
    // Another user's key, a key that nobody registered, and no answer.
    let mut unknown = SecurityKey::new();
    let mut named = SecurityKey::new();
    named.id.clone_from(&key.id);
    for key in [&mut other, &mut unknown, &mut named] {
        let page = password(&mut browser, "olivia@example.org").await.is(200);
        let answer = key.get(&options(&page), Forged::Nothing).to_string();
        let refused = second(&mut browser, "credential", &answer).await;
        is_refused(&browser, refused);
    }
    password(&mut browser, "olivia@example.org").await.is(200);
    let refused = second(&mut browser, "credential", "").await;
    is_refused(&browser, refused);
    // The first attempt has used the challenge, and so has a success.
    for forged in [Forged::Signature, Forged::Nothing] {
        let page = password(&mut browser, "olivia@example.org").await.is(200);
        let grant = browser.cookies["__Host-second-factor"].clone();
        let answer = key.get(&options(&page), forged).to_string();
        second(&mut browser, "credential", &answer).await;
        let mut replayed = Browser::new(&world);
        replayed.cookies.insert("__Host-second-factor".to_owned(), grant);
        let answer = key.get(&options(&page), Forged::Nothing).to_string();
        let refused = second(&mut replayed, "credential", &answer).await;
        is_refused(&replayed, refused);
        browser = Browser::new(&world);
    }
    // One user's challenge with the grant of another.
    let page = password(&mut browser, "olivia@example.org").await.is(200);
    let answer = key.get(&options(&page), Forged::Nothing).to_string();
    let mut others = Browser::new(&world);
    password(&mut others, "alice@example.org").await.is(200);
    let refused = second(&mut others, "credential", &answer).await;
    is_refused(&others, refused);
    // An expired challenge.
    execute(&world, "UPDATE login_grants SET expires_at = 0").await;
    let refused = second(&mut browser, "credential", &answer).await;
    is_refused(&browser, refused);
    // A counter that goes back, or stands still, is that of a copy.
    for back in [1, 2] {
        let page = password(&mut browser, "olivia@example.org").await.is(200);
        let answer = key.get(&options(&page), Forged::Nothing).to_string();
        second(&mut browser, "credential", &answer).await.is(303);
        browser = Browser::new(&world);
        let page = password(&mut browser, "olivia@example.org").await.is(200);
        key.counter -= back;
        let answer = key.get(&options(&page), Forged::Nothing).to_string();
        let refused = second(&mut browser, "credential", &answer).await;
        is_refused(&browser, refused);
        key.counter += back;
    }
    let listed = world.get(&olivia, KEYS).await.is(200).json();
    eventually("the audit log to have the failures", SOON, async || {
        let rows = world.get(&olivia, "~/audit?limit=1000").await.is(200).json();
        let is_failure = |row: &&Value| row["action"] == "failed-login" && row["object_id"] == listed[0]["id"];
        let found = rows.as_array().unwrap().iter().any(|row| is_failure(&row));
        if found { Ok(()) } else { Err(rows) }
    })
    .await;
}

async fn a_forged_registration_adds_no_key(world: World) {
    let olivia = world.owner().await;
    let (_, alice) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let key = SecurityKey::new();
    for forged in [
        Forged::Origin,
        Forged::Subdomain,
        Forged::CrossOrigin,
        Forged::Type,
        Forged::Challenge,
        Forged::Host,
        Forged::UserPresence,
    ] {
        let begun = challenge(&world, &olivia).await.is(200);
        let options = begun.json()["options"].clone();
        let refused = add(&world, &olivia, &begun, key.create(&options, forged)).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["field"]),
            (422, &json!("credential")),
            "{forged:?}"
        );
        // The first attempt has used the challenge.
        add(&world, &olivia, &begun, key.create(&options, Forged::Nothing))
            .await
            .is(422);
    }
    // A challenge of another user, of another login, and one that has expired.
    let begun = challenge(&world, &olivia).await.is(200);
    let credential = key.create(&begun.json()["options"], Forged::Nothing);
    for token in [&alice, &world.owner().await] {
        add(&world, token, &begun, credential.clone()).await.is(422);
    }
    execute(&world, "UPDATE login_grants SET expires_at = 0").await;
    add(&world, &olivia, &begun, credential).await.is(422);
    assert_eq!(world.get(&olivia, KEYS).await.is(200).json(), json!([]));
    // The challenge of a registration signs nobody in.
    register(&world, &olivia, &key).await;
    let begun = challenge(&world, &olivia).await.is(200);
    let mut browser = Browser::new(&world);
    browser
        .cookies
        .insert("__Host-second-factor".to_owned(), begun.field("challenge"));
    let refused = second(&mut browser, "credential", "{}").await;
    is_refused(&browser, refused);
    // One key is that of one user, and a user has ten.
    let begun = challenge(&world, &alice).await.is(200);
    let credential = key.create(&begun.json()["options"], Forged::Nothing);
    add(&world, &alice, &begun, credential).await.is(409);
    for _ in 1..10 {
        assert!(register(&world, &olivia, &SecurityKey::new()).await.is_empty());
    }
    let refused = challenge(&world, &olivia).await.is(409);
    assert!(refused.body.contains("10 security keys"), "{refused:?}");
}

async fn a_code_is_used_once_by_its_user(world: World) {
    let olivia = world.owner().await;
    let (_, alice) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let renew = world.request(&olivia, Method::POST, "/v3/account/recovery-codes");
    world.send(renew).await.is(409);
    let codes = register(&world, &olivia, &SecurityKey::new()).await;
    let others = register(&world, &alice, &SecurityKey::new()).await;
    with_code(&world, "olivia@example.org", &codes[0]).await.is(303);
    for code in [&*codes[0], &*others[0], "", "BCDFG-BCDFG-BCDFG-BCDFG"] {
        with_code(&world, "olivia@example.org", code).await.is(401);
    }
    let renew = world.request(&olivia, Method::POST, "/v3/account/recovery-codes");
    let renewed = world.send(renew).await.is(200).json();
    with_code(&world, "olivia@example.org", &codes[1]).await.is(401);
    let new = renewed["recovery_codes"][0].as_str().unwrap();
    // Anyone who has the password begins as often as they like, and keeps the owner out by it no more than before.
    for _ in 0..17 {
        password(&mut Browser::new(&world), "olivia@example.org").await.is(200);
    }
    with_code(&world, "olivia@example.org", new).await.is(303);
    // Digests alone are stored.
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let stored = "SELECT secret FROM objects WHERE kind = 'recovery-codes'";
    let stored: Vec<(String,)> = sqlx::query_as(stored).fetch_all(&mut database).await.unwrap();
    assert_eq!(stored.len(), 2);
    assert!(
        stored
            .iter()
            .all(|(secret,)| !secret.contains(new) && !secret.contains(&others[1]))
    );
}

/// The guesses of a thief of the password, from several addresses, count together: the right password proves none of
/// them to be the owner's.
async fn guesses_of_codes_are_limited(world: World) {
    let olivia = world.owner().await;
    register(&world, &olivia, &SecurityKey::new()).await;
    for guess in 0..40 {
        let mut browser = Browser::at(&world, [127, 0, 0, 2 + guess % 8]);
        let page = password(&mut browser, "olivia@example.org").await;
        // The failures count for the password too.
        if page.status == 429 {
            return;
        }
        second(&mut browser, "code", "BCDFG-BCDFG-BCDFG-BCDFG").await;
    }
    panic!("nobody counts the guesses");
}

async fn keys_change_with_a_recent_login(world: World) {
    let olivia = world.owner().await;
    let key = SecurityKey::new();
    let codes = register(&world, &olivia, &key).await;
    let listed = world.get(&olivia, KEYS).await.is(200).json();
    let own = format!("{KEYS}/{}", listed[0]["id"].as_str().unwrap());
    let begun = challenge(&world, &olivia).await.is(200);
    execute(
        &world,
        "UPDATE objects SET created_at = '2020-01-01T00:00:00Z' WHERE kind = 'tokens'",
    )
    .await;
    let added = SecurityKey::new().create(&begun.json()["options"], Forged::Nothing);
    let changed = json!({"old_password": PASSWORD, "new_password": "another good password"});
    let renew = world.request(&olivia, Method::POST, "/v3/account/recovery-codes");
    for refused in [
        challenge(&world, &olivia).await,
        add(&world, &olivia, &begun, added).await,
        world.delete(&olivia, &own).await,
        world.send(renew).await,
        world.put(&olivia, "/v3/account/password", changed.clone()).await,
    ] {
        let refused = refused.is(403);
        assert!(
            refused.body.contains("needs a login of the last 10 minutes"),
            "{refused:?}"
        );
    }
    let mut browser = Browser::new(&world);
    password(&mut browser, "olivia@example.org").await.is(200);
    second(&mut browser, "code", &codes[0]).await.is(303);
    // A new password ends what the old one has begun.
    let mut begun = Browser::new(&world);
    password(&mut begun, "olivia@example.org").await.is(200);
    world
        .put(&browser.token(), "/v3/account/password", changed)
        .await
        .is(204);
    let refused = second(&mut begun, "code", &codes[1]).await;
    is_refused(&begun, refused);
    // With the last key, the codes go too.
    world.delete(&browser.token(), &own).await.is(204);
    let login = world.log_in("olivia@example.org", "another good password").await;
    let kept = register(&world, &login.is(200).field("token"), &key).await;
    assert!(kept.len() == 10 && kept != codes, "{kept:?}");
}

async fn an_organization_requires_a_second_factor(world: World) {
    let olivia = world.owner().await;
    let required = json!({"second_factor_required": true});
    let (_, member) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let with_key = {
        let login = world.log_in("alice@example.org", PASSWORD).await.is(200).field("token");
        let codes = register(&world, &login, &SecurityKey::new()).await;
        let mut browser = Browser::new(&world);
        password(&mut browser, "alice@example.org").await.is(200);
        second(&mut browser, "code", &codes[0]).await.is(303);
        browser.token()
    };
    let program = json!({"name": "program", "expires_in_seconds": 600});
    let program = world
        .post(&olivia, "/v3/account/tokens", program)
        .await
        .is(201)
        .field("token");
    world.patch(&olivia, "~", required.clone()).await.is(200);
    // Logins of a password alone end, also the one of the request; programs and logins of more stay.
    for ended in [&olivia, &member] {
        world.get(ended, "/v3/account").await.is(401);
    }
    for stays in [&program, &with_key] {
        world.get(stays, "/v3/account").await.is(200);
    }
    // No program switches it off, and nobody goes around it for oneself.
    let optional = json!({"second_factor_required": false});
    world.patch(&program, "~", optional).await.is(403);
    let own = format!("~/users/{}", world.owner);
    let goes_around = async |token: &str| {
        let new = json!({"password": "another horse battery"});
        world.put(token, &format!("{own}/password"), new).await.is(403);
        world.delete(token, &format!("{own}/second-factor")).await.is(403);
    };
    goes_around(&program).await;
    // A client that does not know the field keeps it.
    let kept = world.put(&program, "~", json!({"name": "Acme"})).await.is(200);
    assert_eq!(kept.json()["second_factor_required"], true);
    let refused = world.log_in("olivia@example.org", PASSWORD).await.is(401);
    assert!(refused.body.contains("--device"), "{refused:?}");
    let mut browser = Browser::new(&world);
    let page = password(&mut browser, "olivia@example.org").await.is(200);
    assert_eq!(browser.token(), "");
    let forged = SecurityKey::new().create(&options(&page), Forged::Origin).to_string();
    let form = [
        ("credential", &*forged),
        ("name", "Blue key"),
        ("return_to", "/account"),
    ];
    let refused = browser.send(Method::POST, STEP, &form).await;
    is_refused(&browser, refused);
    // Anyone who has the password alone registers none beside the one that is there by then.
    let mut thief = Browser::new(&world);
    let asked = password(&mut thief, "olivia@example.org").await.is(200);
    let key = SecurityKey::new();
    let page = password(&mut browser, "olivia@example.org").await.is(200);
    let answer = key.create(&options(&page), Forged::Nothing).to_string();
    let form = [
        ("credential", &*answer),
        ("name", "Blue key"),
        ("return_to", "/account"),
    ];
    let shown = browser.send(Method::POST, STEP, &form).await.is(200);
    let codes = codes(&shown);
    goes_around(&browser.token()).await;
    let answer = SecurityKey::new().create(&options(&asked), Forged::Nothing).to_string();
    let form = [("credential", &*answer), ("name", "Red key"), ("return_to", "/account")];
    let refused = thief.send(Method::POST, STEP, &form).await;
    is_refused(&thief, refused);
    with_code(&world, "olivia@example.org", &codes[0]).await.is(303);
    let listed = world.get(&browser.token(), KEYS).await.is(200).json();
    let own = format!("{KEYS}/{}", listed[0]["id"].as_str().unwrap());
    let refused = world.delete(&browser.token(), &own).await.is(409);
    assert!(refused.body.contains("your last security key"), "{refused:?}");
    // Without a host name, nobody could register one.
    let world = world
        .restarted(|parts| parts.issuer = "https://192.0.2.1".parse().unwrap())
        .await;
    let mut browser = Browser::new(&world);
    let page = password(&mut browser, "olivia@example.org").await.is(200);
    assert!(!page.body.contains("data-options"), "{page:?}");
    second(&mut browser, "code", &codes[1]).await.is(303);
    let another = json!({"name": "Another", "second_factor_required": true});
    let refused = world.post(&browser.token(), "/v3/organizations", another).await.is(422);
    assert_eq!(refused.json()["field"], "second_factor_required");
}

async fn admins_and_offboarding_remove_a_second_factor(world: World) {
    let olivia = world.owner().await;
    let (id, alice) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let (_, max) = world.user(&olivia, &world.organization, "Max", "member").await;
    let path = format!("~/users/{id}/second-factor");
    register(&world, &alice, &SecurityKey::new()).await;
    world.log_in("alice@example.org", PASSWORD).await.is(401);
    world.delete(&max, &path).await.is(403);
    world.delete(&olivia, &path).await.is(204);
    let login = world.log_in("alice@example.org", PASSWORD).await.is(200).field("token");
    let audit = world.changes(&olivia, "~/audit").await;
    let deleted = audit
        .iter()
        .filter(|row| row["action"] == "delete")
        .map(|row| &row["kind"]);
    assert_eq!(
        deleted.collect::<Vec<_>>(),
        [&json!("recovery-codes"), &json!("security-keys")]
    );
    // The account goes with its keys and codes.
    register(&world, &login, &SecurityKey::new()).await;
    world.delete(&olivia, &format!("~/users/{id}")).await.is(204);
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    eventually("the keys and codes to be deleted", SOON, async || {
        let left = "SELECT COUNT(*) FROM objects WHERE kind IN ('security-keys', 'recovery-codes')";
        let (left,): (i64,) = sqlx::query_as(left).fetch_one(&mut database).await.unwrap();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}
