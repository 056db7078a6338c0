//! The place of the attacks: one control plane, one EC2, one state store, one controller, for all rows.

use std::sync::atomic::{AtomicU32, Ordering};

use tidewaiter_api::ConditionStatus::True;
use tidewaiter_testkit::Kubelet;
use tidewaiter_testkit::builders::{NodeBuilder, node};
use tidewaiter_testkit::fake_ec2::FakeInstance;

use crate::world::{Controller, Labels, World};

pub const OF_WORKER: [(&str, &str); 3] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];
pub const OF_MASTER: [(&str, &str); 5] = [
    ("kops.k8s.io/instancegroup", "masters"),
    ("kops.k8s.io/kops-controller-pki", ""),
    ("node-role.kubernetes.io/control-plane", ""),
    ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
    ("vault", "open"),
];
/// Often enough that a change in the cloud is seen within a row.
pub const EXPIRY: (&str, &str) = ("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "2");

pub struct Field {
    pub world: World,
    pub controller: Controller,
    /// A control plane whose Node is there and labelled.
    pub master: FakeInstance,
    /// Each instance has a number of its own.
    numbers: AtomicU32,
}

/// The environment of an attacker.
pub struct Scene<'a> {
    pub world: &'a World,
    /// The instance whose kubelet the attacker controls: a worker, not registered yet.
    pub own: FakeInstance,
    /// A control plane whose Node is there.
    pub master: FakeInstance,
    /// A control plane that has not registered yet.
    pub booting: FakeInstance,
}

impl Scene<'_> {
    /// The attacker's Node, without a claim.
    pub fn node(&self) -> NodeBuilder {
        node(self.own.node_name())
    }

    /// The attacker's Node, with this providerID.
    pub fn claims_as(&self, provider_id: &str) -> NodeBuilder {
        self.node().provider_id(provider_id)
    }

    /// The attacker's Node, as that of this instance.
    pub fn claims(&self, of: &FakeInstance) -> NodeBuilder {
        self.claims_as(&of.provider_id())
    }
}

impl Field {
    pub async fn start() -> Self {
        let world = World::start().await;
        world.group("nodes", &[("team", "red")]);
        world.group_as("masters", "Master", &[("vault", "open")]);
        let names = ("TIDEWAITER_NODE_NAMES", "private-dns");
        let controller = world.controller_with(&[EXPIRY, names]).await;
        let master = world.launch(1, "masters");
        Kubelet::register(&world.cluster, &World::node_of(&master).build()).await;
        world.has_labels(master.node_name(), &OF_MASTER).await;
        Self {
            world,
            controller,
            master,
            numbers: AtomicU32::new(2),
        }
    }

    /// The number of an instance that nobody else has.
    pub fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Launches an instance into a group.
    pub fn launches(&self, group: &str) -> FakeInstance {
        self.world.launch(self.number(), group)
    }

    /// Returns the environment of an attacker, with an instance of its own.
    pub fn scene(&self) -> Scene<'_> {
        Scene {
            world: &self.world,
            own: self.launches("nodes"),
            master: self.master.clone(),
            booting: self.launches("masters"),
        }
    }

    /// An honest worker joins and is labelled.
    pub async fn joins(&self) -> FakeInstance {
        let instance = self.launches("nodes");
        Kubelet::register(&self.world.cluster, &World::node_of(&instance).build()).await;
        self.world.has_labels(instance.node_name(), &OF_WORKER).await;
        instance
    }

    /// Ends all trouble of the cloud.
    pub async fn heals(&self) {
        let ec2 = &self.world.ec2;
        ec2.throttle(None);
        ec2.always(None);
        ec2.heal();
        ec2.back().await;
    }

    /// The Node has only these labels, and was not even written to. Its record names no instance, no group, no label.
    pub async fn has_gained_nothing(&self, name: &str, own: &Labels) {
        let world = &self.world;
        assert_eq!(&world.labels(name).await, own, "{name}");
        assert_eq!(world.patches(name).await, 0, "{name}");
        world.is_recorded_as_nobody(name).await;
    }

    /// The worker has the labels that it was given at first, and its record remembers them.
    pub async fn is_labelled_as_ever(&self, worker: &FakeInstance) {
        let (world, name) = (&self.world, worker.node_name());
        world.has_labels(name, &OF_WORKER).await;
        assert_eq!(world.patches(name).await, 1, "{name}");
        assert_eq!(world.recorded(name).await.len(), OF_WORKER.len(), "{name}");
    }

    /// An honest Node is labelled, the control plane has kept what it has and was not written to again, and the process
    /// runs.
    pub async fn is_intact(&self) {
        let Self {
            world,
            controller,
            master,
            ..
        } = self;
        let honest = self.joins().await;
        world.is_verified(honest.node_name(), True, "Proven").await;
        world.has_labels(master.node_name(), &OF_MASTER).await;
        world.is_verified(master.node_name(), True, "Proven").await;
        assert_eq!(world.patches(master.node_name()).await, 1);
        assert!(controller.process.is_running());
        controller.has_not_panicked();
    }
}
