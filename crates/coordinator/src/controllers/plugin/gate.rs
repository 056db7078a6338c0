//! The version of a plugin that may be applied now: the version of the cloud, or, until a person approves that, what is
//! applied; or the version that a person went back to.
//!
//! - An approval names the digest of the diff. The diff is rendered again before the approval is recorded, and another
//!   digest approves nothing.
//! - An approval is recorded before anything of the version is applied. From then on it is applied to its end.
//! - An annotation that was used, or has no effect, is removed: it must not approve something later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource as _;
use parking_lot::Mutex;
use serde_json::json;
use tidewaiter_api::containership::{PendingVersion, Plugin, PluginSpec};
use tidewaiter_api::names::{APPROVE_ANNOTATION, ROLLBACK_ANNOTATION, plugin_diff_secret};
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::models::values::PluginId;
use tidewaiter_kit::{Key, Notice, Pass, WriteError};
use tracing::debug;

use super::approval::Approval;
use super::by_plugin::Identity;
use super::diff::PluginDiff;
use super::fetch::{REFRESH, annotation};
use super::observed::Observed;
use super::plan::plan;
use super::problem::{PluginError, Problem};
use super::proposal::{Step, proposal};
use super::record::Record;
use super::refused::Refused;
use super::release::Release;
use super::status::{APPROVAL_NEEDED, Facts, State, approval_needed};
use super::store::{is_too_large, then};
use super::{PluginController, Saved};
use crate::digest::digest;

/// A version to apply.
pub(super) struct Goal {
    pub(super) identity: Identity,
    /// The plugin with this version.
    pub(super) spec: PluginSpec,
    pub(super) release: Arc<Release>,
    /// True if it is a stored one.
    pub(super) stored: bool,
}

impl Goal {
    pub(super) fn refused(&self, record: &Record, refused: &Refused) -> Problem {
        match record.accepted(&self.release.revision).filter(|_| self.stored) {
            Some(entry) => Problem::unusable(&self.spec.id, entry, &refused.to_string()),
            None => Problem::refused(&self.spec.id, &self.spec.version, refused),
        }
    }
}

/// The diff that was rendered last of each plugin.
#[derive(Default)]
pub(super) struct Rendered(Mutex<BTreeMap<Key, RenderedDiff>>);

struct RenderedDiff {
    /// Digest of the diff's inputs.
    fingerprint: String,
    /// The time (monotonic).
    at: Duration,
    pending: PendingVersion,
}

impl Rendered {
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// The last diff of the revision, and true if it is still up to date.
    fn last(&self, key: &Key, revision: &str, fingerprint: &str, now: Duration) -> Option<(PendingVersion, bool)> {
        let all = self.0.lock();
        let last = all.get(key).filter(|last| last.pending.revision == revision)?;
        let is_current = last.fingerprint == fingerprint && now < last.at + REFRESH / 2;
        Some((last.pending.clone(), is_current))
    }
}

/// Of everything that decides about the diff of the steps.
fn fingerprint(release: &Release, steps: &[Step<'_>]) -> String {
    let all: Vec<String> = steps.iter().map(Step::fingerprint).collect();
    digest(std::iter::once(release.revision.as_str()).chain(all.iter().map(String::as_str)))
}

/// There is nothing to approve: the inventory of the plugin was lost, and everything is as the version says.
fn is_applied(pending: &PendingVersion, work: &Work<'_>) -> bool {
    work.saved.0.is_none() && [pending.creates, pending.changes, pending.deletes, pending.jobs] == [0; 4]
}

/// The input of a pass.
pub(super) struct Work<'a> {
    pub(super) plugin: &'a mut Plugin,
    pub(super) record: &'a mut Record,
    pub(super) saved: &'a mut Saved,
    pub(super) facts: &'a mut Facts,
}

