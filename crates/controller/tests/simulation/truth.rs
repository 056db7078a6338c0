//! The true state and its history: the instances of the cloud and the definitions of the groups.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidewaiter_api::Lifecycle;
use tidewaiter_api::names::{EXCLUSIVE_ROLE_LABELS, INSTANCE_GROUP_LABEL, is_observed};
use tidewaiter_kops::{Cluster, Definition, InstanceGroup, node_labels};

/// The number of instances of which a random history has Nodes. A Node and its instance have the same number.
pub const SIZE: usize = 3;
/// The number of all instances.
pub const INSTANCES: usize = 12;
/// The number of an instance that does not exist.
pub const MISSING: usize = 99;
pub const GROUPS: [(&str, &str); 2] = [("nodes", "Node"), ("masters", "Master")];
/// The keys that groups define; the last one is that of the kubelet, which each Node has.
pub const KEYS: [&str; 3] = ["example.com/a", "example.com/b", "topology.kubernetes.io/zone"];
/// A key that no group ever defines.
pub const MINE: &str = "example.com/mine";
pub const CLUSTER: &str = "c.example.com";
pub const CLUSTER_FILE: &str = "cluster-completed.spec";

pub type Labels = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    pub group: usize,
    pub runs: bool,
}

/// All versions of everything; the last one is current.
#[derive(Debug)]
pub struct Truth {
    instances: Vec<Vec<(Duration, Instance)>>,
    definitions: Vec<Vec<Version>>,
}

/// One version of a group's file.
#[derive(Clone, Debug)]
struct Version {
    labels: Labels,
    /// The labels of a Node of the group.
    wanted: Labels,
}

pub fn node_name(number: usize) -> String {
    format!("ip-10-0-0-{number}.ec2.internal")
}

pub fn instance_id(number: usize) -> String {
    format!("i-{number:017x}")
}

pub fn provider_id(number: usize) -> String {
    format!("aws:///us-test-1a/{}", instance_id(number))
}

pub fn address(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()])
}

/// The number of the instance in a providerID, if that instance exists.
pub fn claimed(provider: &str) -> Option<usize> {
    (0..INSTANCES).find(|number| provider_id(*number) == provider)
}

pub fn group_file(group: usize) -> String {
    format!("instancegroup/{}", GROUPS[group].0)
}

pub fn cluster_content() -> String {
    let metadata = json!({"name": CLUSTER});
    json!({"apiVersion": "kops.k8s.io/v1alpha2", "kind": "Cluster", "metadata": metadata, "spec": {}}).to_string()
}

impl Truth {
    pub fn new() -> Self {
        let instance = Instance { group: 0, runs: true };
        let first = |(group, key): (usize, &str)| vec![version(group, [(key.to_owned(), "1".to_owned())].into())];
        Self {
            instances: vec![vec![(Duration::ZERO, instance)]; INSTANCES],
            definitions: (0..GROUPS.len()).zip(KEYS).map(first).collect(),
        }
    }

    pub fn instance(&self, number: usize) -> Instance {
        self.instances[number][self.instances[number].len() - 1].1
    }

    pub fn set_instance(&mut self, at: Duration, number: usize, instance: Instance) {
        self.instances[number].push((at, instance));
    }

    /// Sets or removes a label of a group.
    pub fn define(&mut self, group: usize, key: &str, value: Option<&str>) {
        let mut labels = self.now(group).labels.clone();
        match value {
            Some(value) => drop(labels.insert(key.to_owned(), value.to_owned())),
            None => drop(labels.remove(key)),
        }
        self.definitions[group].push(version(group, labels));
    }

    /// The content of a group's file.
    pub fn content(&self, group: usize) -> String {
        content(group, &self.now(group).labels)
    }

    /// The labels that a Node of this group should have now.
    pub fn wanted(&self, group: usize) -> &Labels {
        &self.now(group).wanted
    }

    /// Returns true if any version of the group has defined this label.
    pub fn was_given(&self, group: usize, key: &str, value: &str) -> bool {
        let gives = |version: &Version| version.wanted.get(key).is_some_and(|wanted| wanted == value);
        self.definitions[group].iter().any(gives)
    }

    /// Returns true if a key can be that of a group.
    pub fn is_definable(key: &str) -> bool {
        key != MINE && !is_observed(key)
    }

    /// Returns true if only a proven Node may have this key: a group defines it, or it is one of kOps' own.
    pub fn needs_proof(&self, key: &str) -> bool {
        let given = (0..GROUPS.len()).any(|group| self.wanted(group).contains_key(key));
        (given && !is_observed(key)) || EXCLUSIVE_ROLE_LABELS.contains(&key) || key == INSTANCE_GROUP_LABEL
    }

    /// The groups of an instance while it ran, at any time after `since`.
    pub fn groups_since(&self, number: usize, since: Duration) -> impl Iterator<Item = usize> {
        let past = &self.instances[number];
        // The state at `since` began earlier.
        let first = past.partition_point(|(at, _)| *at <= since).saturating_sub(1);
        let ran = past[first..].iter().filter(|(_, instance)| instance.runs);
        ran.map(|(_, instance)| instance.group)
    }

    fn now(&self, group: usize) -> &Version {
        &self.definitions[group][self.definitions[group].len() - 1]
    }
}

fn content(group: usize, labels: &Labels) -> String {
    let (name, role) = GROUPS[group];
    let file = json!({
        "apiVersion": "kops.k8s.io/v1alpha2", "kind": "InstanceGroup", "metadata": {"name": name},
        "spec": {"role": role, "nodeLabels": labels},
    });
    file.to_string()
}

fn version(group: usize, labels: Labels) -> Version {
    let (name, of) = (GROUPS[group].0.parse().unwrap(), CLUSTER.parse().unwrap());
    let cluster = Cluster::parse(CLUSTER_FILE, cluster_content().as_bytes(), &of).unwrap();
    let group = InstanceGroup::parse(&group_file(group), content(group, &labels).as_bytes(), &name, &of).unwrap();
    let definition = Definition {
        cluster: Arc::new(cluster),
        group: Arc::new(group),
    };
    let wanted = node_labels(&definition, Lifecycle::OnDemand, &[]).wanted;
    let wanted = wanted
        .iter()
        .map(|label| (label.key.to_string(), label.value.to_string()));
    Version {
        labels,
        wanted: wanted.collect(),
    }
}
