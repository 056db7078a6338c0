//! The agent's upgrade controller: offers the script of an upgrade to the host while it is the turn of this node, and
//! takes the offer back when it is not.
//!
//! - It watches the order of its own node alone, the `NodeUpgrade` that the coordinator derives from the progress.
//!   `tidewaiter_upgrade::agent::offer` decides by it. The host decides again, with what only it knows.
//! - A script that the host would refuse is not offered, and the refusal is final: it is written as the result of the
//!   host, which then runs no script of this upgrade. So the coordinator can count the node as failed at once.
//!   `current` is written last, and never names a script that is not whole.
//! - While the API server or the coordinator is away, what is offered stays: the host stops a script at its deadline.
//! - An offer that the host does not answer is repeated: a change of `current` while the host's service ends starts
//!   nothing.

mod error;
mod on_host;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use tidewaiter_api::cloud_sync::CLOUD_SYNC;
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::{CloudSync, NodeName, NodeUpgrade};
use tidewaiter_kit::cache::TroubleCause;
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Backoff, Cache, Chain, Controller, ControllerContext, Events, Key, Next, Notice, Pass, Queue, Reconciler,
    SharedClock, Tasks,
};
use tidewaiter_upgrade::agent::{Ledger, Offer, Refused, offer};
use tidewaiter_upgrade::{Upgrade, form, node_upgrade};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::files::{Order, Outcome};
use super::relay::Relay;
use super::report::{Found, ReportedUpgrade, UpgradeMetrics};
use crate::host::Host;
use crate::identity::Identity;
use crate::watcher::Watcher;
use error::UpgradeError;
use on_host::{is_to_be_repeated, look, offer_checked};

/// An operator corrects what is wrong, or the coordinator answers again.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The safety net for changes that are no event.
const RESYNC_INTERVAL: Duration = Duration::from_mins(1);

/// The minimum time before a signature is checked again whose window is about to open.
const MIN_RECHECK_DELAY: Duration = Duration::from_secs(1);

/// The delay of a pass before the first list of the orders is complete.
const FIRST_LIST: Duration = Duration::from_secs(1);

/// The only key: an agent has one node.
fn key() -> Key {
    Key::new("upgrade")
}

/// The folders of the host, and the name of its Node.
#[derive(Clone)]
pub(crate) struct HostAccess {
    pub(crate) host: Host,
    /// The folder of what root has pinned.
    pub(crate) pinned: Host,
    pub(crate) node: NodeName,
    /// The settings `folder` and `stateFolder`.
    pub(crate) folders: [String; 2],
    pub(crate) watcher: Watcher,
}

struct UpgradeController {
    orders: Cache<NodeUpgrade>,
    /// Contains the id of the cluster.
    sync: Cache<CloudSync>,
    access: HostAccess,
    relay: Relay,
    clock: SharedClock,
    about: Identity,
    events: Events,
    ledger: Mutex<Ledger>,
    pending: Mutex<Option<PendingOffer>>,
    reported: watch::Sender<ReportedUpgrade>,
    metrics: UpgradeMetrics,
}

/// An offer that the host has (monotonic times).
#[derive(Clone, Debug)]
struct PendingOffer {
    /// The uid of the upgrade.
    upgrade: String,
    /// The start, as far as this process knows.
    since: Duration,
    /// The time when it was written last.
    written: Duration,
}

