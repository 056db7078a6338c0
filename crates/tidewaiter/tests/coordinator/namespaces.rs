//! Namespaces that refuse what every namespace has: they delay no other, and are named. How often they are tried within
//! hours, and thousands of namespaces: `controllers/registry/tests.rs` of the coordinator, in simulated time.

use std::net::TcpListener;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_testkit::eventually;

use crate::registries::GOOD;
use crate::registries::world::RegistryWorld;
use crate::{SOON, coordinator};

/// The longest wait of a backoff, and a minute.
const AFTER_A_BACKOFF: Duration = Duration::from_mins(3);

/// Waits until a Secret cannot be created in the namespace, for this reason.
async fn refuses(world: &RegistryWorld, namespace: &str, why: &str) {
    eventually(format!("{namespace} to refuse a Secret"), SOON, async || {
        let probe = serde_json::from_value(json!({"metadata": {"generateName": "probe-"}})).unwrap();
        match world.secrets(namespace).create(&PostParams::default(), &probe).await {
            Err(error) if error.to_string().contains(why) => Ok(()),
            other => Err(format!("{:?}", other.map(|_| ()))),
        }
    })
    .await;
}

#[tokio::test]
async fn a_quota_and_a_webhook_that_hangs_delay_no_other_namespace() {
    let world = RegistryWorld::start(true).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registry("r", GOOD, "u", "hunter2-a").await;
    world.namespace("quota").await;
    world.namespace("hangs").await;
    world.namespace("slow").await;
    // It accepts connections, and says nothing.
    let hanging = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = hanging.local_addr().unwrap().port();
    let objects = format!(
        r#"
apiVersion: v1
kind: ResourceQuota
metadata: {{name: none, namespace: quota}}
spec: {{hard: {{secrets: "0"}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: hangs}}
webhooks:
  - name: hangs.example.com
    clientConfig: {{url: "https://127.0.0.1:{port}/"}}
    rules: [{{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}}]
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: hangs}}}}
    sideEffects: None
    timeoutSeconds: 3
    admissionReviewVersions: [v1]
  - name: slow.example.com
    clientConfig: {{url: "https://127.0.0.1:{port}/"}}
    rules: [{{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}}]
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: slow}}}}
    sideEffects: None
    timeoutSeconds: 30
    admissionReviewVersions: [v1]
"#
    );
    world.cluster.apply(&objects).await;
    refuses(&world, "quota", "exceeded quota").await;
    refuses(&world, "hangs", "failed calling webhook").await;

    let mark = world.cluster.audit_mark().await;
    let _process = world.coordinator(&[]);
    for number in 0..10 {
        let name = format!("team-{number}");
        world.namespace(&name).await;
        world.has_secret(&name, "r", GOOD, "hunter2-a").await;
        world.attached(&name, "containership", &["r"]).await;
    }
    let note = world.event("default", "quota", "WriteDenied").await;
    assert!(
        note.starts_with("cannot create Secret quota/r: ") && note.contains("exceeded quota: none"),
        "{note}"
    );
    let note = world.event("default", "hangs", "WebhookFailed").await;
    assert!(
        note.starts_with("cannot create Secret hangs/r: ") && note.contains("hangs.example.com"),
        "{note}"
    );
    // The longest timeout that a webhook may have.
    let note = world.event("default", "slow", "WebhookFailed").await;
    assert!(note.contains("slow.example.com"), "{note}");
    for namespace in ["quota", "hangs", "slow"] {
        // Everything that is not refused is done.
        world.attached(namespace, "containership", &["r"]).await;
        let mine = world
            .cluster
            .audit()
            .await
            .since(mark)
            .by(&coordinator())
            .verb("create");
        let tried = mine.filter(|entry| {
            let object = &entry.object_ref;
            object.resource == "secrets" && object.namespace == namespace
        });
        assert!(
            (1..=10).contains(&tried.count()),
            "{} attempts in {namespace}",
            tried.count()
        );
    }

    // Without the obstacle, it is as the others, and nobody had to change anything in it.
    let quotas: Api<ResourceQuota> = Api::namespaced(world.admin(), "quota");
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(world.admin());
    webhooks.delete("hangs", &DeleteParams::default()).await.unwrap();
    for namespace in ["quota", "hangs", "slow"] {
        eventually(format!("the pull secret in {namespace}"), AFTER_A_BACKOFF, async || {
            world.secret(namespace, "r").await.map(drop).ok_or("none")
        })
        .await;
    }
}

