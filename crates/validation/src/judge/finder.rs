//! Finds the Node of each instance, from the claims of the Nodes and from their proof.
//!
//! A claim counts only if the `NodeIdentity` of this very Node proves it. A claim without proof makes the instance's Node unknown:
//! it does not count as joined, and it does not count as missing either. A forged claim counts for nothing.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tidewaiter_api::ProviderId;

use crate::objects::{IdentityRecord, IdentityResult, Node};
use crate::observation::{Identities, Member, Part};

/// The Nodes, by the instance that they claim to be.
pub(super) struct Finder<'a> {
    /// By the name of the Node. Forged claims are not included.
    claims: Vec<Claim<'a>>,
    /// The index of one claim for each instance; the others follow from [`Claim::next`].
    of_instance: HashMap<&'a ProviderId, usize>,
}

/// A Node that claims to be an instance.
struct Claim<'a> {
    node: &'a Node,
    doubt: Option<Doubt<'a>>,
    /// Another claim for the same instance.
    next: Option<usize>,
}

/// The Node of an instance.
#[derive(Clone, Copy)]
pub(super) enum Join<'a> {
    /// No Node claims to be the instance.
    Missing,
    /// A Node whose claim counts, and its place in the order of the names of all Nodes.
    Node(&'a Node, usize),
    /// Only Nodes that may or may not be the instance.
    Unproven(&'a Node, Doubt<'a>),
}

/// Why a claim is not proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt<'a> {
    /// The `NodeIdentities` are not known.
    Unread,
    NoRecord,
    /// The record is about a deleted Node of the same name.
    OfEarlierNode,
    /// The record is about another providerID.
    OfOtherInstance,
    /// The reason in the record.
    Unproven(&'a str),
}

impl fmt::Display for Doubt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread => f.write_str("the NodeIdentities are not known"),
            Self::NoRecord => f.write_str("it has no NodeIdentity"),
            Self::OfEarlierNode => f.write_str("its NodeIdentity is about an earlier Node of this name"),
            Self::OfOtherInstance => f.write_str("its NodeIdentity is about another providerID"),
            Self::Unproven(reason) => write!(f, "its NodeIdentity says {reason}"),
        }
    }
}

impl<'a> Finder<'a> {
    pub(super) fn new(nodes: &'a [Arc<Node>], identities: &'a Identities) -> Self {
        let mut claimants: Vec<_> = nodes
            .iter()
            .filter_map(|node| Some((node.as_ref(), node.provider_id.as_ref()?)))
            .collect();
        // Usually they are in this order already; then this compares each with the next one only.
        claimants.sort_by(|(one, _), (other, _)| one.name().cmp(other.name()));
        let mut judge = Judge::of(identities);
        let mut claims: Vec<Claim<'a>> = Vec::with_capacity(claimants.len());
        let mut of_instance = HashMap::with_capacity(claimants.len());
        for (node, provider_id) in claimants {
            let Ok(doubt) = judge.claim(node) else { continue };
            let next = of_instance.insert(provider_id, claims.len());
            claims.push(Claim { node, doubt, next });
        }
        Self { claims, of_instance }
    }

    /// How many claims there are.
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// The Node of an instance. Of several Nodes the worst counts, so that no claim can hide that another Node is not ready.
    pub(super) fn node_of(&self, member: &'a Member) -> Join<'a> {
        let mut next = self.of_instance.get(&member.provider_id).copied();
        let mut found = Join::Missing;
        while let Some(index) = next {
            let claim = &self.claims[index];
            next = claim.next;
            let node = claim.node;
            let has_name = |name: &str| name == node.name();
            if !member.node_name.as_ref().is_none_or(|name| has_name(name.as_str())) {
                continue;
            }
            found = match (found, claim.doubt) {
                (Join::Node(worst, _), None) if precedence(worst) <= precedence(node) => found,
                (_, None) => Join::Node(node, index),
                (Join::Node(..), Some(_)) => found,
                (Join::Unproven(first, _), Some(_)) if first.name() <= node.name() => found,
                (_, Some(doubt)) => Join::Unproven(node, doubt),
            };
        }
        found
    }
}

/// A control-plane Node must run the static pods, and no kubelet can set its label, so it takes precedence.
fn precedence(node: &Node) -> (bool, bool, &str) {
    (node.is_ready(), !node.is_control_plane(), node.name())
}

/// The claim counts for nothing.
struct Forged;

/// Compares Nodes with their records. Both are sorted by name, so each record is looked at once.
enum Judge<'a> {
    Trusts,
    Unread,
    Reads(std::iter::Peekable<std::vec::IntoIter<&'a IdentityRecord>>),
}

impl<'a> Judge<'a> {
    fn of(identities: &'a Identities) -> Self {
        match identities {
            Identities::NotInstalled => Self::Trusts,
            Identities::Installed(Part::Unknown(_)) => Self::Unread,
            Identities::Installed(Part::Known(records)) => {
                let mut records: Vec<_> = records.iter().map(Arc::as_ref).collect();
                records.sort_by(|one, other| one.node().cmp(other.node()));
                Self::Reads(records.into_iter().peekable())
            }
        }
    }

    /// Whether the claim of the next Node by name is proven, or why not.
    fn claim(&mut self, node: &Node) -> Result<Option<Doubt<'a>>, Forged> {
        let records = match self {
            Self::Trusts => return Ok(None),
            Self::Unread => return Ok(Some(Doubt::Unread)),
            Self::Reads(records) => records,
        };
        while records
            .next_if(|record| record.node().cmp(node.name()) == Ordering::Less)
            .is_some()
        {}
        let Some(record) = records.peek().filter(|record| record.node() == node.name()) else {
            return Ok(Some(Doubt::NoRecord));
        };
        if !record.is_about(node) {
            return Ok(Some(Doubt::OfEarlierNode));
        }
        match record.result() {
            // Whatever else it claims now: somebody lied.
            IdentityResult::Forged => Err(Forged),
            _ if !record.is_about_instance_of(node) => Ok(Some(Doubt::OfOtherInstance)),
            IdentityResult::Proven => Ok(None),
            IdentityResult::Unproven(reason) => Ok(Some(Doubt::Unproven(reason))),
        }
    }
}
