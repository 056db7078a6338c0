//! The objects of a Go coordinator are taken over without a gap: no pull secret is away or empty at any moment. And a
//! Go coordinator can go on with them afterwards.

mod released;
mod whole;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_api::CloudSync;
use tidewaiter_api::containership::{AuthorizationRole, Registry, User};
use tidewaiter_testkit::builders::{GO_DEFINITIONS, GoDefinition, node};
use tidewaiter_testkit::{AuditEntry, FakeRegistries, Identity, Scratch, eventually};

use crate::cloud::{Cloud, beside};
use crate::{Replica, SOON, World, coordinator, deploy};

const CORE: &str = "containership-core";
const HOST: &str = "good.registries.test";
const NAMESPACES: [&str; 3] = [CORE, "default", "team"];
const GO: &str = "cloud-coordinator";
/// The ids of what the cloud does not have any more.
const GONE: &str = "99999999-9999-4999-8999-99999999999";
/// Users that are gone: most of all of them, so the brake holds.
const GONE_USERS: usize = 8;

/// A cluster in which a Go coordinator has run.
struct Scene {
    world: World,
    cloud: Cloud,
    registries: FakeRegistries,
    /// The id of the registry that the cloud has.
    registry: String,
    /// The id and the name of the user that the cloud has.
    user: (String, String),
    role: String,
    label: String,
    /// The settings of the coordinator, with its API key: not where its logs are, which must not have that.
    settings: Scratch,
}

/// The changes of pull secrets since the watch began.
type Seen = Arc<Mutex<Vec<String>>>;

#[tokio::test]
async fn the_objects_of_a_go_coordinator_are_taken_over_without_a_gap_and_can_be_given_back() {
    let scene = Scene::start().await;
    scene.go_has_run().await;
    let (uids, mark) = (scene.uids().await, scene.world.cluster.audit_mark().await);
    let gaps = scene.watch_pull_secrets().await;

    let replica = scene.coordinator();
    scene.is_adopted().await;
    scene.what_is_gone_goes().await;
    assert_eq!(scene.uids().await, uids, "nothing was made anew");
    assert_eq!(*gaps.lock().unwrap(), [""; 0]);
    // Each copy was written at most once. The one in containership-core is the record: the controller of the copies may
    // undo it once, until the new one is on the shelf.
    let audit = scene.world.cluster.audit().await.since(mark).by(&coordinator());
    let secrets = audit.writes().of("secrets");
    for namespace in ["default", "team"] {
        let is_it =
            |entry: &&AuditEntry| entry.object_ref.namespace == namespace && entry.object_ref.name == scene.registry;
        let written = secrets.iter().filter(is_it);
        let written: Vec<_> = written
            .map(|entry| (&entry.verb, &entry.user_agent, &entry.response_status))
            .collect();
        assert!(written.len() <= 1, "{namespace}: {written:?}");
    }

    replica.process.stop(SOON).await;
    scene.go_goes_on().await;
    assert_eq!(*gaps.lock().unwrap(), [""; 0]);
    // And forth again.
    let _replica = scene.coordinator();
    scene.is_adopted().await;
    assert_eq!(*gaps.lock().unwrap(), [""; 0]);
}

impl Scene {
    async fn start() -> Self {
        let (world, cloud) = (World::with_definitions_of_go().await, Cloud::start().await);
        let registries = FakeRegistries::start().await;
        registries.accept(HOST, &["u:hunter2-a"]);
        let text = |made: &Value, field: &str| made[field].as_str().unwrap().to_owned();
        let registry = json!({"description": "ours", "provider": "private", "serveraddress": HOST,
            "credentials": {"username": "u", "password": "hunter2-a"}});
        let registry = cloud.post("~/registries", registry).await;
        let role = json!({"name": "Reader", "description": "may look", "rules": [{"type": "kubernetes", "api_groups": [""],
            "resources": ["pods"], "resource_names": [], "verbs": ["get"], "non_resource_urls": []}]});
        let role = cloud.post("~/roles", role).await;
        let label = json!({"key": "cluster.containership.io/env", "value": "prod"});
        let label = cloud.post("^/labels", label).await;
        let (_, users) = cloud.send(&cloud.owner, Method::GET, "^/ssh-users", Value::Null).await;
        Self {
            registry: text(&registry, "id"),
            role: text(&role, "id"),
            label: text(&label, "id"),
            user: (text(&users[0], "id"), text(&users[0], "name")),
            world,
            cloud,
            registries,
            settings: Scratch::new("coordinator-settings"),
        }
    }

