//! The same children in every namespace that is not terminating.
//!
//! - A missing child is created with POST: one request, which never merges into an object of that name that somebody
//!   else made.
//! - What differs is changed with one merge patch that is conditional on uid and resourceVersion and names the fields
//!   of ours, so that whatever others put beside them stays.
//! - A child is cached in any type that shows whether it is as desired: a digest is enough, so thousands of copies of a
//!   Secret take no room.
//! - A namespace in which a write fails delays no other: each is a key of its own, and its error is reported on the
//!   Namespace.
//!
//! Never: a write in a namespace that is terminating; a write to an object that is not ours.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use super::{CACHE_CATCH_UP_DELAY, CONCURRENCY, ChildrenError};
use crate::cache::{Cache, Cacheable, Change, Metadata};
use crate::controller::Pass;
use crate::key::Key;
use crate::queue::Queue;
use crate::retry::Next;
use crate::writer::{WriteError, Writer};

/// The desired child in each namespace.
pub trait Desired: Send + Sync {
    /// The child as it is cached.
    type Child: Cacheable;
    /// The child as it is written.
    type Body: Resource<DynamicType = ()> + Serialize + Send + Sync;

    /// Its name, the same in each namespace.
    fn name(&self) -> &str;

    /// The object to create in this namespace; None if others create it.
    fn body(&self, namespace: &str) -> Option<Self::Body>;

    /// The change that makes the cached child as desired.
    fn difference(&self, child: &Self::Child) -> Difference;

    /// True if an object of that name is ours, although the cache does not show it: its labels may have been edited so
    /// that the selector of the cache does not match any more.
    fn owns(&self, metadata: &ObjectMeta) -> bool;

    /// A merge patch that restores the child from any state; None if it needs the current object.
    fn full_patch(&self) -> Option<Value>;
}

/// The change that makes a child as desired.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// Nothing: it is as desired.
    None,
    /// A merge patch without uid and resourceVersion.
    Patch(Value),
    /// A field differs that cannot be changed: the child is deleted and created again.
    Replace,
    /// It lacks the label by which it is ours. If it is ours all the same ([`Desired::owns`]), this merge patch gives
    /// it back; otherwise it is somebody else's.
    Unlabelled(Value),
    /// It is somebody else's.
    Foreign,
}

/// Children of one kind in every namespace.
#[derive(Debug)]
pub struct Everywhere<C: Cacheable> {
    namespaces: Cache<Metadata<Namespace>>,
    children: Cache<C>,
    opt_out: Option<Label>,
}

/// A label with its value.
type Label = (&'static str, &'static str);

/// One write.
enum Step<B> {
    Create(B),
    Patch(ObjectMeta, Value),
    TakeUp(ObjectMeta, Value),
    Replace(ObjectMeta, Option<B>),
    Delete(ObjectMeta),
}

impl<C: Cacheable> Everywhere<C> {
    /// `children` holds the objects of the kind that could have a desired name, or at least those of ours.
    #[must_use]
    pub fn new(namespaces: Cache<Metadata<Namespace>>, children: Cache<C>) -> Self {
        Self {
            namespaces,
            children,
            opt_out: None,
        }
    }

    /// Lets a namespace opt out by this label with this value.
    #[must_use]
    pub fn with_opt_out(self, key: &'static str, value: &'static str) -> Self {
        Self {
            opt_out: Some((key, value)),
            ..self
        }
    }

    /// Returns true if the namespace has opted out: its children are unwanted.
    #[must_use]
    pub fn is_opted_out(&self, namespace: &Key) -> bool {
        let found = self.namespaces.get(namespace);
        found.is_some_and(|found| has(&found, self.opt_out))
    }

