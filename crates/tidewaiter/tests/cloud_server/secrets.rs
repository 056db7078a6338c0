//! A whole run with secrets that can be found again: nothing that anybody keeps or shows holds one of them.

use reqwest::Method;
use serde_json::json;

use crate::ledger::Ledger;
use crate::world::{Ask, Land, On, PASSWORD, Place, Server, content};

const REGISTRY: &str = "marker-registry-8Qw4";
const PROVIDER: &str = "marker-provider-8Qw4";
const SCRIPT: &str = "marker-script-8Qw4";
const ALICE: &str = "marker-alice-password-8Qw4";
const CHANGED: &str = "marker-changed-password-8Qw4";

/// The secrets that must not be found, with their names.
type Secrets = Vec<(&'static str, String)>;

fn search(secrets: &Secrets, place: &str, text: &str) {
    for (what, secret) in secrets {
        assert!(!text.contains(secret.as_str()), "{what} is in {place}:\n{text}");
    }
}

/// Returns the part after the id of an API key: `twk_ID_SECRET`, where the secret may have underscores too.
fn secret_of(key: &str) -> String {
    let secret = key.splitn(3, '_').nth(2).unwrap();
    assert!(secret.len() > 40, "all of it");
    secret.to_owned()
}

/// Returns the command line of a process, which everybody on the machine can read.
fn arguments(server: &Server) -> String {
    let path = format!("/proc/{}/cmdline", server.process.pid());
    content(path.as_ref()).replace('\0', " ")
}

#[tokio::test]
async fn no_secret_leaves_its_place() {
    let place = Place::new(On::Postgres).await;
    place.add_setting("log", "{filter: debug, format: json}");
    place.init().await;
    let server = place.serve().await;
    let land = Land::make(&server).await;
    let mut secrets: Secrets = vec![
        ("the owner's password", PASSWORD.to_owned()),
        ("the database's password", place.database_password.clone().unwrap()),
        ("a registry's password", REGISTRY.to_owned()),
        ("a provider's key", PROVIDER.to_owned()),
        ("a script", SCRIPT.to_owned()),
        ("a user's password", ALICE.to_owned()),
        ("a new password", CHANGED.to_owned()),
        ("a token", land.token.clone()),
        ("an API key", secret_of(&land.api_key)),
        (
            "a sealing key",
            content(&place.data.join("sealing-keys"))
                .trim()
                .split(':')
                .nth(1)
                .unwrap()
                .to_owned(),
        ),
    ];
    for file in std::fs::read_dir(place.data.join("keys")).unwrap() {
        let pem = content(&file.unwrap().path());
        secrets.push(("a signing key", pem.lines().nth(1).unwrap().to_owned()));
    }
    fill(&server, &land, &mut secrets).await;

    for (method, path, body) in wrong(&land) {
        let answer = server.send(&land.token, method, &path, Ask::body(&body)).await.unwrap();
        assert!(answer.status.is_client_error(), "{path}: {answer:?}");
        search(&secrets, &format!("the refusal of {path}"), &answer.body);
    }
    raw_wrong(&server, &land, &secrets).await;
    let (_, _, _) = server
        .first_event(&land.api_key, &format!("{}/events", land.cluster), None)
        .await;

    for path in [
        "/metrics",
        "/readyz",
        "/healthz",
        "/openapi.json",
        "/.well-known/jwks.json",
        "/.well-known/openid-configuration",
    ] {
        let answer = server.get("", path).await;
        search(&secrets, path, &answer.body);
    }
    let audit = server
        .get(&land.token, &format!("{}/audit?limit=1000", land.organization))
        .await
        .is(200);
    assert!(
        audit.body.contains("registries") && audit.body.contains("providers"),
        "{audit:?}"
    );
    search(&secrets, "the audit", &audit.body);
    let events = format!("{}/events", land.cluster);
    let (id, ..) = server.first_event(&land.api_key, &events, None).await;
    let (epoch, _) = id.rsplit_once('-').unwrap();
    let (_, _, data) = server
        .first_event(&land.api_key, &events, Some(&format!("{epoch}-0")))
        .await;
    search(&secrets, "the stream", &data.to_string());
    search(&secrets, "the arguments", &arguments(&server));
    let (_, printed) = place.run(&["serve", "--print-config"]).await;
    search(&secrets, "--print-config", &printed);
    let copy = content(&place.backup("copy").await);
    assert!(Ledger::read(&copy).objects.keys().any(|(kind, _)| kind == "registries"));
    search(&secrets, "the copy of the database", &copy);
    // The log of everything that ran here.
    server.process.stop(crate::world::SOON).await;
    assert!(
        server.process.log().contains("\"DEBUG\""),
        "{}",
        server.process.log_tail()
    );
    for file in std::fs::read_dir(place.scratch.path()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            search(&secrets, &path.display().to_string(), &content(&path));
        }
    }
}

