use std::collections::BTreeMap;

use serde_json::json;
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_upgrade::{Health, NodeFailure, Refusal, Version, form, step};

use super::*;

/// An upgrade with this progress.
fn upgrade(managed: bool, status: &serde_json::Value) -> Upgrade {
    let labels = if managed {
        json!({"containership.io/managed": "true"})
    } else {
        json!({})
    };
    let object = json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade",
        "metadata": {"name": "u", "uid": "1", "generation": 3, "labels": labels},
        "spec": {"type": "kubernetes", "targetVersion": "v1.36.3", "nodeTimeoutSeconds": 600, "status": status, "policy": {"maxFailures": 9}}});
    form::read(&serde_json::from_value::<ClusterUpgrade>(object).unwrap())
}

/// `Progressing` and `Succeeded` after a step in a cluster without Nodes.
fn says(upgrade: &Upgrade, before: &ClusterUpgradeStatus) -> [String; 2] {
    let api_server: Version = "v1.36.3".parse().unwrap();
    let now = "2026-11-22T06:00:00Z".parse().unwrap();
    let seen = Observation {
        upgrade,
        upgrades: &[],
        nodes: &[],
        api_server: &api_server,
        health: &Health::default(),
        left: &BTreeMap::new(),
        now,
    };
    let step = step(&seen);
    let mut after = upgrade.clone();
    for order in &step.orders {
        after.progress.apply(order, now);
    }
    let status = status(
        &Observation {
            upgrade: &after,
            ..seen
        },
        &step,
        before,
    );
    let counted = [status.nodes, status.done, status.failed];
    let ended = [NodeState::Success, NodeState::Failed].map(|state| after.progress.count(state));
    let is_counted = upgrade.spec.is_ok()
        && matches!(
            upgrade.progress.cluster,
            UpgradeStatus::NotStarted | UpgradeStatus::InProgress
        );
    let expected = [after.progress.nodes.len(), ended[0], ended[1]].map(|count| u32::try_from(count).unwrap());
    assert_eq!(counted, expected.map(|count| is_counted.then_some(count)));
    let shown = status.conditions.iter().map(|condition| {
        assert_eq!(condition.observed_generation, Some(3));
        format!(
            "{} {:?} {}: {}",
            condition.type_, condition.status, condition.reason, condition.message
        )
    });
    shown.collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn the_conditions_say_what_is_waited_for_and_how_it_ended() {
    let none = ClusterUpgradeStatus::default();
    let in_progress = json!({"clusterStatus": "InProgress", "nodeStatuses": {"a": "Success", "b": "InProgress", "c": "Failed"},
        "currentNode": "b", "currentStartTime": "Sun Nov 22 05:59:17 UTC 2026"});
    for (upgrade, progressing, succeeded) in [
        (
            upgrade(true, &in_progress),
            "Progressing True Upgrading: upgrading b; 1 of 3 nodes are at the version, 1 failed",
            "Succeeded Unknown NotFinished: the upgrade is not over",
        ),
        (
            upgrade(false, &json!(null)),
            "Progressing False NotPermitted: the label containership.io/managed=true is missing; add it to permit the upgrade",
            "Succeeded Unknown NotFinished: the upgrade is not over",
        ),
        (
            upgrade(true, &json!(null)),
            "Progressing False Finished: no Node with the label containership.io/managed=true matches spec.labelSelector, so nothing would be upgraded",
            "Succeeded False Refused: no Node with the label containership.io/managed=true matches spec.labelSelector, so nothing would be upgraded. Label the nodes, or create another upgrade.",
        ),
        (
            Upgrade {
                spec: Err(Refusal::Etcd),
                ..upgrade(true, &json!(null))
            },
            "Progressing False Finished: spec.type is etcd, which is not supported",
            "Succeeded False Refused: spec.type is etcd, which is not supported. Create an upgrade of type kubernetes.",
        ),
        // The process was killed before it could say how it ended, or the Go coordinator was it.
        (
            upgrade(true, &json!({"clusterStatus": "Success"})),
            "Progressing False Finished: the upgrade is over",
            "Succeeded True Succeeded: every selected node is at the version",
        ),
        (
            upgrade(
                true,
                &json!({"clusterStatus": "Failed", "nodeStatuses": {"a": "Failed"}}),
            ),
            "Progressing False Finished: node a failed",
            "Succeeded False NodesFailed: one node failed; no other selected node is left to upgrade",
        ),
        (
            upgrade(true, &json!({"clusterStatus": "Failed"})),
            "Progressing False Finished: the upgrade was refused or aborted; its Events of that time say why",
            "Succeeded False Refused: the upgrade was refused or aborted; its Events of that time say why",
        ),
    ] {
        assert_eq!(says(&upgrade, &none), [progressing, succeeded]);
    }
}

/// The conditions after a step with these orders.
fn after(upgrade: &mut Upgrade, orders: Vec<Order>, before: &ClusterUpgradeStatus) -> ClusterUpgradeStatus {
    let api_server: Version = "v1.36.3".parse().unwrap();
    let now = "2026-11-22T06:00:00Z".parse().unwrap();
    for order in &orders {
        upgrade.progress.apply(order, now);
    }
    let step = Step {
        orders,
        ..Step::default()
    };
    let seen = Observation {
        upgrade,
        upgrades: &[],
        nodes: &[],
        api_server: &api_server,
        health: &Health::default(),
        left: &BTreeMap::new(),
        now,
    };
    status(&seen, &step, before)
}

fn message<'a>(status: &'a ClusterUpgradeStatus, type_: &str) -> &'a str {
    let mut conditions = status.conditions.iter();
    &conditions.find(|condition| condition.type_ == type_).unwrap().message
}

