//! The permissions of a person, and the bindings that give them, beside the controllers.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, PostParams};
use serde_json::json;
use tidewaiter_coordinator::access::{AccessError, AccessExplained, Question, explain};
use tidewaiter_coordinator::controllers::RbacSettings;
use tidewaiter_testkit::{Identity, eventually};

use crate::world::{SOON, World, id, on};

impl World {
    async fn explains(&self, user: Option<&str>, teams: &[&str], namespace: Option<&str>) -> AccessExplained {
        let question = Question {
            user: user.map(str::to_owned),
            teams: teams.iter().map(ToString::to_string).collect(),
            namespace: namespace.map(str::to_owned),
        };
        explain(&self.cluster.client(&Identity::Admin), &question)
            .await
            .unwrap()
    }
}

/// The grants of a person, as `what | where | binding | to`.
fn grants(explained: &AccessExplained) -> Vec<String> {
    let grants = explained.grants.iter().map(|grant| {
        let place = grant.namespace.as_deref().unwrap_or("everywhere");
        let other = if grant.managed { "" } else { ", not of the cloud" };
        format!("{} | {place} | {}{other} | {}", grant.what, grant.binding, grant.to)
    });
    grants.collect()
}

/// A `Role` and a `RoleBinding` that somebody made by hand.
const BY_HAND: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: by-hand, namespace: apps}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: by-hand, namespace: apps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: by-hand}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "containership.io/user_id#ann"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: all-view}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nodes-view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nodes-view}
rules: [{apiGroups: [""], resources: [nodes], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ceiling}
rules: [{apiGroups: [""], resources: [pods, pods/log, nodes/proxy], verbs: [get, list]}, {nonResourceURLs: [/metrics], verbs: [get]}]
"#;

/// A role whose name begins like that of another one and goes on like the query of a URL, and a binding to it.
async fn named_like_a_query(world: &World) {
    let client = world.cluster.client(&Identity::Admin);
    let role = json!({"metadata": {"name": "by-hand?x=1"},
        "rules": [{"apiGroups": [""], "resources": ["endpoints"], "verbs": ["get"]}]});
    let binding = json!({"metadata": {"name": "query"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "by-hand?x=1"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "containership.io/user_id#ann"}]});
    let (role, binding): (Role, RoleBinding) = (
        serde_json::from_value(role).unwrap(),
        serde_json::from_value(binding).unwrap(),
    );
    let params = PostParams::default();
    Api::namespaced(client.clone(), "apps")
        .create(&params, &role)
        .await
        .unwrap();
    Api::namespaced(client, "apps").create(&params, &binding).await.unwrap();
}

/// The roles and bindings of the cloud: the two roles, then the bindings of them.
async fn given(world: &World) -> [String; 6] {
    let [viewer, logs, in_apps, of_team, later, lost] = std::array::from_fn(|_| id());
    let path = json!({"id": id(), "type": "kubernetes", "non_resource_urls": ["/metrics"], "verbs": ["get"]});
    world
        .role(
            &viewer,
            &[
                on(&["pods"], &["get", "list"]),
                on(&["secrets"], &["get"]),
                on(&["nodes/proxy"], &["get"]),
                path,
            ],
        )
        .await;
    world.role(&logs, &[on(&["pods/log"], &["get"])]).await;
    world.bind_user(&in_apps, &viewer, "ann", "apps").await;
    world.bind_team(&of_team, &logs, "web", "").await;
    world.bind_user(&later, &logs, "ann", "later").await;
    world.bind_user(&lost, "gone", "ann", "").await;
    [viewer, logs, in_apps, of_team, later, lost]
}

#[tokio::test]
async fn what_somebody_may_do_and_by_which_binding_and_what_is_refused_or_waits() {
    let world = World::start().await;
    world.namespace("apps").await;
    world.cluster.apply(BY_HAND).await;
    named_like_a_query(&world).await;
    let [viewer, _, in_apps, of_team, later, lost] = given(&world).await;
    let settings = RbacSettings {
        ceiling: Some("ceiling".to_owned()),
        ..RbacSettings::default()
    };
    let _running = world.run(settings).await;
    let note = world.event(&viewer, "RulesRefused").await;
    world.event(&later, "BindingWaits").await;
    world.event(&lost, "BindingWaits").await;

    let own = [
        "list nodes | everywhere | all-view, not of the cloud | everybody".to_owned(),
        "get configmaps | apps | by-hand, not of the cloud | user".to_owned(),
        "get endpoints | apps | query, not of the cloud | user".to_owned(),
        format!("get,list pods | apps | {in_apps} | user"),
    ];
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let alone = eventually("the bindings", SOON, async || {
        let alone = world.explains(Some("ann"), &[], None).await;
        let found = sorted(grants(&alone));
        if found == sorted(own.to_vec()) && alone.events.len() == 3 {
            Ok(alone)
        } else {
            Err(format!("{alone:#?}"))
        }
    })
    .await;
    assert!(
        alone.notes.iter().any(|note| note.contains("add --team ID")),
        "{alone:#?}"
    );
    assert!(
        alone.notes.iter().any(|note| note.contains("system:discovery")),
        "{alone:#?}"
    );
    // What they may do is what the API server says; a path is in no namespace.
    assert!(world.may("ann", &[], "list", "pods", "apps").await);

    let refused: Vec<_> = alone
        .refused
        .iter()
        .map(|it| (it.what.as_str(), it.why.as_str()))
        .collect();
    assert_eq!(
        refused,
        [
            (
                "get secrets",
                "it is beyond rbacCeiling, or not applied yet: see the Events"
            ),
            (
                "get nodes/proxy",
                "permits nodes/proxy, which amounts to full control and needs allowPrivileged: true"
            ),
        ]
    );
    assert!(alone.refused.iter().all(|it| it.role.id == viewer), "{alone:#?}");
    assert!(alone.events.iter().any(|event| event.message == note), "{alone:#?}");
    let waiting = sorted(
        alone
            .waiting
            .iter()
            .map(|it| format!("{}: {}", it.binding, it.why))
            .collect(),
    );
    let expected = [
        format!("{later}: there is no namespace later, or it is being deleted"),
        format!("{lost}: there is no role gone"),
    ];
    assert_eq!(waiting, sorted(expected.to_vec()));

    let of_logs = format!("get pods/log | everywhere | {of_team} | team web");
    let with_team = world.explains(Some("ann"), &["web"], Some("apps")).await;
    let with_teams = [&own[..], std::slice::from_ref(&of_logs)].concat();
    assert_eq!(sorted(grants(&with_team)), sorted(with_teams));
    assert!(
        !with_team.notes.iter().any(|note| note.contains("--team")),
        "{with_team:#?}"
    );
    let waiting: Vec<_> = with_team.waiting.iter().map(|it| &it.binding).collect();
    assert_eq!(waiting, [&lost], "the other one is in another namespace");

    let team = world.explains(None, &["web"], Some("later")).await;
    assert_eq!(sorted(grants(&team)), sorted(vec![own[0].clone(), of_logs]));
    assert!(
        team.refused.is_empty() && team.waiting.is_empty() && team.events.is_empty(),
        "{team:#?}"
    );

    let unknown = Question {
        user: Some("Eve".to_owned()),
        ..Question::default()
    };
    let error = explain(&world.cluster.client(&Identity::Admin), &unknown)
        .await
        .unwrap_err();
    assert!(matches!(error, AccessError::NoUser { .. }), "{error}");
}
