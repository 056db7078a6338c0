//! Labels of other groups.

use tidewaiter_api::node_identity::FOREIGN_LABELS;

use super::*;
use crate::node_controller::ForeignLabels::{self, Remove, Report};

/// The Node is of group `nodes`, whose definition gives it `a` and would give it `bad`.
fn seen(labels: &'static str, recorded: &'static str, complete: bool, foreign_labels: ForeignLabels) -> Observation {
    let mut seen = observation(Seen {
        labels,
        tainted: false,
        record: Some(verified(recorded)),
        finding: defined("a=1", &["bad"]),
    });
    let groups = [
        ("nodes", "a bad soon"),
        ("batch", "a b bad soon both kubernetes.io/os"),
        ("web", "both"),
    ];
    seen.owned = owned(&groups, complete);
    seen.policy.foreign_labels = foreign_labels;
    seen
}

/// `status reason: message` of a condition.
fn said(content: Option<&RecordContent>, type_: &str) -> String {
    let condition = content.and_then(|content| content.status.conditions.iter().find(|found| found.type_ == type_));
    condition.map_or(NOTHING.to_owned(), |found| {
        format!("{:?} {}: {}", found.status, found.reason, found.message)
    })
}

fn removed(plan: &Plan) -> String {
    let patch = plan.patch.clone().unwrap_or_default();
    patch.remove.into_iter().collect::<Vec<_>>().join(" ")
}

const NONE_FOUND: &str = "False NoneFound: no label is defined by other groups alone";
const B: &str = "True DefinedByOtherGroups: label \"b\" is defined by batch";

#[test]
fn which_labels_are_of_other_groups() {
    for (what, labels, recorded, complete, condition) in [
        ("a key of another group", "a=1 b=x", "a=1", true, B),
        ("and where not all groups are known", "a=1 b=x", "a=1", false, B),
        (
            "one of two groups",
            "a=1 both=x",
            "a=1",
            true,
            "True DefinedByOtherGroups: label \"both\" is defined by batch, web",
        ),
        ("a key that nobody defines", "a=1 mine=x", "a=1", true, NONE_FOUND),
        (
            "a key of the Cluster's kubelets",
            "a=1 everybody=x",
            "a=1",
            true,
            NONE_FOUND,
        ),
        (
            "a key that every kubelet sets",
            "a=1 kubernetes.io/os=linux",
            "a=1",
            true,
            NONE_FOUND,
        ),
        ("a key that this group gives, too", "a=other", "a=1", true, NONE_FOUND),
        ("one whose value is rejected", "a=1 bad=x", "a=1", true, NONE_FOUND),
        (
            "one that this group has just gained",
            "a=1 soon=x",
            "a=1",
            true,
            NONE_FOUND,
        ),
        ("one that is ours to remove", "a=1 b=x", "a=1 b=x", true, NONE_FOUND),
        (
            "a role that goes anyway",
            "a=1 node-role.kubernetes.io/node=",
            "a=1",
            true,
            NONE_FOUND,
        ),
        ("nothing, and not all groups are known", "a=1", "a=1", false, NOTHING),
    ] {
        let plan = plan(&seen(labels, recorded, complete, Report), Timestamp::UNIX_EPOCH);
        assert_eq!(said(plan.record.as_ref(), FOREIGN_LABELS), condition, "{what}");
        assert_eq!(plan.foreign, usize::from(condition.starts_with("True")), "{what}");
        let ours = if recorded.contains('b') { "b" } else { "" };
        let roles = if labels.contains("role") {
            "node-role.kubernetes.io/node"
        } else {
            ""
        };
        assert_eq!(removed(&plan), format!("{ours}{roles}"), "{what}");
    }
}

#[test]
fn of_many_labels_a_few_are_named() {
    let keys: Vec<String> = (0..100).map(|number| format!("key-{number:02}")).collect();
    let of_batch = keys.join(" ");
    let mut seen = seen("a=1", "a=1", true, Report);
    seen.owned = owned(&[("nodes", "a"), ("batch", of_batch.as_str())], true);
    let mut node = Arc::unwrap_or_clone(Arc::clone(&seen.node));
    let labels = node.metadata.labels.get_or_insert_default();
    labels.extend(keys.iter().map(|key| (key.clone(), String::new())));
    seen.node = Arc::new(node);
    let plan = plan(&seen, Timestamp::UNIX_EPOCH);
    let said = said(plan.record.as_ref(), FOREIGN_LABELS);
    assert!(
        said.ends_with("label \"key-07\" is defined by batch; and 92 more"),
        "{said}"
    );
    assert_eq!(plan.foreign, 100);
}

