use std::collections::BTreeMap;

use jiff::SignedDuration;
use tidewaiter_api::containership::Cordon;

use super::*;
use crate::drain::{DrainBlocker, RemainingPod};
use crate::observation::Upgrade;
use crate::step::step;
use crate::testing::{at, in_progress, name, nodes, observation, upgrade, version};

/// Drains for five minutes.
fn drains(mut upgrade: Upgrade, force: bool) -> Upgrade {
    let timeout = SignedDuration::from_mins(5);
    upgrade.spec.as_mut().unwrap().policy.drain = Some(DrainPolicy { timeout, force });
    upgrade
}

/// The upgrade with these entries in its ledger: `"w1 w2(before)"`, since the time 0.
fn ledger(mut upgrade: Upgrade, entries: &str) -> Upgrade {
    for entry in entries.split_whitespace() {
        let before = entry.ends_with("(before)");
        let cordon = Cordon { since: at(0), before };
        upgrade
            .progress
            .cordons
            .insert(name(entry.trim_end_matches("(before)")), cordon);
    }
    upgrade
}

/// The decision of a step: the orders, what it waits for, and the effects. `cordons` are the cordoned nodes: by the
/// upgrade, or by others with `*`. `left` are the nodes whose pods were looked at, with a pod that stays on it:
/// `"w1 w2=web"`.
fn says(upgrade: &Upgrade, all: &str, cordons: &str, left: &str, seconds: i64) -> String {
    let mut all = nodes(all);
    for item in cordons.split_whitespace() {
        let is_other = item.ends_with('*');
        let node = all
            .iter_mut()
            .find(|node| node.name.as_str() == item.trim_end_matches('*'))
            .unwrap();
        (node.cordoned, node.cordoned_by) = (true, (!is_other).then(|| "u".to_owned()));
    }
    let left: BTreeMap<NodeName, Vec<RemainingPod>> = left
        .split_whitespace()
        .map(|item| match item.split_once('=') {
            Some((node, budget)) => {
                let (pod, blocker) = ("default/a".to_owned(), DrainBlocker::Budget(budget.to_owned()));
                (name(node), vec![RemainingPod { pod, blocker }])
            }
            None => (name(item), Vec::new()),
        })
        .collect();
    let api_server = version("v1.36.3");
    let seen = Observation {
        left: &left,
        ..observation(upgrade, &[], &all, &api_server, seconds)
    };
    let step = step(&seen);
    let orders = step.orders.iter().map(|order| match order {
        Order::Cordon { node, before } => format!("ledger {node}{}", if *before { "(before)" } else { "" }),
        Order::Release(node) => format!("release {node}"),
        Order::Start(node) => format!("start {node}"),
        Order::Succeed(node) => format!("succeed {node}"),
        Order::Fail(node, failure) => format!("fail {node} ({failure})"),
        Order::Finish(ending) => format!("finish {}", ending.reason()),
        other => format!("{other:?}"),
    });
    let wait = step.wait.iter().map(|wait| format!("wait: {wait}"));
    let effects = step.effects.iter().map(|effect| match effect {
        Effect::Cordon(node) => format!("[cordon {node}]"),
        Effect::Evict(node) => format!("[evict {node}]"),
        Effect::Delete(node) => format!("[delete {node}]"),
        Effect::Uncordon(node) => format!("[uncordon {node}]"),
    });
    orders.chain(wait).chain(effects).collect::<Vec<_>>().join("; ")
}

const OLD: &str = "cp=v1.36.3 w1=v1.35.4 w2=v1.35.4";
const FIRST_DONE: &str = "cp=v1.36.3 w1=v1.36.3 w2=v1.35.4";

