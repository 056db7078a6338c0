//! An independent watcher: when each Node had its label, and when the Lease had a holder.

use std::collections::HashSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use tidewaiter_api::names::{INSTANCE_GROUP_LABEL, KOPS_LEASE, KOPS_NAMESPACE};
use tokio::task::JoinHandle;

use crate::bed::Bed;

/// Longer than any run takes.
const PATIENCE: Duration = Duration::from_mins(2);

/// Watches that stand already when the run begins.
pub struct Observer {
    labelled: JoinHandle<Result<Instant>>,
    led: JoinHandle<Result<Instant>>,
}

impl Observer {
    /// Begins to watch; nothing that happens after this is missed.
    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    pub async fn start(bed: &Bed) -> Result<Self> {
        let count = bed.instances.len();
        let params = watcher::Config::default().labels(INSTANCE_GROUP_LABEL);
        // The API server closes the watch of whoever falls behind; this one goes on.
        let mut watch = watcher(Api::<PartialObjectMeta<Node>>::all(bed.admin()), params).boxed();
        while !matches!(watch.try_next().await?, Some(Event::InitDone) | None) {}
        let labelled = tokio::spawn(async move {
            let mut names = HashSet::new();
            let mut watch = watch.default_backoff().applied_objects().boxed();
            while names.len() < count {
                if let Some(Ok(node)) = watch.next().await {
                    names.insert(node.metadata.name.unwrap_or_default());
                }
            }
            Ok(Instant::now())
        });

        let leases: Api<Lease> = Api::namespaced(bed.admin(), KOPS_NAMESPACE);
        let version = leases.list(&ListParams::default()).await?.metadata.resource_version;
        let params = WatchParams::default()
            .fields(&format!("metadata.name={KOPS_LEASE}"))
            .timeout(290);
        let watch = leases
            .watch(&params, &version.context("a list has a version")?)
            .await?
            .boxed();
        let led = tokio::spawn(async move {
            let mut watch = pin!(watch);
            while let Some(event) = watch.try_next().await? {
                let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event else {
                    continue;
                };
                let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                if !holder.is_empty() {
                    return Ok(Instant::now());
                }
            }
            bail!("the watch of the Lease ended")
        });
        Ok(Self { labelled, led })
    }

    /// When the last Node had its label.
    pub async fn labelled(&mut self) -> Result<Instant> {
        tokio::time::timeout(PATIENCE, &mut self.labelled)
            .await
            .context("not all Nodes were labelled in time")??
    }

    /// When the Lease had a holder.
    pub async fn led(&mut self) -> Result<Instant> {
        tokio::time::timeout(PATIENCE, &mut self.led)
            .await
            .context("nobody took the Lease in time")??
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.labelled.abort();
        self.led.abort();
    }
}
