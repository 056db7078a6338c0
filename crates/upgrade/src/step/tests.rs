use super::*;
use crate::observation::{Health, HostReport, PoolLimit};
use crate::refusal::Refusal;
use crate::testing::{MINUTE, at, in_progress, name, nodes, observation, says, upgrade, version};
use crate::window::Windows;

fn of(upgrade: &Upgrade, all: &str, seconds: i64) -> String {
    says(&observation(upgrade, &[], &nodes(all), &version("v1.36.3"), seconds))
}

const OLD: &str = "cp=v1.35.4 cp2=v1.35.4 w1=v1.35.4 w2=v1.35.4";

#[test]
fn an_upgrade_begins_when_nothing_speaks_against_it() {
    assert_eq!(of(&upgrade("u"), OLD, 0), "begin");
    let unmanaged = Upgrade {
        managed: false,
        ..upgrade("u")
    };
    assert!(of(&unmanaged, OLD, 0).starts_with("wait: the label containership.io/managed=true is missing"));
    let refused = Upgrade {
        spec: Err(Refusal::Etcd),
        ..upgrade("u")
    };
    assert!(of(&refused, OLD, 0).starts_with("finish Failed (spec.type is etcd"));
    assert!(
        of(&upgrade("u"), "cp=v1.34.0", 0)
            .starts_with("finish Failed (cp is at v1.34.0: an upgrade to v1.36.3 would skip")
    );
}

#[test]
fn the_control_plane_goes_first_one_at_a_time_and_then_the_workers() {
    for (states, all, expected) in [
        ("", OLD, "start cp; wait: upgrading cp"),
        ("cp=InProgress", OLD, "wait: upgrading cp"),
        // The version alone is not enough.
        ("cp=InProgress", "cp!=v1.36.3 cp2=v1.35.4", "wait: upgrading cp"),
        (
            "cp=InProgress",
            "cp=v1.36.3 cp2=v1.35.4 w1=v1.35.4",
            "succeed cp; start cp2; wait: upgrading cp2",
        ),
        (
            "cp=Success cp2=InProgress",
            "cp=v1.36.3 cp2=v1.36.3 w1=v1.35.4 w2=v1.35.4",
            "succeed cp2; start w1; wait: upgrading w1",
        ),
        (
            "cp=Success w1=InProgress",
            "cp=v1.36.3 w1=v1.36.3 w2=v1.35.4",
            "succeed w1; start w2; wait: upgrading w2",
        ),
        // Nodes that are at the version are left alone, Ready or not; added ones are upgraded, the control plane first.
        (
            "cp=Success",
            "cp=v1.36.3 w1!=v1.36.3 w2=v1.35.4",
            "start w2; wait: upgrading w2",
        ),
        (
            "cp=Success w1=InProgress",
            "cp=v1.36.3 cp9=v1.35.4 w1=v1.36.3 w2=v1.35.4",
            "succeed w1; start cp9; wait: upgrading cp9",
        ),
        (
            "cp=Success w2=InProgress",
            "cp=v1.36.3 w2=v1.36.3",
            "succeed w2; finish Success (every selected node is at the version)",
        ),
        (
            "",
            "cp=v1.36.3 w1=v1.36.3",
            "finish Success (every selected node is at the version)",
        ),
        // A node that is gone is not started. One that is gone while it is in progress fails at its deadline.
        (
            "cp=Success w1=InProgress",
            "cp=v1.36.3 w2=v1.35.4",
            "wait: upgrading w1",
        ),
    ] {
        assert_eq!(of(&in_progress("u", states), all, 599), expected, "{states} with {all}");
    }
}

#[test]
fn a_node_fails_at_its_deadline_and_the_upgrade_goes_on() {
    for (all, expected) in [
        (
            "cp=v1.36.3 w1=v1.35.4 w2=v1.35.4",
            "fail w1 (after nodeTimeoutSeconds its kubelet is at v1.35.4, and the node is Ready); start w2; wait: upgrading w2",
        ),
        (
            "cp=v1.36.3 w1!=v1.36.3 w2=v1.35.4",
            "fail w1 (it is at the version, and did not become Ready within nodeTimeoutSeconds); start w2; wait: upgrading w2",
        ),
        (
            "cp=v1.36.3 w1!=? w2=v1.35.4",
            "fail w1 (after nodeTimeoutSeconds its kubelet is at no known version, and the node is not Ready); start w2; wait: upgrading w2",
        ),
        (
            "cp=v1.36.3",
            "fail w1 (after nodeTimeoutSeconds its kubelet is at no known version, and the node is not Ready); finish Failed (one node failed; no other selected node is left to upgrade)",
        ),
    ] {
        assert_eq!(
            of(&in_progress("u", "cp=Success w1=InProgress"), all, 600),
            expected,
            "{all}"
        );
    }
    let both = in_progress("u", "cp=Success w1=Failed w2=Failed");
    assert_eq!(
        of(&both, "cp=v1.36.3 w1=v1.35.4 w2=v1.35.4", 0),
        "finish Failed (2 nodes failed; no other selected node is left to upgrade)"
    );
}

