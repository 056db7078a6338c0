//! The world of one seed: an API server, a cloud, and replicas that are restarted whenever they end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use tidewaiter_api::CloudSync;
use tidewaiter_api::containership::{
    AuthorizationRole, AuthorizationRoleBinding, AutoscalingGroup, AutoscalingPolicy, ClusterLabel, ClusterUpgrade,
    NodePoolLabel, Plugin, Registry, User,
};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_coordinator::mirror::MassDeletion;
use tidewaiter_kit::leader::Timing;
use tidewaiter_testkit::sim::{self, ApiServer};
use tokio::task::JoinHandle;

use crate::cloud::Cloud;
use crate::invariants::{Invariants, REPLICA};
use crate::objects::{KINDS, Kind};
pub use crate::replica::{Replica, beside, sleep};
use crate::role::{self, LEASE, RoleParts};
use crate::truth::node_name;

/// Clones share it.
#[derive(Clone, Debug)]
pub struct World {
    pub server: ApiServer,
    pub cloud: Cloud,
    pub invariants: Invariants,
    pub mass_deletion: MassDeletion,
    /// The running replica in each slot; `None` between two runs.
    pub replicas: Arc<Mutex<Vec<Option<Replica>>>>,
    pub timing: Timing,
    traces: bool,
}

/// The namespace of a kind's resources; empty for a kind without.
pub fn namespace(resource: &str) -> &'static str {
    if ["autoscalinggroups", "autoscalingpolicies", "cloudsyncs", "nodes"].contains(&resource) {
        ""
    } else {
        CONTAINERSHIP_NAMESPACE
    }
}

