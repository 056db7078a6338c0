//! 10,000 open change streams: their memory, and the delay until the clients that a change concerns get it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{TryStreamExt as _, stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use serde_json::json;
use tidewaiter_testkit::usage::Memory;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::server::Cloud;
use super::wire::{Wire, request};

const STREAMS: usize = 10_000;
const OPENING: usize = 100;
const CHANGES: usize = 500;
const SOON: Duration = Duration::from_secs(30);

/// The results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Streams {
    pub before: Memory,
    pub open: Memory,
    /// Seconds from the response to a change until each stream that it concerns sent it; 0 where that was before the
    /// answer.
    #[serde(skip)]
    pub told: Vec<f64>,
    /// The same from the request.
    #[serde(skip)]
    pub from_request: Vec<f64>,
    /// Seconds from the response to a change that concerns everybody until the last client got it.
    pub all: f64,
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn measure(cloud: &Cloud) -> Result<Streams> {
    allow_many_files()?;
    let before = Memory::of(cloud.process.pid());
    let (sender, mut told) = unbounded_channel();
    let mut listeners = JoinSet::new();
    let clusters = cloud.clusters.iter().cycle().enumerate().take(STREAMS);
    let wires = stream::iter(clusters.map(Ok::<_, anyhow::Error>)).map_ok(|(number, cluster)| async move {
        let mut wire = Wire::open(cloud.address).await?;
        let events = format!("{}/events", cluster.path);
        wire.listen(&request("GET", &events, &cluster.api_key, "", "")).await?;
        Ok((number % cloud.clusters.len(), wire))
    });
    let wires: Vec<_> = wires.try_buffer_unordered(OPENING).try_collect().await?;
    for (cluster, wire) in wires {
        listeners.spawn(listen(wire, cluster, sender.clone()));
    }
    let open = Memory::of(cloud.process.pid());
    let mut found = Streams {
        before,
        open,
        told: Vec::new(),
        from_request: Vec::new(),
        all: 0.0,
    };
    let mut wire = Wire::open(cloud.address).await?;
    let each = STREAMS / cloud.clusters.len();
    for number in 0..CHANGES {
        let cluster = number % cloud.clusters.len();
        let label = &cloud.clusters[cluster].label;
        let asked = Instant::now();
        cloud
            .ask(&mut wire, "PATCH", label, &json!({"value": format!("s{number}")}))
            .await?;
        let answered = Instant::now();
        for at in hear(&mut told, Some(cluster), each).await? {
            found.told.push(at.saturating_duration_since(answered).as_secs_f64());
            found.from_request.push((at - asked).as_secs_f64());
        }
    }
    let user = json!({"name": "New", "email": "new@example.org"});
    cloud
        .ask(&mut wire, "POST", &format!("{}/users", cloud.organization), &user)
        .await?;
    let answered = Instant::now();
    let last = hear(&mut told, None, STREAMS).await?.into_iter().max();
    found.all = last
        .unwrap_or(answered)
        .saturating_duration_since(answered)
        .as_secs_f64();
    Ok(found)
}

/// Lets this process have as many connections open as the system permits.
pub fn allow_many_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    Ok(setrlimit(Resource::Nofile, most)?)
}

/// Tells of each change that a stream tells of.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
async fn listen(mut wire: Wire, cluster: usize, told: UnboundedSender<(usize, Instant)>) {
    while wire.event("event: change").await.is_ok() {
        if told.send((cluster, Instant::now())).is_err() {
            return;
        }
    }
}

/// The time when this number of streams had sent a change of `cluster`.
async fn hear(
    told: &mut UnboundedReceiver<(usize, Instant)>,
    cluster: Option<usize>,
    streams: usize,
) -> Result<Vec<Instant>> {
    let mut heard = Vec::new();
    while heard.len() < streams {
        let next = tokio::time::timeout(SOON, told.recv()).await;
        let (of, at) = next
            .with_context(|| format!("{} of {streams} were told", heard.len()))?
            .context("all streams ended")?;
        if cluster.is_none_or(|cluster| cluster == of) {
            heard.push(at);
        }
    }
    Ok(heard)
}
