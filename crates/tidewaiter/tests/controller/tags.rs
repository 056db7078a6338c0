//! Labels from the tags of an instance, as newer kOps takes them: in place of the state store, or where it has nothing.

use std::process::Command;

use serde_json::json;
use tidewaiter_api::ConditionStatus::{True, Unknown};
use tidewaiter_api::LabelSource;
use tidewaiter_testkit::builders::controller_config;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{Kubelet, Scratch, eventually};

use crate::state_store::s3::{Answer, S3};
use crate::world::{CLUSTER, SOON, World};

const TAGS: (&str, &str) = ("TIDEWAITER_LABEL_SOURCE", "tags");
const STORE_THEN_TAGS: (&str, &str) = ("TIDEWAITER_LABEL_SOURCE", "store-then-tags");
/// Tags are seen when the instance is asked about again.
const OFTEN: (&str, &str) = ("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "1");

fn tag(key: &str) -> String {
    format!("k8s.io/cluster-autoscaler/node-template/label/{key}")
}

/// An instance of the group with the tags that kOps gives it.
fn tagged(number: u32) -> FakeInstance {
    FakeInstance::numbered(number)
        .kops(CLUSTER, "nodes")
        .tag(&tag("kops.k8s.io/instancegroup"), "nodes")
        .tag(&tag("node-role.kubernetes.io/node"), "")
        .tag(&tag("team"), "red")
}

async fn join(world: &World, instance: FakeInstance) -> Kubelet {
    world.ec2.launch([instance.clone()]);
    Kubelet::register(&world.cluster, &World::node_of(&instance).build()).await
}

const GROUP: (&str, &str) = ("kops.k8s.io/instancegroup", "nodes");
const ROLE: (&str, &str) = ("node-role.kubernetes.io/node", "");

#[tokio::test]
async fn with_tags_the_state_store_is_not_read() {
    let world = World::start().await;
    world.group("nodes", &[("team", "of-the-store")]);
    let controller = world
        .controller_with(&[TAGS, OFTEN, ("TIDEWAITER_ON_FORGERY", "quarantine")])
        .await;
    let instance = tagged(1).lifecycle("spot").tag(&tag("bad"), "not a value");
    let kubelet = join(&world, instance.clone()).await;
    let name = kubelet.name();
    let spot = ("node-role.kubernetes.io/spot-worker", "true");
    world.has_labels(name, &[GROUP, ROLE, spot, ("team", "red")]).await;
    world
        .tells(name, "LabelRejected", "tag for \"bad\": label \"bad\" was not set")
        .await;
    let record = world.is_verified(name, True, "Proven").await;
    let labels = record.status.unwrap_or_default().labels;
    let source = |key: &str| labels.iter().find(|label| label.key.as_str() == key).unwrap();
    assert_eq!(source("team").source, LabelSource::InstanceTag);
    assert_eq!(source("team").file, "");

    // A tag that goes takes its label along, and one that is nobody's is left alone.
    world
        .patch(name, json!({"metadata": {"labels": {"mine": "yes"}}}))
        .await;
    world
        .ec2
        .change(instance.id(), |instance| instance.without_tag(&tag("team")));
    world.has_labels(name, &[GROUP, ("mine", "yes"), ROLE, spot]).await;

    // Nobody has tagged this one yet: what it has, it keeps. Anyone who lies about another learns nothing of the store
    // either.
    let untagged = FakeInstance::numbered(2).kops(CLUSTER, "nodes");
    let kubelet = join(&world, untagged).await;
    world
        .patch(
            kubelet.name(),
            json!({"metadata": {"labels": {"node-role.kubernetes.io/node": ""}}}),
        )
        .await;
    let words = "has no tag k8s.io/cluster-autoscaler/node-template/label/KEY";
    world
        .says(kubelet.name(), "LabelsValid", Unknown, "TagsMissing", words)
        .await;
    let liar = World::node_of(&tagged(1)).build();
    let mut liar = liar.clone();
    liar.metadata.name = Some("liar".to_owned());
    Kubelet::register(&world.cluster, &liar).await;
    controller.counts("forged", 1).await;
    assert_eq!(
        world.labels(kubelet.name()).await,
        [(ROLE.0.to_owned(), String::new())].into()
    );
    let metrics = controller.metrics().await;
    let reads: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("tidewaiter_state_store_reads_total{") && !line.ends_with(" 0"))
        .collect();
    assert_eq!(reads, Vec::<&str>::new());
}

