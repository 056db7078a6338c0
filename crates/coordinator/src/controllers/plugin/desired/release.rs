//! The manifests of a plugin's version, as the cloud sent them, made into objects to apply. Pure.
//!
//! What the cloud sends is not trusted: the number of objects and the depth of lists are limited, and an object that
//! has no plain name, occurs twice, is one of Tidewaiter's own or is of a denied kind refuses the whole version.
//! Nothing of a refused version is applied.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tidewaiter_api::containership::PluginSpec;
use tidewaiter_api::names::{MANAGED_LABEL, ON_IMMUTABLE_ANNOTATION, PLUGIN_LABEL};
use tidewaiter_api::values::quoted;

use super::sent::{Part, Sent};
use super::{Manifest, Object, ObjectId, Refused, refused};
use crate::controllers::plugin::settings::is_key;
use crate::digest::digest;
use manifest::{annotation, as_stored, check_secret, identity, is_tidewaiters};

pub(super) mod manifest;

/// The most objects of a plugin: the inventory of all of them is one object.
pub(crate) const MOST_OBJECTS: usize = 2_000;
/// The deepest `List` of `List`s.
const DEEPEST_LIST: usize = 4;
/// The most jobs before, and after.
const MOST_JOBS: usize = 32;
/// The most plugins that a plugin may depend on.
const MOST_DEPENDENCIES: usize = 32;
/// The longest name of a job before our suffix: the name is a label of its pods.
const JOB_NAME: usize = 63 - 9;
/// Written by the API server, or owned by controllers. `kubectl get -o yaml` has them, so manifests do.
pub(crate) const SERVERS_OWN: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// A version of a plugin: what is to be applied, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Release {
    /// The digest of the version with all objects.
    pub(crate) revision: String,
    /// Namespaces and definitions of custom resources, of all groups.
    pub(crate) prerequisites: Vec<Object>,
    /// Jobs before the first group.
    pub(crate) before: Vec<Object>,
    /// The other objects.
    pub(crate) groups: Vec<Vec<Object>>,
    /// Jobs after the last group.
    pub(crate) after: Vec<Object>,
    /// The plugins that must be ready before: ids, `TYPE/IMPLEMENTATION` or `TYPE`.
    pub(crate) depends_on: Vec<String>,
    /// The time when the manifests were signed, in seconds since 1970, if a signature was needed.
    pub(crate) signed_at: Option<i64>,
    /// The kinds that its definitions define.
    pub(crate) defined: Vec<DefinedKind>,
}

/// A kind of custom resources that a version defines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DefinedKind {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
}

impl Release {
    /// Reads the manifests of `version` of the plugin with this id. `deny` are the kinds that plugins may not have.
    pub(crate) fn read(plugin: &str, version: &str, sent: &Sent, deny: &[String]) -> Result<Self, Refused> {
        let Some(groups) = &sent.manifests else {
            return Err(refused(
                "the manifests",
                "there are none: the cloud's catalogue must have the manifests of this version",
            ));
        };
        let jobs = sent.jobs()?;
        let depends_on = sent.depends_on.as_ref().map(|part| part.read("depends_on"));
        let mut reader = Reader {
            plugin,
            version,
            deny,
            known: BTreeSet::new(),
            defined: Vec::new(),
        };
        let mut release = Self {
            before: reader.jobs("jobs.pre_apply", version, jobs.pre_apply.as_ref())?,
            depends_on: dependencies(depends_on.transpose()?)?,
            ..Self::default()
        };
        for (number, group) in groups.items("manifests")?.into_iter().enumerate() {
            let (at, mut objects) = (format!("manifests[{number}]"), Vec::new());
            for (place, part) in group.items(&at)?.into_iter().enumerate() {
                reader.flatten(&format!("{at}[{place}]"), &part, 0, &mut objects)?;
            }
            let (first, then) = objects
                .into_iter()
                .partition(|object: &Object| object.id.is_prerequisite());
            release.prerequisites.extend::<Vec<_>>(first);
            release.groups.push(then);
        }
        release.after = reader.jobs("jobs.post_apply", version, jobs.post_apply.as_ref())?;
        release.defined = reader.defined;
        release.revision = release.digest(version);
        Ok(release)
    }

    /// A release as a version of this plugin. Its type and implementation decide which limits and which service account
    /// it has, so they are a part of the revision: anyone who writes another type into the inventory names a version
    /// that nobody has accepted.
    pub(crate) fn bound_to(self, plugin: &PluginSpec) -> Self {
        let parts = [&self.revision, &plugin.type_, &plugin.implementation];
        Self {
            revision: digest(parts.into_iter().map(String::as_str)),
            ..self
        }
    }

    /// Of everything that the plugin says with this version.
    fn digest(&self, version: &str) -> String {
        // The empty list stands where earlier builds had health checks: with the same revision, no job runs again.
        let rest = json!([version, self.depends_on, []]).to_string();
        let objects = self.all().map(|object| object.sent.as_str());
        digest(std::iter::once(rest.as_str()).chain(objects))
    }

