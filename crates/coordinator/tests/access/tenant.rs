//! An admin of a namespace, who fills what the coordinator caches with objects that have its label.

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_coordinator::controllers::RbacSettings;

use crate::world::{World, coordinator, id, on};

/// Of 1 MB each.
const LARGE: usize = 24;

fn subjects() -> Vec<Value> {
    let name = |number: usize| format!("{number}{}", "x".repeat(200));
    let subject = |number| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name(number)});
    (0..3_500).map(subject).collect()
}

#[tokio::test]
async fn large_role_bindings_are_read_in_small_pages_and_delay_nobody() {
    let world = World::start().await;
    for namespace in ["tenant", "apps"] {
        world.namespace(namespace).await;
    }
    let of_tenant: Api<RoleBinding> = world.within("tenant");
    for number in 0..LARGE {
        let binding = json!({"metadata": {"name": format!("m{number}"), "labels": {MANAGED_LABEL: MANAGED_VALUE}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "subjects": subjects()});
        let binding = serde_json::from_value(binding).unwrap();
        of_tenant.create(&PostParams::default(), &binding).await.unwrap();
    }
    let mark = world.cluster.audit_mark().await;
    let running = world.run(RbacSettings::default()).await;
    let (role, bound) = (id(), id());
    world.role(&role, &[on(&["pods"], &["get"])]).await;
    world.bind_user(&bound, &role, "alice", "apps").await;
    world.becomes("alice", ("get", "pods", "apps"), true).await;

    // One of ours that is made as large is put right.
    let in_apps: Api<RoleBinding> = world.within("apps");
    let edit = Patch::Merge(json!({ "subjects": subjects() }));
    in_apps.patch(&bound, &PatchParams::default(), &edit).await.unwrap();
    let is_ours = |found: &Value| found["subjects"].as_array().is_some_and(|subjects| subjects.len() == 1);
    world.shows(&in_apps, &bound, is_ours).await;
    world.becomes("alice", ("get", "pods", "apps"), true).await;
    running.stop().await;

    let lists = world.cluster.audit().await.since(mark).by(&coordinator()).verb("list");
    let lists = lists.of("rolebindings");
    let with = |limit: &str| lists.iter().filter(|list| list.uri.contains(limit)).count();
    let sizes = ["limit=50", "limit=12", "limit=3"].map(with);
    // The others are dropped, once each.
    assert!(sizes[0] <= 1 && sizes[1] <= 1 && sizes[2] >= LARGE / 3, "{sizes:?}");
}
