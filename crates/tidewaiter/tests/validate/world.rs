//! The world of a test: a control plane, an AWS, a state store, and the command that is run against them.

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tidewaiter_testkit::builders::{ClusterBuilder, cluster, instance_group};
use tidewaiter_testkit::fake_ec2::{FakeGroup, group};
use tidewaiter_testkit::{ControlPlane, FakeEc2, Identity, Reused, Scratch};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

pub const CLUSTER: &str = "test.example.com";

/// Longer than anything takes, on a machine that does ten things at once.
pub const SOON: Duration = Duration::from_mins(3);

/// A person who may look, and where pods may be made.
const MANIFESTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: may-validate}
rules:
- {apiGroups: [""], resources: [nodes, pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: may-validate}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: may-validate}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: kube-system}
"#;

pub fn alice() -> Identity {
    Identity::user("alice", &[])
}

/// A state store in a folder.
pub struct Store(Scratch);

impl Store {
    /// With a Cluster without DNS, so that no test depends on a resolver, and a group of workers.
    pub fn new() -> Self {
        let store = Self(Scratch::new("validate"));
        store.put_cluster(|cluster| cluster);
        store.put(
            "instancegroup/nodes",
            &instance_group("nodes", CLUSTER, "Node").to_yaml(),
        );
        store
    }

    pub fn put_cluster(&self, fill: impl FnOnce(ClusterBuilder) -> ClusterBuilder) {
        let cluster = cluster(CLUSTER, &self.url()).set(&["spec", "topology", "dns", "type"], "None");
        self.put("cluster-completed.spec", &fill(cluster).to_yaml());
    }

    pub fn url(&self) -> String {
        format!("file://{}", self.0.path().display())
    }

    /// Writes a file of the cluster, whole or not at all.
    pub fn put(&self, name: &str, content: &str) {
        self.write(&format!("{CLUSTER}/{name}"), content);
    }

    /// Writes any file; returns its path.
    #[expect(clippy::disallowed_methods, reason = "nobody reads it yet")]
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let file = self.0.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let new = file.with_extension("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, &file).unwrap();
        file
    }

    /// A kubeconfig for an API server at `server`; returns its path.
    pub fn kubeconfig(&self, server: &str) -> String {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "any", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "any",
        });
        self.write("kubeconfig", &kubeconfig.to_string()).display().to_string()
    }
}

/// An AWS with the group of the store, which has no instance and wants none.
pub async fn aws() -> FakeEc2 {
    let ec2 = FakeEc2::start().await;
    ec2.groups([workers().sizes(0, 0, 3)]);
    ec2
}

/// The Auto Scaling group of the workers.
pub fn workers() -> FakeGroup {
    group(&format!("nodes.{CLUSTER}")).kops(CLUSTER, "nodes")
}

pub struct World {
    pub cluster: Reused,
    pub store: Store,
    pub ec2: FakeEc2,
}

impl World {
    /// Ready: without Nodes and pods, and with a group without instances.
    pub async fn start() -> Self {
        let cluster = ControlPlane::reused(async |cluster| cluster.apply(MANIFESTS).await).await;
        Self {
            cluster,
            store: Store::new(),
            ec2: aws().await,
        }
    }

    /// The command as alice runs it, with credentials for this AWS.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let kubeconfig = self.cluster.kubeconfig(&alice()).display().to_string();
        let mut command = command(&self.store.url(), &kubeconfig, arguments);
        command.envs(self.ec2.environment());
        command
    }

    pub async fn validate(&self, arguments: &[&str]) -> Output {
        finished(self.command(arguments)).await
    }

    pub fn running(&self, arguments: &[&str]) -> Running {
        Running::start(self.command(arguments))
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client(&Identity::Admin), "kube-system")
    }

    /// Makes a pod of the system that nothing runs.
    pub async fn pending_pod(&self, name: &str) {
        let pod = json!({
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"priorityClassName": "system-cluster-critical", "containers": [{"name": "c", "image": "i"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
    }
}

/// The command for the cluster of a store. Nothing else in its environment says where a cluster or a cloud is.
pub fn command(store: &str, kubeconfig: &str, arguments: &[&str]) -> Command {
    let mut command = bare(arguments);
    command.args(["--name", CLUSTER, "--state", store, "--kubeconfig", kubeconfig]);
    command
}

pub fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
    command.env_clear().env("AWS_EC2_METADATA_DISABLED", "true");
    command
        .arg("validate")
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Awaits its end, which must come.
pub async fn finished(mut command: Command) -> Output {
    let output = tokio::time::timeout(SOON, command.output()).await;
    output.expect("it ends").unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The parts that the verdict says are unknown, with their reasons.
pub fn unknown(output: &Output) -> Vec<(String, String)> {
    let verdict = json_of(output);
    let unknown = verdict["unknown"].as_array().cloned().unwrap_or_default();
    let field = |unknown: &Value, name: &str| unknown[name].as_str().unwrap().to_owned();
    unknown
        .iter()
        .map(|unknown| (field(unknown, "part"), field(unknown, "reason")))
        .collect()
}

/// The command while it runs.
pub struct Running {
    child: Child,
    told: Lines<BufReader<ChildStderr>>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let told = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, told }
    }

    /// The next line on standard error.
    pub async fn told(&mut self) -> String {
        let line = tokio::time::timeout(SOON, self.told.next_line()).await;
        line.expect("it tells something").unwrap().expect("it runs on")
    }

    /// The next line on standard error that has these words.
    pub async fn tells(&mut self, words: &str) {
        let told = async { while !self.told().await.contains(words) {} };
        let told = tokio::time::timeout(SOON, told).await;
        told.unwrap_or_else(|_| panic!("it tells {words:?}"));
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Awaits its end: the code, and what it printed.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let mut printed = String::new();
        let mut out = self.child.stdout.take().unwrap();
        let end = async {
            out.read_to_string(&mut printed).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = tokio::time::timeout(SOON, end).await.expect("it ends");
        (status.code(), printed)
    }
}
