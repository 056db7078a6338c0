//! The brake of quarantine: too many forged Nodes are no longer believed. Pure.

/// At most one in this many Nodes may be quarantined, and always at least one.
const NODES_FOR_ONE: usize = 10;

/// The permission to quarantine forged Nodes, by their number. Every Node that is refused for forgery counts, also one
/// that would be spared: a mistake shows in those first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brake {
    /// Some Node has not been classified since the start, so the number of forged Nodes is unknown.
    Unjudged,
    /// Forged Nodes may be quarantined.
    Free,
    /// There are too many: the cause is probably not forgery.
    Held,
}

impl Brake {
    /// Returns the largest number of forged Nodes for which the brake does not hold, of this many Nodes.
    #[must_use]
    pub(crate) fn limit(nodes: usize) -> usize {
        (nodes / NODES_FOR_ONE).max(1)
    }

    /// The brake once all `nodes` have been classified and `forged` of them are refused for forgery.
    #[must_use]
    pub(crate) fn of(nodes: usize, forged: usize) -> Self {
        if forged > Self::limit(nodes) {
            Self::Held
        } else {
            Self::Free
        }
    }
}
