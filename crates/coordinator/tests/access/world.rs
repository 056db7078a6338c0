//! A cluster, and the controllers.

use std::fmt::Debug;
use std::ops::Deref;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_cloud::client::{Client, ClientSettings, Cluster};
use tidewaiter_coordinator::changes::Changes;
use tidewaiter_coordinator::controllers::{self, RbacSettings, Upgrades};
use tidewaiter_coordinator::mirror::{self, CloudLists, MassDeletion, MirrorSettings, RegistryCredentialsIn};
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::{Cache, Metadata, Pause};
use tidewaiter_testkit::{AuditMark, ControlPlane, Identity, Reused, eventually, settled};
use uuid::Uuid;

use crate::cluster::{self, Wiring, define, prepare, prepared};
pub use crate::cluster::{Running, SOON, coordinator};
use crate::objects::{CLUSTER, ORGANIZATION};
use crate::script::{INTERVAL, Script};

pub struct World {
    pub cluster: Plane,
}

/// The control plane of a test.
pub enum Plane {
    Bare(Reused),
    /// With kube-controller-manager, for this test alone.
    Managed(ControlPlane),
}

impl Deref for Plane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        match self {
            Self::Bare(plane) => plane,
            Self::Managed(plane) => plane,
        }
    }
}

/// An id of the cloud.
pub fn id() -> String {
    Uuid::new_v4().to_string()
}

/// A rule for resources of the core group.
pub fn on(resources: &[&str], verbs: &[&str]) -> Value {
    json!({"id": id(), "type": "kubernetes", "api_groups": [""], "resources": resources, "verbs": verbs})
}

impl World {
    pub async fn start() -> Self {
        Self {
            cluster: Plane::Bare(prepared().await),
        }
    }

    pub async fn with_controller_manager() -> Self {
        let plane = ControlPlane::builder().with_controller_manager().start().await;
        prepare(&plane).await;
        Self {
            cluster: Plane::Managed(plane),
        }
    }

    /// The definitions of the custom resources, again.
    pub async fn define(&self) {
        define(&self.cluster).await;
    }

    pub async fn run(&self, settings: RbacSettings) -> Running {
        self.run_with(self.cluster.config(&coordinator()), settings, None).await
    }

    /// The same beside the mirror of a cloud. What the brake holds, only a person releases.
    pub async fn mirrors(&self, cloud: &Script) -> Running {
        self.mirrors_with(RbacSettings::default(), cloud).await
    }

    pub async fn mirrors_with(&self, settings: RbacSettings, cloud: &Script) -> Running {
        let config = self.cluster.config(&coordinator());
        self.run_with(config, settings, Some(cloud)).await
    }

