//! Children of the cloud's objects stay when their copies in the cluster vanish.

use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::{ClusterLabel, Registry};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{AuditMark, Identity, Kubelet, eventually, free_port, throughout};

use crate::cloud::Cloud;
use crate::{Replica, SOON, World, coordinator, deploy, unshared};

const LABEL: &str = "cluster.containership.io/team";
const QUIET: std::time::Duration = std::time::Duration::from_secs(5);

/// The process ends before its world.
struct Setting {
    replica: Replica,
    world: World,
    cloud: Cloud,
    health: String,
    registry: String,
}

/// A cluster with a Node, whose cloud has a registry and a label.
async fn setting() -> Setting {
    let (world, cloud) = (World::on(unshared().await), Cloud::start().await);
    let registry = json!({"description": "ours", "provider": "private", "serveraddress": "registry.example.org",
        "credentials": {"username": "u", "password": "hunter2"}});
    let registry = cloud.post("~/registries", registry).await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    cloud.post("^/labels", json!({"key": LABEL, "value": "core"})).await;
    Kubelet::register(&world.cluster, &node("a").build()).await;
    let health = format!("127.0.0.1:{}", free_port());
    let mut variables = cloud.variables();
    variables.push(("TIDEWAITER_HEALTH_ADDRESS", health.clone()));
    variables.push(("TIDEWAITER_REGISTRIES__VERIFY_CREDENTIALS", "false".to_owned()));
    let replica = world.replica(&variables, None);
    let setting = Setting {
        replica,
        world,
        cloud,
        health,
        registry,
    };
    setting.has_all().await;
    setting
}

impl Setting {
    /// The uid of the pull secret, the attached pull secrets and the label of the Node.
    async fn effects(&self) -> Result<(String, Vec<String>, String), String> {
        let client = self.world.cluster.client(&Identity::Admin);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let nodes: Api<Node> = Api::all(client);
        let secret = secrets.get(&self.registry).await.map_err(|error| error.to_string())?;
        let account = accounts.get("containership").await.map_err(|error| error.to_string())?;
        let entries = account.image_pull_secrets.into_iter().flatten();
        let node = nodes.get("a").await.unwrap();
        let label = node.metadata.labels.unwrap_or_default().remove(LABEL);
        Ok((
            secret.metadata.uid.unwrap(),
            entries.map(|entry| entry.name).collect(),
            label.ok_or("the Node has no label")?,
        ))
    }

    async fn has_all(&self) -> (String, Vec<String>, String) {
        eventually("the pull secret, the entry and the label", SOON, async || {
            let found = self.effects().await?;
            let complete = found.1 == [self.registry.clone()] && found.2 == "core";
            if complete { Ok(found) } else { Err(format!("{found:?}")) }
        })
        .await
    }

    /// The readiness, and what it says.
    async fn ready(&self) -> Result<(bool, String), String> {
        let url = format!("http://{}/readyz", self.health);
        let answer = self
            .world
            .http
            .get(url)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        let is_ready = answer.status() == 200;
        Ok((is_ready, answer.text().await.unwrap()))
    }

