//! The state and the history of the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::objects::{self, CLUSTER, KINDS, Kind, POOL, id};

/// The objects of each kind that a history has.
pub const OBJECTS: usize = 7;
/// The Nodes that a history has.
pub const NODES: usize = 3;

/// Since when, and what changes in the object; none when the cloud does not have it.
type Version = (Duration, Option<usize>);

/// All versions of everything; the last one is current.
#[derive(Debug, Default)]
pub struct Truth {
    versions: BTreeMap<(Kind, usize), Vec<Version>>,
    /// The Nodes that are in the node pool.
    in_pool: BTreeSet<usize>,
}

pub fn node_name(number: usize) -> String {
    format!("node-{number}")
}

impl Truth {
    /// The cloud's value of this object.
    pub fn value(&self, kind: Kind, number: usize) -> Option<usize> {
        let versions = self.versions.get(&(kind, number))?;
        versions.last()?.1
    }

    /// The objects of a kind, by number.
    pub fn objects(&self, kind: Kind) -> BTreeMap<usize, usize> {
        let all = self.versions.range((kind, 0)..=(kind, usize::MAX));
        all.filter_map(|((_, number), versions)| Some((*number, versions.last()?.1?)))
            .collect()
    }

    /// Returns true if anything changed.
    pub fn set(&mut self, now: Duration, kind: Kind, number: usize, value: Option<usize>) -> bool {
        let differs = self.value(kind, number) != value;
        if differs {
            self.versions.entry((kind, number)).or_default().push((now, value));
        }
        differs
    }

    /// The cloud's values of this object since then.
    pub fn since(&self, from: Duration, kind: Kind, number: usize) -> Vec<Option<usize>> {
        let versions = self.versions.get(&(kind, number)).cloned().unwrap_or_default();
        let first = versions.iter().rposition(|(at, _)| *at <= from);
        let before = first.and_then(|first| versions[first].1);
        let later = versions.iter().filter(|(at, _)| *at > from).map(|(_, value)| *value);
        [before].into_iter().chain(later).collect()
    }

    pub fn is_in_pool(&self, node: usize) -> bool {
        self.in_pool.contains(&node)
    }

    pub fn set_in_pool(&mut self, node: usize, is_in: bool) {
        if is_in {
            self.in_pool.insert(node);
        } else {
            self.in_pool.remove(&node);
        }
    }

    /// The cloud's list at this path below the organization; none when there is nothing there.
    pub fn list(&self, path: &str) -> Option<Vec<Value>> {
        if let Some(kind) = KINDS.into_iter().find(|kind| kind.path() == path) {
            let pool = (kind == Kind::AutoscalingGroup).then(|| objects::pool(POOL, None));
            let objects = self.objects(kind).into_iter();
            let objects = objects.map(|(number, value)| kind.object(number, value));
            return Some(pool.into_iter().chain(objects).collect());
        }
        let of_cluster = path.strip_prefix(&format!("clusters/{CLUSTER}/"))?;
        if of_cluster == "deletions" {
            return Some(self.deletions());
        }
        if of_cluster == "nodes" {
            return Some(self.in_pool.iter().map(|node| cloud_node(*node)).collect());
        }
        let (pool, list) = of_cluster.strip_prefix("node-pools/")?.split_once('/')?;
        let exists = pool == POOL || self.objects(Kind::AutoscalingGroup).keys().any(|it| id(*it) == pool);
        (exists && ["labels", "autoscaling-policies"].contains(&list)).then(Vec::new)
    }

    /// The record of the objects that the cloud had, and has not any more.
    fn deletions(&self) -> Vec<Value> {
        let last = |versions: &Vec<Version>| versions.last().is_some_and(|(_, value)| value.is_none());
        let gone = self.versions.iter().filter(|(_, versions)| last(versions));
        let deletion = |kind: &str, number| json!({"kind": kind, "id": id(number), "at": "2026-01-01T00:00:00Z"});
        let nodes = (0..NODES).filter(|node| !self.is_in_pool(*node));
        let nodes = nodes.map(|node| deletion("nodes", 1_000 + node));
        gone.map(|((kind, number), _)| deletion(kind.changed(), *number))
            .chain(nodes)
            .collect()
    }

    /// The labels of a Node that the cloud decides. `claim` is the node pool that the Node's label names: it decides
    /// where the cloud knows no node of the pool by name, also when the last one has just left it.
    pub fn labels(&self, node: usize, claim: Option<&str>) -> BTreeMap<String, String> {
        let of = |kind: Kind, prefix: &str| {
            let prefix = prefix.to_owned();
            let objects = self.objects(kind).into_iter();
            objects.map(move |(number, value)| (format!("{prefix}/k{number}"), format!("v{value}")))
        };
        let mut labels: BTreeMap<_, _> = of(Kind::ClusterLabel, "cluster.containership.io").collect();
        let is_claimed = claim == Some(POOL) && self.in_pool.is_empty();
        if self.is_in_pool(node) || is_claimed {
            labels.extend(of(Kind::NodePoolLabel, "nodepool.containership.io"));
        }
        labels
    }
}

fn cloud_node(number: usize) -> Value {
    json!({"id": id(1_000 + number), "name": node_name(number), "created_at": "1", "updated_at": "1", "node_pool_id": POOL})
}
