use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Node;

use super::*;
use crate::cache::Trigger;
use crate::cache::{Cache, Feed};
use crate::index::Index;
use crate::testing::kit;

/// A cache of Nodes whose subscriber ignores updates that leave the labels alone, and what the subscriber was told.
struct World {
    feed: Feed<Node>,
    cache: Cache<Node>,
    told: Arc<Mutex<Vec<String>>>,
}

fn world() -> World {
    world_that_keeps(|_| true)
}

fn world_that_keeps(keep: fn(&Node) -> bool) -> World {
    let (kit, _) = kit();
    let (feed, cache) = Feed::keeping(&kit, keep);
    let told = Arc::new(Mutex::new(Vec::new()));
    let subscriber = Arc::clone(&told);
    let call = move |change: &Change<'_, Node>| {
        let word = if change.after.is_some() { "+" } else { "-" };
        subscriber
            .lock()
            .unwrap()
            .push(format!("{word}{}", shown(change.object())));
    };
    cache.notify(Trigger::calls(call).unless(|a: &Node, b| a.metadata.labels == b.metadata.labels));
    World { feed, cache, told }
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

impl World {
    fn apply(&mut self, event: Event<Node>) {
        self.feed.apply(event);
    }

    fn list(&mut self, nodes: impl IntoIterator<Item = Node>) {
        self.feed.list(nodes);
    }

    fn told(&self) -> Vec<String> {
        let mut told = std::mem::take(&mut *self.told.lock().unwrap());
        told.sort_unstable();
        told
    }

    fn held(&self) -> Vec<String> {
        self.cache.iter().map(|node| shown(&node)).collect()
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
    world.apply(Event::Init);
    world.apply(Event::InitApply(node("a", "1", "5", "x")));
    // It broke, and begins again.
    world.apply(Event::Init);
    world.apply(Event::InitApply(node("b", "2", "6", "x")));
    assert!(world.told().is_empty() && world.held().is_empty() && !world.cache.is_synced());
    world.apply(Event::InitDone);
    assert_eq!(world.told(), ["+b/2/6"]);
    assert_eq!(world.held(), ["b/2/6"]);
    assert!(world.cache.is_synced());
}

#[test]
fn a_heartbeat_is_held_and_not_told() {
    let mut world = world();
    world.list([node("a", "1", "5", "x")]);
    world.told();
    world.apply(Event::Apply(node("a", "1", "6", "x")));
    assert_eq!((world.told(), world.held()), (vec![], vec!["a/1/6".to_owned()]));
    world.apply(Event::Apply(node("a", "1", "7", "y")));
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
    world.apply(Event::Init);
    for listed in [
        node("same", "same", "5", "x"),
        node("beat", "beat", "6", "x"),
        node("moved", "moved", "7", "y"),
    ] {
        world.apply(Event::InitApply(listed));
        assert_eq!(world.held().len(), 4, "nothing is missing while it lists");
    }
    world.apply(Event::InitApply(node("new", "new", "8", "x")));
    world.apply(Event::InitDone);
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
    world.apply(Event::Init);
    world.apply(Event::InitApply(node("a", "a", "5", "x")));
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
            world.apply(Event::Apply(again));
        }
        let told = std::mem::take(&mut *world.told.lock().unwrap());
        assert_eq!(told, ["-a/1/5", "+a/2/9"]);
        assert_eq!(world.held(), ["a/2/9"]);
    }
}

#[test]
fn what_is_not_kept_is_as_if_it_were_not_there() {
    let mut world = world_that_keeps(|node| !node.metadata.name.as_ref().unwrap().starts_with("unkept"));
    let unkept = || node("unkept", "1", "5", "x");
    world.list([node("a", "2", "5", "x"), unkept()]);
    assert_eq!(
        (world.told(), world.held()),
        (vec!["+a/2/5".to_owned()], vec!["a/2/5".to_owned()])
    );
    world.apply(Event::Apply(unkept()));
    world.list([node("a", "2", "5", "x"), unkept()]);
    world.apply(Event::Delete(unkept()));
    assert!(world.told().is_empty());
}

