//! A forged Node that was labelled before Tidewaiter came loses what only a proven Node may have: unless many would, or
//! it was verified before; and it has it back when it is proven.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::json;
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::Scripted;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{Kubelet, Moment, eventually};

use crate::crashes::is_write_about;
use crate::world::{Controller, Labels, SOON, World};

const OF_WORKER: [(&str, &str); 3] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];
/// The labels that somebody has given the forged ones.
const ROBBED: [(&str, &str); 6] = [
    ("everybody", "yes"),
    ("kops.k8s.io/instancegroup", "masters"),
    ("mine", "yes"),
    ("node-role.kubernetes.io/control-plane", ""),
    ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
    ("vault", "open"),
];
/// The labels of these that nobody defines, and those that only keep traffic away.
const LEFT: [(&str, &str); 2] = [
    ("mine", "yes"),
    ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
];
const QUARANTINE: [(&str, &str); 1] = [("TIDEWAITER_ON_FORGERY", "quarantine")];

/// A cluster of `honest` Nodes and no controller.
async fn start(honest: u32) -> World {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    world.group_as("masters", "Master", &[("vault", "open")]);
    let cluster = tidewaiter_testkit::builders::cluster(crate::world::CLUSTER, &world.store.url());
    world.store.put(
        "cluster-completed.spec",
        &cluster.kubelet_label("everybody", "yes").to_yaml(),
    );
    for number in 1..=honest {
        world.join(number, "nodes").await;
    }
    world
}

/// Registers the Node of the `number`th instance with another's address, labelled and tainted by somebody before.
async fn forge(world: &World, number: u32) -> (Kubelet, FakeInstance) {
    let instance = world.launch(number, "nodes");
    let lies = tidewaiter_testkit::builders::node(instance.node_name())
        .provider_id(&instance.provider_id())
        .internal_ip(&format!("10.9.9.{number}"))
        .taint("dedicated", "NoExecute");
    let kubelet = Kubelet::register(&world.cluster, &lies.build()).await;
    let labels: Labels = ROBBED
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    world
        .patch(kubelet.name(), json!({"metadata": {"labels": labels}}))
        .await;
    (kubelet, instance)
}

