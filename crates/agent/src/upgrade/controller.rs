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

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tidewaiter_api::cloud_sync::CLOUD_SYNC;
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::{CloudSync, NodeName, NodeUpgrade};
use tidewaiter_kit::cache::TroubleCause;
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Backoff, Cache, Chain, Controller, ControllerContext, Events, Key, Next, Notice, Pass, Queue, ReconcileError,
    Reconciler, Retry, SharedClock, Tasks,
};
use tidewaiter_upgrade::agent::{Ledger, Offer, Refused, offer};
use tidewaiter_upgrade::signed::Untrusted;
use tidewaiter_upgrade::{Upgrade, Version, form, node_upgrade};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::files::{self, FileError, Order, Outcome, RunResult};
use super::relay::{Relay, RelayError};
use super::report::{Found, ToldUpgrade, UpgradeMetrics};
use super::trust::{AgentIdentity, Asked, Trust, TrustError};
use crate::host::{Host, HostError};
use crate::identity::Identity;
use crate::watcher::Watcher;

/// An operator corrects what is wrong, or the coordinator answers again.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The safety net for changes that are no event.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// Until a signature is looked at again whose time is about to come.
const SOONEST: Duration = Duration::from_secs(1);

/// Until it is known whether there is an order. Nothing is asked for it.
const FIRST_LIST: Duration = Duration::from_secs(1);

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

impl UpgradeError {
    /// Whether the script is wrong, or what is pinned: a person has to change it. A file that cannot be read may be
    /// read later.
    fn is_final(&self) -> bool {
        match self {
            Self::Trust(error) => error.is_final(),
            Self::Untrusted(error) => error.is_final(),
            Self::Relay(_) | Self::File(_) | Self::Thread(_) => false,
        }
    }

    /// From when on the signature of the script counts, if it does not yet.
    fn not_before(&self) -> Option<Timestamp> {
        match self {
            Self::Untrusted(Untrusted::Early(time)) => Some(*time),
            _ => None,
        }
    }
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

/// The node, and what the controller uses on it.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) host: Host,
    /// The folder of what root has pinned.
    pub(crate) pinned: Host,
    pub(crate) node: NodeName,
    /// The settings `folder` and `stateFolder`.
    pub(crate) folders: [String; 2],
    pub(crate) watcher: Watcher,
}

/// The controller.
struct UpgradeController {
    orders: Cache<NodeUpgrade>,
    /// It says which cluster this is.
    sync: Cache<CloudSync>,
    site: Site,
    relay: Relay,
    clock: SharedClock,
    about: Identity,
    events: Events,
    ledger: Mutex<Ledger>,
    standing: Mutex<Option<StandingOffer>>,
    told: watch::Sender<ToldUpgrade>,
    metrics: UpgradeMetrics,
}

/// An offer that the host has (monotonic times).
#[derive(Clone, Debug)]
struct StandingOffer {
    /// The uid of the upgrade.
    upgrade: String,
    /// Since when, as far as this process knows.
    since: Duration,
    /// When it was written last.
    written: Duration,
}

