//! The controller of one kind: makes the objects of the cluster those of the cloud's last complete response.
//!
//! A change of an object in the cluster is undone at once, without a request to the cloud; while the cloud has not
//! answered since the start, as the last process stored it. A pass ends early when there is another response, and when
//! the controllers pause or end. What changed is published as an Event on the object, and its state is recorded in
//! `CloudSync`.

mod notices;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use parking_lot::Mutex;
use tidewaiter_kit::backoff::Backoff;
use tidewaiter_kit::children::{Changes, compare, execute};
use tidewaiter_kit::{Cache, Chain, ChildrenError, ControllerContext, Events, Key, Next, Pass, Reconciler, Writer};
use tracing::warn;

use super::board::{Applied, Board};
use super::brake::{Brake, MassDeletion};
use super::cloud_sync::Release;
use super::kind::MirroredKind;
use super::listing::Listing;
use super::plan::{Hold, Plan, Rules, Traits, edited_while_deleted, plan};
use super::shared::{Known, Shared};
use super::stored::StoredList;
use super::window::Moment;

/// Our own write is not in the cache yet: its change starts a pass. This is the fallback.
const CATCH_UP: Duration = Duration::from_secs(1);

/// After a list could not be stored.
const STORE_AGAIN: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(10));

/// A pass that writes for longer is reported.
const MOMENT: Duration = Duration::from_secs(1);

/// Between two passes. Each looks at all objects, and the watch brings back our own writes, and those of the
/// controllers that act on the objects, one by one.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct SyncController<K: MirroredKind> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) cache: Cache<K::Resource>,
    pub(super) stored: Arc<StoredList<K::Resource>>,
    pub(super) writer: Writer,
    pub(super) context: ControllerContext,
    pub(super) events: Events,
    pub(super) board: Board,
    pub(super) release: Release,
    pub(super) mass_deletion: MassDeletion,
    pub(super) interval: Duration,
    pub(super) brake: Mutex<Brake>,
    pub(super) last: Mutex<Last<K::Resource>>,
}

/// The last pass.
pub(super) struct Last<R> {
    /// The time when it ended, on the monotonic clock.
    ended: Option<Duration>,
    listing: Option<Arc<Listing<R>>>,
    /// True if it was shown to other controllers, and with which changes held.
    is_shown: bool,
    shown_hold: Option<Hold>,
    /// The versions of the objects that were as this response says.
    settled: BTreeMap<Key, Option<String>>,
    /// The objects whose deletion was held.
    held: BTreeSet<Key>,
    /// The number of times in a row that the list could not be stored.
    store_failures: u32,
}

impl<R> Default for Last<R> {
    fn default() -> Self {
        Self {
            ended: None,
            listing: None,
            is_shown: false,
            shown_hold: None,
            settled: BTreeMap::new(),
            held: BTreeSet::new(),
            store_failures: 0,
        }
    }
}

impl<K: MirroredKind> Reconciler for SyncController<K> {
    const NAME: &'static str = K::CONTROLLER;
    type Error = ChildrenError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        let clock = &self.context.kit.clock;
        let ended = self.last.lock().ended;
        let wait = ended.map_or(Duration::ZERO, |ended| {
            (ended + PAUSE).saturating_sub(clock.monotonic())
        });
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
        let result = self.bring(pass).await;
        self.last.lock().ended = Some(clock.monotonic());
        result
    }
}

