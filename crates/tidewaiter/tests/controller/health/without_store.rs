//! The health of a cluster whose state store is not read (`labelSource: tags`), beside the one with the store.

use std::collections::BTreeSet;

use tidewaiter_testkit::builders::instance_group;
use tidewaiter_testkit::fake_ec2::{FakeGroup, FakeInstance, group};
use tidewaiter_testkit::{Kubelet, eventually};

use super::{pod, reports, run};
use crate::world::{CLUSTER, Controller, SOON, World, shown};

const TAGS: (&str, &str) = ("TIDEWAITER_LABEL_SOURCE", "tags");

/// The Auto Scaling group as kOps makes it for a group of this role.
fn made(name: &str, role: &str, target: i32) -> FakeGroup {
    let group = group(&format!("{name}.{CLUSTER}")).kops(CLUSTER, name);
    group
        .tag(&format!("k8s.io/role/{role}"), "1")
        .configuration("current")
        .sizes(0, target, 9)
}

/// Returns the gauges of a MetricsServer, without those that differ between two of one cluster: the time of the last
/// look.
async fn gauges(controller: &Controller) -> Result<BTreeSet<String>, String> {
    let page = controller.try_scrape().await.map_err(shown)?;
    let lines = page
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_age_seconds"));
    Ok(lines.map(str::to_owned).collect())
}

/// Waits until the one with the store says all of `expected`, and the other the same.
async fn agree(with: &Controller, without: &Controller, expected: &[&str]) {
    eventually(format!("both to say {expected:?}"), SOON, async || {
        let (with, without) = (gauges(with).await?, gauges(without).await?);
        let all = |line: &&str| with.contains(&line.replace("C}", &format!("cluster_name=\"{CLUSTER}\"}}")));
        let missing: Vec<_> = expected.iter().filter(|line| !all(line)).collect();
        if missing.is_empty() && with == without {
            return Ok(());
        }
        let [more, less] = [with.difference(&without), without.difference(&with)].map(Vec::from_iter);
        Err(format!(
            "missing {missing:?}; only with the store {more:?}; only without {less:?}"
        ))
    })
    .await;
}

fn of_group(gauge: &str, group: &str, value: u32) -> String {
    format!("tidewaiter_instance_group_{gauge}{{cluster_name=\"{CLUSTER}\",instance_group=\"{group}\"}} {value}")
}

/// A cluster with groups of every kind, and what its two controllers are asked about.
struct Fleet {
    world: World,
    workers: Vec<FakeInstance>,
}

impl Fleet {
    async fn start() -> Self {
        let world = World::start().await;
        for (name, role) in [
            ("cp", "Master"),
            ("api", "APIServer"),
            ("nodes", "Node"),
            ("jump", "Bastion"),
            ("etcd", "Etcd"),
        ] {
            world.group_as(name, role, &[]);
        }
        let karpenters = instance_group("karpenter", CLUSTER, "Node").set(&["spec", "manager"], "Karpenter");
        world.store.put("instancegroup/karpenter", &karpenters.to_yaml());
        let workers = (1..=4).map(|number| world.launch(number, "nodes")).collect();
        let fleet = Self { world, workers };
        fleet.group("cp", "control-plane", 1, &[fleet.world.launch(11, "cp")]);
        fleet.group("api", "apiserver", 1, &[fleet.world.launch(12, "api")]);
        fleet.group("jump", "bastion", 1, &[fleet.world.launch(13, "jump")]);
        fleet.group("etcd", "etcd", 1, &[fleet.world.launch(14, "etcd")]);
        let karpenters = FakeInstance::numbered(15).kops(CLUSTER, "karpenter");
        fleet
            .world
            .ec2
            .launch([karpenters.tag("karpenter.sh/nodepool", "karpenter")]);
        fleet
    }

    fn group(&self, name: &str, role: &str, target: i32, instances: &[FakeInstance]) {
        let members = instances
            .iter()
            .map(|instance| instance.member().configuration("current"));
        self.world.ec2.groups([made(name, role, target).with(members)]);
    }

