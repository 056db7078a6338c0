//! Applies a version: observes, plans and writes until nothing is left to do or something has to be waited for.
//!
//! An object is in the inventory before it is created. Few requests of one plugin are under way at first, and one more
//! with each that ends. Reads begin with more, because admission webhooks do not keep them waiting. A plugin whose
//! requests hang, at a webhook for example, takes few permits from the other plugins. One whose requests are answered
//! gets enough permits to keep the API server busy.

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt as _};
use kube::{Error, Resource as _};
use tidewaiter_api::PluginInventory;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::{Cache, Key, WriteLimits};

use super::claim::Claimant;
use super::follow::Followed;
use super::observe::{Claim, Live, Observed, Seen, check_scope, unhealthy};
use super::plan::{Action, End, Waits, plan, tiers};
use super::remove::Removed;
use super::wake::Wakes;
use super::{Cluster, Clusters, Written};
use crate::controllers::listed::Listed;
use crate::controllers::plugin::desired::{Goal, Object, ObjectId, Record, Saved, Store};
use crate::controllers::plugin::report::{CHANGED_OFTEN, Facts, PluginError, Problem, Reporter, State, is_immutable};
use crate::controllers::plugin::settings::{Identity, PluginDrift};

/// The number of times that one pass may observe and write: each job is one of them.
const ROUNDS: usize = 100;

/// Applies the versions of plugins.
pub(crate) struct Applier {
    pub(crate) clusters: Clusters,
    pub(crate) plugins: Listed<Plugin>,
    pub(crate) inventories: Cache<PluginInventory>,
    pub(crate) drift: PluginDrift,
    pub(crate) followed: Followed,
    pub(crate) wakes: Wakes,
    /// Limits the corrections of each plugin's objects.
    pub(crate) limits: WriteLimits,
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Arc<Reporter>,
}

/// The state of a pass over a plugin.
pub(crate) struct Work {
    pub(crate) plugin: Plugin,
    pub(crate) record: Record,
    pub(crate) saved: Saved,
    pub(crate) facts: Facts,
}

impl Work {
    pub(crate) fn new(plugin: Plugin, record: Record, inventory: Option<&PluginInventory>) -> Self {
        Self {
            facts: Facts::of(&record),
            saved: Saved::of(inventory),
            plugin,
            record,
        }
    }
}

impl Applier {
    /// Observes the objects of the version, and those that were applied before. They are watched from now on.
    pub(crate) async fn observe(&self, goal: &Goal, record: &Record) -> Result<Observed, PluginError> {
        let Goal { identity, release, .. } = goal;
        let cluster = self.clusters.of(identity)?;
        let claimant = Claimant {
            plugin: &goal.spec.id,
            record,
            is_gone: &|plugin| self.is_gone(plugin),
        };
        let key = Key::namespaced(CONTAINERSHIP_NAMESPACE, &goal.spec.id);
        self.wakes.observes(&key, record.lacks(release));
        let observed = cluster.observe(release, claimant).await;
        let (observed, places) = observed.map_err(PluginError::Read)?;
        check_scope(release, &observed).map_err(|refused| goal.refused(record, &refused))?;
        // A watch that begins wakes the plugin.
        self.wakes.obstructed(&key, observed.obstacles());
        self.followed.add_all(&goal.spec.id, cluster, &places);
        Ok(observed)
    }

    /// Returns true if a plugin of this id exists no more: the cloud does not list it, and nothing is remembered of it.
    fn is_gone(&self, plugin: &str) -> bool {
        let key = Key::namespaced(CONTAINERSHIP_NAMESPACE, plugin);
        self.plugins.has_complete_list() && !self.plugins.retains(plugin) && self.inventories.get(&key).is_none()
    }

