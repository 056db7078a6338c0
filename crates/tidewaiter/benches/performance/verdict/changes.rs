//! The delay of a change in the verdict: a Node's Ready, as the gauges of its group tell it, next to a watch that only
//! looks.
//!
//! The group of the Node that is changed has no other change, so that what its gauge says can have no other reason.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher;
use serde::Serialize;
use serde_json::json;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::scrapes::Scraper;
use crate::bed::{Bed, GROUPS, group_name};
use crate::observer::follow;
use crate::process::Role;

const CHANGES: usize = 100;
/// The interval of the changes: longer than a verdict and the rest after it, so that each comes as a surprise.
const CHANGE_INTERVAL: Duration = Duration::from_millis(617);
/// The interval at which the verdict is read.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const SOON: Duration = Duration::from_secs(30);

/// Seconds from the API server's answer to a change until it was seen.
#[derive(Debug, Default, Serialize)]
pub struct Delays {
    /// In the gauges.
    pub verdict: Vec<f64>,
    /// By a watch.
    pub watch: Vec<f64>,
}

pub struct Probe<'a> {
    bed: &'a Bed,
    instance: &'a FakeInstance,
    gauges: Scraper,
    /// The value of its Ready that was seen, and when.
    seen: UnboundedReceiver<(Instant, String)>,
    watch: JoinHandle<()>,
}

/// The index of the first instance of the group whose changes are measured.
const APART: usize = GROUPS as usize - 1;

/// Returns true if the instance at `index` is in that group.
pub fn is_apart(index: usize) -> bool {
    index % GROUPS as usize == APART
}

impl<'a> Probe<'a> {
    pub async fn start(bed: &'a Bed, controller: &Role) -> Result<Self> {
        let instance = bed.instances.get(APART).context("a bed of 50 Nodes")?;
        let only = watcher::Config::default().fields(&format!("metadata.name={}", instance.node_name()));
        let (seen, watch) = follow(Api::<Node>::all(bed.admin()), only, ready_status).await?;
        Ok(Self {
            bed,
            instance,
            gauges: Scraper::new(controller)?,
            seen,
            watch,
        })
    }

    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    pub async fn delays(&mut self) -> Result<Delays> {
        let mut delays = Delays::default();
        let mut pace = interval(CHANGE_INTERVAL);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let before = self.ready().await?.context("no verdict on the group")?;
        for number in 0..CHANGES {
            pace.tick().await;
            let ready = number % 2 == 1;
            patch_ready(&self.bed.nodes(), self.instance.node_name(), ready).await?;
            let begin = Instant::now();
            let expected = if ready { before } else { before - 1.0 };
            timeout(SOON, self.until(expected)).await.context("no verdict")??;
            delays.verdict.push(begin.elapsed().as_secs_f64());
            let seen = timeout(SOON, self.watched(ready)).await.context("nothing watched")??;
            delays.watch.push(seen.saturating_duration_since(begin).as_secs_f64());
        }
        Ok(delays)
    }

    async fn until(&self, expected: f64) -> Result<()> {
        let mut looks = interval(POLL_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.ready().await? != Some(expected) {
            looks.tick().await;
        }
        Ok(())
    }

    async fn watched(&mut self, ready: bool) -> Result<Instant> {
        let expected = if ready { "True" } else { "False" };
        loop {
            let (at, seen) = self.seen.recv().await.context("the watch ended")?;
            if seen == expected {
                return Ok(at);
            }
        }
    }

    /// Returns the number of ready Nodes of the group in the verdict.
    async fn ready(&self) -> Result<Option<f64>> {
        let page = self.gauges.page().await?;
        let gauge = page
            .lines()
            .filter(|line| line.starts_with("tidewaiter_instance_group_ready_nodes{"))
            .find(|line| line.contains(&group_name(0)));
        Ok(gauge.and_then(|line| line.rsplit(' ').next()?.parse().ok()))
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Has the Node of this name report whether it is ready.
pub async fn patch_ready(nodes: &Api<Node>, name: &str, ready: bool) -> Result<()> {
    let status = if ready { "True" } else { "False" };
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
        .await?;
    Ok(())
}

fn ready_status(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(ready.status.clone())
}
