//! The plugins that a change in the cluster wakes, with a limit of the rate.
//!
//! - Only objects that a `PluginInventory` names wake a plugin, and those of others that are in its way. An object is
//!   in the inventory before it is created, and a change of an inventory starts a pass by itself, so nothing is missed.
//!   Anyone who creates objects with the label of a plugin elsewhere starts no pass.
//! - What is in the way of a plugin is known from its last pass that observed the cluster. While a pass observes, each
//!   object of the version wakes it: one that changes after it was read is not in the way yet.
//! - A plugin whose objects change all the time has a pass every two seconds after a burst. A pass that something else
//!   starts, such as a new version, does not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;
use tidewaiter_api::PluginInventory;
use tidewaiter_kit::allowance::Allowance;
use tidewaiter_kit::{Change, Key, Metadata, Queue, SharedClock, Tasks, Trigger};
use tokio::sync::Notify;

use crate::controllers::plugin::desired::{ObjectId, Record};
use crate::loops;

/// The passes of one plugin that its objects start. An edit that is corrected takes two.
const PASSES: Allowance = Allowance {
    burst: 40,
    refill: Duration::from_secs(2),
};

/// The objects and plugins that wake each plugin. Clones share it.
#[derive(Clone)]
pub(crate) struct Wakes(Arc<Shared>);

struct Shared {
    queue: Queue,
    clock: SharedClock,
    plugins: Mutex<BTreeMap<Key, Named>>,
    /// A pass was postponed.
    postponed: Notify,
}

/// A plugin, and the objects that wake it.
#[derive(Default)]
struct Named {
    /// The objects of its inventory.
    objects: BTreeSet<ObjectId>,
    /// The objects of others that are in its way, as the last pass that observed the cluster has seen.
    obstacles: BTreeSet<ObjectId>,
    /// The objects that are being observed and that the inventory does not name.
    observed: BTreeSet<ObjectId>,
    /// True if the current pass has observed the cluster.
    has_observed: bool,
    /// The namespaces of the objects.
    namespaces: BTreeSet<String>,
    /// The time when the allowance of passes is full again (monotonic).
    full_at: Option<Duration>,
    next: NextPass,
}

impl Named {
    /// Everything that wakes it.
    fn all(&self) -> impl Iterator<Item = &BTreeSet<ObjectId>> {
        [&self.objects, &self.obstacles, &self.observed].into_iter()
    }
}

/// The pass that the last change requires.
#[derive(Clone, Copy, Default, PartialEq)]
enum NextPass {
    /// It has begun.
    #[default]
    Begun,
    Queued,
    /// It is queued at this time (monotonic).
    Postponed(Duration),
}

impl Wakes {
    /// Starts the task that queues postponed passes.
    pub(crate) fn start(queue: Queue, clock: SharedClock, tasks: &mut Tasks) -> Self {
        let wakes = Self(Arc::new(Shared {
            queue,
            clock,
            plugins: Mutex::default(),
            postponed: Notify::new(),
        }));
        let postponing = wakes.clone();
        loops::run(tasks, "plugin-wakes", async move { postponing.queue_postponed().await });
        wakes
    }

    /// The inventory of a plugin has changed.
    pub(crate) fn remember(&self, change: &Change<'_, PluginInventory>) {
        let mut plugins = self.0.plugins.lock();
        match change.after {
            Some(inventory) => {
                let named = plugins.entry(change.key().clone()).or_default();
                named.objects = Record::read(&inventory.spec).ids().cloned().collect();
                named.namespaces = named.objects.iter().map(|id| id.namespace.clone()).collect();
            }
            None => {
                if let Some(named) = plugins.get_mut(change.key()) {
                    named.objects.clear();
                    named.namespaces.clear();
                    if named.all().all(BTreeSet::is_empty) {
                        plugins.remove(change.key());
                    }
                }
            }
        }
    }

