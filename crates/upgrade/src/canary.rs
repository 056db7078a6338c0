//! The canaries: the first nodes of an upgrade, after which the cluster must stay healthy for a while before the others
//! follow.

use tidewaiter_api::NodeName;

use crate::observation::{CanaryPolicy, NodeState, Observation, Progress};
use crate::orders::{Order, Unhealthy, Wait};
use crate::rules;

/// Returns true if one of the canaries has failed.
pub(crate) fn has_failed(policy: CanaryPolicy, progress: &Progress) -> bool {
    progress.nodes.len() <= policy.nodes && progress.count(NodeState::Failed) > 0
}

/// Holds back the node after the canaries until the cluster has been healthy for the whole time. When it is not, the
/// time begins again. Once the next node is started, this is over.
pub(crate) fn hold(seen: &Observation<'_>, policy: CanaryPolicy, progress: &Progress) -> Result<Option<Order>, Wait> {
    if progress.nodes.len() != policy.nodes {
        return Ok(None);
    }
    let in_progress: Vec<NodeName> = progress.in_progress().map(|(name, _)| name.clone()).collect();
    if !in_progress.is_empty() {
        return Err(Wait::Nodes(in_progress));
    }
    match (rules::healthy(seen), progress.soaking_since) {
        (Ok(()), None) => Ok(Some(Order::Soak { healthy: true })),
        (Ok(()), Some(since)) => match since.checked_add(policy.soak) {
            Ok(until) if seen.now < until => Err(Wait::Soak(until)),
            _ => Ok(None),
        },
        // It may have been healthy all the time: the time goes on, and the upgrade waits until the health can be read.
        (Err(unhealthy @ Unhealthy::Unknown), _) | (Err(unhealthy), None) => Err(Wait::Health(unhealthy)),
        (Err(_), Some(_)) => Ok(Some(Order::Soak { healthy: false })),
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::Upgrade;
    use crate::observation::{Health, Node, PoolLimit};
    use crate::step::step;
    use crate::testing::{at, in_progress, nodes, observation, version};

    fn with(states: &str, soaking_since: Option<Timestamp>) -> Upgrade {
        let mut upgrade = in_progress("u", states);
        let soak = SignedDuration::from_mins(5);
        let policy = &mut upgrade.spec.as_mut().unwrap().policy;
        policy.canary = Some(CanaryPolicy { nodes: 2, soak });
        policy.max_unavailable = Some(PoolLimit::Nodes(9));
        upgrade.progress.soaking_since = soaking_since;
        upgrade
    }

    /// The orders, and what is waited for.
    fn says(upgrade: &Upgrade, all: &[Node], seconds: i64) -> (String, Option<Timestamp>) {
        let api_server = version("v1.36.3");
        let mut all = all.to_vec();
        for node in &mut all {
            node.parallel = true;
        }
        let step = step(&observation(upgrade, &[], &all, &api_server, seconds));
        let orders = step.orders.iter().map(|order| match order {
            Order::Soak { healthy } => format!("healthy: {healthy}"),
            Order::Start(node) => format!("start {node}"),
            Order::Finish(ending) => format!("finish {}", ending.reason()),
            other => format!("{other:?}"),
        });
        let wait = step.wait.iter().map(|wait| format!("wait: {wait}"));
        (orders.chain(wait).collect::<Vec<_>>().join("; "), step.wake)
    }

    #[test]
    fn the_others_follow_when_the_cluster_was_healthy_for_the_whole_time() {
        let healthy = nodes("cp=v1.36.3 w1=v1.36.3 w2=v1.35.4");
        let unhealthy = nodes("cp=v1.36.3 w1!=v1.36.3 w2=v1.35.4");
        let healthy_but_w1 = nodes("cp=v1.36.3 w1=v1.35.4 w2=v1.35.4");
        let soaks = |time: &str| {
            format!("wait: the canaries are done; it goes on if the cluster is healthy until 2001-09-09T{time}Z")
        };
        let waits = "wait: the cluster must be healthy (spec.policy), and the Node w1 is not Ready";
        for (states, since, all, seconds, expected) in [
            (
                "cp=Success",
                None,
                &healthy,
                0,
                "start w2; wait: upgrading w2".to_owned(),
            ),
            (
                "cp=Success w1=Success",
                None,
                &healthy,
                0,
                format!("healthy: true; {}", soaks("01:51:40")),
            ),
            ("cp=Success w1=Success", Some(at(60)), &healthy, 359, soaks("01:52:40")),
            (
                "cp=Success w1=Success",
                Some(at(60)),
                &healthy,
                360,
                "start w2; wait: upgrading w2".to_owned(),
            ),
            // When it is not healthy, the time begins again, also at the last moment.
            (
                "cp=Success w1=Success",
                Some(at(60)),
                &unhealthy,
                360,
                format!("healthy: false; {waits}"),
            ),
            ("cp=Success w1=Success", None, &unhealthy, 999, waits.to_owned()),
            // Those that are in progress are finished first, also where several may be.
            (
                "cp=Success w1=InProgress",
                Some(at(0)),
                &healthy_but_w1,
                0,
                "wait: upgrading w1".to_owned(),
            ),
            // Then it is over.
            (
                "cp=Success w1=Success w0=Success",
                Some(at(0)),
                &unhealthy,
                0,
                "start w2; wait: upgrading w2".to_owned(),
            ),
            (
                "cp=Success w1=Success w0=Failed",
                Some(at(0)),
                &healthy,
                0,
                "start w2; wait: upgrading w2".to_owned(),
            ),
        ] {
            assert_eq!(
                says(&with(states, since), all, seconds).0,
                expected,
                "{states} at {seconds}"
            );
        }
        // While the health cannot be read, it waits; it may have been healthy all the time.
        let api_server = version("v1.36.3");
        let health = Health {
            is_unknown: true,
            ..Health::default()
        };
        let soaking = with("cp=Success w1=Success", Some(at(60)));
        let seen = Observation {
            health: &health,
            ..observation(&soaking, &[], &healthy, &api_server, 360)
        };
        let held = step(&seen);
        assert_eq!(
            (held.orders, held.wait, held.wake),
            (Vec::new(), Some(Wait::Health(Unhealthy::Unknown)), Some(at(370)))
        );
        // It is looked at until then, and at the end.
        assert_eq!(
            says(&with("cp=Success w1=Success", Some(at(0))), &healthy, 0).1,
            Some(at(10))
        );
        assert_eq!(
            says(&with("cp=Success w1=Success", Some(at(0))), &healthy, 295).1,
            Some(at(300))
        );
    }

    #[test]
    fn a_canary_that_fails_ends_the_upgrade_and_nothing_is_left_to_soak_for() {
        let all = nodes("cp=v1.36.3 w1=v1.35.4 w2=v1.35.4");
        assert_eq!(says(&with("cp=Failed", None), &all, 0).0, "finish CanaryFailed");
        assert_eq!(
            says(&with("cp=Success w1=Failed", None), &all, 0).0,
            "finish CanaryFailed"
        );
        let done = nodes("cp=v1.36.3 w1=v1.36.3");
        assert_eq!(
            says(&with("cp=Success w1=Success", None), &done, 0).0,
            "finish Succeeded"
        );
    }
}
