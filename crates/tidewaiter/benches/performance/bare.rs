//! The bare client: the writes of the controller, prepared beforehand, sent as fast as the API server takes them.
//!
//! For each Node the record is created, then the Node is patched, as the controller must. It acts as the same service
//! account, over connections of its own.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use http::header::CONTENT_TYPE;
use kube::api::ListParams;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tidewaiter_api::NodeIdentity;

use crate::bed::Bed;
use crate::observer::Observer;

/// The controller's writes, by the name of the Node.
pub struct Writes(BTreeMap<String, Write>);

struct Write {
    record: NodeIdentity,
    labels: BTreeMap<String, String>,
}

/// One run.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// From the first write to the last label seen.
    pub seconds: f64,
    /// The CPU time of the API server for it.
    pub api_server_cpu_seconds: f64,
    /// The number of writes in the API server's audit log.
    pub requests: usize,
}

impl Writes {
    /// Returns the last writes of the controller.
    pub async fn of_controller(bed: &Bed) -> Result<Self> {
        let records = bed.records().list(&ListParams::default()).await?;
        let writes = records.into_iter().map(|record| {
            let labels = record.status.iter().flat_map(|status| &status.labels);
            let labels = labels
                .map(|label| (label.key.to_string(), label.value.to_string()))
                .collect();
            (record.name_any(), Write { record, labels })
        });
        Ok(Self(writes.collect()))
    }

    /// The two bodies for each Node as it is now, or for one of them.
    pub async fn bodies(&self, bed: &Bed, only: Option<&str>) -> Result<Vec<(String, Vec<u8>, Vec<u8>)>> {
        let mut params = ListParams::default();
        if let Some(name) = only {
            params = params.fields(&format!("metadata.name={name}"));
        }
        let nodes = bed.nodes().list_metadata(&params).await?;
        nodes
            .into_iter()
            .map(|node| {
                let name = node.name_any();
                let Write { record, labels } = self.0.get(&name).context("a Node without a record")?;
                let uid = node.metadata.uid.context("a Node without a uid")?;
                let mut record: Value = json!({
                    "apiVersion": "tidewaiter.dev/v1alpha1",
                    "kind": "NodeIdentity",
                    "metadata": {"name": name, "ownerReferences": record.metadata.owner_references},
                    "spec": record.spec,
                    "status": record.status,
                });
                record["spec"]["nodeUID"] = json!(uid);
                record["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
                let version = node.metadata.resource_version;
                let patch = json!({"metadata": {"uid": uid, "resourceVersion": version, "labels": labels}});
                Ok((name, record.to_string().into_bytes(), patch.to_string().into_bytes()))
            })
            .collect()
    }
}

/// Sends all writes, this number at once.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn send(bed: &Bed, writes: &Writes, concurrency: usize) -> Result<Run> {
    let bodies = writes.bodies(bed, None).await?;
    let count = bodies.len();
    let mark = bed.cluster.audit_mark().await;
    let mut observer = Observer::start(bed).await?;
    let client = bed.cluster.client(&Bed::account());
    let before = bed.api_server_cpu_seconds();
    let start = Instant::now();
    let sent = stream::iter(bodies)
        .map(|(name, record, patch)| {
            let client = client.clone();
            let both = async move { write(&client, &name, record, patch).await };
            // A task of its own: they are encrypted and decrypted on both cores.
            async move { tokio::spawn(both).await? }
        })
        .buffer_unordered(concurrency)
        .try_for_each(|()| async { Ok(()) });
    let (sent, labelled) = tokio::join!(sent, observer.labelled(count));
    sent?;
    let seconds = (labelled? - start).as_secs_f64();
    let api_server_cpu_seconds = bed.api_server_cpu_seconds() - before;
    let requests = bed
        .cluster
        .audit()
        .await
        .since(mark)
        .by(&Bed::account())
        .writes()
        .count();
    Ok(Run {
        seconds,
        api_server_cpu_seconds,
        requests,
    })
}

/// The two writes for one Node.
pub async fn write(client: &Client, name: &str, record: Vec<u8>, patch: Vec<u8>) -> Result<()> {
    let manager = "fieldManager=tidewaiter%2Fnode";
    let create = Request::post(format!("/apis/tidewaiter.dev/v1alpha1/nodeidentities?{manager}"))
        .header(CONTENT_TYPE, "application/json")
        .body(record)?;
    client.request_text(create).await?;
    let patch = Request::patch(format!("/api/v1/nodes/{name}?{manager}"))
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .body(patch)?;
    client.request_text(patch).await?;
    Ok(())
}
