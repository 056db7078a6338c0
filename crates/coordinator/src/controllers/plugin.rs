//! Plugin controller: applies the manifests of each Plugin, removes what they do not have any more, and says how it is.
//!
//! - The cloud decides. A Plugin that the cloud does not list has no effect, and one that somebody deletes in the cluster loses nothing.
//! - One pass observes, plans and writes until nothing is left to do or something has to be waited for. It waits for nothing itself, so that
//!   a plugin that hangs delays no other.
//! - An object is in the inventory before it is created, and only objects with the label of the plugin are changed or deleted.
//! - A version with a refused object is not applied at all.

use std::time::Duration;

use kube::Resource as _;
use kube::core::ObjectMeta;
use serde_json::json;
use tidewaiter_api::containership::{Plugin, PluginStatus};
use tidewaiter_api::names::PLUGIN_HISTORY_ANNOTATION;
use tidewaiter_api::{PluginInventory, PluginInventorySpec};
use tidewaiter_cloud::models::values::PluginId;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::{
    Cache, Events, Key, Next, Notice, Pass, Reconciler, SharedClock, WriteError, WriteLimits, Writer,
};

mod account;
mod board;
mod by_plugin;
mod cluster;
mod depends;
mod engine;
mod fetch;
mod follow;
mod health;
mod health_check;
mod job;
mod look;
mod namespaces;
mod object;
mod observed;
mod order;
mod plan;
mod problem;
mod record;
mod release;
mod removal;
mod requests;
mod settings;
mod start;
mod status;
mod trust;

pub use account::PluginAccount;
pub use by_plugin::ByPlugin;
pub use namespaces::PluginNamespaces;
pub(crate) use problem::PluginError;
pub(crate) use removal::PluginRemoval;
pub use settings::{PluginDrift, PluginSettings, PluginSync};
pub(super) use start::start;

use crate::mirror::CloudList;
use account::Engines;
use board::Board;
use by_plugin::Identity;
use depends::Waiting;
use engine::{Engine, Performed};
use fetch::{Manifests, REFRESH};
use follow::Followed;
use object::ObjectId;
use observed::unhealthy;
use plan::{Action, End, Waits, plan};
use problem::Problem;
use record::Record;
use status::{Facts, State, status};

const JITTER: f64 = 0.1;
/// Until the next look at something that a watch shows earlier.
const WAIT: Duration = Duration::from_secs(5);
/// Until a cache shows what was written, or the API server serves what was defined.
const CATCH_UP: Duration = Duration::from_secs(1);
/// How often one pass may observe and write: each job is one of them.
const ROUNDS: usize = 100;

struct PluginController {
    settings: PluginSettings,
    manifests: Manifests,
    listed: CloudList,
    plugins: Cache<Plugin>,
    inventories: Cache<PluginInventory>,
    engines: Engines,
    waiting: Waiting,
    followed: Followed,
    writer: Writer,
    events: Events,
    clock: SharedClock,
    /// How often the objects of each plugin are corrected.
    limits: WriteLimits,
    board: Board,
}

/// The inventory as it is in the cluster.
struct Saved(Option<PluginInventorySpec>);

impl Reconciler for PluginController {
    const NAME: &'static str = "plugin";
    type Error = PluginError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, PluginError> {
        let key = pass.key().clone();
        let (plugin, inventory) = (self.plugins.get(&key), self.inventories.get(&key));
        let Ok(id) = key.name().parse::<PluginId>() else {
            return Ok(Next::UntilChanged);
        };
        let seen = inventory.as_ref().map(|inventory| &inventory.metadata);
        if self.writer.awaits::<PluginInventory>(&key, seen) {
            return Ok(Next::Pending(CATCH_UP));
        }
        if !self
            .listed
            .retains(key.name(), plugin.as_ref().map(|plugin| &plugin.metadata))
        {
            self.manifests.forget(key.name());
            self.board.remove(&key);
            return match inventory {
                Some(inventory) => self.remove(pass, &inventory).await,
                None => Ok(Next::UntilChanged),
            };
        }
        // Without the custom resource, what was applied stays until the mirror has restored it.
        let Some(plugin) = plugin.filter(|plugin| self.listed.counts(&plugin.metadata)) else {
            return Ok(Next::UntilChanged);
        };
        if !self.settings.sync.includes(&plugin.spec.type_) {
            self.board.remove(&key);
            return Ok(Next::UntilChanged);
        }
        pass.about(plugin.object_ref(&()));
        let mut record = inventory
            .as_ref()
            .map(|inventory| Record::read(&inventory.spec))
            .unwrap_or_default();
        let mut saved = Saved(inventory.map(|inventory| inventory.spec.clone()));
        let mut facts = Facts::of(&record);
        let end = self.bring(pass, id, &plugin, &mut record, &mut saved, &mut facts).await;
        self.report(&plugin, &record, facts, end).await
    }
}

