//! Reports the state of a plugin: its history, its status and Events.

use std::pin::pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use serde_json::json;
use tidewaiter_api::Condition;
use tidewaiter_api::containership::plugin::READY;
use tidewaiter_api::containership::{Plugin, PluginStatus};
use tidewaiter_api::names::{PLUGIN_HISTORY_ANNOTATION, PLUGIN_LABEL};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::{Key, Next, Notice, WriteError, WriteLimits};
use tracing::warn;

use super::PluginController;
use super::engine::Performed;
use super::fetch::REFRESH;
use super::object::ObjectId;
use super::plan::Waits;
use super::problem::{PluginError, handing_over};
use super::record::Record;
use super::status::{APPROVAL_NEEDED, Facts, State, manifests_outdated, status};

const JITTER: f64 = 0.1;
/// Writes that take longer are reported.
const MOMENT: Duration = Duration::from_secs(3);
/// Until the next look at a plugin that is not healthy. The watch of its objects shows sooner that it is.
const UNHEALTHY: Duration = Duration::from_mins(1);
/// The reasons of `Ready` while a plugin waits for something before its first write.
const BEFORE_WRITES: [&str; 3] = ["DependencyNotReady", "VersionChanges", APPROVAL_NEEDED];
/// Reason of `Ready`: somebody changes the objects again and again.
pub(super) const CHANGED_OFTEN: &str = "ChangedOften";

impl PluginController {
    /// Awaits writes. That they take long is reported.
    pub(super) async fn write<T>(
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
        let waits = Waits {
            reason: "Applying",
            message: format!("version {version} is being applied: the API server has not answered all writes yet"),
        };
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
    pub(super) async fn report(
        &self,
        plugin: &Plugin,
        record: &Record,
        mut facts: Facts,
        end: Result<State, PluginError>,
    ) -> Result<Next, PluginError> {
        let applies = record.applied_version() == plugin.spec.version;
        facts.outdated = self.outdated(plugin, &facts);
        facts.state = match &end {
            Ok(state) => state.clone(),
            // What is applied stays so while the cloud is away.
            Err(PluginError::Cloud(_)) if applies => return end.map(|_| Next::UntilChanged),
            Err(error) => match error.problem() {
                Some(problem) => State::Keeps(problem),
                None => return end.map(|_| Next::UntilChanged),
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
        let after = status(&facts, &before, plugin.metadata.generation, self.clock.now());
        let key = Key::of(plugin);
        self.board.set(&key, &after, facts.outdated.is_some());
        let differs = before != after;
        if differs {
            self.waits.reset(&key);
        }
        let is_new = self.reported.set(&key, &after) || differs;
        self.write_status(plugin, record, is_new.then_some(after)).await?;
        let state = end?;
        self.tidy(&key, record, &facts).await?;
        Ok(match state {
            State::Waits(waits) if waits.reason == CHANGED_OFTEN => Next::Pending(WriteLimits::REFILL),
            State::Waits(_) => self.wait(&key),
            _ if facts.unhealthy.is_empty() => Next::After(jittered(REFRESH, JITTER)),
            _ => Next::Pending(jittered(UNHEALTHY, JITTER)),
        })
    }

    /// Until the next look at what the plugin waits for.
    pub(super) fn wait(&self, key: &Key) -> Next {
        Next::Pending(self.waits.next(key, self.clock.monotonic()))
    }

    /// The reason why the applied manifests may not be those of the cloud now. An earlier version that a person went
    /// back to is not fetched.
    fn outdated(&self, plugin: &Plugin, facts: &Facts) -> Option<String> {
        let outdated = self.manifests.outdated(Key::of(plugin).name());
        let outdated = outdated.filter(|_| facts.rolled_back.is_none());
        if let Some(why) = &outdated {
            let notice = Notice::warning("ManifestsUnavailable", "Apply", manifests_outdated(why));
            self.events.publish(&plugin.object_ref(&()), notice);
        }
        outdated
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

    pub(super) fn tell(&self, plugin: &Plugin, performed: &Performed) {
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

    pub(super) fn tell_left(&self, plugin: &str, about: &ObjectReference, left: &[ObjectId]) {
        log_left(plugin, left);
        for id in left {
            self.events
                .publish(about, Notice::warning("ObjectLeft", "Delete", stays(id)));
        }
    }

    pub(super) fn tell_found(&self, plugin: &Plugin, drifted: &[ObjectId], used: &[ObjectId]) {
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
pub(super) fn log_left(plugin: &str, left: &[ObjectId]) {
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

pub(super) fn kept(id: &ObjectId, what: &str) -> Notice {
    let note = format!(
        "{id} stays, because it has {what}, which is not of the plugin. Delete it when nothing in it is needed any more."
    );
    Notice::warning("ObjectKept", "Delete", note)
}
