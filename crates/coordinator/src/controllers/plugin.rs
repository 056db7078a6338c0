//! Plugin controller: applies the manifests of each Plugin, removes what they do not have any more, and says how it is.
//!
//! - The cloud decides. A Plugin that the cloud does not list has no effect, and one that somebody deletes in the
//!   cluster loses nothing.
//! - One pass observes, plans and writes until nothing is left to do or something has to be waited for. It waits for
//!   nothing itself, so that a plugin that hangs delays no other.
//! - An object is in the inventory before it is created, and only objects with the label of the plugin are changed or
//!   deleted.
//! - A version with a refused object is not applied at all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource as _;
use kube::core::ObjectMeta;
use serde_json::json;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::{PluginInventory, PluginInventorySpec};
use tidewaiter_cloud::models::values::PluginId;
use tidewaiter_kit::{
    Backoff, Backoffs, Cache, Events, Key, Next, Notice, Pass, Reconciler, SharedClock, WriteError, WriteLimits, Writer,
};

mod account;
mod approval;
mod board;
mod by_plugin;
mod claim;
mod cluster;
mod depends;
mod diff;
mod engine;
mod engines;
mod fetch;
mod follow;
mod gate;
mod health;
mod health_check;
mod job;
mod kubectl;
mod look;
mod namespaces;
mod object;
mod observed;
mod order;
mod plan;
mod problem;
mod proposal;
mod record;
mod refused;
mod release;
mod removal;
mod render;
mod report;
mod reported;
mod requests;
mod scope;
mod sent;
mod settings;
mod start;
mod status;
mod store;
mod takeover;
mod tier;
mod trust;
mod wake;

pub use account::PluginAccount;
pub use approval::{Approval, PluginApproval};
pub use by_plugin::ByPlugin;
pub use diff::{DIFF_KEY, Difference, ObjectChange, Operation, PluginDiff};
pub use namespaces::PluginNamespaces;
pub(crate) use problem::PluginError;
pub(crate) use removal::PluginRemoval;
pub use settings::{PluginDrift, PluginSettings, PluginSync};
pub(super) use start::start;

use super::listed::Listed;
use board::Board;
use claim::Claimant;
use depends::Waiting;
use engine::Engine;
use engines::Engines;
use fetch::Manifests;
use follow::Followed;
use gate::{Goal, Rendered, Work};
use observed::{Observed, unhealthy};
use plan::{Action, End, Waits, plan};
use problem::Problem;
use record::{Record, changes};
use report::{CHANGED_OFTEN, kept};
use reported::Reported;
use status::{Facts, State};
use store::Store;
use wake::Wakes;

/// Until a cache shows what was written.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Between two looks at something that a plugin waits for, when no watch shows it.
const WAITS: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// The number of times that one pass may observe and write: each job is one of them.
const ROUNDS: usize = 100;

struct PluginController {
    settings: PluginSettings,
    manifests: Manifests,
    plugins: Listed<Plugin>,
    inventories: Cache<PluginInventory>,
    engines: Engines,
    store: Store,
    rendered: Rendered,
    waiting: Waiting,
    followed: Followed,
    wakes: Wakes,
    reported: Reported,
    /// The time that each plugin has waited without a change.
    waits: Backoffs<Key>,
    writer: Writer,
    events: Events,
    clock: SharedClock,
    /// Limits the corrections of each plugin's objects.
    limits: WriteLimits,
    /// Limits the renderings of each plugin's diff.
    renders: WriteLimits,
    board: Board,
}

/// The inventory as it is in the cluster, with the metadata of its last write: the cache may not show that yet.
struct Saved(Option<(PluginInventorySpec, ObjectMeta)>);

