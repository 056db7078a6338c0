//! The brake of quarantine: too many forged Nodes are no longer believed. Pure.

/// At most one in this many Nodes may be quarantined, and always at least one.
const NODES_FOR_ONE: usize = 10;

/// Whether forged Nodes may be quarantined, given how many there are. Every Node that is refused for forgery counts, also one that
/// would be spared: a mistake shows in those first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brake {
    /// Some Node has not been classified since the start, so the number of forged Nodes is unknown.
    Unjudged,
    /// They may.
    Free,
    /// There are too many: the cause is probably not forgery.
    Held,
}

impl Brake {
    /// How many of this many Nodes may be forged before the brake holds.
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
