//! A cluster, and the controllers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::{ClusterLabel, NodePoolLabel};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, NODE_POOL_LABEL};
use tidewaiter_coordinator::controllers::{self, NodePoolSource};
use tidewaiter_coordinator::node_pools::NodePools;
use tidewaiter_kit::client::Clients;
use tidewaiter_kit::events::Reporter;
use tidewaiter_kit::{ControllerContext, Events, Kit, Leadership, Pause, SystemClock, Tasks};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{AuditMark, ControlPlane, Identity, Kubelet, Reused, eventually, throughout};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cloud_world::beside;

pub const SOON: Duration = Duration::from_mins(1);

pub fn coordinator() -> Identity {
    Identity::service_account(CONTAINERSHIP_NAMESPACE, "tidewaiter-coordinator")
}

/// A cluster of a test's own.
pub struct World {
    pub cluster: Reused,
}

/// The controllers, until this is dropped.
pub struct Running {
    kit: Kit,
    stop: CancellationToken,
    stopped: JoinHandle<()>,
}

impl World {
    pub async fn start() -> Self {
        let cluster = ControlPlane::reused(async |cluster| {
            let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
            cluster.apply_manifests(deploy.join("crds/coordinator")).await;
            cluster.apply_manifests(deploy.join("coordinator")).await;
        });
        Self { cluster: cluster.await }
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
        let kit = Kit::new(SystemClock::shared()).unwrap();
        let leadership = Leadership::always(kit.clock.clone());
        let clients = Clients::new(&self.cluster.config(&coordinator()), &leadership, &kit)
            .await
            .unwrap();
        let mut tasks = Tasks::new(kit.clock.clone());
        let reporter = Reporter {
            controller: "tidewaiter-coordinator".to_owned(),
            instance: "test".to_owned(),
        };
        let stop = tasks.shutdown_token();
        let context = ControllerContext {
            pause: Pause::never(),
            kit: kit.clone(),
            leadership,
            events: Events::start(clients.for_events(), kit.clock.clone(), reporter, &mut tasks),
            shutdown: stop.clone(),
        };
        controllers::label_nodes(node_pools, &clients, &context, &mut tasks).unwrap();
        let stopped = beside(async move {
            tasks.run_until(std::future::pending()).await.unwrap();
        });
        Running { kit, stop, stopped }
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

    /// Waits for an Event of this reason on the object of this name, in the namespace; returns its note.
    pub async fn event(&self, namespace: &str, name: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.cluster.client(&Identity::Admin), namespace);
        eventually(format!("the Event {reason} on {name}"), SOON, async || {
            let all = events.list(&ListParams::default()).await;
            let all = all.map_err(|error| error.to_string())?.items;
            let about = |event: &Event| {
                let object = event.regarding.as_ref().and_then(|object| object.name.as_deref());
                event.reason.as_deref() == Some(reason) && object == Some(name)
            };
            let seen: Vec<_> = all.iter().filter_map(|event| event.reason.clone()).collect();
            let found = all.into_iter().find(about);
            found.and_then(|event| event.note).ok_or_else(|| format!("{seen:?}"))
        })
        .await
    }

    /// The writes of the coordinator since `mark`, except the accounts of another controller, as `verb resource name`.
    pub async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        let writes = self.cluster.audit().await.since(mark).by(&coordinator()).writes();
        let writes = writes.iter().map(|entry| (entry.verb.as_str(), &entry.object_ref));
        writes
            .filter(|(_, object)| object.resource != "serviceaccounts")
            .map(|(verb, object)| format!("{verb} {} {}", object.resource, object.name))
            .collect()
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

impl Running {
    /// The value of a metric, by its line without the value.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.kit.metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    pub async fn counts(&self, name: &str, value: f64) {
        eventually(format!("{name} to be {value}"), SOON, async || {
            let found = self.metric(name);
            if (found - value).abs() < 0.5 {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    }

    pub async fn stops(mut self) {
        self.stop.cancel();
        (&mut self.stopped).await.unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn owned(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    owned.collect()
}
