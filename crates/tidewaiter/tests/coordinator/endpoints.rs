//! `/metadata` and `/terminate`: who gets an answer, and what strangers can do to them.

use serde_json::{Value, json};
use tidewaiter_testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cloud::{Cloud, Fault};
use crate::{Replica, SOON, World, write};

/// The status of `GET /metadata` with this token.
async fn asked(world: &World, replica: &Replica, token: &str) -> u16 {
    world.get(replica, "/metadata", token).await.unwrap().status().as_u16()
}

async fn serves(world: &World, replica: &Replica, token: &str) -> Value {
    eventually("the endpoints to answer", SOON, async || {
        let answer = world
            .get(replica, "/metadata", token)
            .await
            .map_err(|error| error.to_string())?;
        match answer.status().as_u16() {
            200 => Ok(answer.json().await.unwrap()),
            status => Err(status.to_string()),
        }
    })
    .await
}

/// Waits until the coordinator has read the keys of the cloud.
async fn has_keys(cloud: &Cloud) {
    eventually("the keys to be read", SOON, async || {
        if cloud.seen("/.well-known/jwks.json").is_empty() {
            Err("not yet")
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn only_members_of_the_organization_learn_which_cluster_this_is() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let replica = world.coordinator_of(&cloud);
    let answer = serves(&world, &replica, &cloud.owner).await;
    let metadata = &answer["containership"];
    assert_eq!(metadata["cluster_id"], json!(cloud.cluster), "{answer}");
    assert_eq!(metadata["organization_id"], json!(cloud.organization), "{answer}");
    assert!(
        metadata["build_info"]["version"].is_string() && answer["timestamp"].is_string(),
        "{answer}"
    );

    let reader = cloud.user(&cloud.organization, "reader", "read_only").await;
    let own = cloud.kubernetes_token(&reader, &cloud.cluster).await;
    for (name, token) in [
        ("a reader", &reader),
        ("a token for the cluster", &own),
        ("the cluster's key", &cloud.key),
    ] {
        assert_eq!(asked(&world, &replica, token).await, 200, "{name}");
    }
    let other = cloud.other_organization().await;
    let stranger = cloud.user(&other, "stranger", "owner").await;
    let beside = cloud.post("~/clusters", json!({"name": "beside"})).await;
    let beside = cloud
        .kubernetes_token(&cloud.owner, beside["id"].as_str().unwrap())
        .await;
    let foreign = cloud
        .post(
            &format!("/v3/organizations/{other}/clusters"),
            json!({"name": "theirs"}),
        )
        .await;
    let foreign = foreign["api_key"].as_str().unwrap().to_owned();
    let expired = cloud.expired_token();
    let forged = format!("{}.{}", &own[..own.rfind('.').unwrap()], "A".repeat(86));
    let long = format!("a.b.{}", "c".repeat(10_000));
    let tokens = [
        ("nobody", "", 401),
        ("garbage", "garbage", 401),
        ("something like a token", "a.b.c", 401),
        ("something like a key", "twk_hunter2", 401),
        ("a member of another organization", &stranger, 403),
        ("a cluster of another organization", &foreign, 403),
        ("a token for another cluster", &beside, 403),
        ("an expired token", &expired, 401),
        ("a forged token", &forged, 401),
        ("a long token", &long, 401),
    ];
    for (name, token, status) in tokens {
        assert_eq!(asked(&world, &replica, token).await, status, "{name}");
        let refused = world.delete(&replica, "/terminate", token).await.unwrap();
        assert_eq!(refused.status().as_u16(), status, "{name}");
        let body: Value = refused.json().await.unwrap();
        assert_eq!(body["code"], json!(status), "{body}");
    }
    // Those who may read and may not terminate.
    for (name, token) in [("a reader", &reader), ("the cluster's key", &cloud.key)] {
        let refused = world.delete(&replica, "/terminate", token).await.unwrap();
        assert_eq!(refused.status().as_u16(), 403, "{name}");
    }
    assert!(!world.is_terminating().await);
    let unknown = world.get(&replica, "/v3/users", &cloud.owner).await.unwrap();
    assert_eq!(unknown.status().as_u16(), 404);
    let wrong = world.delete(&replica, "/metadata", &cloud.owner).await.unwrap();
    assert_eq!(wrong.status().as_u16(), 405);
    let said = replica.process.log();
    for (name, token, _) in tokens.iter().filter(|(_, token, _)| token.len() > 8) {
        assert!(!said.contains(token), "{name}");
    }
    for token in [&cloud.owner, &reader, &own, &cloud.key] {
        assert!(!said.contains(token.as_str()), "{said}");
    }
}

/// An admin has the role `terminate` with a token for a cluster of the own organization, and no other.
#[tokio::test]
async fn an_admin_of_another_organization_terminates_nothing() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let replica = world.coordinator_of(&cloud);
    serves(&world, &replica, &cloud.owner).await;
    let other = cloud.other_organization().await;
    let both = cloud.user(&other, "both", "owner").await;
    cloud.join(&both, "member").await;
    let own = cloud.kubernetes_token(&both, &cloud.cluster).await;
    for token in [&both, &own] {
        let (_, known) = cloud
            .send(token, http::Method::GET, "/v3/authenticate", Value::Null)
            .await;
        assert_eq!(
            known["metadata"]["https://containership.io/roles"],
            json!([]),
            "{known}"
        );
    }
    assert_eq!(asked(&world, &replica, &both).await, 200);
    for token in [&both, &own] {
        let refused = world.delete(&replica, "/terminate", token).await.unwrap();
        assert_eq!(refused.status().as_u16(), 403);
    }
    assert!(!world.is_terminating().await);
}

#[tokio::test]
async fn while_the_cloud_is_away_its_keys_say_whose_a_token_is() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let replica = world.coordinator_of(&cloud);
    serves(&world, &replica, &cloud.owner).await;
    has_keys(&cloud).await;
    let own = cloud.kubernetes_token(&cloud.owner, &cloud.cluster).await;
    let beside = cloud.post("~/clusters", json!({"name": "beside"})).await;
    let beside = cloud
        .kubernetes_token(&cloud.owner, beside["id"].as_str().unwrap())
        .await;
    let forged = format!("{}.{}", &own[..own.rfind('.').unwrap()], "A".repeat(86));
    for fault in [Fault::Status(503), Fault::Status(429), Fault::Hangs] {
        cloud.fault("", fault);
        serves(&world, &replica, &own).await;
        for (name, token) in [
            ("expired", &cloud.expired_token()),
            ("for the cloud: it does not say in which organization", &cloud.owner),
            ("for another cluster", &beside),
            ("forged", &forged),
            ("a key", &cloud.key),
        ] {
            assert_eq!(asked(&world, &replica, token).await, 503, "{name}");
        }
        let later = world.delete(&replica, "/terminate", &own).await.unwrap();
        assert_eq!(
            (
                later.status().as_u16(),
                later.headers()["retry-after"].to_str().unwrap()
            ),
            (503, "10")
        );
        let said = later.text().await.unwrap();
        assert!(said.contains("does not say that its owner is an admin"), "{said}");
        cloud.heal();
    }
    assert!(!world.is_terminating().await);
}

#[tokio::test]
async fn clients_that_misbehave_disturb_nobody() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let replica = world.coordinator_of(&cloud);
    serves(&world, &replica, &cloud.owner).await;
    // Clients that never finish their request.
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&replica.endpoints).await.unwrap();
        stream
            .write_all(b"GET /metadata HTTP/1.1\r\nAuthorization: JWT ")
            .await
            .unwrap();
        slow.push(stream);
    }
    let huge_head = format!(
        "GET /metadata HTTP/1.1\r\nHost: x\r\nX-Big: {}\r\n\r\n",
        "a".repeat(1 << 20)
    );
    let many = format!(
        "GET /metadata HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "X-Many: a\r\n".repeat(10_000)
    );
    let huge_body = format!(
        "DELETE /terminate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
        1_u64 << 40,
        "a".repeat(1 << 20)
    );
    for request in [huge_head, many, huge_body, "\0\r\n\r\n".to_owned(), "GET".to_owned()] {
        let mut stream = TcpStream::connect(&replica.endpoints).await.unwrap();
        // The server may close the connection before it has read all.
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut answer))
            .await
            .unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    // Many at once: some are asked to come again, and each gets an answer.
    cloud.fault("/v3/authenticate", Fault::Hangs);
    let hanging: Vec<_> = (0..50)
        .map(|_| world.get(&replica, "/metadata", &cloud.owner))
        .collect();
    for answer in futures::future::join_all(hanging).await {
        assert_eq!(answer.unwrap().status().as_u16(), 503);
    }
    assert!(cloud.seen("/v3/authenticate").len() < 30, "the cloud is not flooded");
    cloud.heal();
    serves(&world, &replica, &cloud.owner).await;
    drop(slow);
    assert!(replica.process.is_running());
}

