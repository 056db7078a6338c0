//! A version of a plugin is applied when a person has approved exactly what it changes.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::plugin::{READY, RECONCILING, STALLED};
use tidewaiter_api::containership::{PendingVersion, Plugin};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, PLUGIN_STORE_LABEL, plugin_diff_secret};
use tidewaiter_coordinator::controllers::{
    Approval, ByPlugin, DIFF_KEY, Operation, PluginApproval, PluginDiff, PluginSettings,
};
use tidewaiter_testkit::{AuditMark, eventually};

use crate::cluster::{Running, SOON, coordinator};
use crate::jobs::{ends, job, name_of};
use crate::world::{World, config, id};

pub fn manual() -> PluginSettings {
    PluginSettings {
        approval: PluginApproval::All(Approval::Manual),
        ..PluginSettings::default()
    }
}

pub fn secret(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"password": value}})
}

impl World {
    /// Waits until this version awaits approval, and until that is all that is wrong.
    pub async fn pending(&self, number: usize, version: &str) -> PendingVersion {
        self.pending_but(number, version, "").await
    }

    /// The same with another digest.
    pub async fn pending_but(&self, number: usize, version: &str, digest: &str) -> PendingVersion {
        self.condition(number, version, READY, "False ApprovalNeeded").await;
        self.condition(number, version, RECONCILING, "False Idle").await;
        self.condition(number, version, STALLED, "False NotStalled").await;
        eventually(format!("{version} of {number} to await approval"), SOON, async || {
            let plugin = self
                .plugins()
                .get(&id(number))
                .await
                .map_err(|error| error.to_string())?;
            let pending = plugin.status.and_then(|status| status.pending);
            let found = pending
                .clone()
                .filter(|it| it.version == version && it.digest != digest);
            found.ok_or_else(|| format!("{pending:?}"))
        })
        .await
    }

    /// The diff of what awaits approval.
    pub async fn diff(&self, number: usize) -> PluginDiff {
        let secrets = Api::<Secret>::namespaced(self.client(), CONTAINERSHIP_NAMESPACE);
        let secret = secrets.get(&plugin_diff_secret(&id(number))).await.unwrap();
        PluginDiff::unpack(&secret.data.unwrap()[DIFF_KEY].0).unwrap()
    }

