//! The world of a test: a control plane, an EC2, a state store, and the released roles that run against them.
//!
//! The controller runs as a process, as its own service account with the role of `deploy/controller`, through a proxy
//! in which faults can be made. What a test looks at is the API server's answer, its audit log, and the controller's
//! metrics.

#[path = "world/told.rs"]
mod told;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::Value;
use tidewaiter_api::names::{KOPS_LEASE, KOPS_NAMESPACE, UNIDENTIFIED_TAINT};
use tidewaiter_api::{ConditionStatus, NodeIdentity, NodeIdentityStatus};
use tidewaiter_testkit::builders::{
    InstanceGroupBuilder, NodeBuilder, cluster, controller_config, instance_group, node,
};
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{
    ApiProxy, AuditEntry, Call, ControlPlane, FakeEc2, Identity, Kubelet, Process, Program, Reused, Scratch,
    eventually, free_port, settled,
};

pub const CLUSTER: &str = "test.example.com";

/// Longer than anything takes, on a machine that does ten things at once.
pub const SOON: Duration = Duration::from_mins(4);

/// The labels of a Node, or of a record.
pub type Labels = BTreeMap<String, String>;

/// The environment of the controllers of a test.
#[derive(Debug)]
pub struct World {
    pub cluster: Reused,
    pub ec2: FakeEc2,
    pub store: Store,
    scratch: Scratch,
}

/// A state store in a folder, and where the controller looks for it.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    url: String,
}

/// A running controller, the proxy that it reaches the API server through, and its admin server.
#[derive(Debug)]
pub struct Controller {
    pub process: Arc<Process>,
    pub proxy: ApiProxy,
    admin: String,
    /// Keeps no connection: the controller closes each sooner or later.
    http: reqwest::Client,
    /// The address of its MetricsServer.
    pub metrics_address: String,
    /// The address of its probes.
    pub health_address: String,
}

/// The service account of `deploy/controller`.
pub fn service_account() -> Identity {
    Identity::service_account(KOPS_NAMESPACE, "tidewaiter-controller")
}

