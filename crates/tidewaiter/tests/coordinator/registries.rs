//! Pull secrets: made of the registries of the cloud, in every namespace, attached to service accounts.

mod crashes;
mod scale;
pub mod world;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_testkit::{Identity, Moto, Process, eventually, settled, throughout};

use super::SOON;
use world::{RegistryWorld, auth};

pub const GOOD: &str = "good.registries.test";
pub const OTHER: &str = "other.registries.test";
pub const SILENT: &str = "silent.registries.test";

#[tokio::test]
async fn every_namespace_has_every_pull_secret() {
    let world = RegistryWorld::start(true).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registries.accept(OTHER, &["u:hunter2-b"]);
    world.registries.silence(SILENT);
    for (id, host, password) in [
        ("r-good", GOOD, "hunter2-a"),
        ("r-other", OTHER, "hunter2-b"),
        ("r-bad", GOOD, "hunter2-x"),
    ] {
        world.registry(id, host, "u", password).await;
    }
    world.registry("r-hostile", "kube-system", "u", "hunter2-h").await;
    world.namespace("foreign").await;
    let foreign = json!({"metadata": {"name": "r-good"}, "stringData": {"a": "admins"}});
    world
        .secrets("foreign")
        .create(&PostParams::default(), &serde_json::from_value(foreign).unwrap())
        .await
        .unwrap();
    world.namespace("admins").await;
    world.entries_of_admin("admins", "default", "admins-own").await;
    stuck_in_terminating(&world, "stuck").await;
    let process = world.coordinator(&[("TIDEWAITER_REGISTRIES__PULL_SECRET_SERVICE_ACCOUNTS", "[default]")]);

    world.namespace("late").await;
    for namespace in ["default", "kube-system", "containership-core", "admins", "late"] {
        world.has_secret(namespace, "r-good", GOOD, "hunter2-a").await;
        world.has_secret(namespace, "r-other", OTHER, "hunter2-b").await;
        world.attached(namespace, "containership", &["r-good", "r-other"]).await;
        assert!(world.secret(namespace, "r-bad").await.is_none(), "it is refused");
        assert!(world.secret(namespace, "r-hostile").await.is_none());
    }
    for namespace in ["default", "kube-system", "containership-core", "foreign", "late"] {
        world.attached(namespace, "default", &["r-good", "r-other"]).await;
    }
    world
        .attached("admins", "default", &["admins-own", "r-good", "r-other"])
        .await;
    world.event("containership-core", "r-bad", "CredentialRefused").await;
    world
        .event("containership-core", "r-hostile", "CredentialInvalid")
        .await;

    for line in ["ready\"} 2", "refused\"} 1", "invalid\"} 1", "missing\"} 0"] {
        world
            .has_metric(&format!("tidewaiter_registries{{state=\"{line}"))
            .await;
    }
    world
        .has_metric("tidewaiter_registry_token_expiry_timestamp_seconds 0")
        .await;

    // Another one of the name is reported, stays as it is, and delays nothing.
    world.event("default", "foreign", "ForeignObject").await;
    world.has_secret("foreign", "r-other", OTHER, "hunter2-b").await;
    assert_eq!(
        world.secret("foreign", "r-good").await.unwrap().type_.unwrap(),
        "Opaque"
    );
    assert!(world.secret("stuck", "r-good").await.is_none());

    put_right(&world).await;
    created_again_within_a_second(&world).await;
    let _process = quiet_after_a_restart(&world, process).await;
    removed_without_a_trace(&world).await;
}

