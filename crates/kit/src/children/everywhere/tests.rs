use std::sync::Mutex;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::cache::Feed;
use crate::client::by_hand;
use crate::leader::Leadership;
use crate::retry::{ReconcileError as _, Retry};
use crate::testing::kit;

const OURS: &str = "ours";

/// A ConfigMap with this value; its child is cached whole.
struct Wanted(&'static str, &'static str);

impl Desired for Wanted {
    type Child = ConfigMap;
    type Body = ConfigMap;

    fn name(&self) -> &str {
        self.0
    }

    fn body(&self, namespace: &str) -> Option<ConfigMap> {
        Some(child(namespace, self.0, self.1, true))
    }

    fn difference(&self, child: &ConfigMap) -> Difference {
        match &child.data.as_ref().unwrap()["value"] {
            value if value == "unlabelled" => Difference::Unlabelled(self.full_patch().unwrap()),
            _ if !self.owns(&child.metadata) => Difference::Foreign,
            value if value == self.1 => Difference::None,
            value if value == "immutable" => Difference::Replace,
            _ => Difference::Patch(self.full_patch().unwrap()),
        }
    }

    fn owns(&self, metadata: &ObjectMeta) -> bool {
        metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(OURS))
    }

    fn full_patch(&self) -> Option<Value> {
        Some(json!({"data": {"value": self.1}}))
    }
}

fn child(namespace: &str, name: &str, value: &str, ours: bool) -> ConfigMap {
    let labels = if ours { json!({OURS: "1"}) } else { json!({}) };
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1", "labels": labels},
        "data": {"value": value},
    }))
    .unwrap()
}

fn namespace(name: &str, terminating: bool) -> Metadata<Namespace> {
    let deletion = terminating.then_some("2026-01-01T00:00:00Z");
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "uid": name, "deletionTimestamp": deletion},
    }))
    .unwrap()
}

struct World {
    namespaces: Feed<Metadata<Namespace>>,
    children: Feed<ConfigMap>,
    everywhere: Everywhere<ConfigMap>,
    writer: Arc<Writer>,
    requests: Arc<Mutex<Vec<String>>>,
}

/// A POST of `hidden` or `taken` conflicts: the first is ours, although the cache does not show it. One of `refused` is
/// refused.
fn world() -> World {
    let (kit, _) = kit();
    let (mut namespaces, namespace_cache) = Feed::new(&kit);
    namespaces.list([namespace("n", false), namespace("ending", true)]);
    let (children, child_cache) = Feed::new(&kit);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requests);
    let answer = move |request: http::Request<Bytes>| {
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let in_path = request.uri().path().rsplit('/').next().unwrap();
        let name = body["metadata"]["name"].as_str().unwrap_or(in_path).to_owned();
        log.lock().unwrap().push(format!("{} {name}", request.method()));
        let refusal = |code, reason: &str| {
            let status =
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"});
            (code, status)
        };
        let (code, body) = match (request.method().as_str(), name.as_str()) {
            ("POST", "hidden" | "taken") => refusal(409, "AlreadyExists"),
            ("POST", "refused") => refusal(403, "Forbidden"),
            (_, name) => {
                let labels = if matches!(name, "taken" | "others") {
                    json!({})
                } else {
                    json!({OURS: "1"})
                };
                let meta =
                    json!({"name": name, "namespace": "n", "uid": name, "resourceVersion": "9", "labels": labels});
                (200, json!({ "metadata": meta }))
            }
        };
        let body = Full::new(Bytes::from(body.to_string()))
            .map_err(Into::into)
            .boxed_unsync();
        std::future::ready(Ok(Response::builder().status(code).body(body).unwrap()))
    };
    let client = by_hand::client(answer, &Leadership::always(Arc::clone(&kit.clock)), &kit);
    World {
        namespaces,
        children,
        everywhere: Everywhere::new(namespace_cache, child_cache),
        writer: Arc::new(Writer::new(client, "test", Arc::clone(&kit.clock))),
        requests,
    }
}

