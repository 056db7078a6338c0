//! Fetches the manifests of plugins from the cloud, and holds the last ones of each: they are parsed once, not in each
//! pass.
//!
//! After a restart, all of them are fetched and parsed, and a version has up to 16 MiB. So the responses share a
//! budget, for which they wait, and one version at a time is parsed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lz4_flex::block::compress_prepend_size;
use parking_lot::Mutex;
use tidewaiter_api::containership::{Plugin, PluginSpec};
use tidewaiter_api::names::SIGNATURE_ANNOTATION;
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::client::{ByteBudget, Client, Cluster, ETag, Fetched, SentManifests};
use tidewaiter_cloud::models::values::PluginId;
use tidewaiter_kit::{Pass, SharedClock};
use tokio::sync::Mutex as AsyncMutex;

use super::diff::unpack;
use super::record::Record;
use super::release::Release;
use super::sent::{Sent, Trust};
use super::store::is_too_large;
use super::{Refused, refused};
use crate::controllers::plugin::report::{PluginError, Problem};
use crate::controllers::plugin::settings::{Identity, PluginSettings};

/// Manifests are fetched again after this time, conditionally: the catalogue may change those of a version.
pub(crate) const REFRESH: Duration = Duration::from_mins(10);
/// The size of manifests, in bytes. Source: the cloud's own limit.
const LARGEST: u32 = 16 * 1024 * 1024;
/// Manifests of that size that are in memory at the same time.
const LARGEST_AT_ONCE: u16 = 2;

/// The most memory of the manifests of all plugins, in bytes. They are held compressed.
const MOST_HELD: usize = 64 * 1024 * 1024;

/// The manifests of the cloud.
pub(crate) struct Manifests {
    cloud: Client,
    cluster: Cluster,
    /// The kinds that plugins may not have.
    deny: Vec<String>,
    trust: Trust,
    clock: SharedClock,
    /// The memory of responses.
    budget: ByteBudget,
    /// Locked while a version is parsed.
    parsing: AsyncMutex<()>,
    /// See [`MOST_HELD`].
    most_held: usize,
    /// By plugin: what was fetched last.
    held: Mutex<BTreeMap<String, Held>>,
}

/// Manifests, and what they are for.
#[derive(Clone)]
struct Held {
    /// The identity that they were signed for, with the version.
    identity: Identity,
    version: String,
    /// The digest of the signature, as the Plugin said.
    signature: Option<String>,
    previous: Option<String>,
    etag: Option<ETag>,
    /// The time when they were fetched (monotonic).
    at: Duration,
    release: Arc<Release>,
    /// The cloud's response, compressed, as it is stored. Empty if that is too large.
    sent: Arc<[u8]>,
    /// The reason why they could not be fetched again; None after a success.
    outdated: Option<String>,
}

impl Held {
    /// The memory of the manifests, in bytes.
    fn size(&self) -> usize {
        self.release.size() + self.sent.len()
    }
}

impl Manifests {
    pub(crate) fn new(cloud: Client, cluster: Cluster, settings: &PluginSettings, clock: SharedClock) -> Self {
        Self {
            cloud,
            cluster,
            deny: settings.deny.clone(),
            trust: Trust::new(settings.trust.clone(), cluster),
            clock,
            budget: ByteBudget::new(LARGEST_AT_ONCE, LARGEST),
            parsing: AsyncMutex::default(),
            most_held: MOST_HELD,
            held: Mutex::default(),
        }
    }

    /// The manifests of the plugin's version; None while the cloud serves those of another one.
    pub(crate) async fn fetch(
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
        let held = self.held.lock().get(&name).filter(|held| same(held)).cloned();
        let signature = annotation(plugin, SIGNATURE_ANNOTATION);
        let now = self.clock.monotonic();
        let is_fresh = |held: &&Held| now < held.at + REFRESH / 2 && held.signature == signature;
        if let Some(held) = held.as_ref().filter(is_fresh) {
            return Ok(Some(Arc::clone(&held.release)));
        }
        let etag = held.as_ref().and_then(|held| held.etag.clone());
        let asked = self
            .cloud
            .manifests(self.cluster, id, previous.as_deref(), etag.as_ref(), &self.budget);
        let (SentManifests { text, part: _part }, etag) = match (pass.outside(asked).await, held) {
            (Ok(Fetched::Complete { value, etag }), _) => (value, etag),
            (Ok(Fetched::Unchanged), Some(held)) => {
                let release = Arc::clone(&held.release);
                let held = Held {
                    at: now,
                    signature,
                    outdated: None,
                    ..held
                };
                self.held.lock().insert(name, held);
                return Ok(Some(release));
            }
            (Ok(Fetched::Unchanged), None) => return Ok(None),
            // What was fetched goes on being true, but it may be outdated, which the status says.
            (Err(error), Some(held)) => {
                let release = Arc::clone(&held.release);
                let outdated = Some(error.reason());
                self.held.lock().insert(name, Held { outdated, ..held });
                return Ok(Some(release));
            }
            (Err(error), None) => return Err(PluginError::Cloud(error)),
        };
        let _parsing = self.parsing.lock().await;
        let Some(release) = self.accepted(&plugin.spec, &text, record)? else {
            return Ok(None);
        };
        let sent = compress_prepend_size(&text);
        let held = Held {
            identity,
            version: version.clone(),
            signature,
            previous,
            etag,
            at: now,
            release: Arc::clone(&release),
            sent: if is_too_large(&sent) {
                Arc::default()
            } else {
                sent.into()
            },
            outdated: None,
        };
        let mut all = self.held.lock();
        let others = all.iter().filter(|(other, _)| **other != name);
        let size = held.size();
        if size + others.map(|(_, held)| held.size()).sum::<usize>() > self.most_held {
            return Err(Problem::refused(&name, version, &too_large(size, self.most_held)).into());
        }
        all.insert(name, held);
        Ok(Some(release))
    }

