//! `ClusterHealth`: who writes it, when, and what it says.

use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tidewaiter_api::{ClusterHealth, ConditionStatus};
use tidewaiter_testkit::{
    Identity, Kubelet, Process, Program, Scratch, Scripted, assets, eventually, settled, throughout,
};

use super::{is_healthy, reports, two_workers};
use crate::world::{CLUSTER, SOON, World, service_account, shown};

/// More than the longest rest between two writes that say the same of the health.
const RESTS: Duration = Duration::from_secs(7);

/// The writes to `ClusterHealth` so far.
async fn writes(world: &World) -> usize {
    let audit = world.cluster.audit().await.by(&service_account()).writes();
    audit
        .filter(|entry| entry.object_ref.resource == "clusterhealths")
        .count()
}

/// The same, once there are no more of them: the counts may follow the condition.
async fn settled_writes(world: &World) -> usize {
    settled("the writes", RESTS, SOON, async || writes(world).await).await
}

/// Somebody else says that the cluster is not healthy.
async fn lie(world: &World) {
    let api: Api<ClusterHealth> = Api::all(world.cluster.client(&Identity::Admin));
    let lie = json!({"status": {"conditions": [{"type": "Healthy", "status": "False", "reason": "Lie", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    api.patch(CLUSTER, &PatchParams::default(), &Patch::Merge(lie))
        .await
        .unwrap();
}

#[tokio::test]
async fn it_says_what_is_wrong_and_since_when_and_kubectl_waits_for_it() {
    let world = World::start().await;
    let [one, _] = two_workers(&world).await;
    let controller = world.controller().await;
    let (health, ready) = is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    let status = health.status.unwrap();
    assert_eq!(
        (
            status.failures,
            status.counts.nodes_ready,
            status.counts.nodes_not_ready
        ),
        (0, Some(2), Some(0))
    );
    assert_eq!(ready.message, "nothing is wrong");

    reports(&one, "False").await;
    let (health, failed) = is_healthy(&world, ConditionStatus::False, "ValidationFailed").await;
    let expected = format!("Node {0}: node \"{0}\" of role \"node\" is not ready", one.name());
    assert_eq!(failed.message, expected);
    assert_eq!(health.status.unwrap().failures, 1);
    assert!(failed.last_transition_time >= ready.last_transition_time);
    assert_eq!(world.told(CLUSTER, "ValidationFailed").await, expected);

    let scratch = Scratch::new("kubectl");
    let kubectl = Program::new(assets::binary("kubectl"))
        .arg(format!(
            "--kubeconfig={}",
            world.cluster.kubeconfig(&Identity::Admin).display()
        ))
        .args(["wait", "--for=condition=Healthy", "--timeout=60s"])
        .arg(format!("clusterhealth/{CLUSTER}"));
    let waits = Process::start(&scratch, kubectl);
    reports(&one, "True").await;
    let ended = waits.exited(SOON).await;
    assert!(ended.success(), "{}", waits.log_tail());
    assert!(waits.log().contains("condition met"), "{}", waits.log());
    assert_eq!(world.told(CLUSTER, "ClusterReady").await, "nothing is wrong");
    controller.stops().await;
}

#[tokio::test]
async fn it_is_written_only_when_it_says_something_else() {
    let world = World::start().await;
    let [one, _] = two_workers(&world).await;
    let controller = world.controller().await;
    is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    let before = settled_writes(&world).await;
    for _ in 0..5 {
        one.heartbeat().await;
    }
    throughout("no write", RESTS, async || {
        let now = writes(&world).await;
        if now == before {
            Ok(())
        } else {
            Err(format!("{now} writes, not {before}"))
        }
    })
    .await;
    controller.stops().await;
}

#[tokio::test]
async fn the_leader_alone_writes_and_the_next_one_goes_on() {
    let world = World::start().await;
    let [one, _] = two_workers(&world).await;
    let leader = world.controller().await;
    leader.leads().await;
    let standby = world.controller().await;
    let (_, ready) = is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    let before = settled_writes(&world).await;
    leader.stops().await;
    standby.leads().await;
    assert_eq!(
        settled_writes(&world).await,
        before,
        "none for having become the leader"
    );
    reports(&one, "False").await;
    is_healthy(&world, ConditionStatus::False, "ValidationFailed").await;
    reports(&one, "True").await;
    let (_, again) = is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    assert!(again.last_transition_time >= ready.last_transition_time);
    // One for each, and the counts may follow the condition.
    let written = writes(&world).await - before;
    assert!((2..=4).contains(&written), "{written} writes");
    standby.stops().await;
}

#[tokio::test]
async fn what_is_not_known_is_unknown_and_named() {
    let world = World::start().await;
    two_workers(&world).await;
    world
        .ec2
        .script_for("DescribeAutoScalingGroups", [Scripted::error(403, "AccessDenied")]);
    let controller = world.controller().await;
    let (_, unknown) = is_healthy(&world, ConditionStatus::Unknown, "CannotTell").await;
    assert!(unknown.message.starts_with("not known: cloud ("), "{}", unknown.message);
    assert!(
        unknown.message.contains("autoscaling:DescribeAutoScalingGroups"),
        "{}",
        unknown.message
    );
    is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    controller.stops().await;
}

#[tokio::test]
async fn what_others_do_to_it_is_undone_by_the_next_verdict() {
    let world = World::start().await;
    let [one, _] = two_workers(&world).await;
    let controller = world.controller().await;
    is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    lie(&world).await;
    is_undone(&world, &one).await;
    let api: Api<ClusterHealth> = Api::all(world.cluster.client(&Identity::Admin));
    api.delete(CLUSTER, &DeleteParams::default()).await.unwrap();
    is_undone(&world, &one).await;
    controller.stops().await;
}

/// Waits until it says again that the cluster is ready. Meanwhile a label changes that verdicts read, so verdicts
/// follow each other, which all say the same.
async fn is_undone(world: &World, node: &Kubelet) {
    let api: Api<ClusterHealth> = Api::all(world.cluster.client(&Identity::Admin));
    let mut zone = 0;
    eventually("the ClusterHealth to be as before", SOON, async || {
        zone += 1;
        let labels = json!({"topology.kubernetes.io/zone": format!("zone-{zone}")});
        world.patch(node.name(), json!({"metadata": {"labels": labels}})).await;
        let health = api.get_opt(CLUSTER).await.map_err(shown)?.ok_or("there is none")?;
        match health.status.as_ref().map(|status| &status.conditions[..]) {
            Some([condition]) if condition.reason == "ClusterReady" => Ok(()),
            other => Err(shown(other)),
        }
    })
    .await;
}

#[tokio::test]
async fn what_others_do_to_it_is_undone_by_the_next_leader() {
    let world = World::start().await;
    two_workers(&world).await;
    let first = world.controller().await;
    is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    first.stops().await;
    let api: Api<ClusterHealth> = Api::all(world.cluster.client(&Identity::Admin));
    lie(&world).await;
    let second = world.controller().await;
    is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    second.stops().await;
    api.delete(CLUSTER, &DeleteParams::default()).await.unwrap();
    let third = world.controller().await;
    is_healthy(&world, ConditionStatus::True, "ClusterReady").await;
    third.stops().await;
}
