//! 1,000 clusters, each of which asks for eight lists every 30 s with the tags that it got, while one label a second
//! changes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use futures::{TryStreamExt as _, stream};
use serde::Serialize;
use serde_json::json;
use tidewaiter_testkit::usage::cpu_seconds;

use super::server::{Cloud, Cluster};
use super::wire::{Wire, request};
use crate::report::count;

const EVERY: Duration = Duration::from_secs(30);
const OPENING: usize = 64;
const ROUNDS: u32 = 2;
const KINDS: u32 = 8;

/// The results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Polls {
    /// The duration of each poll.
    #[serde(skip)]
    pub seconds: Vec<f64>,
    /// Polls a second.
    pub rate: f64,
    /// The part that had a body.
    pub changed: f64,
    /// Of a core, the server's.
    pub core: f64,
}

pub async fn measure(cloud: &Cloud) -> Result<Polls> {
    // Each opens its connection and gets its first lists, before the time runs.
    let pollers = stream::iter(cloud.clusters.iter().map(Ok)).map_ok(|cluster| Poller::open(cloud, cluster));
    let pollers: Vec<Poller> = pollers.try_buffered(OPENING).try_collect().await?;
    let used = cpu_seconds(cloud.process.pid());
    let begin = now();
    let step = EVERY / KINDS / u32::try_from(pollers.len())?;
    let polls = pollers
        .into_iter()
        .zip(0..)
        .map(|(poller, number)| poller.poll(begin + step * number));
    let (polls, ()) = tokio::try_join!(try_join_all(polls), change(cloud, begin))?;
    let took = begin.elapsed().as_secs_f64();
    let core = (cpu_seconds(cloud.process.pid()) - used) / took;
    let seconds: Vec<f64> = polls.iter().flat_map(|(seconds, _)| seconds).copied().collect();
    let changed: usize = polls.iter().map(|(_, changed)| changed).sum();
    Ok(Polls {
        rate: count(seconds.len()) / took,
        changed: count(changed) / count(seconds.len()),
        core,
        seconds,
    })
}

/// A cluster that requests its lists with the ETags that it got.
pub struct Poller {
    address: SocketAddr,
    wire: Wire,
    token: String,
    lists: [String; 8],
    requests: Vec<Vec<u8>>,
}

impl Poller {
    pub async fn open(cloud: &Cloud, cluster: &Cluster) -> Result<Self> {
        let mut poller = Self {
            address: cloud.address,
            wire: Wire::open(cloud.address).await?,
            token: cluster.api_key.clone(),
            lists: cluster.lists(&cloud.organization),
            requests: Vec::new(),
        };
        for place in 0..poller.lists.len() {
            let first = request("GET", &poller.lists[place], &poller.token, "", "");
            poller.requests.push(first);
            ensure!(poller.ask(place).await?, "the first answer has a body");
        }
        Ok(poller)
    }

    /// Asks for the list of this place in [`Cluster::lists`]. Whether there was a body.
    async fn ask(&mut self, place: usize) -> Result<bool> {
        let status = self.status(place).await?;
        ensure!(status == 200 || status == 304, "{}: {status}", self.lists[place]);
        Ok(status == 200)
    }

    /// The same; the status of the answer, whatever it is.
    pub async fn status(&mut self, place: usize) -> Result<u16> {
        let reply = if let Ok(reply) = self.wire.ask(&self.requests[place]).await {
            reply
        } else {
            // A connection that was idle for long is closed, and opened again.
            self.wire = Wire::open(self.address).await?;
            self.wire.ask(&self.requests[place]).await?
        };
        if reply.status == 200 {
            let etag = reply.etag.context("a list has an ETag")?;
            let known = format!("if-none-match: {etag}\r\n");
            self.requests[place] = request("GET", &self.lists[place], &self.token, &known, "");
        }
        Ok(reply.status)
    }

    /// The seconds of each of its polls, the first at `at`, and how many had a body.
    async fn poll(mut self, at: Instant) -> Result<(Vec<f64>, usize)> {
        let (mut seconds, mut changed) = (Vec::new(), 0);
        for turn in 0..ROUNDS * KINDS {
            tokio::time::sleep_until((at + EVERY / KINDS * turn).into()).await;
            let begin = now();
            changed += usize::from(self.ask((turn % KINDS) as usize).await?);
            seconds.push(begin.elapsed().as_secs_f64());
        }
        Ok((seconds, changed))
    }
}

async fn change(cloud: &Cloud, begin: Instant) -> Result<()> {
    let mut wire = Wire::open(cloud.address).await?;
    for (second, cluster) in (0..(EVERY * ROUNDS).as_secs()).zip(&cloud.clusters) {
        tokio::time::sleep_until((begin + Duration::from_secs(second)).into()).await;
        let body = json!({"value": format!("p{second}")});
        cloud.ask(&mut wire, "PATCH", &cluster.label, &body).await?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
fn now() -> Instant {
    Instant::now()
}
