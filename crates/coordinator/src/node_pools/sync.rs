//! Reads from the cloud which node pool each node is in.
//!
//! One conditional list request, when the change stream names nodes, and otherwise at each poll. A response that cannot
//! be used changes nothing: the last complete one stays, for as long as it takes. A malformed node in a response keeps
//! its last state, and so does one that the response lacks, until the cloud's record of deletions names it or a person
//! releases it. What would take the labels of its node pool from most Nodes passes the brake besides. Only the leader
//! asks, and not while everything that the coordinator manages is removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use prometheus::IntGauge;
use tidewaiter_cloud::client::{Client, ClientError, Fetched};
use tidewaiter_cloud::models::{self, Kind};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, Chain, Key, Metrics, Pause, SharedClock};
use tokio::sync::Notify;
use tracing::warn;

use super::brake::{Brake, Verdict, contradicts_most};
use super::freshness::Freshness;
use super::listed::Listed;
use super::stored::{ById, StoredNodes};
use super::{Members, NodePools, PoolMembers};
use crate::changes::Asked;
use crate::cloud::Cloud;
use crate::explained::explained;
use crate::loops;
use crate::mirror::{HasRecord, Held, LIST_AGAIN, Record};
use crate::node::Node;
use crate::retries::{PATIENCE, Retries, hangs_after};

/// Spreads the polls of many clusters.
const JITTER: f64 = 0.1;

/// While nothing is wrong, the nodes are listed again after this many sync intervals, in case the change stream lost an
/// event.
const QUIET_INTERVALS: u32 = 5;

/// The time between two requests. It doubles while the change stream names nodes all the time and none of them moves:
/// every report of the status of a node changes the list.
const SHORTEST_REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(8);

/// The reason why Nodes are held.
const UNRECORDED: &str = "the cloud's record of deletions does not name them";
const UNREAD: &str = "the cloud's record of deletions cannot be read";

/// The source of a cluster's nodes.
#[derive(Clone, Debug)]
pub struct CloudNodes {
    /// The cloud.
    pub cloud: Cloud,
    /// Notified when the nodes may have changed: `Changes::of(&[Kind::Node])`.
    pub asked: Arc<Asked>,
}

/// The loop.
struct NodePoolSync {
    cloud: Cloud,
    asked: Arc<Asked>,
    setting: NodePools,
    nodes: Cache<Node>,
    members: PoolMembers,
    /// The last complete response.
    listed: Option<Listed>,
    /// The nodes as they take effect; None until what an earlier process stored was read.
    in_force: Option<ById>,
    stored: StoredNodes,
    held: Held,
    /// A person has released something of it.
    released: Arc<Notify>,
    /// True if the cloud was older than the record of deletions when it was last asked for it.
    is_without_record: bool,
    has_record: HasRecord,
    brake: Brake,
    /// The last error of a request; logged once.
    last_error: Option<String>,
    metrics: SyncMetrics,
    freshness: Arc<Freshness>,
    pause: Pause,
    clock: SharedClock,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// No node is in another node pool than before.
    Unchanged,
    /// Nodes have moved to another node pool.
    Moved,
    /// Most would be, so nothing was changed yet.
    Held,
    /// The response cannot be used. The cloud requires this pause.
    Failed(Duration),
}

struct SyncMetrics {
    last_success: IntGauge,
    held: IntGauge,
}

/// Starts the loop. `nodes` are the Nodes of the cluster, whose labels the brake counts. `held` shows what is held.
///
/// # Errors
/// A metric's name is taken.
pub(crate) fn start(
    CloudNodes { cloud, asked }: CloudNodes,
    setting: NodePools,
    nodes: &Cache<Node>,
    (members, held): (PoolMembers, Held),
    role: &mut Role<'_>,
) -> Result<(), MetricsError> {
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let cloud = Cloud {
        client: cloud.client.with_deadline(PATIENCE),
        ..cloud
    };
    let released = Arc::new(Notify::new());
    let wake = Arc::clone(&released);
    held.notify(move |_| wake.notify_one());
    let sync = NodePoolSync {
        cloud,
        asked,
        setting,
        nodes: nodes.clone(),
        members,
        listed: None,
        in_force: None,
        stored: StoredNodes::new(clients, &context.kit.clock),
        held,
        released,
        is_without_record: true,
        has_record: HasRecord::new(clients, &context.kit.clock),
        brake: Brake::default(),
        last_error: None,
        metrics: SyncMetrics::new(&context.kit.metrics)?,
        freshness: Arc::new(Freshness::idle()),
        pause: context.pause.clone(),
        clock: context.kit.clock.clone(),
    };
    let (freshness, clock) = (Arc::clone(&sync.freshness), Arc::clone(&sync.clock));
    let limit = hangs_after(sync.cloud.interval);
    let pause = context.pause.clone();
    let check = move || {
        if pause.is_paused() {
            return Ok(());
        }
        freshness.check(clock.monotonic(), limit)
    };
    context.kit.checks.register("sync/nodes", check);
    let leadership = context.leadership.clone();
    loops::run(tasks, "sync/nodes", async move {
        leadership.acquired().await;
        // The brake counts them. A cache that is not updated any more ends the process by itself.
        if sync.nodes.synced().await.is_ok() {
            sync.run().await;
        }
    });
    Ok(())
}

