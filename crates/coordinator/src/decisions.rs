//! Releases and approvals from the cloud, if the setting `acceptReleasesFromCloud` permits them. Without it, nothing is
//! requested: a cloud that somebody has taken over must not release its own deletions.
//!
//! - A decision names what was shown: the revision that is held, or the digest of a plugin's diff. Anything else is
//!   neither released nor approved.
//! - The cloud gives it up before it is obeyed, so that it is obeyed once. If the process ends in between, it is lost,
//!   and a person decides again.
//! - It has its effect by the annotation with which a person releases or approves in the cluster, and by nothing else.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tidewaiter_api::CloudSync;
use tidewaiter_api::cloud_sync::{CLOUD_SYNC, RELEASE_ANNOTATION};
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::{APPROVE_ANNOTATION, CONTAINERSHIP_NAMESPACE};
use tidewaiter_cloud::client::{ClientError, Fetched, Method, Request};
use tidewaiter_cloud::models::{ApprovalSpec, ClusterDecision, Kind, ReleaseSpec};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, Chain, ControllerContext, SharedClock};
use tracing::{info, warn};

use crate::changes::{Asked, Changes};
use crate::cloud::Cloud;
use crate::explained::explained;
use crate::loops;
use crate::mirror::MirrorState;
use crate::retries::Retries;

/// The field manager of the annotations.
const MANAGER: &str = "tidewaiter/decisions";

/// The sync intervals after which the decisions are listed without an event.
const QUIET_INTERVALS: u32 = 5;

const JITTER: f64 = 0.1;

/// The wait for the release before, whose annotation is still there.
const BUSY: Duration = Duration::from_secs(1);

/// Starts the loop.
pub(crate) fn start(
    cloud: &Cloud,
    changes: &Changes,
    mirror: MirrorState,
    plugins: Cache<Plugin>,
    role: &mut Role<'_>,
) {
    let client: Client = role.clients.for_controller("decisions", DEFAULT_IN_FLIGHT);
    let decisions = CloudDecisions {
        cloud: cloud.clone(),
        asked: changes.of(&[Kind::ClusterDecision]),
        mirror,
        plugins,
        objects: Api::all(client.clone()),
        copies: Api::namespaced(client, CONTAINERSHIP_NAMESPACE),
        clock: role.context.kit.clock.clone(),
        is_failing: false,
    };
    loops::run(role.tasks, "decisions", decisions.run(role.context.clone()));
}

struct CloudDecisions {
    cloud: Cloud,
    asked: Arc<Asked>,
    mirror: MirrorState,
    plugins: Cache<Plugin>,
    objects: Api<CloudSync>,
    copies: Api<Plugin>,
    clock: SharedClock,
    /// True if it was logged that they cannot be taken.
    is_failing: bool,
}

/// The reason why decisions were not taken.
#[derive(Debug, thiserror::Error)]
enum DecisionError {
    #[error("the cloud does not give its releases and approvals")]
    Cloud(#[source] ClientError),
    #[error("the API server does not take an annotation")]
    Cluster(#[from] kube::Error),
}

impl CloudDecisions {
    async fn run(mut self, context: ControllerContext) {
        context.leadership.acquired().await;
        let interval = self.cloud.interval;
        let mut retries = Retries::new(&self.cloud.client, interval, self.clock.clone());
        loop {
            context.pause.until(false).await;
            retries.begin();
            let wait = match self.take_all().await {
                Ok(true) => jittered(interval * QUIET_INTERVALS, JITTER),
                Ok(false) => BUSY,
                Err(error) => {
                    self.report(&error);
                    let asked = match &error {
                        DecisionError::Cloud(error) => error.retry_after().unwrap_or_default(),
                        DecisionError::Cluster(_) => Duration::ZERO,
                    };
                    retries.failed(asked).await;
                    continue;
                }
            };
            self.is_failing = false;
            retries.succeeded();
            tokio::select! {
                _ = self.asked.asked() => {}
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    fn report(&mut self, error: &DecisionError) {
        if std::mem::replace(&mut self.is_failing, true) {
            return;
        }
        let error = match error {
            DecisionError::Cloud(error) => explained(error, &self.cloud.client),
            DecisionError::Cluster(error) => Chain(error).to_string(),
        };
        warn!(error, "releases and approvals of the cloud cannot be taken");
    }

    /// Takes and obeys the decisions of the cloud. Returns false if one has to wait for the release before it.
    async fn take_all(&self) -> Result<bool, DecisionError> {
        let path = self.cloud.cluster.decisions();
        let listed = self.cloud.client.list::<ClusterDecision>(path, None).await;
        let Fetched::Complete { value, .. } = listed.map_err(DecisionError::Cloud)? else {
            return Ok(true);
        };
        for decision in value {
            if decision.release.is_some() && self.is_releasing().await? {
                return Ok(false);
            }
            if !self.take(&decision).await? {
                continue;
            }
            if let Some(release) = &decision.release {
                self.release(release).await?;
            }
            if let Some(approval) = &decision.approval {
                self.approve(approval).await?;
            }
        }
        Ok(true)
    }

    /// Returns true if a release was not used yet: another one would replace it.
    async fn is_releasing(&self) -> Result<bool, DecisionError> {
        let object = self.objects.get_opt(CLOUD_SYNC).await?;
        Ok(object.is_some_and(|object| object.annotations().contains_key(RELEASE_ANNOTATION)))
    }

    /// Makes the cloud give up the decision. Returns false if it has none any more.
    async fn take(&self, decision: &ClusterDecision) -> Result<bool, DecisionError> {
        let path = self.cloud.cluster.decisions().below(decision.id);
        let mut request = Request::new(Method::DELETE, path);
        request.once = true;
        match self.cloud.client.request(&request).await {
            Ok(_) => Ok(true),
            Err(ClientError::NotOurs { .. }) => Ok(false),
            Err(error) => Err(DecisionError::Cloud(error)),
        }
    }

    async fn release(&self, release: &ReleaseSpec) -> Result<(), DecisionError> {
        let (kind, revision) = (release.kind.as_str(), release.revision.as_str());
        let report = self.mirror.report(self.clock.now());
        let is_held = report.kinds.iter().any(|found| {
            found.kind.as_str() == kind
                && found
                    .held
                    .as_ref()
                    .is_some_and(|held| held.revision == release.revision)
        });
        if !is_held {
            warn!(
                kind,
                revision, "the cloud releases what is not held; nothing is released"
            );
            return Ok(());
        }
        info!(kind, revision, "the cloud releases what is held");
        let patch = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: revision}}});
        let params = PatchParams::apply(MANAGER);
        self.objects.patch(CLOUD_SYNC, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn approve(&self, approval: &ApprovalSpec) -> Result<(), DecisionError> {
        let (id, digest) = (approval.plugin.to_string(), approval.digest.as_str());
        let awaits = |plugin: &Arc<Plugin>| {
            let pending = plugin.status.as_ref().and_then(|status| status.pending.as_ref());
            plugin.spec.id == id && pending.is_some_and(|pending| pending.digest == digest)
        };
        let found: Option<Arc<Plugin>> = self.plugins.iter().find(awaits);
        let Some(plugin) = found else {
            warn!(
                plugin = id,
                digest, "the cloud approves what awaits no approval; nothing is approved"
            );
            return Ok(());
        };
        info!(plugin = id, digest, "the cloud approves a version");
        let patch = json!({"metadata": {"annotations": {APPROVE_ANNOTATION: digest}}});
        let params = PatchParams::apply(MANAGER);
        self.copies
            .patch(&plugin.name_any(), &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }
}
