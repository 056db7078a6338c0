//! The order in which objects are written and removed, what keeps a namespace or a definition, and what keeps nothing.

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::{ByPlugin, PluginSettings};
use tidewaiter_testkit::{Identity, eventually};

use crate::cluster::{SOON, coordinator};
use crate::world::{World, config, definition, id, in_namespace, with};

fn rbac(kind: &str, rest: &Value) -> Value {
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "ordered"}});
    with(object, rest)
}

/// From the last that must be written to the first.
fn group() -> Vec<Value> {
    let labels = json!({"app": "ordered"});
    let webhook = json!({"name": "ordered.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "clientConfig": {"service": {"name": "ordered", "namespace": "default"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]});
    vec![
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "ordered"}, "webhooks": [webhook]}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "ordered"},
            "spec": {"controller": "example.com/ordered"}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "ordered"}, "spec": {"replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "main"}]}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ordered"}, "spec": {"ports": [{"port": 443}]}}),
        config("ordered", "1"),
        rbac(
            "RoleBinding",
            &json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ordered"}}),
        ),
        rbac("Role", &json!({"rules": []})),
    ]
}

#[tokio::test]
async fn what_an_object_needs_is_written_before_it_and_its_own_webhook_blocks_no_removal() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([group()]));
    let mark = world.plane().audit_mark().await;
    let running = world.run(PluginSettings::default()).await;
    let webhooks = world.objects(
        "admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        None,
    );
    world.shows(&webhooks, "ordered", |found| !found.is_null()).await;
    let order = async |mark, verb: &str| -> Vec<String> {
        let all = world.plane().audit().await.since(mark).by(&coordinator()).writes();
        let ordered = all
            .iter()
            .filter(|entry| entry.object_ref.name == "ordered" && entry.verb == verb);
        ordered.map(|entry| entry.object_ref.resource.clone()).collect()
    };
    let mut expected = [
        "roles",
        "rolebindings",
        "configmaps",
        "services",
        "deployments",
        "ingressclasses",
        "validatingwebhookconfigurations",
    ];
    assert_eq!(order(mark, "patch").await, expected);

    // Nobody answers the webhook, which is asked about the deletion of the ConfigMap.
    let mark = world.plane().audit_mark().await;
    world.withdraw(1);
    world.is_forgotten(1).await;
    expected.reverse();
    let mut deleted: Vec<String> = Vec::new();
    for resource in order(mark, "delete").await {
        // The API server may ask a webhook for a moment after it is gone.
        if !deleted.contains(&resource) {
            deleted.push(resource);
        }
    }
    assert_eq!(deleted, expected);
    running.stop().await;
}

#[tokio::test]
async fn custom_resources_go_before_the_workloads_that_finalize_them() {
    let world = World::start().await;
    let widget = json!({"apiVersion": "finalized.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    world.offer(
        1,
        "1.0.0",
        &json!([[definition("finalized.example.com"), widget, config("worker", "1")]]),
    );
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let widgets = world.objects("finalized.example.com/v1", "widgets", "Widget", Some("default"));
    let finalizers = |all: Value| Patch::Merge(json!({"metadata": {"finalizers": all}}));
    let (params, some) = (PatchParams::default(), finalizers(json!(["example.com/worker"])));
    widgets.patch("w", &params, &some).await.unwrap();
    world.withdraw(1);
    let note = world.event(&id(1), "RemovalWaits").await;
    assert!(note.contains("Widget.finalized.example.com default/w"), "{note}");
    world.config_is("worker", Some("1")).await;
    widgets.patch("w", &params, &finalizers(Value::Null)).await.unwrap();
    world.is_forgotten(1).await;
    world.config_is("worker", None).await;
    running.stop().await;
}

#[tokio::test]
async fn groups_go_in_reverse_order_each_awaited_also_in_an_upgrade() {
    let world = World::start().await;
    let running = world.run(PluginSettings::default()).await;
    let finalizers = |all: Value| Patch::Merge(json!({"metadata": {"finalizers": all}}));
    let (params, some) = (PatchParams::default(), finalizers(json!(["example.com/operator"])));
    // The operator is in the first group; what it finalizes is no custom resource. The plugin goes, or its next version
    // has neither.
    for (number, upgrades) in [(1, true), (2, false)] {
        let names = ["operator", "guarded", "user"].map(|name| format!("{name}-{number}"));
        let groups: Vec<_> = names.iter().map(|name| json!([config(name, "1")])).collect();
        let [operator, guarded, user] = &names;
        world.offer(number, "1.0.0", &json!(groups));
        world.is_ready(number, "1.0.0").await;
        world.configs().patch(guarded, &params, &some).await.unwrap();
        let message = if upgrades {
            world.offer(number, "2.0.0", &json!([[config("kept", "1")]]));
            world.condition(number, "2.0.0", "Ready", "False Removal").await
        } else {
            world.withdraw(number);
            world.event(&id(number), "RemovalWaits").await
        };
        for words in [
            &format!("ConfigMap default/{guarded}"),
            "example.com/operator",
            "deleted after that: 1",
        ] {
            assert!(message.contains(words), "{message}");
        }
        world.config_is(user, None).await;
        // No other plugin waits for it.
        world.offer(
            number + 10,
            "1.0.0",
            &json!([[config(&format!("other-{number}"), "1")]]),
        );
        world.is_ready(number + 10, "1.0.0").await;
        world.config_is(operator, Some("1")).await;
        world
            .configs()
            .patch(guarded, &params, &finalizers(Value::Null))
            .await
            .unwrap();
        world.config_is(operator, None).await;
        if upgrades {
            world.is_ready(number, "2.0.0").await;
        } else {
            world.is_forgotten(number).await;
        }
    }
    running.stop().await;
}

/// Refuses the deletion of widgets of the group with 403.
fn refusal(group: &str) -> [Value; 2] {
    let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["widgets"]});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "refusal"}, "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "not now", "reason": "Forbidden"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "refusal"}, "spec": {"policyName": "refusal", "validationActions": ["Deny"]}});
    [policy, binding]
}