    /// The memory of its manifests, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.all().map(|object| object.manifest.size()).sum()
    }

    /// Every object, jobs included, in the order in which they are applied.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Object> {
        self.in_order().map(|(_, object)| object)
    }

    /// The objects in order, each with its position: 0 before the groups, the number of its group from 1, and one more
    /// for the jobs after them.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (i64, &Object)> {
        let first = [(0, &self.prerequisites), (0, &self.before)];
        let then = (1..).zip(self.groups.iter().chain([&self.after]));
        let parts = first.into_iter().chain(then);
        parts.flat_map(|(position, objects)| objects.iter().map(move |object| (position, object)))
    }

    /// Returns true if it lacks any of these objects. A Job that has ended is no loss.
    pub(crate) fn lacks<'a>(&self, mut ids: impl Iterator<Item = &'a ObjectId>) -> bool {
        let places = |object: &Object| [object.id.clone(), object.id.in_scope(true)];
        let has: BTreeSet<ObjectId> = self.all().flat_map(places).collect();
        ids.any(|id| (id.group.as_str(), id.kind.as_str()) != ("batch", "Job") && !has.contains(id))
    }
}

/// The names of other plugins.
fn dependencies(names: Option<Vec<String>>) -> Result<Vec<String>, Refused> {
    let names = names.unwrap_or_default();
    if names.len() > MOST_DEPENDENCIES {
        return Err(refused(
            "depends_on",
            format!("may have at most {MOST_DEPENDENCIES} plugins"),
        ));
    }
    match names.iter().find(|name| !is_key(name)) {
        None => Ok(names),
        Some(wrong) => Err(refused(
            "depends_on",
            format!(
                "{} names no plugin: it must be TYPE/IMPLEMENTATION, TYPE or an id",
                quoted(wrong)
            ),
        )),
    }
}

struct Reader<'a> {
    plugin: &'a str,
    version: &'a str,
    deny: &'a [String],
    known: BTreeSet<ObjectId>,
    defined: Vec<DefinedKind>,
}

/// An object that is being read.
struct Draft {
    id: ObjectId,
    version: String,
    body: Map<String, Value>,
    replaces: bool,
}

