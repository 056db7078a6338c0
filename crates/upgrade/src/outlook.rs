//! The past, the next step and the waits of an upgrade, in words, for people.
//!
//! The words come from the decisions: [`step`] says what is next, and [`plan`] what happens to each node.

use tidewaiter_api::containership::UpgradeStatus;

use crate::drain::{DrainBlocker, RemainingPod};
use crate::observation::{NodeState, Observation, Spec};
use crate::orders::{Ending, Order, Unhealthy, Wait, pods};
use crate::plan::{Counts, Planned, PlannedAction, left_out, plan};
use crate::refusal::Refusal;
use crate::rules::{self, preflight, unhealthy};
use crate::settle::{deadline, ends, verified};
use crate::step::step;
use crate::version::Version;

/// The maximum number of nodes that do not fit and are named.
const MISFITS_NAMED: usize = 3;

/// An upgrade in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Sentences about the whole: how far it is, what is next, what it waits for.
    pub summary: Vec<String>,
    /// Its nodes, in the order of their turns.
    pub nodes: Vec<NodeOutlook>,
    /// The Nodes that it does not concern.
    pub left_out: Vec<NodeOutlook>,
}

/// A node in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOutlook {
    /// Its name.
    pub name: String,
    /// True if it is of the control plane.
    pub control_plane: bool,
    /// The version of its kubelet, if it is known.
    pub version: Option<Version>,
    /// The planned action and its reason.
    pub action: String,
    /// True if nothing happens to it any more, and it is at the version or does not have to be.
    pub done: bool,
}

/// Puts an upgrade into words, as the coordinator would decide now.
#[must_use]
pub fn outlook(seen: &Observation<'_>) -> Outlook {
    let Ok(spec) = &seen.upgrade.spec else {
        return Outlook {
            summary: vec![far(seen, Counts::default())]
                .into_iter()
                .chain(next(seen))
                .collect(),
            ..Outlook::default()
        };
    };
    let nodes = plan(seen, spec);
    let left_out = left_out(seen, spec).map(|(node, why)| NodeOutlook {
        name: node.name.to_string(),
        control_plane: node.is_control_plane(),
        version: node.kubelet.clone(),
        action: why.to_owned(),
        done: true,
    });
    Outlook {
        summary: std::iter::once(far(seen, Counts::of(seen, spec)))
            .chain(next(seen))
            .chain(refusal(seen, spec))
            .chain(warnings(seen, spec))
            .chain(misfits(seen, spec))
            .collect(),
        left_out: left_out.collect(),
        nodes: nodes.iter().map(|node| in_words(seen, spec, node)).collect(),
    }
}

/// Its state.
fn far(seen: &Observation<'_>, counts: Counts) -> String {
    let upgrade = seen.upgrade;
    let target = upgrade.spec.as_ref().map(|spec| format!(" to {}", spec.target));
    let how = match upgrade.progress.cluster {
        UpgradeStatus::NotStarted => "has not begun",
        UpgradeStatus::InProgress => "is in progress",
        UpgradeStatus::Success => "has succeeded",
        UpgradeStatus::Failed => "has failed",
    };
    let counts = if counts.nodes == 0 {
        String::new()
    } else {
        format!(": {counts}")
    };
    format!(
        "The upgrade {}{} {how}{counts}.",
        upgrade.name,
        target.unwrap_or_default()
    )
}

/// The next step, and the wait after it.
fn next(seen: &Observation<'_>) -> Vec<String> {
    let step = step(seen);
    let orders = step.orders.iter().map(|order| match order {
        Order::Begin => "Nothing speaks against it: it begins.".to_owned(),
        Order::Withdraw => "Another upgrade goes first, so it waits.".to_owned(),
        Order::Start(node) => format!("The next node is {node}."),
        Order::Cordon { node, .. } => format!("The next node is {node}, which is drained first."),
        Order::Soak { healthy: true } => "The canaries are done, and the cluster is healthy.".to_owned(),
        Order::Soak { healthy: false } => "The canaries are done, and the cluster is not healthy.".to_owned(),
        Order::Release(node) => format!("The node {node} is in service again."),
        Order::Postpone { node, to } => format!("The node {node} has its time from {to} on, when its script counts."),
        Order::Verify { node, holds: true } => {
            format!("The node {node} is at the version and Ready, and is done when it stays so for minReadySeconds.")
        }
        Order::Verify { node, holds: false } => format!("The node {node} is not at the version and Ready any more."),
        Order::FallBack { node, holds: true } => {
            format!("The node {node} was done, and is not at the version or not Ready any more.")
        }
        Order::FallBack { node, holds: false } => format!("The node {node} is done as before."),
        Order::Succeed(node) => format!("The node {node} is done."),
        Order::Fail(node, failure) => sentence(&format!("The node {node} fails: {failure}")),
        Order::Finish(Ending::Refused(refusal)) => sentence(&format!("It is refused: {refusal}")),
        Order::Finish(ending) => sentence(&format!("It ends: {ending}")),
    });
    let starts = step
        .orders
        .iter()
        .any(|order| matches!(order, Order::Start(_) | Order::Cordon { .. }));
    let wait = step
        .wait
        .as_ref()
        .filter(|wait| !(starts && matches!(wait, Wait::Nodes(_) | Wait::Drain(..))));
    let wait = wait.map(|wait| match wait {
        Wait::Nodes(_) | Wait::Drain(..) | Wait::Uncordon(_) | Wait::Aborted(_) => sentence(&format!("It is {wait}")),
        _ => sentence(&format!("It waits: {wait}")),
    });
    orders.chain(wait).collect()
}