impl<K: MirroredKind> SyncController<K> {
    async fn bring(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        let Some(known) = self.shared.known() else {
            return Ok(Next::UntilChanged);
        };
        let (listing, clock) = (Arc::clone(&known.listing), &self.context.kit.clock);
        pass.about(self.release.reference());
        let actual: Vec<_> = self.cache.iter().collect();
        let Some(Plan {
            mut changes,
            hold,
            lost,
        }) = self.plan(&known, &actual)
        else {
            return Ok(Next::Pending(CATCH_UP));
        };
        self.doubt(&listing.revision, hold.as_ref(), &lost);
        self.leave_out_settled(&listing, &mut changes.update);
        changes.create.retain(|resource| self.shared.kind.creates(resource));
        if known.confirmed.is_some() {
            self.show(&listing, hold.as_ref());
        }
        self.report_refused(&listing);
        let blocked = self.report_blocked(&actual);
        let result = self.write(&listing, changes).await;
        if !self.goes_on(&listing) {
            // Another response is there, or nothing more is to be written.
            return Ok(Next::Pending(CATCH_UP));
        }
        if known.confirmed.is_none() {
            // The board says what became of the responses of the cloud.
            return result.map(|()| Next::UntilChanged);
        }
        let error = result.as_ref().err().map(|error| Chain(error).to_string());
        let since = self.brake.lock().held_since(hold.is_some(), clock.now());
        self.board.applied(
            K::NAME,
            Applied {
                held: hold.zip(since),
                error,
                blocked,
                idle: actual.iter().find_map(|object| self.shared.kind.idle(object)),
                objects: self.cache.len(),
                change: known.change,
            },
        );
        let next = self.store().await;
        result.map(|()| next)
    }

    /// Performs the changes. That it takes long is reported.
    async fn write(
        &self,
        listing: &Arc<Listing<K::Resource>>,
        changes: Changes<K::Resource>,
    ) -> Result<(), ChildrenError> {
        let publish = |done, object: &ObjectMeta| self.publish(done, object, &listing.revision);
        let writes = execute(&self.writer, changes, |_| true, || self.goes_on(listing), publish);
        let mut writes = pin!(writes);
        tokio::select! {
            biased;
            result = &mut writes => result,
            () = self.context.kit.clock.sleep(MOMENT) => {
                self.board.writing(K::NAME);
                writes.await
            }
        }
    }

    /// Stores what takes effect, if it is something else than before.
    async fn store(&self) -> Next {
        if !K::STORED {
            return Next::UntilChanged;
        }
        let listed = self.shared.list.listed();
        let is_stored = |key: &Key| listed.get(key.name()).is_some_and(Option::is_some);
        let remembered = self.brake.lock().remembered(is_stored, self.moment());
        let Err(error) = self.stored.write(&self.writer, Arc::clone(&listed), remembered).await else {
            self.last.lock().store_failures = 0;
            return Next::UntilChanged;
        };
        let error = Chain(&error).to_string();
        warn!(
            kind = K::NAME,
            error, "the list of the cloud cannot be stored; it is tried again"
        );
        let mut last = self.last.lock();
        last.store_failures += 1;
        Next::Pending(STORE_AGAIN.delay(last.store_failures))
    }

    /// Leaves out what is as the response says. An object is compared once in each version, and again with another
    /// response.
    fn leave_out_settled(
        &self,
        listing: &Arc<Listing<K::Resource>>,
        update: &mut Vec<(K::Resource, Arc<K::Resource>)>,
    ) {
        let mut last = self.last.lock();
        if !last.listing.as_ref().is_some_and(|known| Arc::ptr_eq(known, listing)) {
            last.listing = Some(Arc::clone(listing));
            last.is_shown = false;
            last.settled.clear();
        }
        let known = std::mem::take(&mut last.settled);
        update.retain(|(desired, cached)| {
            let (key, version) = (Key::of(&**cached), &cached.meta().resource_version);
            let settled = known.get(&key) == Some(version) || self.writer.is_applied(desired, cached);
            if settled {
                last.settled.insert(key, version.clone());
            }
            !settled
        });
    }

    fn moment(&self) -> Moment {
        let clock = &self.context.kit.clock;
        Moment {
            now: clock.now(),
            monotonic: clock.monotonic(),
        }
    }

    /// Requests another list soon if this one deletes objects, or begins to be held: the cloud may be wrong, and
    /// announces nothing when it is right again.
    fn doubt(&self, revision: &str, hold: Option<&Hold>, lost: &BTreeSet<Key>) {
        let deletions = hold.map(|hold| hold.deletions.clone()).unwrap_or_default();
        let before = std::mem::replace(&mut self.last.lock().held, deletions.clone());
        let is_new = !deletions.is_subset(&before);
        if let Some(hold) = hold.filter(|_| is_new) {
            let (objects, reason) = (deletions.len(), hold.reason.text());
            warn!(
                kind = K::NAME,
                revision, objects, reason, "deletions of the cloud's list are held"
            );
        }
        if is_new || !lost.is_empty() {
            self.shared.doubted.notify_one();
        }
    }

