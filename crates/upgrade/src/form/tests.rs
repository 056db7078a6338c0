use serde_json::{Value, json};

use super::*;
use crate::testing::name;

fn object(spec: &Value) -> ClusterUpgrade {
    let meta = json!({"name": "u", "uid": "1", "generation": 7, "labels": {MANAGED_LABEL: "true"}, "creationTimestamp": "2026-11-22T05:00:00Z"});
    let mut object = json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade", "metadata": meta,
        "spec": {"type": "kubernetes", "targetVersion": "v1.36.3", "nodeTimeoutSeconds": 600}});
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

#[test]
fn what_the_go_coordinator_wrote_is_read_and_written_as_it_was() {
    let status = json!({"clusterStatus": "InProgress", "nodeStatuses": {"node-1": "Success", "node-2": "InProgress", "node-3": "Failed"},
        "currentNode": "node-2", "currentStartTime": "Sun Nov 22 05:29:17 UTC 2026"});
    let upgrade = read(&object(&json!({ "status": status })));
    let since = Some("2026-11-22T05:29:17Z".parse().unwrap());
    assert_eq!(
        (upgrade.generation, upgrade.managed, upgrade.uid.as_str()),
        (7, true, "1")
    );
    assert_eq!(upgrade.progress.nodes[&name("node-2")], NodeState::InProgress { since });
    assert_eq!(serde_json::to_value(write(&upgrade.progress)).unwrap(), status);
    assert_eq!(upgrade.spec.unwrap().timeout, SignedDuration::from_mins(10));
}

#[test]
fn without_a_policy_one_failed_node_ends_it_and_a_node_must_be_ready_for_half_a_minute() {
    let policy = |spec: Value| read(&object(&spec)).spec.unwrap().policy;
    let defaults = || Policy {
        max_failures: Some(1),
        min_ready: SignedDuration::from_secs(30),
        ..Policy::default()
    };
    assert_eq!(policy(json!({})), defaults());
    assert_eq!(policy(json!({"policy": {}})), defaults());
    let window = json!({"days": ["Sat"], "start": "22:00", "end": "04:00"});
    let set = policy(
        json!({"policy": {"paused": true, "aborted": true, "maxFailures": 2, "minReadySeconds": 5, "requireHealthy": true, "maxUnavailable": "25%",
        "maintenanceWindows": [window]}}),
    );
    let expected = Policy {
        paused: true,
        aborted: true,
        max_failures: Some(2),
        min_ready: SignedDuration::from_secs(5),
        max_unavailable: Some(PoolLimit::Percent(25)),
        require_healthy: true,
        windows: Windows::new(&[serde_json::from_value(window).unwrap()]).unwrap(),
        drain: None,
        canary: None,
    };
    assert_eq!(set, expected);
}

#[test]
fn drain_canaries_and_what_they_record_are_read_and_written() {
    let drain = |policy: Value| read(&object(&json!({ "policy": policy }))).spec.unwrap().policy.drain;
    let minutes = |timeout, force| {
        let timeout = SignedDuration::from_mins(timeout);
        Some(DrainPolicy { timeout, force })
    };
    assert_eq!(drain(json!({"drain": true})), minutes(10, false));
    let forced = json!({"drain": true, "drainTimeoutSeconds": 60, "onDrainTimeout": "force"});
    assert_eq!(drain(forced), minutes(1, true));
    assert_eq!(drain(json!({"drainTimeoutSeconds": 60})), None);
    let canary = |policy: Value| read(&object(&json!({ "policy": policy }))).spec.unwrap().policy.canary;
    let expected = |nodes, soak| {
        let soak = SignedDuration::from_secs(soak);
        Some(CanaryPolicy { nodes, soak })
    };
    assert_eq!(canary(json!({"canary": 2})), expected(2, 600));
    assert_eq!(canary(json!({"canary": 1, "soakSeconds": 60})), expected(1, 60));
    assert_eq!(canary(json!({"soakSeconds": 60})), None);
    let cordons = json!({"a": {"since": "2026-11-22T05:29:17Z", "before": true}, "b": {"since": "2026-11-22T05:30:00Z", "before": false}});
    let status = json!({"clusterStatus": "InProgress", "nodeStatuses": {}, "currentNode": "", "currentStartTime": "", "cordons": cordons,
        "postponed": {"a": {"since": "2026-11-22T05:34:00Z"}},
        "verifying": {"a": {"since": "2026-11-22T05:32:00Z"}}, "fallenBack": {"b": {"since": "2026-11-22T05:33:00Z"}}, "soakingSince": "2026-11-22T05:31:00Z"});
    let progress = read(&object(&json!({ "status": status }))).progress;
    assert!(progress.cordons[&name("a")].before && !progress.cordons[&name("b")].before);
    assert_eq!(serde_json::to_value(write(&progress)).unwrap(), status);
}

