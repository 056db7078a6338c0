//! Tokens as the pods of a node have them.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use serde_json::json;

use super::{ControlPlane, Identity};
use crate::builders;

impl ControlPlane {
    /// The token of a pod that runs as the service account on a Node of this name. Node and pod are created; both have
    /// the name.
    ///
    /// # Panics
    /// When one exists already, or the service account does not.
    pub async fn pod_token(&self, namespace: &str, account: &str, node: &str) -> String {
        let admin = self.client(&Identity::Admin);
        let nodes: Api<Node> = Api::all(admin.clone());
        let registered = nodes
            .create(&PostParams::default(), &builders::node(node).build())
            .await;
        registered.expect("a new Node");
        let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
        let pod = json!({"metadata": {"name": node}, "spec": {"nodeName": node, "serviceAccountName": account,
            "containers": [{"name": "main", "image": "registry.invalid/tidewaiter"}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        pods.create(&PostParams::default(), &pod).await.expect("a new pod");
        self.another_pod_token(namespace, account, node, &[]).await
    }

    /// Another token of that pod, for these audiences.
    ///
    /// # Panics
    /// When the pod or the service account does not exist.
    pub async fn another_pod_token(&self, namespace: &str, account: &str, pod: &str, audiences: &[&str]) -> String {
        let admin = self.client(&Identity::Admin);
        let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
        let found = pods.get(pod).await.expect("a pod");
        let request = json!({"metadata": {}, "spec": {"audiences": audiences,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": found.metadata.uid}}});
        let request: TokenRequest = serde_json::from_value(request).expect("a request");
        let accounts: Api<ServiceAccount> = Api::namespaced(admin, namespace);
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .expect("a token");
        answer.status.expect("a token").token.expect("a token")
    }
}
