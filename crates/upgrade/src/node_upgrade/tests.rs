use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::agent::{Ledger, offer};
use crate::testing::{in_progress, name};

/// The upgrade `name` in progress with these nodes, of which `b` is current.
fn stored(name: &str, nodes: &serde_json::Value) -> ClusterUpgrade {
    serde_json::from_value(json!({
        "apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 7, "labels": {"a": "b"}},
        "spec": {"id": "", "type": "kubernetes", "targetVersion": "v1.36.3", "nodeTimeoutSeconds": 600,
            "labelSelector": [{"label": "zone", "operator": "exists", "value": []}], "policy": {"maxFailures": 3},
            "status": {"clusterStatus": "InProgress", "nodeStatuses": nodes, "currentNode": "b",
                "currentStartTime": "Sun Nov 22 05:29:17 UTC 2026", "starts": {"a": {"since": "2026-11-22T05:00:00Z"}},
                "verifying": {"a": {"since": "2026-11-22T05:01:00Z"}}}}}))
    .unwrap()
}

fn order(node: &str, object: &ClusterUpgrade) -> Option<NodeUpgrade> {
    write(&name(node), &form::read(object), object)
}

#[test]
fn exactly_one_upgrade_in_progress_gives_a_node_its_turn() {
    let of = |upgrades: &[Upgrade]| {
        let turns = turns(upgrades).map(|(node, upgrade)| format!("{node}={}", upgrade.name));
        turns.collect::<Vec<_>>().join(" ")
    };
    let first = in_progress("u", "cp=Success w1=InProgress w2=Failed w3=InProgress");
    let mut over = first.clone();
    over.progress.cluster = UpgradeStatus::Failed;
    let second = in_progress("v", "w3=InProgress w4=InProgress");
    assert_eq!(of(&[]), "");
    assert_eq!(of(std::slice::from_ref(&first)), "w1=u w3=u");
    assert_eq!(of(&[over]), "", "what an upgrade that is over has left in progress");
    assert_eq!(of(&[first.clone(), second.clone()]), "w1=u w4=v", "w3 is in two");
    let third = in_progress("x", "w3=InProgress");
    assert_eq!(of(&[first, second, third]), "w1=u w4=v", "w3 is in three");
}

#[test]
fn an_agent_decides_by_the_order_as_it_would_by_the_upgrade() {
    let object = stored("u", &json!({"a": "InProgress", "b": "InProgress", "c": "Success"}));
    let now: Timestamp = "2026-11-22T05:02:00Z".parse().unwrap();
    for node in ["a", "b"] {
        let (whole, seen) = ([form::read(&object)], order(node, &object).unwrap());
        let part = [form::read(&read(&seen, &name(node)))];
        for (generation, now) in [(7, now), (8, now), (0, "2026-11-22T05:39:00Z".parse().unwrap())] {
            let ledger = Ledger {
                seen: [("uid-u".to_owned(), generation)].into(),
                ..Ledger::default()
            };
            let said = |upgrades: &[Upgrade]| {
                let offered = offer(upgrades, &name(node), &ledger, now);
                offered.map(|it| {
                    (
                        it.upgrade.uid.clone(),
                        it.upgrade.generation,
                        it.spec.target.clone(),
                        it.until,
                    )
                })
            };
            assert_eq!(said(&whole), said(&part), "{node} {generation} {now}");
        }
        assert_eq!(
            offer(&part, &name("c"), &Ledger::default(), now).ok(),
            None,
            "{node} says nothing of others"
        );
    }
    for node in ["c", "d"] {
        assert_eq!(order(node, &object), None, "{node}");
    }
}

#[test]
fn an_order_that_no_agent_would_follow_is_not_written() {
    let mut endless = stored("u", &json!({"b": "InProgress"}));
    endless.spec.node_timeout_seconds = 0;
    let mut etcd = stored("u", &json!({"b": "InProgress"}));
    etcd.spec.type_ = UpgradeType::Etcd;
    let mut unclear = stored("u", &json!({"b": "InProgress"}));
    unclear.spec.status.as_mut().unwrap().current_start_time = "yesterday".to_owned();
    for object in [endless, etcd, unclear] {
        assert_eq!(order("b", &object), None, "{object:?}");
    }
}

/// An order contains only the part of its reader's node, and the host gets it in the old form.
#[test]
fn the_order_has_the_part_of_its_node_alone() {
    let object = stored("u", &json!({"a": "InProgress", "b": "InProgress", "c": "Success"}));
    let written = serde_json::to_value(order("a", &object).unwrap()).unwrap();
    assert_eq!(
        written,
        json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "NodeUpgrade",
            "metadata": {"name": "a", "namespace": "containership-core", "ownerReferences": [
                {"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade", "name": "u", "uid": "uid-u"}]},
            "spec": {"upgrade": {"name": "u", "uid": "uid-u", "generation": 7}, "id": "u", "targetVersion": "v1.36.3",
                "nodeTimeoutSeconds": 600, "since": "2026-11-22T05:00:00Z"}})
    );
    for (node, since) in [
        ("a", "Sun Nov 22 05:00:00 UTC 2026"),
        ("b", "Sun Nov 22 05:29:17 UTC 2026"),
    ] {
        let host = read(&order(node, &object).unwrap(), &name(node));
        assert_eq!(form::id(&host), "u");
        let status = host.spec.status.unwrap();
        assert_eq!(
            (status.current_node.as_str(), status.current_start_time.as_str()),
            (node, since)
        );
        assert_eq!((status.node_statuses.len(), status.starts.len()), (1, 0));
    }
}
