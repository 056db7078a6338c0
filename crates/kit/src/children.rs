//! The objects that a controller owns on behalf of another object: desired against cached, and what follows.
//!
//! A controller that only ensures that a set of objects exists is one pure `desired()`, [`compare`] and [`execute`].
//! Objects of ours carry the ownership label. An object of a desired name without that label belongs to somebody else:
//! it is reported and never overwritten, because what is missing is created without overwriting anything. One failed
//! write does not stop the others.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;

use crate::cache::Cacheable;
use crate::client::MANY_IN_FLIGHT;
use crate::key::Key;
use crate::retry::{Category, ReconcileError, Retry};
use crate::writer::{self, WriteError, Writer};

mod everywhere;
mod foreign;

pub use everywhere::{Desired, Difference, Everywhere};
pub use foreign::ForeignObjects;

/// Writes of one pass at once, as far as the controller has permits.
const CONCURRENCY: usize = MANY_IN_FLIGHT;

/// The delay before the next pass when the cache does not show our last write yet. The change usually starts a pass
/// earlier; this is the fallback if somebody has undone the write.
const CACHE_CATCH_UP_DELAY: Duration = Duration::from_secs(1);

/// The label by which a controller recognises its own objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The label's key.
    pub key: &'static str,
    /// The label's value.
    pub value: &'static str,
}

impl Ownership {
    /// True if the object carries the label.
    #[must_use]
    pub fn owns(&self, object: &impl Resource) -> bool {
        self.marks(object.meta())
    }

    /// True if an object with this metadata carries the label.
    #[must_use]
    pub fn marks(&self, meta: &ObjectMeta) -> bool {
        let labels = meta.labels.as_ref();
        labels
            .and_then(|labels| labels.get(self.key))
            .is_some_and(|value| value == self.value)
    }

    /// Gives the object the label.
    pub fn mark(&self, object: &mut impl Resource) {
        let labels = object.meta_mut().labels.get_or_insert_default();
        labels.insert(self.key.to_owned(), self.value.to_owned());
    }
}

/// The changes to make. Pure: [`compare`] decides them.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes<K> {
    /// Desired objects that do not exist.
    pub create: Vec<K>,
    /// Desired objects that exist and are ours, each with how it is cached.
    pub update: Vec<(K, Arc<K>)>,
    /// Objects of ours that are not desired.
    pub delete: Vec<Arc<K>>,
    /// Desired names under which somebody else's object exists.
    pub foreign: Vec<Key>,
}

/// The changes that make `actual` as `desired`. An object that is being deleted is left alone: its end starts another
/// pass.
#[must_use]
pub fn compare<K: Resource>(desired: Vec<K>, actual: &[Arc<K>], ours: impl Fn(&K) -> bool) -> Changes<K> {
    let mut by_key: BTreeMap<Key, &Arc<K>> = actual.iter().map(|object| (Key::of(&**object), object)).collect();
    let lives = |object: &&Arc<K>| ours(object) && object.meta().deletion_timestamp.is_none();
    let mut changes = Changes {
        create: Vec::new(),
        update: Vec::new(),
        delete: Vec::new(),
        foreign: Vec::new(),
    };
    for object in desired {
        let key = Key::of(&object);
        match by_key.remove(&key) {
            None => changes.create.push(object),
            Some(cached) if cached.meta().deletion_timestamp.is_some() => {}
            Some(cached) if ours(cached) => changes.update.push((object, Arc::clone(cached))),
            Some(_) => changes.foreign.push(key),
        }
    }
    let left = by_key.into_values();
    let unwanted = left.filter(lives);
    changes.delete = unwanted.cloned().collect();
    changes
}

/// A write that took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The object is new.
    Created,
    /// The object was not as desired.
    Updated,
    /// The object is gone, or is being deleted.
    Deleted,
}