/// The refusal of an upgrade that has not begun and waits for something else, such as the end of a pause.
fn refusal(seen: &Observation<'_>, spec: &Spec) -> Option<String> {
    let waits = seen.upgrade.progress.cluster == UpgradeStatus::NotStarted && step(seen).wait.is_some();
    let selected: Vec<_> = spec.select(seen.nodes).collect();
    let refusal = preflight(seen, &spec.target, &selected).err().filter(|_| waits)?;
    Some(sentence(&format!("It would be refused now: {refusal}")))
}

/// The unhealthy parts of the cluster before an upgrade begins that does not wait for it.
fn warnings(seen: &Observation<'_>, spec: &Spec) -> Option<String> {
    let is_warned = seen.upgrade.progress.cluster == UpgradeStatus::NotStarted && !spec.policy.require_healthy;
    let unhealthy = if is_warned { unhealthy(seen) } else { Vec::new() };
    preflight_warning(&unhealthy)
}

/// The warning when an upgrade begins although the cluster is not healthy; None if it is.
#[must_use]
pub fn preflight_warning(unhealthy: &[Unhealthy]) -> Option<String> {
    let all: Vec<String> = unhealthy.iter().map(ToString::to_string).collect();
    let all = all.join("; ");
    (!all.is_empty())
        .then(|| format!("The cluster is not healthy: {all}. With spec.policy.requireHealthy the upgrade would wait."))
}

/// The nodes that do not fit an upgrade that has not begun, and is not refused because of that.
fn misfits(seen: &Observation<'_>, spec: &Spec) -> Option<String> {
    let selected: Vec<_> = spec.select(seen.nodes).collect();
    let has_begun = seen.upgrade.progress.cluster != UpgradeStatus::NotStarted;
    let is_refused = has_begun || preflight(seen, &spec.target, &selected).is_err();
    misfit_warning(&rules::misfits(seen, &spec.target, &selected)).filter(|_| !is_refused)
}

/// The warning when an upgrade begins, and nodes do not fit it; None if all do.
#[must_use]
pub fn misfit_warning(misfits: &[Refusal]) -> Option<String> {
    let named: Vec<String> = misfits.iter().take(MISFITS_NAMED).map(ToString::to_string).collect();
    let more = misfits.len().saturating_sub(MISFITS_NAMED);
    match (misfits.len(), more) {
        (0, _) => None,
        (_, 0) => Some(format!("Nodes do not fit the upgrade: {}", named.join(" "))),
        _ => Some(format!(
            "Nodes do not fit the upgrade: {} And {more} more.",
            named.join(" ")
        )),
    }
}

fn sentence(words: &str) -> String {
    format!("{}.", words.trim_end_matches('.'))
}

