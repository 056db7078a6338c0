//! Role bindings.

use tidewaiter_api::containership::{
    AuthorizationRole, AuthorizationRoleBinding, AuthorizationRoleBindingSpec, BindingType, User,
};
use tidewaiter_api::names::AUTHORIZATION_ROLE_BINDING_FINALIZER;
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models::{self, BindingSubject, Kind};

use super::or_empty;
use crate::mirror::CloudList;
use crate::mirror::kind::{CALLED, CacheOf, Listed, MirroredKind, Source, in_core, kept};

/// The role bindings that apply to the cluster.
pub(crate) struct RoleBindings {
    /// The roles, which have names.
    pub(crate) roles: CloudList<AuthorizationRole>,
    /// The users with access to the nodes: of the others, and of teams, only the ids are known.
    pub(crate) users: CloudList<User>,
}

impl MirroredKind for RoleBindings {
    const NAME: &'static str = "role-bindings";
    const CONTROLLER: &'static str = "sync-role-bindings";
    const CHANGED: &'static [Kind] = &[Kind::RoleBinding, Kind::Team];
    const CACHE: CacheOf<AuthorizationRoleBinding> = in_core;
    const LISTED: Listed = Listed::At(Cluster::role_bindings);
    const IS_RELEASED_BY_PERSON: bool = true;
    /// With the names of a role, a user and a namespace.
    const CALLED: usize = 3 * CALLED;
    const FINALIZER: Option<&'static str> = Some(AUTHORIZATION_ROLE_BINDING_FINALIZER);
    type Object = models::RoleBinding;
    type Resource = AuthorizationRoleBinding;

    fn belongs(&self, binding: &models::RoleBinding, source: &Source) -> bool {
        let cluster = source.cluster;
        binding.organization_id == cluster.organization && binding.spec.cluster_id.is_none_or(|id| id == cluster.id)
    }

    fn gives(&self, binding: &AuthorizationRoleBinding) -> String {
        let spec = &binding.spec;
        let words = [
            &spec.authorization_role_id,
            &spec.user_id,
            &spec.team_id,
            &spec.namespace,
            &spec.expires_at,
        ];
        words.map(String::as_str).join(" ")
    }

    fn called(&self, binding: &AuthorizationRoleBinding) -> String {
        let spec = &binding.spec;
        let subject = match spec.type_ {
            BindingType::User => format!("user {}", name_of(&self.users, &spec.user_id, |user| &user.spec.name)),
            BindingType::Team => format!("team {}", spec.team_id),
        };
        let namespace = (!spec.namespace.is_empty()).then(|| format!(" in {}", spec.namespace));
        let role = name_of(&self.roles, &spec.authorization_role_id, |role| &role.spec.name);
        format!("role {role} of {subject}{}", namespace.unwrap_or_default())
    }

    fn resource(&self, binding: models::RoleBinding) -> Option<AuthorizationRoleBinding> {
        let (type_, user_id, team_id) = match binding.spec.subject {
            BindingSubject::User(id) => (BindingType::User, id.to_string(), String::new()),
            BindingSubject::Team(id) => (BindingType::Team, String::new(), id.to_string()),
        };
        let spec = AuthorizationRoleBindingSpec {
            id: binding.id.to_string(),
            created_at: binding.created_at.to_string(),
            updated_at: binding.updated_at.to_string(),
            organization_id: binding.organization_id.to_string(),
            owner_id: or_empty(binding.owner_id),
            type_,
            authorization_role_id: binding.spec.authorization_role_id.to_string(),
            user_id,
            team_id,
            cluster_id: or_empty(binding.spec.cluster_id),
            namespace: or_empty(binding.spec.namespace),
            expires_at: or_empty(binding.spec.expires_at),
        };
        Some(AuthorizationRoleBinding {
            metadata: kept(&spec.id, AUTHORIZATION_ROLE_BINDING_FINALIZER),
            spec,
        })
    }
}

/// The name of what has this id; the id where it is not listed.
fn name_of<R>(list: &CloudList<R>, id: &str, name: impl Fn(&R) -> &str) -> String {
    let listed = list.listed();
    let found = listed.get(id).and_then(Option::as_deref).map(name);
    found.unwrap_or(id).chars().take(CALLED).collect()
}
