//! The dependencies of plugins (`depends_on` of their manifests), and the order in which they are applied and removed.
//!
//! A version is applied when the plugins that it names are ready. Once it is applied, it does not wait for them any
//! more: their upgrade stops no correction. A plugin that never becomes ready keeps only those that depend on it, and a
//! cycle keeps only those in it or behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::containership::plugin::READY;
use tidewaiter_api::{ConditionStatus, PluginInventory};
use tidewaiter_kit::{Cache, Change, Key, Queue, Trigger};

use super::Goal;
use super::fetch::Manifests;
use super::record::Record;
use crate::controllers::listed::Listed;
use crate::controllers::plugin::cluster::Waits;
use crate::controllers::plugin::report::Problem;
use crate::controllers::plugin::settings::Identity;

/// The state of a plugin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// None if it is.
    pub(crate) not_ready: Option<String>,
    /// The dependencies, as far as its manifests were fetched.
    pub(crate) depends_on: Vec<String>,
}

/// The plugins that take effect, by identity.
pub(crate) type Plugins = BTreeMap<Identity, Known>;

/// The reason why a plugin is not applied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Blocked {
    Waits(Waits),
    Problem(Problem),
}

impl Known {
    pub(crate) fn of(plugin: &Plugin, depends_on: Vec<String>) -> Self {
        let status = plugin.status.clone().unwrap_or_default();
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == READY);
        let ready = ready.filter(|ready| ready.observed_generation == plugin.metadata.generation);
        let not_ready = match ready {
            Some(ready) if ready.status == ConditionStatus::True => None,
            Some(ready) => Some(ready.message),
            None => Some("nothing was reported of its version yet".to_owned()),
        };
        Self { not_ready, depends_on }
    }
}

/// The reason why the plugin is blocked. `complete` says whether `plugins` has every plugin that the cloud lists.
pub(crate) fn blocked(plugin: &Identity, depends_on: &[String], plugins: &Plugins, complete: bool) -> Option<Blocked> {
    if let Some(cycle) = cycle(plugin, depends_on, plugins) {
        let path: Vec<String> = cycle.iter().map(ToString::to_string).collect();
        return Some(Blocked::Problem(Problem::stalling(
            "DependencyCycle",
            format!(
                "plugin {plugin} is not applied, because it depends on itself: {}. Change depends_on in the manifests of one of them.",
                path.join(", then ")
            ),
        )));
    }
    depends_on.iter().find_map(|key| {
        let mut named = named(plugin, key, plugins).peekable();
        if named.peek().is_none() && complete {
            return Some(Blocked::Problem(Problem::stalling(
                "DependencyMissing",
                format!(
                    "plugin {plugin} is not applied, because it depends on {key}, and the cloud lists no such plugin of this cluster: add it in \
                     the cloud, or take it out of depends_on in the manifests."
                ),
            )));
        }
        let waits = |message: String| Blocked::Waits(Waits::new("DependencyNotReady", message));
        if named.peek().is_none() {
            return Some(waits(format!("waits for plugin {key}, which is not mirrored yet")));
        }
        named.find_map(|(other, known)| {
            let why = known.not_ready.as_ref()?;
            Some(waits(format!("waits for plugin {other}, which is not ready: {why}")))
        })
    })
}

/// The plugin among `removed` that must go first: one that depends on this plugin. What depends on each other goes in
/// any order.
pub(crate) fn goes_first<'a>(plugin: &Identity, depends_on: &[String], removed: &'a Plugins) -> Option<&'a Identity> {
    if cycle(plugin, depends_on, removed).is_some() {
        return None;
    }
    let mut others = removed.iter().filter(|(other, _)| *other != plugin);
    let first = others.find(|(_, known)| known.depends_on.iter().any(|key| plugin.is(key)));
    first.map(|(other, _)| other)
}

/// The plugins that the key names, but for this one.
fn named<'a>(plugin: &Identity, key: &str, plugins: &'a Plugins) -> impl Iterator<Item = (&'a Identity, &'a Known)> {
    plugins
        .iter()
        .filter(move |(other, _)| *other != plugin && other.is(key))
}