    fn coordinator(&self) -> Replica {
        let variables = self.cloud.variables().into_iter().chain(self.registries.environment());
        let interval = ("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "2s".to_owned());
        self.world
            .replica(&variables.chain([interval]).collect::<Vec<_>>(), None)
    }

    /// An operator replaces the definitions and installs the coordinator, with the permission to apply plugins.
    async fn installs(&self) {
        for folder in ["../crds/coordinator", "", "plugins"] {
            self.world.cluster.apply_manifests(deploy().join(folder)).await;
        }
    }

    /// Creates the objects that a Go coordinator leaves: every field of its types, `null` for an empty list, its
    /// labels, finalizers and field manager.
    async fn go_has_run(&self) {
        let organization = &self.cloud.organization;
        let user = |id: &str, name: &str| {
            json!({"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": id},
            "spec": {"id": id, "name": name, "avatar_url": "", "added_at": "", "ssh_keys": null}})
        };
        self.by_go(user(&self.user.0, "an old name")).await;
        for number in 0..GONE_USERS {
            self.by_go(user(&format!("{GONE}{number}"), "gone")).await;
        }
        for id in [self.registry.clone(), format!("{GONE}0")] {
            self.by_go(self.registry_of_go(&id)).await;
        }
        let role = json!({"apiVersion": "auth.containership.io/v3", "kind": "AuthorizationRole",
            "metadata": {"name": self.role, "finalizers": ["authorizationrole.finalizers.containership.io"]},
            "spec": {"id": self.role, "created_at": "", "updated_at": "", "organization_id": organization, "name": "Reader",
                "description": "", "owner_id": "", "rules": null}});
        self.by_go(role).await;
        for (id, value) in [(self.label.clone(), "old"), (format!("{GONE}0"), "gone")] {
            let key = format!(
                "cluster.containership.io/{}",
                if value == "old" { "env" } else { "gone" }
            );
            let label = json!({"apiVersion": "containership.io/v3", "kind": "ClusterLabel", "metadata": {"name": id},
                "spec": {"id": id, "created_at": "", "updated_at": "", "key": key, "value": value}});
            self.by_go(label).await;
        }
        let labelled = node("node-1").label("cluster.containership.io/env", "old");
        let labelled = labelled.label("cluster.containership.io/gone", "gone").build();
        let nodes: Api<Node> = Api::all(self.world.cluster.client(&Identity::Admin));
        nodes.create(&PostParams::default(), &labelled).await.unwrap();
        self.world.namespace("team").await;
        for namespace in NAMESPACES {
            for id in [self.registry.clone(), format!("{GONE}0")] {
                let secret = serde_json::from_value(pull_secret(&id)).unwrap();
                self.secrets(namespace).create(&manager(), &secret).await.unwrap();
            }
            let account = json!({"metadata": {"name": "containership", "labels": {"containership.io/managed": "true"}},
                "imagePullSecrets": [{"name": self.registry}, {"name": format!("{GONE}0")}, {"name": "of-an-admin"}]});
            let account = serde_json::from_value(account).unwrap();
            self.world
                .accounts(namespace)
                .create(&manager(), &account)
                .await
                .unwrap();
        }
        // As an operator takes them over: kubectl apply.
        self.world
            .cluster
            .apply_manifests(deploy().join("../crds/coordinator"))
            .await;
    }

    fn registry_of_go(&self, id: &str) -> Value {
        json!({"apiVersion": "containership.io/v3", "kind": "Registry", "metadata": {"name": id},
            "spec": {"id": id, "added_at": "", "description": "ours", "organization_id": self.cloud.organization, "email": "",
                "serveraddress": HOST, "provider": "private", "credentials": {"username": "u", "password": "hunter2-a"}, "owner": "",
                "authToken": {"token": token(), "endpoint": HOST, "type": "dockerconfigjson", "expires": ""}}})
    }

