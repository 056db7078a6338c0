//! Collects the failures: which of them count, which are tolerated, and which are only counted.

use std::collections::{BTreeMap, HashSet};

use crate::verdict::{Failure, FailureKind};

/// The subject of a failure, which decides whether it is tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place<'a> {
    /// The cluster, or a group of it.
    Cluster,
    /// An instance without a Node, by its id.
    Machine(&'a str),
    /// A Node or a pod on it, by the Node's name.
    Node(&'a str),
}

/// The failures that were found so far.
pub(super) struct Findings<'a> {
    /// All failures of these workers are tolerated.
    tolerable: HashSet<Place<'a>>,
    /// The number of failures to list.
    limit: usize,
    pub failures: Vec<Failure>,
    pub unlisted: BTreeMap<FailureKind, usize>,
    pub tolerated: Vec<Failure>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(tolerable: HashSet<Place<'a>>, limit: usize) -> Self {
        Self {
            tolerable,
            limit,
            failures: Vec::new(),
            unlisted: BTreeMap::new(),
            tolerated: Vec::new(),
        }
    }

    /// Adds a failure of this kind. It is put into words only if it is listed: the words of 50,000 failures do not fit
    /// into the caches of the processor.
    pub(super) fn add(&mut self, kind: FailureKind, place: Place<'a>, failure: impl FnOnce() -> Failure) {
        if self.tolerable.contains(&place) {
            self.tolerated.push(failure());
        } else if self.failures.len() < self.limit {
            self.failures.push(failure());
        } else {
            *self.unlisted.entry(kind).or_default() += 1;
        }
    }
}
