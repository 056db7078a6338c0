//! `tidewaiter coordinator` as a process, as its own service account with the role of `deploy/coordinator`, on a real
//! API server.
//!
//! A test looks only at the objects that a plain client reads, and at the audit log.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod access;
mod attacker;
mod cloud;
mod definitions;
mod endpoints;
mod explain;
mod faults;
mod monitoring;
mod namespaces;
mod plugin;
mod registries;
mod release;
mod replicas;
mod reports;
mod settings;
mod starts;
mod takeover;
mod terminate;
mod upgrade;
mod upgrade_attacks;
mod upgrade_reports;
mod upgrades;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::Cloud;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::CloudSync;
use tidewaiter_testkit::{
    AuditMark, ControlPlane, Identity, Process, Program, Reused, Scratch, eventually, free_port, leaks, throughout,
};

const SOON: Duration = Duration::from_mins(3);
const ACCOUNT: &str = "containership";

/// Dropped, it searches what it showed for the secrets of the tests. Whatever writes to its cluster must have ended
/// before: the next test gets it.
struct World {
    cluster: Reused,
    scratch: Scratch,
    http: reqwest::Client,
    replicas: AtomicUsize,
    /// The variables of a cloud that is away.
    away: Vec<(&'static str, String)>,
}

impl Drop for World {
    fn drop(&mut self) {
        leaks::search(&self.cluster, Some(&self.scratch));
    }
}

/// A running coordinator, and where its endpoints and its metrics are.
struct Replica {
    process: Arc<Process>,
    endpoints: String,
    admin: String,
    health: String,
}

fn coordinator() -> Identity {
    Identity::service_account("containership-core", "tidewaiter-coordinator")
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/coordinator")
}

/// Applies what every cluster with a coordinator has.
async fn prepare(cluster: &ControlPlane) {
    cluster.apply_manifests(deploy()).await;
    cluster.apply_manifests(deploy().join("../crds/coordinator")).await;
}

/// A prepared control plane that no other test gets: for those that delete definitions, or leave much behind.
async fn unshared() -> Reused {
    let cluster = ControlPlane::start().await;
    prepare(&cluster).await;
    cluster.into()
}

impl World {
    async fn start() -> Self {
        Self::on(ControlPlane::reused(prepare).await)
    }

    /// Without the definitions of the custom resources.
    async fn without_definitions() -> Self {
        let cluster = ControlPlane::start().await;
        cluster.apply_manifests(deploy()).await;
        Self::on(cluster.into())
    }

    fn on(cluster: Reused) -> Self {
        Self {
            cluster,
            scratch: Scratch::new("coordinator-world"),
            http: reqwest::Client::builder().no_proxy().timeout(SOON).build().unwrap(),
            replicas: AtomicUsize::new(0),
            away: settings::away(),
        }
    }

    /// One whose cloud is away.
    fn coordinator(&self) -> Process {
        Arc::into_inner(self.replica(&self.away, None).process).unwrap()
    }

    fn coordinator_of(&self, cloud: &Cloud) -> Replica {
        self.replica(&cloud.variables(), None)
    }

    /// A coordinator with these variables, and a kubeconfig other than its own.
    fn replica(&self, variables: &[(&str, String)], kubeconfig: Option<PathBuf>) -> Replica {
        self.replica_of(&["coordinator".to_owned()], variables, kubeconfig)
    }

    /// The same with these arguments.
    fn replica_of(&self, arguments: &[String], variables: &[(&str, String)], kubeconfig: Option<PathBuf>) -> Replica {
        let address = || format!("127.0.0.1:{}", free_port());
        let (endpoints, admin, health) = (address(), address(), address());
        let kubeconfig = kubeconfig.unwrap_or_else(|| self.cluster.kubeconfig(&coordinator()));
        let number = self.replicas.fetch_add(1, Ordering::Relaxed);
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .name(format!("coordinator-{number}"))
            .args(arguments)
            .env("TIDEWAITER_KUBECONFIG", kubeconfig)
            .metrics(&admin)
            .env("TIDEWAITER_ADMIN_ADDRESS", &admin)
            .env("TIDEWAITER_ENDPOINTS__ADDRESS", &endpoints)
            .env("TIDEWAITER_HEALTH_ADDRESS", &health)
            .env("TIDEWAITER_LOG__FILTER", "debug");
        let program = variables
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        Replica {
            process: Arc::new(Process::start(&self.scratch, program)),
            endpoints,
            admin,
            health,
        }
    }