impl Reconciler for PluginController {
    const NAME: &'static str = "plugin";
    type Error = PluginError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, PluginError> {
        let key = pass.key().clone();
        self.wakes.begins(&key);
        self.followed.begins(key.name());
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
            self.followed.forget(key.name());
            self.store.tidy(&self.writer, key.name(), &BTreeSet::new()).await?;
            return Ok(Next::UntilChanged);
        }
        let plugin = self.plugins.get(key.name());
        if let Some(inventory) = inventory
            .as_ref()
            .filter(|_| plugin.is_none() || !self.plugins.is_current())
        {
            let copy = self.plugins.copies().get(&key);
            return self.keep_known(pass, copy.as_deref(), inventory).await;
        }
        let Some(mut plugin) = plugin.map(Arc::unwrap_or_clone) else {
            return Ok(Next::UntilChanged);
        };
        if !self.settings.sync.includes(&plugin.spec.type_) {
            self.forget(&key);
            self.followed.forget(key.name());
            return Ok(Next::UntilChanged);
        }
        pass.about(plugin.object_ref(&()));
        let mut record = match &inventory {
            Some(inventory) => Record::read(&inventory.spec),
            None => Record::of_stored(self.store.recall(key.name()).await?),
        };
        let mut saved = Saved(inventory.map(|inventory| (inventory.spec.clone(), inventory.metadata.clone())));
        let mut facts = Facts::of(&record);
        let mut work = Work {
            plugin: &mut plugin,
            record: &mut record,
            saved: &mut saved,
            facts: &mut facts,
        };
        let end = self.bring(pass, id, &mut work).await;
        if end.is_ok() {
            self.followed.succeeds(key.name());
        }
        self.report(&plugin, &record, facts, end).await
    }
}

impl PluginController {
    /// Observes the objects of the version, and those that were applied before. They are watched from now on.
    async fn observe(&self, goal: &Goal, record: &Record) -> Result<Observed, PluginError> {
        let Goal { identity, release, .. } = goal;
        let engine = self.engines.of(identity)?;
        let claimant = Claimant {
            plugin: &goal.spec.id,
            record,
            is_gone: &|plugin| self.is_gone(plugin),
        };
        let key = Key::namespaced(CONTAINERSHIP_NAMESPACE, &goal.spec.id);
        self.wakes.observes(&key, record.lacks(release));
        let observed = engine.observe(release, claimant).await;
        let (observed, places) = observed.map_err(PluginError::Read)?;
        scope::check(release, &observed)
            .and_then(|()| namespaces::check(&self.settings.namespaces, identity, release, &observed))
            .map_err(|refused| goal.refused(record, &refused))?;
        // A watch that begins wakes the plugin.
        self.wakes.obstructed(&key, observed.obstacles());
        self.followed.add_all(&goal.spec.id, &engine.cluster, &places);
        Ok(observed)
    }

