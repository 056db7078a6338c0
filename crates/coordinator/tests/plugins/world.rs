//! A cluster, the mirror and the plugin controller, and a cloud.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::discovery::{ApiGroup, Discovery};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidewaiter_api::PluginInventory;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, PLUGIN_LABEL};
use tidewaiter_cloud::client::{self as cloud, ClientSettings, Cluster};
use tidewaiter_coordinator::Cloud;
use tidewaiter_coordinator::changes::Changes;
use tidewaiter_coordinator::controllers::{self, PluginSettings, Upgrades};
use tidewaiter_coordinator::mirror::{self, MassDeletion, MirrorSettings, RegistryCredentialsIn};
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::{Cache, Metadata, Pause};
use tidewaiter_testkit::{ApiProxy, AuditMark, ControlPlane, Identity, Reused, eventually, settled};

pub use crate::cluster::SOON;
use crate::cluster::{self, Running, Wiring, coordinator};
use crate::objects::Kind;
use crate::pods;
use crate::script::{Answer, CLUSTER, INTERVAL, ORGANIZATION, Script};
use crate::shapes::namespace;

pub use crate::objects::id;

/// A control plane, alone or with the controller-manager.
enum Plane {
    Bare(Reused),
    Managed(ControlPlane),
}

pub struct World {
    plane: Plane,
    pub cloud: Script,
    /// The plugins that the cloud lists.
    listed: Mutex<Vec<Value>>,
}

async fn prepare(plane: &ControlPlane) {
    cluster::prepare(plane).await;
    plane.apply_manifests(cluster::deploy("coordinator/plugins")).await;
}

impl World {
    pub async fn start() -> Self {
        Self::on(Plane::Bare(ControlPlane::reused(prepare).await)).await
    }

