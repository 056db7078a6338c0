//! Forged Nodes: what becomes of them, and when nothing does.

use tidewaiter_api::node_identity::QUARANTINED;

use super::*;
use crate::node_controller::OnForgery::{self, Quarantine, Report};
use crate::node_controller::quarantine::decide;

const HELD: Brake = Brake::Held;
const LABELS: &str = "a=1 mine=x everybody=x kubernetes.io/os=linux kops.k8s.io/instancegroup=nodes \
                      node-role.kubernetes.io/control-plane= node-role.kubernetes.io/spot-worker=true \
                      node-role.kubernetes.io/mine= node.kubernetes.io/exclude-from-external-load-balancers=";
const TAKEN: &str = "a everybody kops.k8s.io/instancegroup node-role.kubernetes.io/control-plane \
                     node-role.kubernetes.io/spot-worker";

/// A Node that is refused for forgery, of a cluster whose group `nodes` defines `a`.
fn forged(labels: &'static str, record: Option<Recorded>, on_forgery: OnForgery, brake: Brake) -> Observation {
    let mut seen = observation(Seen {
        labels,
        tainted: false,
        record,
        finding: forgery(),
    });
    seen.owned = owned(&[("nodes", "a kubernetes.io/os")], true);
    seen.brake = brake;
    seen.policy.on_forgery = on_forgery;
    seen
}

fn planned_at_start(seen: &Observation) -> Plan {
    plan(seen, Timestamp::UNIX_EPOCH)
}

/// `status reason` of what the record says of quarantine.
fn said(record: Option<&RecordContent>) -> String {
    let conditions = record.map(|record| &record.status.conditions);
    let found = conditions
        .into_iter()
        .flatten()
        .find(|found| found.type_ == QUARANTINED);
    found.map_or(NOTHING.to_owned(), |found| {
        format!("{:?} {}", found.status, found.reason)
    })
}

fn is_tainted(seen: &Observation) -> bool {
    seen.node.taints_with_startup_taint().is_none()
}

const REFUSED_BEFORE: Recorded = Recorded {
    uid: UID,
    verified: (ConditionStatus::False, "NameMismatch"),
    labels: "",
};

#[test]
fn the_brake_holds_at_more_than_a_tenth_and_lets_one_through() {
    for (nodes, forged, held) in [
        (1, 1, false),
        (2, 2, true),
        (10, 1, false),
        (10, 2, true),
        (19, 2, true),
        (20, 2, false),
        (20, 3, true),
        (5_000, 500, false),
        (5_000, 501, true),
    ] {
        let expected = if held { Brake::Held } else { Brake::Free };
        assert_eq!(Brake::of(nodes, forged), expected, "{forged} of {nodes}");
    }
}

#[test]
fn what_becomes_of_a_forged_node() {
    use Decision::{Hold, Spare, Wait};
    for (on_forgery, verified_before, brake, decision) in [
        (Report, false, Brake::Free, Decision::Report),
        (Report, false, HELD, Decision::Report),
        (Report, true, Brake::Free, Decision::Report),
        (Quarantine, false, Brake::Free, Decision::Quarantine),
        (Quarantine, false, Brake::Unjudged, Wait),
        (Quarantine, false, HELD, Hold),
        (Quarantine, true, Brake::Free, Spare),
        (Quarantine, true, Brake::Unjudged, Spare),
        (Quarantine, true, HELD, Spare),
    ] {
        let found = decide(on_forgery, verified_before, brake);
        assert_eq!(found, decision, "{on_forgery:?} {verified_before} {brake:?}");
    }
}

