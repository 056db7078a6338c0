//! A state store on Google Cloud Storage, which others have written: who asks, and that a changed file is seen.

use tidewaiter_testkit::builders::cluster;
use tidewaiter_testkit::fake_gce::TOKEN;
use tidewaiter_testkit::fake_gcs_server::{FakeGcsServer, RecordedRequest, service_account_file};
use tidewaiter_testkit::{FakeGce, eventually};

use super::{CLUSTER_FILE, GROUP, group, has_team};
use crate::clouds::gce::{Group, environment};
use crate::clouds::{self, Machine};
use crate::world::{CLUSTER, SOON, World};

const BUCKET: &str = "state.example.com";

/// A world whose store holds the Cluster and a group that gives its nodes the team red.
async fn world() -> (World, FakeGcsServer) {
    let mut world = World::start().await;
    let url = format!("gs://{BUCKET}/{CLUSTER}");
    world.store.is_served_as(&url);
    let server = FakeGcsServer::start().await;
    server.create_bucket(BUCKET).await;
    put(&server, CLUSTER_FILE, &cluster(CLUSTER, &url).to_yaml()).await;
    put(&server, GROUP, &group("red").to_yaml()).await;
    (world, server)
}

async fn put(server: &FakeGcsServer, file: &str, content: &str) {
    server.put_object(BUCKET, &format!("{CLUSTER}/{file}"), content).await;
}

/// A file that changes reaches the Node, and all that was asked was asked with credentials that begin so.
async fn the_node_follows(world: &World, server: &FakeGcsServer, node: &str, credentials: &str) {
    has_team(world, node, "red").await;
    put(server, GROUP, &group("green").to_yaml()).await;
    has_team(world, node, "green").await;
    let mut asked = server.take_requests();
    let answers = |asked: &[RecordedRequest], file: &str, status: u16| {
        let file = asked.iter().filter(|asked| asked.path.ends_with(file));
        file.filter(|asked| asked.status == status).count()
    };
    let before = answers(&asked, "nodes", 304);
    eventually("unchanged files to be asked about again", SOON, async || {
        asked.extend(server.take_requests());
        if answers(&asked, "nodes", 304) > before && answers(&asked, "spec", 304) > 0 {
            Ok(())
        } else {
            Err(format!("{asked:?}"))
        }
    })
    .await;
    let sent = (answers(&asked, "nodes", 200), answers(&asked, "spec", 200));
    assert_eq!(sent, (2, 1), "each version is sent once");
    let others: Vec<_> = asked
        .iter()
        .filter(|asked| {
            asked
                .authorization
                .as_ref()
                .is_none_or(|found| !found.starts_with(credentials))
        })
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[tokio::test]
async fn on_google_cloud_the_store_is_asked_with_the_machines_own_credentials() {
    let (world, server) = world().await;
    let gce = FakeGce::start().await;
    let mut workers = Group::new("nodes");
    let worker = workers.member("nodes-abcd", 5);
    let machine = Machine::from(&worker);
    gce.launch([worker]);
    workers.exists_in(&gce);
    let mut environment = environment(&gce);
    environment.push(("TIDEWAITER_STATE_ENDPOINT", server.endpoint()));
    let _controller = clouds::controller(&world, "gce", &environment).await;
    machine.registers_as(&world, &machine.node).await;
    the_node_follows(&world, &server, &machine.node, &format!("Bearer {TOKEN}")).await;
}

#[tokio::test]
async fn elsewhere_the_store_is_asked_with_the_file_of_credentials_that_the_environment_names() {
    let (world, server) = world().await;
    let file = world.file("credentials.json", &service_account_file("key-of-the-file"));
    let environment = [
        ("TIDEWAITER_STATE_ENDPOINT", server.endpoint()),
        ("GOOGLE_APPLICATION_CREDENTIALS", file.display().to_string()),
    ];
    let environment: Vec<_> = environment.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let _controller = world.controller_with(&environment).await;
    let node = world.join(1, "nodes").await;
    // A token that the file's own key has signed.
    the_node_follows(
        &world,
        &server,
        node.name(),
        "Bearer eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiIsImtpZCI6",
    )
    .await;
}