/// Applies what `deploy/` holds for the controller.
async fn deploy(cluster: &ControlPlane) {
    cluster.apply_manifests(repository().join("deploy/crds")).await;
    for file in ["rbac.yaml", "admission.yaml"] {
        let path = repository().join("deploy/controller").join(file);
        cluster.apply_manifests(path).await;
    }
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl World {
    /// A control plane for itself with what `deploy/` holds, an EC2 without instances, a store with the Cluster.
    pub async fn start() -> Self {
        Self::with(ControlPlane::reused(deploy).await).await
    }

    /// The same on a control plane that is there already.
    pub async fn on(cluster: ControlPlane) -> Self {
        deploy(&cluster).await;
        Self::with(cluster.into()).await
    }

    /// The same without what `deploy/` holds.
    pub async fn as_it_is(cluster: ControlPlane) -> Self {
        Self::with(cluster.into()).await
    }

    async fn with(cluster: Reused) -> Self {
        let scratch = Scratch::new("controller-world");
        let folder = scratch.path().join(CLUSTER);
        let url = format!("file://{}", folder.display());
        let store = Store { folder, url };
        // Nobody resolves its name here.
        let unpublished = self::cluster(CLUSTER, &store.url()).set(&["spec", "topology", "dns", "type"], "None");
        store.put("cluster-completed.spec", &unpublished.to_yaml());
        Self {
            cluster,
            ec2: FakeEc2::start().await,
            store,
            scratch,
        }
    }

    /// kops-controller's configuration file for this world.
    pub fn config(&self) -> String {
        controller_config(CLUSTER, &self.store.url()).to_json()
    }

    /// Starts a controller and waits until its caches are full.
    pub async fn controller(&self) -> Controller {
        self.controller_with(&[]).await
    }

    /// The same with more variables in its environment.
    pub async fn controller_with(&self, environment: &[(&str, &str)]) -> Controller {
        let controller = self.controller_that_is_not_ready(environment);
        controller.ready().await;
        controller
    }

    /// The same without waiting: it is not ready as long as the state store gives it no Cluster.
    pub fn controller_that_is_not_ready(&self, environment: &[(&str, &str)]) -> Controller {
        let ec2 = self.ec2.environment();
        let ec2 = ec2.iter().map(|(key, value)| (*key, value.as_str()));
        let environment: Vec<_> = ec2.chain(environment.iter().copied()).collect();
        self.run(self.role(&self.config()), &service_account(), &environment)
    }

    /// One with another configuration file, and nothing that tells of this world's EC2.
    pub async fn controller_from(&self, config_file: &str, environment: &[(&str, &str)]) -> Controller {
        let controller = self.run(self.role(config_file), &service_account(), environment);
        controller.ready().await;
        controller
    }

    /// One whose state store is an empty folder.
    pub fn controller_without_a_store(&self) -> Controller {
        let url = format!("file://{}", self.scratch.path().join("no-state").display());
        let config = self.file("no-state.yaml", &controller_config(CLUSTER, &url).to_json());
        let ec2 = self.ec2.environment();
        let environment: Vec<_> = ec2.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .arg("controller")
            .arg("--conf")
            .arg(config);
        self.run(program, &service_account(), &environment)
    }

    /// One whose log goes into this file or pipe.
    pub async fn controller_that_logs_to(&self, log: &Path, filter: &str) -> Controller {
        let program = Program::new("/bin/sh")
            .args(["-c", "exec \"$0\" controller --conf \"$1\" 2>\"$2\""])
            .arg(env!("CARGO_BIN_EXE_tidewaiter"))
            .arg(self.file("config.yaml", &self.config()))
            .arg(log);
        let ec2 = self.ec2.environment();
        let mut environment: Vec<_> = ec2.iter().map(|(key, value)| (*key, value.as_str())).collect();
        environment.push(("TIDEWAITER_LOG__FILTER", filter));
        let controller = self.run(program, &service_account(), &environment);
        controller.ready().await;
        controller
    }

    fn role(&self, config_file: &str) -> Program {
        Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .arg("controller")
            .arg("--conf")
            .arg(self.file("config.yaml", config_file))
    }

    /// Starts one in the place of kops-controller: called by that name with the arguments that kOps gives it, as its
    /// service account.
    pub async fn kops_controller(&self) -> Controller {
        let path = self.scratch.path().join("kops-controller");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidewaiter"), &path).unwrap();
        let config = self.file("config.yaml", &self.config());
        let program = Program::new(path)
            .arg("--v=2")
            .arg(format!("--conf={}", config.display()));
        let ec2 = self.ec2.environment();
        let environment: Vec<_> = ec2.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let who = Identity::service_account(KOPS_NAMESPACE, "kops-controller");
        let controller = self.run(program, &who, &environment);
        controller.ready().await;
        controller
    }

    /// Writes a file that nobody reads yet.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        write(&path, content);
        path
    }

    fn run(&self, program: Program, who: &Identity, environment: &[(&str, &str)]) -> Controller {
        let proxy = ApiProxy::start(&self.cluster, who);
        let admin = format!("127.0.0.1:{}", free_port());
        let metrics_address = format!("127.0.0.1:{}", free_port());
        let health_address = format!("127.0.0.1:{}", free_port());
        let mut program = program
            .name(format!("controller-{}", admin.rsplit(':').next().unwrap()))
            .env("TIDEWAITER_KUBECONFIG", proxy.kubeconfig())
            .env("TIDEWAITER_ADMIN_ADDRESS", &admin)
            .env("TIDEWAITER_METRICS_ADDRESS", &metrics_address)
            .env("TIDEWAITER_HEALTH_ADDRESS", &health_address)
            .env("TIDEWAITER_DEFINITIONS_POLL_SECONDS", "1")
            .env("TIDEWAITER_LOG__FILTER", "info,tidewaiter=debug");
        for (key, value) in environment {
            program = program.env(key, value);
        }
        let process = Arc::new(Process::start(&self.scratch, program));
        Controller {
            process,
            proxy,
            admin: format!("http://{admin}"),
            http: reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap(),
            metrics_address,
            health_address,
        }
    }

    /// Writes the file of a group of workers with these labels, and returns its name.
    pub fn group(&self, name: &str, labels: &[(&str, &str)]) {
        self.group_as(name, "Node", labels);
    }

    /// The same with another role.
    pub fn group_as(&self, name: &str, role: &str, labels: &[(&str, &str)]) {
        let group = instance_group(name, CLUSTER, role);
        let group = labels.iter().fold(group, |group: InstanceGroupBuilder, (key, value)| {
            group.node_label(key, value)
        });
        self.store.put(&format!("instancegroup/{name}"), &group.to_yaml());
    }

    /// The calls of EC2 so far that ask who somebody is: the verdict on the cluster asks for groups.
    pub fn identity_calls(&self) -> Vec<Call> {
        let mut calls = self.ec2.calls();
        calls.retain(|call| call.api == "DescribeInstances" && !(call.names.is_empty() && call.filter.is_none()));
        calls
    }

    /// Launches the `number`th instance into a group of this cluster.
    pub fn launch(&self, number: u32, group: &str) -> FakeInstance {
        let instance = FakeInstance::numbered(number).kops(CLUSTER, group);
        self.ec2.launch([instance.clone()]);
        instance
    }

    /// The Node of an instance, as its own kubelet registers it.
    pub fn node_of(instance: &FakeInstance) -> NodeBuilder {
        node(instance.node_name())
            .provider_id(&instance.provider_id())
            .internal_ip(instance.address())
    }

    /// Launches the `number`th instance into a group and registers its Node.
    pub async fn join(&self, number: u32, group: &str) -> Kubelet {
        let instance = self.launch(number, group);
        Kubelet::register(&self.cluster, &Self::node_of(&instance).build()).await
    }

    /// The Nodes, as admin.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client(&Identity::Admin))
    }

    /// The records, as admin.
    pub fn records(&self) -> Api<NodeIdentity> {
        Api::all(self.cluster.client(&Identity::Admin))
    }

    /// The Node's record, which is of this very Node, names no instance, no group, no label.
    pub async fn is_recorded_as_nobody(&self, name: &str) {
        let uid = self.nodes().get(name).await.unwrap().metadata.uid;
        let record = self.records().get(name).await.unwrap();
        assert_eq!(Some(record.spec.node_uid.as_str()), uid.as_deref());
        let NodeIdentityStatus {
            instance,
            instance_group,
            labels,
            ..
        } = record.status.unwrap();
        assert_eq!((instance, instance_group, labels), (None, None, Vec::new()), "{name}");
    }

    /// A Node's labels, without those that a kubelet sets itself.
    pub async fn labels(&self, name: &str) -> Labels {
        labels_of(&self.nodes().get(name).await.unwrap())
    }

    /// Waits until the Node has exactly these labels besides its kubelet's own.
    pub async fn has_labels(&self, name: &str, expected: &[(&str, &str)]) {
        let expected: Labels = expected
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        eventually(
            format!("Node {name} to have the labels {expected:?}"),
            SOON,
            async || {
                let labels = self.labels(name).await;
                if labels == expected {
                    Ok(())
                } else {
                    Err(format!("{labels:?}"))
                }
            },
        )
        .await;
    }

    /// Waits until the Node's record says this of `Verified`, with this reason; returns the record.
    pub async fn is_verified(&self, name: &str, status: ConditionStatus, reason: &str) -> NodeIdentity {
        eventually(
            format!("the record of {name} to say {status:?} {reason}"),
            SOON,
            async || {
                let record = self
                    .records()
                    .get_opt(name)
                    .await
                    .map_err(shown)?
                    .ok_or("there is no record")?;
                match record.condition("Verified") {
                    Some(found) if found.status == status && found.reason == reason => Ok(record),
                    other => Err(format!("{other:?}")),
                }
            },
        )
        .await
    }

    /// The keys that the record remembers.
    pub async fn recorded(&self, name: &str) -> Labels {
        let status = self.records().get(name).await.unwrap().status.unwrap_or_default();
        status
            .labels
            .into_iter()
            .map(|label| (label.key.to_string(), label.value.to_string()))
            .collect()
    }

    /// Waits for an Event with this reason on the Node; returns its note.
    pub async fn told(&self, name: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.cluster.client(&Identity::Admin), "default");
        eventually(format!("an Event {reason} on Node {name}"), SOON, async || {
            let all = events.list(&ListParams::default()).await.map_err(shown)?.items;
            let about =
                |event: &&Event| event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()) == Some(name);
            let found: Vec<&Event> = all.iter().filter(about).collect();
            let event = found.iter().find(|event| event.reason.as_deref() == Some(reason));
            event
                .map(|event| event.note.clone().unwrap_or_default())
                .ok_or_else(|| format!("{found:?}"))
        })
        .await
    }

    /// Merges `patch` into a Node, as admin.
    pub async fn patch(&self, name: &str, patch: Value) {
        self.nodes()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Returns true if the Node carries the startup taint.
    pub async fn is_tainted(&self, name: &str) -> bool {
        let taints = self
            .nodes()
            .get(name)
            .await
            .unwrap()
            .spec
            .unwrap_or_default()
            .taints
            .unwrap_or_default();
        taints.iter().any(|taint| taint.key == UNIDENTIFIED_TAINT)
    }

    /// The writes of the controller's service account to Nodes and records since `mark`, as `verb resource name`.
    pub async fn writes_since(&self, mark: tidewaiter_testkit::AuditMark) -> Vec<String> {
        let audit = self.cluster.audit().await.since(mark).by(&service_account()).writes();
        audit
            .iter()
            .filter(|entry| matches!(entry.object_ref.resource.as_str(), "nodes" | "nodeidentities"))
            .map(|entry| format!("{} {} {}", entry.verb, entry.object_ref.resource, entry.object_ref.name))
            .collect()
    }

    /// Waits until pending writes end, an Event after its record for example; then for this long nobody of the
    /// controller's service account sends a write, a refused one included, but for the Lease's and those that tell of
    /// the cluster's health. Who writes again and again is never quiet.
    pub async fn quiet(&self, time: Duration) {
        let mark = self.cluster.audit_mark().await;
        settled("the writes", time, SOON, async || {
            let audit = self.cluster.audit().await.since(mark).by(&service_account()).writes();
            audit.filter(is_of_nodes).count()
        })
        .await;
    }

    /// The leader's Lease.
    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.cluster.client(&Identity::Admin), KOPS_NAMESPACE)
    }

    /// The holder of the Lease.
    pub async fn holder(&self) -> Option<String> {
        let lease = self.leases().get(KOPS_LEASE).await.unwrap();
        lease.spec.unwrap_or_default().holder_identity
    }

    /// Deletes the Lease, if there is one: in place of waiting the 15 s after which a dead leader's is free.
    pub async fn expire_lease(&self) {
        match self.leases().delete(KOPS_LEASE, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.unwrap()),
        }
    }
}

