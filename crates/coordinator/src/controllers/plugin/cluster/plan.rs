//! The next actions for a plugin. Pure.
//!
//! One plan covers what may be done without waiting: prerequisites, or the next job, or all groups, or removals. The
//! caller does it, observes again, and plans again, until nothing is left to do. Whatever a crash interrupted is
//! planned again in the same way.

use std::collections::BTreeSet;

use super::health::{Health, JobState};
use super::observe::{Claim, Live, Observed, Seen};
use crate::controllers::plugin::desired::{Object, ObjectId, Record, Release};
use crate::controllers::plugin::report::Problem;
use crate::controllers::plugin::settings::PluginDrift;

mod prune;

pub(crate) use prune::tiers;

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action<'a> {
    /// Creates the object, or makes its fields what the manifests say. `uid` is that of the object which exists.
    Apply {
        id: ObjectId,
        object: &'a Object,
        uid: Option<String>,
        /// True if somebody changed or deleted it.
        drift: bool,
        /// The reason why it becomes the plugin's, if it was not.
        claim: Option<Claim>,
        /// Fields of the object belong to `kubectl apply`, and become the plugin's.
        moves_fields: bool,
    },
    /// Creates the job.
    Run { id: ObjectId, object: &'a Object },
    /// Deletes the object with this uid.
    Delete { id: ObjectId, uid: String },
}

impl Action<'_> {
    pub(crate) fn id(&self) -> &ObjectId {
        match self {
            Self::Apply { id, .. } | Self::Run { id, .. } | Self::Delete { id, .. } => id,
        }
    }

    pub(crate) fn creates_namespace(&self) -> bool {
        matches!(self, Self::Apply { id, uid: None, .. } if id.is_namespace())
    }
}

/// The condition that the plugin waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Waits {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

/// The state of the plugin when nothing more can be done now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// Everything is applied, and nothing else is left.
    Done,
    Waits(Waits),
    /// The job of this name failed.
    JobFailed(ObjectId),
    Problems(Vec<Problem>),
}

/// The actions, and the record afterwards.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// Groups of actions in order; what is in one may be done at the same time.
    pub(crate) actions: Vec<Vec<Action<'a>>>,
    /// If there are no actions.
    pub(crate) end: End,
    /// The record before the actions: it has every object that may come to be.
    pub(crate) record: Record,
    /// Objects that somebody changed or deleted and that are left so.
    pub(crate) drifted: Vec<ObjectId>,
    /// Namespaces and definitions of others, which are used as they are.
    pub(crate) used: Vec<ObjectId>,
    /// Objects that the plugin does not want any more and does not delete, because somebody took their label off.
    pub(crate) left: Vec<ObjectId>,
}

/// Plans. An empty release removes everything.
pub(crate) fn plan<'a>(release: &'a Release, record: &Record, observed: &Observed, drift: PluginDrift) -> Plan<'a> {
    let mut planner = Planner {
        observed,
        drift,
        plan: Plan {
            actions: Vec::new(),
            end: End::Done,
            record: record.clone(),
            drifted: Vec::new(),
            used: Vec::new(),
            left: Vec::new(),
        },
        problems: Vec::new(),
        defined: defined(release),
        waits: None,
    };
    planner.plan.record.retain_jobs(release);
    for (position, object) in release.in_order() {
        // What may not be read is not written, so it does not come to be.
        if let Some(id) = observed.place(object)
            && !matches!(observed.seen.get(&id), Some(Seen::Unreadable(_)))
        {
            let record = &mut planner.plan.record;
            if object.expires && record.revision() == release.revision {
                record.update(&id, &object.sent, &object.digest);
            }
            record.expect(id, &object.version, position);
        }
    }
    if let Some(end) = planner.run(release) {
        planner.plan.end = end;
    }
    planner.plan
}