    /// Of four workers one is outdated, one is detached, one has no Node, and there should be five; one more is warm.
    fn workers_are_in_a_bad_way(&self) {
        let [one, two, three, four] = &self.workers[..] else {
            panic!("not four workers")
        };
        let members = [
            one.member().configuration("current"),
            two.member().configuration("before"),
            three.member().configuration("current"),
        ];
        let warm = FakeInstance::numbered(5).kops(CLUSTER, "nodes").state("stopped");
        let pool = warm.member().configuration("current").state("Warmed:Stopped");
        let detached = ("kops.k8s.io/detached-from-asg", format!("nodes.{CLUSTER}"));
        self.world.ec2.launch([warm, four.clone().tag(detached.0, &detached.1)]);
        self.world
            .ec2
            .groups([made("nodes", "node", 5).with(members).warm_pool([pool])]);
    }

    /// Three of three, and none in a pool. The detached one is gone.
    fn workers_are_well(&self) {
        let [three @ .., detached] = &self.workers[..] else {
            panic!("no workers")
        };
        self.world
            .ec2
            .change(detached.id(), |instance| instance.state("terminated"));
        self.group("nodes", "node", 3, three);
    }
}

#[tokio::test]
async fn health_without_the_state_store_is_that_with_it() {
    let fleet = Fleet::start().await;
    let world = &fleet.world;
    fleet.workers_are_in_a_bad_way();
    let with = world.controller().await;
    // It labels the Nodes, and writes their records.
    with.leads().await;
    let without = world.controller_with(&[TAGS]).await;
    let mut kubelets = Vec::new();
    for number in [1, 2, 4, 11, 12, 14, 15] {
        let instance = FakeInstance::numbered(number);
        let node = World::node_of(&instance).build();
        kubelets.push(Kubelet::register(&world.cluster, &node).await);
    }
    let control_plane = kubelets[3].name();
    for app in ["kube-apiserver", "kube-controller-manager"] {
        run(world, &pod(app, control_plane), true).await;
    }
    reports(&kubelets[1], "False").await;
    let bad = [
        of_group("current_instances", "nodes", 4),
        of_group("target_instances", "nodes", 5),
        of_group("max_instances", "nodes", 9),
        of_group("outdated_instances", "nodes", 1),
        of_group("ready_nodes", "nodes", 1),
        of_group("current_instances", "karpenter", 1),
        of_group("target_instances", "karpenter", 0),
        of_group("ready_nodes", "karpenter", 1),
        of_group("ready_nodes", "etcd", 1),
        "kops_node_notReady{C} 1".to_owned(),
        "kops_node_ready{C} 5".to_owned(),
        "kops_pod_missing{C} 1".to_owned(),
    ];
    agree(&with, &without, &bad.each_ref().map(String::as_str)).await;

    reports(&kubelets[1], "True").await;
    run(world, &pod("kube-scheduler", control_plane), true).await;
    let third = World::node_of(&fleet.workers[2]).build();
    Kubelet::register(&world.cluster, &third).await;
    fleet.workers_are_well();
    let ready = format!("tidewaiter_cluster_verdict{{cluster_name=\"{CLUSTER}\",verdict=\"ready\"}} 1");
    agree(&with, &without, &[&ready, "kops_node_ready{C} 6"]).await;

    // A group that does not say its role: the numbers that need it are absent, and the verdict is no wrong one.
    let silent = made("nodes", "node", 3).without_tag("k8s.io/role/node");
    let members = fleet.workers[..3]
        .iter()
        .map(|worker| worker.member().configuration("current"));
    world.ec2.groups([silent.with(members)]);
    let unknown = format!("tidewaiter_cluster_verdict{{cluster_name=\"{CLUSTER}\",verdict=\"unknown\"}} 1");
    eventually("the verdict without the store to be unknown", SOON, async || {
        let (with, without) = (gauges(&with).await?, gauges(&without).await?);
        let absent = |line: &&String| line.starts_with("tidewaiter_instance_group_") || line.starts_with("kops_node_");
        if without.contains(&unknown) && !without.iter().any(|line| absent(&line)) && with.contains(&ready) {
            Ok(())
        } else {
            Err(format!("{without:?}"))
        }
    })
    .await;
    without.stops().await;
    with.stops().await;
}
