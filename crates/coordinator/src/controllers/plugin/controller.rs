//! The pass over a plugin: decides which version is applied now, and lets it be applied as far as possible.
//!
//! - The cloud decides. A Plugin that the cloud does not list has no effect and is removed, and one that somebody
//!   deletes in the cluster loses nothing.
//! - What is applied is the version of the cloud; or, until a person approves that, what is applied already; or the
//!   version that a person went back to. A version with a refused object is not applied at all.
//! - An approval names the digest of the diff. The diff is rendered again before the approval is recorded, and another
//!   digest approves nothing.
//! - An approval is recorded before anything of the version is applied. From then on it is applied to its end.
//! - An annotation that was used, or has no effect, is removed: it must not approve something later.
//! - A pass waits for nothing itself, so that a plugin that hangs delays no other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource as _;
use serde_json::json;
use tidewaiter_api::PluginInventory;
use tidewaiter_api::containership::{PendingVersion, Plugin};
use tidewaiter_api::names::{APPROVE_ANNOTATION, ROLLBACK_ANNOTATION, plugin_diff_secret};
use tidewaiter_cloud::models::values::PluginId;
use tidewaiter_kit::{Cache, Key, Next, Pass, Reconciler, SharedClock, WriteError, Writer};
use tracing::debug;

use super::cluster::{Applier, Observed, Waits, Work, plan};
use super::desired::{Dependencies, Goal, Manifests, Proposals, Record, Store, annotation, is_applied, is_too_large};
use super::report::{PluginError, Problem, Reporter, State};
use super::settings::{Approval, Identity, PluginSettings};
use crate::controllers::listed::Listed;

/// Until a cache shows what was written.
const CATCH_UP: Duration = Duration::from_secs(1);

pub(super) struct PluginController {
    pub(super) settings: PluginSettings,
    pub(super) plugins: Listed<Plugin>,
    pub(super) inventories: Cache<PluginInventory>,
    pub(super) manifests: Manifests,
    pub(super) dependencies: Dependencies,
    pub(super) store: Arc<Store>,
    pub(super) proposals: Proposals,
    pub(super) applier: Applier,
    pub(super) reporter: Arc<Reporter>,
    pub(super) writer: Arc<Writer>,
    pub(super) clock: SharedClock,
}

impl Reconciler for PluginController {
    const NAME: &'static str = "plugin";
    type Error = PluginError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, PluginError> {
        let key = pass.key().clone();
        self.applier.wakes.begins(&key);
        self.applier.followed.begins(key.name());
        let inventory = self.inventories.get(&key);
        let Ok(id) = key.name().parse::<PluginId>() else {
            return Ok(Next::UntilChanged);
        };
        let seen = inventory.as_ref().map(|inventory| &inventory.metadata);
        if self.writer.awaits::<PluginInventory>(&key, seen) {
            return Ok(Next::Pending(CATCH_UP));
        }
        if !self.plugins.retains(key.name()) {
            self.forget(&key);
            if let Some(inventory) = inventory {
                return self.remove(pass, &inventory).await;
            }
            self.applier.followed.forget(key.name());
            self.store.tidy(key.name(), &BTreeSet::new()).await?;
            return Ok(Next::UntilChanged);
        }
        let plugin = self.plugins.get(key.name());
        let is_known = plugin.is_some() && self.plugins.is_current();
        if let Some(inventory) = inventory.as_ref().filter(|_| !is_known) {
            return self.keep_unlisted(pass, inventory).await;
        }
        let Some(plugin) = plugin.map(Arc::unwrap_or_clone) else {
            return Ok(Next::UntilChanged);
        };
        if !self.settings.sync.includes(&plugin.spec.type_) {
            self.forget(&key);
            self.applier.followed.forget(key.name());
            return Ok(Next::UntilChanged);
        }
        pass.about(plugin.object_ref(&()));
        let record = match &inventory {
            Some(inventory) => Record::read(&inventory.spec),
            None => Record::of_stored(self.store.recall(key.name()).await?),
        };
        let mut work = Work::new(plugin, record, inventory.as_deref());
        let end = self.reconcile_version(pass, id, &mut work).await;
        if end.is_ok() {
            self.applier.followed.succeeds(key.name());
        }
        let Work {
            plugin,
            record,
            mut facts,
            ..
        } = work;
        facts.outdated = self.manifests.outdated(key.name());
        let state = self.reporter.report(&plugin, &record, &mut facts, end).await?;
        // Versions that nobody can go back to, and a diff that awaits no approval.
        let mut wanted = record.secrets(key.name());
        wanted.extend(facts.pending.as_ref().map(|_| plugin_diff_secret(key.name())));
        self.store.tidy(key.name(), &wanted).await?;
        Ok(self.reporter.next(&key, &state, &facts))
    }
}

