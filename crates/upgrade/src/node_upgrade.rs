//! The order for a node, a `NodeUpgrade`: the part of a `ClusterUpgrade` that concerns it, as the coordinator writes it
//! and its agent reads it.
//!
//! It is a view of the `ClusterUpgrade` that may be late or missing, and adds nothing to it: what an agent decides by
//! it, it would have decided by the `ClusterUpgrade` of that generation.

use std::collections::BTreeMap;

use tidewaiter_api::NodeName;
use tidewaiter_api::containership::{ClusterUpgrade, ClusterUpgradeSpec, UpgradeStatus, UpgradeType};
use tidewaiter_api::node_upgrade::{NodeUpgrade, NodeUpgradeSpec, UpgradeIdentity};

use crate::form;
use crate::observation::{NodeState, Progress, Upgrade};

/// The nodes whose turn it is, each with its upgrade. A node in several upgrades has no turn: its agent would follow
/// none of them.
pub fn turns(upgrades: &[Upgrade]) -> impl Iterator<Item = (&NodeName, &Upgrade)> {
    let mut turns = BTreeMap::<&NodeName, Option<&Upgrade>>::new();
    for upgrade in upgrades.iter().filter(|upgrade| upgrade.is_in_progress()) {
        for (node, _) in upgrade.progress.in_progress() {
            turns
                .entry(node)
                .and_modify(|turn| *turn = None)
                .or_insert(Some(upgrade));
        }
    }
    turns.into_iter().filter_map(|(node, turn)| Some((node, turn?)))
}

/// The order for a node whose turn it is by `upgrade`, which was read from `object`. None if its agent would not follow
/// it, because the spec or the beginning cannot be read.
#[must_use]
pub fn write(node: &NodeName, upgrade: &Upgrade, object: &ClusterUpgrade) -> Option<NodeUpgrade> {
    let Some(NodeState::InProgress { since: Some(since) }) = upgrade.progress.nodes.get(node) else {
        return None;
    };
    upgrade.spec.as_ref().ok()?;
    let spec = NodeUpgradeSpec {
        upgrade: UpgradeIdentity {
            name: upgrade.name.clone(),
            uid: upgrade.uid.clone(),
            generation: upgrade.generation,
        },
        id: form::id(object).to_owned(),
        target_version: object.spec.target_version.clone(),
        node_timeout_seconds: object.spec.node_timeout_seconds,
        since: *since,
    };
    Some(NodeUpgrade::of_node(node.as_str(), spec))
}

/// The upgrade as the host of the node gets it. Its progress is that of this node alone, which is current: so a host of
/// an older version, which knows one start, reads the right one.
#[must_use]
pub fn read(order: &NodeUpgrade, node: &NodeName) -> ClusterUpgrade {
    let NodeUpgradeSpec {
        upgrade,
        id,
        target_version,
        node_timeout_seconds,
        since,
    } = order.spec.clone();
    let progress = Progress {
        cluster: UpgradeStatus::InProgress,
        nodes: [(node.clone(), NodeState::InProgress { since: Some(since) })].into(),
        current: Some(node.clone()),
        ..Progress::default()
    };
    let spec = ClusterUpgradeSpec {
        id,
        type_: UpgradeType::Kubernetes,
        added_at: String::new(),
        description: String::new(),
        target_version,
        label_selector: Vec::new(),
        node_timeout_seconds,
        policy: None,
        status: Some(form::write(&progress)),
    };
    let mut object = ClusterUpgrade::new(&upgrade.name, spec);
    object.metadata.uid = Some(upgrade.uid);
    object.metadata.generation = Some(upgrade.generation);
    object
}

#[cfg(test)]
mod tests;