impl World {
    async fn ensure(&self, namespace: &str, desired: &[Wanted], unwanted: &[&str]) -> Result<Next, ChildrenError> {
        let mut pass = Pass::by_hand(Key::new(namespace));
        let desired: Vec<&Wanted> = desired.iter().collect();
        let unwanted: Vec<Key> = unwanted.iter().map(|name| Key::namespaced(namespace, name)).collect();
        self.everywhere
            .ensure(&self.writer, &mut pass, &desired, &unwanted)
            .await
    }

    fn requests(&self) -> Vec<String> {
        let mut requests = std::mem::take(&mut *self.requests.lock().unwrap());
        requests.sort_unstable();
        requests
    }
}

#[tokio::test]
async fn each_difference_is_one_write_and_none_is_no_write() {
    let mut world = world();
    world.children.list([
        child("n", "same", "v", true),
        child("n", "edited", "other", true),
        child("n", "fixed", "immutable", true),
        child("n", "unwanted", "v", true),
    ]);
    let desired = || {
        [
            Wanted("same", "v"),
            Wanted("edited", "v"),
            Wanted("fixed", "v"),
            Wanted("new", "v"),
        ]
    };
    let unwanted = ["unwanted", "gone-already"];
    assert_eq!(
        world.ensure("n", &desired(), &unwanted).await.unwrap(),
        Next::UntilChanged
    );
    assert_eq!(
        world.requests(),
        [
            "DELETE fixed",
            "DELETE unwanted",
            "PATCH edited",
            "POST fixed",
            "POST new"
        ]
    );
    // The cache does not show them yet.
    assert_eq!(
        world.ensure("n", &desired(), &unwanted).await.unwrap(),
        Next::Pending(CACHE_CATCH_UP_DELAY)
    );
    assert!(world.requests().is_empty());
}

#[tokio::test]
async fn nothing_is_written_where_a_namespace_terminates_or_is_gone() {
    let mut world = world();
    world.children.list([child("ending", "unwanted", "v", true)]);
    for namespace in ["ending", "gone"] {
        let next = world.ensure(namespace, &[Wanted("new", "v")], &["unwanted"]).await;
        assert_eq!(next.unwrap(), Next::UntilChanged);
    }
    assert!(world.requests().is_empty());
}

#[tokio::test]
async fn an_object_of_somebody_else_is_reported_and_one_of_ours_that_the_cache_hides_is_put_right() {
    let mut world = world();
    world.children.list([
        child("n", "seen", "v", false),
        child("n", "stripped", "unlabelled", false),
        child("n", "others", "unlabelled", false),
    ]);
    let desired = ["seen", "taken", "hidden", "stripped", "others"].map(|name| Wanted(name, "v"));
    let error = world.ensure("n", &desired, &[]).await.unwrap_err();
    assert_eq!((error.class(), error.retry()), ("foreign", Retry::Slow));
    let said = error.to_string();
    assert!(said.contains("n/others, n/seen, n/taken exists"), "{said}");
    assert_eq!(
        world.requests(),
        [
            "GET hidden",
            "GET others",
            "GET stripped",
            "GET taken",
            "PATCH hidden",
            "PATCH stripped",
            "POST hidden",
            "POST taken"
        ]
    );
}

#[tokio::test]
async fn one_refused_write_stops_no_other() {
    let mut world = world();
    world.children.list([]);
    let error = world
        .ensure("n", &[Wanted("refused", "v"), Wanted("new", "v")], &[])
        .await;
    assert_eq!(error.unwrap_err().class(), "denied");
    assert_eq!(world.requests(), ["POST new", "POST refused"]);
}

