//! The life of a plugin: installed, upgraded, changed by somebody, removed.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::{PluginDrift, PluginSettings};
use tidewaiter_testkit::eventually;

use crate::cluster::SOON;
use crate::world::{World, config, definition, id, in_namespace, plugin_of, with};

#[tokio::test]
async fn a_plugin_is_installed_upgraded_and_removed() {
    let world = World::start().await;
    let widgets = world.objects("lives.example.com/v1", "widgets", "Widget", Some("default"));
    let widget = json!({"apiVersion": "lives.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "metrics:reader"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]});
    // The definition comes after its instance.
    let first = json!([
        [widget, config("one", "1"), config("gone", "1")],
        [definition("lives.example.com"), role]
    ]);
    world.offer(1, "1.0.0", &first);
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world
        .shows(&widgets, "w", |found| plugin_of(found) == Some(id(1).as_str()))
        .await;
    world.config_is("one", Some("1")).await;
    let status = world.plugins().get(&id(1)).await.unwrap().status.unwrap();
    assert_eq!(
        (status.applied_version.as_str(), status.objects, status.unhealthy),
        ("1.0.0", 5, 0)
    );
    world.is_quiet().await;

    // A restart writes nothing, and neither does the second pass.
    running.stop().await;
    let mark = world.plane().audit_mark().await;
    let running = world.run(PluginSettings::default()).await;
    world.is_quiet().await;
    assert_eq!(world.written_since(mark).await, [""; 0]);

    // An upgrade removes what the version does not have any more.
    world.offer(
        1,
        "1.1.0",
        &json!([[config("one", "2")], [definition("lives.example.com")]]),
    );
    world.is_ready(1, "1.1.0").await;
    world.config_is("one", Some("2")).await;
    world.config_is("gone", None).await;
    world.shows(&widgets, "w", Value::is_null).await;
    let plugin = world.plugins().get(&id(1)).await.unwrap();
    let history = &plugin.metadata.annotations.unwrap()["containership.io/plugin-history"];
    let history: Value = serde_json::from_str(history).unwrap();
    assert_eq!(history[0]["version"], "1.0.0");
    assert_eq!(history.as_array().unwrap().len(), 1);
    world.is_quiet().await;

    // What is gone in the cloud is removed; objects of others stay, and the definition with them.
    world.put(&world.configs(), &config("of-others", "1")).await;
    let theirs = json!({"apiVersion": "lives.example.com/v1", "kind": "Widget", "metadata": {"name": "theirs"}});
    world.put(&widgets, &theirs).await;
    world.withdraw(1);
    world.config_is("one", None).await;
    world.event(&id(1), "ObjectKept").await;
    world.is_forgotten(1).await;
    world.config_is("of-others", Some("1")).await;
    world.shows(&widgets, "theirs", |found| !found.is_null()).await;
    world.is_quiet().await;
    running.stop().await;
}

#[tokio::test]
async fn what_somebody_changes_is_corrected_or_reported() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1"), config("two", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let change = Patch::Merge(json!({"data": {"a": "changed"}}));
    let add = Patch::Merge(json!({"data": {"b": "theirs"}, "metadata": {"labels": {"theirs": "1"}}}));
    let configs = world.configs();
    configs.patch("one", &PatchParams::default(), &change).await.unwrap();
    world.config_is("one", Some("1")).await;
    world.delete(&configs, "one").await;
    world.config_is("one", Some("1")).await;
    let note = world.event(&id(1), "DriftCorrected").await;
    assert!(note.contains("ConfigMap default/one"), "{note}");
    // Fields that the plugin does not have are anyone's.
    configs.patch("one", &PatchParams::default(), &add).await.unwrap();
    world.is_quiet().await;
    world
        .shows(&configs, "one", |found| found["data"]["b"] == "theirs")
        .await;
    running.stop().await;

    let report = PluginSettings {
        drift: PluginDrift::Report,
        ..PluginSettings::default()
    };
    let _running = world.run(report).await;
    configs.patch("one", &PatchParams::default(), &change).await.unwrap();
    world.event(&id(1), "DriftFound").await;
    world.is_ready(1, "1.0.0").await;
    world.config_is("one", Some("changed")).await;
    world.is_quiet().await;
    // Until the next version.
    world.offer(1, "1.0.1", &json!([[config("one", "2"), config("two", "1")]]));
    world.config_is("one", Some("2")).await;
}

#[tokio::test]
async fn one_write_corrects_a_change() {
    const CHANGES: usize = 15;
    let world = World::start().await;
    let all: Vec<Value> = (0..300).map(|number| config(&format!("c{number}"), "1")).collect();
    world.offer(1, "1.0.0", &json!([all]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.is_quiet().await;
    let mark = world.plane().audit_mark().await;
    for number in 0..CHANGES {
        let (name, change) = (format!("c{number}"), Patch::Merge(json!({"data": {"a": "changed"}})));
        let configs = world.configs();
        configs.patch(&name, &PatchParams::default(), &change).await.unwrap();
        world.config_is(&name, Some("1")).await;
    }
    let written = world.written_since(mark).await;
    let corrections = written.iter().filter(|write| write.contains("configmaps")).count();
    assert_eq!(corrections, CHANGES, "{written:?}");
    running.stop().await;
}

#[tokio::test]
async fn an_object_that_is_changed_all_the_time_is_corrected_less_often() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let _running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let change = Patch::Merge(json!({"data": {"a": "changed"}}));
    eventually("the limit", SOON, async || {
        let changed = world.configs().patch("one", &PatchParams::default(), &change).await;
        let version = changed.map_err(|error| error.to_string())?.metadata.resource_version;
        let plugin = world.plugins().get(&id(1)).await.map_err(|error| error.to_string())?;
        let conditions = plugin.status.unwrap_or_default().conditions;
        let is_limited = conditions.iter().any(|condition| condition.reason == "ChangedOften");
        if is_limited {
            Ok(())
        } else {
            Err(format!("{version:?}"))
        }
    })
    .await;
    // It is not given up.
    world.config_is("one", Some("1")).await;
}

#[tokio::test]
async fn a_field_that_cannot_change_is_replaced_only_where_the_plugin_says_so() {
    let world = World::start().await;
    let fixed = |value: &str, annotations: Value| {
        let mut object = config("fixed", value);
        object["immutable"] = json!(true);
        object["metadata"]["annotations"] = annotations;
        json!([[object]])
    };
    world.offer(1, "1.0.0", &fixed("1", json!({})));
    let _running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.offer(1, "2.0.0", &fixed("2", json!({})));
    let message = world.condition(1, "2.0.0", "Stalled", "True ImmutableField").await;
    assert!(
        message.contains("ConfigMap default/fixed") && message.contains("on-immutable: replace"),
        "{message}"
    );
    world.config_is("fixed", Some("1")).await;
    world.offer(
        1,
        "2.0.1",
        &fixed("2", json!({"tidewaiter.dev/on-immutable": "replace"})),
    );
    world.is_ready(1, "2.0.1").await;
    world.config_is("fixed", Some("2")).await;
    world.is_quiet().await;
}

#[tokio::test]
async fn a_definition_is_not_replaced_with_what_others_have_of_it() {
    let world = World::start().await;
    let version = |scope: &str| {
        let mut definition = definition("replaced.example.com");
        definition["metadata"]["annotations"] = json!({"tidewaiter.dev/on-immutable": "replace"});
        definition["spec"]["scope"] = json!(scope);
        json!([[definition]])
    };
    world.offer(1, "1.0.0", &version("Namespaced"));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let api_version = "replaced.example.com/v1";
    let widgets = world.objects(api_version, "widgets", "Widget", Some("default"));
    let theirs = json!({"apiVersion": api_version, "kind": "Widget", "metadata": {"name": "theirs"}});
    let before = world.put(&widgets, &theirs).await;
    world.offer(1, "2.0.0", &version("Cluster"));
    let message = world.condition(1, "2.0.0", "Stalled", "True ImmutableField").await;
    assert!(
        message.contains("It is not replaced") && !message.contains("on-immutable"),
        "{message}"
    );
    let after = widgets.get("theirs").await.unwrap();
    assert_eq!(after.metadata.uid, before.metadata.uid);
    world.is_quiet().await;
    running.stop().await;
}

/// The names of roles may have what begins or divides the query of a URL.
#[tokio::test]
async fn a_name_is_not_read_as_a_part_of_the_url() {
    let world = World::start().await;
    let role = |name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": []});
    let all = ["y", "y?z=1", "y#z", "x?dryRun=All", "x&force=true"];
    let roles = world.objects("rbac.authorization.k8s.io/v1", "roles", "Role", Some("default"));
    let uids = async || -> BTreeMap<String, String> {
        let ours = ListParams::default().labels("containership.io/plugin-id");
        let found = roles.list(&ours).await.unwrap().items;
        let named = found.into_iter().map(|role| role.metadata);
        named.map(|role| (role.name.unwrap(), role.uid.unwrap())).collect()
    };
    world.offer(1, "1.0.0", &json!([all.map(role)]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let before = uids().await;
    assert_eq!(before.len(), all.len(), "{before:?}");
    world.offer(1, "2.0.0", &json!([[role("y")]]));
    world.is_ready(1, "2.0.0").await;
    world.is_quiet().await;
    let after = uids().await;
    assert_eq!(after, BTreeMap::from([("y".to_owned(), before["y"].clone())]));
    running.stop().await;
}

/// Fields of a pod, before and after.
fn pod_fields() -> Vec<(Value, Value)> {
    let tolerations = |value: &str| json!({"tolerations": [{"key": "a", "operator": "Equal", "value": value}]});
    vec![
        (json!({"hostname": "one"}), json!({"hostname": "two"})),
        (
            json!({"nodeSelector": {"a": "one"}}),
            json!({"nodeSelector": {"a": "two"}}),
        ),
        (json!({"restartPolicy": "Always"}), json!({"restartPolicy": "Never"})),
        (
            json!({"activeDeadlineSeconds": 7000}),
            json!({"activeDeadlineSeconds": 8000}),
        ),
        (
            json!({"terminationGracePeriodSeconds": 1}),
            json!({"terminationGracePeriodSeconds": 2}),
        ),
        (json!({"dnsPolicy": "Default"}), json!({"dnsPolicy": "ClusterFirst"})),
        (
            json!({"volumes": []}),
            json!({"volumes": [{"name": "a", "emptyDir": {}}]}),
        ),
        (
            json!({"containers": [{"name": "main", "image": "main", "args": ["one"]}]}),
            json!({"containers": [{"name": "main", "image": "main", "args": ["two"]}]}),
        ),
        (
            json!({}),
            json!({"containers": [{"name": "main", "image": "main"}, {"name": "more", "image": "more"}]}),
        ),
        (
            json!({}),
            json!({"initContainers": [{"name": "first", "image": "first"}]}),
        ),
        (tolerations("one"), tolerations("two")),
    ]
}

#[tokio::test]
async fn a_pod_is_replaced_whatever_changes_in_it() {
    let world = World::with_controller_manager().await;
    let version = |is_second: bool| {
        let pods = pod_fields().into_iter().enumerate().map(|(number, (before, after))| {
            let fields = if is_second { after } else { before };
            let spec = with(json!({"containers": [{"name": "main", "image": "main"}]}), &fields);
            json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {"name": format!("pod-{number}"),
                "annotations": {"tidewaiter.dev/on-immutable": "replace"}}})
        });
        json!([pods.collect::<Vec<_>>()])
    };
    let pods = world.objects("v1", "pods", "Pod", Some("default"));
    let uids = async || -> BTreeSet<String> {
        let all = pods.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().filter_map(|pod| pod.metadata.uid).collect()
    };
    world.offer(1, "1.0.0", &version(false));
    let running = world.run(PluginSettings::default()).await;
    world.is_applied(1, "1.0.0").await;
    let before = uids().await;
    world.offer(1, "2.0.0", &version(true));
    world.is_applied(1, "2.0.0").await;
    let after = uids().await;
    assert_eq!((before.len(), after.len()), (pod_fields().len(), pod_fields().len()));
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
    running.stop().await;
}

/// Manifests that server-side apply cannot read: the API server answers with an internal error.
#[tokio::test]
async fn items_of_one_key_are_said_to_need_a_change() {
    let world = World::start().await;
    let labels = json!({"app": "a"});
    let rows = [
        (
            "env",
            json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
        ),
        ("ports", json!({"ports": [{"containerPort": 1}, {"containerPort": 1}]})),
        (
            "mounts",
            json!({"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a"}]}),
        ),
        ("unknown", json!({"imagePullPolicies": "Always"})),
        ("type", json!({"command": "main"})),
    ];
    for (number, (name, fields)) in (1..).zip(&rows) {
        let container = with(json!({"name": "main", "image": "main"}), fields);
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}});
        world.offer(number, "1.0.0", &json!([[deployment]]));
    }
    let running = world.run(PluginSettings::default()).await;
    for (number, (name, _)) in (1..).zip(&rows) {
        let message = world.condition(number, "1.0.0", "Stalled", "True ApplyFailed").await;
        let has = |words: &str| message.contains(words);
        assert!(
            has(&format!("default/{name}")) && has("Change the manifests"),
            "{message}"
        );
        assert!(!has("tried again"), "{message}");
    }
    running.stop().await;
}

