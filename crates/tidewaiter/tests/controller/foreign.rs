//! A label on a proven Node that only another group defines came from somewhere else: it is reported, or removed; and a
//! key that nobody defines is nobody's business.

use std::time::Duration;

use serde_json::json;
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::Kubelet;

use crate::world::{Controller, World};

const OWN: [(&str, &str); 3] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];
const TYPE: &str = "ForeignLabels";
const COUNT: &str = "tidewaiter_foreign_labels";

async fn has(world: &World, name: &str, others: &[(&str, &str)]) {
    world.has_labels(name, &[&OWN[..], others].concat()).await;
}

/// Waits until this is told of the Node's labels: none, or these words.
async fn is_told(world: &World, controller: &Controller, name: &str, words: Option<&str>) {
    match words {
        None => world.says(name, TYPE, False, "NoneFound", "").await,
        Some(words) => {
            world.says(name, TYPE, True, "DefinedByOtherGroups", words).await;
            world
                .tells(name, "ForeignLabel", &format!("{words} … this Node is of group nodes"))
                .await;
        }
    }
    let count = if words.is_some() { 1.0 } else { 0.0 };
    controller.has_metric(COUNT, |found| found == count).await;
}

/// A cluster with a Node of `nodes` and one of `batch`.
async fn start() -> (World, Kubelet, Kubelet) {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    world.group("batch", &[("tier", "night")]);
    let kubelet = world.join(1, "nodes").await;
    let of_batch = world.join(2, "batch").await;
    (world, kubelet, of_batch)
}

#[tokio::test]
async fn a_label_of_another_group_is_reported_while_it_is_one() {
    let (world, kubelet, _) = start().await;
    let name = kubelet.name();
    let controller = world.controller().await;
    has(&world, name, &[]).await;
    is_told(&world, &controller, name, None).await;

    kubelet
        .patch(json!({"metadata": {"labels": {"tier": "day", "mine": "yes", "lonely": "x"}}}))
        .await
        .unwrap();
    let words = |key: &str, group: &str| format!("label \"{key}\" is defined by {group}");
    is_told(&world, &controller, name, Some(&words("tier", "batch"))).await;
    has(&world, name, &[("lonely", "x"), ("mine", "yes"), ("tier", "day")]).await;
    assert_eq!(world.patches(name).await, 1, "only its own labels were written");
    world.quiet(Duration::from_secs(3)).await;

    // The other group's definition loses the key, and another one gains one. Nobody of that group ever joined.
    world.group("batch", &[]);
    is_told(&world, &controller, name, None).await;
    world.group("lone", &[("lonely", "y")]);
    is_told(&world, &controller, name, Some(&words("lonely", "lone"))).await;
    // A group whose file never was readable hides nothing of what is known, and a group that is deleted owns nothing.
    world.store.put("instancegroup/broken", "spec: [");
    controller
        .has_metric("tidewaiter_owned_keys_incomplete", |found| found == 1.0)
        .await;
    world.group("batch", &[("tier", "night")]);
    is_told_of_both(&world, name).await;
    world.store.delete("instancegroup/broken");
    world.store.delete("instancegroup/lone");
    is_told(&world, &controller, name, Some(&words("tier", "batch"))).await;
    // A group that gives the key itself, too, makes it its own.
    world.group("nodes", &[("team", "red"), ("tier", "day")]);
    is_told(&world, &controller, name, None).await;
    // Given up, it is what it was before: the other group's.
    world.group("nodes", &[("team", "red")]);
    is_told(&world, &controller, name, Some(&words("tier", "batch"))).await;
    has(&world, name, &[("lonely", "x"), ("mine", "yes"), ("tier", "day")]).await;
    assert!(!world.recorded(name).await.contains_key("tier"));
    world.quiet(Duration::from_secs(3)).await;
    controller.stops().await;

    // A new process finds everything as it is told, and writes nothing.
    let mark = world.cluster.audit_mark().await;
    let controller = world.controller().await;
    controller.counts("verified", 2).await;
    is_told(&world, &controller, name, Some(&words("tier", "batch"))).await;
    assert_eq!(world.writes_since(mark).await, [""; 0]);
}

async fn is_told_of_both(world: &World, name: &str) {
    let words = "label \"lonely\" is defined by lone; label \"tier\" is defined by batch";
    world.says(name, TYPE, True, "DefinedByOtherGroups", words).await;
}

#[tokio::test]
async fn a_label_of_another_group_is_removed_as_often_as_it_comes() {
    let (world, kubelet, of_batch) = start().await;
    let name = kubelet.name();
    let before = json!({"metadata": {"labels": {"tier": "day", "mine": "yes"}}});
    world.patch(name, before).await;
    world.store.put("instancegroup/broken", "spec: [");
    let controller = world.controller_with(&[("TIDEWAITER_FOREIGN_LABELS", "remove")]).await;
    has(&world, name, &[("mine", "yes")]).await;
    let words = "label \"tier\" is defined by batch … It was removed";
    world.tells(name, "ForeignLabel", words).await;
    assert_eq!(world.patches(name).await, 1, "one patch sets and removes");
    assert_eq!(world.recorded(name).await.len(), OWN.len(), "it never was ours");
    world.store.delete("instancegroup/broken");
    for name in [name, of_batch.name()] {
        is_told(&world, &controller, name, None).await;
    }

    for value in ["again", "and-again"] {
        let again = json!({"metadata": {"labels": {"tier": value, "nobodys": value}}});
        kubelet.patch(again).await.unwrap();
        has(&world, name, &[("mine", "yes"), ("nobodys", value)]).await;
        is_told(&world, &controller, name, None).await;
    }
    // A refused Node is not concerned.
    let forged = world.launch(3, "nodes");
    let lies = World::node_of(&forged).internal_ip("10.9.9.9").label("tier", "day");
    let elsewhere = lies
        .clone()
        .provider_id(&forged.provider_id().replace("us-east-1", "us-west-9"));
    Kubelet::register(&world.cluster, &elsewhere.build()).await;
    world.is_verified(forged.node_name(), False, "ZoneMismatch").await;
    world.quiet(Duration::from_secs(3)).await;
    assert_eq!(world.patches(forged.node_name()).await, 0);
    controller.stops().await;
}