#[test]
fn only_who_is_put_into_quarantine_is_touched() {
    let earlier = Some(Recorded {
        uid: "uid-0",
        ..verified("a=1")
    });
    let labelled_before = Some(Recorded {
        labels: "a=1",
        ..REFUSED_BEFORE
    });
    for (what, record, on_forgery, brake, condition, event) in [
        (
            "a new node",
            None,
            Quarantine,
            Brake::Free,
            "True Forged",
            "Quarantined",
        ),
        (
            "one that was refused",
            Some(REFUSED_BEFORE),
            Quarantine,
            Brake::Free,
            "True Forged",
            "Quarantined",
        ),
        (
            "one whose name another had",
            earlier,
            Quarantine,
            Brake::Free,
            "True Forged",
            "Quarantined",
        ),
        ("the setting", None, Report, Brake::Free, NOTHING, ""),
        ("not all are judged", None, Quarantine, Brake::Unjudged, NOTHING, ""),
        (
            "too many",
            None,
            Quarantine,
            HELD,
            "False TooManyForged",
            "QuarantineHeld",
        ),
        (
            "verified before",
            Some(verified("")),
            Quarantine,
            Brake::Free,
            "False VerifiedBefore",
            "",
        ),
        (
            "labelled before",
            labelled_before,
            Quarantine,
            Brake::Free,
            "False VerifiedBefore",
            "",
        ),
    ] {
        let seen = forged(LABELS, record, on_forgery, brake);
        let plan = planned_at_start(&seen);
        assert_eq!(said(plan.record.as_ref()), condition, "{what}");
        assert!(plan.record.as_ref().is_none_or(|record| record.status.forged), "{what}");
        let notices = plan.notices.iter().chain(&plan.done);
        let events: Vec<&str> = notices.map(|notice| notice.reason.as_ref()).collect();
        assert_eq!(events.join(" "), format!("NameMismatch {event}").trim_end(), "{what}");
        let done = plan.done.iter().any(|notice| notice.reason == "Quarantined");
        assert_eq!(done, event == "Quarantined", "{what}");
        assert_eq!(plan.narrowed, None, "{what}");
        let after = carried_out(seen, &plan);
        assert_eq!(is_tainted(&after), condition == "True Forged", "{what}");
        let patch = plan.patch.unwrap_or_default();
        let taken = if condition == "True Forged" { TAKEN } else { "" };
        assert_eq!(patch.remove.into_iter().collect::<Vec<_>>().join(" "), taken, "{what}");
        assert!(patch.set.is_empty(), "{what}");
        assert_eq!(after.node.spec.taints.as_ref().unwrap()[0]["key"], "other", "{what}");

        let again = super::plan(&after, "2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!((again.record, again.patch), (None, None), "{what}: the pass after");
    }
}

#[test]
fn who_was_verified_before_stays_so_for_good() {
    // Verified, then forged, then forged again: the word of the first record is handed on.
    let seen = forged(LABELS, Some(verified("")), Quarantine, Brake::Unjudged);
    let mut after = carried_out(seen.clone(), &planned_at_start(&seen));
    let first = after.record.as_ref().unwrap().status.first_verified;
    assert_eq!(first, Some(Timestamp::UNIX_EPOCH));
    for finding in [refusal(), forgery(), outage(), forgery()] {
        let forged = matches!(&finding, Finding::Refused(refusal) if !matches!(refusal, Refusal::NotFound { .. }));
        after.finding = finding;
        after.brake = Brake::Free;
        let plan = planned_at_start(&after);
        assert_eq!(plan.patch, None);
        after = carried_out(after, &plan);
        let status = &after.record.as_ref().unwrap().status;
        assert_eq!((status.first_verified, status.forged), (first, forged));
    }
    // Another Node of that name was not.
    after.uid = "uid-2".parse().unwrap();
    let plan = planned_at_start(&after);
    assert_eq!(plan.decision, Some(Decision::Quarantine));
    assert_eq!(plan.record.unwrap().status.first_verified, None);
}

#[test]
fn a_first_proof_is_remembered() {
    let mut seen = forged("", None, Quarantine, Brake::Free);
    for (finding, expected) in [
        (refusal(), None),
        (outage(), None),
        (defined("a=1", &[]), Some("2026-01-02T03:04:05Z".parse().unwrap())),
    ] {
        seen.finding = finding;
        let plan = plan(&seen, "2026-01-02T03:04:05.678Z".parse().unwrap());
        assert_eq!(plan.record.unwrap().status.first_verified, expected);
    }
}

/// One that is in quarantine, as the plan has left it.
fn quarantined() -> Observation {
    let seen = forged(LABELS, None, Quarantine, Brake::Free);
    carried_out(seen.clone(), &planned_at_start(&seen))
}

fn with_label(mut seen: Observation, key: &str) -> Observation {
    let mut node = Node::clone(&seen.node);
    node.metadata
        .labels
        .get_or_insert_default()
        .insert(key.to_owned(), "back".to_owned());
    node.spec.taints = None;
    seen.node = Arc::new(node);
    seen
}

#[test]
fn what_comes_back_to_a_quarantined_node_goes_again() {
    let plan = planned_at_start(&with_label(quarantined(), "a"));
    let patch = plan.patch.unwrap();
    assert_eq!(patch.remove.into_iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(
        patch.taints,
        Some(vec![
            json!({"key": "tidewaiter.dev/unidentified", "effect": "NoSchedule"})
        ])
    );
    assert_eq!(plan.record, None);

    // But not when the brake has begun to hold, the setting has changed, or it is no forgery any more. It stays in,
    // too.
    let mut others = [Brake::Free; 4].map(|_| with_label(quarantined(), "a"));
    others[0].brake = HELD;
    others[1].policy.on_forgery = Report;
    others[2].finding = refusal();
    others[3].finding = outage();
    for seen in others {
        let plan = planned_at_start(&seen);
        assert_eq!(plan.patch, None, "{seen:?}");
        let after = carried_out(seen, &plan);
        let record = after.record.as_deref().unwrap();
        let condition = record.status.conditions.iter().find(|found| found.type_ == QUARANTINED);
        assert_eq!(condition.unwrap().status, ConditionStatus::True);
    }
}

#[test]
fn what_was_said_of_a_brake_is_not_said_for_ever() {
    let held = forged(LABELS, None, Quarantine, HELD);
    let held = carried_out(held.clone(), &planned_at_start(&held));
    let said_with = |change: fn(&mut Observation)| {
        let mut seen = held.clone();
        change(&mut seen);
        let after = carried_out(seen.clone(), &planned_at_start(&seen));
        let record = after.record.as_deref().unwrap();
        let found = record.status.conditions.iter().find(|found| found.type_ == QUARANTINED);
        found.map_or(NOTHING.to_owned(), |found| found.reason.clone())
    };
    assert_eq!(said_with(|_| {}), "TooManyForged");
    assert_eq!(
        said_with(|seen| seen.brake = Brake::Unjudged),
        "TooManyForged",
        "a start rewrites nothing"
    );
    assert_eq!(said_with(|seen| seen.policy.on_forgery = Report), NOTHING);
    assert_eq!(said_with(|seen| seen.finding = refusal()), NOTHING);
    assert_eq!(said_with(|seen| seen.finding = defined("a=1", &[])), "Proven");
}

#[test]
fn a_crash_after_the_record_is_finished_by_the_next_pass() {
    let seen = forged(LABELS, None, Quarantine, Brake::Free);
    let whole = planned_at_start(&seen);
    let half = Plan {
        patch: None,
        ..whole.clone()
    };
    let again = planned_at_start(&carried_out(seen, &half));
    assert_eq!((again.record, again.patch), (None, whole.patch));
}

#[test]
fn a_proof_undoes_it() {
    let mut seen = quarantined();
    seen.finding = defined("a=1 b=2", &[]);
    let plan = planned_at_start(&seen);
    assert_eq!(said(plan.record.as_ref()), "False Proven");
    let expected = row(
        NodeState::Verified,
        "True Proven: a=1 b=2",
        "a=1 b=2",
        "",
        NOTHING,
        "Verified",
    );
    assert_eq!(
        planned(&plan),
        Expected {
            lifts_taint: true,
            ..expected
        }
    );
    let after = carried_out(seen, &plan);
    assert!(!is_tainted(&after));
    let again = super::plan(&after, "2026-01-01T00:00:00Z".parse().unwrap());
    assert_eq!((again.record, again.patch, again.narrowed), (None, None, None));

    // Proven without a definition: the taint goes with the labels and never before.
    let mut seen = quarantined();
    let missing = DefinitionError::Missing {
        file: "instancegroup/nodes".to_owned(),
        detail: String::new(),
    };
    seen.finding = Finding::Undefined(proven(NodeNames::Enforce, NAME), missing);
    let plan = planned_at_start(&seen);
    assert_eq!((said(plan.record.as_ref()).as_str(), plan.patch), ("True Forged", None));
}