/// The kinds whose validation says in its own words that a field cannot change.
#[tokio::test]
async fn each_kind_with_fields_that_cannot_change_can_be_replaced() {
    let world = World::start().await;
    let object = |kind: &str, api_version: &str, rest: Value| {
        let annotations = json!({"tidewaiter.dev/on-immutable": "replace"});
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "fixed", "annotations": annotations}});
        with(object, &rest)
    };
    let template = |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "main", "image": app}]}});
    let selected =
        |app: &str| json!({"replicas": 0, "selector": {"matchLabels": {"app": app}}, "template": template(app)});
    let manifests = |app: &str| {
        let role = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": app}});
        let mut set = selected("same");
        set["serviceName"] = json!(app);
        let mut pods = template(app);
        pods["spec"]["restartPolicy"] = json!("Never");
        let number = if app == "one" { 1 } else { 2 };
        json!([[
            object("RoleBinding", "rbac.authorization.k8s.io/v1", role.clone()),
            object("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", role),
            object(
                "StorageClass",
                "storage.k8s.io/v1",
                json!({"provisioner": "example.com", "parameters": {"a": app}})
            ),
            object("PriorityClass", "scheduling.k8s.io/v1", json!({ "value": number })),
            object(
                "IngressClass",
                "networking.k8s.io/v1",
                json!({"spec": {"controller": format!("example.com/{app}")}})
            ),
            object("Secret", "v1", json!({"type": format!("example.com/{app}")})),
            object(
                "Service",
                "v1",
                // Of the addresses that no Service gets by itself: the first 16 of a range of 256.
                json!({"spec": {"clusterIP": format!("10.96.0.1{number}"), "ports": [{"port": 80}]}})
            ),
            object("Deployment", "apps/v1", json!({ "spec": selected(app) })),
            object("StatefulSet", "apps/v1", json!({ "spec": set })),
            object("Job", "batch/v1", json!({"spec": {"template": pods}})),
        ]])
    };
    world.offer(1, "1.0.0", &manifests("one"));
    let _running = world.run(PluginSettings::default()).await;
    world.is_applied(1, "1.0.0").await;
    world.offer(1, "2.0.0", &manifests("two"));
    world.is_applied(1, "2.0.0").await;
    let classes = world.objects("storage.k8s.io/v1", "storageclasses", "StorageClass", None);
    world
        .shows(&classes, "fixed", |found| found["parameters"]["a"] == "two")
        .await;
    let bindings = world.objects(
        "rbac.authorization.k8s.io/v1",
        "rolebindings",
        "RoleBinding",
        Some("default"),
    );
    world
        .shows(&bindings, "fixed", |found| found["roleRef"]["name"] == "two")
        .await;
    // The addresses of Services are not put back for the next test.
    world.withdraw(1);
    world.is_forgotten(1).await;
}