/// Starts it, and returns what the report of the node says of upgrades.
///
/// # Errors
/// When a metric's name is taken.
pub(crate) fn start(
    (site, relay): (Site, Relay),
    sync: Cache<CloudSync>,
    about: Identity,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<watch::Receiver<ToldUpgrade>, MetricsError> {
    let (told, telling) = watch::channel(ToldUpgrade::Unknown);
    let queue = Queue::new();
    queue.push(key());
    // Optional: a cluster may not have the definition yet.
    let orders = Cache::<NodeUpgrade>::namespaced(
        clients.for_controller("upgrade-cache", DEFAULT_IN_FLIGHT),
        CONTAINERSHIP_NAMESPACE,
    )
    .fields(&format!("metadata.name={}", site.node))
    .optional()
    .start(tasks, &context.kit);
    orders.notify(queue.always(key()));
    sync.notify(
        queue
            .always(key())
            .unless(|before, after| cluster(before) == cluster(after)),
    );
    tasks.spawn(
        "upgrade/files",
        site.watcher.clone().run(queue.clone(), key(), tasks.shutdown_token()),
    );
    let controller = UpgradeController {
        orders,
        sync,
        site,
        relay,
        clock: Arc::clone(&context.kit.clock),
        about,
        events: context.events.of(UpgradeController::NAME),
        ledger: Mutex::default(),
        standing: Mutex::default(),
        told,
        metrics: UpgradeMetrics::new(&context.kit.metrics)?,
    };
    // It does not wait for the first list: while there is none, it reports why.
    Controller::new(controller, queue)
        .backoff(RETRIES)
        .start(context.clone(), tasks);
    Ok(telling)
}

impl Reconciler for UpgradeController {
    const NAME: &'static str = "upgrade";
    type Error = UpgradeError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, UpgradeError> {
        pass.about(self.about.reference());
        if !self.orders.is_synced() {
            // What is offered stays, and so does what is reported, unless waiting does not help.
            if self.unreadable().is_none() {
                return Ok(Next::Pending(FIRST_LIST));
            }
            self.report(None, false, None).await?;
            return Ok(Next::Pending(LOOK_AGAIN));
        }
        let order = self
            .orders
            .get(&Key::namespaced(CONTAINERSHIP_NAMESPACE, self.site.node.as_str()));
        // Somebody else's finalizer may keep one that the coordinator has deleted.
        let order = order.filter(|order| order.metadata.deletion_timestamp.is_none());
        let is_over = order.is_none();
        let upgrade = order.map(|order| node_upgrade::read(&order, &self.site.node));
        let upgrades: Vec<Upgrade> = upgrade.iter().map(form::read).collect();
        let decided = {
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.see(&upgrades);
            offer(&upgrades, &self.site.node, &ledger, self.clock.now())
        };
        let upgrade = upgrade.filter(|_| decided.is_ok());
        let id = upgrade.as_ref().map(|upgrade| form::id(upgrade).to_owned());
        let result = match (decided, upgrade) {
            (Ok(offered), Some(upgrade)) => self.make(offered, upgrade).await,
            (Ok(_), None) => Ok(Next::After(LOOK_AGAIN)),
            (Err(refused), _) => self.withdraw(&refused).await,
        };
        let reported = self.report(id.as_deref(), is_over, result.as_ref().err()).await;
        reported?;
        // As whoever signed it wants.
        if let Some(begin) = result.as_ref().err().and_then(UpgradeError::not_before) {
            let wait = Duration::try_from(begin.duration_since(self.clock.now())).unwrap_or_default();
            return Ok(Next::Pending(wait.clamp(SOONEST, LOOK_AGAIN)));
        }
        result
    }
}

impl UpgradeController {
    /// Why nobody can give this node an order, where waiting does not help; None if somebody can.
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
        let next = Next::After(left.min(LOOK_AGAIN));
        let id = form::id(&upgrade).to_owned();
        let on_host = self.on_host(|host| Ok((host.ordered()?, host.result()?))).await;
        if let Ok((order, result)) = on_host {
            let result = result.filter(|result| result.id == id);
            if result.as_ref().is_some_and(|result| result.outcome == Outcome::Refused) {
                return Ok(next);
            }
            if order.is_some_and(|order| self.is_offered(&order, &offered))
                && !is_to_be_repeated(result.as_ref(), self.stands(&offered), now)
            {
                return Ok(next);
            }
        }
        let uid = offered.upgrade.uid.clone();
        let target = offered.spec.target.clone();
        let script = self.relay.script(&target).await?;
        let order = Order { upgrade, script };
        let about = format!("{id} to {target}");
        let pinned = self.site.pinned.clone();
        self.on_host(move |host| offer_checked(&pinned, host, &order, &target, now))
            .await?;
        info!(upgrade = about, until = %offered.until, "it is the turn of this node: the script is offered to the host");
        self.written(uid);
        Ok(next)
    }

    /// For how long the host has had the offer as it was written last.
    fn stands(&self, offered: &Offer<'_>) -> Duration {
        let now = self.clock.monotonic();
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = standing.take().filter(|known| known.upgrade == offered.upgrade.uid);
        // The process before this one wrote it.
        let known = standing.insert(known.unwrap_or_else(|| StandingOffer {
            upgrade: offered.upgrade.uid.clone(),
            since: now,
            written: now,
        }));
        now.saturating_sub(known.written)
    }

    fn written(&self, upgrade: String) {
        let now = self.clock.monotonic();
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let since = standing.take().filter(|known| known.upgrade == upgrade);
        *standing = Some(StandingOffer {
            upgrade,
            since: since.map_or(now, |known| known.since),
            written: now,
        });
    }

    /// Whether the host would have answered the offer by now.
    fn is_overdue(&self) -> bool {
        let now = self.clock.monotonic();
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing
            .as_ref()
            .is_some_and(|known| now.saturating_sub(known.since) >= LOOK_AGAIN)
    }

    /// Whether the host has this offer: the same upgrade, until the same time.
    fn is_offered(&self, order: &Order, offered: &Offer<'_>) -> bool {
        let upgrades = [form::read(&order.upgrade)];
        let there = offer(&upgrades, &self.site.node, &Ledger::default(), self.clock.now());
        there.is_ok_and(|there| there.upgrade.uid == offered.upgrade.uid && there.until == offered.until)
    }

    async fn withdraw(&self, refused: &Refused) -> Result<Next, UpgradeError> {
        if self.on_host(|host| Ok(host.withdraw()?)).await? {
            info!(reason = %refused, "the script is not offered to the host any more");
        }
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(Next::After(LOOK_AGAIN))
    }

    /// Says what became of the turn of this node, and what the host permits. An error of the offer comes before one of the folder, which is returned.
    async fn report(
        &self,
        turn: Option<&str>,
        is_over: bool,
        error: Option<&UpgradeError>,
    ) -> Result<(), UpgradeError> {
        let (site, sync) = (self.site.clone(), self.sync.get(&Key::new(CLOUD_SYNC)));
        let looked = self.on_host(move |_| Ok(look(&site, sync.as_deref().map(cluster).unwrap_or_default())));
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
        let was = matches!(&*self.told.borrow(), ToldUpgrade::Reported(told) if told.unsigned_scripts);
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
        self.told.send_if_modified(|told| {
            let report = ToldUpgrade::Reported(report);
            let changed = *told != report;
            *told = report;
            changed
        });
        watching
    }

    async fn on_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host) -> Result<T, UpgradeError> + Send + 'static,
    ) -> Result<T, UpgradeError> {
        let host = self.site.host.clone();
        spawn_blocking(move || work(&host))
            .await
            .map_err(UpgradeError::Thread)?
    }
}

