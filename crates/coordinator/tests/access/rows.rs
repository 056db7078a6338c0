//! Each row of the seed about the two controllers.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::RbacSettings;
use tidewaiter_testkit::eventually;

use crate::world::{SOON, World, apply, id, on};

fn merge() -> PatchParams {
    PatchParams::default()
}

#[tokio::test]
async fn a_role_of_which_no_rule_applies_is_written_once() {
    let world = World::start().await;
    let (empty, refused) = (id(), id());
    world.role(&empty, &[]).await;
    world.role(&refused, &[on(&["users"], &["impersonate"])]).await;
    let mark = world.cluster.audit_mark().await;
    let _running = world.run(RbacSettings::default()).await;
    let note = world.event(&refused, "RulesRefused").await;
    assert!(note.contains("No rule of the role applies"), "{note}");
    let roles: Api<ClusterRole> = world.all();
    for role in [&empty, &refused] {
        let is_empty = |found: &Value| !found.is_null() && found["rules"].as_array().is_none_or(Vec::is_empty);
        world.shows(&roles, role, is_empty).await;
    }
    world.is_quiet().await;
    let written = world.access_written_since(mark).await;
    assert_eq!(written.len(), 2, "{written:?}");
}

#[tokio::test]
async fn roles_and_bindings_of_the_cloud_become_those_of_the_cluster_and_stay_so() {
    let world = World::start().await;
    let (role, everywhere, in_apps) = (id(), id(), id());
    let cloud_only = json!({"id": id(), "type": "containership", "resources": ["clusters"], "verbs": ["delete"]});
    let path = json!({"id": id(), "type": "kubernetes", "non_resource_urls": ["/metrics"], "verbs": ["get"]});
    world.namespace("apps").await;
    world
        .role(&role, &[on(&["pods", "pods/log"], &["get", "list"]), cloud_only, path])
        .await;
    world.bind_user(&everywhere, &role, "ann", "").await;
    world.bind_team(&in_apps, &role, "web", "apps").await;
    let running = world.run(RbacSettings::default()).await;

    let (roles, cluster, apps): (Api<ClusterRole>, Api<ClusterRoleBinding>, Api<RoleBinding>) =
        (world.all(), world.all(), world.within("apps"));
    let expected = json!([
        {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]);
    let as_made = |found: &Value| found["rules"] == expected && found["aggregationRule"].is_null();
    world.shows(&roles, &role, as_made).await;
    let subject =
        |kind: &str, name: &str| json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}]);
    let (ann, web) = (
        subject("User", "containership.io/user_id#ann"),
        subject("Group", "containership.io/team_id#web"),
    );
    world
        .shows(&cluster, &everywhere, |found| found["subjects"] == ann)
        .await;
    world.shows(&apps, &in_apps, |found| found["subjects"] == web).await;
    let managed = |found: &Value| found["metadata"]["labels"]["containership.io/managed"] == "true";
    world.shows(&roles, &role, managed).await;
    world.shows(&apps, &in_apps, managed).await;
    world.becomes("ann", ("list", "pods", "other"), true).await;
    assert!(world.may("bob", &["web"], "get", "pods", "apps").await);
    assert!(!world.may("bob", &["web"], "get", "pods", "other").await);
    assert!(!world.may("ann", &[], "delete", "pods", "apps").await);
    world.is_quiet().await;

    // Edits are undone.
    let mine = json!({"rules": [], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}});
    roles.patch(&role, &merge(), &Patch::Merge(mine)).await.unwrap();
    world.shows(&roles, &role, as_made).await;
    let eve = subject("User", "eve");
    let edit = json!({ "subjects": eve });
    cluster
        .patch(&everywhere, &merge(), &Patch::Merge(&edit))
        .await
        .unwrap();
    world
        .shows(&cluster, &everywhere, |found| found["subjects"] == ann)
        .await;
    world.delete(&apps, &in_apps).await;
    world.shows(&apps, &in_apps, |found| found["subjects"] == web).await;
    world.is_quiet().await;

    // A restart writes nothing.
    drop(running);
    let mark = world.cluster.audit_mark().await;
    let running = world.run(RbacSettings::default()).await;
    running
        .counts("tidewaiter_role_bindings_waiting{for=\"role\"}", 0)
        .await;
    world.is_quiet().await;
    assert_eq!(world.written_since(mark).await, [""; 0]);

    // What the cloud takes away goes, and with it what it became.
    world.delete(&world.bindings(), &in_apps).await;
    world.is_gone(&apps, &in_apps).await;
    world.is_gone(&world.bindings(), &in_apps).await;
    world.delete(&world.roles(), &role).await;
    world.is_gone(&roles, &role).await;
    world.is_gone(&world.roles(), &role).await;
    world.is_gone(&cluster, &everywhere).await;
    world.becomes("ann", ("list", "pods", "other"), false).await;
    let note = world.event(&everywhere, "BindingWaits").await;
    assert!(note.contains("there is no role"), "{note}");
    running
        .counts("tidewaiter_role_bindings_waiting{for=\"role\"}", 1)
        .await;
    world.is_quiet().await;
}