    /// The coordinator without the folder that permits it any plugin.
    pub async fn without_rights() -> Self {
        let world = Self::start().await;
        let bindings: Api<ClusterRoleBinding> = Api::all(world.client());
        world.delete(&bindings, "tidewaiter-coordinator-plugins").await;
        let configs: Api<ConfigMap> = Api::all(world.plane().client(&coordinator()));
        eventually("the coordinator to have no rights", SOON, async || {
            match configs.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        world
    }

    /// One without rights, with the namespace `monitoring` and a service account for the objects of plugins in it.
    pub async fn with_accounts() -> Self {
        let world = Self::without_rights().await;
        let namespaces = world.objects("v1", "namespaces", "Namespace", None);
        world.put(&namespaces, &namespace("monitoring")).await;
        let accounts = cluster::deploy("coordinator/plugin-accounts");
        world.plane().apply_manifests(accounts).await;
        world
    }

    /// Gives it that folder.
    pub async fn give_rights(&self) {
        self.plane()
            .apply_manifests(cluster::deploy("coordinator/plugins"))
            .await;
    }

    /// With the controller-manager, and with pods that run.
    pub async fn with_controller_manager() -> Self {
        let plane = ControlPlane::builder().with_controller_manager().start().await;
        prepare(&plane).await;
        pods::start(plane.client(&Identity::Admin));
        Self::on(Plane::Managed(plane)).await
    }

    async fn on(plane: Plane) -> Self {
        Self {
            plane,
            cloud: Script::start(true).await,
            listed: Mutex::default(),
        }
    }

    pub fn plane(&self) -> &ControlPlane {
        match &self.plane {
            Plane::Bare(plane) => plane,
            Plane::Managed(plane) => plane,
        }
    }

    pub fn client(&self) -> Client {
        self.plane().client(&Identity::Admin)
    }

    pub async fn run(&self, plugins: PluginSettings) -> Running {
        self.run_with(&self.plane().config(&coordinator()), plugins).await
    }

    /// The proxy is between it and the API server.
    pub async fn run_through(&self, proxy: &ApiProxy) -> Running {
        self.run_through_with(proxy, PluginSettings::default()).await
    }

    pub async fn run_through_with(&self, proxy: &ApiProxy, plugins: PluginSettings) -> Running {
        let config = kube::Config::new(proxy.url().parse().unwrap());
        self.run_with(&config, plugins).await
    }

    async fn run_with(&self, config: &kube::Config, plugins: PluginSettings) -> Running {
        let mut role = Wiring::new(config, Pause::never()).await;
        let kit = role.context.kit.clone();
        let mut settings = ClientSettings::new(self.cloud.url.parse().unwrap());
        settings.sync_interval = INTERVAL;
        // A cloud that says nothing is given up soon.
        settings.timeout = Duration::from_secs(5);
        settings.deadline = Duration::from_secs(6);
        let cluster = Cluster {
            organization: ORGANIZATION.parse().unwrap(),
            id: CLUSTER.parse().unwrap(),
        };
        let cloud = Cloud {
            client: cloud::Client::new(&settings, kit.clock.clone()).unwrap(),
            cluster,
            interval: INTERVAL,
        };
        let changes = Changes::start(
            cloud.client.clone(),
            cluster,
            role.context.leadership.clone(),
            &kit.metrics,
            &mut role.tasks,
        )
        .unwrap();
        let settings = MirrorSettings {
            cloud: cloud.clone(),
            mass_deletion: MassDeletion::Confirm,
            registry_credentials: RegistryCredentialsIn::Secret,
            upgrades: Upgrades::default(),
        };
        let lists = mirror::start(settings, &changes, &mut role.role()).unwrap();
        let reader = role.clients.for_controller("caches", DEFAULT_IN_FLIGHT);
        let namespaces = Cache::<Metadata<Namespace>>::metadata(reader).start(&mut role.tasks, &kit);
        controllers::apply_plugins(plugins, &cloud, lists.plugins, &namespaces, &mut role.role()).unwrap();
        role.run()
    }

    /// The cloud has this version of the plugin with this number, and these manifests of it.
    pub fn offer(&self, number: usize, version: &str, manifests: &Value) {
        self.offer_with(number, version, manifests, &json!({}));
    }

    /// The same with jobs.
    pub fn offer_with(&self, number: usize, version: &str, manifests: &Value, jobs: &Value) {
        let body = json!({"version": version, "manifests": manifests, "jobs": jobs});
        self.offer_text(number, version, body.to_string());
    }

    /// The same with any text.
    pub fn offer_text(&self, number: usize, version: &str, body: String) {
        let signature = serde_json::from_str(&body)
            .ok()
            .and_then(|body: Value| body.get("signature").cloned());
        self.cloud
            .set(format!("/plugins/{}", id(number)), Answer::Exactly(200, vec![], body));
        self.list(number, version, signature);
    }

    fn list(&self, number: usize, version: &str, signature: Option<Value>) {
        let mut plugin = Kind::Plugin.object(number, 0);
        plugin["version"] = json!(version);
        if let Some(signature) = signature {
            plugin["signature"] = signature;
        }
        let mut listed = self.listed.lock().unwrap();
        listed.retain(|other| other["id"] != plugin["id"]);
        listed.push(plugin);
        self.announce(&listed);
    }

    /// The cloud lists this version of the plugin, and answers this when it is asked for the manifests.
    pub fn answer(&self, number: usize, version: &str, answer: Answer) {
        self.cloud.set(format!("/plugins/{}", id(number)), answer);
        self.list(number, version, None);
    }

    /// The same version of the plugin has another signature, so its manifests are fetched again.
    pub fn sign_again(&self, number: usize, version: &str, signature: &Value) {
        self.list(number, version, Some(signature.clone()));
    }

    /// The same version of the plugin has another type.
    pub fn retype(&self, number: usize, plugin_type: &str) {
        let mut listed = self.listed.lock().unwrap();
        for plugin in listed.iter_mut().filter(|plugin| plugin["id"] == id(number)) {
            plugin["type"] = json!(plugin_type);
        }
        self.announce(&listed);
    }

    /// The cloud does not have the plugin any more.
    pub fn withdraw(&self, number: usize) {
        let mut listed = self.listed.lock().unwrap();
        listed.retain(|plugin| plugin["id"] != id(number));
        self.cloud.deleted("plugins", [number]);
        self.announce(&listed);
    }

    fn announce(&self, listed: &[Value]) {
        self.cloud.list(Kind::Plugin.path(), listed.iter().cloned());
        self.cloud.changed(&["plugins"]);
    }

    pub fn plugins(&self) -> Api<Plugin> {
        self.core()
    }

    pub fn inventories(&self) -> Api<PluginInventory> {
        self.core()
    }

    fn core<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client(), CONTAINERSHIP_NAMESPACE)
    }

    /// Waits until a condition of the plugin has this status and reason for this version, and returns its message.
    pub async fn condition(&self, number: usize, version: &str, type_: &str, wanted: &str) -> String {
        eventually(format!("{type_} of {number} to be {wanted}"), SOON, async || {
            let plugin = self
                .plugins()
                .get(&id(number))
                .await
                .map_err(|error| error.to_string())?;
            if plugin.spec.version != version {
                return Err(format!("version {}", plugin.spec.version));
            }
            let status = plugin.status.unwrap_or_default();
            let found = status.conditions.iter().find(|condition| condition.type_ == type_);
            let found = found.ok_or("it has no status")?;
            let words = format!("{:?} {}", found.status, found.reason);
            if words == wanted && found.observed_generation == plugin.metadata.generation {
                Ok(found.message.clone())
            } else {
                Err(format!("{words}: {}", found.message))
            }
        })
        .await
    }

    pub async fn is_ready(&self, number: usize, version: &str) {
        self.condition(number, version, "Ready", "True Applied").await;
    }

