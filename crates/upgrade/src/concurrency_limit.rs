//! The limit of nodes in progress at once.
//!
//! - A node of the control plane is alone.
//! - Workers are one at a time, unless the policy permits several of each node pool.
//! - An agent that looks at `currentNode` alone sees one node. So a node with such an agent, and one whose Node is
//!   gone, is alone, too.

use std::collections::BTreeMap;

use crate::observation::{Node, Observation, Progress, Spec};

/// The nodes in progress, and the size of each pool.
pub(crate) struct ConcurrencyLimit<'a> {
    spec: &'a Spec,
    in_progress: usize,
    /// True if every node that is in progress permits another one beside it.
    is_shared: bool,
    /// The workers of each node pool that are in progress, and all of them. Those without a pool are one.
    busy: BTreeMap<&'a str, usize>,
    sizes: BTreeMap<&'a str, usize>,
}

impl<'a> ConcurrencyLimit<'a> {
    pub(crate) fn of(seen: &Observation<'a>, spec: &'a Spec, progress: &Progress) -> Self {
        let mut limit = Self {
            spec,
            in_progress: 0,
            is_shared: true,
            busy: BTreeMap::new(),
            sizes: BTreeMap::new(),
        };
        for (name, _) in progress.in_progress() {
            let node = seen.nodes.iter().find(|node| node.name == *name);
            limit.in_progress += 1;
            limit.is_shared &= node.is_some_and(shares);
            if let Some(node) = node {
                *limit.busy.entry(node.pool()).or_default() += 1;
            }
        }
        if spec.policy.max_unavailable.is_some() {
            for node in seen.nodes.iter().filter(|node| !node.is_control_plane()) {
                *limit.sizes.entry(node.pool()).or_default() += 1;
            }
        }
        limit
    }

    /// Returns true if this node may be in progress as well.
    pub(crate) fn admits(&self, node: &Node) -> bool {
        if self.in_progress == 0 {
            return true;
        }
        let count = |of: &BTreeMap<&str, usize>| of.get(node.pool()).copied().unwrap_or_default();
        let limit = self.spec.policy.max_unavailable;
        let limit = limit.map_or(0, |limit| limit.of(count(&self.sizes)));
        self.is_shared && shares(node) && count(&self.busy) < limit
    }
}

fn shares(node: &Node) -> bool {
    !node.is_control_plane() && node.parallel
}
