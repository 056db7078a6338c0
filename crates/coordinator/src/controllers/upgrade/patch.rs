//! The write of the progress: a merge patch with what differs. With thousands of nodes the whole would be hundreds of
//! kilobytes for each.

use kube::api::ObjectMeta;
use serde_json::{Value, json};
use tidewaiter_api::containership::UpgradeProgress;
use tidewaiter_api::names::UPGRADE_FINALIZER;
use tidewaiter_upgrade::{Progress, form};

use crate::merge_patch::merge_patch;

/// The patch that makes `stored` the progress; None if it is so.
pub(super) fn patch(stored: Option<&UpgradeProgress>, progress: &Progress) -> Option<Value> {
    if form::progress(stored) == *progress {
        return None;
    }
    if *progress == Progress::default() {
        return Some(json!({"spec": {"status": null}}));
    }
    let status = merge_patch(&stored, &form::write(progress));
    Some(json!({"spec": {"status": status}}))
}

/// Adds to the patch that the upgrade has the finalizer while it is in progress, and not otherwise. None if there is
/// nothing to write.
pub(super) fn with_finalizer(patch: Option<Value>, object: &ObjectMeta, in_progress: bool) -> Option<Value> {
    let finalizers = object.finalizers.clone().unwrap_or_default();
    let has = finalizers.iter().any(|finalizer| finalizer == UPGRADE_FINALIZER);
    // An object that is being deleted gets no finalizer any more.
    let add = in_progress && !has && patch.is_some() && object.deletion_timestamp.is_none();
    if !add && (in_progress || !has) {
        return patch;
    }
    let mut others: Vec<&str> = finalizers
        .iter()
        .map(String::as_str)
        .filter(|other| *other != UPGRADE_FINALIZER)
        .collect();
    if add {
        others.push(UPGRADE_FINALIZER);
    }
    let mut patch = patch.unwrap_or_else(|| json!({}));
    patch["metadata"] = json!({ "finalizers": others });
    Some(patch)
}

