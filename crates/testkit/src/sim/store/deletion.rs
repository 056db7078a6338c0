//! Deletion: preconditions, finalizers, and the garbage collector's work.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::{Done, Key, Store, Stored, finalizers, timestamp};
use crate::sim::status::Refused;

impl Store {
    /// Deletes an object, or marks it as long as it has finalizers.
    pub(in crate::sim) fn delete(&mut self, key: &Key, options: &Value) -> Result<Done, Refused> {
        let before = self.existing(key)?;
        self.check_preconditions(key, &before, &options["preconditions"])?;
        if let Some(policy) = options["propagationPolicy"].as_str()
            && policy != "Background"
        {
            return Err(Refused::bad_request(format!(
                "the simulated server does not know the propagation {policy}"
            )));
        }
        // A Namespace goes when what is in it has gone.
        let lingers = !finalizers(&before.value).is_empty() || self.is_namespace(key);
        let mut last = None;
        let after = if !lingers {
            last = self.remove(key, before.value.clone());
            None
        } else if before.is_being_deleted() {
            Some(Arc::clone(&before))
        } else {
            let mut value = before.value.clone();
            value["metadata"]["deletionTimestamp"] = timestamp(self.now).into();
            value["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            if self.is_namespace(key) {
                value["status"]["phase"] = "Terminating".into();
            }
            Some(self.insert(key, Some(&before), value, before.owners.clone()))
        };
        Ok(Done {
            key: key.clone(),
            created: false,
            before: Some(before),
            after,
            last,
        })
    }

    /// Does the work of the garbage collector and the namespace controller of a real cluster: deletes every object
    /// whose owners are all gone, and what is in Namespaces that are being deleted.
    pub(in crate::sim) fn collect_garbage(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        loop {
            let uids: BTreeSet<&str> = self.objects.values().map(|object| object.meta("uid")).collect();
            let orphaned = |object: &Stored| {
                let owners = object.value["metadata"]["ownerReferences"].as_array();
                let gone = |owner: &Value| !uids.contains(owner["uid"].as_str().unwrap_or_default());
                owners.is_some_and(|owners| !owners.is_empty() && owners.iter().all(gone))
            };
            let doomed = |(key, object): &(&Key, &Arc<Stored>)| {
                let deletable = !object.is_being_deleted();
                deletable && (orphaned(object) || self.is_in_deleted_namespace(key))
            };
            let doomed: Vec<Key> = self.objects.iter().filter(doomed).map(|(key, _)| key.clone()).collect();
            for key in &doomed {
                done.extend(self.delete(key, &Value::Null));
            }
            let empty: Vec<Key> = self
                .deleted_namespaces()
                .filter(|key| !self.has_content(key))
                .cloned()
                .collect();
            for key in &empty {
                let Some(before) = self.objects.get(key).cloned() else {
                    continue;
                };
                let last = self.remove(key, before.value.clone());
                done.push(Done {
                    key: key.clone(),
                    created: false,
                    before: Some(before),
                    after: None,
                    last,
                });
            }
            if doomed.is_empty() && empty.is_empty() {
                return done;
            }
        }
    }

    fn is_namespace(&self, key: &Key) -> bool {
        self.kind("", "namespaces") == Some(key.kind)
    }

    fn deleted_namespaces(&self) -> impl Iterator<Item = &Key> {
        let namespaces = self.kind("", "namespaces").unwrap_or(usize::MAX - 1);
        let deleted = self.of_kind(namespaces).filter(|(_, object)| object.is_being_deleted());
        deleted.map(|(key, _)| key)
    }

    fn is_in_deleted_namespace(&self, key: &Key) -> bool {
        !key.namespace.is_empty()
            && self
                .deleted_namespaces()
                .any(|namespace| namespace.name == key.namespace)
    }

    fn has_content(&self, namespace: &Key) -> bool {
        self.objects.keys().any(|key| key.namespace == namespace.name)
    }
}
