//! The final state after a while without faults: every Node and every gauge is correct, and nothing is written any
//! more.

use std::time::Duration;

use serde_json::Value;
use tidewaiter_api::names::is_observed;
use tidewaiter_controller::node_controller::{ForeignLabels, OnForgery};
use tidewaiter_testkit::sim::{Verb, Write};

use crate::invariants::{REPLICA, Setter, condition, instance, is_forged, labels, recorded, taints};
use crate::truth::GROUPS;
use crate::world::{World, sleep};

/// Longer than any retry delay.
pub const SETTLES: Duration = Duration::from_mins(7);
/// Longer than a silent watch, followed by any retry delay.
pub const SETTLES_LATE: Duration = Duration::from_mins(12);

/// Checks every Node, its record, and the gauges that count them.
pub fn check(world: &World) {
    let (nodes, records) = world.server.read(|objects| {
        let nodes: Vec<Value> = objects.all("nodes").cloned().collect();
        let records: Vec<Value> = objects.all("nodeidentities").cloned().collect();
        (nodes, records)
    });
    let forged = nodes
        .iter()
        .filter(|node| (is_forged(node) && claims_running(world, node)) || is_quarantined(node, &records))
        .count();
    check_gauges(world, &nodes);
    for node in &nodes {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let record = records.iter().find(|record| record["metadata"]["name"] == name);
        for wrong in wrong(world, node, record, forged, nodes.len()) {
            world
                .invariants
                .violated(format!("at rest, {name}: {wrong}\n  node {node}\n  record {record:?}"));
        }
    }
}

/// Checks how many Nodes the leader counts, and how many of them as forged.
fn check_gauges(world: &World, nodes: &[Value]) {
    let metrics = world.leader_metrics();
    let counted = |series: &str| -> usize {
        let lines = metrics.lines().filter(|line| line.starts_with(series));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
            .sum()
    };
    let forged = nodes
        .iter()
        .filter(|node| is_forged(node) && claims_running(world, node))
        .count();
    for (series, expected) in [
        ("tidewaiter_nodes{", nodes.len()),
        ("tidewaiter_nodes{state=\"forged\"}", forged),
        ("tidewaiter_forged_nodes{", forged),
    ] {
        if counted(series) != expected {
            let violation = format!("at rest, {series} is {}, not {expected}: {metrics}", counted(series));
            world.invariants.violated(violation);
        }
    }
}

/// A quarantined Node counts as forged until it is proven, whatever the reason of its refusal.
fn is_quarantined(node: &Value, records: &[Value]) -> bool {
    let its = |record: &&Value| record["spec"]["nodeUID"] == node["metadata"]["uid"];
    let record = records.iter().find(its);
    record.is_some_and(|record| condition(record, "Quarantined")["status"] == "True")
}

fn claims_running(world: &World, node: &Value) -> bool {
    let claimed = node["spec"]["providerID"].as_str().and_then(crate::truth::claimed);
    claimed.is_some_and(|number| world.truth.lock().unwrap().instance(number).runs)
}

/// The errors in the final state of a Node.
fn wrong(world: &World, node: &Value, record: Option<&Value>, forged: usize, nodes: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let uid = node["metadata"]["uid"].as_str().unwrap_or_default();
    let there = labels(node);
    let set_by_us = |key: &str| {
        let seen = world.invariants.seen.lock().unwrap();
        let setter = seen.setters.get(uid).and_then(|setters| setters.get(key));
        setter == Some(&Setter::Us)
    };
    let verified = record.map(|record| condition(record, "Verified")["status"].clone());
    let Some(number) = instance(node).filter(|_| claims_running(world, node)) else {
        let never = !world.invariants.seen.lock().unwrap().verified.contains(uid);
        if let Some(key) = there.keys().find(|key| never && set_by_us(key)) {
            wrong.push(format!("it has our {key}, and was never proven"));
        }
        if is_forged(node) && claims_running(world, node) {
            let cleaned = world.policy.on_forgery == OnForgery::Quarantine && never && forged <= (nodes / 10).max(1);
            let truth = world.truth.lock().unwrap();
            if cleaned && let Some(key) = there.keys().find(|key| truth.needs_proof(key)) {
                wrong.push(format!("it is forged and keeps {key}"));
            }
            drop(truth);
            if cleaned && !taints(node).0 {
                wrong.push("it is forged and has no startup taint".to_owned());
            }
            if verified != Some("False".into()) {
                wrong.push(format!("it is forged, and its record says {verified:?}"));
            }
        }
        return wrong;
    };
    let truth = world.truth.lock().unwrap();
    let group = truth.instance(number).group;
    let before = world.invariants.seen.lock().unwrap().groups.get(uid).cloned();
    let held = before.filter(|before| before != GROUPS[group].0 && !world.invariants.follows(before, GROUPS[group].0));
    if let Some(before) = held {
        let said = record.map(|record| condition(record, "Verified"));
        if said.is_none_or(|said| said["status"] != "False" || said["reason"] != "GroupChanged") {
            wrong.push(format!("its group has changed, and its record says {said:?}"));
        }
        if record.is_none_or(|record| record["status"]["instanceGroup"] != before) {
            wrong.push(format!("its record names another group than {before}"));
        }
        return wrong;
    }
    let wanted = truth.wanted(group);
    for (key, value) in wanted {
        if there.get(key) != Some(value) {
            wrong.push(format!("it should have {key}={value}"));
        }
    }
    for key in there.keys().filter(|key| !wanted.contains_key(*key)) {
        let foreign = truth.wanted(1 - group).contains_key(key) && !is_observed(key);
        if set_by_us(key) {
            wrong.push(format!("it has our {key}, which its group does not define"));
        } else if foreign && world.policy.foreign_labels == ForeignLabels::Remove {
            wrong.push(format!("it has {key} of the other group"));
        }
    }
    if taints(node).0 {
        wrong.push("it has the startup taint".to_owned());
    }
    if verified != Some("True".into()) {
        wrong.push(format!("its record says {verified:?}"));
    }
    let held = recorded(record, uid);
    if !held.iter().copied().eq(wanted.keys().map(String::as_str)) {
        wrong.push(format!("its record holds {held:?}"));
    }
    if record.is_some_and(|record| record["metadata"]["ownerReferences"][0]["uid"] != uid) {
        wrong.push("its record has no owner".to_owned());
    }
    if record.is_some_and(|record| record["status"]["instanceGroup"] != GROUPS[group].0) {
        wrong.push("its record names another group".to_owned());
    }
    wrong
}

/// Checks that nothing is requested or written except watches, the Lease, and after 45 minutes repeated Events.
pub async fn check_quiet(world: &World, time: Duration) {
    let (writes, asked) = (world.server.writes().len(), world.server.requests().len());
    sleep(time).await;
    let is_lease = |write: &Write| write.resource == "leases";
    let is_repeated_event = |write: &Write| write.resource == "events" && time > Duration::from_mins(45);
    for write in world.server.writes().iter().skip(writes) {
        if !is_lease(write) && !is_repeated_event(write) {
            world
                .invariants
                .violated(format!("written although nothing happens: {write}"));
        }
    }
    for asked in world.server.requests().iter().skip(asked) {
        let goes_on = asked.verb == Verb::Watch || asked.resource == "leases" || asked.resource == "events";
        if asked.by.starts_with(REPLICA) && !goes_on {
            world
                .invariants
                .violated(format!("asked although nothing happens: {asked:?}"));
        }
    }
}
