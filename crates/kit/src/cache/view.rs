//! A cache of what is made of the objects of another cache.

use std::sync::Arc;

use parking_lot::Mutex;

use super::mirror::recreated;
use super::objects::Objects;
use super::subscribers::Subscribers;
use super::{Cache, Cacheable, Change};
use crate::key::Key;

/// Makes the object of the view, or none.
type Make<K> = Box<dyn Fn(&Arc<K>) -> Option<Arc<K>> + Send + Sync>;

/// Keeps a cache up to date with another one. Clones share it.
#[derive(Clone)]
pub struct View<K>(Arc<Parts<K>>);

struct Parts<K> {
    source: Cache<K>,
    cache: Cache<K>,
    make: Make<K>,
    /// One change after the other, whether an object or what `make` depends on has changed.
    turn: Mutex<()>,
}

impl<K: Cacheable> Cache<K> {
    /// A cache of what `make` makes of each object, without the objects of which it makes nothing. It is synced when
    /// this one is, and its indexes and triggers are its own. When something else changes on which `make` depends, call
    /// [`View::refresh`].
    #[must_use]
    pub fn view(&self, make: impl Fn(&Arc<K>) -> Option<Arc<K>> + Send + Sync + 'static) -> View<K> {
        let cache = Self {
            objects: Arc::new(Objects::new(None)),
            subscribers: Arc::new(Subscribers::new()),
            synced: self.synced.clone(),
            health: self.health.clone(),
        };
        let view = View(Arc::new(Parts {
            source: self.clone(),
            cache,
            make: Box::new(make),
            turn: Mutex::default(),
        }));
        let followed = view.clone();
        self.derive(move |change| followed.refresh(change.key()));
        view
    }
}

impl<K: Cacheable> View<K> {
    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache<K> {
        &self.0.cache
    }

    /// Makes the object of this key again.
    pub fn refresh(&self, key: &Key) {
        let Parts {
            source,
            cache,
            make,
            turn,
        } = &*self.0;
        let _turn = turn.lock();
        let changed = |change: &Change<'_, K>| {
            cache.subscribers.index(change);
            cache.subscribers.notify(change);
        };
        let mut before = cache.objects.get(key);
        let after = source.get(key).and_then(|object| make(&object));
        let is_gone = |before: &Arc<K>| {
            after
                .as_ref()
                .is_none_or(|after| recreated(before.meta(), after.meta()))
        };
        if let Some(gone) = before.take_if(|before| is_gone(before)) {
            cache.objects.take(key);
            changed(&Change::deleted(key, &gone));
        }
        if let Some(after) = after
            && !before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &after))
        {
            let key = cache.objects.put(key.clone(), &after);
            changed(&Change::applied(&key, before.as_deref(), &after));
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::cache::Feed;
    use crate::queue::Queue;
    use crate::testing::kit;

    fn config(uid: &str, version: &str, owner: &str) -> ConfigMap {
        let metadata = json!({"name": "c", "namespace": "n", "uid": uid, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata, "data": {"owner": owner}})).unwrap()
    }

    fn owner(config: &ConfigMap) -> Option<String> {
        config.data.as_ref()?.get("owner").cloned()
    }

    #[test]
    fn a_view_has_what_is_made_of_each_object_with_its_own_indexes_and_triggers() {
        let (queue, (kit, _)) = (Queue::new(), kit());
        let (mut feed, source) = Feed::<ConfigMap>::new(&kit);
        let hidden = Arc::new(Mutex::new("nobody".to_owned()));
        let hides = Arc::clone(&hidden);
        let view = source.view(move |config| (owner(config) != Some(hides.lock().clone())).then(|| config.clone()));
        let cache = view.cache().clone();
        let owners = cache.index(owner);
        cache.notify(queue.same_name());
        let key = Key::namespaced("n", "c");
        let shown = || {
            let woken = queue.try_next().is_some();
            assert!(queue.try_next().is_none());
            (
                cache.get(&key).and_then(|config| owner(&config)),
                owners.values(),
                woken,
            )
        };
        let of = |name: &str| (Some(name.to_owned()), vec![name.to_owned()]);
        let with = |(object, owners): (Option<String>, Vec<String>), woken: bool| (object, owners, woken);
        assert!(!cache.is_synced());
        feed.list([config("1", "1", "ann")]);
        assert!(cache.is_synced());
        assert_eq!(shown(), with(of("ann"), true));
        feed.put(config("1", "2", "bob"));
        assert_eq!(shown(), with(of("bob"), true));
        view.refresh(&key);
        assert_eq!(shown(), with(of("bob"), false), "nothing has changed");
        "bob".clone_into(&mut hidden.lock());
        assert_eq!(shown(), with(of("bob"), false), "nobody said so");
        view.refresh(&key);
        assert_eq!(shown(), with((None, vec![]), true));
        feed.put(config("1", "3", "ann"));
        assert_eq!(shown(), with(of("ann"), true));
        // Deleted and created again while nobody looked: two changes.
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        cache.derive(move |change| {
            log.lock().push((change.before.is_some(), change.after.is_some()));
        });
        feed.put(config("2", "4", "ann"));
        assert_eq!(*seen.lock(), [(false, true), (true, false), (false, true)]);
        shown();
        feed.delete(config("2", "4", "ann"));
        assert_eq!(shown(), with((None, vec![]), true));
    }
}
