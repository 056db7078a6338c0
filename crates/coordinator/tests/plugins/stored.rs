//! Fields that the API server stores under another name, and fields that controllers of Kubernetes write. What kubectl
//! makes of the same manifests decides what is right.

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::eventually;

use crate::cluster::SOON;
use crate::world::{World, config, id, with};

/// The forms of a Secret: each of two keys is in `data`, in `stringData`, in both or in none.
fn forms() -> Vec<Value> {
    let texts = ["", "a", "line\n", "ü é 漢", "YQ=="];
    let ways = ["none", "data", "stringData", "both"];
    let mut forms = Vec::new();
    for (number, (first, second)) in ways
        .iter()
        .flat_map(|way| ways.map(move |other| (*way, other)))
        .enumerate()
    {
        for (place, text) in texts.iter().enumerate() {
            let mut secret =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("form-{number}-{place}")}});
            let mut put = |field: &str, key: &str, value: &str| secret[field][key] = json!(value);
            for (key, way) in [("first", first), ("second", second)] {
                if matches!(way, "data" | "both") {
                    put("data", key, "aGlkZGVu");
                }
                if matches!(way, "stringData" | "both") {
                    put("stringData", key, text);
                }
            }
            forms.push(secret);
        }
    }
    forms
}

fn named(mut object: Value, prefix: &str) -> Value {
    object["metadata"]["name"] = json!(format!("{prefix}-{}", object["metadata"]["name"].as_str().unwrap()));
    object
}

/// The field of each object whose name begins so, by the rest of its name.
async fn fields(api: &Api<DynamicObject>, prefix: &str, pointer: &str) -> Result<Map<String, Value>, kube::Error> {
    let all = api.list(&ListParams::default()).await?.items.into_iter();
    let named = all.filter_map(|object| {
        let name = object.metadata.name.as_deref()?.strip_prefix(prefix)?.to_owned();
        let value = serde_json::to_value(object).ok()?;
        Some((name, value.pointer(pointer).cloned().unwrap_or_default()))
    });
    Ok(named.collect())
}

/// Waits until the field of the plugin's objects is that of kubectl's.
async fn is_kubectls(api: &Api<DynamicObject>, ours: &str, theirs: &str, pointer: &str) {
    eventually(format!("{pointer} of {ours} to be kubectl's"), SOON, async || {
        let found = fields(api, ours, pointer).await.map_err(|error| error.to_string())?;
        let expected = fields(api, theirs, pointer).await.map_err(|error| error.to_string())?;
        let differs = |(name, value): &(&String, &Value)| found.get(*name) != Some(*value);
        let wrong: Vec<_> = expected
            .iter()
            .filter(differs)
            .map(|(name, value)| (name, value, found.get(name)))
            .collect();
        if wrong.is_empty() && found.len() == expected.len() {
            Ok(())
        } else {
            Err(format!("{} of {}: {wrong:?}", found.len(), expected.len()))
        }
    })
    .await;
}

#[tokio::test]
async fn secrets_with_string_data_are_kept_and_changed_as_their_data() {
    let world = World::start().await;
    let secrets = world.objects("v1", "secrets", "Secret", Some("default"));
    let ours = |forms: Vec<Value>| -> Vec<Value> { forms.into_iter().map(|form| named(form, "ours")).collect() };
    world.offer(1, "1.0.0", &json!([ours(forms())]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let list = |prefix: &str, forms: Vec<Value>| {
        let items: Vec<_> = forms.into_iter().map(|form| named(form, prefix)).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    };
    world.kubectl("create -f -", &list("first", forms()));
    is_kubectls(&secrets, "ours-", "first-", "/data").await;
    world.is_quiet().await;

    // Drift: another value, and a key that is gone. A key of somebody else stays.
    let (params, name) = (PatchParams::default(), "ours-form-10-1");
    let drift = json!({"data": {"first": "ZHJpZnQ=", "second": null, "theirs": "YQ=="}});
    secrets.patch(name, &params, &Patch::Merge(drift)).await.unwrap();
    world
        .shows(&secrets, name, |found| {
            found["data"] == json!({"first": "YQ==", "second": "YQ==", "theirs": "YQ=="})
        })
        .await;
    let note = world.event(&id(1), "DriftCorrected").await;
    assert!(note.contains(name), "{note}");
    let theirs = json!({"data": {"theirs": null}});
    secrets.patch(name, &params, &Patch::Merge(theirs)).await.unwrap();

    // The next version gives each Secret the content of another one: nothing of the first stays.
    let (names, mut contents) = (forms(), forms());
    contents.rotate_left(7);
    let rotated = || -> Vec<Value> {
        let mut rotated = contents.clone();
        for (content, name) in rotated.iter_mut().zip(&names) {
            content["metadata"] = name["metadata"].clone();
        }
        rotated
    };
    world.offer(1, "2.0.0", &json!([ours(rotated())]));
    world.kubectl("create -f -", &list("second", rotated()));
    is_kubectls(&secrets, "ours-", "second-", "/data").await;
    world.is_ready(1, "2.0.0").await;
    world.is_quiet().await;
    running.stop().await;
}

/// A Deployment whose pods have these names of service accounts.
fn deployment(name: &str, accounts: &Value) -> Value {
    let labels = json!({"app": name});
    let pod = with(json!({"containers": [{"name": "main", "image": "main"}]}), accounts);
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": 0,
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}})
}