#[test]
fn workers_do_not_overtake_a_control_plane_that_failed() {
    let upgrade = in_progress("u", "cp=Failed");
    let minor = "finish Failed (the control plane is at v1.35.4, and a kubelet must not be of a newer minor version (v1.36.3). Upgrade the control plane first.)";
    assert_eq!(of(&upgrade, "cp=v1.35.4 w1=v1.35.4", 0), minor);
    assert_eq!(
        of(&upgrade, "cp=v1.36.0 w1=v1.36.0", 0),
        "start w1; wait: upgrading w1",
        "a patch version may differ"
    );
    // Outside kubeadm nobody sees the pods of the control plane: the API server tells its version itself.
    let (done, all) = (in_progress("u", "cp=Success"), nodes("cp=v1.36.3 w1=v1.35.4"));
    let old = version("v1.35.4");
    assert_eq!(says(&observation(&done, &[], &all, &old, 0)), minor);
}

#[test]
fn a_node_that_does_not_fit_fails_without_a_script() {
    let mut upgrade = in_progress("u", "cp=Success");
    upgrade.spec.as_mut().unwrap().policy.max_failures = Some(1);
    // The others first: what the kubelet of one node says ends no upgrade of others.
    let said = of(&upgrade, "cp=v1.36.3 w1=v1.36.4 w2=v1.33.0 w3=v1.35.4", 0);
    assert_eq!(said, "start w3; wait: upgrading w3");
    let started = in_progress("u", "cp=Success w3=InProgress");
    upgrade.progress = started.progress;
    let said = of(&upgrade, "cp=v1.36.3 w1=v1.36.4 w2=v1.33.0 w3=v1.36.3", 0);
    let newer = "fail w1 (no script was run: w1 is at v1.36.4, which is newer than v1.36.3, and a version never goes down. Leave the node out with spec.labelSelector.)";
    let older = "fail w2 (no script was run: w2 is at v1.33.0: an upgrade to v1.36.3 would skip a minor version. Upgrade it to v1.34 first.)";
    let ends = "finish Failed (2 nodes failed; no other selected node is left to upgrade)";
    assert_eq!(said, format!("succeed w3; {newer}; {older}; {ends}"));
}

#[test]
fn one_upgrade_at_a_time() {
    let all = nodes("cp=v1.35.4 w1=v1.35.4");
    let api_server = version("v1.36.3");
    let younger = |upgrade: Upgrade| Upgrade {
        created: Some(at(1)),
        ..upgrade
    };
    for (mine, other, expected) in [
        // Neither has begun: the older one goes first, then the first by name.
        (upgrade("b"), upgrade("a"), "wait: the upgrade a goes first"),
        (upgrade("a"), upgrade("b"), "begin"),
        (upgrade("b"), younger(upgrade("a")), "begin"),
        (younger(upgrade("a")), upgrade("b"), "wait: the upgrade b goes first"),
        // One that cannot begin keeps no other from it.
        (
            upgrade("b"),
            Upgrade {
                managed: false,
                ..upgrade("a")
            },
            "begin",
        ),
        (upgrade("a"), in_progress("b", ""), "wait: the upgrade b goes first"),
        // Both have a claim.
        (
            in_progress("a", ""),
            in_progress("b", ""),
            "wait: the upgrade b goes first",
        ),
        (in_progress("b", ""), in_progress("a", ""), "withdraw"),
        (in_progress("a", ""), in_progress("b", "cp=Failed"), "withdraw"),
        (
            in_progress("b", "cp=Success"),
            in_progress("a", ""),
            "start w1; wait: upgrading w1",
        ),
        // The Go coordinator may have left two: each settles its node, and the first one goes on.
        (
            in_progress("a", "w1=Failed"),
            in_progress("b", "cp=InProgress"),
            "start cp; wait: upgrading cp",
        ),
        (
            in_progress("b", "w1=Failed"),
            in_progress("a", "cp=InProgress"),
            "wait: the upgrade a goes first",
        ),
    ] {
        let others = [mine.clone(), other.clone()];
        let all = if expected.contains("w1") {
            nodes("cp=v1.36.3 w1=v1.35.4")
        } else {
            all.clone()
        };
        let seen = observation(&mine, &others, &all, &api_server, 0);
        let progress = (&mine.progress.nodes, &other.progress.nodes);
        assert_eq!(
            says(&seen),
            expected,
            "{} {progress:?} beside {}",
            mine.name,
            other.name
        );
    }
}

