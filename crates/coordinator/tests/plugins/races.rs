//! Two coordinators at once, and what others do at the last moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::{Action, ApiProxy, ApiRequest, Gate, eventually};

use crate::cluster::{SOON, coordinator};
use crate::jobs::{self, job};
use crate::world::{World, config, id};

/// Seconds in which a busy API server tells of what has happened.
const PATIENCE: u32 = 5;

/// The number of changes of each ConfigMap of the plugin since this version of the list.
async fn changes(world: &World, since: &str) -> BTreeMap<String, usize> {
    let params = WatchParams::default()
        .labels(&format!("{PLUGIN_LABEL}={}", id(1)))
        .disable_bookmarks()
        .timeout(PATIENCE);
    let configs = world.configs();
    let events = configs.watch(&params, since).await.unwrap();
    let events: Vec<WatchEvent<DynamicObject>> = events.try_collect().await.unwrap();
    let mut changes = BTreeMap::new();
    for event in events {
        let WatchEvent::Modified(object) = event else {
            panic!("{event:?}")
        };
        *changes.entry(object.metadata.name.unwrap()).or_default() += 1;
    }
    changes
}

fn writes(request: &ApiRequest, end: &str) -> bool {
    request.is_write() && request.path.ends_with(end)
}

#[tokio::test]
async fn a_status_that_the_cache_does_not_show_yet_is_replaced() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let running = world.run_through(&proxy).await;
    world.is_ready(1, "1.0.0").await;
    world.is_quiet().await;

    // From now on the cache has the Plugin as it is now.
    let (gate, is_denied) = (Gate::new(), Arc::new(AtomicBool::new(true)));
    let (held, denies) = (gate.clone(), Arc::clone(&is_denied));
    proxy.hook(move |request| {
        if request.is_watch() && request.resource() == "plugins" {
            Action::Hold(held.clone())
        } else if denies.load(Ordering::SeqCst) && writes(request, "/configmaps/one") {
            Action::refuse(403, "Forbidden", "not now")
        } else {
            Action::Forward
        }
    });
    proxy.cut_watches();
    eventually("the watch of the plugins", SOON, async || {
        if gate.held() > 0 {
            Ok(())
        } else {
            Err("it is not there")
        }
    })
    .await;
    world.delete(&world.configs(), "one").await;
    world.condition(1, "1.0.0", "Ready", "False Denied").await;
    // The status becomes what the cache has all the time.
    is_denied.store(false, Ordering::SeqCst);
    world.is_ready(1, "1.0.0").await;
    assert!(gate.held() > 0, "the cache shows nothing new");
    gate.open();
    proxy.clear_hook();
    world.is_quiet().await;
    running.stop().await;
}

#[tokio::test]
async fn a_takeover_in_the_middle_of_an_upgrade_changes_nothing_twice() {
    let world = World::start().await;
    let groups = |value: &str| json!([[config("a", value)], [config("b", value)], [config("c", value)]]);
    let after = json!({"post_apply": [job("after")]});
    world.offer(1, "1.0.0", &groups("1"));
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let first = world.run_through(&proxy).await;
    world.is_ready(1, "1.0.0").await;
    let before = world
        .configs()
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version;

    // The first one is cut off from its second write on, which is under way.
    let (gate, is_cut) = (Gate::new(), AtomicBool::new(false));
    let held = gate.clone();
    proxy.hook(move |request| {
        if writes(request, "/configmaps/b") && !is_cut.swap(true, Ordering::SeqCst) {
            return Action::Hold(held.clone());
        }
        if is_cut.load(Ordering::SeqCst) {
            Action::Drop
        } else {
            Action::Forward
        }
    });
    world.offer_with(1, "2.0.0", &groups("2"), &after);
    eventually("the second write", SOON, async || {
        if gate.held() == 1 {
            Ok(())
        } else {
            Err("it is not there")
        }
    })
    .await;
    let _second = world.run(PluginSettings::default()).await;
    let name = jobs::name_of(&world, "after", "").await;
    gate.open();
    jobs::ends(&world, &name, true).await;
    world.is_ready(1, "2.0.0").await;
    world.is_quiet().await;
    let once = BTreeMap::from(["a", "b", "c"].map(|name| (name.to_owned(), 1)));
    assert_eq!(changes(&world, &before.unwrap()).await, once);
    assert_eq!(jobs::name_of(&world, "after", "").await, name, "it ran twice");
    drop(first);

    // A write of an earlier leader that arrives when the next version is there.
    world.offer(1, "3.0.0", &groups("3"));
    world.is_ready(1, "3.0.0").await;
    world.is_quiet().await;
    let mut late = config("b", "2");
    late["metadata"]["labels"] = json!({PLUGIN_LABEL: id(1)});
    let as_before = PatchParams::apply("tidewaiter/plugin").force();
    world
        .configs()
        .patch("b", &as_before, &Patch::Apply(late))
        .await
        .unwrap();
    world.config_is("b", Some("3")).await;
}

