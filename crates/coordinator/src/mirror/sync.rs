//! The controller of one kind: makes the objects of the cluster those of the cloud's last complete response.
//!
//! A change of an object in the cluster is undone at once, without a request to the cloud. A pass ends early when there is another response,
//! and when the controllers pause or end. What changed is published as an Event on the
//! object, and its state is recorded in `CloudSync`.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use tidewaiter_kit::children::{Done, execute};
use tidewaiter_kit::{
    Cache, Chain, ChildrenError, ControllerContext, Events, Key, Next, Notice, Pass, ReconcileError as _, Reconciler,
    Writer,
};

use super::board::{Applied, Board};
use super::brake::{Brake, MassDeletion};
use super::cloud_list::CloudList;
use super::cloud_sync::Release;
use super::kind::{MirroredKind, Refused};
use super::listing::Listing;
use super::plan::{Hold, Plan, Rules, blocked, plan};

/// Our own write is not in the cache yet: its change starts a pass. This is the fallback.
const CATCH_UP: Duration = Duration::from_secs(1);

/// A pass that writes for longer is reported.
const MOMENT: Duration = Duration::from_secs(1);

/// Between two passes. Each looks at all objects, and the watch brings back our own writes, and those of the controllers that act on the
/// objects, one by one.
const PAUSE: Duration = Duration::from_millis(100);

/// What the loop that asks the cloud and the controller share.
pub(super) struct Shared<K: MirroredKind> {
    pub(super) kind: K,
    /// What the cloud lists, as other controllers see it.
    pub(super) list: CloudList,
    known: Mutex<Option<Known<K::Resource>>>,
}

/// What the cloud said last.
struct Known<R> {
    listing: Arc<Listing<R>>,
    /// When it said so last, on the monotonic clock.
    confirmed: Duration,
}

impl<K: MirroredKind> Shared<K> {
    pub(super) fn new(kind: K) -> Self {
        Self {
            kind,
            list: CloudList::default(),
            known: Mutex::default(),
        }
    }

    /// A complete response.
    pub(super) fn set(&self, listing: Listing<K::Resource>, confirmed: Duration) {
        let listing = Arc::new(listing);
        *self.lock() = Some(Known { listing, confirmed });
    }

    /// The last complete response is still what the cloud says.
    pub(super) fn confirm(&self, at: Duration) {
        if let Some(known) = &mut *self.lock() {
            known.confirmed = at;
        }
    }

    fn known(&self) -> Option<(Arc<Listing<K::Resource>>, Duration)> {
        let known = self.lock();
        known
            .as_ref()
            .map(|known| (Arc::clone(&known.listing), known.confirmed))
    }

    /// Whether it is the last complete response.
    fn is_last(&self, listing: &Arc<Listing<K::Resource>>) -> bool {
        let known = self.lock();
        known.as_ref().is_some_and(|known| Arc::ptr_eq(&known.listing, listing))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known<K::Resource>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The controller.
pub(super) struct SyncController<K: MirroredKind> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) cache: Cache<K::Resource>,
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
    /// When it ended, on the monotonic clock.
    ended: Option<Duration>,
    listing: Option<Arc<Listing<R>>>,
    /// The versions of the objects that were as this response says.
    settled: BTreeMap<Key, Option<String>>,
}

impl<R> Default for Last<R> {
    fn default() -> Self {
        Self {
            ended: None,
            listing: None,
            settled: BTreeMap::new(),
        }
    }
}

impl<K: MirroredKind> Reconciler for SyncController<K> {
    const NAME: &'static str = K::CONTROLLER;
    type Error = ChildrenError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        let clock = &self.context.kit.clock;
        let ended = self.last().ended;
        let wait = ended.map_or(Duration::ZERO, |ended| {
            (ended + PAUSE).saturating_sub(clock.monotonic())
        });
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
        let result = self.bring(pass).await;
        self.last().ended = Some(clock.monotonic());
        result
    }
}

impl<K: MirroredKind> SyncController<K> {
    async fn bring(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        let Some((listing, confirmed)) = self.shared.known() else {
            return Ok(Next::UntilChanged);
        };
        pass.about(self.release.reference());
        let actual: Vec<_> = self.cache.iter().collect();
        let Some(Plan { mut changes, hold }) = self.plan(&listing, &actual, confirmed) else {
            return Ok(Next::Pending(CATCH_UP));
        };
        self.leave_out_settled(&listing, &mut changes.update);
        changes.create.retain(|resource| self.shared.kind.creates(resource));
        self.show(&listing, hold.as_ref());
        self.report_refused(&listing);
        let blocked = self.report_blocked(&actual);
        let go_on = || self.goes_on(&listing);
        let result = {
            let publish = |done, object: &ObjectMeta| self.publish(done, object);
            let writes = execute(&self.writer, changes, |_| true, go_on, publish);
            let mut writes = pin!(writes);
            tokio::select! {
                biased;
                result = &mut writes => result,
                () = self.context.kit.clock.sleep(MOMENT) => {
                    self.board.writing(K::NAME);
                    writes.await
                }
            }
        };
        if !go_on() {
            // Another response is there, or nothing more is to be written.
            return Ok(Next::Pending(CATCH_UP));
        }
        // That deletions are held is an error, too, and shown otherwise.
        let holds_deletions = hold.as_ref().is_some_and(|hold| !hold.deletions.is_empty());
        let failed = result
            .as_ref()
            .err()
            .filter(|error| !holds_deletions || !error.is_refusal());
        let error = failed.map(|error| Chain(error).to_string());
        self.board.applied(
            K::NAME,
            Applied {
                hold,
                error,
                blocked,
                objects: self.cache.len(),
            },
        );
        result.map(|()| Next::UntilChanged)
    }