    /// The objects of the kind, in the namespace or in the cluster.
    pub fn objects(&self, api_version: &str, plural: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        }
    }

    pub fn configs(&self) -> Api<DynamicObject> {
        self.objects("v1", "configmaps", "ConfigMap", Some("default"))
    }

    /// The objects with the label of the plugin in the whole cluster, as `Kind namespace/name`.
    pub async fn labelled(&self, number: usize) -> Result<BTreeSet<String>, kube::Error> {
        let served = Discovery::new(self.client()).run_aggregated().await?;
        let kinds = served.groups().flat_map(ApiGroup::resources_by_stability);
        // The controller-manager copies the labels of Services.
        let is_listed = |kind: &str| !matches!(kind, "Endpoints" | "EndpointSlice");
        let kinds = kinds
            .filter(|(resource, capabilities)| capabilities.supports_operation("list") && is_listed(&resource.kind));
        let params = ListParams::default().labels(&format!("{PLUGIN_LABEL}={}", id(number)));
        let lists = kinds.map(|(resource, _)| {
            let (api, params) = (Api::<DynamicObject>::all_with(self.client(), &resource), params.clone());
            async move {
                let found = match api.list_metadata(&params).await {
                    // The kind has just gone, or is served in another version.
                    Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
                    found => found?,
                };
                let names = found.items.into_iter().map(|object| object.metadata).map(|meta| {
                    let namespace = meta.namespace.map(|namespace| namespace + "/").unwrap_or_default();
                    format!("{} {namespace}{}", resource.kind, meta.name.unwrap_or_default())
                });
                Ok::<_, kube::Error>(names.collect())
            }
        });
        let lists: Vec<_> = lists.collect();
        let all: Vec<_> = stream::iter(lists).buffer_unordered(8).try_collect().await?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Waits until exactly these objects have the label of the plugin.
    pub async fn has_exactly(&self, number: usize, wanted: &BTreeSet<String>) {
        eventually(format!("the objects of {number}"), SOON, async || {
            let found = self.labelled(number).await.map_err(|error| error.to_string())?;
            let surplus: Vec<_> = found.difference(wanted).collect();
            let missing: Vec<_> = wanted.difference(&found).collect();
            if found == *wanted {
                Ok(())
            } else {
                Err(format!("surplus {surplus:?}, missing {missing:?}"))
            }
        })
        .await;
    }

    /// Applies an object as somebody else.
    pub async fn put(&self, api: &Api<DynamicObject>, object: &Value) -> DynamicObject {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("somebody").force();
        api.patch(name, &params, &Patch::Apply(object)).await.unwrap()
    }

    /// Waits until the object is as `is` says; null if there is none.
    pub async fn shows(&self, api: &Api<DynamicObject>, name: &str, is: impl Fn(&Value) -> bool) {
        eventually(format!("the state of {name}"), SOON, async || {
            let found = api.get_opt(name).await.map_err(|error| error.to_string())?;
            let found = serde_json::to_value(found).unwrap();
            if is(&found) { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }

    /// Waits until the ConfigMap in `default` has this value; without one, until it is gone.
    pub async fn config_is(&self, name: &str, value: Option<&str>) {
        self.shows(&self.configs(), name, |found| found["data"]["a"].as_str() == value)
            .await;
    }

    pub async fn delete<K>(&self, api: &Api<K>, name: &str)
    where
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        // Jobs are left to the garbage collector otherwise, which does not run.
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Waits until nothing of the plugin is remembered any more.
    pub async fn is_forgotten(&self, number: usize) {
        eventually(
            format!("the inventory of {number} to be gone"),
            SOON,
            async || match self.inventories().get_opt(&id(number)).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )
        .await;
    }

    /// Waits for an Event of this reason on the object of this name; returns its note.
    pub async fn event(&self, name: &str, reason: &str) -> String {
        cluster::event(self.plane(), CONTAINERSHIP_NAMESPACE, name, reason).await
    }

    /// Waits for an Event of this reason on the object of this name whose note has these words.
    pub async fn says(&self, name: &str, reason: &str, words: &str) {
        let events: Api<Event> = Api::namespaced(self.client(), CONTAINERSHIP_NAMESPACE);
        eventually(format!("the Event {reason} on {name} with {words}"), SOON, async || {
            let all = events.list(&ListParams::default()).await;
            let all = all.map_err(|error| error.to_string())?.items;
            let about = all.into_iter().filter(|event| {
                let object = event.regarding.as_ref().and_then(|object| object.name.as_deref());
                event.reason.as_deref() == Some(reason) && object == Some(name)
            });
            let notes: Vec<String> = about.filter_map(|event| event.note).collect();
            let is_there = notes.iter().any(|note| note.contains(words));
            if is_there { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await;
    }

    /// The coordinator writes nothing for a while.
    pub async fn is_quiet(&self) {
        self.is_quiet_for(Duration::from_secs(3)).await;
    }

    pub async fn is_quiet_for(&self, time: Duration) {
        let mark = self.plane().audit_mark().await;
        let written = async || self.written_since(mark).await;
        settled("the writes", time, SOON, written).await;
    }

    /// The writes of the coordinator since `mark`, without Events.
    pub async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        let mut writes = cluster::written_since(self.plane(), mark, "events").await;
        writes.retain(|write| !write.contains(" cloudsyncs "));
        writes
    }
}

pub fn config(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}})
}

/// The object with these fields besides.
pub fn with(mut object: Value, fields: &Value) -> Value {
    let fields = fields.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(fields);
    object
}

pub fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// A definition of `Widget` in a group of its own.
pub fn definition(group: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

pub fn plugin_of(object: &Value) -> Option<&str> {
    object["metadata"]["labels"][PLUGIN_LABEL].as_str()
}
