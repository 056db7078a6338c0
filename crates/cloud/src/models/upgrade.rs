//! Upgrades of a cluster, and the script that each node runs for one. Unlike the rest of the API, the fields of an
//! upgrade are in camel case: it is the spec of the `ClusterUpgrade` in the cluster.

mod policy;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use tidewaiter_api::containership::UpgradePolicy;
use tidewaiter_api::{InvalidValue, LabelKey, LabelValue, NodeName};
use utoipa::ToSchema;

use super::fields::model;
use super::values::{Description, TargetVersion, UnixDate, UnixSeconds, UpgradeId, words};
use super::{Facts, Fields, InvalidField, Kind, Resource, schema};

const MAX_TIMEOUT: u32 = 24 * 60 * 60;
const MAX_SCRIPT: usize = 1024 * 1024;

words! {
    /// The component to upgrade. `etcd` has a name in the API, but was never supported.
    UpgradeType, "type of an upgrade (etcd is not supported)" {
        Kubernetes = "kubernetes",
    }
}

words! {
    /// The operator of a label requirement.
    ///
    /// Source: `selection.Operator` of `k8s.io/apimachinery`.
    SelectorOperator, "operator of a label selector" {
        In = "in",
        NotIn = "notin",
        Equals = "=",
        DoubleEquals = "==",
        NotEquals = "!=",
        Exists = "exists",
        DoesNotExist = "!",
        GreaterThan = "gt",
        LessThan = "lt",
    }
}

words! {
    /// The progress of an upgrade, of the cluster or of one node.
    UpgradeStatus, "status of an upgrade" {
        InProgress = "InProgress",
        Success = "Success",
        /// One node at least failed.
        Failed = "Failed",
    }
}

model! {
    /// The settings of an upgrade.
    UpgradeSpec, "an upgrade" =>
    required upgrade_type = "type": UpgradeType,
    or_default description: Description,
    required target_version = "targetVersion": TargetVersion,
    /// A node must match all of them; an empty list matches all nodes.
    or_default label_selector = "labelSelector": Vec<NodeSelector>,
    #[schema(minimum = 1, maximum = 86400, examples(900))]
    number(1, MAX_TIMEOUT) node_timeout_seconds = "nodeTimeoutSeconds": u32,
    /// What is added to the upgrade of one node after the other. Absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy policy: Option<UpgradePolicy> as Option<policy::PolicySchema>,
}

model! {
    /// An upgrade.
    Upgrade, UpgradeSpec::KIND =>
    required id: UpgradeId,
    required added_at = "addedAt": UnixSeconds,
    flatten spec: UpgradeSpec,
    nullable status: Option<UpgradeProgress>,
}

model! {
    /// A requirement for a node's labels.
    #[schema(examples(json!({"label": "example.com/zone", "operator": "in", "value": ["a", "b"]})))]
    NodeSelector, "a label selector", check =>
    required label: LabelKey as schema::LabelKey,
    required operator: SelectorOperator,
    /// Their number depends on the operator.
    or_default value: Vec<LabelValue> as Option<BTreeSet<schema::LabelValue>>,
}

model! {
    /// The progress of an upgrade.
    UpgradeProgress, "the status of an upgrade" =>
    /// `null`: it has not begun.
    optional cluster_status = "clusterStatus": Option<UpgradeStatus>,
    or_default node_statuses = "nodeStatuses": BTreeMap<NodeName, UpgradeStatus>
        as Option<BTreeMap<schema::NodeName, UpgradeStatus>>,
    optional current_node = "currentNode": Option<NodeName> as Option<schema::NodeName>,
    optional current_start_time = "currentStartTime": Option<UnixDate>,
    /// How many nodes it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    optional_number(0, u32::MAX) nodes: Option<u32>,
    /// How many of them are at the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    optional_number(0, u32::MAX) done: Option<u32>,
    /// How many of them have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    optional_number(0, u32::MAX) failed: Option<u32>,
    /// What it waits for, or how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    optional message: Option<Description>,
}

/// The upgrade script of a node. It runs as root; `Debug` shows only its length.
#[derive(Clone, PartialEq, ToSchema)]
#[schema(
    max_length = 1_048_576,
    pattern = r"^#!/[^\u0000-\u0008\u000b-\u001f\u007f]*\n$",
    examples("#!/bin/sh\nexit 0\n")
)]
pub struct UpgradeScript(String);

impl UpgradeScript {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UpgradeScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpgradeScript({} bytes)", self.0.len())
    }
}

impl FromStr for UpgradeScript {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let control = |b: u8| b.is_ascii_control() && !matches!(b, b'\n' | b'\t');
        let rule = if text.len() > MAX_SCRIPT {
            "must have 1 MiB at most"
        } else if !text.starts_with("#!/") {
            "must begin with #!/ and its interpreter, for example #!/bin/sh"
        } else if text.contains("\r\n") {
            "must end its lines with a line feed alone, and not with a carriage return before it, as Windows does"
        } else if text.bytes().any(control) {
            "must be text, without control characters except line feeds and tabs"
        } else if !text.ends_with('\n') {
            "must end with a line feed"
        } else {
            return Ok(Self(text.to_owned()));
        };
        let first = text.lines().next().unwrap_or_default();
        Err(super::values::invalid("upgrade script", first, rule))
    }
}

impl Resource for UpgradeSpec {
    type Object = Upgrade;

    const FACTS: Facts = Facts {
        quota: 50_000,
        tag: "Upgrades",
        key: &[],
        columns: &[
            "targetVersion",
            "state",
            "nodes",
            "done",
            "failed",
            "current_node",
            "description",
        ],
        about: "Upgrades of a cluster",
        aliases: &["upgrade"],
        is_declared: false,
        ..Facts::of::<Self>(Kind::Upgrade, "upgrades", &[Kind::Cluster])
    };
}

impl NodeSelector {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        fields.unique("value", &self.value)?;
        match self.wanted() {
            Some(wanted) => {
                let reason = format!(
                    "has {} items, with the operator {} {wanted}",
                    self.value.len(),
                    self.operator
                );
                Err(fields.invalid("value", reason))
            }
            None => Ok(()),
        }
    }

    /// The rule for the number of values that this operator requires, if it is violated.
    fn wanted(&self) -> Option<&'static str> {
        let number = |value: &LabelValue| value.as_str().parse::<i64>().is_ok();
        let (ok, wanted) = match self.operator {
            SelectorOperator::In | SelectorOperator::NotIn => (!self.value.is_empty(), "must have one at least"),
            SelectorOperator::Equals | SelectorOperator::DoubleEquals | SelectorOperator::NotEquals => {
                (self.value.len() == 1, "must have one")
            }
            SelectorOperator::Exists | SelectorOperator::DoesNotExist => (self.value.is_empty(), "must have none"),
            SelectorOperator::GreaterThan | SelectorOperator::LessThan => (
                self.value.len() == 1 && self.value.iter().all(number),
                "must have one, a whole number in quotes",
            ),
        };
        (!ok).then_some(wanted)
    }
}