impl PluginController {
    /// Applies the plugin as far as possible. The facts are filled as far as they are known.
    pub(super) async fn bring(&self, pass: &mut Pass, id: PluginId, work: &mut Work<'_>) -> Result<State, PluginError> {
        let identity = Identity::of(&work.plugin.spec);
        self.engines.of(&identity)?;
        if let Some(asked) = self.rollback(work.plugin).await? {
            return self.roll_back(pass.key(), &asked, work).await;
        }
        // Nothing was fetched since the start. The cloud may be away, so it is not waited for.
        let is_new = self.manifests.sent(pass.key().name()).is_none();
        if is_new {
            self.try_to_keep(pass.key(), work).await;
        }
        let wanted = self.release(pass, id, work.plugin, &identity, work.record).await;
        let Ok(Ok(release)) = wanted else {
            // The cloud has nothing that can be applied now: what is applied is kept as it is.
            if !is_new {
                self.try_to_keep(pass.key(), work).await;
            }
            return wanted.map(|waits| waits.map_or_else(State::Waits, |_| State::Applied));
        };
        let goal = Goal {
            spec: work.plugin.spec.clone(),
            identity,
            release,
            stored: false,
        };
        match self.judge(pass.key(), &goal, work).await? {
            Ok(observed) => self.begin(pass.key(), &goal, observed, work).await,
            Err(pending) => Ok(State::AwaitsApproval(pending)),
        }
    }

    /// Decides if the version may be applied, and returns the observation made for that, if there is one, or the
    /// proposal that awaits approval.
    async fn judge(
        &self,
        key: &Key,
        goal: &Goal,
        work: &mut Work<'_>,
    ) -> Result<Result<Option<Observed>, PendingVersion>, PluginError> {
        if work.record.approved() == goal.release.revision {
            return Ok(Ok(None));
        }
        if self.settings.approval.of(&goal.identity) == Approval::Automatic {
            if work.record.revision().is_empty() {
                // What is there of a first version is known before anything of it is accepted.
                let observed = self.observe(goal, work.record).await?;
                if !self.changes_inherited(key, goal, work.record, &observed).await? {
                    return Ok(Ok(Some(observed)));
                }
            } else if !self.shrinks(goal, work).await {
                return Ok(Ok(None));
            }
        }
        Ok(self.gate(key, goal, work).await?.map_or(Ok(None), Err))
    }

    /// Returns true if the cloud has other manifests of the version that may be applied now, and they lack objects: an
    /// answer that was cut short looks like that, and it would delete them. A new version says that it is meant.
    async fn shrinks(&self, goal: &Goal, work: &Work<'_>) -> bool {
        let accepted = work.record.accepted(work.record.approved());
        let version = accepted.map_or_else(|| work.record.applied_version(), |entry| entry.version.as_str());
        if version != goal.spec.version {
            return false;
        }
        let Some(entry) = accepted.filter(|entry| !entry.too_large) else {
            return work.record.exceeds(&goal.release);
        };
        match self.store.read(&self.manifests, &work.plugin.spec, entry).await {
            Ok(stored) => goal.release.lacks(stored.all().map(|object| &object.id)),
            Err(_) => work.record.exceeds(&goal.release),
        }
    }

    /// Accepts the version, and applies it as far as possible.
    async fn begin(
        &self,
        key: &Key,
        goal: &Goal,
        observed: Option<Observed>,
        work: &mut Work<'_>,
    ) -> Result<State, PluginError> {
        self.rendered.forget(key);
        // It was fetched, so it is not held twice.
        self.store.forget(key.name());
        let sent = self.accept(goal, work);
        // Everything that it may create, before anything of it is created.
        let first = observed.as_ref().filter(|_| work.saved.0.is_none());
        let first = first.map(|observed| plan(&goal.release, work.record, observed, self.settings.drift).record);
        let remember = async {
            match &first {
                Some(first) => self.save(key, first, work.saved).await,
                None => Ok(()),
            }
        };
        let observe = async {
            match observed {
                Some(observed) => Ok(observed),
                None => self.observe(goal, work.record).await,
            }
        };
        let store = self.store(goal, work.record, &sent);
        let (stored, remembered, observed) = tokio::join!(store, remember, observe);
        stored?;
        remembered?;
        self.take_annotation(work.plugin, APPROVE_ANNOTATION).await?;
        self.pursue(key, goal, observed?, work).await
    }

