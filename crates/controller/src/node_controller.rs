//! NodeController: gives each Node the labels of its InstanceGroup, once the cloud proves what the Node is.
//!
//! Observe the Node, its record and what the cloud says; plan, purely; write the record, the Node, the record; report.
//! A Node is reconciled when it, its record, its rivals or its group's definition change, and when its identity
//! expires: [`start`] wires these triggers. A heartbeat costs nothing: no write, no call.

mod apply;
pub(crate) mod census;
pub(crate) mod finding;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod quarantine;
pub(crate) mod record;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tidewaiter_api::{InstanceGroupName, InvalidValue, NodeIdentity, NodeName};
use tidewaiter_identity::{Lookup, Refusal};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Backoff, Cache, Category, Change, Controller, ControllerContext, Events, Index, Key, Next, Notice, Pass, Queue,
    ReconcileError, Reconciler, Retry, SharedClock, Tasks, Trigger, UndecodableObjects, WriteError, WriteLimits,
    Writer,
};
use tidewaiter_kops::{Changed, DefinitionError, Definitions};

use crate::objects::{Node, Record};
use census::Census;
use finding::Finding;
pub use finding::{ForeignLabels, LabelsFrom, OnForgery, OnGroupChange, Policy};
use observe::Observation;
use plan::plan;
use status::Status;

/// Passes that plan and write at once. More do not make a cold start faster, only the API server's queue longer.
const CONCURRENCY: usize = 32;

/// A Node that is refused is asked about again forever, in the end every few minutes, joined with the others.
const RETRIES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_mins(5));

/// Our own write is not in the caches yet. Its change starts a pass; this is the fallback if that change was
/// undone.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The controller. One reconcile is one pass over one Node.
pub struct NodeController {
    nodes: Cache<Node>,
    records: Cache<Record>,
    /// The Nodes that claim an instance, by `spec.providerID` to the letter.
    claims: Index<Box<str>>,
    identities: Arc<Lookup>,
    definitions: Definitions,
    policy: Policy,
    /// Only where forged Nodes are quarantined: it costs memory for each Node.
    census: Option<Arc<Census>>,
    writer: Writer,
    write_limits: WriteLimits,
    status: Status,
    events: Events,
    clock: SharedClock,
    undecodable: UndecodableObjects,
}

impl Reconciler for NodeController {
    const NAME: &'static str = "node";
    type Error = NodeError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, NodeError> {
        let Some(claimed) = self.read(pass.key())? else {
            self.forget(pass.key());
            return Ok(Next::UntilChanged);
        };
        let found = pass.outside(Box::pin(self.find(claimed.claim.clone()))).await;
        let Some(mut seen) = self.observe(claimed, found)? else {
            // It is gone, or claims something else by now: that change has queued it again.
            return Ok(Next::Pending(CATCH_UP));
        };
        pass.about(seen.reference());
        if let Some(error) = self.undecodable.error::<NodeIdentity>(pass.key()) {
            self.status.blocked(pass.key());
            return Err(NodeError::Record(error));
        }
        if apply::is_outdated(&self.writer, &seen) {
            return Ok(Next::Pending(CATCH_UP));
        }
        if matches!(seen.finding, Finding::Refused(Refusal::GroupChanged { .. })) {
            // Anyone who changes it back should not wait until the answer expires.
            self.identities.doubt(&seen.uid);
        }
        seen.brake = self.count(&seen);
        let plan = plan(&seen, self.clock.now());
        if plan.writes()
            && let Err(wait) = self.write_limits.take(pass.key())
        {
            self.events.publish(&seen.reference(), status::changes_too_often());
            return Ok(Next::Pending(wait));
        }
        let applied = apply::apply(&self.writer, &seen, &plan).await;
        self.report(&seen, &plan, applied.is_ok());
        applied?;
        next(seen)
    }
}

impl NodeController {
    /// The Node is gone.
    fn forget(&self, key: &Key) {
        self.status.forget(key);
        self.write_limits.forget(key);
    }
}