impl Store {
    /// The URL of the store, for a configuration file.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// From now on somebody else serves the folder, under this URL.
    pub fn is_served_as(&mut self, url: &str) -> PathBuf {
        url.clone_into(&mut self.url);
        self.folder.clone()
    }

    /// Writes a file, whole: a reader sees the old one or the new one.
    pub fn put(&self, file: &str, content: &str) {
        let path = self.folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Not in the folder itself, which may be listed meanwhile.
        let new = self.folder.join("new");
        write(&new, content);
        std::fs::rename(new, path).unwrap();
    }

    /// Deletes a file.
    pub fn delete(&self, file: &str) {
        std::fs::remove_file(self.folder.join(file)).unwrap();
    }
}

impl Controller {
    /// Waits until `/readyz` says yes.
    pub async fn ready(&self) {
        eventually("the controller to be ready", SOON, async || {
            assert!(
                self.process.is_running(),
                "the controller ended:\n{}",
                self.process.log_tail()
            );
            let answer = self.get(&self.admin, "/readyz").await.map_err(shown)?;
            let (status, text) = (answer.status(), answer.text().await.map_err(shown)?);
            if status.is_success() { Ok(()) } else { Err(text) }
        })
        .await;
    }

    /// Returns `/metrics`.
    pub async fn metrics(&self) -> String {
        self.get(&self.admin, "/metrics").await.unwrap().text().await.unwrap()
    }

