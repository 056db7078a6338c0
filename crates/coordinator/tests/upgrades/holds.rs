//! The waits of an upgrade: its maintenance window, and the cluster to be healthy.

use jiff::{Span, Timestamp, ToSpan as _};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::ClusterHealth;
use tidewaiter_api::containership::UpgradeStatus;
use tidewaiter_testkit::{Action, ApiProxy, Identity, eventually};

use crate::cluster::{coordinator, deploy};
use crate::world::{NEW, OLD, SOON, Script, World};

/// A window in UTC, as far from now as these.
#[expect(
    clippy::disallowed_methods,
    reason = "windows are relative to the time of the coordinator"
)]
fn window(start: Span, end: Span) -> Value {
    let time = |span: Span| {
        Timestamp::now()
            .checked_add(span)
            .unwrap()
            .strftime("%H:%M")
            .to_string()
    };
    json!({"spec": {"policy": {"maintenanceWindows": [{"start": time(start), "end": time(end)}]}}})
}

#[tokio::test]
async fn nodes_are_started_within_a_window_alone() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2"] {
        world.join(name, OLD, &[]).await;
    }
    let closed = || window(2.hours(), 3.hours());
    let open = || window(-2.hours(), 2.hours());
    world.upgrade("u", closed()["spec"].clone()).await;
    let running = world.run().await;
    world.waits("u", "the next maintenance window opens at 2").await;
    assert_eq!(world.statuses("u").await, "");
    // It keeps no other from its turn: there is nothing to do for this one.
    let nobody = json!([{"label": "node-role.kubernetes.io/control-plane", "operator": "exists"}]);
    world.upgrade("other", json!({ "labelSelector": nobody })).await;
    world.ends("other", UpgradeStatus::Success).await;
    world.change("u", open()).await;
    world.waits("u", "upgrading w1").await;
    // What was started is finished, and nothing else is started, also by another coordinator.
    world.change("u", closed()).await;
    world.is_at("w1", NEW).await;
    world.waits("u", "2 of 3 nodes are at the version").await;
    running.stop().await;
    let _running = world.run().await;
    world.is_quiet().await;
    assert_eq!(world.statuses("u").await, "w1=Success");
    world.change("u", open()).await;
    assert_eq!(world.play("u", |_| Script::Works).await, ["w2"]);
    world.ends("u", UpgradeStatus::Success).await;
    let bad = json!({"policy": {"maintenanceWindows": [{"start": "22:00", "end": "04:00", "timeZone": "Berlin"}]}});
    world.upgrade("bad", bad).await;
    let message = world.ends("bad", UpgradeStatus::Failed).await;
    assert!(
        message.starts_with("spec.policy.maintenanceWindows[0].timeZone is \"Berlin\""),
        "{message}"
    );
}

#[tokio::test]
async fn nodes_are_started_while_the_cluster_is_healthy_alone_if_that_is_required() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2"] {
        world.join(name, OLD, &[]).await;
    }
    world.is_ready("w2", false).await;
    let proxy = ApiProxy::start(&world.cluster, &coordinator());
    let config = kube::Config::new(proxy.url().parse().unwrap());
    let _running = world.run_with(&config).await;
    world.upgrade("u", json!({"policy": {"requireHealthy": true}})).await;
    world
        .waits(
            "u",
            "the cluster must be healthy (spec.policy), and the Node w2 is not Ready",
        )
        .await;
    // The definition of ClusterHealth is of the controller, which need not run here.
    let checks = "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n";
    proxy.on(
        |request| request.path.starts_with("/readyz"),
        move || Action::Reply {
            status: 500,
            body: checks.to_owned(),
        },
    );
    world.is_ready("w2", true).await;
    world.waits("u", "etcd does not answer the API server").await;
    assert_eq!(world.statuses("u").await, "");
    proxy.clear_hook();
    world.waits("u", "upgrading w1").await;

    // In between, the cluster becomes unhealthy: the node that is in progress is finished, and no other is started.
    world.cluster.apply_manifests(deploy("crds/clusterhealths.yaml")).await;
    let healths: Api<ClusterHealth> = Api::all(world.cluster.client(&Identity::Admin));
    let health = |healthy: &str| {
        let condition = json!({"type": "Healthy", "status": healthy, "reason": "R", "message": "a pod is missing",
            "lastTransitionTime": "2026-11-22T06:00:00Z"});
        json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "ClusterHealth", "metadata": {"name": "k.example.com"}, "spec": {},
            "status": {"observedAt": "2026-11-22T06:00:00Z", "failures": 1, "conditions": [condition]}})
    };
    eventually("the ClusterHealth", SOON, async || {
        let object = serde_json::from_value(health("False")).unwrap();
        let created = healths.create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;
    world.is_at("w1", NEW).await;
    world
        .waits("u", "the ClusterHealth k.example.com is not Healthy: a pod is missing")
        .await;
    assert_eq!(world.statuses("u").await, "w1=Success");
    let recovered = Patch::Merge(health("True"));
    healths
        .patch("k.example.com", &PatchParams::default(), &recovered)
        .await
        .unwrap();
    assert_eq!(world.play("u", |_| Script::Works).await, ["w2"]);
    world.ends("u", UpgradeStatus::Success).await;
}

#[tokio::test]
async fn without_a_policy_an_upgrade_begins_and_warns_of_what_is_not_healthy() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2"] {
        world.join(name, OLD, &[]).await;
    }
    world.is_ready("w2", false).await;
    let _running = world.run().await;
    world.upgrade("u", json!({})).await;
    world.waits("u", "upgrading w1").await;
    let note = world.event("u", "PreflightWarning").await;
    assert!(
        note.contains("The cluster is not healthy: the Node w2 is not Ready"),
        "{note}"
    );
}

