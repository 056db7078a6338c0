//! The world of one seed: an API server, a cloud, a state store, and replicas that are restarted whenever they end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::events::v1::Event;
use serde_json::json;
use tidewaiter_api::NodeIdentity;
use tidewaiter_controller::node_controller::{ForeignLabels, OnForgery, OnGroupChange, Policy};
use tidewaiter_kit::leader::Timing;
use tidewaiter_testkit::sim::{ApiServer, Kind};
use tokio::task::JoinHandle;

use crate::cloud::{Account, Cloud, Mood};
use crate::files::{Bucket, Files};
use crate::invariants::{Invariants, REPLICA};
pub use crate::replica::{Replica, beside, sleep};
use crate::role::{self, EXPIRY, LEASE, LEASE_NAMESPACE, RoleParts};
use crate::truth::{CLUSTER_FILE, GROUPS, Truth, cluster_content, group_file};

/// Longer than the whole simulation of a seed.
const NEVER: Duration = Duration::from_hours(24);

/// Clones share it.
#[derive(Clone, Debug)]
pub struct World {
    pub server: ApiServer,
    pub truth: Arc<Mutex<Truth>>,
    pub cloud: Arc<Mutex<Cloud>>,
    pub files: Files,
    pub invariants: Invariants,
    pub policy: Policy,
    /// The running replica in each slot; `None` between two runs.
    pub replicas: Arc<Mutex<Vec<Option<Replica>>>>,
    /// If false, the cloud's answers are cached forever, so that no new query can make up for a missed change.
    pub instances_change: bool,
    /// The first slots, this many, are not restarted.
    retired: Arc<AtomicUsize>,
    timing: Timing,
    traces: bool,
}

impl World {
    /// A world without Nodes, with random settings.
    pub fn new(random: &mut fastrand::Rng, traces: bool) -> Self {
        let kinds = [
            Kind::of::<Node>().with_status(),
            Kind::of::<Namespace>().with_status(),
            Kind::of::<Lease>(),
            Kind::of::<Event>(),
            Kind::of::<NodeIdentity>(),
        ];
        let server = ApiServer::new(kinds, random.u64(..));
        for name in ["default", LEASE_NAMESPACE] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            assert!(server.create("setup", &namespace));
        }
        let truth = Arc::new(Mutex::new(Truth::new()));
        let policy = Policy {
            foreign_labels: if random.bool() {
                ForeignLabels::Remove
            } else {
                ForeignLabels::Report
            },
            on_forgery: if random.bool() {
                OnForgery::Quarantine
            } else {
                OnForgery::Report
            },
            on_group_change: if random.bool() {
                OnGroupChange::Follow
            } else {
                OnGroupChange::Hold
            },
            ..Policy::default()
        };
        let invariants = Invariants {
            truth: Arc::clone(&truth),
            policy,
            traces,
            seen: Arc::default(),
        };
        server.observe(invariants.clone());
        let cloud = Cloud {
            mood: Mood::Well,
            latency: Duration::from_millis(100),
            random: random.fork(),
        };
        let world = Self {
            server,
            truth,
            cloud: Arc::new(Mutex::new(cloud)),
            files: Files::default(),
            invariants,
            policy,
            replicas: Arc::default(),
            instances_change: random.bool(),
            retired: Arc::default(),
            timing: timing(random),
            traces,
        };
        world.mend();
        world
    }

    /// Repairs all files.
    pub fn mend(&self) {
        self.files.put(CLUSTER_FILE, cluster_content());
        for group in 0..GROUPS.len() {
            self.files
                .put(&group_file(group), self.truth.lock().unwrap().content(group));
        }
    }

    /// Returns the leader's `/metrics`; empty when no replica leads.
    pub fn leader_metrics(&self) -> String {
        let leader = self.server.read(|objects| {
            let lease = objects.get("leases", LEASE_NAMESPACE, LEASE);
            lease.map(|lease| lease["spec"]["holderIdentity"].clone())
        });
        let replicas = self.replicas.lock().unwrap();
        let found = replicas
            .iter()
            .flatten()
            .find(|replica| leader == Some(replica.process.name().into()));
        let kit = found.and_then(|replica| replica.kit.get());
        kit.map(|kit| kit.metrics.encode().unwrap()).unwrap_or_default()
    }

    /// Stops all replicas but the last.
    pub fn retire(&self) {
        let replicas = self.replicas.lock().unwrap().clone();
        self.retired.store(replicas.len() - 1, Ordering::Relaxed);
        for replica in replicas.iter().rev().skip(1).flatten() {
            replica.stop.cancel();
        }
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.traces {
            println!("{:11.4} -- {}", self.server.elapsed().as_secs_f64(), what());
        }
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
                if world.retired.load(Ordering::Relaxed) > place {
                    return;
                }
                let replica = Replica::new(&format!("{REPLICA}{place}.{run}"));
                world.replicas.lock().unwrap()[place] = Some(replica.clone());
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
        let process = &replica.process;
        let parts = RoleParts {
            server: self.server.clone(),
            replica: replica.clone(),
            account: Account {
                cloud: Arc::clone(&self.cloud),
                truth: Arc::clone(&self.truth),
                process: process.clone(),
            },
            bucket: Bucket {
                files: self.files.clone(),
                process: process.clone(),
            },
            policy: self.policy,
            timing: self.timing,
            expiry: if self.instances_change { EXPIRY } else { NEVER },
        };
        if let Some(wrong) = replica.ended(beside(role::run(parts))).await {
            self.invariants.violated(wrong);
        }
    }
}

/// The default timing, or a slower one with fewer renewals in the same time.
fn timing(random: &mut fastrand::Rng) -> Timing {
    if random.u8(..8) == 0 {
        return Timing::default();
    }
    let seconds = Duration::from_secs;
    Timing {
        lease_duration: seconds(60),
        renew_deadline: seconds(40),
        retry_period: seconds(20),
    }
}