#[test]
fn a_node_is_recorded_cordoned_drained_started_and_uncordoned() {
    let begun = drains(in_progress("u", "cp=Success"), false);
    let draining = ledger(begun.clone(), "w1");
    let running = ledger(drains(in_progress("u", "cp=Success w1=InProgress"), false), "w1");
    let done = ledger(drains(in_progress("u", "cp=Success w1=Success"), false), "w1");
    for (upgrade, all, cordons, left, expected) in [
        (
            &begun,
            OLD,
            "",
            "",
            "ledger w1; wait: draining w1; [cordon w1]; [evict w1]",
        ),
        // Killed before the Node was cordoned, or a person has uncordoned it.
        (&draining, OLD, "", "", "wait: draining w1; [cordon w1]; [evict w1]"),
        (&draining, OLD, "", "w1", "wait: draining w1; [cordon w1]; [evict w1]"),
        (
            &draining,
            OLD,
            "w1",
            "w1=default/x",
            "wait: draining w1: default/a: the PodDisruptionBudget default/x permits no disruption now; [evict w1]",
        ),
        (&draining, OLD, "w1", "w1", "start w1; wait: upgrading w1"),
        (&running, OLD, "w1", "", "wait: upgrading w1"),
        // The next one is not taken out of service before this one is in service again.
        (
            &running,
            FIRST_DONE,
            "w1",
            "",
            "succeed w1; wait: uncordoning w1; [uncordon w1]",
        ),
        (&done, FIRST_DONE, "w1", "", "wait: uncordoning w1; [uncordon w1]"),
        (
            &done,
            FIRST_DONE,
            "",
            "",
            "release w1; ledger w2; wait: draining w2; [cordon w2]; [evict w2]",
        ),
        // The upgrade is over when every node is in service again.
        (
            &done,
            "cp=v1.36.3 w1=v1.36.3",
            "w1",
            "",
            "wait: uncordoning w1; [uncordon w1]",
        ),
        (&done, "cp=v1.36.3 w1=v1.36.3", "", "", "release w1; finish Succeeded"),
        // The Node is gone.
        (&done, "cp=v1.36.3", "", "", "release w1; finish Succeeded"),
    ] {
        assert_eq!(
            says(upgrade, all, cordons, left, 60),
            expected,
            "{all}, {cordons} cordoned"
        );
    }
}

#[test]
fn what_others_have_cordoned_stays_cordoned() {
    let begun = drains(in_progress("u", "cp=Success"), false);
    let recorded = "ledger w1(before); wait: draining w1; [evict w1]";
    assert_eq!(says(&begun, OLD, "w1*", "", 0), recorded);
    let done = |entries: &str| ledger(drains(in_progress("u", "cp=Success w1=Success"), false), entries);
    let all = "cp=v1.36.3 w1=v1.36.3";
    assert_eq!(
        says(&done("w1(before)"), all, "w1*", "", 0),
        "release w1; finish Succeeded"
    );
    // Its kubelet cannot have it uncordoned by forging our mark.
    assert_eq!(
        says(&done("w1(before)"), all, "w1", "", 0),
        "release w1; finish Succeeded"
    );
    assert_eq!(says(&done(""), all, "w1", "", 0), "finish Succeeded");
    // A person removed the mark, to keep the node.
    assert_eq!(says(&done("w1"), all, "w1*", "", 0), "release w1; finish Succeeded");
}