#[tokio::test]
async fn a_binding_waits_for_its_role_and_its_namespace_and_says_so() {
    let world = World::start().await;
    let running = world.run(RbacSettings::default()).await;
    let (role, binding) = (id(), id());
    world.bind_user(&binding, &role, "ann", "later").await;
    world.event(&binding, "BindingWaits").await;
    running
        .counts("tidewaiter_role_bindings_waiting{for=\"role\"}", 1)
        .await;
    world.role(&role, &[on(&["pods"], &["get"])]).await;
    running
        .counts("tidewaiter_role_bindings_waiting{for=\"namespace\"}", 1)
        .await;
    running
        .counts("tidewaiter_role_bindings_waiting{for=\"role\"}", 0)
        .await;
    world.namespace("later").await;
    world.becomes("ann", ("get", "pods", "later"), true).await;
    running
        .counts("tidewaiter_role_bindings_waiting{for=\"namespace\"}", 0)
        .await;
}

#[tokio::test]
async fn a_right_that_stays_is_never_missing_while_its_role_or_its_place_changes() {
    let world = World::start().await;
    let (one, other, binding) = (id(), id(), id());
    world.namespace("apps").await;
    world
        .role(&one, &[on(&["pods"], &["get"]), on(&["services"], &["get"])])
        .await;
    world.role(&other, &[on(&["pods"], &["get"])]).await;
    world.bind_user(&binding, &one, "ann", "").await;
    let _running = world.run(RbacSettings::default()).await;
    world.becomes("ann", ("get", "pods", "apps"), true).await;
    let cluster: Api<ClusterRoleBinding> = world.all();
    let changes = async {
        for _ in 0..5 {
            for (role, namespace, serves) in [
                (&other, "", false),
                (&one, "", true),
                (&other, "apps", false),
                (&one, "", true),
            ] {
                world.bind_user(&binding, role, "ann", namespace).await;
                world.becomes("ann", ("get", "services", "apps"), serves).await;
            }
        }
    };
    let watching = async {
        loop {
            assert!(
                world.may("ann", &[], "get", "pods", "apps").await,
                "a moment without the right"
            );
        }
    };
    tokio::select! {
        () = changes => {}
        () = watching => {}
    }
    world.is_gone(&cluster, &format!("{binding}-next")).await;
    world.is_quiet().await;
}