#[tokio::test]
async fn a_custom_resource_whose_deletion_is_refused_keeps_the_workloads_that_finalize_it() {
    let (world, group) = (World::start().await, "refused.example.com");
    let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "w"}});
    world.offer(1, "1.0.0", &json!([[definition(group), widget, config("worker", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    for object in refusal(group) {
        world.plane().apply(&object.to_string()).await;
    }
    let widgets = world.objects(&format!("{group}/v1"), "widgets", "Widget", Some("default"));
    let dry_run = DeleteParams::default().dry_run();
    eventually("the deletion to be refused", SOON, async || {
        match widgets.delete("w", &dry_run).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    world.withdraw(1);
    world
        .says(
            &id(1),
            "ApplyFailed",
            "cannot delete Widget.refused.example.com default/w",
        )
        .await;
    world.config_is("worker", Some("1")).await;
    let bindings = world.objects(
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        None,
    );
    world.delete(&bindings, "refusal").await;
    world.is_forgotten(1).await;
    world.config_is("worker", None).await;
    running.stop().await;
}

fn owned(mut object: Value, owner: &Value) -> Value {
    let mut reference = json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"]});
    for field in ["name", "uid"] {
        reference[field] = owner["metadata"][field].clone();
    }
    object["metadata"]["ownerReferences"] = json!([reference]);
    object
}

#[tokio::test]
async fn instances_of_others_keep_a_definition_also_when_they_have_an_owner() {
    let world = World::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "owned"}});
    world.offer(
        1,
        "1.0.0",
        &json!([[
            definition("theirs.example.com"),
            definition("ours.example.com"),
            namespace,
            config("own", "1")
        ]]),
    );
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let as_json = |object| serde_json::to_value(object).unwrap();
    let widget =
        |group: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "w"}});
    let widgets = |group: &str| world.objects(&format!("{group}/v1"), "widgets", "Widget", Some("default"));
    let (theirs, own) = (
        as_json(world.put(&world.configs(), &config("theirs", "1")).await),
        as_json(world.configs().get("own").await.unwrap()),
    );
    for (group, owner) in [("theirs.example.com", &theirs), ("ours.example.com", &own)] {
        let mut owner = owner.clone();
        (owner["apiVersion"], owner["kind"]) = (json!("v1"), json!("ConfigMap"));
        world.put(&widgets(group), &owned(widget(group), &owner)).await;
    }
    // In a namespace, what has an owner goes with that, unless that is in none.
    let roles = world.objects("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", None);
    let role = rbac("ClusterRole", &json!({"rules": []}));
    let mut owner = as_json(world.put(&roles, &role).await);
    (owner["apiVersion"], owner["kind"]) = (role["apiVersion"].clone(), role["kind"].clone());
    let inside = world.objects("v1", "configmaps", "ConfigMap", Some("owned"));
    world.put(&inside, &owned(config("of-a-role", "1"), &owner)).await;

    world.withdraw(1);
    world.is_forgotten(1).await;
    for words in [
        "widgets.theirs.example.com stays, because it has Widget default/w",
        "Namespace owned stays, because it has ConfigMap of-a-role",
    ] {
        world.says(&id(1), "ObjectKept", words).await;
    }
    world
        .shows(&widgets("theirs.example.com"), "w", |found| !found.is_null())
        .await;
    let definitions = world.objects("apiextensions.k8s.io/v1", "customresourcedefinitions", "", None);
    world
        .shows(&definitions, "widgets.ours.example.com", Value::is_null)
        .await;
    running.stop().await;
}

