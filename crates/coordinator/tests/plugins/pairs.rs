//! Two operations on a plugin at once, while another plugin is upgraded: both end as the last word says, and the other
//! one waits for nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_testkit::{Action, ApiProxy, ApiRequest, Gate, eventually};

use crate::cluster::{SOON, coordinator};
use crate::world::{World, config, id};

/// The number of the other plugin.
const OTHER: usize = 99;
const GROUP: &str = "pairs.example.com";

struct Scene {
    world: World,
    proxy: ApiProxy,
}

/// An act on the plugin with this number, at the same time as another one.
type Pair = for<'a> fn(&'a Scene, usize) -> LocalBoxFuture<'a, ()>;

const PAIRS: [(&str, Pair); 7] = [
    (
        "an object is changed during the upgrade of its plugin",
        |scene, number| drift_during_an_upgrade(scene, number).boxed_local(),
    ),
    ("a plugin is removed during its installation", |scene, number| {
        removal_during_an_installation(scene, number).boxed_local()
    }),
    ("a plugin is removed during its upgrade", |scene, number| {
        removal_during_an_upgrade(scene, number).boxed_local()
    }),
    ("a plugin comes back while it is removed", |scene, number| {
        installation_during_a_removal(scene, number).boxed_local()
    }),
    (
        "a plugin comes back with another version while it is removed",
        |scene, number| another_version_during_a_removal(scene, number).boxed_local(),
    ),
    (
        "an instance is changed while the version of its definition changes",
        |scene, number| change_during_a_change_of_the_definition(scene, number).boxed_local(),
    ),
    ("a webhook fails while a plugin is removed", |scene, number| {
        webhook_fails_during_a_removal(scene, number).boxed_local()
    }),
];

#[tokio::test]
async fn what_is_done_at_once_ends_as_the_last_word_says() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let running = world.run_through(&proxy).await;
    let scene = Scene { world, proxy };
    for (number, (what, pair)) in (1..).zip(PAIRS) {
        println!("{what}");
        let version = format!("{number}.0.0");
        let own = config(&format!("other-{number}"), "1");
        scene.world.offer(OTHER, &version, &json!([[own]]));
        let other = async {
            scene.world.is_ready(OTHER, &version).await;
            let wanted = [format!("ConfigMap default/other-{number}")];
            scene.world.has_exactly(OTHER, &BTreeSet::from(wanted)).await;
        };
        futures::join!(pair(&scene, number), other);
        scene.proxy.clear_hook();
    }
    running.stop().await;
}

fn name(word: &str, number: usize) -> String {
    format!("{word}-{number}")
}

/// Two groups of one ConfigMap.
fn manifests(number: usize, value: &str) -> Value {
    json!([
        [config(&name("first", number), value)],
        [config(&name("second", number), value)]
    ])
}

impl Scene {
    /// Holds the first of the coordinator's writes to an object whose path has this end.
    fn holds(&self, end: String) -> Gate {
        let (gate, used) = (Gate::new(), AtomicBool::new(false));
        let held = gate.clone();
        self.proxy.hook(move |request: &ApiRequest| {
            if request.is_write() && request.path.ends_with(&end) && !used.swap(true, Ordering::SeqCst) {
                Action::Hold(held.clone())
            } else {
                Action::Forward
            }
        });
        gate
    }

    async fn is_installed(&self, number: usize, version: &str, value: &str) {
        self.world.is_ready(number, version).await;
        for word in ["first", "second"] {
            self.world.config_is(&name(word, number), Some(value)).await;
        }
        let wanted = ["first", "second"].map(|word| format!("ConfigMap default/{}", name(word, number)));
        self.world.has_exactly(number, &BTreeSet::from(wanted)).await;
    }

    async fn is_removed(&self, number: usize) {
        self.world.is_forgotten(number).await;
        self.world.has_exactly(number, &BTreeSet::new()).await;
    }

    async fn installs(&self, number: usize) {
        self.world.offer(number, "1.0.0", &manifests(number, "1"));
        self.is_installed(number, "1.0.0", "1").await;
    }
}

/// Waits until the gate holds a write.
async fn is_held(gate: &Gate) {
    eventually("a write that is held", SOON, async || match gate.held() {
        1 => Ok(()),
        other => Err(other),
    })
    .await;
}

async fn drift_during_an_upgrade(scene: &Scene, number: usize) {
    scene.installs(number).await;
    let gate = scene.holds(format!("/configmaps/{}", name("second", number)));
    scene.world.offer(number, "2.0.0", &manifests(number, "2"));
    is_held(&gate).await;
    // The first group has the new version already.
    let change = Patch::Merge(json!({"data": {"a": "theirs"}}));
    let configs = scene.world.configs();
    configs
        .patch(&name("first", number), &PatchParams::default(), &change)
        .await
        .unwrap();
    gate.open();
    scene.is_installed(number, "2.0.0", "2").await;
}