#[tokio::test]
async fn what_others_made_is_not_touched() {
    let world = World::start().await;
    let (role, binding) = (id(), id());
    let theirs = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]});
    let roles: Api<ClusterRole> = world.all();
    roles
        .create(&PostParams::default(), &serde_json::from_value(theirs).unwrap())
        .await
        .unwrap();
    let before = roles.get(&role).await.unwrap();
    world.role(&role, &[on(&["pods"], &["get"])]).await;
    world.bind_user(&binding, &role, "ann", "").await;
    // The role that every cluster has is not one of the cloud, whatever a binding says.
    let to_admin = id();
    world.bind_user(&to_admin, "cluster-admin", "eve", "").await;
    // Somebody's bindings have the names of two of the cloud's.
    let (own, everywhere, in_apps) = (id(), id(), id());
    world.namespace("apps").await;
    world.role(&own, &[on(&["pods"], &["get"])]).await;
    let (cluster, apps): (Api<ClusterRoleBinding>, Api<RoleBinding>) = (world.all(), world.within("apps"));
    let theirs = |name: &str| {
        json!({"metadata": {"name": name}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "zoe"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}})
    };
    apply(&cluster, &everywhere, theirs(&everywhere)).await;
    apply(&apps, &in_apps, theirs(&in_apps)).await;
    world.bind_user(&everywhere, &own, "ann", "").await;
    world.bind_user(&in_apps, &own, "ann", "apps").await;
    let versions = async || {
        let (one, other) = tokio::join!(cluster.get(&everywhere), apps.get(&in_apps));
        [one.unwrap().metadata, other.unwrap().metadata].map(|meta| meta.resource_version)
    };
    let bindings = versions().await;
    let _running = world.run(RbacSettings::default()).await;
    let note = world.event(&role, "ForeignObject").await;
    assert!(note.contains("ClusterRole"), "{note}");
    world.event(&everywhere, "ForeignObject").await;
    world.event(&in_apps, "ForeignObject").await;
    world.event(&to_admin, "BindingWaits").await;
    world.is_quiet().await;
    let after = roles.get(&role).await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert!(!world.may("ann", &[], "get", "nodes", "").await);
    assert!(!world.may("eve", &[], "get", "nodes", "").await);

    // The resources can be deleted all the same, and what others made stays.
    world.delete(&world.roles(), &role).await;
    for name in [&everywhere, &in_apps] {
        world.delete(&world.bindings(), name).await;
        world.is_gone(&world.bindings(), name).await;
    }
    world.is_gone(&world.roles(), &role).await;
    assert!(roles.get_opt(&role).await.unwrap().is_some());
    assert_eq!(versions().await, bindings);
}

/// Takes our label off what was made of a role and its bindings.
async fn unlabel(world: &World, [role, everywhere, in_apps]: [&str; 3]) {
    let off = Patch::Merge(json!({"metadata": {"labels": {"containership.io/managed": null}}}));
    let (roles, cluster, apps): (Api<ClusterRole>, Api<ClusterRoleBinding>, Api<RoleBinding>) =
        (world.all(), world.all(), world.within("apps"));
    roles.patch(role, &merge(), &off).await.unwrap();
    cluster.patch(everywhere, &merge(), &off).await.unwrap();
    apps.patch(in_apps, &merge(), &off).await.unwrap();
}

#[tokio::test]
async fn what_is_revoked_goes_although_somebody_took_the_label_off() {
    let world = World::start().await;
    let (role, everywhere, in_apps) = (id(), id(), id());
    world.namespace("apps").await;
    world.role(&role, &[on(&["pods"], &["get"])]).await;
    world.bind_user(&everywhere, &role, "ann", "").await;
    world.bind_user(&in_apps, &role, "bob", "apps").await;
    let running = world.run(RbacSettings::default()).await;
    let (roles, cluster, apps): (Api<ClusterRole>, Api<ClusterRoleBinding>, Api<RoleBinding>) =
        (world.all(), world.all(), world.within("apps"));
    world.becomes("ann", ("get", "pods", ""), true).await;
    world.becomes("bob", ("get", "pods", "apps"), true).await;
    // It comes back while the cloud lists them.
    unlabel(&world, [&role, &everywhere, &in_apps]).await;
    let managed = |found: &Value| found["metadata"]["labels"]["containership.io/managed"] == "true";
    world.shows(&roles, &role, managed).await;
    world.shows(&cluster, &everywhere, managed).await;
    world.shows(&apps, &in_apps, managed).await;
    world.is_quiet().await;
    // Revoked while nobody looks.
    running.stop().await;
    unlabel(&world, [&role, &everywhere, &in_apps]).await;
    world.delete(&world.bindings(), &everywhere).await;
    world.delete(&world.bindings(), &in_apps).await;
    world.delete(&world.roles(), &role).await;
    let _running = world.run(RbacSettings::default()).await;
    world.is_gone(&cluster, &everywhere).await;
    world.is_gone(&apps, &in_apps).await;
    world.is_gone(&roles, &role).await;
    world.is_gone(&world.bindings(), &in_apps).await;
    assert!(!world.may("ann", &[], "get", "pods", "").await);
}

