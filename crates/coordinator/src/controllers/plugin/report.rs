//! Reports the state of a plugin: its history, its status and Events.
//!
//! The write of a status starts no pass. A pass that fails writes a status, and the API server may say something else
//! each time: if the write started the next pass, a plugin that fails would not wait for its backoff. A status that
//! somebody else wrote, or that is not the last one, starts a pass. So does every other change.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use parking_lot::Mutex;
use serde_json::json;
use tidewaiter_api::Condition;
use tidewaiter_api::containership::plugin::READY;
use tidewaiter_api::containership::{PendingVersion, Plugin, PluginStatus};
use tidewaiter_api::names::{PLUGIN_HISTORY_ANNOTATION, PLUGIN_LABEL};
use tidewaiter_api::values::quoted;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Backoff, Backoffs, Change, Events, Key, Kit, Next, Notice, Queue, SharedClock, Trigger, WriteError, WriteLimits,
    Writer,
};
use tracing::warn;

use crate::controllers::plugin::cluster::{Performed, Removed, Waits};
use crate::controllers::plugin::desired::{ObjectId, REFRESH, Record};
use crate::meta::unversioned;
use problem::handing_over;
use status::{manifests_outdated, status};

mod problem;
mod status;

pub(crate) use problem::PluginError;
pub(super) use problem::{DENIED, Problem, is_immutable};
use status::Board;
pub(super) use status::{APPROVAL_NEEDED, Facts, State, approval_needed};

/// Between two looks at something that a plugin waits for, when no watch shows it.
const WAITS: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
const JITTER: f64 = 0.1;
/// Writes that take longer are reported.
const MOMENT: Duration = Duration::from_secs(3);
/// Until the next look at a plugin that is not healthy. The watch of its objects shows sooner that it is.
const UNHEALTHY: Duration = Duration::from_mins(1);
/// The reasons of `Ready` while a plugin waits for something before its first write.
const BEFORE_WRITES: [&str; 3] = ["DependencyNotReady", "VersionChanges", APPROVAL_NEEDED];
/// Reason of `Ready`: somebody changes the objects again and again.
pub(crate) const CHANGED_OFTEN: &str = "ChangedOften";

/// Reports on plugins.
pub(crate) struct Reporter {
    reported: Reported,
    /// The time that each plugin has waited without a change.
    waits: Backoffs<Key>,
    writer: Arc<Writer>,
    events: Events,
    clock: SharedClock,
    board: Board,
}

impl Reporter {
    pub(crate) fn new(writer: Arc<Writer>, events: Events, kit: &Kit) -> Result<Self, MetricsError> {
        Ok(Self {
            reported: Reported::default(),
            waits: Backoffs::new(WAITS),
            writer,
            events,
            clock: Arc::clone(&kit.clock),
            board: Board::new(&kit.metrics)?,
        })
    }

    /// Reconciles each plugin that changes, unless the change is the write of its last status.
    pub(crate) fn unless_reported(&self, queue: &Queue) -> Trigger<Plugin> {
        self.reported.unless_reported(queue)
    }

