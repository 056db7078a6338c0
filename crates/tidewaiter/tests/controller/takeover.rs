//! In the place of kops-controller: a container that kOps described, unchanged but for the image.

use serde_json::json;
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::Kubelet;
use tidewaiter_testkit::fake_ec2::FakeInstance;

use crate::world::{Labels, World};

#[tokio::test]
async fn what_kops_describes_starts_it_and_may_do_all_that_it_does() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let controller = world.kops_controller().await;
    let kubelet = world.join(3, "nodes").await;
    let expected = [
        ("kops.k8s.io/instancegroup", "nodes"),
        ("node-role.kubernetes.io/node", ""),
        ("team", "red"),
    ];
    world.has_labels(kubelet.name(), &expected).await;
    world.is_verified(kubelet.name(), True, "Proven").await;

    // A label that somebody changed is put back, for which the record is read.
    world
        .patch(kubelet.name(), json!({"metadata": {"labels": {"team": "blue"}}}))
        .await;
    world.has_labels(kubelet.name(), &expected).await;

    // Events and refusals too.
    let liar = FakeInstance::numbered(4);
    let claim = World::node_of(&liar).provider_id(&FakeInstance::numbered(3).provider_id());
    let liar = Kubelet::register(&world.cluster, &claim.build()).await;
    world.is_verified(liar.name(), False, "NameMismatch").await;
    world
        .tells(liar.name(), "NameMismatch", "Find out who registered this Node")
        .await;
    assert_eq!(world.labels(liar.name()).await, Labels::new());
    controller.stops().await;
}
