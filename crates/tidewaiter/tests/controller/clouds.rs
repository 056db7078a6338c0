//! The same controller with a file in which kOps names another cloud: what is the same on all of them.

pub mod gce;
mod hetzner;

use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::builders::{controller_config, node};
use tidewaiter_testkit::{ControlPlane, Kubelet};

use crate::world::{CLUSTER, Controller, Labels, World, repository};

/// A machine of the cloud, as its own Node speaks of it.
#[derive(Clone)]
pub struct Machine {
    pub node: String,
    pub provider_id: String,
    pub address: String,
    /// The name of the instance in the cloud.
    pub instance: String,
}

/// The machines that a cloud has launched.
pub struct Machines {
    /// A machine of the group `nodes`.
    pub worker: Machine,
    /// A machine of the group `masters`.
    pub master: Machine,
    /// A machine of no group, whatever it claims.
    pub thief: Machine,
}

impl Machine {
    /// Its Node, under this name.
    pub async fn registers_as(&self, world: &World, name: &str) {
        let node = node(name).provider_id(&self.provider_id).internal_ip(&self.address);
        Kubelet::register(&world.cluster, &node.build()).await;
    }
}

/// A world with the groups `nodes` and `masters`, and without admission policies: a kubelet may claim any instance, and
/// the controller refuses it.
pub async fn world() -> World {
    let cluster = ControlPlane::start().await;
    for path in ["deploy/crds", "deploy/controller/rbac.yaml"] {
        cluster.apply_manifests(repository().join(path)).await;
    }
    let world = World::as_it_is(cluster).await;
    world.group("nodes", &[("team", "red")]);
    world.group_as("masters", "Master", &[("vault", "open")]);
    world
}

/// kops-controller's configuration file, as kOps writes it on this cloud.
pub fn config(world: &World, cloud: &str) -> String {
    let config = controller_config(CLUSTER, &world.store.url()).set(&["cloud"], cloud);
    config.without(&["server", "provider"]).to_json()
}

/// A controller for this cloud, with this in its environment.
pub async fn controller(world: &World, cloud: &str, environment: &[(&str, String)]) -> Controller {
    let environment: Vec<_> = environment.iter().map(|(key, value)| (*key, value.as_str())).collect();
    world.controller_from(&config(world, cloud), &environment).await
}

/// Each machine's Node gets what the cloud vouches for, and one with another's credentials gets nothing.
async fn nodes_get_what_the_cloud_vouches_for(world: &World, controller: &Controller, machines: &Machines) {
    let Machines { worker, master, thief } = machines;
    worker.registers_as(world, &worker.node).await;
    master.registers_as(world, &master.node).await;
    let of_worker = [
        ("kops.k8s.io/instancegroup", "nodes"),
        ("node-role.kubernetes.io/node", ""),
        ("team", "red"),
    ];
    world.is_verified(&worker.node, True, "Proven").await;
    world.has_labels(&worker.node, &of_worker).await;
    let words = format!("instance {} of group masters", master.instance);
    world.says(&master.node, "Verified", True, "Proven", &words).await;
    let of_master = [
        ("kops.k8s.io/instancegroup", "masters"),
        ("kops.k8s.io/kops-controller-pki", ""),
        ("node-role.kubernetes.io/control-plane", ""),
        ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
        ("vault", "open"),
    ];
    world.has_labels(&master.node, &of_master).await;

    thief.registers_as(world, &thief.node).await;
    world.is_verified(&thief.node, False, "NotInGroup").await;
    master.registers_as(world, "nodes-liar").await;
    world.is_verified("nodes-liar", False, "NameMismatch").await;
    controller.counts_refusal("NameMismatch", true).await;
    for name in [thief.node.as_str(), "nodes-liar"] {
        assert_eq!(world.labels(name).await, Labels::new(), "{name}");
    }
}
