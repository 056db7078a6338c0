//! The plugins in the report, each with the version that awaits approval and the first lines of what it would change.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::Value;
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::containership::plugin::READY;
use tidewaiter_api::containership::{PendingVersion, Plugin};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, plugin_diff_secret};
use tidewaiter_cloud::models::values::Description;
use tidewaiter_cloud::models::{PluginReport, WaitingVersion};
use tidewaiter_kit::Cache;

use crate::controllers::{DIFF_KEY, ObjectChange, Operation, PluginDiff};

/// The number of lines of a diff that are reported.
const MAX_LINES: usize = 200;

/// The number of characters of a value that are reported.
const MAX_VALUE: usize = 200;

/// The lines of a diff, and its digest.
#[derive(Clone)]
struct Diff {
    digest: String,
    lines: Vec<Description>,
    is_truncated: bool,
}

/// The source of what is reported of plugins.
pub(super) struct PluginSource {
    plugins: Cache<Plugin>,
    secrets: Api<Secret>,
    /// The diffs that were read, by plugin.
    diffs: BTreeMap<String, Diff>,
}

impl PluginSource {
    pub(super) fn new(plugins: Cache<Plugin>, client: Client) -> Self {
        Self {
            plugins,
            secrets: Api::namespaced(client, CONTAINERSHIP_NAMESPACE),
            diffs: BTreeMap::new(),
        }
    }

    /// The plugins, in the order of their names.
    pub(super) async fn report(&mut self) -> Vec<PluginReport> {
        let mut reports = Vec::new();
        let mut diffs = BTreeMap::new();
        let plugins: Vec<Arc<Plugin>> = self.plugins.iter().collect();
        for plugin in &plugins {
            let pending = plugin.status.as_ref().and_then(|status| status.pending.as_ref());
            let waiting = match pending {
                Some(pending) => {
                    let lines = self.lines(&plugin.spec.id, pending).await;
                    diffs.extend(lines.clone().map(|lines| (plugin.spec.id.clone(), lines)));
                    Some(waiting(pending, lines))
                }
                None => None,
            };
            reports.extend(report(plugin, waiting));
        }
        self.diffs = diffs;
        reports.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
        reports
    }

    /// The lines of the diff that awaits approval; `None` if another diff is stored, or none.
    async fn lines(&self, plugin: &str, pending: &PendingVersion) -> Option<Diff> {
        if let Some(known) = self.diffs.get(plugin).filter(|known| known.digest == pending.digest) {
            return Some(known.clone());
        }
        let secret = self.secrets.get_opt(&plugin_diff_secret(plugin)).await.ok()??;
        let stored = secret.data?.remove(DIFF_KEY)?;
        let diff = PluginDiff::unpack(&stored.0).ok()?;
        (diff.digest() == pending.digest).then(|| lines(diff))
    }
}

fn report(plugin: &Plugin, waiting: Option<WaitingVersion>) -> Option<PluginReport> {
    let status = plugin.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == READY);
    let text = |text: Option<&str>| text.map_or_else(Description::default, Description::of);
    Some(PluginReport {
        id: plugin.spec.id.parse().ok()?,
        name: Description::of(&format!("{}/{}", plugin.spec.type_, plugin.spec.implementation)),
        version: Description::of(&plugin.spec.version),
        applied_version: Description::of(&status.applied_version),
        ready: ready.is_some_and(|condition| condition.status == ConditionStatus::True),
        state: text(ready.map(|condition| &*condition.reason)),
        message: text(ready.map(|condition| &*condition.message)),
        waiting,
    })
}

fn waiting(pending: &PendingVersion, diff: Option<Diff>) -> WaitingVersion {
    let (lines, is_truncated) = diff.map_or((Vec::new(), true), |diff| (diff.lines, diff.is_truncated));
    WaitingVersion {
        version: Description::of(&pending.version),
        digest: Description::of(&pending.digest),
        creates: pending.creates,
        changes: pending.changes,
        deletes: pending.deletes,
        jobs: pending.jobs,
        diff: lines,
        diff_truncated: is_truncated,
    }
}

