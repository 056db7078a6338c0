//! A cluster, and the controllers.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::{ClusterLabel, NodePoolLabel};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, NODE_POOL_LABEL};
use tidewaiter_coordinator::controllers::{self, NodePoolSource};
use tidewaiter_coordinator::node_pools::NodePools;
use tidewaiter_kit::Pause;
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{AuditMark, ControlPlane, Identity, Kubelet, Reused, eventually, leaks, settled, throughout};

use crate::cluster::{self, Wiring, coordinator, define, deploy};
pub use crate::cluster::{Running, SOON};

/// A cluster of a test's own. Dropped, it searches what it showed for the secrets of the tests.
pub struct World {
    pub cluster: Reused,
}

impl Drop for World {
    fn drop(&mut self) {
        leaks::search(&self.cluster, None);
    }
}

/// Without the policy on kubelets: here they write labels, as on a cluster that does not enforce it.
async fn prepare(cluster: &ControlPlane) {
    define(cluster).await;
    let folder = deploy("coordinator");
    for file in ["deployment.yaml", "rbac.yaml"] {
        cluster.apply_manifests(folder.join(file)).await;
    }
    let policies = std::fs::read_to_string(folder.join("admission.yaml")).unwrap();
    let others = policies
        .split("---\n")
        .filter(|policy| !policy.contains("tidewaiter-coordinator-kubelets"));
    cluster.apply(&others.collect::<Vec<_>>().join("---\n")).await;
}

impl World {
    pub async fn start() -> Self {
        leaks::capture_logs();
        Self {
            cluster: ControlPlane::reused(prepare).await,
        }
    }

    /// Starts the controllers without a cloud: the labels decide the node pools.
    pub async fn by_label(&self) -> Running {
        self.run(NodePoolSource {
            setting: NodePools::Label,
            cloud: None,
        })
        .await
    }

    pub async fn run(&self, node_pools: NodePoolSource) -> Running {
        let mut role = Wiring::new(&self.cluster.config(&coordinator()), Pause::never()).await;
        controllers::label_nodes(node_pools, &mut role.role()).unwrap();
        role.run()
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client(&Identity::Admin))
    }

    /// A Node of this name registers, with these labels.
    pub async fn join(&self, name: &str, labels: &[(&str, &str)]) -> Kubelet {
        let labelled = labels
            .iter()
            .fold(node(name), |node, (key, value)| node.label(key, value));
        Kubelet::register(&self.cluster, &labelled.build()).await
    }

    pub async fn delete(&self, name: &str) {
        self.nodes().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Merges labels into a Node, as `kubectl label` does.
    pub async fn label(&self, name: &str, labels: Value) {
        let patch = json!({"metadata": {"labels": labels}});
        self.nodes()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Applies labels to a Node (server-side apply), as this field manager.
    pub async fn apply_as(&self, manager: &str, name: &str, labels: Value) {
        let patch = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.nodes()
            .patch(name, &PatchParams::apply(manager).force(), &Patch::Apply(patch))
            .await
            .unwrap();
    }

    /// The labels of a Node under the two prefixes (without the prefix's domain), and `pool`.
    pub async fn labels_of(&self, name: &str) -> BTreeMap<String, String> {
        let node = self.nodes().get(name).await.unwrap();
        let labels = node.metadata.labels.unwrap_or_default().into_iter();
        let short = labels.filter_map(|(key, value)| {
            if key == NODE_POOL_LABEL {
                return Some(("pool".to_owned(), value));
            }
            let key = key.replace(".containership.io/", "/");
            let ours = key.starts_with("cluster/") || key.starts_with("nodepool/");
            ours.then_some((key, value))
        });
        short.collect()
    }

    /// Waits until a Node has exactly these labels under the prefixes.
    pub async fn has(&self, name: &str, labels: &[(&str, &str)]) {
        let wanted: BTreeMap<String, String> = owned(labels);
        eventually(format!("the labels {labels:?} of {name}"), SOON, async || {
            let found = self.labels_of(name).await;
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// A Node has exactly these labels for a while.
    pub async fn keeps(&self, name: &str, labels: &[(&str, &str)], time: Duration) {
        let wanted: BTreeMap<String, String> = owned(labels);
        throughout(format!("the labels {labels:?} of {name}"), time, async || {
            let found = self.labels_of(name).await;
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// A label of every Node.
    pub async fn cluster_label(&self, id: &str, created_at: &str, key: &str, value: &str) {
        let key = format!("cluster.containership.io/{key}");
        let label = json!({"metadata": {"name": id},
            "spec": {"id": id, "created_at": created_at, "key": key, "value": value}});
        let label: ClusterLabel = serde_json::from_value(label).unwrap();
        let api = self.cluster_labels();
        api.patch(id, &PatchParams::apply("person").force(), &Patch::Apply(&label))
            .await
            .unwrap();
    }

    pub fn cluster_labels(&self) -> Api<ClusterLabel> {
        Api::namespaced(self.cluster.client(&Identity::Admin), CONTAINERSHIP_NAMESPACE)
    }

    pub fn node_pool_labels(&self) -> Api<NodePoolLabel> {
        Api::namespaced(self.cluster.client(&Identity::Admin), CONTAINERSHIP_NAMESPACE)
    }

    /// A label of the Nodes of a node pool.
    pub async fn pool_label(&self, id: &str, pool: &str, key: &str, value: &str) {
        let key = format!("nodepool.containership.io/{key}");
        let label = json!({"metadata": {"name": id, "labels": {NODE_POOL_LABEL: pool}},
            "spec": {"id": id, "key": key, "value": value, "node_pool_id": pool}});
        let label: NodePoolLabel = serde_json::from_value(label).unwrap();
        let api = self.node_pool_labels();
        api.create(&PostParams::default(), &label).await.unwrap();
    }

    /// The notes of the Events of this reason on the object of this name, in the namespace.
    pub async fn events(&self, namespace: &str, name: &str, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.cluster.client(&Identity::Admin), namespace);
        let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let about = events.filter(|event| {
            let object = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            event.reason.as_deref() == Some(reason) && object == Some(name)
        });
        about.map(|event| event.note.unwrap_or_default()).collect()
    }

    /// Waits for an Event of this reason on the object of this name, in the namespace; returns its note.
    pub async fn event(&self, namespace: &str, name: &str, reason: &str) -> String {
        cluster::event(&self.cluster, namespace, name, reason).await
    }

    /// The writes of the coordinator since `mark`, except the accounts of another controller, as `verb resource name`.
    pub async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        cluster::written_since(&self.cluster, mark, "serviceaccounts").await
    }

    /// Waits until what is on its way is written, and returns the end of it.
    pub async fn rests(&self) -> AuditMark {
        let mark = self.cluster.audit_mark().await;
        let written = async || self.written_since(mark).await;
        settled("the writes", Duration::from_secs(1), SOON, written).await;
        self.cluster.audit_mark().await
    }

    /// Nothing is written for a while.
    pub async fn is_quiet(&self, mark: AuditMark) {
        throughout("no write", Duration::from_secs(3), async || {
            let writes = self.written_since(mark).await;
            if writes.is_empty() {
                Ok(())
            } else {
                Err(format!("{writes:?}"))
            }
        })
        .await;
    }
}

pub fn owned(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    owned.collect()
}
