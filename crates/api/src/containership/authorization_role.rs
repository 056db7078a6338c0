//! `AuthorizationRole`: what its users and teams may do in the cluster. It becomes a `ClusterRole`.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MAX_ID;
use crate::schema::null_is_empty;

/// A role, as the cloud lists those of the cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "auth.containership.io",
    version = "v3",
    kind = "AuthorizationRole",
    plural = "authorizationroles",
    shortname = "authrole",
    namespaced,
    doc = "A role of the cloud, which becomes a ClusterRole. Mirrored from the cloud by the coordinator.",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    validation = Rule::new("self.metadata.name == self.spec.id").message("metadata.name must be spec.id"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.name", description = "The name of the role", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct AuthorizationRoleSpec {
    /// The id of the role in the cloud, a UUID. The `ClusterRole` has this name.
    #[schemars(length(max = MAX_ID))]
    pub id: String,
    /// When the role was created, as the cloud writes it.
    #[serde(default)]
    pub created_at: String,
    /// When the role was last changed, as the cloud writes it.
    #[serde(default)]
    pub updated_at: String,
    /// The id of the organization in the cloud.
    #[serde(default)]
    pub organization_id: String,
    /// The name of the role, for people.
    #[serde(default)]
    pub name: String,
    /// The purpose of the role, for people.
    #[serde(default)]
    pub description: String,
    /// The id of the user who created the role.
    #[serde(default)]
    pub owner_id: String,
    /// The rules of the role. Only rules of the type `kubernetes` apply in the cluster.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub rules: Vec<AuthorizationRule>,
}

/// A rule: what it permits, as in a `PolicyRule` of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A rule: what it permits, as in a PolicyRule of Kubernetes.")]
pub struct AuthorizationRule {
    /// The id of the rule in the cloud, a UUID.
    #[serde(default)]
    pub id: String,
    /// When the rule was created, as the cloud writes it.
    #[serde(default)]
    pub created_at: String,
    /// When the rule was last changed, as the cloud writes it.
    #[serde(default)]
    pub updated_at: String,
    /// The id of the organization in the cloud.
    #[serde(default)]
    pub organization_id: String,
    /// The name of the rule, for people.
    #[serde(default)]
    pub name: String,
    /// The purpose of the rule, for people.
    #[serde(default)]
    pub description: String,
    /// The id of the user who created the rule.
    #[serde(default)]
    pub owner_id: String,
    /// The place where the rule applies.
    #[serde(rename = "type")]
    pub type_: RuleType,
    /// The API groups; the core group is the empty text.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub api_groups: Vec<String>,
    /// The resources, for example `pods` or `pods/log`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub resources: Vec<String>,
    /// The names of the objects; empty for all.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub resource_names: Vec<String>,
    /// The verbs, for example `get`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub verbs: Vec<String>,
    /// The paths of the API server outside of resources, for example `/healthz`.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// The place where a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "Where the rule applies: in the cluster, or in the cloud.")]
#[serde(rename_all = "lowercase")]
pub enum RuleType {
    /// In the cluster.
    Kubernetes,
    /// In the cloud, not in the cluster.
    Containership,
}
