//! The treatment of objects that exist before a plugin is applied for the first time, and of plugins that the cloud
//! cannot be asked about.

use kube::Resource as _;
use tidewaiter_api::PluginInventory;
use tidewaiter_api::containership::{Plugin, PluginSpec};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::{Key, Next, Pass};

use super::diff::ObjectChange;
use super::gate::{Goal, Work};
use super::observed::{Claim, Observed};
use super::problem::PluginError;
use super::proposal::{Applied, Step, proposal};
use super::record::Record;
use super::status::{Facts, State};
use super::{PluginController, Saved};

impl PluginController {
    /// Returns true if a plugin of this id exists no more: the cloud does not list it, and nothing is remembered of it.
    pub(super) fn is_gone(&self, plugin: &str) -> bool {
        let key = Key::namespaced(CONTAINERSHIP_NAMESPACE, plugin);
        self.plugins.has_complete_list() && !self.plugins.retains(plugin) && self.inventories.get(&key).is_none()
    }

    /// Returns true if the version would change objects that the Go coordinator applied from the same manifests:
    /// somebody has changed them since, which it did not undo. One whose change cannot be rendered counts as changed:
    /// the whole diff says why.
    pub(super) async fn changes_inherited(
        &self,
        key: &Key,
        goal: &Goal,
        record: &Record,
        observed: &Observed,
    ) -> Result<bool, PluginError> {
        let mut steps = proposal(&goal.release, record, observed, self.settings.drift);
        if self.awaits_approval(key, &goal.release, &steps) {
            return Ok(true);
        }
        let is_inherited = |step: &Step<'_>| match step {
            Step::Apply(Applied { claim, live, .. }) => {
                *claim == Some(&Claim::Inherited) || live.is_some_and(|live| live.is_labelled_by_kubectl)
            }
            _ => false,
        };
        steps.retain(is_inherited);
        if steps.is_empty() {
            return Ok(false);
        }
        let engine = self.engines.of(&goal.identity)?;
        let diff = engine.render(&goal.spec.version, &goal.release.revision, steps).await;
        Ok(diff.map_or(true, |diff| !diff.changes.iter().all(ObjectChange::is_label_of_plugin)))
    }

    /// Keeps what is applied as it is, from what is stored of it: without the cloud, which has not said yet what it
    /// lists, and without reading the custom resource, which somebody may have deleted or edited meanwhile.
    pub(super) async fn keep_known(
        &self,
        pass: &mut Pass,
        plugin: Option<&Plugin>,
        inventory: &PluginInventory,
    ) -> Result<Next, PluginError> {
        let mut record = Record::read(&inventory.spec);
        let identity = record.identity(inventory);
        if !self.settings.sync.includes(&identity.type_) {
            return Ok(Next::UntilChanged);
        }
        pass.about(inventory.object_ref(&()));
        let spec = record.applied_plugin().cloned().unwrap_or_else(|| PluginSpec {
            id: identity.id,
            added_at: String::new(),
            description: String::new(),
            type_: identity.type_,
            version: String::new(),
            implementation: identity.implementation,
        });
        let mut known = Plugin::new(pass.key().name(), spec);
        known.metadata = plugin.map_or(known.metadata, |plugin| plugin.metadata.clone());
        known.metadata.namespace = pass.key().namespace().map(str::to_owned);
        let mut work = Work {
            plugin: &mut known,
            facts: &mut Facts::of(&record),
            record: &mut record,
            saved: &mut Saved(Some((inventory.spec.clone(), inventory.metadata.clone()))),
        };
        match self.keep(pass.key(), &mut work).await? {
            State::Waits(_) => Ok(self.wait(pass.key())),
            State::Applied | State::AwaitsApproval(_) | State::Keeps(_) => Ok(Next::UntilChanged),
        }
    }
}
