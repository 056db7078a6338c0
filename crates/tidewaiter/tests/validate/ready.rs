//! A cluster that is ready, or becomes so while one waits.

use std::path::Path;
use std::process::Output;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use rustix::process::Signal;
use serde_json::json;
use tidewaiter_testkit::Identity;
use tidewaiter_testkit::builders::{ClusterBuilder, controller_config, instance_group, node};
use tidewaiter_testkit::fake_ec2::{self, FakeGroup, FakeInstance};
use tidewaiter_testkit::fake_gce::{self, FakeGce, zonal_group};

use crate::world::{CLUSTER, World, alice, bare, finished, json_of, text, unknown, workers};

/// The command looks this often.
const OFTEN: [&str; 2] = ["--interval", "1s"];

const MAY_READ_RECORDS: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: may-read-records}
rules:
- {apiGroups: [tidewaiter.dev], resources: [nodeidentities], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: may-read-records}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: may-read-records}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
";

/// With a group of two instances that are Nodes; their names.
async fn start(ready: [&str; 2]) -> (World, [String; 2]) {
    let world = World::start().await;
    let instances = [1, 2].map(FakeInstance::numbered);
    let members = instances
        .each_ref()
        .map(|instance| instance.member().template("lt-1", "1"));
    world.ec2.launch_template("lt-1", 1, 1);
    world
        .ec2
        .groups([workers().sizes(2, 2, 2).template("lt-1", "1").with(members)]);
    for (instance, ready) in instances.iter().zip(ready) {
        join(&world, &name(instance), &instance.provider_id(), ready).await;
    }
    (world, instances.each_ref().map(name))
}

fn name(instance: &FakeInstance) -> String {
    format!("node-{}", instance.id())
}

fn nodes(world: &World) -> Api<Node> {
    Api::all(world.cluster.client(&Identity::Admin))
}

async fn join(world: &World, name: &str, provider_id: &str, ready: &str) {
    let node = node(name).provider_id(provider_id).ready(ready).build();
    nodes(world).create(&PostParams::default(), &node).await.unwrap();
}

async fn set_ready(world: &World, node: &str, status: &str) {
    let patch = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}));
    let patched = nodes(world).patch_status(node, &PatchParams::default(), &patch).await;
    patched.unwrap();
}

