//! The decisions of the cloud that failed, for the report of the cluster: the cloud has given them up, and learns of it
//! nowhere else.

use std::sync::Arc;

use parking_lot::Mutex;
use tidewaiter_cloud::models::values::Description;
use tidewaiter_cloud::models::{ApprovalSpec, ClusterDecision, ClusterReport, KindReport, PluginReport, ReleaseSpec};

/// The releases and approvals that failed, each with the reason.
#[derive(Clone, Default)]
pub(crate) struct Failures(Arc<Mutex<Vec<(ClusterDecision, String)>>>);

impl Failures {
    /// Adds a failure, in place of an earlier one of the same release or approval.
    pub(super) fn add(&self, decision: ClusterDecision, reason: String) {
        let mut failures = self.0.lock();
        failures.retain(|(other, _)| (&other.release, &other.approval) != (&decision.release, &decision.approval));
        failures.push((decision, reason));
    }

    /// Writes the failures into a report, at the kind or plugin that they are about. Forgets those about what is
    /// neither held nor awaits approval any more.
    pub(crate) fn show(&self, report: &mut ClusterReport) {
        self.0.lock().retain(|(decision, reason)| {
            let text = match (&decision.release, &decision.approval) {
                (Some(release), _) => {
                    let held = report.kinds.iter_mut().find(|kind| is_held(kind, release));
                    held.map(|kind| &mut kind.error)
                }
                (None, Some(approval)) => {
                    let waiting = report.plugins.iter_mut().find(|plugin| is_waiting(plugin, approval));
                    waiting.map(|plugin| &mut plugin.message)
                }
                (None, None) => None,
            };
            let Some(text) = text else { return false };
            *text = Description::of(reason);
            true
        });
    }
}

/// Returns true if the release is about what the report of a kind shows as held.
pub(super) fn is_held(kind: &KindReport, release: &ReleaseSpec) -> bool {
    let held = kind.held.as_ref().map(|held| &held.revision);
    kind.kind == release.kind && held == Some(&release.revision)
}

fn is_waiting(plugin: &PluginReport, approval: &ApprovalSpec) -> bool {
    let waiting = plugin.waiting.as_ref().map(|waiting| &waiting.digest);
    plugin.id == approval.plugin && waiting == Some(&approval.digest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_cloud::models::{Unknown, parse};

    use super::*;

    const ID: &str = "cccccccc-0000-4000-8000-000000000002";

    #[test]
    fn a_failed_approval_is_shown_at_its_plugin_while_that_awaits_it() {
        let report = |digest: &str| {
            let report = json!({"plugins": [{"id": ID, "waiting": {"digest": digest}}]});
            parse::<ClusterReport>(report.to_string().as_bytes(), Unknown::Refuse).unwrap()
        };
        let decision = json!({"id": ID, "release": null, "approval": {"plugin": ID, "digest": "abc"}});
        let decision = parse::<ClusterDecision>(decision.to_string().as_bytes(), Unknown::Refuse).unwrap();
        let failures = Failures::default();
        failures.add(decision, "no".to_owned());
        for (digest, message) in [("abc", "no"), ("def", ""), ("abc", "")] {
            let mut report = report(digest);
            failures.show(&mut report);
            assert_eq!(report.plugins[0].message.as_str(), message);
        }
    }
}
