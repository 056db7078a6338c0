//! `tidewaiter explain node` and `explain forgeries`, as a person runs them who may only look.

use std::process::Output;

use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_api::NodeIdentity;
use tidewaiter_testkit::builders::{cluster, controller_config, instance_group, node};
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{ControlPlane, Identity, Kubelet, Scripted};

use crate::clouds;
use crate::world::{CLUSTER, World};

/// The role `view` and `tidewaiter-view`, as far as they are used.
pub const MAY_LOOK: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: may-look}
rules:
- {apiGroups: [""], resources: [nodes, events], verbs: [list]}
- {apiGroups: [tidewaiter.dev], resources: [nodeidentities], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: may-look}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: may-look}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
"#;

fn alice() -> Identity {
    Identity::user("alice", &[])
}

/// The labels that a Node gets from its group, with the last write.
const GIVEN: [(&str, &str); 4] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("old", "yes"),
    ("team", "red"),
];

pub async fn start() -> World {
    let world = World::start().await;
    world.cluster.apply(MAY_LOOK).await;
    world.group("nodes", &[("team", "red"), ("old", "yes")]);
    world.group("batch", &[("tier", "night")]);
    world
}

/// The person's command; the EC2 of this world is told only in the environment.
async fn run(cluster: &ControlPlane, environment: &[(&str, String)], who: &Identity, arguments: &[&str]) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_tidewaiter"))
        .env_clear()
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .arg("explain")
        .args(arguments)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig(who))
        .output()
        .await
        .unwrap()
}

/// Writes a configuration file of kops-controller; returns its path.
fn conf(world: &World, content: &str) -> String {
    world.store.put("config.yaml", content);
    format!("{}/config.yaml", world.store.url().trim_start_matches("file://"))
}

/// All labels of the Node, its kubelet's too.
async fn all_labels(world: &World, name: &str) -> usize {
    let node = world.nodes().get(name).await.unwrap();
    node.metadata.labels.unwrap_or_default().len()
}

pub async fn explain(world: &World, arguments: &[&str]) -> Output {
    let config = conf(world, &world.config());
    let arguments = [arguments, &["--conf", &config]].concat();
    run(&world.cluster, &world.ec2.environment(), &alice(), &arguments).await
}

