//! The transition function of the coordinator.

use tidewaiter_api::NodeName;
use tidewaiter_api::containership::UpgradeStatus;

use crate::concurrency_limit::ConcurrencyLimit;
use crate::observation::{Node, NodeState, Observation, Progress, Spec, Upgrade};
use crate::orders::{Ending, NodeFailure, Order, Step, Wait};
use crate::refusal::Refusal;
use crate::settle::{self, settle};
use crate::{canary, cordon, rules};

/// Decides what is to be done for one upgrade. The orders are to be applied in one write, which is conditional on the
/// version of the upgrade that was observed.
#[must_use]
pub fn step(seen: &Observation<'_>) -> Step {
    match seen.upgrade.progress.cluster {
        UpgradeStatus::NotStarted => begin(seen),
        UpgradeStatus::InProgress => advance(seen),
        UpgradeStatus::Success | UpgradeStatus::Failed => Step::default(),
    }
}

/// An upgrade that has not begun claims the cluster when it has the label, no other upgrade has a claim or goes first,
/// it is neither paused nor aborted, the version rules permit it, a maintenance window is open, and the cluster is
/// healthy. It does nothing else in this step: another coordinator may claim the cluster for another upgrade at the
/// same time. Of two claims each coordinator sees at least the one that was written before its own, so at most one
/// upgrade goes on.
fn begin(seen: &Observation<'_>) -> Step {
    let upgrade = seen.upgrade;
    if !upgrade.managed {
        return wait(Wait::Label);
    }
    let spec = match &upgrade.spec {
        Ok(spec) => spec,
        Err(refusal) => return order(Order::Finish(Ending::Refused(refusal.clone()))),
    };
    if spec.policy.aborted || upgrade.deleted {
        return order(Order::Finish(Ending::Aborted));
    }
    if let Some(other) = others(seen).find(|other| other.is_in_progress() || goes_first(seen, other)) {
        return wait(Wait::Upgrade(other.name.clone()));
    }
    if spec.policy.paused {
        return wait(Wait::Paused);
    }
    if let Err(refusal) = rules::preflight(seen, &spec.target, &spec.select(seen.nodes).collect::<Vec<_>>()) {
        return order(Order::Finish(Ending::Refused(refusal)));
    }
    match may_start(seen, spec) {
        Ok(()) => order(Order::Begin),
        Err(held) => Step {
            wake: held.wake(seen.now),
            ..wait(held)
        },
    }
}

/// Checks that a node may be started now, as far as the operator, the time and the health of the cluster are concerned.
fn may_start(seen: &Observation<'_>, spec: &Spec) -> Result<(), Wait> {
    if spec.policy.paused {
        return Err(Wait::Paused);
    }
    if let Some(opens) = spec.policy.windows.opens(seen.now) {
        return Err(Wait::Window(opens));
    }
    if spec.policy.require_healthy {
        rules::healthy(seen).map_err(Wait::Health)?;
    }
    Ok(())
}

/// An upgrade that is in progress: one order after the other, each from what the orders before it make of the progress,
/// until it waits or is over.
fn advance(seen: &Observation<'_>) -> Step {
    let spec = match &seen.upgrade.spec {
        Ok(spec) => spec,
        Err(refusal) => return cordon::give_up(seen, Ending::Refused(refusal.clone())),
    };
    let mut progress = seen.upgrade.progress.clone();
    let mut orders = Vec::new();
    let wait = loop {
        match next(seen, spec, &progress) {
            Ok(order) => {
                progress.apply(&order, seen.now);
                let ends = matches!(order, Order::Finish(_) | Order::Withdraw);
                orders.push(order);
                if ends {
                    break None;
                }
            }
            Err(wait) => break Some(wait),
        }
    };
    let settles = settle::wake(seen, spec, &progress);
    let wakes = wait.as_ref().and_then(|wait| wait.wake(seen.now));
    Step {
        effects: cordon::effects(seen, spec, &progress, &orders, wait.as_ref()),
        wake: settles.into_iter().chain(wakes).min(),
        orders,
        wait,
    }
}

