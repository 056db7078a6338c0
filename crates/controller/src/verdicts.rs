//! The verdict on the cluster, made anew when what it rests on has changed: for the MetricsServer and for ClusterHealth.
//!
//! Made on every replica, leader or not, from caches and from answers that are kept: no reader of a verdict makes anybody ask
//! for anything. A part that was not heard of for too long is unknown, and said to be; an old verdict is never told as a new one,
//! because each says when it was made, and one is made at least every half minute.

mod kept;
mod nodes;
mod outside;

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, select};
use jiff::Timestamp;
use kube::{Api, Client};
use tidewaiter_api::ClusterName;
use tidewaiter_identity::{CloudGroups, GroupsUnavailable};
use tidewaiter_kit::{Cache, Cacheable, Change, Kit, OnChange, SharedClock, Tasks};
use tidewaiter_kops::Definitions;
use tidewaiter_validation::{Observation, Options, Part, Pod, Verdict, judge, matters};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::node_controller::{Forged, Node};
use nodes::Nodes;
use outside::Outside;

/// What has not been heard of for longer is not known.
const LIMIT: Duration = Duration::from_mins(2);
/// The first verdict waits for all that it rests on, but no longer than this.
const FIRST: Duration = Duration::from_mins(1);
/// A verdict is made at least so often.
const AT_LEAST: Duration = Duration::from_secs(30);
/// Between two verdicts, as a multiple of what the last one took: a cluster that changes all the time costs a fifth of a core,
/// unless it is so large that this would be longer than [`LONGEST_REST`].
const REST: u32 = 4;
/// Of 5,000 Nodes one takes 25 ms: what changes while one is made is to be in the next within a tenth of a second. That is at
/// most half a core.
const LONGEST_REST: Duration = Duration::from_millis(30);
/// Pods to a page of their list: 150,000 are 300 pages.
const PAGE: u32 = 500;

/// A verdict and when it was made.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What was found.
    pub verdict: Verdict,
    /// When.
    pub at: Timestamp,
    /// The same on the monotonic clock.
    pub monotonic: Duration,
}

/// The newest verdict; none before the first.
pub type Latest = watch::Receiver<Option<Arc<Judged>>>;

/// What verdicts are made from.
pub struct VerdictParts {
    /// The cluster.
    pub cluster: ClusterName,
    /// To follow Pods with.
    pub client: Client,
    /// InstanceGroups, and the name of the API; or why the state store is not read.
    pub definitions: Result<Definitions, &'static str>,
    /// The cloud's groups; or why this cloud has none.
    pub cloud: Result<Arc<dyn CloudGroups>, GroupsUnavailable>,
    /// What is tolerated.
    pub options: Options,
}

/// Verdicts that are not being made yet: what they rest on may be told of changes already.
pub struct Verdicts {
    parts: VerdictParts,
    changed: Arc<Notify>,
    judged: Arc<Nodes>,
    forged: Arc<Forged>,
}

impl Verdicts {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(parts: VerdictParts) -> Self {
        let changed = Arc::default();
        Self {
            parts,
            judged: Arc::default(),
            forged: Arc::new(Forged::new(Arc::clone(&changed))),
            changed,
        }
    }

    /// For the cache of Nodes, which the NodeController has.
    #[must_use]
    pub fn on_node(&self) -> OnChange<Node> {
        let (judged, notify) = (Arc::clone(&self.judged), notifies(&self.changed));
        Box::new(move |change| {
            judged.changed(change);
            notify(change);
        })
    }

    /// For the cache of records, which the NodeController has.
    #[must_use]
    pub fn forged(&self) -> Arc<Forged> {
        Arc::clone(&self.forged)
    }

    /// Starts to follow Pods, to ask the cloud, the store and DNS, and to judge.
    #[must_use]
    pub fn start(self, nodes: Cache<Node>, tasks: &mut Tasks, kit: &Kit) -> Latest {
        let Self {
            parts,
            changed,
            judged,
            forged,
        } = self;
        let pods = Cache::builder(Api::<Pod>::all(parts.client))
            .page_size(PAGE)
            .keep(matters)
            .same(Pod::same)
            .on_change(notifies(&changed))
            .start(tasks, kit);
        let outside = Arc::new(Outside::new(
            parts.cloud,
            parts.definitions,
            Arc::clone(&changed),
            Arc::clone(&kit.clock),
        ));
        let (sender, latest) = watch::channel(None);
        let judge = Judge {
            cluster: parts.cluster,
            nodes,
            judged,
            forged,
            pods,
            outside: Arc::clone(&outside),
            options: parts.options,
            clock: Arc::clone(&kit.clock),
            changed,
            sender,
        };
        tasks.spawn("verdict/outside", outside.keep_asking(tasks.shutdown_token()));
        tasks.spawn("verdict", judge.run(tasks.shutdown_token()));
        latest
    }
}

