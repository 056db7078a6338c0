//! 200 writers, each of which waits for its answer, next to what the disk can do; and a SIGKILL in the middle of them.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde::Serialize;
use serde_json::json;
use tidewaiter_testkit::usage::cpu_seconds;
use tokio::task::JoinSet;

use super::server::Cloud;
use super::wire::{Wire, request};
use crate::report::count;

const WRITERS: usize = 200;
const TIME: Duration = Duration::from_secs(10);
const FSYNCS: Duration = Duration::from_secs(3);

/// The results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Writes {
    /// Acknowledged writes a second.
    pub rate: f64,
    /// Of a core, the server's.
    pub core: f64,
    /// The number of appends and fsyncs of a page per second, by one writer alone.
    pub fsyncs: f64,
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn measure(cloud: &Cloud) -> Result<Writes> {
    let file = cloud.scratch.path().join("fsyncs");
    let fsyncs = tokio::task::spawn_blocking(move || fsyncs(file)).await??;
    let used = cpu_seconds(cloud.process.pid());
    let begin = Instant::now();
    let writers = cloud.clusters.iter().take(WRITERS).map(|cluster| async {
        let mut wire = Wire::open(cloud.address).await?;
        let mut done = 0_usize;
        while begin.elapsed() < TIME {
            done += 1;
            let body = format!("{{\"value\":\"w{done}\"}}");
            let reply = wire
                .ask(&request("PATCH", &cluster.label, &cloud.token, "", &body))
                .await?;
            ensure!(reply.status == 200, "{reply:?}");
        }
        Ok(done)
    });
    let done: usize = try_join_all(writers).await?.into_iter().sum();
    let took = begin.elapsed().as_secs_f64();
    Ok(Writes {
        rate: count(done) / took,
        core: (cpu_seconds(cloud.process.pid()) - used) / took,
        fsyncs,
    })
}

/// Kills the server while they write; after how many seconds the next one is ready.
pub async fn kill(cloud: &mut Cloud) -> Result<f64> {
    let mut writers = JoinSet::new();
    for cluster in cloud.clusters.iter().take(WRITERS) {
        let mut wire = Wire::open(cloud.address).await?;
        let patches = ["a", "b"].map(|value| {
            let body = json!({ "value": value }).to_string();
            request("PATCH", &cluster.label, &cloud.token, "", &body)
        });
        writers.spawn(async move {
            for patch in patches.iter().cycle() {
                if wire.ask(patch).await.is_err() {
                    return;
                }
            }
        });
    }
    // Each of them waits for an answer by then, or has had one.
    let mut wire = Wire::open(cloud.address).await?;
    let body = json!({"value": "killed"});
    for cluster in &cloud.clusters[..WRITERS] {
        cloud.ask(&mut wire, "PATCH", &cluster.label, &body).await?;
    }
    let seconds = cloud.killed().await;
    while writers.join_next().await.is_some() {}
    Ok(seconds)
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
fn fsyncs(file: PathBuf) -> Result<f64> {
    let mut file = std::fs::File::create(file)?;
    let begin = Instant::now();
    let mut done = 0;
    while begin.elapsed() < FSYNCS {
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
        done += 1;
    }
    Ok(count(done) / begin.elapsed().as_secs_f64())
}