    /// Waits until the condition Synced has this status and reason; returns its message.
    async fn synced(&self, wanted: &str, deadline: Duration) -> String {
        self.synced_saying(wanted, &[], deadline).await
    }

    /// The same, with a message that has all of these words: it tells of the first kinds before it tells of the others.
    async fn synced_saying(&self, wanted: &str, words: &[&str], deadline: Duration) -> String {
        let objects: Api<CloudSync> = Api::all(self.cluster.client(&Identity::Admin));
        eventually(format!("Synced to be {wanted}: {words:?}"), deadline, async || {
            let object = objects.get("cloud").await.map_err(|error| error.to_string())?;
            let condition = object.condition("Synced").ok_or("there is none")?;
            let found = format!("{:?} {}", condition.status, condition.reason);
            if found == wanted && words.iter().all(|word| condition.message.contains(word)) {
                Ok(condition.message.clone())
            } else {
                Err(format!("{found}: {}", condition.message))
            }
        })
        .await
    }

    async fn get(&self, replica: &Replica, path: &str, token: &str) -> reqwest::Result<reqwest::Response> {
        self.ask(replica, http::Method::GET, path, token).await
    }

    async fn delete(&self, replica: &Replica, path: &str, token: &str) -> reqwest::Result<reqwest::Response> {
        self.ask(replica, http::Method::DELETE, path, token).await
    }

    async fn ask(
        &self,
        replica: &Replica,
        method: http::Method,
        path: &str,
        token: &str,
    ) -> reqwest::Result<reqwest::Response> {
        let request = self.http.request(method, format!("http://{}{path}", replica.endpoints));
        let request = if token.is_empty() {
            request
        } else {
            request.header("authorization", format!("JWT {token}"))
        };
        request.send().await
    }

    async fn is_terminating(&self) -> bool {
        let markers: Api<ConfigMap> = Api::namespaced(self.cluster.client(&Identity::Admin), "containership-core");
        markers.get_opt("tidewaiter-terminate").await.unwrap().is_some()
    }

    /// Another replica can lead at once.
    async fn expire_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client(&Identity::Admin), "containership-core");
        let _ = leases.delete("tidewaiter-coordinator", &DeleteParams::default()).await;
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.cluster.client(&Identity::Admin))
    }

    fn accounts(&self, namespace: &str) -> Api<ServiceAccount> {
        Api::namespaced(self.cluster.client(&Identity::Admin), namespace)
    }

    async fn namespace(&self, name: &str) {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.namespaces()
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }

    /// Waits until the namespace has an account with our label; returns its uid.
    async fn has_account(&self, namespace: &str) -> String {
        eventually(format!("the account in {namespace}"), SOON, async || {
            let account = self
                .accounts(namespace)
                .get(ACCOUNT)
                .await
                .map_err(|error| error.to_string())?;
            let labels = account.metadata.labels.unwrap_or_default();
            match labels.get("containership.io/managed") {
                Some(value) if value == "true" => Ok(account.metadata.uid.unwrap()),
                _ => Err(format!("{labels:?}")),
            }
        })
        .await
    }

    /// The writes of the coordinator since `mark`, except those of its Lease, as `verb resource namespace`.
    async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        let writes = self.cluster.audit().await.since(mark).by(&coordinator()).writes();
        let writes = writes.iter().map(|entry| (entry.verb.as_str(), &entry.object_ref));
        writes
            .filter(|(_, object)| object.resource != "leases")
            .map(|(verb, object)| format!("{verb} {} {}", object.resource, object.namespace))
            .collect()
    }
}