    /// The version of the cloud may be applied, after what it returns was stored.
    fn accept(&self, goal: &Goal, work: &mut Work<'_>) -> Arc<[u8]> {
        let (plugin, revision) = (goal.spec.id.as_str(), goal.release.revision.as_str());
        let sent = self.manifests.sent(plugin).unwrap_or_default();
        work.record.begin(&goal.identity, &goal.release);
        work.record
            .accept(&goal.spec, revision, is_too_large(&sent), self.clock.now());
        sent
    }

    async fn store(&self, goal: &Goal, record: &Record, sent: &[u8]) -> Result<(), WriteError> {
        match record.accepted(&goal.release.revision) {
            Some(entry) => self.store.put(&self.writer, &goal.spec.id, entry, sent).await,
            None => Ok(()),
        }
    }

    /// Keeps what is applied, and shows what the version would change. None once it is approved.
    async fn gate(&self, key: &Key, goal: &Goal, work: &mut Work<'_>) -> Result<Option<PendingVersion>, PluginError> {
        let kept = self.keep(key, work).await;
        let asked = annotation(work.plugin, APPROVE_ANNOTATION);
        let mut pending = self.propose(key, goal, work, false).await?;
        if asked.as_deref() == Some(&*pending.digest) {
            // It may have changed since.
            pending = self.propose(key, goal, work, true).await?;
        }
        if asked.as_deref() == Some(&*pending.digest) || is_applied(&pending, work) {
            let sent = self.accept(goal, work);
            self.store(goal, work.record, &sent).await?;
            self.save(key, work.record, work.saved).await?;
            return Ok(None);
        }
        if let Some(asked) = asked {
            let note = format!(
                "nothing is approved: the approval is of {}, and the diff of version {} is {} now. See it again with tidewaiter plugin diff.",
                quoted(&asked),
                pending.version,
                pending.digest
            );
            let notice = Notice::warning("ApprovalOutdated", "Approve", note);
            self.events.publish(&work.plugin.object_ref(&()), notice);
            self.take_annotation(work.plugin, APPROVE_ANNOTATION).await?;
        }
        work.facts.pending = Some(pending.clone());
        kept.map(|_| Some(pending))
    }

    /// Keeps what is applied as it is, as far as that is possible now.
    async fn try_to_keep(&self, key: &Key, work: &mut Work<'_>) {
        if let Err(error) = self.keep(key, work).await {
            debug!(plugin = key.name(), error = %error, "what is applied of the plugin cannot be kept as it is");
        }
    }

    /// Keeps what is applied as it is, from what is stored of it.
    pub(super) async fn keep(&self, key: &Key, work: &mut Work<'_>) -> Result<State, PluginError> {
        let entry = work.record.accepted(work.record.approved());
        let Some(entry) = entry.filter(|entry| !entry.too_large).cloned() else {
            return Ok(State::Applied);
        };
        let today = &work.plugin.spec;
        let goal = Goal {
            release: self.store.read(&self.manifests, today, &entry).await?,
            spec: then(today, &entry),
            identity: Identity::of(&then(today, &entry)),
            stored: true,
        };
        let observed = self.observe(&goal, work.record).await?;
        self.pursue(key, &goal, observed, work).await
    }

    /// The diff of the version as of now. It is rendered when anything that decides about it changes, and from time to
    /// time, or `anew`.
    async fn propose(
        &self,
        key: &Key,
        goal: &Goal,
        work: &mut Work<'_>,
        anew: bool,
    ) -> Result<PendingVersion, PluginError> {
        let (engine, observed) = (self.engines.of(&goal.identity)?, self.observe(goal, work.record).await?);
        let steps = proposal(&goal.release, work.record, &observed, self.settings.drift);
        let (fingerprint, now) = (fingerprint(&goal.release, &steps), self.clock.monotonic());
        let last = self.rendered.last(key, &goal.release.revision, &fingerprint, now);
        if let Some((pending, is_current)) = last.filter(|_| !anew) {
            let is_shown = self.store.has_diff(&self.writer, &goal.spec.id);
            if (is_current && is_shown) || self.renders.take(key).is_err() {
                return Ok(pending);
            }
        }
        let diff = engine.render(&goal.spec.version, &goal.release.revision, steps).await;
        let diff = diff.map_err(PluginError::Problems)?;
        let pending = diff.pending();
        if !is_applied(&pending, work) {
            self.show(&diff, &pending, work).await?;
        }
        let rendered = RenderedDiff {
            fingerprint,
            at: now,
            pending: pending.clone(),
        };
        self.rendered.0.lock().insert(key.clone(), rendered);
        Ok(pending)
    }

