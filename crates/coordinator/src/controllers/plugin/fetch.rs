//! Fetches the manifests of plugins from the cloud, and remembers the last ones of each, compressed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tidewaiter_api::containership::Plugin;
use tidewaiter_cloud::client::{Client, Cluster, ETag, Fetched};
use tidewaiter_cloud::models::values::PluginId;
use tidewaiter_kit::{Packed, Packer, Pass, SharedClock};

use super::by_plugin::Identity;
use super::problem::{PluginError, Problem};
use super::record::Record;
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
    packer: Packer<Release>,
    /// By plugin: what was fetched last.
    held: Mutex<BTreeMap<String, Held>>,
}

/// Manifests, and what they are for.
#[derive(Clone)]
struct Held {
    /// What they were signed for, with the version.
    identity: Identity,
    version: String,
    previous: Option<String>,
    etag: Option<ETag>,
    /// When they were fetched (monotonic).
    at: Duration,
    /// 500 objects take some MiB otherwise.
    release: Packed,
    depends_on: Vec<String>,
}

impl Manifests {
    pub(super) fn new(cloud: Client, cluster: Cluster, settings: &PluginSettings, clock: SharedClock) -> Self {
        Self {
            cloud,
            cluster,
            deny: settings.deny.clone(),
            trust: Trust::new(settings.trust.clone(), cluster),
            clock,
            packer: Packer::alone(),
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
    ) -> Result<Option<Release>, PluginError> {
        let (name, version) = (pass.key().name().to_owned(), &plugin.spec.version);
        let previous = record.previous(version).map(str::to_owned);
        let identity = Identity::of(&plugin.spec);
        let same = |held: &Held| held.identity == identity && held.version == *version && held.previous == previous;
        let held = self.held().get(&name).filter(|held| same(held)).cloned();
        let now = self.clock.monotonic();
        if let Some(held) = held.as_ref().filter(|held| now < held.at + REFRESH / 2) {
            return Ok(Some(self.packer.unpack(&held.release)));
        }
        let etag = held.as_ref().and_then(|held| held.etag.clone());
        let asked = self
            .cloud
            .manifests(self.cluster, id, previous.as_deref(), etag.as_ref());
        let (value, etag) = match (pass.outside(asked).await, held) {
            (Ok(Fetched::Complete { value, etag }), _) => (value, etag),
            (Ok(Fetched::Unchanged), Some(held)) => {
                let release = self.packer.unpack(&held.release);
                self.held().insert(name, Held { at: now, ..held });
                return Ok(Some(release));
            }
            (Ok(Fetched::Unchanged), None) => return Ok(None),
            // What was fetched goes on being true.
            (Err(_), Some(held)) => return Ok(Some(self.packer.unpack(&held.release))),
            (Err(error), None) => return Err(PluginError::Cloud(error)),
        };
        let served = value.get("version").and_then(Value::as_str);
        if served.is_some_and(|served| served != version) {
            return Ok(None);
        }
        // What is not signed is not read.
        let signed_at = self.trust.verify(&plugin.spec, &value, record, self.clock.now());
        let signed_at = signed_at.map_err(|why| Problem::untrusted(&name, version, &why))?;
        let read = Release::read(&name, version, &value, &self.deny);
        let mut release = read.map_err(|refused| Problem::refused(&name, version, &refused))?;
        release.signed_at = signed_at;
        let held = Held {
            identity,
            version: version.clone(),
            previous,
            etag,
            at: now,
            release: self.packer.pack(&release),
            depends_on: release.depends_on.clone(),
        };
        self.held().insert(name, held);
        Ok(Some(release))
    }

    /// What the plugins depend on, as far as their manifests were fetched.
    pub(super) fn dependencies(&self, plugin: &str) -> Vec<String> {
        let held = self.held();
        held.get(plugin).map(|held| held.depends_on.clone()).unwrap_or_default()
    }

    /// The plugin is gone.
    pub(super) fn forget(&self, plugin: &str) {
        self.held().remove(plugin);
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
