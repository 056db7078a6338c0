//! The objects of one kind as the API server last said, held in memory and followed by a watch.
//!
//! Started on every replica, leader or not, so that a standby is warm. Holds each object once, packed, also while it lists again.
//! Errors of the watch are counted, logged and tried again with a jittered backoff; they never end the process, and never
//! empty the cache.

use std::fmt::{self, Debug};
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch as flag;

use crate::Kit;
use crate::key::Key;
use crate::tasks::Tasks;

mod health;
mod mirror;
mod objects;
mod watch;

use health::Health;
pub use health::WatchTrouble;
use mirror::{Hearer, Mirror};
use objects::Objects;

/// A kind that can be cached: what is read of it can be written as JSON and read again without a loss.
pub trait Cacheable:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Cacheable for K where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// One change of the cached objects.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The object is new or differs from the one cached before.
    Applied(K),
    /// The object is gone; this is how it was cached last. An object that was deleted and created again under its name
    /// while nobody watched is first deleted, then applied.
    Deleted(K),
}

impl<K> Change<K> {
    /// The object that changed.
    #[must_use]
    pub fn object(&self) -> &K {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }
}

/// Hears of each change, after the cache holds it. Called from the watch: it must return at once.
pub type OnChange<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// Objects per page of a list, unless a cache asks for more: a page is in memory as text and as objects at once, 15 kB for each Node.
const PAGE_SIZE: u32 = 50;

/// The task behind a cache has ended: what it holds is not followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is not followed any more")]
pub struct Gone;

/// The objects of one kind. Clones share them.
pub struct Cache<K> {
    objects: Arc<Objects<K>>,
    synced: flag::Receiver<bool>,
    health: Health,
}

impl<K: Cacheable> Cache<K> {
    /// Describes a cache of all that `api` reaches; [`CacheBuilder::start`] starts it.
    #[must_use]
    pub fn builder(api: Api<K>) -> CacheBuilder<K> {
        CacheBuilder {
            api,
            page_size: PAGE_SIZE,
            keep: |_| true,
            same: |_, _| false,
            hearers: Vec::new(),
        }
    }

    /// The object as it was last seen, if it was.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).map(Arc::new)
    }

    /// Every object, in no order, one at a time. What comes or goes meanwhile may be among them or not.
    pub fn all(&self) -> impl Iterator<Item = K> {
        let keys = self.objects.keys().into_iter();
        keys.filter_map(|key| self.objects.get(&key))
    }
}

impl<K> Cache<K> {
    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completes when the first list is complete.
    ///
    /// # Errors
    /// [`Gone`] when the cache's task ended before.
    pub async fn synced(&self) -> Result<(), Gone> {
        let mut synced = self.synced.clone();
        synced.wait_for(|synced| *synced).await.map(drop).map_err(|_| Gone)
    }

    /// Whether the first list is complete.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Why the objects may be older than they should be, while lists or watches fail.
    #[must_use]
    pub fn trouble(&self) -> Option<WatchTrouble> {
        self.health.trouble()
    }
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            objects: Arc::clone(&self.objects),
            synced: self.synced.clone(),
            health: self.health.clone(),
        }
    }
}

impl<K: Cacheable> Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("kind", &K::kind(&()))
            .field("objects", &self.len())
            .finish()
    }
}

/// What to watch and whom to tell.
pub struct CacheBuilder<K> {
    api: Api<K>,
    page_size: u32,
    keep: fn(&K) -> bool,
    same: fn(&K, &K) -> bool,
    hearers: Vec<Hearer<K>>,
}

impl<K: Cacheable> CacheBuilder<K> {
    /// Objects for a page of a list, where the usual 50 would make too many pages.
    #[must_use]
    pub fn page_size(self, page_size: u32) -> Self {
        Self { page_size, ..self }
    }

    /// Holds only the objects for which the given function says so. One that is not held is as if it were not there, and one
    /// that is to be held no more as if it had been deleted. What is dropped is dropped as it comes, page by page.
    #[must_use]
    pub fn keep(self, keep: fn(&K) -> bool) -> Self {
        Self { keep, ..self }
    }

    /// When the given function says that an update is the same as what is cached (a heartbeat), the update is cached, its
    /// resourceVersion included, and nobody who is added after this is told. The default takes no update for the same.
    #[must_use]
    pub fn same(self, same: fn(&K, &K) -> bool) -> Self {
        Self { same, ..self }
    }

    /// Adds somebody to tell of each change. The objects of the first list are told of when it is complete.
    #[must_use]
    pub fn on_change(mut self, tell: OnChange<K>) -> Self {
        let same = self.same;
        self.hearers.push(Hearer { same, tell });
        self
    }

    /// Starts the watch as a task `cache/<kind>`, with a readiness check of that name until the first list is complete.
    #[must_use]
    pub fn start(self, tasks: &mut Tasks, kit: &Kit) -> Cache<K> {
        let Self {
            api,
            page_size,
            keep,
            hearers,
            ..
        } = self;
        let connect = move || watcher(api.clone(), watcher::Config::default().page_size(page_size)).boxed();
        start(connect, Mirror::new(keep, hearers), tasks, kit)
    }
}

impl<K: Cacheable> Debug for CacheBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("kind", &K::kind(&()))
            .finish_non_exhaustive()
    }
}

type Events<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// Starts a cache on whatever yields watch events.
fn start<K: Cacheable>(
    connect: impl Fn() -> Events<K> + Send + 'static,
    mirror: Mirror<K>,
    tasks: &mut Tasks,
    kit: &Kit,
) -> Cache<K> {
    let name = format!("cache/{}", K::kind(&()).to_lowercase());
    let objects = mirror.objects();
    let synced = mirror.synced();
    let listed = mirror.synced();
    kit.checks.register(name.clone(), move || {
        if *listed.borrow() {
            Ok(())
        } else {
            Err("the first list is not complete".to_owned())
        }
    });
    let health = Health::new(kit.clock.clone());
    let follow = watch::follow(connect, mirror, health.clone(), kit.clone(), tasks.shutdown_token());
    tasks.spawn(name, follow);
    Cache {
        objects,
        synced,
        health,
    }
}

#[cfg(test)]
pub(crate) mod by_hand {
    //! A cache that a test fills.

    use super::*;
    use crate::clock::SystemClock;

    pub(crate) struct Feed<K>(Mirror<K>);

    impl<K: Cacheable> Feed<K> {
        pub(crate) fn new(on_change: OnChange<K>) -> (Self, Cache<K>) {
            let hearer = Hearer {
                same: |_, _| false,
                tell: on_change,
            };
            let mirror = Mirror::new(|_| true, vec![hearer]);
            let cache = Cache {
                objects: mirror.objects(),
                synced: mirror.synced(),
                health: Health::new(SystemClock::shared()),
            };
            (Self(mirror), cache)
        }

        /// Completes the first list with these objects.
        pub(crate) fn sync(&mut self, objects: impl IntoIterator<Item = K>) {
            self.apply(watcher::Event::Init);
            for object in objects {
                self.apply(watcher::Event::InitApply(object));
            }
            self.apply(watcher::Event::InitDone);
        }

        pub(crate) fn apply(&mut self, event: watcher::Event<K>) {
            self.0.apply(event);
        }
    }
}
