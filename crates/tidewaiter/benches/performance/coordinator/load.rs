//! Clusters beside the coordinator's: each follows its change stream, lists what the stream names, and everything once
//! a minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{TryStreamExt as _, stream};
use serde_json::json;
use tokio::task::JoinSet;

use super::{now, pause};
use crate::cloud::polls::Poller;
use crate::cloud::server::Cloud;
use crate::cloud::streams::allow_many_files;
use crate::cloud::wire::{Wire, request};
use crate::report::count;

/// Changes of their labels, all of them together.
pub const CHANGES_PER_SECOND: u32 = 10;

/// The interval at which each of them requests all of its lists.
const EVERY: Duration = Duration::from_mins(1);
const LISTS: u32 = 8;

/// The pause of a cluster that was turned away: that of a coordinator.
const REFUSED: Duration = Duration::from_millis(500);
const OPENING: usize = 64;

/// The kinds of a change, and their places in [`Cluster::lists`](crate::cloud::server::Cluster::lists).
const KINDS: [(&str, usize); 3] = [("\"users\"", 0), ("\"registries\"", 1), ("\"labels\"", 5)];

/// Clusters that run. They end when this is dropped.
pub struct Load {
    clusters: JoinSet<Result<()>>,
    requests: Arc<AtomicUsize>,
    begin: Instant,
}

impl Load {
    /// Connects every cluster of the cloud but the first one.
    pub async fn start(cloud: &Cloud) -> Result<Self> {
        allow_many_files()?;
        let others = cloud.clusters.iter().skip(1);
        let opened = stream::iter(others.map(Ok::<_, anyhow::Error>)).map_ok(|cluster| async move {
            let mut stream = Wire::open(cloud.address).await?;
            let events = format!("{}/events", cluster.path);
            stream
                .listen(&request("GET", &events, &cluster.api_key, "", ""))
                .await?;
            Ok((stream, Poller::open(cloud, cluster).await?))
        });
        let opened: Vec<_> = opened.try_buffer_unordered(OPENING).try_collect().await?;
        let (mut clusters, requests, begin) = (JoinSet::new(), Arc::<AtomicUsize>::default(), now());
        let step = EVERY / LISTS / u32::try_from(opened.len().max(1))?;
        for ((stream, poller), number) in opened.into_iter().zip(0..) {
            clusters.spawn(follow(stream, poller, begin + step * number, Arc::clone(&requests)));
        }
        let labels: Vec<String> = cloud
            .clusters
            .iter()
            .skip(1)
            .map(|cluster| cluster.label.clone())
            .collect();
        if !labels.is_empty() {
            clusters.spawn(change(Wire::open(cloud.address).await?, labels, cloud.token.clone()));
        }
        Ok(Self {
            clusters,
            requests,
            begin,
        })
    }

    /// Their requests for lists in a second so far; fails if one of them failed.
    pub fn requests_per_second(&mut self) -> Result<f64> {
        if let Some(ended) = self.clusters.try_join_next() {
            ended??;
        }
        Ok(count(self.requests.load(Ordering::Relaxed)) / self.begin.elapsed().as_secs_f64())
    }
}

async fn follow(mut stream: Wire, mut poller: Poller, mut at: Instant, requests: Arc<AtomicUsize>) -> Result<()> {
    let mut turn = 0;
    loop {
        let places = tokio::select! {
            changes = stream.changes() => {
                let changes = changes?;
                KINDS.iter().filter(|(kind, _)| changes.contains(kind)).map(|(_, place)| *place).collect()
            }
            () = tokio::time::sleep_until(at.into()) => {
                at += EVERY / LISTS;
                turn = (turn + 1) % LISTS as usize;
                vec![turn]
            }
        };
        for place in places {
            requests.fetch_add(1, Ordering::Relaxed);
            // All of them ask at once after a change of the organization: the server turns away whom it has no room
            // for.
            while poller.status(place).await? == 503 {
                requests.fetch_add(1, Ordering::Relaxed);
                pause(REFUSED).await;
            }
        }
    }
}

/// Changes the label of one cluster after the other.
async fn change(mut wire: Wire, labels: Vec<String>, token: String) -> Result<()> {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
    for (number, label) in labels.iter().cycle().enumerate() {
        pace.tick().await;
        let body = json!({"value": format!("l{number}")}).to_string();
        let reply = wire.ask(&request("PATCH", label, &token, "", &body)).await?;
        ensure!(reply.status == 200, "{label}: {reply:?}");
    }
    Ok(())
}