/// Returns the end of the pass once the plan has been carried out.
///
/// # Errors
/// If the cloud or the definition of the group was not available.
fn next(seen: Observation) -> Result<Next, NodeError> {
    match seen.finding {
        Finding::Refused(refusal) if refusal.is_transient() => Err(NodeError::Cloud(refusal)),
        Finding::Undefined(_, error) => Err(NodeError::Undefined(error)),
        // The lookup tries again for all such Nodes together, and announces each.
        Finding::Refused(refusal) if refusal.may_be_too_new() => Ok(Next::Refused(Retry::Slow)),
        Finding::Refused(_) => Ok(Next::Refused(Retry::Backoff)),
        Finding::Malformed(_) => Ok(Next::Refused(Retry::Slow)),
        Finding::Unclaimed | Finding::Defined(..) => Ok(seen.fresh_for.map_or(Next::UntilChanged, Next::After)),
    }
}

/// The dependencies of a NodeController.
pub struct NodeControllerParts {
    /// The role's cache of Nodes.
    pub nodes: Cache<Node>,
    /// The role's cache of records.
    pub records: Cache<Record>,
    /// The fenced client: it reads always and writes only while this replica leads.
    pub client: Client,
    /// Resolves the identity of a Node.
    pub identities: Arc<Lookup>,
    /// The definition of its group.
    pub definitions: Definitions,
    /// The operator's policy beyond labels.
    pub policy: Policy,
}

/// Starts the NodeController. Its passes begin when this replica leads.
///
/// # Errors
/// If a metric's name is taken.
pub fn start(parts: NodeControllerParts, context: &ControllerContext, tasks: &mut Tasks) -> Result<(), MetricsError> {
    let NodeControllerParts {
        nodes,
        records,
        client,
        identities,
        definitions,
        policy,
    } = parts;
    let kit = &context.kit;
    let queue = Queue::new();
    // Before anything is queued: a pass after the change must not use an answer that is in doubt.
    nodes.notify(forgets(Arc::clone(&identities)));
    let claims = wire(&nodes, &records, &queue);
    let census = match policy.on_forgery {
        OnForgery::Report => None,
        OnForgery::Quarantine => Some(Census::over(&nodes, queue.clone(), &kit.metrics)?),
    };
    let shutdown = tasks.shutdown_token();
    let on_back = queues_node(queue.clone());
    let waiting = queue.clone();
    let expects_more = move || !waiting.is_empty();
    tasks.spawn(
        "identities",
        Arc::clone(&identities).run(shutdown.clone(), on_back, expects_more),
    );
    let by_group = records.index(|record: &Record| record.status.instance_group.clone());
    let on_definition = queues_group(queue.clone(), records.clone(), by_group.clone());
    let running = definitions.clone().run(
        shutdown.cancelled_owned(),
        has_node(nodes.clone(), by_group),
        on_definition,
    );
    tasks.spawn("definitions", running);
    let writer = Writer::new(client, NodeController::NAME, Arc::clone(&kit.clock));
    writer.follow(&nodes);
    writer.follow(&records);
    let controller = NodeController {
        nodes,
        records,
        claims,
        identities,
        definitions,
        policy,
        census,
        write_limits: WriteLimits::new(Arc::clone(&kit.clock)),
        writer,
        status: Status::new(&kit.metrics)?,
        events: context.events.of(NodeController::NAME),
        clock: Arc::clone(&kit.clock),
        undecodable: kit.undecodable.clone(),
    };
    Controller::new(controller, queue)
        .concurrency(CONCURRENCY)
        .backoff(RETRIES)
        .start(context.clone(), tasks);
    Ok(())
}

/// Everything in the cluster whose change makes a Node be looked at again: the Node, its record, and its rivals.
fn wire(nodes: &Cache<Node>, records: &Cache<Record>, queue: &Queue) -> Index<Box<str>> {
    let claim = |node: &Node| node.claim().map(Box::from);
    let claims = nodes.index(claim);
    nodes.notify(queue.same_name().unless(same_to_the_plan));
    nodes.notify(queue.sharing(&claims, claim).changes_only());
    // A record that was deleted or edited is restored: its Node has its name.
    records.notify(queue.same_name().unless(Record::same));
    claims
}