/// Waits until these keys are its taints.
async fn has_taints(world: &World, name: &str, expected: &[&str]) {
    eventually(format!("{name} to have the taints {expected:?}"), SOON, async || {
        let node = world.nodes().get(name).await.map_err(|error| error.to_string())?;
        let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
        // The scheduler's own, which the control plane of a test may set.
        let own = taints
            .iter()
            .filter(|taint| !taint.key.starts_with("node.kubernetes.io/"));
        let found: Vec<String> = own.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

const DEDICATED: &str = "dedicated:NoExecute";
const UNIDENTIFIED: &str = "tidewaiter.dev/unidentified:NoSchedule";

async fn is_quarantined(world: &World, name: &str, left: &[(&str, &str)]) {
    world.has_labels(name, left).await;
    has_taints(world, name, &[DEDICATED, UNIDENTIFIED]).await;
    world.says(name, "Quarantined", True, "Forged", "AddressMismatch").await;
}

async fn is_untouched(world: &World, name: &str) {
    world.has_labels(name, &ROBBED).await;
    has_taints(world, name, &[DEDICATED]).await;
    assert_eq!(world.patches(name).await, 0);
}

/// Waits until so many forged Nodes are treated so.
async fn counts(controller: &Controller, decision: &str, nodes: f64) {
    let series = format!("tidewaiter_forged_nodes{{decision=\"{decision}\"}}");
    controller.has_metric(&series, |found| found == nodes).await;
}

#[tokio::test]
async fn one_forged_node_of_ten_is_quarantined_and_two_are_not() {
    let world = start(8).await;
    let (first, instance) = forge(&world, 11).await;
    let (second, _) = forge(&world, 12).await;
    let controller = world.controller_with(&QUARANTINE).await;
    for kubelet in [&first, &second] {
        let name = kubelet.name();
        let words = "More than a tenth of the Nodes are refused for forgery … none of them is quarantined";
        world.tells(name, "QuarantineHeld", words).await;
        world.says(name, "Quarantined", False, "TooManyForged", "").await;
        world.is_verified(name, False, "AddressMismatch").await;
    }
    counts(&controller, "held", 2.0).await;
    controller
        .has_metric("tidewaiter_quarantine_held", |held| held == 2.0)
        .await;
    controller.logs("too many Nodes are refused for forgery").await;
    world.quiet(Duration::from_secs(2)).await;
    for kubelet in [&first, &second] {
        is_untouched(&world, kubelet.name()).await;
    }

    // One of them goes: the other one is looked at again, and is one of nine.
    world
        .nodes()
        .delete(second.name(), &DeleteParams::default())
        .await
        .unwrap();
    let name = first.name();
    is_quarantined(&world, name, &LEFT).await;
    assert_eq!(world.patches(name).await, 1, "in one patch");
    let words = "removed everybody, kops.k8s.io/instancegroup, node-role.kubernetes.io/control-plane, vault";
    world.tells(name, "Quarantined", words).await;
    counts(&controller, "quarantined", 1.0).await;
    controller
        .has_metric("tidewaiter_quarantine_held", |held| held == 0.0)
        .await;
    world.quiet(Duration::from_secs(2)).await;

    // A label that comes back is removed again, no matter who sets it; a label of no group stays.
    let back = json!({"metadata": {"labels": {"vault": "open", "team": "red", "new": "yes"}}});
    first.patch(back).await.unwrap();
    let left = [LEFT[0], ("new", "yes"), LEFT[1]];
    is_quarantined(&world, name, &left).await;
    world
        .patch(
            name,
            json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoExecute"}]}}),
        )
        .await;
    is_quarantined(&world, name, &left).await;

    // So does a new process, which finds nothing to do, and never while the brake holds.
    controller.stops().await;
    let mark = world.cluster.audit_mark().await;
    let controller = world.controller_with(&QUARANTINE).await;
    counts(&controller, "quarantined", 1.0).await;
    controller.counts("verified", 8).await;
    assert_eq!(world.writes_since(mark).await, [""; 0]);

    // The proof undoes it.
    let honest = json!({"status": {"addresses": [{"type": "InternalIP", "address": instance.address()}]}});
    first.patch_status(honest).await.unwrap();
    world
        .has_labels(name, &[&OF_WORKER[..], &[("everybody", "yes")], &left[..]].concat())
        .await;
    has_taints(&world, name, &[DEDICATED]).await;
    world.says(name, "Quarantined", False, "Proven", "").await;
    counts(&controller, "quarantined", 0.0).await;
    controller.counts("verified", 9).await;

    // And from then on it is never touched, whatever it says.
    let lies = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}});
    first.patch_status(lies).await.unwrap();
    world.says(name, "Quarantined", False, "VerifiedBefore", "").await;
    counts(&controller, "spared", 1.0).await;
    world.quiet(Duration::from_secs(2)).await;
    world
        .has_labels(name, &[&OF_WORKER[..], &[("everybody", "yes")], &left[..]].concat())
        .await;
    has_taints(&world, name, &[DEDICATED]).await;
    controller.stops().await;
}

