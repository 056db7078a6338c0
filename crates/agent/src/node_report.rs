//! The node report controller: writes the state of the agent into the `NodeReport` of its node, when it differs from
//! the written one.
//!
//! Only this agent can write the object: the admission policy compares its name with the node in the agent's token. An
//! object that somebody deleted or changed is written again within the hour.

mod plan;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::Api;
use parking_lot::Mutex;
use tidewaiter_api::{HostFacts, NodeReport, NodeReportStatus};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::{
    Category, Controller, ControllerContext, Guarded, Key, Next, Pass, Queue, ReconcileError, Reconciler, Retry,
    SharedClock, Tasks, WriteError, Writer,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::identity::{Identity, IdentityError};
use crate::upgrade::report::ReportedUpgrade;
use crate::user_controller::AgentStatus;
use plan::plan;

/// The minimum time between two writes: while somebody changes the files again and again, the report does not follow
/// each change.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// An agent that starts knows the Users after a moment. Only when that takes longer, its report says so.
const FIRST_LIST: Duration = Duration::from_secs(30);

/// The time for which a value that was read or written is assumed to be unchanged.
const CACHE_TTL: Duration = Duration::from_hours(1);

fn key() -> Key {
    Key::new("node")
}

struct NodeReportController {
    identity: Identity,
    agent: watch::Receiver<AgentStatus>,
    upgrade: watch::Receiver<ReportedUpgrade>,
    client: Client,
    writer: Writer,
    clock: SharedClock,
    facts: HostFacts,
    known: Mutex<Option<Known>>,
    /// The time when the agent started (monotonic).
    started: Duration,
}

/// The report as it was last read or written.
#[derive(Clone)]
struct Known {
    status: Option<NodeReportStatus>,
    /// Monotonic.
    read: Duration,
    written: Option<Duration>,
}

/// The reason why the report is not written.
#[derive(Debug, thiserror::Error)]
enum ReportError {
    /// The Node is not known.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Reading.
    #[error("the NodeReport cannot be read")]
    Read(#[source] kube::Error),
    /// Writing.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl ReconcileError for ReportError {
    fn category(&self) -> Category {
        match self {
            Self::Identity(IdentityError::Review(error)) => Category::new("identity", Retry::of(error)),
            Self::Identity(IdentityError::NoNode | IdentityError::OtherNode { .. }) => {
                Category::new("identity", Retry::Slow)
            }
            Self::Read(error) => Category::new("read", Retry::of(error)),
            Self::Write(error) => Category::new(error.class(), error.retry()),
        }
    }
}

/// Starts the task that writes the reports.
pub(crate) fn start(
    identity: Identity,
    agent: watch::Receiver<AgentStatus>,
    upgrade: watch::Receiver<ReportedUpgrade>,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) {
    let queue = Queue::new();
    let client = clients.for_controller(NodeReportController::NAME, DEFAULT_IN_FLIGHT);
    let clock = Arc::clone(&context.kit.clock);
    let queueing = queue_updates(agent.clone(), queue.clone(), tasks.shutdown_token());
    tasks.spawn("node-report/updates", queueing);
    let queueing = queue_updates(upgrade.clone(), queue.clone(), tasks.shutdown_token());
    tasks.spawn("node-report/upgrades", queueing);
    let controller = NodeReportController {
        identity,
        agent,
        upgrade,
        started: clock.monotonic(),
        writer: Writer::new(client.clone(), NodeReportController::NAME, Arc::clone(&clock)),
        client,
        clock,
        facts: host_facts(),
        known: Mutex::default(),
    };
    Controller::new(controller, queue).start(context.clone(), tasks);
}

async fn queue_updates<T>(
    mut updates: watch::Receiver<T>,
    queue: Queue,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let queueing = async {
        while updates.changed().await.is_ok() {
            queue.push(key());
        }
        std::future::pending::<()>().await;
    };
    shutdown.run_until_cancelled(queueing).await;
    Ok(())
}

/// The facts that the kernel reports. The kernel is that of the host.
fn host_facts() -> HostFacts {
    let system = rustix::system::uname();
    let boot_id = tidewaiter_kit::files::read("/proc/sys/kernel/random/boot_id".as_ref()).unwrap_or_default();
    HostFacts {
        kernel: system.release().to_string_lossy().into_owned(),
        architecture: system.machine().to_string_lossy().into_owned(),
        boot_id: String::from_utf8_lossy(&boot_id).trim().to_owned(),
    }
}

impl Reconciler for NodeReportController {
    const NAME: &'static str = "node-report";
    type Error = ReportError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ReportError> {
        let (agent, upgrade) = (self.agent.borrow().clone(), self.upgrade.borrow().clone());
        let running = self.clock.monotonic().saturating_sub(self.started);
        if agent.awaits_users() && running < FIRST_LIST {
            return Ok(Next::Pending(FIRST_LIST.saturating_sub(running)));
        }
        let claim = self.identity.claim(&self.client).await?;
        pass.about(self.identity.reference());
        let known = self.observe(&claim.name).await?;
        let Some(status) = plan(known.status.as_ref(), &agent, &upgrade, &self.facts, self.clock.now()) else {
            return Ok(Next::After(CACHE_TTL));
        };
        let age = known.written.map_or(MIN_WRITE_INTERVAL, |written| {
            self.clock.monotonic().saturating_sub(written)
        });
        if age < MIN_WRITE_INTERVAL {
            return Ok(Next::Pending(MIN_WRITE_INTERVAL.saturating_sub(age)));
        }
        let report = NodeReport::of_node(&claim.name, &claim.uid, status.clone());
        let written = self.writer.apply(&report, None).await;
        let now = self.clock.monotonic();
        // A write that failed may have taken place.
        *self.known.lock() = written.is_ok().then_some(Known {
            status: Some(status),
            read: now,
            written: Some(now),
        });
        written?;
        Ok(Next::After(CACHE_TTL))
    }
}

impl NodeReportController {
    async fn observe(&self, name: &str) -> Result<Known, ReportError> {
        let now = self.clock.monotonic();
        let known = self.known.lock().clone();
        if let Some(known) = known.filter(|known| now.saturating_sub(known.read) < CACHE_TTL) {
            return Ok(known);
        }
        let api: Api<Guarded<NodeReport>> = Api::all(self.client.clone());
        let found = api.get_opt(name).await.map_err(ReportError::Read)?;
        // A report that cannot be decoded is written again.
        let found = found.and_then(|Guarded(report)| report.ok());
        let known = Known {
            status: found.and_then(|report| report.status),
            read: now,
            written: None,
        };
        *self.known.lock() = Some(known.clone());
        Ok(known)
    }
}
