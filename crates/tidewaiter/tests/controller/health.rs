//! The cluster's health, as the MetricsServer and `ClusterHealth` tell it.

mod alerts;
mod forged;
mod monitoring;
mod server;
mod standing;
mod without_store;

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::{ClusterHealth, Condition, ConditionStatus};
use tidewaiter_testkit::fake_ec2::{FakeInstance, group};
use tidewaiter_testkit::{Identity, Kubelet, eventually};

use crate::world::{CLUSTER, SOON, World, shown};

/// A pod of the system that is bound to a node.
pub fn pod(name: &str, node: &str) -> Pod {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": name}},
        "spec": {"priorityClassName": "system-node-critical", "nodeName": node,
            "containers": [{"name": "main", "image": "registry.example/main:1"}]},
    });
    serde_json::from_value(pod).unwrap()
}

/// The Auto Scaling group of an InstanceGroup, with these instances.
pub fn auto_scaling_group(world: &World, name: &str, target: i32, instances: &[FakeInstance]) {
    let members = instances
        .iter()
        .map(|instance| instance.member().configuration("current"));
    let group = group(&format!("{name}.{CLUSTER}"))
        .kops(CLUSTER, name)
        .sizes(0, target, 9);
    world.ec2.groups([group.configuration("current").with(members)]);
}

/// A world with a group of two workers, both Nodes and ready.
pub async fn two_workers(world: &World) -> [Kubelet; 2] {
    world.group("nodes", &[]);
    let instances = [world.launch(1, "nodes"), world.launch(2, "nodes")];
    auto_scaling_group(world, "nodes", 2, &instances);
    let [one, two] = instances.map(|instance| World::node_of(&instance).build());
    [
        Kubelet::register(&world.cluster, &one).await,
        Kubelet::register(&world.cluster, &two).await,
    ]
}

pub fn pods(world: &World) -> Api<Pod> {
    Api::namespaced(world.cluster.client(&Identity::Admin), "kube-system")
}

/// Creates a pod and has it run, its container ready or not.
pub async fn run(world: &World, pod: &Pod, ready: bool) {
    // Made by kube-controller-manager, which does not run here.
    let accounts: Api<ServiceAccount> = Api::namespaced(world.cluster.client(&Identity::Admin), "kube-system");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let params = PatchParams::apply("test");
    accounts
        .patch("default", &params, &Patch::Apply(account))
        .await
        .unwrap();
    pods(world).create(&PostParams::default(), pod).await.unwrap();
    is_ready(world, pod.metadata.name.as_deref().unwrap(), ready).await;
}

/// Sets whether a pod's container is ready.
pub async fn is_ready(world: &World, pod: &str, ready: bool) {
    let container = json!({"name": "main", "ready": ready, "restartCount": 0, "image": "x", "imageID": "x"});
    let status = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
    pods(world)
        .patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

/// Reports the condition Ready of a Node, as its kubelet does.
pub async fn reports(kubelet: &Kubelet, ready: &str) {
    let condition = json!({"type": "Ready", "status": ready});
    kubelet
        .patch_status(json!({"status": {"conditions": [condition]}}))
        .await
        .unwrap();
}

/// Waits until `ClusterHealth` says this, with this reason; gives it and its condition.
pub async fn is_healthy(world: &World, status: ConditionStatus, reason: &str) -> (ClusterHealth, Condition) {
    let api: Api<ClusterHealth> = Api::all(world.cluster.client(&Identity::Admin));
    eventually(
        format!("the ClusterHealth to say {status:?} {reason}"),
        SOON,
        async || {
            let health = api.get_opt(CLUSTER).await.map_err(shown)?.ok_or("there is none")?;
            let conditions = health.status.as_ref().map(|status| status.conditions.clone());
            match conditions.and_then(|mut conditions| conditions.pop()) {
                Some(found) if found.status == status && found.reason == reason => Ok((health, found)),
                other => Err(format!("{other:?}")),
            }
        },
    )
    .await
}
