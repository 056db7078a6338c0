//! The bare client of server-side applies, whose bodies are prepared beforehand, and how long a series of writes took
//! by the audit log.
//!
//! The bare client acts as the coordinator's service account, over connections of its own, on an API server that is as
//! new as the coordinator's.

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use http::header::CONTENT_TYPE;
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use tidewaiter_testkit::{Audit, ControlPlane};

use super::bare::AT_ONCE;
use super::bed::account;

/// As the audit log has the field manager of the bare client.
pub const MANAGER: &str = "fieldManager=tidewaiter%2Fbare";

const APPLY: &str = "application/apply-patch+yaml";

/// One write.
#[derive(Clone, Debug)]
pub struct Patch {
    path: String,
    body: Vec<u8>,
}

impl Patch {
    /// The apply of this object, where `collection` is the path of its kind, in its namespace.
    pub fn apply(collection: &str, name: &str, object: &Value) -> Self {
        Self {
            path: format!("{collection}/{name}?{MANAGER}&force=true"),
            body: object.to_string().into_bytes(),
        }
    }

    /// Returns the applies that create the objects of this kind with these labels.
    pub async fn copies_of<K>(client: &Client, labels: &str) -> Result<Vec<Self>>
    where
        K: Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let list = all.list(&ListParams::default().labels(labels)).await?;
        let mut applies = Vec::new();
        for object in list {
            let (meta, mut body) = (object.metadata, object.data);
            body["apiVersion"] = json!(resource.api_version);
            body["kind"] = json!(resource.kind);
            let (collection, name) = (
                K::url_path(&(), meta.namespace.as_deref()),
                meta.name.context("a name")?,
            );
            body["metadata"] = serde_json::to_value(ObjectMeta {
                name: Some(name.clone()),
                namespace: meta.namespace,
                labels: meta.labels,
                finalizers: meta.finalizers,
                ..ObjectMeta::default()
            })?;
            applies.push(Self::apply(&collection, &name, &body));
        }
        Ok(applies)
    }
}

/// Sends them, as many at once as the coordinator has at most. Returns the audit log of its writes.
#[expect(clippy::disallowed_methods, reason = "they end before this does")]
pub async fn send(cluster: &ControlPlane, patches: Vec<Patch>) -> Result<Audit> {
    let (client, mark) = (cluster.client(&account()), cluster.audit_mark().await);
    stream::iter(patches)
        .map(|Patch { path, body }| {
            let client = client.clone();
            let applying = async move {
                let request = Request::patch(path).header(CONTENT_TYPE, APPLY).body(body)?;
                client.request_text(request).await?;
                anyhow::Ok(())
            };
            // A task of its own: they are encrypted and decrypted on both cores.
            async move { tokio::spawn(applying).await? }
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(|()| async { Ok(()) })
        .await
        .context("the bare client")?;
    Ok(cluster.audit().await.since(mark).by(&account()).writes())
}

/// Seconds from the arrival of the first of these requests to the end of the last one.
pub fn span(audit: &Audit) -> Result<f64> {
    let begin = audit.iter().map(|entry| entry.request_received_timestamp).min();
    let end = audit.iter().map(|entry| entry.stage_timestamp).max();
    let (begin, end) = begin.zip(end).context("no write")?;
    Ok(end.duration_since(begin).as_secs_f64())
}
