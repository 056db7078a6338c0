//! The state store is broken, or away: the last good definition stays in force, the error names the file and the field,
//! and a file that is put right takes effect.

mod gs;
pub mod s3;

use kube::api::DeleteParams;
use tidewaiter_api::ConditionStatus::{True, Unknown};
use tidewaiter_api::names::UNIDENTIFIED_TAINT;
use tidewaiter_testkit::builders::{InstanceGroupBuilder, cluster, instance_group};
use tidewaiter_testkit::{Kubelet, eventually};

use crate::world::{CLUSTER, Controller, Labels, SOON, World};
use s3::{Answer, S3};

const GROUP: &str = "instancegroup/nodes";
const CLUSTER_FILE: &str = "cluster-completed.spec";
const PROBLEMS: &str = "tidewaiter_state_store_problems";
const HTML: &str = "<!DOCTYPE html><html><body>Welcome! Please log in.</body></html>";

fn group(team: &str) -> InstanceGroupBuilder {
    instance_group("nodes", CLUSTER, "Node").node_label("team", team)
}

async fn has_team(world: &World, name: &str, team: &str) {
    let labels = [
        ("kops.k8s.io/instancegroup", "nodes"),
        ("node-role.kubernetes.io/node", ""),
        ("team", team),
    ];
    world.has_labels(name, &labels).await;
}

/// Waits until so many files in use cannot be used.
async fn has_problems(controller: &Controller, files: f64) {
    controller.has_metric(PROBLEMS, |found| found == files).await;
}

#[tokio::test]
async fn a_broken_file_leaves_its_last_good_version_in_force() {
    let world = World::start().await;
    let whole_cluster = cluster(CLUSTER, &world.store.url()).to_yaml();
    let other_cluster = cluster("other.example.com", &world.store.url()).to_yaml();
    let controller = world.controller().await;
    let role = "spec.role … must be one of ControlPlane, Master, Node";
    let broken = [
        (GROUP, None, "is missing from the state store"),
        (GROUP, Some("spec: [".to_owned()), "is not valid YAML … line 1"),
        (
            GROUP,
            Some(group("bad").without(&["spec", "role"]).to_yaml()),
            &format!("is missing … {role}"),
        ),
        (
            GROUP,
            Some(group("bad").set(&["spec", "role"], "Worker").to_yaml()),
            &format!("Worker … {role}"),
        ),
        (
            GROUP,
            Some(group("bad").set(&["spec", "nodeLabels"], "x").to_yaml()),
            "spec.nodeLabels … must be a mapping",
        ),
        (
            GROUP,
            Some(instance_group("masters", CLUSTER, "Master").to_yaml()),
            "metadata.name … belongs to group nodes",
        ),
        (
            GROUP,
            Some(instance_group("nodes", "other.example.com", "Node").to_yaml()),
            "kops.k8s.io/cluster … other.example.com … clusterName of the configuration is test.example.com",
        ),
        (GROUP, Some(HTML.to_owned()), "is HTML or XML, not YAML"),
        (GROUP, Some(String::new()), "is empty"),
        (
            CLUSTER_FILE,
            Some(other_cluster),
            "metadata.name … other.example.com … clusterName of the configuration is test.example.com",
        ),
        (CLUSTER_FILE, Some("- a\n- b".to_owned()), "must be a mapping"),
        (CLUSTER_FILE, None, "is missing from the state store"),
    ];
    let mut names = Vec::new();
    for (number, (file, content, words)) in (1..).zip(broken) {
        let team = format!("team-{number}");
        world.store.put(CLUSTER_FILE, &whole_cluster);
        world.store.put(GROUP, &group(&team).to_yaml());
        // The first one reads the definition; for the others this is a file that was put right.
        names.push(world.join(2 * number, "nodes").await.name().to_owned());
        for name in &names {
            has_team(&world, name, &team).await;
        }
        has_problems(&controller, 0.0).await;

        match content {
            Some(content) => world.store.put(file, &content),
            None => world.store.delete(file),
        }
        controller
            .logs(&format!("its last valid version is used … {file}: … {words}"))
            .await;
        has_problems(&controller, 1.0).await;
        controller.is_ready(true, "[+]state-store ok").await;
        // Also for anyone who comes now.
        names.push(world.join(2 * number + 1, "nodes").await.name().to_owned());
        for name in &names {
            has_team(&world, name, &team).await;
            world.says(name, "LabelsValid", True, "AllValid", "").await;
        }
    }
    let nodes = u32::try_from(names.len()).unwrap();
    controller.counts("verified", nodes).await;
}

#[tokio::test]
async fn a_group_that_was_deleted_is_a_problem_until_its_last_node_is_gone() {
    let world = World::start().await;
    world.store.put(GROUP, &group("red").to_yaml());
    world.group_as("masters", "Master", &[]);
    let controller = world.controller().await;
    let node = world.join(1, "nodes").await;
    has_team(&world, node.name(), "red").await;
    has_problems(&controller, 0.0).await;

    world.store.delete(GROUP);
    has_problems(&controller, 1.0).await;
    // Nobody collects garbage on this control plane: the record stays.
    world
        .nodes()
        .delete(node.name(), &DeleteParams::default())
        .await
        .unwrap();
    has_problems(&controller, 0.0).await;
    assert_eq!(world.recorded(node.name()).await.len(), 3);
}

