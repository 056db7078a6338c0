//! What decides the labels of a node: its Cluster and its InstanceGroup.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::instance_group::InstanceGroup;

/// What decides the labels of a group's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The group.
    pub group: Arc<InstanceGroup>,
}
