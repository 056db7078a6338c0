//! The contract between a cloud's provider and its callers.

use async_trait::async_trait;

use crate::claim::Claim;
use crate::identity::Identity;
use crate::refusal::Refusal;

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
/// refusal, until a later answer proves another identity.
///
/// | refusal | meaning | evidence of forgery | query again |
/// | --- | --- | --- | --- |
/// | `InvalidProviderId` | no instance can have this id; the cloud was not queried | no: a broken bootstrap looks the same | only when the Node changes |
/// | `NotFound` | the cloud does not list the instance | no: deleted, or too new for an eventually consistent list | in seconds, with all others; the lookup does |
/// | `NotRunning` | it is stopping, stopped or terminated | no: its Node outlives it by minutes | later |
/// | `ForeignProject` | it belongs to another cluster or project, or to none | yes if it belongs to another; no if it has no mark at all | later |
/// | `NotInGroup` | it has no valid group, or no group lists it | no: a configuration error | later |
/// | `ProjectMismatch` | GCE: its project is not that of the setting, where no instance of the cluster was found yet | no: the setting may be wrong | later |
/// | `ZoneMismatch` | it is in another zone than that of the providerID | yes: a cloud controller manager writes the correct zone | only when the Node changes |
/// | `Throttled` | nothing | no | later; the lookup slows down all calls |
/// | `Unavailable` | nothing: there was no usable response | no | later |
///
/// The proof, which follows the answer, adds:
///
/// | refusal | meaning | evidence of forgery | query again |
/// | --- | --- | --- | --- |
/// | `NameMismatch` | the Node's name is not one of the instance's names | yes | when the Node changes or the identity expires |
/// | `NameScheme` | EC2: the Node's name is one of the instance's names, of the scheme that the cluster does not use | no: the setting may be wrong | when the Node changes or the identity expires |
/// | `AddressMismatch` | the Node lists addresses, and none belongs to the instance | yes | when the Node changes or the identity expires |
/// | `Starting` | one of these two forgeries, and the instance is still starting | no: EC2 may not know its name and
/// its addresses yet | in seconds, with all others; the lookup does |
/// | `GroupChanged` | the instance is in another group than the one for which the Node was verified; added by the
/// NodeController, which has the record | no: it is unknown who changed it | within minutes |
/// | `Duplicate` | another Node claims the instance with equal evidence | no: it is unknown which of the two is forged | when either Node changes |
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
