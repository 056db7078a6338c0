//! The decision that a started node is done, or has failed.
//!
//! - A node is done when its host reports that the script succeeded, everything on it is at the target, and it has been
//!   Ready for the minimum time since. The beginning of this time is in the progress, and a later change of the
//!   condition `Ready` begins it again: so no restart of the coordinator shortens it. A node whose agent reports
//!   nothing about upgrades is done without the report.
//! - A kubelet that dies is Ready until the control plane has noticed. So the Lease of the Node, which the kubelet
//!   renews every ten seconds, must have been renewed at the end of the minimum time, where there is one.
//! - It has failed as soon as its host reports anything else that is final, and otherwise at its deadline. At the
//!   deadline no script runs any more, so a node that has everything but the minimum time is still waited for.
//! - A node whose script is signed for later has its time from then on. Its agent reports so, which could be a lie: so
//!   it is postponed once, and by a day at most. Nobody else is started because of it. When the upgrade ends before
//!   that time, nothing runs on the node, and it has failed.
//! - A node that was done and is not so for the minimum time has failed, too. Until then nothing is started. The
//!   beginning is recorded as well, because the Node that the coordinator sees may be older than its progress.

use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;

use crate::observation::{HostReport, Node, NodeState, Observation, Progress, Spec};
use crate::orders::{NodeFailure, Order, REPORT_PERIOD};

/// The limit on the postponement of the start of a node.
const MAX_POSTPONEMENT: SignedDuration = SignedDuration::from_hours(24);

/// The next order for a node that was started.
pub(crate) fn settle(seen: &Observation<'_>, spec: &Spec, progress: &Progress) -> Option<Order> {
    progress
        .in_progress()
        .find_map(|(name, since)| settle_node(seen, spec, progress, name, since))
        .or_else(|| fall_back(seen, spec, progress))
}

fn settle_node(
    seen: &Observation<'_>,
    spec: &Spec,
    progress: &Progress,
    name: &NodeName,
    since: Option<Timestamp>,
) -> Option<Order> {
    let node = find(seen, name);
    if let Some(HostReport::Failed(why)) = node.map(|node| &node.host) {
        return Some(Order::Fail(name.clone(), NodeFailure::Host(why.clone())));
    }
    if let Some(HostReport::Early(to)) = node.map(|node| &node.host)
        && since.is_some_and(|since| may_postpone(seen, spec, progress, name, since, *to))
    {
        let (node, to) = (name.clone(), *to);
        return Some(Order::Postpone { node, to });
    }
    let is_verifying = progress.verifying.contains_key(name);
    let verify = |holds| {
        let node = name.clone();
        Some(Order::Verify { node, holds })
    };
    if node.is_some_and(|node| is_complete(node, spec, since)) {
        let Some(end) = verified(seen, spec, progress, name) else {
            return if spec.policy.min_ready.is_zero() {
                Some(Order::Succeed(name.clone()))
            } else {
                verify(true)
            };
        };
        let lives = node.is_none_or(|node| node.renewed.is_none_or(|renewed| renewed >= end));
        return (seen.now >= end && lives).then(|| Order::Succeed(name.clone()));
    }
    if is_verifying {
        return verify(false);
    }
    let Some(since) = since else {
        return Some(Order::Start(name.clone()));
    };
    if ends(seen, spec) && progress.postponed.contains_key(name) && seen.now < since {
        return Some(Order::Fail(name.clone(), NodeFailure::Early(since)));
    }
    let is_over = deadline(spec, since).is_none_or(|deadline| seen.now >= deadline);
    let failure = NodeFailure::TimedOut {
        version: node.and_then(|node| node.kubelet.clone()),
        at_target: node.is_some_and(|node| node.is_at(&spec.target)),
        ready: node.is_some_and(|node| node.ready),
        blocked: node.and_then(|node| node.blocked().map(str::to_owned)),
    };
    is_over.then(|| Order::Fail(name.clone(), failure))
}

/// Returns true if the upgrade ends, and nothing further is to be started.
pub(crate) fn ends(seen: &Observation<'_>, spec: &Spec) -> bool {
    spec.policy.aborted || seen.upgrade.deleted
}

/// Returns true if a node that was started then has its time from `to` on instead. Not one of an upgrade that ends.
fn may_postpone(
    seen: &Observation<'_>,
    spec: &Spec,
    progress: &Progress,
    name: &NodeName,
    since: Timestamp,
    to: Timestamp,
) -> bool {
    let latest = since.checked_add(MAX_POSTPONEMENT).unwrap_or(since);
    !ends(seen, spec) && !progress.postponed.contains_key(name) && since < to && to <= latest
}

