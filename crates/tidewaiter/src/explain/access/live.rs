//! Reads the objects of the cluster once.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject as RbacSubject,
};
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding, User};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::values::printable;
use tidewaiter_coordinator::controllers::OURS;
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::client::optional;
use tidewaiter_kit::client::path_segment;
use tidewaiter_kit::{Cacheable, Clock as _, Guarded, SystemClock, Undecodable};

use super::answer::EventExplained;
use super::asked::Asked;

/// The label of the bindings that an API server makes of itself.
const BOOTSTRAPPING_LABEL: &str = "kubernetes.io/bootstrapping";

/// Roles, bindings and users.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) users: Vec<User>,
    pub(super) roles: Vec<AuthorizationRole>,
    pub(super) bindings: Vec<AuthorizationRoleBinding>,
    pub(super) cluster_roles: Vec<ClusterRole>,
    /// The bindings of the cluster, in the requested namespace or in all.
    pub(super) bound: Vec<Bound>,
    /// Objects that cannot be decoded, in words.
    pub(super) undecodable: Vec<String>,
}

/// A `ClusterRoleBinding` or `RoleBinding`.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) role: RoleRef,
    pub(super) subjects: Vec<RbacSubject>,
    pub(super) is_managed: bool,
    /// True if the API server made it of itself.
    pub(super) is_default: bool,
}

/// Objects that are read only if the queried subjects need them.
#[derive(Debug, Default)]
pub(super) struct Details {
    /// The rules of `Role`s, by namespace and name.
    pub(super) rules: HashMap<(String, String), Vec<PolicyRule>>,
    /// The namespaces that exist and are not being deleted, of those that bindings of the cloud name.
    pub(super) namespaces: BTreeSet<String>,
    pub(super) events: Vec<EventExplained>,
    /// The time of this machine.
    pub(super) now: Timestamp,
}

impl Bound {
    fn new(metadata: ObjectMeta, role: RoleRef, subjects: Option<Vec<RbacSubject>>) -> Self {
        Self {
            is_managed: OURS.marks(&metadata),
            is_default: metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(BOOTSTRAPPING_LABEL)),
            name: metadata.name.unwrap_or_default(),
            namespace: metadata.namespace,
            role,
            subjects: subjects.unwrap_or_default(),
        }
    }
}

impl Live {
    pub(super) async fn read(client: &Client, namespace: Option<&str>) -> Result<Self> {
        let (roles, bad_roles) = in_core::<AuthorizationRole>(client, "AuthorizationRoles").await?;
        let (bindings, bad_bindings) = in_core::<AuthorizationRoleBinding>(client, "AuthorizationRoleBindings").await?;
        let (users, bad_users) = in_core::<User>(client, "Users").await?;
        let everywhere = Api::<Guarded<ClusterRoleBinding>>::all(client.clone());
        let in_namespaces = match namespace {
            Some(namespace) => Api::<Guarded<RoleBinding>>::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let (everywhere, _) = read(list_all(&everywhere).await, "ClusterRoleBindings")?;
        let (in_namespaces, _) = read(list_all(&in_namespaces).await, "RoleBindings")?;
        let (cluster_roles, _) = read(
            list_all(&Api::<Guarded<ClusterRole>>::all(client.clone())).await,
            "ClusterRoles",
        )?;
        let everywhere = everywhere
            .into_iter()
            .map(|it| Bound::new(it.metadata, it.role_ref, it.subjects));
        let in_namespaces = in_namespaces
            .into_iter()
            .map(|it| Bound::new(it.metadata, it.role_ref, it.subjects));
        let undecodable = [
            ("AuthorizationRole", bad_roles),
            ("AuthorizationRoleBinding", bad_bindings),
            ("User", bad_users),
        ];
        let undecodable = undecodable.into_iter().flat_map(|(kind, bad)| {
            bad.into_iter().map(move |Undecodable { metadata, error }| {
                let name = metadata.name.unwrap_or_default();
                format!("{kind} {name} cannot be decoded: {}", printable(&error))
            })
        });
        Ok(Self {
            users,
            roles,
            bindings,
            cluster_roles,
            bound: everywhere.chain(in_namespaces).collect(),
            undecodable: undecodable.collect(),
        })
    }

    /// Reads what the answer about them needs besides.
    pub(super) async fn details(&self, client: &Client, asked: &Asked) -> Result<Details> {
        let mut details = Details {
            now: SystemClock.now(),
            ..Details::default()
        };
        for bound in self.bound.iter().filter(|it| it.role.kind == "Role") {
            let Some(namespace) = &bound.namespace else { continue };
            if asked.named_in(&bound.subjects).is_none() {
                continue;
            }
            let api = Api::<Role>::namespaced(client.clone(), namespace);
            let role = read(api.get_opt(&path_segment(&bound.role.name)).await, "Roles")?;
            let key = (namespace.clone(), bound.role.name.clone());
            details
                .rules
                .insert(key, role.and_then(|role| role.rules).unwrap_or_default());
        }
        let concerned = || self.bindings.iter().filter(|binding| asked.concerns(binding));
        let named: BTreeSet<&str> = concerned().map(|binding| binding.spec.namespace.as_str()).collect();
        for namespace in named.into_iter().filter(|name| !name.is_empty()) {
            let found = Api::<Namespace>::all(client.clone()).get_opt(namespace).await;
            let found = read(found, "Namespaces")?;
            if found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()) {
                details.namespaces.insert(namespace.to_owned());
            }
        }
        let about = concerned().flat_map(|binding| [&binding.spec.id, &binding.spec.authorization_role_id]);
        details.events = events(client, &about.map(String::as_str).collect()).await?;
        Ok(details)
    }

