//! The triggers of the NodeController.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use proptest::prelude::*;
use serde_json::{Value, json};
use tidewaiter_api::Lifecycle;
use tidewaiter_api::names::UNIDENTIFIED_TAINT;
use tidewaiter_identity::lookup::DOUBTED_AGE;
use tidewaiter_identity::{AnswerFn, Claim, Identifier, Identity, LookupSettings};
use tidewaiter_kit::{Feed, Kit, ManualClock};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::node_controller::observe::Claimed;

fn node(value: Value) -> Node {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_heartbeat_is_the_same_node() {
    let before = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": {"providerID": "aws:///a/i-1"},
        "status": {"conditions": [{"type": "Ready", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}});
    let mut after = before.clone();
    after["metadata"]["resourceVersion"] = json!("2");
    after["status"]["conditions"][0]["status"] = json!("True");
    after["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]);
    assert!(same_to_the_plan(&node(before.clone()), &node(after)));
    for (pointer, value) in [
        ("/metadata/uid", json!("v")),
        ("/metadata/labels", json!({"a": "b"})),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/spec/providerID", json!("aws:///a/i-2")),
        (
            "/spec/taints",
            json!([{"key": UNIDENTIFIED_TAINT, "effect": "NoSchedule"}]),
        ),
        (
            "/status/addresses",
            json!([{"type": "InternalIP", "address": "10.0.0.1"}]),
        ),
        ("/status/nodeInfo", json!({"bootID": "b"})),
    ] {
        let mut changed = before.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[key] = value;
        assert!(!same_to_the_plan(&node(before.clone()), &node(changed)), "{pointer}");
    }
}

/// Confirms every claim, and counts them.
struct Counting(AtomicUsize);

#[async_trait]
impl Identifier for Counting {
    fn scheme(&self) -> &'static str {
        "gce"
    }

    fn max_batch(&self) -> usize {
        1
    }

    async fn identify(&self, claims: &[Claim], answers: &AnswerFn<'_>) {
        for (place, claim) in claims.iter().enumerate() {
            self.0.fetch_add(1, Ordering::Relaxed);
            let identity = Identity {
                instance: "z/n".to_owned(),
                group: "nodes".parse().unwrap(),
                starting: false,
                zone: "z".to_owned(),
                lifecycle: Lifecycle::OnDemand,
                names: vec![claim.node.to_string()],
                addresses: Vec::new(),
                tag_labels: Vec::new(),
            };
            answers(place, Ok(identity));
        }
    }
}

/// An instance that was created again under its name has the same providerID on Google Cloud, and its Node may
/// stay.
#[tokio::test]
async fn a_machine_that_changes_is_asked_about_again() {
    for (provider_id, system_uuid, boot_id, expected) in [
        ("gce://p-roject/z-a/n", "one", "one", 1),
        ("gce://p-roject/z-a/n", "two", "one", 2),
        ("gce://p-roject/z-a/n", "one", "two", 2),
        // An id is never used again.
        ("hcloud://42", "two", "two", 1),
    ] {
        let clock = ManualClock::default();
        let kit = Kit::new(clock.shared()).unwrap();
        let (mut feed, nodes) = Feed::<Node>::new(&kit);
        let identifier = Arc::new(Counting(AtomicUsize::new(0)));
        let lookup = Lookup::new(
            Arc::<Counting>::clone(&identifier),
            clock.shared(),
            LookupSettings::default(),
        );
        let lookup = Arc::new(lookup);
        nodes.notify(forgets(Arc::clone(&lookup)));
        let node = |system_uuid: &str, boot_id: &str, version: &str| {
            node(
                json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": version}, "spec": {"providerID": provider_id},
                "status": {"nodeInfo": {"systemUUID": system_uuid, "bootID": boot_id}}}),
            )
        };
        let claim = |node: &Node| Claimed::read(node, std::iter::empty()).unwrap().claim.unwrap().unwrap();
        let (before, after) = (node("one", "one", "1"), node(system_uuid, boot_id, "2"));
        let asked = async {
            feed.list([before.clone()]);
            lookup.identify(claim(&before)).await.unwrap();
            clock.advance(DOUBTED_AGE);
            feed.put(after.clone());
            lookup.identify(claim(&after)).await.unwrap();
        };
        tokio::select! {
            () = asked => {}
            _ = Arc::clone(&lookup).run(CancellationToken::new(), |_| (), || false) => unreachable!("nobody stops it"),
        }
        let claims = identifier.0.load(Ordering::Relaxed);
        assert_eq!(claims, expected, "{provider_id} {system_uuid} {boot_id}");
    }
}

