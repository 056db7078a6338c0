//! A cluster in which a Go coordinator has made everything that it makes: nothing of it is away or reduced for a
//! moment, on the way to Tidewaiter, back as docs/coordinator.md says, and to Tidewaiter again.

mod back;
mod losses;
mod plugins;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};

use super::*;
use losses::{Losses, Watched};
use plugins::OfCloud;

const REGISTRIES: usize = 8;
const ROLES: usize = 7;
const LABELS: usize = 6;
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The kinds of what a Go coordinator makes, beside custom resources and plugins: version, kind, and the labels by
/// which it selects them.
const KINDS: [(&str, &str, &str); 6] = [
    ("v1", "Secret", "containership.io/managed=true,controller"),
    ("v1", "ServiceAccount", "containership.io/managed=true"),
    ("v1", "Node", ""),
    (RBAC, "ClusterRole", "containership.io/managed=true"),
    (RBAC, "ClusterRoleBinding", "containership.io/managed=true"),
    (RBAC, "RoleBinding", "containership.io/managed=true"),
];

/// The kinds of its custom resources here.
const MIRRORED: [&str; 6] = [
    "User",
    "Registry",
    "Plugin",
    "ClusterLabel",
    "AuthorizationRole",
    "AuthorizationRoleBinding",
];

#[tokio::test]
async fn nothing_that_a_go_coordinator_made_is_away_for_a_moment() {
    let whole = Whole::start().await;
    let losses = whole.watch().await;
    let replica = whole.scene.released("");
    whole.is_adopted().await;
    whole.are_adopted().await;
    assert_eq!(losses.take().await, [""; 0], "there");
    // Objects that people changed are as in the cloud once they have approved that, and nothing else has changed.
    let changed = whole.approve_what_differs().await;
    let lost = losses.take().await;
    assert!(
        lost.len() == changed.len() && changed.iter().all(|one| lost.iter().any(|it| it.starts_with(one))),
        "{lost:?}"
    );

    replica.process.stop(SOON).await;
    whole.goes_back().await;
    assert_eq!(losses.take().await, [""; 0], "back");
    whole.go_finds_everything().await;
    whole.go_applies_plugins().await;
    assert_eq!(losses.take().await, [""; 0], "the Go coordinator goes on");
    let mut replaced = whole.go_replaces_registries().await;
    replaced.sort();
    let mut lost = losses.take().await;
    lost.sort();
    assert_eq!(lost, replaced, "what the page says that it deletes");

    whole.scene.installs().await;
    let _replica = whole.scene.released("");
    whole.is_adopted().await;
    whole.all_are_applied().await;
    assert_eq!(losses.take().await, [""; 0], "there again");
}

/// The scene of a whole cluster. The ids are those of the cloud.
struct Whole {
    scene: Scene,
    registries: Vec<String>,
    /// Each with the id of its binding; one in two is bound in a namespace.
    roles: Vec<(String, String)>,
    labels: Vec<String>,
    plugins: Vec<OfCloud>,
}

impl Whole {
    async fn start() -> Self {
        let scene = Scene::start().await;
        let cloud = &scene.cloud;
        let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
        let mut registries = vec![scene.registry.clone()];
        for number in 1..REGISTRIES {
            let registry = json!({"description": format!("registry {number}"), "provider": "private", "serveraddress": HOST,
                "credentials": {"username": "u", "password": "hunter2-a"}});
            registries.push(id(&cloud.post("~/registries", registry).await));
        }
        let mut roles = Vec::new();
        for number in 0..ROLES {
            let role = json!({"name": format!("role {number}"), "description": "", "rules": [kubernetes_rule(number)]});
            let role = id(&cloud.post("~/roles", role).await);
            let namespace = (number % 2 == 1).then_some("team");
            let binding = json!({"type": "UserBinding", "user_id": scene.user.0, "authorization_role_id": role,
                "cluster_id": cloud.cluster, "namespace": namespace});
            let binding = id(&cloud.post("~/role-bindings", binding).await);
            roles.push((role, binding));
        }
        let mut labels = Vec::new();
        for number in 0..LABELS {
            labels.push(id(&cloud
                .post("^/labels", json!({"key": key(number), "value": number.to_string()}))
                .await));
        }
        let plugins = Self::add_plugins(&scene).await;
        let whole = Self {
            scene,
            registries,
            roles,
            labels,
            plugins,
        };
        whole.go_has_run().await;
        whole
    }