impl SyncMetrics {
    fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            last_success: metrics.gauge(
                "tidewaiter_node_pools_last_sync_timestamp_seconds",
                "Unix time of the last complete response of the cloud about the nodes and their node pools, in seconds; 0 before the first one.",
            )?,
            held: metrics.gauge(
                "tidewaiter_node_pools_held",
                "1 while a response is held that would take the labels of its node pool from most Nodes, or from a Node that the cloud has not deleted, else 0.",
            )?,
        })
    }
}

impl NodePoolSync {
    async fn run(mut self) {
        self.freshness.note(self.clock.monotonic());
        let mut rest = SHORTEST_REST;
        // Whether the change stream caused the request, and whether it named nodes.
        let (mut woken, mut named) = (false, false);
        let mut retries = Retries::new(&self.cloud.client, self.cloud.interval, self.clock.clone());
        loop {
            if self.pause.is_paused() {
                self.pause.until(false).await;
                // A termination has removed both.
                self.stored.forget();
                self.has_record.forget();
                self.freshness.note(self.clock.monotonic());
            }
            retries.begin();
            let outcome = self.list(&retries.client()).await;
            self.freshness.note(self.clock.monotonic());
            if let Outcome::Failed(asked) = outcome {
                retries.failed(asked).await;
                continue;
            }
            retries.succeeded();
            if woken {
                self.clock.sleep(rest).await;
                if let Some(is_named) = self.asked.asked().now_or_never() {
                    named = is_named;
                    // The list changes all the time. As long as no node moves, there is no hurry.
                    rest = match outcome {
                        Outcome::Moved => SHORTEST_REST,
                        _ => (rest * 2).min(LONGEST_REST),
                    };
                    continue;
                }
            }
            rest = SHORTEST_REST;
            // Another replica of the cloud may have answered, which had not received the change yet.
            let is_unseen = named && outcome == Outcome::Unchanged;
            let wait = if is_unseen { LIST_AGAIN } else { self.wait(outcome) };
            (woken, named) = tokio::select! {
                biased;
                named = self.asked.asked() => (true, named),
                () = self.released.notified() => (false, false),
                () = self.clock.sleep(wait) => (false, false),
            };
        }
    }

    /// The time until the next poll.
    fn wait(&self, outcome: Outcome) -> Duration {
        let interval = jittered(self.cloud.interval, JITTER);
        match outcome {
            // Not before the interval is over: the same response must confirm it.
            Outcome::Held => interval.max(self.cloud.interval),
            _ => interval * QUIET_INTERVALS,
        }
    }

    /// Requests the nodes once. The request is conditional, except while something is held: a wrong list may have come
    /// with the `ETag` of the right one.
    async fn list(&mut self, client: &Client) -> Outcome {
        if self.in_force.is_none() {
            match self.stored.read().await {
                Ok(stored) => self.in_force = Some(stored),
                Err(error) => {
                    let text = format!("the stored list of nodes cannot be read: {}", Chain(&error));
                    return self.failed(text, Duration::ZERO);
                }
            }
        }
        let known = self.listed.as_ref().and_then(|listed| listed.etag.as_ref());
        let known = known.filter(|_| self.metrics.held.get() == 0);
        match client
            .list_each::<models::Node>(self.cloud.cluster.nodes(), known)
            .await
        {
            Ok(fetched) => {
                if let Fetched::Unchanged = fetched {
                    // Somebody may have deleted or damaged what is stored.
                    self.stored.look().await;
                }
                if let Fetched::Complete { value, etag } = fetched {
                    let listed = Listed::of(value, etag, self.in_force.as_ref());
                    for error in listed.new_malformed(self.listed.as_ref()) {
                        warn!(error, "the cloud lists a malformed node; it keeps its last state");
                    }
                    self.listed = Some(listed);
                }
                self.last_error = None;
                self.metrics.last_success.set(self.clock.now().as_second());
                self.take().await
            }
            Err(error) => {
                let text = explained(&error, client);
                self.failed(text, error.retry_after().unwrap_or_default())
            }
        }
    }