/// A namespace whose deletion somebody's finalizer keeps from ending.
async fn stuck_in_terminating(world: &RegistryWorld, name: &str) {
    world.namespace(name).await;
    let finalizer = json!({"metadata": {"finalizers": ["example.com/keeps"]}});
    let namespaces = world.namespaces();
    namespaces
        .patch(name, &PatchParams::default(), &Patch::Merge(finalizer))
        .await
        .unwrap();
    namespaces.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Deleted, edited, taken out of the selection, detached: all is as before.
async fn put_right(world: &RegistryWorld) {
    let secrets = world.secrets("late");
    secrets.delete("r-good", &DeleteParams::default()).await.unwrap();
    world.has_secret("late", "r-good", GOOD, "hunter2-a").await;
    for edit in [
        json!({"data": {".dockerconfigjson": "e30="}}),
        json!({"metadata": {"labels": {"controller": "other"}}}),
        json!({"metadata": {"labels": {"controller": null}}}),
        json!({"metadata": {"labels": null}}),
    ] {
        secrets
            .patch("r-good", &PatchParams::default(), &Patch::Merge(edit))
            .await
            .unwrap();
        world.has_secret("late", "r-good", GOOD, "hunter2-a").await;
    }
    // The type of a Secret cannot be changed.
    let forged = json!({"metadata": {"name": "r-good", "labels": {"containership.io/managed": "true", "controller": "r-good"}}, "type": "Opaque"});
    let forged: Secret = serde_json::from_value(forged).unwrap();
    eventually("a forged Secret before the pull secret is back", SOON, async || {
        let _ = secrets.delete("r-good", &DeleteParams::default()).await;
        let created = secrets.create(&PostParams::default(), &forged).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;
    world.has_secret("late", "r-good", GOOD, "hunter2-a").await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.admin(), "late");
    let detached = json!({"imagePullSecrets": [{"name": "mine"}]});
    accounts
        .patch("containership", &PatchParams::default(), &Patch::Merge(detached))
        .await
        .unwrap();
    world
        .attached("late", "containership", &["mine", "r-good", "r-other"])
        .await;
    accounts
        .delete("containership", &DeleteParams::default())
        .await
        .unwrap();
    world.attached("late", "containership", &["r-good", "r-other"]).await;
}

async fn created_again_within_a_second(world: &RegistryWorld) {
    let namespaces: Api<Namespace> = world.namespaces();
    let uid = namespaces.get("late").await.unwrap().metadata.uid;
    namespaces.delete("late", &DeleteParams::default()).await.unwrap();
    eventually("the namespace to be created again", SOON, async || {
        let namespace = serde_json::from_value(json!({"metadata": {"name": "late"}})).unwrap();
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(|error| error.to_string())
    })
    .await;
    assert_ne!(namespaces.get("late").await.unwrap().metadata.uid, uid);
    world.attached("late", "default", &["r-good", "r-other"]).await;
    world.has_secret("late", "r-good", GOOD, "hunter2-a").await;
    world.attached("late", "containership", &["r-good", "r-other"]).await;
}

/// Neither a second pass nor another process writes what is there.
async fn quiet_after_a_restart(world: &RegistryWorld, process: Process) -> Process {
    let settings = [("TIDEWAITER_REGISTRIES__PULL_SECRET_SERVICE_ACCOUNTS", "[default]")];
    quiet_after_a_start(world, process, &settings).await
}

/// The same with these settings, with which the process ran.
async fn quiet_after_a_start(world: &RegistryWorld, process: Process, settings: &[(&str, &str)]) -> Process {
    process.stop(SOON).await;
    let mark = world.cluster.audit_mark().await;
    let process = world.coordinator(settings);
    world.namespace("last").await;
    eventually("the pull secrets in last", SOON, async || {
        let accounts: Api<ServiceAccount> = Api::namespaced(world.admin(), "last");
        let account = accounts.get("containership").await.map_err(|error| error.to_string())?;
        let entries = account.image_pull_secrets.unwrap_or_default();
        for entry in &entries {
            world
                .secret("last", &entry.name)
                .await
                .ok_or_else(|| entry.name.clone())?;
        }
        if entries.is_empty() {
            Err("none".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    throughout("nothing else to be written", Duration::from_secs(3), async || {
        let mut writes = world.written_since(mark).await;
        // The service account of a foreign name is tried again.
        writes.retain(|write| {
            !write.contains(" last") && !write.starts_with("create events") && write != "create secrets foreign"
        });
        if writes.is_empty() {
            Ok(())
        } else {
            Err(format!("{writes:?}"))
        }
    })
    .await;
    process
}

async fn removed_without_a_trace(world: &RegistryWorld) {
    world.unregister("r-good").await;
    for namespace in ["default", "kube-system", "containership-core", "admins", "late"] {
        world.gone(namespace, "r-good").await;
        world.attached(namespace, "containership", &["r-other"]).await;
    }
    world.attached("admins", "default", &["admins-own", "r-other"]).await;
    assert!(
        world.secret("foreign", "r-good").await.is_some(),
        "somebody else's stays"
    );
    world.has_secret("late", "r-other", OTHER, "hunter2-b").await;
}

/// While the coordinator was away: no cache shows a Secret without its labels, and the registry names it no more.
#[tokio::test]
async fn what_lost_its_label_is_taken_up_or_goes_with_its_registry() {
    let world = RegistryWorld::start(false).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registries.accept(OTHER, &["u:hunter2-b"]);
    world.registry("r-good", GOOD, "u", "hunter2-a").await;
    world.registry("r-other", OTHER, "u", "hunter2-b").await;
    let strips = [
        ("a-refuses", json!(null)),
        ("both", json!(null)),
        ("managed", json!({"containership.io/managed": null})),
        ("changed", json!({"containership.io/managed": "false"})),
        ("id", json!({"controller": null})),
    ];
    for (namespace, _) in &strips {
        world.namespace(namespace).await;
    }
    let process = world.coordinator(&[]);
    for (namespace, _) in &strips {
        world.attached(namespace, "containership", &["r-good", "r-other"]).await;
        world.has_secret(namespace, "r-good", GOOD, "hunter2-a").await;
        world.has_secret(namespace, "r-other", OTHER, "hunter2-b").await;
    }
    process.stop(SOON).await;
    let patch = PatchParams::default();
    for (namespace, labels) in &strips {
        let strip = Patch::Merge(json!({"metadata": {"labels": labels}}));
        for id in ["r-good", "r-other"] {
            world.secrets(namespace).patch(id, &patch, &strip).await.unwrap();
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(world.admin(), namespace);
        let strip = Patch::Merge(json!({"metadata": {"labels": null}}));
        accounts.patch("containership", &patch, &strip).await.unwrap();
    }
    // A person's own, of the same type.
    let own = json!({"metadata": {"name": "r-good"}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": "{\"auths\": {}}"}});
    world.namespace("persons").await;
    let own = serde_json::from_value(own).unwrap();
    let persons = world.secrets("persons");
    persons.create(&PostParams::default(), &own).await.unwrap();
    refuse(&world, "DELETE", "a-refuses").await;
    world.unregister("r-good").await;

    let _process = world.coordinator(&[]);
    for (namespace, _) in &strips[1..] {
        world.gone(namespace, "r-good").await;
        world.has_secret(namespace, "r-other", OTHER, "hunter2-b").await;
        world.attached(namespace, "containership", &["r-other"]).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(world.admin(), namespace);
        let labels = accounts.get("containership").await.unwrap().metadata.labels.unwrap();
        assert_eq!(labels["containership.io/managed"], "true", "{namespace}");
    }
    assert!(world.secret("persons", "r-good").await.is_some(), "it is not ours");
}

#[tokio::test]
async fn a_first_sync_creates_each_account_with_its_pull_secrets() {
    let world = RegistryWorld::start(false).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registries.accept(OTHER, &["u:hunter2-b"]);
    world.registry("r-good", GOOD, "u", "hunter2-a").await;
    world.registry("r-other", OTHER, "u", "hunter2-b").await;
    for nth in 0..20 {
        world.namespace(&format!("first-{nth}")).await;
    }
    let mark = world.cluster.audit_mark().await;
    let process = world.coordinator(&[]);
    for nth in 0..20 {
        let namespace = format!("first-{nth}");
        world
            .attached(&namespace, "containership", &["r-good", "r-other"])
            .await;
    }
    process.stop(SOON).await;
    let mut writes = world.written_since(mark).await;
    writes.retain(|write| write.starts_with("patch serviceaccounts"));
    assert_eq!(writes, [""; 0]);
}

/// One that has no answer to its credential yet.
#[tokio::test]
async fn a_silent_registry_does_not_keep_accounts_away() {
    let world = RegistryWorld::start(false).await;
    world.registries.silence(SILENT);
    world.registry("r-silent", SILENT, "u", "hunter2-s").await;
    let process = world.coordinator(&[]);
    world.attached("default", "containership", &[]).await;
    process.stop(SOON).await;
}

#[tokio::test]
async fn a_credential_is_replaced_by_one_that_works_and_by_no_other() {
    let world = RegistryWorld::start(false).await;
    world.registries.accept(GOOD, &["u:hunter2-a", "u:hunter2-b"]);
    world.registries.silence(SILENT);
    world.namespace("team").await;
    // The Secret of the Go coordinator: the same name and labels, a content of its own, and its account.
    let go = json!({"metadata": {"name": "r", "labels": {"containership.io/managed": "true", "controller": "r"}},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{\"auths\":{}}"}});
    let go: Secret = serde_json::from_value(go).unwrap();
    let go = world.secrets("team").create(&PostParams::default(), &go).await.unwrap();
    let account = json!({"metadata": {"name": "containership", "labels": {"containership.io/managed": "true"}},
        "imagePullSecrets": [{"name": "r"}]});
    let accounts: Api<ServiceAccount> = Api::namespaced(world.admin(), "team");
    accounts
        .create(&PostParams::default(), &serde_json::from_value(account).unwrap())
        .await
        .unwrap();
    world.registry("r", GOOD, "u", "hunter2-a").await;
    world.registry("silent", SILENT, "u", "hunter2-s").await;
    let process = world.coordinator(&[]);
    let mark = world.cluster.audit_mark().await;
    world.has_secret("team", "r", GOOD, "hunter2-a").await;

    world.registry("r", GOOD, "u", "hunter2-b").await;
    for namespace in ["team", "default", "containership-core"] {
        world.has_secret(namespace, "r", GOOD, "hunter2-b").await;
    }
    // A new one is made after the change, so nobody missed it.
    world.registry("r", GOOD, "u", "hunter2-refused").await;
    world.event("containership-core", "r", "CredentialRefused").await;
    world.registry("r", SILENT, "u", "hunter2-b").await;
    world.event("containership-core", "r", "CredentialUnchecked").await;
    world.namespace("newer").await;
    world.has_secret("newer", "r", GOOD, "hunter2-b").await;
    process.stop(SOON).await;
    let _process = world.coordinator(&[]);
    world.namespace("newest").await;
    world.has_secret("newest", "r", GOOD, "hunter2-b").await;
    world.has_secret("team", "r", GOOD, "hunter2-b").await;

    // There was never a moment without it.
    let same = world.secret("team", "r").await.unwrap();
    assert_eq!(same.metadata.uid, go.metadata.uid);
    let deleted = world
        .cluster
        .audit()
        .await
        .since(mark)
        .by(&super::coordinator())
        .verb("delete");
    assert_eq!(deleted.count(), 0);
    // It could not be tried, and there was none before: the nodes may reach what we do not.
    world.has_secret("team", "silent", SILENT, "hunter2-s").await;
    world.event("containership-core", "silent", "CredentialUnchecked").await;
    world.attached("team", "containership", &["r", "silent"]).await;
}

/// An attacker with the permission to write Registries, and no other.
#[tokio::test]
async fn a_registry_directs_no_credential_to_another_host() {
    let world = RegistryWorld::start(false).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registries.accept("evil.registries.test", &[]);
    world.registry("r", GOOD, "u", "hunter2-a").await;
    let process = world.coordinator(&[]);
    world.has_secret("default", "r", GOOD, "hunter2-a").await;
    let evil = json!({"serveraddress": "evil.registries.test", "provider": "private",
        "credentials": {"username": "u", "password": "hunter2-e"}});
    world.registry_object("r", &evil).await;
    world.registry_object("thief", &evil).await;
    // Not even one that names another one's Secret.
    world.registry_object("registry-r", &evil).await;
    world.event("containership-core", "thief", "CredentialMissing").await;
    world
        .event("containership-core", "registry-r", "CredentialMissing")
        .await;
    world.namespace("late").await;
    world.has_secret("late", "r", GOOD, "hunter2-a").await;
    assert!(!world.registries.contacted().iter().any(|host| host.starts_with("evil")));
    assert!(world.secret("late", "thief").await.is_none() && world.secret("late", "registry-r").await.is_none());
    process.stop(SOON).await;

    // In the mode `inline` the Registry decides, and no Secret is read.
    world.unregister("r").await;
    world
        .registry_object(
            "r",
            &json!({"serveraddress": GOOD, "provider": "quay",
        "credentials": {"username": "u", "password": "hunter2-a"}}),
        )
        .await;
    let _process = world.coordinator(&[("TIDEWAITER_REGISTRIES__REGISTRY_CREDENTIALS", "inline")]);
    world.namespace("inline").await;
    world.has_secret("inline", "r", GOOD, "hunter2-a").await;
    world.event("containership-core", "thief", "CredentialRefused").await;
}

/// From now on, the API server refuses to create or to delete Secrets in the namespace.
async fn refuse(world: &RegistryWorld, operation: &str, namespace: &str) {
    let policy = format!(
        r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: no-secrets}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{{apiGroups: [""], apiVersions: [v1], operations: [{operation}], resources: [secrets]}}]
  validations: [{{expression: "request.namespace != '{namespace}'", message: "no Secrets here"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: no-secrets}}
spec: {{policyName: no-secrets, validationActions: [Deny]}}
"#
    );
    world.cluster.apply(&policy).await;
    // A policy takes effect some time after it was created.
    let secrets = world.secrets(namespace);
    let probe: Secret = serde_json::from_value(json!({"metadata": {"name": "probe"}})).unwrap();
    if operation == "DELETE" {
        secrets.create(&PostParams::default(), &probe).await.unwrap();
    }
    eventually("the policy to deny", SOON, async || {
        let tried = match operation {
            "DELETE" => secrets
                .delete("probe", &DeleteParams::default().dry_run())
                .await
                .map(|_| ()),
            _ => secrets
                .create(
                    &PostParams {
                        dry_run: true,
                        ..PostParams::default()
                    },
                    &probe,
                )
                .await
                .map(|_| ()),
        };
        match tried {
            Err(error) if error.to_string().contains("no Secrets here") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_namespace_that_refuses_delays_no_other() {
    let world = RegistryWorld::start(false).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registry("r", GOOD, "u", "hunter2-a").await;
    world.namespace("refusing").await;
    refuse(&world, "CREATE", "refusing").await;
    let mark = world.cluster.audit_mark().await;
    let _process = world.coordinator(&[]);
    world.event("default", "refusing", "WriteRejected").await;
    for number in 0..20 {
        let name = format!("team-{number}");
        world.namespace(&name).await;
        world.has_secret(&name, "r", GOOD, "hunter2-a").await;
    }
    let writes = world.written_since(mark).await;
    let tried = writes
        .iter()
        .filter(|write| *write == "create secrets refusing")
        .count();
    // With every other namespace, it would be 20. The backoff permits more of them the longer this takes.
    assert!(
        (1..=10).contains(&tried),
        "{tried} attempts in a namespace that refuses"
    );
    // The other things in it are done.
    world.attached("refusing", "containership", &["r"]).await;
}

#[tokio::test]
async fn tokens_of_ecr_are_renewed_and_the_old_one_stays_while_it_fails() {
    let world = RegistryWorld::start(false).await;
    world.registries.ecr(None);
    let key = json!({"access_key_id": "AKID", "secret_access_key": "hunter2-aws", "region": "us-east-1"});
    world.stored("r", "amazon_ec2_registry", "", &key).await;
    let process = world.coordinator(&[]);
    world.event("containership-core", "r", "TokenNotRenewed").await;
    assert!(world.secret("default", "r").await.is_none());

    // Half of its life is 20 s, ±10 %.
    world.registries.ecr(Some(40));
    world.has_token("default", "ecr-token-0").await;
    world.has_token("default", "ecr-token-1").await;
    world.registries.ecr(None);
    let calls = world.registries.ecr_calls();
    eventually("another renewal", SOON, async || {
        let asked = world.registries.ecr_calls();
        if asked > calls { Ok(()) } else { Err(asked) }
    })
    .await;
    let last = world.registries.tokens().pop().unwrap();
    world.namespace("late").await;
    world.has_token("late", &last).await;

    world.has_metric("tidewaiter_registries{state=\"no_token\"} 1").await;

    // A restart asks for no token and writes nothing while the token is good.
    let long = format!("ecr-token-{}", world.registries.tokens().len());
    world.registries.ecr(Some(7_200));
    world.has_token("late", &long).await;
    process.stop(SOON).await;
    let (mark, calls) = (world.cluster.audit_mark().await, world.registries.ecr_calls());
    let _process = world.coordinator(&[]);
    world.namespace("last").await;
    world.has_token("last", &long).await;
    assert_eq!(world.registries.ecr_calls(), calls);
    let mut writes = world.written_since(mark).await;
    writes.retain(|write| !write.contains(" last"));
    assert!(writes.is_empty(), "{writes:?}");

    // With another key there is another token at once.
    let key = json!({"access_key_id": "AKID", "secret_access_key": "hunter2-new", "region": "us-east-1"});
    let next = format!("ecr-token-{}", world.registries.tokens().len());
    world.stored("r", "amazon_ec2_registry", "", &key).await;
    world.has_token("last", &next).await;
}

/// moto is what others think that ECR is.
#[tokio::test]
async fn a_token_comes_from_moto() {
    let (world, moto) = (RegistryWorld::start(false).await, Moto::start().await);
    let key = json!({"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "hunter2-aws"});
    world.stored("r", "amazon_ec2_registry", "", &key).await;
    let _process = world.coordinator(&[("AWS_ENDPOINT_URL_ECR", moto.endpoint())]);
    eventually("the pull secret", SOON, async || {
        let secret = world.secret("default", "r").await.ok_or("none")?;
        let expected = auth("AWS", "123456789012-auth-token");
        let config = world::config(&secret);
        let entry = &config["auths"]["https://123456789012.dkr.ecr.us-east-1.amazonaws.com"];
        if entry["auth"] == expected {
            Ok(())
        } else {
            Err("another content")
        }
    })
    .await;
    let client = world.cluster.client(&Identity::Admin);
    let all: Api<Secret> = Api::all(client);
    assert!(all.list(&ListParams::default()).await.unwrap().items.len() >= 4);
}

#[tokio::test]
async fn a_key_of_aws_that_has_expired_takes_no_token_away() {
    let world = RegistryWorld::start(false).await;
    // Renewed after 10 s, and expired after 20 s.
    world.registries.ecr(Some(20));
    let key = json!({"access_key_id": "AKID", "secret_access_key": "hunter2-aws", "region": "us-east-1",
        "session_token": "hunter2-session"});
    world.stored("r", "amazon_ec2_registry", "", &key).await;
    let _process = world.coordinator(&[]);
    world.has_token("default", "ecr-token-0").await;
    world.registries.ecr_refuses(
        "ExpiredTokenException",
        "The security token AKID hunter2-aws included in the request is expired",
    );
    let note = world.event("containership-core", "r", "TokenNotRenewed").await;
    assert!(
        note.contains("ECR refuses the key (ExpiredTokenException)") && note.contains("stays"),
        "{note}"
    );
    world.has_metric("tidewaiter_registries{state=\"no_token\"} 1").await;
    let last = world.registries.tokens().pop().unwrap();
    world.namespace("late").await;
    world.has_token("late", &last).await;
    world.attached("late", "containership", &["r"]).await;

    let known = world.registries.tokens().len();
    world.registries.ecr(Some(7_200));
    let key = json!({"access_key_id": "AKID", "secret_access_key": "hunter2-new", "region": "us-east-1"});
    world.stored("r", "amazon_ec2_registry", "", &key).await;
    eventually("a new token", SOON, async || {
        let tokens = world.registries.tokens().len();
        if tokens > known { Ok(()) } else { Err(tokens) }
    })
    .await;
    // The old key may have got one before the new key did.
    let still = Duration::from_secs(2);
    let tokens = settled("the tokens", still, SOON, async || world.registries.tokens()).await;
    for namespace in ["default", "late"] {
        world.has_token(namespace, tokens.last().unwrap()).await;
    }
}

#[tokio::test]
async fn a_hostile_address_is_never_contacted_and_harms_no_other() {
    const PORT: &str = "good.registries.test:8443";
    let world = RegistryWorld::start(false).await;
    let hostile = [
        "../",
        "../../kube-system",
        "good.registries.test/../../x",
        "good.registries.test\nevil.registries.test",
        "good.registries.test\r\nHost: evil.registries.test",
        "kube-system",
        "localhost:5000",
        "127.0.0.1",
        "[::1]:5000",
        "[::ffff:127.0.0.1]:5000",
        "[fe80::1]",
        "169.254.169.254",
        "0x7f000001",
        "u:hunter2-userinfo@evil.registries.test",
        "https://hunter2-userinfo@evil.registries.test/",
        "evil.registries.test:99999",
        "evil.registries.test?good.registries.test",
        "ftp://evil.registries.test",
        "\u{202e}evil.registries.test",
        &format!("{}evil.registries.test", "x.".repeat(400)),
    ];
    tidewaiter_testkit::leaks::secret("hunter2-userinfo");
    world.registries.accept(PORT, &["u:hunter2-port"]);
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    let ids: Vec<String> = (0..hostile.len()).map(|number| format!("hostile-{number}")).collect();
    for (id, address) in ids.iter().zip(hostile) {
        let credentials = json!({"username": "u", "password": "hunter2-hostile"});
        world.credentials(id, "private", address, &credentials).await;
        world.registry_object(id, &json!({"provider": "private"})).await;
    }
    world.registry("r", GOOD, "u", "hunter2-a").await;
    world.registry("port", PORT, "u", "hunter2-port").await;
    let _process = world.coordinator(&[]);
    world.has_secret("default", "r", GOOD, "hunter2-a").await;
    world.has_secret("default", "port", PORT, "hunter2-port").await;
    world.attached("default", "containership", &["port", "r"]).await;
    for (id, address) in ids.iter().zip(hostile) {
        let note = world.event("containership-core", id, "CredentialInvalid").await;
        assert!(
            note.starts_with(&format!("Registry {id}: serveraddress is ")),
            "{address:?}: {note}"
        );
        assert!(!note.contains(['\n', '\r', '\u{202e}']), "{address:?}: {note}");
        for namespace in ["default", "containership-core"] {
            assert!(world.secret(namespace, id).await.is_none(), "{address:?}");
        }
    }
    let contacted = world.registries.contacted();
    let own = ["good.registries.test", "auth.registries.test"];
    assert!(
        contacted.iter().all(|host| own.contains(&host.as_str())),
        "{contacted:?}"
    );
}

#[tokio::test]
async fn entries_go_from_an_account_that_the_settings_do_not_name_any_more() {
    const ACCOUNTS: &str = "TIDEWAITER_REGISTRIES__PULL_SECRET_SERVICE_ACCOUNTS";
    let world = RegistryWorld::start(false).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registry("r", GOOD, "u", "hunter2-a").await;
    world.namespace("team").await;
    for namespace in ["default", "team"] {
        world.entries_of_admin(namespace, "default", "admins-own").await;
    }
    // The entry of an admin for the very same pull secret, without our annotation.
    world.entries_of_admin("team", "builder", "r").await;
    let process = world.coordinator(&[(ACCOUNTS, "[default]")]);
    for namespace in ["default", "team"] {
        world.attached(namespace, "default", &["admins-own", "r"]).await;
    }
    process.stop(SOON).await;

    let process = world.coordinator(&[]);
    for namespace in ["default", "team"] {
        world.attached(namespace, "default", &["admins-own"]).await;
        world.attached(namespace, "containership", &["r"]).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(world.admin(), namespace);
        let annotations = accounts.get("default").await.unwrap().metadata.annotations;
        assert_eq!(annotations, None, "{namespace}");
    }
    world.attached("team", "builder", &["r"]).await;
    let process = quiet_after_a_start(&world, process, &[]).await;

    // Back in the settings, it has them again.
    process.stop(SOON).await;
    let _process = world.coordinator(&[(ACCOUNTS, "[default]")]);
    world.attached("team", "default", &["admins-own", "r"]).await;
}
