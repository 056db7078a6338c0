//! Renders what a version would change: by a server-side dry run of each write, as the plugin's service account,
//! against the live object.
//!
//! An approval names the digest of the diff. A diff is rendered when anything that decides about it changes, and from
//! time to time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Error;
use parking_lot::Mutex;
use serde_json::Value;
use tidewaiter_api::containership::PendingVersion;
use tidewaiter_kit::{Key, Notice, SharedClock, WriteError, WriteLimits};

use super::diff::{
    Difference, ObjectChange, Operation, PluginDiff, differences, differences_of, placed, plain, projected,
};
use super::fetch::REFRESH;
use super::proposal::{Applied, Step, proposal};
use super::record::Record;
use super::release::Release;
use super::store::Store;
use super::{Goal, Object, ObjectId};
use crate::controllers::plugin::cluster::{Claim, Cluster, Observed, Work, perform_writes};
use crate::controllers::plugin::report::{
    APPROVAL_NEEDED, PluginError, Problem, Reporter, approval_needed, is_immutable,
};
use crate::controllers::plugin::settings::PluginDrift;
use crate::digest::digest;

const REPLACED: &str = "a field cannot be changed: it is deleted and created again; shown as in the manifests";
const NO_DRY_RUN: &str = "an admission webhook permits no dry run: shown as in the manifests";

/// The diffs of the versions that await approval.
pub(crate) struct Proposals {
    /// By plugin, the diff that was rendered last.
    rendered: Mutex<BTreeMap<Key, Rendered>>,
    /// Limits the renderings of each plugin's diff.
    limits: WriteLimits,
    drift: PluginDrift,
    store: Arc<Store>,
    reporter: Arc<Reporter>,
    clock: SharedClock,
}

struct Rendered {
    /// Digest of the diff's inputs.
    fingerprint: String,
    /// The time (monotonic).
    at: Duration,
    pending: PendingVersion,
}

impl Proposals {
    pub(crate) fn new(drift: PluginDrift, store: Arc<Store>, reporter: Arc<Reporter>, clock: SharedClock) -> Self {
        Self {
            rendered: Mutex::default(),
            limits: WriteLimits::new(Arc::clone(&clock)),
            drift,
            store,
            reporter,
            clock,
        }
    }

    /// The plugin is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.discard(key);
        self.limits.forget(key);
    }

    /// The version is applied.
    pub(crate) fn discard(&self, key: &Key) {
        self.rendered.lock().remove(key);
    }

    /// The diff of the version as of now. It is rendered when anything that decides about it changes, and from time to
    /// time, or `anew`.
    pub(crate) async fn propose(
        &self,
        key: &Key,
        cluster: &Cluster,
        goal: &Goal,
        observed: &Observed,
        work: &Work,
        anew: bool,
    ) -> Result<PendingVersion, PluginError> {
        let steps = proposal(&goal.release, &work.record, observed, self.drift);
        let (fingerprint, now) = (fingerprint(&goal.release, &steps), self.clock.monotonic());
        let last = self.last(key, &goal.release.revision, &fingerprint);
        if let Some((pending, is_current)) = last.filter(|_| !anew) {
            let is_shown = self.store.has_diff(&goal.spec.id);
            if (is_current && is_shown) || self.limits.take(key).is_err() {
                return Ok(pending);
            }
        }
        let diff = cluster.render(&goal.spec.version, &goal.release.revision, steps).await;
        let diff = diff.map_err(PluginError::Problems)?;
        let pending = diff.pending();
        if !is_applied(&pending, work) {
            self.show(&diff, &pending, work).await?;
        }
        let rendered = Rendered {
            fingerprint,
            at: now,
            pending: pending.clone(),
        };
        self.rendered.lock().insert(key.clone(), rendered);
        Ok(pending)
    }

    /// Returns true if the version would change objects that the Go coordinator applied from the same manifests:
    /// somebody has changed them since, which it did not undo. One whose change cannot be rendered counts as changed:
    /// the whole diff says why.
    pub(crate) async fn changes_inherited(
        &self,
        key: &Key,
        cluster: &Cluster,
        goal: &Goal,
        observed: &Observed,
        record: &Record,
    ) -> bool {
        let Goal { release, spec, .. } = goal;
        let mut steps = proposal(release, record, observed, self.drift);
        let last = self.last(key, &release.revision, &fingerprint(release, &steps));
        if last.is_some_and(|(_, is_current)| is_current) {
            // These steps await approval already.
            return true;
        }
        let is_inherited = |step: &Step<'_>| match step {
            Step::Apply(Applied { claim, live, .. }) => {
                *claim == Some(&Claim::Inherited) || live.is_some_and(|live| live.is_labelled_by_kubectl)
            }
            _ => false,
        };
        steps.retain(is_inherited);
        if steps.is_empty() {
            return false;
        }
        let diff = cluster.render(&spec.version, &release.revision, steps).await;
        diff.map_or(true, |diff| !diff.changes.iter().all(ObjectChange::is_label_of_plugin))
    }

    /// The last diff of the revision, and true if it is still up to date.
    fn last(&self, key: &Key, revision: &str, fingerprint: &str) -> Option<(PendingVersion, bool)> {
        let (all, now) = (self.rendered.lock(), self.clock.monotonic());
        let last = all.get(key).filter(|last| last.pending.revision == revision)?;
        let is_current = last.fingerprint == fingerprint && now < last.at + REFRESH / 2;
        Some((last.pending.clone(), is_current))
    }

    /// Stores the diff for its approver, and publishes an Event once.
    async fn show(&self, diff: &PluginDiff, pending: &PendingVersion, work: &Work) -> Result<(), WriteError> {
        let known = work.plugin.status.as_ref().and_then(|status| status.pending.as_ref());
        let is_new = known.is_none_or(|known| known.digest != pending.digest);
        self.store.put_diff(&work.plugin.spec.id, diff, is_new).await?;
        if is_new {
            let notice = Notice::normal(APPROVAL_NEEDED, "Approve", approval_needed(pending));
            self.reporter.publish(&work.plugin, notice);
        }
        Ok(())
    }
}

