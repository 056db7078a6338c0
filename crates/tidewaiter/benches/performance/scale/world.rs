//! A cluster of any size: the simulated API server and the fake EC2, both in this process, and the released controller.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use tidewaiter_api::names::{INSTANCE_GROUP_LABEL, KOPS_NAMESPACE};
use tidewaiter_api::{ClusterHealth, NodeIdentity};
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::sim::{
    ApiServer, Kind, Objects, Observer, Process, SentRequest as Request, Served, Verb, Write,
};
use tidewaiter_testkit::usage::cpu_seconds;
use tidewaiter_testkit::{FakeEc2, Scratch, TokenBucket, eventually};
use tokio::sync::watch;

use crate::bed::{CLUSTER, CONFIG, fake_ec2, fill_store, instances, registered};
use crate::process::{self, Role, page};

/// Longer than anything takes.
const TIMEOUT: Duration = Duration::from_mins(6);

pub struct World {
    api: ApiServer,
    served: Served,
    pub ec2: FakeEc2,
    scratch: Scratch,
    instances: Vec<FakeInstance>,
    labelled: watch::Receiver<Labelled>,
}

/// The Nodes that have the label of their group.
#[derive(Clone, Copy, Debug)]
struct Labelled {
    nodes: usize,
    /// When the last one got it.
    at: Instant,
}

/// The requests of the controller so far.
#[derive(Debug)]
pub struct RequestCounts {
    /// By verb and resource.
    pub requests: BTreeMap<String, usize>,
    /// When the first watch of Nodes began: the list before it was complete.
    pub listed: Duration,
}

