//! The node pool of each Node. The cloud decides, by the Node's name, which the certificate of its kubelet binds. A
//! kubelet can write the label `containership.io/node-pool-id` of its own Node, so the label decides only where the
//! cloud knows no names.
//!
//! Until the cloud has been read once, nothing is decided. Pure, except for [`sync`].

mod brake;
mod freshness;
mod listed;
mod stored;
pub mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewaiter_api::{LabelValue, NodeName};
use tokio::sync::watch;

/// The source of a Node's node pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodePools {
    /// Only the cloud. A Node that the cloud does not know by name is in no node pool.
    Cloud,
    /// Only the label of the Node: everyone who may write it decides, its kubelet included.
    Label,
    /// The cloud. The label decides for a Node that the cloud does not know by name, if it names a node pool of which
    /// the cloud knows no node by name.
    #[default]
    CloudThenLabel,
}

/// The Nodes that the cloud knows by name, with their node pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    by_node: BTreeMap<NodeName, LabelValue>,
    /// The node pools of these Nodes.
    pools: BTreeSet<LabelValue>,
}

/// The [`Members`] of the last complete response, shared between the loop that reads the cloud and the controllers.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PoolMembers(Arc<watch::Sender<Option<Arc<Members>>>>);

/// The node pool of a Node, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    /// The cloud decides, and has not been read yet.
    Unknown,
    /// In no node pool.
    None,
    /// From the cloud. The label may name another one.
    ByCloud(LabelValue),
    /// From the label, where the cloud knows no Node of this node pool by name.
    ByLabel(LabelValue),
    /// In none: the cloud does not have the Node in the node pool that the label names.
    Refused,
}

impl Members {
    /// The pool of a Node that the cloud knows by this name.
    #[must_use]
    pub fn pool_of(&self, node: &str) -> Option<&LabelValue> {
        self.by_node.get(node)
    }

    /// The number of Nodes that the cloud knows by name.
    pub(crate) fn len(&self) -> usize {
        self.by_node.len()
    }

    /// Returns true if the cloud knows no Node by name.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// Returns true if the cloud knows any Node of the pool by name.
    #[must_use]
    pub fn names_nodes_of(&self, pool: &str) -> bool {
        self.pools.contains(pool)
    }

    /// The Nodes for which another decision may follow from `self` than from `before`; None when that may be any Node.
    pub(crate) fn changed_since<'a>(&'a self, before: &'a Self) -> Option<Vec<&'a NodeName>> {
        // The pools that have names decide about the Nodes that have none.
        if self.pools != before.pools {
            return None;
        }
        let mut names: Vec<&NodeName> = self.by_node.keys().chain(before.by_node.keys()).collect();
        names.retain(|name| self.by_node.get(*name) != before.by_node.get(*name));
        names.sort();
        names.dedup();
        Some(names)
    }
}

impl FromIterator<(NodeName, LabelValue)> for Members {
    fn from_iter<I: IntoIterator<Item = (NodeName, LabelValue)>>(nodes: I) -> Self {
        let mut members = Self::default();
        for (name, pool) in nodes {
            // All Nodes of a pool share one text.
            let pool = members.pools.get(&pool).cloned().unwrap_or(pool);
            members.pools.insert(pool.clone());
            members.by_node.insert(name, pool);
        }
        members
    }
}

impl PoolMembers {
    /// The last complete response; None until there is one.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Members>> {
        self.0.borrow().clone()
    }

    /// Replaces the response. Receivers are notified if it differs.
    pub fn set(&self, members: Members) {
        self.0.send_if_modified(|current| {
            let differs = current.as_deref() != Some(&members);
            if differs {
                *current = Some(Arc::new(members));
            }
            differs
        });
    }

    /// Notified of every response that differs from the one before.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Members>>> {
        self.0.subscribe()
    }
}

impl NodePools {
    /// In which pool the Node of this name is, whose label names `claim`.
    pub(crate) fn decide(self, members: Option<&Members>, node: &str, claim: Option<&str>) -> Pool {
        let by_label = || {
            claim
                .and_then(|claim| claim.parse().ok())
                .map_or(Pool::None, Pool::ByLabel)
        };
        if self == Self::Label {
            return by_label();
        }
        let Some(members) = members else {
            return Pool::Unknown;
        };
        if let Some(pool) = members.pool_of(node) {
            return Pool::ByCloud(pool.clone());
        }
        match claim {
            None => Pool::None,
            Some(claim) if self == Self::CloudThenLabel && !members.names_nodes_of(claim) => by_label(),
            Some(_) => Pool::Refused,
        }
    }
}