impl World {
    /// A world without Nodes, whose cloud is empty.
    pub fn new(random: &mut fastrand::Rng, traces: bool) -> Self {
        let kinds = [
            sim::Kind::of::<User>(),
            sim::Kind::of::<Registry>(),
            sim::Kind::of::<Plugin>(),
            sim::Kind::of::<ClusterLabel>(),
            sim::Kind::of::<NodePoolLabel>(),
            sim::Kind::of::<ClusterUpgrade>(),
            sim::Kind::of::<AuthorizationRole>(),
            sim::Kind::of::<AuthorizationRoleBinding>(),
            sim::Kind::of::<AutoscalingGroup>().with_status(),
            sim::Kind::of::<AutoscalingPolicy>(),
            sim::Kind::of::<CloudSync>().with_status(),
            sim::Kind::of::<Secret>(),
            sim::Kind::of::<Node>().with_status(),
            sim::Kind::of::<Namespace>().with_status(),
            sim::Kind::of::<Lease>(),
            sim::Kind::of::<Event>(),
        ];
        let server = ApiServer::new(kinds, random.u64(..));
        for name in ["default", CONTAINERSHIP_NAMESPACE] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            assert!(server.create("setup", &namespace));
        }
        let cloud = Cloud::new(random.fork());
        let invariants = Invariants::new(cloud.clone(), traces);
        server.observe(invariants.clone());
        let world = Self {
            server,
            cloud,
            invariants,
            mass_deletion: MassDeletion::Confirm,
            replicas: Arc::default(),
            timing: Timing::default(),
            traces,
        };
        drop(world.release_roles());
        world
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.traces {
            println!("{:11.4} -- {}", self.server.elapsed().as_secs_f64(), what());
        }
    }

    /// Changes an object of the cloud, or removes it.
    pub fn set(&self, kind: Kind, number: usize, value: Option<usize>) {
        let now = self.server.elapsed();
        let change = |truth: &mut crate::truth::Truth| truth.set(now, kind, number, value);
        if self.cloud.change(kind.changed(), change) {
            self.say(|| format!("the cloud: {kind:?} {number} is {value:?}"));
        }
    }

    /// Every kind has these objects in the cloud, and no others.
    pub fn set_all(&self, objects: &[(usize, usize)]) {
        for kind in KINDS {
            let present = self.cloud.lock().truth.objects(kind).into_keys();
            let numbers: BTreeSet<usize> = present.chain(objects.iter().map(|(number, _)| *number)).collect();
            for number in numbers {
                let value = objects.iter().find(|(wanted, _)| *wanted == number);
                self.set(kind, number, value.map(|(_, value)| *value));
            }
        }
    }

    /// Waits, while a person releases what the brake holds.
    pub async fn settles(&self, time: Duration) {
        let end = self.server.elapsed() + time;
        while self.server.elapsed() < end {
            self.release();
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// A person releases one of the revisions that are held.
    fn release(&self) {
        let syncs = self.resources("cloudsyncs");
        let kinds = syncs
            .iter()
            .filter_map(|sync| sync["status"]["kinds"].as_array())
            .flatten();
        let held = kinds.filter_map(|kind| kind["held"]["revision"].as_str());
        let Some(revision) = held.map(ToOwned::to_owned).next() else {
            return;
        };
        let annotate = |sync: &mut Value| {
            let annotations = &mut sync["metadata"]["annotations"];
            if annotations["tidewaiter.dev/release"].is_null() {
                annotations["tidewaiter.dev/release"] = json!(revision);
            }
        };
        if self.server.edit("person", "cloudsyncs", "", "cloud", annotate) {
            self.say(|| format!("somebody releases {revision}"));
        }
    }

    /// A Node joins the cluster.
    pub fn join(&self, number: usize) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number), "labels": {}}, "spec": {}, "status": {}});
        if self.server.create("kubelet", &node) {
            self.say(|| format!("node {number} joins"));
        }
    }

    /// The resources of a plural.
    pub fn resources(&self, resource: &str) -> Vec<Value> {
        self.server.read(|objects| objects.all(resource).cloned().collect())
    }

    /// A condition of `CloudSync`, as `True Applied`.
    pub fn condition(&self, name: &str) -> String {
        let syncs = self.resources("cloudsyncs");
        let conditions = syncs.first().and_then(|sync| sync["status"]["conditions"].as_array());
        let found = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == name);
        found.map_or_else(String::new, |found| {
            let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
            format!("{} {}", text("status"), text("reason"))
        })
    }

    /// The replica that holds the Lease.
    pub fn leader(&self) -> Option<Replica> {
        let holder = self.server.read(|objects| {
            let lease = objects.get("leases", CONTAINERSHIP_NAMESPACE, LEASE);
            lease.map(|lease| lease["spec"]["holderIdentity"].clone())
        })?;
        let replicas = self.replicas.lock().unwrap();
        let mut running = replicas.iter().flatten();
        running.find(|replica| holder == replica.process.name()).cloned()
    }

    /// Waits until something is so, and says how long that took.
    pub async fn until(&self, what: &str, longest: Duration, is_so: impl Fn(&Self) -> bool) -> Duration {
        let begin = self.server.elapsed();
        while !is_so(self) {
            let passed = self.server.elapsed().saturating_sub(begin);
            assert!(
                passed < longest,
                "not {what} after {passed:?}: {:?}",
                self.invariants.violations()
            );
            sleep(Duration::from_millis(20)).await;
        }
        self.server.elapsed().saturating_sub(begin)
    }

    /// Does what the controllers of roles and bindings do, which do not run here: their finalizers go when the objects
    /// are deleted.
    fn release_roles(&self) -> JoinHandle<()> {
        let server = self.server.clone();
        beside(async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                for resource in ["authorizationroles", "authorizationrolebindings"] {
                    let names: Vec<String> = server.read(|objects| {
                        let deleted = objects
                            .all(resource)
                            .filter(|object| object["metadata"].get("deletionTimestamp").is_some());
                        deleted
                            .filter_map(|object| Some(object["metadata"]["name"].as_str()?.to_owned()))
                            .collect()
                    });
                    for name in names {
                        let release = |object: &mut Value| object["metadata"]["finalizers"] = json!([]);
                        server.edit("controller", resource, CONTAINERSHIP_NAMESPACE, &name, release);
                    }
                }
            }
        })
    }

    /// Starts a replica, and restarts it whenever it ends.
    pub fn keep(&self, mut random: fastrand::Rng) -> JoinHandle<()> {
        let world = self.clone();
        let place = {
            let mut replicas = self.replicas.lock().unwrap();
            replicas.push(None);
            replicas.len() - 1
        };
        beside(async move {
            for run in 1.. {
                let replica = Replica::new(&format!("{REPLICA}{place}.{run}"));
                world.replicas.lock().unwrap()[place] = Some(replica.clone());
                world.invariants.started(replica.process.name(), world.server.elapsed());
                world.say(|| format!("{} starts", replica.process.name()));
                world.run(&replica).await;
                world.say(|| format!("{} has ended", replica.process.name()));
                world.replicas.lock().unwrap()[place] = None;
                sleep(Duration::from_millis(random.u64(200..15_000))).await;
            }
        })
    }

    /// Runs a replica until it is killed or ends.
    async fn run(&self, replica: &Replica) {
        let parts = RoleParts {
            server: self.server.clone(),
            replica: replica.clone(),
            cloud: self.cloud.clone(),
            timing: self.timing,
            mass_deletion: self.mass_deletion,
        };
        if let Some(wrong) = replica.ended(beside(role::run(parts))).await {
            self.invariants.violated(wrong);
        }
    }
}
