use super::*;
use crate::Upgrade;
use crate::observation::Node;
use crate::step::step;
use crate::testing::{MINUTE, at, in_progress, name, nodes, observation, says, version};

const HALF: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

/// The upgrade in progress with the default policy: half a minute, and one failed node ends it.
fn upgrade(states: &str) -> Upgrade {
    let mut upgrade = in_progress("u", states);
    let policy = &mut upgrade.spec.as_mut().unwrap().policy;
    (policy.min_ready, policy.max_failures) = (HALF, Some(1));
    upgrade
}

/// These nodes, of which the host of `w1` reports this.
fn reported(all: &str, host: &HostReport) -> Vec<Node> {
    let mut all = nodes(all);
    for node in &mut all {
        if node.name == name("w1") {
            node.host = host.clone();
        }
    }
    all
}

fn of(upgrade: &Upgrade, all: &[Node], seconds: i64) -> String {
    says(&observation(upgrade, &[], all, &version("v1.36.3"), seconds))
}

const OLD: &str = "cp=v1.36.3 w1=v1.35.4 w2=v1.35.4";
const DONE: &str = "cp=v1.36.3 w1=v1.36.3 w2=v1.35.4";
const UNREADY: &str = "cp=v1.36.3 w1!=v1.36.3 w2=v1.35.4";
const ABORTED: &str =
    "wait: aborted (spec.policy.aborted) or deleted: it starts no further node, and is still upgrading w1";
const ENDS: &str = "finish Failed (one node failed, and spec.policy.maxFailures is reached; nodes that were not started stay as they are)";

/// `w1` was started at the time 0, and has ten minutes.
#[test]
fn a_node_is_done_when_its_host_succeeded_and_it_was_at_the_version_and_ready_for_the_minimum_time() {
    let (pending, succeeded) = (HostReport::Pending, HostReport::Succeeded);
    let waits = "wait: upgrading w1";
    let verifies = "verify w1 true; wait: upgrading w1";
    let done = "succeed w1; start w2; wait: upgrading w2";
    for (host, all, since, seconds, expected) in [
        // The script still runs, whatever the Node says, and until its deadline.
        (&pending, DONE, None, 0, waits.to_owned()),
        (&pending, DONE, None, 599, waits.to_owned()),
        (
            &pending,
            DONE,
            None,
            600,
            format!(
                "fail w1 (it is at the version and Ready, and its NodeReport did not say within nodeTimeoutSeconds that the script \
                 succeeded); {ENDS}"
            ),
        ),
        // The script alone is not enough.
        (&succeeded, OLD, None, 10, waits.to_owned()),
        (&succeeded, UNREADY, None, 10, waits.to_owned()),
        // One Ready status is not enough, and what was recorded counts after a restart.
        (&succeeded, DONE, None, 10, verifies.to_owned()),
        (&succeeded, DONE, Some(10), 39, waits.to_owned()),
        (&succeeded, DONE, Some(10), 40, done.to_owned()),
        (&HostReport::Silent, DONE, None, 10, verifies.to_owned()),
        (&HostReport::Silent, DONE, Some(10), 40, done.to_owned()),
        // The time begins again.
        (&succeeded, UNREADY, Some(10), 40, format!("verify w1 false; {waits}")),
        (&succeeded, OLD, Some(10), 40, format!("verify w1 false; {waits}")),
        (&pending, DONE, Some(10), 40, format!("verify w1 false; {waits}")),
        // No script runs at the deadline, and half a minute more harms nobody. One that is not Ready then has failed.
        (&succeeded, DONE, Some(590), 619, waits.to_owned()),
        (&succeeded, DONE, Some(590), 620, done.to_owned()),
        (
            &succeeded,
            UNREADY,
            Some(590),
            619,
            format!(
                "verify w1 false; fail w1 (it is at the version, and did not become Ready within nodeTimeoutSeconds); {ENDS}"
            ),
        ),
    ] {
        let mut upgrade = upgrade("cp=Success w1=InProgress");
        let since = since.map(|since| (name("w1"), at(since)));
        upgrade.progress.verifying.extend(since);
        let case = format!("{host:?} {all} {since:?} {seconds}", since = upgrade.progress.verifying);
        assert_eq!(of(&upgrade, &reported(all, host), seconds), expected, "{case}");
    }
    // Without a minimum time there is nothing to record.
    let mut at_once = upgrade("cp=Success w1=InProgress");
    at_once.spec.as_mut().unwrap().policy.min_ready = jiff::SignedDuration::ZERO;
    assert_eq!(of(&at_once, &reported(DONE, &succeeded), 10), done);
    assert_eq!(of(&at_once, &reported(DONE, &pending), 10), waits);
}