#[tokio::test]
async fn a_namespace_is_queued_when_it_comes_terminates_or_loses_a_child() {
    let (mut world, queue) = (world(), Queue::new());
    world.children.list([child("gone", "a", "edited", true)]);
    world.everywhere.notify(&queue, &world.writer, is_settled);
    let waiting = || {
        std::iter::from_fn(|| queue.try_next())
            .map(|key| key.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(waiting(), ["ending", "n"], "a child that exists queues nothing");
    world.namespaces.put(namespace("new", false));
    assert_eq!(waiting(), ["new"]);
    world.namespaces.put(namespace("new", false));
    assert!(waiting().is_empty(), "nothing that matters changed");
    world.namespaces.put(namespace("new", true));
    world.children.put(child("n", "a", "edited", true));
    assert_eq!(waiting(), ["new", "n"]);
    world.children.delete(child("n", "a", "edited", true));
    assert_eq!(waiting(), ["n"]);
}

#[tokio::test]
async fn a_namespace_is_queued_when_it_opts_out_or_in() {
    let (mut world, queue) = (world(), Queue::new());
    world.everywhere = world.everywhere.with_opt_out("example.com/children", "none");
    world.children.list([]);
    world.everywhere.notify(&queue, &world.writer, is_settled);
    while queue.try_next().is_some() {}
    let n = Key::new("n");
    for (label, opted_out, queued) in [
        (Some("none"), true, true),
        (Some("none"), true, false),
        (Some("other"), false, true),
        (None, false, false),
    ] {
        let mut labelled = namespace("n", false);
        let label = label.map(|value| [("example.com/children".to_owned(), value.to_owned())].into());
        labelled.metadata.labels = label;
        world.namespaces.put(labelled);
        assert_eq!(world.everywhere.is_opted_out(&n), opted_out);
        assert_eq!(queue.try_next().is_some(), queued);
    }
}

/// The pass that the label starts sees no child yet.
#[tokio::test]
async fn a_child_that_is_created_while_its_namespace_opts_out_is_deleted() {
    let (mut world, queue) = (world(), Queue::new());
    world.everywhere = world.everywhere.with_opt_out("example.com/children", "none");
    world.children.list([]);
    world.everywhere.notify(&queue, &world.writer, is_settled);
    while queue.try_next().is_some() {}
    world.ensure("n", &[Wanted("a", "v")], &[]).await.unwrap();
    let mut labelled = namespace("n", false);
    labelled.metadata.labels = Some([("example.com/children".to_owned(), "none".to_owned())].into());
    world.namespaces.put(labelled);
    assert_eq!(queue.try_next(), Some(Key::new("n")));
    // What is unwanted is read from the cache.
    assert_eq!(world.ensure("n", &[], &[]).await.unwrap(), Next::UntilChanged);
    let mut written = child("n", "a", "v", true);
    written.metadata.resource_version = Some("9".to_owned());
    world.children.put(written);
    assert_eq!(queue.try_next(), Some(Key::new("n")));
    world.ensure("n", &[], &["a"]).await.unwrap();
    assert_eq!(world.requests(), ["DELETE a", "POST a"]);
}

/// Our own writes are most of the changes, and a pass would find nothing to do.
#[tokio::test]
async fn a_child_that_is_as_desired_causes_no_pass_and_is_not_awaited() {
    let (mut world, queue) = (world(), Queue::new());
    world.children.list([]);
    world.everywhere.notify(&queue, &world.writer, is_settled);
    while queue.try_next().is_some() {}
    let desired = [Wanted("a", "v"), Wanted("b", "v")];
    assert_eq!(world.ensure("n", &desired[..1], &[]).await.unwrap(), Next::UntilChanged);
    world.requests();
    // The cache does not show the first one yet, which keeps the second one from nothing.
    assert_eq!(
        world.ensure("n", &desired, &[]).await.unwrap(),
        Next::Pending(CACHE_CATCH_UP_DELAY)
    );
    assert_eq!(world.requests(), ["POST b"]);
    for name in ["a", "b"] {
        let mut written = child("n", name, "v", true);
        written.metadata.resource_version = Some("9".to_owned());
        world.children.put(written);
        let key = Key::namespaced("n", name);
        assert!(!world.writer.awaits::<ConfigMap>(&key, None), "it is forgotten");
    }
    assert!(queue.is_empty(), "nothing is to be done");
    let mut edited = child("n", "a", "edited", true);
    edited.metadata.resource_version = Some("10".to_owned());
    world.children.put(edited);
    assert_eq!(queue.try_next(), Some(Key::new("n")));
}

fn is_settled(child: &ConfigMap) -> bool {
    Wanted("", "v").difference(child) == Difference::None
}
