//! The changes between two looks at an upgrade, in words. Pure.

use tidewaiter_api::ConditionStatus;
use tidewaiter_api::containership::cluster_upgrade::{PROGRESSING, SUCCEEDED};
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeProgress, UpgradeStatus};

/// A line for each change since `before`: how far each node is, and what the upgrade waits for.
pub(super) fn news(before: Option<&ClusterUpgrade>, after: &ClusterUpgrade) -> Vec<String> {
    let none = UpgradeProgress::default();
    let now = after.spec.status.as_ref().unwrap_or(&none);
    let known = before.map(|before| before.spec.status.as_ref().unwrap_or(&none));
    let mut lines = Vec::new();
    if let Some(known) = known {
        let changed = now
            .node_statuses
            .iter()
            .filter(|(node, status)| known.node_statuses.get(*node) != Some(status));
        lines.extend(changed.filter_map(|(node, status)| node_line(node, *status)));
    }
    let waits = words(after, PROGRESSING);
    if !is_over(after) && waits != before.and_then(|before| words(before, PROGRESSING)) {
        lines.extend(waits);
    }
    lines
}

fn node_line(node: &str, status: UpgradeStatus) -> Option<String> {
    match status {
        UpgradeStatus::NotStarted => None,
        UpgradeStatus::InProgress => Some(format!("{node} is to be upgraded")),
        UpgradeStatus::Success => Some(format!("{node} is at the version, and Ready")),
        UpgradeStatus::Failed => Some(format!("{node} has failed")),
    }
}

/// Returns true if the upgrade is over.
pub(super) fn is_over(object: &ClusterUpgrade) -> bool {
    let progress = object.spec.status.as_ref();
    progress.is_some_and(|progress| matches!(progress.cluster_status, UpgradeStatus::Success | UpgradeStatus::Failed))
}

/// Returns true for a success, and the coordinator's message about the result. None before there is a result.
pub(super) fn ending(object: &ClusterUpgrade) -> Option<(bool, String)> {
    let mut conditions = object.status.as_ref()?.conditions.iter();
    let succeeded = conditions.find(|condition| condition.type_ == SUCCEEDED)?;
    let is_known = succeeded.status != ConditionStatus::Unknown;
    is_known.then(|| (succeeded.status == ConditionStatus::True, succeeded.message.clone()))
}

fn words(object: &ClusterUpgrade, type_: &str) -> Option<String> {
    let mut conditions = object.status.as_ref()?.conditions.iter();
    let found = conditions.find(|condition| condition.type_ == type_)?;
    Some(found.message.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn upgrade(progress: &Value, waits: &str, ended: Option<(&str, &str)>) -> ClusterUpgrade {
        let condition = |type_: &str, status: &str, message: &str| json!({"type": type_, "status": status, "reason": "R", "message": message, "lastTransitionTime": "2026-11-22T06:00:00Z"});
        let (status, message) = ended.unwrap_or(("Unknown", "the upgrade is not over"));
        let conditions = [
            condition("Progressing", "True", waits),
            condition("Succeeded", status, message),
        ];
        serde_json::from_value(json!({"metadata": {"name": "u"}, "status": {"conditions": conditions},
            "spec": {"type": "kubernetes", "targetVersion": "v1.36.3", "status": progress}}))
        .unwrap()
    }

    #[test]
    fn each_change_is_a_line() {
        let begun = upgrade(
            &json!({"clusterStatus": "InProgress", "nodeStatuses": {"a": "InProgress"}}),
            "upgrading a",
            None,
        );
        let later = upgrade(
            &json!({"clusterStatus": "InProgress", "nodeStatuses": {"a": "Failed", "b": "Success", "c": "InProgress"}}),
            "upgrading c",
            None,
        );
        let over = upgrade(
            &json!({"clusterStatus": "Failed", "nodeStatuses": {"a": "Failed", "b": "Success", "c": "Success"}}),
            "the upgrade is over",
            Some(("False", "one node failed")),
        );
        assert_eq!(news(None, &later), ["upgrading c"], "what was before is not news");
        assert_eq!(news(Some(&begun), &begun), [""; 0]);
        let lines = [
            "a has failed",
            "b is at the version, and Ready",
            "c is to be upgraded",
            "upgrading c",
        ];
        assert_eq!(news(Some(&begun), &later), lines);
        assert_eq!(news(Some(&later), &over), ["c is at the version, and Ready"]);
        assert_eq!(ending(&later), None);
        assert_eq!(ending(&over), Some((false, "one node failed".to_owned())));
        assert!(is_over(&over) && !is_over(&later));
    }
}