/// Performs every change, whatever becomes of the others, and calls `done` for each write that took place, with the
/// object's new metadata (its last one after a deletion). Begins no further write once `go_on` returns false. An object
/// that is to be created, exists although no cache shows it, and is not `ours` is reported as somebody else's.
///
/// # Errors
/// [`ChildrenError`], after every write was tried.
pub async fn execute<K: Cacheable + Serialize>(
    writer: &Writer,
    changes: Changes<K>,
    ours: impl Fn(&ObjectMeta) -> bool,
    go_on: impl Fn() -> bool,
    done: impl Fn(Done, &ObjectMeta),
) -> Result<(), ChildrenError> {
    enum Step<K> {
        Create(K),
        Update(K, Arc<K>),
        Delete(Arc<K>),
    }
    let create = changes.create.into_iter().map(Step::Create);
    let update = changes
        .update
        .into_iter()
        .map(|(desired, cached)| Step::Update(desired, cached));
    let delete = changes.delete.into_iter().map(Step::Delete);
    let (done, ours) = (&done, &ours);
    let mut steps = create.chain(update).chain(delete).map(|step| async move {
        match step {
            Step::Create(object) => writer
                .apply_new(&object, ours)
                .await
                .map(|new| done(Done::Created, &new)),
            Step::Update(object, cached) => {
                let written = writer.apply(&object, Some(&cached)).await?;
                if let Some(new) = &written {
                    done(Done::Updated, new);
                }
                Ok(())
            }
            Step::Delete(object) => {
                if writer.delete::<K>(object.meta()).await? {
                    done(Done::Deleted, object.meta());
                }
                Ok(())
            }
        }
    });
    let begun = std::iter::from_fn(|| if go_on() { steps.next() } else { None });
    let results: Vec<Result<(), WriteError>> = stream::iter(begun).buffer_unordered(CONCURRENCY).collect().await;
    let error = ChildrenError {
        kind: K::kind(&()).into_owned(),
        failed: results.into_iter().filter_map(Result::err).collect(),
        foreign: changes.foreign,
    };
    if error.failed.is_empty() && error.foreign.is_empty() {
        return Ok(());
    }
    Err(error)
}

/// Failed writes and foreign objects of one pass; every other write succeeded.
#[derive(Debug)]
pub struct ChildrenError {
    /// The kind of the objects.
    kind: String,
    /// Writes that failed.
    failed: Vec<WriteError>,
    /// Somebody else's objects that have desired names. Nothing was changed on them.
    foreign: Vec<Key>,
}

impl Error for ChildrenError {}

impl ChildrenError {
    /// The keys of the foreign objects.
    fn foreign(&self) -> Vec<Key> {
        let refused = self
            .failed
            .iter()
            .filter(|error| error.is_foreign())
            .map(WriteError::key);
        self.foreign.iter().chain(refused).cloned().collect()
    }
}

impl Display for ChildrenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, failed, foreign } = self;
        let mut parts = Vec::new();
        if let Some(first) = failed.first() {
            parts.push(format!(
                "{} of the writes failed, the first: {}",
                failed.len(),
                first.explained()
            ));
        }
        if !foreign.is_empty() {
            let names: Vec<String> = foreign.iter().map(Key::to_string).collect();
            parts.push(format!(
                "{kind} {} exists and is not managed by Tidewaiter",
                names.join(", ")
            ));
        }
        f.write_str(&parts.join("; "))
    }
}

impl ReconcileError for ChildrenError {
    fn category(&self) -> Category {
        let notice = match self.foreign.first() {
            Some(first) => Some(writer::foreign(&self.kind, first)),
            None => self.failed.iter().find_map(WriteError::notice),
        };
        Category {
            class: self.failed.first().map_or("foreign", WriteError::class),
            retry: self.failed.iter().map(WriteError::retry).max().unwrap_or(Retry::Slow),
            is_refusal: self.failed.iter().all(WriteError::is_foreign),
            notice,
        }
    }
}

#[cfg(test)]
mod tests;