#[test]
fn the_operator_pauses_aborts_and_limits_failures() {
    let with = |mut upgrade: Upgrade, change: fn(&mut crate::Policy)| {
        change(&mut upgrade.spec.as_mut().unwrap().policy);
        upgrade
    };
    let all = "cp=v1.36.3 w1=v1.35.4 w2=v1.35.4";
    for (upgrade, expected) in [
        (
            with(upgrade("u"), |policy| policy.paused = true),
            "wait: spec.policy.paused is set; remove it to continue",
        ),
        (
            with(in_progress("u", "cp=Success"), |policy| policy.paused = true),
            "wait: spec.policy.paused is set; remove it to continue",
        ),
        (
            with(in_progress("u", "w1=InProgress"), |policy| policy.paused = true),
            "wait: upgrading w1",
        ),
        (
            with(in_progress("u", "w1=Success w2=Success"), |policy| policy.paused = true),
            "finish Success (every selected node is at the version)",
        ),
        (
            with(upgrade("u"), |policy| policy.aborted = true),
            "finish Failed (it was aborted (spec.policy.aborted) or deleted; nodes that were not started stay as they are)",
        ),
        (
            with(in_progress("u", "w1=InProgress"), |policy| policy.aborted = true),
            "wait: aborted (spec.policy.aborted) or deleted: it starts no further node, and is still upgrading w1",
        ),
        (
            with(in_progress("u", "w1=Success"), |policy| policy.aborted = true),
            "finish Failed (it was aborted (spec.policy.aborted) or deleted; nodes that were not started stay as they are)",
        ),
        (
            with(in_progress("u", "w1=Failed"), |policy| policy.max_failures = Some(2)),
            "start w2; wait: upgrading w2",
        ),
        (
            with(in_progress("u", "w1=Failed"), |policy| policy.max_failures = Some(1)),
            "finish Failed (one node failed, and spec.policy.maxFailures is reached; nodes that were not started stay as they are)",
        ),
    ] {
        assert_eq!(of(&upgrade, all, 0), expected);
    }
}

/// 2001-09-09T01:46:40Z is the time 0.
#[test]
fn nodes_are_started_within_a_window_alone() {
    let window = |start: &str, end: &str| {
        let window = serde_json::json!({"start": start, "end": end});
        Windows::new(&[serde_json::from_value(window).unwrap()]).unwrap()
    };
    let with = |mut upgrade: Upgrade, start: &str, end: &str| {
        upgrade.spec.as_mut().unwrap().policy.windows = window(start, end);
        upgrade
    };
    let all = "cp=v1.36.3 w1=v1.35.4 w2=v1.35.4";
    let waits = "wait: the next maintenance window opens at 2001-09-09T02:00:00+00:00[UTC]";
    for (upgrade, all, expected) in [
        (with(upgrade("u"), "01:00", "02:00"), all, "begin"),
        (with(upgrade("u"), "02:00", "03:00"), all, waits),
        // An invalid upgrade is refused at once.
        (
            with(upgrade("u"), "02:00", "03:00"),
            "cp=v1.36.4",
            "finish Failed (cp is at v1.36.4, which is newer than v1.36.3, and a version never goes down. Leave the node out with spec.labelSelector.)",
        ),
        (with(in_progress("u", "cp=Success"), "02:00", "03:00"), all, waits),
        (
            with(in_progress("u", "cp=Success"), "01:00", "02:00"),
            all,
            "start w1; wait: upgrading w1",
        ),
        (
            with(in_progress("u", "w1=InProgress"), "02:00", "03:00"),
            all,
            "wait: upgrading w1",
        ),
        (
            with(in_progress("u", "w1=InProgress"), "02:00", "03:00"),
            "cp=v1.36.3 w1=v1.36.3 w2=v1.35.4",
            "succeed w1; wait: the next maintenance window opens at 2001-09-09T02:00:00+00:00[UTC]",
        ),
        (
            with(in_progress("u", "w1=Success w2=Success"), "02:00", "03:00"),
            all,
            "finish Success (every selected node is at the version)",
        ),
    ] {
        assert_eq!(of(&upgrade, all, 0), expected);
    }
    let (upgrade, api_server, all) = (with(upgrade("b"), "02:00", "03:00"), version("v1.36.3"), nodes(all));
    let opens = Some("2001-09-09T02:00:00Z".parse().unwrap());
    assert_eq!(step(&observation(&upgrade, &[], &all, &api_server, 0)).wake, opens);
    let begun = Upgrade {
        progress: in_progress("b", "cp=Success").progress,
        ..upgrade.clone()
    };
    assert_eq!(step(&observation(&begun, &[], &all, &api_server, 0)).wake, opens);
    // It keeps no other from its turn until then.
    let (other, waiting) = (crate::testing::upgrade("c"), [upgrade]);
    assert_eq!(says(&observation(&other, &waiting, &all, &api_server, 0)), "begin");
    assert_eq!(
        says(&observation(&other, &waiting, &all, &api_server, 800)),
        "wait: the upgrade b goes first"
    );
}

