//! Puts the NodeController together: its caches, what queues a Node, and its tasks.

use std::sync::Arc;

use kube::{Api, Client};
use tidewaiter_identity::Lookup;
use tidewaiter_kit::controller::ControllerError;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Backoff, Cache, Change, ControllerContext, ControllerOptions, Key, Kit, OnChange, Queue, Reconciler as _, Tasks,
    run_controller,
};
use tidewaiter_kops::{Changed, Definitions};
use tokio::sync::Semaphore;

use super::apply::Writer;
use super::forged::Forged;
use super::forgeries::Forgeries;
use super::node::Node;
use super::record::Record;
use super::rivals::Rivals;
use super::standings::Standings;
use super::{NodeController, OnForgery, Policy};

/// What a NodeController works with.
pub struct NodeControllerParts {
    /// The fenced client: it reads always and writes only while this replica leads.
    pub client: Client,
    /// Who a Node is.
    pub identities: Arc<Lookup>,
    /// What its group gives it.
    pub definitions: Definitions,
    /// What the operator wants done beyond labelling.
    pub policy: Policy,
    /// Who hears of each change of a Node that the verdict on the cluster reads.
    pub on_node: OnChange<Node>,
    /// Keeps which Nodes the records call forged.
    pub forged: Arc<Forged>,
    /// Leadership, Events, shutdown.
    pub context: ControllerContext,
}

/// Passes that plan and write at once. More make a cold start no faster, only the API server's queue longer.
const TURNS: usize = 32;

/// Nodes that may be in a pass at once: as many as there are, because most of them wait together for one joined answer.
const PASSES: ControllerOptions = ControllerOptions {
    concurrency: 0,
    backoff: RETRIES,
};

/// A Node that is refused is asked about again for ever, in the end every few minutes, joined with the others.
const RETRIES: Backoff = Backoff::new(std::time::Duration::from_millis(500), std::time::Duration::from_mins(5));

/// Starts the caches at once, so that a standby is warm, and the passes when this replica leads. Gives the cache of Nodes, for
/// others to read.
///
/// # Errors
/// When a metric's name is taken.
pub fn start(parts: NodeControllerParts, tasks: &mut Tasks, kit: &Kit) -> Result<Cache<Node>, MetricsError> {
    let NodeControllerParts {
        client,
        identities,
        definitions,
        policy,
        on_node,
        forged,
        context,
    } = parts;
    let queue = Queue::new();
    let rivals = Arc::new(Rivals::default());
    let forgeries = match policy.on_forgery {
        OnForgery::Report => None,
        OnForgery::Quarantine => Some(Arc::new(Forgeries::new(queue.clone(), &kit.metrics)?)),
    };
    let nodes = Cache::builder(Api::<Node>::all(client.clone()))
        .same(Node::same)
        .on_change(counts(forgeries.clone()))
        .on_change(queue.on_change())
        .on_change(queues_rivals(queue.clone(), Arc::clone(&rivals)))
        .on_change(forgets(Arc::clone(&identities)))
        .same(Node::same_to_the_verdict)
        .on_change(on_node)
        .start(tasks, kit);
    let records = Cache::builder(Api::<Record>::all(client.clone()))
        .same(Record::same)
        // A record that is deleted, or changed by anybody, is made again: its Node has its name.
        .on_change(queue.on_change())
        .on_change(Box::new(move |change| forged.changed(change)))
        .start(tasks, kit);

    let shutdown = tasks.shutdown_token();
    tasks.spawn("identities", Arc::clone(&identities).run(shutdown.clone()));
    let on_definition = queues_group(queue.clone(), records.clone());
    tasks.spawn(
        "definitions",
        definitions.clone().run(shutdown.cancelled_owned(), on_definition),
    );

    let controller = Arc::new(NodeController {
        nodes: nodes.clone(),
        records: records.clone(),
        rivals,
        identities,
        definitions,
        writer: Writer::new(client, kit.clock.clone()),
        turns: Semaphore::new(TURNS),
        events: context.events.clone(),
        standings: Standings::new(&kit.metrics)?,
        forgeries,
        policy,
        clock: kit.clock.clone(),
    });
    let stop = context.shutdown.clone();
    let shared = nodes.clone();
    tasks.spawn("node-controller", async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            synced = records.synced() => synced.map_err(|_| ControllerError::Ended(NodeController::NAME))?,
        }
        run_controller(controller, nodes, queue, context, PASSES).await
    });
    Ok(shared)
}

/// The census comes before the queue: a pass finds its Node there.
fn counts(forgeries: Option<Arc<Forgeries>>) -> OnChange<Node> {
    Box::new(move |change| {
        if let Some(forgeries) = &forgeries {
            forgeries.changed(change);
        }
    })
}

/// Nodes whose rivals change are looked at again.
fn queues_rivals(queue: Queue, rivals: Arc<Rivals>) -> OnChange<Node> {
    Box::new(move |change| {
        let node = change.object();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let claim = match change {
            Change::Applied(node) => node.spec.provider_id.as_deref().filter(|id| !id.is_empty()),
            Change::Deleted(_) => None,
        };
        for rival in rivals.note(name, claim) {
            queue.push(Key::new(&rival));
        }
    })
}

/// Nothing is kept of a Node that is gone; one that comes back under its name has another uid.
fn forgets(identities: Arc<Lookup>) -> OnChange<Node> {
    Box::new(move |change| {
        if let Change::Deleted(node) = change
            && let Some(Ok(uid)) = node.metadata.uid.as_deref().map(str::parse)
        {
            identities.forget(&uid);
        }
    })
}

/// A definition that changes concerns the Nodes whose record names its group. One whose record is still on its way is
/// queued by the record itself.
fn queues_group(queue: Queue, records: Cache<Record>) -> impl Fn(Changed) + Send + Sync + 'static {
    move |changed| {
        for record in records.all() {
            let concerned = match &changed {
                Changed::Cluster | Changed::OwnedKeys => true,
                Changed::Group(group) => record.status.instance_group.as_ref() == Some(group),
            };
            if concerned {
                queue.push(Key::of(&record));
            }
        }
    }
}
