//! The objects that cannot be decoded: counted by kind, logged once each, and reported in Events by whichever replica
//! leads.
//!
//! Bounded by what the API server holds: an entry goes when its object is decoded, deleted or no longer listed.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::guarded::Undecodable;
use crate::clock::{SharedClock, timeout};
use crate::events::{Events, Notice};
use crate::key::Key;
use crate::leader::Leadership;
use crate::metrics::Metrics;

/// The time after which an Event on each is published again, while Events live an hour.
const REPEAT_AFTER: Duration = Duration::from_mins(55);

/// The undecodable objects of every cache of a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct UndecodableObjects(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    objects: Mutex<BTreeMap<(String, Key), (ObjectReference, String)>>,
    changed: Notify,
}

impl UndecodableObjects {
    /// Publishes an Event on each of them while this replica leads, until `shutdown`.
    ///
    /// # Errors
    /// None: a supervised task needs a type for them.
    pub async fn report(
        self,
        leadership: Leadership,
        events: Events,
        clock: SharedClock,
        shutdown: CancellationToken,
    ) -> Result<(), Infallible> {
        let reporting = async {
            leadership.acquired().await;
            loop {
                let all: Vec<_> = self.0.objects.lock().values().cloned().collect();
                for (object, error) in all {
                    events.publish(&object, notice(&error));
                }
                // Again for those whose Event was not published.
                let changed = self.0.changed.notified();
                let _ = timeout(&*clock, REPEAT_AFTER, changed).await;
            }
        };
        shutdown.run_until_cancelled(reporting).await;
        Ok(())
    }

    /// The error about the object of this kind and key, if it cannot be decoded.
    #[must_use]
    pub fn error<K: Resource<DynamicType = ()>>(&self, key: &Key) -> Option<String> {
        let objects = self.0.objects.lock();
        let (_, error) = objects.get(&(K::kind(&()).into_owned(), key.clone()))?;
        Some(error.clone())
    }

    /// True if any object of this kind cannot be decoded.
    #[must_use]
    pub fn any<K: Resource<DynamicType = ()>>(&self) -> bool {
        let kind = K::kind(&());
        self.0.objects.lock().keys().any(|(other, _)| *other == *kind)
    }
}

fn notice(error: &str) -> Notice {
    let note = format!(
        "Tidewaiter cannot read this object and uses its last good version, if there is one: {error}. Correct the field, or delete the object if Tidewaiter wrote it."
    );
    Notice::warning("Undecodable", "Read", note)
}

/// The undecodable objects of one cache.
pub(super) struct Faults {
    kind: String,
    api_version: String,
    all: UndecodableObjects,
    /// The number of entries of the kind in `all`.
    gauge: IntGauge,
    bad: BTreeMap<Key, String>,
    /// While the objects are listed, those that have not been found bad again.
    unlisted: BTreeSet<Key>,
}

impl Faults {
    pub(super) fn of<K: Resource<DynamicType = ()>>(all: UndecodableObjects, metrics: &Metrics) -> Self {
        let kind = K::kind(&()).into_owned();
        Self {
            gauge: metrics.undecodable.with_label_values(&[&kind]),
            kind,
            api_version: K::api_version(&()).into_owned(),
            all,
            bad: BTreeMap::new(),
            unlisted: BTreeSet::new(),
        }
    }

    pub(super) fn relist(&mut self) {
        self.unlisted = self.bad.keys().cloned().collect();
    }

    pub(super) fn listed(&mut self) {
        for key in std::mem::take(&mut self.unlisted) {
            self.decoded(&key);
        }
    }

    /// The object can be decoded, or is gone.
    pub(super) fn decoded(&mut self, key: &Key) {
        if self.bad.remove(key).is_some() {
            info!(kind = self.kind, object = %key, "the object can be decoded again, or is gone");
            let known = self.all.0.objects.lock().remove(&(self.kind.clone(), key.clone()));
            if known.is_some() {
                self.gauge.dec();
            }
        }
    }

    pub(super) fn undecodable(&mut self, key: &Key, bad: &Undecodable) {
        self.unlisted.remove(key);
        let before = self.bad.insert(key.clone(), bad.error.clone());
        if before.as_ref() == Some(&bad.error) {
            return;
        }
        warn!(kind = self.kind, object = %key, error = bad.error, "the object cannot be decoded");
        let object = ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            name: bad.metadata.name.clone(),
            namespace: bad.metadata.namespace.clone(),
            uid: bad.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let place = (self.kind.clone(), key.clone());
        let known = self.all.0.objects.lock().insert(place, (object, bad.error.clone()));
        if known.is_none() {
            self.gauge.inc();
        }
        self.all.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::testing::kit;

    #[test]
    fn two_caches_of_a_kind_count_each_object_once() {
        let (kit, _) = kit();
        let mut caches = [(); 2].map(|()| Faults::of::<Node>(kit.undecodable.clone(), &kit.metrics));
        let bad = Undecodable {
            metadata: ObjectMeta::default(),
            error: "no".to_owned(),
        };
        let (a, b) = (Key::new("a"), Key::new("b"));
        let count = || kit.metrics.undecodable.with_label_values(&["Node"]).get();
        caches[0].undecodable(&a, &bad);
        caches[1].undecodable(&b, &bad);
        assert_eq!(count(), 2);
        caches[1].undecodable(&a, &bad);
        assert_eq!(count(), 2);
        for cache in &mut caches {
            cache.decoded(&a);
        }
        assert_eq!(count(), 1);
    }
}
