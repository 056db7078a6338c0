//! What is remembered of a plugin: its inventory, as maps. Pure.

use std::collections::{BTreeMap, BTreeSet};

use tidewaiter_api::containership::PluginSpec;
use tidewaiter_api::{AppliedObject, PluginInventory, PluginInventorySpec};

use super::by_plugin::Identity;
use super::object::ObjectId;
use super::release::Release;

/// The earlier specs that are kept.
const HISTORY: usize = 10;

/// The inventory of a plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    objects: BTreeMap<ObjectId, AppliedObject>,
    rest: PluginInventorySpec,
}

impl Record {
    pub(super) fn read(inventory: &PluginInventorySpec) -> Self {
        let objects = inventory.objects.iter();
        Self {
            objects: objects
                .map(|applied| (ObjectId::from(applied), applied.clone()))
                .collect(),
            rest: PluginInventorySpec {
                objects: Vec::new(),
                ..inventory.clone()
            },
        }
    }

    pub(super) fn write(&self) -> PluginInventorySpec {
        PluginInventorySpec {
            objects: self.objects.values().cloned().collect(),
            ..self.rest.clone()
        }
    }

    /// Whether an inventory has every object that may come to be, every job that has succeeded, and how the plugin is to be removed and verified: the
    /// rest can be found out again.
    pub(super) fn is_kept_by(&self, inventory: &PluginInventorySpec) -> bool {
        let kept: BTreeSet<ObjectId> = inventory.objects.iter().map(ObjectId::from).collect();
        let rest = PluginInventorySpec {
            objects: Vec::new(),
            ..inventory.clone()
        };
        self.rest == rest && self.ids().all(|id| kept.contains(id))
    }

    /// Which plugin it is, when the plugin itself is gone.
    pub(super) fn identity(&self, inventory: &PluginInventory) -> Identity {
        Identity {
            id: inventory.metadata.name.clone().unwrap_or_default(),
            type_: self.rest.type_.clone(),
            implementation: self.rest.implementation.clone(),
        }
    }

    /// Before anything of it is applied, so that it can be removed as it was applied.
    pub(super) fn identify(&mut self, plugin: &Identity, release: &Release) {
        plugin.type_.clone_into(&mut self.rest.type_);
        plugin.implementation.clone_into(&mut self.rest.implementation);
        self.rest.depends_on.clone_from(&release.depends_on);
        self.rest.signed_at = release.signed_at.or(self.rest.signed_at);
    }

    /// When the manifests that were accepted last were signed.
    pub(super) fn signed_at(&self) -> Option<i64> {
        self.rest.signed_at
    }

    /// The plugins that it depends on.
    pub(super) fn depends_on(&self) -> &[String] {
        &self.rest.depends_on
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.objects.keys()
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (&ObjectId, &AppliedObject)> {
        self.objects.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// What was applied of the object.
    pub(super) fn applied(&self, id: &ObjectId) -> Option<&AppliedObject> {
        self.objects.get(id).filter(|applied| !applied.digest.is_empty())
    }

    /// The object may come to be.
    pub(super) fn expect(&mut self, id: ObjectId, version: &str) {
        let new = AppliedObject {
            group: id.group.clone(),
            kind: id.kind.clone(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            ..AppliedObject::default()
        };
        let applied = self.objects.entry(id).or_insert(new);
        version.clone_into(&mut applied.version);
    }

    /// The object was applied.
    pub(super) fn apply(&mut self, id: &ObjectId, digest: &str, fields: String) {
        if let Some(applied) = self.objects.get_mut(id) {
            digest.clone_into(&mut applied.digest);
            applied.fields = fields;
        }
    }

    /// The object is gone, or is not the plugin's.
    pub(super) fn forget(&mut self, id: &ObjectId) {
        self.objects.remove(id);
    }

    pub(super) fn is_complete(&self, job: &str) -> bool {
        self.rest.completed_jobs.iter().any(|completed| completed == job)
    }

    pub(super) fn complete(&mut self, job: &str) {
        self.rest.completed_jobs.push(job.to_owned());
    }

    /// The version whose upgrade to `version` the jobs are for. It stays the same after the upgrade, and so do the manifests.
    pub(super) fn previous(&self, version: &str) -> Option<&str> {
        let applied = self.rest.applied.as_ref()?;
        if applied.version != version {
            return Some(&applied.version);
        }
        self.rest.history.last().map(|earlier| earlier.version.as_str())
    }

    /// The version is applied, to its end.
    pub(super) fn finish(&mut self, plugin: &PluginSpec, release: &Release) {
        let before = self.rest.applied.replace(plugin.clone());
        if let Some(before) = before.filter(|before| before.version != plugin.version) {
            self.rest.history.push(before);
            let surplus = self.rest.history.len().saturating_sub(HISTORY);
            self.rest.history.drain(..surplus);
        }
        release.revision.clone_into(&mut self.rest.revision);
    }

    /// Forgets the jobs of other versions: there may be many of them that never came to their end.
    pub(super) fn retain_jobs(&mut self, release: &Release) {
        let is_job = |name: &String| {
            release
                .before
                .iter()
                .chain(&release.after)
                .any(|job| job.id.name == *name)
        };
        self.rest.completed_jobs.retain(is_job);
    }

    pub(super) fn applied_version(&self) -> &str {
        self.rest.applied.as_ref().map_or("", |plugin| &plugin.version)
    }

    pub(super) fn revision(&self) -> &str {
        &self.rest.revision
    }

    pub(super) fn history(&self) -> &[PluginSpec] {
        &self.rest.history
    }
}