#[test]
fn one_that_is_to_be_kept_no_more_is_deleted() {
    for through_list in [false, true] {
        let mut world = world_that_keeps(|node| node.metadata.labels.as_ref().unwrap()["group"] == "kept");
        world.list(["a", "b"].map(|name| node(name, name, "5", "kept")));
        world.told();
        let changed = node("a", "a", "6", "other");
        if through_list {
            world.list([changed, node("b", "b", "5", "kept")]);
        } else {
            world.apply(Event::Apply(changed));
        }
        assert_eq!(
            (world.told(), world.held()),
            (vec!["-a/a/5".to_owned()], vec!["b/b/5".to_owned()])
        );
        world.apply(Event::Apply(node("a", "a", "7", "kept")));
        assert_eq!(world.told(), ["+a/a/7"]);
    }
}

#[test]
fn each_trigger_is_called_for_what_differs_for_it() {
    let (kit, _) = kit();
    let (mut feed, cache) = Feed::<Node>::new(&kit);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let trigger = |word: &'static str| {
        let told = Arc::clone(&told);
        Trigger::calls(move |change: &Change<'_, Node>| {
            told.lock().unwrap().push(format!("{word}{}", shown(change.object())));
        })
    };
    cache.notify(trigger("labels ").unless(|a, b| a.metadata.labels == b.metadata.labels));
    cache.notify(trigger("all "));
    feed.list([]);
    for event in [
        node("a", "1", "5", "x"),
        node("a", "1", "6", "x"),
        node("a", "1", "7", "y"),
    ] {
        feed.put(event);
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
    world.apply(Event::Delete(node("a", "1", "6", "x")));
    world.apply(Event::Delete(node("a", "1", "6", "x")));
    assert_eq!((world.told(), world.held()), (vec!["-a/1/5".to_owned()], vec![]));
}

#[test]
fn subscribers_find_the_change_in_the_cache() {
    let (kit, _) = kit();
    let (mut feed, cache) = Feed::<Node>::new(&kit);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (reader, log) = (cache.clone(), Arc::clone(&seen));
    cache.notify(Trigger::calls(move |change: &Change<'_, Node>| {
        let held = reader.get(&Key::of(change.object()));
        log.lock().unwrap().push(held.map(|node| shown(&node)));
    }));
    feed.list([node("a", "1", "5", "x")]);
    feed.put(node("a", "2", "6", "x"));
    feed.delete(node("a", "2", "7", "x"));
    let held = |text: &str| Some(text.to_owned());
    assert_eq!(*seen.lock().unwrap(), [held("a/1/5"), None, held("a/2/6"), None]);
}

#[test]
fn indexes_are_updated_before_any_trigger_is_called() {
    let (kit, _) = kit();
    let (mut feed, cache) = Feed::<Node>::new(&kit);
    let index = Arc::new(Mutex::new(None::<Index<String>>));
    let (seen, read) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&index));
    let record = Arc::clone(&seen);
    // The trigger is added first.
    cache.notify(Trigger::calls(move |_: &Change<'_, Node>| {
        let index = read.lock().unwrap().clone().unwrap();
        record.lock().unwrap().push(index.keys(&"x".to_owned()).len());
    }));
    let label = |node: &Node| node.metadata.labels.as_ref().unwrap()["group"].clone();
    *index.lock().unwrap() = Some(cache.index(move |node| [label(node)]));
    feed.list(["a", "b", "c"].map(|name| node(name, name, "5", "x")));
    assert_eq!(*seen.lock().unwrap(), [3, 3, 3], "the first list as a whole");
    feed.put(node("a", "a", "6", "y"));
    feed.put(node("d", "d", "7", "x"));
    feed.delete(node("b", "b", "5", "x"));
    assert_eq!(seen.lock().unwrap()[3..], [2, 3, 2]);
}

#[test]
fn who_comes_late_hears_of_what_is_there() {
    let mut world = world();
    world.list([node("a", "1", "5", "x"), node("b", "2", "5", "y")]);
    let index = world
        .cache
        .index(|node: &Node| node.metadata.labels.clone().unwrap().into_values());
    assert_eq!(index.keys(&"x".to_owned()), [Key::new("a")]);
    let calls = Arc::new(Mutex::new(0));
    let count = Arc::clone(&calls);
    world
        .cache
        .notify(Trigger::calls(move |_: &Change<'_, Node>| *count.lock().unwrap() += 1));
    assert_eq!(*calls.lock().unwrap(), 2);
}
