//! The objects that wait to be reconciled, each once, in the order in which they came.
//!
//! Never loses one and never holds one twice, so it is bounded by the number of objects. It fills while nobody drains it
//! (a standby replica) and is drained when leadership comes.

use std::collections::{HashSet, VecDeque};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::Stream;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::Notify;

use crate::cache::{Change, OnChange};

/// A set of object references with an order. Clones share it.
pub struct Queue<K: Resource<DynamicType = ()>> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Resource<DynamicType = ()>> {
    waiting: Mutex<Waiting<K>>,
    // One permit is kept for a push that came while nobody waited, so a push is never missed. One consumer.
    pushed: Notify,
}

struct Waiting<K: Resource<DynamicType = ()>> {
    order: VecDeque<ObjectRef<K>>,
    members: HashSet<ObjectRef<K>>,
}

impl<K: Resource<DynamicType = ()>> Queue<K> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        let waiting = Waiting {
            order: VecDeque::new(),
            members: HashSet::new(),
        };
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::new(waiting),
                pushed: Notify::new(),
            }),
        }
    }

    /// Asks for a reconcile of `object`; does nothing when it already waits.
    pub fn push(&self, object: ObjectRef<K>) {
        let mut waiting = self.lock();
        if waiting.members.insert(object.clone()) {
            waiting.order.push_back(object);
        }
        drop(waiting);
        self.shared.pushed.notify_one();
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().order.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What to give to the cache of the queue's own kind: every change of an object, its deletion included, queues it.
    #[must_use]
    pub fn on_change(&self) -> OnChange<K>
    where
        K: 'static,
    {
        let queue = self.clone();
        Box::new(move |change: &Change<K>| queue.push(ObjectRef::from_obj(change.object())))
    }

    /// The objects as they come, for ever. For one consumer.
    pub fn stream(&self) -> impl Stream<Item = ObjectRef<K>> + Send + 'static
    where
        K: 'static,
    {
        futures::stream::unfold(self.clone(), async |queue| {
            loop {
                if let Some(object) = queue.pop() {
                    return Some((object, queue));
                }
                queue.shared.pushed.notified().await;
            }
        })
    }

    fn pop(&self) -> Option<ObjectRef<K>> {
        let mut waiting = self.lock();
        let object = waiting.order.pop_front()?;
        waiting.members.remove(&object);
        if waiting.order.is_empty() {
            // The burst of a cold start is not kept for the life of the process.
            waiting.order.shrink_to(64);
            waiting.members.shrink_to(64);
        }
        Some(object)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<K>> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Resource<DynamicType = ()>> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Resource<DynamicType = ()>> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Resource<DynamicType = ()>> Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, StreamExt as _};
    use k8s_openapi::api::core::v1::Node;

    fn node(name: &str) -> ObjectRef<Node> {
        ObjectRef::new(name)
    }

    #[tokio::test]
    async fn holds_each_once_in_order() {
        let queue = Queue::new();
        for name in ["a", "b", "a", "c", "b"] {
            queue.push(node(name));
        }
        assert_eq!(queue.len(), 3);
        let names: Vec<String> = queue.stream().take(3).map(|object| object.name).collect().await;
        assert_eq!(names, ["a", "b", "c"]);
        assert!(queue.is_empty());
    }

    #[tokio::test]
    async fn one_that_was_taken_can_wait_again() {
        let queue = Queue::new();
        let mut stream = Box::pin(queue.stream());
        queue.push(node("a"));
        assert_eq!(stream.next().await, Some(node("a")));
        assert!(stream.next().now_or_never().is_none());
        queue.push(node("a"));
        assert_eq!(stream.next().await, Some(node("a")));
    }

    #[tokio::test]
    async fn a_push_wakes_the_waiting_consumer() {
        let queue = Queue::new();
        let mut stream = Box::pin(queue.stream());
        let (taken, ()) = futures::join!(stream.next(), async {
            tokio::task::yield_now().await;
            queue.push(node("late"));
        });
        assert_eq!(taken, Some(node("late")));
    }
}