#[test]
fn who_reports_leaves_it_and_who_removes_takes_it_away() {
    let note = |plan: &Plan| {
        let mut notices = plan.notices.iter().chain(&plan.done);
        let found = notices.find(|notice| notice.reason == "ForeignLabel").unwrap();
        found.note.clone()
    };
    let report = plan(&seen("a=1 b=x mine=x", "a=1", true, Report), Timestamp::UNIX_EPOCH);
    assert_eq!((removed(&report), report.narrowed.as_ref()), (String::new(), None));
    let expected = "label \"b\" is defined by batch; this Node is of group nodes. Find out who set it";
    assert!(note(&report).starts_with(expected), "{}", note(&report));

    for complete in [true, false] {
        let remove = plan(&seen("a=1 b=x mine=x", "a=1", complete, Remove), Timestamp::UNIX_EPOCH);
        assert_eq!(removed(&remove), "b");
        assert_eq!(said(remove.record.as_ref(), FOREIGN_LABELS), B, "before");
        let after = if complete { NONE_FOUND } else { NOTHING };
        assert_eq!(said(remove.narrowed.as_ref(), FOREIGN_LABELS), after, "after");
        assert!(note(&remove).contains("It was removed"), "{}", note(&remove));
        let mut before = remove.notices.iter();
        assert!(
            before.all(|notice| notice.reason != "ForeignLabel"),
            "only an accepted write has removed it"
        );
        assert_eq!(content(remove.record.as_ref()), "True Proven: a=1", "it never was ours");
    }
    let nothing = plan(&seen("a=1 mine=x", "a=1", true, Remove), Timestamp::UNIX_EPOCH);
    assert_eq!((removed(&nothing), nothing.narrowed), (String::new(), None));
    let mut notices = nothing.notices.iter().chain(&nothing.done);
    assert!(notices.all(|notice| notice.reason != "ForeignLabel"));
}

#[test]
fn the_pass_after_plans_no_write_and_says_the_same() {
    for policy in [Report, Remove] {
        for complete in [true, false] {
            for labels in ["a=1 b=x", "a=1"] {
                let seen = seen(labels, "a=1", complete, policy);
                let after = carried_out(seen.clone(), &plan(&seen, Timestamp::UNIX_EPOCH));
                let again = plan(&after, "2026-01-01T00:00:00Z".parse().unwrap());
                let writes = (again.record, again.patch, again.narrowed);
                assert_eq!(writes, (None, None, None), "{policy:?} {complete} {labels}");
            }
        }
    }
}

/// The record outlives the process, and an Event the process that publishes it.
#[test]
fn a_label_that_stays_is_told_once() {
    let told = |seen: &Observation| {
        let plan = plan(seen, Timestamp::UNIX_EPOCH);
        assert!(
            plan.notices.iter().all(|notice| notice.reason != "ForeignLabel"),
            "before the record"
        );
        let mut done = plan.done.iter();
        (plan.clone(), done.any(|notice| notice.reason == "ForeignLabel"))
    };
    let labelled = |seen: &Observation, labels: &str| {
        let mut node = Arc::unwrap_or_clone(Arc::clone(&seen.node));
        let labels = pairs(labels).map(|(key, value)| (key.to_owned(), value.to_owned()));
        node.metadata.labels = Some(labels.collect());
        Observation {
            node: Arc::new(node),
            ..seen.clone()
        }
    };
    let mut now = seen("a=1 b=x", "a=1", true, Report);
    for (what, labels, expected) in [
        ("the first", "a=1 b=x", true),
        ("a restart", "a=1 b=x", false),
        ("another value", "a=1 b=y", false),
        ("another label", "a=1 b=x both=x", true),
        ("one of them goes", "a=1 b=x", false),
        ("all go", "a=1", false),
        ("it comes back", "a=1 b=x", true),
    ] {
        let seen = labelled(&now, labels);
        let (plan, is_told) = told(&seen);
        assert_eq!(is_told, expected, "{what}");
        now = carried_out(seen, &plan);
    }
    now.policy.foreign_labels = Remove;
    assert!(told(&now).1, "its removal");
}

#[test]
fn a_crash_after_the_record_is_finished_by_the_next_pass() {
    let seen = seen("a=1 b=x", "a=1", true, Remove);
    let whole = plan(&seen, Timestamp::UNIX_EPOCH);
    let half = Plan {
        patch: None,
        narrowed: None,
        ..whole.clone()
    };
    let again = plan(&carried_out(seen, &half), Timestamp::UNIX_EPOCH);
    assert_eq!(
        (again.record, again.patch, again.narrowed),
        (None, whole.patch, whole.narrowed)
    );
}

#[test]
fn a_start_without_a_list_rewrites_no_record() {
    let known = seen("a=1", "a=1", true, Report);
    let mut after = carried_out(known.clone(), &plan(&known, Timestamp::UNIX_EPOCH));
    after.owned = owned(&[("nodes", "a")], false);
    assert_eq!(plan(&after, Timestamp::UNIX_EPOCH).record, None);
}

#[test]
fn who_is_refused_is_not_concerned() {
    for finding in [refusal(), forgery(), outage()] {
        let mut seen = seen("a=1 b=x", "a=1", true, Remove);
        seen.finding = finding;
        let plan = plan(&seen, Timestamp::UNIX_EPOCH);
        assert_eq!((plan.patch, plan.foreign), (None, 0));
    }
}
