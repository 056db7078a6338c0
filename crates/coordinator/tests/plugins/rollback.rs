//! Back to a version that was accepted before.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::AcceptedRelease;
use tidewaiter_api::containership::plugin::{READY, STALLED};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, plugin_release_secret};
use tidewaiter_coordinator::controllers::PluginSettings;

use crate::approval::manual;
use crate::trust::{Signer, TIME};
use crate::world::{World, config, id};

pub const ROLLBACK: &str = "tidewaiter.dev/rollback";

impl World {
    /// The accepted release of the version.
    async fn accepted(&self, number: usize, version: &str) -> AcceptedRelease {
        let releases = self.inventories().get(&id(number)).await.unwrap().spec.releases;
        let found = releases.iter().find(|release| release.version == version);
        found
            .unwrap_or_else(|| panic!("{version} is not in {releases:?}"))
            .clone()
    }

    /// As a person goes back from a version to an earlier one.
    pub async fn roll_back(&self, number: usize, from: &str, to: &str) {
        let revision = self.accepted(number, to).await.revision;
        self.annotate(number, ROLLBACK, Some(&format!("{revision}@{from}")))
            .await;
    }

    /// Waits until the rollback is refused with these words.
    async fn refuses(&self, number: usize, version: &str, words: &str) {
        let message = self
            .condition(number, version, STALLED, "True StoredVersionRefused")
            .await;
        assert!(message.contains(words), "{message} does not contain {words}");
    }
}

#[tokio::test]
async fn an_earlier_version_comes_back_until_that_is_undone_or_the_cloud_has_another() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1"), config("gone", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.offer(1, "2.0.0", &json!([[config("one", "2")]]));
    world.is_ready(1, "2.0.0").await;
    world.config_is("gone", None).await;
    world.stores(1, 2).await;

    world.roll_back(1, "2.0.0", "1.0.0").await;
    let message = world.condition(1, "2.0.0", READY, "True RolledBack").await;
    assert!(
        message.contains("version 1.0.0 instead of the cloud's 2.0.0"),
        "{message}"
    );
    world.config_is("one", Some("1")).await;
    world.config_is("gone", Some("1")).await;
    let status = world.plugins().get(&id(1)).await.unwrap().status.unwrap();
    assert_eq!(status.applied_version, "1.0.0");
    // It is kept as it is, and a restart writes nothing.
    let change = Patch::Merge(json!({"data": {"a": "changed"}}));
    world
        .configs()
        .patch("one", &PatchParams::default(), &change)
        .await
        .unwrap();
    world.config_is("one", Some("1")).await;
    world.condition(1, "2.0.0", READY, "True RolledBack").await;
    world.is_quiet().await;
    running.stop().await;
    let mark = world.plane().audit_mark().await;
    let running = world.run(PluginSettings::default()).await;
    world.is_quiet().await;
    assert_eq!(world.written_since(mark).await, [""; 0]);

    world.annotate(1, ROLLBACK, None).await;
    world.is_ready(1, "2.0.0").await;
    world.config_is("one", Some("2")).await;
    world.config_is("gone", None).await;

    // The next version of the cloud ends it for good.
    world.roll_back(1, "2.0.0", "1.0.0").await;
    world.condition(1, "2.0.0", READY, "True RolledBack").await;
    world.offer(1, "3.0.0", &json!([[config("one", "3")]]));
    world.is_ready(1, "3.0.0").await;
    world.is_taken(1, ROLLBACK).await;
    world.config_is("one", Some("3")).await;

    // Only versions that were accepted can come back.
    for asked in ["00000000@3.0.0", "3.0.0"] {
        world.annotate(1, ROLLBACK, Some(asked)).await;
        let message = world.condition(1, "3.0.0", STALLED, "True RollbackUnknown").await;
        let known = &world.accepted(1, "1.0.0").await.revision[..16];
        assert!(message.contains(asked) && message.contains(known), "{message}");
    }
    world.config_is("one", Some("3")).await;
    world.withdraw(1);
    world.is_forgotten(1).await;
    world.stores(1, 0).await;
    running.stop().await;
}

#[tokio::test]
async fn going_back_needs_no_approval_and_going_forward_again_does() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.offer(1, "2.0.0", &json!([[config("one", "2")]]));
    world.is_ready(1, "2.0.0").await;
    running.stop().await;
    let running = world.run(manual()).await;
    world.roll_back(1, "2.0.0", "1.0.0").await;
    world.condition(1, "2.0.0", READY, "True RolledBack").await;
    world.config_is("one", Some("1")).await;
    world.annotate(1, ROLLBACK, None).await;
    let pending = world.pending(1, "2.0.0").await;
    assert_eq!(pending.changes, 1);
    world.config_is("one", Some("1")).await;
    world.annotate(1, "tidewaiter.dev/approve", Some(&pending.digest)).await;
    world.is_ready(1, "2.0.0").await;
    world.config_is("one", Some("2")).await;
    running.stop().await;
}

