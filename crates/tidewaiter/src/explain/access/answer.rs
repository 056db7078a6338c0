//! The answer, for people and for programs.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;

/// The actions that a user or a team may perform.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccessExplained {
    /// The user, if one was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<UserExplained>,
    /// The ids of the teams that were asked for.
    pub(super) teams: Vec<String>,
    /// The requested namespace; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// The grants that are in force now.
    pub(super) grants: Vec<GrantExplained>,
    /// Rules of their roles in the cloud that the cluster does not have.
    pub(super) refused: Vec<RefusedExplained>,
    /// Bindings of the cloud that the cluster does not have.
    pub(super) waiting: Vec<WaitingExplained>,
    /// The last warnings about the roles of these rules, and about these bindings.
    pub(super) events: Vec<EventExplained>,
    /// Limits of this answer.
    pub(super) notes: Vec<String>,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UserExplained {
    /// The id in the cloud.
    pub(super) id: String,
    /// The name, if the cluster knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// The end of the user's access, if the cluster knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<String>,
}

/// A rule that applies.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GrantExplained {
    /// The rule in words.
    pub(super) what: String,
    /// The rule.
    pub(super) rule: PolicyRule,
    /// The namespace; absent for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// The role.
    pub(super) role: RoleExplained,
    /// The name of the `ClusterRoleBinding` or `RoleBinding`.
    pub(super) binding: String,
    /// True if Tidewaiter made the binding, from one of the cloud.
    pub(super) managed: bool,
    /// The end of the binding of the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<String>,
    /// The queried subject that the binding names: `user`, `team ID`, or `everybody`, who is authenticated.
    pub(super) to: String,
}

/// A role, which is a `ClusterRole` unless its kind says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RoleExplained {
    /// `ClusterRole` or `Role`.
    pub(super) kind: String,
    /// Its name in the cluster: for one of the cloud, its id.
    pub(super) id: String,
    /// Its name in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
}

/// A rule that does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RefusedExplained {
    /// The rule in words.
    pub(super) what: String,
    /// The role.
    pub(super) role: RoleExplained,
    /// The reason why it does not apply.
    pub(super) why: String,
}

/// A binding that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WaitingExplained {
    /// The id of the binding.
    pub(super) binding: String,
    /// The role.
    pub(super) role: RoleExplained,
    /// The namespace in which it will apply; absent for the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// The condition that it waits for.
    pub(super) why: String,
}

/// An Event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventExplained {
    /// The kind of the object.
    pub(super) kind: String,
    /// The name of the object.
    pub(super) name: String,
    /// In one word.
    pub(super) reason: String,
    /// In words.
    pub(super) message: String,
}
