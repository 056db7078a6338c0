//! The memory of plugins in `containership-core`: the inventory of each, and Secrets with the versions that were
//! accepted and with the diff of the one that awaits approval.
//!
//! The cloud serves its current version only, so what is accepted is stored before anything of it is applied: as the
//! cloud sent it, with its signature, compressed. When it is read back, it is treated as if the cloud sent it now. A
//! Secret with a version is immutable, and is made once. It says which version it has, because the inventory may be
//! lost with its definition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use tidewaiter_api::containership::PluginSpec;
use tidewaiter_api::names::{
    CONTAINERSHIP_NAMESPACE, PLUGIN_STORE_LABEL, plugin_diff_secret, plugin_release_secret, plugin_secret_prefix,
};
use tidewaiter_api::{AcceptedRelease, PluginInventory, PluginInventorySpec};
use tidewaiter_kit::{Cache, Key, Metadata, WriteError, Writer};
use tokio::sync::Semaphore;

use super::Goal;
use super::diff::{DIFF_KEY, PluginDiff};
use super::fetch::Manifests;
use super::record::Record;
use super::release::Release;
use super::render::packed;
use crate::controllers::plugin::report::{PluginError, Problem};
use crate::merge_patch::merge_patch;
use crate::meta;

/// The key of a version in its Secret.
const RELEASE_KEY: &str = "release";
/// The key of what the inventory says of it.
const ACCEPTED_KEY: &str = "accepted";
const TYPE: &str = "tidewaiter.dev/plugin";
/// The most that a Secret may have, in bytes: the API server permits 1 MiB.
const MOST: usize = 1_000_000;

/// Secrets with versions that are in memory at the same time: after a restart, all of them are read.
const READS: usize = 8;

/// The stored versions of all plugins.
pub(crate) struct Store {
    secrets: Api<Secret>,
    /// The Secrets that there are.
    known: Cache<Metadata<Secret>>,
    /// The permits of reads.
    reads: Semaphore,
    /// By plugin, the version that was read last.
    held: Mutex<BTreeMap<String, Held>>,
    writer: Arc<Writer>,
}

/// The inventory as it is in the cluster, with the metadata of its last write: the cache may not show that yet.
pub(crate) struct Saved(Option<(PluginInventorySpec, ObjectMeta)>);

impl Saved {
    pub(crate) fn of(inventory: Option<&PluginInventory>) -> Self {
        Self(inventory.map(|inventory| (inventory.spec.clone(), inventory.metadata.clone())))
    }

    /// Returns true if there is no inventory.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if it has what must not be lost of the record.
    pub(crate) fn keeps(&self, record: &Record) -> bool {
        self.0.as_ref().is_some_and(|(saved, _)| record.is_kept_by(saved))
    }
}

/// A version, and its manifests.
type Held = (AcceptedRelease, Arc<Release>);

/// Returns true if it is too large for a Secret. Of such a one, nothing is held.
pub(crate) fn is_too_large(compressed: &[u8]) -> bool {
    compressed.is_empty() || compressed.len() > MOST
}

impl Store {
    /// `client` must be a fenced one.
    pub(crate) fn new(client: Client, known: Cache<Metadata<Secret>>, writer: Arc<Writer>) -> Self {
        Self {
            secrets: Api::namespaced(client, CONTAINERSHIP_NAMESPACE),
            known,
            reads: Semaphore::new(READS),
            held: Mutex::default(),
            writer,
        }
    }

    /// Writes the inventory, unless it has this record already.
    pub(crate) async fn save(&self, key: &Key, record: &Record, saved: &mut Saved) -> Result<(), WriteError> {
        let spec = record.write();
        if saved.0.as_ref().is_some_and(|(saved, _)| *saved == spec) {
            return Ok(());
        }
        // There is nothing to remember.
        if spec == PluginInventorySpec::default() {
            if let Some((_, known)) = saved.0.take() {
                self.writer.delete::<PluginInventory>(&known).await?;
            }
            return Ok(());
        }
        // As JSON, because the API server parses an apply as YAML, and one with 500 objects takes it 20 ms.
        let written = match &saved.0 {
            None => self.writer.create(&inventory(key, &spec)).await?,
            Some((before, known)) => {
                let patch = json!({"spec": merge_patch(before, &spec)});
                self.writer.patch::<PluginInventory>(known, patch).await?
            }
        };
        saved.0 = Some((spec, written));
        Ok(())
    }