    /// Leaves out what is as the response says. An object is compared once in each version, and again with another response.
    fn leave_out_settled(
        &self,
        listing: &Arc<Listing<K::Resource>>,
        update: &mut Vec<(K::Resource, Arc<K::Resource>)>,
    ) {
        let mut last = self.last();
        if !last.listing.as_ref().is_some_and(|known| Arc::ptr_eq(known, listing)) {
            last.listing = Some(Arc::clone(listing));
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

    fn last(&self) -> MutexGuard<'_, Last<K::Resource>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done; None while the cache does not show our own last writes.
    fn plan(
        &self,
        listing: &Listing<K::Resource>,
        actual: &[Arc<K::Resource>],
        confirmed: Duration,
    ) -> Option<Plan<K::Resource>> {
        let missing = listing.desired.keys().filter(|key| self.cache.get(key).is_none());
        let unseen = |key: &Key, object: Option<&ObjectMeta>| self.writer.awaits::<K::Resource>(key, object);
        // All are asked, because each forgets the versions that the cache is past.
        let shown = actual
            .iter()
            .filter(|object| unseen(&Key::of(&***object), Some(object.meta())));
        if shown.count() + missing.filter(|key| unseen(key, None)).count() > 0 {
            return None;
        }
        let released = self.release.revision();
        let rules = Rules {
            mass_deletion: self.mass_deletion,
            interval: self.interval,
            confirmed,
            released: released.as_deref(),
            bound: self.shared.kind.bound(),
            few: self.shared.kind.few(),
        };
        let mut brake = self.brake.lock().unwrap_or_else(PoisonError::into_inner);
        Some(plan(
            listing,
            actual,
            |object| self.shared.kind.ours(object),
            |object| self.shared.kind.gives(object),
            &mut brake,
            rules,
        ))
    }

    /// Shows other controllers what the cloud lists. What is held is as it was: nothing goes of what would be deleted, and nothing that is
    /// new takes effect.
    fn show(&self, listing: &Listing<K::Resource>, hold: Option<&Hold>) {
        let names = |keys: &BTreeSet<Key>| keys.iter().map(|key| key.name().to_owned()).collect::<BTreeSet<_>>();
        let deleted = hold.map(|hold| names(&hold.deletions)).unwrap_or_default();
        let withheld = hold.map(|hold| names(&hold.additions.new)).unwrap_or_default();
        let mut listed = listing.names();
        listed.extend(deleted);
        listed.retain(|name| !withheld.contains(name));
        self.shared.list.set(listed, withheld, listing.is_readable());
    }

    /// Whether the writes of this response go on: not when there is another one, and not when the controllers pause or end.
    fn goes_on(&self, listing: &Arc<Listing<K::Resource>>) -> bool {
        let ControllerContext {
            leadership,
            pause,
            shutdown,
            ..
        } = &self.context;
        self.shared.is_last(listing) && leadership.is_leader() && !pause.is_paused() && !shutdown.is_cancelled()
    }

    fn publish(&self, done: Done, object: &ObjectMeta) {
        let (reason, action, note) = match done {
            Done::Created => ("SyncCreate", "create", "Created as the cloud lists it."),
            Done::Updated => ("SyncUpdate", "update", "Changed to what the cloud lists."),
            Done::Deleted => (
                "SyncDelete",
                "delete",
                "Deleted, because the cloud does not list it any more.",
            ),
        };
        self.board.changed(K::NAME, action);
        let reference = reference::<K>(object);
        self.events.publish(&reference, Notice::normal(reason, "Sync", note));
    }

    /// Publishes which deleted object finalizers keep, and returns what to say in `CloudSync`.
    fn report_blocked(&self, actual: &[Arc<K::Resource>]) -> Option<String> {
        let (object, text) = blocked(actual, |object| self.shared.kind.ours(object), K::FINALIZER)?;
        let kind = K::Resource::kind(&());
        let note = format!("The {kind} {text}. Find out who added them, and remove them.");
        let notice = Notice::warning("DeletionBlocked", "Sync", note);
        self.events.publish(&reference::<K>(object.meta()), notice);
        Some(text)
    }

    /// Publishes what is malformed in the cloud: on the object that stays as it is, or on `CloudSync`.
    fn report_refused(&self, listing: &Listing<K::Resource>) {
        for Refused { name, reason } in &listing.refused {
            let object = self.cache.iter().find(|object| object.meta().name == *name);
            let regarding = object.map_or_else(|| self.release.reference(), |object| reference::<K>(object.meta()));
            let name = name.as_deref().unwrap_or("an object without a valid id");
            let kind = K::Resource::kind(&());
            let note = format!(
                "The cloud lists a malformed {kind}, {name}, which is not mirrored: {reason}. Correct it in the cloud."
            );
            self.events
                .publish(&regarding, Notice::warning("SyncRefused", "Sync", note));
        }
    }
}

fn reference<K: MirroredKind>(object: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::Resource::api_version(&()).into_owned()),
        kind: Some(K::Resource::kind(&()).into_owned()),
        name: object.name.clone(),
        namespace: object.namespace.clone(),
        uid: object.uid.clone(),
        ..ObjectReference::default()
    }
}
