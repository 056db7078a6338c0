//! Attacks on the coordinator by a user who may only write Registries, by a server that is not the cloud, and with the
//! API key of another cluster. A kubelet that labels itself into another node pool:
//! `crates/coordinator/tests/labels/attacker.rs`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::CloudSync;
use tidewaiter_api::containership::{ClusterLabel, Registry, User};
use tidewaiter_testkit::{FakeRegistries, Identity, eventually, leaks, throughout};

use crate::cloud::{self, Cloud};
use crate::registries::GOOD;
use crate::registries::world::{RegistryWorld, config};
use crate::{SOON, World, settings, write};

const CORE: &str = "containership-core";
const EVIL: &str = "evil.registries.test";

/// A user with all verbs on Registries, and no other permission.
const WRITER: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: registry-writer, namespace: containership-core}
rules: [{apiGroups: [containership.io], resources: [registries], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: registry-writer, namespace: containership-core}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: registry-writer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]
"#;

#[tokio::test]
async fn a_writer_of_registries_gets_no_secret_and_directs_no_credential() {
    let world = RegistryWorld::start(false).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registries.accept(EVIL, &["u:hunter2-a", "u:hunter2-e"]);
    world.registry("r", GOOD, "u", "hunter2-a").await;
    world.namespace("victim").await;
    // A Secret of somebody else, and one of the coordinator's own, which have names that a Registry can have.
    for (namespace, name) in [("victim", "payroll"), (CORE, "tidewaiter-coordinator-cloud")] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"password": leaks::secret("hunter2-payroll")}});
        let params = PatchParams::apply("a-person");
        let applied = world
            .secrets(namespace)
            .patch(name, &params, &Patch::Apply(secret))
            .await;
        applied.unwrap();
    }
    world.cluster.apply(WRITER).await;
    let _process = world.coordinator(&[]);
    world.has_secret("victim", "r", GOOD, "hunter2-a").await;

    let mallory = world.cluster.client(&Identity::user("mallory", &[]));
    let registries: Api<Registry> = Api::namespaced(mallory.clone(), CORE);
    let edits = [
        json!({"serveraddress": EVIL}),
        json!({"serveraddress": format!("https://{EVIL}/"), "provider": "quay"}),
        json!({"organization_id": "99999999-9999-4999-8999-999999999999", "serveraddress": EVIL}),
        json!({"serveraddress": EVIL, "provider": "amazon_ec2_registry", "credentials": {"access_key_id": "x", "secret_access_key": "y"}}),
        json!({"serveraddress": EVIL, "credentials": {"username": "u", "password": leaks::secret("hunter2-e")}}),
    ];
    for edit in &edits {
        let patch = Patch::Merge(json!({ "spec": edit }));
        registries.patch("r", &PatchParams::default(), &patch).await.unwrap();
    }
    for name in [
        "thief",
        "registry-r",
        "payroll",
        "tidewaiter-coordinator-cloud",
        "containership",
    ] {
        let mut spec = edits[4].clone();
        spec["id"] = json!(name);
        let registry = json!({"apiVersion": "containership.io/v3", "kind": "Registry", "metadata": {"name": name,
            "labels": {"tidewaiter.dev/registry": "r", "containership.io/managed": "true", "controller": "r"}}, "spec": spec});
        let params = PatchParams::apply("mallory");
        registries.patch(name, &params, &Patch::Apply(registry)).await.unwrap();
        world.event(CORE, name, "CredentialMissing").await;
    }
    // The user gets nothing by such objects: no host was contacted, and no pull secret made or changed.
    world.namespace("late").await;
    world.has_secret("late", "r", GOOD, "hunter2-a").await;
    assert!(!world.registries.contacted().iter().any(|host| host == EVIL));
    for secret in Api::<Secret>::all(world.admin())
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        let (meta, auths) = (&secret.metadata, &config(&secret)["auths"]);
        let name = meta.name.as_deref().unwrap();
        assert!(auths.is_null() || (name == "r" && auths.get(EVIL).is_none()), "{name}");
    }
    // Deleting those that have the name of somebody else's Secret deletes nothing of theirs.
    for name in [
        "thief",
        "registry-r",
        "payroll",
        "tidewaiter-coordinator-cloud",
        "containership",
    ] {
        registries.delete(name, &DeleteParams::default()).await.unwrap();
    }
    throughout("the Secrets of others to stay", Duration::from_secs(2), async || {
        for (namespace, name) in [
            ("victim", "payroll"),
            (CORE, "tidewaiter-coordinator-cloud"),
            (CORE, "registry-r"),
            ("victim", "r"),
        ] {
            world.secret(namespace, name).await.ok_or(name)?;
        }
        Ok::<_, &str>(())
    })
    .await;
    // Nor does the API server show the user any.
    for namespace in ["victim", "default", CORE] {
        let secrets: Api<Secret> = Api::namespaced(mallory.clone(), namespace);
        for name in ["r", "payroll", "registry-r"] {
            assert!(secrets.get(name).await.is_err(), "{namespace}/{name}");
        }
    }
}

