//! Clients without an account, and tenants that take more than their part: an honest client beside them gets no error.
//!
//! Attackers come from other loopback addresses than the honest client.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, select_all};
use reqwest::Client;
use serde_json::json;
use tidewaiter_testkit::{Postgres, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use uuid::Uuid;

use crate::errors::limited;
use crate::stream::{Listening, SOON};
use crate::world::{PASSWORD, World};

const EMAIL: &str = "olivia@example.org";

/// A connection from 127.0.0.`last`.
pub async fn connect(world: &World, last: u8, text: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    let address: SocketAddr = world.base.trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Everything until the server closes the connection.
pub async fn rest(mut stream: TcpStream) -> String {
    let mut read = Vec::new();
    let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut read)).await;
    ended.expect("the end of the connection").unwrap();
    String::from_utf8(read).unwrap()
}

/// A client at 127.0.0.`last`.
fn client(last: u8) -> Client {
    let timeout = Duration::from_mins(1);
    let client = Client::builder().local_address(std::net::IpAddr::from([127, 0, 0, last]));
    client.timeout(timeout).build().unwrap()
}

async fn guess(world: &World, client: &Client, email: &str, forwarded: &str) -> u16 {
    let request = client.post(format!("{}/v3/login/password", world.base));
    let request = request.json(&json!({"email": email, "password": "a wrong password"}));
    let request = if forwarded.is_empty() {
        request
    } else {
        request.header("forwarded", forwarded)
    };
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn unfinished_bodies_take_nothing_from_others() {
    let world = limited(|parts| parts.limits.requests_at_once = 64).await;
    let owner = world.owner().await;
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let key = made.field("api_key");
    let head =
        "POST /v3/login/password HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    let attack = (0..100).flat_map(|_| (2..6).map(|last| connect(&world, last, head)));
    let unfinished = join_all(attack).await;
    for _ in 0..20 {
        for path in ["/.well-known/openid-configuration", "/.well-known/jwks.json"] {
            world.get("", path).await.is(200);
        }
        world.get(&key, "~/users").await.is(200);
        world
            .post(
                &owner,
                "~/registries",
                crate::fixture::registry(&Uuid::new_v4().to_string()),
            )
            .await
            .is(201);
    }
    world.owner().await;
    // Each ends within its deadline with a response that says so.
    for stream in unfinished {
        let told = rest(stream).await.to_lowercase();
        let refused = told.starts_with("http/1.1 408") || told.starts_with("http/1.1 429");
        assert!(refused && told.contains("\r\nconnection: close\r\n"), "{told}");
    }
}

/// Each address has few, and all together have more than what a budget for all of them could hold.
#[tokio::test]
async fn unfinished_bodies_from_many_addresses_delay_no_login() {
    let world = limited(|parts| parts.limits.proxies.0 = vec!["127.0.0.2/32".parse().unwrap()]).await;
    let login = |number: usize| {
        format!(
            "POST /v3/login/password HTTP/1.1\r\nhost: x\r\nforwarded: for=198.51.100.{}\r\n\
             content-type: application/json\r\ncontent-length: 8192\r\n\r\n{{",
            number % 200
        )
    };
    // A GET of what is public reserves no more.
    let document = |number| login(number).replace("POST /v3/login/password", "GET /.well-known/jwks.json");
    for head in [&login as &dyn Fn(usize) -> String, &document] {
        let heads: Vec<String> = (0..400).map(head).collect();
        // On a busy machine, the first may be too old when the last has begun.
        eventually("a login before the first unfinished one ends", SOON, async || {
            let unfinished = join_all(heads.iter().map(|head| connect(&world, 2, head))).await;
            let ended = select_all(unfinished.into_iter().map(|stream| Box::pin(rest(stream))));
            // A connection of its own is accepted after those of the others.
            let honest = client(1).post(format!("{}/v3/login/api_key", world.base));
            tokio::select! {
                biased;
                (told, ..) = ended => Err(told),
                answer = honest.json(&json!({})).send() => {
                    // It was read: the field is missing.
                    assert_eq!(answer.unwrap().status(), 422);
                    Ok(())
                }
            }
        })
        .await;
    }
}

/// It is large, and a request for it is small.
#[tokio::test]
async fn the_description_of_the_api_is_sent_to_one_address_once_a_second() {
    let world = World::sqlite().await;
    let asked = join_all((0..40).map(|_| world.get("", "/openapi.json"))).await;
    let refused: Vec<_> = asked.into_iter().filter(|answer| answer.status != 200).collect();
    assert!(!refused.is_empty());
    for answer in refused {
        assert_eq!(answer.is(429).header("retry-after"), "1");
    }
    world.get("", "/.well-known/jwks.json").await.is(200);
    world.owner().await;
}

/// The memory for a body of 64 KiB takes one of the 24 MiB of its caller, before anything of it is read.
#[tokio::test]
async fn large_bodies_of_one_caller_take_nothing_from_others() {
    let world = limited(|parts| parts.limits.requests_at_once = 512).await;
    let owner = world.owner().await;
    let (_, member) = world.user(&owner, &world.organization, "Mallory", "admin").await;
    let path = format!("/v3/organizations/{}/roles", world.organization);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: JWT {member}\r\ncontent-type: application/json\r\ncontent-length: 65536\r\n\r\n"
    );
    // They are waited for longer than the other request waits, where the machine lets it come in time.
    let head = head + &" ".repeat(63 * 1024);
    let small = |token, name| world.post(token, "~/roles", crate::fixture::role(name));
    let mut unfinished = Vec::new();
    let mut asked = 0_u32;
    let refused = eventually("the bodies to be in progress", SOON, async || {
        if asked.is_multiple_of(100) {
            unfinished = join_all((0..24).map(|_| connect(&world, 2, &head))).await;
        }
        asked += 1;
        let answer = small(&member, "of-the-same").await;
        if answer.status == 429 {
            Ok(answer)
        } else {
            Err(answer.status)
        }
    })
    .await;
    assert!(
        refused.body.contains("requests in progress of this caller"),
        "{refused:?}"
    );
    small(&owner, "of-another").await.is(201);
    drop(unfinished);
    eventually("what they had to be free", SOON, async || {
        let answer = small(&member, "afterwards").await;
        if answer.status == 201 {
            Ok(())
        } else {
            Err(answer.status)
        }
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_logins_delays_nobody_else() {
    let world = limited(|parts| parts.limits.requests_at_once = 64).await;
    let owner = world.owner().await;
    let attacker = client(2);
    let flood = async {
        let mut refused = 0;
        for round in 0..10 {
            let emails: Vec<String> = (0..60).map(|number| format!("u{round}-{number}@example.org")).collect();
            let answers = join_all(emails.iter().map(|email| guess(&world, &attacker, email, ""))).await;
            assert!(answers.iter().all(|status| [401, 429].contains(status)), "{answers:?}");
            refused += answers.iter().filter(|status| **status == 429).count();
        }
        refused
    };
    let honest = async {
        for _ in 0..20 {
            world.get(&owner, "/v3/account").await.is(200);
            world.get("", "/.well-known/jwks.json").await.is(200);
            world.owner().await;
        }
    };
    let (refused, ()) = futures::join!(flood, honest);
    assert!(refused > 400, "{refused}");
}

#[tokio::test]
async fn passwords_that_one_caller_sets_stop_nobodys_logins() {
    let world = limited(|parts| parts.limits.requests_at_once = 512).await;
    let owner = world.owner().await;
    let (_, admin) = world.user(&owner, &world.organization, "Adam", "admin").await;
    let (member, _) = world.user(&owner, &world.organization, "Mia", "member").await;
    let path = format!("~/users/{member}/password");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let one = async || {
        let mut set = 0;
        while !*stopped.borrow() {
            let status = world.put(&admin, &path, json!({ "password": PASSWORD })).await.status;
            assert!([204, 429].contains(&status.as_u16()), "{status}");
            set += usize::from(status == 204);
        }
        set
    };
    let honest = async {
        for _ in 0..20 {
            world.owner().await;
        }
        stop.send_replace(true);
    };
    let (set, ()) = futures::join!(join_all((0..64).map(|_| one())), honest);
    assert!(set.iter().sum::<usize>() > 0, "{set:?}");
}

#[tokio::test]
async fn the_same_password_is_refused_before_it_is_hashed() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    let body = json!({ "old_password": "not the current one", "new_password": "not the current one" });
    let refused = world.put(&owner, "/v3/account/password", body).await.is(422);
    assert!(refused.body.contains("is the same as old_password"), "{refused:?}");
}

#[tokio::test]
async fn nobody_locks_an_owner_out_by_guessing() {
    let world = World::sqlite().await;
    world.owner().await;
    let attackers: Vec<Client> = (2..8).map(client).collect();
    let mut refused = 0;
    for _ in 0..20 {
        let guesses = attackers.iter().map(|attacker| guess(&world, attacker, EMAIL, ""));
        refused += join_all(guesses).await.iter().filter(|status| **status == 429).count();
    }
    assert!(refused > 60, "{refused}");
    for _ in 0..30 {
        world.log_in(EMAIL, PASSWORD).await.is(200);
    }
}

#[tokio::test]
async fn only_a_trusted_proxy_names_the_client() {
    let world = limited(|parts| parts.limits.proxies.0 = vec!["127.0.0.2/32".parse().unwrap()]).await;
    let (proxy, stranger) = (client(2), client(3));
    let tried = async |client: &Client, forwarded: &str, number: usize| {
        let email = format!("{}@example.org", Uuid::new_v4());
        guess(&world, client, &email, &forwarded.replace('#', &number.to_string())).await
    };
    // All at once: one after the other, a slow machine would guess no faster than it may.
    let is_refused = async |client: &Client, forwarded: &str| {
        eventually(format!("{forwarded} to be refused"), SOON, async || {
            join_all((0..30).map(|number| tried(client, forwarded, number))).await;
            match tried(client, forwarded, 99).await {
                429 => Ok(()),
                other => Err(other),
            }
        })
        .await;
    };
    // Invented addresses of a client count for the one that the proxy saw.
    is_refused(&proxy, "for=203.0.113.#, for=198.51.100.7").await;
    for number in 0..25 {
        assert_eq!(tried(&proxy, "for=198.51.101.#", number).await, 401, "{number}");
    }
    is_refused(&stranger, "for=198.51.102.#").await;
}

#[tokio::test]
async fn a_caller_has_so_many_streams() {
    let world = limited(|parts| parts.limits.streams = 3).await;
    let owner = world.owner().await;
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let (path, key) = (format!("~/clusters/{}", made.field("id")), made.field("api_key"));
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = Listening::to(&world, &key, &path, None).await;
        stream.heard().await;
        open.push(stream);
    }
    let events = format!("{path}/events");
    let refused = world.get(&key, &events).await.is(429);
    assert!(refused.body.contains("3 open change streams"), "{refused:?}");
    // Others have their own.
    Listening::to(&world, &owner, &path, None).await.heard().await;
    open.pop();
    eventually("a stream that ended to make room", SOON, async || {
        let answer = world.get(&key, &events).await;
        if answer.status == 200 {
            Ok(())
        } else {
            Err(answer.status)
        }
    })
    .await;
}

#[tokio::test]
async fn a_refusal_before_the_body_says_that_the_connection_ends() {
    let world = World::sqlite().await;
    let head = "POST /v3/organizations HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{";
    let told = rest(connect(&world, 1, head).await).await.to_lowercase();
    assert!(told.starts_with("http/1.1 401"), "{told}");
    assert!(told.contains("\r\nconnection: close\r\n"), "{told}");
    // Without a body the connection goes on.
    let request = "GET /v3/organizations HTTP/1.1\r\nhost: x\r\n\r\n";
    let last = "GET /v3/organizations HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let told = rest(connect(&world, 1, &format!("{request}{last}")).await).await;
    assert_eq!(told.matches("HTTP/1.1 401").count(), 2, "{told}");
}

#[tokio::test]
async fn a_request_of_http_1_1_has_a_host() {
    let world = World::sqlite().await;
    for (head, status) in [
        ("GET /.well-known/jwks.json HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        (
            "GET http://x/.well-known/jwks.json HTTP/1.1\r\nconnection: close\r\n\r\n",
            400,
        ),
        ("GET /.well-known/jwks.json HTTP/1.0\r\n\r\n", 200),
    ] {
        let told = rest(connect(&world, 1, head).await).await;
        let found = told.split(' ').nth(1).unwrap();
        assert_eq!(found, status.to_string(), "{told}");
        assert_eq!(told.contains("host: is missing"), status == 400, "{told}");
    }
}

/// The HTTP library refuses these, before any of our code, with a status and no body.
#[tokio::test]
async fn what_is_not_http_ends_its_connection() {
    let world = World::sqlite().await;
    // As large as a head may be, and not at its end: nothing is left unread, which would reset the connection.
    let long = "x".repeat(16 * 1024 - "GET /".len());
    let headers = "a: b\r\n".repeat(200);
    for (request, status) in [
        ("GET\r\n\r\n".to_owned(), 400),
        ("G\0T / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nna me: x\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400),
        (
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_owned(),
            400,
        ),
        (format!("GET /{long}"), 431),
        (format!("GET / HTTP/1.1\r\n{headers}\r\n"), 431),
    ] {
        let told = rest(connect(&world, 1, &request).await).await;
        let shown = request.chars().take(40).collect::<String>();
        assert!(told.starts_with(&format!("HTTP/1.1 {status}")), "{shown}: {told}");
        assert!(told.ends_with("\r\n\r\n"), "{shown} has no body: {told}");
    }
    // After a request that is one, too.
    let good = "GET /v3/organizations HTTP/1.1\r\nhost: x\r\n\r\n";
    let told = rest(connect(&world, 1, &format!("{good}GET\r\n\r\n")).await).await;
    assert!(
        told.starts_with("HTTP/1.1 401") && told.contains("HTTP/1.1 400"),
        "{told}"
    );
    world.get("", "/docs").await.is(200);
}

/// The same server after a restart, with one request a second for each caller.
async fn slow(first: World) -> World {
    first
        .restarted(|parts| parts.limits.requests_a_second = NonZeroU32::MIN)
        .await
}

/// After a start, no caller is known. Those who send invented tokens may share the address of a proxy with the cluster.
#[tokio::test]
async fn invented_tokens_take_nothing_from_valid_ones() {
    let first = World::sqlite().await;
    let owner = first.owner().await;
    let made = first.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let key = made.field("api_key");
    let world = slow(first).await;
    let invented = |number: u32| format!("twk_{}_{}", Uuid::from_u128(number.into()).simple(), "A".repeat(43));
    for number in 0..30 {
        for token in [invented(number), "e30.e30.e30".to_owned(), "twk_".to_owned()] {
            let status = world.get(&token, "~/users").await.status.as_u16();
            assert!([401, 429].contains(&status), "{status}");
        }
    }
    // All at once: one after the other, a slow machine would ask no faster than it may.
    let invented: Vec<String> = (0..30).map(invented).collect();
    let answers = join_all(invented.iter().map(|token| world.get(token, "~/users"))).await;
    assert!(answers.iter().any(|answer| answer.status == 429), "{answers:?}");
    for token in [&key, &owner] {
        world.get(token, "~/users").await.is(200);
    }
}

#[tokio::test]
async fn invented_keys_count_before_they_are_looked_up() {
    let postgres = Postgres::start().await;
    let database = postgres.create_database().await;
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let first = World::begun(postgres.url(&database).parse().unwrap(), folder).await;
    let world = slow(first).await;
    // While the database is away, no caller can be identified.
    postgres.stop().await;
    let key = |number: u32| format!("twk_{}_{}", Uuid::from_u128(number.into()).simple(), "A".repeat(43));
    let keys: Vec<String> = (0..30).map(key).collect();
    let answers = join_all(keys.iter().map(|key| world.get(key, "/v3/account"))).await;
    let refused = answers.iter().filter(|answer| answer.status == 429).count();
    assert!(refused >= 15, "{refused} of {answers:?}");
}

/// Revoked tokens are signed, but all of one user count together: they take little from others while the database is
/// slow.
#[tokio::test]
async fn revoked_tokens_of_a_user_count_together() {
    let postgres = Postgres::start().await;
    let database = postgres.create_database().await;
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let first = World::begun(postgres.url(&database).parse().unwrap(), folder).await;
    let owner = first.owner().await;
    let mut revoked = Vec::new();
    for number in 0..40 {
        let token = json!({"name": format!("t{number}"), "expires_in_seconds": 3600});
        let token = first.post(&owner, "/v3/account/tokens", token).await.is(201);
        let path = format!("/v3/account/tokens/{}", token.field("id"));
        first.delete(&owner, &path).await.is(204);
        revoked.push(token.field("token"));
    }
    let world = slow(first).await;
    // While the database is away, each look-up lasts.
    postgres.stop().await;
    let answers = join_all(revoked.iter().map(|token| world.get(token, "/v3/account"))).await;
    // Ten of the user, and ten of the address.
    let refused = answers.iter().filter(|answer| answer.status == 429).count();
    assert!(refused >= 15, "{refused} of {answers:?}");
}

/// The id of an API key is no secret. After a start the server has verified no key yet.
#[tokio::test]
async fn the_id_of_a_key_keeps_no_cluster_out() {
    let first = World::sqlite().await;
    let owner = first.owner().await;
    let made = first.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let key = made.field("api_key");
    let world = slow(first).await;
    // The id has 32 digits.
    let invented = format!("JWT {}_{}", &key[.."twk_".len() + 32], "A".repeat(43));
    let attackers: Vec<Client> = (2..12).map(client).collect();
    let attack = attackers.iter().flat_map(|attacker| (0..10).map(move |_| attacker));
    let attack = attack.map(|attacker| {
        let request = attacker.get(format!("{}/v3/account", world.base));
        request.header("authorization", &invented).send()
    });
    for answer in join_all(attack).await {
        let status = answer.unwrap().status().as_u16();
        assert!([401, 429].contains(&status), "{status}");
    }
    world.get(&key, "~/users").await.is(200);
}
