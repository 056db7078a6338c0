use tidewaiter_api::ConditionStatus::{False, True, Unknown};

use super::super::*;

fn id() -> ObjectId {
    ObjectId {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "n".to_owned(),
        name: "d".to_owned(),
    }
}

fn facts(state: State, unhealthy: Option<Health>) -> Facts {
    Facts {
        state,
        unhealthy: unhealthy.into_iter().map(|health| (id(), health)).collect(),
        ..Facts::of(&Record::default())
    }
}

fn waits() -> State {
    State::Waits(Waits::new("JobRuns", "waits for a job"))
}

fn awaits() -> State {
    State::AwaitsApproval(PendingVersion {
        version: "2.0.0".to_owned(),
        digest: "ab".to_owned(),
        ..PendingVersion::default()
    })
}

fn blocked(is_transient: bool) -> State {
    State::Blocked(Problem {
        reason: "ApplyFailed",
        note: "no".to_owned(),
        is_transient,
    })
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// Ready, Healthy, Reconciling, Stalled.
fn states(status: &PluginStatus) -> [ConditionStatus; 4] {
    [READY, HEALTHY, RECONCILING, STALLED].map(|type_| {
        let found = status.conditions.iter().find(|condition| condition.type_ == type_);
        found.unwrap().status
    })
}

#[test]
fn each_state_has_its_conditions() {
    let progress = || Some(Health::InProgress("0 of 1".to_owned()));
    let failed = || Some(Health::Failed("deadline".to_owned()));
    for (facts, expected, reason) in [
        (facts(State::Applied, None), [True, True, False, False], "Applied"),
        (
            facts(State::Applied, progress()),
            [False, False, True, False],
            "Unhealthy",
        ),
        (
            facts(State::Applied, failed()),
            [False, False, False, True],
            "Unhealthy",
        ),
        (
            Facts {
                rolled_back: Some("2.0.0".to_owned()),
                ..facts(State::Applied, None)
            },
            [True, True, False, False],
            "RolledBack",
        ),
        // It takes as long as a person needs.
        (facts(awaits(), None), [False, Unknown, False, False], "ApprovalNeeded"),
        (
            Facts {
                applied_version: "1.0.0".to_owned(),
                ..facts(awaits(), None)
            },
            [False, True, False, False],
            "ApprovalNeeded",
        ),
        (facts(waits(), None), [False, Unknown, True, False], "JobRuns"),
        (facts(blocked(true), None), [False, Unknown, True, False], "ApplyFailed"),
        (
            facts(blocked(false), None),
            [False, Unknown, False, True],
            "ApplyFailed",
        ),
    ] {
        let found = status(&facts, &PluginStatus::default(), Some(3), at(0));
        assert_eq!(states(&found), expected, "{facts:?}");
        assert_eq!(found.conditions[0].reason, reason);
        assert_eq!(found.conditions[0].observed_generation, Some(3));
        // Nothing is written when nothing changes.
        assert_eq!(status(&facts, &found, Some(3), at(60)), found);
    }
}

#[test]
fn what_takes_too_long_is_stalled() {
    let first = status(&facts(waits(), None), &PluginStatus::default(), None, at(0));
    let later = status(&facts(waits(), None), &first, None, at(600));
    assert_eq!(states(&later), [False, Unknown, True, False]);
    let stalled = status(&facts(waits(), None), &first, None, at(601));
    assert_eq!(states(&stalled), [False, Unknown, True, True]);
    assert_eq!(stalled.conditions[3].reason, "Timeout");
    let done = status(&facts(State::Applied, None), &stalled, None, at(700));
    assert_eq!(states(&done), [True, True, False, False]);
}

#[test]
fn while_requests_are_denied_the_condition_says_what_is_applied() {
    let denied = |objects, version: &str| {
        let facts = Facts {
            objects,
            applied_version: version.to_owned(),
            ..facts(State::Blocked(Problem::stalling(DENIED, "no.".to_owned())), None)
        };
        let status = status(&facts, &PluginStatus::default(), Some(1), at(0));
        status.conditions[0].message.clone()
    };
    assert_eq!(denied(0, ""), "no. Nothing of the plugin is applied.");
    assert!(denied(2, "").contains("No version was applied to its end yet"));
    assert!(denied(2, "1.0.0").contains("the last version that was applied to its end is 1.0.0"));
}