struct Planner<'a, 'b> {
    observed: &'b Observed,
    drift: PluginDrift,
    plan: Plan<'a>,
    problems: Vec<Problem>,
    /// The groups that the release defines.
    defined: BTreeSet<&'a str>,
    /// The reason why the plan stops after the groups.
    waits: Option<Waits>,
}

impl<'a> Planner<'a, '_> {
    /// None when everything is done, or actions come first.
    fn run(&mut self, release: &'a Release) -> Option<End> {
        self.group(&release.prerequisites);
        if self.stops() {
            return self.problem();
        }
        if let Some(end) = self.unready(&release.prerequisites) {
            return Some(end);
        }
        if let Some(end) = self.jobs(&release.before) {
            return Some(end);
        }
        if self.stops() {
            return None;
        }
        for group in &release.groups {
            self.group(group);
            if !self.problems.is_empty() {
                break;
            }
        }
        if self.stops() {
            return self.problem();
        }
        if let Some(waits) = self.waits.take() {
            return Some(End::Waits(waits));
        }
        if let Some(end) = self.jobs(&release.after) {
            return Some(end);
        }
        if self.stops() {
            return None;
        }
        self.prune(release)
    }

    fn stops(&self) -> bool {
        !self.plan.actions.is_empty() || !self.problems.is_empty()
    }

    /// The problems, unless something can be done first.
    fn problem(&mut self) -> Option<End> {
        let problems = std::mem::take(&mut self.problems);
        (self.plan.actions.is_empty() && !problems.is_empty()).then_some(End::Problems(problems))
    }

    /// Plans what the objects of a group need. They are independent of each other: a problem of one does not keep the
    /// others.
    fn group(&mut self, objects: &'a [Object]) {
        let mut actions = Vec::new();
        for object in objects {
            let Some(id) = self.observed.place(object) else {
                self.unserved(object);
                continue;
            };
            // The API server deletes it now, or has done so.
            if self.plan.record.has_succeeded(&id, &object.digest) {
                continue;
            }
            match self.observed.seen.get(&id) {
                Some(Seen::Foreign | Seen::OtherPlugin(_)) if id.is_prerequisite() => {
                    self.plan.record.forget(&id);
                    self.plan.used.push(id);
                }
                Some(Seen::Foreign) => {
                    self.plan.record.forget(&id);
                    self.problems.push(Problem::foreign(&id, &object.plugin()));
                }
                Some(Seen::OtherPlugin(other)) => {
                    self.plan.record.forget(&id);
                    self.problems
                        .push(Problem::of_other_plugin(&id, other, &object.plugin()));
                }
                Some(Seen::Unreadable(problem)) => self.problems.push(problem.clone()),
                Some(Seen::Ours(live)) => actions.extend(self.present(id, object, live, None)),
                Some(Seen::Adoptable(live, claim)) => actions.extend(self.present(id, object, live, Some(claim))),
                None => actions.extend(self.absent(id, object)),
            }
        }
        if !actions.is_empty() {
            self.plan.actions.push(actions);
        }
    }

    /// A kind that the release defines is served a moment after its definition is established.
    fn unserved(&mut self, object: &Object) {
        if !self.defined.contains(object.id.group.as_str()) {
            self.problems.push(Problem::unknown_kind(object));
            return;
        }
        let (id, version) = (&object.id, &object.version);
        self.waits = Some(Waits::new(
            "Prerequisites",
            format!("{id}: waits until the API server serves the kind in version {version}"),
        ));
    }

    fn present(&mut self, id: ObjectId, object: &'a Object, live: &Live, claim: Option<&Claim>) -> Option<Action<'a>> {
        let applied = self.plan.record.applied(&id);
        let same = applied.is_some_and(|applied| applied.digest == object.digest);
        if same && object.expires && live.job == Some(JobState::Succeeded) {
            self.plan.record.succeed(&id);
            return None;
        }
        if live.deleting {
            self.waits = Some(Waits::new(
                "Removal",
                format!("waits until {id} is deleted, to create it again"),
            ));
            return None;
        }
        if claim.is_none() && runs_again(object, &self.plan.record, &id, live) {
            let uid = live.uid.clone();
            return Some(Action::Delete { id, uid });
        }
        let drift = same && applied.is_some_and(|applied| applied.fields != live.fields);
        if same && !drift {
            return None;
        }
        let moves_fields = live.is_kubectls && applied.is_none();
        let uid = Some(live.uid.clone());
        self.unless_reported(Action::Apply {
            id,
            object,
            uid,
            drift,
            claim: claim.cloned(),
            moves_fields,
        })
    }

    fn absent(&mut self, id: ObjectId, object: &'a Object) -> Option<Action<'a>> {
        let applied = self.plan.record.applied(&id);
        let drift = applied.is_some_and(|applied| applied.digest == object.digest);
        self.unless_reported(Action::Apply {
            id,
            object,
            uid: None,
            drift,
            claim: None,
            moves_fields: false,
        })
    }

    fn unless_reported(&mut self, action: Action<'a>) -> Option<Action<'a>> {
        if matches!(action, Action::Apply { drift: true, .. }) && self.drift == PluginDrift::Report {
            self.plan.drifted.push(action.id().clone());
            return None;
        }
        Some(action)
    }

    /// The wait of the prerequisites, unless they are there.
    fn unready(&self, objects: &[Object]) -> Option<End> {
        objects.iter().find_map(|object| {
            let id = self.observed.place(object)?;
            match &self.observed.ours(&id)?.health {
                Health::Current => None,
                Health::InProgress(what) | Health::Failed(what) => Some(End::Waits(Waits::new(
                    "Prerequisites",
                    format!("waits for {id}: {what}"),
                ))),
            }
        })
    }

    /// Plans the first job that has not succeeded.
    fn jobs(&mut self, jobs: &'a [Object]) -> Option<End> {
        for object in jobs {
            let id = self.observed.place(object)?;
            if self.plan.record.is_complete(&id.name) {
                continue;
            }
            match self.observed.seen.get(&id) {
                Some(Seen::Foreign | Seen::Adoptable(_, Claim::Orphan(_) | Claim::Inherited)) => {
                    return Some(End::Problems(vec![Problem::foreign(&id, &object.plugin())]));
                }
                Some(Seen::OtherPlugin(other)) => {
                    return Some(End::Problems(vec![Problem::of_other_plugin(
                        &id,
                        other,
                        &object.plugin(),
                    )]));
                }
                Some(Seen::Unreadable(problem)) => return Some(End::Problems(vec![problem.clone()])),
                None => {
                    self.plan.actions.push(vec![Action::Run { id, object }]);
                    return None;
                }
                // The plugin made it, also without its label.
                Some(Seen::Ours(live) | Seen::Adoptable(live, Claim::Unlabelled)) => match live.job {
                    Some(JobState::Succeeded) => self.plan.record.complete(&id.name),
                    Some(JobState::Failed) => return Some(End::JobFailed(id)),
                    Some(JobState::Running) | None => {
                        return Some(End::Waits(Waits::new("JobRuns", format!("waits for {id}"))));
                    }
                },
            }
        }
        None
    }
}

/// True for a Job that has ended for another version, and is created again for this one.
pub(crate) fn runs_again(object: &Object, record: &Record, id: &ObjectId, live: &Live) -> bool {
    let has_ended = live.job.is_some_and(|state| state != JobState::Running);
    let applied = record.applied(id);
    object.expires && has_ended && applied.is_some_and(|applied| applied.digest != object.digest)
}

/// The groups of the definitions in the release.
fn defined(release: &Release) -> BTreeSet<&str> {
    let names = release
        .prerequisites
        .iter()
        .filter(|object| object.id.kind != "Namespace");
    names
        .filter_map(|object| Some(object.id.name.split_once('.')?.1))
        .collect()
}

#[cfg(test)]
mod tests;
