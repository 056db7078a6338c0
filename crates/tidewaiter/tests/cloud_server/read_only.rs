//! A database that cannot be written: it is not served, what it is about is named, and nothing of it is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tidewaiter_testkit::{Program, throughout};

use crate::world::{Land, On, Place, SOON};

const STEADY: Duration = Duration::from_secs(11);

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Serves as a user whom the modes of files bind, and expects to be told of `path`.
async fn refused(place: &Place, path: &Path) {
    let program = place.program(&["serve"]).bound_by_modes();
    let (code, said) = place.run_program(program).await;
    assert_eq!(code, 2, "{said}");
    let last = said.lines().last().unwrap_or_default();
    let named = format!("database is {}, which cannot be written", path.display());
    assert!(
        last.contains(&named) && last.contains("writable for the user"),
        "no {named} in {said}"
    );
}

#[tokio::test]
async fn a_database_that_cannot_be_written_is_named_and_not_served() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.serve().await;
    let land = Land::make(&server).await;
    // Killed, it leaves files beside the database.
    server.process.kill();
    let file = |name: &str| place.data.join(name);
    let (database, lock) = (file("cloud.db"), file("cloud.db.lock"));
    let beside = [file("cloud.db-wal"), file("cloud.db-shm")];
    assert!(beside.iter().all(|file| file.exists()));

    allow(&database, 0o400);
    refused(&place, &database).await;
    allow(&database, 0o600);
    for file in &beside {
        allow(file, 0o400);
    }
    refused(&place, &database).await;
    for file in &beside {
        allow(file, 0o600);
    }
    allow(&place.data, 0o500);
    refused(&place, &place.data).await;
    allow(&lock, 0o400);
    refused(&place, &lock).await;
    allow(&lock, 0o600);
    allow(&place.data, 0o700);

    let server = place.serve().await;
    assert_eq!(server.get(&land.api_key, &land.labels).await.is(200).body, "[]");
    server.process.stop(SOON).await;
}

/// Connections that are open already can still write, and new ones cannot.
#[tokio::test]
async fn a_database_that_is_made_read_only_while_it_is_served_answers_and_recovers() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.start_as(Program::bound_by_modes);
    server.ready().await;
    let land = Land::make(&server).await;
    let files = ["cloud.db", "cloud.db-wal", "cloud.db-shm"].map(|name| place.data.join(name));
    for file in &files {
        allow(file, 0o400);
    }
    let mut kept = 0;
    for turn in 0..20 {
        // So many at once that connections are opened for them.
        let reads = (0..100).map(|_| server.get(&land.token, "/v3/account"));
        for read in join_all(reads).await {
            read.is(200);
        }
        let label = json!({"key": format!("cluster.containership.io/k{turn}"), "value": ""});
        let written = server.post(&land.token, &land.labels, &label).await;
        if written.status == 201 {
            kept += 1;
        } else {
            assert!(written.headers.contains_key("retry-after"), "{written:?}");
            written.is(503);
        }
    }
    for file in &files {
        allow(file, 0o600);
    }
    server.ready().await;
    // For longer than it takes to ask the database twice whether it takes a write.
    throughout("readiness", STEADY, async || {
        let ready = server.get("", "/readyz").await;
        if ready.status == 200 { Ok(()) } else { Err(ready.body) }
    })
    .await;
    let labels = server.get(&land.token, &land.labels).await.is(200).json();
    assert_eq!(labels.as_array().unwrap().len(), kept);
    let label = json!({"key": "cluster.containership.io/last", "value": ""});
    server.post(&land.token, &land.labels, &label).await.is(201);
}
