//! The status of a Plugin, and the metrics of all. Pure, but for the metrics.

use std::slice;
use std::time::Duration;

use jiff::Timestamp;
use prometheus::{IntCounterVec, IntGauge};
use tidewaiter_api::containership::plugin::{HEALTHY, READY, RECONCILING, STALLED};
use tidewaiter_api::containership::{PendingVersion, PluginStatus};
use tidewaiter_api::{Condition, ConditionStatus};
use tidewaiter_kit::metrics::{MetricsError, StateGauge};
use tidewaiter_kit::{Key, Metrics};

use super::problem::{DENIED, Problem};
use crate::controllers::plugin::cluster::{Health, Waits};
use crate::controllers::plugin::desired::{ObjectId, Record};

/// The time that a plugin may wait for its objects before it counts as stalled.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(10);

/// Reason of `Ready`: the version of the cloud is applied.
const APPLIED: &str = "Applied";
/// Reason of `Ready`: an earlier version is applied, as a person wants it.
const ROLLED_BACK: &str = "RolledBack";
/// Reason of `Ready`, and of an Event: a version awaits approval.
pub(crate) const APPROVAL_NEEDED: &str = "ApprovalNeeded";

/// The result of a pass.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// Everything is applied.
    Applied,
    Waits(Waits),
    /// The applied version stays until a person approves this one.
    AwaitsApproval(PendingVersion),
    /// The problem blocks the plugin.
    Blocked(Problem),
}

/// The input of the status.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) state: State,
    /// The first objects that are not healthy, and how they are.
    pub(crate) unhealthy: Vec<(ObjectId, Health)>,
    pub(crate) applied_version: String,
    pub(crate) revision: String,
    pub(crate) objects: usize,
    pub(crate) drifted: usize,
    /// The version that awaits approval.
    pub(crate) pending: Option<PendingVersion>,
    /// The version of the cloud, in place of which a person went back to another one.
    pub(crate) rolled_back: Option<String>,
    /// The reason why the applied manifests could not be fetched again.
    pub(crate) outdated: Option<String>,
}

impl Facts {
    /// The state in the record, before anything else is known.
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            state: State::Applied,
            unhealthy: Vec::new(),
            applied_version: record.applied_version().to_owned(),
            revision: record.revision().to_owned(),
            objects: record.len(),
            drifted: 0,
            pending: None,
            rolled_back: None,
            outdated: None,
        }
    }
}

