//! The last result of each sync loop: for `CloudSync`, for the readiness checks and for the metrics.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::cache::{TroubleCause, WatchTrouble};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{ControllerContext, Kit, SharedClock};
use tokio::sync::watch;

use super::kind::Refused;
use super::plan::Hold;
use crate::retries::hangs_after;

/// The state of one sync loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LoopState {
    /// The kind of its custom resources: `Registry`.
    pub(super) resource: Cow<'static, str>,
    /// The kinds of the cloud after whose changes it lists again.
    pub(super) follows: &'static [Kind],
    /// The number of the change up to which the list was current that was applied last, if the cloud says it.
    pub(super) change: Option<u64>,
    /// The last complete response of the cloud.
    pub(super) last_success: Option<Timestamp>,
    /// The reason why the cloud's last response could not be used.
    pub(super) list_error: Option<String>,
    /// The content of the cloud's last response.
    pub(super) contents: Option<Contents>,
    /// The reason why the last writes to the cluster failed.
    pub(super) write_error: Option<String>,
    /// True if the last complete response was compared with the cluster.
    pub(super) is_applied: bool,
    /// True if objects have been written to the cluster for longer than a moment.
    pub(super) is_writing: bool,
    /// The deleted objects that finalizers retain.
    pub(super) blocked: Option<String>,
    /// The reason why nothing acts on an object.
    pub(super) idle: Option<String>,
    /// The number of objects of the kind in the cluster.
    pub(super) objects: usize,
    /// The hold of the brake, and its start.
    pub(super) held: Option<(Hold, Timestamp)>,
    /// For how long it has waited for its first response, or for a response to be applied.
    pub(super) waited: Duration,
    /// The reason why the objects of the cluster cannot be read.
    pub(super) cache_error: Option<WatchTrouble>,
}

impl LoopState {
    /// The reason why the objects of the cluster cannot be read any more, if time does not help.
    pub(super) fn read_error(&self) -> Option<&str> {
        let lasts = |trouble: &&WatchTrouble| self.is_applied && trouble.cause != TroubleCause::Other;
        self.cache_error.as_ref().filter(lasts).map(|trouble| &*trouble.error)
    }

    /// Returns true if it waits for its first response, or for a response to be applied.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_applied && !self.is_writing && self.list_error.is_none()
    }
}

/// The result of a response in the cluster.
#[derive(Clone, Debug)]
pub(super) struct Applied {
    /// The hold of the brake, and its start.
    pub(super) held: Option<(Hold, Timestamp)>,
    /// The reason why writes failed.
    pub(super) error: Option<String>,
    /// The deleted objects that finalizers retain.
    pub(super) blocked: Option<String>,
    /// The reason why nothing acts on an object.
    pub(super) idle: Option<String>,
    /// The number of objects of the kind in the cluster.
    pub(super) objects: usize,
    /// The number of the change up to which the list is current.
    pub(super) change: Option<u64>,
}

/// The content of a complete response.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Contents {
    /// Names the response.
    pub(super) revision: String,
    /// The well-formed objects.
    pub(super) objects: usize,
    /// The malformed ones.
    pub(super) refused: Vec<Refused>,
}

/// The states of all loops. Clones share them.
#[derive(Clone)]
pub(super) struct Board(Arc<Shared>);

struct Shared {
    clock: SharedClock,
    interval: Duration,
    loops: Mutex<BTreeMap<&'static str, Entry>>,
    changed: watch::Sender<()>,
    metrics: SyncMetrics,
}

struct Entry {
    state: LoopState,
    /// The time when the last request of the cloud ended, whatever its result, or, before it, of the start; monotonic.
    since: Option<Duration>,
    /// The time from which it waits, once it was started; monotonic.
    waits_since: Option<Duration>,
    cache_error: CacheError,
}

/// The reason why the objects of the cluster cannot be read, if they cannot.
type CacheError = Box<dyn Fn() -> Option<WatchTrouble> + Send>;

struct SyncMetrics {
    last_success: IntGaugeVec,
    objects: IntGaugeVec,
    refused: IntGaugeVec,
    held: IntGaugeVec,
    lists: IntCounterVec,
    changes: IntCounterVec,
}