#[tokio::test]
async fn without_a_good_version_nobody_loses_a_label_and_somebody_is_told() {
    let world = World::start().await;
    world.store.put(GROUP, &group("red").to_yaml());
    let controller = world.controller().await;
    let old = world.join(1, "nodes").await;
    has_team(&world, old.name(), "red").await;
    controller.stops().await;

    // A process that never saw a good version knows nothing of the last one.
    world
        .store
        .put(GROUP, &group("bad").set(&["spec", "role"], "Worker").to_yaml());
    let controller = world.controller().await;
    let instance = world.launch(2, "nodes");
    let tainted = World::node_of(&instance).taint(UNIDENTIFIED_TAINT, "NoSchedule");
    let new = Kubelet::register(&world.cluster, &tainted.build()).await;
    let (reason, words) = (
        "DefinitionInvalid",
        "instancegroup/nodes: spec.role: is \"Worker\", must be one of",
    );
    for kubelet in [&old, &new] {
        world.says(kubelet.name(), "LabelsValid", Unknown, reason, words).await;
        world.says(kubelet.name(), "Verified", True, "Proven", "").await;
        world.tells(kubelet.name(), reason, words).await;
    }
    controller.counts("undefined", 2).await;
    controller.counts_refusal(reason, false).await;
    controller
        .logs("a file in the state store is unusable … instancegroup/nodes: spec.role")
        .await;
    has_problems(&controller, 1.0).await;
    has_team(&world, old.name(), "red").await;
    assert_eq!(world.patches(old.name()).await, 1);
    assert_eq!(world.recorded(old.name()).await.len(), 3);
    assert_eq!(world.labels(new.name()).await, Labels::new());
    assert!(world.is_tainted(new.name()).await);

    world.store.put(GROUP, &group("green").to_yaml());
    for kubelet in [&old, &new] {
        has_team(&world, kubelet.name(), "green").await;
        world.says(kubelet.name(), "LabelsValid", True, "AllValid", "").await;
    }
    assert!(!world.is_tainted(new.name()).await);
    controller.counts("verified", 2).await;
    has_problems(&controller, 0.0).await;
}

#[tokio::test]
async fn an_s3_that_denies_or_lies_is_told_apart() {
    let mut world = World::start().await;
    world.store.put(GROUP, &group("red").to_yaml());
    let s3 = S3::start(world.store.is_served_as("s3://state/test.example.com")).await;
    s3.answer(Answer::denied());
    let controller = world.controller_that_is_not_ready(&[("TIDEWAITER_STATE_ENDPOINT", s3.endpoint())]);
    let first = world.join(1, "nodes").await;
    let words = "cluster-completed.spec: the state store denies access (AccessDenied: Access Denied";
    world
        .says(first.name(), "LabelsValid", Unknown, "DefinitionDenied", words)
        .await;
    world.tells(first.name(), "DefinitionDenied", words).await;
    controller.counts_refusal("DefinitionDenied", false).await;
    controller
        .is_ready(false, &format!("[-]state-store failed: {words}"))
        .await;
    has_problems(&controller, 2.0).await;
    assert_eq!(world.labels(first.name()).await, Labels::new());

    s3.answer(Answer::Files);
    has_team(&world, first.name(), "red").await;
    controller.is_ready(true, "[+]state-store ok").await;
    has_problems(&controller, 0.0).await;

    for (number, (answer, words)) in (2..).zip([
        (Answer::denied(), "the state store denies access (AccessDenied"),
        (Answer::Text(200, HTML), "is HTML or XML, not YAML"),
        (
            Answer::unavailable(),
            "the state store does not return the file (SlowDown",
        ),
        (Answer::missing(), "is missing from the state store (NoSuchKey"),
        (Answer::BreakOff, "the state store does not return the file"),
    ]) {
        s3.answer(answer);
        for file in [GROUP, CLUSTER_FILE] {
            controller
                .logs(&format!("its last valid version is used … {file}: {words}"))
                .await;
        }
        has_problems(&controller, 2.0).await;
        let new = world.join(number, "nodes").await;
        for name in [first.name(), new.name()] {
            has_team(&world, name, "red").await;
        }
        controller.is_ready(true, "[+]state-store ok").await;
        s3.answer(Answer::Files);
        has_problems(&controller, 0.0).await;
    }
    assert_eq!(world.patches(first.name()).await, 1);

    // A changed file is read, and an unchanged one is not sent again.
    world.store.put(GROUP, &group("green").to_yaml());
    has_team(&world, first.name(), "green").await;
    let series = "tidewaiter_state_store_reads_total{outcome=\"not_modified\"}";
    controller.has_metric(series, |reads| reads >= 2.0).await;
    eventually("unchanged files not to be sent again", SOON, async || {
        let (sent, unchanged) = s3.take_counts();
        if sent == 0 && unchanged >= 2 {
            Ok(())
        } else {
            Err(format!("{sent} files sent, {unchanged} unchanged"))
        }
    })
    .await;
}