/// `w1` was started at the time 0, has ten minutes, and its script counts later.
#[test]
fn a_node_whose_script_counts_later_has_its_time_from_then_on_once_and_within_a_day() {
    let waits = "wait: upgrading w1";
    let late = "fail w1 (after nodeTimeoutSeconds its kubelet is at v1.35.4, and the node is Ready)";
    for (early, seconds, expected) in [
        (1000, 10, format!("postpone w1 to 1000; {waits}")),
        // The report came when the time was over.
        (1000, 600, format!("postpone w1 to 1000; {waits}")),
        (86_400, 10, format!("postpone w1 to 86400; {waits}")),
        (86_401, 10, waits.to_owned()),
        (86_401, 600, format!("{late}; {ENDS}")),
        // It counts already.
        (0, 10, waits.to_owned()),
        (0, 600, format!("{late}; {ENDS}")),
    ] {
        let all = reported(OLD, &HostReport::Early(at(early)));
        let upgrade = upgrade("cp=Success w1=InProgress");
        assert_eq!(of(&upgrade, &all, seconds), expected, "{early} {seconds}");
    }
    let mut postponed = upgrade("cp=Success w1=InProgress");
    let to = at(1000);
    postponed
        .progress
        .apply(&Order::Postpone { node: name("w1"), to }, at(10));
    let all = reported(OLD, &HostReport::Early(at(2000)));
    for (seconds, expected) in [
        (1599, waits.to_owned()),
        // A second report of the host is ignored.
        (1600, format!("{late}; {ENDS}")),
    ] {
        assert_eq!(of(&postponed, &all, seconds), expected, "{seconds}");
    }
    // Its report is read again, because nothing else shows that it runs.
    let seen = observation(&postponed, &[], &all, &version("v1.36.3"), 100).now;
    assert_eq!(
        step(&observation(&postponed, &[], &all, &version("v1.36.3"), 100)).wake,
        Some(seen + REPORT_PERIOD)
    );
    // Nobody is started because of it.
    let mut aborted = upgrade("cp=Success w1=InProgress");
    aborted.spec.as_mut().unwrap().policy.aborted = true;
    assert_eq!(of(&aborted, &all, 10), ABORTED);
    // Nor does anything wait for it: nothing runs there before.
    let mut aborted = postponed.clone();
    aborted.spec.as_mut().unwrap().policy.aborted = true;
    let early = of(&aborted, &all, 999);
    let dropped = "fail w1 (no script was run: its signature counts from ";
    assert!(
        early.starts_with(dropped) && early.contains("finish Failed (it was aborted"),
        "{early}"
    );
    assert_eq!(of(&aborted, &all, 1000), ABORTED);
    postponed.progress.apply(&Order::Succeed(name("w1")), at(1100));
    assert!(postponed.progress.postponed.is_empty());
}

/// The coordinator was away: the node was not Ready in between.
#[test]
fn a_change_of_ready_begins_the_minimum_time_again() {
    for (changed, seconds, expected) in [
        (5, 40, "succeed w1; start w2; wait: upgrading w2"),
        (20, 49, "wait: upgrading w1"),
        (20, 50, "succeed w1; start w2; wait: upgrading w2"),
        // The clock of the node is wrong.
        (9_999, 40, "succeed w1; start w2; wait: upgrading w2"),
    ] {
        let mut upgrade = upgrade("cp=Success w1=InProgress");
        upgrade.progress.verifying.insert(name("w1"), at(10));
        let mut all = reported(DONE, &HostReport::Succeeded);
        all[1].ready_changed = Some(at(changed));
        assert_eq!(of(&upgrade, &all, seconds), expected, "{changed} {seconds}");
    }
}