    /// The manifests of the plugin, as the cloud sent them; None if they are of another version.
    fn accepted(&self, plugin: &PluginSpec, text: &[u8], record: &Record) -> Result<Option<Arc<Release>>, Problem> {
        let refused = |refused: Refused| Problem::refused(&plugin.id, &plugin.version, &refused);
        let sent = Sent::read(text).map_err(refused)?;
        if !is_of(&sent, plugin).map_err(refused)? {
            return Ok(None);
        }
        // What is not signed is not read.
        let signed_at = self.trust.verify(plugin, &sent, record, self.clock.now());
        let signed_at = signed_at.map_err(|why| Problem::untrusted(&plugin.id, &plugin.version, &why))?;
        let release = Release::read(&plugin.id, &plugin.version, &sent, &self.deny).map_err(refused)?;
        if release.all().next().is_none() && record.len() > 0 {
            return Err(refused(emptied(record.len())));
        }
        let release = release.bound_to(plugin);
        Ok(Some(Arc::new(Release { signed_at, ..release })))
    }

    /// The cloud's response when [`Manifests::fetch`] returned the release, compressed. Empty if that is too large to
    /// be stored.
    pub(crate) fn sent(&self, plugin: &str) -> Option<Arc<[u8]>> {
        self.held.lock().get(plugin).map(|held| Arc::clone(&held.sent))
    }

    /// The reason why the manifests of the plugin could not be fetched again, if the last request failed.
    pub(crate) fn outdated(&self, plugin: &str) -> Option<String> {
        self.held.lock().get(plugin)?.outdated.clone()
    }

    /// Reads what was stored of a version, with the keys and the limits of today. `plugin` is the plugin as it was when
    /// the version was accepted. A signature may be of any age: a person in the cluster decided about it.
    pub(crate) async fn read_stored(&self, plugin: &PluginSpec, stored: &[u8]) -> Result<Release, String> {
        let _parsing = self.parsing.lock().await;
        let unreadable = "its content is not what was stored: delete it";
        let text = unpack(stored).map_err(|_| unreadable)?;
        let sent = Sent::read(&text).map_err(|_| unreadable)?;
        let signed_at = self.trust.signed_at(plugin, &sent, self.clock.now());
        let signed_at = signed_at.map_err(|why| why.to_string())?;
        let release = Release::read(&plugin.id, &plugin.version, &sent, &self.deny);
        let release = release.map_err(|refused| refused.to_string())?.bound_to(plugin);
        Ok(Release { signed_at, ..release })
    }

    /// The dependencies of the plugin, as far as its manifests were fetched.
    pub(crate) fn dependencies(&self, plugin: &str) -> Vec<String> {
        let held = self.held.lock();
        held.get(plugin)
            .map(|held| held.release.depends_on.clone())
            .unwrap_or_default()
    }

    /// The plugin is gone.
    pub(crate) fn forget(&self, plugin: &str) {
        self.held.lock().remove(plugin);
    }
}

pub(crate) fn annotation(plugin: &Plugin, name: &str) -> Option<String> {
    plugin.metadata.annotations.as_ref()?.get(name).cloned()
}

/// Manifests without an object would delete everything of the plugin, which is what a bad response looks like.
fn emptied(objects: usize) -> Refused {
    let why = format!("there are none, and {objects} objects would be deleted: to delete them, remove the plugin");
    refused("the manifests", why)
}

/// The memory of the coordinator is that of all plugins.
fn too_large(size: usize, most: usize) -> Refused {
    let kibibytes = |bytes: usize| bytes.div_ceil(1024);
    let why = format!(
        "take {} KiB compressed, and those of all plugins may take {} KiB together: make them smaller, or remove other plugins",
        kibibytes(size),
        kibibytes(most)
    );
    refused("the manifests", why)
}

/// Returns true if the response is of the plugin's version, and not of another one. The cloud of the Go coordinator
/// does not say it.
///
/// # Errors
/// When it is of another plugin.
fn is_of(sent: &Sent, plugin: &PluginSpec) -> Result<bool, Refused> {
    if let Some(other) = sent.id().filter(|id| *id != plugin.id) {
        let why = format!("is about the plugin {}", quoted(&other));
        return Err(refused("the response of the cloud", why));
    }
    Ok(sent.version().is_none_or(|version| version == plugin.version))
}

#[cfg(test)]
mod tests;
