//! The agent's upgrade controller: offers the script of an upgrade to the host while it is the turn of this node, and takes the offer back when it is
//! not.
//!
//! - Whose turn it is, `tidewaiter_upgrade::agent::offer` decides. The host decides again, with what only it knows.
//! - A script that the host would refuse is not offered. `current` is written last, and never names a script that is not whole.
//! - While the API server or the coordinator is away, what is offered stays: the host stops a script at its deadline.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus::IntGauge;
use tidewaiter_api::NodeName;
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::node_report::{UpgradeReport, UpgradeState};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::metrics::{Metrics, MetricsError};
use tidewaiter_kit::{
    Backoff, Cache, Chain, Controller, ControllerContext, Events, Key, Next, Notice, Pass, Queue, ReconcileError,
    Reconciler, Retry, SharedClock, Tasks,
};
use tidewaiter_upgrade::agent::{Ledger, Offer, Refused, offer};
use tidewaiter_upgrade::signed::Untrusted;
use tidewaiter_upgrade::{Upgrade, form};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::files::{self, FileError, Order, Outcome, RunResult};
use super::relay::{Relay, RelayError};
use super::trust::{Asked, Trust, TrustError};
use crate::host::{Host, HostError};
use crate::identity::Identity;
use crate::watcher::Watcher;

/// An operator corrects what is wrong, or the coordinator answers again.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The safety net for changes that are no event.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Why nothing is offered, although it is the turn of this node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error(transparent)]
    Relay(#[from] RelayError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the files were not written")]
    Thread(#[source] tokio::task::JoinError),
}

impl From<HostError> for UpgradeError {
    fn from(error: HostError) -> Self {
        Self::File(error.into())
    }
}

impl ReconcileError for UpgradeError {
    fn retry(&self) -> Retry {
        Retry::Backoff
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Relay(_) => "relay",
            Self::Trust(_) => "trust",
            Self::Untrusted(_) => "untrusted",
            Self::File(_) => "host",
            Self::Thread(_) => "thread",
        }
    }

    fn notice(&self) -> Option<Notice> {
        let note = format!("No upgrade script runs on this node: {}.", Chain(self));
        Some(Notice::warning("UpgradeScriptRefused", "Upgrade", note))
    }
}

/// There is one turn.
fn key() -> Key {
    Key::new("upgrade")
}

/// The controller.
struct UpgradeController {
    upgrades: Cache<ClusterUpgrade>,
    host: Host,
    node: NodeName,
    relay: Relay,
    watcher: Watcher,
    clock: SharedClock,
    about: Identity,
    events: Events,
    ledger: Mutex<Ledger>,
    told: watch::Sender<Option<UpgradeReport>>,
    metrics: UpgradeMetrics,
}

struct UpgradeMetrics {
    is_refused: IntGauge,
    permits_unsigned: IntGauge,
}

impl UpgradeMetrics {
    fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            is_refused: metrics.gauge(
                "tidewaiter_agent_upgrade_script_refused",
                "1 while it is the turn of this node to be upgraded and no script runs, because the agent or the host refuses it or there is none; else 0.",
            )?,
            permits_unsigned: metrics.gauge(
                "tidewaiter_agent_unsigned_scripts_permitted",
                "1 while this node permits upgrade scripts without a signature, else 0.",
            )?,
        })
    }
}

