//! The acts of kubelets on pods: those of jobs succeed, the others become ready.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;

/// Starts it, for all pods of the cluster.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
pub fn start(client: Client) {
    tokio::spawn(async move {
        let all = watcher(Api::<Pod>::all(client.clone()), Config::default());
        let mut pods = all.default_backoff().applied_objects().boxed();
        while let Some(pod) = pods.next().await {
            if let Ok(pod) = pod {
                run(&client, &pod).await;
            }
        }
    });
}

async fn run(client: &Client, pod: &Pod) {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase != Some("Pending") || pod.metadata.deletion_timestamp.is_some() {
        return;
    }
    let is_of_job = pod.owner_references().iter().any(|owner| owner.kind == "Job");
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = if is_of_job {
        json!({"phase": "Succeeded"})
    } else {
        json!({"phase": "Running", "conditions": [ready]})
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({ "status": status }));
    // It may be gone meanwhile.
    let _ = pods
        .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
        .await;
}
