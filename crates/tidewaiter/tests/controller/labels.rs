//! A Node gets the labels of its group, keeps everybody else's, and loses what its group no longer gives; and what is
//! as it should be is left alone.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::json;
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_api::RecordedLabel;
use tidewaiter_api::names::UNIDENTIFIED_TAINT;
use tidewaiter_testkit::TokenBucket;
use tidewaiter_testkit::builders::{cluster, instance_group};
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{Action, Gate, Identity, Kubelet, eventually, throughout};

use crate::world::{CLUSTER, Labels, SOON, World};

const GROUP: &str = "kops.k8s.io/instancegroup";
const NODE: &str = "node-role.kubernetes.io/node";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const API_SERVER: &str = "node-role.kubernetes.io/api-server";

#[tokio::test]
async fn labels_follow_the_definition() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red"), ("tier", "web")]);
    let controller = world.controller().await;
    let kubelet = world.join(1, "nodes").await;
    let name = kubelet.name();
    let has = async |labels: &[(&str, &str)]| {
        let labels = [&[(GROUP, "nodes"), (NODE, "")], labels].concat();
        world.has_labels(name, &labels).await;
    };
    has(&[("team", "red"), ("tier", "web")]).await;
    world.is_verified(name, True, "Proven").await;

    // Labels of others stay, and one of ours that somebody changes is put right.
    world
        .patch(name, json!({"metadata": {"labels": {"mine": "yes", "team": "blue"}}}))
        .await;
    has(&[("mine", "yes"), ("team", "red"), ("tier", "web")]).await;

    // A changed value changes, a new key comes, a key that leaves the definition leaves the Node, and then its record.
    world.group("nodes", &[("team", "green"), ("zone", "z")]);
    has(&[("mine", "yes"), ("team", "green"), ("zone", "z")]).await;
    remembers(&world, name, &[GROUP, NODE, "team", "zone"]).await;

    // A restart in between makes no difference.
    controller.stops().await;
    world.group("nodes", &[("team", "green")]);
    let controller = world.controller().await;
    has(&[("mine", "yes"), ("team", "green")]).await;
    remembers(&world, name, &[GROUP, NODE, "team"]).await;
    controller.counts("verified", 1).await;

    // A record that somebody deletes is made again, and remembers what is on the Node.
    let before = world.is_verified(name, True, "Proven").await;
    world.records().delete(name, &DeleteParams::default()).await.unwrap();
    let after = eventually("another record", SOON, async || {
        let record = world.records().get_opt(name).await.map_err(|error| error.to_string())?;
        record
            .filter(|record| record.metadata.uid != before.metadata.uid)
            .ok_or_else(|| "there is none".to_owned())
    })
    .await;
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.metadata.owner_references, before.metadata.owner_references);
    let (after, before) = (after.status.unwrap(), before.status.unwrap());
    let keys = |labels: Vec<RecordedLabel>| labels.into_iter().map(|label| label.key).collect::<Vec<_>>();
    assert_eq!(
        (after.instance, keys(after.labels)),
        (before.instance, keys(before.labels))
    );
    // Nobody knows any more who had it first.
    world.group("nodes", &[]);
    remembers(&world, name, &[GROUP, NODE]).await;
    has(&[("mine", "yes"), ("team", "green")]).await;
}