/// Whether the order is to be written again: the host has refused it for a while, or has not answered. `result` is what the host said of this upgrade, and
/// `stands` for how long it has had the order.
fn is_to_be_repeated(result: Option<&RunResult>, stands: Duration, now: Timestamp) -> bool {
    let Some(result) = result else {
        return stands >= LOOK_AGAIN;
    };
    let age = Duration::try_from(now.duration_since(result.at)).unwrap_or_default();
    result.outcome == Outcome::Blocked && age >= LOOK_AGAIN
}

/// Offers the order if the host would run its script, and refuses it for good if a person has to change something.
fn offer_checked(
    pinned: &Host,
    host: &Host,
    order: &Order,
    target: &Version,
    now: Timestamp,
) -> Result<(), UpgradeError> {
    let id = form::id(&order.upgrade);
    let asked = Asked {
        upgrade: id,
        version: target,
        newest: 0,
        now,
    };
    if let Err(error) = check(pinned, &order.script, &asked) {
        if error.is_final() {
            refuse(host, id, &error, now)?;
        }
        return Err(error);
    }
    Ok(host.offer(&files::script_name(target, id), order)?)
}

/// Whether the host would run the script.
fn check(pinned: &Host, script: &str, asked: &Asked<'_>) -> Result<(), UpgradeError> {
    Trust::read(pinned)?.open(script, asked)?;
    Ok(())
}

/// Refuses the scripts of this upgrade for good, unless the host has, or had, an order of it: then the host says what
/// becomes of it. What the host remembers cannot be seen from here, so anything but a host that never heard of the
/// upgrade counts as an order.
fn refuse(host: &Host, id: &str, error: &UpgradeError, now: Timestamp) -> Result<(), UpgradeError> {
    let is_free = host.ordered()?.is_none_or(|order| form::id(&order.upgrade) != id)
        && host.result()?.is_none_or(|result| result.id != id);
    if is_free {
        host.tell(&RunResult {
            id: id.to_owned(),
            outcome: Outcome::Refused,
            message: Chain(error).to_string(),
            exit_code: None,
            rolled_back: false,
            at: now,
            until: None,
            tail: String::new(),
        })?;
    }
    Ok(())
}

/// What the host says, permits and lacks, and whether its folders could be watched, which is done first.
/// `cluster` is its id in the cloud, if the coordinator has said it.
fn look(site: &Site, cluster: &str) -> (Found<'static>, Result<(), UpgradeError>) {
    let Site {
        host,
        pinned,
        node,
        folders: [folder, state_folder],
        watcher,
    } = site;
    let watching = watch_folders(host, pinned, watcher);
    let trust = Trust::read(pinned);
    let agent = AgentIdentity {
        node,
        cluster,
        folder,
        state_folder,
    };
    let problem = match &trust {
        Ok(trust) => trust.problem(agent),
        Err(error) => Some(Chain(error).to_string()),
    };
    let found = Found {
        // One that does not count is none.
        result: host.result().unwrap_or_default(),
        permits_unsigned: trust.as_ref().is_ok_and(Trust::permits_unsigned),
        host_problem: problem.unwrap_or_default(),
        ..Found::default()
    };
    (found, watching)
}