/// A change of the cluster: a Node is created or changed, or deleted; a record likewise.
#[derive(Clone, Debug)]
enum Step {
    Node { node: usize, claim: usize, label: usize },
    NodeGone(usize),
    Record { node: usize, group: usize },
    RecordGone(usize),
}

const NODES: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..NODES, 0..3_usize, 0..2_usize).prop_map(|(node, claim, label)| Step::Node { node, claim, label }),
        1 => (0..NODES).prop_map(Step::NodeGone),
        2 => (0..NODES, 0..2_usize).prop_map(|(node, group)| Step::Record { node, group }),
        1 => (0..NODES).prop_map(Step::RecordGone),
    ]
}

fn a_node(number: usize, claim: usize, label: usize, version: usize) -> Node {
    let claims = ["", "aws:///a/i-1", "aws:///a/i-2"];
    node(
        json!({"metadata": {"name": format!("n{number}"), "uid": format!("uid-{number}"), "resourceVersion": version.to_string(),
        "labels": {"a": label.to_string()}}, "spec": {"providerID": claims[claim]}}),
    )
}

fn a_record(number: usize, group: usize, version: usize) -> Record {
    serde_json::from_value(
        json!({"metadata": {"name": format!("n{number}"), "uid": format!("r-{number}"),
        "resourceVersion": version.to_string()}, "spec": {"nodeUID": format!("uid-{number}"), "providerID": ""},
        "status": {"instanceGroup": format!("group-{group}")}}),
    )
    .unwrap()
}

/// Returns the cluster's part of the observation of a pass over a Node.
fn observed(nodes: &Cache<Node>, records: &Cache<Record>, claims: &Index<Box<str>>, number: usize) -> impl PartialEq {
    let key = Key::new(&format!("n{number}"));
    let node = nodes.get(&key);
    let rivals = node
        .as_deref()
        .and_then(Node::claim)
        .map(|claim| claims.keys(&claim.into()));
    let claimed = node.as_deref().map(|node| {
        let rivals = rivals.iter().flatten().filter(|other| **other != key).map(Key::name);
        Claimed::read(node, rivals).ok()
    });
    let labels = node.map(|node| node.labels().clone());
    let record = records
        .get(&key)
        .map(|record| (record.spec.clone(), record.status.clone()));
    (claimed, labels, record)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The trigger graph: whatever changes an observation of a Node queues that Node.
    #[test]
    fn whatever_changes_an_observation_queues_the_node(steps in proptest::collection::vec(step(), 1..30)) {
        let kit = Kit::new(ManualClock::default().shared()).unwrap();
        let (mut node_feed, nodes) = Feed::<Node>::new(&kit);
        let (mut record_feed, records) = Feed::<Record>::new(&kit);
        let queue = Queue::new();
        let claims = wire(&nodes, &records, &queue);
        node_feed.list([]);
        record_feed.list([]);
        for (version, step) in steps.into_iter().enumerate() {
            let before: Vec<_> = (0..NODES).map(|number| observed(&nodes, &records, &claims, number)).collect();
            match step {
                Step::Node { node, claim, label } => node_feed.put(a_node(node, claim, label, version)),
                Step::NodeGone(node) => node_feed.delete(a_node(node, 0, 0, version)),
                Step::Record { node, group } => record_feed.put(a_record(node, group, version)),
                Step::RecordGone(node) => record_feed.delete(a_record(node, 0, version)),
            }
            let queued: Vec<Key> = std::iter::from_fn(|| queue.try_next()).collect();
            for (number, before) in before.into_iter().enumerate() {
                let key = Key::new(&format!("n{number}"));
                let changed = before != observed(&nodes, &records, &claims, number);
                prop_assert!(!changed || queued.contains(&key), "{key} was not queued");
            }
        }
    }
}