/// Of everything that decides about the diff of the steps.
fn fingerprint(release: &Release, steps: &[Step<'_>]) -> String {
    let all: Vec<String> = steps.iter().map(Step::fingerprint).collect();
    digest(std::iter::once(release.revision.as_str()).chain(all.iter().map(String::as_str)))
}

/// There is nothing to approve: the inventory of the plugin was lost, and everything is as the version says.
pub(crate) fn is_applied(pending: &PendingVersion, work: &Work) -> bool {
    work.saved.is_none() && [pending.creates, pending.changes, pending.deletes, pending.jobs] == [0; 4]
}

impl Cluster {
    /// The diff of the steps. Objects that they leave as they are are not in it.
    pub(crate) async fn render(
        &self,
        version: &str,
        revision: &str,
        steps: Vec<Step<'_>>,
    ) -> Result<PluginDiff, Vec<Problem>> {
        let numbered = steps.into_iter().enumerate();
        let renders = numbered.map(|(place, step)| async move { (place, self.change(step).await) });
        let mut rendered = perform_writes(renders).await;
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
            None => match self.dry_run(id, object, None).await {
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
        let live = self.get(id, &object.version).await;
        let live = live.map_err(|error| self.problem(id, &error))?;
        let live = live.filter(|live| live["metadata"]["uid"] == uid).map(plain);
        let live = live.ok_or_else(|| {
            let note = format!("{id} was deleted while its diff was made. It is tried again.");
            Problem::transient("ApplyFailed", note)
        })?;
        let as_in_manifest = || Ok(differences_of(&live, &self.manifest(id, object)?));
        let (found, mut note) = match applied.unrendered {
            Some(why) => (as_in_manifest()?, why.to_owned()),
            None => match self.dry_run(id, object, Some(uid)).await {
                Ok(rendered) => (differences(&live, &plain(rendered)), String::new()),
                Err(Error::Api(status)) if object.replaces && status.code == 422 && is_immutable(&status.message) => {
                    (as_in_manifest()?, REPLACED.to_owned())
                }
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
        Problem::failed("apply", id, error, self.account.as_ref())
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

/// Returns true if a webhook is in the way that has side effects. Source: `NewDryRunUnsupportedErr` of the API server.
fn permits_no_dry_run(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 400 && status.message.contains("does not support dry run"))
}

/// The rendered diff as it is stored, without the differences if they are larger than that.
pub(crate) fn packed(diff: &PluginDiff, most: usize) -> Vec<u8> {
    let packed = diff.pack();
    if packed.len() <= most {
        packed
    } else {
        diff.clone().without_differences().pack()
    }
}
