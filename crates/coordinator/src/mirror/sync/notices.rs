//! The Events of a pass: what was changed, what finalizers keep, and what is malformed in the cloud.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use tidewaiter_kit::Notice;
use tidewaiter_kit::children::Done;
use tracing::info;

use super::SyncController;
use crate::mirror::kind::{MirroredKind, Refused};
use crate::mirror::listing::Listing;
use crate::mirror::plan::blocked;

impl<K: MirroredKind> SyncController<K> {
    /// Publishes what was changed in the cluster.
    pub(super) fn publish(&self, done: Done, object: &ObjectMeta, revision: &str) {
        if matches!(done, Done::Deleted) {
            let name = object.name.as_deref().unwrap_or_default();
            info!(
                kind = K::NAME,
                name, revision, "deleted an object that the cloud does not list"
            );
        }
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
    pub(super) fn report_blocked(&self, actual: &[Arc<K::Resource>]) -> Option<String> {
        let (object, text) = blocked(actual, |object| self.shared.kind.ours(object), K::FINALIZER)?;
        let kind = K::Resource::kind(&());
        let note = format!("The {kind} {text}. Find out who added them, and remove them.");
        let notice = Notice::warning("DeletionBlocked", "Sync", note);
        self.events.publish(&reference::<K>(object.meta()), notice);
        Some(text)
    }

    /// Publishes what is malformed in the cloud: on the object that stays as it is, or on `CloudSync`.
    pub(super) fn report_refused(&self, listing: &Listing<K::Resource>) {
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