/// The first lines of a diff, without the values of Secrets.
fn lines(diff: PluginDiff) -> Diff {
    let digest = diff.digest();
    let lacks_values = diff.digest_of_all.is_some();
    let all = diff.changes.into_iter().flat_map(of_object);
    let mut lines: Vec<Description> = all.take(MAX_LINES + 1).map(|line| Description::of(&line)).collect();
    let is_truncated = lacks_values || lines.len() > MAX_LINES;
    lines.truncate(MAX_LINES);
    Diff {
        digest,
        lines,
        is_truncated,
    }
}

fn of_object(change: ObjectChange) -> Vec<String> {
    let change = change.without_secrets();
    let verb = match change.operation {
        Operation::Create => "create",
        Operation::Change => "change",
        Operation::Delete => "delete",
        Operation::Run => "run",
        Operation::Blocked => "blocked",
    };
    let note = if change.note.is_empty() {
        String::new()
    } else {
        format!(" ({})", change.note)
    };
    let mut lines = vec![format!("{verb} {}{note}", change.object)];
    for difference in change.differences {
        let path = &difference.path;
        lines.extend(
            difference
                .before
                .iter()
                .map(|before| format!("- {path}: {}", value(before))),
        );
        lines.extend(
            difference
                .after
                .iter()
                .map(|after| format!("+ {path}: {}", value(after))),
        );
    }
    lines
}

fn value(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= MAX_VALUE {
        return text;
    }
    text.chars().take(MAX_VALUE).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn diff(secret: bool, value: &str, count: usize) -> PluginDiff {
        let change = json!({"operation": "change", "object": "ConfigMap a/b", "secret": secret, "differences": [
            {"path": "data.key", "before": "old", "after": value}]});
        let changes = vec![change; count];
        serde_json::from_value(json!({"version": "1.1.0", "revision": "r", "changes": changes})).unwrap()
    }

    fn shown(diff: PluginDiff) -> (Vec<String>, bool) {
        let lines = lines(diff);
        let texts = lines.lines.iter().map(ToString::to_string).collect();
        (texts, lines.is_truncated)
    }

    #[test]
    fn a_diff_is_bounded_and_has_no_value_of_a_secret() {
        let (shown_lines, is_truncated) = shown(diff(false, "new", 1));
        assert_eq!(
            shown_lines,
            ["change ConfigMap a/b", "- data.key: \"old\"", "+ data.key: \"new\""]
        );
        assert!(!is_truncated);

        let (secret, _) = shown(diff(true, "hunter2", 1));
        assert_eq!(secret.len(), 3);
        assert!(!secret.concat().contains("hunter2"), "{secret:?}");

        let (many, is_truncated) = shown(diff(false, &"x".repeat(10_000), 300));
        assert!(is_truncated && many.len() == MAX_LINES);
        assert!(
            many.iter().all(|line| line.chars().count() < MAX_VALUE + 20),
            "{many:?}"
        );
        let (_, is_truncated) = shown(diff(false, "new", 1).without_differences());
        assert!(is_truncated);
    }

    #[test]
    fn a_plugin_is_reported_with_the_digest_that_an_approval_names() {
        let plugin: Plugin = serde_json::from_value(json!({
            "apiVersion": "containership.io/v3", "kind": "Plugin", "metadata": {"name": "p"},
            "spec": {"id": "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "type": "metrics", "implementation": "prometheus", "version": "1.1.0"},
            "status": {"appliedVersion": "1.0.0", "pending": {"version": "1.1.0", "revision": "r", "digest": "abc", "creates": 2},
                "conditions": [{"type": "Ready", "status": "False", "reason": "ApprovalNeeded", "message": "see the diff",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        }))
        .unwrap();
        let pending = plugin.status.as_ref().unwrap().pending.clone().unwrap();
        let report = report(&plugin, Some(waiting(&pending, None))).unwrap();
        assert_eq!(report.name.as_str(), "metrics/prometheus");
        assert_eq!((report.ready, report.state.as_str()), (false, "ApprovalNeeded"));
        let waiting = report.waiting.unwrap();
        assert_eq!(
            (waiting.digest.as_str(), waiting.creates, waiting.diff_truncated),
            ("abc", 2, true)
        );
    }
}
