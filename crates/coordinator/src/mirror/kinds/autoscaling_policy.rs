//! Autoscaling policies, which Cerebral reads.

use kube::ResourceExt as _;
use tidewaiter_api::containership::{
    AdjustmentType, AutoscalingPolicy, AutoscalingPolicySpec, ComparisonOperator, ScalingPolicy, ScalingStep,
};
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models::{self, Comparison, Kind};
use tidewaiter_kit::Cache;

use crate::mirror::kind::{CacheOf, Listed, MirroredKind, cluster_scoped, is_id};

/// The autoscaling policies of the cluster. People may create others, with names that are not ids.
pub(crate) struct AutoscalingPolicies;

impl MirroredKind for AutoscalingPolicies {
    const NAME: &'static str = "autoscaling-policies";
    const CONTROLLER: &'static str = "sync-autoscaling-policies";
    const CHANGED: &'static [Kind] = &[Kind::AutoscalingPolicy];
    const CACHE: CacheOf<AutoscalingPolicy> = Cache::all;
    const LISTED: Listed = Listed::At(Cluster::autoscaling_policies);
    type Object = models::AutoscalingPolicy;
    type Resource = AutoscalingPolicy;

    fn resource(&self, policy: models::AutoscalingPolicy) -> Option<AutoscalingPolicy> {
        let spec = policy.spec;
        let configuration = spec.metric_configuration.0.into_iter();
        Some(AutoscalingPolicy {
            metadata: cluster_scoped(&policy.id),
            spec: AutoscalingPolicySpec {
                metrics_backend: spec.metrics_backend.to_string(),
                metric: spec.metric.to_string(),
                metric_configuration: configuration.map(|(key, value)| (key, text(&value))).collect(),
                poll_interval: spec.poll_interval.into(),
                sample_period: spec.sample_period.into(),
                scaling_policy: ScalingPolicy {
                    scale_up: spec.scaling_policy.scale_up.as_ref().map(step),
                    scale_down: spec.scaling_policy.scale_down.as_ref().map(step),
                },
            },
        })
    }

    fn ours(&self, policy: &AutoscalingPolicy) -> bool {
        is_id(&policy.name_any())
    }
}

/// The resource holds texts; the cloud holds any value.
fn text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn step(step: &models::ScalingStep) -> ScalingStep {
    ScalingStep {
        threshold: step.threshold.get(),
        adjustment_value: step.adjustment_value.get(),
        comparison_operator: match step.comparison_operator {
            Comparison::Greater => ComparisonOperator::Greater,
            Comparison::GreaterOrEqual => ComparisonOperator::GreaterOrEqual,
            Comparison::Less => ComparisonOperator::Less,
            Comparison::LessOrEqual => ComparisonOperator::LessOrEqual,
            Comparison::Equal => ComparisonOperator::Equal,
            Comparison::NotEqual => ComparisonOperator::NotEqual,
        },
        adjustment_type: match step.adjustment_type {
            models::AdjustmentType::Absolute => AdjustmentType::Absolute,
            models::AdjustmentType::Percent => AdjustmentType::Percent,
        },
    }
}