impl Reader<'_> {
    /// Adds the object, or those of the list.
    fn flatten(&mut self, at: &str, part: &Part, depth: usize, objects: &mut Vec<Object>) -> Result<(), Refused> {
        let Some(items) = part.items_of_list(at)? else {
            let draft = self.draft(at, part.read(at)?)?;
            objects.push(self.finish(draft)?);
            return Ok(());
        };
        if depth == DEEPEST_LIST {
            let why = format!("lists of lists may be {DEEPEST_LIST} deep: write the objects into fewer lists");
            return Err(refused(at, why));
        }
        for (place, item) in items.items(at)?.into_iter().enumerate() {
            self.flatten(&format!("{at}.items[{place}]"), &item, depth + 1, objects)?;
        }
        Ok(())
    }

    /// Reads the jobs, and gives each a name that no other version has.
    fn jobs(&mut self, at: &str, version: &str, jobs: Option<&Part>) -> Result<Vec<Object>, Refused> {
        let jobs = jobs.map(|jobs| jobs.items(at)).transpose()?.unwrap_or_default();
        if jobs.len() > MOST_JOBS {
            return Err(refused(
                at,
                format!("has {} jobs, may have at most {MOST_JOBS}", jobs.len()),
            ));
        }
        let mut objects = Vec::new();
        for (place, part) in jobs.into_iter().enumerate() {
            let at = format!("{at}[{place}]");
            let mut object = self.draft(&at, part.read(&at)?)?;
            if !object.id.is_job() {
                return Err(refused(object.id.to_string(), "must be a Job of batch/v1"));
            }
            bound(&mut object)?;
            if object.id.namespace.is_empty() {
                "default".clone_into(&mut object.id.namespace);
            }
            let stem = &object.id.name[..object.id.name.len().min(JOB_NAME)];
            let of_version = digest([self.plugin, version, &at]);
            object.id.name = format!("{}-{}", stem.trim_end_matches(['-', '.']), &of_version[..8]);
            object.body["metadata"]["name"] = json!(object.id.name);
            objects.push(self.finish(object)?);
        }
        Ok(objects)
    }

    /// Counts and packs the object, and refuses it if it is there already.
    fn finish(&mut self, mut draft: Draft) -> Result<Object, Refused> {
        let mut id = draft.id.clone();
        if id.namespace == "default" {
            id.namespace.clear();
        }
        if !self.known.insert(id) {
            return Err(refused(draft.id.to_string(), "is there twice: leave out one of them"));
        }
        if self.known.len() > MOST_OBJECTS {
            let why = format!("a plugin may have at most {MOST_OBJECTS} objects: split the plugin");
            return Err(refused("the manifests", why));
        }
        self.defined.extend(defined(&draft));
        let sent = digest([draft.text()?.as_str()]);
        let is_rewritten = as_stored(&mut draft.body);
        let expires = outlast(&mut draft.body);
        let digest = match (expires, is_rewritten) {
            // It runs for each version.
            (true, _) => digest([sent.as_str(), self.version]),
            (false, true) => digest([draft.text()?.as_str()]),
            (false, false) => sent.clone(),
        };
        Ok(Object {
            manifest: Manifest::pack(&draft.text()?),
            // With a definition or a namespace, everything in it would go, also what is of others.
            replaces: draft.replaces && !draft.id.is_prerequisite() || expires,
            id: draft.id,
            version: draft.version,
            sent,
            digest,
            expires,
        })
    }

    fn draft(&self, at: &str, value: Value) -> Result<Draft, Refused> {
        let Value::Object(mut body) = value else {
            return Err(refused(at, "must be a Kubernetes object"));
        };
        let (id, version) = identity(at, &body)?;
        self.check(&id, &body)?;
        body.remove("status");
        let replaces = annotation(&id, &body, ON_IMMUTABLE_ANNOTATION)? == "replace";
        let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) else {
            return Err(refused(at, "metadata must be an object"));
        };
        for field in SERVERS_OWN {
            metadata.remove(field);
        }
        let labels = metadata.entry("labels").or_insert(Value::Null);
        if labels.is_null() {
            *labels = json!({});
        }
        let Some(labels) = labels.as_object_mut() else {
            return Err(refused(id.to_string(), "metadata.labels must be an object"));
        };
        labels.insert(PLUGIN_LABEL.to_owned(), json!(self.plugin));
        Ok(Draft {
            id,
            version,
            body,
            replaces,
        })
    }

    /// Refuses what a plugin may not have.
    fn check(&self, id: &ObjectId, body: &Map<String, Value>) -> Result<(), Refused> {
        let metadata = &body["metadata"];
        if let Some(field) = ["ownerReferences", "finalizers"]
            .into_iter()
            .find(|field| metadata.get(field).is_some_and(|value| !value.is_null()))
        {
            let why = format!(
                "metadata.{field} is not permitted: the object could not be removed with its plugin; leave it out"
            );
            return Err(refused(id.to_string(), why));
        }
        if metadata["labels"].get(MANAGED_LABEL).is_some() {
            let why = format!("has the label {MANAGED_LABEL}, which marks what the coordinator makes: leave it out");
            return Err(refused(id.to_string(), why));
        }
        if is_tidewaiters(id) {
            return Err(refused(
                id.to_string(),
                "is one of Tidewaiter's own objects, which no plugin may change: leave it out",
            ));
        }
        let kind = id.kind_name();
        // A kind without a group is denied in every group.
        let is_denied = |denied: &&String| denied.eq_ignore_ascii_case(&kind) || denied.eq_ignore_ascii_case(&id.kind);
        if let Some(denied) = self.deny.iter().find(is_denied) {
            let why = format!("pluginDeny has {denied}: leave the object out, or take the kind from pluginDeny");
            return Err(refused(id.to_string(), why));
        }
        check_secret(id, body)
    }
}

impl Draft {
    fn text(&self) -> Result<String, Refused> {
        serde_json::to_string(&self.body).map_err(|error| refused(self.id.to_string(), error.to_string()))
    }
}

/// The kind that the object defines, if it is a definition.
fn defined(draft: &Draft) -> Option<DefinedKind> {
    let spec = draft.body.get("spec").filter(|_| draft.id.is_prerequisite())?;
    Some(DefinedKind {
        group: spec["group"].as_str()?.to_owned(),
        kind: spec["names"]["kind"].as_str()?.to_owned(),
        namespaced: spec["scope"] == "Namespaced",
    })
}

/// Lets a Job with `ttlSecondsAfterFinished` stay until the next version: one that is gone would run again. False for
/// other objects.
pub(crate) fn outlast(body: &mut Map<String, Value>) -> bool {
    let is_job = body.get("kind").is_some_and(|kind| kind == "Job")
        && body.get("apiVersion").is_some_and(|version| version == "batch/v1");
    let spec = body.get_mut("spec").filter(|_| is_job).and_then(Value::as_object_mut);
    let ttl = spec.and_then(|spec| spec.remove("ttlSecondsAfterFinished"));
    ttl.is_some_and(|ttl| !ttl.is_null())
}

/// Makes the job end, and stay until the next version: it says whether it has succeeded.
fn bound(job: &mut Draft) -> Result<(), Refused> {
    let id = job.id.to_string();
    let spec = job.body.get_mut("spec").and_then(Value::as_object_mut);
    let spec = spec.ok_or_else(|| refused(id.as_str(), "spec must be an object"))?;
    let deadline = spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    if deadline.is_none_or(|seconds| seconds <= 0) {
        let why = "spec.activeDeadlineSeconds must be a whole number of at least 1: a job without a deadline could block the plugin forever";
        return Err(refused(id, why));
    }
    spec.remove("ttlSecondsAfterFinished");
    spec.entry("backoffLimit").or_insert(json!(1));
    Ok(())
}

#[cfg(test)]
mod tests;