    /// The plugin is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.waits.reset(key);
        self.reported.forget(key);
        self.board.remove(key);
    }

    /// Awaits writes. That they take long is reported.
    pub(crate) async fn report_slow<T>(
        &self,
        writes: impl Future<Output = T>,
        plugin: &mut Plugin,
        version: &str,
        facts: &Facts,
    ) -> T {
        let mut writes = pin!(writes);
        tokio::select! {
            biased;
            written = &mut writes => written,
            () = self.clock.sleep(MOMENT) => tokio::join!(writes, self.report_applying(plugin, version, facts)).0,
        }
    }

    /// Reports that a version is being applied, if the plugin has no result of this generation yet.
    async fn report_applying(&self, plugin: &mut Plugin, version: &str, facts: &Facts) {
        let (before, generation) = (plugin.status.clone().unwrap_or_default(), plugin.metadata.generation);
        let has_result = |condition: &Condition| {
            condition.type_ == READY
                && condition.observed_generation == generation
                && !BEFORE_WRITES.contains(&condition.reason.as_str())
        };
        if before.conditions.iter().any(has_result) {
            return;
        }
        let waits = Waits::new(
            "Applying",
            format!("version {version} is being applied: the API server has not answered all writes yet"),
        );
        let facts = Facts {
            state: State::Waits(waits),
            ..facts.clone()
        };
        let after = status(&facts, &before, generation, self.clock.now());
        self.reported.set(&Key::of(&*plugin), &after);
        let mut desired = Plugin::new("", plugin.spec.clone());
        desired.status = Some(after);
        // The end of the pass reports what keeps a status from being written.
        if let Ok(written) = self.writer.apply_status(&desired, &plugin.metadata).await {
            (plugin.metadata, plugin.status) = (written, desired.status);
        }
    }

    /// Writes the history and the status, also when the pass failed.
    pub(crate) async fn report(
        &self,
        plugin: &Plugin,
        record: &Record,
        facts: &mut Facts,
        end: Result<State, PluginError>,
    ) -> Result<State, PluginError> {
        let applies = record.applied_version() == plugin.spec.version;
        self.tell_outdated(plugin, facts);
        facts.state = match &end {
            Ok(state) => state.clone(),
            // What is applied stays so while the cloud is away.
            Err(PluginError::Cloud(_)) if applies => return end,
            Err(error) => match error.problem() {
                Some(problem) => State::Blocked(problem),
                None => return end,
            },
        };
        let before = plugin.status.clone().unwrap_or_default();
        if end.is_err() && facts.pending.is_none() {
            // Nothing is known of it in this pass.
            let pending = before.pending.clone();
            facts.pending = pending.filter(|pending| pending.version == plugin.spec.version);
        }
        record.applied_version().clone_into(&mut facts.applied_version);
        record.revision().clone_into(&mut facts.revision);
        let after = status(facts, &before, plugin.metadata.generation, self.clock.now());
        let key = Key::of(plugin);
        self.board.set(&key, &after, facts.outdated.is_some());
        let differs = before != after;
        if differs {
            self.waits.reset(&key);
        }
        let is_new = self.reported.set(&key, &after) || differs;
        self.write_status(plugin, record, is_new.then_some(after)).await?;
        end
    }

    /// The next pass over a plugin in this state.
    pub(crate) fn next(&self, key: &Key, state: &State, facts: &Facts) -> Next {
        match state {
            State::Waits(waits) if waits.reason == CHANGED_OFTEN => Next::Pending(WriteLimits::REFILL),
            State::Waits(_) => self.wait(key),
            _ if facts.unhealthy.is_empty() => Next::After(jittered(REFRESH, JITTER)),
            _ => Next::Pending(jittered(UNHEALTHY, JITTER)),
        }
    }

    /// Until the next look at what the plugin waits for.
    pub(crate) fn wait(&self, key: &Key) -> Next {
        Next::Pending(self.waits.next(key, self.clock.monotonic()))
    }

    /// Tells why the applied manifests may not be those of the cloud now. An earlier version that a person went back to
    /// is not fetched.
    fn tell_outdated(&self, plugin: &Plugin, facts: &mut Facts) {
        facts.outdated = facts.outdated.take().filter(|_| facts.rolled_back.is_none());
        if let Some(why) = &facts.outdated {
            let notice = Notice::warning("ManifestsUnavailable", "Apply", manifests_outdated(why));
            self.publish(plugin, notice);
        }
    }

    /// Tells that an approval names another diff than there is now.
    pub(crate) fn tell_approval_outdated(&self, plugin: &Plugin, asked: &str, pending: &PendingVersion) {
        let note = format!(
            "nothing is approved: the approval is of {}, and the diff of version {} is {} now. See it again with tidewaiter plugin diff.",
            quoted(asked),
            pending.version,
            pending.digest
        );
        self.publish(plugin, Notice::warning("ApprovalOutdated", "Approve", note));
    }

    /// Publishes an Event of the plugin.
    pub(crate) fn publish(&self, plugin: &Plugin, notice: Notice) {
        self.events.publish(&plugin.object_ref(&()), notice);
    }

    async fn write_status(
        &self,
        plugin: &Plugin,
        record: &Record,
        status: Option<PluginStatus>,
    ) -> Result<(), WriteError> {
        let mut seen = plugin.metadata.clone();
        let history = json!(record.history()).to_string();
        let annotations = plugin.metadata.annotations.as_ref();
        let known = annotations.and_then(|annotations| annotations.get(PLUGIN_HISTORY_ANNOTATION));
        if !record.history().is_empty() && known != Some(&history) {
            let patch = json!({"metadata": {"annotations": {PLUGIN_HISTORY_ANNOTATION: history}}});
            seen = self.writer.patch::<Plugin>(&seen, patch).await?;
        }
        if status.is_some() {
            let mut desired = Plugin::new("", plugin.spec.clone());
            desired.status = status;
            self.writer.apply_status(&desired, &seen).await?;
        }
        Ok(())
    }

    pub(crate) fn tell(&self, plugin: &Plugin, performed: &Performed) {
        let about = plugin.object_ref(&());
        self.board.correct(performed.corrected.len());
        for id in &performed.corrected {
            let note = format!("{id} was changed or deleted, and is as the plugin says again");
            self.events
                .publish(&about, Notice::normal("DriftCorrected", "Apply", note));
        }
        for (id, claim) in &performed.adopted {
            let notice = Notice::normal(
                "ObjectAdopted",
                "Apply",
                format!("{id} is of this plugin from now on: {claim}"),
            );
            self.events.publish(&about, notice);
        }
        for (id, what) in &performed.kept {
            self.events.publish(&about, kept(id, what));
        }
    }

    pub(crate) fn tell_left(&self, plugin: &str, about: &ObjectReference, left: &[ObjectId]) {
        log_left(plugin, left);
        for id in left {
            self.events
                .publish(about, Notice::warning("ObjectLeft", "Delete", stays(id)));
        }
    }

    /// Tells what stays of a plugin that is removed, and every problem but the first, which the error of the pass says.
    pub(crate) fn tell_removed(&self, about: &ObjectReference, removed: &Removed) {
        for (id, what) in &removed.kept {
            self.events.publish(about, kept(id, what));
        }
        for problem in removed.problems.iter().skip(1) {
            let notice = Notice::warning(problem.reason, "Delete", problem.note.clone());
            self.events.publish(about, notice);
        }
    }

    pub(crate) fn tell_found(&self, plugin: &Plugin, drifted: &[ObjectId], used: &[ObjectId]) {
        let about = plugin.object_ref(&());
        for id in drifted {
            let note =
                format!("{id} was changed or deleted. pluginDrift is report: it is left so until the next version.");
            self.events
                .publish(&about, Notice::warning("DriftFound", "Apply", note));
        }
        for id in used {
            let note = format!(
                "{id} exists and is not of this plugin: it is used as it is, and stays when the plugin goes. To hand it over: {}",
                handing_over(id, &plugin.spec.id)
            );
            self.events
                .publish(&about, Notice::normal("ForeignObject", "Apply", note));
        }
    }
}

