//! Nobody gains more than they were given.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::RbacSettings;

use crate::world::{World, id, on};

fn resources(found: &Value) -> Vec<&str> {
    let rules = found["rules"].as_array().into_iter().flatten();
    rules.filter_map(|rule| rule["resources"][0].as_str()).collect()
}

#[tokio::test]
async fn rules_that_amount_to_full_control_are_refused_unless_they_are_allowed() {
    let world = World::start().await;
    let (role, binding) = (id(), id());
    let everything = json!({"id": id(), "type": "kubernetes", "api_groups": ["*"], "resources": ["*"], "verbs": ["*"]});
    world
        .role(
            &role,
            &[
                on(&["pods"], &["get"]),
                everything,
                on(&["users"], &["impersonate"]),
                on(&["secrets"], &["get"]),
            ],
        )
        .await;
    let running = world.run(RbacSettings::default()).await;
    let roles: Api<ClusterRole> = world.all();
    world
        .shows(&roles, &role, |found| resources(found) == ["pods", "secrets"])
        .await;
    running
        .counts("tidewaiter_role_rules_refused{reason=\"privileged\"}", 2)
        .await;
    let note = world.event(&role, "RulesRefused").await;
    assert!(
        note.contains("allowPrivileged") && note.contains("impersonate users"),
        "{note}"
    );

    // Secrets in all namespaces are full control; in one namespace they are not.
    world.bind_user(&binding, &role, "ann", "").await;
    world.becomes("ann", ("get", "pods", "apps"), true).await;
    world.shows(&roles, &role, |found| resources(found) == ["pods"]).await;
    assert!(!world.may("ann", &[], "get", "secrets", "apps").await);
    running
        .counts("tidewaiter_role_rules_refused{reason=\"privileged\"}", 3)
        .await;

    drop(running);
    let allowed = RbacSettings {
        allow_privileged: true,
        ..RbacSettings::default()
    };
    let running = world.run(allowed).await;
    world.becomes("ann", ("delete", "nodes", ""), true).await;
    running
        .counts("tidewaiter_role_rules_refused{reason=\"privileged\"}", 0)
        .await;
}

#[tokio::test]
async fn nothing_is_permitted_beyond_the_ceiling_and_the_api_server_agrees() {
    let world = World::start().await;
    let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) = (world.all(), world.all());
    // Without escalate and bind; the service account has the ceiling instead.
    let ours = roles.get("tidewaiter-coordinator").await.unwrap();
    let mut limited = serde_json::to_value(&ours).unwrap();
    let kept = limited["rules"].as_array_mut().unwrap();
    kept.retain(|rule| !rule["verbs"].as_array().unwrap().contains(&json!("escalate")));
    let without = json!({ "rules": kept });
    roles
        .patch(
            "tidewaiter-coordinator",
            &PatchParams::default(),
            &Patch::Merge(without),
        )
        .await
        .unwrap();
    let ceiling = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "ceiling"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list"]}]});
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "ceiling"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ceiling"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "containership-core", "name": "tidewaiter-coordinator"}]});
    let apply = PatchParams::apply("admin").force();
    roles.patch("ceiling", &apply, &Patch::Apply(ceiling)).await.unwrap();
    bindings.patch("ceiling", &apply, &Patch::Apply(bound)).await.unwrap();

    let (role, binding) = (id(), id());
    world
        .role(
            &role,
            &[
                on(&["pods"], &["get"]),
                on(&["services"], &["get", "delete"]),
                on(&["secrets"], &["get"]),
            ],
        )
        .await;
    world.bind_user(&binding, &role, "ann", "").await;
    let settings = RbacSettings {
        ceiling: Some("ceiling".to_owned()),
        allow_privileged: true,
        ..RbacSettings::default()
    };
    let running = world.run(settings).await;
    world.becomes("ann", ("get", "pods", "apps"), true).await;
    world.shows(&roles, &role, |found| resources(found) == ["pods"]).await;
    let note = world.event(&role, "RulesRefused").await;
    assert!(
        note.contains("rbacCeiling, which does not permit \"delete services\""),
        "{note}"
    );
    running
        .counts("tidewaiter_role_rules_refused{reason=\"ceiling\"}", 2)
        .await;
    world.is_quiet().await;

    // The ceiling rises, and is taken away.
    let more =
        json!({"rules": [{"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "delete"]}]});
    roles
        .patch("ceiling", &PatchParams::default(), &Patch::Merge(more))
        .await
        .unwrap();
    world.becomes("ann", ("delete", "services", "apps"), true).await;
    running
        .counts("tidewaiter_role_rules_refused{reason=\"ceiling\"}", 1)
        .await;
    roles.delete("ceiling", &DeleteParams::default()).await.unwrap();
    world.becomes("ann", ("get", "pods", "apps"), false).await;
}
