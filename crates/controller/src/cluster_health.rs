//! ClusterHealth: writes the verdict as a condition that people and other controllers can wait for.
//!
//! The leader alone writes, by server-side apply, and only what is not said already. What others did to the object is undone
//! within minutes; that the condition changed is told in an Event.

pub(crate) mod plan;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::core::Status;
use kube::{Client, Resource as _};
use tidewaiter_api::{ClusterHealth, ClusterHealthSpec, ClusterHealthStatus, ClusterName};
use tidewaiter_kit::{
    Backoff, ControllerContext, Events, Next, ReconcileError, Retry, SharedClock, Single, Tasks, is_fenced, run_single,
};
use tokio::sync::Notify;

use crate::verdicts::Latest;
use plan::plan;

/// The name under which the API server books our writes.
const FIELD_MANAGER: &str = "tidewaiter/cluster-health";

/// What we wrote is taken to stand there for so long.
const TRUST: Duration = Duration::from_mins(5);

/// Between two writes that say the same of the cluster's health: a rolling update changes the counts all the time.
const REST: Duration = Duration::from_secs(5);

const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// The controller. One reconcile brings the object up to the newest verdict.
pub struct ClusterHealthController {
    cluster: ClusterName,
    api: Api<ClusterHealth>,
    latest: Latest,
    events: Events,
    clock: SharedClock,
    /// What stands in the cluster, and when (monotonic) it was read or written.
    standing: Mutex<Option<(ClusterHealthStatus, Duration)>>,
}

/// Why the object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ClusterHealthError {
    /// Reading.
    #[error("the ClusterHealth cannot be read")]
    Read(#[source] kube::Error),
    /// Writing.
    #[error("the ClusterHealth cannot be written")]
    Write(#[source] kube::Error),
}

impl ReconcileError for ClusterHealthError {
    fn retry(&self) -> Retry {
        Retry::Backoff
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Read(error) | Self::Write(error) if is_fenced(error) => "not_leader",
            Self::Read(_) => "read",
            Self::Write(kube::Error::Api(status)) if is_refusal(status) => "rejected",
            Self::Write(_) => "write",
        }
    }
}

fn is_refusal(status: &Status) -> bool {
    (400..500).contains(&status.code)
}

/// Starts to write, when this replica leads, whatever `latest` says.
pub fn start(cluster: ClusterName, client: Client, mut latest: Latest, context: ControllerContext, tasks: &mut Tasks) {
    let controller = Arc::new(ClusterHealthController {
        cluster,
        api: Api::all(client),
        latest: latest.clone(),
        events: context.events.clone(),
        clock: Arc::clone(&context.kit.clock),
        standing: Mutex::default(),
    });
    let wake = Arc::new(Notify::new());
    let woken = Arc::clone(&wake);
    let shutdown = context.shutdown.clone();
    tasks.spawn("cluster-health/wake", async move {
        let waking = async {
            while latest.changed().await.is_ok() {
                woken.notify_one();
            }
            std::future::pending::<()>().await;
        };
        shutdown.run_until_cancelled(waking).await;
        Ok::<_, std::convert::Infallible>(())
    });
    tasks.spawn("cluster-health", async move {
        run_single(controller, wake, context, RETRIES).await;
        Ok::<_, std::convert::Infallible>(())
    });
}

impl Single for ClusterHealthController {
    const NAME: &'static str = "cluster-health";
    type Error = ClusterHealthError;

    async fn reconcile(&self) -> Result<Next, ClusterHealthError> {
        let Some(judged) = self.latest.borrow().clone() else {
            return Ok(Next::UntilChanged);
        };
        let (standing, since) = self.standing().await?;
        let Some(plan) = plan(standing.as_ref(), &judged.verdict, judged.at) else {
            return Ok(Next::UntilChanged);
        };
        let age = self.clock.monotonic().saturating_sub(since);
        if plan.notice.is_none() && age < REST {
            return Ok(Next::After(REST.saturating_sub(age)));
        }
        let written = self.write(plan.status).await?;
        if let Some(notice) = plan.notice {
            self.events.publish(&written.object_ref(&()), notice);
        }
        Ok(Next::UntilChanged)
    }
}

impl ClusterHealthController {
    /// What stands in the cluster, if anything does, and since when that is known.
    async fn standing(&self) -> Result<(Option<ClusterHealthStatus>, Duration), ClusterHealthError> {
        let now = self.clock.monotonic();
        let known = self.lock().clone();
        if let Some((standing, since)) = known
            && now.saturating_sub(since) < TRUST
        {
            return Ok((Some(standing), since));
        }
        let found = self.api.get_opt(self.cluster.as_str()).await;
        let status = found
            .map_err(ClusterHealthError::Read)?
            .and_then(|health| health.status);
        *self.lock() = status.clone().map(|status| (status, now));
        // What has just been read may be written over at once.
        Ok((status, now.saturating_sub(REST)))
    }

    async fn write(&self, status: ClusterHealthStatus) -> Result<ClusterHealth, ClusterHealthError> {
        let mut health = ClusterHealth::new(self.cluster.as_str(), ClusterHealthSpec {});
        health.status = Some(status.clone());
        let apply = PatchParams::apply(FIELD_MANAGER).force();
        let written = self
            .api
            .patch(self.cluster.as_str(), &apply, &Patch::Apply(&health))
            .await;
        // Whether a write that failed took place is not known.
        *self.lock() = written.is_ok().then(|| (status, self.clock.monotonic()));
        written.map_err(ClusterHealthError::Write)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ClusterHealthStatus, Duration)>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
