//! The status of ClusterHealth for a verdict, if it differs from the current one. Pure.

use jiff::Timestamp;
use tidewaiter_api::cluster_health::HEALTHY;
use tidewaiter_api::{ClusterHealthStatus, Condition, ConditionStatus, HealthCounts};
use tidewaiter_kit::{Notice, NoticeKind};
use tidewaiter_validation::{Failure, LISTED, Outcome, Verdict};

/// The status to write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) status: ClusterHealthStatus,
    /// The Event to publish when the condition changes.
    pub(crate) notice: Option<Notice>,
}

/// Returns the status to write over `standing`; None if it is equal.
pub(crate) fn plan(standing: Option<&ClusterHealthStatus>, verdict: &Verdict, at: Timestamp) -> Option<Plan> {
    let before = standing.map_or(&[][..], |standing| &standing.conditions);
    let (status, reason) = match verdict.outcome() {
        Outcome::Ready => (ConditionStatus::True, "ClusterReady"),
        Outcome::Failed => (ConditionStatus::False, "ValidationFailed"),
        Outcome::Unknown => (ConditionStatus::Unknown, "CannotTell"),
    };
    let condition = Condition::new(HEALTHY, status, reason, &message(verdict), before, at);
    let flipped = before.iter().all(|old| old.type_ != HEALTHY || old.status != status);
    let notice = flipped.then(|| Notice {
        kind: if status == ConditionStatus::True {
            NoticeKind::Normal
        } else {
            NoticeKind::Warning
        },
        reason: reason.into(),
        action: "Validate".into(),
        note: condition.message.clone(),
    });
    let status = ClusterHealthStatus {
        observed_at: Timestamp::from_second(at.as_second()).unwrap_or(at),
        failures: u32::try_from(verdict.failure_count()).unwrap_or(u32::MAX),
        counts: counts(verdict),
        conditions: vec![condition],
    };
    let unchanged = standing.is_some_and(|standing| {
        let then = ClusterHealthStatus {
            observed_at: standing.observed_at,
            ..status.clone()
        };
        then == *standing
    });
    (!unchanged).then_some(Plan { status, notice })
}

fn message(verdict: &Verdict) -> String {
    let line = |failure: &Failure| format!("{} {}: {}", failure.kind, failure.name, failure.message);
    let mut parts: Vec<String> = verdict.failures.iter().take(LISTED).map(line).collect();
    let more = verdict.failure_count().saturating_sub(LISTED);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    let unknown = verdict.unknown.iter();
    parts.extend(unknown.map(|unknown| format!("not known: {} ({})", unknown.part, unknown.reason)));
    if parts.is_empty() {
        "nothing is wrong".to_owned()
    } else {
        parts.join("; ")
    }
}

fn counts(verdict: &Verdict) -> HealthCounts {
    let counts = &verdict.counts;
    HealthCounts {
        nodes_ready: counts.nodes_ready,
        nodes_not_ready: counts.nodes_not_ready,
        pods_missing: counts.pods_missing,
        pods_not_ready: counts.pods_not_ready,
        pods_pending: counts.pods_pending,
        pods_unknown: counts.pods_unknown,
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_validation::verdict::Counts;
    use tidewaiter_validation::{FailureKind, PartName, Unknown};

    use super::*;
    use crate::verdicts::by_hand;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn verdict(failures: usize, unknown: &[&str]) -> Verdict {
        let failure = |number| Failure {
            kind: FailureKind::Node,
            name: format!("n{number}"),
            message: format!("node \"n{number}\" of role \"node\" is not ready"),
            instance_group: None,
        };
        let unknown = unknown.iter().map(|reason| Unknown {
            part: PartName::Cloud,
            reason: (*reason).to_owned(),
        });
        let counts = Counts {
            nodes_ready: Some(3),
            ..Counts::default()
        };
        Verdict {
            failures: (0..failures).map(failure).collect(),
            unknown: unknown.collect(),
            ..by_hand::verdict("cluster.example.com", counts)
        }
    }

    #[test]
    fn each_outcome_has_its_status_reason_and_words() {
        let first = |number| format!("Node n{number}: node \"n{number}\" of role \"node\" is not ready");
        for (verdict, status, reason, message) in [
            (
                verdict(0, &[]),
                ConditionStatus::True,
                "ClusterReady",
                "nothing is wrong".to_owned(),
            ),
            (verdict(1, &[]), ConditionStatus::False, "ValidationFailed", first(0)),
            (
                verdict(7, &[]),
                ConditionStatus::False,
                "ValidationFailed",
                format!("{}; and 2 more", [0, 1, 2, 3, 4].map(first).join("; ")),
            ),
            (
                verdict(0, &["denied"]),
                ConditionStatus::Unknown,
                "CannotTell",
                "not known: cloud (denied)".to_owned(),
            ),
            (
                verdict(1, &["denied"]),
                ConditionStatus::False,
                "ValidationFailed",
                format!("{}; not known: cloud (denied)", first(0)),
            ),
        ] {
            let plan = plan(None, &verdict, at(7)).unwrap();
            let [condition] = &plan.status.conditions[..] else {
                panic!("one condition")
            };
            assert_eq!(
                (condition.status, condition.reason.as_str(), &condition.message),
                (status, reason, &message)
            );
            assert_eq!(plan.status.failures as usize, verdict.failures.len());
            assert_eq!(
                (plan.status.counts.nodes_ready, plan.status.counts.pods_missing),
                (Some(3), None)
            );
            let notice = plan.notice.unwrap();
            assert_eq!(notice.kind == NoticeKind::Normal, status == ConditionStatus::True);
            assert_eq!(notice.note, message);
        }
    }

    #[test]
    fn the_same_is_not_written_again_and_only_a_flip_is_told() {
        let ready = plan(None, &verdict(0, &[]), at(10)).unwrap().status;
        assert_eq!(plan(Some(&ready), &verdict(0, &[]), at(20)), None);
        let mut fewer = verdict(0, &[]);
        fewer.counts.nodes_ready = Some(2);
        let counted = plan(Some(&ready), &fewer, at(30)).unwrap();
        assert_eq!((counted.notice, counted.status.observed_at), (None, at(30)));
        assert_eq!(
            counted.status.conditions[0].last_transition_time,
            at(10),
            "it is as healthy as before"
        );
        let failed = plan(Some(&counted.status), &verdict(1, &[]), at(40)).unwrap();
        assert!(failed.notice.is_some());
        assert_eq!(failed.status.conditions[0].last_transition_time, at(40));
        let worse = plan(Some(&failed.status), &verdict(2, &[]), at(50)).unwrap();
        assert_eq!(worse.notice, None, "it was told that the cluster is not healthy");
        assert_eq!(worse.status.conditions[0].last_transition_time, at(40));
    }

    #[test]
    fn what_others_left_in_it_is_written_over() {
        let emptied = ClusterHealthStatus {
            observed_at: at(1),
            failures: 0,
            counts: HealthCounts::default(),
            conditions: vec![],
        };
        assert!(plan(Some(&emptied), &verdict(0, &[]), at(2)).unwrap().notice.is_some());
    }
}
