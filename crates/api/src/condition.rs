//! Conditions as the Kubernetes API conventions define them.
//!
//! The transition time changes only when the status changes, so that an unchanged condition is equal to the previous
//! one and causes no write.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The status cannot be determined.
    Unknown,
}

/// A condition of an object. `kubectl wait --for=condition=TYPE` reads it under `.status.conditions`.
///
/// Source: Kubernetes API conventions, "Typical status properties".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "A condition of the object. `kubectl wait --for=condition=TYPE` waits for it.")]
pub struct Condition {
    /// The type of the condition, in `CamelCase`.
    #[serde(rename = "type")]
    #[schemars(regex(pattern = r"^[A-Z][A-Za-z]*$"), length(max = 64))]
    pub type_: String,
    /// The status of the condition: `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// The reason for the status, as one `CamelCase` word for programs.
    #[schemars(regex(pattern = r"^[A-Z][A-Za-z0-9]*$"), length(max = 64))]
    pub reason: String,
    /// The reason for the status in plain words, with its remedy.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The `metadata.generation` of the object whose spec the condition describes. Absent where one write updates spec
    /// and status, as in a `NodeIdentity` and a `ClusterHealth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        description = "The generation of the object whose spec the condition describes; absent where one write updates spec and status.",
        range(min = 0)
    )]
    pub observed_generation: Option<i64>,
    /// The time of the last change of the status (UTC, whole seconds).
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub last_transition_time: Timestamp,
}

/// The maximum length of a condition's message, in bytes. [`Condition::new`] truncates longer messages.
pub const MAX_MESSAGE: usize = 1024;

/// The timestamps that a schema accepts beside `format: date-time`: UTC, in years that [`Timestamp`] can represent. The
/// API server's `date-time` alone also accepts 9999-12-31 and offsets such as `+99:99`, which [`Timestamp`] refuses.
pub(crate) const TIMESTAMP_PATTERN: &str =
    r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$";

impl Condition {
    /// A condition whose transition time is `now`, unless `previous` contains a condition of the same type and status:
    /// then the transition time of that condition is kept.
    #[must_use]
    pub fn new(
        type_: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        previous: &[Condition],
        now: Timestamp,
    ) -> Self {
        let since = previous
            .iter()
            .find(|old| old.type_ == type_ && old.status == status)
            .map(|old| old.last_transition_time);
        Self {
            type_: type_.to_owned(),
            status,
            reason: reason.to_owned(),
            message: cut(message, MAX_MESSAGE),
            observed_generation: None,
            last_transition_time: since.unwrap_or_else(|| whole_seconds(now)),
        }
    }

    /// The condition as it describes the spec of this generation.
    #[must_use]
    pub fn observing(self, generation: Option<i64>) -> Self {
        Self {
            observed_generation: generation,
            ..self
        }
    }
}

/// Kubernetes stores the times of conditions as RFC 3339 in whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    format!("{}...", &text[..text.floor_char_boundary(max - 3)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn the_transition_time_stays_while_the_status_stays() {
        let first = Condition::new("Verified", ConditionStatus::False, "NotFound", "gone", &[], at(10));
        let second = Condition::new(
            "Verified",
            ConditionStatus::False,
            "NotRunning",
            "stopped",
            std::slice::from_ref(&first),
            at(20),
        );
        assert_eq!(second.last_transition_time, at(10));
        let third = Condition::new("Verified", ConditionStatus::True, "Proven", "ok", &[second], at(30));
        assert_eq!(third.last_transition_time, at(30));
    }

    #[test]
    fn a_condition_names_the_generation_that_it_describes_if_there_is_one() {
        let condition = Condition::new("Ready", ConditionStatus::True, "Done", "ok", &[], at(10));
        let shown = |condition: &Condition| serde_json::to_value(condition).unwrap();
        assert_eq!(shown(&condition).get("observedGeneration"), None);
        let condition = condition.observing(Some(7));
        assert_eq!(shown(&condition)["observedGeneration"], 7);
        assert_eq!(
            serde_json::from_value::<Condition>(shown(&condition)).unwrap(),
            condition
        );
    }

    #[test]
    fn transition_times_are_whole_seconds() {
        let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let condition = Condition::new("Verified", ConditionStatus::True, "Proven", "ok", &[], now);
        assert_eq!(condition.last_transition_time.to_string(), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn a_long_message_is_truncated_between_characters() {
        let condition = Condition::new(
            "Verified",
            ConditionStatus::True,
            "Proven",
            &"é".repeat(2000),
            &[],
            at(0),
        );
        assert!(condition.message.len() <= MAX_MESSAGE);
        assert!(condition.message.ends_with("é..."));
    }
}