#[test]
fn nodes_are_started_while_the_cluster_is_healthy_alone_if_that_is_required() {
    let cluster = Health {
        unhealthy: Some("the ClusterHealth k says: 1 of 3 control-plane nodes is missing".to_owned()),
        ..Health::default()
    };
    let etcd = Health {
        etcd_failed: true,
        ..Health::default()
    };
    let healthy = Health::default();
    let unknown = Health {
        is_unknown: true,
        ..Health::default()
    };
    for (all, health, expected) in [
        ("cp=v1.36.3 w1=v1.35.4", &unknown, Some("its health cannot be read")),
        ("cp=v1.36.3 w1=v1.35.4", &healthy, None),
        ("cp=v1.36.3 w1!=v1.35.4", &healthy, Some("the Node w1 is not Ready")),
        (
            "a!=v1.36.3 b!=v1.36.3 c!=v1.36.3 d!=v1.36.3 e!=v1.36.3 f!=v1.35.4",
            &etcd,
            Some("6 Nodes are not Ready: a, b, c, d, e and 1 more"),
        ),
        (
            "cp=v1.36.3 w1=v1.35.4",
            &etcd,
            Some("etcd does not answer the API server"),
        ),
        (
            "cp=v1.36.3 w1=v1.35.4",
            &cluster,
            Some("the ClusterHealth k says: 1 of 3 control-plane nodes is missing"),
        ),
    ] {
        let (all, api_server) = (nodes(all), version("v1.36.3"));
        for require_healthy in [false, true] {
            for mut upgrade in [upgrade("u"), in_progress("u", "gone=Success")] {
                upgrade.spec.as_mut().unwrap().policy.require_healthy = require_healthy;
                let seen = Observation {
                    health,
                    ..observation(&upgrade, &[], &all, &api_server, 0)
                };
                let said = says(&seen);
                match expected.filter(|_| require_healthy) {
                    Some(why) => {
                        assert_eq!(
                            said,
                            format!("wait: the cluster must be healthy (spec.policy), and {why}")
                        );
                        assert_eq!(step(&seen).wake, Some(at(10)), "it is looked at again");
                    }
                    None => assert!(said.starts_with("begin") || said.starts_with("start "), "{said}"),
                }
            }
        }
    }
    // A node that is in progress is settled.
    let mut upgrade = in_progress("u", "w1=InProgress");
    upgrade.spec.as_mut().unwrap().policy.require_healthy = true;
    let all = "cp=v1.36.3 w1!=v1.36.3 w2=v1.35.4";
    assert_eq!(of(&upgrade, all, 0), "wait: upgrading w1");
    let failed = "fail w1 (it is at the version, and did not become Ready within nodeTimeoutSeconds)";
    let waits = "wait: the cluster must be healthy (spec.policy), and the Node w1 is not Ready";
    assert_eq!(of(&upgrade, all, 600), format!("{failed}; {waits}"));
}