    /// As the newest Go coordinator leaves the cluster.
    async fn go_has_run(&self) {
        let world = &self.scene.world;
        world.namespace("team").await;
        let (id, name) = &self.scene.user;
        let user = json!({"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": id},
            "spec": {"id": id, "name": name, "avatar_url": "", "added_at": "", "ssh_keys": null}});
        self.scene.by_go(user).await;
        for (number, id) in self.labels.iter().enumerate() {
            let label = json!({"apiVersion": "containership.io/v3", "kind": "ClusterLabel", "metadata": {"name": id},
                "spec": {"id": id, "created_at": "", "updated_at": "", "key": key(number),
                    "value": number.to_string()}});
            self.scene.by_go(label).await;
        }
        for id in &self.registries {
            self.scene.by_go(self.scene.registry_of_go(id)).await;
        }
        for namespace in NAMESPACES {
            for id in &self.registries {
                let secret = serde_json::from_value(pull_secret(id)).unwrap();
                self.scene.secrets(namespace).create(&manager(), &secret).await.unwrap();
            }
            let entries: Vec<Value> = self.registries.iter().map(|id| json!({ "name": id })).collect();
            let account = json!({"metadata": {"name": "containership", "labels": {"containership.io/managed": "true"}},
                "imagePullSecrets": entries});
            let account = serde_json::from_value(account).unwrap();
            world.accounts(namespace).create(&manager(), &account).await.unwrap();
        }
        let nodes: Api<Node> = Api::all(world.cluster.client(&Identity::Admin));
        for name in NODES {
            let labelled = (0..LABELS).fold(
                node(name).label("cluster.containership.io/env", "prod"),
                |node, number| node.label(&key(number), &number.to_string()),
            );
            nodes.create(&PostParams::default(), &labelled.build()).await.unwrap();
        }
        for (number, (role, binding)) in self.roles.iter().enumerate() {
            self.scene.by_go(self.role_of_go(role, number)).await;
            self.scene.by_go(self.binding_of_go(binding, role, number)).await;
            let mut rule = kubernetes_rule(number);
            let rule = json!({"apiGroups": rule["api_groups"].take(), "resources": rule["resources"].take(), "verbs": rule["verbs"].take()});
            self.create("ClusterRole", None, json!({"metadata": managed(role), "rules": [rule]}))
                .await;
            let subject = format!("containership.io/user_id#{}", self.scene.user.0);
            let object = json!({"metadata": managed(binding),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": subject}]});
            if number % 2 == 1 {
                self.create("RoleBinding", Some("team"), object).await;
            } else {
                self.create("ClusterRoleBinding", None, object).await;
            }
        }
        self.go_has_applied_plugins().await;
        self.scene.installs().await;
    }

    fn role_of_go(&self, id: &str, number: usize) -> Value {
        let mut rule = kubernetes_rule(number);
        for field in ["id", "created_at", "updated_at"] {
            rule[field] = json!("");
        }
        json!({"apiVersion": "auth.containership.io/v3", "kind": "AuthorizationRole",
            "metadata": {"name": id, "finalizers": ["authorizationrole.finalizers.containership.io"]},
            "spec": {"id": id, "created_at": "", "updated_at": "", "organization_id": self.scene.cloud.organization,
                "name": format!("role {number}"), "description": "", "owner_id": "", "rules": [rule]}})
    }

    fn binding_of_go(&self, id: &str, role: &str, number: usize) -> Value {
        let Scene { cloud, user, .. } = &self.scene;
        json!({"apiVersion": "auth.containership.io/v3", "kind": "AuthorizationRoleBinding",
            "metadata": {"name": id, "finalizers": ["authorizationrolebinding.finalizers.containership.io"]},
            "spec": {"id": id, "created_at": "", "updated_at": "", "organization_id": cloud.organization, "owner_id": "",
                "type": "UserBinding", "authorization_role_id": role, "user_id": user.0, "team_id": "",
                "cluster_id": cloud.cluster, "namespace": if number % 2 == 1 { "team" } else { "" }}})
    }

    fn api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (version, kind, _) = KINDS.into_iter().find(|(_, known, _)| *known == kind).unwrap();
        self.dynamic(version, kind, namespace)
    }

