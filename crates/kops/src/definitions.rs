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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join, select};
use futures::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use tidewaiter_api::{ClusterName, InstanceGroupName};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Backoff, Metrics, SharedClock, random};
use tokio::sync::Notify;

use crate::cluster::{CLUSTER_FILE, Cluster};
use crate::cluster_summary::ClusterSummary;
use crate::definition::Definition;
use crate::group_summary::GroupSummary;
use crate::instance_group::{GROUPS_FOLDER, InstanceGroup};
use crate::store::{ReadFile, StoreError};

mod announcements;
mod error;
mod owned;
mod reads;
mod retention;
mod stale;
mod summaries;
mod tracked;

use announcements::Announcements;
pub use error::DefinitionError;
use owned::Groups;
pub use owned::OwnedKeys;
use reads::Reads;
pub use stale::Stale;
use tracked::{Content, Shared, Tracked};

/// The maximum number of concurrent reads.
const AT_ONCE: usize = 4;
/// A poll stops after this many reads that cannot reach the store, and leaves the rest to the next poll.
const AWAY: usize = 4;
/// The jitter of the poll interval, as a fraction of it.
const JITTER: f64 = 0.1;
/// The time between two tries of the files that were never read because the store is unavailable. Nodes wait for them.
const TRIES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));

/// A change of a definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Changed {
    /// The Cluster: it concerns every group.
    Cluster,
    /// One group.
    Group(InstanceGroupName),
    /// The owners of the label keys; concerns every Node.
    OwnedKeys,
}

