//! The record of a plugin: its inventory, as maps. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tidewaiter_api::containership::PluginSpec;
use tidewaiter_api::names::plugin_release_secret;
use tidewaiter_api::{AcceptedRelease, AppliedKind, AppliedObject, PluginInventory, PluginInventorySpec};

use super::ObjectId;
use super::release::Release;
use crate::controllers::plugin::settings::Identity;

/// The earlier specs that are kept.
const HISTORY: usize = 10;
/// The accepted versions that are kept.
const RELEASES: usize = 10;
/// The fewest digits by which a person may name a revision.
const FEWEST_DIGITS: usize = 8;

/// The inventory of a plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    objects: BTreeMap<ObjectId, Applied>,
    rest: PluginInventorySpec,
}

/// In the place of the digest of our fields: the Job has succeeded, and may be gone.
const SUCCEEDED: &str = "succeeded";

/// The applied state of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Applied {
    /// The version of its group.
    pub(crate) version: String,
    /// The digest of the manifest; empty until it is applied.
    pub(crate) digest: String,
    /// The digest of the fields that were ours after that.
    pub(crate) fields: String,
    /// Its place in the order of the version that had it last ([`Release::in_order`]).
    pub(crate) position: i64,
}

impl Record {
    pub(crate) fn read(inventory: &PluginInventorySpec) -> Self {
        let applied = |kind: &AppliedKind, object: &AppliedObject| Applied {
            version: kind.version.clone(),
            digest: object.digest.clone(),
            fields: object.fields.clone(),
            position: kind.position.unwrap_or_default(),
        };
        Self {
            objects: inventory
                .objects()
                .map(|(kind, object)| (id(kind, object), applied(kind, object)))
                .collect(),
            rest: PluginInventorySpec {
                kinds: Vec::new(),
                ..inventory.clone()
            },
        }
    }

    /// The inventory was lost, or there was none: only what is stored is known, newest last.
    pub(crate) fn of_stored(mut releases: Vec<AcceptedRelease>) -> Self {
        releases.drain(..releases.len().saturating_sub(RELEASES));
        Self {
            rest: PluginInventorySpec {
                releases,
                ..PluginInventorySpec::default()
            },
            ..Self::default()
        }
    }

    pub(crate) fn write(&self) -> PluginInventorySpec {
        let mut kinds = BTreeMap::<_, Vec<AppliedObject>>::new();
        for (id, applied) in &self.objects {
            let kind = (&id.group, &applied.version, &id.kind, &id.namespace, applied.position);
            kinds.entry(kind).or_default().push(AppliedObject {
                name: id.name.clone(),
                digest: applied.digest.clone(),
                fields: applied.fields.clone(),
            });
        }
        let kinds = kinds.into_iter();
        PluginInventorySpec {
            kinds: kinds
                .map(|((group, version, kind, namespace, position), objects)| AppliedKind {
                    group: group.clone(),
                    version: version.clone(),
                    kind: kind.clone(),
                    namespace: namespace.clone(),
                    position: (position > 0).then_some(position),
                    objects,
                })
                .collect(),
            ..self.rest.clone()
        }
    }

    /// Returns true if an inventory has every object that may come to be, every job that has succeeded, and how the
    /// plugin is to be removed and verified: the rest can be found out again.
    pub(crate) fn is_kept_by(&self, inventory: &PluginInventorySpec) -> bool {
        let kept = inventory.objects();
        let kept: BTreeMap<ObjectId, &str> = kept
            .map(|(kind, object)| (id(kind, object), object.digest.as_str()))
            .collect();
        // One that was deleted to be created again must not be taken for applied after a crash.
        let is_kept = |(id, applied): (&ObjectId, &Applied)| {
            kept.get(id)
                .is_some_and(|digest| digest.is_empty() || !applied.digest.is_empty())
        };
        let rest = PluginInventorySpec {
            kinds: Vec::new(),
            ..inventory.clone()
        };
        self.rest == rest && self.objects().all(is_kept)
    }

    /// The identity of the plugin, when the plugin itself is gone.
    pub(crate) fn identity(&self, inventory: &PluginInventory) -> Identity {
        Identity {
            id: inventory.metadata.name.clone().unwrap_or_default(),
            type_: self.rest.type_.clone(),
            implementation: self.rest.implementation.clone(),
        }
    }