fn notifies<K>(changed: &Arc<Notify>) -> OnChange<K> {
    let changed = Arc::clone(changed);
    Box::new(move |_: &Change<K>| changed.notify_one())
}

struct Judge {
    cluster: ClusterName,
    nodes: Cache<Node>,
    judged: Arc<Nodes>,
    forged: Arc<Forged>,
    pods: Cache<Pod>,
    outside: Arc<Outside>,
    options: Options,
    clock: SharedClock,
    changed: Arc<Notify>,
    sender: watch::Sender<Option<Arc<Judged>>>,
}

impl Judge {
    async fn run(self, shutdown: CancellationToken) -> Result<(), Infallible> {
        shutdown.run_until_cancelled(Arc::new(self).keep_judging()).await;
        Ok(())
    }

    async fn keep_judging(self: Arc<Self>) -> Infallible {
        let listed = join(self.nodes.synced(), self.pods.synced());
        let all = Box::pin(join(listed, self.outside.asked()));
        select(all, self.clock.sleep(FIRST)).await;
        loop {
            let began = self.clock.monotonic();
            let judge = Arc::clone(&self);
            // On a thread apart: scrapes and watches would have to wait for the runtime's own.
            let judged = spawn_blocking(move || judge.judge()).await;
            if let Err(Ok(panic)) = judged.map_err(JoinError::try_into_panic) {
                resume_unwind(panic);
            }
            let took = self.clock.monotonic().saturating_sub(began);
            self.clock.sleep((took * REST).min(LONGEST_REST)).await;
            select(Box::pin(self.changed.notified()), self.clock.sleep(AT_LEAST)).await;
        }
    }

    fn judge(&self) {
        let (at, monotonic) = (self.clock.now(), self.clock.monotonic());
        let verdict = judge(&self.observe(monotonic), &self.options);
        let before = self.sender.borrow().as_ref().map(|before| before.verdict.outcome());
        if before != Some(verdict.outcome()) {
            info!(outcome = ?verdict.outcome(), failures = verdict.failures.len(), "the verdict on the cluster");
        }
        let judged = Judged { verdict, at, monotonic };
        self.sender.send_replace(Some(Arc::new(judged)));
    }

    fn observe(&self, now: Duration) -> Observation {
        Observation {
            cluster: self.cluster.clone(),
            groups: self.outside.groups(now),
            cloud: self.outside.cloud(now),
            nodes: known(&self.nodes, now, || self.judged.all(&self.nodes)),
            forged: self.forged.names(),
            pods: known(&self.pods, now, || self.pods.all().map(Arc::new).collect()),
            dns: self.outside.dns(now),
        }
    }
}

/// `all` of what a cache holds, if it is followed.
fn known<K: Cacheable, T>(cache: &Cache<K>, now: Duration, all: impl FnOnce() -> T) -> Part<T> {
    let (kind, trouble) = (K::plural(&()), cache.trouble());
    match trouble {
        _ if !cache.is_synced() => {
            let why = trouble
                .map(|trouble| format!(": {}", trouble.error))
                .unwrap_or_default();
            Part::Unknown(format!("the {kind} have never been listed{why}"))
        }
        Some(trouble) if now.saturating_sub(trouble.since_monotonic) > LIMIT => {
            let (since, error) = (trouble.since.strftime("%FT%TZ"), trouble.error);
            Part::Unknown(format!("the {kind} are known as of {since} only: {error}"))
        }
        _ => Part::Known(all()),
    }
}

#[cfg(test)]
pub(crate) mod by_hand {
    //! A verdict without anything in it, for the tests of what shows one.

    use tidewaiter_validation::verdict::{Counts, Verdict};

    pub(crate) fn verdict(cluster: &str, counts: Counts) -> Verdict {
        Verdict {
            cluster: cluster.parse().unwrap(),
            failures: vec![],
            tolerated: vec![],
            unknown: vec![],
            groups: vec![],
            nodes: vec![],
            counts,
        }
    }
}
