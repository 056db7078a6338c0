//! `NodeReport`: what the agent of a node has done to the node's files: who can log in there with which key, what was
//! refused, and what others changed.
//!
//! A report is cluster-scoped, has the name of its Node and is owned by it. Only the agent of that node writes it: a
//! `ValidatingAdmissionPolicy` compares the name with the node in the agent's token. It has no status subresource,
//! because one write updates everything.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use crate::condition::{Condition, TIMESTAMP_PATTERN};
use crate::schema::{kubernetes_integer, without_status_subresource};

/// Condition type: whether the node's `authorized_keys` is as the Users of the cluster say.
pub const APPLIED: &str = "Applied";

/// Condition type: whether keys are removed soon, or were removed, because the mirror has not confirmed them for
/// `keysExpireAfter`. Absent while keys do not expire.
pub const KEYS_EXPIRING: &str = "KeysExpiring";

/// Condition type: lines of others let somebody log in. With the reason `Grace`, they are removed at
/// `foreignLinesUntil`. Absent while there are none.
pub const FOREIGN_LINES: &str = "ForeignLines";

/// Condition type: users have, or had, a pinned break-glass key, and can log in with it also when their User is
/// deleted. The message has the command that ends it. Absent while no user has one.
pub const BREAK_GLASS_OF_USERS: &str = "BreakGlassOfUsers";

/// Users that a report names at most.
pub const MOST_USERS: usize = 10_000;

/// Refused keys, foreign keys, break-glass keys and changes that a report names at most.
pub const MOST_NAMED: usize = 16;

