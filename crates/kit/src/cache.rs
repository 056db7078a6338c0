//! The objects of one kind as the API server last described them, in memory and followed by a watch.
//!
//! A role starts each cache once, on every replica, leader or not, so that a standby is warm, and its controllers share
//! it. Indexes are updated before any trigger is called. Watch errors are counted, logged and retried with a jittered
//! backoff; they never end the process and never empty the cache. An object that cannot be decoded blocks no other.

use std::fmt::{self, Debug};
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch as flag;
use tokio::task::yield_now;

use crate::Kit;
use crate::index::Index;
use crate::key::Key;
use crate::packed::{Packer, Packing};
use crate::queue::FirstList;
use crate::slim;
use crate::tasks::Tasks;

mod change;
mod faults;
#[cfg(any(test, feature = "test-util"))]
mod feed;
mod guarded;
mod health;
mod list;
mod mirror;
mod objects;
mod prune;
mod subscribers;
mod view;
mod watch;

pub use change::{Change, Trigger};
pub use faults::UndecodableObjects;
#[cfg(any(test, feature = "test-util"))]
pub use feed::Feed;
pub use health::{TroubleCause, WatchTrouble};
pub use list::list_all;
pub use view::View;

use faults::Faults;
pub use guarded::{Guarded, Undecodable};
use health::Health;
use mirror::{Keep, Mirror};
use objects::Objects;
use subscribers::Subscribers;

/// A kind that can be cached.
pub trait Cacheable: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static {}

impl<K> Cacheable for K where K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static {}

/// Objects in a page of a list, unless a cache asks for more: a page is in memory as text and as objects at once, and a
/// Node takes 15 kB.
const PAGE_SIZE: u32 = 50;

/// The objects for which a trigger is called at once when its replica begins to lead: each may be decompressed.
const SEED_CHUNK: usize = 100;

/// A watch ends after this time and goes on where it was. A peer that keeps the connection open and says nothing is
/// noticed 5 s later: TCP keepalive does not help against it.
pub(crate) const WATCH_SECONDS: u32 = 60;

/// The task behind a cache has ended, so the cache is not updated any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is not updated any more")]
pub struct Gone;

/// The objects of one kind. Clones share them.
#[derive(Clone)]
pub struct Cache<K> {
    objects: Arc<Objects<K>>,
    subscribers: Arc<Subscribers<K>>,
    synced: flag::Receiver<bool>,
    health: Health,
}

impl<K: Cacheable> Cache<K> {
    /// Every object of a kind, in all namespaces.
    #[must_use]
    pub fn all(client: Client) -> CacheBuilder<K>
    where
        K: DeserializeOwned,
    {
        CacheBuilder::following(Api::<Guarded<K>>::all(client))
    }

    /// The objects of one namespace.
    #[must_use]
    pub fn namespaced(client: Client, namespace: &str) -> CacheBuilder<K>
    where
        K: DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
    {
        CacheBuilder::following(Api::<Guarded<K>>::namespaced(client, namespace))
    }

