//! Reports to the cloud: the status of each node and of the cluster, so that the cloud shows what is so.
//!
//! A status is sent when it differs from the one that the cloud shows. What the cloud shows is listed every few
//! minutes, when the change stream names nodes, and when a Node appears that is not listed yet, so a status that
//! somebody overwrote is sent again; at rest no other request is sent. Each node is a key of its own, with a request, a
//! timeout and a backoff of its own: one that the cloud refuses, throttles or does not answer delays no other.
//!
//! Which Node a node of the cloud is: if the cloud knows its name, the Node of that name, and no label counts.
//! Otherwise the Node with the label `containership.io/node-id`, which a kubelet can write: a label that several Nodes
//! have is reported for none of them, and a Node whose name the cloud knows is not asked for its label.

mod cloud_nodes;
pub(crate) mod cluster_report;
mod status;
pub(crate) mod upgrades;

use std::sync::Arc;
use std::time::Duration;

use kube::Resource as _;
use parking_lot::Mutex;
use tidewaiter_cloud::client::{ClientError, Method, Path, Request};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{
    Backoff, Cache, Category, Change, Controller, ControllerContext, Events, Index, Key, Next, Notice, Pass, Queue,
    ReconcileError, Reconciler, Retry, SharedClock, Trigger,
};
use tracing::{info, warn};

use crate::changes::{Asked, Changes};
use crate::cloud::Cloud;
use crate::explained::explained;
use crate::loops;
use crate::node::{NODE_ID_LABEL, Node};
use cloud_nodes::{CloudNode, CloudNodes};
use status::Status;
use tidewaiter_cloud::models::Kind;

/// Requests under way at once.
const CONCURRENCY: usize = 8;
/// The wait after a failure: 5,000 nodes that all fail cost the cloud 8 requests a second.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_mins(10));
/// The interval at which the cloud's nodes are listed.
const REFRESH: Duration = Duration::from_mins(5);
const JITTER: f64 = 0.2;
/// The pause between two lists, whatever requires the second.
const PAUSE: Duration = Duration::from_secs(15);
/// The pause between two reports of the cluster: it changes with every node.
const CLUSTER_PAUSE: Duration = Duration::from_secs(10);
/// The key of the cluster itself. The others are the ids of nodes.
const CLUSTER: &str = "cluster";

/// Sends the reports.
struct Reports {
    cloud: Cloud,
    nodes: Cache<Node>,
    claims: Index<String>,
    /// The Nodes that are ready.
    ready: Index<()>,
    known: Arc<CloudNodes>,
    events: Events,
    clock: SharedClock,
    cluster_sent: Mutex<Option<Duration>>,
}

/// Starts the controller, and the loop that lists the nodes of the cloud.
pub(super) fn start(cloud: &Cloud, changes: &Changes, nodes: &Cache<Node>, role: &mut Role<'_>) {
    let (context, tasks) = (&role.context, &mut *role.tasks);
    let kit = &context.kit;
    let claims = nodes.index(Node::cloud_id);
    let ready = nodes.index(|node: &Node| node.is_ready().then_some(()));
    let (queue, known) = (Queue::new(), Arc::new(CloudNodes::default()));
    let asked = changes.of(&[Kind::Node]);
    nodes.notify(changed(&queue, &known, &asked).unless(Node::has_report_of));
    let lister = Lister {
        cloud: cloud.clone(),
        known: Arc::clone(&known),
        nodes: nodes.clone(),
        queue: queue.clone(),
        asked,
    };
    loops::run(tasks, "reports/cloud-nodes", lister.run(context.clone()));
    let reports = Reports {
        cloud: cloud.clone(),
        nodes: nodes.clone(),
        claims,
        ready,
        known,
        events: context.events.of(Reports::NAME),
        clock: Arc::clone(&kit.clock),
        cluster_sent: Mutex::default(),
    };
    Controller::new(reports, queue)
        .concurrency(CONCURRENCY)
        .backoff(BACKOFF)
        .start(context.clone(), tasks);
}

/// Reports the node that the Node may be, and the cluster.
fn changed(queue: &Queue, known: &Arc<CloudNodes>, asked: &Arc<Asked>) -> Trigger<Node> {
    let (known, asked) = (Arc::clone(known), Arc::clone(asked));
    queue.trigger(move |queue, change: &Change<'_, Node>| {
        let named = known.named(Key::of(change.object()).name());
        let claimed = change.versions().filter_map(Node::cloud_id).map(|id| Key::new(&id));
        let mut keys: Vec<Key> = claimed.chain(named).collect();
        if change.before.is_none() && !keys.iter().any(|key| known.get(key).is_some()) {
            asked.ask();
        }
        keys.push(Key::new(CLUSTER));
        for key in keys {
            queue.push(key);
        }
    })
}

/// The Node that a node of the cloud is.
enum Match {
    One(Arc<Node>),
    None,
    /// Several have its id, so at least one of them is not what it says.
    Several(Vec<Arc<Node>>),
}