#[test]
fn each_of_several_nodes_in_progress_has_its_start() {
    let status = json!({"clusterStatus": "InProgress", "nodeStatuses": {"a": "InProgress", "b": "InProgress", "c": "Success"},
        "currentNode": "b", "currentStartTime": "Sun Nov 22 05:29:17 UTC 2026", "starts": {"a": {"since": "2026-11-22T05:00:00Z"}}});
    let mut progress = read(&object(&json!({ "status": status }))).progress;
    let since = |time: &str| NodeState::InProgress {
        since: Some(time.parse().unwrap()),
    };
    assert_eq!(progress.nodes[&name("a")], since("2026-11-22T05:00:00Z"));
    assert_eq!(progress.nodes[&name("b")], since("2026-11-22T05:29:17Z"));
    assert_eq!(serde_json::to_value(write(&progress)).unwrap(), status);
    // The one that was started last is done: the other one is current.
    progress.apply(&crate::Order::Succeed(name("b")), Timestamp::UNIX_EPOCH);
    let written = write(&progress);
    assert_eq!((written.current_node.as_str(), written.starts.len()), ("a", 0));
    assert_eq!(written.current_start_time, "Sun Nov 22 05:00:00 UTC 2026");
    let limit = |value: Value| {
        let policy = json!({"policy": {"maxUnavailable": value}});
        read(&object(&policy)).spec.unwrap().policy.max_unavailable.unwrap()
    };
    for (value, size, expected) in [
        (json!(3), 2, 3),
        (json!(0), 2, 1),
        (json!("25%"), 8, 2),
        (json!("25%"), 7, 1),
        (json!("25%"), 1, 1),
        (json!("100%"), 7, 7),
    ] {
        assert_eq!(limit(value.clone()).of(size), expected, "{value} of {size}");
    }
}

#[test]
fn a_progress_that_is_half_written_is_read() {
    let progress = |status: Value| read(&object(&json!({ "status": status }))).progress;
    let none = NodeState::InProgress { since: None };
    let current = progress(
        json!({"clusterStatus": "InProgress", "nodeStatuses": null, "currentNode": "a", "currentStartTime": "soon"}),
    );
    assert_eq!((current.current, &current.nodes[&name("a")]), (Some(name("a")), &none));
    let other =
        progress(json!({"clusterStatus": "InProgress", "nodeStatuses": {"a": "InProgress", "b": "", "B/": "Failed"}}));
    assert_eq!((other.current, other.nodes.len()), (None, 1));
    let done = progress(json!({"clusterStatus": "InProgress", "nodeStatuses": {"a": "Success"}, "currentNode": "a"}));
    assert_eq!((done.current, &done.nodes[&name("a")]), (None, &NodeState::Success));
    let over = progress(json!({"clusterStatus": "Failed", "nodeStatuses": {"a": "Failed"}, "currentNode": "b"}));
    assert_eq!((over.current, over.nodes.len()), (None, 1));
    assert_eq!(read(&object(&json!({}))).progress, Progress::default());
}

#[test]
fn what_cannot_be_done_is_refused_with_a_remedy() {
    for (spec, why) in [
        (json!({"type": "etcd"}), "spec.type is etcd, which is not supported"),
        (
            json!({"nodeTimeoutSeconds": 0}),
            "spec.nodeTimeoutSeconds is 0, not from 1 to 86400",
        ),
        (
            json!({"nodeTimeoutSeconds": i64::MAX}),
            "spec.nodeTimeoutSeconds is 9223372036854775807, not from 1 to 86400",
        ),
        (
            json!({"targetVersion": "1.36"}),
            "spec.targetVersion: \"1.36\" is no version of Kubernetes",
        ),
        (
            json!({"labelSelector": [{"label": "a", "operator": "in", "value": null}]}),
            "spec.labelSelector: the operator for the label a takes at least one value",
        ),
        (
            json!({"policy": {"maxUnavailable": "101%"}}),
            "spec.policy.maxUnavailable is \"101%\", not a number or a percentage such as 25%. Create another upgrade with a correct one.",
        ),
        (
            json!({"policy": {"maintenanceWindows": [{"start": "noon", "end": "13:00"}]}}),
            "spec.policy.maintenanceWindows[0].start is \"noon\", not a time of day such as 22:00. Create another upgrade with a correct one.",
        ),
    ] {
        let refused = read(&object(&spec)).spec.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