/// The id of the cluster in the cloud; empty if the coordinator has not said it, or is too old to do so.
fn cluster(sync: &CloudSync) -> &str {
    sync.status.as_ref().map_or("", |status| &status.cluster_id)
}

/// Watches the folder of the scripts and, if it is there, that of what is pinned.
fn watch_folders(host: &Host, pinned: &Host, watcher: &Watcher) -> Result<(), UpgradeError> {
    let scripts = host.ensure(&files::FOLDER)?;
    // One that cannot be opened is reported when it is read.
    let pinned = pinned.look_if_there(&[]).unwrap_or_default();
    let folders: Vec<_> = scripts
        .folders
        .iter()
        .chain(pinned.iter().flat_map(|pinned| &pinned.folders))
        .collect();
    let added = watcher.add_folders(&folders);
    let added = added.map_err(|source| HostError::call("watched", "scripts/upgrade", source))?;
    // What cannot be watched any more is gone.
    let _ = watcher.settle(added, &[]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use minisign::KeyPair;
    use rustix::io::Errno;
    use tidewaiter_signature::{SignatureError, SigningKey};
    use tidewaiter_upgrade::signed::{Statement, digest};

    use super::*;
    use crate::host::{Call, HostCalls, Owner};

    fn result(outcome: Outcome, at: Timestamp) -> RunResult {
        RunResult {
            id: "u".to_owned(),
            outcome,
            message: String::new(),
            exit_code: None,
            rolled_back: false,
            at,
            until: None,
            tail: String::new(),
        }
    }

    #[test]
    fn an_order_is_repeated_that_is_refused_or_not_answered_for_a_minute() {
        let (now, soon, late) = (Timestamp::UNIX_EPOCH, Duration::from_secs(59), Duration::from_mins(1));
        let before = |age: Duration| now - jiff::SignedDuration::try_from(age).unwrap();
        assert!(!is_to_be_repeated(None, soon, now));
        assert!(
            is_to_be_repeated(None, late, now),
            "a change was lost, or nobody has enabled the unit"
        );
        for (outcome, age, expected) in [
            (Outcome::Blocked, soon, false),
            (Outcome::Blocked, late, true),
            (Outcome::Refused, late, false),
            (Outcome::Running, late, false),
            (Outcome::Failed, late, false),
            (Outcome::Interrupted, late, false),
        ] {
            let said = result(outcome, before(age));
            assert_eq!(
                is_to_be_repeated(Some(&said), late, now),
                expected,
                "{outcome:?} {age:?}"
            );
        }
    }

    /// A script that is not signed is refused for good, unless the host had an order of the upgrade; one that is signed
    /// for later is neither refused nor offered.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "files of the test")]
    fn only_a_host_that_never_had_an_order_is_told_that_its_script_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let (host, pinned) = (
            Host::of_root(&scratch.path().join("shared")),
            scratch.path().join("pinned"),
        );
        std::fs::create_dir(scratch.path().join("shared")).unwrap();
        let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().unwrap();
        let key = sk.to_box(None).unwrap().into_string();
        let key = SigningKey::read::<SignatureError>(&key, || unreachable!("it has no password")).unwrap();
        std::fs::create_dir(&pinned).unwrap();
        for (name, text) in [("cluster", "c"), ("node", "w1"), ("a.pub", &pk.to_base64())] {
            std::fs::write(pinned.join(name), text).unwrap();
        }
        let pinned = Host::of_root(&pinned);
        let (now, version): (_, Version) = (
            Timestamp::from_second(1_790_000_000).unwrap(),
            "v1.36.3".parse().unwrap(),
        );
        let text = "#!/bin/sh\n";
        let later = now + jiff::SignedDuration::from_hours(1);
        let statement = Statement {
            cluster: "c".to_owned(),
            node: "w1".parse().unwrap(),
            upgrade: "u".to_owned(),
            generation: now.as_second(),
            version: version.clone(),
            sha256: digest(text),
            not_before: Some(later),
            expires: later + jiff::SignedDuration::from_hours(1),
        };
        let upgrade = ClusterUpgrade::new(
            "u",
            serde_json::from_value(
                serde_json::json!({"type": "kubernetes", "targetVersion": "v1.36.3", "nodeTimeoutSeconds": 600}),
            )
            .unwrap(),
        );
        let early = format!("{text}{}", statement.block(&key).unwrap());
        let order = |script: &str| Order {
            upgrade: upgrade.clone(),
            script: script.to_owned(),
        };
        let error = offer_checked(&pinned, &host, &order(&early), &version, now).unwrap_err();
        assert_eq!(error.not_before(), Some(later), "{error}");
        assert!(host.result().unwrap().is_none() && host.ordered().unwrap().is_none());
        // Its time has come.
        offer_checked(&pinned, &host, &order(&early), &version, later).unwrap();
        // The host has the order, and says what becomes of it.
        assert!(offer_checked(&pinned, &host, &order(text), &version, now).is_err());
        assert!(host.result().unwrap().is_none());
        host.withdraw().unwrap();
        host.tell(&result(Outcome::Running, now)).unwrap();
        assert!(offer_checked(&pinned, &host, &order(text), &version, now).is_err());
        assert_eq!(host.result().unwrap().unwrap().outcome, Outcome::Running);
        // It had one of another upgrade.
        let other = RunResult {
            id: "other".to_owned(),
            ..result(Outcome::Running, now)
        };
        host.tell(&other).unwrap();
        assert!(offer_checked(&pinned, &host, &order(text), &version, now).is_err());
        let told = host.result().unwrap().unwrap();
        assert_eq!((told.id.as_str(), told.outcome), ("u", Outcome::Refused), "{told:?}");
    }

    /// Lets nothing be opened for a change any more.
    #[derive(Debug, Default)]
    struct Broken(AtomicBool);

    impl HostCalls for Broken {
        fn before(&self, call: Call) -> Result<(), Errno> {
            let fails = call == Call::MakeFolder && self.0.load(Ordering::SeqCst);
            if fails { Err(Errno::NOSPC) } else { Ok(()) }
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "files of the test")]
    fn a_folder_that_cannot_be_used_hides_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let owner = Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let host = Host::new(scratch.path(), owner, Arc::new(Broken(AtomicBool::new(true))));
        let pinned = scratch.path().join("pinned");
        let site = |node: &str| Site {
            host: host.clone(),
            pinned: Host::of_root(&pinned),
            node: node.parse().unwrap(),
            folders: ["/srv/tidewaiter".to_owned(), "/var/lib/tidewaiter-agent".to_owned()],
            watcher: Watcher::new(),
        };
        let (found, watching) = look(&site("w1"), "");
        assert!(watching.is_err());
        assert!(found.host_problem.contains("nothing is pinned"), "{found:?}");
        std::fs::create_dir(&pinned).unwrap();
        for (name, text) in [("cluster", "c"), ("node", "w1"), ("unsigned-scripts", "allow")] {
            std::fs::write(pinned.join(name), text).unwrap();
        }
        let (found, watching) = look(&site("w1"), "c");
        assert!(watching.is_err() && found.permits_unsigned, "{found:?}");
        assert_eq!(found.host_problem, "");
        let problem = |node: &str| look(&site(node), "").0.host_problem;
        let other = problem("w2");
        assert!(
            other.contains("installed as the Node w1, and this one is w2"),
            "{other}"
        );
        std::fs::remove_file(pinned.join("unsigned-scripts")).unwrap();
        let keyless = problem("w1");
        assert!(keyless.contains("no key is pinned on this node"), "{keyless}");
        let KeyPair { pk, .. } = KeyPair::generate_unencrypted_keypair().unwrap();
        std::fs::write(pinned.join("a.pub"), pk.to_base64()).unwrap();
        assert_eq!(problem("w1"), "");
        // A coordinator that has said nothing says nothing against it, and neither does a host that pins no folders.
        let foreign = look(&site("w1"), "d").0.host_problem;
        for words in ["for the cluster c, and this one is d", "--cluster d"] {
            assert!(foreign.contains(words), "{foreign}");
        }
        for (file, own, other) in [
            ("folder", "/srv/tidewaiter/", "/etc/containership"),
            ("state-folder", "/var/lib/tidewaiter-agent", "/srv/containership"),
        ] {
            std::fs::write(pinned.join(file), other).unwrap();
            let said = problem("w1");
            let flag = format!(
                "--{}{file} {}",
                if file == "folder" { "" } else { "agent-" },
                own.trim_end_matches('/')
            );
            assert!(said.contains(other) && said.contains(&flag), "{said}");
            std::fs::write(pinned.join(file), own).unwrap();
            assert_eq!(problem("w1"), "");
        }
    }
}
