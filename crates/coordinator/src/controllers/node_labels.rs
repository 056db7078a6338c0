//! Writes the labels of Nodes for the cluster label controller and the node pool label controller.
//!
//! A Node is reconciled when its labels, the resources or its node pool change: observe, from caches and the last
//! response of the cloud; plan, purely; send one merge patch, conditional on the uid and the version that were
//! observed, with only the keys that differ; report. A heartbeat starts no pass. Nothing is remembered in the cluster.

mod plan;
mod status;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Resource as _};
use parking_lot::Mutex;
use tidewaiter_api::containership::{ClusterLabel, NodePoolLabel};
use tidewaiter_api::values::LabelValue;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Cache, Controller, ControllerContext, Events, Key, Next, Pass, Queue, Reconciler, Tasks, Trigger, WriteError,
    WriteLimits, Writer,
};
use tokio::sync::watch;

use super::labels::{LabelResource, Labels};
use crate::loops;
use crate::node::Node;
use crate::node_pools::{Members, NodePools, Pool, PoolMembers};
use plan::{Observation, Plan, plan};
use status::Status;

/// Passes that write at once: a new label is written to every Node.
const CONCURRENCY: usize = 32;

/// Our own write is not in the cache yet. Its change starts a pass; this is the fallback, should somebody have undone
/// it.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The interval at which labels are checked again that stayed because a resource could not be read: that it is deleted
/// is no change to the cache.
const WITHHELD: Duration = Duration::from_mins(1);

/// The parts that write the labels of Nodes.
pub(super) struct NodeLabelParts {
    pub(super) nodes: Cache<Node>,
    pub(super) cluster_labels: Arc<Labels<ClusterLabel>>,
    /// The labels of the node pools.
    pub(super) node_pool_labels: Arc<Labels<NodePoolLabel>>,
    /// The source of each Node's node pool.
    pub(super) setting: NodePools,
    /// The cloud's members of each node pool.
    pub(super) members: PoolMembers,
    /// The fenced client.
    pub(super) client: Client,
}

struct NodeLabelController {
    parts: NodeLabelParts,
    writer: Writer,
    write_limits: WriteLimits,
    /// The basis of the last write of each Node.
    written: Mutex<BTreeMap<Key, Basis>>,
    status: Status,
    events: Events,
}

/// The basis of a plan for the labels of a Node, apart from the Node itself. A write with another basis than the last
/// one is caused by the cloud, and any other write by somebody who changed the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Basis {
    /// The number of times that the cloud has changed the labels of the cluster, and those of node pools.
    revisions: [u64; 2],
    /// The node pool in which the cloud has the Node. One that the Node's label decides is the Node's own doing.
    pool: Option<LabelValue>,
}

/// Starts it.
///
/// # Errors
/// A metric's name is taken.
pub(super) fn start(parts: NodeLabelParts, context: &ControllerContext, tasks: &mut Tasks) -> Result<(), MetricsError> {
    let kit = &context.kit;
    let queue = Queue::new();
    let (relabel, resources) = watch::channel(());
    let relabel = Arc::new(relabel);
    parts.nodes.notify(queue.same_name().unless(Node::has_labels_of));
    parts.cluster_labels.cache().notify(notifies(&relabel));
    parts.node_pool_labels.cache().notify(notifies(&relabel));
    let wake = || {
        let relabel = Arc::clone(&relabel);
        move || relabel.send_modify(|()| ())
    };
    parts.cluster_labels.notify_list(wake());
    parts.node_pool_labels.notify_list(wake());
    let queueing = queue_nodes(queue.clone(), parts.nodes.clone(), resources, parts.members.subscribe());
    loops::run(tasks, "node-labels", queueing);
    let writer = Writer::new(parts.client.clone(), NodeLabelController::NAME, Arc::clone(&kit.clock));
    writer.follow(&parts.nodes);
    let cluster_labels = Arc::clone(&parts.cluster_labels);
    let node_pool_labels = Arc::clone(&parts.node_pool_labels);
    let controller = NodeLabelController {
        writer,
        write_limits: WriteLimits::new(Arc::clone(&kit.clock)),
        written: Mutex::default(),
        status: Status::new(&kit.metrics)?,
        events: context.events.of(NodeLabelController::NAME),
        parts,
    };
    Controller::new(controller, queue)
        .reads(cluster_labels.cache())
        .reads(node_pool_labels.cache())
        .concurrency(CONCURRENCY)
        .start(context.clone(), tasks);
    Ok(())
}

fn notifies<K: LabelResource>(relabel: &Arc<watch::Sender<()>>) -> Trigger<K> {
    let relabel = Arc::clone(relabel);
    let same = |before: &K, after: &K| {
        before.label() == after.label()
            && before.pool() == after.pool()
            && before.created_at() == after.created_at()
            && before.meta().deletion_timestamp == after.meta().deletion_timestamp
    };
    Trigger::calls(move |_| relabel.send_modify(|()| ())).unless(same)
}