#[tokio::test]
async fn the_service_account_of_pods_changes_and_goes_under_both_names() {
    let world = World::start().await;
    let forms = |account: &str| {
        [
            json!({}),
            json!({"serviceAccount": account}),
            json!({"serviceAccountName": account}),
            json!({"serviceAccount": account, "serviceAccountName": account}),
        ]
    };
    // From each form to each other.
    let all = |account: &str, is_before: bool| -> Vec<Value> {
        let pairs = (0..4).flat_map(|before| (0..4).map(move |after| (before, after)));
        pairs
            .map(|(before, after)| {
                let form = &forms(account)[if is_before { before } else { after }];
                deployment(&format!("from-{before}-to-{after}"), form)
            })
            .collect()
    };
    let renamed = |prefix: &str, objects: Vec<Value>| -> Vec<Value> {
        objects.into_iter().map(|object| named(object, prefix)).collect()
    };
    world.offer(1, "1.0.0", &json!([renamed("ours", all("one", true))]));
    let running = world.run(PluginSettings::default()).await;
    world.is_applied(1, "1.0.0").await;
    world.offer(1, "2.0.0", &json!([renamed("ours", all("two", false))]));
    world.is_applied(1, "2.0.0").await;
    // What kubectl creates from the second manifests, which have no past.
    let items = renamed("theirs", all("two", false));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    world.kubectl("create -f -", &list.to_string());
    let deployments = world.objects("apps/v1", "deployments", "Deployment", Some("default"));
    for field in ["serviceAccountName", "serviceAccount"] {
        is_kubectls(
            &deployments,
            "ours-",
            "theirs-",
            &format!("/spec/template/spec/{field}"),
        )
        .await;
    }
    running.stop().await;
}

#[tokio::test]
async fn what_controllers_of_kubernetes_write_is_left_to_them() {
    let world = World::with_controller_manager().await;
    let cluster_role = |name: &str, labels: Value, rest: Value| {
        let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels}});
        with(object, &rest)
    };
    let rule = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let other = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let aggregation = json!({"clusterRoleSelectors": [{"matchLabels": {"aggregated": "true"}}]});
    let forms = [json!([]), other, Value::Null];
    let mut objects = vec![
        cluster_role("part", json!({"aggregated": "true"}), json!({"rules": rule})),
        config("beside", "1"),
    ];
    for (number, rules) in forms.iter().enumerate() {
        let rest = json!({"aggregationRule": aggregation, "rules": rules});
        objects.push(cluster_role(&format!("whole-{number}"), json!({}), rest));
    }
    // As `kubectl get -o yaml` exports it.
    let mut exported = deployment("exported", &json!({}));
    exported["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "7"});
    objects.push(exported);
    // The controller annotates it, too.
    let mut empty = deployment("empty", &json!({}));
    empty["metadata"]["annotations"] = Value::Null;
    empty["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    objects.push(empty);
    world.offer(1, "1.0.0", &json!([objects]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let roles = world.objects("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", None);
    for number in 0..forms.len() {
        world
            .shows(&roles, &format!("whole-{number}"), |found| found["rules"] == rule)
            .await;
    }
    let deployments = world.objects("apps/v1", "deployments", "Deployment", Some("default"));
    let revision = |found: &Value| found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1";
    for name in ["exported", "empty"] {
        world.shows(&deployments, name, revision).await;
    }
    world.is_quiet().await;
    let events: Api<Event> = Api::namespaced(world.client(), CONTAINERSHIP_NAMESPACE);
    let all = events.list(&ListParams::default()).await.unwrap().items;
    let corrected = all
        .iter()
        .filter(|event| event.reason.as_deref() == Some("DriftCorrected"));
    assert_eq!(
        corrected.filter_map(|event| event.note.clone()).collect::<Vec<_>>(),
        [""; 0]
    );
    // A part that changes reaches the whole, and nobody puts the old rules back.
    let more = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    objects[0]["rules"] = more.clone();
    world.offer(1, "2.0.0", &json!([objects]));
    world.is_ready(1, "2.0.0").await;
    for number in 0..forms.len() {
        world
            .shows(&roles, &format!("whole-{number}"), |found| found["rules"] == more)
            .await;
    }
    world.is_quiet().await;
    running.stop().await;
}
