//! The objects of a server and what a request does to them. No I/O, no time of its own, no randomness.
//!
//! Every change has a revision of its own, which becomes the object's resourceVersion, and is kept in the log of its
//! kind: watches, lists that go on at an older revision, and stale lists read the log.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use super::kind::Kind;
use super::ownership::Owners;

mod checks;
mod deletion;
mod listing;
mod writes;

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) kind: usize,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(kind: usize, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// One version of an object.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) value: Value,
    pub(super) owners: Owners,
    text: OnceLock<Bytes>,
}

impl Stored {
    fn new(value: Value, owners: Owners) -> Arc<Self> {
        Arc::new(Self {
            value,
            owners,
            text: OnceLock::new(),
        })
    }

    /// The object as JSON.
    pub(super) fn text(&self) -> &Bytes {
        self.text.get_or_init(|| self.value.to_string().into())
    }

    fn meta(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }

    fn is_being_deleted(&self) -> bool {
        self.value["metadata"].get("deletionTimestamp").is_some()
    }
}

/// One entry of a log.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    /// When it happened, since the server's start.
    pub(super) at: Duration,
    pub(super) key: Key,
    pub(super) before: Option<Arc<Stored>>,
    /// `None` when the object is gone.
    pub(super) after: Option<Arc<Stored>>,
    /// The object that a watch shows for a deletion: the object as it was, with the revision of the deletion.
    pub(super) last: Arc<Stored>,
}

/// The effect of a write.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) key: Key,
    pub(super) created: bool,
    pub(super) before: Option<Arc<Stored>>,
    /// `None` when the object is gone.
    pub(super) after: Option<Arc<Stored>>,
    /// An object that is gone, as it is shown for the last time.
    pub(super) last: Option<Arc<Stored>>,
}

impl Done {
    pub(super) fn code(&self) -> u16 {
        if self.created { 201 } else { 200 }
    }
}

#[derive(Debug)]
pub(super) struct Store {
    pub(super) kinds: Vec<Kind>,
    objects: BTreeMap<Key, Arc<Stored>>,
    revision: u64,
    logs: Vec<Vec<Change>>,
    /// Changes up to here are not known any more.
    compacted: u64,
    made: u64,
    /// Since the server's start.
    pub(super) now: Duration,
}

impl Store {
    pub(super) fn new(kinds: Vec<Kind>) -> Self {
        Self {
            logs: kinds.iter().map(|_| Vec::new()).collect(),
            kinds,
            objects: BTreeMap::new(),
            // As an API server that has had a few writes of its own.
            revision: 100,
            compacted: 100,
            made: 0,
            now: Duration::ZERO,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.objects.get(key)
    }

    /// The objects of one kind, by namespace and name.
    pub(super) fn of_kind(&self, kind: usize) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        self.objects.range(Key::new(kind, "", "")..Key::new(kind + 1, "", ""))
    }

    /// Returns the changes of a kind after a revision; `None` when they are not known any more.
    pub(super) fn log(&self, kind: usize, after: u64) -> Option<&[Change]> {
        let log = &self.logs[kind];
        (after >= self.compacted).then(|| &log[log.partition_point(|change| change.revision <= after)..])
    }

    /// Returns the known changes of a kind.
    pub(super) fn known(&self, kind: usize) -> &[Change] {
        &self.logs[kind]
    }

    /// Forgets what happened until now.
    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
        self.logs.iter_mut().for_each(Vec::clear);
    }

    /// The kind of an object that names its own type.
    pub(super) fn kind_of(&self, object: &Value) -> usize {
        let is_its = |kind: &Kind| object["apiVersion"] == kind.api_version() && object["kind"] == kind.name;
        let place = self.kinds.iter().position(is_its);
        place.unwrap_or_else(|| panic!("the server does not serve {} {}", object["apiVersion"], object["kind"]))
    }

    /// The kind of this plural.
    pub(super) fn plural(&self, plural: &str) -> usize {
        let place = self.kinds.iter().position(|kind| kind.plural == plural);
        place.unwrap_or_else(|| panic!("the server does not serve {plural}"))
    }

    pub(super) fn kind(&self, group: &str, plural: &str) -> Option<usize> {
        let same = |kind: &Kind| kind.group == group && kind.plural == plural;
        self.kinds.iter().position(same)
    }

    /// Stores a version of an object under the next revision.
    fn insert(&mut self, key: &Key, before: Option<&Arc<Stored>>, mut value: Value, owners: Owners) -> Arc<Stored> {
        self.revision += 1;
        let metadata = &mut value["metadata"];
        if before.is_none() {
            metadata["uid"] = format!("uid-{}", self.revision).into();
            metadata["creationTimestamp"] = timestamp(self.now).into();
            metadata["generation"] = 1.into();
        }
        metadata["resourceVersion"] = self.revision.to_string().into();
        if !owners.is_empty() {
            metadata["managedFields"] = owners.managed_fields(&self.kinds[key.kind].api_version());
        }
        let stored = Stored::new(value, owners);
        self.objects.insert(key.clone(), Arc::clone(&stored));
        self.logs[key.kind].push(Change {
            revision: self.revision,
            at: self.now,
            key: key.clone(),
            before: before.cloned(),
            after: Some(Arc::clone(&stored)),
            last: Arc::clone(&stored),
        });
        stored
    }

    /// Takes an object out under the next revision. `last` is how it is shown for the last time.
    fn remove(&mut self, key: &Key, mut last: Value) -> Option<Arc<Stored>> {
        let before = self.objects.remove(key)?;
        self.revision += 1;
        last["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let last = Stored::new(last, Owners::default());
        self.logs[key.kind].push(Change {
            revision: self.revision,
            at: self.now,
            key: key.clone(),
            before: Some(before),
            after: None,
            last: Arc::clone(&last),
        });
        Some(last)
    }
}

/// A time of the server, as metadata shows it.
pub(super) fn timestamp(since_start: Duration) -> String {
    let seconds = i64::try_from(since_start.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_string()
}

fn finalizers(value: &Value) -> &[Value] {
    value["metadata"]["finalizers"].as_array().map_or(&[], Vec::as_slice)
}