#[test]
fn a_drain_that_takes_too_long_fails_or_is_forced() {
    let draining = |force| ledger(drains(in_progress("u", "cp=Success"), force), "w1");
    let waits = "wait: draining w1: default/a: the PodDisruptionBudget default/x permits no disruption now; [evict w1]";
    let why = "no script was run: its pods did not leave it within drainTimeoutSeconds: default/a: the PodDisruptionBudget default/x permits no disruption now";
    for force in [false, true] {
        assert_eq!(says(&draining(force), OLD, "w1", "w1=default/x", 299), waits);
    }
    let failed = format!("fail w1 ({why}); wait: uncordoning w1; [uncordon w1]");
    assert_eq!(says(&draining(false), OLD, "w1", "w1=default/x", 300), failed);
    let forced = "start w1; wait: upgrading w1; [delete w1]";
    assert_eq!(says(&draining(true), OLD, "w1", "w1=default/x", 300), forced);
    // The pods that have left in time count, also when nobody looked in time.
    assert_eq!(
        says(&draining(false), OLD, "w1", "w1", 999),
        "start w1; wait: upgrading w1"
    );
    // It cannot be cordoned, or its pods cannot be read: it ends all the same. Pods that cannot be read cannot be
    // deleted either.
    let not_cordoned = "fail w1 (no script was run: it could not be cordoned within drainTimeoutSeconds)";
    let unread = "fail w1 (no script was run: the pods on it could not be read within drainTimeoutSeconds (the Event DrainFailed says why))";
    assert!(says(&draining(false), OLD, "", "w1", 300).starts_with(not_cordoned));
    for force in [false, true] {
        assert_eq!(
            says(&draining(force), OLD, "w1", "", 299),
            "wait: draining w1; [evict w1]"
        );
        let failed = format!("{unread}; wait: uncordoning w1; [uncordon w1]");
        assert_eq!(says(&draining(force), OLD, "w1", "", 300), failed);
    }
}

#[test]
fn a_drain_is_given_up_when_its_node_is_not_started_any_more() {
    let draining = ledger(drains(in_progress("u", "cp=Success"), false), "w1");
    let with = |change: fn(&mut Upgrade)| {
        let mut upgrade = draining.clone();
        change(&mut upgrade);
        upgrade
    };
    let policy =
        |upgrade: &mut Upgrade, change: fn(&mut crate::Policy)| change(&mut upgrade.spec.as_mut().unwrap().policy);
    let aborted = with(|upgrade| upgrade.spec.as_mut().unwrap().policy.aborted = true);
    let deleted = with(|upgrade| upgrade.deleted = true);
    for upgrade in [&aborted, &deleted] {
        let aborted = "wait: aborted (spec.policy.aborted) or deleted: it starts no further node, and is still uncordoning w1; [uncordon w1]";
        assert_eq!(says(upgrade, OLD, "w1", "w1", 0), aborted);
        assert_eq!(says(upgrade, OLD, "", "w1", 0), "release w1; finish Aborted");
    }
    let mut paused = draining.clone();
    policy(&mut paused, |policy| policy.paused = true);
    assert_eq!(
        says(&paused, OLD, "w1", "w1", 0),
        "start w1; wait: upgrading w1",
        "what was begun is finished"
    );
    // Somebody upgraded the node by hand, or a node of the control plane has joined.
    let uncordons = "wait: uncordoning w1; [uncordon w1]";
    assert_eq!(says(&draining, FIRST_DONE, "w1", "w1", 0), uncordons);
    assert_eq!(says(&draining, &format!("{OLD} cp2=v1.35.4"), "w1", "w1", 0), uncordons);
    assert_eq!(
        says(&draining, &format!("{OLD} cp2=v1.35.4"), "", "w1", 0),
        "release w1; ledger cp2; wait: draining cp2; [cordon cp2]; [evict cp2]"
    );
    // Without the policy the node is started; it is uncordoned afterwards.
    let mut without = draining.clone();
    policy(&mut without, |policy| policy.drain = None);
    assert_eq!(says(&without, OLD, "w1", "", 0), "start w1; wait: upgrading w1");
    // The spec cannot be read any more.
    let torn = with(|upgrade| upgrade.spec = Err(crate::Refusal::Etcd));
    assert_eq!(says(&torn, OLD, "w1", "", 0), uncordons);
    assert_eq!(says(&torn, OLD, "", "", 0), "release w1; finish Refused");
}

#[test]
fn an_upgrade_that_is_not_begun_and_deleted_is_aborted() {
    let mut upgrade = drains(upgrade("u"), false);
    upgrade.deleted = true;
    assert_eq!(says(&upgrade, OLD, "", "", 0), "finish Aborted");
}