impl World {
    /// Waits until the mirror says that it cannot use the list of this kind.
    async fn cannot_list(&self, kind: &str) {
        let syncs: Api<CloudSync> = Api::all(self.cluster.client(&Identity::Admin));
        eventually("CloudSync to report the cloud", SOON, async || {
            let sync = syncs.get("cloud").await.map_err(|error| error.to_string())?;
            let synced = sync.condition("Synced").ok_or("no condition")?;
            if synced.reason == "ListFailed" && synced.message.contains(kind) {
                Ok(())
            } else {
                Err(format!("{}: {}", synced.reason, synced.message))
            }
        })
        .await;
    }

    async fn cluster_labels(&self) -> Vec<String> {
        let labels: Api<ClusterLabel> = Api::namespaced(self.cluster.client(&Identity::Admin), CORE);
        let labels = labels.list(&ListParams::default()).await.unwrap();
        labels.into_iter().map(|label| label.spec.value.to_string()).collect()
    }
}

#[tokio::test]
async fn a_server_without_the_certificate_of_the_cloud_gets_no_request() {
    let world = World::start().await;
    // It answers, as far as TCP goes, at the address of the cloud, and has a certificate for its name: of another
    // authority.
    let imposter = FakeRegistries::start().await;
    let made = rcgen::generate_simple_self_signed(["cloud.registries.test".to_owned()]).unwrap();
    let authority = world.scratch.path().join("cloud-ca.crt");
    write(&authority, &made.cert.pem());
    let variables = |ca: Option<String>| {
        let mut variables = settings::away();
        variables.retain(|(name, _)| *name != "CONTAINERSHIP_CLOUD_API_BASE_URL");
        variables.push((
            "CONTAINERSHIP_CLOUD_API_BASE_URL",
            "https://cloud.registries.test".to_owned(),
        ));
        let own = imposter.environment().into_iter();
        variables.extend(own.filter(|(name, _)| *name == "HTTPS_PROXY" || (ca.is_none() && *name == "SSL_CERT_FILE")));
        variables.extend(ca.map(|ca| ("CONTAINERSHIP_CLOUD_CA_FILE", ca)));
        variables
    };
    let replica = world.replica(&variables(Some(authority.display().to_string())), None);
    // More than once for each list.
    eventually("it to be tried", SOON, async || {
        let tried = imposter.contacted();
        let tried = tried.iter().filter(|host| *host == "cloud.registries.test").count();
        if tried > 25 { Ok(()) } else { Err(tried) }
    })
    .await;
    assert_eq!(imposter.seen(), [""; 0], "the API key was sent");
    replica.process.stop(SOON).await;

    // Were its authority trusted, it would be asked: so the check above sees what it is to see.
    let _replica = world.replica(&variables(None), None);
    eventually("a request", SOON, async || {
        if imposter.seen().is_empty() {
            Err("none")
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn the_api_key_of_another_cluster_reads_nothing_of_this_one() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let label = |value: &str| json!({"key": "cluster.containership.io/env", "value": value});
    cloud.post("^/labels", label("ours")).await;
    let beside = cloud.post("~/clusters", json!({"name": "beside"})).await;
    let id = beside["id"].as_str().unwrap();
    cloud.post(&format!("~/clusters/{id}/labels"), label("theirs")).await;
    let other = cloud.other_organization().await;
    let path = format!("/v3/organizations/{other}/clusters");
    let foreign = cloud.post(&path, json!({"name": "foreign"})).await;
    let run_with = |made: &Value| {
        let mut variables = cloud.variables();
        variables.retain(|(name, _)| *name != "CONTAINERSHIP_CLOUD_CLUSTER_API_KEY");
        variables.push(("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", cloud::key(made)));
        world.replica(&variables, None)
    };
    for (name, made) in [
        ("of the same organization", &beside),
        ("of another organization", &foreign),
    ] {
        let replica = run_with(made);
        world.cannot_list("ClusterLabel").await;
        throughout("nothing to be mirrored", Duration::from_secs(2), async || {
            let labels = world.cluster_labels().await;
            if labels.is_empty() {
                Ok(())
            } else {
                Err(format!("{labels:?}"))
            }
        })
        .await;
        let users: Api<User> = Api::namespaced(world.cluster.client(&Identity::Admin), CORE);
        assert_eq!(
            users.list(&ListParams::default()).await.unwrap().items.len(),
            0,
            "{name}"
        );
        replica.process.stop(SOON).await;
        let syncs: Api<CloudSync> = Api::all(world.cluster.client(&Identity::Admin));
        syncs.delete("cloud", &DeleteParams::default()).await.unwrap();
    }
    // With its own key, it is as the cloud says.
    let _replica = world.coordinator_of(&cloud);
    eventually("the label", SOON, async || {
        let labels = world.cluster_labels().await;
        if labels == ["ours"] {
            Ok(())
        } else {
            Err(format!("{labels:?}"))
        }
    })
    .await;
}
