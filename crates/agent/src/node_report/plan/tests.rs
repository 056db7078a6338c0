use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::authorized_keys::{LoginKey, Logins};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn logins(users: &[(u128, &str)]) -> Logins {
    let mut logins = Logins::new();
    for (id, fingerprint) in users {
        let key = LoginKey {
            data: String::new(),
            fingerprint: (*fingerprint).to_owned(),
            end: None,
        };
        logins.entry(Uuid::from_u128(*id)).or_default().push(key);
    }
    logins
}

fn outcome(users: &[(u128, &str)]) -> Outcome {
    Outcome {
        logins: Some(logins(users).into()),
        refused: vec![],
        is_listed: true,
        is_held: false,
        expiry: Expiry::Off,
        tampering: vec![],
        foreign_lines: 0,
        foreign_keys: vec![],
        foreign_until: None,
        break_glass: vec![],
        break_glass_users: vec![],
        break_glass_use: None,
        unplaced: None,
        wait: None,
    }
}

fn agent(outcome: Outcome) -> AgentStatus {
    AgentStatus {
        outcome: Some(Arc::new(outcome)),
        ..AgentStatus::default()
    }
}

fn planned(before: Option<&NodeReportStatus>, agent: &AgentStatus, second: i64) -> Option<NodeReportStatus> {
    plan(
        before,
        agent,
        &ReportedUpgrade::Disabled,
        &HostFacts::default(),
        at(second),
    )
}

#[test]
fn each_state_has_its_condition() {
    let unknown = Outcome {
        logins: None,
        ..outcome(&[])
    };
    let held = Outcome {
        is_held: true,
        ..outcome(&[(1, "a")])
    };
    let started = Outcome {
        is_listed: false,
        ..outcome(&[(1, "a")])
    };
    let failed = AgentStatus {
        error: Some("No space left on device".to_owned()),
        ..agent(outcome(&[]))
    };
    for (agent, status, reason) in [
        (agent(outcome(&[(1, "a")])), ConditionStatus::True, "Applied"),
        (agent(unknown), ConditionStatus::Unknown, "NotListed"),
        (agent(started), ConditionStatus::Unknown, "NotListed"),
        (agent(held), ConditionStatus::False, "RemovalHeld"),
        (failed, ConditionStatus::False, "NotWritten"),
    ] {
        let report = planned(None, &agent, 1).unwrap();
        let [condition] = &report.conditions[..] else {
            panic!("{:?}", report.conditions)
        };
        assert_eq!((condition.status, condition.reason.as_str()), (status, reason));
    }
    assert_eq!(planned(None, &AgentStatus::default(), 1), None, "before the first pass");
}

#[test]
fn the_condition_says_why_a_key_is_refused() {
    let refused = |key: &str| Refused {
        user: "ada".to_owned(),
        key: key.to_owned(),
        reason: "the key must be of type x".to_owned(),
    };
    for (keys, words) in [
        (
            vec![refused("laptop"), refused("old")],
            "(2), first laptop of ada: the key must be of type x",
        ),
        (
            vec![refused("")],
            "(1), first all keys of ada: the key must be of type x",
        ),
    ] {
        let agent = agent(Outcome {
            refused: keys,
            ..outcome(&[(1, "a")])
        });
        let message = planned(None, &agent, 1).unwrap().conditions[0].message.clone();
        assert!(message.ends_with(words), "{message}");
    }
}

#[test]
fn expiry_is_announced_and_said() {
    let hour = Duration::from_hours(1);
    for (expiry, status, reason) in [
        (Expiry::Confirmed(hour), ConditionStatus::False, "Confirmed"),
        (Expiry::Soon(hour), ConditionStatus::True, "NotConfirmed"),
        (Expiry::Expired, ConditionStatus::True, "Expired"),
    ] {
        let agent = agent(Outcome { expiry, ..outcome(&[]) });
        let report = planned(None, &agent, 1).unwrap();
        let condition = &report.conditions[1];
        assert_eq!((condition.status, condition.reason.as_str()), (status, reason));
    }
}

#[test]
fn the_same_is_not_written_again_and_times_stay() {
    let first = planned(None, &agent(outcome(&[(1, "a"), (2, "b")])), 10).unwrap();
    assert_eq!(planned(Some(&first), &agent(outcome(&[(1, "a"), (2, "b")])), 20), None);
    let second = planned(Some(&first), &agent(outcome(&[(1, "a"), (2, "c"), (3, "d")])), 30).unwrap();
    let since: Vec<i64> = second.users.iter().map(|user| user.since.as_second()).collect();
    assert_eq!((since, second.keys), (vec![10, 30, 30], 3));
}

