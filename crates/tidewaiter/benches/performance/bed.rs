//! The setup for both measurements: one API server, one EC2, one state store, and Nodes that are new for each run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::NodeIdentity;
use tidewaiter_api::names::KOPS_NAMESPACE;
use tidewaiter_testkit::builders::{cluster, controller_config, instance_group, node};
use tidewaiter_testkit::fake_ec2::{FakeGroup, FakeInstance, group};
use tidewaiter_testkit::{Call, ControlPlane, FakeEc2, Identity, Scratch, TokenBucket, eventually};

use tidewaiter_testkit::usage::cpu_seconds;

pub const CLUSTER: &str = "bench.example.com";

/// The number of InstanceGroups, each with its Auto Scaling group; the instances are in them in turn.
pub const GROUPS: u32 = 50;

/// The duration of a call of EC2.
pub const LATENCY: Duration = Duration::from_millis(50);

/// The file that kOps writes for kops-controller.
pub const CONFIG: &str = "config.yaml";
/// The same for a cluster on Compute Engine.
const CONFIG_ON_GCE: &str = "config-on-gce.yaml";

/// Requests under way at once while Nodes are made ready.
const SETTING_UP: usize = 16;

const SOON: Duration = Duration::from_mins(1);

/// A control plane that has everything but Nodes.
pub struct Bed {
    pub cluster: ControlPlane,
    pub ec2: FakeEc2,
    pub scratch: Scratch,
    pub instances: Vec<FakeInstance>,
    /// The program that is measured.
    pub controller: PathBuf,
    admin: Client,
}

impl Bed {
    pub async fn start(nodes: u32, controller: PathBuf) -> Result<Self> {
        let cluster = ControlPlane::start().await;
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        cluster.apply_manifests(deploy.join("crds")).await;
        cluster.apply_manifests(deploy.join("controller/rbac.yaml")).await;
        let instances = instances(nodes);
        let ec2 = fake_ec2(&instances).await;
        let admin = cluster.client(&Identity::Admin);
        let bed = Self {
            cluster,
            ec2,
            scratch: Scratch::new("bench"),
            instances,
            controller,
            admin,
        };
        fill_store(bed.scratch.path())?;
        Ok(bed)
    }

    /// Creates the Node of each of these instances as its kubelet does. EC2's bucket is full afterwards.
    pub async fn register(&self, instances: &[FakeInstance]) -> Result<()> {
        self.create(instances.iter().map(registered)).await
    }

    /// Creates these Nodes.
    pub async fn create(&self, all: impl Iterator<Item = Node>) -> Result<()> {
        let nodes = self.nodes();
        let params = PostParams::default();
        stream::iter(all)
            .map(|node| {
                let (nodes, params) = (&nodes, &params);
                async move { nodes.create(params, &node).await }
            })
            .buffer_unordered(SETTING_UP)
            .try_for_each(|_| async { Ok(()) })
            .await
            .context("the Nodes cannot be created")?;
        self.ec2.throttle(Some(TokenBucket::DESCRIBE));
        self.ec2.clear_calls();
        Ok(())
    }

    /// Deletes all Nodes and records.
    pub async fn clear(&self) -> Result<()> {
        let (params, all) = (DeleteParams::default(), ListParams::default());
        self.nodes().delete_collection(&params, &all).await?;
        self.records().delete_collection(&params, &all).await?;
        eventually("the Nodes and records to be gone", SOON, async || {
            let one = ListParams::default().limit(1);
            let nodes = self
                .nodes()
                .list_metadata(&one)
                .await
                .map_err(|error| error.to_string())?;
            let records = self
                .records()
                .list_metadata(&one)
                .await
                .map_err(|error| error.to_string())?;
            if nodes.items.is_empty() && records.items.is_empty() {
                Ok(())
            } else {
                Err("some are left")
            }
            .map_err(ToOwned::to_owned)
        })
        .await;
        Ok(())
    }

    /// Reports the condition Ready of the `number`th Node again, with a later time.
    pub async fn heartbeat(&self, number: usize) -> Result<()> {
        let time = format!(
            "2026-01-12T{:02}:{:02}:{:02}Z",
            number / 3600 % 24,
            number / 60 % 60,
            number % 60
        );
        let status = json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": time}]}});
        let name = self.instances[number % self.instances.len()].node_name();
        self.nodes()
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
            .await?;
        Ok(())
    }