/// Queues the Nodes that a change of the resources or of the node pools concerns: each once, however many resources
/// change together.
async fn queue_nodes(
    queue: Queue,
    nodes: Cache<Node>,
    mut resources: watch::Receiver<()>,
    mut changes: watch::Receiver<Option<Arc<Members>>>,
) {
    let mut before = None;
    loop {
        let moved = tokio::select! {
            biased;
            Ok(()) = resources.changed() => None,
            Ok(()) = changes.changed() => {
                let after = changes.borrow_and_update().clone();
                let before = mem::replace(&mut before, after.clone());
                let moved = after.as_deref().zip(before.as_deref());
                moved.and_then(|(after, before)| {
                    let moved = after.changed_since(before)?;
                    Some(moved.into_iter().map(|name| Key::new(name.as_str())).collect::<Vec<_>>())
                })
            }
            else => return,
        };
        for key in moved.unwrap_or_else(|| nodes.keys()) {
            queue.push_cached(key);
        }
    }
}

impl Reconciler for NodeLabelController {
    const NAME: &'static str = "node-labels";
    type Error = WriteError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, WriteError> {
        let Some(node) = self.parts.nodes.get(pass.key()) else {
            self.forget(pass.key());
            return Ok(Next::UntilChanged);
        };
        pass.about(node.object_ref(&()));
        if self.writer.is_stale::<Node>(pass.key(), Some(&node.metadata)) {
            return Ok(Next::Pending(CATCH_UP));
        }
        let basis = self.basis(node.name());
        let seen = self.observe(node);
        let plan = plan(&seen);
        if plan.writes()
            && !self.is_caused_by_cloud(pass.key(), &basis)
            && let Err(wait) = self.write_limits.take(pass.key())
        {
            self.report(&seen, &plan, false);
            self.events
                .publish(&seen.node.object_ref(&()), status::changes_too_often());
            return Ok(Next::Pending(wait));
        }
        let applied = if plan.writes() {
            let patched = self.writer.patch::<Node>(&seen.node.metadata, plan.patch()).await;
            patched.map(drop)
        } else {
            Ok(())
        };
        self.report(&seen, &plan, applied.is_ok());
        applied?;
        Ok(if plan.withheld {
            Next::After(WITHHELD)
        } else {
            Next::UntilChanged
        })
    }
}

impl NodeLabelController {
    /// Must be read before the resources: a change in between is then counted as the cloud's once more, and never as
    /// the Node's.
    fn basis(&self, node: &str) -> Basis {
        let NodeLabelParts {
            cluster_labels,
            node_pool_labels,
            members,
            ..
        } = &self.parts;
        let revisions = [cluster_labels.revision(), node_pool_labels.revision()];
        let members = members.get();
        let pool = members.as_ref().and_then(|members| members.pool_of(node)).cloned();
        Basis { revisions, pool }
    }

    /// Returns true if a write with this basis is the first one after a change in the cloud: then it is not limited,
    /// because only others can fight with us. Each change counts for one attempt, so anyone who changes the Node gains
    /// nothing by it.
    fn is_caused_by_cloud(&self, node: &Key, basis: &Basis) -> bool {
        let last = self.written.lock().insert(node.clone(), basis.clone());
        last.is_some_and(|last| last != *basis)
    }

    fn observe(&self, node: Arc<Node>) -> Observation {
        let NodeLabelParts {
            cluster_labels,
            node_pool_labels,
            setting,
            members,
            ..
        } = &self.parts;
        let pool = setting.decide(members.get().as_deref(), node.name(), node.claimed_pool());
        let mut desired = vec![cluster_labels.desired(None)];
        match &pool {
            Pool::Unknown => {}
            Pool::None | Pool::Refused => desired.push(node_pool_labels.nothing()),
            Pool::ByCloud(id) | Pool::ByLabel(id) => desired.push(node_pool_labels.desired(Some(id))),
        }
        let keys = node.labels().keys();
        let named = keys.filter(|key| cluster_labels.name(key) || node_pool_labels.name(key));
        Observation {
            named: named.cloned().collect(),
            desired,
            pool,
            node,
        }
    }

    fn report(&self, seen: &Observation, plan: &Plan, applied: bool) {
        self.status.count(seen, plan, applied);
        let done = plan.done.iter().filter(|_| applied);
        for notice in plan.notices.iter().chain(done) {
            self.events.publish(&seen.node.object_ref(&()), notice.clone());
        }
    }

    /// The Node is gone.
    fn forget(&self, key: &Key) {
        self.status.forget(key);
        self.write_limits.forget(key);
        self.written.lock().remove(key);
    }
}