/// Starts it, and returns the part about upgrades of the node's report.
///
/// # Errors
/// A metric's name is taken.
pub(crate) fn start(
    (access, relay): (HostAccess, Relay),
    sync: Cache<CloudSync>,
    about: Identity,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<watch::Receiver<ReportedUpgrade>, MetricsError> {
    let (reported, receiver) = watch::channel(ReportedUpgrade::Unknown);
    let queue = Queue::new();
    queue.push(key());
    // Optional: a cluster may not have the definition yet.
    let orders = Cache::<NodeUpgrade>::namespaced(
        clients.for_controller("upgrade-cache", DEFAULT_IN_FLIGHT),
        CONTAINERSHIP_NAMESPACE,
    )
    .fields(&format!("metadata.name={}", access.node))
    .optional()
    .start(tasks, &context.kit);
    orders.notify(queue.always(key()).unawaited());
    sync.notify(
        queue
            .always(key())
            .unawaited()
            .unless(|before, after| cluster(before) == cluster(after)),
    );
    tasks.spawn(
        "upgrade/files",
        access.watcher.clone().run(queue.clone(), key(), tasks.shutdown_token()),
    );
    let controller = UpgradeController {
        orders,
        sync,
        access,
        relay,
        clock: Arc::clone(&context.kit.clock),
        about,
        events: context.events.of(UpgradeController::NAME),
        ledger: Mutex::default(),
        pending: Mutex::default(),
        reported,
        metrics: UpgradeMetrics::new(&context.kit.metrics)?,
    };
    // It does not wait for the first list: while there is none, it reports why.
    Controller::new(controller, queue)
        .backoff(RETRIES)
        .start(context.clone(), tasks);
    Ok(receiver)
}

impl Reconciler for UpgradeController {
    const NAME: &'static str = "upgrade";
    type Error = UpgradeError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, UpgradeError> {
        pass.about(self.about.reference());
        if !self.orders.is_synced() {
            // The offer and the report stay, unless waiting does not help.
            if self.unreadable().is_none() {
                return Ok(Next::Pending(FIRST_LIST));
            }
            self.report(None, false, None).await?;
            return Ok(Next::Pending(RESYNC_INTERVAL));
        }
        let order = self
            .orders
            .get(&Key::namespaced(CONTAINERSHIP_NAMESPACE, self.access.node.as_str()));
        // Somebody else's finalizer may keep one that the coordinator has deleted.
        let order = order.filter(|order| order.metadata.deletion_timestamp.is_none());
        let is_over = order.is_none();
        let upgrade = order.map(|order| node_upgrade::read(&order, &self.access.node));
        let upgrades: Vec<Upgrade> = upgrade.iter().map(form::read).collect();
        let decided = {
            let mut ledger = self.ledger.lock();
            ledger.see(&upgrades);
            offer(&upgrades, &self.access.node, &ledger, self.clock.now())
        };
        let upgrade = upgrade.filter(|_| decided.is_ok());
        let id = upgrade.as_ref().map(|upgrade| form::id(upgrade).to_owned());
        let result = match (decided, upgrade) {
            (Ok(offered), Some(upgrade)) => self.make(offered, upgrade).await,
            (Ok(_), None) => Ok(Next::After(RESYNC_INTERVAL)),
            (Err(refused), _) => self.withdraw(&refused).await,
        };
        let reported = self.report(id.as_deref(), is_over, result.as_ref().err()).await;
        reported?;
        // As the signer wants.
        if let Some(begin) = result.as_ref().err().and_then(UpgradeError::not_before) {
            let wait = Duration::try_from(begin.duration_since(self.clock.now())).unwrap_or_default();
            return Ok(Next::Pending(wait.clamp(MIN_RECHECK_DELAY, RESYNC_INTERVAL)));
        }
        result
    }
}

impl UpgradeController {
    /// The reason why nobody can give this node an order, where waiting does not help; None if somebody can.
    fn unreadable(&self) -> Option<String> {
        let trouble = self.orders.trouble()?;
        (trouble.cause != TroubleCause::Other).then(|| {
            format!(
                "no script begins here, because the orders of the coordinator cannot be read; upgrade it, and apply \
                 deploy/crds/coordinator and deploy/agent, before the agents: {}",
                trouble.error
            )
        })
    }

    /// Offers the upgrade, unless it is offered already, or was refused for good. It is repeated from time to time
    /// while the host cannot run it yet, and while the host does not answer.
    async fn make(&self, offered: Offer<'_>, upgrade: ClusterUpgrade) -> Result<Next, UpgradeError> {
        let now = self.clock.now();
        let left = Duration::try_from(offered.until.duration_since(now)).unwrap_or_default();
        let next = Next::After(left.min(RESYNC_INTERVAL));
        let id = form::id(&upgrade).to_owned();
        let on_host = self.on_host(|host| Ok((host.ordered()?, host.result()?))).await;
        if let Ok((order, result)) = on_host {
            let result = result.filter(|result| result.id == id);
            if result.as_ref().is_some_and(|result| result.outcome == Outcome::Refused) {
                return Ok(next);
            }
            if order.is_some_and(|order| self.is_offered(&order, &offered))
                && !is_to_be_repeated(result.as_ref(), self.offer_age(&offered), now)
            {
                return Ok(next);
            }
        }
        let uid = offered.upgrade.uid.clone();
        let target = offered.spec.target.clone();
        let script = self.relay.script(&target).await?;
        let order = Order { upgrade, script };
        let about = format!("{id} to {target}");
        let pinned = self.access.pinned.clone();
        self.on_host(move |host| offer_checked(&pinned, host, &order, &target, now))
            .await?;
        info!(upgrade = about, until = %offered.until, "it is the turn of this node: the script is offered to the host");
        self.written(uid);
        Ok(next)
    }

    /// The time since the offer was written last.
    fn offer_age(&self, offered: &Offer<'_>) -> Duration {
        let now = self.clock.monotonic();
        let mut pending = self.pending.lock();
        let known = pending.take().filter(|known| known.upgrade == offered.upgrade.uid);
        // The process before this one wrote it.
        let known = pending.insert(known.unwrap_or_else(|| PendingOffer {
            upgrade: offered.upgrade.uid.clone(),
            since: now,
            written: now,
        }));
        now.saturating_sub(known.written)
    }

    fn written(&self, upgrade: String) {
        let now = self.clock.monotonic();
        let mut pending = self.pending.lock();
        let since = pending.take().filter(|known| known.upgrade == upgrade);
        *pending = Some(PendingOffer {
            upgrade,
            since: since.map_or(now, |known| known.since),
            written: now,
        });
    }

    /// Returns true if the host would have answered the offer by now.
    fn is_overdue(&self) -> bool {
        let now = self.clock.monotonic();
        let pending = self.pending.lock();
        pending
            .as_ref()
            .is_some_and(|known| now.saturating_sub(known.since) >= RESYNC_INTERVAL)
    }

    /// Returns true if the host has this offer: the same upgrade, until the same time.
    fn is_offered(&self, order: &Order, offered: &Offer<'_>) -> bool {
        let upgrades = [form::read(&order.upgrade)];
        let there = offer(&upgrades, &self.access.node, &Ledger::default(), self.clock.now());
        there.is_ok_and(|there| there.upgrade.uid == offered.upgrade.uid && there.until == offered.until)
    }

    async fn withdraw(&self, refused: &Refused) -> Result<Next, UpgradeError> {
        if self.on_host(|host| Ok(host.withdraw()?)).await? {
            info!(reason = %refused, "the script is not offered to the host any more");
        }
        *self.pending.lock() = None;
        Ok(Next::After(RESYNC_INTERVAL))
    }

    /// Reports the outcome of this node's turn, and the host's permission. An error of the offer comes before one of
    /// the folder, which is returned.
    async fn report(
        &self,
        turn: Option<&str>,
        is_over: bool,
        error: Option<&UpgradeError>,
    ) -> Result<(), UpgradeError> {
        let (access, sync) = (self.access.clone(), self.sync.get(&Key::new(CLOUD_SYNC)));
        let looked = self.on_host(move |_| Ok(look(&access, sync.as_deref().map(cluster).unwrap_or_default())));
        let (looked, watching) = looked.await?;
        let is_overdue = self.is_overdue();
        let found = Found {
            turn,
            is_over,
            error: error.or(watching.as_ref().err()).map(|error| Chain(error).to_string()),
            not_before: error.and_then(UpgradeError::not_before),
            is_overdue,
            now: self.clock.now(),
            host_problem: self.unreadable().unwrap_or(looked.host_problem),
            ..looked
        };
        let report = found.report();
        self.metrics.show(&report, turn.is_some(), is_overdue);
        let was = matches!(&*self.reported.borrow(), ReportedUpgrade::Reported(before) if before.unsigned_scripts);
        if report.unsigned_scripts && !was {
            warn!(
                "unsigned-scripts permits scripts without a signature: whoever can write a ClusterUpgrade, or serve a script, is root on this node"
            );
            let text = "unsigned-scripts on this node permits upgrade scripts without a signature. Sign them, and remove the file.";
            let about: ObjectReference = self.about.reference();
            self.events.publish(
                &about,
                Notice::warning("UnsignedScriptsPermitted", "Upgrade", text.to_owned()),
            );
        }
        self.reported.send_if_modified(|reported| {
            let report = ReportedUpgrade::Reported(report);
            let changed = *reported != report;
            *reported = report;
            changed
        });
        watching
    }

    async fn on_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host) -> Result<T, UpgradeError> + Send + 'static,
    ) -> Result<T, UpgradeError> {
        let host = self.access.host.clone();
        spawn_blocking(move || work(&host))
            .await
            .map_err(UpgradeError::Thread)?
    }
}

/// The id of the cluster in the cloud; empty if the coordinator has not written it, or is too old to do so.
fn cluster(sync: &CloudSync) -> &str {
    sync.status.as_ref().map_or("", |status| &status.cluster_id)
}