#[test]
fn an_agent_that_knows_nothing_leaves_what_the_last_one_said() {
    let first = planned(None, &agent(outcome(&[(1, "a")])), 10).unwrap();
    let failed = AgentStatus {
        error: Some("full".to_owned()),
        ..AgentStatus::default()
    };
    let after = planned(Some(&first), &failed, 20).unwrap();
    assert_eq!(after.users, first.users);
}

#[test]
fn changes_of_others_are_listed() {
    let agent = AgentStatus {
        restores: 3,
        tampering: VecDeque::from([(at(5), "authorized_keys has the mode 0666".to_owned())]),
        ..agent(outcome(&[]))
    };
    let report = planned(None, &agent, 6).unwrap();
    assert_eq!((report.restores, report.tampering[0].at), (3, at(5)));
}

#[test]
fn a_break_glass_key_of_a_user_is_named_with_the_command_that_removes_it() {
    let reported = |users: &[BreakGlassUser]| {
        let outcome = Outcome {
            break_glass_users: users.to_vec(),
            ..outcome(&[])
        };
        planned(None, &agent(outcome), 1).unwrap()
    };
    let condition = |report: NodeReportStatus| {
        let mut conditions = report.conditions.into_iter();
        conditions.find(|it| it.type_ == BREAK_GLASS_OF_USERS)
    };
    let user = BreakGlassUser {
        fingerprint: "a".to_owned(),
        user: Uuid::from_u128(1).to_string(),
    };
    let report = reported(std::slice::from_ref(&user));
    assert_eq!(report.break_glass_users, std::slice::from_ref(&user));
    let message = condition(report).unwrap().message;
    let words = format!("that of the user {}: tidewaiter host break-glass remove a", user.user);
    assert!(message.contains(&words), "{message}");
    assert_eq!(condition(reported(&[])), None);
}

/// An intruder who ends the agent does not erase them.
#[test]
fn changes_that_an_earlier_agent_has_found_stay_listed() {
    let found = |seconds: std::ops::Range<i64>| AgentStatus {
        tampering: seconds.map(|second| (at(second), "changed".to_owned())).collect(),
        ..agent(outcome(&[]))
    };
    let listed = |report: &NodeReportStatus| {
        let times = report.tampering.iter().map(|row| row.at.as_second());
        times.collect::<Vec<_>>()
    };
    let first = planned(None, &found(1..4), 5).unwrap();
    assert_eq!(planned(Some(&first), &found(0..0), 6), None);
    let second = planned(Some(&first), &found(10..25), 30).unwrap();
    assert_eq!(listed(&second), (3..4).chain(10..25).collect::<Vec<_>>());
    assert_eq!(planned(Some(&second), &found(10..25), 31), None);
}

#[test]
fn foreign_lines_say_who_loses_access_and_when() {
    let key = |fingerprint: &str, is_marked| crate::authorized_keys::ForeignKey {
        text: String::new(),
        fingerprint: fingerprint.to_owned(),
        comment: "admin".to_owned(),
        is_marked,
    };
    let with = |until| Outcome {
        foreign_lines: 2,
        foreign_keys: vec![key("SHA256:a", false), key("SHA256:b", true)],
        foreign_until: until,
        break_glass: vec!["SHA256:c".to_owned()],
        break_glass_use: Some((at(7), "SHA256:c".to_owned())),
        ..outcome(&[(1, "x")])
    };
    for (outcome, reason, words) in [
        (with(Some(at(60))), "Grace", "removed at 1970-01-01T00:01:00Z"),
        (with(None), "Kept", "no change in the cloud ends that"),
    ] {
        let until = outcome.foreign_until;
        let report = planned(None, &agent(outcome), 0).unwrap();
        let condition = &report.conditions[1];
        assert_eq!(
            (condition.type_.as_str(), condition.reason.as_str()),
            (FOREIGN_LINES, reason)
        );
        let command = "run this on the node as root: tidewaiter host break-glass pin SHA256:b";
        let message = &condition.message;
        assert!(message.contains(words) && message.ends_with(command), "{message}");
        let named: Vec<_> = report.foreign_keys.iter().map(|key| key.fingerprint.as_str()).collect();
        assert_eq!(
            (named, report.foreign_lines_until),
            (vec!["SHA256:a", "SHA256:b"], until)
        );
        assert_eq!(report.break_glass_keys, ["SHA256:c"]);
        assert_eq!(report.break_glass_use.unwrap().at, at(7));
    }
}
