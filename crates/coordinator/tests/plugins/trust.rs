//! Manifests that must be signed.

use minisign::KeyPair;
use serde_json::{Value, json};
use tidewaiter_cloud::signed::{SignatureError, SigningKey, Statement, manifests_digest, sign};
use tidewaiter_coordinator::controllers::PluginSettings;

use crate::script::CLUSTER;
use crate::world::{World, config, id};

/// 2026-01-01.
pub const TIME: i64 = 1_767_225_600;

pub struct Signer(KeyPair);

impl Signer {
    pub fn new() -> Self {
        Self(KeyPair::generate_unencrypted_keypair().unwrap())
    }

    pub fn settings(signers: &[&Self]) -> PluginSettings {
        PluginSettings {
            trust: signers
                .iter()
                .map(|signer| signer.0.pk.to_base64().parse().unwrap())
                .collect(),
            ..PluginSettings::default()
        }
    }

    /// The response of the cloud for this version of the plugin, signed.
    pub fn signed(&self, number: usize, version: &str, manifests: &Value, time: i64) -> Value {
        let mut body = json!({"version": version, "manifests": manifests});
        let key = self.0.sk.to_box(None).unwrap().into_string();
        let key = SigningKey::read(&key, || Err(SignatureError::Malformed)).unwrap();
        let statement = Statement {
            cluster: CLUSTER,
            plugin: &id(number),
            plugin_type: "CNI",
            implementation: "calico",
            version,
            digest: &manifests_digest(&body),
        };
        body["signature"] = json!(sign(&key, &statement, time).unwrap());
        body
    }
}

#[tokio::test]
async fn only_manifests_with_the_newest_signature_of_a_trusted_key_are_applied() {
    let world = World::start().await;
    let (ours, other, stranger) = (Signer::new(), Signer::new(), Signer::new());
    let manifests = |value: &str| json!([[config("one", value)]]);
    let offer = |number: usize, version: &str, body: &Value| world.offer_text(number, version, body.to_string());
    let first = ours.signed(1, "1.0.0", &manifests("1"), TIME);
    offer(1, "1.0.0", &first);
    // Without a signature; with one of a stranger; with one for another plugin; with other manifests than were signed.
    world.offer(2, "1.0.0", &json!([[config("two", "1")]]));
    offer(
        3,
        "1.0.0",
        &stranger.signed(3, "1.0.0", &json!([[config("three", "1")]]), TIME),
    );
    offer(
        4,
        "1.0.0",
        &ours.signed(5, "1.0.0", &json!([[config("four", "1")]]), TIME),
    );
    let mut changed = ours.signed(6, "1.0.0", &json!([[config("six", "1")]]), TIME);
    changed["manifests"][0][0]["data"]["a"] = json!("2");
    offer(6, "1.0.0", &changed);
    let running = world.run(Signer::settings(&[&ours, &other])).await;
    world.is_ready(1, "1.0.0").await;
    world.config_is("one", Some("1")).await;
    for (number, name, words) in [
        (2, "two", "are not signed"),
        (3, "three", "which is not trusted"),
        (4, "four", "not for this cluster"),
        (6, "six", "not for this cluster"),
    ] {
        let message = world
            .condition(number, "1.0.0", "Stalled", "True SignatureRefused")
            .await;
        assert!(message.contains(words), "{message} does not contain {words}");
        world.config_is(name, None).await;
    }

    // A signature that is corrected counts, and one that becomes invalid is reported at once, although nothing else of
    // the plugin changes.
    offer(
        3,
        "1.0.0",
        &ours.signed(3, "1.0.0", &json!([[config("three", "1")]]), TIME),
    );
    world.is_ready(3, "1.0.0").await;
    offer(
        3,
        "1.0.0",
        &stranger.signed(3, "1.0.0", &json!([[config("three", "1")]]), TIME),
    );
    world.condition(3, "1.0.0", "Stalled", "True SignatureRefused").await;
    world.config_is("three", Some("1")).await;

    // An upgrade, by another key. Then the cloud goes back, with the good signature of then.
    offer(1, "1.1.0", &other.signed(1, "1.1.0", &manifests("2"), TIME + 100));
    world.is_ready(1, "1.1.0").await;
    offer(1, "1.0.0", &first);
    let message = world.condition(1, "1.0.0", "Stalled", "True SignatureRefused").await;
    assert!(message.contains("sign them again"), "{message}");
    running.stop().await;
    let running = world.run(Signer::settings(&[&ours, &other])).await;
    world.is_quiet().await;
    world.config_is("one", Some("2")).await;

    // Anyone who signs can go back.
    offer(1, "1.0.0", &ours.signed(1, "1.0.0", &manifests("1"), TIME + 200));
    world.is_ready(1, "1.0.0").await;
    world.config_is("one", Some("1")).await;

    // What the service account and the limits depend on is signed, too.
    world.retype(1, "CSI");
    let message = world.condition(1, "1.0.0", "Stalled", "True SignatureRefused").await;
    assert!(message.contains("not for this cluster"), "{message}");
    running.stop().await;
}
