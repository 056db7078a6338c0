//! Which instance of the cloud a Node really is.
//!
//! What holds here: a [`Proven`] exists only for a Node whose claim the cloud's own answer bears out, and its group comes
//! only from what a node cannot change. What a kubelet writes (its Node's providerID, addresses, labels, annotations)
//! says which instance to ask for, or refutes; it never proves.
//!
//! - [`claim`]: what a Node says.
//! - [`identifier`]: the contract of a provider, and what each refusal means for those who depend on it.
//! - [`identity`], [`refusal`]: the two answers.
//! - [`proof`]: the pure decision whether claim and answer belong together.
//! - [`aws`]: the provider for EC2.
//! - [`gce`]: the provider for Google Compute Engine.
//! - [`hetzner`]: the provider for Hetzner Cloud.
//! - [`groups`]: the groups of instances that a cluster has, for the verdict.
//! - [`lookup`]: joins the questions of thousands of Nodes into few calls, and keeps the answers.

pub mod aws;
mod cause;
pub mod claim;
mod claimants;
mod client_settings;
pub mod gce;
pub mod groups;
pub mod hetzner;
pub mod identifier;
pub mod identity;
pub mod lookup;
pub mod proof;
pub mod refusal;

pub use claim::Claim;
pub use client_settings::ClientSettings;
pub use groups::{CloudGroup, CloudGroups, Member, MemberStatus, NoGroups};
pub use identifier::{Answers, Identifier};
pub use identity::Identity;
pub use lookup::{Answer, Lookup, LookupSettings};
pub use proof::{NameWarning, NodeNames, Proven, prove};
pub use refusal::{Mark, NotManaged, Refusal, Trouble};
