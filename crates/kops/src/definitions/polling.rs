//! The times at which the files are requested again: at every poll, more often while one that was never read waits for
//! the store, and once more soon after one has become invalid.
//!
//! A group that a caller has requested is kept for hours, because the store may lose its file by mistake: its Nodes
//! keep their definition.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, select};
use futures::{FutureExt as _, StreamExt as _, stream};
use tidewaiter_api::InstanceGroupName;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::{Backoff, random};

use super::error::DefinitionError;
use super::owned::OwnedKeys;
use super::shared::{Changed, Shared};
use super::{Definitions, Inner, TrackedGroup};
use crate::instance_group::GROUPS_FOLDER;
use crate::store::StoreError;

/// The maximum number of concurrent reads.
pub(super) const AT_ONCE: usize = 4;
/// A poll stops after this many reads that cannot reach the store, and leaves the rest to the next poll.
pub(super) const AWAY: usize = 4;
/// The jitter of the poll interval, as a fraction of it.
const JITTER: f64 = 0.1;
/// The time between two tries of the files that were never read because the store is unavailable. Nodes wait for them.
const TRIES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));
/// The time until an invalid file is read again: some stores show a file while it is written.
pub(super) const SECOND_READ: Duration = Duration::from_secs(3);

impl Definitions {
    /// Polls the files, and retries those that were never read or are in doubt.
    pub(super) async fn keep_polling(&self, has_node: impl Fn(&InstanceGroupName) -> bool + Sync) -> Infallible {
        loop {
            let Inner { shared, settings, .. } = &*self.0;
            let poll = shared.clock.sleep(jittered(settings.poll, JITTER));
            select(poll, pin!(self.keep_trying())).await;
            self.poll(&has_node).await;
        }
    }

    /// Retries the files that were never read because the store is unavailable, and reads those in doubt again.
    async fn keep_trying(&self) -> Infallible {
        let shared = &self.0.shared;
        let mut tries = 0;
        loop {
            if !self.awaits_store() && !self.is_in_doubt() {
                tries = 0;
                shared.away.notified().await;
            }
            tries += 1;
            let wait = if self.is_in_doubt() {
                SECOND_READ
            } else {
                TRIES.ceiling(tries)
            };
            shared.clock.sleep(jittered(wait, JITTER)).await;
            let groups: Vec<_> = self.0.groups.lock().values().cloned().collect();
            let awaited = groups
                .iter()
                .filter(|group| group.awaits_store() || group.is_in_doubt());
            let mut reads: Vec<BoxFuture<'_, bool>> = awaited.map(|group| group.refresh().boxed()).collect();
            let cluster = &self.0.cluster;
            if cluster.awaits_store() || cluster.is_in_doubt() {
                reads.push(cluster.refresh().boxed());
            }
            ask(reads, 0).await;
            self.count_problems();
        }
    }

    fn awaits_store(&self) -> bool {
        self.0.cluster.awaits_store() || self.0.groups.lock().values().any(|group| group.awaits_store())
    }

    fn is_in_doubt(&self) -> bool {
        self.0.cluster.is_in_doubt() || self.0.groups.lock().values().any(|group| group.is_in_doubt())
    }

    /// Requests every required file once, as [`run`](Self::run) does at every poll. Dropping the future loses no
    /// response that has arrived.
    pub async fn refresh(&self) {
        self.poll(&|_: &InstanceGroupName| true).await;
    }

    pub(super) async fn poll(&self, has_node: &(impl Fn(&InstanceGroupName) -> bool + Sync)) {
        let mut away = 0;
        if self.0.all_groups.announced().is_some() {
            away += usize::from(!self.list_groups().await);
        }
        self.forget_unused();
        let groups: Vec<_> = self.0.groups.lock().values().cloned().collect();
        let mut reads: Vec<BoxFuture<'_, bool>> = groups.iter().map(|group| group.refresh().boxed()).collect();
        if self.0.cluster.wanted_since(Duration::ZERO) {
            reads.push(self.0.cluster.refresh().boxed());
        }
        ask(reads, away).await;
        self.forget_deleted(has_node);
        self.count_problems();
        if self.0.all_groups.announced().is_some() {
            self.announce_owned_keys();
        }
    }