async fn removal_during_an_installation(scene: &Scene, number: usize) {
    let gate = scene.holds(format!("/configmaps/{}", name("second", number)));
    scene.world.offer(number, "1.0.0", &manifests(number, "1"));
    is_held(&gate).await;
    scene.world.withdraw(number);
    gate.open();
    scene.is_removed(number).await;
}

async fn removal_during_an_upgrade(scene: &Scene, number: usize) {
    scene.installs(number).await;
    let gate = scene.holds(format!("/configmaps/{}", name("second", number)));
    scene.world.offer(number, "2.0.0", &manifests(number, "2"));
    is_held(&gate).await;
    scene.world.withdraw(number);
    gate.open();
    scene.is_removed(number).await;
}

async fn installation_during_a_removal(scene: &Scene, number: usize) {
    comes_back(scene, number, "1.0.0", "1").await;
}

async fn another_version_during_a_removal(scene: &Scene, number: usize) {
    comes_back(scene, number, "2.0.0", "2").await;
}

async fn comes_back(scene: &Scene, number: usize, version: &str, value: &str) {
    scene.installs(number).await;
    let gate = scene.holds(format!("/configmaps/{}", name("second", number)));
    scene.world.withdraw(number);
    is_held(&gate).await;
    scene.world.offer(number, version, &manifests(number, value));
    eventually("the plugin to be mirrored again", SOON, async || {
        let plugin = scene.world.plugins().get_opt(&id(number)).await;
        match plugin.map_err(|error| error.to_string())? {
            Some(plugin) if plugin.metadata.deletion_timestamp.is_none() => Ok(()),
            other => Err(format!("{:?}", other.map(|plugin| plugin.metadata))),
        }
    })
    .await;
    gate.open();
    scene.is_installed(number, version, value).await;
}

/// The plugin's definition with these versions, of which the last one is stored, and an instance in that version.
fn with_definition(versions: &[&str], value: &str) -> Value {
    let last = versions.last().unwrap();
    let version = |name: &&str| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"name": name, "served": true, "storage": name == last, "schema": {"openAPIV3Schema": schema}})
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{GROUP}")}, "spec": {"group": GROUP, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}, "versions": versions}});
    let widget = json!({"apiVersion": format!("{GROUP}/{last}"), "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
        "spec": {"a": value}});
    json!([[definition], [widget]])
}

async fn change_during_a_change_of_the_definition(scene: &Scene, number: usize) {
    let world = &scene.world;
    world.offer(number, "1.0.0", &with_definition(&["v1"], "1"));
    world.is_ready(number, "1.0.0").await;
    let gate = scene.holds("/widgets/w".to_owned());
    world.offer(number, "2.0.0", &with_definition(&["v1", "v2"], "2"));
    is_held(&gate).await;
    // In the version that the instance had, with a field of the plugin and one of their own.
    let change = Patch::Merge(json!({"spec": {"a": "theirs", "b": "theirs"}}));
    let of_version = |version: &str| world.objects(&format!("{GROUP}/{version}"), "widgets", "Widget", Some("default"));
    let widgets = of_version("v1");
    widgets.patch("w", &PatchParams::default(), &change).await.unwrap();
    gate.open();
    world.is_ready(number, "2.0.0").await;
    let is_both = |found: &Value| found["spec"] == json!({"a": "2", "b": "theirs"});
    for version in ["v1", "v2"] {
        world.shows(&of_version(version), "w", is_both).await;
    }
    world.withdraw(number);
    scene.is_removed(number).await;
}

async fn webhook_fails_during_a_removal(scene: &Scene, number: usize) {
    let world = &scene.world;
    scene.installs(number).await;
    let asked = |rest: &Value| {
        let mut object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "pairs"}});
        object["webhooks"] = rest.clone();
        object
    };
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]);
    let webhook = json!([{"name": "pairs.example.com", "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules,
        "objectSelector": {"matchLabels": {PLUGIN_LABEL: id(number)}}}]);
    let webhooks = world.objects(
        "admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        None,
    );
    world.put(&webhooks, &asked(&webhook)).await;
    let configs = world.configs();
    eventually("the webhook to be asked", SOON, async || {
        let dry = kube::api::DeleteParams {
            dry_run: true,
            ..Default::default()
        };
        match configs.delete(&name("first", number), &dry).await {
            Ok(_) => Err("it is not"),
            Err(_) => Ok(()),
        }
    })
    .await;
    world.withdraw(number);
    world.says(&id(number), "ApplyFailed", "failed calling webhook").await;
    for word in ["first", "second"] {
        world.config_is(&name(word, number), Some("1")).await;
    }
    world.delete(&webhooks, "pairs").await;
    scene.is_removed(number).await;
}