impl SyncMetrics {
    fn new(kit: &Kit) -> Result<Self, MetricsError> {
        let metrics = &kit.metrics;
        Ok(Self {
            last_success: metrics.gauge_vec(
                "tidewaiter_cloud_sync_last_success_timestamp_seconds",
                "Unix time of the last complete response of the cloud, for each kind.",
                &["kind"],
            )?,
            objects: metrics.gauge_vec(
                "tidewaiter_cloud_sync_objects",
                "Number of well-formed objects in the last complete response of the cloud, for each kind.",
                &["kind"],
            )?,
            refused: metrics.gauge_vec(
                "tidewaiter_cloud_sync_refused",
                "Number of malformed objects in the last complete response of the cloud, for each kind. They are not mirrored.",
                &["kind"],
            )?,
            held: metrics.gauge_vec(
                "tidewaiter_cloud_sync_held",
                "Number of deletions and additions that the brake holds, for each kind; of cluster-roles, those that are held as another coordinator left them.",
                &["kind"],
            )?,
            lists: metrics.counter_vec(
                "tidewaiter_cloud_sync_lists_total",
                "Number of lists that were requested from the cloud, for each kind and outcome (changed, unchanged, or the class of the error).",
                &["kind", "outcome"],
            )?,
            changes: metrics.counter_vec(
                "tidewaiter_cloud_sync_changes_total",
                "Number of objects that were created, updated or deleted in the cluster, for each kind and action.",
                &["kind", "action"],
            )?,
        })
    }
}

impl Board {
    pub(super) fn new(kit: &Kit, interval: Duration) -> Result<Self, MetricsError> {
        Ok(Self(Arc::new(Shared {
            clock: Arc::clone(&kit.clock),
            interval,
            loops: Mutex::default(),
            changed: watch::Sender::new(()),
            metrics: SyncMetrics::new(kit)?,
        })))
    }

    /// Adds a loop, and its readiness check: a loop that has ended or hangs asks the cloud no more. A cloud that does
    /// not answer is no reason not to be ready, because no other replica could do more, and `CloudSync` shows it. A
    /// replica that stands by syncs nothing, and is ready; so is one that removes everything.
    pub(super) fn register(
        &self,
        kind: &'static str,
        resource: (Cow<'static, str>, &'static [Kind]),
        cache_error: impl Fn() -> Option<WatchTrouble> + Send + 'static,
        context: &ControllerContext,
    ) {
        self.insert(kind, resource, Box::new(cache_error));
        let (board, leadership, pause) = (self.clone(), context.leadership.clone(), context.pause.clone());
        context.kit.checks.register(format!("sync/{kind}"), move || {
            if leadership.is_leader() && !pause.is_paused() {
                board.check(kind)
            } else {
                Ok(())
            }
        });
    }

    /// Adds the state of a loop.
    pub(super) fn insert(
        &self,
        kind: &'static str,
        (resource, follows): (Cow<'static, str>, &'static [Kind]),
        cache_error: CacheError,
    ) {
        let entry = Entry {
            state: LoopState {
                resource,
                follows,
                ..LoopState::default()
            },
            since: None,
            waits_since: None,
            cache_error,
        };
        self.0.loops.lock().insert(kind, entry);
    }

    /// The loop starts to ask the cloud, or goes on after a pause.
    pub(super) fn started(&self, kind: &'static str) {
        let now = self.0.clock.monotonic();
        if let Some(entry) = self.0.loops.lock().get_mut(kind) {
            entry.since = Some(now);
            entry.waits_since = Some(now);
        }
    }

    /// The cloud sent a complete response, with these contents unless it is unchanged.
    pub(super) fn listed(&self, kind: &'static str, contents: Option<Contents>) {
        let (now, monotonic) = (self.0.clock.now(), self.0.clock.monotonic());
        let metrics = &self.0.metrics;
        metrics.last_success.with_label_values(&[kind]).set(now.as_second());
        let outcome = if contents.is_some() { "changed" } else { "unchanged" };
        metrics.lists.with_label_values(&[kind, outcome]).inc();
        if let Some(contents) = &contents {
            let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
            metrics.objects.with_label_values(&[kind]).set(count(contents.objects));
            metrics
                .refused
                .with_label_values(&[kind])
                .set(count(contents.refused.len()));
        }
        self.update(kind, |entry| {
            entry.since = Some(monotonic);
            if !entry.state.is_waiting() {
                entry.waits_since = Some(monotonic);
            }
            entry.state.last_success = Some(now);
            entry.state.list_error = None;
            if let Some(contents) = contents {
                entry.state.contents = Some(contents);
                entry.state.is_applied = false;
            }
        });
    }

