//! The identity of a Node: which instance of the cloud it is.
//!
//! Invariants: a [`Proven`] exists only for a Node whose claim the cloud confirms, and its group comes only from data
//! that a node cannot change. Data that a kubelet writes (its Node's providerID, addresses, labels, annotations)
//! selects the instance to query, or refutes a claim; it never proves one.
//!
//! - [`identifier`]: the contract of a provider, the claim of a Node and the identity of an instance.
//! - [`refusal`]: the other possible answer, and the meaning of each reason.
//! - [`proof`]: the pure decision whether a claim and an answer match.
//! - [`aws`]: the provider for EC2.
//! - [`gce`]: the provider for Google Compute Engine.
//! - [`hetzner`]: the provider for Hetzner Cloud.
//! - [`groups`]: the instance groups of a cluster, for its validation.
//! - [`lookup`]: batches the queries of thousands of Nodes into few calls, and caches the answers.

pub mod aws;
mod claimants;
mod client_settings;
mod failure;
pub mod gce;
pub mod groups;
pub mod hetzner;
pub mod identifier;
pub mod lookup;
mod page_tokens;
pub mod proof;
pub mod refusal;

pub use client_settings::ClientSettings;
pub use groups::{CloudGroup, CloudGroups, GroupsUnavailable, Member, MemberStatus, Sizes};
pub use identifier::{AnswerFn, Claim, Identifier, Identity};
pub use lookup::{Answer, Lookup, LookupSettings};
pub use proof::{NameWarning, NodeNames, Proven, prove};
pub use refusal::{GroupHold, Mark, NotManaged, Refusal, UnavailableCause};
