//! Finds the Node of each instance, from the claims of the Nodes and from their proof.
//!
//! A claim counts only if it is [proven](Proof). A claim without proof makes the instance's Node unknown:
//! it does not count as joined, and it does not count as missing either. A forged claim counts for nothing.

use std::sync::Arc;

use tidewaiter_api::NodeName;

use crate::claims::{Claims, Doubt, Proof, State};
use crate::instances::Instances;
use crate::objects::Node;
use crate::observation::{Identities, Member, Part};

/// The doubt of each Node while the `NodeIdentities` are not known.
static UNREAD: Doubt = Doubt::Unread;

/// The Nodes, by the instance that they claim to be.
pub(super) struct Finder<'a> {
    /// By the name of the Node. Forged claims are not included.
    claimants: Vec<Claimant<'a>>,
    /// By the number of the instance, the index of one claimant; the others follow from [`Claimant::next`].
    of_instance: Vec<Option<u32>>,
}

/// A Node that claims to be an instance.
struct Claimant<'a> {
    node: &'a Node,
    state: State,
    doubt: Option<&'a Doubt>,
    /// Another claimant of the same instance.
    next: Option<u32>,
}

/// The Node of an instance.
#[derive(Clone, Copy)]
pub(super) enum Join<'a> {
    /// No Node claims to be the instance.
    Missing,
    /// A Node whose claim counts.
    Node(Joined<'a>),
    /// Only Nodes that may or may not be the instance.
    Unproven(&'a Node, &'a Doubt),
}

/// A Node whose claim counts.
#[derive(Clone, Copy)]
pub(super) struct Joined<'a> {
    pub node: &'a Node,
    pub state: State,
    /// Its place in the order of the names of all claimants.
    pub place: u32,
}

impl<'a> Finder<'a> {
    pub(super) fn new(claims: Option<&'a Claims>, instances: &'a Arc<Instances>, identities: &Identities) -> Self {
        let mut claimants: Vec<Claimant<'a>> = Vec::with_capacity(claims.map_or(0, Claims::len));
        let mut of_instance = vec![None; instances.len()];
        for (claim, instance) in claims.into_iter().flat_map(|claims| claims.of(instances)) {
            let doubt = match (identities, &claim.proof) {
                (Identities::NotInstalled, _) | (Identities::Installed(Part::Known(())), Proof::Proven) => None,
                (Identities::Installed(Part::Unknown(_)), _) => Some(&UNREAD),
                (Identities::Installed(Part::Known(())), Proof::Forged) => continue,
                (Identities::Installed(Part::Known(())), Proof::Doubtful(doubt)) => Some(doubt),
            };
            let next = of_instance[instance as usize].replace(count(&claimants));
            claimants.push(Claimant {
                node: &claim.node,
                state: claim.state,
                doubt,
                next,
            });
        }
        Self { claimants, of_instance }
    }

    /// Returns the number of claimants.
    pub(super) fn len(&self) -> usize {
        self.claimants.len()
    }

    /// The place of the Node of this name in the order of the names of all claimants.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.claimants
            .binary_search_by(|claimant| claimant.node.name().cmp(name))
            .ok()
    }

    /// The Node of an instance with this number. Of several Nodes the worst counts, so that no claim can hide that
    /// another Node is not ready.
    pub(super) fn node_of(&self, member: &Member, instance: u32) -> Join<'a> {
        let mut next = self.of_instance[instance as usize];
        let mut found = Join::Missing;
        while let Some(place) = next {
            let claimant = &self.claimants[place as usize];
            next = claimant.next;
            let Claimant { node, state, doubt, .. } = *claimant;
            let has_name = |name: &NodeName| name.as_str() == node.name();
            if !member.node_name.as_ref().is_none_or(has_name) {
                continue;
            }
            let joined = Joined { node, state, place };
            found = match (found, doubt) {
                (Join::Node(worst), None) if worst.precedence() <= joined.precedence() => found,
                (_, None) => Join::Node(joined),
                (Join::Node(_), Some(_)) => found,
                (Join::Unproven(first, _), Some(_)) if first.name() <= node.name() => found,
                (_, Some(doubt)) => Join::Unproven(node, doubt),
            };
        }
        found
    }
}

impl<'a> Joined<'a> {
    /// A control-plane Node must run the static pods, and no kubelet can set its label, so it takes precedence.
    fn precedence(&self) -> (bool, bool, &'a str) {
        (self.state.ready, !self.state.control_plane, self.node.name())
    }
}

/// The number of items, which fits for any cluster.
pub(super) fn count(things: impl IntoIterator) -> u32 {
    u32::try_from(things.into_iter().count()).unwrap_or(u32::MAX)
}