fn in_words(seen: &Observation<'_>, spec: &Spec, node: &Planned) -> NodeOutlook {
    let action = match &node.action {
        PlannedAction::Started(NodeState::InProgress { since: Some(since) }) => {
            let verified = verified(seen, spec, &seen.upgrade.progress, &node.name);
            let done = verified.map(|end| format!("; it is done if it stays at the version and Ready until {end}"));
            let fails = || deadline(spec, *since).map(|deadline| format!("; it fails at {deadline}"));
            let end = done.or_else(fails).unwrap_or_default();
            let observed = seen.nodes.iter().find(|seen| seen.name == node.name);
            let blocked = observed.and_then(|observed| Some(format!("; its host reports {}", observed.blocked()?)));
            let end = format!("{}{end}", blocked.unwrap_or_default());
            if *since > seen.now {
                format!("waits until {since}, when the signature of its script counts{end}")
            } else {
                format!("in progress since {since}{end}")
            }
        }
        PlannedAction::Started(NodeState::InProgress { since: None }) => "in progress".to_owned(),
        PlannedAction::Started(NodeState::Success) => "done".to_owned(),
        PlannedAction::Started(NodeState::Failed) => "failed".to_owned(),
        PlannedAction::AtTarget => "skipped: it is at the version".to_owned(),
        PlannedAction::Waits if is_over(seen) => "not started".to_owned(),
        PlannedAction::Waits if ends(seen, spec) => "not started: the upgrade is aborted".to_owned(),
        PlannedAction::Waits if seen.upgrade.progress.cordons.contains_key(&node.name) => "is drained".to_owned(),
        PlannedAction::Waits => waits(seen, node),
        PlannedAction::WillFail(refusal) => format!("fails without a script: {refusal}"),
    };
    NodeOutlook {
        name: node.name.to_string(),
        control_plane: node.control_plane,
        version: node.version.clone(),
        action,
        done: matches!(
            node.action,
            PlannedAction::AtTarget | PlannedAction::Started(NodeState::Success)
        ),
    }
}

/// The obstacles to draining a node, and to running the script on its host, reported before its turn.
fn waits(seen: &Observation<'_>, node: &Planned) -> String {
    let kept = seen
        .left
        .get(&node.name)
        .into_iter()
        .flatten()
        .filter(|left| left.blocker != DrainBlocker::Leaving);
    let kept: Vec<RemainingPod> = kept.cloned().collect();
    let drain = (!kept.is_empty()).then(|| format!("; its drain would wait now: {}", pods(&kept)));
    let seen = seen.nodes.iter().find(|seen| seen.name == node.name);
    let host = seen.and_then(|seen| {
        Some(format!(
            "; it would not run the script: {}",
            seen.host_problem.as_ref()?
        ))
    });
    format!(
        "waits for its turn{}{}",
        drain.unwrap_or_default(),
        host.unwrap_or_default()
    )
}