/// The control plane has not noticed yet that the kubelet is dead.
#[test]
fn a_kubelet_that_does_not_renew_its_lease_is_not_done() {
    for (renewed, seconds, expected) in [
        (39, 41, "wait: upgrading w1"),
        (39, 9_999, "wait: upgrading w1"),
        (40, 41, "succeed w1; start w2; wait: upgrading w2"),
    ] {
        let mut upgrade = upgrade("cp=Success w1=InProgress");
        upgrade.progress.verifying.insert(name("w1"), at(10));
        let mut all = reported(DONE, &HostReport::Succeeded);
        all[1].renewed = Some(at(renewed));
        assert_eq!(of(&upgrade, &all, seconds), expected, "{renewed} {seconds}");
        if renewed == 39 {
            let api_server = version("v1.36.3");
            let wake = step(&observation(&upgrade, &[], &all, &api_server, seconds)).wake;
            assert_eq!(wake, Some(at(seconds + 5)), "it is read again");
        }
    }
}

#[test]
fn the_report_of_a_node_that_has_registered_again_is_gone_and_so_its_silence_says_nothing() {
    for (created, expected) in [
        (None, "verify w1 true; wait: upgrading w1"),
        (Some(0), "verify w1 true; wait: upgrading w1"),
        (Some(1), "wait: upgrading w1"),
    ] {
        let mut all = nodes(DONE);
        all[1].created = created.map(at);
        let upgrade = upgrade("cp=Success w1=InProgress");
        assert_eq!(of(&upgrade, &all, 10), expected, "{created:?}");
    }
}

/// Two objects had the same upgrade, one after the other: the host knows the upgrade, and nobody else what it did.
#[test]
fn what_the_host_has_begun_is_started_whatever_the_version_and_the_room() {
    let failed = HostReport::Failed("Failed: exit status: 1".to_owned());
    let fails = "fail w2 (its host reports Failed: exit status: 1)";
    for (states, hosts, expected) in [
        ("", ["", "", ""], "start cp; wait: upgrading cp".to_owned()),
        ("", ["", "", "runs"], "start w2; wait: upgrading w2".to_owned()),
        (
            "",
            ["", "runs", "runs"],
            "start w1; start w2; wait: upgrading w1, w2".to_owned(),
        ),
        ("", ["", "", "failed"], format!("start w2; {fails}; {ENDS}")),
        (
            "cp=Success w1=Success",
            ["", "", ""],
            "finish Success (every selected node is at the version)".to_owned(),
        ),
    ] {
        let mut all = nodes("cp=v1.35.4 w1=v1.36.3 w2=v1.36.3");
        if !states.is_empty() {
            all = nodes("cp=v1.36.3 w1=v1.36.3 w2=v1.36.3");
        }
        for (node, host) in all.iter_mut().zip(hosts) {
            node.host = match host {
                "runs" => HostReport::Running,
                "failed" => failed.clone(),
                _ => HostReport::Pending,
            };
        }
        assert_eq!(of(&upgrade(states), &all, 10), expected, "{states} {hosts:?}");
    }
}

#[test]
fn what_keeps_the_host_from_running_the_script_is_why_the_node_fails() {
    let blocked = HostReport::Blocked("Blocked: it has no script".to_owned());
    let upgrade = upgrade("cp=Success w1=InProgress");
    let why = "fail w1 (its host reported Blocked: it has no script for nodeTimeoutSeconds)";
    assert_eq!(of(&upgrade, &reported(OLD, &blocked), 599), "wait: upgrading w1");
    assert_eq!(of(&upgrade, &reported(OLD, &blocked), 600), format!("{why}; {ENDS}"));
}

#[test]
fn what_the_host_says_last_ends_a_node_at_once_also_after_an_abort() {
    let failed = HostReport::Failed("Refused: \"the key is not trusted\"".to_owned());
    let fails = "fail w1 (its host reports Refused: \"the key is not trusted\")";
    let upgrade = upgrade("cp=Success w1=InProgress");
    for all in [OLD, DONE, UNREADY] {
        assert_eq!(of(&upgrade, &reported(all, &failed), 1), format!("{fails}; {ENDS}"));
    }
    let mut aborted = upgrade;
    aborted.spec.as_mut().unwrap().policy.aborted = true;
    let ends =
        "finish Failed (it was aborted (spec.policy.aborted) or deleted; nodes that were not started stay as they are)";
    assert_eq!(of(&aborted, &reported(OLD, &failed), 1), format!("{fails}; {ends}"));
    assert_eq!(of(&aborted, &reported(OLD, &HostReport::Pending), 1), ABORTED);
}