impl PluginController {
    /// Applies the plugin as far as possible. `facts` are filled as far as they are known.
    async fn bring(
        &self,
        pass: &mut Pass,
        id: PluginId,
        plugin: &Plugin,
        record: &mut Record,
        saved: &mut Saved,
        facts: &mut Facts,
    ) -> Result<State, PluginError> {
        let identity = Identity::of(&plugin.spec);
        let engine = self.engines.of(&identity)?;
        let release = match self.release(pass, id, plugin, &identity, record).await? {
            Ok(release) => release,
            Err(waits) => return Ok(State::Waits(waits)),
        };
        let name = pass.key().name().to_owned();
        for _ in 0..ROUNDS {
            let observed = engine.observe(&name, &release, record).await;
            let (observed, places) = observed.map_err(PluginError::Read)?;
            namespaces::check(&self.settings, &identity, &release, &observed)
                .map_err(|refused| Problem::refused(&name, &plugin.spec.version, &refused))?;
            self.followed.add_all(&engine.cluster, &places);
            let plan = plan(&release, record, &observed, self.settings.drift);
            *record = plan.record;
            self.tell_found(plugin, &plan.drifted, &plan.used);
            (facts.objects, facts.drifted) = (record.len(), plan.drifted.len());
            if plan.actions.is_empty() {
                let found = unhealthy(&release, &observed);
                facts.unhealthy = found.into_iter().map(|(id, health)| (id, health.clone())).collect();
                if plan.end == End::Done {
                    record.finish(&plugin.spec, &release);
                }
                self.save(pass.key(), record, saved).await?;
                return ended(engine, plan.end).await;
            }
            if corrects(&plan.actions) && self.limits.take(pass.key()).is_err() {
                self.save(pass.key(), record, saved).await?;
                return Ok(State::Waits(Waits {
                    reason: "ChangedOften",
                    message:
                        "its objects are changed again and again by somebody else: it waits before it corrects them"
                            .to_owned(),
                }));
            }
            // Before anything is created, so that no crash leaves something behind.
            if !saved.0.as_ref().is_some_and(|saved| record.is_kept_by(saved)) {
                self.save(pass.key(), record, saved).await?;
            }
            let performed = engine.perform(&name, plan.actions, record).await;
            self.tell(plugin, &performed);
            if !performed.problems.is_empty() {
                self.save(pass.key(), record, saved).await?;
                return Err(PluginError::Problems(performed.problems));
            }
        }
        Ok(State::Waits(Waits {
            reason: "Changing",
            message: "its objects are changed again and again by somebody else".to_owned(),
        }))
    }

    /// Removes everything of a plugin that the cloud does not list any more, and then the memory of it.
    async fn remove(&self, pass: &mut Pass, inventory: &PluginInventory) -> Result<Next, PluginError> {
        pass.about(inventory.object_ref(&()));
        let record = Record::read(&inventory.spec);
        let identity = record.identity(inventory);
        self.wait_for_dependents(pass.key(), &identity, &record)?;
        let engine = self.engines.of(&identity)?;
        let removed = engine.remove(inventory).await?;
        self.followed.add_all(&engine.cluster, &removed.places);
        for (id, what) in &removed.kept {
            self.events.publish(&inventory.object_ref(&()), kept(id, what));
        }
        if let Some(waits) = removed.waits {
            return Err(PluginError::Problems(vec![Problem {
                reason: "RemovalWaits",
                note: waits.message,
                passes: true,
            }]));
        }
        self.writer.delete::<PluginInventory>(&inventory.metadata).await?;
        Ok(Next::UntilChanged)
    }

    async fn save(&self, key: &Key, record: &Record, saved: &mut Saved) -> Result<(), WriteError> {
        let spec = record.write();
        if saved.0.as_ref() == Some(&spec) {
            return Ok(());
        }
        // An apply of an empty spec would make it null, which the schema refuses.
        if spec == PluginInventorySpec::default() {
            if let Some(known) = self.inventories.get(key) {
                self.writer.delete::<PluginInventory>(&known.metadata).await?;
            }
            saved.0 = None;
            return Ok(());
        }
        let desired = PluginInventory {
            metadata: ObjectMeta {
                name: Some(key.name().to_owned()),
                namespace: key.namespace().map(str::to_owned),
                ..ObjectMeta::default()
            },
            spec: spec.clone(),
        };
        match saved.0 {
            None => drop(self.writer.apply_new(&desired, |_| true).await?),
            Some(_) => drop(self.writer.apply(&desired, None).await?),
        }
        saved.0 = Some(spec);
        Ok(())
    }

