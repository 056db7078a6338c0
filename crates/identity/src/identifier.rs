//! The contract between a cloud's provider and its callers: the claim of a Node, and the identity of an instance.

use std::net::IpAddr;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidewaiter_api::{InstanceGroupName, Lifecycle, NodeName, NodeUid, ProviderId};

use crate::refusal::Refusal;

/// The claim of one Node to be one instance. The kubelet can write every field except `node`, `uid` and `rivals`.
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

/// A running instance of this cluster, as described by the cloud.
///
/// Thousands of them are cached, packed as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name or id of the instance: `i-0123456789abcdef0` on EC2, `us-central1-a/nodes-x7k2` on GCE, where a name is
    /// unique only within its zone, `42` on Hetzner Cloud.
    pub instance: String,
    /// The `InstanceGroup`, from data that a node cannot change: on EC2 a tag, on GCE the instance template with which
    /// its managed instance group lists it, on Hetzner Cloud a label of the server.
    pub group: InstanceGroupName,
    /// True if it is still starting: EC2 may not know its name and its addresses yet.
    pub starting: bool,
    /// The zone of the instance; on Hetzner Cloud its location.
    pub zone: String,
    /// The billing model of the instance.
    pub lifecycle: Lifecycle,
    /// All permitted names of a Node of this instance: on EC2 its private DNS name and its id, on GCE and Hetzner Cloud
    /// its name. In lower case.
    pub names: Vec<String>,
    /// All private addresses of its interfaces; on Hetzner Cloud also the public ones.
    pub addresses: Vec<IpAddr>,
    /// The labels in its tags, as sorted pairs of key and value, not validated. Empty unless the provider was
    /// configured to read them, because they need most of the memory, and on clouds without such tags.
    pub tag_labels: Vec<(String, String)>,
}

impl Identity {
    /// Returns true if a Node of this name can be this instance.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Returns true if this instance has the address. An IPv4 address and its IPv6-mapped form are the same one.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses
            .iter()
            .any(|own| own.to_canonical() == address.to_canonical())
    }
}

/// The callback for a provider's answers.
///
/// Its arguments are the index of a claim in the queried slice, and the answer. Only the first answer for an index
/// counts.
pub type AnswerFn<'a> = dyn Fn(usize, Result<Identity, Refusal>) + Send + Sync + 'a;

/// A cloud that can identify its instances.
///
/// # Answers
/// An [`Identity`] means that, at the time of the call, the cloud listed exactly one such instance, that it was running
/// or starting, that it belonged to us (project, cluster tag), that it was in the zone of the providerID, and that it
/// was in this group, according to data that the instance cannot change. It does **not** mean that the claiming Node
/// *is* the instance: that is decided by [`prove`](crate::proof::prove), which needs no cloud.
///
/// A [`Refusal`] means that the Node gets no labels. It removes none either: existing labels stay, whatever the
/// refusal, until a later answer proves another identity. Each has its meaning, whether it is evidence that the claim
/// is forged, and the time of the next query:
///
/// - `InvalidProviderId`: no instance can have this id; the cloud was not queried. Forged: no: a broken bootstrap looks
///   the same. Again: only when the Node changes.
/// - `NotFound`: the cloud does not list the instance. Forged: no: deleted, or too new for an eventually consistent
///   list. Again: in seconds, with all others; the lookup does.
/// - `NotRunning`: it is stopping, stopped or terminated. Forged: no: its Node outlives it by minutes. Again: later.
/// - `ForeignProject`: it belongs to another cluster or project, or to none. Forged: yes if it belongs to another; no
///   if it has no mark at all. Again: later.
/// - `NotInGroup`: it has no valid group, or no group lists it. Forged: no: a configuration error. Again: later.
/// - `ProjectMismatch`: GCE: its project is not that of the setting, where no instance of the cluster was found yet.
///   Forged: no: the setting may be wrong. Again: later.
/// - `ZoneMismatch`: it is in another zone than that of the providerID. Forged: yes: a cloud controller manager writes
///   the correct zone. Again: only when the Node changes.
/// - `Throttled`: nothing. Forged: no. Again: later; the lookup slows down all calls.
/// - `Unavailable`: nothing: there was no usable response. Forged: no. Again: later.
///
/// The proof, which follows the answer, adds:
///
/// - `NameMismatch`: the Node's name is not one of the instance's names. Forged: yes. Again: when the Node changes or
///   the identity expires.
/// - `NameScheme`: EC2: the Node's name is one of the instance's names, of the scheme that the cluster does not use.
///   Forged: no: the setting may be wrong. Again: when the Node changes or the identity expires.
/// - `AddressMismatch`: the Node lists addresses, and none belongs to the instance. Forged: yes. Again: when the Node
///   changes or the identity expires.
/// - `Starting`: one of these two forgeries, and the instance is still starting. Forged: no: EC2 may not know its name
///   and its addresses yet. Again: in seconds, with all others; the lookup does.
/// - `GroupChanged`: the instance is in another group than the one for which the Node was verified; added by the
///   NodeController, which has the record. Forged: no: it is unknown who changed it. Again: within minutes.
/// - `Duplicate`: another Node claims the instance with equal evidence. Forged: no: it is unknown which of the two is
///   forged. Again: when either Node changes.
///
/// # Caching
/// An identity may be cached for the Node's uid *and* providerID, for at most [`LookupSettings::expiry`], because an
/// instance can get other tags or another group meanwhile; that of an instance that is starting for at most a minute,
/// and not after `Starting`. The proof is repeated on each use. A refusal is never cached, because each can become
/// obsolete a second later, except while the lookup itself queries again. A provider may remember *how* to query that
/// id next time, so that it does not affect other claims.
///
/// # Guarantees of a provider
/// - **One answer per claim**, in any order, each as soon as it is known: a slow call delays no other claim. A claim
///   without an answer when the future ends counts as `Unavailable`.
/// - **Isolation.** An id that the cloud does not know, or that makes it fail, costs other claims at most a few more
///   calls. The failure of one zone costs other zones no more than that.
/// - **Only validated ids are sent.** A providerID of another scheme or format is refused without a call.
/// - **No assumptions on the order or the size of a response.** Instances that were not requested are ignored, missing
///   ones are `NotFound`, and duplicates are `Unavailable`.
/// - **Several claims of one instance** cause one query, and each is answered.
/// - **Bounded.** Every call has a timeout, and a query ends after a bounded number of calls, whatever the cloud
///   responds.
/// - **Cancellation.** The future may be dropped at any await point.
/// - **No secrets** in a refusal: no credentials, no signatures, no URLs. It contains nothing that differs between
///   calls, so that equal refusals have equal texts.
///
/// [`LookupSettings::expiry`]: crate::lookup::LookupSettings::expiry
#[async_trait]
pub trait Identifier: Send + Sync {
    /// The scheme of this cloud's providerIDs, before `://`.
    fn scheme(&self) -> &'static str;

    /// The maximum number of claims in a query: as many as one call can answer.
    fn max_batch(&self) -> usize;

    /// Queries the cloud about the instances that these Nodes claim to be, and passes each answer to `answers`.
    async fn identify(&self, claims: &[Claim], answers: &AnswerFn<'_>);
}