/// A required file that is currently unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The problem; names the file.
    pub error: DefinitionError,
    /// The start of exactly this problem.
    pub since: Timestamp,
    /// Whether an earlier valid version is in use. If not, no node gets labels from this file.
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
        if let Some(told) = all.told() {
            return told;
        }
        let _first = all.first.lock().await;
        if all.told().is_none() {
            self.0.cluster.want();
            let away = usize::from(!self.list_groups().await);
            let groups: Vec<_> = self.groups().values().cloned().collect();
            let mut reads = first_reads(&groups);
            reads.push(async { is_answer(&self.0.cluster.get().await) }.boxed());
            ask(reads, away).await;
            self.tell_owned_keys();
        }
        all.told().unwrap_or_default()
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
        let work = pin!(join(self.keep_polling(has_node), self.keep_announcing(on_change)));
        select(pin!(stop), work).await;
        Ok(())
    }

    /// The required files that are currently unusable.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let groups: Vec<_> = self.groups().values().cloned().collect();
        let groups = groups.iter().filter_map(|group| group.problem());
        let problems = self.0.cluster.problem().into_iter().chain(groups);
        let problems = problems.map(|(error, since, last_good_in_force)| Problem {
            error,
            since,
            last_good_in_force,
        });
        problems.collect()
    }

    /// For `/readyz`: fails while the Cluster is required and has never been valid, because then no node gets labels.
    ///
    /// # Errors
    /// The problem of the Cluster.
    pub fn check(&self) -> Result<(), String> {
        match self.0.cluster.problem() {
            Some((error, _, false)) => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    async fn keep_polling(&self, has_node: impl Fn(&InstanceGroupName) -> bool + Sync) -> Infallible {
        loop {
            let Inner { shared, settings, .. } = &*self.0;
            let poll = shared.clock.sleep(jittered(settings.poll, JITTER));
            select(poll, pin!(self.keep_trying())).await;
            self.poll(&has_node).await;
        }
    }

    /// Retries the files that were never read because the store is unavailable, while there are any.
    async fn keep_trying(&self) -> Infallible {
        let shared = &self.0.shared;
        let mut tries = 0;
        loop {
            if !self.awaits_store() {
                tries = 0;
                shared.away.notified().await;
            }
            tries += 1;
            shared.clock.sleep(jittered(TRIES.ceiling(tries), JITTER)).await;
            let groups: Vec<_> = self.groups().values().cloned().collect();
            let awaited = groups.iter().filter(|group| group.awaits_store());
            let mut reads: Vec<BoxFuture<'_, bool>> = awaited.map(|group| group.refresh().boxed()).collect();
            if self.0.cluster.awaits_store() {
                reads.push(self.0.cluster.refresh().boxed());
            }
            ask(reads, 0).await;
            self.count_problems();
        }
    }

    fn awaits_store(&self) -> bool {
        self.0.cluster.awaits_store() || self.groups().values().any(|group| group.awaits_store())
    }

    async fn keep_announcing(&self, on_change: impl Fn(Changed)) -> Infallible {
        loop {
            for changed in self.0.shared.announcements.next().await {
                on_change(changed);
            }
        }
    }

    /// Requests every required file once, as [`run`](Self::run) does at every poll. Dropping the future loses no
    /// response that has arrived.
    pub async fn refresh(&self) {
        self.poll(&|_: &InstanceGroupName| true).await;
    }

    async fn poll(&self, has_node: &(impl Fn(&InstanceGroupName) -> bool + Sync)) {
        let mut away = 0;
        if self.0.all_groups.told().is_some() {
            away += usize::from(!self.list_groups().await);
        }
        self.forget_unused();
        let groups: Vec<_> = self.groups().values().cloned().collect();
        let mut reads: Vec<BoxFuture<'_, bool>> = groups.iter().map(|group| group.refresh().boxed()).collect();
        if self.0.cluster.wanted_since(Duration::ZERO) {
            reads.push(self.0.cluster.refresh().boxed());
        }
        ask(reads, away).await;
        self.forget_deleted(has_node);
        self.count_problems();
        if self.0.all_groups.told().is_some() {
            self.tell_owned_keys();
        }
    }

    /// Lists the groups and tracks each from now on. Returns whether the store responded, with any result.
    async fn list_groups(&self) -> bool {
        let answer = self.0.shared.reads.list(GROUPS_FOLDER).await;
        let answered = !matches!(answer, Err(StoreError::Unavailable { .. }));
        self.0.all_groups.take(answer, &*self.0.shared.clock);
        let listed = self.0.all_groups.listed().unwrap_or_default();
        let mut groups = self.groups();
        for name in listed {
            groups.entry(name).or_insert_with_key(|name| Arc::new(self.track(name)));
        }
        answered
    }

    /// Computes the owners of the label keys, and announces them if they changed.
    fn tell_owned_keys(&self) {
        let good: BTreeMap<_, _> = self
            .groups()
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
        if self.0.all_groups.tell(owned) {
            tracing::info!("the label keys defined by groups have changed");
            announcements.add(Changed::OwnedKeys);
        }
    }

    /// The group's file, marked as required now, so that no poll drops it before the caller has its answer.
    fn group(&self, name: &InstanceGroupName) -> Arc<TrackedGroup> {
        let mut groups = self.groups();
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

    fn count_problems(&self) {
        let problems = self.problems().len();
        self.0
            .shared
            .reads
            .problems
            .set(i64::try_from(problems).unwrap_or(i64::MAX));
    }

    fn groups(&self) -> MutexGuard<'_, TrackedGroups> {
        self.0.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first reads of those of these groups that have no valid version yet.
fn first_reads(groups: &[Arc<TrackedGroup>]) -> Vec<BoxFuture<'_, bool>> {
    let reads = groups
        .iter()
        .map(|group| async { is_answer(&group.get().await) }.boxed());
    reads.collect()
}

/// Whether the store responded, with any result.
fn is_answer<T>(read: &Result<Arc<T>, DefinitionError>) -> bool {
    !matches!(read, Err(error) if error.is_transient())
}

/// Awaits these reads, each of which returns whether the store responded, in random order, so that no file is always
/// the last one when the store is unreachable: after a few failures the rest is left to the next poll.
async fn ask(mut reads: Vec<BoxFuture<'_, bool>>, mut away: usize) {
    random::shuffle(&mut reads);
    let mut answers = stream::iter(reads).buffer_unordered(AT_ONCE);
    while let Some(answered) = answers.next().await {
        away += usize::from(!answered);
        if away == AWAY {
            break;
        }
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
