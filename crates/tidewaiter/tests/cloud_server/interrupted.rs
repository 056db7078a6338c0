//! Databases and servers that freeze, are killed or are cut off while 20 writers write: writes come back by themselves,
//! and every acknowledged one is there. (`crashes.rs` kills the server.)

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tidewaiter_testkit::{Postgres, eventually};

use crate::proxy::Proxy;
use crate::world::{Ask, Land, On, Place, SOON, Server};

const WRITERS: usize = 20;
/// The acknowledged writes before the interruption, and after it.
const WRITES: usize = 200;

/// The answers that the writers received.
#[derive(Default)]
struct Acknowledged {
    keys: Mutex<Vec<String>>,
    count: AtomicUsize,
}

impl Acknowledged {
    async fn more(&self, what: &str) {
        let wanted = self.count.load(Ordering::Relaxed) + WRITES;
        eventually(what, SOON, async || match self.count.load(Ordering::Relaxed) {
            found if found < wanted => Err(found),
            _ => Ok(()),
        })
        .await;
    }
}

/// Writes until it is stopped. A write without an answer is not repeated.
async fn write(server: &Server, land: &Land, number: usize, told: &Acknowledged, stop: &AtomicBool) {
    for turn in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("cluster.containership.io/w{number}-{turn}");
        let body = json!({"key": key, "value": "0"});
        let sent = server.send(&land.token, Method::POST, &land.labels, Ask::body(&body));
        if sent.await.is_ok_and(|answer| answer.status == 201) {
            told.keys.lock().unwrap().push(key);
            told.count.fetch_add(1, Ordering::Relaxed);
        }
        tokio::task::yield_now().await;
    }
}

/// Runs `interruption` while the writers write.
async fn survives(place: &Place, interruption: impl AsyncFnOnce(&Server)) {
    place.init().await;
    let server = place.serve().await;
    let land = Land::make(&server).await;
    let (told, stop) = (Arc::new(Acknowledged::default()), AtomicBool::new(false));
    let writers = join_all((0..WRITERS).map(|number| write(&server, &land, number, &told, &stop)));
    let rest = async {
        told.more("writes before the interruption").await;
        interruption(&server).await;
        told.more("writes after the interruption").await;
        stop.store(true, Ordering::Relaxed);
    };
    futures::join!(writers, rest);
    let keys = told.keys.lock().unwrap().clone();
    let listed = server.get(&land.token, &land.labels).await.is(200).json();
    let listed: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|label| label["key"].as_str().unwrap())
        .collect();
    let lost: Vec<_> = keys.iter().filter(|key| !listed.contains(&key.as_str())).collect();
    println!("{} acknowledged, {} there", keys.len(), listed.len());
    assert!(lost.is_empty(), "{lost:?}");
    server.ready().await;
}

/// No request is answered any more.
async fn silent(server: &Server) {
    eventually("a request without an answer", SOON, async || {
        let request = server
            .http
            .get(format!("{}/healthz", server.base))
            .timeout(std::time::Duration::from_secs(5));
        match request.send().await {
            Ok(answer) => Err(answer.status()),
            Err(_) => Ok(()),
        }
    })
    .await;
}

async fn not_ready(server: &Server) {
    eventually("no readiness", SOON, async || {
        let answer = server.get("", "/readyz").await;
        if answer.status == 200 { Err(answer.body) } else { Ok(()) }
    })
    .await;
}

async fn freezes(on: On) {
    survives(&Place::new(on).await, async |server: &Server| {
        server.process.pause();
        // Longer than PostgreSQL waits for the next statement of a transaction.
        silent(server).await;
        server.process.resume();
    })
    .await;
}

#[tokio::test]
async fn a_server_that_freezes_loses_no_acknowledged_write_on_sqlite() {
    freezes(On::Sqlite).await;
}

#[tokio::test]
async fn a_server_that_freezes_loses_no_acknowledged_write_on_postgres() {
    freezes(On::Postgres).await;
}

async fn own() -> (Postgres, url::Url) {
    let postgres = Postgres::start().await;
    let url = postgres.url(&postgres.create_database().await).parse().unwrap();
    (postgres, url)
}

#[tokio::test]
async fn a_postgres_that_is_killed_loses_no_acknowledged_write() {
    let (postgres, url) = own().await;
    survives(&Place::on(url).await, async |server: &Server| {
        postgres.kill().await;
        not_ready(server).await;
        postgres.start_again().await;
    })
    .await;
}

/// Sends a signal to a process and its children.
pub fn signal(pid: u32, signal: Signal) {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    for pid in children.chain([pid.cast_signed()]) {
        // One that has ended in between is no failure.
        let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
    }
}

#[tokio::test]
async fn a_postgres_that_freezes_loses_no_acknowledged_write() {
    let (postgres, url) = own().await;
    survives(&Place::on(url).await, async |server: &Server| {
        // The first one first, so that it starts no other.
        postgres.process().pause();
        signal(postgres.process().pid(), Signal::STOP);
        not_ready(server).await;
        signal(postgres.process().pid(), Signal::CONT);
    })
    .await;
}

#[tokio::test]
async fn a_postgres_whose_connections_are_cut_loses_no_acknowledged_write() {
    let postgres = Postgres::shared().await;
    let mut url = postgres.url(&postgres.create_database().await).parse().unwrap();
    let proxy = Proxy::before(&mut url).await;
    survives(&Place::on(url).await, async |_: &Server| proxy.silence()).await;
}