/// The way from the plugin back to itself.
fn cycle(plugin: &Identity, depends_on: &[String], plugins: &Plugins) -> Option<Vec<Identity>> {
    let mut seen = BTreeSet::new();
    let mut ways = vec![(depends_on, vec![plugin.clone()])];
    while let Some((keys, way)) = ways.pop() {
        for key in keys {
            let is_alone = way.len() == 1 && named(plugin, key, plugins).next().is_none();
            // A type that others have too does not name the plugin itself.
            if plugin.is(key) && (way.len() > 1 || is_alone) {
                return Some(way.into_iter().chain([plugin.clone()]).collect());
            }
            for (other, known) in named(plugin, key, plugins) {
                if seen.insert(other) {
                    let way = way.iter().chain([other]).cloned().collect();
                    ways.push((&known.depends_on, way));
                }
            }
        }
    }
    None
}

/// The plugins that wait for others: they are looked at when any of these changes. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<BTreeSet<Key>>>);

impl Waiting {
    pub(crate) fn set(&self, key: &Key, waits: bool) {
        let mut all = self.0.lock();
        if waits {
            all.insert(key.clone());
        } else {
            all.remove(key);
        }
    }

    pub(crate) fn wake(&self, queue: &Queue) {
        let all = self.0.lock();
        for key in all.iter() {
            queue.push(key.clone());
        }
    }
}

/// The dependencies among the plugins of the cloud, and among those that are removed.
pub(crate) struct Dependencies {
    plugins: Listed<Plugin>,
    inventories: Cache<PluginInventory>,
    waiting: Waiting,
}

impl Dependencies {
    /// Wakes the plugins that wait for others when a plugin or an inventory changes.
    pub(crate) fn new(plugins: &Listed<Plugin>, inventories: &Cache<PluginInventory>, queue: &Queue) -> Self {
        let dependencies = Self {
            plugins: plugins.clone(),
            inventories: inventories.clone(),
            waiting: Waiting::default(),
        };
        plugins.cache().notify(dependencies.wake_waiting(queue));
        inventories.notify(dependencies.wake_waiting(queue));
        dependencies
    }

    fn wake_waiting<K: 'static>(&self, queue: &Queue) -> Trigger<K> {
        let (waiting, queue) = (self.waiting.clone(), queue.clone());
        Trigger::calls(move |_: &Change<'_, K>| waiting.wake(&queue))
    }

    /// The plugins that wait for others.
    pub(crate) fn waiting(&self) -> Waiting {
        self.waiting.clone()
    }

    /// The plugin is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.waiting.set(key, false);
    }

    /// The dependencies that a version which is not applied yet waits for.
    pub(crate) fn wait_for(
        &self,
        key: &Key,
        goal: &Goal,
        record: &Record,
        manifests: &Manifests,
    ) -> Result<Option<Waits>, Problem> {
        let depends_on = &goal.release.depends_on;
        if depends_on.is_empty() || record.applied_version() == goal.spec.version {
            self.waiting.set(key, false);
            return Ok(None);
        }
        let known = self.plugins.cache().iter().map(|plugin| {
            let depends_on = manifests.dependencies(&plugin.spec.id);
            (Identity::of(&plugin.spec), Known::of(&plugin, depends_on))
        });
        let known: Plugins = known.collect();
        let found = blocked(&goal.identity, depends_on, &known, self.plugins.has_all());
        self.waiting.set(key, found.is_some());
        match found {
            None => Ok(None),
            Some(Blocked::Waits(waits)) => Ok(Some(waits)),
            Some(Blocked::Problem(problem)) => Err(problem),
        }
    }

    /// Waits for the plugins that depend on this one and are removed, too.
    pub(crate) fn wait_for_dependents(&self, key: &Key, plugin: &Identity, record: &Record) -> Result<(), Problem> {
        let removed = self.inventories.iter().filter(|inventory| {
            let name = inventory.metadata.name.as_deref().unwrap_or_default();
            !self.plugins.retains(name)
        });
        let removed = removed.map(|inventory| {
            let record = Record::read(&inventory.spec);
            let known = Known {
                depends_on: record.depends_on().to_vec(),
                ..Known::default()
            };
            (record.identity(&inventory), known)
        });
        let removed: Plugins = removed.collect();
        let first = goes_first(plugin, record.depends_on(), &removed);
        self.waiting.set(key, first.is_some());
        first.map_or(Ok(()), |first| {
            let note = format!("waits until plugin {first}, which depends on it, is removed");
            Err(Problem::removal_waits(note))
        })
    }
}

#[cfg(test)]
mod tests;