fn is_over(seen: &Observation<'_>) -> bool {
    matches!(
        seen.upgrade.progress.cluster,
        UpgradeStatus::Success | UpgradeStatus::Failed
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{HostReport, Node, Upgrade};
    use crate::testing::{in_progress, nodes, observation, upgrade, version};

    /// The summary, and each node.
    fn says(upgrade: &Upgrade, all: &str) -> (String, Vec<String>) {
        of(upgrade, &nodes(all))
    }

    fn of(upgrade: &Upgrade, all: &[Node]) -> (String, Vec<String>) {
        let api_server = version("v1.36.3");
        let outlook = outlook(&observation(upgrade, &[], all, &api_server, 60));
        let shown = |node: &NodeOutlook| format!("{}: {}", node.name, node.action);
        let nodes = outlook.nodes.iter().chain(&outlook.left_out).map(shown);
        (outlook.summary.join(" "), nodes.collect())
    }

    #[test]
    fn an_upgrade_reads_like_a_story() {
        let all = "a=v1.36.3 b=v1.35.4 c=v1.34.0 cp=v1.35.4 gone=?";
        let (summary, nodes) = says(&upgrade("u"), "a=v1.36.3 b=v1.35.4 cp=v1.35.4");
        let begins = "The upgrade u to v1.36.3 has not begun: 1 of 3 nodes are at the version, 0 failed. Nothing speaks against it: it begins.";
        assert_eq!(summary, begins);
        assert_eq!(
            nodes,
            [
                "cp: waits for its turn",
                "a: skipped: it is at the version",
                "b: waits for its turn"
            ]
        );

        // It begins all the same, and says what speaks against it.
        let (summary, _) = says(&upgrade("u"), "b!=v1.35.4 cp=v1.35.4");
        let warned = "it begins. The cluster is not healthy: the Node b is not Ready. With spec.policy.requireHealthy the upgrade would wait.";
        assert!(summary.ends_with(warned), "{summary}");
        let mut waits = upgrade("u");
        waits.spec.as_mut().unwrap().policy.require_healthy = true;
        let (summary, _) = says(&waits, "b!=v1.35.4 cp=v1.35.4");
        assert!(
            summary.ends_with("It waits: the cluster must be healthy (spec.policy), and the Node b is not Ready."),
            "{summary}"
        );
        let (summary, _) = says(&in_progress("u", "cp=Success"), "b!=v1.35.4 cp=v1.36.3");
        assert!(summary.ends_with("The next node is b."), "{summary}");

        let (summary, nodes) = says(&in_progress("u", "cp=InProgress"), all);
        let goes_on =
            "The upgrade u to v1.36.3 is in progress: 1 of 5 nodes are at the version, 0 failed. It is upgrading cp.";
        assert_eq!(summary, goes_on);
        assert_eq!(
            nodes[0],
            "cp: in progress since 2001-09-09T01:46:40Z; it fails at 2001-09-09T01:56:40Z"
        );
        let mut blocked = crate::testing::nodes("b=v1.35.4 cp=v1.35.4");
        blocked[1].host = HostReport::Blocked("Blocked: it has no script".to_owned());
        let (_, said) = of(&in_progress("u", "cp=InProgress"), &blocked);
        let reports =
            "cp: in progress since 2001-09-09T01:46:40Z; its host reports Blocked: it has no script; it fails at ";
        assert!(said[0].starts_with(reports), "{}", said[0]);
        assert!(
            nodes[3].starts_with("c: fails without a script: c is at v1.34.0"),
            "{}",
            nodes[3]
        );

        let mut aborted = in_progress("u", "cp=InProgress");
        aborted.spec.as_mut().unwrap().policy.aborted = true;
        let (summary, nodes) = says(&aborted, "b=v1.35.4 cp=v1.35.4");
        let still =
            "It is aborted (spec.policy.aborted) or deleted: it starts no further node, and is still upgrading cp.";
        assert!(summary.ends_with(still), "{summary}");
        assert_eq!(nodes[1], "b: not started: the upgrade is aborted");

        let (summary, _) = says(&in_progress("u", "cp=Failed"), "b=v1.35.4 cp=v1.36.0");
        assert!(
            summary.ends_with("0 of 2 nodes are at the version, 1 failed. The next node is b."),
            "{summary}"
        );
        let (summary, _) = says(&in_progress("u", "cp=Success"), "cp=v1.36.3");
        assert!(
            summary.ends_with("It ends: every selected node is at the version."),
            "{summary}"
        );
    }

    #[test]
    fn a_host_that_would_refuse_the_script_is_named_before_its_turn() {
        let (upgrade, mut all, api_server) = (upgrade("u"), nodes("b=v1.35.4 c=v1.35.4"), version("v1.36.3"));
        all[0].host_problem = Some("nothing is pinned".to_owned());
        let outlook = outlook(&observation(&upgrade, &[], &all, &api_server, 60));
        let actions: Vec<&str> = outlook.nodes.iter().map(|node| node.action.as_str()).collect();
        let named = "waits for its turn; it would not run the script: nothing is pinned";
        assert_eq!(actions, [named, "waits for its turn"]);
    }

    #[test]
    fn what_is_refused_held_or_over_says_why() {
        let mut held = upgrade("u");
        held.spec.as_mut().unwrap().policy.paused = true;
        let (summary, _) = says(&held, "cp=v1.35.4");
        assert!(
            summary.ends_with("It waits: spec.policy.paused is set; remove it to continue."),
            "{summary}"
        );
        // The refusal is reported while there is time to correct it.
        let (summary, _) = says(&held, "cp=v1.37.0");
        let would = "remove it to continue. It would be refused now: cp is at v1.37.0, which is newer than v1.36.3";
        assert!(summary.contains(would), "{summary}");
        let (summary, _) = says(&upgrade("u"), "cp=v1.37.0");
        let refused = "It is refused: cp is at v1.37.0, which is newer than v1.36.3, and a version never goes down. Leave the node out with spec.labelSelector.";
        assert!(summary.ends_with(refused), "{summary}");
        let unreadable = Upgrade {
            spec: Err(crate::Refusal::Etcd),
            ..upgrade("u")
        };
        let (summary, nodes) = says(&unreadable, "cp=v1.35.4");
        let etcd = "The upgrade u has not begun. It is refused: spec.type is etcd, which is not supported. Create an upgrade of type kubernetes.";
        assert_eq!((summary.as_str(), nodes.len()), (etcd, 0));
        let mut over = in_progress("u", "cp=Success");
        over.progress.cluster = UpgradeStatus::Failed;
        let (summary, nodes) = says(&over, "cp=v1.36.3 w=v1.35.4");
        assert_eq!(
            summary,
            "The upgrade u to v1.36.3 has failed: 1 of 2 nodes are at the version, 0 failed."
        );
        assert_eq!(nodes, ["cp: done", "w: not started"]);
    }
}