    /// Nothing of it changes.
    async fn keeps(&self, before: &(String, Vec<String>, String)) {
        throughout("what was made of the cloud's objects", QUIET, async || {
            let found = self.effects().await?;
            if found == *before {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// The writes to what was made of the cloud's objects.
    async fn writes(&self, mark: AuditMark) -> Vec<String> {
        let writes = self.world.cluster.audit().await.since(mark).by(&coordinator()).writes();
        let writes = writes.iter().map(|entry| (entry.verb.as_str(), &entry.object_ref));
        let made = writes.filter(|(_, object)| {
            ["nodes", "serviceaccounts"].contains(&object.resource.as_str())
                || (object.resource == "secrets" && object.name == self.registry)
        });
        made.map(|(verb, object)| format!("{verb} {} {}", object.resource, object.name))
            .collect()
    }
}

#[tokio::test]
async fn without_their_definitions_nothing_goes_that_was_made_of_them() {
    let setting = setting().await;
    let before = setting.has_all().await;
    let mark = setting.world.cluster.audit_mark().await;
    let client = setting.world.cluster.client(&Identity::Admin);
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in ["registries.containership.io", "clusterlabels.containership.io"] {
        definitions.delete(name, &DeleteParams::default()).await.unwrap();
    }
    // The caches of the controllers show that there are none.
    for name in ["registries", "clusterlabels"] {
        eventually(format!("/readyz to name {name}"), SOON, async || {
            let (is_ready, text) = setting.ready().await?;
            let named = text.contains(&format!("does not know {name} "));
            if named && !is_ready { Ok(()) } else { Err(text) }
        })
        .await;
    }
    setting.keeps(&before).await;
    // A new namespace gets what there is.
    setting.world.namespace("late").await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "late");
    eventually("a pull secret in a new namespace", SOON, async || {
        secrets.get(&setting.registry).await.map(drop)
    })
    .await;

    setting
        .world
        .cluster
        .apply_manifests(deploy().join("../crds/coordinator"))
        .await;
    let registries: Api<Registry> = Api::namespaced(client.clone(), "containership-core");
    let labels: Api<ClusterLabel> = Api::namespaced(client, "containership-core");
    eventually("the objects again", SOON, async || {
        registries
            .get(&setting.registry)
            .await
            .map_err(|error| error.to_string())?;
        let labels = labels
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        if labels.items.len() == 1 {
            Ok(())
        } else {
            Err("no label".to_owned())
        }
    })
    .await;
    eventually("the replica to be ready", SOON, async || {
        let (is_ready, text) = setting.ready().await?;
        if is_ready { Ok(()) } else { Err(text) }
    })
    .await;
    setting.keeps(&before).await;
    let mut writes = setting.writes(mark).await;
    // Those of the new namespace.
    writes.retain(|write| !write.starts_with("create "));
    assert!(writes.is_empty(), "{writes:?}");

    // An object that the cloud removes goes.
    let path = format!("~/registries/{}", setting.registry);
    let removed = setting
        .cloud
        .send(&setting.cloud.owner, http::Method::DELETE, &path, Value::Null)
        .await;
    assert!(removed.0 < 300, "{removed:?}");
    eventually("the pull secret to be gone", SOON, async || {
        match secrets.get_opt(&setting.registry).await.unwrap() {
            None => Ok(()),
            Some(_) => Err("it is there"),
        }
    })
    .await;
    assert!(setting.replica.process.is_running());
}

#[tokio::test]
async fn a_person_who_deletes_the_copies_changes_nothing() {
    let setting = setting().await;
    let before = setting.has_all().await;
    let mark = setting.world.cluster.audit_mark().await;
    let client = setting.world.cluster.client(&Identity::Admin);
    let registries: Api<Registry> = Api::namespaced(client.clone(), "containership-core");
    let labels: Api<ClusterLabel> = Api::namespaced(client, "containership-core");
    let uid = registries.get(&setting.registry).await.unwrap().metadata.uid;
    // Kept by a finalizer for a while, and then gone.
    let finalizers = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let name = labels
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0)
        .metadata
        .name
        .unwrap();
    let params = PatchParams::default();
    labels
        .patch(&name, &params, &finalizers(json!(["example.com/x"])))
        .await
        .unwrap();
    labels.delete(&name, &DeleteParams::default()).await.unwrap();
    registries
        .delete(&setting.registry, &DeleteParams::default())
        .await
        .unwrap();
    eventually("another Registry", SOON, async || {
        let found = registries
            .get(&setting.registry)
            .await
            .map_err(|error| error.to_string())?;
        if found.metadata.uid == uid {
            Err("the same".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    setting.keeps(&before).await;
    labels.patch(&name, &params, &finalizers(Value::Null)).await.unwrap();
    setting.keeps(&before).await;
    assert_eq!(setting.writes(mark).await, [""; 0]);
}
