//! The changes of a version are rendered by dry runs, as far as the API server permits them.

use serde_json::{Value, json};
use tidewaiter_api::containership::plugin::{READY, RECONCILING, STALLED};
use tidewaiter_coordinator::controllers::{ByPlugin, Operation, PluginSettings};
use tidewaiter_testkit::{Action, ApiProxy};

use crate::approval::{manual, secret, words};
use crate::cluster::coordinator;
use crate::world::{World, config, definition, id, in_namespace};

#[tokio::test]
async fn what_cannot_be_rendered_yet_is_shown_as_the_manifests_say() {
    let world = World::start().await;
    let group = "approval.example.com";
    let widget = |value: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "w", "namespace": "approval"}, "spec": {"a": value}});
    let namespace = || json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "approval"}});
    let mut inside = config("inside", "1");
    inside["metadata"]["namespace"] = json!("approval");
    // Each dry run of a new Service gives it another address.
    let service = || json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "approval"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let all = |value: &str| json!([[namespace(), definition(group), widget(value), inside, service()]]);
    world.offer(1, "1.0.0", &all("1"));
    let running = world.run(manual()).await;
    let pending = world.pending(1, "1.0.0").await;
    assert_eq!(
        words(&world.diff(1).await),
        [
            "create Namespace approval",
            &format!("create CustomResourceDefinition.apiextensions.k8s.io widgets.{group}"),
            &format!("create Widget.{group} approval/w (as in the manifests)"),
            "create ConfigMap approval/inside (as in the manifests)",
            "create Service default/approval",
        ]
    );
    world.approve(1, &pending.digest).await;
    world.is_ready(1, "1.0.0").await;
    // The next version needs another look at the widget alone. What was approved is not asked about again.
    world.offer(1, "1.1.0", &all("2"));
    world.pending(1, "1.1.0").await;
    let diff = world.diff(1).await;
    assert_eq!(words(&diff), [format!("change Widget.{group} approval/w")]);
    assert_eq!(diff.changes[0].differences[0].path, "spec.a");
    running.stop().await;
}

#[tokio::test]
async fn a_version_is_rendered_and_applied_as_the_service_account() {
    let world = World::with_accounts().await;
    let settings = PluginSettings {
        accounts: ByPlugin::from([("*", "containership-core/plugin-metrics".parse().unwrap())]),
        ..manual()
    };
    let monitoring = |name: &str| in_namespace(config(name, "1"), "monitoring");
    let mark = world.plane().audit_mark().await;
    world.offer(1, "1.0.0", &json!([[monitoring("one")]]));
    // What the account may not read is shown as what is in the way.
    world.offer(2, "1.0.0", &json!([[monitoring("two"), secret("hunter2")]]));
    let running = world.run(settings).await;
    let pending = world.pending(1, "1.0.0").await;
    world.pending(2, "1.0.0").await;
    let second = world.diff(2).await;
    assert_eq!(second.changes[0].object, "ConfigMap monitoring/two");
    let blocked = &second.changes[1];
    assert_eq!(
        (blocked.operation, &*blocked.object),
        (Operation::Blocked, "Secret default/login")
    );
    assert!(
        blocked.note.contains("containership-core/plugin-metrics"),
        "{blocked:?}"
    );
    world.approve(1, &pending.digest).await;
    world.is_ready(1, "1.0.0").await;
    let configs = world.objects("v1", "configmaps", "ConfigMap", Some("monitoring"));
    world.shows(&configs, "one", |found| found["data"]["a"] == "1").await;
    world.shows(&configs, "two", Value::is_null).await;
    let all = world.plane().audit().await.since(mark).by(&coordinator());
    let own = all.filter(|entry| entry.impersonated_user.is_none() && entry.object_ref.resource == "configmaps");
    let own: Vec<String> = own
        .iter()
        .map(|entry| format!("{} {}", entry.verb, entry.uri))
        .collect();
    assert_eq!(own, [""; 0], "requests with the rights of the coordinator");
    running.stop().await;
}

#[tokio::test]
async fn what_a_webhook_permits_no_dry_run_of_is_shown_as_the_manifests_say() {
    let world = World::start().await;
    let hooked = |value: &str| config("hooked", value);
    // No API server of today takes such a webhook; one that was made before v1 of its API stays as it was.
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    proxy.hook(|request| {
        if request.path.ends_with("/hooked") && request.query.contains("dryRun=All") {
            return Action::refuse(
                400,
                "BadRequest",
                "admission webhook \"a.example.com\" does not support dry run",
            );
        }
        Action::Forward
    });
    world.offer(1, "1.0.0", &json!([[hooked("1"), config("plain", "1")]]));
    let running = world.run_through_with(&proxy, manual()).await;
    let pending = world.pending(1, "1.0.0").await;
    let shown = [
        "create ConfigMap default/hooked (as in the manifests)",
        "create ConfigMap default/plain",
    ];
    assert_eq!(words(&world.diff(1).await), shown);
    world.approve(1, &pending.digest).await;
    world.is_ready(1, "1.0.0").await;
    world.config_is("hooked", Some("1")).await;
    world.offer(1, "1.1.0", &json!([[hooked("2"), config("plain", "1")]]));
    let pending = world.pending(1, "1.1.0").await;
    let diff = world.diff(1).await;
    assert_eq!(words(&diff), ["change ConfigMap default/hooked (as in the manifests)"]);
    assert_eq!(diff.changes[0].differences[0].path, "data.a");
    world.approve(1, &pending.digest).await;
    world.is_ready(1, "1.1.0").await;
    world.config_is("hooked", Some("2")).await;
    running.stop().await;
}

/// It could not be applied either.
#[tokio::test]
async fn what_the_api_server_refuses_in_a_dry_run_cannot_be_approved() {
    let world = World::without_rights().await;
    // The coordinator may look at everything, and change ConfigMaps.
    let rules = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
    ]);
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "some"}, "rules": rules});
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "some"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "some"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": coordinator().username()}]});
    for object in [role, binding] {
        world.plane().apply(&object.to_string()).await;
    }
    let mut invalid = config("one", "1");
    invalid["binaryData"] = json!({"a": "Ym90aA=="});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "one"}});
    world.offer(1, "1.0.0", &json!([[config("two", "1"), invalid]]));
    world.offer(2, "1.0.0", &json!([[config("three", "1"), account]]));
    let running = world.run(manual()).await;
    for (number, reason, words) in [
        (1, "ApplyFailed", "cannot apply ConfigMap default/one: "),
        (2, "Denied", "cannot apply ServiceAccount default/one: "),
    ] {
        let message = world
            .condition(number, "1.0.0", READY, &format!("False {reason}"))
            .await;
        assert!(message.contains(words), "{message}");
        world
            .condition(number, "1.0.0", STALLED, &format!("True {reason}"))
            .await;
        world.condition(number, "1.0.0", RECONCILING, "False Idle").await;
        let status = world.plugins().get(&id(number)).await.unwrap().status.unwrap();
        assert_eq!(status.pending, None);
    }
    for name in ["two", "three"] {
        world.config_is(name, None).await;
    }
    // Corrected, it can.
    world.offer(1, "1.0.1", &json!([[config("two", "1"), config("one", "1")]]));
    let pending = world.pending(1, "1.0.1").await;
    world.approve(1, &pending.digest).await;
    world.is_ready(1, "1.0.1").await;
    running.stop().await;
}