/// The status, reason and message of a condition.
type Word = (ConditionStatus, &'static str, String);

/// The status after the pass, for the spec of this generation.
pub(crate) fn status(facts: &Facts, before: &PluginStatus, generation: Option<i64>, now: Timestamp) -> PluginStatus {
    let waits = waits(facts);
    let timed_out = waits.is_some() && is_over(&before.conditions, now);
    let words = [
        (READY, ready(facts)),
        (HEALTHY, healthy(facts)),
        (RECONCILING, reconciling(waits.as_ref())),
        (STALLED, stalled(facts, waits.as_ref().filter(|_| timed_out))),
    ];
    let conditions = words.into_iter().map(|(type_, (status, reason, message))| {
        let condition = Condition::new(type_, status, reason, &message, &before.conditions, now);
        condition.observing(generation)
    });
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    PluginStatus {
        applied_version: facts.applied_version.clone(),
        revision: facts.revision.clone(),
        objects: number(facts.objects),
        unhealthy: number(facts.unhealthy.len()),
        drifted: number(facts.drifted),
        pending: facts.pending.clone(),
        conditions: conditions.collect(),
    }
}

/// Returns true if the plugin has been on the way for too long.
fn is_over(before: &[Condition], now: Timestamp) -> bool {
    let on_the_way =
        |condition: &&Condition| condition.type_ == RECONCILING && condition.status == ConditionStatus::True;
    let since = before
        .iter()
        .find(on_the_way)
        .map(|condition| condition.last_transition_time);
    since.is_some_and(|since| Duration::try_from(now.duration_since(since)).is_ok_and(|waited| waited > TIMEOUT))
}

/// The condition that the plugin waits for; None if it has what it needs, or nothing helps but a change.
fn waits(facts: &Facts) -> Option<Waits> {
    match &facts.state {
        State::Waits(waits) => Some(waits.clone()),
        State::Blocked(problem) => problem
            .is_transient
            .then(|| Waits::new(problem.reason, problem.note.clone())),
        State::AwaitsApproval(_) => None,
        State::Applied => facts.unhealthy.iter().find_map(|(id, health)| match health {
            Health::InProgress(what) => Some(Waits::new("InProgress", format!("{id}: {what}"))),
            Health::Current | Health::Failed(_) => None,
        }),
    }
}

fn ready(facts: &Facts) -> Word {
    match (&facts.state, facts.unhealthy.first()) {
        (State::Applied, None) => match &facts.rolled_back {
            None => (ConditionStatus::True, APPLIED, applied(facts.outdated.as_deref())),
            Some(clouds) => (
                ConditionStatus::True,
                ROLLED_BACK,
                rolled_back(&facts.applied_version, clouds),
            ),
        },
        (State::Applied, Some((id, health))) => (ConditionStatus::False, "Unhealthy", words(id, health)),
        (State::Waits(waits), _) => (ConditionStatus::False, waits.reason, waits.message.clone()),
        (State::AwaitsApproval(pending), _) => (ConditionStatus::False, APPROVAL_NEEDED, approval_needed(pending)),
        (State::Blocked(problem), _) => {
            let message = if problem.reason == DENIED {
                format!("{} {}", problem.note, in_force(facts))
            } else {
                problem.note.clone()
            };
            (ConditionStatus::False, problem.reason, message)
        }
    }
}

/// The text about what is applied while nothing may be written.
fn in_force(facts: &Facts) -> String {
    match (facts.objects, facts.applied_version.as_str()) {
        (0, _) => "Nothing of the plugin is applied.".to_owned(),
        (_, "") => "No version was applied to its end yet; what is applied of this one stays.".to_owned(),
        (_, version) => format!("What is applied stays; the last version that was applied to its end is {version}."),
    }
}

fn healthy(facts: &Facts) -> Word {
    match facts.unhealthy.first() {
        Some((id, health @ Health::Failed(_))) => (ConditionStatus::False, "Failed", words(id, health)),
        Some((id, health)) => (ConditionStatus::False, "InProgress", words(id, health)),
        None if is_kept(facts) => (ConditionStatus::True, "Healthy", "every object is healthy".to_owned()),
        None => (
            ConditionStatus::Unknown,
            "NotApplied",
            "the version is not applied to its end".to_owned(),
        ),
    }
}

/// Returns true if a version is applied to its end.
fn is_kept(facts: &Facts) -> bool {
    match facts.state {
        State::Applied => true,
        State::AwaitsApproval(_) => !facts.applied_version.is_empty(),
        State::Waits(_) | State::Blocked(_) => false,
    }
}

fn applied(outdated: Option<&str>) -> String {
    let applied = "the version is applied and healthy";
    outdated.map_or_else(
        || applied.to_owned(),
        |why| format!("{applied}; {}", manifests_outdated(why)),
    )
}

/// The text of the condition and the Event while the cloud cannot be asked whether the manifests changed.
pub(crate) fn manifests_outdated(why: &str) -> String {
    format!(
        "its manifests could not be fetched again from the cloud ({why}), so those that were fetched before stay applied"
    )
}

fn rolled_back(applied: &str, clouds: &str) -> String {
    format!(
        "version {applied} instead of the cloud's {clouds}, until tidewaiter plugin rollback --undo or the next version of the cloud"
    )
}

/// The text of the condition and the Event about a version that awaits approval. It names no object.
pub(crate) fn approval_needed(pending: &PendingVersion) -> String {
    let PendingVersion {
        version,
        revision: _,
        digest,
        creates,
        changes,
        deletes,
        jobs,
    } = pending;
    format!(
        "version {version} awaits approval: objects to create {creates}, to change {changes}, to delete {deletes}, jobs to run {jobs}; digest {digest}. \
         See it with tidewaiter plugin diff, and approve it with tidewaiter plugin approve."
    )
}

fn reconciling(waits: Option<&Waits>) -> Word {
    match waits {
        Some(waits) => (ConditionStatus::True, waits.reason, waits.message.clone()),
        None => no("Idle", "nothing is under way"),
    }
}

fn stalled(facts: &Facts, over: Option<&Waits>) -> Word {
    let (reason, message) = match (&facts.state, facts.unhealthy.first()) {
        _ if over.is_some() => {
            let waits = over.map_or("", |waits| &waits.message);
            (
                "Timeout",
                format!("for more than {} minutes: {waits}", TIMEOUT.as_secs() / 60),
            )
        }
        (State::Blocked(problem), _) if !problem.is_transient => (problem.reason, problem.note.clone()),
        (State::Applied, Some((id, health @ Health::Failed(_)))) => ("Failed", words(id, health)),
        _ => return no("NotStalled", "nothing keeps the plugin"),
    };
    (ConditionStatus::True, reason, message)
}

fn no(reason: &'static str, message: &str) -> Word {
    (ConditionStatus::False, reason, message.to_owned())
}

fn words(id: &ObjectId, health: &Health) -> String {
    match health {
        Health::Current => format!("{id} is healthy"),
        Health::InProgress(what) | Health::Failed(what) => format!("{id}: {what}"),
    }
}

const STATES: [&str; 4] = ["ready", "progressing", "awaits_approval", "stalled"];

/// The plugins that are applied.
pub(crate) struct Board {
    plugins: StateGauge<PluginCounts>,
    objects: IntGauge,
    unhealthy: IntGauge,
    drifted: IntGauge,
    outdated: IntGauge,
    corrected: IntCounterVec,
}

/// The metrics of one plugin.
struct PluginCounts {
    state: &'static str,
    objects: u32,
    unhealthy: u32,
    drifted: u32,
    outdated: bool,
}

impl Board {
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let plugins = [
            "tidewaiter_plugins",
            "Plugins of the cloud by state: ready; progressing; awaits_approval (of a person); stalled (nothing helps but a change, or it takes too long). 0 on a replica that does not lead.",
            "state",
        ];
        let board = Self {
            plugins: StateGauge::new(metrics, plugins, STATES, |counts: &PluginCounts| slice::from_ref(&counts.state))?,
            objects: metrics.gauge("tidewaiter_plugin_objects", "Objects of all plugins.")?,
            unhealthy: metrics.gauge(
                "tidewaiter_plugin_objects_unhealthy",
                "Objects of plugins that are not healthy. Counted when the version is applied.",
            )?,
            drifted: metrics.gauge(
                "tidewaiter_plugin_objects_drifted",
                "Objects of plugins that somebody changed or deleted and that are left so, with pluginDrift: report.",
            )?,
            outdated: metrics.gauge(
                "tidewaiter_plugins_outdated",
                "Plugins whose manifests could not be fetched again from the cloud. What was fetched before stays applied.",
            )?,
            corrected: metrics.counter_vec(
                "tidewaiter_plugin_corrections_total",
                "Objects of plugins that somebody changed or deleted and that were made as the plugin says again.",
                &[],
            )?,
        };
        board.correct(0);
        Ok(board)
    }

    /// The plugin has this status, and its manifests may be `outdated`.
    pub(crate) fn set(&self, key: &Key, status: &PluginStatus, outdated: bool) {
        let holds = |type_| {
            let mut conditions = status.conditions.iter();
            conditions.any(|it| it.type_ == type_ && it.status == ConditionStatus::True)
        };
        let awaits = status
            .conditions
            .iter()
            .any(|it| it.type_ == READY && it.reason == APPROVAL_NEEDED);
        let state = match (holds(STALLED), holds(READY)) {
            (true, _) => "stalled",
            (false, true) => "ready",
            (false, false) if awaits => "awaits_approval",
            (false, false) => "progressing",
        };
        let counts = PluginCounts {
            state,
            objects: status.objects,
            unhealthy: status.unhealthy,
            drifted: status.drifted,
            outdated,
        };
        self.show(key, Some(counts));
    }

    /// The plugin is gone, or is not applied any more.
    pub(crate) fn remove(&self, key: &Key) {
        self.show(key, None);
    }

    /// Counts corrected objects.
    pub(crate) fn correct(&self, objects: usize) {
        self.corrected.with_label_values::<&str>(&[]).inc_by(objects as u64);
    }

    fn show(&self, key: &Key, counts: Option<PluginCounts>) {
        self.plugins.set(key, counts);
        self.plugins.read(|all| {
            let sum = |of: fn(&PluginCounts) -> u32| -> i64 { all.values().map(|its| i64::from(of(its))).sum() };
            self.objects.set(sum(|its| its.objects));
            self.unhealthy.set(sum(|its| its.unhealthy));
            self.drifted.set(sum(|its| its.drifted));
            self.outdated.set(sum(|its| its.outdated.into()));
        });
    }
}

#[cfg(test)]
mod tests {
    mod board;
    mod status;
}
