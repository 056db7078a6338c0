//! Roles with their rules.

use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleSpec, AuthorizationRule, RuleType};
use tidewaiter_api::names::AUTHORIZATION_ROLE_FINALIZER;
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;

use super::or_empty;
use crate::mirror::kind::{CacheOf, Listed, MirroredKind, Source, in_core, kept};

/// The roles of the cluster.
pub(crate) struct Roles;

impl MirroredKind for Roles {
    const NAME: &'static str = "roles";
    const CONTROLLER: &'static str = "sync-roles";
    const CHANGED: &'static [Kind] = &[Kind::Role];
    const CACHE: CacheOf<AuthorizationRole> = in_core;
    const LISTED: Listed = Listed::At(Cluster::roles);
    const IS_RELEASED_BY_PERSON: bool = true;
    /// All bindings may hang on two roles.
    const FEW: usize = 1;
    const FINALIZER: Option<&'static str> = Some(AUTHORIZATION_ROLE_FINALIZER);
    type Object = models::Role;
    type Resource = AuthorizationRole;

    fn belongs(&self, role: &models::Role, source: &Source) -> bool {
        // Without its rules, which were requested, it would look like a role that permits nothing.
        role.organization_id == source.cluster.organization && role.rules.is_some()
    }

    fn called(&self, role: &AuthorizationRole) -> String {
        role.spec.name.clone()
    }

    fn resource(&self, role: models::Role) -> Option<AuthorizationRole> {
        let organization_id = role.organization_id.to_string();
        let owner_id = or_empty(role.owner_id);
        let spec = AuthorizationRoleSpec {
            id: role.id.to_string(),
            created_at: role.created_at.to_string(),
            updated_at: role.updated_at.to_string(),
            name: role.name.to_string(),
            description: role.description.to_string(),
            rules: role.rules.into_iter().flatten().map(rule).collect(),
            organization_id,
            owner_id,
        };
        Some(AuthorizationRole {
            metadata: kept(&spec.id, AUTHORIZATION_ROLE_FINALIZER),
            spec,
        })
    }
}

fn rule(rule: models::Rule) -> AuthorizationRule {
    fn texts<T: ToString>(values: &[T]) -> Vec<String> {
        values.iter().map(T::to_string).collect()
    }
    let spec = rule.spec;
    AuthorizationRule {
        id: rule.id.to_string(),
        created_at: or_empty(rule.created_at),
        updated_at: or_empty(rule.updated_at),
        organization_id: String::new(),
        name: String::new(),
        description: String::new(),
        owner_id: String::new(),
        type_: match spec.rule_type {
            models::RuleType::Kubernetes => RuleType::Kubernetes,
            models::RuleType::Containership => RuleType::Containership,
        },
        api_groups: texts(&spec.api_groups),
        resources: texts(&spec.resources),
        resource_names: texts(&spec.resource_names),
        verbs: texts(&spec.verbs),
        non_resource_urls: texts(&spec.non_resource_urls),
    }
}
