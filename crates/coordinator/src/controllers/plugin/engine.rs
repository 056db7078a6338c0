//! Performs what a plan says, for the controller and for the removal of everything.

use kube::Error;

use super::cluster::{Cluster, Place, Written};
use super::object::{Object, ObjectId};
use super::observed::{Live, Observed, Seen};
use super::plan::Action;
use super::problem::{Problem, is_immutable};
use super::record::Record;
use super::release::Release;
use super::requests;

/// Applies and removes the objects of plugins.
pub(super) struct Engine {
    pub(super) cluster: Cluster,
}

/// What became of the actions of a plan.
#[derive(Default)]
pub(super) struct Performed {
    pub(super) problems: Vec<Problem>,
    /// Objects that somebody had changed, and that are as they should be again.
    pub(super) corrected: Vec<ObjectId>,
    /// Namespaces and definitions that stay, and what is in them.
    pub(super) kept: Vec<(ObjectId, String)>,
    /// What was applied.
    applied: Vec<(ObjectId, Written)>,
}

impl Performed {
    /// What there is after nothing but namespaces was created: they are ready at once, and nothing is in them.
    pub(super) fn with_namespaces(self, mut observed: Observed) -> Observed {
        for (id, Written { uid, fields }) in self.applied {
            observed.seen.insert(id, Seen::Ours(Live::created(uid, fields)));
        }
        observed
    }
}

/// What became of one action.
enum Outcome {
    Applied {
        id: ObjectId,
        digest: String,
        written: Written,
        drift: bool,
    },
    Deleted,
    Kept(ObjectId, String),
    Failed(Problem),
}

impl Engine {
    pub(super) async fn observe(
        &self,
        plugin: &str,
        release: &Release,
        record: &Record,
    ) -> Result<(Observed, Vec<Place>), Error> {
        self.cluster.observe(plugin, release, record).await
    }

    /// Performs the actions, group after group, and records what was applied. A failure ends it after its group.
    pub(super) async fn perform(&self, plugin: &str, actions: Vec<Vec<Action<'_>>>, record: &mut Record) -> Performed {
        let mut performed = Performed::default();
        for group in actions {
            let acts = group.into_iter().map(|action| self.act(plugin, action, record));
            let outcomes = requests::write(acts).await;
            for outcome in outcomes {
                match outcome {
                    Outcome::Applied {
                        id,
                        digest,
                        written,
                        drift,
                    } => {
                        record.apply(&id, &digest, written.fields.clone());
                        performed.corrected.extend(drift.then(|| id.clone()));
                        performed.applied.push((id, written));
                    }
                    Outcome::Deleted => {}
                    Outcome::Kept(id, what) => {
                        record.forget(&id);
                        performed.kept.push((id, what));
                    }
                    Outcome::Failed(problem) => performed.problems.push(problem),
                }
            }
            if !performed.problems.is_empty() {
                break;
            }
        }
        performed
    }

    async fn act(&self, plugin: &str, action: Action<'_>, record: &Record) -> Outcome {
        match action {
            Action::Apply { id, object, uid, drift } => self.apply(id, object, uid, drift).await,
            Action::Run { id, object } => self.apply(id, object, None, false).await,
            Action::Delete { id, uid } => {
                let version = record.version(&id).unwrap_or_default().to_owned();
                self.delete(plugin, id, &version, &uid).await
            }
        }
    }

    async fn apply(&self, id: ObjectId, object: &Object, uid: Option<String>, drift: bool) -> Outcome {
        match self.cluster.apply(&id, object, uid.as_deref()).await {
            Ok(written) => Outcome::Applied {
                id,
                digest: object.digest.clone(),
                written,
                drift,
            },
            Err(Error::Api(status)) if object.replaces && status.code == 422 && is_immutable(&status.message) => {
                let deleted = self
                    .cluster
                    .delete(&id, &object.version, &uid.unwrap_or_default())
                    .await;
                match deleted {
                    // It is created again when it is gone.
                    Ok(()) => Outcome::Deleted,
                    Err(error) => self.failed("replace", &id, &error),
                }
            }
            Err(error) => self.failed("apply", &id, &error),
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
            Ok(()) => Outcome::Deleted,
            Err(error) => self.failed("delete", &id, &error),
        }
    }

    fn failed(&self, verb: &str, id: &ObjectId, error: &Error) -> Outcome {
        Outcome::Failed(Problem::failed(verb, id, error, self.cluster.account.as_ref()))
    }
}