    /// As a person annotates the Plugin.
    pub async fn annotate(&self, number: usize, name: &str, value: Option<&str>) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
        let patched = self.plugins().patch(&id(number), &PatchParams::default(), &patch).await;
        patched.unwrap();
    }

    pub async fn approve(&self, number: usize, digest: &str) {
        self.annotate(number, "tidewaiter.dev/approve", Some(digest)).await;
    }

    /// Waits until the Plugin does not have the annotation any more.
    pub async fn is_taken(&self, number: usize, name: &str) {
        eventually(format!("{name} of {number} to be removed"), SOON, async || {
            let plugin = self
                .plugins()
                .get(&id(number))
                .await
                .map_err(|error| error.to_string())?;
            let found = plugin.metadata.annotations.unwrap_or_default().remove(name);
            found.map_or(Ok(()), Err)
        })
        .await;
    }

    /// Waits until exactly this number of Secrets stores something of the plugin.
    pub async fn stores(&self, number: usize, count: usize) {
        let secrets = Api::<Secret>::namespaced(self.client(), CONTAINERSHIP_NAMESPACE);
        let of_plugin = ListParams::default().labels(&format!("{PLUGIN_STORE_LABEL}={}", id(number)));
        eventually(format!("{count} Secrets of {number}"), SOON, async || {
            let found = secrets
                .list_metadata(&of_plugin)
                .await
                .map_err(|error| error.to_string())?;
            let names: Vec<_> = found.items.into_iter().filter_map(|it| it.metadata.name).collect();
            if names.len() == count {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
    }

    /// The writes, without dry runs.
    async fn written_for_good_since(&self, mark: AuditMark) -> Vec<String> {
        let writes = self.plane().audit().await.since(mark).by(&coordinator()).writes();
        let real = writes.iter().filter(|entry| {
            let other = ["events", "cloudsyncs"].contains(&entry.object_ref.resource.as_str());
            !other && !entry.uri.contains("dryRun=All")
        });
        real.map(|entry| format!("{} {}", entry.verb, entry.uri)).collect()
    }
}

/// The changes, as `operation object`.
pub fn words(diff: &PluginDiff) -> Vec<String> {
    let words = diff.changes.iter().map(|change| {
        let operation = format!("{:?}", change.operation).to_lowercase();
        let note = if change.note.is_empty() {
            ""
        } else {
            " (as in the manifests)"
        };
        format!("{operation} {}{note}", change.object)
    });
    words.collect()
}

/// The second version adds a field.
fn two() -> Value {
    let mut object = config("two", "1");
    object["data"]["b"] = json!("2");
    object
}

#[tokio::test]
async fn only_exactly_what_is_approved_is_applied() {
    let world = World::start().await;
    world.offer(
        1,
        "1.0.0",
        &json!([[
            config("one", "1"),
            config("two", "1"),
            config("gone", "1"),
            secret("hunter1")
        ]]),
    );
    let running = world.run(manual()).await;
    let pending = world.pending(1, "1.0.0").await;
    assert_eq!(
        (pending.creates, pending.changes, pending.deletes, pending.jobs),
        (4, 0, 0, 0)
    );
    assert_eq!(world.diff(1).await.digest(), pending.digest);
    running.counts("tidewaiter_plugins{state=\"awaits_approval\"}", 1).await;
    // Another digest approves nothing, and does not stay to approve anything later.
    world.approve(1, "abc").await;
    world.is_taken(1, "tidewaiter.dev/approve").await;
    world.says(&id(1), "ApprovalOutdated", &pending.digest).await;
    world.config_is("one", None).await;
    world.approve(1, &pending.digest).await;
    world.is_ready(1, "1.0.0").await;
    world.is_taken(1, "tidewaiter.dev/approve").await;
    world.config_is("one", Some("1")).await;
    world.stores(1, 1).await;

    world.offer(
        1,
        "1.1.0",
        &json!([[config("one", "2"), two(), config("new", "1"), secret("hunter2")]]),
    );
    let pending = world.pending(1, "1.1.0").await;
    assert_eq!(
        (pending.creates, pending.changes, pending.deletes, pending.jobs),
        (1, 3, 1, 0)
    );
    let diff = world.diff(1).await;
    assert_eq!(
        words(&diff),
        [
            "change ConfigMap default/one",
            "change ConfigMap default/two",
            "create ConfigMap default/new",
            "change Secret default/login",
            "delete ConfigMap default/gone",
        ]
    );
    let first = &diff.changes[0].differences;
    let values = (first[0].path.as_str(), first[0].before.clone(), first[0].after.clone());
    assert_eq!(
        (first.len(), values),
        (1, ("data.a", Some(json!("1")), Some(json!("2"))))
    );
    // The values of Secrets are in the Secret with the diff alone; logs are searched at the end of the test.
    assert!(
        serde_json::to_string(&diff).unwrap().contains("aHVudGVyMg=="),
        "hunter2 in base64"
    );
    let plugin: Plugin = world.plugins().get(&id(1)).await.unwrap();
    let events = Api::<Event>::namespaced(world.client(), CONTAINERSHIP_NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap();
    let shown = format!("{plugin:?} {events:?}");
    assert!(!shown.contains("hunter") && !shown.contains("aHVudGVy"), "{shown}");
    let waits = is_kept_while_it_waits(&world, running, pending).await;
    changes_meanwhile(&world, waits).await;
}

/// Meanwhile what is applied is kept as it is, and a restart writes nothing.
async fn is_kept_while_it_waits(world: &World, running: Running, pending: PendingVersion) -> (Running, PendingVersion) {
    let params = PatchParams::default();
    let change = Patch::Merge(json!({"data": {"a": "changed"}}));
    world.configs().patch("one", &params, &change).await.unwrap();
    world.config_is("one", Some("1")).await;
    world.pending(1, "1.1.0").await;
    world.is_quiet().await;
    running.stop().await;
    let mark = world.plane().audit_mark().await;
    let running = world.run(manual()).await;
    eventually("the diff to be rendered again", SOON, async || {
        let all = world.plane().audit().await.since(mark).by(&coordinator()).writes();
        if all.iter().any(|entry| entry.uri.contains("dryRun=All")) {
            Ok(())
        } else {
            Err("it is not")
        }
    })
    .await;
    world.is_quiet().await;
    assert_eq!(world.written_for_good_since(mark).await, [""; 0]);
    assert_eq!(world.pending(1, "1.1.0").await, pending);
    (running, pending)
}

/// Somebody changes an object between the diff and the approval.
async fn changes_meanwhile(world: &World, (running, pending): (Running, PendingVersion)) {
    let params = PatchParams::default();
    let theirs = Patch::Merge(json!({"data": {"b": "theirs"}}));
    world.configs().patch("two", &params, &theirs).await.unwrap();
    world.approve(1, &pending.digest).await;
    world.is_taken(1, "tidewaiter.dev/approve").await;
    let changed = world.pending_but(1, "1.1.0", &pending.digest).await;
    world.says(&id(1), "ApprovalOutdated", &changed.digest).await;
    world.config_is("one", Some("1")).await;
    world.config_is("new", None).await;
    world
        .shows(&world.configs(), "two", |found| found["data"]["b"] == "theirs")
        .await;
    let diff = world.diff(1).await;
    assert_eq!(diff.changes[1].differences[0].before, Some(json!("theirs")));

    world.approve(1, &changed.digest).await;
    world.is_ready(1, "1.1.0").await;
    world.config_is("one", Some("2")).await;
    world.config_is("gone", None).await;
    world
        .shows(&world.configs(), "two", |found| found["data"]["b"] == "2")
        .await;
    assert_eq!(world.plugins().get(&id(1)).await.unwrap().status.unwrap().pending, None);
    world.stores(1, 2).await;

    // A plugin that goes leaves nothing.
    world.offer(1, "1.2.0", &json!([[config("one", "3")]]));
    world.pending(1, "1.2.0").await;
    world.withdraw(1);
    world.is_forgotten(1).await;
    world.stores(1, 0).await;
    running.stop().await;
}

#[tokio::test]
async fn who_must_approve_can_change_at_any_time() {
    let world = World::start().await;
    let by_plugin = |approval: Approval| PluginSettings {
        approval: PluginApproval::ByPlugin(ByPlugin::from([("CNI", approval)])),
        ..PluginSettings::default()
    };
    // What waits for approval goes on without one.
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let running = world.run(by_plugin(Approval::Manual)).await;
    world.pending(1, "1.0.0").await;
    running.stop().await;
    let running = world.run(by_plugin(Approval::Automatic)).await;
    world.is_ready(1, "1.0.0").await;
    // What has begun goes on to its end, and the version behind it is approved by somebody.
    let jobs = json!({"pre_apply": [job("prepare")]});
    world.offer_with(1, "1.1.0", &json!([[config("one", "2")]]), &jobs);
    let name = name_of(&world, "prepare", "").await;
    running.stop().await;
    let running = world.run(manual()).await;
    ends(&world, &name, true).await;
    world.is_ready(1, "1.1.0").await;
    world.config_is("one", Some("2")).await;
    world.offer_with(1, "1.2.0", &json!([[config("one", "3")]]), &jobs);
    let pending = world.pending(1, "1.2.0").await;
    assert_eq!((pending.changes, pending.jobs, pending.deletes), (1, 1, 1));
    let diff = world.diff(1).await;
    assert_eq!(diff.changes[0].operation, Operation::Run);
    assert!(
        diff.changes[0].object.starts_with("Job.batch default/prepare-"),
        "{diff:?}"
    );

    // One that depends on it waits, as for one that is not ready.
    let body = json!({"version": "1.0.0", "manifests": [[config("two", "1")]], "depends_on": [id(1)]});
    world.offer_text(2, "1.0.0", body.to_string());
    let message = world.condition(2, "1.0.0", READY, "False DependencyNotReady").await;
    assert!(message.contains("awaits approval"), "{message}");
    running.stop().await;
}

#[tokio::test]
async fn an_approval_of_a_plugin_that_the_cloud_does_not_list_has_no_effect() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let running = world.run(manual()).await;
    let pending = world.pending(1, "1.0.0").await;
    world.offer(9, "1.0.0", &json!([[config("one", "1")]]));
    world.withdraw(9);
    let plugins = world.objects(
        "containership.io/v3",
        "plugins",
        "Plugin",
        Some(CONTAINERSHIP_NAMESPACE),
    );
    let forged = json!({"apiVersion": "containership.io/v3", "kind": "Plugin",
        "metadata": {"name": id(9), "annotations": {"tidewaiter.dev/approve": pending.digest}},
        "spec": {"id": id(9), "type": "CNI", "version": "1.0.0", "implementation": "calico"}});
    world.put(&plugins, &forged).await;
    world.shows(&plugins, &id(9), Value::is_null).await;
    world.stores(9, 0).await;
    world.config_is("one", None).await;
    running.stop().await;
}