    /// Returns true if the cloud has other manifests of the version that may be applied now, and they lack objects: an
    /// answer that was cut short looks like that, and it would delete them. A new version says that it is meant.
    pub(crate) async fn shrinks(
        &self,
        manifests: &Manifests,
        goal: &Goal,
        today: &PluginSpec,
        record: &Record,
    ) -> bool {
        let accepted = record.accepted(record.approved());
        let version = accepted.map_or_else(|| record.applied_version(), |entry| entry.version.as_str());
        if version != goal.spec.version {
            return false;
        }
        let Some(entry) = accepted.filter(|entry| !entry.too_large) else {
            return record.exceeds(&goal.release);
        };
        match self.read(manifests, today, entry).await {
            Ok(stored) => goal.release.lacks(stored.all().map(|object| &object.id)),
            Err(_) => record.exceeds(&goal.release),
        }
    }

    /// Stores an accepted version, unless it is there already.
    pub(crate) async fn put(&self, goal: &Goal, record: &Record, compressed: &[u8]) -> Result<(), WriteError> {
        let Some(entry) = record.accepted(&goal.release.revision) else {
            return Ok(());
        };
        let plugin = goal.spec.id.as_str();
        let name = plugin_release_secret(plugin, &entry.revision);
        if is_too_large(compressed) || self.has(&name) {
            return Ok(());
        }
        let mut secret = secret(plugin, &name, RELEASE_KEY, compressed.to_vec());
        let accepted = serde_json::to_vec(entry).unwrap_or_default();
        let data = secret.data.get_or_insert_default();
        data.insert(ACCEPTED_KEY.to_owned(), ByteString(accepted));
        secret.immutable = Some(true);
        match self.writer.create(&secret).await {
            // Whatever it has: what is read back is verified.
            Err(error) if error.is_conflict() => Ok(()),
            created => created.map(drop),
        }
    }

    /// Stores what a version would change, unless the Secret is there and has this diff already.
    pub(crate) async fn put_diff(&self, plugin: &str, diff: &PluginDiff, is_new: bool) -> Result<(), WriteError> {
        let name = plugin_diff_secret(plugin);
        if !is_new && self.has(&name) {
            return Ok(());
        }
        let secret = secret(plugin, &name, DIFF_KEY, packed(diff, MOST));
        self.writer.apply(&secret, None).await.map(drop)
    }

    /// Returns true if the diff of the plugin is stored, or is being stored.
    pub(crate) fn has_diff(&self, plugin: &str) -> bool {
        self.has(&plugin_diff_secret(plugin))
    }

    /// The stored version of the plugin `today`, as if the cloud sent it now.
    pub(crate) async fn read(
        &self,
        manifests: &Manifests,
        today: &PluginSpec,
        entry: &AcceptedRelease,
    ) -> Result<Arc<Release>, PluginError> {
        let plugin = today.id.as_str();
        let unusable = |why: String| Problem::unusable(plugin, entry, &why);
        let held = self.held.lock().get(plugin).filter(|(held, _)| held == entry).cloned();
        if let Some((_, release)) = held {
            return Ok(release);
        }
        let release = {
            let _permit = self.reads.acquire().await;
            let stored = self.stored(plugin, entry).await?;
            let release = manifests.read_stored(&spec_when_accepted(today, entry), &stored).await;
            release.map_err(unusable)?
        };
        if release.revision != entry.revision {
            return Err(unusable("it has other manifests than were accepted: delete it".to_owned()).into());
        }
        let release = Arc::new(release);
        self.held
            .lock()
            .insert(plugin.to_owned(), (entry.clone(), Arc::clone(&release)));
        Ok(release)
    }

