//! The write of the progress: a merge patch with what differs. With thousands of nodes the whole would be hundreds of kilobytes for each.

use serde_json::{Map, Value, json};
use tidewaiter_api::containership::UpgradeProgress;
use tidewaiter_upgrade::{Progress, form};

/// The patch that makes `stored` the progress; None if it is so.
pub(super) fn patch(stored: Option<&UpgradeProgress>, progress: &Progress) -> Option<Value> {
    if form::progress(stored) == *progress {
        return None;
    }
    if *progress == Progress::default() {
        return Some(json!({"spec": {"status": null}}));
    }
    let (before, after) = (stored.cloned().unwrap_or_default(), form::write(progress));
    let mut nodes = Map::new();
    for (name, status) in &after.node_statuses {
        if before.node_statuses.get(name) != Some(status) {
            nodes.insert(name.clone(), json!(status));
        }
    }
    let mut status = json!({
        "clusterStatus": after.cluster_status,
        "currentNode": after.current_node,
        "currentStartTime": after.current_start_time,
    });
    if !nodes.is_empty() {
        status["nodeStatuses"] = nodes.into();
    }
    Some(json!({"spec": {"status": status}}))
}

#[cfg(test)]
mod tests {
    use tidewaiter_api::containership::UpgradeStatus;
    use tidewaiter_upgrade::Order;

    use super::*;

    fn stored(value: &Value) -> UpgradeProgress {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn only_what_differs_is_written() {
        let before = stored(
            &json!({"clusterStatus": "InProgress", "nodeStatuses": {"a": "Success", "b": "InProgress"},
            "currentNode": "b", "currentStartTime": "Sun Nov 22 05:29:17 UTC 2026"}),
        );
        let mut progress = form::progress(Some(&before));
        assert_eq!(patch(Some(&before), &progress), None);
        let now = "2026-11-22T05:40:00Z".parse().unwrap();
        progress.apply(&Order::Succeed("b".parse().unwrap()), now);
        progress.apply(&Order::Start("c".parse().unwrap()), now);
        let expected = json!({"spec": {"status": {"clusterStatus": "InProgress", "nodeStatuses": {"b": "Success", "c": "InProgress"},
            "currentNode": "c", "currentStartTime": "Sun Nov 22 05:40:00 UTC 2026"}}});
        assert_eq!(patch(Some(&before), &progress), Some(expected));
    }

    #[test]
    fn a_claim_comes_and_goes() {
        let mut progress = Progress::default();
        assert_eq!(patch(None, &progress), None);
        let now = "2026-11-22T05:40:00Z".parse().unwrap();
        progress.apply(&Order::Begin, now);
        let claim = json!({"clusterStatus": "InProgress", "currentNode": "", "currentStartTime": ""});
        assert_eq!(patch(None, &progress), Some(json!({"spec": {"status": claim}})));
        let claimed = stored(&claim);
        assert_eq!(claimed.cluster_status, UpgradeStatus::InProgress);
        progress.apply(&Order::Withdraw, now);
        assert_eq!(
            patch(Some(&claimed), &progress),
            Some(json!({"spec": {"status": null}}))
        );
    }
}
