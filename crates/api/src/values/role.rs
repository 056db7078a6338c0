//! The role of an InstanceGroup: its file says it, and on AWS a tag of its Auto Scaling group.

use std::fmt;

/// `spec.role` of an InstanceGroup.
///
/// In the order of kOps' `AllInstanceGroupRoles`: where one role has to stand for all of a group, it is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs the control plane; `Master` in files of older kOps versions.
    ControlPlane,
    /// Runs only an API server.
    ApiServer,
    /// A worker.
    Node,
    /// An SSH jump host; usually not a node.
    Bastion,
    /// Runs only etcd.
    Etcd,
    /// Runs only the scheduler.
    Scheduler,
    /// Runs only the controller manager.
    KubeControllerManager,
}

impl Role {
    /// The roles by the names that kOps' files have for them; the first name of a role is the current one.
    pub const NAMES: [(&str, Self); 8] = [
        ("ControlPlane", Self::ControlPlane),
        ("Master", Self::ControlPlane),
        ("Node", Self::Node),
        ("Bastion", Self::Bastion),
        ("APIServer", Self::ApiServer),
        ("Etcd", Self::Etcd),
        ("Scheduler", Self::Scheduler),
        ("KubeControllerManager", Self::KubeControllerManager),
    ];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Self::NAMES.iter().find(|(_, role)| role == self);
        f.write_str(known.map_or("", |(name, _)| name))
    }
}