#[tokio::test]
async fn what_was_there_before_us_is_there_after_us() {
    const OS: (&str, &str) = ("kubernetes.io/os", "linux");
    const LATER: &str = "topology.kubernetes.io/region";
    let world = World::start().await;
    let zone = |value| ("topology.kubernetes.io/zone", value);
    let common = [("alike", "x"), ("node.kubernetes.io/instance-type", "t"), OS];
    let given = [
        &common[..],
        &[("mine", "ours"), ("team", "red"), zone("z"), (LATER, "r")],
    ]
    .concat();
    world.group("nodes", &given);
    let instance = world.launch(1, "nodes");
    let name = instance.node_name();
    let before = [&common[..], &[("mine", "theirs"), zone("a")]].concat();
    let node = before
        .iter()
        .fold(World::node_of(&instance), |node, (key, value)| node.label(key, value));
    Kubelet::register(&world.cluster, &node.build()).await;
    let own = [(GROUP, "nodes"), (NODE, "")];
    let has = async |labels: &[(&str, &str)]| {
        let expected: Labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        eventually(format!("{expected:?}"), SOON, async || {
            let node = world.nodes().get(name).await.unwrap();
            let mut labels = node.metadata.labels.unwrap_or_default();
            labels.retain(|key, _| given.iter().chain(&own).any(|(known, _)| known == key));
            if labels == expected {
                Ok(())
            } else {
                Err(format!("{labels:?}"))
            }
        })
        .await;
    };
    let controller = world.controller().await;
    has(&[&given[..], &own].concat()).await;
    // Another value changes nothing of who was first, nor does a restart.
    let other = [
        &common[..],
        &[("mine", "other"), ("team", "red"), zone("z"), (LATER, "r")],
    ]
    .concat();
    world.group("nodes", &other);
    has(&[&other[..], &own].concat()).await;
    controller.stops().await;
    let _controller = world.controller().await;

    // Given back is what was there, and removed what was not; a label of the cloud controller stays in any case.
    world.group("nodes", &[]);
    has(&[&before[..], &own, &[(LATER, "r")]].concat()).await;
    remembers(&world, name, &[GROUP, NODE]).await;
    let words = format!("removed team; gave back the former value of mine, {}", zone("").0);
    world.tells(name, "LabelsRemoved", &words).await;
    world.quiet(Duration::from_secs(1)).await;
    // A label that is given again is ours no more than before.
    world.group("nodes", &given);
    has(&[&given[..], &own].concat()).await;
    world.group("nodes", &[]);
    has(&[&before[..], &own, &[(LATER, "r")]].concat()).await;
}

#[tokio::test]
async fn a_change_in_the_store_reaches_the_nodes_that_it_concerns_and_no_others() {
    const OTHERS: u32 = 12;
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    world.group("others", &[("team", "red")]);
    let controller = world.controller().await;
    let node = world.join(1, "nodes").await;
    let mut others = Vec::new();
    for number in 2..2 + OTHERS {
        others.push(world.join(number, "others").await);
    }
    controller.counts("verified", 1 + OTHERS).await;
    let all_have = async |team: &str, of_cluster: &[(&str, &str)]| {
        let labels = [&[(GROUP, "nodes"), (NODE, ""), ("team", team)], of_cluster].concat();
        world.has_labels(node.name(), &labels).await;
        let labels = [&[(GROUP, "others"), (NODE, ""), ("team", "red")], of_cluster].concat();
        for other in &others {
            world.has_labels(other.name(), &labels).await;
        }
    };
    all_have("red", &[]).await;
    world.quiet(Duration::from_secs(1)).await;

    // The one pass that has a reason, and those that its own writes start: not one for each Node that there is.
    let passes = controller.rests().await;
    world.group("nodes", &[("team", "green")]);
    all_have("green", &[]).await;
    world.quiet(Duration::from_secs(1)).await;
    let passes = controller.passes().await - passes;
    assert!((1.0..f64::from(OTHERS)).contains(&passes), "{passes} passes");

    // The Cluster concerns them all.
    let of_cluster = cluster(CLUSTER, &world.store.url()).kubelet_label("tier", "all");
    world.store.put("cluster-completed.spec", &of_cluster.to_yaml());
    all_have("green", &[("tier", "all")]).await;
}