/// Everything that takes a secret, or makes one.
async fn fill(server: &Server, land: &Land, secrets: &mut Secrets) {
    let Land {
        token,
        organization,
        cluster,
        ..
    } = land;
    let registry = json!({"description": "ours", "provider": "private", "serveraddress": "registry.example.org", "credentials": {"username": "u", "password": REGISTRY}});
    server
        .post(token, &format!("{organization}/registries"), &registry)
        .await
        .is(201);
    let provider = json!({"provider": "digital_ocean", "description": "theirs", "credentials": {"token": PROVIDER}});
    server
        .post(token, &format!("{organization}/providers"), &provider)
        .await
        .is(201);
    let alice = json!({"name": "Alice", "email": "alice@example.org", "password": ALICE});
    server
        .post(token, &format!("{organization}/users"), &alice)
        .await
        .is(201);
    let login = json!({"email": "alice@example.org", "password": ALICE});
    let alice = server
        .post("", "/v3/login/password", &login)
        .await
        .is(200)
        .field("token");
    let changed = json!({"old_password": ALICE, "new_password": CHANGED});
    server
        .send(&alice, Method::PUT, "/v3/account/password", Ask::body(&changed))
        .await
        .unwrap()
        .is(204);
    let own = json!({"name": "laptop", "expires_in_seconds": 3600});
    let own = server
        .post(token, "/v3/account/tokens", &own)
        .await
        .is(201)
        .field("token");
    let short = server
        .post(token, &format!("{cluster}/token"), &json!({}))
        .await
        .field("token");
    let key = server
        .post(token, &format!("{cluster}/api-keys"), &json!({}))
        .await
        .is(201)
        .field("api_key");
    let login = json!({"api_key": land.api_key});
    let of_cluster = server
        .post("", "/v3/login/api_key", &login)
        .await
        .is(200)
        .field("token");
    for (what, token) in [
        ("alice's token", alice),
        ("a named token", own),
        ("a token for a cluster", short),
        ("a cluster's token", of_cluster),
    ] {
        secrets.push((what, token));
    }
    secrets.push(("a second API key", secret_of(&key)));
    let upgrade =
        json!({"type": "kubernetes", "targetVersion": "v1.31.0", "labelSelector": [], "nodeTimeoutSeconds": 600});
    let upgrade = server
        .post(token, &format!("{cluster}/upgrades"), &upgrade)
        .await
        .is(201)
        .field("id");
    let script = server
        .http
        .put(format!("{}{cluster}/upgrades/{upgrade}/script", server.base));
    let script = script
        .header("authorization", format!("JWT {token}"))
        .header("content-type", "text/x-shellscript");
    let script = script.body(format!("#!/bin/sh\necho {SCRIPT}\n")).send().await.unwrap();
    assert!(script.status().is_success(), "{}", script.text().await.unwrap());
}

/// Returns requests with secrets that are refused.
fn wrong(land: &Land) -> Vec<(Method, String, serde_json::Value)> {
    let Land { organization, .. } = land;
    let registries = format!("{organization}/registries");
    let credentials = |credentials: serde_json::Value| json!({"description": "ours", "provider": "private", "serveraddress": "registry.example.org", "credentials": credentials});
    vec![
        (
            Method::POST,
            registries.clone(),
            credentials(json!({"username": "u", "pasword": REGISTRY})),
        ),
        (Method::POST, registries.clone(), credentials(json!({REGISTRY: "u"}))),
        (Method::POST, registries.clone(), credentials(json!(REGISTRY))),
        (Method::POST, registries, credentials(json!([REGISTRY, PROVIDER]))),
        (
            Method::POST,
            format!("{organization}/users"),
            json!({"name": "Bob", "email": "bob@example.org", "password": [ALICE]}),
        ),
        (
            Method::POST,
            "/v3/login/password".to_owned(),
            json!({"email": "alice@example.org", "password": CHANGED, "x": ALICE}),
        ),
        (
            Method::POST,
            "/v3/login/password".to_owned(),
            json!({"email": "nobody@example.org", "password": ALICE}),
        ),
        (Method::POST, "/v3/login/password".to_owned(), json!(ALICE)),
        (
            Method::POST,
            "/v3/login/api_key".to_owned(),
            json!({"api_key": format!("{}x", land.api_key)}),
        ),
        (
            Method::PUT,
            "/v3/account/password".to_owned(),
            json!({"old_password": ALICE, "new_password": "short"}),
        ),
    ]
}

/// Sends bodies that are not valid JSON, and invalid tokens.
async fn raw_wrong(server: &Server, land: &Land, secrets: &Secrets) {
    let half = format!("{{\"credentials\": {{\"password\": \"{REGISTRY}\"");
    let path = format!("{}{}/registries", server.base, land.organization);
    let request = server
        .http
        .post(path)
        .header("authorization", format!("JWT {}", land.token));
    let answer = request
        .header("content-type", "application/json")
        .body(half)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 400);
    search(secrets, "the refusal of half a body", &answer.text().await.unwrap());
    for authorization in [
        format!("JWT {}x", land.token),
        format!("Basic {}", land.token),
        format!("Bearer {}x", land.api_key),
        land.api_key.clone(),
    ] {
        let request = server.http.get(format!("{}/v3/account", server.base));
        let answer = request.header("authorization", authorization).send().await.unwrap();
        assert_eq!(answer.status(), 401);
        search(secrets, "the refusal of a token", &answer.text().await.unwrap());
    }
}
