//! The operator's additions to an upgrade: when and how nodes are started.

use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use crate::containership::max_unavailable::{self, MaxUnavailable};
use crate::schema::{kubernetes_integer, null_is_empty};

/// The settings that the operator adds to an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "What the operator adds to an upgrade.", transform = RecursiveTransform(kubernetes_integer))]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own")]
pub struct UpgradePolicy {
    /// No further node is started until this is removed. Nodes that are in progress are finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// No further node is started, and the upgrade fails when the nodes that are in progress are finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// The number of workers of each node pool (label `containership.io/node-pool-id`) may be upgraded at once: a
    /// number, or a percentage of the pool such as `25%`, rounded down and at least one. Workers without the label are
    /// one pool. A node whose agent does not say in its `NodeReport` that it follows the status of its own node is
    /// upgraded alone. Absent: one worker of the cluster at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "max_unavailable::schema")]
    pub max_unavailable: Option<MaxUnavailable>,
    /// The upgrade ends after this number of failed nodes; nodes in progress are finished. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_failures: Option<u32>,
    /// The seconds for which a node must be at the version and Ready, after its host has reported that the script
    /// succeeded, before it is done. A node that is done and then is not so for this time has failed. 0: the first
    /// Ready status is enough, and what is done is not looked at again. Absent: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<u32>,
    /// A node is started only while all Nodes are Ready, etcd answers the API server, and each ClusterHealth is
    /// Healthy; until then the upgrade waits. Not set: they are not looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_healthy: bool,
    /// A node is started only within one of these windows. Nodes that are in progress are finished. Empty: at any time.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub maintenance_windows: Vec<MaintenanceWindow>,
    /// After this number of nodes, the upgrade goes on only when the cluster has been healthy for `soakSeconds`. It
    /// ends if one of them fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub canary: Option<u32>,
    /// The seconds for which the cluster must be healthy after the canaries. Absent: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub soak_seconds: Option<u32>,
    /// Each node is cordoned and drained before it is started, and uncordoned when it is done or has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
    /// For how many seconds the pods of a node may take to leave it. Absent: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub drain_timeout_seconds: Option<u32>,
    /// The treatment of a node whose pods have not left it by then. Absent: `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_drain_timeout: Option<OnDrainTimeout>,
}

/// The treatment of a node whose pods have not left it in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "What happens to a node whose pods have not left it in time.")]
#[serde(rename_all = "lowercase")]
pub enum OnDrainTimeout {
    /// It fails, without a script.
    Fail,
    /// Its pods are deleted, whatever their disruption budgets say, and it is started.
    Force,
}

/// When nodes may be started, every week.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "When nodes may be started, every week.")]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// The days on which the window opens. Empty: every day.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
    /// When it opens, for example `22:00`.
    #[schemars(regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,
    /// When it closes, for example `04:00`: on the next day if this is not after `start`.
    #[schemars(regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub end: String,
    /// The time zone of both, by its name in the IANA database, for example `Europe/Berlin`. Absent: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A day of the week.")]
#[expect(missing_docs, reason = "the days")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}