#[test]
fn a_node_that_falls_back_holds_the_others_and_has_failed_after_the_minimum_time() {
    let recovers =
        "wait: w1 must be at the version and Ready again: done before, and failed after minReadySeconds".to_owned();
    let unready = "fail w1 (it was done, and then was not Ready for minReadySeconds)";
    let old = "fail w1 (it was done, and then its kubelet was at v1.35.4 for minReadySeconds)";
    for (states, all, since, seconds, expected) in [
        (
            "w1=Success",
            UNREADY,
            None,
            100,
            format!("fall back w1 true; {recovers}"),
        ),
        ("w1=Success", OLD, None, 100, format!("fall back w1 true; {recovers}")),
        ("w1=Success", UNREADY, Some(100), 129, recovers.clone()),
        ("w1=Success", UNREADY, Some(100), 130, format!("{unready}; {ENDS}")),
        ("w1=Success", OLD, Some(100), 130, format!("{old}; {ENDS}")),
        (
            "w1=Success",
            DONE,
            Some(100),
            129,
            "fall back w1 false; start w2; wait: upgrading w2".to_owned(),
        ),
        // Nor is the upgrade over before. One that is in progress is finished.
        (
            "w1=Success w2=Success",
            "w1!=v1.36.3 w2=v1.36.3",
            Some(100),
            101,
            recovers.clone(),
        ),
        (
            "w1=Success w2=InProgress",
            UNREADY,
            Some(100),
            130,
            format!("{unready}; wait: upgrading w2"),
        ),
        // A Node that is gone has not fallen back, and one that was never done cannot.
        (
            "w1=Success",
            "w2=v1.35.4",
            Some(100),
            999,
            "fall back w1 false; start w2; wait: upgrading w2".to_owned(),
        ),
        ("w2=InProgress", UNREADY, None, 100, "wait: upgrading w2".to_owned()),
    ] {
        let mut upgrade = upgrade(states);
        upgrade
            .progress
            .fallen_back
            .extend(since.map(|since| (name("w1"), at(since))));
        let said = of(&upgrade, &nodes(all), seconds);
        assert_eq!(said, expected, "{states} with {all} at {seconds}");
    }
    // An abort does not wait for it.
    let mut aborted = upgrade("w1=Success");
    aborted.progress.fallen_back.insert(name("w1"), at(100));
    aborted.spec.as_mut().unwrap().policy.aborted = true;
    assert!(of(&aborted, &nodes(UNREADY), 101).starts_with("finish Failed (it was aborted"));
}

/// The soak of a canary that falls back begins again, and nothing is started in between.
#[test]
fn a_canary_that_falls_back_begins_the_soak_again() {
    let mut upgrade = upgrade("cp=Success w1=Success");
    let soak = MINUTE;
    upgrade.spec.as_mut().unwrap().policy.canary = Some(crate::CanaryPolicy { nodes: 2, soak });
    upgrade.progress.soaking_since = Some(at(0));
    let said = of(&upgrade, &nodes(UNREADY), 100);
    let expected =
        "fall back w1 true; soak false; wait: the cluster must be healthy (spec.policy), and the Node w1 is not Ready";
    assert_eq!(said, expected);
    upgrade.progress.fallen_back.insert(name("w1"), at(100));
    let said = of(&upgrade, &nodes(UNREADY), 130);
    assert!(
        said.starts_with("fail w1 (it was done, and then was not Ready"),
        "{said}"
    );
    assert!(said.contains("; finish Failed"), "{said}");
}

#[test]
fn it_wakes_at_the_next_moment_at_which_something_ends() {
    let wake = |upgrade: &Upgrade, host: &HostReport, all: &str| {
        let (all, api_server) = (reported(all, host), version("v1.36.3"));
        step(&observation(upgrade, &[], &all, &api_server, 100)).wake
    };
    let running = upgrade("cp=Success w1=InProgress");
    for host in [
        HostReport::Silent,
        HostReport::Pending,
        HostReport::Blocked("x".to_owned()),
    ] {
        assert_eq!(wake(&running, &host, OLD), Some(at(105)), "reports are not watched");
    }
    assert_eq!(wake(&running, &HostReport::Succeeded, OLD), Some(at(0) + MINUTE * 10));
    assert_eq!(wake(&running, &HostReport::Succeeded, DONE), Some(at(130)));
    let fallen = upgrade("w1=Success");
    assert_eq!(wake(&fallen, &HostReport::Silent, UNREADY), Some(at(130)));
}
