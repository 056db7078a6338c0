//! The setup of the story: a control plane, moto with the state store and the instances, and the released controller.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use tidewaiter_api::NodeIdentity;
use tidewaiter_api::names::{KOPS_NAMESPACE, UNIDENTIFIED_TAINT};
use tidewaiter_testkit::builders::{InstanceGroupBuilder, cluster, controller_config, instance_group, node};
use tidewaiter_testkit::moto::{Launch, Launched, REGION};
use tidewaiter_testkit::{
    ControlPlane, Identity, Kubelet, Moto, Process, Program, Scratch, assets, eventually, free_port,
};
use tokio::io::AsyncWriteExt as _;

use crate::cloud::{Cloud, write};
use crate::coordinator::Coordinator;
use crate::narrator::{Narrator, command, output};
use crate::{Play, story, ways_in};

pub const CLUSTER: &str = "demo.example.com";
const BUCKET: &str = "demo-state";

/// The file that tells the API server whose tokens it trusts.
const TRUSTED: &str = "authentication.json";

/// Longer than anything takes, on a machine that does ten things at once.
pub const SOON: Duration = Duration::from_secs(30);

/// Everything that runs. Dropped, it is gone: the coordinator and the controller first.
#[derive(Debug, Default)]
pub struct World {
    pub coordinator: Option<Coordinator>,
    controller: Option<Controller>,
    pub cloud: Option<Cloud>,
    stage: Option<Stage>,
}

/// The state before the controller.
#[derive(Debug)]
pub struct Stage {
    pub cluster: ControlPlane,
    pub moto: Moto,
    scratch: Scratch,
}

#[derive(Debug)]
struct Controller {
    process: Process,
    admin: String,
    metrics: String,
}

impl World {
    /// Starts the API server and moto, and creates the empty bucket.
    pub async fn raise(&mut self) -> Result<&Stage> {
        let scratch = Scratch::new("demo");
        let nobody =
            json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": []});
        let trusted = scratch.path().join(TRUSTED);
        write(&trusted, &nobody.to_string())?;
        let cluster = ControlPlane::builder().with_authentication(trusted);
        let (cluster, moto) = tokio::join!(cluster.start(), Moto::start());
        moto.create_bucket(BUCKET).await;
        Ok(self.stage.insert(Stage { cluster, moto, scratch }))
    }

    pub fn stage(&self) -> Result<&Stage> {
        self.stage.as_ref().context("nothing runs yet")
    }

    pub fn cloud(&self) -> Result<&Cloud> {
        self.cloud.as_ref().context("the cloud does not run yet")
    }

    /// Starts the released binary as its own service account and waits until it is ready.
    pub async fn start_controller(&mut self) -> Result<()> {
        let stage = self.stage.as_ref().context("nothing runs yet")?;
        let config = stage.write("config.yaml", &config())?;
        let account = Identity::service_account(KOPS_NAMESPACE, "tidewaiter-controller");
        let admin = format!("127.0.0.1:{}", free_port());
        let metrics = format!("127.0.0.1:{}", free_port());
        let mut program = Program::new(binary()?)
            .arg("controller")
            .arg("--conf")
            .arg(config)
            .arg("--kubeconfig")
            .arg(stage.cluster.kubeconfig(&account))
            .arg("--admin-address")
            .arg(&admin)
            .arg("--metrics-address")
            .arg(&metrics)
            .arg("--health-address=127.0.0.1:0")
            .env("TIDEWAITER_STATE_ENDPOINT", stage.moto.endpoint())
            .env("TIDEWAITER_DEFINITIONS_POLL_SECONDS", "1")
            .env("TIDEWAITER_LOG__FORMAT", "text");
        for (key, value) in stage.moto.environment() {
            program = program.env(key, value);
        }
        let process = Process::start(&stage.scratch, program);
        let controller = self.controller.insert(Controller {
            process,
            admin,
            metrics,
        });
        controller.ready().await;
        Ok(())
    }

    /// The address of the controller's admin server.
    pub fn admin(&self) -> Result<&str> {
        Ok(&self
            .controller
            .as_ref()
            .context("the controller does not run yet")?
            .admin)
    }

