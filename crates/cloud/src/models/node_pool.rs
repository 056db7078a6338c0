//! Node pools: nodes with the same settings.

use super::fields::model;
use super::values::{DisplayName, KubernetesVersion, NodePoolId, StrategyName, VersionText, words};
use super::written::or_empty;
use super::{Facts, Fields, InvalidField, Kind, OrgRole, Resource, Status, schema};

/// The maximum number of nodes in one cluster that Kubernetes supports.
const MAX_NODES: u32 = 5_000;

/// A week, in seconds.
const MAX_COOLDOWN: u32 = 7 * 24 * 60 * 60;

/// The default time between two adjustments, in seconds.
const COOLDOWN: u32 = 600;

words! {
    /// The role of the nodes of a pool.
    KubernetesMode, "mode of a node pool" {
        /// The control plane.
        Master = "master",
        /// Everything else.
        Worker = "worker",
    }
}

model! {
    /// The settings of a node pool.
    NodePoolSpec, "a node pool", check =>
    required name: DisplayName,
    /// Empty in responses if it is not known.
    #[serde(serialize_with = "or_empty")]
    optional os: Option<DisplayName> as Option<schema::DisplayNameOrEmpty>,
    /// Within the autoscaling limits, if autoscaling is enabled.
    #[schema(maximum = 5000, examples(3))]
    number(0, MAX_NODES) count: u32,
    /// Empty in responses if it is not known.
    #[serde(serialize_with = "or_empty")]
    optional docker_version: Option<VersionText> as Option<schema::VersionTextOrEmpty>,
    required kubernetes_mode: KubernetesMode,
    required kubernetes_version: KubernetesVersion,
    /// Only for the control plane.
    required etcd: bool,
    /// Empty in responses if it is not known.
    #[serde(serialize_with = "or_empty")]
    optional etcd_version: Option<VersionText> as Option<schema::VersionTextOrEmpty>,
    required is_schedulable: bool,
    or_default autoscaling: Autoscaling,
}

model! {
    /// A node pool.
    NodePool, NodePoolSpec::KIND =>
    required id: NodePoolId,
    or_default status: Status,
    flatten spec: NodePoolSpec,
}

model! {
    /// How a pool is scaled. Every field is in every response: an old client that finds no limits takes them for 0.
    Autoscaling, "an autoscaling", check =>
    /// Whether the pool is scaled automatically.
    or_default enabled: bool,
    /// Whether scaling is paused.
    or_default suspended: bool,
    /// The minimum number of nodes; 0 by default.
    #[schema(maximum = 5000, examples(1))]
    number_or(0, 0, MAX_NODES) min_nodes: u32 as Option<u32>,
    /// The maximum number of nodes; 5,000 by default.
    #[schema(maximum = 5000, examples(5))]
    number_or(MAX_NODES, 0, MAX_NODES) max_nodes: u32 as Option<u32>,
    /// The time between two adjustments in seconds; 600 by default.
    #[schema(maximum = 604_800, examples(600))]
    number_or(COOLDOWN, 0, MAX_COOLDOWN) cooldown_period: u32 as Option<u32>,
    /// `random` by default.
    or_default scaling_strategy: ScalingStrategy,
}

model! {
    /// How the nodes to add and to remove are chosen.
    #[derive(Default)]
    ScalingStrategy, "a scaling strategy" =>
    or_default_if_empty scale_up: StrategyName as Option<StrategyName>,
    or_default_if_empty scale_down: StrategyName as Option<StrategyName>,
}

impl Default for Autoscaling {
    fn default() -> Self {
        Self {
            enabled: false,
            suspended: false,
            min_nodes: 0,
            max_nodes: MAX_NODES,
            cooldown_period: COOLDOWN,
            scaling_strategy: ScalingStrategy::default(),
        }
    }
}

impl Resource for NodePoolSpec {
    type Object = NodePool;

    const FACTS: Facts = Facts {
        quota: 50_000,
        tag: "Node pools",
        writers: OrgRole::Admin,
        has_older_forms: true,
        columns: &["name", "kubernetes_mode", "count", "kubernetes_version", "status"],
        about: "Node pools of a cluster",
        aliases: &["node-pool", "pools"],
        ..Facts::of::<Self>(Kind::NodePool, "node-pools", &[Kind::Cluster])
    };
}

impl NodePoolSpec {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        if self.etcd && self.kubernetes_mode == KubernetesMode::Worker {
            return Err(fields.invalid("etcd", "is true, must be false in a pool of workers"));
        }
        if !self.etcd && self.etcd_version.is_some() {
            return Err(fields.invalid("etcd_version", "is not allowed in a pool without etcd; omit it"));
        }
        let scaling = &self.autoscaling;
        let (min, max) = (scaling.min_nodes, scaling.max_nodes);
        if scaling.enabled && !(min..=max).contains(&self.count) {
            let reason = format!(
                "is {}, must be from {min} to {max}, the bounds of its autoscaling",
                self.count
            );
            return Err(fields.invalid("count", reason));
        }
        Ok(())
    }
}

impl Autoscaling {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        let (min, max) = (self.min_nodes, self.max_nodes);
        if min > max {
            return Err(fields.invalid("max_nodes", format!("is {max}, must not be less than min_nodes, {min}")));
        }
        Ok(())
    }
}