/// The node in progress is settled, and an abort takes effect.
#[tokio::test]
async fn while_the_health_cannot_be_read_nothing_is_started_and_the_rest_goes_on() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2", "w3"] {
        world.join(name, OLD, &[]).await;
    }
    let proxy = ApiProxy::start(&world.cluster, &coordinator());
    let config = kube::Config::new(proxy.url().parse().unwrap());
    let _running = world.run_with(&config).await;
    let policy = json!({"nodeTimeoutSeconds": 5, "policy": {"requireHealthy": true}});
    world.upgrade("u", policy).await;
    world.waits("u", "upgrading w1").await;
    proxy.on(
        |request| request.path.contains("/clusterhealths"),
        || Action::Reply {
            status: 403,
            body: json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                "message": "clusterhealths is forbidden", "code": 403})
            .to_string(),
        },
    );
    // The script of w1 hangs.
    world.waits("u", "its health cannot be read").await;
    assert_eq!(world.statuses("u").await, "w1=Failed");
    let note = world.event("u", "HealthUnknown").await;
    assert!(note.contains("clusterhealths is forbidden"), "{note}");
    world.change("u", json!({"spec": {"policy": {"aborted": true}}})).await;
    world.ends("u", UpgradeStatus::Failed).await;
    assert_eq!(world.statuses("u").await, "w1=Failed");
}

#[tokio::test]
async fn the_others_follow_the_canary_when_the_cluster_stays_healthy() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2"] {
        world.join(name, OLD, &[]).await;
    }
    let running = world.run().await;
    let policy = |soak: u32| json!({"policy": {"canary": 1, "soakSeconds": soak}});
    world.upgrade("u", policy(3600)).await;
    world.waits("u", "upgrading w1").await;
    world.is_at("w1", NEW).await;
    world
        .waits(
            "u",
            "the canaries are done; it goes on if the cluster is healthy until 2",
        )
        .await;
    world.is_ready("w2", false).await;
    world.waits("u", "the Node w2 is not Ready").await;
    assert!(world.event("u", "SoakInterrupted").await.contains("begins again"));
    world.is_ready("w2", true).await;
    world.waits("u", "the canaries are done").await;
    // What is recorded is enough for another coordinator.
    running.stop().await;
    let _running = world.run().await;
    world.is_quiet().await;
    assert_eq!(world.statuses("u").await, "w1=Success");
    world.change("u", json!({ "spec": policy(1) })).await;
    assert_eq!(world.play("u", |_| Script::Works).await, ["w2"]);
    world.ends("u", UpgradeStatus::Success).await;

    world.join("w3", OLD, &[]).await;
    world.join("w4", OLD, &[]).await;
    let fails = json!({"nodeTimeoutSeconds": 3, "policy": {"canary": 1}});
    world.upgrade("fails", fails).await;
    let message = world.ends("fails", UpgradeStatus::Failed).await;
    assert!(
        message.contains("; one of the first nodes (spec.policy.canary) failed"),
        "{message}"
    );
    assert_eq!(world.statuses("fails").await, "w3=Failed");
}