#[tokio::test]
async fn every_namespace_has_the_service_account() {
    let world = World::start().await;
    world.namespace("early").await;
    let foreign = serde_json::from_value(json!({"metadata": {"name": ACCOUNT}})).unwrap();
    world.namespace("foreign").await;
    world
        .accounts("foreign")
        .create(&PostParams::default(), &foreign)
        .await
        .unwrap();
    terminating(&world, "ending").await;
    let mark = world.cluster.audit_mark().await;
    let process = world.coordinator();

    for namespace in ["default", "kube-system", "containership-core", "early"] {
        world.has_account(namespace).await;
    }
    world.namespace("late").await;
    let first = world.has_account("late").await;

    // Deleted, or edited: it is put right.
    world
        .accounts("late")
        .delete(ACCOUNT, &DeleteParams::default())
        .await
        .unwrap();
    eventually("another account", SOON, async || {
        let uid = world.has_account("late").await;
        if uid == first { Err(uid) } else { Ok(()) }
    })
    .await;
    let without_label = json!({"metadata": {"labels": {"containership.io/managed": "edited", "team": "a"}}});
    let patched = world
        .accounts("early")
        .patch(ACCOUNT, &PatchParams::default(), &Patch::Merge(without_label))
        .await;
    patched.unwrap();
    // It is known without the label, too, and gets it back.
    eventually("the label", SOON, async || {
        let account = world
            .accounts("early")
            .get(ACCOUNT)
            .await
            .map_err(|error| error.to_string())?;
        let labels = account.metadata.labels.unwrap_or_default();
        let is_back = labels.get("containership.io/managed").map(String::as_str) == Some("true");
        (is_back && labels["team"] == "a")
            .then_some(())
            .ok_or(format!("{labels:?}"))
    })
    .await;

    // A foreign one is reported and left alone, and nothing is written in a namespace that terminates.
    reported(&world, "foreign").await;
    let account = world.accounts("foreign").get(ACCOUNT).await.unwrap();
    assert_eq!(account.metadata.labels, None);
    assert!(world.accounts("ending").get_opt(ACCOUNT).await.unwrap().is_none());
    let writes = world.written_since(mark).await;
    assert!(!writes.iter().any(|write| write.ends_with(" ending")), "{writes:?}");
    quiet_after_a_restart(&world, process).await;
}

/// A namespace that somebody's finalizer keeps in deletion.
async fn terminating(world: &World, name: &str) {
    world.namespace(name).await;
    let finalizer = json!({"metadata": {"finalizers": ["example.com/keeps"]}});
    world
        .namespaces()
        .patch(name, &PatchParams::default(), &Patch::Merge(finalizer))
        .await
        .unwrap();
    world.namespaces().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn reported(world: &World, namespace: &str) {
    let events: Api<Event> = Api::namespaced(world.cluster.client(&Identity::Admin), "default");
    eventually(format!("an Event on {namespace}"), SOON, async || {
        let all = events
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let found = all.items.iter().any(|event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            event.reason.as_deref() == Some("ForeignObject") && about == Some(namespace)
        });
        if found {
            Ok(())
        } else {
            Err(format!("{} Events", all.items.len()))
        }
    })
    .await;
}

/// Neither a second pass nor another process writes what is there.
async fn quiet_after_a_restart(world: &World, process: Process) {
    world.synced("False ListFailed", SOON).await;
    process.stop(SOON).await;
    let mark = world.cluster.audit_mark().await;
    let _process = world.coordinator();
    world.namespace("last").await;
    world.has_account("last").await;
    throughout("nothing else to be written", Duration::from_secs(3), async || {
        let writes = world.written_since(mark).await;
        let others: Vec<_> = writes
            .into_iter()
            // A kind that cannot be listed is recorded whole once every list has failed, which may be after the
            // restart.
            .filter(|write| {
                let is_told = write.starts_with("create events") || write.contains(" cloudsyncs ");
                !write.ends_with(" last") && !is_told
            })
            .collect();
        if others.is_empty() {
            Ok(())
        } else {
            Err(format!("{others:?}"))
        }
    })
    .await;
}

/// Runs the coordinator, whose API server is away, with a standard error that is full and that nobody reads.
fn without_a_reader(scratch: &Scratch, environment: &[(&str, &str)]) -> Process {
    let kubeconfig = scratch.path().join("kubeconfig");
    let away = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "away",
        "clusters": [{"name": "away", "cluster": {"server": format!("http://127.0.0.1:{}", free_port())}}],
        "users": [{"name": "away", "user": {}}],
        "contexts": [{"name": "away", "context": {"cluster": "away", "user": "away"}}],
    });
    write(&kubeconfig, &away.to_string());
    let script = r#"mkfifo "$0"; sleep 600 <"$0" & yes >"$0" & exec "$@" 2>"$0""#;
    let program = Program::new("/bin/sh")
        .args(["-c".into(), script.into(), scratch.path().join("stderr")])
        .args([env!("CARGO_BIN_EXE_tidewaiter"), "coordinator"])
        .env("TIDEWAITER_KUBECONFIG", &kubeconfig)
        .env("TIDEWAITER_ENDPOINTS__ADDRESS", format!("127.0.0.1:{}", free_port()))
        .env("TIDEWAITER_ADMIN_ADDRESS", format!("127.0.0.1:{}", free_port()));
    let cloud = settings::away();
    let program = cloud
        .into_iter()
        .fold(program, |program, (name, value)| program.env(name, value));
    let set = |program: Program, (key, value): &(&str, &str)| program.env(key, value);
    Process::start(scratch, environment.iter().fold(program, set))
}

