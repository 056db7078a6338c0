//! The agent's own decision: is it the turn of this node, and may the script of the upgrade run?
//!
//! The agent records on its host that the run of an upgrade begins, before it lets the script run, and decides again in
//! between. So a crash at any point leads to one run or none, never to two.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tidewaiter_api::NodeName;

use crate::observation::{NodeState, Spec, Upgrade};
use crate::settle::deadline;
use crate::version::Version;

/// By how much the clocks of two machines may differ.
pub const CLOCK_ERROR: SignedDuration = SignedDuration::from_secs(30);

/// The properties and the ledger of the agent's host.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// The name of its node.
    pub node: &'a NodeName,
    /// The version of its kubelet, as the host says; None if it cannot be read.
    pub version: Option<&'a Version>,
    /// The ledger of the host.
    pub ledger: &'a Ledger,
    /// The time of the host.
    pub now: Timestamp,
}

/// The state that the agent stores on its host, across restarts and power cuts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// The newest generation that it has seen of each upgrade, by uid.
    pub seen: BTreeMap<String, i64>,
    /// The upgrades whose script it has begun to run, by uid.
    pub begun: BTreeSet<String>,
}

/// The order to run the script of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The uid of the upgrade.
    pub upgrade: String,
    /// The generation of the upgrade that gave the order.
    pub generation: i64,
    /// The version to upgrade to.
    pub target: Version,
    /// The time when the script must have ended, by the clock of this host. Its runner stops it then, so that it
    /// does not run beside that of the next node.
    pub until: Timestamp,
    /// Tells a run after an interruption from a first one.
    pub again: Again,
}

/// Tells a run after an interruption from a first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It was begun before and interrupted. It may have upgraded the kubelet, and still has to do the rest.
    Yes,
    /// It begins for the first time. A kubelet at the target was upgraded by somebody else.
    No,
}

/// The reason why no script runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No upgrade names this node as one in progress.
    #[error("it is not the turn of this node")]
    NotCurrent,
    /// Only one upgrade may be in progress.
    #[error("several upgrades say that it is the turn of this node")]
    Several,
    /// A newer state of the upgrade was seen already.
    #[error("the order is of generation {order}, and generation {seen} of the upgrade was seen already")]
    OldGeneration {
        /// The generation of the order.
        order: i64,
        /// The newest generation that was seen.
        seen: i64,
    },
    /// A script runs once.
    #[error("the script of this upgrade was begun before, and does not say that it may run again")]
    RunBefore,
    /// Nothing is to be done, or the version would go down.
    #[error("the kubelet is at {version}, so an upgrade to {target} has nothing to do")]
    AtVersion {
        /// The version.
        version: Version,
        /// The target.
        target: Version,
    },
    /// The version of the kubelet cannot be read, so nobody knows whether it would go down.
    #[error("the version of the kubelet cannot be read")]
    UnknownVersion,
    /// The coordinator may count the node as failed before the script ends.
    #[error("the order ends at {until}, which is over or too near")]
    TooLate {
        /// The time when the script must have ended.
        until: Timestamp,
    },
}

/// The script's declaration that it may run again after it was begun, which only the script itself can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeatable {
    /// It declares so.
    Yes,
    /// It does not.
    No,
}

/// Decides whether the script of an upgrade may begin to run on this host. `upgrades` is what the agent sees, which may
/// be old.
///
/// # Errors
/// The reason why no script runs.
pub fn decide(upgrades: &[Upgrade], host: Host<'_>, repeatable: Repeatable) -> Result<Run, Refused> {
    let offer = offer(upgrades, host.node, host.ledger, host.now)?;
    let again = match (host.ledger.begun.contains(&offer.upgrade.uid), repeatable) {
        (true, Repeatable::No) => return Err(Refused::RunBefore),
        (true, Repeatable::Yes) => Again::Yes,
        (false, _) => Again::No,
    };
    turn(&offer, host, again)
}