#[tokio::test]
async fn a_namespace_that_ends_while_it_is_filled_is_left_alone() {
    let world = RegistryWorld::start(true).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registry("r", GOOD, "u", "hunter2-a").await;
    let _process = world.coordinator(&[]);
    world.has_secret("default", "r", GOOD, "hunter2-a").await;
    let namespaces: Api<Namespace> = world.namespaces();
    let ending = json!({"metadata": {"finalizers": ["example.com/keeps"]}});
    for number in 0..10 {
        let name = format!("short-{number}");
        world.namespace(&name).await;
        if number % 2 == 0 {
            let patch = Patch::Merge(&ending);
            namespaces.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
        namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    // Objects that were written before the end go with the namespace, and nothing is written afterwards.
    for number in 0..10 {
        let name = format!("short-{number}");
        world.gone(&name, "r").await;
    }
    let mark = world.cluster.audit_mark().await;
    world.namespace("late").await;
    world.has_secret("late", "r", GOOD, "hunter2-a").await;
    world.attached("late", "containership", &["r"]).await;
    let mut writes = world.written_since(mark).await;
    writes.retain(|write| write.contains(" short-"));
    assert_eq!(writes, [""; 0]);
    // Once its finalizer is removed, it can be created again, and is a namespace as any other.
    let free = json!({"metadata": {"finalizers": null}});
    namespaces
        .patch("short-0", &PatchParams::default(), &Patch::Merge(free))
        .await
        .unwrap();
    eventually("the namespace to be created again", SOON, async || {
        let namespace = serde_json::from_value(json!({"metadata": {"name": "short-0"}})).unwrap();
        let created = namespaces.create(&PostParams::default(), &namespace).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;
    world.has_secret("short-0", "r", GOOD, "hunter2-a").await;
}

#[tokio::test]
async fn a_namespace_that_opts_out_loses_its_pull_secrets_and_keeps_its_account() {
    let world = RegistryWorld::start(true).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registry("r", GOOD, "u", "hunter2-a").await;
    let namespaces: Api<Namespace> = world.namespaces();
    let label = async |name: &str, value: Value| {
        let patch = json!({"metadata": {"labels": {"tidewaiter.dev/pull-secrets": value}}});
        let params = PatchParams::default();
        namespaces.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    };
    world.namespace("team").await;
    world.namespace("never").await;
    label("never", json!("disabled")).await;
    // Its pull secrets are the record of what works.
    label("containership-core", json!("disabled")).await;
    let _process = world.coordinator(&[]);
    world.has_secret("team", "r", GOOD, "hunter2-a").await;
    world.attached("team", "containership", &["r"]).await;
    world.entries_of_admin("team", "containership", "admins").await;

    label("team", json!("disabled")).await;
    world.gone("team", "r").await;
    world.attached("team", "containership", &["admins"]).await;
    assert!(world.secret("never", "r").await.is_none());
    let accounts: Api<ServiceAccount> = Api::namespaced(world.admin(), "never");
    assert_eq!(accounts.get_opt("containership").await.unwrap(), None);
    world.has_secret("containership-core", "r", GOOD, "hunter2-a").await;

    for name in ["team", "never"] {
        label(name, Value::Null).await;
        world.has_secret(name, "r", GOOD, "hunter2-a").await;
    }
    world.attached("team", "containership", &["admins", "r"]).await;
    world.attached("never", "containership", &["r"]).await;
}
