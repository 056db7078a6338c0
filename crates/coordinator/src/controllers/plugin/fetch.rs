//! Fetches the manifests of plugins from the cloud, and holds the last ones of each: they are parsed once, not in each pass.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lz4_flex::block::compress_prepend_size;
use serde_json::Value;
use tidewaiter_api::containership::{Plugin, PluginSpec};
use tidewaiter_api::names::SIGNATURE_ANNOTATION;
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::client::{Client, Cluster, ETag, Fetched, SentManifests};
use tidewaiter_cloud::models::values::PluginId;
use tidewaiter_kit::{Pass, SharedClock};

use super::by_plugin::Identity;
use super::problem::{PluginError, Problem};
use super::record::Record;
use super::refused::{Refused, refused};
use super::release::Release;
use super::settings::PluginSettings;
use super::trust::Trust;

/// Manifests are fetched again after this time, conditionally: the catalogue may change those of a version.
pub(super) const REFRESH: Duration = Duration::from_mins(10);

/// The manifests of the cloud.
pub(super) struct Manifests {
    cloud: Client,
    cluster: Cluster,
    /// The kinds that plugins may not have.
    deny: Vec<String>,
    trust: Trust,
    clock: SharedClock,
    /// By plugin: what was fetched last.
    held: Mutex<BTreeMap<String, Held>>,
}

/// Manifests, and what they are for.
#[derive(Clone)]
struct Held {
    /// What they were signed for, with the version.
    identity: Identity,
    version: String,
    /// The digest of the signature, as the Plugin said.
    signature: Option<String>,
    previous: Option<String>,
    etag: Option<ETag>,
    /// When they were fetched (monotonic).
    at: Duration,
    release: Arc<Release>,
    /// What the cloud sent, compressed, as it is stored.
    sent: Arc<[u8]>,
    /// Why they could not be fetched again; None after a success.
    outdated: Option<String>,
}

impl Manifests {
    pub(super) fn new(cloud: Client, cluster: Cluster, settings: &PluginSettings, clock: SharedClock) -> Self {
        Self {
            cloud,
            cluster,
            deny: settings.deny.clone(),
            trust: Trust::new(settings.trust.clone(), cluster),
            clock,
            held: Mutex::default(),
        }
    }

    /// The manifests of the plugin's version; None while the cloud serves those of another one.
    pub(super) async fn fetch(
        &self,
        pass: &mut Pass,
        id: PluginId,
        plugin: &Plugin,
        record: &Record,
    ) -> Result<Option<Arc<Release>>, PluginError> {
        let (name, version) = (pass.key().name().to_owned(), &plugin.spec.version);
        let previous = record.previous(version).map(str::to_owned);
        let identity = Identity::of(&plugin.spec);
        let same = |held: &Held| held.identity == identity && held.version == *version && held.previous == previous;
        let held = self.held().get(&name).filter(|held| same(held)).cloned();
        let signature = annotation(plugin, SIGNATURE_ANNOTATION);
        let now = self.clock.monotonic();
        let is_fresh = |held: &&Held| now < held.at + REFRESH / 2 && held.signature == signature;
        if let Some(held) = held.as_ref().filter(is_fresh) {
            return Ok(Some(Arc::clone(&held.release)));
        }
        let etag = held.as_ref().and_then(|held| held.etag.clone());
        let asked = self
            .cloud
            .manifests(self.cluster, id, previous.as_deref(), etag.as_ref());
        let (SentManifests { json, text }, etag) = match (pass.outside(asked).await, held) {
            (Ok(Fetched::Complete { value, etag }), _) => (value, etag),
            (Ok(Fetched::Unchanged), Some(held)) => {
                let release = Arc::clone(&held.release);
                let held = Held {
                    at: now,
                    signature,
                    outdated: None,
                    ..held
                };
                self.held().insert(name, held);
                return Ok(Some(release));
            }
            (Ok(Fetched::Unchanged), None) => return Ok(None),
            // What was fetched goes on being true, but it may be outdated, which the status says.
            (Err(error), Some(held)) => {
                let release = Arc::clone(&held.release);
                let outdated = Some(error.reason());
                self.held().insert(name, Held { outdated, ..held });
                return Ok(Some(release));
            }
            (Err(error), None) => return Err(PluginError::Cloud(error)),
        };
        if !is_of(&json, &plugin.spec).map_err(|refused| Problem::refused(&name, version, &refused))? {
            return Ok(None);
        }
        // What is not signed is not read.
        let signed_at = self.trust.verify(&plugin.spec, &json, record, self.clock.now());
        let signed_at = signed_at.map_err(|why| Problem::untrusted(&name, version, &why))?;
        let release = Arc::new(self.accepted(&plugin.spec, json, signed_at)?);
        if release.all().next().is_none() && record.len() > 0 {
            return Err(Problem::refused(&name, version, &emptied(record.len())).into());
        }
        let held = Held {
            identity,
            version: version.clone(),
            signature,
            previous,
            etag,
            at: now,
            release: Arc::clone(&release),
            sent: compress_prepend_size(&text).into(),
            outdated: None,
        };
        self.held().insert(name, held);
        Ok(Some(release))
    }