async fn explained(world: &World, arguments: &[&str]) -> Value {
    let output = explain(world, &[arguments, &["-o", "json"]].concat()).await;
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Checks that a program can read the output: each of `words` in one line.
fn reads(output: &Output, words: &[&str]) {
    let said = text(&output.stdout);
    assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    // Nothing is wrapped, so that grep finds it.
    let lines: Vec<_> = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for word in words {
        assert!(lines.iter().any(|line| line.contains(word)), "{word} in {said}");
    }
}

fn fails(output: &Output, code: i32, words: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(
        said.starts_with("tidewaiter: ") && said.contains(words),
        "{words}: {said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[tokio::test]
async fn a_verified_node_is_as_it_should_be() {
    let world = start().await;
    let _controller = world.controller().await;
    let kubelet = world.join(1, "nodes").await;
    let name = kubelet.name();
    world.has_labels(name, &GIVEN).await;
    world.quiet(std::time::Duration::from_secs(1)).await;
    let mark = world.cluster.audit_mark().await;

    let file = "instancegroup/nodes";
    let label = |key: &str, value: &str, source: &str| json!({"key": key, "value": value, "source": source, "file": file, "onNode": value});
    let all = all_labels(&world, name).await;
    let instance = FakeInstance::numbered(1);
    let golden = json!({
        "node": name,
        "providerId": instance.provider_id(),
        "asked": "record",
        "instance": instance.id(),
        "group": "nodes",
        "zone": "us-east-1b",
        "lifecycle": "on-demand",
        "verified": {
            "status": "True",
            "reason": "Proven",
            "message": format!(
                "instance {} of group nodes in us-east-1b; its group is a tag of the instance, which the EC2 API changes for IAM roles \
                 with ec2:CreateTags",
                instance.id()
            ),
        },
        "labels": [
            label("kops.k8s.io/instancegroup", "nodes", "GroupNodeLabels"),
            label("node-role.kubernetes.io/node", "", "Role"),
            label("old", "yes", "GroupNodeLabels"),
            label("team", "red", "GroupNodeLabels"),
        ],
        "others": all - 4,
        "conditions": [
            {"type": "LabelsValid", "status": "True", "reason": "AllValid", "message": "every label of the definition can be set"},
            {"type": "ForeignLabels", "status": "False", "reason": "NoneFound", "message": "no label is defined by other groups alone"},
        ],
        "change": {"compared": true, "differs": false, "record": false},
        "events": [],
    });
    assert_eq!(explained(&world, &["node", name]).await, golden);
    let mut of_cloud = golden.clone();
    of_cloud["asked"] = json!("cloud");
    assert_eq!(explained(&world, &["node", name, "--from-cloud"]).await, of_cloud);

    // Without a definition, what the record says.
    let output = run(&world.cluster, &[], &alice(), &["node", name]).await;
    assert!(output.status.success(), "{output:?}");
    reads(
        &output,
        &[
            "True (Proven), according to its record",
            "not compared: no definitions: set --conf, or --name and --state",
            "instancegroup/nodes",
        ],
    );

    // It has looked, and no more: not even an attempt.
    let written = world.cluster.audit().await.since(mark).by(&alice()).writes();
    assert_eq!(written.count(), 0);
}

#[tokio::test]
async fn records_fit_a_terminal_with_the_longest_names_there_are() {
    let world = World::start().await;
    let aws = [
        (
            "ip-172-20-123-200.ap-southeast-1.compute.internal",
            "nodes-ap-southeast-1a",
            "NameNotEnforced",
        ),
        (
            "ip-172-20-123-201.ap-southeast-1.compute.internal",
            "control-plane-ap-southeast-1a",
            "AddressMismatch",
        ),
    ];
    let gce = [
        (
            "nodes-northamerica-northeast1-a-x7k2",
            "nodes-northamerica-northeast1-a",
            "Proven",
        ),
        (
            "control-plane-northamerica-northeast1-a-x7k2",
            "control-plane-northamerica-northeast1-a",
            "NotInGroup",
        ),
    ];
    for cluster in [aws, gce] {
        for (name, group, reason) in cluster {
            let verified = json!({"type": "Verified", "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let status = json!({"instance": "i-0123456789abcdef0", "instanceGroup": group, "conditions": [verified]});
            let (name, uid) = (name.parse().unwrap(), "u".parse().unwrap());
            let record = NodeIdentity::of_node(&name, &uid, String::new(), serde_json::from_value(status).unwrap());
            world.records().create(&PostParams::default(), &record).await.unwrap();
        }
        let mut kubectl = world.cluster.kubectl(&Identity::Admin);
        let table = text(&kubectl.args(["get", "nodeidentities"]).output().unwrap().stdout);
        let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(columns, ["NAME", "GROUP", "IDENTITY"]);
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.lines().all(|line| line.trim_end().len() <= 100), "{table}");
        for (name, ..) in cluster {
            world.records().delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_change_that_is_on_its_way() {
    let world = start().await;
    let controller = world.controller().await;
    let kubelet = world.join(1, "nodes").await;
    let name = kubelet.name();
    world.has_labels(name, &GIVEN).await;
    let all = all_labels(&world, name).await;

    // The definition changes while nobody labels, and somebody else has set a label of another group, and one of
    // nobody's.
    controller.stops().await;
    world.group("nodes", &[("team", "blue"), ("bad", "not a value")]);
    let labels = json!({"tier": "day", "mine": "yes", "node-role.kubernetes.io/api-server": ""});
    world.patch(name, json!({"metadata": {"labels": labels}})).await;
    let output = explain(&world, &["node", name, "-o", "json"]).await;
    fails(&output, 1, "1 label is invalid");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["change"]["differs"], true, "{found}");
    assert_eq!(found["change"]["set"], json!([{"key": "team", "value": "blue"}]));
    assert_eq!(
        found["change"]["remove"],
        json!([
            {"key": "node-role.kubernetes.io/api-server", "why": "it names a role that its group does not have"},
            {"key": "old", "why": "instancegroup/nodes no longer defines it"},
        ])
    );
    assert_eq!(found["foreign"], json!([{"key": "tier", "groups": ["batch"]}]));
    assert_eq!(found["rejected"][0]["field"], "spec.nodeLabels[\"bad\"]");
    assert_eq!(found["others"], all - GIVEN.len() + 1, "the one that is nobody's");
    let output = explain(&world, &["node", name]).await;
    reads(
        &output,
        &[
            "yes (labels to set: 1, labels to remove: 2, writes the record)",
            "WOULD BE REMOVED",
            "OF OTHER GROUPS",
            "CANNOT BE SET",
        ],
    );
    let removed = explain(&world, &["node", name, "--foreign-labels", "remove", "-o", "json"]).await;
    let removed: Value = serde_json::from_slice(&removed.stdout).unwrap();
    let why = json!({"key": "tier", "why": "only other groups define it: batch"});
    assert!(
        removed["change"]["remove"].as_array().unwrap().contains(&why),
        "{removed}"
    );
}

#[tokio::test]
async fn a_refused_node_and_what_quarantine_would_do() {
    let world = start().await;
    let controller = world.controller().await;
    for number in 1..=8 {
        let honest = world.join(number, "nodes").await;
        world.is_verified(honest.name(), True, "Proven").await;
    }
    let forge = async |number: u32| {
        let lies = node(FakeInstance::numbered(number).node_name())
            .provider_id(&world.launch(number, "nodes").provider_id())
            .internal_ip("10.9.9.9");
        let kubelet = Kubelet::register(&world.cluster, &lies.build()).await;
        let labels = json!({"tier": "night", "mine": "yes", "kops.k8s.io/instancegroup": "batch"});
        world
            .patch(kubelet.name(), json!({"metadata": {"labels": labels}}))
            .await;
        world.is_verified(kubelet.name(), False, "AddressMismatch").await;
        kubelet
    };
    let first = forge(11).await;
    let name = first.name();
    controller.counts("verified", 8).await;
    world.told(name, "AddressMismatch").await;

    let found = explained(&world, &["node", name]).await;
    assert_eq!(found["verified"]["reason"], "AddressMismatch");
    assert_eq!(found["change"]["compared"], false, "{found}");
    assert_eq!(found["events"][0]["reason"], "AddressMismatch", "{found}");
    let treatment = json!({
        "decision": "quarantined",
        "why": "it was never verified, and the number of forged Nodes is within the limit",
        "labels": ["kops.k8s.io/instancegroup", "tier"],
        "taint": true,
    });
    assert_eq!(found["quarantine"], treatment);
    let output = explain(&world, &["node", name]).await;
    reads(
        &output,
        &[
            "Find out who registered this Node",
            "loses kops.k8s.io/instancegroup, tier",
            "EVENTS",
            "s ago",
        ],
    );
    let asked = explained(&world, &["node", name, "--from-cloud", "--on-forgery", "quarantine"]).await;
    assert_eq!(asked["asked"], "cloud");
    assert_eq!(asked["change"]["taint"], "set", "{asked}");
    let gone = json!({"key": "tier", "why": "only a proven Node may have it"});
    assert!(asked["change"]["remove"].as_array().unwrap().contains(&gone), "{asked}");

    let forgeries = explained(&world, &["forgeries"]).await;
    let forgery = json!({
        "node": name,
        "reason": "AddressMismatch",
        "message": found["verified"]["message"],
        "quarantined": false,
        "treatment": treatment,
    });
    let expected =
        json!({"nodes": 9, "forged": 1, "limit": 1, "unjudged": 0, "keysKnown": true, "forgeries": [forgery]});
    assert_eq!(forgeries, expected);
    assert_eq!(world.labels(name).await.len(), 3, "nothing was done");

    // A second one is one too many.
    let second = forge(12).await;
    let forgeries = explained(&world, &["forgeries"]).await;
    let decisions: Vec<&Value> = forgeries["forgeries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|forgery| &forgery["treatment"]["decision"])
        .collect();
    assert_eq!(decisions, ["held", "held"], "{forgeries}");
    let output = explain(&world, &["forgeries"]).await;
    reads(&output, &[second.name(), "too many Nodes are refused for"]);

    // One that was verified before is spared, and who cannot say whose a key is says so.
    let honest = FakeInstance::numbered(1);
    world.ec2.change(honest.id(), |instance| {
        instance.tag("KubernetesCluster", "other.example.com")
    });
    controller.stops().await;
    let spared = world.controller().await;
    world.is_verified(honest.node_name(), False, "ForeignProject").await;
    let output = run(&world.cluster, &[], &alice(), &["forgeries", "-o", "json"]).await;
    let forgeries: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_honest = forgeries["forgeries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|forgery| forgery["node"] == honest.node_name());
    assert_eq!(of_honest.unwrap()["treatment"]["decision"], "spared", "{forgeries}");
    assert_eq!(forgeries["keysKnown"], false);
    spared.has_not_panicked();
}

#[tokio::test]
async fn labels_from_tags_are_explained() {
    let world = start().await;
    let tags = ("TIDEWAITER_LABEL_SOURCE", "tags");
    let controller = world.controller_with(&[tags]).await;
    let tag = "k8s.io/cluster-autoscaler/node-template/label/team";
    let of_group = "k8s.io/cluster-autoscaler/node-template/label/kops.k8s.io/instancegroup";
    let instance = FakeInstance::numbered(1)
        .kops(CLUSTER, "nodes")
        .tag(tag, "red")
        .tag(of_group, "nodes");
    world.ec2.launch([instance.clone()]);
    let kubelet = Kubelet::register(&world.cluster, &World::node_of(&instance).build()).await;
    world.is_verified(kubelet.name(), True, "Proven").await;
    world
        .has_labels(
            kubelet.name(),
            &[("kops.k8s.io/instancegroup", "nodes"), ("team", "red")],
        )
        .await;
    controller.stops().await;

    let name = kubelet.name();
    let as_it_does = ["node", name, "--label-source", "tags"];
    let found = explained(&world, &as_it_does).await;
    assert!(
        found["change"]["why"]
            .as_str()
            .unwrap()
            .contains("only --from-cloud reads"),
        "{found}"
    );
    assert_eq!(found["labels"][1]["source"], "InstanceTag");
    let found = explained(&world, &[&as_it_does[..], &["--from-cloud"]].concat()).await;
    assert_eq!(
        found["change"],
        json!({"compared": true, "differs": false, "record": false})
    );
    world.ec2.change(instance.id(), |instance| instance.tag(tag, "blue"));
    let found = explained(&world, &[&as_it_does[..], &["--from-cloud"]].concat()).await;
    assert_eq!(
        found["change"]["set"],
        json!([{"key": "team", "value": "blue"}]),
        "{found}"
    );
    let found = explained(&world, &["node", name]).await;
    assert!(
        found["notes"]
            .to_string()
            .contains("the record contains labels from tags"),
        "{found}"
    );

    // Without a flag it decides as the controller does: by the version of kOps.
    world.store.put("kops-version.txt", "1.37.0-alpha.1");
    let found = explained(&world, &["node", name]).await;
    let why = found["change"]["why"].as_str().unwrap_or_default();
    assert!(why.contains("only --from-cloud reads"), "{found}");
    let found = explained(&world, &["node", name, "--from-cloud"]).await;
    assert_eq!(
        found["change"]["set"],
        json!([{"key": "team", "value": "blue"}]),
        "{found}"
    );
}

#[tokio::test]
async fn a_cluster_and_its_state_store_stand_in_for_the_file() {
    let world = start().await;
    let controller = world.controller().await;
    let kubelet = world.join(1, "nodes").await;
    let name = kubelet.name();
    world.says(name, "ForeignLabels", False, "NoneFound", "").await;
    controller.stops().await;

    // The same cluster in another state store, with another value.
    let store = &world.store;
    let base = format!("{}/{CLUSTER}", store.url());
    let group = instance_group("nodes", CLUSTER, "Node").node_label("team", "blue");
    store.put(
        &format!("{CLUSTER}/cluster-completed.spec"),
        &cluster(CLUSTER, &base).to_yaml(),
    );
    store.put(&format!("{CLUSTER}/instancegroup/nodes"), &group.to_yaml());
    let ask = async |environment: &[(&str, String)], arguments: &[&str]| -> Value {
        let arguments = [&["node", name, "-o", "json"], arguments].concat();
        let output = run(&world.cluster, environment, &alice(), &arguments).await;
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let blue = json!([{"key": "team", "value": "blue"}]);
    let found = ask(&[], &["--name", CLUSTER, "--state", &store.url()]).await;
    assert_eq!(found["change"]["set"], blue, "{found}");
    let environment = [
        ("KOPS_CLUSTER_NAME", CLUSTER.to_owned()),
        ("KOPS_STATE_STORE", format!("{}/", store.url())),
    ];
    assert_eq!(ask(&environment, &[]).await, found);

    // One of the two is not enough, and the file overrides both.
    let url = store.url();
    for (flag, value, missing) in [("--name", CLUSTER, "--state"), ("--state", url.as_str(), "--name")] {
        let output = run(&world.cluster, &[], &alice(), &["node", name, flag, value]).await;
        fails(&output, 2, &format!("requires {missing}"));
    }
    let config = conf(&world, &world.config());
    let found = ask(&environment, &["--conf", &config]).await;
    assert_eq!(
        found["change"],
        json!({"compared": true, "differs": false, "record": false})
    );
}

#[tokio::test]
async fn compute_engine_is_asked_with_the_credentials_of_the_machine() {
    let world = clouds::world().await;
    world.cluster.apply(MAY_LOOK).await;
    let (gce, machines) = clouds::gce::launch().await;
    let environment = clouds::gce::environment(&gce);
    let controller = clouds::controller(&world, "gce", &environment).await;
    let (worker, thief) = (&machines.worker, &machines.thief);
    for machine in [worker, thief] {
        machine.registers_as(&world, &machine.node).await;
    }
    world.is_verified(&worker.node, True, "Proven").await;
    world.is_verified(&thief.node, False, "NotInGroup").await;
    world.says(&worker.node, "ForeignLabels", False, "NoneFound", "").await;
    controller.stops().await;

    let config = conf(&world, &clouds::config(&world, "gce"));
    let ask = async |node: &str, arguments: &[&str]| -> Output {
        let arguments = [&["node", node, "--from-cloud", "--conf", &config], arguments].concat();
        run(&world.cluster, &environment, &alice(), &arguments).await
    };
    gce.clear_calls();
    let output = ask(&worker.node, &["-o", "json"]).await;
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (field, value) in [
        ("asked", "cloud"),
        ("instance", &worker.instance),
        ("group", "nodes"),
        ("zone", "us-central1-a"),
        ("lifecycle", "on-demand"),
    ] {
        assert_eq!(found[field], value, "{found}");
    }
    assert_eq!(found["verified"]["reason"], "Proven");
    assert_eq!(
        found["change"],
        json!({"compared": true, "differs": false, "record": false}),
        "what the controller has done is what it would do"
    );
    let calls: Vec<_> = gce.take_calls().into_iter().flat_map(|call| call.names).collect();
    let way = [
        worker.instance.as_str(),
        "us-central1-a/nodes-mig",
        "global/nodes-template",
    ];
    assert_eq!(calls, way);

    reads(
        &ask(&thief.node, &[]).await,
        &[
            "False (NotInGroup), according to the cloud",
            "claims to be created by zones/us-central1-a/instanceGroupManagers/masters-mig, which does not list it",
            "Delete the instance and let its instance group create",
        ],
    );
    gce.always(Some(Scripted::Denied));
    let output = ask(&worker.node, &[]).await;
    fails(
        &output,
        1,
        "the cloud, asked with your own credentials, does not say who it is: gce:compute.instances.get: permission denied (403 forbidden)",
    );
}

#[tokio::test]
async fn what_is_wrong_is_said_in_one_line() {
    let bare = ControlPlane::start().await;
    let output = run(&bare, &[], &Identity::Admin, &["node", "absent"]).await;
    fails(
        &output,
        1,
        "this cluster has no NodeIdentity records: apply deploy/crds",
    );

    let world = World::on(bare).await;
    world.cluster.apply(MAY_LOOK).await;
    world.group("nodes", &[]);
    fails(
        &explain(&world, &["node", "absent"]).await,
        1,
        "there is no Node absent",
    );
    assert_eq!(explain(&world, &["node", "../x"]).await.status.code(), Some(2));
    let mallory = Identity::user("mallory", &[]);
    let output = run(&world.cluster, &[], &mallory, &["forgeries"]).await;
    fails(&output, 1, "Nodes cannot be read");

    // Nobody has seen it yet.
    let kubelet = world.join(1, "nodes").await;
    let found = explained(&world, &["node", kubelet.name()]).await;
    assert_eq!(found["verified"]["reason"], "NoRecord", "{found}");

    let controller = world.controller().await;
    world.is_verified(kubelet.name(), True, "Proven").await;
    controller.stops().await;
    let config = conf(&world, &controller_config(CLUSTER, "gs://nowhere").to_json());
    let endpoint = ("TIDEWAITER_STATE_ENDPOINT", "http://127.0.0.1:1".to_owned());
    let arguments = ["node", kubelet.name(), "--conf", &config];
    let output = run(&world.cluster, &[endpoint], &alice(), &arguments).await;
    fails(&output, 1, "the definition of its group cannot be read");
    let cloud = [("AWS_ENDPOINT_URL_EC2", "http://127.0.0.1:1".to_owned())];
    let environment: Vec<(&str, String)> = world
        .ec2
        .environment()
        .into_iter()
        .filter(|(key, _)| *key != cloud[0].0)
        .chain(cloud.clone())
        .collect();
    let config = conf(&world, &world.config());
    let arguments = ["node", kubelet.name(), "--from-cloud", "--conf", &config];
    let output = run(&world.cluster, &environment, &alice(), &arguments).await;
    fails(
        &output,
        1,
        "the cloud, asked with your own credentials, does not say who it is",
    );
    let output = run(&world.cluster, &[], &alice(), &["node", "n", "--from-cloud"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--conf"),
        "the cloud's name stands nowhere else"
    );
}