#[tokio::test]
async fn what_is_not_permitted_today_does_not_come_back() {
    let world = World::start().await;
    let (old, new) = (Signer::new(), Signer::new());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "1"}});
    let firsts = [json!([[secret]]), json!([[config("second", "1")]])];
    for (number, manifests) in (1..).zip(&firsts) {
        let body = old.signed(number, "1.0.0", manifests, TIME);
        world.offer_text(number, "1.0.0", body.to_string());
    }
    let running = world.run(Signer::settings(&[&old, &new])).await;
    for number in 1..=2 {
        world.is_ready(number, "1.0.0").await;
        let manifests = json!([[config(&format!("new-{number}"), "1")]]);
        let body = new.signed(number, "2.0.0", &manifests, TIME + 100);
        world.offer_text(number, "2.0.0", body.to_string());
        world.is_ready(number, "2.0.0").await;
    }
    running.stop().await;

    let limited = PluginSettings {
        deny: vec!["Secret".to_owned()],
        ..Signer::settings(&[&new])
    };
    let running = world.run(limited).await;
    for number in 1..=2 {
        world.is_ready(number, "2.0.0").await;
        world.roll_back(number, "2.0.0", "1.0.0").await;
    }
    // The signature is verified first.
    for number in 1..=2 {
        world.refuses(number, "2.0.0", "which is not trusted").await;
    }
    running.stop().await;
    let limited = PluginSettings {
        trust: Signer::settings(&[&old, &new]).trust,
        deny: vec!["Secret".to_owned()],
        ..PluginSettings::default()
    };
    let running = world.run(limited).await;
    // However old its signature is, a version with one comes back.
    world.condition(2, "2.0.0", READY, "True RolledBack").await;
    world.config_is("second", Some("1")).await;
    world.refuses(1, "2.0.0", "pluginDeny has Secret").await;
    world.config_is("new-1", Some("1")).await;
    running.stop().await;
}

#[tokio::test]
async fn a_stored_version_that_somebody_changes_does_not_come_back() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    world.offer(2, "1.0.0", &json!([[config("two", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    for number in 1..=2 {
        world.is_ready(number, "1.0.0").await;
        world.offer(number, "2.0.0", &json!([[config(&format!("new-{number}"), "1")]]));
        world.is_ready(number, "2.0.0").await;
    }
    let secrets = Api::<Secret>::namespaced(world.client(), CONTAINERSHIP_NAMESPACE);
    let name =
        async |number: usize| plugin_release_secret(&id(number), &world.accepted(number, "1.0.0").await.revision);
    let (first, second) = (name(1).await, name(2).await);
    // The stored version of another plugin, under its name.
    let mut forged = secrets.get(&second).await.unwrap();
    assert_eq!(forged.immutable, Some(true));
    secrets.delete(&first, &DeleteParams::default()).await.unwrap();
    forged.metadata = kube::api::ObjectMeta {
        name: Some(first.clone()),
        labels: forged.metadata.labels.take(),
        ..Default::default()
    };
    secrets.create(&PostParams::default(), &forged).await.unwrap();
    world.roll_back(1, "2.0.0", "1.0.0").await;
    world.refuses(1, "2.0.0", "other manifests than were accepted").await;
    secrets.delete(&second, &DeleteParams::default()).await.unwrap();
    world.roll_back(2, "2.0.0", "1.0.0").await;
    world.refuses(2, "2.0.0", "somebody deleted it").await;
    for number in 1..=2 {
        world.config_is(&format!("new-{number}"), Some("1")).await;
    }
    world.config_is("one", None).await;
    running.stop().await;
}

#[tokio::test]
async fn a_version_that_is_too_large_to_be_stored_is_applied_and_cannot_come_back() {
    let world = World::start().await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut large = |name: &str| {
        let text: String = (0..700_000).map(|_| random.alphanumeric()).collect();
        config(name, &text)
    };
    world.offer(1, "1.0.0", &json!([[large("one"), large("two")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    assert!(world.accepted(1, "1.0.0").await.too_large);
    world.stores(1, 0).await;
    world.offer(1, "2.0.0", &json!([[config("one", "2")]]));
    world.is_ready(1, "2.0.0").await;
    world.roll_back(1, "2.0.0", "1.0.0").await;
    world.refuses(1, "2.0.0", "too large for a Secret").await;
    world.config_is("one", Some("2")).await;
    world.config_is("two", None).await;
    running.stop().await;
}

#[tokio::test]
async fn what_is_applied_is_kept_while_the_cloud_is_away() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    running.stop().await;
    // The list is served, the manifests are not.
    world.cloud.set(
        format!("/plugins/{}", id(1)),
        crate::script::Answer::Exactly(500, vec![], "{}".to_owned()),
    );
    let change = Patch::Merge(json!({"data": {"a": "changed"}}));
    world
        .configs()
        .patch("one", &PatchParams::default(), &change)
        .await
        .unwrap();
    let running = world.run(PluginSettings::default()).await;
    world.config_is("one", Some("1")).await;
    running.stop().await;
}