    /// The manifests of the plugin, whose signature was verified.
    fn accepted(&self, plugin: &PluginSpec, sent: Value, signed_at: Option<i64>) -> Result<Release, PluginError> {
        let release = Release::read(&plugin.id, &plugin.version, sent, &self.deny);
        let release = release.map_err(|refused| Problem::refused(&plugin.id, &plugin.version, &refused))?;
        let release = release.of(plugin);
        Ok(Release { signed_at, ..release })
    }

    /// What the cloud sent when [`Manifests::fetch`] returned the release, compressed.
    pub(super) fn sent(&self, plugin: &str) -> Option<Arc<[u8]>> {
        self.held().get(plugin).map(|held| Arc::clone(&held.sent))
    }

    /// Why the manifests of the plugin could not be fetched again, if the last request failed.
    pub(super) fn outdated(&self, plugin: &str) -> Option<String> {
        self.held().get(plugin)?.outdated.clone()
    }

    /// Reads what was stored of a version, with the keys and the limits of today. `plugin` is the plugin as it was when the version was accepted.
    /// A signature may be of any age: a person in the cluster decided about it.
    pub(super) fn read_stored(&self, plugin: &PluginSpec, sent: Value) -> Result<Release, String> {
        let signed_at = self.trust.signed_at(plugin, &sent, self.clock.now());
        let signed_at = signed_at.map_err(|why| why.to_string())?;
        let release = Release::read(&plugin.id, &plugin.version, sent, &self.deny);
        let release = release.map_err(|refused| refused.to_string())?.of(plugin);
        Ok(Release { signed_at, ..release })
    }

    /// What the plugins depend on, as far as their manifests were fetched.
    pub(super) fn dependencies(&self, plugin: &str) -> Vec<String> {
        let held = self.held();
        held.get(plugin)
            .map(|held| held.release.depends_on.clone())
            .unwrap_or_default()
    }

    /// The plugin is gone.
    pub(super) fn forget(&self, plugin: &str) {
        self.held().remove(plugin);
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn annotation(plugin: &Plugin, name: &str) -> Option<String> {
    plugin.metadata.annotations.as_ref()?.get(name).cloned()
}

/// Manifests without an object would delete everything of the plugin, which is what a bad response looks like.
fn emptied(objects: usize) -> Refused {
    let why = format!("there are none, and {objects} objects would be deleted: to delete them, remove the plugin");
    refused("the manifests", why)
}

/// Whether the response is of the plugin's version, and not of another one. The cloud of the Go coordinator does not say it.
///
/// # Errors
/// When it is of another plugin.
fn is_of(sent: &Value, plugin: &PluginSpec) -> Result<bool, Refused> {
    let text = |field| sent.get(field).and_then(Value::as_str);
    if let Some(other) = text("id").filter(|id| *id != plugin.id) {
        let why = format!("is about the plugin {}", quoted(other));
        return Err(refused("the response of the cloud", why));
    }
    Ok(text("version").is_none_or(|version| version == plugin.version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn manifests_are_of_the_plugin_and_of_its_version() {
        let plugin: PluginSpec = serde_json::from_value(json!({"id": "one", "version": "1.0.0"})).unwrap();
        for (sent, expected) in [
            (json!({"manifests": []}), Ok(true)),
            (json!({"id": "one", "version": "1.0.0"}), Ok(true)),
            (json!({"id": "one", "version": "1.0.1"}), Ok(false)),
            (json!({"id": "two"}), Err("is about the plugin \"two\"".to_owned())),
        ] {
            let found = is_of(&sent, &plugin).map_err(|refused| refused.why);
            assert_eq!(found, expected, "{sent}");
        }
    }
}
