//! Performs what a plan says, for the controller and for the removal of everything.

use kube::Error;

use super::claim::Claimant;
use super::cluster::{Cluster, Place, Written};
use super::object::{Object, ObjectId};
use super::observed::{Claim, Live, Observed, Seen};
use super::plan::Action;
use super::problem::{Problem, is_immutable};
use super::record::Record;
use super::release::Release;
use super::requests;
use super::tier::tiers;

/// Applies and removes the objects of plugins.
pub(super) struct Engine {
    pub(super) cluster: Cluster,
}

/// The outcomes of the actions of a plan.
#[derive(Default)]
pub(super) struct Performed {
    /// Objects that could not be written, and why.
    pub(super) failed: Vec<(ObjectId, Problem)>,
    /// Objects that somebody had changed, and that are as they should be again.
    pub(super) corrected: Vec<ObjectId>,
    /// Objects that became the plugin's.
    pub(super) adopted: Vec<(ObjectId, Claim)>,
    /// Namespaces and definitions that stay, and what is in them.
    pub(super) kept: Vec<(ObjectId, String)>,
    /// The applied objects.
    applied: Vec<(ObjectId, Written)>,
}

impl Performed {
    pub(super) fn problems(self) -> Vec<Problem> {
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
    pub(super) fn with_namespaces(self, mut observed: Observed) -> Observed {
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

impl Engine {
    pub(super) async fn observe(
        &self,
        release: &Release,
        claimant: Claimant<'_>,
    ) -> Result<(Observed, Vec<Place>), Error> {
        self.cluster.observe(release, claimant).await
    }

    /// Performs the actions, group after group and tier after tier, and records what was applied. A failure ends it
    /// after its group.
    pub(super) async fn perform(&self, plugin: &str, actions: Vec<Vec<Action<'_>>>, record: &mut Record) -> Performed {
        let mut performed = Performed::default();
        for group in actions {
            for tier in tiers(group) {
                let acts = tier.into_iter().map(|action| self.act(plugin, action, record));
                let outcomes = requests::write(acts).await;
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
                    && let Err(error) = self.cluster.move_fields(&id, object, uid).await
                {
                    return self.failed("apply", id, &error);
                }
                self.apply(id, object, uid, drift, claim).await
            }
            Action::Run { id, object } => self.apply(id, object, None, false, None).await,
            Action::Delete { id, uid } => {
                let version = record.version(&id).unwrap_or_default().to_owned();
                self.delete(plugin, id, &version, &uid).await
            }
        }
    }

    async fn apply(
        &self,
        id: ObjectId,
        object: &Object,
        uid: Option<String>,
        drift: bool,
        claim: Option<Claim>,
    ) -> Outcome {
        match self.cluster.apply(&id, object, uid.as_deref()).await {
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
                let deleted = self
                    .cluster
                    .delete(&id, &object.version, &uid.unwrap_or_default())
                    .await;
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
    async fn delete(&self, plugin: &str, id: ObjectId, version: &str, uid: &str) -> Outcome {
        let kept = match (id.is_prerequisite(), id.kind.as_str()) {
            (true, "Namespace") => self.cluster.occupant(&id.name, plugin).await,
            (true, _) => self.cluster.instance(&id, plugin).await,
            (false, _) => Ok(None),
        };
        let deleted = match kept {
            Ok(Some(what)) => return Outcome::Kept(id, what),
            Ok(None) => self.cluster.delete(&id, version, uid).await,
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => Outcome::Deleted(id),
            Err(error) => self.failed("delete", id, &error),
        }
    }

    fn failed(&self, verb: &str, id: ObjectId, error: &Error) -> Outcome {
        let problem = Problem::failed(verb, &id, error, self.cluster.account.as_ref());
        Outcome::Failed(id, problem)
    }
}
