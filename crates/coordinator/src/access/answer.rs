//! The answer, for people and for programs.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;

/// The actions that a user or a team may perform.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessExplained {
    /// The user, if one was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<UserExplained>,
    /// The ids of the teams that were asked for.
    pub teams: Vec<String>,
    /// The requested namespace; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The grants that are in force now.
    pub grants: Vec<GrantExplained>,
    /// Rules of their roles in the cloud that the cluster does not have.
    pub refused: Vec<RefusedExplained>,
    /// Bindings of the cloud that the cluster does not have.
    pub waiting: Vec<WaitingExplained>,
    /// The last warnings about the roles of these rules, and about these bindings.
    pub events: Vec<EventExplained>,
    /// Limits of this answer.
    pub notes: Vec<String>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserExplained {
    /// The id in the cloud.
    pub id: String,
    /// The name, if the cluster knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The end of the user's access, if the cluster knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A rule that applies.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantExplained {
    /// The rule in words.
    pub what: String,
    /// The rule.
    pub rule: PolicyRule,
    /// The namespace; absent for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The role.
    pub role: RoleExplained,
    /// The name of the `ClusterRoleBinding` or `RoleBinding`.
    pub binding: String,
    /// True if Tidewaiter made the binding, from one of the cloud.
    pub managed: bool,
    /// The end of the binding of the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The queried subject that the binding names: `user`, `team ID`, or `everybody`, who is authenticated.
    pub to: String,
}

/// A role, which is a `ClusterRole` unless its kind says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleExplained {
    /// `ClusterRole` or `Role`.
    pub kind: String,
    /// Its name in the cluster: for one of the cloud, its id.
    pub id: String,
    /// Its name in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A rule that does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedExplained {
    /// The rule in words.
    pub what: String,
    /// The role.
    pub role: RoleExplained,
    /// The reason why it does not apply.
    pub why: String,
}

/// A binding that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingExplained {
    /// The id of the binding.
    pub binding: String,
    /// The role.
    pub role: RoleExplained,
    /// The namespace in which it will apply; absent for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The condition that it waits for.
    pub why: String,
}

/// An Event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventExplained {
    /// The kind of the object.
    pub kind: String,
    /// The name of the object.
    pub name: String,
    /// In one word.
    pub reason: String,
    /// In words.
    pub message: String,
}
