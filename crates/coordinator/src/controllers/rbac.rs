//! The parts that the two RBAC controllers share: caches, settings, the recognition of their objects, and the release
//! of a custom resource.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tidewaiter_api::access::{self, Scope, SystemNamespaces};
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding, AuthorizationRoleBindingSpec};
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_api::values::EndTime;
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::slim::OUR_MANAGERS;
use tidewaiter_kit::{
    Cache, Change, Finalizer, Index, Metadata, Notice, Ownership, Queue, ReconcileError as _, SharedClock, Trigger,
    WriteError, Writer,
};

mod scopes;
mod slim;

use super::MirroredAccess;
use super::listed::{Listed, key_of};
use crate::mirror::Held;
pub(super) use scopes::Place;
use scopes::Scopes;

/// The ownership of the objects that the controllers make.
pub const OURS: Ownership = Ownership {
    key: MANAGED_LABEL,
    value: MANAGED_VALUE,
};

/// The wait for what a watch shows a moment later.
pub(super) const CATCH_UP: Duration = Duration::from_secs(1);

/// The operator's settings for roles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RbacSettings {
    /// The `ClusterRole` beyond whose rules no role permits anything.
    pub ceiling: Option<String>,
    /// True if rules that amount to full control of the cluster are permitted.
    pub allow_privileged: bool,
    /// The namespaces in which a binding counts as one for the whole cluster.
    pub system_namespaces: SystemNamespaces,
}

/// Reconciles the custom resource of the name that the object, before and after, gives.
pub(super) fn of_resource<K: 'static>(
    queue: &Queue,
    name: impl Fn(&K) -> Option<&str> + Send + Sync + 'static,
) -> Trigger<K> {
    queue.trigger(move |queue, change: &Change<'_, K>| {
        for name in change.versions().filter_map(&name) {
            queue.push(key_of(name));
        }
    })
}

/// The caches that both controllers read.
#[derive(Clone)]
pub(super) struct Rbac {
    pub(super) settings: RbacSettings,
    pub(super) reader: Client,
    /// Decides which bindings have ended.
    pub(super) clock: SharedClock,
    pub(super) roles: Listed<AuthorizationRole>,
    pub(super) bindings: Listed<AuthorizationRoleBinding>,
    /// The roles that are held as another coordinator left them.
    pub(super) held: Held,
    /// The writes of each controller that the other one must know.
    pub(super) scopes: Scopes,
    /// The roles to reconcile.
    pub(super) role_queue: Queue,
    /// The bindings of a role, by its id.
    pub(super) bindings_of: Index<String>,
    /// The `ClusterRole`s that the controller makes.
    pub(super) cluster_roles: Cache<ClusterRole>,
    /// The `ClusterRoleBinding`s that the controller makes.
    pub(super) everywhere: Cache<ClusterRoleBinding>,
    /// The `ClusterRoleBinding`s by the name of their `ClusterRole`.
    pub(super) bound_everywhere: Index<String>,
    /// The `RoleBinding`s that the controller makes.
    pub(super) in_namespaces: Cache<RoleBinding>,
    /// The bindings in system namespaces, by the name of their `ClusterRole`.
    bound_in_system: Index<String>,
    /// The role that the setting names.
    pub(super) ceiling: Option<Cache<ClusterRole>>,
    pub(super) namespaces: Cache<Metadata<Namespace>>,
}

impl Rbac {
    /// Starts the caches. Without a mirror, also those of the custom resources, which are optional: a cluster may not
    /// have the definitions yet.
    pub(super) fn start(
        settings: RbacSettings,
        mirrored: Option<MirroredAccess>,
        namespaces: Cache<Metadata<Namespace>>,
        role: &mut Role<'_>,
    ) -> Self {
        let (kit, tasks) = (&role.context.kit, &mut *role.tasks);
        let reader = &role.clients.for_controller("caches", DEFAULT_IN_FLIGHT);
        let (roles, bindings, held) = match mirrored {
            Some((roles, bindings, held)) => (Some(roles), Some(bindings), held),
            None => (None, None, Held::roles(Arc::clone(&kit.clock))),
        };
        let roles = Listed::start(roles, reader, kit, tasks);
        let bindings = Listed::start(bindings, reader, kit, tasks);
        let bindings_of = bindings
            .cache()
            .index(|binding: &AuthorizationRoleBinding| Some(binding.spec.authorization_role_id.clone()));
        let cluster_roles = Cache::all(reader.clone()).labels(&selector()).start(tasks, kit);
        let everywhere = Cache::<ClusterRoleBinding>::all(reader.clone())
            .labels(&selector())
            .start(tasks, kit);
        let bound_everywhere = everywhere.index(|binding| Some(binding.role_ref.name.clone()));
        let in_namespaces = Cache::<RoleBinding>::all(reader.clone())
            .labels(&selector())
            .prune(slim::prune)
            .keep(slim::may_be_ours)
            .packed()
            .start(tasks, kit);
        let system = settings.system_namespaces.clone();
        let bound_in_system = in_namespaces.index(move |binding| {
            let is_in_system = system.contains(binding.metadata.namespace.as_deref()?);
            is_in_system.then(|| binding.role_ref.name.clone())
        });
        let ceiling = settings.ceiling.as_ref().map(|name| {
            Cache::all(reader.clone())
                .fields(&format!("metadata.name={name}"))
                .named("rbac-ceiling")
                .start(tasks, kit)
        });
        if let (Some(name), Some(cache)) = (settings.ceiling.clone(), ceiling.clone()) {
            // A misspelt setting would take every rule of every role: a replica without it is the better leader, and
            // a rollout that brings it stops.
            kit.checks.prefer("rbac-ceiling", move || match cache.iter().next() {
                Some(_) => Ok(()),
                None => Err(format!(
                    "there is no ClusterRole {name:?}, which rbacCeiling names, so no rule of any role of the cloud applies: create it, or \
                     correct the setting"
                )),
            });
        }
        Self {
            settings,
            reader: reader.clone(),
            clock: Arc::clone(&kit.clock),
            roles,
            bindings,
            held,
            scopes: Scopes::new(Arc::clone(&kit.clock)),
            role_queue: Queue::new(),
            bindings_of,
            cluster_roles,
            everywhere,
            bound_everywhere,
            in_namespaces,
            bound_in_system,
            ceiling,
            namespaces,
        }
    }

