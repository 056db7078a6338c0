//! Attacks on the server as its operator runs it, on both databases, and an honest client beside each: it gets no
//! error, and its slowest requests take at most ten times as long as without the attack.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use reqwest::{Method, StatusCode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tidewaiter_testkit::every;
use tidewaiter_testkit::usage::Peak;

use crate::attackers::{ATTACKS, CONNECTIONS, Field, elsewhere, prepare};
use crate::world::{Answer, Ask, EMAIL, Land, On, PASSWORD, Place, Server};

/// The rounds of the honest client, each of five requests.
const ROUNDS: usize = 80;
/// The factor by which the slowest requests may be slower.
const RATIO: u32 = 10;
/// The limit of a fast request: a busy machine delays single requests by so much without any attack. The server here is
/// not optimized, and other tests run beside it; `make bench` measures the ratio of the released one.
const FAST: Duration = Duration::from_millis(100);
/// The number of tries of an attack: the machine may have become busier since the quiet requests, which are measured
/// again.
const TRIES: usize = 5;
/// The memory of the container, in MiB.
const MEMORY: f64 = 512.0;
/// The tokens that the owner of the other organization has before the attack with tokens begins.
const TOKENS: usize = 3_000;
/// An answer to the honest client, which is never an error.
#[track_caller]
fn good(server: &Server, answer: &Answer, what: &str) {
    let status = answer.status;
    assert!(
        status.is_success() || status == StatusCode::NOT_MODIFIED,
        "{what}: {answer:?}\n{}",
        server.process.log_tail()
    );
}

/// The honest client: a cluster that polls, an API server that fetches the signing keys, and an owner who changes a
/// label. How long the requests took, the slowest hundredth of them left out.
async fn honest(server: &Server, land: &Land, label: &str, what: &str) -> Duration {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let value = json!({ "value": format!("v{round}") });
        for (token, method, path, body) in [
            (&*land.api_key, Method::GET, &*land.labels, None),
            (
                &*land.api_key,
                Method::GET,
                &*format!("{}/users", land.organization),
                None,
            ),
            ("", Method::GET, "/.well-known/jwks.json", None),
            ("", Method::GET, "/.well-known/openid-configuration", None),
            (&*land.token, Method::PATCH, label, Some(&value)),
        ] {
            let ask = body.map(Ask::body).unwrap_or_default();
            let began = Instant::now();
            let answer = server.send(token, method.clone(), path, ask).await;
            times.push(began.elapsed());
            good(
                server,
                &answer.unwrap_or_else(|error| panic!("{what}: {method} {path}: {error:?}")),
                what,
            );
        }
        if round % 10 == 0 {
            // Their address is known: verified while others guess. How long that takes depends on the processor.
            server.log_in().await;
        }
    }
    let answer = server.get(&land.token, label).await;
    assert_eq!(answer.field("value"), format!("v{}", ROUNDS - 1), "{what}");
    times.sort_unstable();
    times[times.len() * 99 / 100 - 1]
}

/// An organization with a cluster, and many users.
async fn another(server: &Server, operator: &str) -> (Land, Vec<String>) {
    let made = server
        .post(operator, "/v3/organizations", &json!({"name": "Other"}))
        .await;
    let organization = format!("/v3/organizations/{}", made.is(201).field("id"));
    let users = format!("{organization}/users");
    let olaf = json!({"name": "Olaf", "email": "olaf@example.com", "role": "owner", "password": PASSWORD});
    server.post(operator, &users, &olaf).await.is(201);
    let login = json!({"email": "olaf@example.com", "password": PASSWORD});
    let token = server
        .post("", "/v3/login/password", &login)
        .await
        .is(200)
        .field("token");
    let mut made = Vec::new();
    for number in 0..200 {
        let body = json!({"name": format!("User {number}"), "email": format!("user-{number}@example.org")});
        made.push(server.post(&token, &users, &body).await.is(201).field("id"));
    }
    (Land::of(server, token, organization).await, made)
}

