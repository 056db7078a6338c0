//! ClusterHealth: writes the verdict as a condition that people and other controllers can wait for.
//!
//! Only the leader writes, by server-side apply, and only what differs. What others did to the object is undone by the
//! next verdict. A change of the condition is published as an Event.

pub(crate) mod plan;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Api;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use tidewaiter_api::{ClusterHealth, ClusterHealthSpec, ClusterHealthStatus, ClusterName};
use tidewaiter_kit::{
    Backoff, Category, Controller, ControllerContext, Events, Guarded, Key, Next, Pass, Queue, ReconcileError,
    Reconciler, Retry, SharedClock, Tasks, WriteError, Writer,
};

use crate::verdicts::Latest;
use plan::plan;

/// The time for which a value that we read or wrote is assumed to be unchanged: at rest each verdict reads it, and
/// while verdicts follow each other closely few do.
const TRUST: Duration = Duration::from_secs(5);

/// Between two writes with the same condition: a rolling update changes the counts all the time.
const REST: Duration = Duration::from_secs(5);

const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// The controller. One reconcile makes the one object say what the newest verdict says.
pub struct ClusterHealthController {
    cluster: ClusterName,
    api: Api<Guarded<ClusterHealth>>,
    writer: Writer,
    latest: Latest,
    events: Events,
    clock: SharedClock,
    known: Mutex<Option<Known>>,
}

/// The object as it was last read or written.
#[derive(Clone)]
struct Known {
    uid: Option<String>,
    status: ClusterHealthStatus,
    /// Monotonic.
    since: Duration,
}

/// The reason why the object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ClusterHealthError {
    /// Reading.
    #[error("the ClusterHealth cannot be read")]
    Read(#[source] kube::Error),
    /// Writing.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl ReconcileError for ClusterHealthError {
    fn category(&self) -> Category {
        match self {
            Self::Read(error) => Category::new("read", Retry::of(error)),
            Self::Write(error) => error.category(),
        }
    }
}

/// Starts to write whatever `latest` says, when this replica leads.
pub fn start(cluster: ClusterName, client: Client, latest: Latest, context: &ControllerContext, tasks: &mut Tasks) {
    let queue = Queue::new();
    let clock = Arc::clone(&context.kit.clock);
    let controller = ClusterHealthController {
        api: Api::all(client.clone()),
        writer: Writer::new(client, ClusterHealthController::NAME, Arc::clone(&clock)),
        latest: latest.clone(),
        events: context.events.of(ClusterHealthController::NAME),
        clock,
        known: Mutex::default(),
        cluster: cluster.clone(),
    };
    tasks.spawn(
        "cluster-health/verdicts",
        queue_verdicts(latest, queue.clone(), cluster, tasks),
    );
    let controller = Controller::new(controller, queue).backoff(RETRIES);
    controller.start(context.clone(), tasks);
}

/// Queues the object for each new verdict.
fn queue_verdicts(
    mut latest: Latest,
    queue: Queue,
    cluster: ClusterName,
    tasks: &Tasks,
) -> impl Future<Output = Result<(), std::convert::Infallible>> + use<> {
    let shutdown = tasks.shutdown_token();
    async move {
        let queueing = async {
            while latest.changed().await.is_ok() {
                queue.push(Key::new(cluster.as_str()));
            }
            std::future::pending::<()>().await;
        };
        shutdown.run_until_cancelled(queueing).await;
        Ok(())
    }
}

impl Reconciler for ClusterHealthController {
    const NAME: &'static str = "cluster-health";
    type Error = ClusterHealthError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ClusterHealthError> {
        let Some(judged) = self.latest.borrow().clone() else {
            return Ok(Next::UntilChanged);
        };
        let known = self.observe().await?;
        pass.about(self.reference(known.as_ref().and_then(|known| known.uid.clone())));
        let Some(plan) = plan(known.as_ref().map(|known| &known.status), &judged.verdict, judged.at) else {
            return Ok(Next::UntilChanged);
        };
        let age = known.map_or(REST, |known| self.clock.monotonic().saturating_sub(known.since));
        if plan.notice.is_none() && age < REST {
            return Ok(Next::Pending(REST.saturating_sub(age)));
        }
        let uid = self.write(plan.status).await?;
        if let Some(notice) = plan.notice {
            self.events.publish(&self.reference(uid), notice);
        }
        Ok(Next::UntilChanged)
    }
}

impl ClusterHealthController {
    fn object(&self, status: Option<ClusterHealthStatus>) -> ClusterHealth {
        let mut health = ClusterHealth::new(self.cluster.as_str(), ClusterHealthSpec {});
        health.status = status;
        health
    }

    /// The object as an Event refers to it: `kubectl describe` finds Events by the uid.
    fn reference(&self, uid: Option<String>) -> ObjectReference {
        ObjectReference {
            uid,
            ..self.object(None).object_ref(&())
        }
    }

    /// The object, if it exists, can be decoded, and has a status.
    async fn observe(&self) -> Result<Option<Known>, ClusterHealthError> {
        let now = self.clock.monotonic();
        let known = self.known.lock().clone();
        if let Some(known) = known.filter(|known| now.saturating_sub(known.since) < TRUST) {
            return Ok(Some(known));
        }
        let found = self.api.get_opt(self.cluster.as_str()).await;
        let found = found.map_err(ClusterHealthError::Read)?;
        // One that cannot be decoded is written anew.
        let known = found.and_then(|Guarded(health)| health.ok()).and_then(|health| {
            Some(Known {
                uid: health.metadata.uid,
                status: health.status?,
                since: now,
            })
        });
        self.known.lock().clone_from(&known);
        // The object that has just been read may be overwritten at once.
        Ok(known.map(|known| Known {
            since: now.saturating_sub(REST),
            ..known
        }))
    }

    async fn write(&self, status: ClusterHealthStatus) -> Result<Option<String>, WriteError> {
        let written = self.writer.apply(&self.object(Some(status.clone())), None).await;
        let uid = written.as_ref().ok().and_then(|written| written.as_ref()?.uid.clone());
        // A write that failed may have taken place.
        *self.known.lock() = written.is_ok().then(|| Known {
            uid: uid.clone(),
            status,
            since: self.clock.monotonic(),
        });
        written.map(|_| uid)
    }
}