    fn failed(&mut self, text: String, asked: Duration) -> Outcome {
        if self.last_error.as_ref() != Some(&text) {
            warn!(
                error = text,
                "the cloud's list of nodes cannot be used; the last complete one stays"
            );
        }
        self.last_error = Some(text);
        Outcome::Failed(asked)
    }

    /// Uses the last complete response, if it differs from the one that is used and the brake does not hold it.
    async fn take(&mut self) -> Outcome {
        let Some((nodes, is_held)) = self.with_held().await else {
            return Outcome::Unchanged;
        };
        let listed: Members = nodes.values().cloned().collect();
        if self.members.get().as_deref() == Some(&listed) {
            self.brake = Brake::default();
            return self.accept(nodes, is_held, Outcome::Unchanged).await;
        }
        let cluster: Vec<_> = self.nodes.iter().collect();
        let labels = cluster
            .iter()
            .filter_map(|node| Some((node.name(), node.claimed_pool()?)));
        let is_mass = contradicts_most(labels, self.setting, &listed);
        // Of what was in force, only what was deleted or released is missing.
        let may_empty = self.in_force.as_ref().is_some_and(|nodes| !nodes.is_empty()) && !self.is_without_record;
        let was_held = self.metrics.held.get() == 1;
        let (now, interval) = (self.clock.monotonic(), self.cloud.interval);
        match self.brake.judge(&listed, is_mass, may_empty, now, interval) {
            Verdict::Accepted => {
                self.members.set(listed);
                self.accept(nodes, is_held, Outcome::Moved).await
            }
            Verdict::Held => {
                self.metrics.held.set(1);
                if !was_held {
                    let nodes = listed.len();
                    warn!(
                        nodes,
                        "the cloud's list of nodes would take the labels of its node pool from most Nodes; it is held until the next \
                         sync confirms it, and an empty one until it contains nodes or the cloud's record names its deletions"
                    );
                }
                Outcome::Held
            }
        }
    }

    /// The nodes take effect, and are stored.
    async fn accept(&mut self, nodes: ById, is_held: bool, outcome: Outcome) -> Outcome {
        self.metrics.held.set(i64::from(is_held));
        self.stored.write(&nodes).await;
        self.in_force = Some(nodes);
        if is_held { Outcome::Held } else { outcome }
    }

    /// The nodes of the last complete response, with those that it lacks although the cloud has not deleted them, and
    /// whether there are any of these.
    async fn with_held(&mut self) -> Option<(ById, bool)> {
        let (listed, before) = self.listed.as_ref().zip(self.in_force.as_ref())?;
        let missing: ById = listed.missing(before).map(|(id, node)| (*id, node.clone())).collect();
        let mut nodes = listed.by_id.clone();
        let record = if missing.is_empty() {
            Record::Names(BTreeSet::new())
        } else {
            self.record().await
        };
        self.is_without_record = record == Record::Absent;
        let (lost, absent): (ById, ById) = missing
            .into_iter()
            .filter(|(id, _)| record.lacks(&id.to_string()))
            .partition(|(_, (name, _))| self.nodes.get(&Key::new(name.as_str())).is_some());
        let names = lost.values().map(|(name, _)| name.as_str().to_owned()).collect();
        let why = if record == Record::Unread { UNREAD } else { UNRECORDED };
        let held = self.held.hold_exactly(&names, why);
        let kept = lost.into_iter().filter(|(_, (name, _))| held.contains(name.as_str()));
        // Without its Node, a node has no labels to lose; but its kubelet may register it again.
        nodes.extend(kept.chain(absent));
        Some((nodes, !held.is_empty()))
    }

    /// The ids of the nodes that the cloud deleted. It is read after the list, so it names each deletion that the list
    /// shows.
    async fn record(&self) -> Record {
        match self.cloud.client.deletions(self.cloud.cluster).await {
            Ok(deletions) => {
                self.has_record.remember().await;
                let nodes = deletions.iter().filter(|deletion| deletion.kind == Kind::Node);
                Record::Names(nodes.map(|deletion| deletion.id.to_string()).collect())
            }
            Err(ClientError::NotOurs { .. }) if self.has_record.is_unknown().await => Record::Absent,
            Err(_) => Record::Unread,
        }
    }
}