    /// Returns true if these steps of the version await approval already: nothing has changed since they were rendered.
    pub(super) fn awaits_approval(&self, key: &Key, release: &Release, steps: &[Step<'_>]) -> bool {
        let now = self.clock.monotonic();
        let last = self
            .rendered
            .last(key, &release.revision, &fingerprint(release, steps), now);
        last.is_some_and(|(_, is_current)| is_current)
    }

    /// Stores the diff for its approver, and publishes an Event once.
    async fn show(&self, diff: &PluginDiff, pending: &PendingVersion, work: &Work<'_>) -> Result<(), WriteError> {
        let known = work.plugin.status.as_ref().and_then(|status| status.pending.as_ref());
        let is_new = known.is_none_or(|known| known.digest != pending.digest);
        let plugin = work.plugin.spec.id.as_str();
        self.store.put_diff(&self.writer, plugin, diff, is_new).await?;
        if is_new {
            let notice = Notice::normal(APPROVAL_NEEDED, "Approve", approval_needed(pending));
            self.events.publish(&work.plugin.object_ref(&()), notice);
        }
        Ok(())
    }

    /// The revision to go back to, while the cloud has the version that is gone back from.
    async fn rollback(&self, plugin: &mut Plugin) -> Result<Option<String>, WriteError> {
        let Some(asked) = annotation(plugin, ROLLBACK_ANNOTATION) else {
            return Ok(None);
        };
        match asked.split_once('@') {
            Some((_, version)) if version != plugin.spec.version => {
                self.take_annotation(plugin, ROLLBACK_ANNOTATION).await?;
                Ok(None)
            }
            _ => Ok(Some(asked)),
        }
    }

    /// Applies an earlier version, as a person wants it: that needs no approval.
    async fn roll_back(&self, key: &Key, asked: &str, work: &mut Work<'_>) -> Result<State, PluginError> {
        let today = &work.plugin.spec;
        let entry = asked
            .split_once('@')
            .and_then(|(revision, _)| work.record.accepted(revision));
        let Some(entry) = entry.cloned() else {
            return Err(Problem::rollback_unknown(&today.id, asked, work.record.releases()).into());
        };
        if entry.too_large {
            let why = "it is too large for a Secret, so it was not stored";
            return Err(Problem::unusable(&today.id, &entry, why).into());
        }
        let release = self.store.read(&self.manifests, today, &entry).await?;
        let goal = Goal {
            spec: then(today, &entry),
            identity: Identity::of(&then(today, &entry)),
            release,
            stored: true,
        };
        if let Some(waits) = self.dependencies(key, &goal.spec.version, &goal.identity, &goal.release, work.record)? {
            return Ok(State::Waits(waits));
        }
        work.facts.rolled_back = Some(today.version.clone());
        work.record.begin(&goal.identity, &goal.release);
        self.take_annotation(work.plugin, APPROVE_ANNOTATION).await?;
        let observed = self.observe(&goal, work.record).await?;
        self.pursue(key, &goal, observed, work).await
    }

    /// Removes the annotation, if there is one.
    async fn take_annotation(&self, plugin: &mut Plugin, name: &str) -> Result<(), WriteError> {
        if annotation(plugin, name).is_some() {
            let patch = json!({"metadata": {"annotations": {name: null}}});
            plugin.metadata = self.writer.patch::<Plugin>(&plugin.metadata, patch).await?;
        }
        Ok(())
    }

    /// Deletes what is stored of versions that nobody can go back to, and a diff that awaits no approval.
    pub(super) async fn tidy(&self, key: &Key, record: &Record, facts: &Facts) -> Result<(), WriteError> {
        let mut wanted = record.secrets(key.name());
        wanted.extend(facts.pending.as_ref().map(|_| plugin_diff_secret(key.name())));
        self.store.tidy(&self.writer, key.name(), &wanted).await
    }
}
