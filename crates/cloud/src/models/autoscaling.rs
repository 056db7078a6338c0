//! Autoscaling policies: the metric, its threshold, and the number of nodes to add or remove.

use serde::Serialize;
use utoipa::ToSchema;

use super::fields::{At, Read, model};
use super::values::{AutoscalingPolicyId, DisplayName, Slug, words};
use super::{Facts, Fields, InvalidField, Kind, OpenObject, OrgRole, Resource};

/// A week, in seconds.
const MAX_PERIOD: u32 = 7 * 24 * 60 * 60;

words! {
    /// The operator that compares the metric with the threshold.
    Comparison, "comparison operator" {
        Greater = ">",
        GreaterOrEqual = ">=",
        Less = "<",
        LessOrEqual = "<=",
        Equal = "==",
        NotEqual = "!=",
    }
}

words! {
    /// The unit of the adjustment.
    AdjustmentType, "type of an adjustment" {
        Absolute = "absolute",
        /// Hundredths of the nodes that there are.
        Percent = "percent",
    }
}

model! {
    /// The settings of a policy.
    AutoscalingPolicySpec, "an autoscaling policy", check =>
    required name: DisplayName,
    required metrics_backend: Slug,
    required metric: Slug,
    /// Depends on the backend; stored unchanged.
    or_default metric_configuration: OpenObject,
    /// In seconds.
    #[schema(minimum = 1, maximum = 604_800, examples(15))]
    number(1, MAX_PERIOD) poll_interval: u32,
    /// In seconds; at least the poll interval, so that it contains a sample.
    #[schema(minimum = 1, maximum = 604_800, examples(600))]
    number(1, MAX_PERIOD) sample_period: u32,
    required scaling_policy: ScalingPolicy,
}

model! {
    /// A policy.
    AutoscalingPolicy, AutoscalingPolicySpec::KIND =>
    required id: AutoscalingPolicyId,
    flatten spec: AutoscalingPolicySpec,
}

model! {
    /// The adjustments; at least one of the two.
    ScalingPolicy, "a scaling policy", check =>
    nullable scale_up: Option<ScalingStep>,
    nullable scale_down: Option<ScalingStep>,
}

model! {
    /// A rule that adjusts the pool when the metric crosses the threshold.
    ScalingStep, "a scaling step", check =>
    required threshold: Finite,
    required comparison_operator: Comparison,
    required adjustment_type: AdjustmentType,
    /// The number of nodes to add, or to remove for `scale_down`; more than 0.
    #[schema(exclusive_minimum = 0, maximum = 5000, examples(1))]
    required adjustment_value: Finite as f64,
}

/// A JSON number: never infinite, never NaN.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = f64, examples(0.7))]
pub struct Finite(serde_json::Number);

impl Finite {
    #[must_use]
    pub fn get(&self) -> f64 {
        self.0.as_f64().unwrap_or_default()
    }
}

impl Read for Finite {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let number = at.value.as_number().ok_or_else(|| at.must_be("a number"))?;
        Ok(Self(number.clone()))
    }
}

impl Resource for AutoscalingPolicySpec {
    type Object = AutoscalingPolicy;

    const FACTS: Facts = Facts {
        quota: 5_000,
        tag: "Autoscaling",
        writers: OrgRole::Member,
        columns: &["name", "metric", "poll_interval"],
        about: "Autoscaling policies of a cluster",
        aliases: &["autoscaling-policy"],
        ..Facts::of::<Self>(Kind::AutoscalingPolicy, "autoscaling-policies", &[Kind::Cluster])
    };
}

impl AutoscalingPolicySpec {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        let (sample, poll) = (self.sample_period, self.poll_interval);
        if sample < poll {
            let reason = format!("is {sample} seconds, must be at least the poll_interval, {poll}");
            return Err(fields.invalid("sample_period", reason));
        }
        Ok(())
    }
}

impl ScalingPolicy {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        if self.scale_up.is_none() && self.scale_down.is_none() {
            return Err(fields.invalid("scale_up", "is missing: must have scale_up, scale_down or both"));
        }
        Ok(())
    }
}

impl ScalingStep {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        let value = self.adjustment_value.get();
        let most = if self.adjustment_type == AdjustmentType::Percent {
            1_000.0
        } else {
            5_000.0
        };
        if value > 0.0 && value <= most {
            return Ok(());
        }
        let reason = format!("is {}, must be more than 0 and at most {most}", self.adjustment_value.0);
        Err(fields.invalid("adjustment_value", reason))
    }
}
