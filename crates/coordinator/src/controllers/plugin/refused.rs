//! The reasons why a version of a plugin is refused. Nothing of a refused version is applied.

/// The remedy for a value that is no text.
pub(super) const QUOTES: &str = "numbers and true/false that are meant as texts need quotes in YAML";

/// The reason why a version is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub(super) struct Refused {
    /// The object, or its place in the manifests.
    pub(super) at: String,
    pub(super) why: String,
}

pub(super) fn refused(at: impl Into<String>, why: impl Into<String>) -> Refused {
    Refused {
        at: at.into(),
        why: why.into(),
    }
}
