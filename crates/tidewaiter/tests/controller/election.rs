//! The Lease goes to a replica that can work: who cannot list, or has no state store, does not keep it from one that
//! can.

use tidewaiter_api::ConditionStatus::Unknown;
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_testkit::{Action, Recorded};

use crate::world::World;

const LABELS: [(&str, &str); 3] = [
    (INSTANCE_GROUP_LABEL, "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];

#[tokio::test]
async fn a_replica_that_may_not_list_nodes_leaves_the_lease_to_one_that_may() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let node = world.join(1, "nodes").await;
    let blind = world.controller_that_is_not_ready(&[]);
    let refuse = || Action::refuse(403, "Forbidden", "nodes is forbidden");
    blind.proxy.on(|request| request.resource() == "nodes", refuse);
    let words = "[-]cache/node failed: the first list is not complete: … nodes is forbidden";
    blind.is_ready(false, words).await;
    // The state store has been read, and the check of the Lease passes: it stands by.
    blind.is_ready(false, "[+]state-store ok").await;
    blind.is_ready(false, "[+]leader-election ok").await;
    blind
        .logs("the Lease is free, but this replica is not fit to lead … nodes is forbidden")
        .await;

    let able = world.controller().await;
    able.leads().await;
    world.has_labels(node.name(), &LABELS).await;
    assert_eq!(blind.proxy.count(Recorded::is_write), 0);

    // Its role was corrected: it is a standby like any other.
    blind.proxy.clear_hook();
    blind.ready().await;
    able.stops().await;
    blind.leads().await;
    blind.stops().await;
}

#[tokio::test]
async fn a_leader_without_a_state_store_says_so_and_hands_over_to_one_that_has_it() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let node = world.join(1, "nodes").await;
    let without = world.controller_without_a_store();
    without
        .is_ready(false, "[-]state-store failed: cluster-completed.spec: is missing")
        .await;
    // Nobody else leads, so that somebody says why the Node has no labels.
    without.leads().await;
    let words = "cluster-completed.spec: is missing from the state store";
    world
        .says(node.name(), "LabelsValid", Unknown, "DefinitionMissing", words)
        .await;

    let able = world.controller().await;
    let line = without.loses().await;
    let reason = "takes over, because this replica is not fit to lead (state-store: cluster-completed.spec";
    assert!(line.contains(reason), "{line}");
    able.leads().await;
    world.has_labels(node.name(), &LABELS).await;
    able.stops().await;
}

#[tokio::test]
async fn a_lease_that_the_role_does_not_permit_is_named() {
    let world = World::start().await;
    let controller = world.controller_that_is_not_ready(&[("TIDEWAITER_LEASE__NAMESPACE", "default")]);
    let words = "[-]leader-election failed: cannot read the Lease default/kops-controller-leader: … is forbidden … \
                 Apply Tidewaiter's role from deploy/, or correct lease.namespace and lease.name";
    controller.is_ready(false, words).await;
    controller.stops().await;
}