/// Starts it, and returns what the report of the node says of upgrades.
///
/// # Errors
/// When a metric's name is taken.
pub(crate) fn start(
    parts: (Host, NodeName, Relay, Watcher),
    about: Identity,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<watch::Receiver<Option<UpgradeReport>>, MetricsError> {
    let (host, node, relay, watcher) = parts;
    let (told, telling) = watch::channel(None);
    let queue = Queue::new();
    queue.push(key());
    // Optional: a cluster may not have the definition yet.
    let upgrades = Cache::<ClusterUpgrade>::namespaced(
        clients.for_controller("upgrade-cache", DEFAULT_IN_FLIGHT),
        CONTAINERSHIP_NAMESPACE,
    )
    .optional()
    .start(tasks, &context.kit);
    upgrades.notify(queue.always(key()));
    tasks.spawn(
        "upgrade/files",
        watcher.clone().run(queue.clone(), key(), tasks.shutdown_token()),
    );
    let controller = UpgradeController {
        upgrades: upgrades.clone(),
        host,
        node,
        relay,
        watcher,
        clock: Arc::clone(&context.kit.clock),
        about,
        events: context.events.of(UpgradeController::NAME),
        ledger: Mutex::default(),
        told,
        metrics: UpgradeMetrics::new(&context.kit.metrics)?,
    };
    Controller::new(controller, queue)
        .reads(&upgrades)
        .backoff(RETRIES)
        .start(context.clone(), tasks);
    Ok(telling)
}

impl Reconciler for UpgradeController {
    const NAME: &'static str = "upgrade";
    type Error = UpgradeError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, UpgradeError> {
        pass.about(self.about.reference());
        let objects: Vec<Arc<ClusterUpgrade>> = self.upgrades.iter().collect();
        let upgrades: Vec<Upgrade> = objects.iter().map(|object| form::read(object)).collect();
        let decided = {
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.see(&upgrades);
            offer(&upgrades, &self.node, &ledger, self.clock.now())
        };
        let of = |offered: &Offer<'_>| {
            let mut all = objects.iter();
            all.find(|object| object.metadata.uid.as_deref() == Some(&offered.upgrade.uid))
                .map(|object| slim(object))
        };
        let upgrade = decided.as_ref().ok().and_then(of);
        let id = upgrade.as_ref().map(|upgrade| files::id(upgrade).to_owned());
        let result = match (decided, upgrade) {
            (Ok(offered), Some(upgrade)) => self.make(offered, upgrade).await,
            (Ok(_), None) => Ok(Next::UntilChanged),
            (Err(refused), _) => self.withdraw(&refused).await,
        };
        self.report(id.unwrap_or_default(), result.as_ref().err()).await?;
        result
    }
}

impl UpgradeController {
    /// Offers the upgrade, unless it is offered already and the host does not refuse it: then somebody may have signed the script again.
    async fn make(&self, offered: Offer<'_>, upgrade: ClusterUpgrade) -> Result<Next, UpgradeError> {
        let now = self.clock.now();
        let left = Duration::try_from(offered.until.duration_since(now)).unwrap_or_default();
        let next = Next::After(left.min(LOOK_AGAIN));
        let id = files::id(&upgrade).to_owned();
        let on_host = self.on_host(|host| Ok((host.ordered()?, host.result()?))).await;
        if let Ok((Some(order), result)) = on_host
            && self.is_offered(&order, &offered)
            && !result.is_some_and(|result| result.id == id && is_to_be_repeated(&result, now))
        {
            return Ok(next);
        }
        let target = offered.spec.target.clone();
        let script = self.relay.script(&target).await?;
        let order = Order { upgrade, script };
        let about = format!("{id} to {target}");
        self.on_host(move |host| {
            let id = files::id(&order.upgrade);
            let asked = Asked {
                upgrade: id,
                version: &target,
                newest: 0,
                now,
            };
            Trust::read(host)?.open(&order.script, &asked)?;
            Ok(host.offer(&files::script_name(&target, id), &order)?)
        })
        .await?;
        info!(upgrade = about, until = %offered.until, "it is the turn of this node: the script is offered to the host");
        Ok(next)
    }

    /// Whether the host has this offer: the same upgrade, until the same time.
    fn is_offered(&self, order: &Order, offered: &Offer<'_>) -> bool {
        let upgrades = [form::read(&order.upgrade)];
        let there = offer(&upgrades, &self.node, &Ledger::default(), self.clock.now());
        there.is_ok_and(|there| there.upgrade.uid == offered.upgrade.uid && there.until == offered.until)
    }

    async fn withdraw(&self, refused: &Refused) -> Result<Next, UpgradeError> {
        if self.on_host(|host| Ok(host.withdraw()?)).await? {
            info!(reason = %refused, "the script is not offered to the host any more");
        }
        Ok(Next::UntilChanged)
    }