    /// The same with another way to the API server.
    pub async fn run_with(&self, config: kube::Config, settings: RbacSettings, cloud: Option<&Script>) -> Running {
        let mut role = Wiring::new(&config, Pause::never()).await;
        let lists = cloud.map(|cloud| mirror_of(cloud, &mut role));
        let listed = lists.map(|lists| (lists.roles, lists.role_bindings, lists.held_roles));
        let reader = role.clients.for_controller("caches", DEFAULT_IN_FLIGHT);
        let namespaces = Cache::<Metadata<Namespace>>::metadata(reader).start(&mut role.tasks, &role.context.kit);
        controllers::control_access(settings, listed, namespaces, &mut role.role()).unwrap();
        role.run()
    }

    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::all(self.cluster.client(&Identity::Admin))
    }

    pub fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client(&Identity::Admin), namespace)
    }

    pub fn roles(&self) -> Api<AuthorizationRole> {
        self.within(CONTAINERSHIP_NAMESPACE)
    }

    pub fn bindings(&self) -> Api<AuthorizationRoleBinding> {
        self.within(CONTAINERSHIP_NAMESPACE)
    }

    pub async fn role(&self, id: &str, rules: &[Value]) {
        let role = json!({"metadata": {"name": id}, "spec": {"id": id, "rules": rules}});
        apply(&self.roles(), id, role).await;
    }

    /// Gives the role to the user `user` in the namespace, or everywhere if it is empty.
    pub async fn bind_user(&self, id: &str, role: &str, user: &str, namespace: &str) {
        self.bind(id, role, ("UserBinding", "user_id", user), namespace).await;
    }

    pub async fn bind_team(&self, id: &str, role: &str, team: &str, namespace: &str) {
        self.bind(id, role, ("TeamBinding", "team_id", team), namespace).await;
    }

    async fn bind(&self, id: &str, role: &str, (kind, field, who): (&str, &str, &str), namespace: &str) {
        let mut spec = json!({"id": id, "type": kind, "authorization_role_id": role, "namespace": namespace});
        spec[field] = json!(who);
        apply(&self.bindings(), id, json!({"metadata": {"name": id}, "spec": spec})).await;
    }

    pub async fn namespace(&self, name: &str) {
        apply(&self.all::<Namespace>(), name, json!({"metadata": {"name": name}})).await;
    }

    /// Returns true if the API server lets the user do it.
    pub async fn may(&self, user: &str, teams: &[&str], verb: &str, resource: &str, namespace: &str) -> bool {
        let groups: Vec<String> = teams
            .iter()
            .map(|team| format!("containership.io/team_id#{team}"))
            .collect();
        let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
            "user": format!("containership.io/user_id#{user}"), "groups": groups,
            "resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace},
        }}))
        .unwrap();
        let reviewed = self.all().create(&PostParams::default(), &review).await.unwrap();
        reviewed.status.unwrap().allowed
    }

    /// Waits until the user may, or may not.
    pub async fn becomes(&self, user: &str, (verb, resource, namespace): (&str, &str, &str), allowed: bool) {
        let what = format!("{user} to be allowed to {verb} {resource} in {namespace:?}: {allowed}");
        eventually(what, SOON, async || {
            let found = self.may(user, &[], verb, resource, namespace).await;
            if found == allowed { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// Waits until the object is as `is` says.
    pub async fn shows<K>(&self, api: &Api<K>, name: &str, is: impl Fn(&Value) -> bool)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        eventually(format!("the state of {} {name}", K::kind(&())), SOON, async || {
            let found = api.get_opt(name).await.map_err(|error| error.to_string())?;
            let found = serde_json::to_value(found).unwrap();
            if is(&found) { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }

    pub async fn is_gone<K>(&self, api: &Api<K>, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.shows(api, name, Value::is_null).await;
    }

    pub async fn delete<K>(&self, api: &Api<K>, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits for an Event of this reason on the custom resource of this name; returns its note.
    pub async fn event(&self, name: &str, reason: &str) -> String {
        cluster::event(&self.cluster, CONTAINERSHIP_NAMESPACE, name, reason).await
    }

    /// Waits until pending writes are made, an Event for example; then the coordinator writes nothing for a while.
    pub async fn is_quiet(&self) {
        let mark = self.cluster.audit_mark().await;
        let written = async || self.written_since(mark).await;
        settled("the writes", Duration::from_secs(3), SOON, written).await;
    }

    /// The writes to what was made of roles and bindings.
    pub async fn access_written_since(&self, mark: AuditMark) -> Vec<String> {
        let mut writes = self.written_since(mark).await;
        let made = [" clusterroles ", " clusterrolebindings ", " rolebindings "];
        writes.retain(|write| made.iter().any(|resource| write.contains(resource)));
        writes
    }

    pub async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        cluster::written_since(&self.cluster, mark, "").await
    }
}

fn mirror_of(cloud: &Script, role: &mut Wiring) -> CloudLists {
    let mut settings = ClientSettings::new(cloud.url.parse().unwrap());
    settings.token = Some("twk_0123456789abcdef_hunter2hunter2".parse().unwrap());
    settings.sync_interval = INTERVAL;
    let cluster = Cluster {
        organization: ORGANIZATION.parse().unwrap(),
        id: CLUSTER.parse().unwrap(),
    };
    let kit = role.context.kit.clone();
    let client = Client::new(&settings, kit.clock.clone()).unwrap();
    let leadership = role.context.leadership.clone();
    let changes = Changes::start(client.clone(), cluster, leadership, &kit.metrics, &mut role.tasks).unwrap();
    let settings = MirrorSettings {
        cloud: tidewaiter_coordinator::Cloud {
            client,
            cluster,
            interval: INTERVAL,
        },
        mass_deletion: MassDeletion::Release,
        registry_credentials: RegistryCredentialsIn::Secret,
        upgrades: Upgrades::default(),
    };
    mirror::start(settings, &changes, &mut role.role()).unwrap()
}

pub async fn apply<K>(api: &Api<K>, name: &str, object: Value)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    apply_as("cloud", api, name, object).await;
}

/// Applies the object as this field manager.
pub async fn apply_as<K>(manager: &str, api: &Api<K>, name: &str, mut object: Value)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    let params = PatchParams::apply(manager).force();
    api.patch(name, &params, &Patch::Apply(object)).await.unwrap();
}
