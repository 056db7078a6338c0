//! The effect of applying a version to its end, as far as the cluster shows it now. Pure.
//!
//! The plan says what may be done without waiting; this is all of it, deletions at the end included, for a person to
//! approve. It says the same as the plans that follow as long as nothing changes meanwhile.

use std::collections::BTreeSet;

use super::record::Record;
use super::release::Release;
use super::{Object, ObjectId};
use crate::controllers::plugin::cluster::{Claim, JobState, Live, Observed, Seen, runs_again};
use crate::controllers::plugin::settings::PluginDrift;
use crate::digest::digest;

/// The planned operation on an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step<'a> {
    /// The object is created or changed.
    Apply(Applied<'a>),
    /// The job is created.
    Run(Applied<'a>),
    /// The object is deleted.
    Delete { id: ObjectId },
    /// Something is in the way of the object.
    Blocked { id: ObjectId, why: String },
}

/// An object to apply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Applied<'a> {
    pub(crate) id: ObjectId,
    pub(crate) object: &'a Object,
    /// The object that exists.
    pub(crate) live: Option<&'a Live>,
    /// The reason why the API server cannot render the object yet.
    pub(crate) unrendered: Option<&'static str>,
    /// The reason why it becomes the plugin's, if it is not yet.
    pub(crate) claim: Option<&'a Claim>,
}

const NEW_KIND: &str = "its kind is defined or changed by the same version: shown as in the manifests";
const NEW_NAMESPACE: &str = "its namespace is created by the same version: shown as in the manifests";
const RERUN: &str = "it has ended, and runs again for this version: shown as in the manifests";
const RECREATED: &str = "it is being deleted, and is created again: shown as in the manifests";

impl Step<'_> {
    /// Of everything that decides about the step and its diff.
    pub(crate) fn fingerprint(&self) -> String {
        let of = |word: &str, applied: &Applied<'_>| {
            let (uid, writes) = applied.live.map_or(("", ""), |live| (&*live.uid, &*live.writes));
            let unrendered = applied.unrendered.unwrap_or_default();
            digest([
                word,
                &applied.id.to_string(),
                &applied.object.digest,
                uid,
                writes,
                unrendered,
            ])
        };
        match self {
            Self::Apply(applied) => of("apply", applied),
            Self::Run(applied) => of("run", applied),
            Self::Delete { id } => digest(["delete", &id.to_string()]),
            Self::Blocked { id, why } => digest(["blocked", &id.to_string(), why]),
        }
    }
}

/// The steps from what is there to the release, in their order.
pub(crate) fn proposal<'a>(
    release: &'a Release,
    record: &Record,
    observed: &'a Observed,
    drift: PluginDrift,
) -> Vec<Step<'a>> {
    let proposer = Proposer {
        release,
        record,
        observed,
        drift,
    };
    let mut steps: Vec<_> = proposer.objects(&release.prerequisites, &BTreeSet::new()).collect();
    let defined: BTreeSet<&str> = steps.iter().filter_map(Step::defines).collect();
    steps.extend(proposer.jobs(&release.before));
    for group in &release.groups {
        steps.extend(proposer.objects(group, &defined));
    }
    steps.extend(proposer.jobs(&release.after));
    steps.extend(proposer.deletions());
    steps
}

impl<'a> Step<'a> {
    /// The group whose kinds the step changes.
    fn defines(&self) -> Option<&'a str> {
        match self {
            Self::Apply(applied) if applied.id.kind == "CustomResourceDefinition" => {
                Some(applied.object.id.name.split_once('.')?.1)
            }
            _ => None,
        }
    }
}

struct Proposer<'a, 'b> {
    release: &'a Release,
    record: &'b Record,
    observed: &'a Observed,
    drift: PluginDrift,
}

