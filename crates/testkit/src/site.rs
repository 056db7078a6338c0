//! A cluster as kOps leaves it, on real nodes: its configuration, its state store and its machines at AWS (moto), and a
//! registry with the images of the binary under test.

mod aws;
pub mod cloud;
mod commands;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use self::aws::launch;
pub use self::cloud::{Cloud, client};
use crate::builders::{cluster, controller_config, instance_group, node};
use crate::images::VERSION;
use crate::moto::{Launched, Moto, REGION};
use crate::{
    ControlPlane, Identity, Images, Kubelet, KubeletVersion, NodeOptions, RealNode, Registry, Scratch, eventually,
};

/// For what takes seconds on an idle machine.
pub const SOON: Duration = Duration::from_mins(4);

/// As in the manifests of `deploy/`.
pub const REPOSITORY: &str = "registry.invalid/tidewaiter";

/// The name of the cluster.
pub const CLUSTER: &str = "test.example.com";
/// The InstanceGroup of the control plane.
pub const CONTROL_PLANE: &str = "control-plane";
/// The InstanceGroup of workers.
pub const WORKERS: &str = "nodes";
/// Nodes get their addresses from here on, in the order in which they start.
const FIRST_ADDRESS: u8 = 10;
/// The label of a Node with its InstanceGroup.
const INSTANCE_GROUP: &str = "kops.k8s.io/instancegroup";
const BUCKET: &str = "state";
/// A newer image than [`VERSION`].
pub const NEWER: &str = "0.1.1-test";

/// The inotify instances of a node: without one, containerd starts without its interface for kubelet, and systemd
/// misses the files that a unit waits for.
const INOTIFY_INSTANCES_OF_A_NODE: usize = 16;
/// The inotify instances of the machine, and of other tests on it.
const INOTIFY_INSTANCES_OF_OTHERS: usize = 32;
/// Nodes at the same time: 6 with the 128 instances that Linux gives a user by default.
static NODES: LazyLock<usize> =
    LazyLock::new(|| instances().saturating_sub(INOTIFY_INSTANCES_OF_OTHERS) / INOTIFY_INSTANCES_OF_A_NODE);
static FREE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*NODES));

fn instances() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").expect("a limit of Linux");
    limit.trim().parse().expect("a number")
}

/// Waits until this machine can run `nodes` nodes besides those of other tests of this process. They may run until the
/// permit is dropped.
///
/// # Panics
/// Panics if the machine can never have that many.
pub async fn room(nodes: usize) -> SemaphorePermit<'static> {
    assert!(
        nodes <= *NODES,
        "this machine runs {} nodes at once, and {nodes} are needed: raise fs.inotify.max_user_instances",
        *NODES
    );
    let number = u32::try_from(nodes).expect("a small number");
    FREE.acquire_many(number).await.expect("never closed")
}

/// A running cluster. Dropped, it is gone.
#[derive(Debug)]
pub struct Site {
    /// In the order of their groups.
    pub nodes: Vec<RealNode>,
    /// Has all images.
    pub registry: Registry,
    /// In the place of AWS.
    pub moto: Moto,
    /// Without anything of Tidewaiter.
    pub control_plane: ControlPlane,
    /// For files.
    pub scratch: Scratch,
    /// Of the binary under test.
    pub images: Arc<Images>,
    _place: SemaphorePermit<'static>,
}

impl Site {
    /// A node for each of these InstanceGroups; all but the first have the kubelet of the release before. The registry
    /// has both images and the newer one, and the nodes have the first one.
    pub async fn start(images: impl Future<Output = Arc<Images>>, groups: &[&str]) -> Self {
        Self::start_at(KubeletVersion::Current, images, groups).await
    }

    /// The same with this kubelet on the first node.
    pub async fn start_at(first: KubeletVersion, images: impl Future<Output = Arc<Images>>, groups: &[&str]) -> Self {
        let place = room(groups.len()).await;
        let control_plane = ControlPlane::builder().with_nodes().start().await;
        let IpAddr::V4(gateway) = control_plane.address().ip() else {
            panic!("nodes have IPv4");
        };
        let (moto, registry) = tokio::join!(Moto::start_on(gateway), Registry::start(&control_plane));
        moto.create_bucket(BUCKET).await;
        let options = machines(&moto, gateway, groups).await;
        let (nodes, images) = tokio::join!(start(&control_plane, first, &options), async {
            let images = images.await;
            push(&registry, &images).await;
            images
        });
        for (node, number) in nodes.iter().zip(FIRST_ADDRESS..) {
            assert_eq!(node.address().octets()[3], number, "EC2 knows its address");
        }
        let image = format!("{REPOSITORY}:{VERSION}");
        join_all(nodes.iter().map(|node| node.pull(&image))).await;
        let site = Self {
            nodes,
            registry,
            moto,
            control_plane,
            scratch: Scratch::new("site"),
            images,
            _place: place,
        };
        site.configure().await;
        site
    }

