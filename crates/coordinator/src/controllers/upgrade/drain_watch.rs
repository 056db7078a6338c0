//! The pods of the nodes that are drained, followed by one watch for each node while it is drained.
//!
//! A pass after each pod that leaves then reads them from memory. What is in memory may be a moment old, so it shows
//! only that pods are left: that none is, a list says.
//!
//! Anyone who may create pods can have any number of them come to a node and leave it. So pods that come start no pass,
//! and those that leave start one in a second after a burst: what leaves last is always seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use tidewaiter_api::NodeName;
use tidewaiter_kit::allowance::Allowance;
use tidewaiter_kit::{Chain, Guarded, Key, Queue, SharedClock, Spawner, Tasks};
use tokio_util::sync::DropGuard;
use tracing::debug;

use super::drain::{DrainPod, on_node};

/// A watch ends after this time and goes on where it was.
const WATCH_SECONDS: u32 = 60;

/// The time for which the pods of a node are read from memory. A watch that is interrupted shows no change.
const MAX_AGE: Duration = Duration::from_mins(1);

/// The passes that the pods of one node start.
const PASSES: Allowance = Allowance {
    burst: 10,
    refill: Duration::from_secs(1),
};

/// The watches of the nodes that are drained.
pub(super) struct DrainWatches {
    nodes: Nodes,
    client: Client,
    queue: Queue,
    watches: Spawner,
    clock: SharedClock,
}

type Nodes = Arc<Mutex<BTreeMap<NodeName, Watched>>>;

/// The pods of one node.
struct Watched {
    /// None before the first list of the watch is complete.
    pods: Option<BTreeMap<Key, DrainPod>>,
    /// The time of the last list of a pass; monotonic.
    listed: Duration,
    /// The upgrades that drain the node.
    upgrades: BTreeSet<Key>,
    /// Ends the watch.
    _watch: DropGuard,
}

impl DrainWatches {
    /// Starts the task that watches, which pushes upgrades into `queue` when a pod has left a node that they drain.
    pub(super) fn start(client: Client, queue: Queue, clock: SharedClock, tasks: &mut Tasks) -> Self {
        Self {
            nodes: Nodes::default(),
            client,
            queue,
            watches: tasks.spawner("upgrade-drains"),
            clock,
        }
    }

    /// Follows the pods of the nodes that `upgrade` drains, and no others for it.
    pub(super) fn set(&self, upgrade: &Key, drained: &[NodeName]) {
        let mut nodes = self.nodes.lock();
        for node in drained {
            let watched = nodes.entry(node.clone()).or_insert_with(|| {
                let (client, clock) = (self.client.clone(), Arc::clone(&self.clock));
                let watch = follow(client, node.clone(), Arc::clone(&self.nodes), self.queue.clone(), clock);
                Watched {
                    pods: None,
                    listed: Duration::ZERO,
                    upgrades: BTreeSet::new(),
                    _watch: self.watches.spawn(watch),
                }
            });
            watched.upgrades.insert(upgrade.clone());
        }
        nodes.retain(|node, watched| {
            if !drained.contains(node) {
                watched.upgrades.remove(upgrade);
            }
            !watched.upgrades.is_empty()
        });
    }

    /// The pods of the node, if they are known well enough to say that some are left.
    pub(super) fn left(&self, node: &NodeName) -> Option<Vec<DrainPod>> {
        let nodes = self.nodes.lock();
        let watched = nodes.get(node)?;
        let is_recent = self.clock.monotonic() < watched.listed.saturating_add(MAX_AGE);
        let pods = watched.pods.as_ref().filter(|_| is_recent)?;
        let any_left = pods.values().any(DrainPod::must_leave);
        any_left.then(|| pods.values().cloned().collect())
    }

    /// The pods of the node were listed.
    pub(super) fn listed(&self, node: &NodeName) {
        if let Some(watched) = self.nodes.lock().get_mut(node) {
            watched.listed = self.clock.monotonic();
        }
    }
}

/// Follows the pods of the node.
async fn follow(client: Client, node: NodeName, nodes: Nodes, queue: Queue, clock: SharedClock) {
    let api = Api::<Guarded<DrainPod>>::all(client);
    let config = watcher::Config::default()
        .fields(&on_node(&node))
        .timeout(WATCH_SECONDS);
    let mut events = watcher::watcher(api, config).default_backoff().boxed();
    let (mut listing, mut full_at, mut has_news) = (BTreeMap::new(), None, false);
    loop {
        let mut wait = None;
        if has_news {
            match PASSES.take(full_at, clock.monotonic()) {
                Ok(next) => {
                    (full_at, has_news) = (Some(next), false);
                    let nodes = nodes.lock();
                    let upgrades = nodes.get(&node).map(|watched| &watched.upgrades);
                    upgrades
                        .into_iter()
                        .flatten()
                        .cloned()
                        .for_each(|upgrade| queue.push(upgrade));
                }
                Err(later) => wait = Some(later),
            }
        }
        let event = tokio::select! {
            event = events.next() => event,
            () = clock.sleep(wait.unwrap_or_default()), if wait.is_some() => continue,
        };
        match event {
            None => return,
            Some(Ok(event)) => {
                let mut nodes = nodes.lock();
                let Some(watched) = nodes.get_mut(&node) else { return };
                has_news |= watched.apply(event, &mut listing);
            }
            Some(Err(error)) => {
                debug!(%node, error = %Chain(&error), "the pods of a node that is drained cannot be watched");
            }
        }
    }
}

impl Watched {
    /// Returns true if a pod has left the node, or the list of its pods is complete. As in a list, a pod that cannot be
    /// decoded is left out.
    fn apply(&mut self, event: Event<Guarded<DrainPod>>, listing: &mut BTreeMap<Key, DrainPod>) -> bool {
        match event {
            Event::Init => listing.clear(),
            Event::InitApply(Guarded(Ok(pod))) => {
                listing.insert(Key::of(&pod), pod);
            }
            Event::InitDone => {
                self.pods = Some(std::mem::take(listing));
                return true;
            }
            Event::Apply(Guarded(Ok(pod))) => {
                let stays = !pod.must_leave();
                let before = self.pods.get_or_insert_default().insert(Key::of(&pod), pod);
                return stays && before.is_some_and(|before| before.must_leave());
            }
            Event::Delete(Guarded(Ok(pod))) => {
                let before = self.pods.get_or_insert_default().remove(&Key::of(&pod));
                return before.is_some_and(|before| before.must_leave());
            }
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
        false
    }
}
