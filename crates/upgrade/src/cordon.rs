//! The cordon ledger: the nodes that an upgrade takes out of service, until they are in service again.
//!
//! - The ledger is in the progress of the upgrade, which no kubelet can write. An entry is written before the Node is
//!   cordoned, and removed after it is uncordoned. So whatever crashes, no node stays cordoned without an entry.
//! - A node that somebody else had cordoned stays cordoned. So does one from which the mark was removed: this is how a
//!   person keeps one.

use tidewaiter_api::NodeName;

use crate::observation::{DrainPolicy, Node, NodeState, Observation, Progress, Spec};
use crate::orders::{Effect, Ending, NodeFailure, Order, Step, Wait};

/// The entries of nodes that are over: neither in progress nor the node that is drained now.
fn over<'a>(progress: &'a Progress, drained: Option<&'a NodeName>) -> impl Iterator<Item = &'a NodeName> {
    progress.cordons.keys().filter(move |name| {
        let is_in_progress = matches!(progress.nodes.get(*name), Some(NodeState::InProgress { .. }));
        !is_in_progress && (drained != Some(*name) || progress.nodes.contains_key(*name))
    })
}

/// Removes the entry of a node that is over and in service again, or as cordoned as it was before.
pub(crate) fn release(seen: &Observation<'_>, progress: &Progress, drained: Option<&NodeName>) -> Option<Order> {
    let mut over = over(progress, drained);
    let released = over.find(|name| !is_ours(seen, progress, name));
    released.map(|name| Order::Release(name.clone()))
}

/// Returns true if the node is cordoned by this upgrade.
fn is_ours(seen: &Observation<'_>, progress: &Progress, name: &NodeName) -> bool {
    let was_before = progress.cordons.get(name).is_some_and(|cordon| cordon.before);
    let node = seen.nodes.iter().find(|node| node.name == *name);
    !was_before && node.is_some_and(|node| node.cordoned && node.cordoned_by.as_ref() == Some(&seen.upgrade.name))
}

/// Waits until no node is out of service.
pub(crate) fn all_released(progress: &Progress) -> Result<(), Wait> {
    if progress.cordons.is_empty() {
        Ok(())
    } else {
        Err(Wait::Uncordon(progress.cordons.keys().cloned().collect()))
    }
}

/// Ends an upgrade whose spec cannot be read any more, after its nodes are in service again.
pub(crate) fn give_up(seen: &Observation<'_>, ending: Ending) -> Step {
    let progress = &seen.upgrade.progress;
    let (ours, released): (Vec<_>, Vec<_>) = progress
        .cordons
        .keys()
        .cloned()
        .partition(|name| is_ours(seen, progress, name));
    let end = ours.is_empty().then_some(Order::Finish(ending));
    Step {
        orders: released.into_iter().map(Order::Release).chain(end).collect(),
        wait: (!ours.is_empty()).then(|| Wait::Uncordon(ours.clone())),
        effects: ours.into_iter().map(Effect::Uncordon).collect(),
        wake: None,
    }
}

/// Starts a node once its pods have left it. One that is over is uncordoned first, so that only one node is out of
/// service.
pub(crate) fn drain(
    seen: &Observation<'_>,
    progress: &Progress,
    policy: DrainPolicy,
    node: &Node,
) -> Result<Order, Wait> {
    let name = &node.name;
    let Some(cordon) = progress.cordons.get(name) else {
        let waiting: Vec<NodeName> = over(progress, Some(name)).cloned().collect();
        if !waiting.is_empty() {
            return Err(Wait::Uncordon(waiting));
        }
        let (node, before) = (name.clone(), node.cordoned);
        return Ok(Order::Cordon { node, before });
    };
    let left = seen.left.get(name);
    if node.cordoned && left.is_some_and(Vec::is_empty) {
        return Ok(Order::Start(name.clone()));
    }
    let end = cordon.since.checked_add(policy.timeout);
    if !end.is_ok_and(|end| seen.now >= end) {
        return Err(Wait::Drain(name.clone(), left.cloned()));
    }
    // Pods that cannot be read cannot be deleted either.
    Ok(if policy.force && left.is_some() {
        Order::Start(name.clone())
    } else {
        Order::Fail(name.clone(), NodeFailure::NotDrained(left.cloned()))
    })
}

/// The effects on Nodes and pods that are due after these orders have made this progress.
pub(crate) fn effects(
    seen: &Observation<'_>,
    spec: &Spec,
    progress: &Progress,
    orders: &[Order],
    wait: Option<&Wait>,
) -> Vec<Effect> {
    let drained = match wait {
        Some(Wait::Drain(name, _)) => Some(name),
        _ => None,
    };
    let uncordon = over(progress, drained).filter(|name| is_ours(seen, progress, name));
    let mut effects: Vec<Effect> = uncordon.cloned().map(Effect::Uncordon).collect();
    if let Some(name) = drained {
        let is_cordoned = seen.nodes.iter().any(|node| node.name == *name && node.cordoned);
        if !is_cordoned {
            effects.push(Effect::Cordon(name.clone()));
        }
        effects.push(Effect::Evict(name.clone()));
    }
    let forced = orders.iter().filter_map(|order| match order {
        Order::Start(name) if spec.policy.drain.is_some() => {
            seen.left.get(name).filter(|left| !left.is_empty()).map(|_| name)
        }
        _ => None,
    });
    effects.extend(forced.cloned().map(Effect::Delete));
    effects
}

#[cfg(test)]
mod tests;
