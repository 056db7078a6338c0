//! The controller of one kind: makes the objects of the cluster those of the cloud's last complete response.
//!
//! A change of an object in the cluster is undone at once, without a request to the cloud. What changed is published as an Event on the
//! object, and its state is recorded in `CloudSync`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use tidewaiter_kit::children::{Done, execute};
use tidewaiter_kit::{
    Cache, Chain, ChildrenError, Events, Key, Next, Notice, Pass, ReconcileError as _, Reconciler, Writer,
};

use super::board::{Applied, Board};
use super::brake::{Brake, MassDeletion};
use super::cloud_sync::Release;
use super::kind::MirroredKind;
use super::listing::{Listing, Refused};
use super::plan::{Plan, Rules, plan};

/// Our own write is not in the cache yet: its change starts a pass. This is the fallback.
const CATCH_UP: Duration = Duration::from_secs(1);

/// What the loop that asks the cloud and the controller share.
pub(super) struct Shared<K: MirroredKind> {
    pub(super) kind: K,
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

    fn lock(&self) -> MutexGuard<'_, Option<Known<K::Resource>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The controller.
pub(super) struct SyncController<K: MirroredKind> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) cache: Cache<K::Resource>,
    pub(super) writer: Writer,
    pub(super) events: Events,
    pub(super) board: Board,
    pub(super) release: Release,
    pub(super) mass_deletion: MassDeletion,
    pub(super) interval: Duration,
    pub(super) brake: Mutex<Brake>,
}

impl<K: MirroredKind> Reconciler for SyncController<K> {
    const NAME: &'static str = K::CONTROLLER;
    type Error = ChildrenError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        let Some((listing, confirmed)) = self.shared.known() else {
            return Ok(Next::UntilChanged);
        };
        pass.about(self.release.reference());
        let Some(Plan { changes, hold }) = self.plan(&listing, confirmed) else {
            return Ok(Next::Pending(CATCH_UP));
        };
        self.report_refused(&listing);
        let result = execute(&self.writer, changes, |done, object| self.publish(done, object)).await;
        let failed = result
            .as_ref()
            .err()
            .filter(|error| hold.is_none() || !error.is_refusal());
        let error = failed.map(|error| Chain(error).to_string());
        self.board.applied(
            K::NAME,
            Applied {
                hold,
                error,
                objects: self.cache.len(),
            },
        );
        result.map(|()| Next::UntilChanged)
    }
}

impl<K: MirroredKind> SyncController<K> {
    /// What is to be done; None while the cache does not show our own last writes.
    fn plan(&self, listing: &Listing<K::Resource>, confirmed: Duration) -> Option<Plan<K::Resource>> {
        let actual: Vec<_> = self.cache.iter().collect();
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
        };
        let mut brake = self.brake.lock().unwrap_or_else(PoisonError::into_inner);
        Some(plan(
            listing,
            &actual,
            |object| self.shared.kind.ours(object),
            &mut brake,
            rules,
        ))
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