    /// The release may be applied. Before anything of it is, so that it can be removed as it was applied, and that a
    /// crash does not end it.
    pub(crate) fn begin(&mut self, plugin: &Identity, release: &Release) {
        plugin.type_.clone_into(&mut self.rest.type_);
        plugin.implementation.clone_into(&mut self.rest.implementation);
        self.rest.depends_on.clone_from(&release.depends_on);
        // That of an earlier version that is brought back is older.
        self.rest.signed_at = release.signed_at.max(self.rest.signed_at);
        release.revision.clone_into(&mut self.rest.approved);
    }

    /// The version of the cloud is the newest of the accepted ones.
    pub(crate) fn accept(&mut self, plugin: &PluginSpec, revision: &str, too_large: bool, now: Timestamp) {
        let releases = &mut self.rest.releases;
        if releases.last().is_some_and(|last| last.revision == revision) {
            return;
        }
        releases.retain(|earlier| earlier.revision != revision);
        releases.push(AcceptedRelease {
            version: plugin.version.clone(),
            revision: revision.to_owned(),
            type_: plugin.type_.clone(),
            implementation: plugin.implementation.clone(),
            at: now.round(jiff::Unit::Second).unwrap_or(now),
            too_large,
        });
        while releases.len() > RELEASES {
            let goes =
                |earlier: &AcceptedRelease| earlier.revision != self.rest.revision && earlier.revision != revision;
            let oldest = releases.iter().position(goes).unwrap_or_default();
            releases.remove(oldest);
        }
    }

    /// The revision that may be applied; empty before the first one.
    pub(crate) fn approved(&self) -> &str {
        // An inventory of an earlier version of Tidewaiter does not say it.
        if self.rest.approved.is_empty() {
            &self.rest.revision
        } else {
            &self.rest.approved
        }
    }

    /// The versions that were accepted, newest last.
    pub(crate) fn releases(&self) -> &[AcceptedRelease] {
        &self.rest.releases
    }

    /// The newest accepted version whose revision begins with these digits.
    pub(crate) fn accepted(&self, revision: &str) -> Option<&AcceptedRelease> {
        let named = |release: &&AcceptedRelease| release.revision.starts_with(revision);
        self.rest
            .releases
            .iter()
            .rev()
            .find(named)
            .filter(|_| revision.len() >= FEWEST_DIGITS)
    }

    /// The names of the Secrets with the accepted versions.
    pub(crate) fn secrets(&self, plugin: &str) -> BTreeSet<String> {
        let stored = self.rest.releases.iter().filter(|release| !release.too_large);
        stored
            .map(|release| plugin_release_secret(plugin, &release.revision))
            .collect()
    }

    /// The time when the manifests that were accepted last were signed.
    pub(crate) fn signed_at(&self) -> Option<i64> {
        self.rest.signed_at
    }