/// An owner in the namespace keeps what it owns as one elsewhere does, also an owner that every namespace has, and
/// those that own each other.
#[tokio::test]
async fn a_namespace_with_objects_of_others_stays_whatever_owns_them() {
    let world = World::start().await;
    let namespaces = ["usual", "circle"];
    let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    world.offer(1, "1.0.0", &json!([namespaces.map(namespace)]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let as_owner = |object| {
        let mut owner = serde_json::to_value(object).unwrap();
        (owner["apiVersion"], owner["kind"]) = (json!("v1"), json!("ConfigMap"));
        owner
    };
    let [usual, circle] = namespaces.map(|name| world.objects("v1", "configmaps", "ConfigMap", Some(name)));
    let everywhere = as_owner(world.put(&usual, &config("kube-root-ca.crt", "1")).await);
    world.put(&usual, &owned(config("theirs", "1"), &everywhere)).await;
    let first = as_owner(world.put(&circle, &config("first", "1")).await);
    let second = as_owner(world.put(&circle, &owned(config("second", "1"), &first)).await);
    let references = owned(config("first", "1"), &second)["metadata"]["ownerReferences"].clone();
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": references}}));
    circle.patch("first", &PatchParams::default(), &patch).await.unwrap();
    world.withdraw(1);
    world.is_forgotten(1).await;
    for words in [
        "Namespace usual stays, because it has ConfigMap theirs",
        "Namespace circle stays, because it has ConfigMap",
    ] {
        world.says(&id(1), "ObjectKept", words).await;
    }
    for (configs, name) in [(&usual, "theirs"), (&circle, "first"), (&circle, "second")] {
        let found = configs.get(name).await.unwrap();
        assert_eq!(found.metadata.deletion_timestamp, None, "{name}");
    }
    running.stop().await;
}

#[tokio::test]
async fn one_denied_deletion_keeps_no_other_object() {
    let world = World::with_accounts().await;
    let verbs = json!(["get", "list", "watch", "create", "patch", "delete"]);
    let definitions = json!({"rules": [
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": verbs},
        {"apiGroups": ["denied.example.com"], "resources": ["widgets"], "verbs": ["list"]}]});
    let subject = json!({"kind": "ServiceAccount", "name": "plugin-metrics", "namespace": "containership-core"});
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ordered"});
    let binding = rbac(
        "ClusterRoleBinding",
        &json!({"roleRef": reference, "subjects": [subject]}),
    );
    for object in [rbac("ClusterRole", &definitions), binding] {
        world.plane().apply(&object.to_string()).await;
    }
    let settings = PluginSettings {
        accounts: ByPlugin::from([("*", "containership-core/plugin-metrics".parse().unwrap())]),
        ..PluginSettings::default()
    };
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "denied"}, "spec": {"ports": [{"port": 80}]}});
    let objects = [
        definition("denied.example.com"),
        in_namespace(config("one", "1"), "monitoring"),
        in_namespace(service, "monitoring"),
    ];
    world.offer(1, "1.0.0", &json!([objects]));
    let running = world.run(settings).await;
    world.is_ready(1, "1.0.0").await;
    let roles = world.objects("rbac.authorization.k8s.io/v1", "roles", "Role", Some("monitoring"));
    let permitted = |verbs: Value| {
        let others = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]});
        Patch::Merge(json!({"rules": [others, {"apiGroups": [""], "resources": ["services"], "verbs": verbs}]}))
    };
    let params = PatchParams::default();
    let limited = permitted(json!(["get", "list", "watch"]));
    roles.patch("plugin-metrics", &params, &limited).await.unwrap();
    let account = world
        .plane()
        .client(&Identity::service_account("containership-core", "plugin-metrics"));
    let service = Api::<Service>::namespaced(account, "monitoring");
    let dry_run = DeleteParams::default().dry_run();
    eventually("the deletion to be denied", SOON, async || {
        match service.delete("denied", &dry_run).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    world.withdraw(1);
    world
        .says(&id(1), "Denied", "cannot delete Service monitoring/denied")
        .await;
    let configs = world.objects("v1", "configmaps", "ConfigMap", Some("monitoring"));
    world.shows(&configs, "one", Value::is_null).await;
    let definitions = world.objects("apiextensions.k8s.io/v1", "customresourcedefinitions", "", None);
    world
        .shows(&definitions, "widgets.denied.example.com", Value::is_null)
        .await;
    let services = world.objects("v1", "services", "Service", Some("monitoring"));
    world.shows(&services, "denied", |found| !found.is_null()).await;
    roles.patch("plugin-metrics", &params, &permitted(verbs)).await.unwrap();
    world.is_forgotten(1).await;
    world.shows(&services, "denied", Value::is_null).await;
    running.stop().await;
}