    /// Queues a namespace when it is new, begins to terminate, or opts out or in, and when a child in it changes,
    /// unless the child is then as desired (`settled`): most changes are the writes of `writer`, and a pass over each
    /// would find nothing to do. A namespace that has opted out is always queued: it may have done so while the child
    /// was created. Whatever changes what is desired must queue the namespaces itself.
    pub fn notify(&self, queue: &Queue, writer: &Arc<Writer>, settled: impl Fn(&C) -> bool + Send + Sync + 'static) {
        let opt_out = self.opt_out;
        writer.follow(&self.children);
        self.namespaces
            .notify(queue.trigger(move |queue, change: &Change<'_, Metadata<Namespace>>| {
                let state = |it: &Metadata<Namespace>| (is_terminating(it), has(it, opt_out));
                if change.before.is_none() || change.before.map(state) != change.after.map(state) {
                    queue.push(change.key().clone());
                }
            }));
        let (writer, namespaces) = (Arc::clone(writer), self.namespaces.clone());
        self.children.notify(
            queue
                .trigger(move |queue, change: &Change<'_, C>| {
                    let meta = change.object().meta();
                    let namespace = meta.namespace.as_deref().map(Key::new);
                    let found = namespace.as_ref().and_then(|namespace| namespaces.get(namespace));
                    let opted_out = found.is_some_and(|found| has(&found, opt_out));
                    let as_desired = !opted_out && change.after.is_some_and(&settled);
                    if as_desired && !writer.awaits::<C>(&Key::of_meta(meta), Some(meta)) {
                        return;
                    }
                    if let Some(namespace) = namespace {
                        queue.push(namespace);
                    }
                })
                .changes_only(),
        );
    }

    /// Makes the children in the namespace of this pass as `desired`, and deletes `unwanted` ones. Does nothing in a
    /// namespace that is terminating or gone.
    ///
    /// # Errors
    /// [`ChildrenError`], after every write was tried.
    pub async fn ensure<D>(
        &self,
        writer: &Writer,
        pass: &mut Pass,
        desired: &[&D],
        unwanted: &[Key],
    ) -> Result<Next, ChildrenError>
    where
        D: Desired<Child = C>,
    {
        let namespace = pass.key().clone();
        let found = self.namespaces.get(&namespace).filter(|it| !is_terminating(it));
        let Some(found) = found else {
            return Ok(Next::UntilChanged);
        };
        pass.about(found.object_ref(&()));
        self.ensure_in(writer, &namespace, desired, unwanted).await
    }

    /// Does the same as [`Everywhere::ensure`] in a namespace that is known to exist. The object of the pass stays.
    ///
    /// # Errors
    /// [`ChildrenError`], after every write was tried.
    pub async fn ensure_in<D>(
        &self,
        writer: &Writer,
        namespace: &Key,
        desired: &[&D],
        unwanted: &[Key],
    ) -> Result<Next, ChildrenError>
    where
        D: Desired<Child = C>,
    {
        let mut foreign = BTreeSet::new();
        let (mut steps, mut outdated) = (Vec::new(), false);
        for (nth, desired) in desired.iter().enumerate() {
            let key = Key::namespaced(namespace.name(), desired.name());
            let child = self.children.get(&key);
            if is_outdated::<D>(writer, &key, child.as_ref()) {
                outdated = true;
            } else if let Some(step) = step(*desired, namespace, child.as_ref(), || foreign.insert(key.clone())) {
                steps.push((Some(nth), key, step));
            }
        }
        for key in unwanted {
            let child = self.children.get(key);
            if is_outdated::<D>(writer, key, child.as_ref()) {
                outdated = true;
            } else if let Some(child) = child.filter(|child| child.meta().deletion_timestamp.is_none()) {
                steps.push((None, key.clone(), Step::Delete(child.meta().clone())));
            }
        }
        let requests = steps.into_iter().map(|(nth, key, step)| async move {
            let written = perform(writer, nth.map(|nth| desired[nth]), step).await;
            (key, written)
        });
        let results: Vec<_> = stream::iter(requests).buffer_unordered(CONCURRENCY).collect().await;
        let mut failed = Vec::new();
        for (key, result) in results {
            match result {
                Ok(true) => {}
                Ok(false) => drop(foreign.insert(key)),
                Err(error) => failed.push(error),
            }
        }
        if failed.is_empty() && foreign.is_empty() {
            return Ok(if outdated {
                Next::Pending(CACHE_CATCH_UP_DELAY)
            } else {
                Next::UntilChanged
            });
        }
        Err(ChildrenError {
            kind: D::Body::kind(&()).into_owned(),
            failed,
            foreign: foreign.into_iter().collect(),
        })
    }
}