impl PluginController {
    /// Applies the plugin as far as possible. The facts are filled as far as they are known.
    async fn reconcile_version(&self, pass: &mut Pass, id: PluginId, work: &mut Work) -> Result<State, PluginError> {
        let identity = Identity::of(&work.plugin.spec);
        self.applier.clusters.of(&identity)?;
        if let Some(asked) = self.rollback(&mut work.plugin).await? {
            return self.roll_back(pass.key(), &asked, work).await;
        }
        // Nothing was fetched since the start. The cloud may be away, so it is not waited for.
        let is_new = self.manifests.sent(pass.key().name()).is_none();
        if is_new {
            self.try_to_keep(pass.key(), work).await;
        }
        let wanted = self.wanted(pass, id, identity, work).await;
        let Ok(Ok(goal)) = wanted else {
            // The cloud has nothing that can be applied now: what is applied is kept as it is.
            if !is_new {
                self.try_to_keep(pass.key(), work).await;
            }
            return wanted.map(|waits| waits.map_or_else(State::Waits, |_| State::Applied));
        };
        match self.judge(pass.key(), &goal, work).await? {
            Ok(observed) => self.begin(pass.key(), &goal, observed, work).await,
            Err(pending) => Ok(State::AwaitsApproval(pending)),
        }
    }

    /// The version of the cloud, or what is waited for before that.
    async fn wanted(
        &self,
        pass: &mut Pass,
        id: PluginId,
        identity: Identity,
        work: &Work,
    ) -> Result<Result<Goal, Waits>, PluginError> {
        let Some(release) = self.manifests.fetch(pass, id, &work.plugin, &work.record).await? else {
            return Ok(Err(Waits::new(
                "VersionChanges",
                "the cloud has another version already: waits for the mirror",
            )));
        };
        let goal = Goal {
            spec: work.plugin.spec.clone(),
            identity,
            release,
            stored: false,
        };
        let waits = self
            .dependencies
            .wait_for(pass.key(), &goal, &work.record, &self.manifests)?;
        Ok(waits.map_or(Ok(goal), Err))
    }

    /// Decides if the version may be applied, and returns the observation made for that, if there is one, or the
    /// proposal that awaits approval.
    async fn judge(
        &self,
        key: &Key,
        goal: &Goal,
        work: &mut Work,
    ) -> Result<Result<Option<Observed>, PendingVersion>, PluginError> {
        if work.record.approved() == goal.release.revision {
            return Ok(Ok(None));
        }
        if self.settings.approval.of(&goal.identity) == Approval::Automatic {
            if work.record.revision().is_empty() {
                // The objects of a first version that exist already are known before it is accepted.
                let observed = self.applier.observe(goal, &work.record).await?;
                let cluster = self.applier.clusters.of(&goal.identity)?;
                let changes = self
                    .proposals
                    .changes_inherited(key, cluster, goal, &observed, &work.record);
                if !changes.await {
                    return Ok(Ok(Some(observed)));
                }
            } else if !self
                .store
                .shrinks(&self.manifests, goal, &work.plugin.spec, &work.record)
                .await
            {
                return Ok(Ok(None));
            }
        }
        Ok(self.gate(key, goal, work).await?.map_or(Ok(None), Err))
    }

