//! The cloud's status of its upgrades, and its messages while they run.

use std::time::Duration;

use http::Method;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::{UpgradePolicy, UpgradeStatus};
use tidewaiter_testkit::{eventually, settled, throughout};

use crate::SOON;
use crate::cloud::Fault;
use crate::upgrades::{TARGET, Upgrading};

impl Upgrading {
    /// An upgrade of all nodes in the cloud, with this policy, and its id.
    async fn upgrade_all(&self, policy: Value) -> String {
        let upgrade = json!({"type": "kubernetes", "targetVersion": TARGET, "labelSelector": [], "nodeTimeoutSeconds": 900, "policy": policy});
        let made = self.cloud.post("^/upgrades", upgrade).await;
        made["id"].as_str().unwrap().to_owned()
    }

    async fn set_policy(&self, upgrade: &str, policy: Value) {
        let path = format!("^/upgrades/{upgrade}");
        let change = json!({ "policy": policy });
        let (status, answer) = self.cloud.send(&self.cloud.owner, Method::PATCH, &path, change).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// Returns the cloud's status of an upgrade.
    async fn shown(&self, upgrade: &str) -> Value {
        let path = format!("^/upgrades/{upgrade}");
        let (status, answer) = self
            .cloud
            .send(&self.cloud.owner, Method::GET, &path, Value::Null)
            .await;
        assert_eq!(status, 200, "{answer}");
        answer["status"].clone()
    }

    /// Waits until the cloud shows this: state, done/failed/nodes, the current node, and words of the message.
    async fn shows(&self, upgrade: &str, wanted: &str, words: &str) {
        eventually(format!("the cloud to show {wanted:?}: {words:?}"), SOON, async || {
            let status = self.shown(upgrade).await;
            let text = |field: &str| status[field].as_str().unwrap_or("-").to_owned();
            let found = format!(
                "{} {}/{}/{} {}",
                text("clusterStatus"),
                status["done"],
                status["failed"],
                status["nodes"],
                text("currentNode")
            );
            if found == wanted && text("message").contains(words) {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })
        .await;
    }

    /// Waits until the progress in the cluster is this.
    async fn is(&self, upgrade: &str, cluster: UpgradeStatus, current: &str) {
        eventually(
            format!("the upgrade to be {cluster:?} at {current:?}"),
            SOON,
            async || {
                let object = self.upgrades().get(upgrade).await.map_err(|error| error.to_string())?;
                match object.spec.status {
                    Some(status) if status.cluster_status == cluster && status.current_node == current => Ok(()),
                    status => Err(format!("{status:?}")),
                }
            },
        )
        .await;
    }

    fn reports_sent(&self) -> usize {
        let is_report = |line: &&String| line.contains("/upgrades/") && line.ends_with("/status");
        self.cloud.seen("PUT ").iter().filter(is_report).count()
    }

    async fn has_policy(&self, upgrade: &str, is: impl Fn(&UpgradePolicy) -> bool) {
        eventually("the policy in the cluster", SOON, async || {
            let object = self.upgrades().get(upgrade).await.map_err(|error| error.to_string())?;
            let policy = object.spec.policy.unwrap_or_default();
            if is(&policy) {
                Ok(())
            } else {
                Err(format!("{policy:?}"))
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_cloud_shows_the_progress_of_its_upgrades() {
    let upgrading = Upgrading::start().await;
    for node in ["w1", "w2", "w3"] {
        upgrading.node(node).await;
    }
    let upgrade = upgrading.upgrade_all(json!({"paused": true})).await;
    upgrading.shows(&upgrade, "- 0/0/3 -", "paused").await;
    upgrading.set_policy(&upgrade, Value::Null).await;
    upgrading.shows(&upgrade, "InProgress 0/0/3 w1", "w1").await;
    upgrading.set_policy(&upgrade, json!({"minReadySeconds": 0})).await;
    let status = upgrading.shown(&upgrade).await;
    assert_eq!(status["nodeStatuses"], json!({"w1": "InProgress"}));
    assert!(
        status["currentStartTime"].as_str().unwrap().contains(" UTC 20"),
        "{status}"
    );
    upgrading.reports("w1", TARGET).await;
    upgrading.shows(&upgrade, "InProgress 1/0/3 w2", "").await;

    // Somebody overwrites it: it is sent again.
    let path = format!("^/upgrades/{upgrade}/status");
    let lie = json!({"status": {"clusterStatus": "Failed", "nodeStatuses": {}}});
    let (status, answer) = upgrading
        .cloud
        .send(&upgrading.cloud.owner, Method::PUT, &path, lie)
        .await;
    assert_eq!(status, 200, "{answer}");
    upgrading.shows(&upgrade, "InProgress 1/0/3 w2", "").await;

    // The cloud is away: the upgrade goes on, and what happened meanwhile is one report afterwards.
    upgrading.cloud.fault("", Fault::Status(503));
    let before = upgrading.reports_sent();
    upgrading.reports("w2", TARGET).await;
    upgrading.is(&upgrade, UpgradeStatus::InProgress, "w3").await;
    eventually("a report that fails", SOON, async || {
        let sent = upgrading.reports_sent() - before;
        if sent > 0 { Ok(()) } else { Err(sent) }
    })
    .await;
    upgrading.reports("w3", TARGET).await;
    upgrading.is(&upgrade, UpgradeStatus::Success, "").await;
    assert_eq!(upgrading.shown(&upgrade).await["done"], 1);
    upgrading.cloud.heal();
    upgrading.shows(&upgrade, "Success 3/0/3 -", "").await;

    // At rest nothing is sent, also not for an upgrade of a person with the id of one of the cloud.
    let mut copy = upgrading.upgrades().get(&upgrade).await.unwrap();
    copy.metadata = kube::core::ObjectMeta {
        name: Some("copy".to_owned()),
        labels: copy.metadata.labels,
        ..kube::core::ObjectMeta::default()
    };
    copy.spec.status = None;
    copy.status = None;
    upgrading
        .upgrades()
        .create(&PostParams::default(), &copy)
        .await
        .unwrap();
    let still = Duration::from_secs(7);
    let sent = settled("what is sent", still, SOON, async || upgrading.reports_sent()).await;
    let annotated = json!({"metadata": {"annotations": {"example.com/some": "thing"}}});
    upgrading
        .upgrades()
        .patch(&upgrade, &PatchParams::default(), &Patch::Merge(annotated))
        .await
        .unwrap();
    throughout("nothing to be sent", still, async || {
        let now = upgrading.reports_sent();
        if now == sent { Ok(()) } else { Err(now) }
    })
    .await;
    upgrading
        .upgrades()
        .delete("copy", &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_upgrade_is_paused_resumed_and_aborted_in_the_cloud() {
    let upgrading = Upgrading::start().await;
    for node in ["w1", "w2", "w3"] {
        upgrading.node(node).await;
    }
    let upgrade = upgrading
        .upgrade_all(json!({"maxFailures": 1, "minReadySeconds": 0}))
        .await;
    upgrading.is(&upgrade, UpgradeStatus::InProgress, "w1").await;
    for paused in [true, false, true, false, true] {
        upgrading.set_policy(&upgrade, json!({ "paused": paused })).await;
        let is = |policy: &UpgradePolicy| policy.paused == paused && policy.max_failures == Some(1);
        upgrading.has_policy(&upgrade, is).await;
    }
    // The node in progress is finished, and no other one is started.
    upgrading.reports("w1", TARGET).await;
    upgrading.shows(&upgrade, "InProgress 1/0/3 -", "paused").await;
    upgrading.set_policy(&upgrade, json!({"paused": null})).await;
    upgrading.is(&upgrade, UpgradeStatus::InProgress, "w2").await;
    upgrading.set_policy(&upgrade, json!({"aborted": true})).await;
    upgrading.has_policy(&upgrade, |policy| policy.aborted).await;
    let still = "and is still upgrading w2";
    upgrading.shows(&upgrade, "InProgress 1/0/3 w2", still).await;
    upgrading.reports("w2", TARGET).await;
    upgrading.is(&upgrade, UpgradeStatus::Failed, "").await;
    upgrading.shows(&upgrade, "Failed 2/0/3 -", "aborted").await;

    // One that is over does not begin again where it is deleted in the cluster.
    let params = DeleteParams::default();
    upgrading.upgrades().delete(&upgrade, &params).await.unwrap();
    eventually("the upgrade to be gone", SOON, async || {
        let found = upgrading.upgrades().get_opt(&upgrade).await.unwrap();
        found.map_or(Ok(()), |_| Err("it is there"))
    })
    .await;
    throughout("the upgrade to stay away", Duration::from_secs(5), async || {
        let found = upgrading.upgrades().get_opt(&upgrade).await.unwrap();
        found.map_or(Ok(()), |_| Err("it is there again"))
    })
    .await;
    upgrading.shows(&upgrade, "Failed 2/0/3 -", "aborted").await;
}
