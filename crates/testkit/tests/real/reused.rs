//! A control plane that a test has left is, for the next one, as it had been prepared.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tidewaiter_testkit::{ControlPlane, Identity, Kubelet, builders};

const PREPARED: &str = "\
{apiVersion: v1, kind: ConfigMap, metadata: {name: changed, namespace: default}, data: {a: before}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: deleted, namespace: default}, data: {a: before}}
";

async fn prepare(control_plane: &ControlPlane) {
    control_plane.apply(PREPARED).await;
}

#[tokio::test]
async fn the_next_test_finds_what_was_prepared_and_nothing_else() {
    let first = ControlPlane::reused(prepare).await;
    let folder = first.folder().to_owned();
    let configs: Api<ConfigMap> = Api::default_namespaced(first.client(&Identity::Admin));
    let patch = Patch::Merge(json!({"data": {"a": "after"}}));
    configs.patch("changed", &PatchParams::default(), &patch).await.unwrap();
    configs.delete("deleted", &DeleteParams::default()).await.unwrap();
    Kubelet::register(&first, &builders::node("new").build()).await;
    first
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: new}}")
        .await;
    drop(first);

    let second = ControlPlane::reused(prepare).await;
    assert_eq!(second.folder(), folder);
    // The API server renews its own Lease all the time.
    let asked = second
        .audit()
        .await
        .filter(|entry| entry.user.username != "system:apiserver");
    assert_eq!(asked.count(), 0, "{asked:?}");
    let client = second.client(&Identity::Admin);
    let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for name in ["changed", "deleted"] {
        let found = configs.get(name).await.unwrap().data.unwrap_or_default();
        assert_eq!(found, [("a".to_owned(), "before".to_owned())].into(), "{name}");
    }
    let nodes: Api<Node> = Api::all(client.clone());
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items, []);
    let namespaces: Api<Namespace> = Api::all(client);
    assert_eq!(namespaces.get_opt("new").await.unwrap(), None);

    second.apiserver().kill();
    second.recover().await;
    drop(second);
    let third = ControlPlane::reused(prepare).await;
    assert_ne!(third.folder(), folder, "its API server was killed");
}

#[tokio::test]
async fn copies_are_as_the_api_server_would_have_stored_them() {
    let control_plane = ControlPlane::shared().await;
    let configs: Api<ConfigMap> = Api::default_namespaced(control_plane.client(&Identity::Admin));
    control_plane
        .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: copy-000, namespace: default}, data: {a: copy-000}}")
        .await;
    let copies = (1..300).map(|number| [format!("copy-{number:03}")]);
    control_plane
        .copy("configmaps/default/copy-000", ["copy-000"], copies)
        .await;
    let last = configs.get("copy-299").await.unwrap();
    assert_eq!(last.data.unwrap_or_default()["a"], "copy-299");
    assert!(last.metadata.managed_fields.is_some());
}