/// Workers with `parallel` agents but those in `old`; the node pool is what follows the last `-` of the name.
#[test]
fn several_workers_at_once_only_as_the_policy_and_their_agents_permit() {
    let with = |states: &str, limit: Option<PoolLimit>| {
        let mut upgrade = in_progress("u", states);
        upgrade.spec.as_mut().unwrap().policy.max_unavailable = limit;
        upgrade
    };
    let (one, two, half) = (PoolLimit::Nodes(1), PoolLimit::Nodes(2), PoolLimit::Percent(50));
    let workers = "a1-x=v1.35.4 a2-x=v1.35.4 a3-x=v1.35.4 b1-y=v1.35.4 b2-y=v1.35.4";
    for (states, limit, old, more, expected) in [
        ("", None, "", "", "start a1-x; wait: upgrading a1-x"),
        (
            "",
            Some(one),
            "",
            "",
            "start a1-x; start b1-y; wait: upgrading a1-x, b1-y",
        ),
        (
            "",
            Some(two),
            "",
            "",
            "start a1-x; start a2-x; start b1-y; start b2-y; wait: upgrading a1-x, a2-x, b1-y, b2-y",
        ),
        // Half of three is one.
        (
            "",
            Some(half),
            "",
            "",
            "start a1-x; start b1-y; wait: upgrading a1-x, b1-y",
        ),
        (
            "a1-x=InProgress b1-y=Success",
            Some(one),
            "",
            "",
            "start b2-y; wait: upgrading a1-x, b2-y",
        ),
        // An old agent looks at `currentNode`, so its node is alone.
        ("", Some(two), "a1-x", "", "start a1-x; wait: upgrading a1-x"),
        ("a2-x=InProgress", Some(two), "a2-x", "", "wait: upgrading a2-x"),
        (
            "",
            Some(two),
            "a2-x",
            "",
            "start a1-x; start a3-x; start b1-y; start b2-y; wait: upgrading a1-x, a3-x, b1-y, b2-y",
        ),
        (
            "a1-x=Success a3-x=InProgress b1-y=Success b2-y=Success",
            Some(two),
            "a2-x",
            "",
            "wait: upgrading a3-x",
        ),
        // The control plane is alone, and so is a node that is gone.
        ("", Some(two), "", "cp2=v1.35.4", "start cp2; wait: upgrading cp2"),
        ("cp2=InProgress", Some(two), "", "cp2=v1.35.4", "wait: upgrading cp2"),
        ("gone=InProgress", Some(two), "", "", "wait: upgrading gone"),
    ] {
        let mut all = nodes(&format!("{workers} cp=v1.36.3 {more}"));
        for node in &mut all {
            node.parallel = node.name.as_str() != old;
            if let Some((_, pool)) = node.name.as_str().split_once('-') {
                let label = tidewaiter_api::names::NODE_POOL_LABEL.to_owned();
                node.labels.insert(label, pool.to_owned());
            }
            let is_done = states.contains(&format!("{}=Success", node.name));
            if is_done {
                node.kubelet = "v1.36.3".parse().ok();
            }
        }
        let (upgrade, api_server) = (with(states, limit), version("v1.36.3"));
        let said = says(&observation(&upgrade, &[], &all, &api_server, 0));
        assert_eq!(said, expected, "{states} with {limit:?}, old: {old}");
    }
}

#[test]
fn a_start_that_cannot_be_read_begins_again() {
    let mut upgrade = in_progress("u", "cp=Success w1=InProgress");
    upgrade
        .progress
        .nodes
        .insert(name("w1"), NodeState::InProgress { since: None });
    assert_eq!(
        of(&upgrade, "cp=v1.36.3 w1=v1.35.4", 9999),
        "start w1; wait: upgrading w1"
    );
    assert_eq!(
        of(&upgrade, "cp=v1.36.3 w1=v1.36.3", 9999),
        "succeed w1; finish Success (every selected node is at the version)"
    );
}

#[test]
fn it_wakes_at_the_next_deadline() {
    let (upgrade, mut all, api_server) = (
        in_progress("u", "w1=InProgress"),
        nodes("w1=v1.35.4"),
        version("v1.36.3"),
    );
    all[0].host = HostReport::Succeeded;
    let step = step(&observation(&upgrade, &[], &all, &api_server, 0));
    assert_eq!(step.wake, Some(at(0) + MINUTE * 10));
}
