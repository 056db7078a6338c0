//! A cluster in which a Go coordinator has made everything that it makes: nothing of it is away or reduced for a moment, on the way to
//! Tidewaiter and back.
//!
//! A watch of each kind from before the takeover sees every state of every object.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};

use super::*;

const REGISTRIES: usize = 8;
const ROLES: usize = 7;
const LABELS: usize = 6;
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// The kinds of what a Go coordinator makes, beside custom resources: group, version, kind, and the label selector of what is looked at.
const KINDS: [(&str, &str, &str, &str); 6] = [
    ("", "v1", "Secret", "containership.io/managed=true,controller"),
    ("", "v1", "ServiceAccount", "containership.io/managed=true"),
    ("", "v1", "Node", ""),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
        "containership.io/managed=true",
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        "containership.io/managed=true",
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "containership.io/managed=true",
    ),
];

#[tokio::test]
async fn nothing_that_a_go_coordinator_made_is_away_for_a_moment() {
    let whole = Whole::start().await;
    let losses = whole.watch().await;
    assert_eq!(losses.objects(), whole.made().await, "the watches see everything");
    for direction in ["there", "there again"] {
        let replica = whole.scene.coordinator();
        whole.is_adopted().await;
        assert_eq!(losses.all(), [""; 0], "{direction}");
        replica.process.stop(SOON).await;
        // What a Go coordinator selects by labels is what it made.
        assert_eq!(losses.objects(), whole.made().await, "{direction}");
    }
    assert_eq!(losses.all(), [""; 0], "and back");
}

/// The scene of a whole cluster. The ids are those of the cloud.
struct Whole {
    scene: Scene,
    registries: Vec<String>,
    /// Each with the id of its binding; one in two is bound in a namespace.
    roles: Vec<(String, String)>,
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
        for number in 0..LABELS {
            let label =
                json!({"key": format!("cluster.containership.io/label-{number}"), "value": format!("v{number}")});
            cloud.post("^/labels", label).await;
        }
        let whole = Self {
            scene,
            registries,
            roles,
        };
        whole.go_has_run().await;
        whole
    }

    /// As the newest Go coordinator leaves the cluster.
    async fn go_has_run(&self) {
        let world = &self.scene.world;
        world.namespace("team").await;
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
                |node, number| {
                    node.label(
                        &format!("cluster.containership.io/label-{number}"),
                        &format!("v{number}"),
                    )
                },
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
        world
            .cluster
            .apply_manifests(deploy().join("../crds/coordinator"))
            .await;
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
        let (group, version, kind, _) = KINDS.into_iter().find(|(_, _, known, _)| *known == kind).unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.scene.world.cluster.client(&Identity::Admin);
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    async fn create(&self, kind: &str, namespace: Option<&str>, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(kind, namespace).create(&manager(), &object).await.unwrap();
    }

    /// What there is now of each kind.
    async fn made(&self) -> Vec<String> {
        let lists = KINDS.map(|(_, _, kind, selector)| async move {
            let list = self
                .api(kind, None)
                .list(&ListParams::default().labels(selector))
                .await
                .unwrap();
            list.into_iter().map(|object| named(kind, &object)).collect::<Vec<_>>()
        });
        let mut made = join_all(lists).await.concat();
        made.sort();
        made
    }

    /// Watches every kind from now on.
    async fn watch(&self) -> Losses {
        let losses = Losses::default();
        for (_, _, kind, selector) in KINDS {
            let api = self.api(kind, None);
            let list = api.list(&ListParams::default().labels(selector)).await.unwrap();
            for object in list.items {
                losses.saw(kind, &object);
            }
            let version = list.metadata.resource_version.unwrap();
            let params = WatchParams::default().labels(selector).timeout(290);
            let mut events = api.watch(&params, &version).await.unwrap().boxed();
            let losses = losses.clone();
            beside(async move {
                while let Some(event) = events.try_next().await.unwrap() {
                    match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => losses.saw(kind, &object),
                        WatchEvent::Deleted(object) => losses.lost(&format!("{} is gone", named(kind, &object))),
                        WatchEvent::Bookmark(_) => {}
                        WatchEvent::Error(error) => losses.lost(&format!("{error:?}")),
                    }
                }
            });
        }
        losses
    }

    /// The coordinator has written what it writes: its own Secrets of credentials, a custom resource for each role and binding, and its mark on
    /// each `ClusterRole`.
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

/// The last effect of each object by its name, and what objects lost.
type Recorded = (BTreeMap<String, Value>, Vec<String>);

/// Everything that the watched objects lost.
#[derive(Clone, Default)]
struct Losses(Arc<Mutex<Recorded>>);

impl Losses {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }

    fn lost(&self, what: &str) {
        self.0.lock().unwrap().1.push(what.to_owned());
    }

    /// The objects that were seen.
    fn objects(&self) -> Vec<String> {
        self.0.lock().unwrap().0.keys().cloned().collect()
    }

    fn saw(&self, kind: &str, object: &DynamicObject) {
        let (name, after) = (named(kind, object), effect(kind, object));
        let before = self.0.lock().unwrap().0.insert(name.clone(), after.clone());
        if let Some(before) = before.filter(|before| !contains(&after, before)) {
            self.lost(&format!("{name} had {before}, and has {after}"));
        }
    }
}

/// What an object gives to others: none of it may go.
fn effect(kind: &str, object: &DynamicObject) -> Value {
    let data = &object.data;
    match kind {
        "Secret" => {
            let secret: Secret = serde_json::from_value(data.clone()).unwrap();
            json!({"type": data["type"], "works": works(&secret)})
        }
        "ServiceAccount" => json!({"imagePullSecrets": data["imagePullSecrets"]}),
        "Node" => json!(object.metadata.labels),
        "ClusterRole" => json!({"rules": data["rules"]}),
        _ => json!({"roleRef": data["roleRef"], "subjects": data["subjects"]}),
    }
}

/// Whether `whole` has everything that `part` has: of objects each field, of lists each item.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|found| contains(found, value))),
        (Value::Array(whole), Value::Array(part)) => {
            part.iter().all(|item| whole.iter().any(|found| contains(found, item)))
        }
        (whole, part) => whole == part,
    }
}

fn named(kind: &str, object: &DynamicObject) -> String {
    format!(
        "{kind} {}/{}",
        object.namespace().unwrap_or_default(),
        object.name_any()
    )
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