impl World {
    /// A cluster of this number of Nodes, all without labels.
    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    pub async fn start(nodes: u32) -> Result<Self> {
        let instances = instances(nodes);
        let ec2 = fake_ec2(&instances).await;
        ec2.throttle(Some(TokenBucket::DESCRIBE));
        let scratch = Scratch::new("scale");
        fill_store(scratch.path())?;
        let kinds = [
            Kind::of::<Namespace>(),
            Kind::of::<Node>().with_status(),
            Kind::of::<Pod>().with_status(),
            Kind::of::<Lease>(),
            Kind::of::<Event>(),
            Kind::of::<NodeIdentity>(),
            Kind::of::<ClusterHealth>(),
        ];
        let api = ApiServer::new(kinds, 0);
        for name in ["default", KOPS_NAMESPACE] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            ensure!(
                api.create("setup", &namespace),
                "the Namespace {name} cannot be created"
            );
        }
        for instance in &instances {
            let node = serde_json::to_value(registered(instance))?;
            ensure!(api.create("kubelet", &node), "a Node cannot be created");
        }
        let (sender, labelled) = watch::channel(Labelled {
            nodes: 0,
            at: Instant::now(),
        });
        api.observe(Labels(sender));
        let served = api.serve_on_port(&Process::new("controller")).await;
        Ok(Self {
            api,
            served,
            ec2,
            scratch,
            instances,
            labelled,
        })
    }

    pub fn run(&self, program: &Path) -> Role {
        let config = self.scratch.path().join(CONFIG);
        let kubeconfig = self.served.kubeconfig(&self.scratch);
        process::launch(program, &self.scratch, &config, &kubeconfig, self.ec2.environment())
    }

    /// When the last Node got its label.
    pub async fn all_labelled(&self) -> Result<Instant> {
        let all = |labelled: &Labelled| labelled.nodes == self.instances.len();
        let mut labelled = self.labelled.clone();
        let waited = tokio::time::timeout(TIMEOUT, labelled.wait_for(all)).await;
        let all = waited.with_context(|| format!("{:?} of {}", self.labelled.borrow(), self.instances.len()))?;
        Ok(all.context("the API server is gone")?.at)
    }

    pub fn elapsed(&self) -> Duration {
        self.api.elapsed()
    }

    pub fn request_counts(&self) -> Result<RequestCounts> {
        let sent = self.api.requests();
        let watch = |one: &&Request| one.verb == Verb::Watch && one.resource == "nodes";
        let listed = sent.iter().find(watch).context("the Nodes are not watched")?.at;
        let mut requests = BTreeMap::new();
        for one in sent {
            *requests
                .entry(format!("{} {}", one.verb.as_str(), one.resource))
                .or_default() += 1;
        }
        Ok(RequestCounts { requests, listed })
    }

    /// The writes of Nodes and records so far.
    fn writes(&self) -> Result<usize> {
        let requests = self.request_counts()?.requests.into_iter();
        let writes = requests.filter(|(request, _)| {
            let (verb, resource) = request.split_once(' ').unwrap_or_default();
            matches!(resource, "nodes" | "nodeidentities") && !matches!(verb, "get" | "list" | "watch")
        });
        Ok(writes.map(|(_, count)| count).sum())
    }

    /// Waits until the controller writes no more, and the verdict on the cluster is that it is ready.
    pub async fn settled(&self, controller: &Role) {
        let mut before = usize::MAX;
        eventually("the controller to settle", TIMEOUT, async || {
            let writes = self.writes()?;
            let same = writes == before;
            before = writes;
            ensure!(same, "{writes} writes");
            self.check_ready(controller, self.instances.len()).await
        })
        .await;
    }

    /// Fails unless the verdict is that this number of Nodes is ready.
    async fn check_ready(&self, controller: &Role, nodes: usize) -> Result<()> {
        let page = page(&controller.metrics).await?;
        let ready = format!("kops_node_ready{{cluster_name=\"{CLUSTER}\"}} {nodes}");
        ensure!(page.lines().any(|line| line == ready), "no line {ready} in\n{page}");
        Ok(())
    }

    /// The `number`th report of a kubelet: nothing but the time is another.
    pub fn heartbeat(&self, number: usize) {
        let instance = &self.instances[number % self.instances.len()];
        let time = format!("2026-01-12T09:{:02}:{:02}Z", number / 60 % 60, number % 60);
        let report = |node: &mut Value| node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(time);
        self.api.edit("kubelet", "nodes", "", instance.node_name(), report);
    }

    /// Has the first Node report whether it is ready, and returns the seconds until the gauges tell.
    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    pub async fn told(&self, controller: &Role, ready: bool) -> Result<f64> {
        let status = if ready { "True" } else { "False" };
        let report = |node: &mut Value| {
            let conditions = node["status"]["conditions"].as_array_mut().into_iter().flatten();
            conditions
                .filter(|condition| condition["type"] == "Ready")
                .for_each(|condition| condition["status"] = json!(status));
        };
        let begin = Instant::now();
        self.api
            .edit("kubelet", "nodes", "", self.instances[0].node_name(), report);
        let nodes = self.instances.len() - usize::from(!ready);
        let told = async {
            while self.check_ready(controller, nodes).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, told).await.context("no verdict")?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// The bytes of the ClusterHealth.
    pub fn health_bytes(&self) -> Result<usize> {
        self.api.read(|objects| {
            let health = objects.get("clusterhealths", "", CLUSTER);
            Ok(health.context("no ClusterHealth")?.to_string().len())
        })
    }

    /// Seconds on a core so far of this process: the API server, EC2 and the observer.
    pub fn fakes_cpu_seconds() -> f64 {
        cpu_seconds(std::process::id())
    }
}

struct Labels(watch::Sender<Labelled>);

impl Observer for Labels {
    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    fn written(&mut self, write: &Write, _: Objects<'_>) {
        let has_label = |node: Option<&Value>| {
            let label = node.map(|node| &node["metadata"]["labels"][INSTANCE_GROUP_LABEL]);
            label.is_some_and(Value::is_string)
        };
        if write.resource == "nodes" && !has_label(write.before()) && has_label(write.after()) {
            self.0.send_modify(|labelled| {
                labelled.nodes += 1;
                labelled.at = Instant::now();
            });
        }
    }
}
