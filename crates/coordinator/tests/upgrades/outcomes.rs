//! When a node is done and when it has failed: what its host reports, and whether it stays at the version and Ready.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tidewaiter_api::NodeReport;
use tidewaiter_api::containership::UpgradeStatus;
use tidewaiter_testkit::{Identity, eventually};

use crate::cluster::deploy;
use crate::world::{NEW, OLD, SOON, World};

/// The time of the coordinator, which runs in this process.
#[expect(clippy::disallowed_methods, reason = "the times in the progress are of this clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

impl World {
    /// A cluster of these workers at the old version, whose agents report upgrades.
    async fn reporting(workers: &[&str]) -> Self {
        let world = Self::start().await;
        world.cluster.apply_manifests(deploy("crds/agent")).await;
        world.join("cp", NEW, &[]).await;
        for name in workers {
            world.join(name, OLD, &[]).await;
            world.host_reports(name, "None").await;
        }
        world
    }

    /// Waits until the upgrade `u` records that the node has everything but the minimum time; returns since when.
    async fn verifies(&self, node: &str) -> Timestamp {
        eventually(format!("{node} to be verified"), SOON, async || {
            let progress = self.upgrades().get("u").await.unwrap().spec.status.unwrap_or_default();
            let start = progress.verifying.get(node).copied();
            start.map(|start| start.since).ok_or(format!("{progress:?}"))
        })
        .await
    }
}

#[tokio::test]
async fn a_node_is_done_when_its_script_has_ended_and_it_was_ready_for_the_minimum_time() {
    let world = World::reporting(&["w1", "w2"]).await;
    let running = world.run().await;
    world.upgrade("u", json!({"policy": {"minReadySeconds": 4}})).await;
    world.waits("u", "upgrading w1").await;
    // The kubelet is new and Ready, and the script still runs.
    world.host_reports("w1", "Running").await;
    world.is_at("w1", NEW).await;
    world.is_quiet().await;
    assert_eq!(world.statuses("u").await, "w1=InProgress");
    // Of another upgrade.
    let other = json!({"upgrade": {"id": "other", "state": "Succeeded"}});
    world.agent_reports("w1", &other).await;
    world.is_quiet().await;
    assert_eq!(world.statuses("u").await, "w1=InProgress");
    world.host_reports("w1", "Succeeded").await;
    let since = world.verifies("w1").await;
    // Another coordinator goes on with the time.
    running.stop().await;
    let _running = world.run().await;
    world.waits("u", "upgrading w2").await;
    let took = now().duration_since(since);
    assert!(took >= SignedDuration::from_secs(4), "{took}");
    world.verifies_nothing().await;
    // A node that is not Ready in between begins again, however long the test takes.
    let policy = |seconds: u32| json!({"spec": {"policy": {"minReadySeconds": seconds}}});
    world.change("u", policy(3600)).await;
    world.host_reports("w2", "Succeeded").await;
    world.is_at("w2", NEW).await;
    world.verifies("w2").await;
    world.is_ready("w2", false).await;
    world.verifies_nothing().await;
    world.is_ready("w2", true).await;
    world.verifies("w2").await;
    world.change("u", policy(1)).await;
    world.ends("u", UpgradeStatus::Success).await;
    assert_eq!(world.statuses("u").await, "w1=Success w2=Success");
}

impl World {
    /// Waits until no node of the upgrade `u` has everything but the minimum time.
    async fn verifies_nothing(&self) {
        eventually("nothing to be verified", SOON, async || {
            let progress = self.upgrades().get("u").await.unwrap().spec.status.unwrap_or_default();
            let is_empty = progress.verifying.is_empty();
            is_empty.then_some(()).ok_or(format!("{:?}", progress.verifying))
        })
        .await;
    }
}

/// It is Ready until the control plane has noticed.
#[tokio::test]
async fn a_kubelet_that_does_not_renew_its_lease_is_not_done() {
    let world = World::reporting(&["w1"]).await;
    let leases: Api<Lease> = Api::namespaced(world.cluster.client(&Identity::Admin), "kube-node-lease");
    let lease = |renewed: Timestamp| {
        let spec = json!({"holderIdentity": "w1", "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()});
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "w1"}, "spec": spec})
    };
    let renew = async |renewed: Timestamp| {
        let parameters = PatchParams::apply("kubelet").force();
        let patch = Patch::Apply(lease(renewed));
        let renewed = leases.patch("w1", &parameters, &patch).await;
        renewed.map(drop).map_err(|error| error.to_string())
    };
    // The controller manager would create the namespace; the API server does.
    let began = now();
    eventually("the Lease", SOON, async || renew(began).await).await;
    let _running = world.run().await;
    world.upgrade("u", json!({"policy": {"minReadySeconds": 1}})).await;
    world.waits("u", "upgrading w1").await;
    world.host_reports("w1", "Succeeded").await;
    world.is_at("w1", NEW).await;
    let since = world.verifies("w1").await;
    world.is_quiet().await;
    assert!(now().duration_since(since) > SignedDuration::from_secs(2));
    assert_eq!(world.statuses("u").await, "w1=InProgress");
    renew(now()).await.unwrap();
    world.ends("u", UpgradeStatus::Success).await;
}

