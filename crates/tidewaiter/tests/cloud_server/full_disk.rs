//! A disk that is full: what is there is read, nobody's connection is closed, and the server is ready again only when a
//! large write fits.

use std::fs;
use std::path::Path;

use reqwest::Method;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use tidewaiter_testkit::{Program, eventually};

use crate::world::{Answer, Ask, Land, On, Place, SOON, Server};

/// The space that is left when the disk begins to be full.
const LEFT: u64 = 200 * 1024;
/// The space that comes back: some pages of 4 KiB, and less than the probe of a server that is not ready needs.
const LITTLE: u64 = 10 * 1024;

/// No file of the server may become larger; None is no limit.
fn allow(server: &Server, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    let pid = Pid::from_raw(server.process.pid().cast_signed()).unwrap();
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
}

/// The length of the largest file of the server, which is that to which it appends its writes.
fn largest(data: &Path) -> u64 {
    let files = fs::read_dir(data)
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap());
    files
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .max()
        .unwrap()
}

async fn write(server: &Server, land: &Land, number: usize) -> Answer {
    let body = json!({"key": format!("cluster.containership.io/k{number}"), "value": ""});
    server
        .send(&land.token, Method::POST, &land.labels, Ask::body(&body))
        .await
        .expect("an answer")
}

/// Writes until a write is refused; the number of the next one.
async fn fill(server: &Server, land: &Land, mut number: usize) -> usize {
    loop {
        let answer = write(server, land, number).await;
        number += 1;
        if answer.status != 201 {
            assert_eq!(answer.status, 503, "{answer:?}");
            return number;
        }
        assert!(number < 10_000, "the disk is never full");
    }
}

/// Checks the responses to a client that only reads.
async fn reads(server: &Server, land: &Land) {
    for (token, path) in [
        (&*land.api_key, &*land.labels),
        (&land.api_key, &format!("{}/users", land.organization)),
        (&land.token, "/v3/account"),
        ("", "/.well-known/jwks.json"),
    ] {
        server.get(token, path).await.is(200);
    }
}

/// Returns the number of times that the server has found that it cannot write.
fn found(server: &Server) -> usize {
    server.process.log().matches("the database refuses a write").count()
}

/// The server is not ready while it tries to write twice more.
async fn stays_away(server: &Server, land: &Land) {
    let before = found(server);
    eventually("two more attempts of the server to write", SOON, async || {
        let ready = server.get("", "/readyz").await;
        assert_eq!(ready.status, 503, "{ready:?}");
        reads(server, land).await;
        let now = found(server);
        if now >= before + 2 { Ok(()) } else { Err(now) }
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_closes_no_connection_and_is_over_when_a_large_write_fits() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.start_as(Program::ignoring_file_size_signal);
    server.ready().await;
    let land = Land::make(&server).await;
    let stream = server.http.get(format!("{}{}/events", server.base, land.cluster));
    let stream = stream
        .header("authorization", format!("JWT {}", land.api_key))
        .send()
        .await;
    let mut stream = stream.unwrap().error_for_status().unwrap();
    // The log is a file of the process, too.
    let log = fs::metadata(server.process.log_path()).unwrap().len();
    allow(&server, Some(largest(&place.data).max(log) + LEFT));
    let made = fill(&server, &land, 0).await;
    stays_away(&server, &land).await;
    // A small write may fit again, others do not.
    allow(&server, Some(largest(&place.data) + LITTLE));
    let made = fill(&server, &land, made).await;
    stays_away(&server, &land).await;
    allow(&server, None);
    server.ready().await;
    write(&server, &land, made).await.is(201);
    reads(&server, &land).await;
    // The connection that was opened before still tells of changes.
    let mut text = String::new();
    while !text.contains("event: change") {
        let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
        text.push_str(str::from_utf8(&chunk).unwrap());
    }
}
