//! Conditions as the Kubernetes API conventions define them.
//!
//! A condition's transition time changes with its status only, so that a condition that says the same again is equal
//! to the one before and costs no write.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

/// One condition of an object: `kubectl wait --for=condition=TYPE` reads it under `.status.conditions`.
///
/// Source: Kubernetes API conventions, "Typical status properties".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, in `CamelCase`.
    #[serde(rename = "type")]
    #[schemars(regex(pattern = r"^[A-Z][A-Za-z]*$"), length(max = 64))]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, as one `CamelCase` word for machines.
    #[schemars(regex(pattern = r"^[A-Z][A-Za-z0-9]*$"), length(max = 64))]
    pub reason: String,
    /// Why, in words for people, with what to do about it.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// When the status last became what it is (UTC, whole seconds).
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Timestamp,
}

/// Longest message that a condition carries, in bytes; [`Condition::new`] cuts longer ones.
pub const MAX_MESSAGE: usize = 1024;

impl Condition {
    /// A condition that became what it is at `now`, unless `previous` holds one of this type with the same status:
    /// then since when that one did.
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
            last_transition_time: since.unwrap_or_else(|| whole_seconds(now)),
        }
    }
}

/// The API server keeps times of conditions as RFC 3339 in whole seconds; a fraction would come back different.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = (0..=max - 3).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    format!("{}...", &text[..end])
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
    fn times_are_whole_seconds_as_the_api_server_keeps_them() {
        let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let condition = Condition::new("Verified", ConditionStatus::True, "Proven", "ok", &[], now);
        assert_eq!(condition.last_transition_time.to_string(), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
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