/// The next order, or what the upgrade waits for. Nodes that were started are settled first, whatever else is so. Then
/// nothing is started if the upgrade ends, if a node that was done has fallen back, if another upgrade goes first, or
/// if it is paused, outside its windows, or the cluster is not healthy.
fn next(seen: &Observation<'_>, spec: &Spec, progress: &Progress) -> Result<Order, Wait> {
    if let Some(order) = settle(seen, spec, progress) {
        return Ok(order);
    }
    let (remaining, unfit) = remaining(seen, spec, progress);
    let limit = ConcurrencyLimit::of(seen, spec, progress);
    let stops = settle::ends(seen, spec);
    let is_last = remaining.is_empty() && progress.in_progress().next().is_none();
    if let Some((node, refusal)) = unfit.filter(|_| is_last && !stops) {
        return Ok(Order::Fail(node, NodeFailure::Refused(refusal)));
    }
    let ending = ending(seen, spec, progress, &remaining);
    let next = if ending.is_none() {
        candidate(progress, &remaining, &limit)
    } else {
        None
    };
    if let Some(released) = cordon::release(seen, progress, next.map(|node| &node.name)) {
        return Ok(released);
    }
    let in_progress: Vec<NodeName> = progress.in_progress().map(|(name, _)| name.clone()).collect();
    let Some(node) = next else {
        let ending = ending.unwrap_or(Ending::Success);
        if matches!(ending, Ending::Success | Ending::Failures(_)) {
            all_recovered(progress)?;
        }
        return finish(ending, progress, &in_progress);
    };
    yield_to_earlier(seen)?;
    if let Some(claim) = withdrawal(seen) {
        return Ok(claim);
    }
    // Its script runs, whatever the limit is.
    if let Some(begun) = remaining.iter().find(|node| node.is_begun()) {
        return Ok(Order::Start(begun.name.clone()));
    }
    let is_drained = progress.cordons.contains_key(&node.name);
    may_start(seen, spec).or_else(|held| match (is_drained, in_progress.is_empty()) {
        // A drained node is finished.
        (true, _) => Ok(()),
        (false, true) => Err(held),
        (false, false) => Err(Wait::Nodes(in_progress.clone())),
    })?;
    if let Some(canary) = spec.policy.canary.filter(|_| !is_drained)
        && let Some(order) = canary::hold(seen, canary, progress)?
    {
        return Ok(order);
    }
    if !is_drained {
        all_recovered(progress)?;
    }
    start(seen, spec, progress, node, &limit)
}

/// The end of the upgrade, if it starts no further node.
fn ending(seen: &Observation<'_>, spec: &Spec, progress: &Progress, remaining: &[&Node]) -> Option<Ending> {
    if settle::ends(seen, spec) {
        return Some(Ending::Aborted);
    }
    let failed = progress.count(NodeState::Failed);
    let (canary, max_failures) = (spec.policy.canary, spec.policy.max_failures);
    if canary.is_some_and(|canary| canary::has_failed(canary, progress)) {
        return Some(Ending::CanaryFailed);
    }
    match (remaining.is_empty(), failed) {
        (true, 0) => Some(Ending::Success),
        (true, _) => Some(Ending::Failures(failed)),
        (false, _) => max_failures
            .filter(|limit| failed >= *limit.max(&1))
            .map(|_| Ending::TooManyFailures(failed)),
    }
}

/// The node that is next: one of the control plane while some remain, and the one that is drained already before
/// others. Of the other workers, the first that the limit of its node pool admits.
fn candidate<'a>(progress: &Progress, remaining: &[&'a Node], limit: &ConcurrencyLimit<'_>) -> Option<&'a Node> {
    let is_drained = |node: &Node| progress.cordons.contains_key(&node.name);
    let rank = |node: &&&Node| (!node.is_control_plane(), !is_drained(node));
    let first = remaining.iter().min_by_key(rank).copied()?;
    if first.is_control_plane() || is_drained(first) {
        return Some(first);
    }
    let admitted = remaining.iter().find(|node| limit.admits(node));
    Some(admitted.copied().unwrap_or(first))
}

/// Waits for the nodes that were done and have fallen back.
fn all_recovered(progress: &Progress) -> Result<(), Wait> {
    if progress.fallen_back.is_empty() {
        Ok(())
    } else {
        Err(Wait::Recovery(progress.fallen_back.keys().cloned().collect()))
    }
}

