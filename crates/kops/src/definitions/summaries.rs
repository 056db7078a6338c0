//! What the Cluster and its groups show besides labels, and whether that may be gone by.

use std::sync::Arc;

use super::DefinitionError;
use super::{Definitions, Stale, TrackedGroup, ask, first_reads};
use crate::cluster_summary::ClusterSummary;
use crate::group_summary::GroupSummary;

impl Definitions {
    /// What each group in the store shows, by name: the last good version, from memory. The first call lists the groups, and
    /// reads those that were never read; [`run`](Self::run) keeps them from then on, sizes too. An empty folder gives none.
    ///
    /// # Errors
    /// When the groups were never listed, when the file of one was never readable, or when a field that is shown is wrong in
    /// its last good version: never a part of the groups.
    pub async fn summaries(&self) -> Result<Vec<GroupSummary>, DefinitionError> {
        self.owned_keys().await;
        let groups = self.listed_groups()?;
        // A poll may have listed a group that it has not read yet.
        ask(first_reads(&groups), 0).await;
        let summaries = groups.iter().map(|group| Ok(GroupSummary::clone(&*group.summary()?)));
        summaries.collect()
    }

    /// What the Cluster shows: the last good version, from memory. Only the first call reads, as with [`get`](Self::get).
    ///
    /// # Errors
    /// When there has never been a good Cluster, or a field that is shown is wrong in its last good version.
    pub async fn cluster_summary(&self) -> Result<Arc<ClusterSummary>, DefinitionError> {
        let cluster = &self.0.cluster;
        cluster.want();
        cluster.get().await?;
        cluster.summary()
    }

    /// Whether the groups of the last good list, the list itself or the Cluster cannot be read any more; of several, what
    /// could be read the longest time ago. Known as of the last poll.
    #[must_use]
    pub fn stale(&self) -> Option<Stale> {
        let groups = self.listed_groups().unwrap_or_default();
        let groups = groups.iter().filter_map(|group| group.stale());
        let list = self.0.all_groups.stale(&*self.0.shared.clock);
        let all = groups.chain(list).chain(self.0.cluster.stale());
        all.max_by_key(|stale| stale.age)
    }

    fn listed_groups(&self) -> Result<Vec<Arc<TrackedGroup>>, DefinitionError> {
        let listed = self.0.all_groups.names()?;
        let mut groups = self.groups();
        let listed = listed.into_iter().map(|name| {
            let group = groups.entry(name).or_insert_with_key(|name| Arc::new(self.track(name)));
            Arc::clone(group)
        });
        Ok(listed.collect())
    }
}