#[tokio::test]
async fn a_ready_cluster_is_told_as_kops_tells_it() {
    let (world, nodes) = start(["True", "True"]).await;
    let output = world.validate(&[]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = format!(
        "Validating cluster {CLUSTER}\n\n\
         INSTANCE GROUPS\nNAME\tROLE\tMACHINETYPE\tMIN\tMAX\tSUBNETS\nnodes\tNode\tt3.medium\t3\t3\tus-test-1a\n\n\
         NODE STATUS\nNAME\t\t\t\tROLE\tREADY\n{}\tnode\tTrue\n{}\tnode\tTrue\n\n\
         Your cluster {CLUSTER} is ready\n",
        nodes[0], nodes[1]
    );
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(
        text(&output.stderr),
        "tidewaiter: the cluster has no NodeIdentities, so the providerID of each Node is trusted without proof, as kops does\n"
    );
}

#[tokio::test]
async fn region_and_cloud_come_from_the_file_or_the_cluster() {
    let (world, _) = start(["True", "True"]).await;
    let conf = controller_config(CLUSTER, &format!("{}/{CLUSTER}", world.store.url())).to_json();
    let conf = world.store.write("conf", &conf).display().to_string();
    let kubeconfig = world.cluster.kubeconfig(&alice()).display().to_string();
    let mut from_file = bare(&["--conf", &conf, "--kubeconfig", &kubeconfig]);
    from_file.envs(world.ec2.environment()).env_remove("AWS_REGION");
    let output = finished(from_file).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut from_zones = world.command(&["-o", "json"]);
    from_zones.env_remove("AWS_REGION");
    let output = finished(from_zones).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    world
        .store
        .put_cluster(|cluster| cluster.set(&["spec", "cloudProvider"], "openstack"));
    let output = world.validate(&["-o", "json"]).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let unknown = unknown(&output);
    assert!(
        matches!(&unknown[..], [(part, reason)] if part == "cloud" && reason.contains("cloud is openstack")),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn the_region_of_the_cluster_counts_and_not_the_one_of_the_shell() {
    let (world, _) = start(["True", "True"]).await;
    let other = instance_group("other", CLUSTER, "Node").to_yaml();
    world.store.put("instancegroup/other", &other);
    let elsewhere = |name: &str| {
        let mut command = world.command(&["-o", "json"]);
        command.env(name, "eu-west-1");
        command
    };
    let output = finished(elsewhere("AWS_REGION")).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = "InstanceGroup \"other\" is missing from the cloud provider (region us-test-1)";
    assert_eq!(json_of(&output)["failures"][0]["message"], message);

    let output = finished(elsewhere("TIDEWAITER_REGION")).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let unknown = unknown(&output);
    let words = "TIDEWAITER_REGION) is \"eu-west-1\", but the subnets of the Cluster are in us-test-1";
    assert!(
        matches!(&unknown[..], [(part, reason)] if part == "cloud" && reason.contains(words)),
        "{unknown:?}"
    );
}

/// Writes the record of a Node, with this status and reason of `Verified`.
async fn record(world: &World, node: &str, provider_id: &str, status: &str, reason: &str) {
    let uid = nodes(world).get(node).await.unwrap().metadata.uid;
    let mut said = json!({"conditions": [{"type": "Verified", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    if status == "True" {
        said["instance"] = json!(provider_id.rsplit('/').next());
        said["instanceGroup"] = json!("nodes");
    }
    let record = json!({
        "apiVersion": "tidewaiter.dev/v1alpha1", "kind": "NodeIdentity", "metadata": {"name": node},
        "spec": {"nodeUID": uid, "providerID": provider_id}, "status": said,
    });
    world.cluster.apply(&record.to_string()).await;
}

#[tokio::test]
async fn where_tidewaiter_is_installed_only_a_proven_node_counts() {
    let (world, names) = start(["True", "True"]).await;
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    world.cluster.apply_manifests(crds).await;
    let look = async |code: i32| {
        let output = world.validate(&["-o", "json"]).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(text(&output.stderr), "");
        output
    };
    let about_records = |output: &Output| {
        let unknown = unknown(output);
        let [(part, reason)] = &unknown[..] else {
            panic!("{unknown:?}")
        };
        assert_eq!(part, "NodeIdentities");
        reason.clone()
    };

    // Alice may not list them, which does not mean that there are none.
    let denied = about_records(&look(3).await);
    assert!(
        denied.contains("permission to list nodeidentities is missing"),
        "{denied}"
    );
    world.cluster.apply(MAY_READ_RECORDS).await;
    let none = about_records(&look(3).await);
    assert!(none.contains(&format!("node {:?} is not proven", names[0])), "{none}");

    let [one, two] = [1, 2].map(|number| FakeInstance::numbered(number).provider_id());
    record(&world, &names[0], &one, "True", "Proven").await;
    record(&world, &names[1], &two, "Unknown", "Throttled").await;
    let throttled = about_records(&look(3).await);
    assert!(
        throttled.contains(&names[1]) && throttled.contains("Throttled") && !throttled.contains(&names[0]),
        "{throttled}"
    );
    record(&world, &names[1], &two, "True", "Proven").await;
    look(0).await;

    // A forged Node that is not ready changes nothing.
    join(&world, "thief", &one, "False").await;
    look(0).await;
    record(&world, "thief", &one, "False", "NameMismatch").await;
    look(0).await;
    // It counts for no instance that has not joined.
    nodes(&world).delete(&names[0], &DeleteParams::default()).await.unwrap();
    let output = look(2).await;
    let message = json_of(&output)["failures"][0]["message"].to_string();
    assert!(message.contains("has not yet joined cluster"), "{message}");
}

/// Its Node is ready as long as somebody reports for it, and its group may not know yet, or never.
#[tokio::test]
async fn an_instance_that_is_no_member_any_more_is_missed() {
    let (world, _) = start(["True", "True"]).await;
    let look = async |code: i32, what: &str| {
        let output = world.validate(&["-o", "json"]).await;
        assert_eq!(output.status.code(), Some(code), "{what}: {output:?}");
        json_of(&output)["failures"][0]["message"].as_str().map(str::to_owned)
    };
    let id = FakeInstance::numbered(2).id().to_owned();
    let too_small = || Some("InstanceGroup \"nodes\" did not have enough nodes 1 vs 2".to_owned());
    for state in ["shutting-down", "terminated"] {
        world.ec2.change(&id, |instance| instance.state(state));
        assert_eq!(look(2, state).await, too_small(), "{state}");
    }
    world.ec2.change(&id, |instance| instance.state("running"));
    look(0, "running").await;
    let group = |name: &'static str| move |instance: FakeInstance| instance.tag("kops.k8s.io/instancegroup", name);
    world.ec2.change(&id, group("others"));
    assert_eq!(look(2, "another group's").await, too_small());
    world.ec2.change(&id, group("nodes"));
    look(0, "its group's again").await;
    world.ec2.forget(&id);
    assert_eq!(look(2, "not listed").await, too_small());
    let shown = async |format: &str| text(&world.validate(&["-o", format]).await.stdout);
    assert_eq!(shown("jsonpath={.failures[0].message}").await, too_small().unwrap());
    assert_eq!(shown("wide").await, shown("table").await);

    let missing = || Some("InstanceGroup \"nodes\" is missing from the cloud provider (region us-test-1)".to_owned());
    world.ec2.groups([workers().sizes(0, 0, 3)]);
    look(0, "no instance is wanted").await;
    world
        .ec2
        .groups([workers().sizes(0, 0, 3).status("Delete in progress")]);
    assert_eq!(look(2, "being deleted").await, missing());
    world.ec2.forget_group(&format!("nodes.{CLUSTER}"));
    world.ec2.groups([group_of_another_name()]);
    assert_eq!(look(2, "another name").await, missing());
}

fn group_of_another_name() -> FakeGroup {
    fake_ec2::group("nodes").kops(CLUSTER, "nodes").sizes(0, 0, 3)
}

/// Karpenter makes its instances, and no Auto Scaling group has them.
#[tokio::test]
async fn a_group_of_karpenter_is_as_healthy_as_its_nodes() {
    let (world, _) = start(["True", "True"]).await;
    let group = instance_group("pool", CLUSTER, "Node").set(&["spec", "manager"], "Karpenter");
    world.store.put("instancegroup/pool", &group.to_yaml());
    let look = async |code: i32| {
        let output = world.validate(&["-o", "json"]).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let verdict = json_of(&output);
        let nodes = verdict["nodes"].as_array().map_or(0, Vec::len);
        (verdict["failures"][0]["message"].as_str().map(str::to_owned), nodes)
    };
    assert_eq!(look(0).await, (None, 2), "it has none and is not missing");
    let made = FakeInstance::numbered(3).kops(CLUSTER, "pool");
    let made = made
        .without_tag("aws:autoscaling:groupName")
        .tag("karpenter.sh/nodepool", "pool");
    world.ec2.launch([made.clone()]);
    let waits = format!("machine {:?} has not yet joined cluster", made.id());
    assert_eq!(look(2).await, (Some(waits), 2));
    join(&world, &name(&made), &made.provider_id(), "False").await;
    let not_ready = format!("node {:?} of role \"node\" is not ready", name(&made));
    assert_eq!(look(2).await, (Some(not_ready), 3));
    set_ready(&world, &name(&made), "True").await;
    assert_eq!(look(0).await, (None, 3));
}

#[tokio::test]
async fn workers_may_be_away() {
    let (world, nodes) = start(["True", "False"]).await;
    let output = world.validate(&["-o", "json"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(json_of(&output)["failures"][0]["name"], nodes[1]);
    let output = world.validate(&["--max-unready-nodes", "1"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[tokio::test]
async fn one_waits_until_it_is_ready() {
    let (world, nodes) = start(["True", "False"]).await;
    let mut running = world.running(&[&["--wait", "10m"], &OFTEN[..]].concat());
    let line = running.told().await;
    assert!(
        line.ends_with(&format!(
            "is not ready: node {:?} of role \"node\" is not ready",
            nodes[1]
        )),
        "{line}"
    );
    set_ready(&world, &nodes[1], "True").await;
    let (code, printed) = running.ended().await;
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.starts_with("Validating cluster") && printed.matches("Validating").count() == 1,
        "{printed}"
    );
    assert!(
        printed.ends_with("is ready\n") && !printed.contains("False"),
        "the last verdict only: {printed}"
    );
}

#[tokio::test]
async fn it_must_be_ready_so_many_times_in_a_row() {
    let (world, nodes) = start(["True", "True"]).await;
    let mut running = world.running(&[&["--count", "3"], &OFTEN[..]].concat());
    for row in ["1 of 3", "2 of 3"] {
        assert!(running.told().await.contains(row), "{row}");
    }
    assert_eq!(running.ended().await.0, Some(0));

    let mut running = world.running(&[&["--count", "1000", "--wait", "1h"], &OFTEN[..]].concat());
    running.tells("is ready, 1 of 1000 times").await;
    set_ready(&world, &nodes[0], "Unknown").await;
    running.tells("is not ready").await;
    set_ready(&world, &nodes[0], "True").await;
    running.tells("is ready, 1 of 1000 times").await;
    running.signal(Signal::TERM);
    let (code, printed) = running.ended().await;
    assert_eq!(code, Some(143));
    assert!(printed.ends_with("is ready\n"), "{printed}");
}

#[tokio::test]
async fn on_google_cloud_the_project_comes_from_the_cluster() {
    let (world, gce) = (World::start().await, FakeGce::start().await);
    let (zone, template) = (
        "us-central1-a",
        fake_gce::template("nodes-template").kops(CLUSTER, "nodes"),
    );
    let worker = fake_gce::instance(zone, "nodes-abcd");
    gce.groups([zonal_group(zone, "nodes-mig").lists(&worker, &template)]);
    gce.templates([template]);
    gce.metadata_project("another-project");
    join(&world, worker.node_name(), &worker.provider_id(), "True").await;
    let is_on_google = |project: &str| {
        let spec = [("cloudProvider", "gce"), ("project", project)];
        let set = |cluster: ClusterBuilder| {
            spec.iter()
                .fold(cluster, |cluster, (key, value)| cluster.set(&["spec", key], *value))
        };
        world.store.put_cluster(set);
    };
    let look = async || {
        let mut command = world.command(&["-o", "json"]);
        command
            .envs(gce.environment())
            .env("TIDEWAITER_GCE_ENDPOINT", gce.endpoint());
        finished(command).await
    };
    is_on_google("our-project");
    let output = look().await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    is_on_google("third-project");
    assert_ne!(
        look().await.status.code(),
        Some(0),
        "the instance is not of that project"
    );
}

#[tokio::test]
async fn each_look_asks_anew_what_the_state_store_says() {
    let (world, _) = start(["True", "True"]).await;
    let group = instance_group("nodes", CLUSTER, "Node").to_yaml();
    let put_group = |text: &str| world.store.put("instancegroup/nodes", text);
    put_group("spec: [");
    world
        .store
        .put_cluster(|cluster| cluster.set(&["spec", "cloudProvider"], "moon"));
    let mut running = world.running(&[&["--count", "1000", "--wait", "1h"], &OFTEN[..]].concat());
    running.tells("cannot tell whether").await;
    put_group(&group);
    running
        .tells("cloud unknown: the region or project of the cluster is not known")
        .await;
    world.store.put_cluster(|cluster| cluster);
    running.tells("is ready, 1 of").await;
    put_group("spec: [");
    running
        .tells("InstanceGroups unknown: instancegroup/nodes: is not valid YAML")
        .await;
    put_group(&group);
    running.tells("is ready, 1 of").await;
}
