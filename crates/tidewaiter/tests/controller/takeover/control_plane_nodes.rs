//! Two nodes of a control plane without machines: what kubelets do with the pods of `DaemonSets`, and what an operator
//! sees of them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tidewaiter_api::names::KOPS_NAMESPACE;
use tidewaiter_testkit::{ControlPlane, Identity, Kubelet, eventually};
use tokio::task::JoinSet;

use crate::world::SOON;

const NODES: [&str; 2] = ["i-0a", "i-0b"];

/// They act until this is dropped.
pub struct ControlPlaneNodes {
    client: Client,
    _kubelets: JoinSet<()>,
}

impl ControlPlaneNodes {
    pub async fn start(cluster: &ControlPlane) -> Self {
        let client = cluster.client(&Identity::Admin);
        let nodes: Api<Node> = Api::all(client.clone());
        for name in NODES {
            let labels = json!({"node-role.kubernetes.io/control-plane": "", "kops.k8s.io/kops-controller-pki": ""});
            let node = object(json!({"metadata": {"name": name, "labels": labels}}));
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        let mut kubelets = JoinSet::new();
        kubelets.spawn(act(pods(&client)));
        let heartbeats = NODES.map(|name| Kubelet::new(cluster, name));
        kubelets.spawn(beat(heartbeats));
        Self {
            client,
            _kubelets: kubelets,
        }
    }

    /// The pods with this label that are not being deleted: the uid and the image of each.
    pub async fn pods(&self, selector: &str) -> BTreeMap<String, String> {
        let pods = pods(&self.client)
            .list(&ListParams::default().labels(selector))
            .await
            .unwrap();
        let stay = pods
            .items
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let image = |pod: &Pod| pod.spec.as_ref()?.containers.first()?.image.clone();
        stay.map(|pod| (pod.uid().unwrap(), image(pod).unwrap())).collect()
    }

    /// Waits until each node runs a pod with this label and this image, and no other.
    pub async fn run(&self, selector: &str, image: &str) {
        eventually(format!("{selector} to run {image}"), SOON, async || {
            let pods = self.pods(selector).await;
            let is_so = pods.len() == NODES.len() && pods.values().all(|found| found == image);
            if is_so { Ok(()) } else { Err(format!("{pods:?}")) }
        })
        .await;
    }

    /// Waits until the DaemonSet controller has seen the last change of this DaemonSet.
    pub async fn has_observed(&self, name: &str) {
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), KOPS_NAMESPACE);
        eventually(format!("the change of {name} to be observed"), SOON, async || {
            let set = sets.get(name).await.unwrap();
            let status = set.status.unwrap_or_default();
            let is_seen = status.observed_generation == set.metadata.generation;
            if is_seen { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await;
    }

    /// Waits until port 3987 of the Service kops-controller leads to the pods with this label, and to no other.
    pub async fn are_behind_the_service(&self, selector: &str) {
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), KOPS_NAMESPACE);
        let of_service = ListParams::default().labels("kubernetes.io/service-name=kops-controller");
        eventually(
            format!("the Service kops-controller to lead to {selector}"),
            SOON,
            async || {
                let mut targets: Vec<_> = self.pods(selector).await.into_keys().collect();
                let slices = slices.list(&of_service).await.unwrap().items;
                let has_port = |slice: &EndpointSlice| slice.ports.iter().flatten().any(|port| port.port == Some(3987));
                let endpoints = slices
                    .iter()
                    .filter(|slice| has_port(slice))
                    .flat_map(|slice| slice.endpoints.iter().flatten());
                let mut found: Vec<_> = endpoints
                    .filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.clone())
                    .collect();
                targets.sort();
                found.sort();
                if found == targets {
                    Ok(())
                } else {
                    Err(format!("{slices:?}"))
                }
            },
        )
        .await;
    }
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), KOPS_NAMESPACE)
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The node lifecycle controller taints a Node that reports nothing for 50 seconds.
async fn beat(kubelets: [Kubelet; NODES.len()]) {
    let mut often = tokio::time::interval(Duration::from_secs(10));
    loop {
        often.tick().await;
        for kubelet in &kubelets {
            kubelet.heartbeat().await;
        }
    }
}

async fn act(pods: Api<Pod>) {
    loop {
        let mut events = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event {
                step(&pods, &pod).await;
            }
        }
    }
}

/// A pod is bound to the node that its DaemonSet made it for, runs there, and ends at once when it is deleted.
async fn step(pods: &Api<Pod>, pod: &Pod) {
    let (name, node) = (pod.name_any(), node_of(pod));
    let has_address = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let done = if pod.metadata.deletion_timestamp.is_some() {
        pods.delete(&name, &DeleteParams::default().grace_period(0))
            .await
            .map(drop)
    } else if !is_bound {
        let binding: Binding = object(json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}));
        let created = PostParams::default();
        let bound = pods.create_subresource("binding", &name, &created, &binding);
        bound.await.map(|_: Value| ())
    } else if !has_address {
        let number = NODES.iter().position(|known| *known == node).unwrap();
        let address = format!("10.0.0.{}", number + 1);
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready});
        let patch = Patch::Merge(json!({"status": status}));
        pods.patch_status(&name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    } else {
        Ok(())
    };
    match done {
        // The pod has changed since: another event tells.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        done => done.unwrap(),
    }
}

/// The node that its DaemonSet made it for.
fn node_of(pod: &Pod) -> String {
    let affinity = serde_json::to_value(pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref())).unwrap();
    let required = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let name = &required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
    name.as_str()
        .unwrap_or_else(|| panic!("a DaemonSet names the node: {affinity}"))
        .to_owned()
}
