//! What was observed of a cluster: all that a verdict is made from.
//!
//! No type of a cloud's SDK and no client is in it. A part that could not be observed says why, so that nobody has to take
//! "not asked" for "nothing there".

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use tidewaiter_api::ClusterName;
pub use tidewaiter_identity::{CloudGroup, Member, MemberStatus};
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
    /// The names of those that the controller's records call forged; none where nobody may read the records.
    pub forged: BTreeSet<String>,
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