    /// The object as it was last seen.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key)
    }

    /// Every object, ordered by key, one at a time. An object that is added or removed meanwhile may be among them or
    /// not.
    pub fn iter(&self) -> impl Iterator<Item = Arc<K>> {
        let keys = self.objects.keys().into_iter();
        keys.filter_map(|key| self.objects.get(&key))
    }

    /// Keeps an index over the values that `values` reads from each object.
    #[must_use]
    pub fn index<V, I>(&self, values: impl Fn(&K) -> I + Send + Sync + 'static) -> Index<V>
    where
        V: Ord + Clone + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
    {
        let index = Index::default();
        let updated = index.clone();
        let update = move |change: &Change<'_, K>| {
            let read = |object: &K| values(object).into_iter().collect::<Vec<_>>();
            let before = change.before.map(read).unwrap_or_default();
            let after = change.after.map(read).unwrap_or_default();
            updated.update(change.key(), &before, after);
        };
        self.derive(update);
        index
    }

    /// Calls `update` for each object and from now on for each change, together with the indexes and before any
    /// trigger: for what a controller derives from the objects itself. It must push no key into a queue.
    pub fn derive(&self, update: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.subscribers
            .add_index(Box::new(update), |update| self.announce(&self.keys(), update));
    }

    /// Calls `trigger` for each object and from now on for each change, after every index has been updated. The objects
    /// of the first list are announced when it is complete, and those of a queue's trigger when its replica leads.
    pub fn notify(&self, trigger: Trigger<K>) {
        let trigger = Arc::new(trigger);
        if let Some((queue, is_awaited)) = trigger.queue() {
            let (cache, seeding) = (self.clone(), Arc::clone(&trigger));
            let seed = async move {
                let keys = seeding.seeds(&cache);
                for keys in keys.chunks(SEED_CHUNK) {
                    cache.announce(keys, &|change: &Change<'_, K>| seeding.call(change));
                    yield_now().await;
                }
            };
            queue.add_source(is_awaited.then(|| self.first_list()), seed.boxed());
        }
        let called = Arc::clone(&trigger);
        let call = Box::new(move |change: &Change<'_, K>| called.call(change));
        self.subscribers
            .add_trigger(call, |call| self.announce(&trigger.seeds(self), call));
    }

    /// Completes when the first list is complete, or never will be.
    pub(crate) fn first_list(&self) -> FirstList {
        let cache = self.clone();
        async move { cache.synced().await.is_ok() }.boxed()
    }

    fn announce(&self, keys: &[Key], update: &dyn Fn(&Change<'_, K>)) {
        for key in keys {
            if let Some(object) = self.get(key) {
                update(&Change::applied(key, None, &object));
            }
        }
    }
}

impl<K> Cache<K> {
    /// Every key, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.objects.keys()
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True if the cache has no object.
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

    /// True if the first list is complete.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// The reason why the cache may be stale, while lists or watches fail.
    #[must_use]
    pub fn trouble(&self) -> Option<WatchTrouble> {
        self.health.trouble()
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

/// The metadata of a kind's objects, for controllers that read nothing else. Annotations and managed fields are not
/// cached.
pub type Metadata<K> = PartialObjectMeta<K>;

impl<K> Cache<Metadata<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// The metadata alone of every object of a kind, in all namespaces.
    #[must_use]
    pub fn metadata(client: Client) -> CacheBuilder<Metadata<K>> {
        Self::metadata_of(Api::all(client))
    }

    /// The metadata alone of the objects of one namespace.
    #[must_use]
    pub fn metadata_in(client: Client, namespace: &str) -> CacheBuilder<Metadata<K>>
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self::metadata_of(Api::namespaced(client, namespace))
    }

    fn metadata_of(api: Api<Guarded<Metadata<K>>>) -> CacheBuilder<Metadata<K>> {
        CacheBuilder::following(api).prune(|it| slim::prune(&mut it.metadata))
    }
}

type Events<K> = BoxStream<'static, watcher::Result<Event<Guarded<K>>>>;
type Connect<K> = Box<dyn Fn(watcher::Config) -> Events<K> + Send>;

/// A cache that has not been started: its kind, selectors and options.
pub struct CacheBuilder<K> {
    connect: Connect<K>,
    name: String,
    config: watcher::Config,
    keep: Keep<K>,
    packing: Option<Box<dyn Packing<K>>>,
    optional: bool,
}

impl<K: Cacheable> CacheBuilder<K> {
    fn following(api: Api<Guarded<K>>) -> Self
    where
        K: DeserializeOwned,
    {
        Self::new(Box::new(move |config| watcher::watcher(api.clone(), config).boxed()))
    }

    fn new(connect: Connect<K>) -> Self {
        Self {
            connect,
            name: K::kind(&()).to_lowercase(),
            config: watcher::Config::default().page_size(PAGE_SIZE).timeout(WATCH_SECONDS),
            keep: Box::new(|_| true),
            packing: None,
            optional: false,
        }
    }

    /// Names the cache in the readiness check, the gauge and the log; the default is its kind. For a second cache of
    /// one kind.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Only objects with these labels, as `kubectl get -l` takes them.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Only objects with these fields, as `kubectl get --field-selector` takes them.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.config = self.config.fields(selector);
        self
    }

    /// Objects in a page of a list, where the usual 50 would make too many pages.
    #[must_use]
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.config = self.config.page_size(page_size);
        self
    }

    /// Caches only the objects for which `keep` is true, as if there were no others.
    #[must_use]
    pub fn keep(self, keep: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        let keep = Box::new(keep);
        Self { keep, ..self }
    }

    /// Holds the objects compressed: for kinds with thousands of objects that are read rarely. Each read decompresses.
    #[must_use]
    pub fn packed(self) -> Self
    where
        K: Serialize + DeserializeOwned,
    {
        let packing = Some(Box::new(Packer::new()) as Box<dyn Packing<K>>);
        Self { packing, ..self }
    }

    /// A replica can lead without this cache. Without the first list of any other one it does not stand for election.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Starts the watch as a task `cache/<name>`. A readiness check of that name fails until the first list is
    /// complete, and while the cache has been stale for minutes.
    #[must_use]
    pub fn start(self, tasks: &mut Tasks, kit: &Kit) -> Cache<K> {
        let (connect, name, config) = (self.connect, self.name, self.config);
        let stale = kit.metrics.cache_stale.with_label_values(&[&name]);
        let health = Health::new(kit.clock.clone(), stale);
        let faults = Faults::of::<K>(kit.undecodable.clone(), &kit.metrics);
        let (mirror, cache) = assemble(self.keep, self.packing, faults, health.clone());
        let name = format!("cache/{name}");
        let (synced, checked) = (cache.synced.clone(), health.clone());
        let check = move || {
            if *synced.borrow() {
                return checked.check();
            }
            let why = checked.trouble().map(|trouble| format!(": {}", trouble.error));
            Err(format!("the first list is not complete{}", why.unwrap_or_default()))
        };
        if self.optional {
            kit.checks.register(name.clone(), check);
        } else {
            kit.checks.require(name.clone(), check);
        }
        let (connect, shutdown) = (move || connect(config.clone()), tasks.shutdown_token());
        let follow = watch::follow(connect, mirror, health, kit.clone(), shutdown);
        tasks.spawn(name, follow);
        cache
    }
}

/// A cache, and what fills it.
fn assemble<K: Cacheable>(
    keep: Keep<K>,
    packing: Option<Box<dyn Packing<K>>>,
    faults: Faults,
    health: Health,
) -> (Mirror<K>, Cache<K>) {
    let (synced, is_synced) = flag::channel(false);
    let cache = Cache {
        objects: Arc::new(Objects::new(packing)),
        subscribers: Arc::new(Subscribers::new()),
        synced: is_synced,
        health,
    };
    (Mirror::new(cache.clone(), keep, faults, synced), cache)
}
