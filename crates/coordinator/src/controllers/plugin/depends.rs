//! The dependencies of plugins (`depends_on` of their manifests), and the order in which they are applied and removed.
//! Pure, but for [`Waiting`].
//!
//! A version is applied when the plugins that it names are ready. Once it is applied, it does not wait for them any
//! more: their upgrade stops no correction. A plugin that never becomes ready keeps only those that depend on it, and a
//! cycle keeps only those in it or behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::containership::plugin::READY;
use tidewaiter_kit::{Key, Queue};

use super::by_plugin::Identity;
use super::plan::Waits;
use super::problem::Problem;

/// The state of a plugin.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// None if it is.
    pub(super) not_ready: Option<String>,
    /// The dependencies, as far as its manifests were fetched.
    pub(super) depends_on: Vec<String>,
}

/// The plugins that take effect, by identity.
pub(super) type Plugins = BTreeMap<Identity, Known>;

/// The reason why a plugin is not applied.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Blocked {
    Waits(Waits),
    Problem(Problem),
}

impl Known {
    pub(super) fn of(plugin: &Plugin, depends_on: Vec<String>) -> Self {
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
pub(super) fn blocked(plugin: &Identity, depends_on: &[String], plugins: &Plugins, complete: bool) -> Option<Blocked> {
    if let Some(cycle) = cycle(plugin, depends_on, plugins) {
        let path: Vec<String> = cycle.iter().map(ToString::to_string).collect();
        return Some(Blocked::Problem(Problem::dependency(
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
            return Some(Blocked::Problem(Problem::dependency(
                "DependencyMissing",
                format!(
                    "plugin {plugin} is not applied, because it depends on {key}, and the cloud lists no such plugin of this cluster: add it in \
                     the cloud, or take it out of depends_on in the manifests."
                ),
            )));
        }
        let waits = |message: String| {
            Blocked::Waits(Waits {
                reason: "DependencyNotReady",
                message,
            })
        };
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
pub(super) fn goes_first<'a>(plugin: &Identity, depends_on: &[String], removed: &'a Plugins) -> Option<&'a Identity> {
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
pub(super) struct Waiting(Arc<Mutex<BTreeSet<Key>>>);

impl Waiting {
    pub(super) fn set(&self, key: &Key, waits: bool) {
        let mut all = self.0.lock();
        if waits {
            all.insert(key.clone());
        } else {
            all.remove(key);
        }
    }

    pub(super) fn wake(&self, queue: &Queue) {
        let all = self.0.lock();
        for key in all.iter() {
            queue.push(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str) -> Identity {
        Identity {
            id: format!("id-{name}"),
            type_: name.to_owned(),
            implementation: "it".to_owned(),
        }
    }

    /// Each plugin, what it depends on, and whether it is ready.
    fn plugins(all: &[(&str, &[&str], bool)]) -> Plugins {
        let known = |depends_on: &[&str], ready: bool| Known {
            not_ready: (!ready).then(|| "why".to_owned()),
            depends_on: depends_on.iter().map(ToString::to_string).collect(),
        };
        all.iter()
            .map(|(name, depends_on, ready)| (identity(name), known(depends_on, *ready)))
            .collect()
    }

    fn asked(all: &Plugins, name: &str, complete: bool) -> Option<(&'static str, String)> {
        let plugin = identity(name);
        let found = blocked(&plugin, &all[&plugin].depends_on, all, complete)?;
        Some(match found {
            Blocked::Waits(waits) => (waits.reason, waits.message),
            Blocked::Problem(problem) => (problem.reason, problem.note),
        })
    }

    #[test]
    fn a_plugin_waits_for_those_that_it_names_and_no_other_does() {
        let all = plugins(&[
            ("a", &[], false),
            ("b", &["a"], false),
            ("c", &["a/it", "d"], false),
            ("d", &[], true),
            ("e", &["id-d", "D"], false),
            ("f", &["missing"], false),
        ]);
        assert_eq!(asked(&all, "a", true), None);
        for name in ["b", "c"] {
            let (reason, message) = asked(&all, name, true).unwrap();
            assert_eq!(reason, "DependencyNotReady");
            assert!(message.contains("a/it (id-a)") && message.contains("why"), "{message}");
        }
        assert_eq!(asked(&all, "e", true), None);
        let (reason, message) = asked(&all, "f", true).unwrap();
        assert_eq!(reason, "DependencyMissing");
        assert!(message.contains("depends on missing"), "{message}");
        // It may be that the mirror has not written it yet.
        assert_eq!(asked(&all, "f", false).unwrap().0, "DependencyNotReady");
    }

    #[test]
    fn a_cycle_is_said_by_each_of_its_plugins_and_ends_the_search() {
        let all = plugins(&[
            ("a", &["b"], true),
            ("b", &["c"], true),
            ("c", &["a"], true),
            ("d", &["d"], true),
            ("e", &["a"], true),
        ]);
        for name in ["a", "b", "c", "d"] {
            let (reason, message) = asked(&all, name, true).unwrap();
            assert_eq!(reason, "DependencyCycle", "{message}");
        }
        let (_, message) = asked(&all, "a", true).unwrap();
        assert!(
            message.contains("a/it (id-a), then b/it (id-b), then c/it (id-c), then a/it"),
            "{message}"
        );
        assert_eq!(
            asked(&all, "e", true),
            None,
            "it is behind a cycle that is ready all the same"
        );
        // A type that another plugin has too.
        let mut all = plugins(&[("a", &["a"], false)]);
        let other = Identity {
            implementation: "other".to_owned(),
            id: "id-other".to_owned(),
            ..identity("a")
        };
        all.insert(other, Known::default());
        assert_eq!(asked(&all, "a", true), None);
    }

    #[test]
    fn plugins_are_removed_before_those_that_they_depend_on() {
        let all = plugins(&[
            ("a", &[], true),
            ("b", &["a"], true),
            ("c", &["d"], true),
            ("d", &["c"], true),
        ]);
        let first = |name: &str| goes_first(&identity(name), &all[&identity(name)].depends_on, &all);
        assert_eq!(first("a"), Some(&identity("b")));
        for name in ["b", "c", "d"] {
            assert_eq!(first(name), None, "{name}");
        }
    }
}