    /// The plan; None while the cache does not show our own last writes. By a list that an earlier process stored,
    /// nothing is deleted.
    fn plan(&self, known: &Known<K::Resource>, actual: &[Arc<K::Resource>]) -> Option<Plan<K::Resource>> {
        let (listing, kind) = (&known.listing, &self.shared.kind);
        let mut missing = listing.desired.keys().filter(|key| self.cache.get(key).is_none());
        let unseen = |key: &Key, object: Option<&ObjectMeta>| self.writer.awaits::<K::Resource>(key, object);
        let is_outdated = |object: &Arc<K::Resource>| unseen(&Key::of(&**object), Some(object.meta()));
        if actual.iter().any(is_outdated) || missing.any(|key| unseen(key, None)) {
            return None;
        }
        let ours = |object: &K::Resource| kind.ours(object);
        let Some(confirmed) = known.confirmed else {
            let mut changes = compare(listing.desired.values().cloned().collect(), actual, ours);
            changes.update.extend(edited_while_deleted(listing, actual, ours));
            changes.delete.clear();
            return Some(Plan {
                changes,
                hold: None,
                lost: BTreeSet::new(),
            });
        };
        let released = self.release.revision();
        let rules = Rules {
            mass_deletion: self.mass_deletion,
            interval: self.interval,
            confirmed,
            released: released.as_deref(),
            record: &known.record,
            by_person: K::IS_RELEASED_BY_PERSON,
            few: K::FEW,
        };
        let before = self.stored.before(&self.shared.list);
        let remembered = self.stored.remembered();
        let traits = Traits {
            before: before.as_deref(),
            remembered: Some(&remembered),
            is_name: &K::is_name,
            ours: &ours,
            gives: &|object| kind.gives(object),
            scope: &|object| kind.scope(object),
        };
        let mut brake = self.brake.lock();
        if !self.shared.list.is_current() {
            brake.recall(&remembered, self.moment());
        }
        let mut plan = plan(listing, actual, &traits, &mut brake, rules);
        if let Some(hold) = &mut plan.hold {
            hold.names = self.shared.names(hold, listing, &self.cache);
        }
        Some(plan)
    }

    /// Shows other controllers what the cloud lists. What is held is as it was: nothing goes of what would be deleted,
    /// what would become something else stays what it is, and nothing that is new takes effect.
    fn show(&self, listing: &Listing<K::Resource>, hold: Option<&Hold>) {
        let is_shown = |last: &Last<K::Resource>| last.is_shown && last.shown_hold.as_ref() == hold;
        if is_shown(&self.last.lock()) {
            return;
        }
        let before = self.stored.before(&self.shared.list);
        let earlier = hold
            .iter()
            .flat_map(|hold| hold.deletions.iter().chain(&hold.additions.changed));
        let (mut listed, mut withheld) = listing.specs(earlier.map(Key::name), before.as_deref());
        let new = hold.iter().flat_map(|hold| &hold.additions.new);
        withheld.extend(new.map(|key| key.name().to_owned()));
        listed.retain(|name, _| !withheld.contains(name));
        self.shared.list.set(listed, withheld, listing.is_readable());
        let mut last = self.last.lock();
        (last.is_shown, last.shown_hold) = (true, hold.cloned());
    }

    /// Returns true if the writes of this response go on: not when there is another one, and not when the controllers
    /// pause or end.
    fn goes_on(&self, listing: &Arc<Listing<K::Resource>>) -> bool {
        let ControllerContext {
            leadership,
            pause,
            shutdown,
            ..
        } = &self.context;
        self.shared.is_last(listing) && leadership.is_leader() && !pause.is_paused() && !shutdown.is_cancelled()
    }
}