    /// The value of one series, as it stands in `/metrics`: `tidewaiter_nodes{state="forged"}`; 0 when it is not there.
    pub async fn metric(&self, series: &str) -> f64 {
        let text = self.metrics().await;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until a series has a value.
    pub async fn has_metric(&self, series: &str, value: impl Fn(f64) -> bool) {
        eventually(format!("{series} to be as expected"), SOON, async || {
            let found = self.metric(series).await;
            if value(found) { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// Returns the address of its admin server.
    pub fn admin_address(&self) -> String {
        self.admin.trim_start_matches("http://").to_owned()
    }

    /// Returns the response of the MetricsServer.
    pub async fn scrape(&self) -> String {
        self.try_scrape().await.unwrap()
    }

    /// The same, where the connection may be closed to make room for another one.
    pub async fn try_scrape(&self) -> reqwest::Result<String> {
        let answer = self
            .get(&format!("http://{}", self.metrics_address), "/metrics")
            .await?;
        answer.error_for_status()?.text().await
    }

    pub async fn get(&self, base: &str, path: &str) -> reqwest::Result<reqwest::Response> {
        self.http.get(format!("{base}{path}")).send().await
    }

    /// Waits until a gauge of the MetricsServer has a value, or is absent; the name stands before the labels.
    pub async fn has_gauge(&self, name: &str, value: Option<f64>) {
        self.has_gauge_within(SOON, name, value).await;
    }

    /// The same in a time of one's own.
    pub async fn has_gauge_within(&self, time: Duration, name: &str, value: Option<f64>) {
        eventually(format!("{name} to be {value:?}"), time, async || {
            let text = self.try_scrape().await.map_err(shown)?;
            let line = text.lines().find(|line| line.split('{').next() == Some(name));
            let found: Option<f64> = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
            if found == value {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// Waits until it leads.
    pub async fn leads(&self) {
        self.has_metric("tidewaiter_leader", |leads| leads == 1.0).await;
    }

    /// Stops it as the kubelet does, and expects that it ends well.
    pub async fn stops(&self) {
        let status = self.process.stop(SOON).await;
        assert_eq!(status.code(), Some(0), "{}", self.process.log_tail());
        self.has_not_panicked();
    }

    /// Waits until it ends because it does not lead any more, and expects that it says so: exit code 1, and one line at
    /// the end that names the Lease; returns that line.
    pub async fn loses(&self) -> String {
        let status = self.process.exited(SOON).await;
        let log = self.process.log();
        assert_eq!(status.code(), Some(1), "{}", self.process.log_tail());
        self.has_not_panicked();
        let said: Vec<&str> = log.lines().filter(|line| line.starts_with("tidewaiter: ")).collect();
        let line = log.lines().last().unwrap_or_default();
        assert_eq!(said, [line], "{}", self.process.log_tail());
        let lease = format!("lost the Lease {KOPS_NAMESPACE}/{KOPS_LEASE}: ");
        assert!(line.contains(&lease), "{line}");
        line.to_owned()
    }

    /// Its log tells of no panic since it was started last.
    pub fn has_not_panicked(&self) {
        let log = self.process.log();
        let panic = log.lines().find(|line| line.contains("panicked"));
        assert_eq!(panic, None);
    }
}

/// A Node's labels, without those that a kubelet sets itself.
pub fn labels_of(node: &Node) -> Labels {
    let own = |key: &str| {
        key.starts_with("kubernetes.io/")
            || key.starts_with("beta.kubernetes.io/")
            || key == "node.kubernetes.io/instance-type"
    };
    let labels = node.metadata.labels.iter().flatten();
    let others = labels.filter(|(key, _)| !own(key));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns true if a write is the NodeController's: neither the Lease's nor one that tells of the cluster's health.
pub fn is_of_nodes(entry: &AuditEntry) -> bool {
    let about = &entry.object_ref;
    let of_health = about.resource == "clusterhealths" || about.name.starts_with(CLUSTER);
    about.resource != "leases" && !of_health
}

#[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}

pub fn shown(error: impl Debug) -> String {
    format!("{error:?}")
}