#[tokio::test]
async fn tags_stand_in_for_a_definition_that_never_was_there() {
    let world = World::start().await;
    let controller = world.controller_with(&[STORE_THEN_TAGS, OFTEN]).await;
    let kubelet = join(&world, tagged(1)).await;
    let name = kubelet.name();
    world.has_labels(name, &[GROUP, ROLE, ("team", "red")]).await;

    world.group("nodes", &[("tier", "night")]);
    world.has_labels(name, &[GROUP, ROLE, ("tier", "night")]).await;

    // From now on the store has spoken: that its file is gone, even for a controller that never saw it, changes
    // nothing.
    controller.stops().await;
    world.store.delete("instancegroup/nodes");
    let _controller = world.controller_with(&[STORE_THEN_TAGS, OFTEN]).await;
    world
        .says(name, "LabelsValid", Unknown, "DefinitionMissing", "instancegroup/nodes")
        .await;
    world.has_labels(name, &[GROUP, ROLE, ("tier", "night")]).await;
}

#[tokio::test]
async fn a_store_that_denies_access_fails_readiness_until_tags_serve_every_node() {
    let mut world = World::start().await;
    let s3 = S3::start(world.store.is_served_as("s3://state/test.example.com")).await;
    s3.answer(Answer::denied());
    let controller = world.controller_that_is_not_ready(&[("TIDEWAITER_STATE_ENDPOINT", s3.endpoint())]);
    let denied = "[-]state-store failed: cluster-completed.spec: the state store denies access";
    controller.is_ready(false, denied).await;
    let served = join(&world, tagged(1)).await;
    world.has_labels(served.name(), &[GROUP, ROLE, ("team", "red")]).await;
    controller.is_ready(true, "[+]state-store ok").await;
    join(&world, FakeInstance::numbered(2).kops(CLUSTER, "nodes")).await;
    controller.is_ready(false, denied).await;
}

/// Returns the source of the label `team` of a Node in its record.
async fn source_of_team(world: &World, name: &str) -> Option<LabelSource> {
    let status = world.records().get(name).await.unwrap().status.unwrap_or_default();
    let team = status.labels.into_iter().find(|label| label.key.as_str() == "team");
    team.map(|label| label.source)
}

async fn has_team(world: &World, name: &str, team: &str) {
    world.has_labels(name, &[GROUP, ROLE, ("team", team)]).await;
}

