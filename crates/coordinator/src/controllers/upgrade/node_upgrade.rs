//! Node upgrade controller: gives each node in progress its order, a `NodeUpgrade`, which is all that its agent
//! watches.
//!
//! - The orders follow from the progress of the `ClusterUpgrade`s, which is written before: a crash in between delays
//!   an order, or its end, until the next leader derives them again. Nothing is decided by an order.
//! - All orders are ours: one that nobody should have is deleted, and an edit is undone.
//! - An order is written when a node is started, and deleted when it has ended. It keeps the generation with which it
//!   was written, because the progress of the others changes the `ClusterUpgrade` all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Resource as _};
use tidewaiter_api::NodeUpgrade;
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeStatus};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::children::{compare, execute};
use tidewaiter_kit::client::MANY_IN_FLIGHT;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, ChildrenError, Controller, Key, Next, Pass, Queue, Reconciler, Writer};
use tidewaiter_upgrade::node_upgrade::{turns, write};
use tidewaiter_upgrade::{Upgrade, form};
use tracing::warn;

/// Our own write is not in the cache yet. Its change starts a pass; this is the fallback.
const CATCH_UP: Duration = Duration::from_secs(1);

/// There is one thing to do: an order follows from all upgrades.
fn key() -> Key {
    Key::new("orders")
}

struct NodeUpgradeController {
    upgrades: Cache<ClusterUpgrade>,
    orders: Cache<NodeUpgrade>,
    writer: Writer,
}

/// Starts it.
pub(super) fn start(upgrades: &Cache<ClusterUpgrade>, reader: Client, role: &mut Role<'_>) {
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let (queue, kit) = (Queue::new(), &context.kit);
    // Optional: a cluster may not have the definition yet.
    let orders = Cache::<NodeUpgrade>::namespaced(reader, CONTAINERSHIP_NAMESPACE)
        .optional()
        .start(tasks, kit);
    // The conditions change nothing.
    let is_as =
        |before: &ClusterUpgrade, after: &ClusterUpgrade| before.metadata.generation == after.metadata.generation;
    upgrades.notify(queue.always(key()).unless(is_as));
    orders.notify(queue.always(key()));
    let client = clients.for_controller(NodeUpgradeController::NAME, MANY_IN_FLIGHT);
    let writer = Writer::new(client, NodeUpgradeController::NAME, Arc::clone(&kit.clock));
    writer.follow(&orders);
    let controller = NodeUpgradeController {
        upgrades: upgrades.clone(),
        orders,
        writer,
    };
    Controller::new(controller, queue).start(context.clone(), tasks);
}

impl Reconciler for NodeUpgradeController {
    const NAME: &'static str = "node-upgrade";
    type Error = ChildrenError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        let goes_on = |object: &Arc<ClusterUpgrade>| {
            let progress = object.spec.status.as_ref();
            progress.is_some_and(|progress| progress.cluster_status == UpgradeStatus::InProgress)
        };
        let objects: Vec<Arc<ClusterUpgrade>> = self.upgrades.iter().filter(goes_on).collect();
        if let Some(object) = objects.first() {
            pass.about(object.object_ref(&()));
        }
        let mut cached: BTreeMap<Key, Arc<NodeUpgrade>> =
            self.orders.iter().map(|order| (Key::of(&*order), order)).collect();
        let mut desired = desired(&objects);
        let keys: BTreeSet<Key> = desired.keys().chain(cached.keys()).cloned().collect();
        let mut next = Next::UntilChanged;
        for key in keys {
            let shown = cached.get(&key).map(|order| &order.metadata);
            if self.writer.awaits::<NodeUpgrade>(&key, shown) {
                cached.remove(&key);
                desired.remove(&key);
                next = Next::Pending(CATCH_UP);
            }
        }
        for (key, order) in &mut desired {
            let Some(cached) = cached.get(key) else { continue };
            if cached.metadata.deletion_timestamp.is_some() {
                warn!(
                    node = key.name(),
                    "a finalizer of somebody else keeps the last NodeUpgrade of the node, so its agent gets no order: \
                     remove the finalizer"
                );
            }
            self.keep_generation(order, cached);
        }
        let cached: Vec<Arc<NodeUpgrade>> = cached.into_values().collect();
        let changes = compare(desired.into_values().collect(), &cached, |_| true);
        execute(&self.writer, changes, |_| true, || true, |_, _| {}).await?;
        Ok(next)
    }
}

impl NodeUpgradeController {
    /// Leaves an order as it is that we have written at an earlier generation, and that differs in nothing else. One
    /// that somebody has edited gets the present generation: no agent has seen a newer one of the `ClusterUpgrade`.
    fn keep_generation(&self, order: &mut NodeUpgrade, cached: &NodeUpgrade) {
        let (now, then) = (order.spec.upgrade.generation, cached.spec.upgrade.generation);
        order.spec.upgrade.generation = then;
        if then > now || !self.writer.is_applied(order, cached) {
            order.spec.upgrade.generation = now;
        }
    }
}

/// The orders that there should be.
fn desired(objects: &[Arc<ClusterUpgrade>]) -> BTreeMap<Key, NodeUpgrade> {
    let upgrades: Vec<Upgrade> = objects.iter().map(|object| form::read(object)).collect();
    let object_of = |upgrade: &Upgrade| {
        let mut objects = objects.iter();
        objects.find(|object| object.metadata.uid.as_ref() == Some(&upgrade.uid))
    };
    turns(&upgrades)
        .filter_map(|(node, upgrade)| write(node, upgrade, object_of(upgrade)?))
        .map(|order| (Key::of(&order), order))
        .collect()
}