impl Pool {
    /// Returns true if the label `claim` names another pool than the cloud.
    pub(crate) fn contradicts(&self, claim: Option<&str>) -> bool {
        match self {
            Self::ByCloud(pool) => claim.is_some_and(|claim| claim != pool.as_str()),
            Self::Refused => true,
            Self::Unknown | Self::None | Self::ByLabel(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn members(nodes: &[(&str, &str)]) -> Members {
        let parsed = nodes
            .iter()
            .map(|(node, pool)| (node.parse().unwrap(), pool.parse().unwrap()));
        parsed.collect()
    }

    #[test]
    fn who_decides() {
        use NodePools::{Cloud, CloudThenLabel, Label};
        let value = |text: &str| text.parse::<LabelValue>().unwrap();
        let by_cloud = |pool| Pool::ByCloud(value(pool));
        let by_label = |pool| Pool::ByLabel(value(pool));
        let read = members(&[("a", "gpu"), ("b", "web")]);
        // Setting, node, label, and the decision with the response `read`.
        for (setting, node, claim, decision) in [
            (Label, "a", None, Pool::None),
            (Label, "a", Some("web"), by_label("web")),
            (Label, "a", Some(""), by_label("")),
            (Cloud, "a", None, by_cloud("gpu")),
            (Cloud, "a", Some("gpu"), by_cloud("gpu")),
            (Cloud, "a", Some("web"), by_cloud("gpu")),
            (Cloud, "new", None, Pool::None),
            (Cloud, "new", Some("gpu"), Pool::Refused),
            (Cloud, "new", Some("old"), Pool::Refused),
            (CloudThenLabel, "a", None, by_cloud("gpu")),
            (CloudThenLabel, "a", Some("web"), by_cloud("gpu")),
            (CloudThenLabel, "a", Some("old"), by_cloud("gpu")),
            (CloudThenLabel, "new", None, Pool::None),
            (CloudThenLabel, "new", Some("gpu"), Pool::Refused),
            (CloudThenLabel, "new", Some("old"), by_label("old")),
        ] {
            let row = format!("{setting:?} {node} {claim:?}");
            assert_eq!(setting.decide(Some(&read), node, claim), decision, "{row}");
            let unread = if setting == Label { decision } else { Pool::Unknown };
            assert_eq!(setting.decide(None, node, claim), unread, "unread: {row}");
        }
    }

    #[test]
    fn a_label_contradicts_the_cloud_only_where_the_cloud_knows_better() {
        let pool = || "gpu".parse().unwrap();
        for (decided, claim, contradicts) in [
            (Pool::ByCloud(pool()), Some("gpu"), false),
            (Pool::ByCloud(pool()), Some("web"), true),
            (Pool::ByCloud(pool()), None, false),
            (Pool::Refused, Some("gpu"), true),
            (Pool::ByLabel(pool()), Some("gpu"), false),
            (Pool::Unknown, Some("gpu"), false),
            (Pool::None, None, false),
        ] {
            assert_eq!(decided.contradicts(claim), contradicts, "{decided:?} {claim:?}");
        }
    }

    #[test]
    fn the_setting_is_written_as_documented() {
        for (setting, text) in [
            (NodePools::Cloud, "\"cloud\""),
            (NodePools::Label, "\"label\""),
            (NodePools::default(), "\"cloud-then-label\""),
        ] {
            assert_eq!(serde_json::to_string(&setting).unwrap(), text);
            assert_eq!(serde_json::from_str::<NodePools>(text).unwrap(), setting);
        }
    }

    #[test]
    fn a_response_concerns_the_nodes_that_moved_or_all_of_them() {
        let before = members(&[("a", "gpu"), ("b", "web"), ("c", "web")]);
        for (after, concerned) in [
            (&[("a", "gpu"), ("b", "web"), ("c", "web")][..], Some(vec![])),
            (&[("a", "gpu"), ("b", "gpu"), ("d", "web")], Some(vec!["b", "c", "d"])),
            (&[("b", "web"), ("c", "web")], None),
            (&[("a", "gpu"), ("b", "web"), ("c", "new")], None),
        ] {
            let after = members(after);
            let names = after.changed_since(&before);
            let names = names.map(|names| names.into_iter().map(NodeName::as_str).collect::<Vec<_>>());
            assert_eq!(names, concerned, "{after:?}");
        }
    }

    #[test]
    fn only_another_response_is_announced() {
        let shared = PoolMembers::default();
        let mut changes = shared.subscribe();
        assert_eq!(shared.get(), None);
        // An empty response is a response.
        shared.set(members(&[]));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        shared.set(members(&[]));
        assert!(!changes.has_changed().unwrap());
        shared.set(members(&[("a", "gpu")]));
        assert!(changes.has_changed().unwrap());
    }
}