    /// The address of the MetricsServer.
    pub fn metrics_server(&self) -> Result<&str> {
        Ok(&self
            .controller
            .as_ref()
            .context("the controller does not run yet")?
            .metrics)
    }

    /// Returns the response of the controller's admin server.
    pub async fn get(&self, path: &str) -> Result<String> {
        Ok(reqwest::get(format!("http://{}{path}", self.admin()?))
            .await?
            .text()
            .await?)
    }

    /// Returns the response of the MetricsServer.
    pub async fn scrape(&self) -> Result<String> {
        Ok(reqwest::get(format!("http://{}/metrics", self.metrics_server()?))
            .await?
            .text()
            .await?)
    }
}

impl Play for World {
    async fn tell(&mut self, narrator: &Narrator) -> Result<()> {
        story::tell(narrator, self).await
    }

    fn last_log(&self) -> String {
        match (&self.coordinator, &self.controller) {
            (Some(coordinator), _) => format!("The end of the coordinator's log:\n{}", coordinator.log_tail()),
            (None, Some(controller)) => format!("The end of the controller's log:\n{}", controller.process.log_tail()),
            (None, None) => "The controller had not been started.".to_owned(),
        }
    }

    fn cluster(&self) -> Result<&ControlPlane> {
        Ok(&self.stage()?.cluster)
    }

    fn ways_in(&self) -> Result<String> {
        let controller = self.controller.as_ref().context("the controller does not run yet")?;
        Ok(format!(
            "{}\nmetrics:  http://{}/metrics, of the cluster: http://{}/metrics\nlog:      {}\nCtrl-C stops and removes everything.",
            ways_in::commands(self.stage()?, self.cloud()?)?,
            controller.admin,
            controller.metrics,
            controller.process.log_path().display(),
        ))
    }

    fn summary(&self) -> String {
        ways_in::SUMMARY.to_owned()
    }
}

impl Controller {
    async fn ready(&self) {
        eventually("the controller to be ready", SOON, async || {
            assert!(self.process.is_running(), "the controller ended");
            let answer = reqwest::get(format!("http://{}/readyz", self.admin)).await;
            let answer = answer.map_err(|error| error.to_string())?;
            if answer.status().is_success() {
                return Ok(());
            }
            Err(answer.text().await.unwrap_or_default())
        })
        .await;
    }
}

impl Stage {
    /// Writes a group's file into the state store.
    pub async fn put_group(&self, group: &InstanceGroupBuilder, name: &str) {
        let group = group.clone().set(&["spec", "subnets"], json!([format!("{REGION}a")]));
        self.put(&format!("instancegroup/{name}"), group.to_yaml()).await;
    }

    /// Writes the cluster's file into the state store.
    pub async fn put_cluster(&self) {
        // Nobody resolves its name here.
        let zone = format!("{REGION}a");
        let subnets = json!([{"cidr": "172.20.32.0/19", "name": zone, "type": "Private", "zone": zone}]);
        let unpublished = cluster(CLUSTER, &config_base())
            .set(&["spec", "topology", "dns", "type"], "None")
            .set(&["spec", "subnets"], subnets);
        self.put("cluster-completed.spec", unpublished.to_yaml()).await;
    }

    async fn put(&self, file: &str, content: String) {
        self.moto
            .put_object(BUCKET, &format!("{CLUSTER}/{file}"), content)
            .await;
    }

    /// Launches an instance with this address, and with the tags that kOps gives to those of a group.
    pub async fn launch(&self, address: &str, group: &str, spot: bool) -> Launched {
        let owned = format!("kubernetes.io/cluster/{CLUSTER}");
        let name = format!("{group}.{CLUSTER}");
        let tags = vec![
            ("KubernetesCluster", CLUSTER),
            (owned.as_str(), "owned"),
            ("kops.k8s.io/instancegroup", group),
            ("Name", name.as_str()),
        ];
        let launch = Launch {
            tags,
            spot,
            address,
            ..Launch::default()
        };
        self.moto.launch(&launch).await
    }