    /// The cloud sent no response that can be used. Returns whether that is news.
    pub(super) fn failed(&self, kind: &'static str, class: &'static str, error: &str) -> bool {
        self.0.metrics.lists.with_label_values(&[kind, class]).inc();
        let now = self.0.clock.monotonic();
        let is_known = |entry: &mut Entry| {
            entry.since = Some(now);
            entry.state.list_error.as_deref() == Some(error)
        };
        if self.0.loops.lock().get_mut(kind).is_none_or(is_known) {
            return false;
        }
        self.update(kind, |entry| entry.state.list_error = Some(error.to_owned()));
        true
    }

    /// The cloud has not answered for a while, and may still. Returns whether that is news.
    pub(super) fn late(&self, kind: &'static str, error: &str) -> bool {
        let fails = |entry: &Entry| entry.state.list_error.is_some();
        if self.0.loops.lock().get(kind).is_none_or(fails) {
            return false;
        }
        self.update(kind, |entry| entry.state.list_error = Some(error.to_owned()));
        true
    }

    /// An object of the cluster was changed.
    pub(super) fn changed(&self, kind: &'static str, action: &'static str) {
        self.0.metrics.changes.with_label_values(&[kind, action]).inc();
    }

    /// The writes to the cluster take longer than a moment.
    pub(super) fn writing(&self, kind: &'static str) {
        self.update(kind, |entry| entry.state.is_writing = true);
    }

    /// The writes to the cluster ended.
    pub(super) fn applied(&self, kind: &'static str, applied: Applied) {
        let Applied {
            held,
            error,
            blocked,
            idle,
            objects,
            change,
        } = applied;
        let count = held.as_ref().map_or(0, |(hold, _)| hold.count());
        let gauge = self.0.metrics.held.with_label_values(&[kind]);
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.update(kind, |entry| {
            let state = &mut entry.state;
            state.held = held;
            state.write_error = error;
            state.blocked = blocked;
            state.idle = idle;
            state.objects = objects;
            state.change = change;
            state.is_applied = true;
            state.is_writing = false;
        });
    }

    /// This many `ClusterRole`s are held as another coordinator left them.
    pub(super) fn roles_held(&self, count: u32) {
        self.0
            .metrics
            .held
            .with_label_values(&["cluster-roles"])
            .set(count.into());
    }

    /// Returns true if the brake holds anything of the kind.
    pub(super) fn is_held(&self, kind: &'static str) -> bool {
        let loops = self.0.loops.lock();
        loops.get(kind).is_some_and(|entry| entry.state.held.is_some())
    }

    /// The states of all loops, in the order of their names.
    pub(super) fn states(&self) -> Vec<LoopState> {
        let now = self.0.clock.monotonic();
        let state = |entry: &Entry| LoopState {
            waited: entry
                .waits_since
                .map_or(Duration::ZERO, |since| now.saturating_sub(since)),
            cache_error: (entry.cache_error)(),
            ..entry.state.clone()
        };
        self.0.loops.lock().values().map(state).collect()
    }

    /// Notifies of every update.
    pub(super) fn updates(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Returns an error if the loop is stalled, in the words of `/readyz`.
    fn check(&self, kind: &'static str) -> Result<(), String> {
        let now = self.0.clock.monotonic();
        let Some(since) = self.0.loops.lock().get(kind).and_then(|entry| entry.since) else {
            return Ok(());
        };
        let age = now.saturating_sub(since);
        if age <= hangs_after(self.0.interval) {
            return Ok(());
        }
        Err(format!(
            "the cloud was not asked for {} s: the loop hangs",
            age.as_secs()
        ))
    }

    fn update(&self, kind: &'static str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.0.loops.lock().get_mut(kind) {
            change(entry);
        }
        self.0.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;

    use super::*;

    #[test]
    fn a_loop_that_hangs_fails_the_check_and_a_cloud_that_is_away_does_not() {
        let clock = ManualClock::default();
        let kit = Kit::new(clock.shared()).unwrap();
        let board = Board::new(&kit, Duration::from_secs(30)).unwrap();
        board.insert("users", ("User".into(), &[Kind::User]), Box::new(|| None));
        assert_eq!(board.check("users"), Ok(()), "it does not lead");
        board.started("users");
        for _ in 0..60 {
            clock.advance(Duration::from_mins(1));
            assert_eq!(board.check("users"), Ok(()));
            board.failed("users", "unavailable", "the cloud is away");
        }
        clock.advance(Duration::from_mins(10));
        assert_eq!(board.check("users"), Ok(()));
        clock.advance(Duration::from_secs(1));
        assert_eq!(
            board.check("users").unwrap_err(),
            "the cloud was not asked for 601 s: the loop hangs"
        );
    }
}