/// Logs each object whose label somebody took off: nothing remembers it afterwards.
pub(crate) fn log_left(plugin: &str, left: &[ObjectId]) {
    for id in left {
        warn!(plugin, "{}", stays(id));
    }
}

fn stays(id: &ObjectId) -> String {
    format!(
        "{id} stays, because somebody took its label {PLUGIN_LABEL} off. Delete it when nothing needs it any more: kubectl delete {}",
        id.as_argument()
    )
}

fn kept(id: &ObjectId, what: &str) -> Notice {
    let note = format!(
        "{id} stays, because it has {what}, which is not of the plugin. Delete it when nothing in it is needed any more."
    );
    Notice::warning("ObjectKept", "Delete", note)
}

/// The last status of each plugin. Clones share them.
#[derive(Clone, Default)]
struct Reported(Arc<Mutex<BTreeMap<Key, PluginStatus>>>);

impl Reported {
    /// The pass has determined this status. True if the last one was another: the cache may not show that one yet, and
    /// then does not say whether a write is needed.
    fn set(&self, plugin: &Key, status: &PluginStatus) -> bool {
        let last = self.0.lock().insert(plugin.clone(), status.clone());
        last.is_some_and(|last| last != *status)
    }

    /// The plugin is gone.
    fn forget(&self, plugin: &Key) {
        self.0.lock().remove(plugin);
    }

    /// Reconciles each plugin that changes, unless the change is the write of its last status.
    fn unless_reported(&self, queue: &Queue) -> Trigger<Plugin> {
        let reported = self.clone();
        queue.trigger(move |queue, change: &Change<'_, Plugin>| {
            let both = change.before.zip(change.after);
            if both.is_none_or(|(before, after)| !reported.is_write(change.key(), before, after)) {
                queue.push(change.key().clone());
            }
        })
    }

    fn is_write(&self, plugin: &Key, before: &Plugin, after: &Plugin) -> bool {
        let is_last = after.status.is_some() && self.0.lock().get(plugin) == after.status.as_ref();
        is_last && before.spec == after.spec && unversioned(&before.metadata) == unversioned(&after.metadata)
    }
}

#[cfg(test)]
mod tests;
