//! A cluster as kOps leaves it, on real nodes: its configuration, its state store and its machines at AWS, and a registry.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_testkit::builders::{cluster, controller_config, instance_group, node};
use tidewaiter_testkit::moto::{Launch, Launched, Moto, REGION};
use tidewaiter_testkit::{
    ControlPlane, Identity, Kubelet, KubeletVersion, NodeOptions, RealNode, Registry, Scratch, assets, eventually,
};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{REPOSITORY, SOON, VERSION, images, output, repository, shown, tried};

pub const CLUSTER: &str = "test.example.com";
/// The InstanceGroups.
pub const CONTROL_PLANE: &str = "control-plane";
pub const WORKERS: &str = "nodes";
const BUCKET: &str = "state";
/// A newer image than [`VERSION`].
pub const NEWER: &str = "0.1.1-test";

/// Sites at the same time. A node has 16 of the 128 inotify instances that Linux gives a user by default: without one, containerd
/// starts without its interface for kubelet. Other tests on the machine need some, too.
const SITES: usize = 2;
static FREE: Semaphore = Semaphore::const_new(SITES);

pub struct Site {
    pub nodes: Vec<RealNode>,
    pub registry: Registry,
    pub moto: Moto,
    pub control_plane: ControlPlane,
    pub scratch: Scratch,
    _place: SemaphorePermit<'static>,
}

impl Site {
    /// Two nodes, each of an InstanceGroup; the second one has the kubelet of the release before. The registry has both images and
    /// the newer one, and the nodes have the first one.
    pub async fn start(groups: [&str; 2]) -> Self {
        let place = FREE.acquire().await.unwrap();
        let (control_plane, images) = tokio::join!(ControlPlane::builder().with_nodes().start(), images());
        let IpAddr::V4(gateway) = control_plane.address().ip() else {
            panic!("nodes have IPv4");
        };
        let (moto, registry) = tokio::join!(Moto::start_on(gateway), Registry::start(&control_plane));
        moto.create_bucket(BUCKET).await;
        let [a, b, c, _] = gateway.octets();
        // Nodes get their addresses in the order in which they start.
        let machines = [10, 11].map(|d| Ipv4Addr::new(a, b, c, d).to_string());
        make_groups(&moto).await;
        let launched = [
            launch(&moto, groups[0], &machines[0]).await,
            launch(&moto, groups[1], &machines[1]).await,
        ];
        for (machine, group) in launched.iter().zip(groups) {
            attach(&moto, machine, group).await;
        }
        let versions = [KubeletVersion::Current, KubeletVersion::Previous];
        let options: Vec<_> = launched
            .iter()
            .zip(groups)
            .map(|(machine, group)| options(machine, group))
            .collect();
        let (first, second, ()) = tokio::join!(
            RealNode::start(&control_plane, versions[0], &options[0]),
            RealNode::start(&control_plane, versions[1], &options[1]),
            async {
                registry.push(&images.tidewaiter).await;
                registry.push(&images.kops_controller).await;
                registry.relabel(&images.tidewaiter, NEWER).await;
            }
        );
        let nodes = vec![first, second];
        for (node, machine) in nodes.iter().zip(&machines) {
            assert_eq!(node.address().to_string(), *machine);
        }
        let image = format!("{REPOSITORY}:{VERSION}");
        tokio::join!(nodes[0].pull(&image), nodes[1].pull(&image));
        let site = Self {
            nodes,
            registry,
            moto,
            control_plane,
            scratch: Scratch::new("site"),
            _place: place,
        };
        site.configure().await;
        site
    }

    /// What kOps writes.
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

    /// Runs Helm with values in a file, and returns what it prints.
    pub async fn helm(&self, words: &str, values: &Value) -> String {
        let file = self.file("values.json", &values.to_string());
        let mut helm = self.helm_alone(words);
        output(helm.arg("--values").arg(file)).await
    }

    pub fn helm_alone(&self, words: &str) -> Command {
        let mut helm = Command::new(assets::helm());
        helm.args(words.split(' ')).current_dir(repository()).env_clear();
        helm.env("HOME", self.scratch.path())
            .env("KUBECONFIG", self.control_plane.kubeconfig(&Identity::Admin));
        helm
    }

