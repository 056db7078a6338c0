//! The warnings that are published when an upgrade begins. They decide nothing.

use k8s_openapi::api::core::v1::ObjectReference;
use tidewaiter_api::values::quoted;
use tidewaiter_kit::Notice;
use tidewaiter_upgrade::{Health, Observation, PlannedAction, Spec, misfit_warning, plan, preflight_warning, rules};

use super::agents::list_reports;
use super::drain::NodePods;
use super::error::UpgradeError;
use super::{UpgradeController, health, status};

impl UpgradeController {
    /// Publishes the warnings about the cluster, the versions, the hosts and the drains.
    pub(super) async fn preflight(
        &self,
        about: &ObjectReference,
        spec: &Spec,
        seen: &Observation<'_>,
    ) -> Result<(), UpgradeError> {
        if !spec.policy.require_healthy {
            self.warn(about, "PreflightWarning", self.unhealthy(seen).await);
        }
        let selected: Vec<_> = spec.select(seen.nodes).collect();
        let misfits = misfit_warning(&rules::misfits(seen, &spec.target, &selected));
        self.warn(about, "PreflightWarning", misfits);
        self.warn(about, "HostsUnprepared", self.unprepared(spec, seen).await);
        if spec.policy.drain.is_some() {
            self.warn(about, "DrainForecast", self.forecast(spec, seen).await?);
        }
        Ok(())
    }

    fn warn(&self, about: &ObjectReference, reason: &'static str, note: Option<String>) {
        if let Some(note) = note {
            self.events.publish(about, Notice::warning(reason, "Upgrade", note));
        }
    }

    /// The faults of the cluster. Without the permission, the warning says that the health is unknown.
    async fn unhealthy(&self, seen: &Observation<'_>) -> Option<String> {
        let health = health::read(&self.client).await.unwrap_or(Health {
            is_unknown: true,
            ..Health::default()
        });
        let unhealthy = rules::unhealthy(&Observation {
            health: &health,
            ..*seen
        });
        preflight_warning(&unhealthy)
    }

    /// The hosts that would refuse the script, as their agents report. Without the permission, nobody knows, and each
    /// node says it when it is its turn.
    async fn unprepared(&self, spec: &Spec, seen: &Observation<'_>) -> Option<String> {
        let agents = list_reports(&self.client).await.ok()?;
        let waiting = plan(seen, spec)
            .into_iter()
            .filter(|node| node.action == PlannedAction::Waits);
        let problems = waiting.filter_map(|node| {
            let problem = agents.problem(node.name.as_str())?;
            Some(format!("{}: {}", node.name, quoted(problem)))
        });
        status::unprepared(&problems.collect::<Vec<_>>())
    }

    /// The pods that will prevent the drain of each node.
    async fn forecast(&self, spec: &Spec, seen: &Observation<'_>) -> Result<Option<String>, UpgradeError> {
        let pods = NodePods::read_all(&self.client).await.map_err(UpgradeError::Drain)?;
        let waiting = plan(seen, spec)
            .into_iter()
            .filter(|node| node.action == PlannedAction::Waits);
        Ok(status::forecast(
            waiting.filter_map(|node| pods.left.get_key_value(&node.name)),
        ))
    }
}
