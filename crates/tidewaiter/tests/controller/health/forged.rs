//! A Node that claims another's instance, and is not ready: once its record says what it is, it makes nobody look so.

use tidewaiter_api::ConditionStatus::{False, True, Unknown};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{Kubelet, Scripted, eventually};

use super::{auto_scaling_group, is_healthy, reports, two_workers};
use crate::world::{CLUSTER, SOON, World};

#[tokio::test]
async fn a_forged_node_does_not_make_an_instance_look_unready() {
    let world = World::start().await;
    let [_, two] = two_workers(&world).await;
    let controller = world.controller().await;
    is_healthy(&world, True, "ClusterReady").await;

    let (victim, thief) = (FakeInstance::numbered(1), world.launch(3, "nodes"));
    let forged = node(thief.node_name())
        .provider_id(&victim.provider_id())
        .ready("False");
    let forged = Kubelet::register(&world.cluster, &forged.build()).await;
    world.is_verified(forged.name(), False, "NameMismatch").await;

    // A verdict that was made after that fails for the honest one alone, and then for none.
    reports(&two, "False").await;
    let alone = format!("Node {0}: node \"{0}\" of role \"node\" is not ready", two.name());
    eventually("the verdict to name the honest Node alone", SOON, async || {
        let (_, failed) = is_healthy(&world, False, "ValidationFailed").await;
        if failed.message == alone {
            Ok(())
        } else {
            Err(failed.message)
        }
    })
    .await;
    controller.has_gauge("kops_node_notReady", Some(1.0)).await;
    reports(&two, "True").await;
    is_healthy(&world, True, "ClusterReady").await;
    controller.stops().await;
}

#[tokio::test]
async fn a_forged_node_joins_for_no_instance() {
    let world = World::start().await;
    world.group("nodes", &[]);
    let missing = world.launch(1, "nodes");
    auto_scaling_group(&world, "nodes", 1, std::slice::from_ref(&missing));
    let thief = world.launch(2, "nodes");
    let forged = node(thief.node_name())
        .provider_id(&missing.provider_id())
        .ready("True");
    let forged = Kubelet::register(&world.cluster, &forged.build()).await;
    let controller = world.controller().await;
    world.is_verified(forged.name(), False, "NameMismatch").await;
    let words = format!("machine \"{}\" has not yet joined cluster", missing.id());
    eventually("the verdict to name the machine", SOON, async || {
        let (_, failed) = is_healthy(&world, False, "ValidationFailed").await;
        if failed.message.contains(&words) {
            Ok(())
        } else {
            Err(failed.message)
        }
    })
    .await;
    controller.stops().await;
}

#[tokio::test]
async fn while_the_cloud_does_not_say_whose_node_it_is_the_cluster_is_not_ready() {
    let world = World::start().await;
    world.group("nodes", &[]);
    let missing = world.launch(1, "nodes");
    auto_scaling_group(&world, "nodes", 1, std::slice::from_ref(&missing));
    world.ec2.fail(missing.id(), Scripted::Throttled);
    let thief = world.launch(2, "nodes");
    let forged = node(thief.node_name())
        .provider_id(&missing.provider_id())
        .ready("True");
    let forged = Kubelet::register(&world.cluster, &forged.build()).await;
    let controller = world.controller().await;
    world.is_verified(forged.name(), Unknown, "Throttled").await;
    let words = format!(
        "not known: NodeIdentities (node {:?} is not proven to be instance {:?} of InstanceGroup \"nodes\": its NodeIdentity says \
         Throttled; wait a minute",
        forged.name(),
        missing.id()
    );
    eventually("the verdict to name the Node", SOON, async || {
        let (_, unknown) = is_healthy(&world, Unknown, "CannotTell").await;
        if unknown.message.starts_with(&words) {
            Ok(())
        } else {
            Err(unknown.message)
        }
    })
    .await;
    controller.has_gauge("kops_node_ready", None).await;

    world.ec2.heal();
    world.is_verified(forged.name(), False, "NameMismatch").await;
    is_healthy(&world, False, "ValidationFailed").await;
    let flips = world.events(CLUSTER).await;
    assert!(flips.iter().all(|(reason, _)| reason != "ClusterReady"), "{flips:?}");
    controller.stops().await;
}