    /// The plugins that it depends on.
    pub(crate) fn depends_on(&self) -> &[String] {
        &self.rest.depends_on
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.objects.keys()
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = (&ObjectId, &Applied)> {
        self.objects.iter()
    }

    /// The objects of the release that it does not have, wherever they may be.
    pub(crate) fn lacks(&self, release: &Release) -> impl Iterator<Item = ObjectId> {
        let lacks = |id: &ObjectId| {
            let places = id.places();
            let has = places.iter().any(|id| self.objects.contains_key(id));
            (!has).then_some(places)
        };
        release.all().filter_map(move |object| lacks(&object.id)).flatten()
    }

    /// Returns true if it has objects that the release does not have.
    pub(crate) fn exceeds(&self, release: &Release) -> bool {
        // A cluster-scoped object may have a namespace in the manifests.
        let names: BTreeSet<ObjectId> = release.all().map(|object| object.id.in_scope(false)).collect();
        release.lacks(self.ids().filter(|id| !names.contains(*id)))
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The applied state of the object, if there is one.
    pub(crate) fn applied(&self, id: &ObjectId) -> Option<&Applied> {
        self.objects.get(id).filter(|applied| !applied.digest.is_empty())
    }

    /// The version of its group in which the object was applied, or was about to be.
    pub(crate) fn version(&self, id: &ObjectId) -> Option<&str> {
        self.objects.get(id).map(|applied| applied.version.as_str())
    }

    /// The object may come to be, in this place of the order.
    pub(crate) fn expect(&mut self, id: ObjectId, version: &str, position: i64) {
        let applied = self.objects.entry(id).or_default();
        version.clone_into(&mut applied.version);
        applied.position = position;
    }

    /// The place of the object in the order of the version that had it last.
    pub(crate) fn position(&self, id: &ObjectId) -> i64 {
        self.objects.get(id).map_or(0, |applied| applied.position)
    }

    /// The object was applied.
    pub(crate) fn apply(&mut self, id: &ObjectId, digest: &str, fields: String) {
        if let Some(applied) = self.objects.get_mut(id) {
            digest.clone_into(&mut applied.digest);
            applied.fields = fields;
        }
    }

    /// The Job that was applied was deleted: what is created again is another one.
    pub(crate) fn rerun(&mut self, id: &ObjectId) {
        if let Some(applied) = self.objects.get_mut(id).filter(|_| id.is_job()) {
            applied.digest.clear();
            applied.fields.clear();
        }
    }

    /// An earlier Tidewaiter recorded what it applied with another digest.
    pub(crate) fn update(&mut self, id: &ObjectId, before: &str, digest: &str) {
        if let Some(applied) = self.objects.get_mut(id).filter(|applied| applied.digest == before) {
            digest.clone_into(&mut applied.digest);
        }
    }

    /// The Job that was applied has succeeded.
    pub(crate) fn succeed(&mut self, id: &ObjectId) {
        if let Some(applied) = self.objects.get_mut(id) {
            SUCCEEDED.clone_into(&mut applied.fields);
        }
    }

    /// Returns true if the Job has succeeded since it was applied with this manifest.
    pub(crate) fn has_succeeded(&self, id: &ObjectId, digest: &str) -> bool {
        let applied = self.applied(id);
        applied.is_some_and(|applied| applied.digest == digest && applied.fields == SUCCEEDED)
    }

    /// The object is gone, or is not the plugin's.
    pub(crate) fn forget(&mut self, id: &ObjectId) {
        self.objects.remove(id);
    }

    pub(crate) fn is_complete(&self, job: &str) -> bool {
        self.rest.completed_jobs.iter().any(|completed| completed == job)
    }

    pub(crate) fn complete(&mut self, job: &str) {
        self.rest.completed_jobs.push(job.to_owned());
    }

    /// The version whose upgrade to `version` the jobs are for. It stays the same after the upgrade, and so do the
    /// manifests.
    pub(crate) fn previous(&self, version: &str) -> Option<&str> {
        let applied = self.rest.applied.as_ref()?;
        if applied.version != version {
            return Some(&applied.version);
        }
        self.rest.history.last().map(|earlier| earlier.version.as_str())
    }

    /// The version is applied, to its end.
    pub(crate) fn finish(&mut self, plugin: &PluginSpec, release: &Release) {
        let before = self.rest.applied.replace(plugin.clone());
        if let Some(before) = before.filter(|before| before.version != plugin.version) {
            self.rest.history.push(before);
            let surplus = self.rest.history.len().saturating_sub(HISTORY);
            self.rest.history.drain(..surplus);
        }
        release.revision.clone_into(&mut self.rest.revision);
    }

    /// Forgets the jobs of other versions: there may be many of them that never came to their end.
    pub(crate) fn retain_jobs(&mut self, release: &Release) {
        let is_job = |name: &String| {
            release
                .before
                .iter()
                .chain(&release.after)
                .any(|job| job.id.name == *name)
        };
        self.rest.completed_jobs.retain(is_job);
    }

    /// The plugin as it was when its version was applied to its end.
    pub(crate) fn applied_plugin(&self) -> Option<&PluginSpec> {
        self.rest.applied.as_ref()
    }

    pub(crate) fn applied_version(&self) -> &str {
        self.applied_plugin().map_or("", |plugin| &plugin.version)
    }

    pub(crate) fn revision(&self) -> &str {
        &self.rest.revision
    }

    pub(crate) fn history(&self) -> &[PluginSpec] {
        &self.rest.history
    }
}

fn id(kind: &AppliedKind, object: &AppliedObject) -> ObjectId {
    ObjectId {
        group: kind.group.clone(),
        kind: kind.kind.clone(),
        namespace: kind.namespace.clone(),
        name: object.name.clone(),
    }
}

#[cfg(test)]
mod tests;