    async fn create(&self, kind: &str, namespace: Option<&str>, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(kind, namespace).create(&manager(), &object).await.unwrap();
    }

    /// Watches everything from now on.
    async fn watch(&self) -> Losses {
        let made = KINDS.map(|(_, kind, selector)| Watched {
            kind: kind.to_owned(),
            api: self.api(kind, None),
            selector,
            names: None,
            effect: match kind {
                "Secret" => |object| {
                    let secret: Secret = serde_json::from_value(object.data.clone()).unwrap();
                    json!({"type": object.data["type"], "works": works(&secret)})
                },
                "ServiceAccount" => |object| json!(object.data["imagePullSecrets"]),
                "Node" => |object| json!(object.metadata.labels),
                _ => |object| json!(["rules", "roleRef", "subjects"].map(|field| &object.data[field])),
            },
        });
        let mirrored = MIRRORED.map(|kind| Watched {
            kind: kind.to_owned(),
            api: GoDefinition::of(&json!({ "kind": kind })).api(&self.scene.world.cluster.client(&Identity::Admin)),
            selector: "",
            names: None,
            effect: |object| json!({"id": object.data["spec"]["id"], "finalizers": object.finalizers()}),
        });
        let plugins = self.objects_of_plugins().await;
        Losses::watch(made.into_iter().chain(mirrored).chain(plugins).collect()).await
    }

    /// The coordinator has written what it writes: its own Secrets of credentials, a custom resource for each role and
    /// binding, and its mark on each `ClusterRole`.
    async fn is_adopted(&self) {
        let world = &self.scene.world;
        world.synced("True Applied", SOON).await;
        eventually("everything to be written by the coordinator", SOON, async || {
            for id in &self.registries {
                for namespace in NAMESPACES {
                    let secret = self.scene.secrets(namespace).get(id).await.unwrap();
                    let managers = secret.metadata.managed_fields.unwrap_or_default();
                    if !managers
                        .iter()
                        .any(|entry| entry.manager.as_deref() == Some("tidewaiter/registry"))
                    {
                        return Err(format!("the pull secret {id} in {namespace}"));
                    }
                }
            }
            for (role, binding) in &self.roles {
                let is_ours = |meta: &ObjectMeta| {
                    let managers = meta.managed_fields.iter().flatten();
                    let mut managers = managers.filter_map(|entry| entry.manager.as_deref());
                    managers.any(|manager| manager.starts_with("tidewaiter/authorization-role"))
                };
                if !is_ours(&self.api("ClusterRole", None).get(role).await.unwrap().metadata) {
                    return Err(format!("the role {role}"));
                }
                let everywhere = self.api("ClusterRoleBinding", None).get_opt(binding).await.unwrap();
                let in_team = self.api("RoleBinding", Some("team")).get_opt(binding).await.unwrap();
                let bound = everywhere.or(in_team).ok_or("a binding is gone")?;
                if !is_ours(&bound.metadata) {
                    return Err(format!("the binding {binding}"));
                }
            }
            Ok(())
        })
        .await;
    }
}

/// The key of a label of the cluster.
fn key(number: usize) -> String {
    format!("cluster.containership.io/label-{number}")
}

fn managed(name: &str) -> Value {
    json!({"name": name, "labels": {"containership.io/managed": "true"}})
}

/// A rule that no limit refuses.
fn kubernetes_rule(number: usize) -> Value {
    let resource = [
        "pods",
        "services",
        "configmaps",
        "endpoints",
        "events",
        "namespaces",
        "nodes",
    ][number];
    json!({"type": "kubernetes", "api_groups": [""], "resources": [resource], "resource_names": [], "verbs": ["get", "list"],
        "non_resource_urls": []})
}
