//! The Cluster and the required InstanceGroups, kept up to date.
//!
//! A file is read when it is first needed, and requested again at every poll with its known version, so that an
//! unchanged file costs one small response. Whatever happens to the store or to a file, the last valid version stays in
//! use; the problem is stored for callers. A change is announced only if a field changed that is read here. Once a
//! caller needs the owners of label keys, the folder of the groups is listed at every poll, and every group in it is
//! required. Summaries come from the same reads and are not announced. This module never looks at a Node, and never
//! gives up.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{join, join3, select};
use jiff::Timestamp;
use parking_lot::Mutex;
use tidewaiter_api::{ClusterName, InstanceGroupName};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Metrics, SharedClock};
use tokio::sync::Notify;

use crate::cluster::{CLUSTER_FILE, Cluster};
use crate::cluster_summary::ClusterSummary;
use crate::group_summary::GroupSummary;
use crate::instance_group::{Definition, InstanceGroup};
use crate::store::ReadFile;

mod error;
mod owned;
mod polling;
mod shared;
mod summaries;
mod tracked;

pub use error::{DefinitionError, Stale};
use owned::Groups;
pub use owned::OwnedKeys;
use polling::{ask, first_reads, is_answer};
pub use shared::Changed;
use shared::{Announcements, Reads, Shared};
use tracked::{Content, Tracked};

/// A required file that is currently unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The problem; names the file.
    pub error: DefinitionError,
    /// The start of exactly this problem.
    pub since: Timestamp,
    /// True if an earlier valid version is in use. If not, no node gets labels from this file.
    pub last_good_in_force: bool,
}

/// The settings of [`Definitions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefinitionsSettings {
    /// The interval between polls of all required files; with a jitter of a tenth.
    pub poll: Duration,
    /// A group that no caller has requested for this time is dropped. Must be longer than the interval at which callers
    /// request a group.
    pub unused_after: Duration,
}

impl Default for DefinitionsSettings {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(30),
            unused_after: Duration::from_hours(6),
        }
    }
}

/// The required definitions. Clones share them.
#[derive(Clone)]
pub struct Definitions(Arc<Inner>);

type TrackedCluster = Tracked<Cluster, ClusterSummary>;
type TrackedGroup = Tracked<InstanceGroup, GroupSummary>;
type TrackedGroups = BTreeMap<InstanceGroupName, Arc<TrackedGroup>>;

struct Inner {
    /// The name of the Cluster.
    name: ClusterName,
    settings: DefinitionsSettings,
    shared: Arc<Shared>,
    cluster: TrackedCluster,
    groups: Mutex<TrackedGroups>,
    all_groups: Groups,
}

impl Definitions {
    /// Reads nothing yet. `cluster` is the name that the Cluster must have.
    ///
    /// # Errors
    /// If the metrics are already registered.
    pub fn new(
        store: Arc<dyn ReadFile>,
        cluster: ClusterName,
        settings: DefinitionsSettings,
        clock: SharedClock,
        metrics: &Metrics,
    ) -> Result<Self, MetricsError> {
        let shared = Arc::new(Shared {
            reads: Reads::new(store, metrics)?,
            clock,
            announcements: Announcements::default(),
            away: Notify::new(),
            damage: Notify::new(),
        });
        let name = cluster.clone();
        let parse = move |file: &str, bytes: &[u8]| {
            Ok(Content {
                labels: Cluster::parse(file, bytes, &cluster)?,
                summary: ClusterSummary::parse(file, bytes, &cluster),
            })
        };
        Ok(Self(Arc::new(Inner {
            name,
            settings,
            cluster: Tracked::new(CLUSTER_FILE.to_owned(), Changed::Cluster, parse, Arc::clone(&shared)),
            shared,
            groups: Mutex::default(),
            all_groups: Groups::default(),
        })))
    }

    /// The definition of `group`: the last valid version, from memory. Only the first call for a group reads the file,
    /// and the first one after a failure has been cached for between a second and half a minute. Concurrent calls share
    /// one read.
    ///
    /// # Errors
    /// If there has never been a valid version. Once there is one, [`run`](Self::run) announces it.
    pub async fn get(&self, group: &InstanceGroupName) -> Result<Arc<Definition>, DefinitionError> {
        let tracked = self.group(group);
        self.0.cluster.want();
        let (cluster, group) = join(self.0.cluster.get(), tracked.get()).await;
        if cluster.is_err() || group.is_err() {
            self.count_problems();
        }
        Ok(Arc::new(Definition {
            cluster: cluster?,
            group: group?,
        }))
    }