    /// Wakes the plugins that name an object in a namespace that is new: they may wait for it.
    pub(crate) fn of_namespaces(&self) -> Trigger<Metadata<Namespace>> {
        let wakes = self.clone();
        Trigger::calls(move |change: &Change<'_, Metadata<Namespace>>| {
            if change.before.is_none() {
                wakes.wake(|named| named.namespaces.contains(change.key().name()));
            }
        })
    }

    /// The object has changed.
    pub(crate) fn changed(&self, id: &ObjectId) {
        self.wake(|named| named.all().any(|all| all.contains(id)));
    }

    /// The pass is about to observe these objects, which the inventory does not name.
    pub(crate) fn observes(&self, plugin: &Key, objects: impl Iterator<Item = ObjectId>) {
        let mut objects = objects.peekable();
        if objects.peek().is_some() {
            let mut plugins = self.0.plugins.lock();
            plugins.entry(plugin.clone()).or_default().observed.extend(objects);
        }
    }

    /// The pass has observed the cluster, with these objects of others in the way of the plugin: one that is handed
    /// over wakes it. A pass may observe several versions.
    pub(crate) fn obstructed(&self, plugin: &Key, obstacles: impl Iterator<Item = ObjectId>) {
        let mut obstacles = obstacles.peekable();
        let mut plugins = self.0.plugins.lock();
        if obstacles.peek().is_some() || plugins.contains_key(plugin) {
            let named = plugins.entry(plugin.clone()).or_default();
            named.observed.clear();
            if !std::mem::replace(&mut named.has_observed, true) {
                named.obstacles.clear();
            }
            named.obstacles.extend(obstacles);
        }
    }

    /// The plugin is gone. What its inventory names is still to be removed.
    pub(crate) fn forget(&self, plugin: &Key) {
        let mut plugins = self.0.plugins.lock();
        if let Some(named) = plugins.get_mut(plugin) {
            named.obstacles.clear();
            named.observed.clear();
            if named.objects.is_empty() {
                plugins.remove(plugin);
            }
        }
    }

    /// Any object of the kind may have changed.
    pub(crate) fn any_changed(&self, group: &str, kind: &str) {
        let is_it = |id: &ObjectId| id.group == group && id.kind == kind;
        self.wake(|named| named.all().flatten().any(is_it));
    }

    /// A pass over the plugin begins: it sees every change so far.
    pub(crate) fn begins(&self, plugin: &Key) {
        if let Some(named) = self.0.plugins.lock().get_mut(plugin) {
            named.next = NextPass::Begun;
            named.has_observed = false;
            named.observed.clear();
        }
    }

    fn wake(&self, concerns: impl Fn(&Named) -> bool) {
        let now = self.0.clock.monotonic();
        for (key, named) in self.0.plugins.lock().iter_mut() {
            if named.next != NextPass::Begun || !concerns(named) {
                continue;
            }
            match PASSES.take(named.full_at, now) {
                Ok(full_at) => {
                    (named.full_at, named.next) = (Some(full_at), NextPass::Queued);
                    self.0.queue.push(key.clone());
                }
                Err(wait) => {
                    named.next = NextPass::Postponed(now + wait);
                    self.0.postponed.notify_one();
                }
            }
        }
    }

    /// Queues each postponed pass at its time.
    async fn queue_postponed(&self) {
        loop {
            match self.queue_due() {
                Some(wait) => {
                    tokio::select! {
                        () = self.0.postponed.notified() => {}
                        () = self.0.clock.sleep(wait) => {}
                    }
                }
                None => self.0.postponed.notified().await,
            }
        }
    }

    /// Queues what is due, and returns the time until something else is.
    fn queue_due(&self) -> Option<Duration> {
        let now = self.0.clock.monotonic();
        let mut first = None;
        for (key, named) in self.0.plugins.lock().iter_mut() {
            let NextPass::Postponed(due) = named.next else { continue };
            match PASSES.take(named.full_at, now) {
                Ok(full_at) if due <= now => {
                    (named.full_at, named.next) = (Some(full_at), NextPass::Queued);
                    self.0.queue.push(key.clone());
                }
                _ => {
                    let wait = due.saturating_sub(now);
                    first = Some(first.map_or(wait, |first: Duration| first.min(wait)));
                }
            }
        }
        first
    }
}

#[cfg(test)]
mod tests;
