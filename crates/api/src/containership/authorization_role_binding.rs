//! `AuthorizationRoleBinding`: gives a role to a user or a team. It becomes a `ClusterRoleBinding`, or a `RoleBinding`
//! in a namespace.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MAX_ID, NAMESPACE_OR_EMPTY};
use crate::values::EndTime;

/// A binding, as the cloud lists those of the cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "auth.containership.io",
    version = "v3",
    kind = "AuthorizationRoleBinding",
    plural = "authorizationrolebindings",
    shortname = "authbinding",
    namespaced,
    doc = "Gives a role of the cloud to a user or a team. Mirrored from the cloud by the coordinator.",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    validation = Rule::new("self.metadata.name == self.spec.id").message("metadata.name must be spec.id"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.authorization_role_id", description = "The id of the role", priority = 1),
    printcolumn(name = "User", type_ = "string", json_path = ".spec.user_id", description = "The id of the user", priority = 1),
    printcolumn(name = "Team", type_ = "string", json_path = ".spec.team_id", description = "The id of the team", priority = 1),
    printcolumn(name = "In", type_ = "string", json_path = ".spec.namespace", description = "The namespace; empty for the whole cluster", priority = 1),
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expires_at", description = "The time at which the binding ends; empty if it does not", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("self.type != 'UserBinding' || (has(self.user_id) && self.user_id != '')").message("a UserBinding must have a user_id"))]
#[x_kube(validation = Rule::new("self.type != 'TeamBinding' || (has(self.team_id) && self.team_id != '')").message("a TeamBinding must have a team_id"))]
pub struct AuthorizationRoleBindingSpec {
    /// The id of the binding in the cloud, a UUID.
    #[schemars(length(max = MAX_ID))]
    pub id: String,
    /// When the binding was created, as the cloud writes it.
    #[serde(default)]
    pub created_at: String,
    /// When the binding was last changed, as the cloud writes it.
    #[serde(default)]
    pub updated_at: String,
    /// The id of the organization in the cloud.
    #[serde(default)]
    pub organization_id: String,
    /// The id of the user who created the binding.
    #[serde(default)]
    pub owner_id: String,
    /// The field of the two, `user_id` or `team_id`, that says who gets the role.
    #[serde(rename = "type")]
    pub type_: BindingType,
    /// The id of the role: the name of an `AuthorizationRole` and of its `ClusterRole`.
    #[schemars(length(min = 1, max = MAX_ID))]
    pub authorization_role_id: String,
    /// The id of the user in a `UserBinding`: the subject is the user `containership.io/user_id#ID`.
    #[serde(default)]
    #[schemars(length(max = MAX_ID))]
    pub user_id: String,
    /// The id of the team in a `TeamBinding`: the subject is the group `containership.io/team_id#ID`.
    #[serde(default)]
    #[schemars(length(max = MAX_ID))]
    pub team_id: String,
    /// The id of the cluster in the cloud; empty for all clusters of the organization.
    #[serde(default)]
    pub cluster_id: String,
    /// The namespace that the role is for; empty for the whole cluster.
    #[serde(default)]
    #[schemars(regex(pattern = NAMESPACE_OR_EMPTY))]
    pub namespace: String,
    /// The time from which on the binding gives nothing any more, `2027-01-31T18:00:00Z`; absent if it has no end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = EndTime::FIELD_PATTERN))]
    pub expires_at: String,
}

/// The subject that gets the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "Whether user_id or team_id says who gets the role.")]
pub enum BindingType {
    /// The user of `user_id`.
    #[serde(rename = "UserBinding")]
    User,
    /// The team of `team_id`.
    #[serde(rename = "TeamBinding")]
    Team,
}