/// True if the cache does not show our own last write of the child yet.
fn is_outdated<D: Desired>(writer: &Writer, key: &Key, child: Option<&Arc<D::Child>>) -> bool {
    writer.awaits::<D::Body>(key, child.map(|child| child.meta()))
}

fn step<D: Desired>(
    desired: &D,
    namespace: &Key,
    child: Option<&Arc<D::Child>>,
    foreign: impl FnOnce() -> bool,
) -> Option<Step<D::Body>> {
    let Some(child) = child else {
        return desired.body(namespace.name()).map(Step::Create);
    };
    let meta = child.meta();
    if meta.deletion_timestamp.is_some() {
        // Its end starts another pass.
        return None;
    }
    match desired.difference(child) {
        Difference::None => None,
        Difference::Patch(patch) => Some(Step::Patch(meta.clone(), patch)),
        Difference::Unlabelled(patch) => Some(Step::TakeUp(meta.clone(), patch)),
        Difference::Replace => Some(Step::Replace(meta.clone(), desired.body(namespace.name()))),
        Difference::Foreign => {
            foreign();
            None
        }
    }
}

/// False when the object is somebody else's.
async fn perform<D: Desired>(writer: &Writer, desired: Option<&D>, step: Step<D::Body>) -> Result<bool, WriteError> {
    match step {
        Step::Create(body) => create(writer, desired, &body).await,
        Step::Patch(meta, patch) => writer.patch::<D::Body>(&meta, patch).await.map(|_| true),
        Step::TakeUp(meta, patch) => take_up(writer, desired, &meta, patch).await,
        Step::Replace(meta, body) => {
            writer.delete::<D::Body>(&meta).await?;
            match body {
                Some(body) => create(writer, desired, &body).await,
                None => Ok(true),
            }
        }
        Step::Delete(meta) => writer.delete::<D::Body>(&meta).await.map(|_| true),
    }
}

async fn create<D: Desired>(writer: &Writer, desired: Option<&D>, body: &D::Body) -> Result<bool, WriteError> {
    let error = match writer.create(body).await {
        Ok(_) => return Ok(true),
        Err(error) if error.is_conflict() => error,
        Err(error) => return Err(error),
    };
    // The cache does not show it: it is somebody else's, or its labels were edited, or the watch is late.
    let Some(found) = writer.read::<D::Body>(body.meta()).await? else {
        return Err(error);
    };
    let Some(desired) = desired.filter(|desired| desired.owns(&found)) else {
        return Ok(false);
    };
    match desired.full_patch() {
        Some(patch) => writer.patch::<D::Body>(&found, patch).await.map(|_| true),
        None => Err(error),
    }
}

/// Patches a child that lacks our label, if the API server shows that it is ours: the cache has too few fields.
async fn take_up<D: Desired>(
    writer: &Writer,
    desired: Option<&D>,
    cached: &ObjectMeta,
    patch: Value,
) -> Result<bool, WriteError> {
    let found = writer.read::<D::Body>(cached).await?;
    match found.filter(|found| desired.is_some_and(|desired| desired.owns(found))) {
        Some(found) => writer.patch::<D::Body>(&found, patch).await.map(|_| true),
        None => Ok(false),
    }
}

fn is_terminating(namespace: &Metadata<Namespace>) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

fn has(namespace: &Metadata<Namespace>, label: Option<Label>) -> bool {
    let labels = namespace.metadata.labels.as_ref();
    label.is_some_and(|(key, value)| {
        labels
            .and_then(|labels| labels.get(key))
            .is_some_and(|own| own == value)
    })
}

#[cfg(test)]
mod tests;