#[tokio::test]
async fn tokens_that_nobody_signed_take_no_places_of_those_who_log_in() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let replica = world.coordinator_of(&cloud);
    serves(&world, &replica, &cloud.owner).await;
    has_keys(&cloud).await;
    let known = cloud.seen("/v3/authenticate").len();
    cloud.fault("/v3/authenticate", Fault::Hangs);
    let forged = futures::future::join_all((0..30).map(|_| world.get(&replica, "/metadata", "a.b.c")));
    let honest = async {
        eventually("eight questions", SOON, async || {
            // The first may have given up on a slow machine, and others taken their places.
            match cloud.seen("/v3/authenticate").len() - known {
                8.. => Ok(()),
                count => Err(count),
            }
        })
        .await;
        cloud.heal();
        assert_eq!(asked(&world, &replica, &cloud.owner).await, 200);
    };
    let (forged, ()) = futures::join!(forged, honest);
    for answer in forged {
        // One that came late was asked about in the cloud that is back.
        assert!([401, 503].contains(&answer.unwrap().status().as_u16()));
    }
}

#[tokio::test]
async fn with_a_certificate_it_serves_tls_alone() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (
        world.scratch.path().join("tls.crt"),
        world.scratch.path().join("tls.key"),
    );
    write(&chain, &made.cert.pem());
    write(&key, &made.signing_key.serialize_pem());
    let mut variables = cloud.variables();
    variables.push(("TIDEWAITER_ENDPOINTS__TLS_CERTIFICATE", chain.display().to_string()));
    variables.push(("TIDEWAITER_ENDPOINTS__TLS_KEY", key.display().to_string()));
    let replica = world.replica(&variables, None);
    let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([trusted]).build().unwrap();
    let port = replica.endpoints.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}/metadata");
    eventually("the endpoints to answer", SOON, async || {
        let request = client.get(&url).header("authorization", format!("JWT {}", cloud.owner));
        let answer = request.send().await.map_err(|error| error.to_string())?;
        if answer.status() == 200 {
            Ok(())
        } else {
            Err(answer.status().to_string())
        }
    })
    .await;
    assert!(
        world.get(&replica, "/metadata", &cloud.owner).await.is_err(),
        "plain HTTP"
    );
    assert!(!replica.process.log().contains("without TLS"));
}