    /// Accepts the version, and applies it as far as possible.
    async fn begin(
        &self,
        key: &Key,
        goal: &Goal,
        observed: Option<Observed>,
        work: &mut Work,
    ) -> Result<State, PluginError> {
        self.proposals.discard(key);
        // It was fetched, so it is not held twice.
        self.store.forget(key.name());
        let sent = self.accept(goal, &mut work.record);
        // Everything that it may create, before anything of it is created.
        let first = observed.as_ref().filter(|_| work.saved.is_none());
        let first = first.map(|observed| plan(&goal.release, &work.record, observed, self.settings.drift).record);
        let remember = async {
            match &first {
                Some(first) => self.store.save(key, first, &mut work.saved).await,
                None => Ok(()),
            }
        };
        let observe = async {
            match observed {
                Some(observed) => Ok(observed),
                None => self.applier.observe(goal, &work.record).await,
            }
        };
        let store = self.store.put(goal, &work.record, &sent);
        let (stored, remembered, observed) = tokio::join!(store, remember, observe);
        stored?;
        remembered?;
        self.take_annotation(&mut work.plugin, APPROVE_ANNOTATION).await?;
        self.applier.apply(key, goal, observed?, work).await
    }

    /// The version of the cloud may be applied, after what it returns was stored.
    fn accept(&self, goal: &Goal, record: &mut Record) -> Arc<[u8]> {
        let (plugin, revision) = (goal.spec.id.as_str(), goal.release.revision.as_str());
        let sent = self.manifests.sent(plugin).unwrap_or_default();
        record.begin(&goal.identity, &goal.release);
        record.accept(&goal.spec, revision, is_too_large(&sent), self.clock.now());
        sent
    }

    /// Keeps what is applied, and shows what the version would change. None once it is approved.
    async fn gate(&self, key: &Key, goal: &Goal, work: &mut Work) -> Result<Option<PendingVersion>, PluginError> {
        let kept = self.keep(key, work).await;
        let asked = annotation(&work.plugin, APPROVE_ANNOTATION);
        let mut pending = self.propose(key, goal, work, false).await?;
        if asked.as_deref() == Some(&*pending.digest) {
            // It may have changed since.
            pending = self.propose(key, goal, work, true).await?;
        }
        if asked.as_deref() == Some(&*pending.digest) || is_applied(&pending, work) {
            let sent = self.accept(goal, &mut work.record);
            self.store.put(goal, &work.record, &sent).await?;
            self.store.save(key, &work.record, &mut work.saved).await?;
            return Ok(None);
        }
        if let Some(asked) = asked {
            self.reporter.tell_approval_outdated(&work.plugin, &asked, &pending);
            self.take_annotation(&mut work.plugin, APPROVE_ANNOTATION).await?;
        }
        work.facts.pending = Some(pending.clone());
        kept.map(|_| Some(pending))
    }

    async fn propose(&self, key: &Key, goal: &Goal, work: &Work, anew: bool) -> Result<PendingVersion, PluginError> {
        let observed = self.applier.observe(goal, &work.record).await?;
        let cluster = self.applier.clusters.of(&goal.identity)?;
        self.proposals.propose(key, cluster, goal, &observed, work, anew).await
    }

    /// Keeps what is applied as it is, from what is stored of it.
    async fn keep(&self, key: &Key, work: &mut Work) -> Result<State, PluginError> {
        let entry = work.record.accepted(work.record.approved());
        let Some(entry) = entry.filter(|entry| !entry.too_large).cloned() else {
            return Ok(State::Applied);
        };
        let today = &work.plugin.spec;
        let release = self.store.read(&self.manifests, today, &entry).await?;
        let goal = Goal::stored(today, &entry, release);
        let observed = self.applier.observe(&goal, &work.record).await?;
        self.applier.apply(key, &goal, observed, work).await
    }

