//! The fields of the Cluster and its groups that are unrelated to labels, and whether they may be stale.

use std::sync::Arc;

use super::DefinitionError;
use super::{Definitions, Stale, TrackedGroup, ask, first_reads};
use crate::cluster_summary::ClusterSummary;
use crate::group_summary::GroupSummary;

impl Definitions {
    /// The summaries of all groups in the store, by name: the last valid versions, from memory. The first call lists
    /// the groups and reads those that were never read; afterwards [`run`](Self::run) keeps them up to date, sizes
    /// included. An empty folder has no groups.
    ///
    /// # Errors
    /// If the groups were never listed, if the file of one was never readable, or if a field of the summary is invalid
    /// in its last valid version: never a part of the groups.
    pub async fn summaries(&self) -> Result<Vec<GroupSummary>, DefinitionError> {
        self.owned_keys().await;
        let groups = self.listed_groups()?;
        // A poll may have listed a group that it has not read yet.
        ask(first_reads(&groups), 0).await;
        let summaries = groups.iter().map(|group| Ok(GroupSummary::clone(&*group.summary()?)));
        summaries.collect()
    }

    /// The summary of the Cluster: the last valid version, from memory. Only the first call reads the file, as with
    /// [`get`](Self::get).
    ///
    /// # Errors
    /// If there has never been a valid Cluster, or if a field of the summary is invalid in its last valid version.
    pub async fn cluster_summary(&self) -> Result<Arc<ClusterSummary>, DefinitionError> {
        let cluster = &self.0.cluster;
        cluster.want();
        cluster.get().await?;
        cluster.summary()
    }

    /// Returns the problem if the last listing, one of its groups or the Cluster cannot be read any more; if several,
    /// the one that was readable the longest time ago. As of the last poll.
    #[must_use]
    pub fn stale(&self) -> Option<Stale> {
        let groups = self.listed_groups().unwrap_or_default();
        let groups = groups.iter().filter_map(|group| group.stale());
        let list = self.0.all_groups.stale(&*self.0.shared.clock);
        let all = groups.chain(list).chain(self.0.cluster.stale());
        all.max_by_key(|stale| stale.age)
    }

    /// The error of a listed group or the Cluster whose file has been invalid in two reads in a row, after it had been
    /// valid: what it defines now is unknown.
    #[must_use]
    pub fn damage(&self) -> Option<DefinitionError> {
        let groups = self.listed_groups().unwrap_or_default();
        let mut damaged = groups.iter().filter_map(|group| group.damage());
        damaged.next().or_else(|| self.0.cluster.damage())
    }

    /// Completes when [`damage`](Self::damage) may have changed since the last call, for one caller at a time.
    pub async fn damage_changed(&self) {
        self.0.shared.damage.notified().await;
    }

    fn listed_groups(&self) -> Result<Vec<Arc<TrackedGroup>>, DefinitionError> {
        let listed = self.0.all_groups.names()?;
        let mut groups = self.0.groups.lock();
        let listed = listed.into_iter().map(|name| {
            let group = groups.entry(name).or_insert_with_key(|name| Arc::new(self.track(name)));
            Arc::clone(group)
        });
        Ok(listed.collect())
    }
}
