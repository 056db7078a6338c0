//! The contract between a cloud's provider and those who ask it.

use async_trait::async_trait;

use crate::claim::Claim;
use crate::identity::Identity;
use crate::refusal::Refusal;

/// Where a provider puts its answers.
///
/// The place of a claim in the slice that was asked, and what the cloud says of it. Only the first answer for a place counts.
pub type Answers<'a> = dyn Fn(usize, Result<Identity, Refusal>) + Send + Sync + 'a;

/// A cloud that can say what its instances are.
///
/// # What an answer says
/// An [`Identity`] says that, at the moment of the call, the cloud listed exactly one such instance, that it was running (or
/// about to), that it was ours (project, cluster tag), that it was in the zone that the providerID names, and in which group
/// it is, from what the instance cannot change. It does **not** yet say that the Node which claims it *is* it: that is
/// [`prove`](crate::proof::prove), which needs no cloud.
///
/// A [`Refusal`] says that nothing may be given to the Node. It takes nothing away either: labels that were given before
/// stay, whatever the refusal, until a later answer proves something else.
///
/// | refusal | what it says of the instance | evidence of forgery | asking again |
/// | --- | --- | --- | --- |
/// | `InvalidProviderId` | no instance can have this id; the cloud was not asked | no: a broken bootstrap looks the same | only when the Node changes |
/// | `NotFound` | the cloud does not list it | no: gone, or too young for an eventually consistent list | later |
/// | `NotRunning` | it is stopping, stopped or terminated | no: its Node outlives it by minutes | later |
/// | `ForeignProject` | it is another's, or nobody's | yes when it is another's; no when it carries no mark at all | later |
/// | `NotInGroup` | it is in no group that we can name, or no group lists it | no: an operator's mistake | later |
/// | `ZoneMismatch` | it is in another zone than the providerID says | yes: the cloud's own writers put the right one | only when the Node changes |
/// | `Throttled` | nothing | no | later; the lookup slows all calls down together |
/// | `Unavailable` | nothing: no usable answer came | no | later |
///
/// and from the proof, which follows the answer:
///
/// | refusal | what it says of the Node | evidence of forgery | asking again |
/// | --- | --- | --- | --- |
/// | `NameMismatch` | its name is none of the instance's | yes | when the Node changes or the identity expires |
/// | `AddressMismatch` | it lists addresses, and none is the instance's | yes | when the Node changes or the identity expires |
/// | `Duplicate` | another Node claims the instance with the same right | no: one of the two lies, and it cannot be told which | when either Node changes |
///
/// # What may be kept
/// An identity may be kept for the Node's uid *and* providerID together, for [`LookupSettings::expiry`] at most, because an
/// instance can be retagged or moved to another group meanwhile; the proof is made anew on each use. A refusal is never kept:
/// each of them can be over a second later. What a provider may remember of one is *how* to ask for that id next time, so that
/// it does not spoil the call of others.
///
/// # What a provider promises
/// - **One answer for each claim**, in any order, each as soon as it is known: a claim whose call is slow holds back no other.
///   A claim without an answer when the future ends counts as `Unavailable`.
/// - **No shared fate.** An id that the cloud does not know, or that makes it fail, costs the others at most a few calls; the
///   failure of one zone costs the other zones nothing but those.
/// - **Nothing unchecked is sent.** A providerID of another scheme or form is refused without a call.
/// - **Nothing is believed of the order or the size of an answer.** What was not asked is ignored, what is missing is `NotFound`,
///   what comes twice is `Unavailable`.
/// - **Several claims of one instance** are asked for once and each is answered.
/// - **Bounded.** Every call has a deadline, and a question ends after a bounded number of calls whatever the cloud answers.
/// - **Cancellation.** The future may be dropped at any await; nothing is left behind but what was learnt.
/// - **No secrets** in a refusal: no credentials, no signatures, no URLs; and nothing that changes with each call, so that two
///   equal refusals read the same.
///
/// [`LookupSettings::expiry`]: crate::lookup::LookupSettings::expiry
#[async_trait]
pub trait Identifier: Send + Sync {
    /// What stands before `://` in the providerIDs of this cloud.
    fn scheme(&self) -> &'static str;

    /// How many claims one question may hold: as many as the cloud answers in one call.
    fn max_batch(&self) -> usize;

    /// Asks the cloud about the instances that these Nodes claim to be, and gives each answer to `answers`.
    async fn identify(&self, claims: &[Claim], answers: &Answers<'_>);
}