/// An owner who takes the label off can also erase who wrote the binding, and retain it by a finalizer.
#[tokio::test]
async fn what_is_revoked_gives_nothing_whatever_its_owner_does_with_it() {
    let world = World::start().await;
    let (role, everywhere, in_apps) = (id(), id(), id());
    world.namespace("apps").await;
    world.namespace("another").await;
    world.role(&role, &[on(&["pods"], &["get"])]).await;
    world.bind_user(&everywhere, &role, "ann", "").await;
    world.bind_user(&in_apps, &role, "bob", "apps").await;
    let _running = world.run(RbacSettings::default()).await;
    let (cluster, apps): (Api<ClusterRoleBinding>, Api<RoleBinding>) = (world.all(), world.within("apps"));
    world.becomes("ann", ("get", "pods", ""), true).await;
    world.becomes("bob", ("get", "pods", "apps"), true).await;
    // A binding of somebody else that cannot be removed and whose turn is first.
    let view = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let kept = json!({"metadata": {"name": in_apps, "labels": {"containership.io/managed": "true"}, "finalizers": ["example.com/keep"]},
        "roleRef": view, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    let another: Api<RoleBinding> = world.within("another");
    apply(&another, &in_apps, kept).await;
    let hidden = Patch::Merge(json!({"metadata": {
        "labels": {"containership.io/managed": null}, "managedFields": [{}], "finalizers": ["example.com/keep"]}}));
    cluster.patch(&everywhere, &merge(), &hidden).await.unwrap();
    world.delete(&world.bindings(), &everywhere).await;
    apps.patch(&in_apps, &merge(), &hidden).await.unwrap();
    world.delete(&world.bindings(), &in_apps).await;
    world.becomes("ann", ("get", "pods", ""), false).await;
    world.becomes("bob", ("get", "pods", "apps"), false).await;
    world
        .shows(&another, &in_apps, |found: &Value| found.get("subjects").is_none())
        .await;
}

#[tokio::test]
async fn a_ceiling_that_does_not_exist_makes_a_replica_unready_until_it_does() {
    let world = World::start().await;
    let ceiling = id();
    let settings = RbacSettings {
        ceiling: Some(ceiling.clone()),
        ..RbacSettings::default()
    };
    let running = world.run(settings).await;
    let (is_ready, report) = running.readiness();
    let told = format!("there is no ClusterRole \"{ceiling}\", which rbacCeiling names");
    assert!(!is_ready && report.contains(&told), "{report}");
    apply(
        &world.all::<ClusterRole>(),
        &ceiling,
        json!({"metadata": {"name": ceiling}, "rules": []}),
    )
    .await;
    eventually("readiness", SOON, async || {
        let (is_ready, report) = running.readiness();
        if is_ready { Ok(()) } else { Err(report) }
    })
    .await;
}

/// No cache shows objects without our label, nor their deletion.
#[tokio::test]
async fn a_name_is_taken_as_soon_as_a_foreign_object_of_it_is_deleted() {
    let world = World::start().await;
    let (role, everywhere, in_apps) = (id(), id(), id());
    world.namespace("apps").await;
    let (roles, cluster, apps): (Api<ClusterRole>, Api<ClusterRoleBinding>, Api<RoleBinding>) =
        (world.all(), world.all(), world.within("apps"));
    let view = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let theirs = |name: &str| json!({"metadata": {"name": name}, "roleRef": view});
    apply(&roles, &role, json!({"metadata": {"name": role}})).await;
    apply(&cluster, &everywhere, theirs(&everywhere)).await;
    apply(&apps, &in_apps, theirs(&in_apps)).await;
    let _running = world.run(RbacSettings::default()).await;
    world.role(&role, &[on(&["pods"], &["get"])]).await;
    let note = world.event(&role, "ForeignObject").await;
    let command = format!("kubectl label clusterrole {role} containership.io/managed=true");
    assert!(note.contains(&command), "{note}");
    world.delete(&roles, &role).await;
    world.shows(&roles, &role, |found| !found["rules"].is_null()).await;
    world.bind_user(&everywhere, &role, "ann", "").await;
    world.bind_user(&in_apps, &role, "bob", "apps").await;
    for (name, place) in [(&everywhere, String::new()), (&in_apps, " -n apps".to_owned())] {
        let note = world.event(name, "ForeignObject").await;
        let command = format!("{name}{place} containership.io/managed=true");
        assert!(note.contains(&command), "{note}");
    }
    world.delete(&cluster, &everywhere).await;
    world.delete(&apps, &in_apps).await;
    world.becomes("ann", ("get", "pods", ""), true).await;
    world.becomes("bob", ("get", "pods", "apps"), true).await;
}

#[tokio::test]
async fn what_a_finalizer_of_others_keeps_gives_nobody_anything_and_is_reported() {
    let world = World::start().await;
    let (first, second, everywhere, in_apps) = (id(), id(), id(), id());
    world.namespace("apps").await;
    world.role(&first, &[on(&["pods"], &["get", "list"])]).await;
    world.role(&second, &[on(&["pods"], &["get"])]).await;
    world.bind_user(&everywhere, &first, "ann", "").await;
    world.bind_user(&in_apps, &first, "bob", "apps").await;
    let running = world.run(RbacSettings::default()).await;
    world.becomes("ann", ("list", "pods", "apps"), true).await;
    world.becomes("bob", ("list", "pods", "apps"), true).await;
    let (cluster, apps): (Api<ClusterRoleBinding>, Api<RoleBinding>) = (world.all(), world.within("apps"));
    let finalizers = |value: Value| Patch::Merge(json!({"metadata": {"finalizers": value}}));
    let kept = finalizers(json!(["lab.example.com/kept"]));
    cluster.patch(&everywhere, &merge(), &kept).await.unwrap();
    apps.patch(&in_apps, &merge(), &kept).await.unwrap();
    world.is_quiet().await;

    // Another role, through a stand-in; and nothing any more.
    world.bind_user(&everywhere, &second, "ann", "").await;
    world.delete(&world.bindings(), &in_apps).await;
    world.becomes("ann", ("list", "pods", "apps"), false).await;
    world.becomes("bob", ("list", "pods", "apps"), false).await;
    assert!(world.may("ann", &[], "get", "pods", "apps").await);
    for (name, kept) in [
        (&everywhere, format!("ClusterRoleBinding {everywhere}")),
        (&in_apps, format!("RoleBinding apps/{in_apps}")),
    ] {
        let note = world.event(name, "DeletionBlocked").await;
        assert!(note.contains(&kept), "{note}");
    }
    let is_emptied = |found: &Value| found["subjects"].is_null() && !found["metadata"]["deletionTimestamp"].is_null();
    world.shows(&cluster, &everywhere, is_emptied).await;
    world.shows(&apps, &in_apps, is_emptied).await;
    world.is_quiet().await;

    // It lets them go.
    cluster
        .patch(&everywhere, &merge(), &finalizers(Value::Null))
        .await
        .unwrap();
    apps.patch(&in_apps, &merge(), &finalizers(Value::Null)).await.unwrap();
    world.is_gone(&apps, &in_apps).await;
    world.is_gone(&world.bindings(), &in_apps).await;
    let is_bound = |found: &Value| found["roleRef"]["name"] == json!(second) && !found["subjects"].is_null();
    world.shows(&cluster, &everywhere, is_bound).await;
    world.is_gone(&cluster, &format!("{everywhere}-next")).await;
    assert!(world.may("ann", &[], "get", "pods", "apps").await);
    world.is_quiet().await;
    drop(running);
}