    /// Applies the version as far as possible, beginning with what was observed. The facts are filled as far as they
    /// are known.
    pub(crate) async fn apply(
        &self,
        key: &Key,
        goal: &Goal,
        observed: Observed,
        work: &mut Work,
    ) -> Result<State, PluginError> {
        let Goal { identity, release, .. } = goal;
        let Work {
            plugin,
            record,
            saved,
            facts,
        } = work;
        let (cluster, name) = (self.clusters.of(identity)?, key.name());
        let mut known = Some(observed);
        for _ in 0..ROUNDS {
            let observed = match known.take() {
                Some(observed) => observed,
                None => self.observe(goal, record).await?,
            };
            let plan = plan(release, record, &observed, self.drift);
            *record = plan.record;
            self.reporter.tell_found(plugin, &plan.drifted, &plan.used);
            self.reporter.tell_left(name, &plugin.object_ref(&()), &plan.left);
            (facts.objects, facts.drifted) = (record.len(), plan.drifted.len());
            if plan.actions.is_empty() {
                let found = unhealthy(release, &observed);
                facts.unhealthy = found.into_iter().map(|(id, health)| (id, health.clone())).collect();
                if plan.end == End::Done {
                    record.finish(&goal.spec, release);
                }
                self.store.save(key, record, saved).await?;
                return ended(cluster, plan.end).await;
            }
            if corrects(&plan.actions) && self.limits.take(key).is_err() {
                self.store.save(key, record, saved).await?;
                return Ok(State::Waits(Waits::new(
                    CHANGED_OFTEN,
                    "its objects are changed again and again by somebody else: it waits before it corrects them",
                )));
            }
            // Before anything is created, so that no crash leaves something behind.
            if !saved.keeps(record) {
                self.store.save(key, record, saved).await?;
            }
            let only_namespaces = plan.actions.iter().flatten().all(Action::creates_namespace);
            let writes = cluster.perform(name, plan.actions, record);
            let version = &goal.spec.version;
            let performed = self.reporter.report_slow(writes, plugin, version, facts).await;
            self.reporter.tell(plugin, &performed);
            if !performed.failed.is_empty() {
                self.store.save(key, record, saved).await?;
                return Err(PluginError::Problems(performed.problems()));
            }
            known = only_namespaces.then(|| performed.with_namespaces(observed));
        }
        Ok(State::Waits(Waits::new(
            "Changing",
            "its objects are changed again and again by somebody else",
        )))
    }

    /// Deletes the objects of the inventory, as far as nothing has to be waited for. They are watched until they are
    /// gone.
    pub(crate) async fn remove(&self, plugin: &Identity, inventory: &PluginInventory) -> Result<Removed, PluginError> {
        let cluster = self.clusters.of(plugin)?;
        let removed = cluster.remove(inventory).await?;
        self.followed.add_all(&plugin.id, cluster, &removed.places);
        Ok(removed)
    }
}