    pub(super) fn cluster_role(&self, name: &str) -> Option<&ClusterRole> {
        let mut roles = self.cluster_roles.iter();
        roles.find(|role| role.metadata.name.as_deref() == Some(name))
    }

    /// The end of a user's access.
    pub(super) fn end_of_user(&self, id: &str) -> Option<String> {
        let user = self.users.iter().find(|user| user.spec.id == id)?;
        Some(user.spec.expires_at.clone()).filter(|end| !end.is_empty())
    }

    /// The end of the binding of the cloud of which this one of the cluster was made.
    pub(super) fn end_of_binding(&self, bound: &Bound) -> Option<String> {
        let mut bindings = self.bindings.iter();
        let binding = bindings.find(|binding| bound.is_managed && binding.spec.id == bound.name)?;
        Some(binding.spec.expires_at.clone()).filter(|end| !end.is_empty())
    }

    pub(super) fn role(&self, id: &str) -> Option<&AuthorizationRole> {
        self.roles.iter().find(|role| role.spec.id == id)
    }
}

/// The custom resources that the mirror writes.
async fn in_core<K>(client: &Client, what: &'static str) -> Result<(Vec<K>, Vec<Undecodable>)>
where
    K: Cacheable + Resource<Scope = k8s_openapi::NamespaceResourceScope> + DeserializeOwned,
{
    let api = Api::<Guarded<K>>::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE);
    // Of a list only the kind can be missing.
    let listed = read(optional(list_all(&api).await), what)?;
    listed.with_context(|| format!("this cluster has no {what}: apply deploy/crds/coordinator"))
}

fn read<T>(found: kube::Result<T>, what: &'static str) -> Result<T> {
    found.with_context(|| format!("{what} cannot be read"))
}

/// The warnings about roles and bindings of these names.
async fn events(client: &Client, names: &BTreeSet<&str>) -> Result<Vec<EventExplained>> {
    let api = Api::<Event>::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE);
    let found = api.list(&ListParams::default().fields("type=Warning")).await;
    let events = read(found, "Events")?.into_iter().filter_map(|event| {
        let (kind, name) = (event.involved_object.kind?, event.involved_object.name?);
        let is_ours = kind == "AuthorizationRole" || kind == "AuthorizationRoleBinding";
        (is_ours && names.contains(name.as_str())).then_some(EventExplained {
            kind,
            name,
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
        })
    });
    let events: BTreeSet<EventExplained> = events.collect();
    Ok(events.into_iter().collect())
}