/// The column Message of `kubectl get -o wide`.
#[test]
fn an_upgrade_that_failed_says_which_node_failed_first_and_why() {
    let node = |name: &str| name.parse::<NodeName>().unwrap();
    let late = NodeFailure::TimedOut {
        version: Some("v1.35.4".parse().unwrap()),
        at_target: false,
        ready: true,
        blocked: None,
    };
    let why = "node c failed: after nodeTimeoutSeconds its kubelet is at v1.35.4, and the node is Ready";
    let begun = || upgrade(true, &json!({"clusterStatus": "InProgress", "nodeStatuses": {}}));

    // The one node that failed, long before the end.
    let mut one = begun();
    let failed = after(
        &mut one,
        vec![Order::Fail(node("c"), late.clone())],
        &ClusterUpgradeStatus::default(),
    );
    assert_eq!(message(&failed, SUCCEEDED), format!("the upgrade is not over; {why}"));
    let waits = after(&mut one, vec![Order::Start(node("d"))], &failed);
    assert_eq!(message(&waits, SUCCEEDED), format!("the upgrade is not over; {why}"));
    assert!(
        message(&waits, PROGRESSING).ends_with(&format!("1 failed; {why}")),
        "{waits:?}"
    );
    let end = vec![Order::Succeed(node("d")), Order::Finish(Ending::Failures(1))];
    let ended = after(&mut one, end, &waits);
    assert_eq!(message(&ended, PROGRESSING), why);
    let both = format!("{why}; one node failed; no other selected node is left to upgrade");
    assert_eq!(message(&ended, SUCCEEDED), both);
    // It stays, also after a restart.
    assert_eq!(message(&after(&mut one, Vec::new(), &ended), PROGRESSING), why);

    // Several: the first is named, and a refusal without its remedy.
    let skips = Refusal::SkipsMinor {
        node: node("b"),
        version: "v1.34.9".parse().unwrap(),
        target: "v1.36.3".parse().unwrap(),
    };
    for (others, said) in [(1, "another node failed, too"), (2, "2 other nodes failed, too")] {
        let mut orders = vec![Order::Fail(node("b"), NodeFailure::Refused(skips.clone()))];
        orders.extend((0..others).map(|number| Order::Fail(node(&format!("a{number}")), late.clone())));
        orders.push(Order::Finish(Ending::TooManyFailures(others + 1)));
        let ended = after(&mut begun(), orders, &ClusterUpgradeStatus::default());
        let why = "node b failed: no script was run: b is at v1.34.9: an upgrade to v1.36.3 would skip a minor version";
        assert_eq!(message(&ended, PROGRESSING), format!("{why}; {said}"));
    }

    // Nodes that failed are not why it was aborted, and an upgrade that succeeded has nothing to explain.
    let end = vec![Order::Fail(node("c"), late), Order::Finish(Ending::Aborted)];
    let ended = after(&mut begun(), end, &ClusterUpgradeStatus::default());
    assert!(message(&ended, PROGRESSING).starts_with("it was aborted"), "{ended:?}");
    assert!(message(&ended, SUCCEEDED).ends_with(why), "{ended:?}");
    // That the workers cannot go on says nothing without the reason.
    let refused = NodeFailure::Host("Refused: the key k is not trusted".to_owned());
    let ahead = Ending::Refused(Refusal::AheadOfControlPlane {
        control_plane: "v1.35.4".parse().unwrap(),
        target: "v1.36.3".parse().unwrap(),
    });
    let end = vec![Order::Fail(node("cp"), refused), Order::Finish(ahead)];
    let ended = after(&mut begun(), end, &ClusterUpgradeStatus::default());
    let why = "node cp failed: its host reports Refused: the key k is not trusted; the control plane is at v1.35.4";
    for type_ in [PROGRESSING, SUCCEEDED] {
        assert!(message(&ended, type_).starts_with(why), "{ended:?}");
    }
    let end = vec![Order::Succeed(node("c")), Order::Finish(Ending::Success)];
    let ended = after(&mut begun(), end, &ClusterUpgradeStatus::default());
    assert_eq!(message(&ended, PROGRESSING), "the upgrade is over");
}

#[test]
fn how_it_ended_is_not_forgotten() {
    let now = "2026-11-22T05:00:00Z".parse().unwrap();
    let ended = Condition::new(SUCCEEDED, ConditionStatus::False, "Aborted", "by a person", &[], now);
    let before = ClusterUpgradeStatus {
        conditions: vec![ended.observing(Some(3))],
        ..ClusterUpgradeStatus::default()
    };
    // The numbers are not counted again either, with the Nodes that there are now.
    let [_, succeeded] = says(&upgrade(true, &json!({"clusterStatus": "Failed"})), &before);
    assert_eq!(succeeded, "Succeeded False Aborted: by a person");
    assert!(is_final(&before) && !is_final(&ClusterUpgradeStatus::default()));
}

#[test]
fn the_events_have_the_reasons_of_the_go_coordinator() {
    let upgrade = upgrade(true, &json!(null));
    let step = Step {
        orders: vec![
            Order::Begin,
            Order::Succeed("a".parse().unwrap()),
            Order::Finish(Ending::Failures(1)),
        ],
        ..Step::default()
    };
    let notices = notices(&upgrade, &step);
    let shown: Vec<_> = notices
        .iter()
        .map(|notice| (notice.reason.as_ref(), notice.note.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("Accepted", "The upgrade to v1.36.3 begins."),
            ("NodeUpgradeSuccess", "Node a is at v1.36.3, and Ready."),
            (
                "ClusterUpgradeComplete",
                "The upgrade is over: one node failed; no other selected node is left to upgrade."
            ),
        ]
    );
}