#[tokio::test]
async fn what_appears_at_the_last_moment_stays_as_it_is() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let (gate, held) = (Gate::new(), Gate::new());
    let (of_config, of_other) = (gate.clone(), held.clone());
    proxy.hook(move |request| {
        if writes(request, "/configmaps/theirs") {
            Action::Hold(of_config.clone())
        } else if writes(request, "/configmaps/both") {
            Action::Hold(of_other.clone())
        } else {
            Action::Forward
        }
    });
    let running = world.run_through(&proxy).await;
    world.offer(1, "1.0.0", &json!([[config("theirs", "1")]]));
    eventually("the creation", SOON, async || {
        if gate.held() == 1 {
            Ok(())
        } else {
            Err("it is not there")
        }
    })
    .await;
    // Somebody else creates it, with fields that the plugin does not have.
    let mut theirs: DynamicObject = serde_json::from_value(config("theirs", "")).unwrap();
    theirs.data["data"] = json!({"b": "theirs"});
    let created = world.configs().create(&PostParams::default(), &theirs).await.unwrap();
    gate.open();
    world.condition(1, "1.0.0", "Stalled", "True ForeignObject").await;
    let found = world.configs().get("theirs").await.unwrap();
    assert_eq!(found.metadata.resource_version, created.metadata.resource_version);

    // Of two plugins that create the same object at once, one gets it, and the other says so.
    for number in [2, 3] {
        world.offer(number, "1.0.0", &json!([[config("both", &number.to_string())]]));
    }
    eventually("both creations", SOON, async || {
        if held.held() == 2 {
            Ok(())
        } else {
            Err(format!("{}", held.held()))
        }
    })
    .await;
    let before = world
        .configs()
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version;
    held.open();
    let found = eventually("the object", SOON, async || {
        let found = world.configs().get_opt("both").await.unwrap();
        found.ok_or("there is none")
    })
    .await;
    let value = found.data["data"]["a"].as_str().unwrap().parse::<usize>().unwrap();
    world.is_ready(value, "1.0.0").await;
    let message = world
        .condition(5 - value, "1.0.0", "Stalled", "True ForeignObject")
        .await;
    assert!(message.contains(&id(value)), "{message}");
    let params = WatchParams::default().disable_bookmarks().timeout(PATIENCE);
    let (configs, before) = (world.configs(), before.unwrap());
    let events = configs.watch(&params, &before).await.unwrap();
    let events: Vec<_> = events.map(|event| is_of("both", event.unwrap())).collect().await;
    assert_eq!(
        events.into_iter().filter(|is_of| *is_of).count(),
        1,
        "it was changed after its creation"
    );
    running.stop().await;
}

fn is_of(name: &str, event: WatchEvent<DynamicObject>) -> bool {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            object.metadata.name.as_deref() == Some(name)
        }
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => false,
    }
}

/// With the definition, everything of it: also an instance that the version with another version of the definition does
/// not have any more.
#[tokio::test]
async fn what_was_applied_in_a_version_that_is_not_served_any_more_is_removed() {
    let world = World::start().await;
    let definition = |served: &str| {
        let version = |name: &str| {
            json!({"name": name, "served": name == served, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
        };
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.versions.example.com"}, "spec": {"group": "versions.example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}, "versions": [version("v1"), version("v2")]}})
    };
    let widget = |version: &str, name: &str| json!({"apiVersion": format!("versions.example.com/{version}"), "kind": "Widget", "metadata": {"name": name}});
    let widgets = world.objects("versions.example.com/v2", "widgets", "Widget", Some("default"));
    for (number, kept) in [(1, vec![]), (2, vec![widget("v2", "kept")])] {
        world.offer(
            number,
            "1.0.0",
            &json!([[definition("v1")], [widget("v1", "gone"), widget("v1", "kept")]]),
        );
        let running = world.run(PluginSettings::default()).await;
        world.is_ready(number, "1.0.0").await;
        let has_some = !kept.is_empty();
        world.offer(number, "2.0.0", &json!([[definition("v2")], kept]));
        world.is_ready(number, "2.0.0").await;
        world.shows(&widgets, "gone", Value::is_null).await;
        world.shows(&widgets, "kept", |found| found.is_null() != has_some).await;
        world.withdraw(number);
        world.is_forgotten(number).await;
        world.has_exactly(number, &[].into()).await;
        running.stop().await;
    }
}