    /// Runs kubectl as an administrator, and returns what it prints.
    pub async fn kubectl(&self, words: &str) -> String {
        output(&mut self.kubectl_command(words)).await
    }

    /// The same, or how it failed.
    pub async fn try_kubectl(&self, words: &str) -> Result<String, String> {
        tried(&mut self.kubectl_command(words)).await
    }

    /// The same with something to read.
    pub async fn kubectl_with(&self, words: &str, input: &str) -> String {
        let mut command = self.kubectl_command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "kubectl {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn kubectl_command(&self, words: &str) -> Command {
        let mut command = Command::from(self.control_plane.kubectl(&Identity::Admin));
        command.args(words.split(' ')).current_dir(repository());
        command
    }

    #[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Waits for the rollout of a workload.
    pub async fn rolled_out(&self, namespace: &str, workload: &str) {
        self.kubectl(&format!("-n {namespace} rollout status --timeout=4m {workload}"))
            .await;
    }

    /// A Node of a machine that is not there: its kubelet registers it, and is silent from then on. No pod is scheduled there, and it is
    /// not in the verdict.
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
            let is_so = labels.get(INSTANCE_GROUP_LABEL).is_some_and(|found| found == group)
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

    /// What a program on this node gets from an address.
    pub async fn get(&self, from: &RealNode, url: &str) -> Result<String, String> {
        let url = url.to_owned();
        from.on_its_network(move || async move {
            let answer = plain().get(url).send().await.map_err(shown)?;
            answer.error_for_status().map_err(shown)?.text().await.map_err(shown)
        })
        .await
    }

    /// The gauge of the MetricsServer, behind its Service.
    pub async fn gauge(&self, from: &RealNode, name: &str) -> Result<usize, String> {
        let service = self.service("kube-system", "kops-controller").await;
        let text = self.get(from, &format!("http://{service}:3987/metrics")).await?;
        let line = text.lines().find(|line| line.split('{').next() == Some(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.ok_or_else(|| format!("no {name} in {text}"))
    }

    /// Waits until the verdict counts so many Nodes, of which so many are not ready.
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
pub fn plain() -> reqwest::Client {
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
    client.timeout(Duration::from_secs(5)).build().unwrap()
}

async fn launch(moto: &Moto, group: &str, address: &str) -> Launched {
    let tags = vec![("KubernetesCluster", CLUSTER), ("kops.k8s.io/instancegroup", group)];
    let launch = Launch {
        tags,
        address,
        ..Launch::default()
    };
    moto.launch(&launch).await
}

fn form(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// An Auto Scaling group for each InstanceGroup, empty at first.
async fn make_groups(moto: &Moto) {
    let template = [
        ("LaunchTemplateName", "machines"),
        ("LaunchTemplateData.ImageId", "ami-12c6146b"),
        ("LaunchTemplateData.InstanceType", "m6i.large"),
    ];
    moto.ec2("CreateLaunchTemplate", &form(&template)).await;
    for group in [CONTROL_PLANE, WORKERS] {
        let definition = [
            ("AutoScalingGroupName", group),
            ("AvailabilityZones.member.1", "us-east-1a"),
            ("LaunchTemplate.LaunchTemplateName", "machines"),
            ("LaunchTemplate.Version", "$Latest"),
            ("MinSize", "0"),
            ("DesiredCapacity", "0"),
            ("MaxSize", "9"),
            ("Tags.member.1.Key", "KubernetesCluster"),
            ("Tags.member.1.Value", CLUSTER),
            ("Tags.member.2.Key", "kops.k8s.io/instancegroup"),
            ("Tags.member.2.Value", group),
        ];
        moto.autoscaling("CreateAutoScalingGroup", &form(&definition)).await;
    }
}

/// The verdict on the cluster is on the machines of its groups.
async fn attach(moto: &Moto, machine: &Launched, group: &str) {
    let attach = [("AutoScalingGroupName", group), ("InstanceIds.member.1", &machine.id)];
    moto.autoscaling("AttachInstances", &form(&attach)).await;
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
