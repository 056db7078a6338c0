//! The objects of a plugin that are applied now, and the waits: for the mirror, and for the plugins that it depends on.

use std::sync::Arc;

use tidewaiter_api::containership::Plugin;
use tidewaiter_cloud::models::values::PluginId;
use tidewaiter_kit::{Key, Pass};

use super::PluginController;
use super::by_plugin::Identity;
use super::depends::{Blocked, Known, Plugins, blocked, goes_first};
use super::plan::Waits;
use super::problem::{PluginError, Problem};
use super::record::Record;
use super::release::Release;

impl PluginController {
    /// The release to apply, or what is waited for before that.
    pub(super) async fn release(
        &self,
        pass: &mut Pass,
        id: PluginId,
        plugin: &Plugin,
        identity: &Identity,
        record: &Record,
    ) -> Result<Result<Arc<Release>, Waits>, PluginError> {
        let Some(release) = self.manifests.fetch(pass, id, plugin, record).await? else {
            return Ok(Err(Waits {
                reason: "VersionChanges",
                message: "the cloud has another version already: waits for the mirror".to_owned(),
            }));
        };
        let waits = self.dependencies(pass.key(), &plugin.spec.version, identity, &release, record)?;
        Ok(waits.map_or(Ok(release), Err))
    }

    /// The dependencies that a version which is not applied yet waits for.
    pub(super) fn dependencies(
        &self,
        key: &Key,
        version: &str,
        identity: &Identity,
        release: &Release,
        record: &Record,
    ) -> Result<Option<Waits>, Problem> {
        if release.depends_on.is_empty() || record.applied_version() == version {
            self.waiting.set(key, false);
            return Ok(None);
        }
        let known = self.plugins.cache().iter().map(|plugin| {
            let depends_on = self.manifests.dependencies(&plugin.spec.id);
            (Identity::of(&plugin.spec), Known::of(&plugin, depends_on))
        });
        let known: Plugins = known.collect();
        let found = blocked(identity, &release.depends_on, &known, self.plugins.has_all());
        self.waiting.set(key, found.is_some());
        match found {
            None => Ok(None),
            Some(Blocked::Waits(waits)) => Ok(Some(waits)),
            Some(Blocked::Problem(problem)) => Err(problem),
        }
    }

    /// Waits for the plugins that depend on this one and are removed, too.
    pub(super) fn wait_for_dependents(&self, key: &Key, plugin: &Identity, record: &Record) -> Result<(), Problem> {
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
            Err(Problem {
                reason: "RemovalWaits",
                note: format!("waits until plugin {first}, which depends on it, is removed"),
                passes: true,
            })
        })
    }
}
