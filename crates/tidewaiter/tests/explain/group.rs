//! `explain group`: what the files of a state store give a group's nodes, with neither a cluster nor a cloud at hand.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tidewaiter_testkit::Scratch;
use tidewaiter_testkit::builders::{InstanceGroupBuilder, cluster, instance_group};
use tidewaiter_testkit::fake_gcs_server::{FakeGcsServer, service_account_file};

const CLUSTER: &str = "test.example.com";

/// A state store in a folder, as kOps lays it out.
struct Store(Scratch);

impl Store {
    /// With a Cluster that gives every node a label, and the nodes of the control plane another.
    fn new() -> Self {
        let store = Self(Scratch::new("explain-group"));
        let cluster = cluster(CLUSTER, &store.url())
            .kubelet_label("from", "the-cluster")
            .kubelet_label("tier", "the-cluster")
            .control_plane_kubelet_label("plane", "control");
        store.put("cluster-completed.spec", &cluster.to_yaml());
        store
    }

    fn url(&self) -> String {
        format!("file://{}", self.0.path().display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(CLUSTER).join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "nobody reads it yet")]
    fn put(&self, name: &str, content: &str) {
        let file = self.file(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    fn put_group(&self, name: &str, role: &str, fill: impl FnOnce(InstanceGroupBuilder) -> InstanceGroupBuilder) {
        let group = fill(instance_group(name, CLUSTER, role));
        self.put(&format!("instancegroup/{name}"), &group.to_yaml());
    }

    fn explain(&self, group: &str, more: &str) -> Output {
        let arguments = ["--name", CLUSTER, "--state", &self.url()].map(str::to_owned);
        run(["explain", "group", group]
            .map(str::to_owned)
            .into_iter()
            .chain(arguments)
            .chain(words(more)))
    }

    fn json(&self, group: &str, more: &str) -> Value {
        let output = self.explain(group, &format!("{more} -o json"));
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Nothing in its environment says where a cluster or a cloud is.
fn run(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidewaiter"))
        .env_clear()
        .args(arguments)
        .output()
        .unwrap()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().map(str::to_owned)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn label(key: &str, value: &str, source: &str, file: &str) -> Value {
    json!({"key": key, "value": value, "source": source, "file": file})
}

#[test]
fn each_label_names_its_source_and_its_file() {
    let store = Store::new();
    store.put_group("nodes", "Node", |group| {
        group
            .kubelet_label("tier", "the-group")
            .node_label("team", "red")
            .node_label("kops.k8s.io/instancegroup", "nodes")
    });
    let file = "instancegroup/nodes";
    let expected = json!({"group": "nodes", "role": "Node", "labels": [
        label("from", "the-cluster", "ClusterKubelet", "cluster-completed.spec"),
        label("kops.k8s.io/instancegroup", "nodes", "GroupNodeLabels", file),
        label("node-role.kubernetes.io/node", "", "Role", file),
        label("team", "red", "GroupNodeLabels", file),
        label("tier", "the-group", "GroupKubelet", file),
    ]});
    assert_eq!(store.json("nodes", ""), expected);
    let shown = |format: &str| text(&store.explain("nodes", &format!("-o {format}")).stdout);
    assert_eq!(shown("jsonpath={.labels[3].key}={.labels[3].value}"), "team=red");
    // Only a terminal has lines that are wrapped.
    assert_eq!(shown("wide"), shown("table"));
    assert!(shown("wide").contains("team"), "{}", shown("wide"));

    store.put_group("gpus", "Node", |group| {
        let group = group.set(&["spec", "machineType"], "g5.xlarge");
        let group = group.set(&["spec", "containerd", "nvidiaGPU", "enabled"], true);
        group.set(&["spec", "containerd", "gvisor", "enabled"], true)
    });
    let labels = store.json("gpus", "")["labels"].take();
    for key in ["kops.k8s.io/gpu", "kops.k8s.io/gvisor"] {
        let expected = label(key, "1", "GroupNodeLabels", "instancegroup/gpus");
        assert!(labels.as_array().unwrap().contains(&expected), "{labels}");
    }

    let yaml = store.explain("nodes", "-o yaml");
    assert_eq!(serde_saphyr::from_str::<Value>(&text(&yaml.stdout)).unwrap(), expected);

    let spot = store.json("nodes", "--lifecycle spot");
    let added = label("node-role.kubernetes.io/spot-worker", "true", "Lifecycle", "");
    assert!(spot["labels"].as_array().unwrap().contains(&added), "{spot}");
}

#[test]
fn the_control_plane_has_a_kubelet_of_its_own() {
    let store = Store::new();
    store.put_group("control-plane", "Master", |group| group);
    let explained = store.json("control-plane", "");
    assert_eq!(explained["role"], "ControlPlane");
    let keys: Vec<&str> = explained["labels"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|label| label["key"].as_str())
        .collect();
    assert!(keys.contains(&"plane") && !keys.contains(&"from"), "{keys:?}");
}

#[test]
fn a_person_reads_a_table() {
    let store = Store::new();
    store.put_group("nodes", "Node", |group| group.node_label("team", "red"));
    let output = store.explain("nodes", "");
    let said = text(&output.stdout);
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    for expected in [
        &["GROUP", "ROLE"][..],
        &["nodes", "Node"],
        &["KEY", "VALUE", "SOURCE", "FILE"],
        &["team", "red", "GroupNodeLabels", "instancegroup/nodes"],
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected:?} in {said}");
    }
}

#[test]
fn what_cannot_be_set_is_told_and_fails() {
    let store = Store::new();
    store.put_group("nodes", "Node", |group| {
        group.node_label("team", "red").node_label("bad key\u{1b}[31m", "x")
    });
    let output = store.explain("nodes", "");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("CANNOT BE SET") && said.contains("spec.nodeLabels"),
        "{said}"
    );
    assert!(said.contains("team"), "the others are told too: {said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    assert_eq!(text(&output.stderr), "tidewaiter: 1 label is invalid\n");

    let json: Value = serde_json::from_slice(&store.explain("nodes", "-o json").stdout).unwrap();
    assert_eq!(json["rejected"][0]["file"], "instancegroup/nodes");
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let store = Store::new();
    store.put("instancegroup/broken", "kind: [");
    let state = store.url();
    let ask = |group: &str, name: &str, state: &str| run(["explain", "group", group, "--name", name, "--state", state]);
    for (output, code, words) in [
        (
            ask("absent", CLUSTER, &state),
            1,
            "instancegroup/absent: is missing from the state store",
        ),
        (ask("broken", CLUSTER, &state), 1, "instancegroup/broken: "),
        (
            ask("nodes", "other.example.com", &state),
            1,
            "cluster-completed.spec: is missing",
        ),
        (ask("nodes", CLUSTER, "ftp://state"), 2, "ftp://state"),
    ] {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(
            said.starts_with("tidewaiter: ") && said.contains(words),
            "{words}: {said}"
        );
        if code == 1 {
            let group = format!(
                "of cluster {}",
                if words.starts_with("cluster") {
                    "other.example.com"
                } else {
                    CLUSTER
                }
            );
            let place = [group.as_str(), &state, "check the group's name, --name and --state"];
            assert!(place.iter().all(|word| said.contains(word)), "{place:?}: {said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(output.stdout.is_empty());
    }
    let output = ask("../../etc", CLUSTER, &state);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let store = Store::new();
    store.put_group("nodes", "Node", |group| group);
    let empty = [
        "TIDEWAITER_STATE_ENDPOINT",
        "AWS_REGION",
        "KOPS_CLUSTER_NAME",
        "KOPS_STATE_STORE",
        "S3_ENDPOINT",
    ];
    let ask = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .env_clear()
            .envs(empty.map(|name| (name, "")))
            .args(["explain", "group", "nodes"])
            .args(arguments)
            .output()
            .unwrap()
    };
    let output = ask(&["--name", CLUSTER, "--state", &store.url()]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&ask(&[]).stderr);
    assert!(
        said.contains("--name <CLUSTER>") && said.contains("not provided"),
        "{said}"
    );
}

/// On several threads, because the server's front needs one while the program is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_google_cloud_is_asked_with_the_file_of_credentials_that_the_environment_names() {
    const BUCKET: &str = "state.example.com";
    let store = Store::new();
    store.put_group("nodes", "Node", |group| group.node_label("team", "red"));
    store.put("credentials.json", &service_account_file("key-of-the-file"));
    let server = FakeGcsServer::start().await;
    server.create_bucket(BUCKET).await;
    for name in ["cluster-completed.spec", "instancegroup/nodes"] {
        let content = fs::read(store.file(name)).unwrap();
        server.put_object(BUCKET, &format!("{CLUSTER}/{name}"), content).await;
    }
    let (state, endpoint) = (format!("gs://{BUCKET}"), server.endpoint());
    let output = Command::new(env!("CARGO_BIN_EXE_tidewaiter"))
        .env_clear()
        .env("GOOGLE_APPLICATION_CREDENTIALS", store.file("credentials.json"))
        .args(["explain", "group", "nodes", "--name", CLUSTER])
        .args(["--state", &state, "--state-endpoint", &endpoint])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("team"), "{output:?}");
    let asked = server.take_requests();
    assert_eq!(asked.len(), 2, "{asked:?}");
    for asked in asked {
        let signed = |token: &String| token.starts_with("Bearer eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiIsImtpZCI6");
        assert!(asked.authorization.as_ref().is_some_and(signed), "{asked:?}");
    }
}