impl<'a> Proposer<'a, '_> {
    fn objects<'c>(
        &'c self,
        objects: &'a [Object],
        defined: &'c BTreeSet<&'a str>,
    ) -> impl Iterator<Item = Step<'a>> + 'c {
        objects.iter().filter_map(move |object| self.object(object, defined))
    }

    fn object(&self, object: &'a Object, defined: &BTreeSet<&str>) -> Option<Step<'a>> {
        let is_defined = defined.contains(object.id.group.as_str());
        let Some(id) = self.observed.place(object) else {
            let id = object.id.clone();
            return Some(if is_defined {
                Step::Apply(self.applied(id, object, None, Some(NEW_KIND)))
            } else {
                let why = format!("the API server has no such kind in version {}", object.version);
                Step::Blocked { id, why }
            });
        };
        if self.record.has_succeeded(&id, &object.digest) {
            return None;
        }
        let unrendered = is_defined.then_some(NEW_KIND);
        match self.observed.seen.get(&id) {
            Some(Seen::Adoptable(live, claim)) if !live.deleting => Some(Step::Apply(Applied {
                claim: Some(claim),
                ..self.applied(id, object, Some(live), unrendered)
            })),
            // Used as they are.
            Some(Seen::Foreign | Seen::OtherPlugin(_)) if id.is_prerequisite() => None,
            Some(Seen::Ours(live) | Seen::Adoptable(live, _)) if live.deleting => {
                Some(Step::Apply(self.applied(id, object, None, Some(RECREATED))))
            }
            Some(Seen::Ours(live)) if runs_again(object, self.record, &id, live) => {
                Some(Step::Apply(self.applied(id, object, None, Some(RERUN))))
            }
            Some(Seen::Ours(live)) => {
                let applied = self.record.applied(&id);
                let same = applied.is_some_and(|applied| applied.digest == object.digest);
                let drifted = applied.is_none_or(|applied| applied.fields != live.fields);
                let stays = same && (!drifted || self.drift == PluginDrift::Report);
                (!stays).then(|| Step::Apply(self.applied(id, object, Some(live), unrendered)))
            }
            None => {
                let applied = self.record.applied(&id);
                let drifted = applied.is_some_and(|applied| applied.digest == object.digest);
                let stays = drifted && self.drift == PluginDrift::Report;
                (!stays).then(|| Step::Apply(self.applied(id, object, None, unrendered)))
            }
            Some(other) => blocked(id, other),
        }
    }

    fn jobs<'c>(&'c self, jobs: &'a [Object]) -> impl Iterator<Item = Step<'a>> + 'c {
        jobs.iter().filter_map(|object| {
            let id = self.observed.place(object)?;
            if self.record.is_complete(&id.name) {
                return None;
            }
            match self.observed.seen.get(&id) {
                None => Some(Step::Run(self.applied(id, object, None, None))),
                Some(Seen::Ours(live)) if live.job == Some(JobState::Failed) => {
                    let why = "it failed already, and does not run again: delete it".to_owned();
                    Some(Step::Blocked { id, why })
                }
                Some(Seen::Ours(_)) => None,
                Some(other) => blocked(id, other),
            }
        })
    }

    /// The objects that the release lacks: namespaces and definitions after all else.
    fn deletions(&self) -> Vec<Step<'a>> {
        let wanted: BTreeSet<ObjectId> = self
            .release
            .all()
            .filter_map(|object| self.observed.place(object))
            .collect();
        let surplus = self.record.ids().filter(|id| !wanted.contains(*id));
        let (last, first): (Vec<_>, Vec<_>) = surplus.partition(|id| id.is_prerequisite());
        let steps = first
            .into_iter()
            .chain(last)
            .filter_map(|id| match self.observed.seen.get(id)? {
                Seen::Ours(live) => (!live.deleting).then(|| Step::Delete { id: id.clone() }),
                Seen::Adoptable(..) | Seen::Foreign | Seen::OtherPlugin(_) => None,
                unreadable @ Seen::Unreadable(_) => blocked(id.clone(), unreadable),
            });
        steps.collect()
    }

    fn applied(
        &self,
        id: ObjectId,
        object: &'a Object,
        live: Option<&'a Live>,
        unrendered: Option<&'static str>,
    ) -> Applied<'a> {
        let unrendered = unrendered.or_else(|| self.is_in_new_namespace(&id).then_some(NEW_NAMESPACE));
        Applied {
            id,
            object,
            live,
            unrendered,
            claim: None,
        }
    }

    fn is_in_new_namespace(&self, id: &ObjectId) -> bool {
        let mut namespaces = self.release.prerequisites.iter().filter(|it| it.id.kind == "Namespace");
        namespaces.any(|namespace| {
            let place = self.observed.place(namespace);
            let is_there = match place.and_then(|id| self.observed.seen.get(&id)) {
                Some(Seen::Ours(live)) => !live.deleting,
                Some(_) => true,
                None => false,
            };
            namespace.id.name == id.namespace && !is_there
        })
    }
}

fn blocked<'a>(id: ObjectId, seen: &Seen) -> Option<Step<'a>> {
    let why = match seen {
        Seen::Ours(_) => return None,
        Seen::Adoptable(..) | Seen::Foreign => "it exists and is not of this plugin: it is left as it is".to_owned(),
        Seen::OtherPlugin(other) => format!("it is of plugin {other}: it is left as it is"),
        Seen::Unreadable(problem) => problem.note.clone(),
    };
    Some(Step::Blocked { id, why })
}

#[cfg(test)]
mod tests;