/// The upgrade ends when no node is in progress or out of service any more.
fn finish(ending: Ending, progress: &Progress, in_progress: &[NodeName]) -> Result<Order, Wait> {
    let last = if in_progress.is_empty() {
        cordon::all_released(progress)
    } else {
        Err(Wait::Nodes(in_progress.to_vec()))
    };
    match last {
        Ok(()) => Ok(Order::Finish(ending)),
        Err(wait) if ending == Ending::Aborted => Err(Wait::Aborted(Box::new(wait))),
        Err(wait) => Err(wait),
    }
}

/// The selected nodes that were not started, are not at the target already, and fit. And the first one that does not:
/// it fails without being started, and only after the others, so that it does not count among their failures.
fn remaining<'a>(
    seen: &Observation<'a>,
    spec: &'a Spec,
    progress: &Progress,
) -> (Vec<&'a Node>, Option<(NodeName, Refusal)>) {
    let selected = spec.select(seen.nodes);
    let left = selected.filter(|node| !progress.nodes.contains_key(&node.name) && !node.is_left_alone(&spec.target));
    let (mut fit, mut unfit) = (Vec::new(), None);
    for node in left {
        match rules::fits(node, &spec.target) {
            _ if node.is_begun() => fit.push(node),
            Ok(()) => fit.push(node),
            Err(refusal) => unfit = unfit.or(Some((node.name.clone(), refusal))),
        }
    }
    (fit, unfit)
}

/// Of several upgrades in progress only the first starts nodes. One that has started none waits until the claims of the
/// others are withdrawn.
fn yield_to_earlier(seen: &Observation<'_>) -> Result<(), Wait> {
    let upgrade = seen.upgrade;
    let claims = others(seen).filter(|other| other.is_in_progress());
    let mut stronger = claims.filter(|other| {
        if upgrade.has_begun() {
            other.precedes(upgrade)
        } else {
            upgrade.precedes(other)
        }
    });
    stronger
        .next()
        .map_or(Ok(()), |other| Err(Wait::Upgrade(other.name.clone())))
}

/// An upgrade that has started no node withdraws its claim if another upgrade in progress goes before it.
fn withdrawal(seen: &Observation<'_>) -> Option<Order> {
    let upgrade = seen.upgrade;
    let mut claims = others(seen).filter(|other| other.is_in_progress());
    let loses = !upgrade.has_begun() && claims.any(|other| other.precedes(upgrade));
    loses.then_some(Order::Withdraw)
}

/// Starts the next node, if the limit admits it. If the policy says so, the node is drained before.
fn start(
    seen: &Observation<'_>,
    spec: &Spec,
    progress: &Progress,
    node: &Node,
    limit: &ConcurrencyLimit<'_>,
) -> Result<Order, Wait> {
    let in_progress: Vec<NodeName> = progress.in_progress().map(|(name, _)| name.clone()).collect();
    let is_worker = |name: &NodeName| {
        seen.nodes
            .iter()
            .any(|node| node.name == *name && !node.is_control_plane())
    };
    if !node.is_control_plane()
        && in_progress.iter().all(is_worker)
        && let Err(refusal) = rules::supports_workers(seen, &spec.target)
    {
        return finish(Ending::Refused(refusal), progress, &in_progress);
    }
    if !limit.admits(node) {
        return Err(Wait::Nodes(in_progress));
    }
    match spec.policy.drain {
        Some(policy) => cordon::drain(seen, progress, policy, node),
        None => Ok(Order::Start(node.name.clone())),
    }
}

fn others<'a>(seen: &Observation<'a>) -> impl Iterator<Item = &'a Upgrade> + use<'a> {
    let uid = &seen.upgrade.uid;
    seen.upgrades.iter().filter(move |other| other.uid != *uid)
}

fn goes_first(seen: &Observation<'_>, other: &Upgrade) -> bool {
    other.may_begin(seen.now) && other.precedes(seen.upgrade)
}

fn order(order: Order) -> Step {
    Step {
        orders: vec![order],
        ..Step::default()
    }
}

fn wait(wait: Wait) -> Step {
    Step {
        wait: Some(wait),
        ..Step::default()
    }
}

#[cfg(test)]
mod tests;