    /// Lists the groups and tracks each from now on. Returns whether the store responded, with any result.
    pub(super) async fn list_groups(&self) -> bool {
        let answer = self.0.shared.reads.list(GROUPS_FOLDER).await;
        let answered = !matches!(answer, Err(StoreError::Unavailable { .. }));
        self.0.all_groups.take(answer, &*self.0.shared.clock);
        let listed = self.0.all_groups.listed().unwrap_or_default();
        let mut groups = self.0.groups.lock();
        for name in listed {
            groups.entry(name).or_insert_with_key(|name| Arc::new(self.track(name)));
        }
        answered
    }

    /// Computes the owners of the label keys, and announces them if they changed.
    pub(super) fn announce_owned_keys(&self) {
        let good: BTreeMap<_, _> = self
            .0
            .groups
            .lock()
            .iter()
            .map(|(name, group)| (name.clone(), group.good()))
            .collect();
        // An empty folder belongs to another cluster or to none: every cluster has a group.
        let listed = self.0.all_groups.listed().filter(|listed| !listed.is_empty());
        let complete = listed.is_some_and(|listed| listed.iter().all(|name| matches!(good.get(name), Some(Some(_)))));
        let cluster = self.0.cluster.good();
        let owned = OwnedKeys::of(good.values().flatten().map(AsRef::as_ref), cluster.as_deref(), complete);
        let Shared {
            reads, announcements, ..
        } = &*self.0.shared;
        reads.incomplete.set(i64::from(!owned.is_complete()));
        if self.0.all_groups.announce(owned) {
            tracing::info!("the label keys defined by groups have changed");
            announcements.add(Changed::OwnedKeys);
        }
    }

    pub(super) fn count_problems(&self) {
        let problems = self.problems().len();
        self.0
            .shared
            .reads
            .problems
            .set(i64::try_from(problems).unwrap_or(i64::MAX));
    }

    /// Drops the groups that no caller has requested for a long time and that do not exist.
    pub(super) fn forget_unused(&self) {
        let since = self
            .0
            .shared
            .clock
            .monotonic()
            .saturating_sub(self.0.settings.unused_after);
        let all = &self.0.all_groups;
        let mut groups = self.0.groups.lock();
        groups.retain(|name, group| group.wanted_since(since) || all.is_listed(name));
    }

    /// Drops the groups that were deleted and have no Node. One that was requested a moment ago is kept: the Node of
    /// its caller may not be known yet.
    pub(super) fn forget_deleted(&self, has_node: &impl Fn(&InstanceGroupName) -> bool) {
        let Inner {
            all_groups,
            settings,
            shared,
            ..
        } = &*self.0;
        let lately = shared.clock.monotonic().saturating_sub(settings.poll * 2);
        self.0.groups.lock().retain(|name, group| {
            !all_groups.is_deleted(name) || !group.is_missing() || group.wanted_since(lately) || has_node(name)
        });
    }
}

/// The first reads of those of these groups that have no valid version yet.
pub(super) fn first_reads(groups: &[Arc<TrackedGroup>]) -> Vec<BoxFuture<'_, bool>> {
    let reads = groups
        .iter()
        .map(|group| async { is_answer(&group.get().await) }.boxed());
    reads.collect()
}

/// Returns true if the store responded, with any result.
pub(super) fn is_answer<T>(read: &Result<Arc<T>, DefinitionError>) -> bool {
    !matches!(read, Err(error) if error.is_transient())
}

/// Awaits these reads, each of which returns whether the store responded, in random order, so that no file is always
/// the last one when the store is unreachable: after a few failures the rest is left to the next poll.
pub(super) async fn ask(mut reads: Vec<BoxFuture<'_, bool>>, mut away: usize) {
    random::shuffle(&mut reads);
    let mut answers = stream::iter(reads).buffer_unordered(AT_ONCE);
    while let Some(answered) = answers.next().await {
        away += usize::from(!answered);
        if away == AWAY {
            break;
        }
    }
}