/// The API server's lists of what it serves lag behind a change of a definition: here they have no version at all for a
/// time.
#[tokio::test]
async fn what_the_api_server_is_about_to_serve_is_not_taken_for_gone() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let lags = Arc::new(AtomicBool::new(false));
    let (lag, asked) = (Arc::clone(&lags), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&asked);
    proxy.hook(move |request| match request.path.as_str() {
        "/apis" if lag.load(Ordering::SeqCst) => {
            let none = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []});
            Action::Reply {
                status: 200,
                body: none.to_string(),
            }
        }
        path if path.ends_with("/customresourcedefinitions") && !request.query.contains("labelSelector") => {
            seen.fetch_add(1, Ordering::SeqCst);
            Action::Forward
        }
        path if path.starts_with("/apis/lags.example.com") && lag.load(Ordering::SeqCst) => {
            Action::refuse(404, "NotFound", "the server could not find the requested resource")
        }
        _ => Action::Forward,
    });
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.lags.example.com"}, "spec": {"group": "lags.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}, "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let widget = json!({"apiVersion": "lags.example.com/v1", "kind": "Widget", "metadata": {"name": "gone"}});
    let widgets = world.objects("lags.example.com/v1", "widgets", "Widget", Some("default"));
    world.offer(1, "1.0.0", &json!([[definition], [widget]]));
    let running = world.run_through(&proxy).await;
    world.is_ready(1, "1.0.0").await;
    lags.store(true, Ordering::SeqCst);
    world.offer(1, "2.0.0", &json!([[definition]]));
    eventually("two looks at the definitions", SOON, async || {
        let times = asked.load(Ordering::SeqCst);
        if times > 1 { Ok(()) } else { Err(format!("{times}")) }
    })
    .await;
    lags.store(false, Ordering::SeqCst);
    world.is_ready(1, "2.0.0").await;
    world.shows(&widgets, "gone", Value::is_null).await;

    // The whole plugin goes, its definition too: its widget is not left in the way of the definition.
    world.offer(1, "3.0.0", &json!([[definition], [widget]]));
    world.is_ready(1, "3.0.0").await;
    lags.store(true, Ordering::SeqCst);
    let before = asked.load(Ordering::SeqCst);
    world.withdraw(1);
    eventually("two looks at the definitions", SOON, async || {
        let times = asked.load(Ordering::SeqCst) - before;
        if times > 1 { Ok(()) } else { Err(format!("{times}")) }
    })
    .await;
    lags.store(false, Ordering::SeqCst);
    world.is_forgotten(1).await;
    world.has_exactly(1, &[].into()).await;
    running.stop().await;
}

/// Its names are those of another one, so it has no objects, and its version is listed and not served.
#[tokio::test]
async fn a_definition_that_is_never_established_goes_with_its_plugin() {
    let world = World::start().await;
    let definition = |plural: &str, version: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.nat.example.com")}, "spec": {"group": "nat.example.com", "scope": "Namespaced",
                "names": {"plural": plural, "kind": "Tool"}, "versions": [{"name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
    };
    let definitions = world.objects(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        None,
    );
    let theirs = serde_json::from_value(definition("tools", "v1")).unwrap();
    definitions.create(&PostParams::default(), &theirs).await.unwrap();
    let running = world.run(PluginSettings::default()).await;
    world.offer(1, "1.0.0", &json!([[definition("toolz", "v2")]]));
    world
        .shows(&definitions, "toolz.nat.example.com", |found| {
            found["status"]["conditions"].as_array().is_some_and(|conditions| {
                conditions
                    .iter()
                    .any(|it| it["type"] == "NamesAccepted" && it["status"] == "False")
            })
        })
        .await;
    world.withdraw(1);
    world.is_forgotten(1).await;
    world.shows(&definitions, "toolz.nat.example.com", Value::is_null).await;
    world
        .shows(&definitions, "tools.nat.example.com", |found| !found.is_null())
        .await;
    running.stop().await;
}
