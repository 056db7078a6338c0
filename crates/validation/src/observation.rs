//! The observation of a cluster: the complete input of a verdict.
//!
//! It contains no types of a cloud's SDK and no client. A part that could not be observed has a reason, so that
//! "unknown" is never mistaken for "none".

use std::net::IpAddr;
use std::sync::Arc;

use tidewaiter_api::ClusterName;
pub use tidewaiter_identity::{CloudGroup, Member, MemberStatus, Sizes};
use tidewaiter_kops::GroupSummary;

use crate::claims::Claims;
use crate::instances::Instances;
use crate::objects::Pod;
pub use crate::part::Part;

/// An observation of one cluster. The order within a list has no meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its InstanceGroups from the state store. An empty list counts as unknown: every cluster has at least one.
    pub groups: Part<Vec<GroupSummary>>,
    /// The groups of the cloud that belong to the cluster.
    pub cloud: Part<Arc<Instances>>,
    /// The place in which the cloud's groups were queried, for messages: `region us-east-1`.
    pub cloud_location: Option<String>,
    /// All Nodes, with what their records say.
    pub nodes: Part<Claims>,
    /// The availability of the records.
    pub identities: Identities,
    /// At least the [judged](crate::is_judged) Pods; others have no effect.
    pub pods: Part<Vec<Arc<Pod>>>,
    /// The addresses of the API's DNS name.
    pub dns: Part<Dns>,
}

/// The proof that a Node is the instance that its providerID names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identities {
    /// The API server does not serve `NodeIdentities`, because Tidewaiter is not installed. Every claim counts, as for
    /// kOps.
    NotInstalled,
    /// Only a claim counts that its `NodeIdentity` proves; none if they are not known.
    Installed(Part<()>),
}

/// The addresses of the API's DNS name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dns {
    /// All its addresses. A name that does not resolve is [`Part::Unknown`].
    Addresses(Vec<IpAddr>),
    /// The cluster publishes no such name: it has no DNS (`none`), or uses gossip.
    NotAsked,
}
