//! Cordons, drains and uncordons nodes, as a step says. The pods of all nodes may be very many, so only those of nodes
//! that are drained are watched.
//!
//! Every write may be repeated. A Node is patched on the condition of its version, and a pod is evicted on that of its
//! uid, because another one may have its name by now.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Pod as FullPod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DeleteParams, EvictParams, ListParams, ObjectMeta, Preconditions};
use kube::{Api, Client, Resource};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidewaiter_api::NodeName;
use tidewaiter_api::names::CORDONED_BY_ANNOTATION;
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::{Guarded, WriteError, Writer, slim};
use tidewaiter_upgrade::drain::{Budget, Pod, RemainingPod, Requirement, Selects, Treatment, forecast};

use super::drain_watch::DrainWatches;
use super::node::UpgradeNode;

/// Evictions at once.
const CONCURRENCY: usize = 8;

/// The message of the eviction API for a pod that several budgets select, with the code 500. Source:
/// `pkg/registry/core/pod/storage/eviction.go`.
const SEVERAL_BUDGETS: &str = "more than one PodDisruptionBudget";

/// Of a pod that the kubelet runs from a file.
const STATIC_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// A slim pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = FullPod)]
pub(super) struct DrainPod {
    #[serde(deserialize_with = "slim::annotated")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// The pods of nodes, by node, and what the eviction API would say of them now.
#[derive(Debug, Default)]
pub struct NodePods {
    pods: BTreeMap<NodeName, Vec<DrainPod>>,
    /// The pods that must leave each node, and what the eviction API would say of them.
    pub left: BTreeMap<NodeName, Vec<RemainingPod>>,
}

impl NodePods {
    /// Reads the pods of these nodes, and the budgets if there are any pods. Pods that a watch shows are not listed.
    ///
    /// # Errors
    /// The API server does not answer, or does not permit it.
    pub(super) async fn read(client: &Client, nodes: &[NodeName], watches: &DrainWatches) -> kube::Result<Self> {
        let mut pods = BTreeMap::new();
        for node in nodes {
            let left = if let Some(left) = watches.left(node) {
                left
            } else {
                let api = Api::<Guarded<DrainPod>>::all(client.clone());
                let listed = api.list(&ListParams::default().fields(&on_node(node))).await?.items;
                watches.listed(node);
                listed.into_iter().filter_map(|Guarded(pod)| pod.ok()).collect()
            };
            pods.insert(node.clone(), left);
        }
        Self::with_budgets(client, pods).await
    }

    /// Reads the pods of all nodes.
    ///
    /// # Errors
    /// The API server does not answer, or does not permit it.
    pub async fn read_all(client: &Client) -> kube::Result<Self> {
        let (all, _) = list_all(&Api::<Guarded<DrainPod>>::all(client.clone())).await?;
        let mut pods = BTreeMap::<NodeName, Vec<DrainPod>>::new();
        for pod in all {
            if let Ok(node) = pod.spec.node_name.parse() {
                pods.entry(node).or_default().push(pod);
            }
        }
        Self::with_budgets(client, pods).await
    }

    async fn with_budgets(client: &Client, pods: BTreeMap<NodeName, Vec<DrainPod>>) -> kube::Result<Self> {
        let budgets: Vec<Budget> = if pods.values().all(Vec::is_empty) {
            Vec::new()
        } else {
            let api = Api::<PodDisruptionBudget>::all(client.clone());
            api.list(&ListParams::default())
                .await?
                .into_iter()
                .map(budget)
                .collect()
        };
        let left = pods.iter().map(|(node, pods)| {
            let pods: Vec<Pod> = pods.iter().map(DrainPod::observed).collect();
            (node.clone(), forecast(&pods, &budgets))
        });
        Ok(Self {
            left: left.collect(),
            pods,
        })
    }

    /// Evicts the pods that must leave the node. One that a budget keeps is retried in the next pass.
    ///
    /// # Errors
    /// The first that is neither that nor that the pod is gone.
    pub(super) async fn evict(&self, client: &Client, node: &NodeName) -> kube::Result<()> {
        let leaving = self.present(client, node, |treatment| treatment == Treatment::Evicted);
        let evictions = leaving.into_iter().map(|pod| async move {
            let params = EvictParams {
                delete_options: Some(pod.seen),
                ..EvictParams::default()
            };
            pod.api.evict(&pod.name, &params).await.map(drop)
        });
        first_error(evictions, |status| stays_or_gone(status.code, &status.message)).await
    }

    /// Deletes the pods that have not left the node, whatever the budgets say.
    ///
    /// # Errors
    /// The first that is not that the pod is gone.
    pub(super) async fn delete(&self, client: &Client, node: &NodeName) -> kube::Result<()> {
        let staying = self.present(client, node, |treatment| treatment != Treatment::Stays);
        let deletions = staying
            .into_iter()
            .map(|pod| async move { pod.api.delete(&pod.name, &pod.seen).await.map(drop) });
        first_error(deletions, |status| matches!(status.code, 404 | 409)).await
    }