#[tokio::test]
async fn where_kops_takes_labels_from_tags_they_are_taken_from_there_unless_a_node_would_lose_some() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    world.group("batch", &[("tier", "night")]);
    let untagged = |number| FakeInstance::numbered(number).kops(CLUSTER, "nodes");
    let fewer = untagged(3).tag(&tag(ROLE.0), "").tag(&tag(GROUP.0), "nodes");
    let controller = world.controller_with(&[OFTEN]).await;
    controller
        .logs("labels come from the state store … there is no kops-version.txt")
        .await;
    let mut kubelets = Vec::new();
    let older = tagged(7).tag(&tag("team"), "grey");
    for instance in [tagged(1), untagged(2), fewer, older] {
        kubelets.push(join(&world, instance).await);
    }
    let [covered, bare, partial, older] = [0, 1, 2, 3].map(|number| kubelets[number].name().to_owned());
    for name in [&covered, &bare, &partial, &older] {
        has_team(&world, name, "red").await;
        assert_eq!(source_of_team(&world, name).await, Some(LabelSource::GroupNodeLabels));
    }
    controller.stops().await;

    // kOps is upgraded. A Node whose tags equal its labels gets its labels from them from now on.
    world.store.put("kops-version.txt", "1.36.0\n");
    let controller = world.controller_with(&[OFTEN]).await;
    controller
        .logs("labels come from the tags of instances, else the state store … kOps is 1.36.0")
        .await;
    let source = async || match source_of_team(&world, &covered).await {
        Some(LabelSource::InstanceTag) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    eventually("the record to name the tags", SOON, source).await;
    world.group("nodes", &[("team", "blue")]);
    for name in [&bare, &partial, &older] {
        has_team(&world, name, "blue").await;
    }
    let (new, new_bare) = (join(&world, tagged(4)).await, join(&world, untagged(5)).await);
    // People tag for cluster-autoscaler, too.
    let own_tags = join(&world, untagged(8).tag(&tag("team"), "own")).await;
    has_team(&world, own_tags.name(), "blue").await;
    has_team(&world, new.name(), "red").await;
    has_team(&world, new_bare.name(), "blue").await;
    has_team(&world, &covered, "red").await;
    // The state store still says whose a label is, and which groups there should be.
    controller.has_gauge("kops_node_ready", Some(0.0)).await;
    world
        .patch(new.name(), json!({"metadata": {"labels": {"tier": "night"}}}))
        .await;
    world.tells(new.name(), "ForeignLabel", "tier").await;
    controller.stops().await;

    // While nobody knows the version, no Node changes sides.
    world.store.put("kops-version.txt", "<html>");
    let controller = world.controller_with(&[OFTEN]).await;
    controller
        .logs("labels come from the source in the record … must be a version of kOps")
        .await;
    world.group("nodes", &[("team", "green")]);
    let newest = join(&world, tagged(6)).await;
    for name in [newest.name(), &bare, &partial, &older, new_bare.name()] {
        has_team(&world, name, "green").await;
    }
    has_team(&world, &covered, "red").await;
    assert_eq!(world.labels(new.name()).await["team"], "red");
    for name in [&covered, &bare, &partial, &older] {
        let removed = world
            .events(name)
            .await
            .into_iter()
            .find(|(reason, _)| reason == "LabelsRemoved");
        assert_eq!(removed, None, "{name}");
    }
}

#[test]
fn what_cannot_be_kept_is_refused_at_the_start() {
    let scratch = Scratch::new("label-source");
    let aws = controller_config(CLUSTER, "file:///nowhere");
    let gce = aws.clone().set(&["cloud"], "gce").without(&["server", "provider"]);
    let start = |config: &str, environment: &[(&str, &str)]| {
        let file = scratch.path().join("config.yaml");
        #[expect(clippy::disallowed_methods, reason = "nobody reads it yet")]
        std::fs::write(&file, config).unwrap();
        Command::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .env_clear()
            .envs(environment.iter().copied())
            .args(["controller", "--print-config", "--conf"])
            .arg(&file)
            .output()
            .unwrap()
    };
    let remove = ("TIDEWAITER_FOREIGN_LABELS", "remove");
    for (config, environment, words) in [
        (
            gce.to_json(),
            &[TAGS][..],
            "the variable TIDEWAITER_LABEL_SOURCE: labelSource is tags, and cloud is gce: only instances on aws",
        ),
        (
            gce.to_json(),
            &[STORE_THEN_TAGS],
            "labelSource is store-then-tags, and cloud is gce",
        ),
        (
            aws.to_json(),
            &[TAGS, remove],
            "foreignLabels is remove (from the variable TIDEWAITER_FOREIGN_LABELS), and labelSource is tags (from the variable \
             TIDEWAITER_LABEL_SOURCE): only",
        ),
        (
            aws.to_json(),
            &[("TIDEWAITER_LABEL_SOURCE", "both")],
            "labelSource is \"both\"",
        ),
    ] {
        let output = start(&config, environment);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1 && said.contains(words), "{words}: {said}");
    }
    for (config, environment, effective) in [
        (
            aws.to_json(),
            &[STORE_THEN_TAGS, remove][..],
            "labelSource: store-then-tags\n",
        ),
        (aws.to_json(), &[remove], "labelSource: auto\n"),
        (gce.to_json(), &[], "labelSource: auto\n"),
    ] {
        let output = start(&config, environment);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains(effective), "{said}");
    }
}