/// The next order for a node that was done. One whose Node is gone has not fallen back. Without a minimum time none
/// has.
fn fall_back(seen: &Observation<'_>, spec: &Spec, progress: &Progress) -> Option<Order> {
    let order = |node: &NodeName, holds| {
        let node = node.clone();
        Some(Order::FallBack { node, holds })
    };
    let is_off = spec.policy.min_ready.is_zero();
    let mut fallen = progress.fallen_back.keys();
    if let Some(gone) = fallen.find(|name| is_off || find(seen, name).is_none()) {
        return order(gone, false);
    }
    if is_off {
        return None;
    }
    let is_done = |node: &&Node| progress.nodes.get(&node.name) == Some(&NodeState::Success);
    seen.nodes.iter().filter(is_done).find_map(|node| {
        let at_target = node.is_at(&spec.target);
        let since = progress.fallen_back.get(&node.name);
        match (at_target && node.ready, since) {
            (true, None) => None,
            (true, Some(_)) => order(&node.name, false),
            (false, None) => order(&node.name, true),
            (false, Some(since)) if seen.now < end(spec, *since) => None,
            (false, Some(_)) => {
                let version = node.kubelet.clone();
                let failure = NodeFailure::FellBack { version, at_target };
                Some(Order::Fail(node.name.clone(), failure))
            }
        }
    })
}

/// The time when to decide again about the nodes that were started, although nothing that is watched has changed.
pub(crate) fn wake(seen: &Observation<'_>, spec: &Spec, progress: &Progress) -> Option<Timestamp> {
    let in_progress = progress.in_progress().filter_map(|(name, since)| {
        let verified = verified(seen, spec, progress, name);
        let next = verified.or_else(|| deadline(spec, since?));
        let is_due = verified.is_some_and(|end| seen.now >= end);
        let next = next.filter(|_| !is_due);
        // An agent that says nothing may start later than the node: its first report is not watched either.
        let may_speak = |node: &Node| {
            matches!(
                node.host,
                HostReport::Silent
                    | HostReport::Pending
                    | HostReport::Running
                    | HostReport::Blocked(_)
                    | HostReport::Early(_)
            )
        };
        let is_pending = is_due || find(seen, name).is_some_and(may_speak);
        let read = is_pending.then(|| seen.now.checked_add(REPORT_PERIOD).ok()).flatten();
        next.into_iter().chain(read).min()
    });
    let fallen = progress.fallen_back.values().map(|since| end(spec, *since));
    in_progress.chain(fallen).min()
}

/// The time when a node that was started then fails. None if there is no such time.
pub(crate) fn deadline(spec: &Spec, since: Timestamp) -> Option<Timestamp> {
    since.checked_add(spec.timeout).ok()
}

/// The time when a node in progress that has everything but the minimum time is done; None if it does not have it. A
/// change of the condition `Ready` in the future is one of a clock that is wrong, and does not count.
pub(crate) fn verified(seen: &Observation<'_>, spec: &Spec, progress: &Progress, name: &NodeName) -> Option<Timestamp> {
    let recorded = *progress.verifying.get(name)?;
    let changed = find(seen, name).and_then(|node| node.ready_changed);
    let since = changed
        .filter(|changed| *changed <= seen.now)
        .map_or(recorded, |changed| changed.max(recorded));
    Some(end(spec, since))
}

/// Returns true if a node that was started then has everything but the minimum time. The report of a Node that has
/// registered since is gone with the Node before, so its silence says nothing.
fn is_complete(node: &Node, spec: &Spec, since: Option<Timestamp>) -> bool {
    let has_succeeded = match node.host {
        HostReport::Succeeded => true,
        HostReport::Silent => node.created <= since || node.created.is_none(),
        _ => false,
    };
    node.ready && node.is_at(&spec.target) && has_succeeded
}

/// The end of the minimum time that begins then. One that no clock can show is over.
fn end(spec: &Spec, since: Timestamp) -> Timestamp {
    since.checked_add(spec.policy.min_ready).unwrap_or(since)
}

fn find<'a>(seen: &Observation<'a>, name: &NodeName) -> Option<&'a Node> {
    seen.nodes.iter().find(|node| node.name == *name)
}

#[cfg(test)]
mod tests;
