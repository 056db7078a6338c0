//! `NodeUpgrade`: that it is the turn of a node to be upgraded, and what its agent needs to know of the upgrade.
//!
//! It has the name of its Node. The coordinator derives it from the progress of the `ClusterUpgrade`, after that was
//! written, and deletes it when the node is not in progress any more. It is in the namespace of the `ClusterUpgrade`,
//! which owns it. The agent of the node watches this object alone, so a write of the progress costs the same in a
//! cluster of any size. It has no status: what becomes of the script is in the `NodeReport`.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{CustomResource, KubeSchema, Resource as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::TIMESTAMP_PATTERN;
use crate::containership::ClusterUpgrade;
use crate::names::CONTAINERSHIP_NAMESPACE;

/// The order for a node: an upgrade in progress, as far as it concerns the node.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "tidewaiter.dev",
    version = "v1alpha1",
    kind = "NodeUpgrade",
    plural = "nodeupgrades",
    shortname = "nup",
    category = "tidewaiter",
    namespaced,
    doc = "That the node of this name is being upgraded, for its agent. Written by the coordinator from the progress of the ClusterUpgrade that owns it, and deleted when the node is not in progress any more.",
    derive = "PartialEq",
    printcolumn(
        name = "Upgrade",
        type_ = "string",
        json_path = ".spec.upgrade.name",
        description = "The ClusterUpgrade"
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".spec.targetVersion",
        description = "The version to upgrade to"
    ),
    printcolumn(
        name = "Since",
        type_ = "string",
        json_path = ".spec.since",
        description = "From when on the timeout of the node counts"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeUpgradeSpec {
    /// The `ClusterUpgrade`.
    pub upgrade: UpgradeIdentity,
    /// The id by which the script of the upgrade is signed and reported. It becomes part of the name of a file on the
    /// node.
    #[schemars(regex(pattern = "^[-A-Za-z0-9._]{1,253}$"))]
    pub id: String,
    /// The version to upgrade to, for example `v1.12.3`. It becomes part of the name of a file on the node.
    #[schemars(
        length(max = 64),
        regex(pattern = r"^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[-0-9A-Za-z.]+)?(\+[-0-9A-Za-z.]+)?$")
    )]
    pub target_version: String,
    /// After how many seconds the node counts as failed.
    #[schemars(range(min = 1, max = 86_400))]
    pub node_timeout_seconds: i64,
    /// From when on `nodeTimeoutSeconds` count (UTC); in the future while the node waits for the window of its
    /// signature.
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub since: Timestamp,
}

/// The state of the `ClusterUpgrade` that says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "Which state of which ClusterUpgrade says so.")]
pub struct UpgradeIdentity {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its uid: a name may be used again.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The generation of the `ClusterUpgrade` when the order was written. An agent follows no older one than it has
    /// seen.
    pub generation: i64,
}

impl NodeUpgrade {
    /// The order for the node `name`. The `ClusterUpgrade` owns it, so it is garbage collected with it.
    #[must_use]
    pub fn of_node(name: &str, spec: NodeUpgradeSpec) -> Self {
        let owner = OwnerReference {
            api_version: ClusterUpgrade::api_version(&()).into_owned(),
            kind: ClusterUpgrade::kind(&()).into_owned(),
            name: spec.upgrade.name.clone(),
            uid: spec.upgrade.uid.clone(),
            ..OwnerReference::default()
        };
        let mut order = Self::new(name, spec);
        order.metadata.namespace = Some(CONTAINERSHIP_NAMESPACE.to_owned());
        order.metadata.owner_references = Some(vec![owner]);
        order
    }
}
