//! The simulated API server answers as a real one would.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what fails in a helper is the test's failure"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tidewaiter_testkit::Scratch;
use tidewaiter_testkit::sim::{ApiServer, Crash, Faults, Kind, Objects, Observer, Process, Verb, Write};

const SECOND: Duration = Duration::from_secs(1);

/// A server with two Namespaces, and a client of it.
fn server(seed: u64) -> (ApiServer, Client) {
    let kinds = [
        Kind::of::<Node>().with_status(),
        Kind::of::<Namespace>().with_status(),
        Kind::of::<ConfigMap>(),
        Kind::of::<Lease>(),
        Kind::of::<Event>(),
        Kind::new("tidewaiter.dev", "v1alpha1", "things", "Thing", false),
    ];
    let server = ApiServer::new(kinds, seed);
    for name in ["a", "b"] {
        assert!(server.create(
            "test",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        ));
    }
    let client = server.client(&Process::new("client"));
    (server, client)
}

fn node(name: &str, labels: &Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": {}})).unwrap()
}

fn config(name: &str, data: &Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        other => panic!("{other:?}"),
    }
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    refusal(result).0
}

#[tokio::test(start_paused = true)]
async fn an_object_is_created_read_replaced_and_deleted() {
    let (_, client) = server(1);
    let nodes = Api::<Node>::all(client);
    let post = PostParams::default();
    let made = nodes.create(&post, &node("n", &json!({"x": "1"}))).await.unwrap();
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    assert_eq!(
        refusal(nodes.create(&post, &made.clone()).await),
        (400, "BadRequest".to_owned())
    );
    assert_eq!(
        refusal(nodes.create(&post, &node("n", &json!({}))).await),
        (409, "AlreadyExists".to_owned())
    );

    let mut changed = nodes.get("n").await.unwrap();
    assert_eq!(changed, made);
    changed.labels_mut().insert("x".to_owned(), "2".to_owned());
    let written = nodes.replace("n", &post, &changed).await.unwrap();
    assert_ne!(written.resource_version(), made.resource_version());
    assert_eq!(written.uid(), made.uid());
    // The version that was read is older by now.
    assert_eq!(
        refusal(nodes.replace("n", &post, &changed).await),
        (409, "Conflict".to_owned())
    );
    let same = nodes.replace("n", &post, &written).await.unwrap();
    assert_eq!(
        same.resource_version(),
        written.resource_version(),
        "nothing has changed"
    );

    let other = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some("other".to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    assert_eq!(code(nodes.delete("n", &other).await), 409);
    nodes.delete("n", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(nodes.get("n").await), (404, "NotFound".to_owned()));
    assert_eq!(code(nodes.delete("n", &DeleteParams::default()).await), 404);
    let again = nodes.create(&post, &node("n", &json!({}))).await.unwrap();
    assert_ne!(again.uid(), made.uid());
}

#[tokio::test(start_paused = true)]
async fn a_merge_patch_has_preconditions_and_one_that_changes_nothing_has_no_version() {
    let (_, client) = server(1);
    let nodes = Api::<Node>::all(client);
    let made = nodes
        .create(&PostParams::default(), &node("n", &json!({"x": "1", "y": "1"})))
        .await
        .unwrap();
    let patch = async |body: Value| nodes.patch("n", &PatchParams::default(), &Patch::Merge(body)).await;
    let (uid, version) = (made.uid(), made.resource_version());
    let patched = patch(json!({"metadata": {"uid": uid, "resourceVersion": version, "labels": {"x": "2", "y": null}}}));
    let patched = patched.await.unwrap();
    assert_eq!(patched.labels(), &[("x".to_owned(), "2".to_owned())].into());
    assert_eq!(
        code(patch(json!({"metadata": {"resourceVersion": version, "labels": {"x": "3"}}})).await),
        409
    );
    assert_eq!(
        code(patch(json!({"metadata": {"uid": "other", "labels": {"x": "3"}}})).await),
        409
    );
    let same = patch(json!({"metadata": {"labels": {"x": "2", "z": null}}}))
        .await
        .unwrap();
    assert_eq!(same.resource_version(), patched.resource_version());
    // The status is another part of it.
    let status = patch(json!({"status": {"phase": "Running"}})).await.unwrap();
    assert_eq!(status.resource_version(), patched.resource_version());
    let body = json!({"status": {"phase": "Running"}, "metadata": {"labels": {"x": "9"}}});
    let status = nodes
        .patch_status("n", &PatchParams::default(), &Patch::Merge(body))
        .await
        .unwrap();
    assert_eq!(status.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(status.labels()["x"], "2");
}

#[tokio::test(start_paused = true)]
async fn server_side_apply_removes_what_its_manager_says_no_more() {
    let (_, client) = server(1);
    let configs = Api::<ConfigMap>::namespaced(client, "a");
    let apply = async |manager: &str, force: bool, data: Value| {
        let params = PatchParams {
            force,
            ..PatchParams::apply(manager)
        };
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
        configs.patch("c", &params, &Patch::Apply(&body)).await
    };
    let data = |map: &ConfigMap| serde_json::to_value(map.data.clone().unwrap_or_default()).unwrap();
    let made = apply("one", false, json!({"x": "1", "y": "1"})).await.unwrap();
    let same = apply("one", false, json!({"x": "1", "y": "1"})).await.unwrap();
    assert_eq!(same.resource_version(), made.resource_version());
    apply("two", false, json!({"y": "1", "z": "1"})).await.unwrap();
    // The first owns it with the second, who still says it.
    let less = apply("one", false, json!({"x": "2"})).await.unwrap();
    assert_eq!(data(&less), json!({"x": "2", "y": "1", "z": "1"}));
    assert_eq!(code(apply("two", false, json!({"x": "3"})).await), 409);
    let forced = apply("two", true, json!({"x": "3"})).await.unwrap();
    assert_eq!(data(&forced), json!({"x": "3"}));
    // A field that somebody else has set is neither ours to remove nor lost.
    let theirs = json!({"data": {"x": "4", "mine": "1"}});
    configs
        .patch("c", &PatchParams::default(), &Patch::Merge(theirs))
        .await
        .unwrap();
    let left = apply("two", false, json!({})).await.unwrap();
    assert_eq!(data(&left), json!({"x": "4", "mine": "1"}));
}

#[tokio::test(start_paused = true)]
async fn server_side_apply_merges_owners_and_finalizers_one_by_one() {
    let (server, client) = server(1);
    let things = |metadata: Value| {
        let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        body["metadata"]["finalizers"] = metadata["finalizers"].clone();
        body["metadata"]["ownerReferences"] = metadata["owners"].clone();
        body
    };
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Node", "name": uid, "uid": uid});
    let configs = Api::<ConfigMap>::namespaced(client, "a");
    let apply = async |manager: &str, metadata: Value| {
        let params = PatchParams::apply(manager);
        configs
            .patch("c", &params, &Patch::Apply(things(metadata)))
            .await
            .unwrap()
    };
    apply("one", json!({"finalizers": ["x/one"], "owners": [owner("1")]})).await;
    let both = apply("two", json!({"finalizers": ["x/two"], "owners": [owner("2")]})).await;
    assert_eq!(both.finalizers(), ["x/one", "x/two"]);
    assert_eq!(both.owner_references().len(), 2);
    apply("one", json!({"finalizers": [], "owners": []})).await;
    let left = server.read(|objects| objects.get("configmaps", "a", "c").cloned().unwrap());
    assert_eq!(left["metadata"]["finalizers"], json!(["x/two"]));
    assert_eq!(left["metadata"]["ownerReferences"], json!([owner("2")]));
    let fields = json!({"f:metadata": {
        "f:finalizers": {"v:\"x/two\"": {}},
        "f:ownerReferences": {"k:{\"uid\":\"2\"}": {
            ".": {}, "f:apiVersion": {}, "f:kind": {}, "f:name": {}, "f:uid": {},
        }},
    }});
    let managed = left["metadata"]["managedFields"].as_array().unwrap();
    let entry = managed.iter().find(|entry| entry["manager"] == "two").unwrap();
    assert_eq!((&entry["operation"], &entry["fieldsV1"]), (&json!("Apply"), &fields));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_delays_a_deletion_and_orphans_are_collected() {
    let (server, client) = server(1);
    let configs = Api::<ConfigMap>::namespaced(client.clone(), "a");
    let mut owner = config("owner", &json!({}));
    owner.metadata.finalizers = Some(vec!["x/hold".to_owned()]);
    let owner = configs.create(&PostParams::default(), &owner).await.unwrap();
    let mut child = config("owned", &json!({}));
    child.metadata.owner_references = Some(vec![kube::Resource::owner_ref(&owner, &()).unwrap()]);
    configs.create(&PostParams::default(), &child).await.unwrap();

    configs.delete("owner", &DeleteParams::default()).await.unwrap();
    server.collect_garbage();
    assert!(
        configs
            .get("owner")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    configs.get("owned").await.unwrap();
    let release = json!({"metadata": {"finalizers": null}});
    configs
        .patch("owner", &PatchParams::default(), &Patch::Merge(release))
        .await
        .unwrap();
    assert_eq!(code(configs.get("owner").await), 404);
    configs.get("owned").await.unwrap();
    server.collect_garbage();
    assert_eq!(code(configs.get("owned").await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_takes_nothing_new_while_it_goes_with_what_is_in_it() {
    let (server, client) = server(1);
    let (namespaces, in_a) = (
        Api::<Namespace>::all(client.clone()),
        Api::<ConfigMap>::namespaced(client.clone(), "a"),
    );
    in_a.create(&PostParams::default(), &config("c", &json!({})))
        .await
        .unwrap();
    namespaces.delete("a", &DeleteParams::default()).await.unwrap();
    let more = in_a.create(&PostParams::default(), &config("d", &json!({}))).await;
    assert_eq!(refusal(more), (403, "Forbidden".to_owned()));
    server.collect_garbage();
    assert_eq!(code(namespaces.get("a").await), 404);
    assert_eq!(code(in_a.get("c").await), 404);
    let nowhere = Api::<ConfigMap>::namespaced(client, "nowhere");
    assert_eq!(
        code(nowhere.create(&PostParams::default(), &config("c", &json!({}))).await),
        404
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages_of_one_revision() {
    let (server, client) = server(1);
    let nodes = Api::<Node>::all(client);
    for name in ["a", "b", "c", "d"] {
        nodes
            .create(
                &PostParams::default(),
                &node(name, &json!({"odd": (name < "c").to_string()})),
            )
            .await
            .unwrap();
    }
    let first = nodes.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(first.items.len(), 3);
    server.delete("test", "nodes", "", "d");
    let rest = ListParams::default()
        .limit(3)
        .continue_token(&first.metadata.continue_.unwrap());
    let second = nodes.list(&rest).await.unwrap();
    assert_eq!(second.items[0].name_any(), "d", "as it was when the list began");
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(second.metadata.continue_, None);
    server.compact();
    assert_eq!(code(nodes.list(&rest).await), 410);
    let odd = nodes
        .list_metadata(&ListParams::default().labels("odd=true").fields("metadata.name!=a"))
        .await
        .unwrap();
    assert_eq!(
        odd.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(),
        ["b"]
    );
    assert_eq!(nodes.get_metadata("b").await.unwrap().labels()["odd"], "true");
}

/// Changes between two pages show on neither of them, whether they are changes, deletions or creations, before or after
/// the first page.
#[tokio::test(start_paused = true)]
async fn what_happens_between_two_pages_is_on_neither() {
    let (server, client) = server(1);
    let nodes = Api::<Node>::all(client);
    for name in ["b", "d", "f", "h"] {
        let made = node(name, &json!({"x": "1"}));
        nodes.create(&PostParams::default(), &made).await.unwrap();
    }
    let page = |token: &str| ListParams::default().limit(2).continue_token(token);
    let first = nodes.list(&ListParams::default().limit(2)).await.unwrap();
    for name in ["a", "c", "e", "g", "i"] {
        nodes
            .create(&PostParams::default(), &node(name, &json!({})))
            .await
            .unwrap();
    }
    for value in ["2", "3"] {
        server.edit("test", "nodes", "", "f", |node| {
            node["metadata"]["labels"]["x"] = value.into();
        });
    }
    server.delete("test", "nodes", "", "h");
    server.delete("test", "nodes", "", "b");
    let second = nodes.list(&page(&first.metadata.continue_.unwrap())).await.unwrap();
    let shown: Vec<_> = second
        .items
        .iter()
        .map(|node| (node.name_any(), node.labels()["x"].as_str()))
        .collect();
    assert_eq!(shown, [("f".to_owned(), "1"), ("h".to_owned(), "1")]);
    assert_eq!(second.metadata.continue_, None);
}

/// In real time: the client is a program of its own as far as the server can tell.
#[tokio::test]
async fn it_is_served_over_http() {
    let (server, _) = server(1);
    let scratch = Scratch::new("sim");
    let port = server.serve_on_port(&Process::new("program")).await;
    let kubeconfig = Kubeconfig::read_from(port.kubeconfig(&scratch)).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let nodes = Api::<Node>::all(Client::try_from(config).unwrap());
    let made = nodes
        .create(&PostParams::default(), &node("a", &json!({})))
        .await
        .unwrap();
    let version = made.resource_version().unwrap();
    let mut watch = nodes.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    server.edit("test", "nodes", "", "a", |node| {
        node["spec"]["podCIDR"] = "10.0.0.0/24".into();
    });
    let Some(WatchEvent::Modified(changed)) = watch.try_next().await.unwrap() else {
        panic!("the change is shown");
    };
    assert_eq!(changed.spec.unwrap().pod_cidr.unwrap(), "10.0.0.0/24");
    assert_eq!(code(nodes.get("b").await), 404);
    assert!(server.writes().iter().any(|write| write.by == "program"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_what_comes_after_its_version_as_its_selector_sees_it() {
    let (server, client) = server(1);
    let nodes = Api::<Node>::all(client);
    let made = nodes
        .create(&PostParams::default(), &node("a", &json!({"x": "1"})))
        .await
        .unwrap();
    let params = WatchParams::default().labels("x=1");
    let mut watch = nodes
        .watch(&params, &made.resource_version().unwrap())
        .await
        .unwrap()
        .boxed();
    let label = |value: &'static str| move |node: &mut Value| node["metadata"]["labels"]["x"] = value.into();
    server.edit("test", "nodes", "", "a", |node| {
        node["status"]["phase"] = "Running".into();
    });
    server.edit("test", "nodes", "", "a", label("2"));
    server.edit("test", "nodes", "", "a", label("3"));
    server.edit("test", "nodes", "", "a", label("1"));
    server.delete("test", "nodes", "", "a");
    let mut seen = Vec::new();
    for _ in 0..4 {
        let word = match watch.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            other => panic!("{other:?}"),
        };
        seen.push(word);
    }
    assert_eq!(seen, ["modified", "deleted", "added", "deleted"]);
    // It ends at its time, and no earlier.
    let WatchEvent::Bookmark(_) = watch.try_next().await.unwrap().unwrap() else {
        panic!("a bookmark")
    };
    while watch.try_next().await.unwrap().is_some() {}
    assert!(server.elapsed() >= Duration::from_secs(290), "{:?}", server.elapsed());

    server.compact();
    let mut old = nodes
        .watch(&params, &made.resource_version().unwrap())
        .await
        .unwrap()
        .boxed();
    let WatchEvent::Error(gone) = old.try_next().await.unwrap().unwrap() else {
        panic!("an error")
    };
    assert_eq!(gone.code, 410);
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_what_there_is_when_it_is_asked_to() {
    let (_, client) = server(1);
    let nodes = Api::<Node>::all(client);
    nodes
        .create(&PostParams::default(), &node("a", &json!({})))
        .await
        .unwrap();
    let watch = nodes
        .watch_metadata(&WatchParams::default().initial_events(), "0")
        .await
        .unwrap();
    let first: Vec<_> = watch.take(2).try_collect().await.unwrap();
    let [WatchEvent::Added(added), WatchEvent::Bookmark(mark)] = &first[..] else {
        panic!("{first:?}")
    };
    assert_eq!(added.name_any(), "a");
    assert!(mark.metadata.annotations.contains_key("k8s.io/initial-events-end"));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_watch_ends_with_an_error_and_a_server_that_is_away_refuses() {
    let (server, client) = server(1);
    let nodes = Api::<Node>::all(client);
    let mut watch = nodes.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    server.set_away(true);
    assert!(watch.try_next().await.is_err());
    assert!(nodes.get("a").await.is_err());
    server.set_away(false);
    assert_eq!(code(nodes.get("a").await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_has_no_effect_and_an_unanswered_one_has() {
    for (lost, unanswered, there) in [(1000, 0, 0), (0, 1000, 1)] {
        let (server, client) = server(1);
        server.set_faults(Faults {
            lost,
            unanswered,
            ..Faults::none()
        });
        let nodes = Api::<Node>::all(client);
        for number in 0..10 {
            let made = node(&format!("n{number}"), &json!({}));
            let post = PostParams::default();
            let create = nodes.create(&post, &made);
            if let Ok(answer) = tokio::time::timeout(SECOND, create).await {
                assert!(matches!(answer, Err(kube::Error::Service(_))), "{answer:?}");
            }
        }
        assert_eq!(server.read(|objects| objects.all("nodes").count()), 10 * there);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_arrives_although_its_client_has_given_up() {
    let (server, client) = server(1);
    server.set_faults(Faults {
        slow: 1000,
        ..Faults::none()
    });
    let nodes = Api::<Node>::all(client);
    let (made, post) = (node("n", &json!({})), PostParams::default());
    let hasty = tokio::time::timeout(Duration::from_millis(1), nodes.create(&post, &made)).await;
    assert!(hasty.is_err());
    assert_eq!(server.read(|objects| objects.all("nodes").count()), 0);
    tokio::time::advance(Faults::SLOW).await;
    tokio::task::yield_now().await;
    assert_eq!(server.read(|objects| objects.all("nodes").count()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_process_dies_before_or_after_one_of_its_writes() {
    for (crash, there) in [(Crash::Before(1), 1), (Crash::After(1), 2)] {
        let (server, _) = server(1);
        let process = Process::new("p");
        let nodes = Api::<Node>::all(server.client(&process));
        process.kill_at(crash);
        let post = PostParams::default();
        nodes.create(&post, &node("a", &json!({}))).await.unwrap();
        let (b, c) = (node("b", &json!({})), node("c", &json!({})));
        tokio::select! {
            biased;
            () = process.died() => {}
            result = nodes.create(&post, &b) => panic!("{result:?}"),
        }
        let nothing = tokio::time::timeout(SECOND, nodes.create(&post, &c)).await;
        assert!(nothing.is_err());
        assert_eq!(server.read(|objects| objects.all("nodes").count()), there, "{crash:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_process_receives_nothing_until_it_goes_on() {
    let (server, _) = server(1);
    let process = Process::new("p");
    let nodes = Api::<Node>::all(server.client(&process));
    let mut watch = nodes.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    process.stop();
    server.create(
        "test",
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
    );
    assert!(tokio::time::timeout(SECOND, watch.try_next()).await.is_err());
    assert!(tokio::time::timeout(SECOND, nodes.get("n")).await.is_err());
    process.resume(&mut fastrand::Rng::with_seed(1));
    let WatchEvent::Added(added) = watch.try_next().await.unwrap().unwrap() else {
        panic!("an event")
    };
    assert_eq!(added.name_any(), "n");
}

/// Two clients that write at once while everything goes wrong.
async fn noise(seed: u64) -> String {
    let (server, client) = server(seed);
    server.set_faults(Faults::drawn(&mut fastrand::Rng::with_seed(seed)));
    let other = server.client(&Process::new("other"));
    let writes = async |client: Client| {
        let things = Api::<Node>::all(client);
        for number in 0..20 {
            let name = format!("n{}", number % 3);
            let made = node(&name, &json!({"x": number.to_string()}));
            let one = async {
                drop(things.create(&PostParams::default(), &made).await);
                drop(things.delete(&name, &DeleteParams::default()).await);
            };
            drop(tokio::time::timeout(30 * SECOND, one).await);
        }
    };
    futures::join!(writes(client), writes(other));
    server.log()
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_log() {
    for seed in 0..20 {
        assert_eq!(noise(seed).await, noise(seed).await, "{seed}");
    }
    assert_ne!(noise(1).await, noise(2).await);
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_each_write_as_it_is_sent_and_as_it_arrives() {
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);
    impl Observer for Seen {
        fn sent(&mut self, by: &str, verb: Verb, resource: &str, objects: Objects<'_>) {
            let there = objects.all("nodes").count();
            self.0
                .lock()
                .unwrap()
                .push(format!("{by} {} {resource} {there}", verb.as_str()));
        }

        fn written(&mut self, write: &Write, objects: Objects<'_>) {
            let there = objects.all("nodes").count();
            self.0
                .lock()
                .unwrap()
                .push(format!("{} {} {there}", write.code, write.has_changed()));
        }
    }
    let (server, client) = server(1);
    let seen = Seen::default();
    server.observe(seen.clone());
    let nodes = Api::<Node>::all(client);
    nodes
        .create(&PostParams::default(), &node("n", &json!({})))
        .await
        .unwrap();
    let nothing = Patch::Merge(json!({"metadata": {"labels": {"x": null}}}));
    nodes.patch("n", &PatchParams::default(), &nothing).await.unwrap();
    let seen = seen.0.lock().unwrap().clone();
    assert_eq!(
        seen,
        [
            "client create nodes 0",
            "201 true 1",
            "client patch nodes 1",
            "200 false 1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_name_is_made_from_its_prefix() {
    let (_, client) = server(1);
    let configs = Api::<ConfigMap>::namespaced(client, "a");
    let made: ConfigMap = serde_json::from_value(json!({"metadata": {"generateName": "x-"}})).unwrap();
    let one = configs.create(&PostParams::default(), &made).await.unwrap();
    let two = configs.create(&PostParams::default(), &made).await.unwrap();
    assert!(one.name_any().starts_with("x-") && one.name_any() != two.name_any());
}
