//! Upgrades of a cluster, and the script that each node runs for one. Unlike the rest of the API, the fields of an
//! upgrade are in camel case: it is the spec of the `ClusterUpgrade` in the cluster.

mod policy;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use tidewaiter_api::containership::UpgradePolicy;
use tidewaiter_api::{InvalidValue, LabelKey, LabelValue, NodeName};
use utoipa::ToSchema;

use super::Kind;
use super::document::InvalidField;
use super::fields::{Fields, Model, model};
use super::resource::{Facts, Resource};
use super::schema;
use super::values::{Description, TargetVersion, UnixDate, UnixSeconds, UpgradeId, words};

const MAX_TIMEOUT: u32 = 24 * 60 * 60;
const MAX_SCRIPT: usize = 1024 * 1024;

words! {
    /// The component to upgrade. `etcd` has a name in the API, but was never supported.
    UpgradeType, "type of an upgrade (etcd is not supported)" {
        /// Kubernetes.
        Kubernetes = "kubernetes",
    }
}

words! {
    /// The operator of a label requirement.
    ///
    /// Source: `selection.Operator` of `k8s.io/apimachinery`.
    SelectorOperator, "operator of a label selector" {
        /// One of the values.
        In = "in",
        /// None of the values.
        NotIn = "notin",
        /// The value.
        Equals = "=",
        /// The value.
        DoubleEquals = "==",
        /// Not the value.
        NotEquals = "!=",
        /// The label is there.
        Exists = "exists",
        /// The label is not there.
        DoesNotExist = "!",
        /// A greater number.
        GreaterThan = "gt",
        /// A smaller number.
        LessThan = "lt",
    }
}

words! {
    /// The progress of an upgrade, of the cluster or of one node.
    UpgradeStatus, "status of an upgrade" {
        /// Goes on.
        InProgress = "InProgress",
        /// Is done.
        Success = "Success",
        /// One node at least failed.
        Failed = "Failed",
    }
}

/// The settings of an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct UpgradeSpec {
    #[serde(rename = "type")]
    pub upgrade_type: UpgradeType,
    #[schema(value_type = Option<Description>)]
    pub description: Description,
    pub target_version: TargetVersion,
    /// A node must match all of them; an empty list matches all nodes.
    #[schema(value_type = Option<Vec<NodeSelector>>)]
    pub label_selector: Vec<NodeSelector>,
    #[schema(minimum = 1, maximum = 86400, examples(900))]
    pub node_timeout_seconds: u32,
    /// What is added to the upgrade of one node after the other. Absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<policy::PolicySchema>)]
    pub policy: Option<UpgradePolicy>,
}

/// An upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Upgrade {
    pub id: UpgradeId,
    pub added_at: UnixSeconds,
    #[serde(flatten)]
    pub spec: UpgradeSpec,
    pub status: Option<UpgradeProgress>,
}

/// A requirement for a node's labels.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(examples(json!({"label": "example.com/zone", "operator": "in", "value": ["a", "b"]})))]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct NodeSelector {
    #[schema(value_type = schema::LabelKey)]
    pub label: LabelKey,
    pub operator: SelectorOperator,
    /// Their number depends on the operator.
    #[schema(value_type = Option<BTreeSet<schema::LabelValue>>)]
    pub value: Vec<LabelValue>,
}

/// The progress of an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct UpgradeProgress {
    /// `null`: it has not begun.
    pub cluster_status: Option<UpgradeStatus>,
    #[schema(value_type = Option<BTreeMap<schema::NodeName, UpgradeStatus>>)]
    pub node_statuses: BTreeMap<NodeName, UpgradeStatus>,
    #[schema(value_type = Option<schema::NodeName>)]
    pub current_node: Option<NodeName>,
    pub current_start_time: Option<UnixDate>,
    /// How many nodes it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// How many of them are at the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u32>,
    /// How many of them have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u32>,
    /// What it waits for, or how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Description>,
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
    /// The text.
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

/// Parses an object with the statuses of nodes by name.
#[derive(Default)]
struct ByNode(BTreeMap<NodeName, UpgradeStatus>);

impl Resource for UpgradeSpec {
    type Object = Upgrade;

    const FACTS: Facts = Facts {
        quota: 50_000,
        tag: "Upgrades",
        generated: &["id", "addedAt", "status"],
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
        ..Facts::of(Kind::Upgrade, "upgrades", Self::KIND, &[Kind::Cluster])
    };
}

impl Model for UpgradeSpec {
    const KIND: &'static str = "an upgrade";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            upgrade_type: fields.required("type")?,
            description: fields.or_default("description")?,
            target_version: fields.required("targetVersion")?,
            label_selector: fields.or_default("labelSelector")?,
            node_timeout_seconds: fields.number("nodeTimeoutSeconds", 1, MAX_TIMEOUT)?,
            policy: fields
                .nullable("policy")?
                .filter(|policy| *policy != UpgradePolicy::default()),
        })
    }
}

model! { Upgrade, UpgradeSpec::KIND => required { id, added_at = "addedAt" } flatten { spec } nullable { status } }

impl Model for NodeSelector {
    const KIND: &'static str = "a label selector";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let selector = Self {
            label: fields.required("label")?,
            operator: fields.required("operator")?,
            value: fields.or_default("value")?,
        };
        fields.unique("value", &selector.value)?;
        match selector.wanted() {
            Some(wanted) => {
                let reason = format!(
                    "has {} items, with the operator {} {wanted}",
                    selector.value.len(),
                    selector.operator
                );
                Err(fields.invalid("value", reason))
            }
            None => Ok(selector),
        }
    }
}

impl NodeSelector {
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

impl Model for UpgradeProgress {
    const KIND: &'static str = "the status of an upgrade";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let ByNode(node_statuses) = fields.or_default("nodeStatuses")?;
        Ok(Self {
            cluster_status: fields.optional("clusterStatus")?,
            node_statuses,
            current_node: fields.optional("currentNode")?,
            current_start_time: fields.optional("currentStartTime")?,
            nodes: fields.optional_number("nodes", 0, u32::MAX)?,
            done: fields.optional_number("done", 0, u32::MAX)?,
            failed: fields.optional_number("failed", 0, u32::MAX)?,
            message: fields.optional("message")?,
        })
    }
}

impl Model for ByNode {
    const KIND: &'static str = "statuses by node";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        fields.entries().map(Self)
    }
}