    /// Runs the released binary with what its user would have in the environment; gives what it printed and its exit
    /// code.
    pub async fn tidewaiter(&self, args: &[&str]) -> Result<(String, i32)> {
        let output = tokio::process::Command::new(binary()?)
            .args(args)
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig(&Identity::Admin))
            .env("TIDEWAITER_STATE_ENDPOINT", self.moto.endpoint())
            .envs(self.moto.environment())
            // Ctrl-C is the demo's to hear.
            .process_group(0)
            .kill_on_drop(true)
            .output()
            .await
            .context("tidewaiter cannot be run")?;
        let code = output.status.code().context("tidewaiter was killed")?;
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), code))
    }

    /// Registers the Node of an instance as its kubelet does, with the startup taint.
    pub async fn register(&self, instance: &Launched) {
        let node = node(&instance.name)
            .provider_id(&instance.provider_id())
            .internal_ip(&instance.address)
            .taint(UNIDENTIFIED_TAINT, "NoSchedule")
            .build();
        Kubelet::register(&self.cluster, &node).await;
    }

    /// Runs kubectl in the repository's folder and returns what it wrote to its standard output.
    pub async fn kubectl(&self, identity: &Identity, args: &[&str]) -> Result<String> {
        let output = tokio::process::Command::from(self.cluster.kubectl(identity))
            .args(args)
            .current_dir(assets::repository())
            // Ctrl-C is the demo's to hear.
            .process_group(0)
            .kill_on_drop(true)
            .output()
            .await
            .context("kubectl cannot be run")?;
        let Output { status, stdout, stderr } = output;
        let failed = || {
            format!(
                "kubectl {} failed: {}",
                args.join(" "),
                String::from_utf8_lossy(&stderr).trim()
            )
        };
        ensure!(status.success(), failed());
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    /// The folder of the files that are gone afterwards.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Writes a file for a command to read.
    pub fn write(&self, file: &str, content: &str) -> Result<PathBuf> {
        let path = self.scratch.path().join(file);
        write(&path, content)?;
        Ok(path)
    }

    /// From now on the API server trusts the tokens of these issuers: it reads the file again.
    pub fn trust(&self, issuers: &Value) -> Result<()> {
        self.write(TRUSTED, &issuers.to_string()).map(drop)
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client(&Identity::Admin))
    }

    pub fn records(&self) -> Api<NodeIdentity> {
        Api::all(self.cluster.client(&Identity::Admin))
    }
}

/// Shows a kubectl command and what it answers.
pub async fn show(stage: &Stage, args: &[&str]) -> Result<()> {
    let answer = stage.kubectl(&Identity::Admin, args).await?;
    command(&format!("kubectl {}", args.join(" ")));
    output(&answer);
    Ok(())
}

/// A failed look, for [`eventually`].
pub fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns the output of a filter like sed for a text.
pub async fn filtered(text: &str, filter: &str, args: &[&str]) -> Result<String> {
    let mut child = tokio::process::Command::new(filter)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{filter} cannot be run"))?;
    let mut input = child.stdin.take().context("its standard input is a pipe")?;
    let write = async move { input.write_all(text.as_bytes()).await };
    let (written, output) = tokio::join!(write, child.wait_with_output());
    written?;
    Ok(String::from_utf8_lossy(&output?.stdout).into_owned())
}

/// The state store's address.
pub fn state_store() -> String {
    format!("s3://{BUCKET}")
}

/// Returns the folder of the cluster's files in it.
pub fn config_base() -> String {
    format!("{}/{CLUSTER}", state_store())
}

/// The file that kOps writes for kops-controller.
fn config() -> String {
    let region = ["server", "provider", "aws", "Region"];
    controller_config(CLUSTER, &config_base())
        .set(&region, REGION)
        .to_yaml()
}

/// A group of this role with these labels for its nodes.
pub fn group(name: &str, role: &str, labels: &[(&str, &str)]) -> InstanceGroupBuilder {
    let group = instance_group(name, CLUSTER, role);
    labels
        .iter()
        .fold(group, |group, (key, value)| group.node_label(key, value))
}

/// The binary of this program's own profile: this program lies in `<target>/<profile>/examples`.
pub fn binary() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program cannot find itself")?;
    let Some(profile) = own.ancestors().nth(2) else {
        bail!("{} is in no target folder", own.display());
    };
    let binary = profile.join("tidewaiter");
    ensure!(
        binary.is_file(),
        "{} is missing: run make demo, or cargo build --package tidewaiter",
        binary.display()
    );
    Ok(binary)
}