    /// Writes the history and the status, also when the pass failed.
    async fn report(
        &self,
        plugin: &Plugin,
        record: &Record,
        mut facts: Facts,
        end: Result<State, PluginError>,
    ) -> Result<Next, PluginError> {
        let applies = record.applied_version() == plugin.spec.version;
        facts.state = match &end {
            Ok(state) => state.clone(),
            // What is applied stays so while the cloud is away.
            Err(PluginError::Cloud(_)) if applies => return end.map(|_| Next::UntilChanged),
            Err(error) => match error.problem() {
                Some(problem) => State::Keeps(problem),
                None => return end.map(|_| Next::UntilChanged),
            },
        };
        record.applied_version().clone_into(&mut facts.applied_version);
        record.revision().clone_into(&mut facts.revision);
        let before = plugin.status.clone().unwrap_or_default();
        let after = status(&facts, &before, plugin.metadata.generation, self.clock.now());
        self.board.set(&Key::of(plugin), &after);
        self.write_status(plugin, record, before, after).await?;
        match end? {
            State::Applied if facts.unhealthy.is_empty() => Ok(Next::After(jittered(REFRESH, JITTER))),
            State::Waits(waits) if waits.reason == "Prerequisites" => Ok(Next::Pending(CATCH_UP)),
            _ => Ok(Next::Pending(WAIT)),
        }
    }

    async fn write_status(
        &self,
        plugin: &Plugin,
        record: &Record,
        before: PluginStatus,
        after: PluginStatus,
    ) -> Result<(), WriteError> {
        let mut seen = plugin.metadata.clone();
        let history = json!(record.history()).to_string();
        let annotations = plugin.metadata.annotations.as_ref();
        let known = annotations.and_then(|annotations| annotations.get(PLUGIN_HISTORY_ANNOTATION));
        if !record.history().is_empty() && known != Some(&history) {
            let patch = json!({"metadata": {"annotations": {PLUGIN_HISTORY_ANNOTATION: history}}});
            seen = self.writer.patch::<Plugin>(&seen, patch).await?;
        }
        if before != after {
            let mut desired = Plugin::new("", plugin.spec.clone());
            desired.status = Some(after);
            self.writer.apply_status(&desired, &seen).await?;
        }
        Ok(())
    }

    fn tell(&self, plugin: &Plugin, performed: &Performed) {
        let about = plugin.object_ref(&());
        self.board.correct(performed.corrected.len());
        for id in &performed.corrected {
            let note = format!("{id} was changed or deleted, and is as the plugin says again");
            self.events
                .publish(&about, Notice::normal("DriftCorrected", "Apply", note));
        }
        for (id, what) in &performed.kept {
            self.events.publish(&about, kept(id, what));
        }
    }

    fn tell_found(&self, plugin: &Plugin, drifted: &[ObjectId], used: &[ObjectId]) {
        let about = plugin.object_ref(&());
        for id in drifted {
            let note =
                format!("{id} was changed or deleted. pluginDrift is report: it is left so until the next version.");
            self.events
                .publish(&about, Notice::warning("DriftFound", "Apply", note));
        }
        for id in used {
            let note =
                format!("{id} exists and is not of this plugin: it is used as it is, and stays when the plugin goes");
            self.events
                .publish(&about, Notice::normal("ForeignObject", "Apply", note));
        }
    }
}

async fn ended(engine: &Engine, end: End) -> Result<State, PluginError> {
    match end {
        End::Done => Ok(State::Applied),
        End::Waits(waits) => Ok(State::Waits(waits)),
        End::Problems(problems) => Err(PluginError::Problems(problems)),
        End::JobFailed(job) => {
            let tail = engine.cluster.log_tail(&job).await;
            Err(Problem::job_failed(&job, tail.as_deref()).into())
        }
    }
}

/// Whether any of the actions undoes what somebody did.
fn corrects(actions: &[Vec<Action<'_>>]) -> bool {
    actions
        .iter()
        .flatten()
        .any(|action| matches!(action, Action::Apply { drift: true, .. }))
}

fn kept(id: &ObjectId, what: &str) -> Notice {
    let note = format!(
        "{id} stays, because it has {what}, which is not of the plugin. Delete it when nothing in it is needed any more."
    );
    Notice::warning("ObjectKept", "Delete", note)
}