    /// What the report says: why the upgrade with this id was not offered, or what the host says.
    async fn report(&self, id: String, error: Option<&UpgradeError>) -> Result<(), UpgradeError> {
        let watcher = self.watcher.clone();
        let (result, permits_unsigned) = self.on_host(move |host| look(host, &watcher)).await?;
        let mut report = result.map(reported).unwrap_or_default();
        if let Some(error) = error {
            report = UpgradeReport {
                id: id.clone(),
                state: UpgradeState::Refused,
                message: Chain(error).to_string(),
                ..UpgradeReport::default()
            };
        }
        report.message = report.message.chars().take(1024).collect();
        // What the host said of another upgrade, or of an earlier turn, is over.
        let is_refused = !id.is_empty() && report.id == id && report.state == UpgradeState::Refused;
        self.metrics.is_refused.set(i64::from(is_refused));
        self.metrics.permits_unsigned.set(i64::from(permits_unsigned));
        report.unsigned_scripts = permits_unsigned;
        let was = self.told.borrow().as_ref().is_some_and(|told| told.unsigned_scripts);
        if permits_unsigned && !was {
            warn!(
                "trust/unsigned-scripts permits scripts without a signature: whoever can write a ClusterUpgrade, or serve a script, is root on this node"
            );
            let note = "trust/unsigned-scripts on this node permits upgrade scripts without a signature. Sign them, and remove the file.";
            let about: ObjectReference = self.about.reference();
            self.events.publish(
                &about,
                Notice::warning("UnsignedScriptsPermitted", "Upgrade", note.to_owned()),
            );
        }
        let report = Some(report).filter(|report| *report != UpgradeReport::default());
        self.told.send_if_modified(|told| {
            let changed = *told != report;
            *told = report;
            changed
        });
        Ok(())
    }

    async fn on_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host) -> Result<T, UpgradeError> + Send + 'static,
    ) -> Result<T, UpgradeError> {
        let host = self.host.clone();
        spawn_blocking(move || work(&host))
            .await
            .map_err(UpgradeError::Thread)?
    }
}

/// Whether the host has refused the order for a while.
fn is_to_be_repeated(result: &RunResult, now: Timestamp) -> bool {
    let age = Duration::try_from(now.duration_since(result.at)).unwrap_or_default();
    result.outcome == Outcome::Refused && age >= LOOK_AGAIN
}

/// Watches the folder, and returns what the host says, and whether it permits scripts without a signature.
fn look(host: &Host, watcher: &Watcher) -> Result<(Option<RunResult>, bool), UpgradeError> {
    let opened = host.ensure(&files::FOLDER)?;
    let folders: Vec<_> = opened.folders.iter().collect();
    let added = watcher.add_folders(&folders);
    let added = added.map_err(|source| HostError::call("watched", "scripts/upgrade", source))?;
    // What cannot be watched any more is gone.
    let _ = watcher.settle(added, &[]);
    // One that does not count is none.
    let result = host.result().unwrap_or_default();
    let permits_unsigned = Trust::read(host).is_ok_and(|trust| trust.permits_unsigned());
    Ok((result, permits_unsigned))
}

/// What the host has to know of an upgrade.
fn slim(object: &ClusterUpgrade) -> ClusterUpgrade {
    let mut slim = ClusterUpgrade::new("", object.spec.clone());
    slim.metadata.name.clone_from(&object.metadata.name);
    slim.metadata.uid.clone_from(&object.metadata.uid);
    slim.metadata.generation = object.metadata.generation;
    slim.metadata.labels.clone_from(&object.metadata.labels);
    slim
}

/// What the report says of a result: not what the script printed, which may be secret.
fn reported(result: RunResult) -> UpgradeReport {
    let state = match result.outcome {
        Outcome::Running => UpgradeState::Running,
        Outcome::Succeeded => UpgradeState::Succeeded,
        Outcome::Failed => UpgradeState::Failed,
        Outcome::TimedOut => UpgradeState::TimedOut,
        Outcome::Interrupted => UpgradeState::Interrupted,
        Outcome::Refused => UpgradeState::Refused,
    };
    UpgradeReport {
        id: result.id.chars().take(253).collect(),
        state,
        message: result.message,
        exit_code: result.exit_code,
        unsigned_scripts: false,
    }
}