#[tokio::test]
async fn a_namespace_goes_with_its_plugin_unless_others_use_it() {
    let world = World::with_controller_manager().await;
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let within = |name: &str, namespace: &str| in_namespace(config(name, "1"), namespace);
    world.offer(1, "1.0.0", &json!([[within("a", "alone"), namespace("alone")]]));
    world.offer(2, "1.0.0", &json!([[within("a", "shared"), namespace("shared")]]));
    let _running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.is_ready(2, "1.0.0").await;
    let shared = world.objects("v1", "configmaps", "ConfigMap", Some("shared"));
    world.put(&shared, &within("theirs", "shared")).await;
    // Of a kind that is not served in the preferred version of its group.
    let definitions = world.objects("apiextensions.k8s.io/v1", "customresourcedefinitions", "", None);
    let mut gadgets = definition("kept.example.com");
    gadgets["metadata"]["name"] = json!("gadgets.kept.example.com");
    gadgets["spec"]["names"] = json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget"});
    gadgets["spec"]["versions"][0]["name"] = json!("v1alpha1");
    let api = world.objects("kept.example.com/v1alpha1", "gadgets", "Gadget", Some("gadgets"));
    for definition in [definition("kept.example.com"), gadgets] {
        world.put(&definitions, &definition).await;
    }
    world.offer(3, "1.0.0", &json!([[within("a", "gadgets"), namespace("gadgets")]]));
    world.is_ready(3, "1.0.0").await;
    eventually("the kind to be served", SOON, async || {
        api.list(&ListParams::default()).await
    })
    .await;
    let gadget = json!({"apiVersion": "kept.example.com/v1alpha1", "kind": "Gadget", "metadata": {"name": "theirs"}});
    world.put(&api, &gadget).await;
    for number in [1, 2, 3] {
        world.withdraw(number);
    }
    let note = world.event(&id(3), "ObjectKept").await;
    assert!(
        note.contains("Namespace gadgets") && note.contains("Gadget theirs"),
        "{note}"
    );
    let note = world.event(&id(2), "ObjectKept").await;
    assert!(
        note.contains("Namespace shared") && note.contains("ConfigMap theirs"),
        "{note}"
    );
    let namespaces = world.objects("v1", "namespaces", "Namespace", None);
    world.shows(&namespaces, "alone", Value::is_null).await;
    world.shows(&shared, "a", Value::is_null).await;
    world.shows(&shared, "theirs", |found| !found.is_null()).await;
    for number in [1, 2, 3] {
        world.is_forgotten(number).await;
    }
    world.is_quiet().await;
}