    /// Calls `wake` when the cloud lists other roles or bindings.
    pub(super) fn notify_lists(&self, wake: impl Fn() + Clone + Send + Sync + 'static) {
        let again = wake.clone();
        self.roles.notify_list(move |_| again());
        self.bindings.notify_list(move |_| wake());
    }

    /// The widest scope in which a binding gives the role, will give it, or gave it and is not removed yet.
    pub(super) fn scope(&self, role: &str) -> Scope {
        let entered = self.scopes.entered(role);
        let role = role.to_owned();
        let existing = if !self.bound_everywhere.keys(&role).is_empty() {
            return Scope::Cluster;
        } else if self.bound_in_system.keys(&role).is_empty() {
            Scope::Namespace
        } else {
            Scope::SystemNamespace
        };
        let keys = self.bindings_of.keys(&role);
        let now = self.clock.now();
        let has_ended = |text: &str| EndTime::of_field(text).is_some_and(|end| end.has_passed(now));
        let bindings = keys.iter().filter_map(|key| self.bindings.get(key.name()));
        bindings
            .filter(|binding| !has_ended(&binding.spec.expires_at))
            .map(|binding| self.scope_of(&binding.spec))
            .fold(existing.max(entered), Scope::max)
    }

    /// The scope of a binding.
    pub(super) fn scope_of(&self, binding: &AuthorizationRoleBindingSpec) -> Scope {
        let namespace = (!binding.namespace.is_empty()).then_some(&*binding.namespace);
        Scope::of(namespace, &self.settings.system_namespaces)
    }

    /// The widest scope in which a role with these rules can be bound.
    pub(super) fn safe_scope(&self, rules: &[PolicyRule]) -> Scope {
        if self.settings.allow_privileged {
            return Scope::Cluster;
        }
        access::safe_scope(rules).unwrap_or_default()
    }

    /// The role that the setting names; None without the setting.
    pub(super) fn ceiling(&self) -> Option<Arc<ClusterRole>> {
        self.ceiling.as_ref()?.iter().next()
    }
}

/// Returns true if a coordinator of this project has applied the object; of one with our label that it has not, another
/// coordinator has. A patch that takes rules away from a held role does not make it ours.
#[must_use]
pub fn is_ours(object: &ObjectMeta) -> bool {
    let mut entries = object.managed_fields.iter().flatten();
    entries.any(|entry| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        manager.starts_with(OUR_MANAGERS) && entry.operation.as_deref() == Some("Apply")
    })
}

/// Returns true if this field manager has written the object, also after somebody took our labels off.
pub(super) fn is_written_by(object: &ObjectMeta, manager: &str) -> bool {
    let mut entries = object.managed_fields.iter().flatten();
    entries.any(|entry| entry.manager.as_deref() == Some(manager))
}

/// Returns true if the controller that `wrote` has applied the object, also after somebody took our label off.
pub(super) fn is_made(object: &ObjectMeta, wrote: &str) -> bool {
    let mut entries = object.managed_fields.iter().flatten();
    entries.any(|entry| {
        let manager = entry.manager.as_deref().and_then(|it| it.strip_prefix(OUR_MANAGERS));
        manager == Some(wrote) && entry.operation.as_deref() == Some("Apply")
    })
}

/// The object of this name that the controller that `wrote` has made and whose label somebody took off, past the
/// caches, which show only what has the label. It is still ours: anyone who takes a label off must not keep what the
/// cloud revokes.
pub(super) async fn unlabelled<K>(writer: &Writer, object: &ObjectMeta, wrote: &str) -> Result<Option<K>, WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let found = writer.get::<K>(object).await?;
    Ok(found.filter(|found| !OURS.owns(found) && is_made(found.meta(), wrote)))
}

/// The notice about a write that failed; of an object of others, also how to hand it over.
pub(super) fn notice(error: &WriteError, kind: &str) -> Option<Notice> {
    let mut notice = error.notice()?;
    if error.is_foreign() {
        let key = error.key();
        let namespace = key.namespace().map(|namespace| format!(" -n {namespace}"));
        let (name, namespace) = (key.name(), namespace.unwrap_or_default());
        notice.note = format!(
            "{} To hand it over instead, so that it becomes what the cloud says: \
             kubectl label {kind} {name}{namespace} {MANAGED_LABEL}={MANAGED_VALUE}.",
            notice.note
        );
    }
    Some(notice)
}

/// The label selector of what the controllers make.
fn selector() -> String {
    format!("{MANAGED_LABEL}={MANAGED_VALUE}")
}

/// Puts the finalizer on a custom resource, which keeps it until what was made of it is gone. From one that is being
/// deleted although what was made of it stays, the finalizer is removed. `resource` must have all of its finalizers.
pub(super) async fn keep<K>(finalizer: Finalizer, writer: &Writer, resource: &ObjectMeta) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()>,
{
    match (finalizer.is_on(resource), resource.deletion_timestamp.is_some()) {
        (false, false) => finalizer.ensure::<K>(writer, resource).await,
        (true, true) => finalizer.release::<K>(writer, resource).await,
        _ => Ok(()),
    }
}
