//! One query.
//!
//! Each instance is queried once, no matter how many Nodes claim it, and each claim is answered. Each managed instance
//! group is listed once, and each template read once, no matter how many instances refer to it, and in whatever order
//! they are found.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidewaiter_api::ClusterName;
use tokio::sync::OnceCell;

use super::failure::Failure;
use super::group::{Group, Members};
use super::links::{Mig, TemplateLink};
use super::names::{ProjectId, Target};
use crate::claim::Claim;
use crate::claimants::Claimants;
use crate::identifier::AnswerFn;
use crate::identity::Identity;
use crate::refusal::Refusal;

/// The managed instance groups that one query lists at most: what instances say of their makers may not be true, and each
/// could name another.
const MAX_MIGS: usize = 256;

/// The templates that one query reads at most.
const MAX_TEMPLATES: usize = 256;

/// The instances that one query asks for one by one, beside those that make it up when it is small.
const MAX_GETS: usize = 32;

pub(super) struct Query<'a> {
    claimants: Claimants<'a, Target>,
    gets: AtomicUsize,
    pub(super) migs: Once<Mig, Members>,
    pub(super) templates: Once<TemplateLink, Group>,
}

/// Results that are asked for once.
pub(super) struct Once<K, V> {
    limit: usize,
    cells: Mutex<HashMap<K, Cell<V>>>,
}

/// What was asked, or is being asked.
pub(super) type Cell<V> = Arc<OnceCell<Result<V, Failure>>>;

impl<'a> Query<'a> {
    /// Reads the claims; those that name no instance of our project are refused here.
    pub(super) fn new(claims: &[Claim], answers: &'a AnswerFn<'a>, project: &ProjectId, cluster: &ClusterName) -> Self {
        let read = |claim: &Claim| Target::read(&claim.provider_id, project, cluster);
        Self {
            claimants: Claimants::new(claims, answers, read),
            gets: AtomicUsize::new(0),
            migs: Once::new(MAX_MIGS),
            templates: Once::new(MAX_TEMPLATES),
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

    /// Takes `count` calls for single instances, if so many are left.
    pub(super) fn take_gets(&self, count: usize) -> bool {
        let take = |taken: usize| taken.checked_add(count).filter(|sum| *sum <= MAX_GETS);
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

    /// Where the result for `key` is or will be; `None` when there are too many already.
    pub(super) fn cell(&self, key: &K) -> Option<Cell<V>> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
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