    /// The owners of the label keys, from memory. The first call lists the groups and reads those that were never read;
    /// concurrent calls share that. It always returns an answer, which [`run`](Self::run) keeps up to date.
    pub async fn owned_keys(&self) -> Arc<OwnedKeys> {
        let all = &self.0.all_groups;
        if let Some(owned) = all.announced() {
            return owned;
        }
        let _first = all.first.lock().await;
        if all.announced().is_none() {
            self.0.cluster.want();
            let away = usize::from(!self.list_groups().await);
            let groups: Vec<_> = self.0.groups.lock().values().cloned().collect();
            let mut reads = first_reads(&groups);
            reads.push(async { is_answer(&self.0.cluster.get().await) }.boxed());
            ask(reads, away).await;
            self.announce_owned_keys();
        }
        all.announced().unwrap_or_default()
    }

    /// Keeps the definitions up to date until `stop` completes, and calls `on_change` for each that differs from the
    /// last result of [`get`](Self::get). A group whose file was deleted is dropped when `has_node` says that no Node
    /// is in it. Neither may block.
    ///
    /// # Errors
    /// None: whatever the store does, polling continues.
    pub async fn run(
        self,
        stop: impl Future<Output = ()> + Send,
        has_node: impl Fn(&InstanceGroupName) -> bool + Send + Sync,
        on_change: impl Fn(Changed) + Send,
    ) -> Result<(), Infallible> {
        let first = self.read_cluster();
        let work = join3(first, self.keep_polling(has_node), self.keep_announcing(on_change));
        select(pin!(stop), pin!(work)).await;
        Ok(())
    }

    /// The required files that are currently unusable.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let groups: Vec<_> = self.0.groups.lock().values().cloned().collect();
        let groups = groups.iter().filter_map(|group| group.problem());
        let problems = self.0.cluster.problem().into_iter().chain(groups);
        let problems = problems.map(|(error, since, last_good_in_force)| Problem {
            error,
            since,
            last_good_in_force,
        });
        problems.collect()
    }

    /// Requires the Cluster from now on: [`run`](Self::run) reads it at its start.
    pub fn require_cluster(&self) {
        self.0.cluster.want();
    }

    /// For `/readyz`: fails while the Cluster is required and has never been valid, because then no node gets labels.
    ///
    /// # Errors
    /// The problem of the Cluster, or that it has not been read yet.
    pub fn check(&self) -> Result<(), String> {
        match self.0.cluster.problem() {
            Some((error, _, false)) => Err(error.to_string()),
            None if self.0.cluster.is_unread() => Err(format!("{CLUSTER_FILE}: not read yet")),
            _ => Ok(()),
        }
    }

    /// Reads the Cluster if it is required and was never read.
    async fn read_cluster(&self) {
        if self.0.cluster.is_unread() && self.0.cluster.get().await.is_err() {
            self.count_problems();
        }
    }

    async fn keep_announcing(&self, on_change: impl Fn(Changed)) -> Infallible {
        loop {
            for changed in self.0.shared.announcements.next().await {
                on_change(changed);
            }
        }
    }

    /// The group's file, marked as required now, so that no poll drops it before the caller has its answer.
    fn group(&self, name: &InstanceGroupName) -> Arc<TrackedGroup> {
        let mut groups = self.0.groups.lock();
        let group = match groups.get(name) {
            Some(group) => Arc::clone(group),
            None => Arc::clone(groups.entry(name.clone()).or_insert_with(|| Arc::new(self.track(name)))),
        };
        group.want();
        group
    }

    fn track(&self, name: &InstanceGroupName) -> TrackedGroup {
        let (expected, cluster) = (name.clone(), self.0.name.clone());
        let parse = move |file: &str, bytes: &[u8]| {
            Ok(Content {
                labels: InstanceGroup::parse(file, bytes, &expected, &cluster)?,
                summary: GroupSummary::parse(file, bytes, &expected, &cluster),
            })
        };
        Tracked::new(
            InstanceGroup::file(name),
            Changed::Group(name.clone()),
            parse,
            Arc::clone(&self.0.shared),
        )
    }
}

impl fmt::Debug for Definitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definitions")
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
