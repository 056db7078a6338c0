//! What a Node says about itself. Every field but `node`, `uid` and `rivals` is its kubelet's to write.

use std::net::IpAddr;

use tidewaiter_api::{NodeName, NodeUid, ProviderId};

/// The claim of one Node to be one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the Node, which its kubelet's client certificate binds: the one field that can prove something.
    pub node: NodeName,
    /// `metadata.uid` of the Node: a Node that was made anew under its old name is another Node.
    pub uid: NodeUid,
    /// `spec.providerID`: the instance that it claims to be.
    pub provider_id: ProviderId,
    /// The addresses of type `InternalIP` that the Node lists. They can refute, never prove.
    pub addresses: Vec<IpAddr>,
    /// Names of the other Nodes with this very providerID, in any order; empty for almost every Node.
    pub rivals: Vec<NodeName>,
}