/// The API server collects the report of a Node that is deleted, and the script runs on.
#[tokio::test]
async fn a_node_that_registers_again_is_not_done_without_its_report() {
    let world = World::reporting(&["w1", "w2"]).await;
    let _running = world.run().await;
    world.upgrade("u", json!({})).await;
    world.waits("u", "upgrading w1").await;
    let begun = now();
    world.delete_node("w1").await;
    let reports: Api<NodeReport> = Api::all(world.cluster.client(&Identity::Admin));
    reports.delete("w1", &DeleteParams::default()).await.unwrap();
    // The time of a creation has whole seconds.
    eventually("the next second", SOON, async || {
        let passed = now().duration_since(begun);
        if passed > SignedDuration::from_secs(2) {
            Ok(())
        } else {
            Err(passed)
        }
    })
    .await;
    world.join("w1", NEW, &[]).await;
    world.is_quiet().await;
    assert_eq!(world.statuses("u").await, "w1=InProgress");
    world.host_reports("w1", "Succeeded").await;
    world.waits("u", "upgrading w2").await;
}

/// A termination has deleted the object that started them.
#[tokio::test]
async fn what_the_hosts_have_begun_of_a_new_object_is_taken_up_first() {
    let world = World::reporting(&["w1", "w2"]).await;
    world.is_at("w2", NEW).await;
    world.host_reports("w2", "Running").await;
    let _running = world.run().await;
    world.upgrade("u", json!({})).await;
    world.waits("u", "upgrading w2").await;
    assert_eq!(world.statuses("u").await, "w2=InProgress");
    world.host_reports("w2", "Failed").await;
    world.waits("u", "upgrading w1").await;
    assert_eq!(world.statuses("u").await, "w1=InProgress w2=Failed");
}

/// Each in its own words, long before `nodeTimeoutSeconds`, and no other node is started: one failure is enough.
#[tokio::test]
async fn what_the_host_says_last_ends_the_node_and_the_upgrade_with_its_reason() {
    for state in ["Refused", "Failed", "Interrupted", "TimedOut"] {
        let world = World::reporting(&["w1", "w2"]).await;
        let _running = world.run().await;
        world.upgrade("u", json!({})).await;
        // As a person leaves it.
        world.change("u", json!({"spec": {"policy": null}})).await;
        world.waits("u", "upgrading w1").await;
        world.is_at("w1", NEW).await;
        world.host_reports("w1", state).await;
        let message = world.ends("u", UpgradeStatus::Failed).await;
        let why = format!(
            "node w1 failed: its host reports {state}: of the host; one node failed, and spec.policy.maxFailures"
        );
        assert!(message.starts_with(&why), "{message}");
        assert_eq!(world.statuses("u").await, "w1=Failed");
    }
}

#[tokio::test]
async fn an_abort_does_not_wait_for_a_node_that_runs_nothing_any_more() {
    let world = World::reporting(&["w1"]).await;
    let _running = world.run().await;
    world.upgrade("u", json!({})).await;
    world.waits("u", "upgrading w1").await;
    world.change("u", json!({"spec": {"policy": {"aborted": true}}})).await;
    world.host_reports("w1", "Refused").await;
    let message = world.ends("u", UpgradeStatus::Failed).await;
    assert!(message.contains("it was aborted"), "{message}");
    assert!(
        message.ends_with("node w1 failed: its host reports Refused: of the host"),
        "{message}"
    );
}

/// A kubelet that dies a moment after it was Ready.
#[tokio::test]
async fn a_node_that_falls_back_fails_and_ends_the_upgrade() {
    let world = World::reporting(&["w1", "w2", "w3"]).await;
    let running = world.run().await;
    let policy = json!({"minReadySeconds": 2, "maxFailures": 1});
    world.upgrade("u", json!({ "policy": policy })).await;
    world.waits("u", "upgrading w1").await;
    world.host_reports("w1", "Succeeded").await;
    world.is_at("w1", NEW).await;
    world.waits("u", "upgrading w2").await;
    world.is_ready("w1", false).await;
    let note = world.event("u", "NodeFellBack").await;
    assert!(note.contains("w1"), "{note}");
    // Another coordinator goes on with the time.
    running.stop().await;
    let _running = world.run().await;
    world
        .waits(
            "u",
            "node w1 failed: it was done, and then was not Ready for minReadySeconds",
        )
        .await;
    assert_eq!(world.statuses("u").await, "w1=Failed w2=InProgress");
    world.host_reports("w2", "Succeeded").await;
    world.is_at("w2", NEW).await;
    world.ends("u", UpgradeStatus::Failed).await;
    assert_eq!(world.statuses("u").await, "w1=Failed w2=Success");
}
