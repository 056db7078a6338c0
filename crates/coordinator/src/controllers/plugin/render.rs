//! Renders what a version would change: by a server-side dry run of each write, as the plugin's service account,
//! against the live object.

use kube::Error;
use serde_json::Value;

use super::diff::{
    Difference, ObjectChange, Operation, PluginDiff, differences, differences_of, placed, plain, projected,
};
use super::engine::Engine;
use super::object::{Object, ObjectId};
use super::problem::{Problem, is_immutable};
use super::proposal::{Applied, Step};
use super::requests;

const REPLACED: &str = "a field cannot be changed: it is deleted and created again; shown as in the manifests";
const NO_DRY_RUN: &str = "an admission webhook permits no dry run: shown as in the manifests";

impl Engine {
    /// The diff of the steps. Objects that they leave as they are are not in it.
    pub(super) async fn render(
        &self,
        version: &str,
        revision: &str,
        steps: Vec<Step<'_>>,
    ) -> Result<PluginDiff, Vec<Problem>> {
        let numbered = steps.into_iter().enumerate();
        let renders = numbered.map(|(place, step)| async move { (place, self.change(step).await) });
        let mut rendered = requests::write(renders).await;
        rendered.sort_by_key(|(place, _)| *place);
        let (mut changes, mut problems) = (Vec::new(), Vec::new());
        for (_, change) in rendered {
            match change {
                Ok(change) => changes.extend(change),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(PluginDiff {
            version: version.to_owned(),
            revision: revision.to_owned(),
            changes,
            digest_of_all: None,
        })
    }

    async fn change(&self, step: Step<'_>) -> Result<Option<ObjectChange>, Problem> {
        match step {
            Step::Apply(applied) => match applied.live {
                Some(live) => self.changed(&applied, &live.uid).await,
                None => self.created(&applied, Operation::Create).await.map(Some),
            },
            Step::Run(applied) => self.created(&applied, Operation::Run).await.map(Some),
            Step::Delete { id } => Ok(Some(change(Operation::Delete, &id, "", Vec::new()))),
            Step::Blocked { id, why } => Ok(Some(change(Operation::Blocked, &id, &why, Vec::new()))),
        }
    }

    async fn created(&self, applied: &Applied<'_>, operation: Operation) -> Result<ObjectChange, Problem> {
        let Applied { id, object, .. } = applied;
        let manifest = self.manifest(id, object)?;
        let (after, note) = match applied.unrendered {
            Some(why) => (manifest, why),
            None => match self.cluster.dry_run(id, object, None).await {
                Ok(rendered) => (projected(&rendered, &manifest), ""),
                Err(error) if permits_no_dry_run(&error) => (manifest, NO_DRY_RUN),
                Err(error) => return Err(self.problem(id, &error)),
            },
        };
        let whole = Difference {
            path: String::new(),
            before: None,
            after: Some(after),
        };
        Ok(change(operation, id, note, vec![whole]))
    }

    async fn changed(&self, applied: &Applied<'_>, uid: &str) -> Result<Option<ObjectChange>, Problem> {
        let Applied { id, object, .. } = applied;
        let live = self.cluster.get(id, &object.version).await;
        let live = live.map_err(|error| self.problem(id, &error))?;
        let live = live.filter(|live| live["metadata"]["uid"] == uid).map(plain);
        let live = live.ok_or_else(|| Problem {
            reason: "ApplyFailed",
            note: format!("{id} was deleted while its diff was made. It is tried again."),
            passes: true,
        })?;
        let as_in_manifest = || Ok(differences_of(&live, &self.manifest(id, object)?));
        let (found, mut note) = match applied.unrendered {
            Some(why) => (as_in_manifest()?, why.to_owned()),
            None => match self.cluster.dry_run(id, object, Some(uid)).await {
                Ok(rendered) => (differences(&live, &plain(rendered)), String::new()),
                Err(error) if object.replaces && is_replaced(&error) => (as_in_manifest()?, REPLACED.to_owned()),
                Err(error) if permits_no_dry_run(&error) => (as_in_manifest()?, NO_DRY_RUN.to_owned()),
                Err(error) => return Err(self.problem(id, &error)),
            },
        };
        if let Some(claim) = applied.claim {
            let also = if note.is_empty() { "" } else { "; " };
            note = format!("becomes an object of the plugin: {claim}{also}{note}");
        }
        Ok((!found.is_empty()).then(|| change(Operation::Change, id, &note, found)))
    }

    fn manifest(&self, id: &ObjectId, object: &Object) -> Result<Value, Problem> {
        let manifest = object.manifest.value().map_err(Error::SerdeError);
        let manifest = manifest.map_err(|error| self.problem(id, &error))?;
        Ok(plain(placed(&manifest, &id.namespace)))
    }

    fn problem(&self, id: &ObjectId, error: &Error) -> Problem {
        Problem::failed("apply", id, error, self.cluster.account.as_ref())
    }
}

fn change(operation: Operation, id: &ObjectId, note: &str, differences: Vec<Difference>) -> ObjectChange {
    ObjectChange {
        operation,
        object: id.to_string(),
        secret: id.is_secret(),
        note: note.to_owned(),
        differences,
    }
}

fn is_replaced(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 422 && is_immutable(&status.message))
}

/// Returns true if a webhook is in the way that has side effects. Source: `NewDryRunUnsupportedErr` of the API server.
fn permits_no_dry_run(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 400 && status.message.contains("does not support dry run"))
}

/// The rendered diff as it is stored, without the differences if they are larger than that.
pub(super) fn packed(diff: &PluginDiff, most: usize) -> Vec<u8> {
    let packed = diff.pack();
    if packed.len() <= most {
        packed
    } else {
        diff.clone().without_differences().pack()
    }
}
