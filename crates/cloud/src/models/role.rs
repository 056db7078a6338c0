//! Roles: named lists of rules, which become `ClusterRole`s.
//!
//! Source: `ValidatePolicyRule` of Kubernetes' `pkg/apis/rbac/validation`, so that an API server accepts every rule
//! that is accepted here.

use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::Kind;
use super::document::InvalidField;
use super::fields::{Fields, Model, model};
use super::resource::{self, Facts, Parameter, ParameterType};
use super::values::{
    ApiGroup, Description, DisplayName, NonResourceUrl, OrganizationId, Resource, ResourceName, RoleId, RuleId,
    UnixMillis, UserId, Verb, words,
};

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
    },
    Parameter {
        name: "remove_empty",
        description: "omits roles without a rule of `rule_type`",
        form: ParameterType::Bool,
    },
    Parameter {
        name: "rule_type",
        description: "includes only rules of this type",
        form: ParameterType::Words(&["kubernetes", "containership"]),
    },
];

/// The settings of a role.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct RoleSpec {
    pub name: DisplayName,
    #[schema(value_type = Option<Description>)]
    pub description: Description,
    pub rules: Vec<RuleSpec>,
}

/// A role.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Role {
    pub id: RoleId,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub organization_id: OrganizationId,
    pub owner_id: Option<UserId>,
    pub name: DisplayName,
    #[schema(value_type = Option<Description>)]
    pub description: Description,
    /// Only with `side_load=rules`. Absent differs from an empty list, which allows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<Rule>>,
}

/// The settings of a rule: either resources of some groups, or non-resource paths.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(examples(json!({"type": "kubernetes", "api_groups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]})))]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct RuleSpec {
    #[serde(rename = "type")]
    pub rule_type: RuleType,
    /// `null` in responses if there are none.
    #[serde(serialize_with = "null_if_empty")]
    #[schema(value_type = Option<BTreeSet<ApiGroup>>)]
    pub api_groups: Vec<ApiGroup>,
    #[schema(value_type = Option<BTreeSet<Resource>>)]
    pub resources: Vec<Resource>,
    #[schema(value_type = Option<BTreeSet<ResourceName>>)]
    pub resource_names: Vec<ResourceName>,
    #[schema(value_type = BTreeSet<Verb>, min_items = 1)]
    pub verbs: Vec<Verb>,
    #[schema(value_type = Option<BTreeSet<NonResourceUrl>>)]
    pub non_resource_urls: Vec<NonResourceUrl>,
}

/// A rule of a role.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Rule {
    pub id: RuleId,
    pub created_at: Option<UnixMillis>,
    pub updated_at: Option<UnixMillis>,
    #[serde(flatten)]
    pub spec: RuleSpec,
}

/// The old coordinator omits an empty list when it writes the custom resource, and takes an empty list from the cloud for
/// a difference: it would write the resource again at every sync. Only `null` equals what it finds there.
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
        ..Facts::of(Kind::Role, "roles", Self::KIND, &[Kind::Organization])
    };
}

model! { RoleSpec, "a role" => required { name } or_default { description } required { rules } }

impl Model for Role {
    const KIND: &'static str = RoleSpec::KIND;

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let role = Self {
            id: fields.required("id")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
            organization_id: fields.required("organization_id")?,
            owner_id: fields.optional("owner_id")?,
            name: fields.required("name")?,
            description: fields.or_default("description")?,
            rules: fields.nullable("rules")?,
        };
        let ids: Vec<_> = role.rules.iter().flatten().map(|rule| rule.id).collect();
        fields.unique("rules", &ids)?;
        Ok(role)
    }
}

impl Model for RuleSpec {
    const KIND: &'static str = "a rule";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let rule = Self {
            rule_type: fields.required("type")?,
            api_groups: fields.or_default("api_groups")?,
            resources: fields.or_default("resources")?,
            resource_names: fields.or_default("resource_names")?,
            verbs: fields.required("verbs")?,
            non_resource_urls: fields.or_default("non_resource_urls")?,
        };
        rule.check(fields)?;
        Ok(rule)
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
            return Err(fields.invalid(
                "resources",
                "is empty, must have at least one resource; otherwise use non_resource_urls",
            ));
        }
        // Only the resources of Kubernetes have groups.
        if self.api_groups.is_empty() && self.rule_type == RuleType::Kubernetes {
            let reason = "is empty, must have at least one group; the core group is the empty string";
            return Err(fields.invalid("api_groups", reason));
        }
        Ok(())
    }
}

model! { Rule, RuleSpec::KIND => required { id } optional { created_at, updated_at } flatten { spec } }