#[cfg(test)]
mod tests {
    use tidewaiter_api::containership::UpgradeStatus;
    use tidewaiter_upgrade::{NodeFailure, Order};

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
        let expected = json!({"spec": {"status": {"nodeStatuses": {"b": "Success", "c": "InProgress"},
            "currentNode": "c", "currentStartTime": "Sun Nov 22 05:40:00 UTC 2026"}}});
        assert_eq!(patch(Some(&before), &progress), Some(expected));
    }

    #[test]
    fn the_ledger_is_written_entry_by_entry() {
        let since = "2026-11-22T05:29:17Z";
        let before =
            stored(&json!({"clusterStatus": "InProgress", "cordons": {"a": {"since": since}, "b": {"since": since}}}));
        let mut progress = form::progress(Some(&before));
        let now = "2026-11-22T05:40:00Z".parse().unwrap();
        progress.apply(&Order::Release("a".parse().unwrap()), now);
        let node = "c".parse().unwrap();
        progress.apply(&Order::Cordon { node, before: true }, now);
        let written = patch(Some(&before), &progress).unwrap();
        progress.apply(&Order::Soak { healthy: true }, now);
        assert_eq!(
            patch(Some(&before), &progress).unwrap()["spec"]["status"]["soakingSince"],
            json!(now)
        );
        let expected = json!({"a": null, "c": {"since": "2026-11-22T05:40:00Z", "before": true}});
        assert_eq!(written["spec"]["status"]["cordons"], expected);
    }

    #[test]
    fn the_starts_of_nodes_that_are_not_current_come_and_go() {
        let mut progress = Progress::default();
        let at = |minute: u8| format!("2026-11-22T05:{minute:02}:00Z").parse().unwrap();
        progress.apply(&Order::Begin, at(0));
        progress.apply(&Order::Start("a".parse().unwrap()), at(1));
        let one = form::write(&progress);
        progress.apply(&Order::Start("b".parse().unwrap()), at(2));
        let two = form::write(&progress);
        let written = patch(Some(&one), &progress).unwrap();
        assert_eq!(
            written["spec"]["status"]["starts"],
            json!({"a": {"since": "2026-11-22T05:01:00Z"}})
        );
        progress.apply(&Order::Succeed("a".parse().unwrap()), at(3));
        let written = patch(Some(&two), &progress).unwrap();
        assert_eq!(
            written,
            json!({"spec": {"status": {"starts": null, "nodeStatuses": {"a": "Success"}}}})
        );
    }

    #[test]
    fn the_minimum_times_come_and_go() {
        let (node, now) = (|| "a".parse().unwrap(), "2026-11-22T05:40:00Z".parse().unwrap());
        let mut progress = Progress::default();
        for order in [Order::Begin, Order::Start(node())] {
            progress.apply(&order, now);
        }
        let since = json!({"a": {"since": "2026-11-22T05:40:00Z"}});
        let verify = |holds| Order::Verify { node: node(), holds };
        let fall_back = |holds| Order::FallBack { node: node(), holds };
        let to = "2026-11-22T06:00:00Z".parse().unwrap();
        let postpone = Order::Postpone { node: node(), to };
        for (order, field, expected) in [
            (postpone, "postponed", &since),
            (verify(true), "verifying", &since),
            (verify(false), "verifying", &Value::Null),
            (verify(true), "verifying", &since),
            (Order::Succeed(node()), "verifying", &Value::Null),
            (Order::Start(node()), "currentNode", &json!("a")),
            (
                Order::Postpone { node: node(), to },
                "currentStartTime",
                &json!("Sun Nov 22 06:00:00 UTC 2026"),
            ),
            (
                Order::Fail(node(), NodeFailure::Host(String::new())),
                "postponed",
                &Value::Null,
            ),
            (fall_back(true), "fallenBack", &since),
            (fall_back(false), "fallenBack", &Value::Null),
        ] {
            let before = form::write(&progress);
            progress.apply(&order, now);
            let written = patch(Some(&before), &progress).unwrap();
            assert_eq!(written["spec"]["status"].get(field), Some(expected), "{order:?}");
        }
    }

    #[test]
    fn the_finalizer_is_there_while_the_upgrade_is_in_progress() {
        let object = |finalizers: &[&str], deleted: bool| {
            let deleted = deleted.then_some("2026-11-22T05:40:00Z");
            serde_json::from_value::<ObjectMeta>(json!({"finalizers": finalizers, "deletionTimestamp": deleted}))
                .unwrap()
        };
        let (none, other) = (object(&[], false), object(&["example.com/x"], false));
        let ours = object(&["example.com/x", UPGRADE_FINALIZER], false);
        let write = Some(json!({"spec": {}}));
        for (patch, object, in_progress, expected) in [
            (None, &none, false, None),
            (None, &ours, true, None),
            (write.clone(), &none, true, Some(json!([UPGRADE_FINALIZER]))),
            (
                write.clone(),
                &other,
                true,
                Some(json!(["example.com/x", UPGRADE_FINALIZER])),
            ),
            (write.clone(), &ours, false, Some(json!(["example.com/x"]))),
            // Its end was written by somebody else.
            (None, &ours, false, Some(json!(["example.com/x"]))),
        ] {
            let written = with_finalizer(patch, object, in_progress);
            assert_eq!(
                written.map(|written| written["metadata"]["finalizers"].clone()),
                expected
            );
        }
        let deleted = object(&[], true);
        assert_eq!(with_finalizer(write.clone(), &deleted, true), write);
    }

    #[test]
    fn a_claim_comes_and_goes() {
        let mut progress = Progress::default();
        assert_eq!(patch(None, &progress), None);
        let now = "2026-11-22T05:40:00Z".parse().unwrap();
        progress.apply(&Order::Begin, now);
        let claim =
            json!({"clusterStatus": "InProgress", "nodeStatuses": {}, "currentNode": "", "currentStartTime": ""});
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