/// Has no fields: the status follows from the node alone.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "tidewaiter.dev",
    version = "v1alpha1",
    kind = "NodeReport",
    plural = "nodereports",
    shortname = "nrep",
    category = "tidewaiter",
    doc = "Who can log in on a node, as its agent applied it, what was refused, and what others changed. Written by the agent of the node, owned by its Node.",
    status = "NodeReportStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Applied",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Applied\")].status",
        description = "Whether authorized_keys is as the Users say"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Applied\")].reason",
        description = "The reason for it"
    ),
    printcolumn(
        name = "Keys",
        type_ = "integer",
        json_path = ".status.keys",
        description = "The number of keys of users"
    ),
    printcolumn(
        name = "Foreign",
        type_ = "integer",
        json_path = ".status.foreignLines",
        description = "The number of lines of others that may let somebody log in"
    ),
    printcolumn(
        name = "Restores",
        type_ = "integer",
        json_path = ".status.restores",
        description = "How often the agent has undone a change since it started"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.agentVersion",
        description = "The version of the agent",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Applied\")].message",
        description = "Details",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeReportSpec {}

/// The results of the agent, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = RecursiveTransform(kubernetes_integer))]
pub struct NodeReportStatus {
    /// The version of the agent.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub agent_version: String,
    /// The facts about the host that an upgrade needs.
    #[serde(default)]
    pub host: HostFacts,
    /// The number of keys of users in `authorized_keys`.
    #[serde(default)]
    pub keys: u32,
    /// The users with a key in `authorized_keys`, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_USERS), extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<UserKeys>,
    /// The number of keys that were refused.
    #[serde(default)]
    pub refused_keys: u32,
    /// The first keys that were refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_NAMED))]
    pub refused: Vec<RefusedKey>,
    /// The lines of `authorized_keys` that are not the agent's, and may let somebody log in.
    #[serde(default)]
    pub foreign_lines: u32,
    /// The first keys in these lines: whoever has one can log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_NAMED))]
    pub foreign_keys: Vec<ForeignKey>,
    /// When foreign lines that stay until then are removed (UTC, whole seconds).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub foreign_lines_until: Option<Timestamp>,
    /// The fingerprints of the break-glass keys in `authorized_keys`, which are pinned on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_NAMED), inner(length(max = 128)))]
    pub break_glass_keys: Vec<String>,
    /// Users that have one of them as a key of their own, or had it while an agent reported here: they can log in with
    /// it also when their User is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_NAMED))]
    pub break_glass_users: Vec<BreakGlassUser>,
    /// The last login with one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub break_glass_use: Option<BreakGlassUse>,
    /// The number of changes that the agent has undone since it started.
    #[serde(default)]
    pub restores: u32,
    /// The last changes that the agent found, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_NAMED))]
    pub tampering: Vec<Tampering>,
    /// The upgrade of Kubernetes on this node: that whose turn it is, or the last one, as its host says. Absent if
    /// upgrades are disabled on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradeReport>,
    /// The conditions `Applied`, `ForeignLines`, `BreakGlassOfUsers` and `KeysExpiring`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The facts about the host that an upgrade needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "What an upgrade needs to know of the host.")]
pub struct HostFacts {
    /// The release of the kernel, for example `6.12.0`.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub kernel: String,
    /// The architecture, as `uname -m` prints it.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub architecture: String,
    /// Differs after each boot of the node.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub boot_id: String,
}

/// The last upgrade of Kubernetes on a node. The coordinator decides by `id` and `state` when the node is done or has
/// failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The last upgrade of Kubernetes on the node, as its host reports it.")]
pub struct UpgradeReport {
    /// The id of the upgrade.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub id: String,
    /// The result of its script.
    #[serde(default)]
    pub state: UpgradeState,
    /// The reason, in words.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The exit status of the script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if the script failed, its way back ended well, and the kubelet is at the version of before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
    /// True if the host permits scripts without a signature.
    #[serde(default)]
    pub unsigned_scripts: bool,
    /// True if the agent follows the status of its own node, and not only `currentNode`: then several nodes may be
    /// upgraded at once.
    #[serde(default)]
    pub follows_own_status: bool,
    /// From when on the signature of the script counts, if it does not yet (UTC). No script runs before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub not_before: Option<Timestamp>,
    /// The reason why no script would run on the node: nothing is pinned on its host, or its agent cannot read the
    /// coordinator's orders. Empty if one would.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub host_problem: String,
}

/// The result of the script of an upgrade. `Refused`, `Succeeded`, `Failed`, `TimedOut` and `Interrupted` are final:
/// nothing of the upgrade runs on the node any more, and nothing of it will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "What became of the script; None if none was offered.")]
pub enum UpgradeState {
    /// None was offered.
    #[default]
    None,
    /// It is offered to the host, which has not answered.
    Offered,
    /// It does not run yet, and is tried again; the message says why.
    Blocked,
    /// It was refused for good; the message says by which check.
    Refused,
    /// It runs.
    Running,
    /// It has failed, and its way back is due or runs.
    RollingBack,
    /// It ended with the status 0, or there was nothing to do.
    Succeeded,
    /// It ended with another status.
    Failed,
    /// It was stopped at the deadline.
    TimedOut,
    /// The node or the host's service ended while it ran. It does not run again.
    Interrupted,
}

/// The keys of a user in `authorized_keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The keys of a user in authorized_keys.")]
pub struct UserKeys {
    /// The id of the user in the cloud.
    #[schemars(length(max = 64))]
    pub id: String,
    /// The SHA-256 fingerprints of the keys.
    #[schemars(length(max = 64), inner(length(max = 128)))]
    pub fingerprints: Vec<String>,
    /// Since when exactly these keys of the user are there (UTC, whole seconds).
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub since: Timestamp,
}

/// A key that was not written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "A key that was not written to authorized_keys.")]
pub struct RefusedKey {
    /// The name of the User object.
    #[schemars(length(max = 253))]
    pub user: String,
    /// The name of the key, or its position; empty when all keys of the user are refused.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub key: String,
    /// The reason, in plain words.
    #[schemars(length(max = 1024))]
    pub reason: String,
}

/// A key in a line that is not the agent's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "A key in a line of authorized_keys that is not the agent's.")]
pub struct ForeignKey {
    /// The SHA-256 fingerprint.
    #[schemars(length(max = 128))]
    pub fingerprint: String,
    /// The comment of the line, cut.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub comment: String,
}

/// A user with a break-glass key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "A user with a break-glass key.")]
pub struct BreakGlassUser {
    /// The SHA-256 fingerprint of the key.
    #[schemars(length(max = 128))]
    pub fingerprint: String,
    /// The id of the user in the cloud.
    #[schemars(length(max = 64))]
    pub user: String,
}

/// A login with a break-glass key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "A login with a break-glass key.")]
pub struct BreakGlassUse {
    /// When it began (UTC, whole seconds), as the node says.
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub at: Timestamp,
    /// The SHA-256 fingerprint of the key.
    #[schemars(length(max = 128))]
    pub fingerprint: String,
}

/// A change that somebody else made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "A change to the agent's files that somebody else made.")]
pub struct Tampering {
    /// When the agent found it (UTC, whole seconds).
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub at: Timestamp,
    /// The change, and its author as far as that is known.
    #[schemars(length(max = 1024))]
    pub what: String,
}

impl NodeReport {
    /// The report of the node `name`. The Node owns it, so it is garbage collected with the Node.
    #[must_use]
    pub fn of_node(name: &str, uid: &str, status: NodeReportStatus) -> Self {
        let mut report = Self::new(name, NodeReportSpec {});
        report.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }]);
        report.status = Some(status);
        report
    }

    /// The condition of this type, if the report has one.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_)
    }
}

/// The definition, without the status subresource that the derive adds for every type with a status.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    without_status_subresource(NodeReport::crd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_named_and_owned_by_its_node() {
        let report = NodeReport::of_node("node-a", "u-1", NodeReportStatus::default());
        let owner = &report.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!(report.metadata.name.as_deref(), Some("node-a"));
        assert_eq!(
            (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()),
            ("Node", "node-a", "u-1")
        );
    }
}
