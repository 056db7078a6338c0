//! One query.
//!
//! Each instance is queried once, no matter how many Nodes claim it, and each claim is answered. Each managed instance
//! group is listed once, and each template read once, no matter how many instances refer to it, and in whatever order
//! they are found.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidewaiter_api::ClusterName;
use tokio::sync::OnceCell;

use super::group::{Group, Members};
use super::links::{Mig, TemplateLink};
use super::names::{ProjectId, Target};
use crate::claimants::Claimants;
use crate::failure::Failure;
use crate::identifier::{AnswerFn, Claim, Identity};
use crate::refusal::Refusal;

/// The maximum number of managed instance groups that one query lists: each instance could name another, false one.
const MAX_MIGS: usize = 256;

/// The maximum number of templates that one query reads.
pub(super) const MAX_TEMPLATES: usize = 256;

/// The maximum number of instances that one query reads by name because a listing does not contain them. Kubelets can
/// claim any number of them.
pub(super) const MAX_UNLISTED: usize = 32;

/// The maximum number of instances that one query reads by name because their listing failed. A project may make 1,500
/// such calls a minute.
pub(super) const MAX_NOT_LISTED: usize = 500;

pub(super) struct Query<'a> {
    claimants: Claimants<'a, Target>,
    answers: &'a AnswerFn<'a>,
    /// The claims that name another project: the index of each, and its refusal.
    foreign: Vec<(usize, Refusal)>,
    gets: AtomicUsize,
    pub(super) migs: Once<Mig, Members>,
    pub(super) templates: Once<TemplateLink, Arc<Group>>,
}

/// A map of results, each queried once.
pub(super) struct Once<K, V> {
    limit: usize,
    cells: Mutex<HashMap<K, Cell<V>>>,
}

/// The result of a call, finished or in flight.
pub(super) type Cell<V> = Arc<OnceCell<Result<V, Failure>>>;

impl<'a> Query<'a> {
    /// Parses the claims; malformed ones are refused here. Those that name another project are refused by
    /// [`Query::refuse_foreign`].
    pub(super) fn new(claims: &[Claim], answers: &'a AnswerFn<'a>, project: &ProjectId, cluster: &ClusterName) -> Self {
        let read = |claim: &Claim| Target::read(&claim.provider_id, project, cluster);
        let mut foreign = Vec::new();
        let refused = |place, refusal| match refusal {
            Refusal::ForeignProject { .. } => foreign.push((place, refusal)),
            refusal => answers(place, Err(refusal)),
        };
        Self {
            claimants: Claimants::new(claims, answers, read, refused),
            answers,
            foreign,
            gets: AtomicUsize::new(0),
            migs: Once::new(MAX_MIGS),
            templates: Once::new(MAX_TEMPLATES),
        }
    }

    /// Refuses the claims that name another project than `ours`: as forged if an instance of the cluster was found in
    /// `ours`. Otherwise the setting may name the wrong project.
    pub(super) fn refuse_foreign(&self, ours: &ProjectId, is_confirmed: bool) {
        for (place, refusal) in &self.foreign {
            let refusal = match refusal {
                Refusal::ForeignProject {
                    theirs: Some(claimed),
                    ours: cluster,
                    ..
                } if !is_confirmed => Refusal::ProjectMismatch {
                    claimed: claimed.clone(),
                    ours: ours.to_string(),
                    cluster: cluster.clone(),
                },
                refusal => refusal.clone(),
            };
            (self.answers)(*place, Err(refusal));
        }
    }

    pub(super) fn targets(&self) -> Vec<Target> {
        self.claimants.targets()
    }

    pub(super) fn answer(&self, target: &Target, result: &Result<Identity, Refusal>) {
        self.claimants.answer(target, result);
    }

    pub(super) fn refuse(&self, target: &Target, refusal: Refusal) {
        self.claimants.refuse(target, refusal);
    }

    pub(super) fn not_found(&self, target: &Target) {
        self.claimants.not_found(target);
    }

    /// Reserves `count` calls for single instances, if the query has made and reserved at most `limit` with them.
    pub(super) fn take_gets(&self, count: usize, limit: usize) -> bool {
        let take = |taken: usize| taken.checked_add(count).filter(|sum| *sum <= limit);
        self.gets
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }
}

impl<K: Eq + Hash + Clone, V> Once<K, V> {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            cells: Mutex::default(),
        }
    }

    /// The cell with the result for `key`, finished or not; `None` if there are too many keys.
    pub(super) fn cell(&self, key: &K) -> Option<Cell<V>> {
        let mut cells = self.cells.lock();
        if let Some(cell) = cells.get(key) {
            return Some(Arc::clone(cell));
        }
        if cells.len() >= self.limit {
            return None;
        }
        let cell = Cell::default();
        cells.insert(key.clone(), Arc::clone(&cell));
        Some(cell)
    }
}
