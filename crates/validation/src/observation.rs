//! What was observed of a cluster: all that a verdict is made from.
//!
//! No type of a cloud's SDK and no client is in it. A part that could not be observed says why, so that nobody has to take
//! "not asked" for "nothing there".

use std::net::IpAddr;
use std::sync::Arc;

use tidewaiter_api::{ClusterName, InstanceGroupName, NodeName};
use tidewaiter_kops::GroupSummary;

use crate::objects::{Node, Pod};

/// A part of the observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<T> {
    /// It was observed, whole.
    Known(T),
    /// It was not, or not wholly; why, in words.
    Unknown(String),
}

/// What was observed of one cluster. The order inside a list says nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Which cluster.
    pub cluster: ClusterName,
    /// Its InstanceGroups, as the state store has them. None at all counts as unknown: no cluster is without one.
    pub groups: Part<Vec<GroupSummary>>,
    /// The groups of the cloud that belong to the cluster.
    pub cloud: Part<Vec<CloudGroup>>,
    /// All Nodes.
    pub nodes: Part<Vec<Arc<Node>>>,
    /// At least the Pods that are [judged](crate::is_judged); others change nothing.
    pub pods: Part<Vec<Arc<Pod>>>,
    /// What the name of the API resolves to.
    pub dns: Part<Dns>,
}

/// What the name of the cluster's API resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dns {
    /// All its addresses. A name that does not resolve is [`Part::Unknown`].
    Addresses(Vec<IpAddr>),
    /// The cluster publishes no such name: it has no DNS (`none`), or gossips.
    NotAsked,
}

/// A group of instances as the cloud has it: an Auto Scaling group, a managed instance group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudGroup {
    /// Its name in the cloud, unique among the cluster's.
    pub name: String,
    /// The InstanceGroup that it was made for. Several may be made for one (on GCE, one for each zone).
    pub instance_group: InstanceGroupName,
    /// How many instances the cloud means to have now.
    pub target_size: u32,
    /// The fewest that it may mean to have.
    pub min_size: u32,
    /// The most that it may mean to have.
    pub max_size: u32,
    /// Its instances but those that are being terminated; detached ones and those of its warm pool are among them.
    pub members: Vec<Member>,
}

/// An instance of a [`CloudGroup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The end of the providerID that its Node has, from some `/` on: `i-0123456789abcdef0` on EC2, `PROJECT/ZONE/NAME` on GCE.
    pub id: String,
    /// The name that its Node must have, if the cloud tells.
    pub node_name: Option<NodeName>,
    /// How it stands to its group.
    pub status: MemberStatus,
    /// Whether it waits in the group's warm pool, and so is no Node yet.
    pub warm_pool: bool,
}

/// How an instance stands to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// It was made from the group's present definition.
    UpToDate,
    /// It was made from an older one.
    NeedsUpdate,
    /// It was taken out of the group to be replaced, and does not count.
    Detached,
}
