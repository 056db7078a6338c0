//! The definition of a node's labels: its Cluster and its InstanceGroup.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::instance_group::InstanceGroup;

/// The definition of the labels of a group's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The group.
    pub group: Arc<InstanceGroup>,
}