impl Reconciler for Reports {
    const NAME: &'static str = "reports";
    type Error = ReportError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ReportError> {
        if pass.key().name() == CLUSTER {
            return self.report_cluster().await;
        }
        let Some(shown) = self.known.get(pass.key()) else {
            return Ok(Next::UntilChanged);
        };
        let status = match self.matching(pass.key(), &shown) {
            Match::One(node) => {
                pass.about(node.object_ref(&()));
                Status::of_node(&node)
            }
            Match::None if shown.status.is_ours() => Status::missing(),
            Match::None => return Ok(Next::UntilChanged),
            Match::Several(nodes) => {
                self.refuse(pass.key(), &nodes);
                return Ok(Next::Refused(Retry::Slow));
            }
        };
        if status != shown.status {
            self.send(self.cloud.cluster.node_status(shown.id), &status).await?;
            self.known.sent(pass.key(), status);
        }
        Ok(Next::UntilChanged)
    }
}

impl Reports {
    fn matching(&self, key: &Key, shown: &CloudNode) -> Match {
        if let Some(name) = &shown.name {
            return self.nodes.get(&Key::new(name)).map_or(Match::None, Match::One);
        }
        let claims = self.claims.keys(&key.to_string()).into_iter();
        let nameless = claims.filter(|node| self.known.named(node.name()).is_none());
        let mut nodes: Vec<Arc<Node>> = nameless.filter_map(|key| self.nodes.get(&key)).collect();
        match (nodes.pop(), nodes.is_empty()) {
            (None, _) => Match::None,
            (Some(node), true) => Match::One(node),
            (Some(node), false) => {
                nodes.push(node);
                Match::Several(nodes)
            }
        }
    }

    fn refuse(&self, id: &Key, nodes: &[Arc<Node>]) {
        let note = format!(
            "Several Nodes have the label {NODE_ID_LABEL}={id}. No status is reported to the cloud for that node. Correct the label, or set \
             the name of the node in the cloud."
        );
        for node in nodes {
            let notice = Notice::warning("NodeIdConflict", "Report", note.clone());
            self.events.publish(&node.object_ref(&()), notice);
        }
    }

    async fn report_cluster(&self) -> Result<Next, ReportError> {
        let Some(shown) = self.known.cluster() else {
            return Ok(Next::UntilChanged);
        };
        let status = Status::of_cluster(self.ready.keys(&()).len(), self.nodes.len());
        if status == shown {
            return Ok(Next::UntilChanged);
        }
        let now = self.clock.monotonic();
        let sent = *self.cluster_sent.lock();
        let wait = sent.map_or(Duration::ZERO, |sent| (sent + CLUSTER_PAUSE).saturating_sub(now));
        if !wait.is_zero() {
            return Ok(Next::Pending(wait));
        }
        *self.cluster_sent.lock() = Some(now);
        self.send(self.cloud.cluster.status(), &status).await?;
        self.known.sent_cluster(status);
        Ok(Next::UntilChanged)
    }

    /// Sends one request, without a retry of its own: the controller retries each key.
    async fn send(&self, path: Path, status: &Status) -> Result<(), ReportError> {
        let mut request = Request::new(Method::PUT, path).json(status.report());
        request.once = true;
        self.cloud.client.request(&request).await.map_err(ReportError)?;
        Ok(())
    }
}

/// Lists the nodes of the cloud and their status.
struct Lister {
    cloud: Cloud,
    known: Arc<CloudNodes>,
    nodes: Cache<Node>,
    queue: Queue,
    asked: Arc<Asked>,
}

impl Lister {
    /// Ends if the Nodes are not cached any more, and with it the process.
    async fn run(self, context: ControllerContext) {
        if self.nodes.synced().await.is_err() {
            return;
        }
        context.leadership.acquired().await;
        let mut failures = 0;
        loop {
            context.pause.until(false).await;
            let wait = self.list(&mut failures).await;
            context.kit.clock.sleep(PAUSE.min(wait)).await;
            tokio::select! {
                () = context.kit.clock.sleep(wait.saturating_sub(PAUSE)) => {}
                _ = self.asked.asked() => {}
            }
        }
    }

    /// Lists once, and reports what differs. Returns when to list again.
    async fn list(&self, failures: &mut u32) -> Duration {
        match self.known.refresh(&self.cloud).await {
            Ok(changed) => {
                if *failures > 0 {
                    info!("the nodes of the cloud can be listed again");
                }
                *failures = 0;
                if changed {
                    for key in self.known.keys().into_iter().chain([Key::new(CLUSTER)]) {
                        self.queue.push(key);
                    }
                }
                jittered(REFRESH, JITTER)
            }
            Err(error) => {
                *failures += 1;
                if *failures == 1 {
                    warn!(
                        error = explained(&error, &self.cloud.client),
                        "cannot list the nodes of the cloud, so no status is reported"
                    );
                }
                let wait = BACKOFF.delay(*failures);
                wait.max(error.retry_after().unwrap_or_default())
            }
        }
    }
}

/// The cloud did not take a status. Neither contains a secret.
#[derive(Debug, thiserror::Error)]
#[error("the cloud did not take the status")]
struct ReportError(#[source] ClientError);

impl ReconcileError for ReportError {
    fn category(&self) -> Category {
        let retry = match &self.0 {
            // The node was deleted in the cloud: the next list shows it.
            ClientError::NotOurs { .. } | ClientError::Rejected { .. } => Retry::Slow,
            error => error.retry_after().map_or(Retry::Backoff, Retry::BackoffAfter),
        };
        Category::new(self.0.class(), retry)
    }
}
