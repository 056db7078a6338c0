//! The API server comes back with the storage of an earlier time: somebody has restored a backup of etcd.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tidewaiter_api::names::{KOPS_LEASE, KOPS_NAMESPACE};
use tidewaiter_testkit::{Recorded, eventually};

use crate::health::two_workers;
use crate::world::{SOON, World};

/// The number of writes that are lost: it takes longer than a test until the API server has made as many again.
const LOST: usize = 500;

/// A standby is not ended by the outage. It serves the cluster's health, and may lead next.
#[tokio::test]
async fn a_standby_does_not_go_on_with_what_a_restored_backup_does_not_contain() {
    let world = World::start().await;
    let [one, _] = two_workers(&world).await;
    let leader = world.controller().await;
    leader.has_gauge("kops_node_ready", Some(2.0)).await;
    leader.stops().await;
    let held = json!({"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}});
    let params = PatchParams::default();
    world
        .leases()
        .patch(KOPS_LEASE, &params, &Patch::Merge(held))
        .await
        .unwrap();
    let standby = world.controller().await;
    standby.has_gauge("kops_node_ready", Some(2.0)).await;

    let backup = world.cluster.backup();
    world
        .nodes()
        .delete(one.name(), &DeleteParams::default())
        .await
        .unwrap();
    standby.has_gauge("kops_node_ready", Some(1.0)).await;
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other-writes", "namespace": "default"}});
    for _ in 0..LOST {
        world.cluster.store("configmaps/default/other-writes", &object).await;
    }
    // The Lease is written too, so that the standby sees a version that is lost.
    let renewed = json!({"spec": {"renewTime": "2026-01-12T09:21:08.000000Z"}});
    world
        .leases()
        .patch(KOPS_LEASE, &params, &Patch::Merge(renewed))
        .await
        .unwrap();
    let reads = |request: &Recorded| request.resource() == "leases" && !request.is_write() && !request.is_watch();
    let before = standby.proxy.count(reads);
    eventually("the standby to read the Lease", SOON, async || {
        match standby.proxy.count(reads) {
            // One may have been on its way.
            count if count >= before + 2 => Ok(()),
            count => Err(count),
        }
    })
    .await;
    world.cluster.restore(&backup).await;

    let status = standby.process.exited(SOON).await;
    assert_eq!(status.code(), Some(1), "{}", standby.process.log_tail());
    let log = standby.process.log();
    let line = log.lines().last().unwrap_or_default();
    let words = format!(
        "went back in time, so this replica starts anew: the Lease {KOPS_NAMESPACE}/{KOPS_LEASE} has the version "
    );
    assert!(line.contains(&words), "{line}");
    standby.process.start_again();
    standby.ready().await;
    standby.has_gauge("kops_node_ready", Some(2.0)).await;
    standby.stops().await;
}