    /// Creates an object and replaces it once, as the Go coordinator's client does.
    async fn by_go(&self, mut object: Value) {
        let definition = GoDefinition::of(&object);
        let api = definition.api(&self.world.cluster.client(&Identity::Admin));
        object["metadata"]["namespace"] = json!(CORE);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let mut made = eventually(format!("the old {}", definition.kind), SOON, async || {
            api.create(&manager(), &object).await
        })
        .await;
        made.metadata.managed_fields = None;
        api.replace(&made.name_any(), &manager(), &made).await.unwrap();
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.world.cluster.client(&Identity::Admin), namespace)
    }

    /// The uids of what must stay.
    async fn uids(&self) -> BTreeMap<String, String> {
        let client = self.world.cluster.client(&Identity::Admin);
        let mut uids = BTreeMap::new();
        let mut note = |what: String, uid: Option<String>| drop(uids.insert(what, uid.unwrap_or_default()));
        for namespace in NAMESPACES {
            let secret = self.secrets(namespace).get(&self.registry).await.unwrap();
            note(format!("the pull secret in {namespace}"), secret.uid());
            let account: ServiceAccount = self.world.accounts(namespace).get("containership").await.unwrap();
            note(format!("the account in {namespace}"), account.uid());
        }
        let registries: Api<Registry> = Api::namespaced(client.clone(), CORE);
        note(
            "the registry".to_owned(),
            registries.get(&self.registry).await.unwrap().uid(),
        );
        let users: Api<User> = Api::namespaced(client.clone(), CORE);
        note("the user".to_owned(), users.get(&self.user.0).await.unwrap().uid());
        let roles: Api<AuthorizationRole> = Api::namespaced(client, CORE);
        note("the role".to_owned(), roles.get(&self.role).await.unwrap().uid());
        uids
    }

    /// From now on notes each moment in which a pull secret of the registry is gone or has other content.
    async fn watch_pull_secrets(&self) -> Seen {
        let secrets: Api<Secret> = Api::all(self.world.cluster.client(&Identity::Admin));
        let selector = format!("containership.io/managed=true,controller={}", self.registry);
        let list = secrets.list(&ListParams::default().labels(&selector)).await.unwrap();
        assert_eq!(list.items.len(), NAMESPACES.len());
        let params = WatchParams::default().labels(&selector).timeout(290);
        let version = list.metadata.resource_version.unwrap();
        let (gaps, noted) = (Seen::default(), Seen::default());
        let (seen, begun) = (Arc::clone(&gaps), Arc::clone(&noted));
        beside(async move {
            let mut events = secrets.watch(&params, &version).await.unwrap().boxed();
            begun.lock().unwrap().push(String::new());
            while let Some(event) = events.try_next().await.unwrap() {
                let gap = match &event {
                    WatchEvent::Added(secret) | WatchEvent::Modified(secret) if works(secret) => continue,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Added(secret) | WatchEvent::Modified(secret) => {
                        format!("{:?} has other content", secret.namespace())
                    }
                    WatchEvent::Deleted(secret) => format!("{:?} is gone", secret.namespace()),
                    WatchEvent::Error(error) => format!("{error:?}"),
                };
                seen.lock().unwrap().push(gap);
            }
        });
        eventually("the watch", SOON, async || {
            if noted.lock().unwrap().is_empty() {
                Err("none")
            } else {
                Ok(())
            }
        })
        .await;
        gaps
    }

    /// The custom resources, the pull secrets, the accounts and the labels of Nodes are as the cloud says.
    async fn is_adopted(&self) {
        let client = || self.world.cluster.client(&Identity::Admin);
        let users: Api<User> = Api::namespaced(client(), CORE);
        let registries: Api<Registry> = Api::namespaced(client(), CORE);
        let roles: Api<AuthorizationRole> = Api::namespaced(client(), CORE);
        let nodes: Api<Node> = Api::all(client());
        eventually("everything to be as the cloud says", SOON, async || {
            let user = users.get(&self.user.0).await.unwrap().spec.name;
            let registry = registries.get(&self.registry).await.unwrap().spec;
            // The secret fields of the Registry are in a Secret.
            let inline = (
                registry.credentials.len(),
                registry.auth_token.token.expose().to_owned(),
            );
            let permits = roles.get(&self.role).await.unwrap().spec.rules.len();
            let labels = nodes.get("node-1").await.unwrap().metadata.labels.unwrap_or_default();
            let label = labels.get("cluster.containership.io/env").cloned().unwrap_or_default();
            let stored = self.secrets(CORE).get_opt(&format!("registry-{}", self.registry)).await;
            let found = (user, inline, stored.unwrap().is_some(), permits, label);
            let wanted = (self.user.1.clone(), (0, String::new()), true, 1, "prod".to_owned());
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// A person releases what the brake holds.
    async fn releases(&self) {
        let objects: Api<CloudSync> = Api::all(self.world.cluster.client(&Identity::Admin));
        let sync = objects.get("cloud").await.unwrap();
        let kinds = sync.status.unwrap_or_default().kinds;
        let Some(held) = kinds.into_iter().find_map(|kind| kind.held) else {
            return;
        };
        let annotation = json!({"metadata": {"annotations": {"tidewaiter.dev/release": held.revision}}});
        let merge = Patch::Merge(annotation);
        objects.patch("cloud", &PatchParams::default(), &merge).await.unwrap();
    }

    /// Through the brake, where it is most of what there is.
    async fn what_is_gone_goes(&self) {
        let client = || self.world.cluster.client(&Identity::Admin);
        let users: Api<User> = Api::namespaced(client(), CORE);
        eventually("the others to be gone", SOON, async || {
            self.releases().await;
            let users: Vec<String> = users
                .list(&ListParams::default())
                .await
                .unwrap()
                .into_iter()
                .map(|it| it.name_any())
                .collect();
            let mut found = format!("{users:?}");
            for namespace in NAMESPACES {
                let secret = self.secrets(namespace).get_opt(&format!("{GONE}0")).await.unwrap();
                let account = self.world.accounts(namespace).get("containership").await.unwrap();
                let mut entries: Vec<String> = account
                    .image_pull_secrets
                    .into_iter()
                    .flatten()
                    .map(|it| it.name)
                    .collect();
                entries.sort();
                let mut wanted = vec![self.registry.clone(), "of-an-admin".to_owned()];
                wanted.sort();
                if secret.is_some() || entries != wanted {
                    found = format!("{found}, in {namespace} {entries:?}");
                }
            }
            let nodes: Api<Node> = Api::all(client());
            let labels = nodes.get("node-1").await.unwrap().metadata.labels.unwrap_or_default();
            if labels.contains_key("cluster.containership.io/gone") {
                found.push_str(", a label");
            }
            let wanted = format!("{:?}", [&self.user.0]);
            if found == wanted { Ok(()) } else { Err(found) }
        })
        .await;
        let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(client());
        let events = events.list(&ListParams::default()).await.unwrap();
        assert!(
            events
                .iter()
                .any(|event| event.reason.as_deref() == Some("DeletionsHeld")),
            "the brake held"
        );
    }

    /// A Go coordinator finds what it looks for, and its writes are accepted.
    async fn go_goes_on(&self) {
        for namespace in NAMESPACES {
            let selector = format!("containership.io/managed=true,controller={}", self.registry);
            let found = self
                .secrets(namespace)
                .list(&ListParams::default().labels(&selector))
                .await
                .unwrap();
            assert_eq!(found.items.len(), 1, "{namespace}");
            let mut secret = found.items.into_iter().next().unwrap();
            secret.data = serde_json::from_value(pull_secret(&self.registry)["data"].clone()).unwrap();
            secret.metadata.managed_fields = None;
            self.secrets(namespace)
                .replace(&self.registry, &manager(), &secret)
                .await
                .unwrap();
        }
        let mut registry = self.registry_of_go(&self.registry);
        registry["metadata"]["namespace"] = json!(CORE);
        let api = GoDefinition::of(&registry).api(&self.world.cluster.client(&Identity::Admin));
        registry["metadata"]["resourceVersion"] = json!(api.get(&self.registry).await.unwrap().resource_version());
        let registry: DynamicObject = serde_json::from_value(registry).unwrap();
        api.replace(&self.registry, &manager(), &registry).await.unwrap();
        // Its finalizer is still there, and it can remove it.
        let roles: Api<AuthorizationRole> = Api::namespaced(self.world.cluster.client(&Identity::Admin), CORE);
        let role = roles.get(&self.role).await.unwrap();
        assert_eq!(role.finalizers(), ["authorizationrole.finalizers.containership.io"]);
        let annotate = Patch::Merge(json!({"metadata": {"annotations": {"written-by": "go"}}}));
        roles
            .patch(&self.role, &PatchParams::default(), &annotate)
            .await
            .unwrap();
    }
}

impl World {
    /// With the definitions that a Go coordinator found, made through apiextensions v1beta1.
    async fn with_definitions_of_go() -> Self {
        let world = Self::without_definitions().await;
        for (number, definition) in GO_DEFINITIONS.iter().enumerate() {
            world.cluster.store(&definition.key(), &definition.stored(number)).await;
        }
        world
    }
}

fn manager() -> PostParams {
    PostParams {
        field_manager: Some(GO.to_owned()),
        ..PostParams::default()
    }
}

fn token() -> String {
    STANDARD.encode("u:hunter2-a")
}

/// As the Go coordinator writes it.
fn pull_secret(id: &str) -> Value {
    let config = json!({"auths": {HOST: {"auth": token(), "email": "none"}}}).to_string();
    json!({"metadata": {"name": id, "labels": {"containership.io/managed": "true", "controller": id}},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": STANDARD.encode(config)}})
}

/// Returns true if a kubelet gets into the registry with it.
fn works(secret: &Secret) -> bool {
    let data = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
    let config: Value = data
        .and_then(|data| serde_json::from_slice(&data.0).ok())
        .unwrap_or_default();
    config["auths"][HOST]["auth"] == token()
}
