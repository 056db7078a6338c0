//! Every fixture gives the verdict that it expects.

use tidewaiter_api::ConditionStatus;
use tidewaiter_validation::{Failure, FailureKind, GroupRow, NodeRow, Verdict, judge};

use crate::fixture;

#[test]
fn each_fixture_has_the_verdict_that_it_expects() {
    let fixtures = fixture::all();
    assert!(fixtures.len() > 50, "the fixtures are not where they are looked for");
    let mut wrong = Vec::new();
    for fixture in fixtures {
        let verdict = judge(&fixture.seen, &fixture.options);
        let expect = fixture.expect;
        let unknown = verdict
            .unknown
            .iter()
            .map(|unknown| format!("{}: {}", unknown.part, unknown.reason));
        let groups = verdict
            .groups
            .iter()
            .map(|row| (row.group.name.to_string(), group(row)));
        let mut compare = |what: &str, found: String, expected: String| {
            if found != expected {
                wrong.push(format!(
                    "{}: {what}\n  found    {found}\n  expected {expected}",
                    fixture.name
                ));
            }
        };
        compare("failures", shown(&verdict.failures), format!("{:?}", expect.failures));
        compare(
            "tolerated",
            shown(&verdict.tolerated),
            format!("{:?}", expect.tolerated),
        );
        compare(
            "unknown",
            format!("{:?}", unknown.collect::<Vec<_>>()),
            format!("{:?}", expect.unknown),
        );
        compare(
            "nodes",
            format!("{:?}", verdict.nodes.iter().map(node).collect::<Vec<_>>()),
            format!("{:?}", expect.nodes),
        );
        compare(
            "groups",
            format!("{:?}", groups.collect::<Vec<_>>()),
            format!("{:?}", expect.groups.iter().collect::<Vec<_>>()),
        );
        for (name, found) in counts(&verdict) {
            let expected = expect.counts.get(name).copied().unwrap_or(Some(0));
            compare(name, format!("{found:?}"), format!("{expected:?}"));
        }
        let named = expect
            .counts
            .keys()
            .find(|name| counts(&verdict).iter().all(|(known, _)| known != name));
        compare("a count of that name", format!("{named:?}"), "None".to_owned());
        compare("outcome", format!("{:?}", verdict.outcome()), expect.outcome);
        let by_kind: usize = FailureKind::ALL.iter().map(|kind| verdict.failures_of(*kind)).sum();
        compare(
            "failures by kind",
            by_kind.to_string(),
            verdict.failures.len().to_string(),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn shown(failures: &[Failure]) -> String {
    let shown = |failure: &Failure| {
        let group = failure.instance_group.as_ref().map_or("-", |group| group.as_str());
        format!("{} {} [{group}]: {}", failure.kind, failure.name, failure.message)
    };
    format!("{:?}", failures.iter().map(shown).collect::<Vec<_>>())
}

fn node(row: &NodeRow) -> String {
    let status = match (row.status, row.ready) {
        (ConditionStatus::True, true) => "True",
        (ConditionStatus::True, false) => "True, not ready",
        (ConditionStatus::False, false) => "False",
        (ConditionStatus::Unknown, false) => "Unknown",
        (_, true) => "ready all the same",
    };
    format!("{} {} {status}", row.name, row.role)
}

fn group(row: &GroupRow) -> String {
    let Some(counts) = row.cloud else { return "?".to_owned() };
    let shown = |count: Option<u32>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let (ready, outdated) = (shown(counts.ready), shown(counts.needs_update));
    let [min, target, max] = [counts.min, counts.target, counts.max].map(shown);
    format!(
        "{} current, {ready} ready, {outdated} outdated, {min}..{target}..{max}",
        counts.current
    )
}

fn counts(verdict: &Verdict) -> [(&'static str, Option<u32>); 6] {
    let counts = verdict.counts;
    [
        ("nodesReady", counts.nodes_ready),
        ("nodesNotReady", counts.nodes_not_ready),
        ("podsMissing", counts.pods_missing),
        ("podsNotReady", counts.pods_not_ready),
        ("podsPending", counts.pods_pending),
        ("podsUnknown", counts.pods_unknown),
    ]
}
