//! `tidewaiter explain access`, as a person runs it, beside a coordinator: the permissions of a person, and the
//! bindings that give them.

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tidewaiter_testkit::{Identity, eventually};
use tokio::process::Command;

use crate::cloud::Cloud;
use crate::{SOON, World};

/// Objects that somebody made by hand, for the owner of the cloud.
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
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "containership.io/user_id#OWNER"}]
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

impl World {
    /// The answer of the command.
    async fn explained(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        command.args(["explain", "access", "-o", "json"]).args(arguments);
        command
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig(&Identity::Admin));
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The texts of one list of the answer, sorted.
fn lines(explained: &Value, list: &str, line: impl Fn(&Value) -> String) -> Vec<String> {
    let mut lines: Vec<String> = explained[list].as_array().unwrap().iter().map(line).collect();
    lines.sort();
    lines
}

/// The grants of a person, as `what | where | binding | to`.
fn grants(explained: &Value) -> Vec<String> {
    lines(explained, "grants", |grant| {
        let text = |field: &str| grant[field].as_str().unwrap_or("everywhere");
        let other = if grant["managed"] == true {
            ""
        } else {
            ", not of the cloud"
        };
        let (place, binding) = (text("namespace"), text("binding"));
        format!("{} | {place} | {binding}{other} | {}", text("what"), text("to"))
    })
}

fn sorted<const N: usize>(lines: [&str; N]) -> Vec<String> {
    let mut lines: Vec<String> = lines.map(str::to_owned).into();
    lines.sort();
    lines
}

/// A role whose name begins like that of another one and goes on like the query of a URL, and a binding to it.
async fn named_like_a_query(world: &World, owner: &str) {
    let client = world.cluster.client(&Identity::Admin);
    let role = json!({"metadata": {"name": "by-hand?x=1"},
        "rules": [{"apiGroups": [""], "resources": ["endpoints"], "verbs": ["get"]}]});
    let user = format!("containership.io/user_id#{owner}");
    let binding = json!({"metadata": {"name": "query"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "by-hand?x=1"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
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

/// The id of a new object.
async fn made(cloud: &Cloud, path: &str, body: Value) -> String {
    cloud.post(path, body).await["id"].as_str().unwrap().to_owned()
}

fn on(resource: &str, verbs: &[&str]) -> Value {
    json!({"type": "kubernetes", "api_groups": [""], "resources": [resource], "verbs": verbs})
}

/// The id of a new binding.
async fn bound(cloud: &Cloud, role: &str, subject: (&str, &str, &str), namespace: Option<&str>) -> String {
    let (kind, field, id) = subject;
    let mut binding = json!({"type": kind, "authorization_role_id": role, "cluster_id": cloud.cluster,
        "namespace": namespace});
    binding[field] = json!(id);
    made(cloud, "~/role-bindings", binding).await
}

/// The roles and bindings of the cloud: the two roles, the bindings of them, and the team.
async fn given(cloud: &Cloud) -> [String; 6] {
    let path = json!({"type": "kubernetes", "non_resource_urls": ["/metrics"], "verbs": ["get"]});
    let rules = [
        on("pods", &["get", "list"]),
        on("secrets", &["get"]),
        on("nodes/proxy", &["get"]),
        path,
    ];
    let viewer = made(cloud, "~/roles", json!({"name": "viewer", "rules": rules})).await;
    let logs = json!({"name": "logs", "rules": [on("pods/log", &["get"])]});
    let logs = made(cloud, "~/roles", logs).await;
    let team = made(cloud, "~/teams", json!({"name": "web"})).await;
    let owner = ("UserBinding", "user_id", &*cloud.owner_id);
    let in_apps = bound(cloud, &viewer, owner, Some("apps")).await;
    let of_team = bound(cloud, &logs, ("TeamBinding", "team_id", &team), None).await;
    let later = bound(cloud, &logs, owner, Some("later")).await;
    [viewer, logs, in_apps, of_team, later, team]
}

#[tokio::test]
async fn what_somebody_may_do_and_by_which_binding_and_what_is_refused_or_waits() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let owner = cloud.owner_id.as_str();
    world.namespace("apps").await;
    world.cluster.apply(&BY_HAND.replace("OWNER", owner)).await;
    named_like_a_query(&world, owner).await;
    let [viewer, _, in_apps, of_team, later, team] = given(&cloud).await;
    let mut variables = cloud.variables();
    variables.push(("TIDEWAITER_RBAC_CEILING", "ceiling".to_owned()));
    let _coordinator = world.replica(&variables, None);

    let of_apps = format!("get,list pods | apps | {in_apps} | user");
    let own = [
        "list nodes | everywhere | all-view, not of the cloud | everybody",
        "get configmaps | apps | by-hand, not of the cloud | user",
        "get endpoints | apps | query, not of the cloud | user",
        &of_apps,
    ];
    let alone = eventually("the bindings", SOON, async || {
        let alone = world.explained(&["--user", owner]).await;
        let reasons = lines(&alone, "events", |event| event["reason"].as_str().unwrap().to_owned());
        if grants(&alone) == sorted(own) && reasons == ["BindingWaits", "RulesRefused"] {
            Ok(alone)
        } else {
            Err(format!("{alone:#}"))
        }
    })
    .await;
    let text = alone["notes"].to_string();
    assert!(
        text.contains("add --team ID") && text.contains("system:discovery"),
        "{text}"
    );
    let refused = lines(&alone, "refused", |it| {
        assert_eq!(it["role"]["id"], viewer, "{it}");
        format!("{}: {}", it["what"].as_str().unwrap(), it["why"].as_str().unwrap())
    });
    let expected = [
        "get nodes/proxy: permits nodes/proxy, which amounts to full control and needs allowPrivileged: true",
        "get secrets: it is beyond rbacCeiling, or not applied yet: see the Events",
    ];
    assert_eq!(refused, expected);
    let waiting = |explained: &Value| {
        lines(explained, "waiting", |it| {
            format!("{}: {}", it["binding"].as_str().unwrap(), it["why"].as_str().unwrap())
        })
    };
    let expected = format!("{later}: there is no namespace later, or it is being deleted");
    assert_eq!(waiting(&alone), [expected]);

    let of_logs = format!("get pods/log | everywhere | {of_team} | team {team}");
    let with_team = ["--user", owner, "--team", &team, "-n", "apps"];
    let with_team = world.explained(&with_team).await;
    let [nodes, configmaps, endpoints, pods] = own;
    assert_eq!(
        grants(&with_team),
        sorted([nodes, configmaps, endpoints, pods, &of_logs])
    );
    assert!(!with_team["notes"].to_string().contains("--team"), "{with_team:#}");
    assert!(
        waiting(&with_team).is_empty(),
        "the binding is in another namespace: {with_team:#}"
    );

    let of_team = world.explained(&["--team", &team, "-n", "later"]).await;
    assert_eq!(grants(&of_team), sorted([nodes, &of_logs]));
    for list in ["refused", "waiting", "events"] {
        assert_eq!(of_team[list], json!([]), "{of_team:#}");
    }
}
