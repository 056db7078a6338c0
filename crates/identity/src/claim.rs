//! The claim of a Node about itself. The kubelet can write every field except `node`, `uid` and `rivals`.

use std::net::IpAddr;

use tidewaiter_api::{NodeName, NodeUid, ProviderId};

/// The claim of one Node to be one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The name of the Node, bound by the kubelet's client certificate: the only field that can prove something.
    pub node: NodeName,
    /// `metadata.uid` of the Node. A Node that was created again under the same name is another Node.
    pub uid: NodeUid,
    /// `spec.providerID`: the instance that it claims to be.
    pub provider_id: ProviderId,
    /// The Node's addresses of type `InternalIP`. They can refute the claim, but never prove it.
    pub addresses: Vec<IpAddr>,
    /// The names of other Nodes with the same providerID, in any order. Empty for almost every Node.
    pub rivals: Vec<NodeName>,
}
