//! Watch events into the cache, and out of it the changes that somebody should hear of. No I/O.
//!
//! A relist after the first is merged into the cache object by object, so that there is never a second copy of them all,
//! and what it no longer names is deleted at its end. The order for each change: the cache first, then the hearers.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use tokio::sync::watch;

use super::objects::Objects;
use super::{Cacheable, Change, OnChange};
use crate::key::Key;
use crate::packed::Packed;

/// Whom to tell of a change.
pub(super) struct Hearer<K> {
    /// Which updates it need not hear of.
    pub(super) same: fn(&K, &K) -> bool,
    pub(super) tell: OnChange<K>,
}

pub(super) struct Mirror<K> {
    objects: Arc<Objects<K>>,
    keep: fn(&K) -> bool,
    hearers: Vec<Hearer<K>>,
    synced: watch::Sender<bool>,
    /// The first list, until it is complete: nobody sees a part of it.
    first: HashMap<Key, Packed>,
    /// During a later list, the cached objects that it has not named yet.
    unnamed: HashSet<Key>,
}

impl<K: Cacheable> Mirror<K> {
    pub(super) fn new(keep: fn(&K) -> bool, hearers: Vec<Hearer<K>>) -> Self {
        Self {
            objects: Arc::new(Objects::new()),
            keep,
            hearers,
            synced: watch::Sender::new(false),
            first: HashMap::new(),
            unnamed: HashSet::new(),
        }
    }

    pub(super) fn objects(&self) -> Arc<Objects<K>> {
        Arc::clone(&self.objects)
    }

    pub(super) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(super) fn apply(&mut self, event: Event<K>) {
        let synced = *self.synced.borrow();
        match event {
            Event::Init if !synced => self.first.clear(),
            Event::InitApply(object) if !synced => {
                if (self.keep)(&object) {
                    self.first.insert(Key::of(&object), self.objects.pack(&object));
                }
            }
            Event::InitDone if !synced => self.first_list(),
            Event::Init => self.unnamed = self.objects.keys().into_iter().collect(),
            Event::InitApply(object) => {
                let key = Key::of(&object);
                self.unnamed.remove(&key);
                self.applied(key, object);
            }
            Event::InitDone => {
                for gone in mem::take(&mut self.unnamed) {
                    self.deleted(&gone);
                }
            }
            Event::Apply(object) => self.applied(Key::of(&object), object),
            Event::Delete(object) => self.deleted(&Key::of(&object)),
        }
    }

    fn first_list(&mut self) {
        self.objects.replace_all(mem::take(&mut self.first));
        self.synced.send_replace(true);
        for key in self.objects.keys() {
            if let Some(object) = self.objects.get(&key) {
                self.tell(&Change::Applied(object));
            }
        }
    }

    fn applied(&mut self, key: Key, object: K) {
        if !(self.keep)(&object) {
            self.deleted(&key);
            return;
        }
        let cached = self.objects.get(&key);
        if let Some(cached) = cached
            && cached.meta().uid == object.meta().uid
        {
            if object.meta().resource_version.is_some()
                && cached.meta().resource_version == object.meta().resource_version
            {
                return;
            }
            self.objects.put(key, &object);
            let differs = |hearer: &Hearer<K>| !(hearer.same)(&cached, &object);
            let hearers: Vec<_> = self.hearers.iter().map(differs).collect();
            let change = Change::Applied(object);
            for (hearer, _) in self.hearers.iter().zip(hearers).filter(|(_, differs)| *differs) {
                (hearer.tell)(&change);
            }
        } else {
            self.deleted(&key);
            self.objects.put(key, &object);
            self.tell(&Change::Applied(object));
        }
    }

    fn deleted(&mut self, key: &Key) {
        if let Some(cached) = self.objects.take(key) {
            self.tell(&Change::Deleted(cached));
        }
    }