/// Returns true if the two differ in nothing that a plan decides by: a heartbeat changes only the resourceVersion and
/// the conditions. Of the taints only the startup taint decides; the others are repeated as they are.
fn same_to_the_plan(before: &Node, after: &Node) -> bool {
    let meta = (&before.metadata, &after.metadata);
    meta.0.uid == meta.1.uid
        && meta.0.labels == meta.1.labels
        && meta.0.deletion_timestamp.is_some() == meta.1.deletion_timestamp.is_some()
        && before.spec.provider_id == after.spec.provider_id
        && before.startup_taints().eq(after.startup_taints())
        && before.status.internal_ips == after.status.internal_ips
        && before.status.machine == after.status.machine
}

/// Nothing is kept of a Node that is gone; one that comes back under its name has another uid. An answer is in doubt
/// when the machine of the Node has changed, or was started again.
fn forgets(identities: Arc<Lookup>) -> Trigger<Node> {
    Trigger::calls(move |change: &Change<'_, Node>| {
        let Some(Ok(uid)) = change.object().metadata.uid.as_deref().map(str::parse) else {
            return;
        };
        match (change.before, change.after) {
            (_, None) => identities.forget(&uid),
            (Some(before), Some(after)) if is_another_machine(before, after) => identities.doubt(&uid),
            _ => {}
        }
    })
}

/// A Node that the cloud did not answer for is reconciled when it answers again.
fn queues_node(queue: Queue) -> impl Fn(&NodeName) + Send + Sync + 'static {
    move |node| queue.push(Key::new(node.as_str()))
}

/// Returns true if another instance may have the Node's providerID now. On Google Cloud it has the name of the
/// instance, which may be used again; elsewhere it has an id, which is not.
fn is_another_machine(before: &Node, after: &Node) -> bool {
    let is_name = after.claim().is_some_and(|claim| claim.starts_with("gce://"));
    is_name && before.status.machine != after.status.machine
}

/// A definition that changes concerns the Nodes whose record names its group. A Node whose record is still on its way
/// is queued by the record itself.
fn queues_group(
    queue: Queue,
    records: Cache<Record>,
    by_group: Index<InstanceGroupName>,
) -> impl Fn(Changed) + Send + Sync + 'static {
    move |changed| {
        let concerned = match &changed {
            Changed::Cluster | Changed::OwnedKeys => records.keys(),
            Changed::Group(group) => by_group.keys(group),
        };
        for key in concerned {
            queue.push_cached(key);
        }
    }
}

/// Returns true if a Node is in the group, by its record. A record may outlive its Node for a while.
fn has_node(
    nodes: Cache<Node>,
    by_group: Index<InstanceGroupName>,
) -> impl Fn(&InstanceGroupName) -> bool + Send + Sync + 'static {
    move |group| by_group.keys(group).iter().any(|key| nodes.get(key).is_some())
}

/// A pass that has to be repeated.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The Node's own name or uid is malformed; no API server has such a Node.
    #[error("the Node cannot be read")]
    Unreadable(#[from] InvalidValue),
    /// The cloud could not be asked.
    #[error("the cloud cannot be asked")]
    Cloud(#[source] Refusal),
    /// The definition of the Node's group is not available.
    #[error("the Node is identified, but the definition of its group is not available")]
    Undefined(#[source] DefinitionError),
    /// The record cannot be decoded: what it remembers of the Node is unknown, so nothing may be changed.
    #[error("the record of the Node cannot be decoded: {0}")]
    Record(String),
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl ReconcileError for NodeError {
    /// The plan has reported the rest already.
    fn category(&self) -> Category {
        match self {
            // The lookup tries again for all Nodes, and announces them when the cloud is back.
            Self::Unreadable(_) => Category::new("unreadable", Retry::Slow),
            Self::Cloud(_) => Category::new("cloud", Retry::Slow),
            Self::Undefined(_) => Category::new("definition", Retry::Backoff),
            Self::Record(_) => {
                let note =
                    format!("{self}. Its labels stay as they are. Correct the NodeIdentity of its name, or delete it.");
                // A record that becomes as it was before, or goes, is no change to the cache.
                Category::refusal("undecodable", Retry::After(Duration::from_secs(10))).notify(Notice::warning(
                    "RecordUndecodable",
                    "Read",
                    note,
                ))
            }
            Self::Write(error) => error.category(),
        }
    }
}