/// Gives the owner of the other organization so many tokens that whatever reads all of them at each write is seen.
async fn with_tokens(server: &Server, token: &str) {
    let made = (0..TOKENS).map(async |number| {
        let body = json!({"name": number.to_string(), "expires_in_seconds": 3600});
        server.post(token, "/v3/account/tokens", &body).await.is(201);
    });
    stream::iter(made).buffer_unordered(32).collect::<Vec<_>>().await;
}

async fn withstands(on: On) {
    let files = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, all).unwrap();
    let place = Place::new(on).await;
    place.add_setting("connections", &CONNECTIONS.to_string());
    place.add_setting("quotas", &format!("{{tokens: {}}}", 2 * TOKENS));
    place.init().await;
    let server = place.serve().await;
    let land = Land::make(&server).await;
    let body = json!({"key": "cluster.containership.io/honest", "value": ""});
    let label = server.post(&land.token, &land.labels, &body).await.is(201).field("id");
    let label = format!("{}/{label}", land.labels);
    let (other, users) = another(&server, &land.token).await;
    with_tokens(&server, &other.token).await;
    let field = Arc::new(Field {
        address: server.base.trim_start_matches("http://").parse().unwrap(),
        email: EMAIL.to_owned(),
        user: format!("{}/users/{}", other.organization, users[0]),
        users,
        organization: other.organization,
        token: other.token,
        cluster: other.cluster,
        api_key: other.api_key,
    });
    prepare(&field).await;
    honest(&server, &land, &label, "the first requests").await;
    let stream = server.http.get(format!("{}{}/events", server.base, land.cluster));
    let stream = stream.header("authorization", format!("JWT {}", land.api_key));
    let stream = stream.timeout(Duration::from_hours(1)).send();
    let mut stream = stream.await.unwrap().error_for_status().unwrap();
    let mut memory = Peak::begin(server.process.pid());
    let mut quiet = honest(&server, &land, &label, "quiet").await;
    println!("{on:?}: quiet, p99 {quiet:?}");
    let mut failed = Vec::new();
    let elsewhere = elsewhere().unwrap();
    // One half with one database, the other half with the other.
    let first = usize::from(matches!(on, On::Postgres)) % every(2);
    let attacks: Vec<_> = ATTACKS.iter().skip(first).step_by(every(2)).collect();
    for (name, attack) in &attacks {
        let mut all = Vec::new();
        while all.len() < TRIES {
            let mut attackers = {
                let _there = elsewhere.enter();
                attack(&field)
            };
            let attacked = honest(&server, &land, &label, name).await;
            attackers.shutdown().await;
            println!("{on:?}: {name}, p99 {attacked:?}");
            if attacked <= quiet.max(FAST) * RATIO {
                break;
            }
            all.push(attacked);
            quiet = honest(&server, &land, &label, "quiet").await;
            println!("{on:?}: quiet, p99 {quiet:?}");
        }
        if all.len() == TRIES {
            failed.push((name, all));
        }
    }
    elsewhere.shutdown_background();
    assert!(failed.is_empty(), "quiet {quiet:?}, and {failed:?}");
    memory.look();
    let memory = memory.end().anonymous;
    println!("{on:?}: at most {memory} MiB");
    assert!(memory < MEMORY, "{memory}");
    // The stream is the one of before, and its client did not have to list everything again.
    let mut heard = String::new();
    while heard.matches("event: change").count() < attacks.len() {
        let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
        heard.push_str(str::from_utf8(&chunk).unwrap());
    }
    let (_, later) = heard.split_once("\n\n").unwrap();
    assert!(!later.contains("event: reset"), "{heard}");
    assert!(server.process.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_client_is_served_beside_every_attack_on_sqlite() {
    withstands(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_honest_client_is_served_beside_every_attack_on_postgres() {
    withstands(On::Postgres).await;
}