#[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    let scratch = Scratch::new("coordinator-unread");
    let health = format!("127.0.0.1:{}", free_port());
    let process = without_a_reader(&scratch, &[("TIDEWAITER_HEALTH_ADDRESS", &health)]);
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(2))
        .build()
        .unwrap();
    eventually("the probe to be answered", SOON, async || {
        let answer = client.get(format!("http://{health}/livez")).send().await;
        answer.map(drop).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(process.stop(SOON).await.code(), Some(0));
}

#[tokio::test]
async fn an_error_that_nobody_reads_ends_the_process_all_the_same() {
    let scratch = Scratch::new("coordinator-unread-error");
    let process = without_a_reader(&scratch, &[("TIDEWAITER_LEASE__NAME", "not a name")]);
    assert_eq!(process.exited(SOON).await.code(), Some(2));
}

#[tokio::test]
async fn its_pod_is_admitted_where_only_restricted_pods_are() {
    let world = World::start().await;
    let client = world.cluster.client(&Identity::Admin);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "containership-core");
    let deployment = deployments.get("tidewaiter-coordinator").await.unwrap();
    let template = deployment.spec.template;
    let pod = Pod {
        metadata: kube::core::ObjectMeta {
            name: Some("one".to_owned()),
            ..template.metadata.unwrap()
        },
        spec: template.spec,
        ..Pod::default()
    };
    let pods: Api<Pod> = Api::namespaced(client, "containership-core");
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let mut root = pod;
    root.metadata.name = Some("root".to_owned());
    root.spec.as_mut().unwrap().containers[0].security_context = None;
    pods.create(&PostParams::default(), &root).await.unwrap_err();
}

/// kubectl applies the files of a folder in alphabetical order; the API server rejects an object whose namespace does
/// not exist yet.
#[test]
fn the_namespace_is_the_first_object_of_the_folder_but_for_what_is_in_none() {
    let entries = std::fs::read_dir(deploy()).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    let mut documents = files.iter().flat_map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap()
    });
    let is_policy = |object: &serde_json::Value| object["apiVersion"] == "admissionregistration.k8s.io/v1";
    let first = documents.find(|object| !is_policy(object)).unwrap();
    assert_eq!(
        (&first["kind"], &first["metadata"]["name"]),
        (&json!("Namespace"), &json!("containership-core"))
    );
}

/// The check of each test of this folder when its world is dropped.
#[tokio::test]
async fn a_secret_that_is_shown_anywhere_fails_its_test() {
    let world = World::start().await;
    let secret = leaks::secret("hunter2-shown");
    let encoded = STANDARD.encode(format!("u:{secret}"));
    let leaky = Program::new("/bin/sh").name("leaky");
    let leaky = Process::start(&world.scratch, leaky.args(["-c", &format!("echo auth={encoded}")]));
    leaky.exited(SOON).await;
    let events: Api<Event> = Api::namespaced(world.cluster.client(&Identity::Admin), "default");
    let event = json!({"metadata": {"name": "leaky"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "Shown", "type": "Normal",
        "action": "Show", "reportingController": "example.com/leaky", "reportingInstance": "leaky-0", "note": format!("it is {secret}")});
    let event = serde_json::from_value(event).unwrap();
    events.create(&PostParams::default(), &event).await.unwrap();
    drop(leaky);
    let failure = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(world))).unwrap_err();
    let failure = failure.downcast_ref::<String>().unwrap();
    for place in ["leaky.log", "/registry/events/default/leaky"] {
        assert!(failure.contains(place), "{failure}");
    }
}