    /// The calls of EC2 about identities since the last call of this; the verdict requests groups.
    pub fn take_identity_calls(&self) -> Vec<Call> {
        let mut calls = self.ec2.take_calls();
        calls.retain(|call| call.api == "DescribeInstances" && !call.names.is_empty());
        calls
    }

    /// Returns the CPU time of the API server so far.
    pub fn api_server_cpu_seconds(&self) -> f64 {
        cpu_seconds(self.cluster.apiserver().pid())
    }

    /// The file that kOps writes for kops-controller.
    pub fn config(&self) -> PathBuf {
        self.scratch.path().join(CONFIG)
    }

    /// The same for a cluster on Compute Engine.
    pub fn config_on_gce(&self) -> PathBuf {
        self.scratch.path().join(CONFIG_ON_GCE)
    }

    /// The service account that both act as.
    pub fn account() -> Identity {
        Identity::service_account(KOPS_NAMESPACE, "tidewaiter-controller")
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.admin.clone())
    }

    pub fn records(&self) -> Api<NodeIdentity> {
        Api::all(self.admin.clone())
    }

    pub fn admin(&self) -> Client {
        self.admin.clone()
    }
}

/// Returns this number of instances, in [`GROUPS`] groups.
pub fn instances(nodes: u32) -> Vec<FakeInstance> {
    (1..=nodes)
        .map(|number| FakeInstance::numbered(number).kops(CLUSTER, &group_name(number)))
        .collect()
}

/// An EC2 with these instances and their groups.
pub async fn fake_ec2(instances: &[FakeInstance]) -> FakeEc2 {
    let ec2 = FakeEc2::start().await;
    ec2.launch(instances.to_vec());
    ec2.groups((0..GROUPS).map(|number| auto_scaling_group(number, instances)));
    ec2.latency(LATENCY);
    ec2
}

/// The Node of an instance as its kubelet creates it.
pub fn registered(instance: &FakeInstance) -> Node {
    node(instance.node_name())
        .provider_id(&instance.provider_id())
        .internal_ip(instance.address())
        .build()
}

/// Writes a state store with all groups, and the controller's configuration for it: [`CONFIG`], [`CONFIG_ON_GCE`].
#[expect(clippy::disallowed_methods, reason = "written once, before anybody reads it")]
pub fn fill_store(folder: &Path) -> Result<()> {
    let state = folder.join("state");
    let url = format!("file://{}", state.display());
    std::fs::create_dir_all(state.join("instancegroup"))?;
    for name in (0..GROUPS).map(group_name) {
        let group = instance_group(&name, CLUSTER, "Node")
            .node_label("example.com/team", "web")
            .node_label("example.com/tier", "front");
        std::fs::write(state.join("instancegroup").join(name), group.to_yaml())?;
    }
    // Without DNS: no number is to depend on a resolver.
    let cluster = cluster(CLUSTER, &url).set(&["spec", "topology", "dns", "type"], "None");
    std::fs::write(state.join("cluster-completed.spec"), cluster.to_yaml())?;
    std::fs::write(folder.join(CONFIG), controller_config(CLUSTER, &url).to_yaml())?;
    let on_gce = controller_config(CLUSTER, &url).set(&["cloud"], "gce");
    std::fs::write(
        folder.join(CONFIG_ON_GCE),
        on_gce.without(&["server", "provider"]).to_json(),
    )?;
    Ok(())
}

/// The InstanceGroup of the `number`th instance.
pub fn group_name(number: u32) -> String {
    format!("nodes-{:02}", number % GROUPS)
}

/// The `number`th group, with its part of the instances.
fn auto_scaling_group(number: u32, instances: &[FakeInstance]) -> FakeGroup {
    let (name, template) = (group_name(number), "lt-0123456789abcdef0");
    let ours = (1..).zip(instances).filter(|(instance, _)| instance % GROUPS == number);
    let members: Vec<_> = ours
        .map(|(_, instance)| instance.member().template(template, "1"))
        .collect();
    let size = i32::try_from(members.len()).unwrap_or(i32::MAX);
    group(&format!("{name}.{CLUSTER}"))
        .kops(CLUSTER, &name)
        .sizes(0, size, size)
        .template(template, "1")
        .with(members)
}