/// Decides whether the run of the upgrade with this uid, which [`decide`] permitted and the ledger has recorded since,
/// may still begin.
///
/// # Errors
/// The reason why no script runs.
pub fn confirm(upgrade: &str, again: Again, upgrades: &[Upgrade], host: Host<'_>) -> Result<Run, Refused> {
    let offer = offer(upgrades, host.node, host.ledger, host.now)?;
    if offer.upgrade.uid != upgrade {
        return Err(Refused::NotCurrent);
    }
    turn(&offer, host, again)
}

/// The upgrade that an agent offers to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// The upgrade.
    pub upgrade: &'a Upgrade,
    /// The spec of the upgrade.
    pub spec: &'a Spec,
    /// The time when the script must have ended.
    pub until: Timestamp,
}

/// Decides whether the upgrade is offered to the host, which then decides itself with [`decide`] and [`confirm`]: an
/// agent in a container knows neither the version of the host nor what was run there. It is the turn of a node when
/// exactly one upgrade says that the node is in progress, no newer state of that upgrade was seen, and there is time
/// left.
///
/// # Errors
/// The reason why no script runs.
pub fn offer<'a>(
    upgrades: &'a [Upgrade],
    node: &NodeName,
    ledger: &Ledger,
    now: Timestamp,
) -> Result<Offer<'a>, Refused> {
    let mut current = upgrades.iter().filter(|upgrade| is_current(upgrade, node));
    let upgrade = current.next().ok_or(Refused::NotCurrent)?;
    if current.next().is_some() {
        return Err(Refused::Several);
    }
    let seen = ledger.seen.get(&upgrade.uid).copied().unwrap_or_default();
    if upgrade.generation < seen {
        return Err(Refused::OldGeneration {
            order: upgrade.generation,
            seen,
        });
    }
    let Ok(spec) = &upgrade.spec else {
        return Err(Refused::NotCurrent);
    };
    let until = until(upgrade, node, now).ok_or(Refused::NotCurrent)?;
    if now >= until {
        return Err(Refused::TooLate { until });
    }
    Ok(Offer { upgrade, spec, until })
}

/// A run is an offer to a host whose kubelet is not newer than the target, and is not at it unless the script runs
/// again.
fn turn(offer: &Offer<'_>, host: Host<'_>, again: Again) -> Result<Run, Refused> {
    let Offer { upgrade, spec, until } = *offer;
    let version = host.version.ok_or(Refused::UnknownVersion)?;
    if version.order(&spec.target).is_gt() || (version.is(&spec.target) && again == Again::No) {
        return Err(Refused::AtVersion {
            version: version.clone(),
            target: spec.target.clone(),
        });
    }
    Ok(Run {
        upgrade: upgrade.uid.clone(),
        generation: upgrade.generation,
        target: spec.target.clone(),
        until,
        again,
    })
}

fn is_current(upgrade: &Upgrade, node: &NodeName) -> bool {
    let state = upgrade.progress.nodes.get(node);
    upgrade.is_in_progress() && matches!(state, Some(NodeState::InProgress { .. }))
}

/// The coordinator counts the node as failed at the deadline, by a clock that may be ahead of ours. So the script ends
/// earlier by the clock error, or by half of the time where that is less. No start lies in the future, whatever the
/// order says: a run never has more time than a node has.
fn until(upgrade: &Upgrade, node: &NodeName, now: Timestamp) -> Option<Timestamp> {
    let Some(NodeState::InProgress { since: Some(since) }) = upgrade.progress.nodes.get(node) else {
        return None;
    };
    let spec = upgrade.spec.as_ref().ok()?;
    let margin = CLOCK_ERROR.min(spec.timeout / 2);
    let longest = now.checked_add(spec.timeout).ok()?;
    Some(deadline(spec, *since)?.checked_sub(margin).ok()?.min(longest))
}

impl Ledger {
    /// Notes the newest generations: those of what the agent sees now.
    pub fn see(&mut self, upgrades: &[Upgrade]) {
        for upgrade in upgrades {
            let seen = self.seen.entry(upgrade.uid.clone()).or_default();
            *seen = (*seen).max(upgrade.generation);
        }
    }
}

#[cfg(test)]
mod tests;
