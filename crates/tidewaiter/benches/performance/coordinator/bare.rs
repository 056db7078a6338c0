//! The bare client: the creations of the coordinator, prepared beforehand, sent as fast as the API server takes them.
//!
//! It acts as the same service account, over connections of its own, on an API server that is as new as the
//! coordinator's.

use std::path::Path;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tidewaiter_testkit::{Audit, eventually};

use super::bed::{Bed, LONG, account, control_plane, make_namespaces};

/// Requests under way at once: as many as the coordinator has at most (`kit::client::IN_FLIGHT`).
pub const AT_ONCE: usize = 40;

/// The bodies of the creations in each namespace, with the resource that each is sent to.
pub struct Bodies(Vec<(&'static str, Vec<u8>)>);

impl Bodies {
    /// Learns the objects that a coordinator creates in the namespace `default`.
    pub async fn learn(program: &Path) -> Result<Self> {
        let bed = Bed::start(program, 1).await?;
        let coordinator = bed.coordinator();
        let accounts: Api<ServiceAccount> = Api::default_namespaced(bed.admin());
        let secrets: Api<Secret> = Api::default_namespaced(bed.admin());
        let found = eventually("the account and two pull secrets in default", LONG, async || {
            let account = accounts.get("containership").await.map_err(|error| error.to_string())?;
            let secrets = secrets
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let attached = account.image_pull_secrets.as_ref().map_or(0, Vec::len);
            if attached == 2 && secrets.items.len() == 2 {
                return Ok((account, secrets.items));
            }
            Err(format!("{attached} attached, {} secrets", secrets.items.len()))
        })
        .await;
        coordinator.stop().await;
        let (account, secrets) = found;
        let mut bodies = vec![("serviceaccounts", body(&serde_json::to_value(account)?))];
        for secret in secrets {
            bodies.push(("secrets", body(&serde_json::to_value(secret)?)));
        }
        Ok(Self(bodies))
    }

    /// Creates the objects in this number of namespaces. Returns the audit log.
    #[expect(clippy::disallowed_methods, reason = "they end before this does")]
    pub async fn create(&self, namespaces: usize) -> Result<Audit> {
        let cluster = control_plane().await;
        make_namespaces(&cluster, namespaces).await?;
        let client = cluster.client(&account());
        let all: Api<Namespace> = Api::all(cluster.client(&tidewaiter_testkit::Identity::Admin));
        let names: Vec<String> = all
            .list_metadata(&ListParams::default())
            .await?
            .iter()
            .map(kube::ResourceExt::name_any)
            .collect();
        let creations = names.iter().flat_map(|name| {
            self.0
                .iter()
                .map(move |(resource, body)| (name, *resource, body.clone()))
        });
        stream::iter(creations)
            .map(|(namespace, resource, body)| {
                let creating = create(
                    client.clone(),
                    format!("/api/v1/namespaces/{namespace}/{resource}"),
                    body,
                );
                // A task of its own: they are encrypted and decrypted on both cores.
                async move { tokio::spawn(creating).await? }
            })
            .buffer_unordered(AT_ONCE)
            .try_for_each(|()| async { Ok(()) })
            .await
            .context("the bare client")?;
        Ok(cluster.audit().await.by(&account()).writes())
    }
}

async fn create(client: Client, path: String, body: Vec<u8>) -> Result<()> {
    let request = Request::post(format!("{path}?fieldManager=tidewaiter%2Fregistry"))
        .header(CONTENT_TYPE, "application/json")
        .body(body)?;
    client.request_text(request).await?;
    Ok(())
}

/// An object as it was before it was created.
fn body(object: &Value) -> Vec<u8> {
    let mut body = object.clone();
    let meta = &object["metadata"];
    body["metadata"] = json!({"name": meta["name"], "labels": meta["labels"], "annotations": meta["annotations"]});
    body.to_string().into_bytes()
}