    /// Writes the files that kOps writes.
    async fn configure(&self) {
        let base = format!("s3://{BUCKET}/{CLUSTER}");
        // Nobody resolves its name here.
        let spec = cluster(CLUSTER, &base).set(&["spec", "topology", "dns", "type"], "None");
        self.put("cluster-completed.spec", &spec.to_yaml()).await;
        for (name, role) in [(WORKERS, "Node"), (CONTROL_PLANE, "ControlPlane")] {
            let group = instance_group(name, CLUSTER, role).node_label("team", "red");
            self.put(&format!("instancegroup/{name}"), &group.to_yaml()).await;
        }
        let config = controller_config(CLUSTER, &base).set(&["server", "provider", "aws", "Region"], REGION);
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kops-controller", "namespace": "kube-system"},
            "data": {"config.yaml": config.to_json()},
        });
        self.control_plane.apply(&map.to_string()).await;
    }

    async fn put(&self, file: &str, content: &str) {
        self.moto
            .put_object(BUCKET, &format!("{CLUSTER}/{file}"), content)
            .await;
    }

    /// The variables with which a container reaches what stands for AWS.
    pub fn aws(&self) -> Value {
        let variables = self.moto.environment().into_iter();
        variables
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .collect()
    }

    /// The values of a release with the controller.
    pub fn controller_values(&self) -> Value {
        json!({
            "image": {"repository": REPOSITORY},
            "controller": {
                "enabled": true,
                "env": self.aws(),
                "settings": {"stateEndpoint": self.moto.endpoint(), "definitionsPollSeconds": 1},
            },
        })
    }

    /// Waits for the rollout of a workload.
    pub async fn rolled_out(&self, namespace: &str, workload: &str) {
        self.kubectl(&format!("-n {namespace} rollout status --timeout=4m {workload}"))
            .await;
    }

    /// A Node of a machine that is not there: its kubelet registers it, and is silent from then on. No pod is scheduled
    /// there, and it is not in the verdict.
    pub async fn join(&self, number: u8) -> Kubelet {
        let address = format!("10.0.0.{number}");
        let machine = launch(&self.moto, WORKERS, &address).await;
        let node = node(&machine.name)
            .provider_id(&machine.provider_id())
            .internal_ip(&address);
        Kubelet::register(
            &self.control_plane,
            &node.taint("example.com/absent", "NoSchedule").build(),
        )
        .await
    }

    /// Waits until a Node has the labels of its group.
    pub async fn is_labelled(&self, name: &str, group: &str) {
        let nodes: Api<Node> = Api::all(self.control_plane.client(&Identity::Admin));
        eventually(format!("{name} to have the labels of {group}"), SOON, async || {
            let found = nodes.get(name).await.map_err(shown)?;
            let labels = found.labels();
            let is_so = labels.get(INSTANCE_GROUP).is_some_and(|found| found == group)
                && labels.get("team").is_some_and(|team| team == "red");
            if is_so { Ok(()) } else { Err(format!("{labels:?}")) }
        })
        .await;
    }

    /// The pods of Tidewaiter and of kops-controller that are not ending.
    pub async fn pods(&self) -> Vec<Pod> {
        let all: Api<Pod> = Api::all(self.control_plane.client(&Identity::Admin));
        let mut found = Vec::new();
        for selector in ["app.kubernetes.io/name=tidewaiter", "k8s-app=kops-controller"] {
            found.extend(all.list(&ListParams::default().labels(selector)).await.unwrap().items);
        }
        let phase = |pod: &Pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.phase.clone())
                .unwrap_or_default()
        };
        found.retain(|pod| {
            pod.metadata.deletion_timestamp.is_none() && phase(pod) != "Failed" && phase(pod) != "Succeeded"
        });
        found
    }

    /// Nothing of ours was restarted since it was created.
    pub async fn nothing_was_restarted(&self) {
        for pod in self.pods().await {
            let name = pod.name_any();
            let statuses = pod.status.unwrap_or_default().container_statuses.unwrap_or_default();
            assert_eq!(statuses.len(), 1, "{name}: {statuses:?}");
            assert_eq!(statuses[0].restart_count, 0, "{name}: {statuses:?}");
        }
    }

    /// Waits until both nodes are Ready and every pod of ours is.
    pub async fn is_well(&self) {
        for node in &self.nodes {
            node.ready().await;
        }
        eventually("every pod to be ready", SOON, async || {
            let pods = self.pods().await;
            let not_ready = pods.iter().filter(|pod| !is_ready(pod));
            let names: Vec<_> = not_ready.map(|pod| (pod.name_any(), pod.status.clone())).collect();
            if names.is_empty() {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
    }

    /// The address of a Service.
    pub async fn service(&self, namespace: &str, name: &str) -> String {
        self.kubectl(&format!(
            "-n {namespace} get service {name} -o jsonpath={{.spec.clusterIP}}"
        ))
        .await
    }

    /// Returns the response from an address to a program on this node.
    ///
    /// # Errors
    /// The failed request.
    pub async fn get(&self, from: &RealNode, url: &str) -> Result<String, String> {
        let url = url.to_owned();
        from.on_its_network(move || async move {
            let answer = plain().get(url).send().await.map_err(shown)?;
            answer.error_for_status().map_err(shown)?.text().await.map_err(shown)
        })
        .await
    }

    /// The gauge of the `MetricsServer`, behind its Service.
    ///
    /// # Errors
    /// The failed request.
    pub async fn gauge(&self, from: &RealNode, name: &str) -> Result<usize, String> {
        let service = self.service("kube-system", "kops-controller").await;
        let text = self.get(from, &format!("http://{service}:3987/metrics")).await?;
        let line = text.lines().find(|line| line.split('{').next() == Some(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.ok_or_else(|| format!("no {name} in {text}"))
    }

    /// Waits until the verdict counts this number of Nodes, and this number that are not ready.
    pub async fn verdict_counts(&self, from: &RealNode, nodes: usize, not_ready: usize) {
        eventually(
            format!("{not_ready} of {nodes} Nodes not to be ready"),
            SOON,
            async || {
                let ready = self.gauge(from, "kops_node_ready").await?;
                let unready = self.gauge(from, "kops_node_notReady").await?;
                let is_so = (ready + unready, unready) == (nodes, not_ready);
                if is_so {
                    Ok(())
                } else {
                    Err(format!("{ready} ready, {unready} not"))
                }
            },
        )
        .await;
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Keeps no connection and uses no proxy.
#[must_use]
pub fn plain() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
    client.timeout(Duration::from_secs(5)).build().unwrap()
}

/// Launches an instance for each node of these groups.
async fn machines(moto: &Moto, gateway: Ipv4Addr, groups: &[&str]) -> Vec<NodeOptions> {
    aws::make_groups(moto).await;
    let [a, b, c, _] = gateway.octets();
    let mut made = Vec::new();
    for (group, number) in groups.iter().zip(FIRST_ADDRESS..) {
        let machine = launch(moto, group, &Ipv4Addr::new(a, b, c, number).to_string()).await;
        aws::attach(moto, &machine, group).await;
        made.push(options(&machine, group));
    }
    made
}

async fn start(control_plane: &ControlPlane, first: KubeletVersion, options: &[NodeOptions]) -> Vec<RealNode> {
    let versions = std::iter::once(first).chain(std::iter::repeat(KubeletVersion::Previous));
    let starts = options
        .iter()
        .zip(versions)
        .map(|(options, version)| RealNode::start(control_plane, version, options));
    join_all(starts).await
}

async fn push(registry: &Registry, images: &Images) {
    registry.push(&images.tidewaiter()).await;
    registry.push(&images.kops_controller()).await;
    registry.relabel(&images.tidewaiter(), NEWER).await;
}

/// The labels of the control plane are those that kOps sets before kops-controller can run.
fn options(machine: &Launched, group: &str) -> NodeOptions {
    let options = NodeOptions::new(&machine.name)
        .provider_id(machine.provider_id())
        .api_server_on_loopback();
    if group != CONTROL_PLANE {
        return options;
    }
    options
        .label("node-role.kubernetes.io/control-plane", "")
        .label("kops.k8s.io/kops-controller-pki", "")
}

/// A failed look, for [`eventually()`].
fn shown(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}
