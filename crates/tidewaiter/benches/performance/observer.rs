//! An independent watcher: when each Node had its label, and when the Lease had which holder.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use tidewaiter_api::names::{INSTANCE_GROUP_LABEL, KOPS_LEASE, KOPS_NAMESPACE};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::bed::Bed;

/// Longer than anything takes.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Watches that stand already when the run begins: nothing that happens after that is missed.
pub struct Observer {
    labels: UnboundedReceiver<(Instant, String)>,
    holders: UnboundedReceiver<(Instant, String)>,
    watches: [JoinHandle<()>; 2],
}

impl Observer {
    pub async fn start(bed: &Bed) -> Result<Self> {
        let labelled = watcher::Config::default().labels(INSTANCE_GROUP_LABEL);
        let nodes = Api::<PartialObjectMeta<Node>>::all(bed.admin());
        let (labels, nodes) = follow(nodes, labelled, |node| node.metadata.name.clone()).await?;
        let ours = watcher::Config::default().fields(&format!("metadata.name={KOPS_LEASE}"));
        let leases = Api::<Lease>::namespaced(bed.admin(), KOPS_NAMESPACE);
        let (holders, leases) = follow(leases, ours, |lease| lease.spec.as_ref()?.holder_identity.clone()).await?;
        Ok(Self {
            labels,
            holders,
            watches: [nodes, leases],
        })
    }

    /// The time when the last of this number of further Nodes had its label.
    pub async fn labelled(&mut self, count: usize) -> Result<Instant> {
        let mut names = HashSet::new();
        let mut last = None;
        while names.len() < count {
            let (at, name) = next(&mut self.labels).await.context("not all Nodes were labelled")?;
            names.insert(name);
            last = Some(at);
        }
        last.context("nothing to wait for")
    }

    /// When the Lease was seen with a holder the next time, and with which.
    pub async fn led(&mut self) -> Result<(Instant, String)> {
        loop {
            let (at, holder) = next(&mut self.holders).await.context("nobody took the Lease")?;
            if !holder.is_empty() {
                return Ok((at, holder));
            }
        }
    }
}

/// Returns the next event of a watch.
pub async fn next(events: &mut UnboundedReceiver<(Instant, String)>) -> Result<(Instant, String)> {
    let event = tokio::time::timeout(TIMEOUT, events.recv()).await.context("in time")?;
    event.context("the watch ended")
}

/// Follows a watch from here on.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn follow<K>(
    api: Api<K>,
    params: watcher::Config,
    what: impl Fn(&K) -> Option<String> + Send + 'static,
) -> Result<(UnboundedReceiver<(Instant, String)>, JoinHandle<()>)>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut watch = watcher(api, params).boxed();
    while !matches!(watch.try_next().await?, Some(Event::InitDone) | None) {}
    let (sender, receiver) = unbounded_channel();
    let task = tokio::spawn(async move {
        // The API server closes the watch of a client that falls behind; this one goes on.
        let mut watch = watch.default_backoff().applied_objects().boxed();
        while let Some(event) = watch.next().await {
            let told = event.ok().as_ref().and_then(&what);
            if let Some(told) = told
                && sender.send((Instant::now(), told)).is_err()
            {
                break;
            }
        }
    });
    Ok((receiver, task))
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}