    fn tell(&self, change: &Change<K>) {
        for hearer in &self.hearers {
            (hearer.tell)(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    /// A mirror of Nodes, taken for the same when their labels are, and what it told.
    struct World {
        mirror: Mirror<Node>,
        told: Arc<Mutex<Vec<String>>>,
    }

    fn world() -> World {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hearer = Arc::clone(&told);
        let hear = move |change: &Change<Node>| {
            let word = if matches!(change, Change::Applied(_)) { "+" } else { "-" };
            hearer.lock().unwrap().push(format!("{word}{}", shown(change.object())));
        };
        let hearer = Hearer {
            same: |a: &Node, b| a.metadata.labels == b.metadata.labels,
            tell: Box::new(hear),
        };
        World {
            mirror: Mirror::new(
                |node| !node.metadata.name.as_ref().unwrap().starts_with("unkept"),
                vec![hearer],
            ),
            told,
        }
    }

    fn shown(node: &Node) -> String {
        let ObjectMeta {
            name,
            uid,
            resource_version,
            ..
        } = &node.metadata;
        [name, uid, resource_version]
            .map(|part| part.as_deref().unwrap_or_default())
            .join("/")
    }

    fn held(objects: &Objects<Node>) -> Vec<String> {
        let nodes = objects.keys().into_iter().filter_map(|key| objects.get(&key));
        nodes.map(|node| shown(&node)).collect()
    }

    impl World {
        fn list(&mut self, nodes: impl IntoIterator<Item = Node>) {
            self.mirror.apply(Event::Init);
            for node in nodes {
                self.mirror.apply(Event::InitApply(node));
            }
            self.mirror.apply(Event::InitDone);
        }

        fn told(&self) -> Vec<String> {
            let mut told = std::mem::take(&mut *self.told.lock().unwrap());
            told.sort_unstable();
            told
        }

        fn held(&self) -> Vec<String> {
            let mut held = held(&self.mirror.objects);
            held.sort_unstable();
            held
        }
    }

    fn node(name: &str, uid: &str, version: &str, label: &str) -> Node {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            labels: Some([("group".to_owned(), label.to_owned())].into()),
            ..ObjectMeta::default()
        };
        Node {
            metadata,
            ..Node::default()
        }
    }

    #[test]
    fn the_first_list_is_told_when_it_is_complete() {
        let mut world = world();
        world.mirror.apply(Event::Init);
        world.mirror.apply(Event::InitApply(node("a", "1", "5", "x")));
        // It broke, and begins again.
        world.mirror.apply(Event::Init);
        world.mirror.apply(Event::InitApply(node("b", "2", "6", "x")));
        assert!(world.told().is_empty() && world.held().is_empty() && !*world.mirror.synced().borrow());
        world.mirror.apply(Event::InitDone);
        assert_eq!(world.told(), ["+b/2/6"]);
        assert_eq!(world.held(), ["b/2/6"]);
        assert!(*world.mirror.synced().borrow());
    }

    #[test]
    fn a_heartbeat_is_held_and_not_told() {
        let mut world = world();
        world.list([node("a", "1", "5", "x")]);
        world.told();
        world.mirror.apply(Event::Apply(node("a", "1", "6", "x")));
        assert_eq!((world.told(), world.held()), (vec![], vec!["a/1/6".to_owned()]));
        world.mirror.apply(Event::Apply(node("a", "1", "7", "y")));
        assert_eq!(
            (world.told(), world.held()),
            (vec!["+a/1/7".to_owned()], vec!["a/1/7".to_owned()])
        );
    }

    #[test]
    fn a_relist_tells_only_what_differs_and_what_is_gone() {
        let mut world = world();
        world.list(["same", "beat", "moved", "gone"].map(|name| node(name, name, "5", "x")));
        world.told();
        world.mirror.apply(Event::Init);
        for listed in [
            node("same", "same", "5", "x"),
            node("beat", "beat", "6", "x"),
            node("moved", "moved", "7", "y"),
        ] {
            world.mirror.apply(Event::InitApply(listed));
            assert_eq!(world.held().len(), 4, "nothing is missing while it lists");
        }
        world.mirror.apply(Event::InitApply(node("new", "new", "8", "x")));
        world.mirror.apply(Event::InitDone);
        assert_eq!(world.told(), ["+moved/moved/7", "+new/new/8", "-gone/gone/5"]);
        assert_eq!(
            world.held(),
            ["beat/beat/6", "moved/moved/7", "new/new/8", "same/same/5"]
        );
    }

    #[test]
    fn a_relist_that_breaks_deletes_nothing() {
        let mut world = world();
        world.list(["a", "b"].map(|name| node(name, name, "5", "x")));
        world.told();
        world.mirror.apply(Event::Init);
        world.mirror.apply(Event::InitApply(node("a", "a", "5", "x")));
        world.list(["a", "b"].map(|name| node(name, name, "5", "x")));
        assert!(world.told().is_empty());
        assert_eq!(world.held().len(), 2);
    }

    #[test]
    fn one_created_again_under_its_name_is_first_deleted() {
        for through_list in [true, false] {
            let mut world = world();
            world.list([node("a", "1", "5", "x")]);
            world.told();
            let again = node("a", "2", "9", "x");
            if through_list {
                world.list([again]);
            } else {
                world.mirror.apply(Event::Apply(again));
            }
            let told = std::mem::take(&mut *world.told.lock().unwrap());
            assert_eq!(told, ["-a/1/5", "+a/2/9"]);
            assert_eq!(world.held(), ["a/2/9"]);
        }
    }

    #[test]
    fn what_is_not_kept_is_as_if_it_were_not_there() {
        let mut world = world();
        let unkept = || node("unkept", "1", "5", "x");
        world.list([node("a", "2", "5", "x"), unkept()]);
        assert_eq!(
            (world.told(), world.held()),
            (vec!["+a/2/5".to_owned()], vec!["a/2/5".to_owned()])
        );
        world.mirror.apply(Event::Apply(unkept()));
        world.list([node("a", "2", "5", "x"), unkept()]);
        world.mirror.apply(Event::Delete(unkept()));
        assert!(world.told().is_empty());
    }

    #[test]
    fn one_that_is_to_be_kept_no_more_is_deleted() {
        for through_list in [false, true] {
            let mut world = world();
            world.mirror.keep = |node| node.metadata.labels.as_ref().unwrap()["group"] == "kept";
            world.list(["a", "b"].map(|name| node(name, name, "5", "kept")));
            world.told();
            let changed = node("a", "a", "6", "other");
            if through_list {
                world.list([changed, node("b", "b", "5", "kept")]);
            } else {
                world.mirror.apply(Event::Apply(changed));
            }
            assert_eq!(
                (world.told(), world.held()),
                (vec!["-a/a/5".to_owned()], vec!["b/b/5".to_owned()])
            );
            world.mirror.apply(Event::Apply(node("a", "a", "7", "kept")));
            assert_eq!(world.told(), ["+a/a/7"]);
        }
    }

    #[test]
    fn each_hearer_is_told_of_what_differs_for_it() {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let hearer = |word: &'static str, same| {
            let told = Arc::clone(&told);
            let tell =
                move |change: &Change<Node>| told.lock().unwrap().push(format!("{word}{}", shown(change.object())));
            Hearer {
                same,
                tell: Box::new(tell),
            }
        };
        let labels = |a: &Node, b: &Node| a.metadata.labels == b.metadata.labels;
        let mut mirror = Mirror::new(|_| true, vec![hearer("labels ", labels), hearer("all ", |_, _| false)]);
        mirror.apply(Event::Init);
        mirror.apply(Event::InitDone);
        for event in [
            node("a", "1", "5", "x"),
            node("a", "1", "6", "x"),
            node("a", "1", "7", "y"),
        ] {
            mirror.apply(Event::Apply(event));
        }
        assert_eq!(
            *told.lock().unwrap(),
            ["labels a/1/5", "all a/1/5", "all a/1/6", "labels a/1/7", "all a/1/7"]
        );
    }

    #[test]
    fn a_deletion_is_told_once() {
        let mut world = world();
        world.list([node("a", "1", "5", "x")]);
        world.told();
        world.mirror.apply(Event::Delete(node("a", "1", "6", "x")));
        world.mirror.apply(Event::Delete(node("a", "1", "6", "x")));
        assert_eq!((world.told(), world.held()), (vec!["-a/1/5".to_owned()], vec![]));
    }

    #[test]
    fn hearers_find_the_change_in_the_cache_as_they_are_told() {
        let (objects, seen) = (
            Arc::new(Mutex::new(None::<Arc<Objects<Node>>>)),
            Arc::new(Mutex::new(Vec::new())),
        );
        let (reader, log) = (Arc::clone(&objects), Arc::clone(&seen));
        let hear = move |change: &Change<Node>| {
            let key = Key::of(change.object());
            let held = reader.lock().unwrap().as_ref().unwrap().get(&key);
            log.lock().unwrap().push(held.map(|node| shown(&node)));
        };
        let hearer = Hearer {
            same: |_: &Node, _| false,
            tell: Box::new(hear),
        };
        let mut mirror = Mirror::new(|_| true, vec![hearer]);
        *objects.lock().unwrap() = Some(mirror.objects());
        for event in [
            Event::Init,
            Event::InitApply(node("a", "1", "5", "x")),
            Event::InitDone,
            Event::Apply(node("a", "2", "6", "x")),
            Event::Delete(node("a", "2", "7", "x")),
        ] {
            mirror.apply(event);
        }
        let held = |text: &str| Some(text.to_owned());
        assert_eq!(*seen.lock().unwrap(), [held("a/1/5"), None, held("a/2/6"), None]);
    }
}