    /// Applies the version as far as possible, beginning with what was observed. The facts are filled as far as they
    /// are known.
    async fn pursue(
        &self,
        key: &Key,
        goal: &Goal,
        observed: Observed,
        work: &mut Work<'_>,
    ) -> Result<State, PluginError> {
        let Goal { identity, release, .. } = goal;
        let Work {
            plugin,
            record,
            saved,
            facts,
        } = work;
        let (engine, name) = (self.engines.of(identity)?, key.name());
        let mut known = Some(observed);
        for _ in 0..ROUNDS {
            let observed = match known.take() {
                Some(observed) => observed,
                None => self.observe(goal, record).await?,
            };
            let plan = plan(release, record, &observed, self.settings.drift);
            **record = plan.record;
            self.tell_found(plugin, &plan.drifted, &plan.used);
            self.tell_left(name, &plugin.object_ref(&()), &plan.left);
            (facts.objects, facts.drifted) = (record.len(), plan.drifted.len());
            if plan.actions.is_empty() {
                let found = unhealthy(release, &observed);
                facts.unhealthy = found.into_iter().map(|(id, health)| (id, health.clone())).collect();
                if plan.end == End::Done {
                    record.finish(&goal.spec, release);
                }
                self.save(key, record, saved).await?;
                return ended(engine, plan.end).await;
            }
            if corrects(&plan.actions) && self.limits.take(key).is_err() {
                self.save(key, record, saved).await?;
                return Ok(State::Waits(Waits {
                    reason: CHANGED_OFTEN,
                    message:
                        "its objects are changed again and again by somebody else: it waits before it corrects them"
                            .to_owned(),
                }));
            }
            // Before anything is created, so that no crash leaves something behind.
            if !saved.0.as_ref().is_some_and(|(saved, _)| record.is_kept_by(saved)) {
                self.save(key, record, saved).await?;
            }
            let only_namespaces = plan.actions.iter().flatten().all(Action::creates_namespace);
            let writes = engine.perform(name, plan.actions, record);
            let performed = self.write(writes, plugin, &goal.spec.version, facts).await;
            self.tell(plugin, &performed);
            if !performed.failed.is_empty() {
                self.save(key, record, saved).await?;
                return Err(PluginError::Problems(performed.problems()));
            }
            known = only_namespaces.then(|| performed.with_namespaces(observed));
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
        self.followed
            .add_all(pass.key().name(), &engine.cluster, &removed.places);
        for (id, what) in &removed.kept {
            self.events.publish(&inventory.object_ref(&()), kept(id, what));
        }
        if !removed.problems.is_empty() {
            for problem in removed.problems.iter().skip(1) {
                let notice = Notice::warning(problem.reason, "Delete", problem.note.clone());
                self.events.publish(&inventory.object_ref(&()), notice);
            }
            return Err(PluginError::Problems(removed.problems));
        }
        if let Some(waits) = removed.waits {
            return Err(PluginError::Problems(vec![Problem {
                reason: "RemovalWaits",
                note: waits.message,
                passes: true,
            }]));
        }
        self.tell_left(pass.key().name(), &inventory.object_ref(&()), &removed.left);
        self.store
            .tidy(&self.writer, pass.key().name(), &BTreeSet::new())
            .await?;
        self.writer.delete::<PluginInventory>(&inventory.metadata).await?;
        Ok(Next::UntilChanged)
    }

    /// The plugin is gone.
    fn forget(&self, key: &Key) {
        self.manifests.forget(key.name());
        self.store.forget(key.name());
        self.rendered.forget(key);
        self.waits.reset(key);
        self.wakes.forget(key);
        self.reported.forget(key);
        self.board.remove(key);
        self.waiting.set(key, false);
        self.limits.forget(key);
        self.renders.forget(key);
    }

    async fn save(&self, key: &Key, record: &Record, saved: &mut Saved) -> Result<(), WriteError> {
        let spec = record.write();
        if saved.0.as_ref().is_some_and(|(saved, _)| *saved == spec) {
            return Ok(());
        }
        // There is nothing to remember.
        if spec == PluginInventorySpec::default() {
            if let Some((_, known)) = saved.0.take() {
                self.writer.delete::<PluginInventory>(&known).await?;
            }
            return Ok(());
        }
        // As JSON, because the API server parses an apply as YAML, and one with 500 objects takes it 20 ms.
        let written = match &saved.0 {
            None => self.writer.create(&inventory(key, &spec)).await?,
            Some((before, known)) => {
                let patch = json!({"spec": changes(before, &spec)});
                self.writer.patch::<PluginInventory>(known, patch).await?
            }
        };
        saved.0 = Some((spec, written));
        Ok(())
    }
}

fn inventory(key: &Key, spec: &PluginInventorySpec) -> PluginInventory {
    PluginInventory {
        metadata: ObjectMeta {
            name: Some(key.name().to_owned()),
            namespace: key.namespace().map(str::to_owned),
            ..ObjectMeta::default()
        },
        spec: spec.clone(),
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

/// Returns true if any of the actions undoes what somebody did.
fn corrects(actions: &[Vec<Action<'_>>]) -> bool {
    actions
        .iter()
        .flatten()
        .any(|action| matches!(action, Action::Apply { drift: true, .. }))
}
