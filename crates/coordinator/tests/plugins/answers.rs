//! A response to the request for manifests that is none changes no object: what is applied stays, and what somebody
//! changes in it is undone.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::PluginSettings;

use crate::cluster::Running;
use crate::script::Answer;
use crate::trust::{Signer, TIME};
use crate::world::{World, config, id};

const UNAVAILABLE: &str = "ManifestsUnavailable";
const REFUSED: &str = "ManifestsRefused";

/// The answers of the cloud, and the reason why a version with such manifests is not applied.
fn answers() -> Vec<(&'static str, Answer, &'static str)> {
    let json = [("content-type", "application/json")];
    let exactly = |status: u16, headers: &[(&'static str, &'static str)], body: &str| {
        Answer::Exactly(status, headers.to_vec(), body.to_owned())
    };
    let other = json!({"id": id(2), "version": "1.0.0", "manifests": [[config("two", "1")]]});
    vec![
        (
            "401",
            exactly(401, &json, r#"{"code": 401, "message": "who are you?"}"#),
            UNAVAILABLE,
        ),
        (
            "403",
            exactly(403, &json, r#"{"code": 403, "message": "no"}"#),
            UNAVAILABLE,
        ),
        (
            "404",
            exactly(404, &json, r#"{"code": 404, "message": "no such plugin"}"#),
            UNAVAILABLE,
        ),
        ("204", exactly(204, &[], ""), UNAVAILABLE),
        ("429", exactly(429, &[("retry-after", "1")], ""), UNAVAILABLE),
        (
            "an HTML page",
            exactly(200, &[("content-type", "text/html")], "<html>log in</html>"),
            UNAVAILABLE,
        ),
        ("half a body", Answer::Half(vec![json!({"manifests": []})]), UNAVAILABLE),
        ("silence", Answer::Silence, UNAVAILABLE),
        ("null", exactly(200, &json, "null"), REFUSED),
        ("another plugin", exactly(200, &json, &other.to_string()), REFUSED),
    ]
}

impl World {
    /// Somebody changes the ConfigMap of the plugin, and it is made as it was.
    async fn corrects(&self, what: &str) {
        let change = Patch::Merge(json!({"data": {"a": what}}));
        let params = PatchParams::default();
        self.configs().patch("one", &params, &change).await.unwrap();
        self.config_is("one", Some("1")).await;
    }

    async fn has_the_first_version(&self) {
        let wanted = ["one", "other"].map(|name| format!("ConfigMap default/{name}"));
        self.has_exactly(1, &BTreeSet::from(wanted)).await;
    }
}

async fn begun(manifests: &Value) -> (World, Running) {
    let world = World::start().await;
    world.offer(1, "1.0.0", manifests);
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    (world, running)
}

fn manifests() -> Value {
    json!([[config("one", "1"), config("other", "1")]])
}

#[tokio::test]
async fn a_new_version_without_manifests_changes_no_object() {
    let (world, running) = begun(&manifests()).await;
    for (number, (what, answer, reason)) in (2..).zip(answers()) {
        let version = format!("{number}.0.0");
        world.answer(1, &version, answer);
        let message = world.condition(1, &version, "Ready", &format!("False {reason}")).await;
        assert!(!message.is_empty(), "{what}");
        world.corrects(what).await;
        world.has_the_first_version().await;
        world.offer(1, "1.0.0", &manifests());
        world.is_ready(1, "1.0.0").await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_version_that_cannot_be_fetched_again_stays_and_says_so() {
    let (world, running) = begun(&manifests()).await;
    let signer = Signer::new();
    let mut time = TIME;
    let mut signature = || {
        time += 1;
        signer.signed(1, "1.0.0", &manifests(), time)["signature"].clone()
    };
    let outdated = "could not be fetched again";
    for (what, answer, reason) in answers() {
        world.cloud.set(format!("/plugins/{}", id(1)), answer);
        world.sign_again(1, "1.0.0", &signature());
        if reason == UNAVAILABLE {
            world.ready_with(outdated, true).await;
            running.counts("tidewaiter_plugins_outdated", 1).await;
        } else {
            world.condition(1, "1.0.0", "Ready", &format!("False {reason}")).await;
        }
        world.corrects(what).await;
        world.has_the_first_version().await;
        world.offer(1, "1.0.0", &manifests());
        world.sign_again(1, "1.0.0", &signature());
        world.ready_with(outdated, false).await;
        running.counts("tidewaiter_plugins_outdated", 0).await;
    }
    world.says(&id(1), UNAVAILABLE, outdated).await;
    running.stop().await;
}

impl World {
    /// Waits until the plugin is ready, and its message has these words, or has them not.
    async fn ready_with(&self, words: &str, has: bool) {
        tidewaiter_testkit::eventually(
            format!("{words:?} in the message: {has}"),
            crate::world::SOON,
            async || {
                let plugin = self.plugins().get(&id(1)).await.map_err(|error| error.to_string())?;
                let conditions = plugin.status.unwrap_or_default().conditions;
                let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
                let ready = ready.ok_or("it has no condition")?;
                if ready.reason == "Applied" && ready.message.contains(words) == has {
                    Ok(())
                } else {
                    Err(format!("{}: {}", ready.reason, ready.message))
                }
            },
        )
        .await;
    }
}

#[tokio::test]
async fn manifests_of_the_same_version_that_lack_objects_delete_nothing_without_approval() {
    let world = World::start().await;
    let whole = json!([[config("one", "1")], [config("two", "1"), config("three", "1")]]);
    world.offer(1, "1.0.0", &whole);
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    running.stop().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    let pending = world.pending(1, "1.0.0").await;
    for name in ["one", "two", "three"] {
        world.config_is(name, Some("1")).await;
    }
    // The right ones need nobody, nor do others that lack nothing.
    running.stop().await;
    world.offer(
        1,
        "1.0.0",
        &json!([[config("one", "2")], [config("two", "1"), config("three", "1")]]),
    );
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.config_is("one", Some("2")).await;
    running.stop().await;
    // A person approves it, or another version says that it is meant.
    world.offer(1, "1.0.0", &json!([[config("one", "2")], [config("two", "1")]]));
    let _running = world.run(PluginSettings::default()).await;
    let approved = world.pending_but(1, "1.0.0", &pending.digest).await;
    world.approve(1, &approved.digest).await;
    world.is_ready(1, "1.0.0").await;
    world.config_is("three", None).await;
    world.offer(1, "1.0.1", &json!([[config("one", "2")]]));
    world.is_ready(1, "1.0.1").await;
    world.config_is("two", None).await;
}