#[tokio::test]
async fn nobody_is_quarantined_before_all_are_judged() {
    let world = start(2).await;
    let silent = world.launch(3, "nodes");
    Kubelet::register(&world.cluster, &World::node_of(&silent).build()).await;
    world.ec2.fail(silent.id(), Scripted::Failed);
    let (forged, _) = forge(&world, 11).await;
    let name = forged.name();
    let controller = world.controller_with(&QUARANTINE).await;
    controller.counts("verified", 2).await;
    controller.counts("unanswered", 1).await;
    counts(&controller, "waiting", 1.0).await;
    controller
        .has_metric("tidewaiter_quarantine_unjudged", |nodes| nodes == 1.0)
        .await;
    // Not even when it is asked about again and again.
    forged
        .patch(json!({"metadata": {"labels": {"seen": "yes"}}}))
        .await
        .unwrap();
    controller
        .has_metric(
            "tidewaiter_refusals_total{forged=\"true\",reason=\"AddressMismatch\"}",
            |count| count >= 3.0,
        )
        .await;
    world
        .has_labels(name, &[&ROBBED[..5], &[("seen", "yes")], &ROBBED[5..]].concat())
        .await;
    assert_eq!(world.patches(name).await, 0);

    world.ec2.heal();
    is_quarantined(&world, name, &[LEFT[0], LEFT[1], ("seen", "yes")]).await;
    controller.counts("verified", 3).await;
    controller
        .has_metric("tidewaiter_quarantine_unjudged", |nodes| nodes == 0.0)
        .await;
    controller.stops().await;

    // With the policy to report, every label stays, in quarantine too.
    let controller = world.controller().await;
    forged
        .patch(json!({"metadata": {"labels": {"vault": "open"}}}))
        .await
        .unwrap();
    world
        .has_labels(name, &[LEFT[0], LEFT[1], ("seen", "yes"), ("vault", "open")])
        .await;
    counts(&controller, "reported", 1.0).await;
    world.quiet(Duration::from_secs(2)).await;
    world.says(name, "Quarantined", True, "Forged", "").await;
    has_taints(&world, name, &[DEDICATED, UNIDENTIFIED]).await;
}

#[tokio::test]
async fn killed_at_any_write_it_ends_in_quarantine() {
    let world = start(2).await;
    let controller = world.controller_with(&QUARANTINE).await;
    controller.leads().await;
    // The labels of the others are written before the first is killed, so that all writes from then on are about the
    // forged.
    let labels = [&OF_WORKER[..], &[("everybody", "yes")]].concat();
    for number in 1..=2 {
        let honest = FakeInstance::numbered(number);
        world.has_labels(honest.node_name(), &labels).await;
    }
    // The record, the Node.
    let crashes = [1, 2]
        .into_iter()
        .flat_map(|nth| [(nth, Moment::Before), (nth, Moment::After)]);
    for (number, (nth, moment)) in (11..).zip(crashes) {
        let Controller { process, proxy, .. } = &controller;
        process.kill();
        let (forged, _) = forge(&world, number).await;
        let name = forged.name().to_owned();
        let about = name.clone();
        proxy.kill_at(process, nth, moment, move |request| is_write_about(request, &about));
        world.expire_lease().await;
        process.start_again();
        eventually(format!("{name} to kill it"), SOON, async || {
            if process.is_running() { Err("it runs") } else { Ok(()) }
        })
        .await;
        proxy.clear_hook();
        world.expire_lease().await;
        process.start_again();
        controller.ready().await;
        is_quarantined(&world, &name, &LEFT).await;
        world.quiet(Duration::from_secs(1)).await;
        controller.has_not_panicked();
        // Two at once would be too many.
        world.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
    }
    controller.stops().await;
}

#[tokio::test]
async fn one_in_quarantine_leaves_no_room_for_another_when_its_instance_goes() {
    let world = start(8).await;
    let (first, instance) = forge(&world, 11).await;
    let often = [QUARANTINE[0], ("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "1")];
    let controller = world.controller_with(&often).await;
    is_quarantined(&world, first.name(), &LEFT).await;
    world.ec2.forget(instance.id());
    // It is looked at again.
    world
        .patch(first.name(), json!({"metadata": {"labels": {"mine": "still"}}}))
        .await;
    world.is_verified(first.name(), False, "NotFound").await;
    world.says(first.name(), "Quarantined", True, "Forged", "").await;

    let (second, _) = forge(&world, 12).await;
    world
        .says(second.name(), "Quarantined", False, "TooManyForged", "")
        .await;
    is_untouched(&world, second.name()).await;
    controller.stops().await;
}
