//! Autoscaling groups, which Cerebral reads: one for each node pool that is scaled automatically.

use kube::ResourceExt as _;
use tidewaiter_api::containership::{AutoscalingGroup, AutoscalingGroupSpec, ScalingStrategy};
use tidewaiter_api::names::NODE_POOL_LABEL;
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models::{self, InvalidItem, Kind, NodePool};
use tidewaiter_kit::Cache;

use crate::mirror::kind::Refused;
use crate::mirror::kind::{CacheOf, Items, Listed, MirroredKind, Source, cluster_scoped, is_id};

/// The engine of Cerebral that scales node pools of the cloud.
const ENGINE: &str = "containership";

/// The autoscaling groups of the cluster. What the cloud lists are the policies of each node pool. People may create
/// other groups, with names that are not ids.
pub(crate) struct AutoscalingGroups;

impl MirroredKind for AutoscalingGroups {
    const NAME: &'static str = "autoscaling-groups";
    const CONTROLLER: &'static str = "sync-autoscaling-groups";
    const CHANGED: &'static [Kind] = &[Kind::NodePool, Kind::AutoscalingPolicy];
    const CACHE: CacheOf<AutoscalingGroup> = Cache::all;
    const LISTED: Listed = Listed::OfEachPool(Cluster::node_pool_policies);
    type Object = models::AutoscalingPolicy;
    type Resource = AutoscalingGroup;

    /// A policy is no resource of this kind: [`Self::items`] makes one of each pool.
    fn resource(&self, _policy: models::AutoscalingPolicy) -> Option<AutoscalingGroup> {
        None
    }

    /// A pool with a malformed policy keeps its group as it is.
    fn items(
        &self,
        source: &Source,
        policies: Vec<Result<models::AutoscalingPolicy, InvalidItem>>,
    ) -> Items<AutoscalingGroup> {
        let mut items = Items::default();
        let Some(pool) = &source.pool else {
            return items;
        };
        if !pool.spec.autoscaling.enabled {
            items.unmirrored.push(pool.id.to_string());
            return items;
        }
        let policies: Result<Vec<String>, InvalidItem> =
            policies.into_iter().map(|policy| Ok(policy?.id.to_string())).collect();
        match policies {
            Ok(policies) => items.desired.push(group(pool, policies)),
            Err(invalid) => items.refused.push(Refused::new(Some(pool.id.to_string()), &invalid)),
        }
        items
    }

    fn ours(&self, group: &AutoscalingGroup) -> bool {
        is_id(&group.name_any())
    }
}

fn group(pool: &NodePool, mut policies: Vec<String>) -> AutoscalingGroup {
    policies.sort();
    let scaling = &pool.spec.autoscaling;
    AutoscalingGroup {
        metadata: cluster_scoped(&pool.id),
        spec: AutoscalingGroupSpec {
            node_selector: [(NODE_POOL_LABEL.to_owned(), pool.id.to_string())].into(),
            policies,
            engine: ENGINE.to_owned(),
            cooldown_period: scaling.cooldown_period.into(),
            min_nodes: scaling.min_nodes.into(),
            max_nodes: scaling.max_nodes.into(),
            suspended: scaling.suspended,
            scaling_strategy: Some(ScalingStrategy {
                scale_up: scaling.scaling_strategy.scale_up.to_string(),
                scale_down: scaling.scaling_strategy.scale_down.to_string(),
            }),
        },
        status: None,
    }
}