    /// The pods of a node that are not being deleted, of these treatments.
    fn present(&self, client: &Client, node: &NodeName, is_wanted: fn(Treatment) -> bool) -> Vec<Target> {
        let pods = self.pods.get(node).into_iter().flatten();
        let present = pods.filter(|pod| !pod.is_terminating() && is_wanted(pod.observed().treatment()));
        present.map(|pod| pod.target(client)).collect()
    }
}

/// A pod to evict or delete.
struct Target {
    api: Api<FullPod>,
    name: String,
    /// The pod that was seen, and no other of its name.
    seen: DeleteParams,
}

/// Returns true if the eviction API says that the pod is gone (404), that another one has its name (409), or that
/// budgets keep it, as the condition says already: one (429), or several (500). Another 500 is an error, such as an
/// admission webhook that fails.
fn stays_or_gone(code: u16, message: &str) -> bool {
    matches!(code, 404 | 409 | 429) || (code == 500 && message.contains(SEVERAL_BUDGETS))
}

async fn first_error<F>(
    requests: impl Iterator<Item = F>,
    is_expected: impl Fn(&kube::core::Status) -> bool,
) -> kube::Result<()>
where
    F: Future<Output = kube::Result<()>>,
{
    let results: Vec<kube::Result<()>> = stream::iter(requests).buffer_unordered(CONCURRENCY).collect().await;
    let failed = results.into_iter().filter(|result| match result {
        Err(kube::Error::Api(status)) => !is_expected(status),
        _ => true,
    });
    failed.collect()
}

impl DrainPod {
    fn observed(&self) -> Pod {
        let meta = &self.metadata;
        let mut owners = meta.owner_references.iter().flatten();
        let annotations = meta.annotations.as_ref();
        let is_ready = |condition: &Condition| condition.type_ == "Ready" && condition.status == "True";
        Pod {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            phase: self.status.phase.clone(),
            ready: self.status.conditions.iter().any(is_ready),
            terminating: self.is_terminating(),
            controller: owners
                .find(|owner| owner.controller == Some(true))
                .map(|owner| owner.kind.clone()),
            is_static: annotations.is_some_and(|annotations| annotations.contains_key(STATIC_ANNOTATION)),
        }
    }

    /// Returns true if it has to leave its node before the node is drained.
    pub(super) fn must_leave(&self) -> bool {
        self.observed().treatment() != Treatment::Stays
    }

    fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn target(&self, client: &Client) -> Target {
        let meta = &self.metadata;
        let seen = Preconditions {
            uid: meta.uid.clone(),
            resource_version: None,
        };
        Target {
            api: Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or_default()),
            name: meta.name.clone().unwrap_or_default(),
            seen: DeleteParams {
                preconditions: Some(seen),
                ..DeleteParams::default()
            },
        }
    }
}

/// The field selector of the pods of a node.
pub(super) fn on_node(node: &NodeName) -> String {
    format!("spec.nodeName={node}")
}

fn budget(object: PodDisruptionBudget) -> Budget {
    let (spec, status) = (object.spec.unwrap_or_default(), object.status.unwrap_or_default());
    Budget {
        namespace: object.metadata.namespace.unwrap_or_default(),
        name: object.metadata.name.unwrap_or_default(),
        selects: spec.selector.map_or_else(nothing, selects),
        always_unhealthy: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
        disruptions_allowed: status.disruptions_allowed.unwrap_or_default(),
        current_healthy: status.current_healthy.unwrap_or_default(),
        desired_healthy: status.desired_healthy.unwrap_or_default(),
        is_observed: status.observed_generation.unwrap_or_default() >= object.metadata.generation.unwrap_or_default(),
    }
}

fn nothing() -> Selects {
    Selects {
        nothing: true,
        ..Selects::default()
    }
}

fn selects(selector: LabelSelector) -> Selects {
    let expressions = selector.match_expressions.unwrap_or_default().into_iter();
    Selects {
        labels: selector.match_labels.unwrap_or_default(),
        expressions: expressions
            .map(|expression| Requirement {
                key: expression.key,
                operator: expression.operator,
                values: expression.values.unwrap_or_default(),
            })
            .collect(),
        nothing: false,
    }
}

/// Cordons a Node, with the name of the upgrade as the mark.
pub(super) async fn cordon(writer: &Writer, node: &UpgradeNode, upgrade: &str) -> Result<(), WriteError> {
    let patch =
        json!({"metadata": {"annotations": {CORDONED_BY_ANNOTATION: upgrade}}, "spec": {"unschedulable": true}});
    writer.patch::<UpgradeNode>(node.meta(), patch).await.map(drop)
}

/// Uncordons a Node, and removes the mark.
pub(super) async fn uncordon(writer: &Writer, node: &UpgradeNode) -> Result<(), WriteError> {
    let patch = json!({"metadata": {"annotations": {CORDONED_BY_ANNOTATION: null}}, "spec": {"unschedulable": null}});
    writer.patch::<UpgradeNode>(node.meta(), patch).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_budgets_keep_and_what_is_gone_is_no_error() {
        let several =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let webhook = "Internal error occurred: failed calling webhook \"x.example.com\": connection refused";
        for (code, message, expected) in [
            (404, "pods \"a\" not found", true),
            (409, "the UID in the precondition does not match", true),
            (
                429,
                "Cannot evict pod as it would violate the pod's disruption budget.",
                true,
            ),
            (500, several, true),
            (500, webhook, false),
            (403, "pods \"a\" is forbidden", false),
        ] {
            assert_eq!(stays_or_gone(code, message), expected, "{code} {message}");
        }
    }
}
