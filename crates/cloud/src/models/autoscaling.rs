//! Autoscaling policies: the metric, its threshold, and the number of nodes to add or remove.

use serde::Serialize;
use utoipa::ToSchema;

use super::Kind;
use super::document::InvalidField;
use super::fields::{At, Fields, Model, Read, model};
use super::open_object::OpenObject;
use super::org_role::OrgRole;
use super::resource::{Facts, Resource};
use super::values::{AutoscalingPolicyId, DisplayName, Slug, words};

/// A week, in seconds.
const MAX_PERIOD: u32 = 7 * 24 * 60 * 60;

words! {
    /// The operator that compares the metric with the threshold.
    Comparison, "comparison operator" {
        /// More.
        Greater = ">",
        /// As much or more.
        GreaterOrEqual = ">=",
        /// Less.
        Less = "<",
        /// As much or less.
        LessOrEqual = "<=",
        /// As much.
        Equal = "==",
        /// Not as much.
        NotEqual = "!=",
    }
}

words! {
    /// The unit of the adjustment.
    AdjustmentType, "type of an adjustment" {
        /// Nodes.
        Absolute = "absolute",
        /// Hundredths of the nodes that there are.
        Percent = "percent",
    }
}

/// The settings of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct AutoscalingPolicySpec {
    pub name: DisplayName,
    pub metrics_backend: Slug,
    pub metric: Slug,
    /// Depends on the backend; stored unchanged.
    #[schema(value_type = Option<OpenObject>)]
    pub metric_configuration: OpenObject,
    /// In seconds.
    #[schema(minimum = 1, maximum = 604_800, examples(15))]
    pub poll_interval: u32,
    /// In seconds; at least the poll interval, so that it contains a sample.
    #[schema(minimum = 1, maximum = 604_800, examples(600))]
    pub sample_period: u32,
    pub scaling_policy: ScalingPolicy,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct AutoscalingPolicy {
    pub id: AutoscalingPolicyId,
    #[serde(flatten)]
    pub spec: AutoscalingPolicySpec,
}

/// The adjustments; at least one of the two.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct ScalingPolicy {
    pub scale_up: Option<ScalingStep>,
    pub scale_down: Option<ScalingStep>,
}

/// A rule that adjusts the pool when the metric crosses the threshold.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct ScalingStep {
    pub threshold: Finite,
    pub comparison_operator: Comparison,
    pub adjustment_type: AdjustmentType,
    /// The number of nodes to add, or to remove for `scale_down`; more than 0.
    #[schema(value_type = f64, exclusive_minimum = 0, maximum = 5000, examples(1))]
    pub adjustment_value: Finite,
}

/// A JSON number: never infinite, never NaN.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = f64, examples(0.7))]
pub struct Finite(serde_json::Number);

impl Finite {
    /// The number.
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
        generated: &["id"],
        columns: &["name", "metric", "poll_interval"],
        about: "Autoscaling policies of a cluster",
        aliases: &["autoscaling-policy"],
        ..Facts::of(
            Kind::AutoscalingPolicy,
            "autoscaling-policies",
            Self::KIND,
            &[Kind::Cluster],
        )
    };
}

impl Model for AutoscalingPolicySpec {
    const KIND: &'static str = "an autoscaling policy";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let spec = Self {
            name: fields.required("name")?,
            metrics_backend: fields.required("metrics_backend")?,
            metric: fields.required("metric")?,
            metric_configuration: fields.or_default("metric_configuration")?,
            poll_interval: fields.number("poll_interval", 1, MAX_PERIOD)?,
            sample_period: fields.number("sample_period", 1, MAX_PERIOD)?,
            scaling_policy: fields.required("scaling_policy")?,
        };
        if spec.sample_period < spec.poll_interval {
            let (sample, poll) = (spec.sample_period, spec.poll_interval);
            let reason = format!("is {sample} seconds, must be at least the poll_interval, {poll}");
            return Err(fields.invalid("sample_period", reason));
        }
        Ok(spec)
    }
}

model! { AutoscalingPolicy, AutoscalingPolicySpec::KIND => required { id } flatten { spec } }

impl Model for ScalingPolicy {
    const KIND: &'static str = "a scaling policy";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let policy = Self {
            scale_up: fields.nullable("scale_up")?,
            scale_down: fields.nullable("scale_down")?,
        };
        if policy.scale_up.is_none() && policy.scale_down.is_none() {
            return Err(fields.invalid("scale_up", "is missing: must have scale_up, scale_down or both"));
        }
        Ok(policy)
    }
}

impl Model for ScalingStep {
    const KIND: &'static str = "a scaling step";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let step = Self {
            threshold: fields.required("threshold")?,
            comparison_operator: fields.required("comparison_operator")?,
            adjustment_type: fields.required("adjustment_type")?,
            adjustment_value: fields.required("adjustment_value")?,
        };
        let value = step.adjustment_value.get();
        let most = if step.adjustment_type == AdjustmentType::Percent {
            1_000.0
        } else {
            5_000.0
        };
        if value > 0.0 && value <= most {
            Ok(step)
        } else {
            let reason = format!("is {}, must be more than 0 and at most {most}", step.adjustment_value.0);
            Err(fields.invalid("adjustment_value", reason))
        }
    }
}