    /// Keeps what is applied as it is, as far as that is possible now.
    async fn try_to_keep(&self, key: &Key, work: &mut Work) {
        if let Err(error) = self.keep(key, work).await {
            debug!(plugin = key.name(), error = %error, "what is applied of the plugin cannot be kept as it is");
        }
    }

    /// Keeps what is applied as it is, from what is stored of it: without the cloud, which has not said yet what it
    /// lists, and without reading the custom resource, which somebody may have deleted or edited meanwhile.
    async fn keep_unlisted(&self, pass: &mut Pass, inventory: &PluginInventory) -> Result<Next, PluginError> {
        let key = pass.key().clone();
        let record = Record::read(&inventory.spec);
        let identity = record.identity(inventory);
        if !self.settings.sync.includes(&identity.type_) {
            return Ok(Next::UntilChanged);
        }
        pass.about(inventory.object_ref(&()));
        let spec = record
            .applied_plugin()
            .cloned()
            .unwrap_or_else(|| identity.unversioned());
        let mut known = Plugin::new(key.name(), spec);
        if let Some(copy) = self.plugins.copies().get(&key) {
            known.metadata = copy.metadata.clone();
        }
        known.metadata.namespace = key.namespace().map(str::to_owned);
        let mut work = Work::new(known, record, Some(inventory));
        match self.keep(&key, &mut work).await? {
            State::Waits(_) => Ok(self.reporter.wait(&key)),
            State::Applied | State::AwaitsApproval(_) | State::Blocked(_) => Ok(Next::UntilChanged),
        }
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
    async fn roll_back(&self, key: &Key, asked: &str, work: &mut Work) -> Result<State, PluginError> {
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
        let goal = Goal::stored(today, &entry, release);
        if let Some(waits) = self.dependencies.wait_for(key, &goal, &work.record, &self.manifests)? {
            return Ok(State::Waits(waits));
        }
        work.facts.rolled_back = Some(today.version.clone());
        work.record.begin(&goal.identity, &goal.release);
        self.take_annotation(&mut work.plugin, APPROVE_ANNOTATION).await?;
        let observed = self.applier.observe(&goal, &work.record).await?;
        self.applier.apply(key, &goal, observed, work).await
    }

    /// Removes the annotation, if there is one.
    async fn take_annotation(&self, plugin: &mut Plugin, name: &str) -> Result<(), WriteError> {
        if annotation(plugin, name).is_some() {
            let patch = json!({"metadata": {"annotations": {name: null}}});
            plugin.metadata = self.writer.patch::<Plugin>(&plugin.metadata, patch).await?;
        }
        Ok(())
    }

    /// Removes everything of a plugin that the cloud does not list any more, and then the memory of it.
    async fn remove(&self, pass: &mut Pass, inventory: &PluginInventory) -> Result<Next, PluginError> {
        let about = inventory.object_ref(&());
        pass.about(about.clone());
        let (name, record) = (pass.key().name(), Record::read(&inventory.spec));
        let identity = record.identity(inventory);
        self.dependencies.wait_for_dependents(pass.key(), &identity, &record)?;
        let removed = self.applier.remove(&identity, inventory).await?;
        self.reporter.tell_removed(&about, &removed);
        if !removed.problems.is_empty() {
            return Err(PluginError::Problems(removed.problems));
        }
        if let Some(waits) = removed.waits {
            return Err(Problem::removal_waits(waits.message).into());
        }
        self.reporter.tell_left(name, &about, &removed.left);
        self.store.tidy(name, &BTreeSet::new()).await?;
        self.writer.delete::<PluginInventory>(&inventory.metadata).await?;
        Ok(Next::UntilChanged)
    }

    /// The plugin is gone.
    fn forget(&self, key: &Key) {
        self.manifests.forget(key.name());
        self.store.forget(key.name());
        self.proposals.forget(key);
        self.dependencies.forget(key);
        self.applier.wakes.forget(key);
        self.applier.limits.forget(key);
        self.reporter.forget(key);
    }
}
