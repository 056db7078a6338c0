//! Roles: named lists of rules, which become `ClusterRole`s.
//!
//! Source: `ValidatePolicyRule` of Kubernetes' `pkg/apis/rbac/validation`, so that an API server accepts every rule
//! that is accepted here.

use serde::{Serialize as _, Serializer};

use super::fields::model;
use super::values::{
    ApiGroup, Description, DisplayName, NonResourceUrl, OrganizationId, Resource, ResourceName, RoleId, RuleId,
    UnixMillis, UserId, Verb, words,
};
use super::{Facts, Fields, InvalidField, Kind, Parameter, ParameterType, resource};

words! {
    /// The role of the rule.
    RuleType, "type of a rule" {
        /// Of the cluster's API server.
        Kubernetes = "kubernetes",
        /// Of the cloud's own API.
        Containership = "containership",
    }
}

const LIST_QUERY: &[Parameter] = &[
    Parameter {
        name: "side_load",
        description: "`rules` includes the rules of each role",
        form: ParameterType::Words(&["rules"]),
        required: false,
    },
    Parameter {
        name: "remove_empty",
        description: "omits roles without a rule of `rule_type`",
        form: ParameterType::Bool,
        required: false,
    },
    Parameter {
        name: "rule_type",
        description: "includes only rules of this type",
        form: ParameterType::Words(&["kubernetes", "containership"]),
        required: false,
    },
];

model! {
    /// The settings of a role.
    RoleSpec, "a role" =>
    required name: DisplayName,
    or_default description: Description,
    required rules: Vec<RuleSpec>,
}

model! {
    /// A role.
    Role, RoleSpec::KIND, check =>
    required id: RoleId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required organization_id: OrganizationId,
    optional owner_id: Option<UserId>,
    required name: DisplayName,
    or_default description: Description,
    /// Only with `side_load=rules`. Absent differs from an empty list, which allows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable rules: Option<Vec<Rule>>,
}

model! {
    /// The settings of a rule: either resources of some groups, or non-resource paths.
    #[schema(examples(json!({"type": "kubernetes", "api_groups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]})))]
    RuleSpec, "a rule", check =>
    required rule_type = "type": RuleType,
    /// `null` in responses if there are none.
    #[serde(serialize_with = "null_if_empty")]
    or_default api_groups: Vec<ApiGroup> as Option<BTreeSet<ApiGroup>>,
    or_default resources: Vec<Resource> as Option<BTreeSet<Resource>>,
    or_default resource_names: Vec<ResourceName> as Option<BTreeSet<ResourceName>>,
    #[schema(min_items = 1)]
    required verbs: Vec<Verb> as BTreeSet<Verb>,
    or_default non_resource_urls: Vec<NonResourceUrl> as Option<BTreeSet<NonResourceUrl>>,
}

model! {
    /// A rule of a role.
    Rule, RuleSpec::KIND =>
    required id: RuleId,
    optional created_at: Option<UnixMillis>,
    optional updated_at: Option<UnixMillis>,
    flatten spec: RuleSpec,
}

/// The old coordinator omits an empty list when it writes the custom resource, and takes an empty list from the cloud
/// for a difference: it would write the resource again at every sync. Only `null` equals what it finds there.
fn null_if_empty<S: Serializer>(groups: &[ApiGroup], serializer: S) -> Result<S::Ok, S::Error> {
    (!groups.is_empty()).then_some(groups).serialize(serializer)
}

impl resource::Resource for RoleSpec {
    type Object = Role;

    const FACTS: Facts = Facts {
        tag: "Roles",
        generated: &["id", "created_at", "updated_at", "organization_id", "owner_id"],
        has_older_forms: true,
        list_query: LIST_QUERY,
        columns: &["name", "description"],
        about: "Roles and their rules",
        aliases: &["role"],
        ..Facts::of::<Self>(Kind::Role, "roles", &[Kind::Organization])
    };
}

impl Role {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        let ids: Vec<_> = self.rules.iter().flatten().map(|rule| rule.id).collect();
        fields.unique("rules", &ids)
    }
}

impl RuleSpec {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        fields.unique("api_groups", &self.api_groups)?;
        fields.unique("resources", &self.resources)?;
        fields.unique("resource_names", &self.resource_names)?;
        fields.unique("verbs", &self.verbs)?;
        fields.unique("non_resource_urls", &self.non_resource_urls)?;
        if self.verbs.is_empty() {
            return Err(fields.invalid("verbs", "is empty, must have at least one verb"));
        }
        if !self.non_resource_urls.is_empty() {
            let regular = [
                ("api_groups", self.api_groups.is_empty()),
                ("resources", self.resources.is_empty()),
                ("resource_names", self.resource_names.is_empty()),
            ];
            return match regular.iter().find(|(_, empty)| !empty) {
                Some((key, _)) => {
                    Err(fields.invalid(key, "cannot be combined with non_resource_urls; use a separate rule"))
                }
                None => Ok(()),
            };
        }
        if self.resources.is_empty() {
            let reason = "is empty, must have at least one resource; otherwise use non_resource_urls";
            return Err(fields.invalid("resources", reason));
        }
        // Only the resources of Kubernetes have groups.
        if self.api_groups.is_empty() && self.rule_type == RuleType::Kubernetes {
            let reason = "is empty, must have at least one group; the core group is the empty string";
            return Err(fields.invalid("api_groups", reason));
        }
        Ok(())
    }
}