#[tokio::test]
async fn heartbeats_and_passes_write_nothing() {
    const HEARTBEATS: usize = 20;
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let controller = world.controller().await;
    let mut kubelets = Vec::new();
    let begin = world.cluster.audit_mark().await;
    for number in 1..=3 {
        kubelets.push(world.join(number, "nodes").await);
    }
    for kubelet in &kubelets {
        world
            .has_labels(kubelet.name(), &[(GROUP, "nodes"), (NODE, ""), ("team", "red")])
            .await;
        world.is_verified(kubelet.name(), True, "Proven").await;
    }
    // The changes of the writes come back through the watches, and start the last passes that have a reason.
    world.quiet(Duration::from_secs(1)).await;
    let mut written = world.written_since(begin).await;
    written.sort();
    let names = kubelets.iter().map(Kubelet::name);
    let expected: Vec<String> = names
        .clone()
        .map(|name| format!("create nodeidentities {name}"))
        .chain(names.map(|name| format!("patch nodes {name}")))
        .collect();
    assert_eq!(written, expected, "a new Node costs two writes");

    // Three minutes of heartbeats start no pass. The label that comes after them is seen after them, and starts one
    // each.
    let mark = world.cluster.audit_mark().await;
    let calls = world.identity_calls().len();
    let passes = controller.rests().await;
    for _ in 0..HEARTBEATS {
        for kubelet in &kubelets {
            kubelet.heartbeat().await;
        }
    }
    for kubelet in &kubelets {
        world
            .patch(kubelet.name(), json!({"metadata": {"labels": {"mine": "yes"}}}))
            .await;
    }
    controller.has_passed(passes + 3.0).await;
    let more = controller.rests().await - passes;
    // On a busy machine, a watch that begins again starts one more for each.
    assert!(more <= 6.0, "{more} passes");
    assert_eq!(world.written_since(mark).await, [""; 0]);
    assert_eq!(world.identity_calls().len(), calls, "a heartbeat reaches the cloud");

    // Passes that ask the cloud again, and the first ones of a new process, find nothing to write.
    controller.stops().await;
    let controller = world
        .controller_with(&[("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "1")])
        .await;
    controller.has_passed(15.0).await;
    assert!(world.identity_calls().len() > calls + 3, "nobody asked the cloud again");
    assert_eq!(world.written_since(mark).await, [""; 0]);
    controller.counts("verified", 3).await;
}

#[tokio::test]
async fn a_label_that_kubernetes_refuses_is_left_out_alone() {
    let world = World::start().await;
    let file = "instancegroup/nodes";
    let group = |label: &str, value: &str| {
        instance_group("nodes", CLUSTER, "Node")
            .node_label("good", "yes")
            .node_label(label, value)
    };
    world.store.put(file, &group("later", "fine").to_yaml());
    let controller = world.controller().await;
    let kubelet = world.join(1, "nodes").await;
    let name = kubelet.name();
    let has = async |labels: &[(&str, &str)]| {
        let labels = [&[(GROUP, "nodes"), (NODE, "")], labels].concat();
        world.has_labels(name, &labels).await;
    };
    has(&[("good", "yes"), ("later", "fine")]).await;
    world.says(name, "LabelsValid", True, "AllValid", "").await;

    // A key, a value that was good before, a value that is no text; in the group's file and in the cluster's.
    let bad = group("later", "not so fine!")
        .node_label("a bad key", "x")
        .set(&["spec", "nodeLabels", "number"], 5)
        .node_label("new", "too");
    world.store.put(file, &bad.to_yaml());
    let cluster = cluster(CLUSTER, &world.store.url()).kubelet_label("-worse", "x");
    world.store.put("cluster-completed.spec", &cluster.to_yaml());
    has(&[("good", "yes"), ("later", "fine"), ("new", "too")]).await;
    let rejected = [
        "instancegroup/nodes spec.nodeLabels[\"later\"]: … was not set … the value must be",
        "instancegroup/nodes spec.nodeLabels[\"a bad key\"]: … was not set",
        "instancegroup/nodes spec.nodeLabels[\"number\"]: … put the value in quotes",
        "cluster-completed.spec spec.kubelet.nodeLabels[\"-worse\"]: … was not set",
    ];
    for words in rejected {
        world.says(name, "LabelsValid", False, "LabelRejected", words).await;
        world.tells(name, "LabelRejected", words).await;
    }
    world.is_verified(name, True, "Proven").await;
    remembers(&world, name, &[GROUP, NODE, "good", "later", "new"]).await;
    controller
        .has_metric("tidewaiter_labels_rejected_total", |count| count >= 4.0)
        .await;
    controller.counts("verified", 1).await;

    // It is not tried again and again: no pass, no write.
    world.quiet(Duration::from_secs(1)).await;
    let passes = controller.rests().await;
    let mark = world.cluster.audit_mark().await;
    throughout("no pass", Duration::from_secs(4), async || {
        let now = controller.passes().await;
        if now == passes { Ok(()) } else { Err(now - passes) }
    })
    .await;
    assert_eq!(world.written_since(mark).await, [""; 0]);

    // Put right, all of it is set.
    world.store.put(
        "cluster-completed.spec",
        &self::cluster(CLUSTER, &world.store.url()).to_yaml(),
    );
    world.store.put(file, &group("later", "right").to_yaml());
    has(&[("good", "yes"), ("later", "right")]).await;
    world.says(name, "LabelsValid", True, "AllValid", "").await;
}

#[tokio::test]
async fn each_kind_of_node_gets_what_is_its_own() {
    let world = World::start().await;
    let cluster = cluster(CLUSTER, &world.store.url())
        .kubelet_label("kubelet", "worker")
        .control_plane_kubelet_label("kubelet", "control-plane");
    world.store.put("cluster-completed.spec", &cluster.to_yaml());
    world.group("nodes", &[]);
    world.group_as("masters", "Master", &[("team", "core")]);
    world.group_as("bastions", "Bastion", &[]);
    let controller = world.controller().await;

    let master = world.join(1, "masters").await;
    let worker = world.join(2, "nodes").await;
    let spot = FakeInstance::numbered(3).kops(CLUSTER, "nodes").lifecycle("spot");
    world.ec2.launch([spot.clone()]);
    let spot = Kubelet::register(&world.cluster, &World::node_of(&spot).build()).await;
    let bastion = world.join(4, "bastions").await;
    let of_master = [
        (GROUP, "masters"),
        (CONTROL_PLANE, ""),
        ("kops.k8s.io/kops-controller-pki", ""),
        ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
        ("kubelet", "control-plane"),
        ("team", "core"),
    ];
    let of_worker = [(GROUP, "nodes"), (NODE, ""), ("kubelet", "worker")];
    let of_spot = [&of_worker[..], &[("node-role.kubernetes.io/spot-worker", "true")]].concat();
    world.has_labels(master.name(), &of_master).await;
    world.has_labels(worker.name(), &of_worker).await;
    world.has_labels(spot.name(), &of_spot).await;
    world
        .has_labels(bastion.name(), &[(GROUP, "bastions"), ("kubelet", "worker")])
        .await;

    // The role labels that are another kind's go, no matter who set them; those that kOps does not know stay.
    let roles = json!({CONTROL_PLANE: "", API_SERVER: "", NODE: "", "node-role.kubernetes.io/gpu": ""});
    for kubelet in [&master, &worker, &bastion] {
        world
            .patch(kubelet.name(), json!({"metadata": {"labels": roles}}))
            .await;
    }
    let gpu = ("node-role.kubernetes.io/gpu", "");
    world
        .has_labels(master.name(), &[&of_master[..], &[gpu]].concat())
        .await;
    world
        .has_labels(worker.name(), &[&of_worker[..], &[gpu]].concat())
        .await;
    world
        .has_labels(bastion.name(), &[(GROUP, "bastions"), ("kubelet", "worker"), gpu])
        .await;
    controller.counts("verified", 4).await;
}

#[tokio::test]
async fn the_startup_taint_goes_with_the_labels() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let controller = world.controller().await;
    let gate = Gate::new();
    let closed = gate.clone();
    controller.proxy.hook(move |request| {
        if request.is_write() && request.resource() == "nodes" {
            Action::Hold(closed.clone())
        } else {
            Action::Forward
        }
    });
    let instance = world.launch(1, "nodes");
    let name = instance.node_name();
    let node = World::node_of(&instance)
        .taint("before.example.com/a", "NoExecute")
        .taint(UNIDENTIFIED_TAINT, "NoSchedule")
        .taint("behind.example.com/b", "NoSchedule");
    Kubelet::register(&world.cluster, &node.build()).await;

    // While its labels are on their way the Node has none and is tainted; its record knows already what will be on it.
    eventually("the patch of the Node to be sent", SOON, async || match gate.held() {
        1 => Ok(()),
        held => Err(held),
    })
    .await;
    assert_eq!(world.labels(name).await, Labels::new());
    let taints = taints(&world, name).await;
    assert!(taints.contains(UNIDENTIFIED_TAINT), "{taints:?}");
    let recorded: Vec<String> = world.recorded(name).await.into_keys().collect();
    assert_eq!(recorded, [GROUP, NODE, "team"]);

    gate.open();
    world
        .has_labels(name, &[(GROUP, "nodes"), (NODE, ""), ("team", "red")])
        .await;
    let mut others = taints;
    others.remove(UNIDENTIFIED_TAINT);
    assert!(others.contains("before.example.com/a") && others.contains("behind.example.com/b"));
    assert_eq!(self::taints(&world, name).await, others);
    world.is_verified(name, True, "Proven").await;
    assert_eq!(world.patches(name).await, 1, "the labels and the taint are one patch");

    // One whom the cloud does not vouch for keeps it.
    let unknown = FakeInstance::numbered(2);
    let node = World::node_of(&unknown).taint(UNIDENTIFIED_TAINT, "NoSchedule");
    Kubelet::register(&world.cluster, &node.build()).await;
    world.tells(unknown.node_name(), "NotFound", "").await;
    assert!(world.is_tainted(unknown.node_name()).await);

    // A taint that somebody puts onto an identified Node goes, too.
    let taints = json!({"spec": {"taints": [{"key": UNIDENTIFIED_TAINT, "effect": "NoSchedule"}]}});
    world.patch(name, taints).await;
    eventually("the taint to be lifted again", SOON, async || {
        let taints = self::taints(&world, name).await;
        if taints.is_empty() {
            Ok(())
        } else {
            Err(format!("{taints:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn a_person_sees_it_with_kubectl() {
    let world = World::start().await;
    world.group("nodes", &[]);
    let _controller = world.controller().await;
    let verified = FakeInstance::numbered(1);
    a_waiting_command_reports_when_it_is_verified(&world).await;

    let unknown = FakeInstance::numbered(2);
    Kubelet::register(&world.cluster, &World::node_of(&unknown).build()).await;
    world.tells(unknown.node_name(), "NotFound", "").await;
    let wait = "wait --for=condition=Verified=false --timeout=60s";
    print(&world, &format!("{wait} nid/{}", unknown.node_name()));

    let table = print(&world, "get nodeidentities -o wide");
    let [header, first, second] = &rows(&table)[..] else {
        panic!("{table}")
    };
    let columns = ["NAME", "GROUP", "IDENTITY", "VERIFIED", "INSTANCE", "ZONE", "LIFECYCLE"];
    assert_eq!(header[..7], columns);
    let expected = [
        verified.node_name(),
        "nodes",
        "Proven",
        "True",
        verified.id(),
        "us-east-1b",
        "on-demand",
    ];
    assert_eq!(first[..7], expected);
    assert_eq!(second[0], unknown.node_name());
    assert!(table.contains("False") && table.contains("NotFound"), "{table}");
    let short = print(&world, "get nid");
    assert_eq!(rows(&short)[0], columns[..3]);

    let described = print(&world, &format!("describe node {}", unknown.node_name()));
    for word in [
        "Warning",
        "NotFound",
        "the cloud does not list instance",
        unknown.id(),
        "delete the Node",
    ] {
        assert!(described.contains(word), "{word} is not in {described}");
    }

    // No record may say that its Node is verified without saying who it is.
    let record = format!("nodeidentity/{}", verified.node_name());
    for missing in ["instance", "instanceGroup"] {
        let patch = json!({"status": {missing: null}}).to_string();
        let mut kubectl = kubectl(&world, "patch --type=merge -p");
        let refused = kubectl.args([&patch, &record]).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        let why = "a verified record names its instance and its instance group";
        assert!(!refused.status.success() && said.contains(why), "{missing}: {said}");
    }
}

/// `kubectl wait` ends when the Node is verified, and not before.
async fn a_waiting_command_reports_when_it_is_verified(world: &World) {
    let nothing = TokenBucket {
        capacity: 0.0,
        refill: 0.0,
    };
    world.ec2.throttle(Some(nothing));
    let kubelet = world.join(1, "nodes").await;
    world.tells(kubelet.name(), "Throttled", "").await;
    let wait = "wait --for=condition=Verified --timeout=120s";
    let mut waiting = kubectl(world, &format!("{wait} nodeidentity/{}", kubelet.name()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    throughout("waiting", Duration::from_secs(1), async || {
        waiting.try_wait().unwrap().map_or(Ok(()), Err)
    })
    .await;
    world.ec2.throttle(None);
    let status = eventually("kubectl wait to end", SOON, async || {
        waiting.try_wait().unwrap().ok_or("it waits")
    })
    .await;
    assert!(status.success(), "{status}");
    world.is_verified(kubelet.name(), True, "Proven").await;
}

fn kubectl(world: &World, arguments: &str) -> Command {
    let mut command = world.cluster.kubectl(&Identity::Admin);
    command.args(arguments.split_whitespace());
    command
}

/// Returns the output of kubectl.
fn print(world: &World, arguments: &str) -> String {
    let output = kubectl(world, arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// Waits until the record remembers these keys and no other.
async fn remembers(world: &World, name: &str, keys: &[&str]) {
    let expected: BTreeSet<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    eventually(format!("the record to remember {keys:?}"), SOON, async || {
        let found: BTreeSet<String> = world.recorded(name).await.into_keys().collect();
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

async fn taints(world: &World, name: &str) -> BTreeSet<String> {
    let spec = world.nodes().get(name).await.unwrap().spec.unwrap_or_default();
    spec.taints
        .unwrap_or_default()
        .into_iter()
        .map(|taint| taint.key)
        .collect()
}