    /// The versions that are stored of a plugin without an inventory, newest last. Those that an earlier Tidewaiter
    /// stored do not say what they are.
    pub(crate) async fn recall(&self, plugin: &str) -> Result<Vec<AcceptedRelease>, PluginError> {
        let prefix = plugin_secret_prefix(plugin);
        let mut found = Vec::new();
        for key in self.known.keys().iter().filter(|key| key.name().starts_with(&prefix)) {
            let _permit = self.reads.acquire().await;
            let secret = self.secrets.get_opt(key.name()).await.map_err(PluginError::Stored)?;
            let accepted = secret.and_then(|secret| secret.data?.remove(ACCEPTED_KEY));
            let entry = accepted.and_then(|text| serde_json::from_slice::<AcceptedRelease>(&text.0).ok());
            found.extend(entry.filter(|entry| plugin_release_secret(plugin, &entry.revision) == key.name()));
        }
        found.sort_by_key(|entry| entry.at);
        Ok(found)
    }

    /// The content of the version's Secret; empty if that is not what was stored.
    async fn stored(&self, plugin: &str, entry: &AcceptedRelease) -> Result<Vec<u8>, PluginError> {
        let name = plugin_release_secret(plugin, &entry.revision);
        let secret = self.secrets.get_opt(&name).await.map_err(PluginError::Stored)?;
        let Some(secret) = secret else {
            let why = "somebody deleted it, or it was never stored";
            return Err(Problem::unusable(plugin, entry, why).into());
        };
        let bytes = secret.data.and_then(|mut data| data.remove(RELEASE_KEY));
        Ok(bytes.unwrap_or_default().0)
    }

    /// Deletes the Secrets of the plugin that are not wanted.
    pub(crate) async fn tidy(&self, plugin: &str, wanted: &BTreeSet<String>) -> Result<(), WriteError> {
        let prefix = plugin_secret_prefix(plugin);
        let is_surplus = |key: &Key| key.name().starts_with(&prefix) && !wanted.contains(key.name());
        let surplus = self.known.keys().into_iter().filter(is_surplus);
        for key in surplus {
            let Some(secret) = self.known.get(&key) else { continue };
            self.writer.delete::<Secret>(&secret.metadata).await?;
        }
        Ok(())
    }

    /// The plugin is gone, or its version was fetched.
    pub(crate) fn forget(&self, plugin: &str) {
        self.held.lock().remove(plugin);
    }

    fn has(&self, name: &str) -> bool {
        let key = Key::namespaced(CONTAINERSHIP_NAMESPACE, name);
        self.known.get(&key).is_some() || self.writer.awaits::<Secret>(&key, None)
    }
}

/// The plugin as it was when the version was accepted: its limits and its service account are those of then, because a
/// signature says which type it has.
pub(crate) fn spec_when_accepted(today: &PluginSpec, entry: &AcceptedRelease) -> PluginSpec {
    PluginSpec {
        version: entry.version.clone(),
        type_: entry.type_.clone(),
        implementation: entry.implementation.clone(),
        ..today.clone()
    }
}

fn inventory(key: &Key, spec: &PluginInventorySpec) -> PluginInventory {
    PluginInventory {
        metadata: meta::of(key.namespace(), key.name()),
        spec: spec.clone(),
    }
}

fn secret(plugin: &str, name: &str, key: &str, bytes: Vec<u8>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            labels: Some([(PLUGIN_STORE_LABEL.to_owned(), plugin.to_owned())].into()),
            ..meta::of(Some(CONTAINERSHIP_NAMESPACE), name)
        },
        data: Some([(key.to_owned(), ByteString(bytes))].into()),
        type_: Some(TYPE.to_owned()),
        ..Secret::default()
    }
}