async fn ended(cluster: &Cluster, end: End) -> Result<State, PluginError> {
    match end {
        End::Done => Ok(State::Applied),
        End::Waits(waits) => Ok(State::Waits(waits)),
        End::Problems(problems) => Err(PluginError::Problems(problems)),
        End::JobFailed(job) => {
            let tail = cluster.log_tail(&job).await;
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

/// The outcomes of the actions of a plan.
#[derive(Default)]
pub(crate) struct Performed {
    /// Objects that could not be written, and why.
    pub(crate) failed: Vec<(ObjectId, Problem)>,
    /// Objects that somebody had changed, and that are as they should be again.
    pub(crate) corrected: Vec<ObjectId>,
    /// Objects that became the plugin's.
    pub(crate) adopted: Vec<(ObjectId, Claim)>,
    /// Namespaces and definitions that stay, and what is in them.
    pub(crate) kept: Vec<(ObjectId, String)>,
    /// The applied objects.
    applied: Vec<(ObjectId, Written)>,
}

impl Performed {
    pub(crate) fn problems(self) -> Vec<Problem> {
        self.failed.into_iter().map(|(_, problem)| problem).collect()
    }

    fn add(&mut self, outcome: Outcome, record: &mut Record) {
        match outcome {
            Outcome::Applied {
                id,
                digest,
                written,
                drift,
                claim,
            } => {
                record.apply(&id, &digest, written.fields.clone());
                self.corrected.extend(drift.then(|| id.clone()));
                self.adopted.extend(claim.map(|claim| (id.clone(), claim)));
                self.applied.push((id, written));
            }
            Outcome::Deleted(id) => record.rerun(&id),
            Outcome::Kept(id, what) => {
                record.forget(&id);
                self.kept.push((id, what));
            }
            Outcome::Failed(id, problem) => self.failed.push((id, problem)),
        }
    }

    /// The observation after nothing but namespaces was created: they are ready at once, and nothing is in them.
    pub(crate) fn with_namespaces(self, mut observed: Observed) -> Observed {
        for (id, Written { uid, fields }) in self.applied {
            observed.seen.insert(id, Seen::Ours(Live::created(uid, fields)));
        }
        observed
    }
}

/// The outcome of one action.
enum Outcome {
    Applied {
        id: ObjectId,
        digest: String,
        written: Written,
        drift: bool,
        claim: Option<Claim>,
    },
    Deleted(ObjectId),
    Kept(ObjectId, String),
    Failed(ObjectId, Problem),
}

impl Cluster {
    /// Performs the actions, group after group and tier after tier, and records what was applied. A failure ends it
    /// after its group.
    pub(crate) async fn perform(&self, plugin: &str, actions: Vec<Vec<Action<'_>>>, record: &mut Record) -> Performed {
        let mut performed = Performed::default();
        for group in actions {
            for tier in tiers(group) {
                let acts = tier.into_iter().map(|action| self.act(plugin, action, record));
                let outcomes = perform_writes(acts).await;
                for outcome in outcomes {
                    performed.add(outcome, record);
                }
            }
            if !performed.failed.is_empty() {
                break;
            }
        }
        performed
    }

    async fn act(&self, plugin: &str, action: Action<'_>, record: &Record) -> Outcome {
        match action {
            Action::Apply {
                id,
                object,
                uid,
                drift,
                claim,
                moves_fields,
            } => {
                if let Some(uid) = uid.as_deref().filter(|_| moves_fields)
                    && let Err(error) = self.move_fields(&id, object, uid).await
                {
                    return self.failed("apply", id, &error);
                }
                self.apply_to(id, object, uid, drift, claim).await
            }
            Action::Run { id, object } => self.apply_to(id, object, None, false, None).await,
            Action::Delete { id, uid } => {
                let version = record.version(&id).unwrap_or_default().to_owned();
                self.delete_unless_used(plugin, id, &version, &uid).await
            }
        }
    }

    async fn apply_to(
        &self,
        id: ObjectId,
        object: &Object,
        uid: Option<String>,
        drift: bool,
        claim: Option<Claim>,
    ) -> Outcome {
        match self.apply(&id, object, uid.as_deref()).await {
            Ok(written) => Outcome::Applied {
                id,
                digest: object.digest.clone(),
                written,
                drift,
                claim,
            },
            // One that is not the plugin's yet is not deleted.
            Err(Error::Api(status))
                if object.replaces && claim.is_none() && status.code == 422 && is_immutable(&status.message) =>
            {
                let deleted = self.delete(&id, &object.version, &uid.unwrap_or_default()).await;
                match deleted {
                    // It is created again when it is gone.
                    Ok(()) => Outcome::Deleted(id),
                    Err(error) => self.failed("replace", id, &error),
                }
            }
            Err(error) => self.failed("apply", id, &error),
        }
    }

    /// A namespace or a definition with objects of others stays.
    async fn delete_unless_used(&self, plugin: &str, id: ObjectId, version: &str, uid: &str) -> Outcome {
        let kept = match (id.is_prerequisite(), id.kind.as_str()) {
            (true, "Namespace") => self.occupant(&id.name, plugin).await,
            (true, _) => self.instance(&id, plugin).await,
            (false, _) => Ok(None),
        };
        let deleted = match kept {
            Ok(Some(what)) => return Outcome::Kept(id, what),
            Ok(None) => self.delete(&id, version, uid).await,
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => Outcome::Deleted(id),
            Err(error) => self.failed("delete", id, &error),
        }
    }

    fn failed(&self, verb: &str, id: ObjectId, error: &Error) -> Outcome {
        let problem = Problem::failed(verb, &id, error, self.account.as_ref());
        Outcome::Failed(id, problem)
    }
}

/// Writes at once before any has ended.
const FEW: usize = 4;
/// The limit of concurrent reads: a quarter of the permits of the controller.
const FEW_READS: usize = 8;
/// The most at once: three quarters of the permits of the controller.
const MOST: usize = 24;

/// Performs writes; the results come in any order.
pub(crate) async fn perform_writes<F: Future>(requests: impl Iterator<Item = F>) -> Vec<F::Output> {
    perform_all(requests, FEW).await
}

/// Performs reads; the results come in any order.
pub(crate) async fn perform_reads<F: Future>(requests: impl Iterator<Item = F>) -> Vec<F::Output> {
    perform_all(requests, FEW_READS).await
}

/// Each request is made when its turn comes.
async fn perform_all<F: Future>(mut waiting: impl Iterator<Item = F>, few: usize) -> Vec<F::Output> {
    let (mut under_way, mut results) = (FuturesUnordered::new(), Vec::new());
    let mut most = few;
    loop {
        under_way.extend(waiting.by_ref().take(most - under_way.len()));
        let Some(result) = under_way.next().await else {
            return results;
        };
        results.push(result);
        most = MOST.min(most + 1);
    }
}

#[cfg(test)]
mod tests;
