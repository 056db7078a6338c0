//! The Pod: whether it is a system pod, its Node, and whether its containers are ready.
//!
//! Its owner is not read: a system pod is judged no matter who created it.

use k8s_openapi::api::core::v1::Pod as FullPod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};

use super::{known_text, label, same_metadata};

pub(super) const APP: &str = "k8s-app";
const SYSTEM_NAMESPACE: &str = "kube-system";
/// The static pods of each control-plane node, by their label `k8s-app`.
pub(crate) const STATIC_PODS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// A slim Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, kube::Resource)]
#[resource(inherit = FullPod)]
pub struct Pod {
    /// Namespace, name, uid, resourceVersion, and the label `k8s-app`.
    #[serde(deserialize_with = "super::metadata")]
    pub metadata: ObjectMeta,
    /// The fields of the spec that are read.
    #[serde(default)]
    pub spec: PodSpec,
    /// The fields of the status that are read.
    #[serde(default)]
    pub status: PodStatus,
}

/// The fields of `spec` that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// The priority class, if it is a system class.
    #[serde(default, deserialize_with = "known_text", skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<Priority>,
    /// The Node that the pod is bound to. A kubelet cannot change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
}

/// The priority classes of critical pods. Source: Kubernetes, "Guaranteed Scheduling For Critical Add-On Pods".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Priority {
    /// Critical for the cluster.
    #[serde(rename = "system-cluster-critical")]
    Cluster,
    /// Critical for its node.
    #[serde(rename = "system-node-critical")]
    Node,
}

impl Priority {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "system-cluster-critical",
            Self::Node => "system-node-critical",
        }
    }
}

/// The fields of `status` that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// The phase of the pod.
    #[serde(default, deserialize_with = "known_text", skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The containers without init containers, in the API's order.
    #[serde(default, deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Accepted, but not all containers have been started.
    Pending,
    /// Bound to a Node, with all containers created.
    Running,
    /// All containers terminated successfully and will not be restarted.
    Succeeded,
    /// All containers terminated, at least one of them with a failure.
    Failed,
    /// The state cannot be determined, usually because its node does not respond.
    Unknown,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Its name.
    pub name: Box<str>,
    /// True if the container passes its readiness probe.
    #[serde(default)]
    pub ready: bool,
}

/// Returns true if a verdict reads this pod: it has a system priority class, or it is one of the static pods of every
/// control-plane node, whatever its priority class. Other pods need not be cached.
#[must_use]
pub fn is_judged(pod: &Pod) -> bool {
    pod.spec.priority_class_name.is_some() || pod.static_app().is_some()
}

/// Returns true if the verdict would differ without this pod in its current state: it is [judged](is_judged) and
/// unhealthy, or its absence would be a failure. A cache needs only these pods.
#[must_use]
pub fn matters(pod: &Pod) -> bool {
    pod.static_app().is_some() || (is_judged(pod) && pod.problem().is_some())
}

/// The reason why a pod is unhealthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodProblem<'a> {
    Pending,
    UnknownPhase,
    /// The containers that are not ready.
    NotReady(Vec<&'a str>),
}

impl Pod {
    /// The problem of an unhealthy pod.
    pub(crate) fn problem(&self) -> Option<PodProblem<'_>> {
        match self.status.phase {
            Some(Phase::Succeeded) => None,
            Some(Phase::Pending) => Some(PodProblem::Pending),
            Some(Phase::Unknown) => Some(PodProblem::UnknownPhase),
            Some(Phase::Running | Phase::Failed) | None => {
                let containers = self.status.container_statuses.iter();
                let waiting: Vec<&str> = containers.filter(|one| !one.ready).map(|one| &*one.name).collect();
                (!waiting.is_empty()).then_some(PodProblem::NotReady(waiting))
            }
        }
    }

    /// Returns true if the two are equal in all fields that a verdict reads.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        same_metadata(&self.metadata, &other.metadata) && self.spec == other.spec && self.status == other.status
    }

    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the entry of [`STATIC_PODS`] that this is, if any.
    pub(crate) fn static_app(&self) -> Option<&'static str> {
        let app = label(&self.metadata, APP)?;
        STATIC_PODS
            .into_iter()
            .find(|name| *name == app && self.namespace() == SYSTEM_NAMESPACE)
    }
}

fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ContainerStatus>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn full() -> Value {
        json!({
            "metadata": {"namespace": "kube-system", "name": "p", "uid": "u", "resourceVersion": "7",
                "labels": {"k8s-app": "kube-dns", "pod-template-hash": "x"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "v"}]},
            "spec": {"priorityClassName": "system-cluster-critical", "nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "hostIP": "10.0.0.1",
                "containerStatuses": [{"name": "c", "ready": true, "restartCount": 3}, {"name": "d", "ready": false}]},
        })
    }

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn with(changes: &[(&str, &str, Value)]) -> Pod {
        let mut value = full();
        for (parent, key, to) in changes {
            value.pointer_mut(parent).unwrap()[*key] = to.clone();
        }
        pod(value)
    }

    #[test]
    fn keeps_what_is_read_and_drops_the_rest_and_its_own_json_loses_nothing() {
        let slim = pod(full());
        let text = serde_json::to_value(&slim).unwrap();
        let expected = json!({
            "metadata": {"namespace": "kube-system", "name": "p", "uid": "u", "resourceVersion": "7",
                "labels": {"k8s-app": "kube-dns"}},
            "spec": {"priorityClassName": "system-cluster-critical", "nodeName": "n"},
            "status": {"phase": "Running",
                "containerStatuses": [{"name": "c", "ready": true}, {"name": "d", "ready": false}]},
        });
        assert_eq!(text, expected);
        assert_eq!(pod(text), slim);
        let bare = pod(json!({"metadata": {"name": "p"}}));
        assert_eq!(pod(serde_json::to_value(&bare).unwrap()), bare);
    }

    #[test]
    fn what_cannot_be_understood_is_absent_and_no_error() {
        let strange = with(&[
            ("/status", "phase", json!("Perhaps")),
            ("/status", "containerStatuses", Value::Null),
            ("/spec", "priorityClassName", json!("batch")),
        ]);
        assert_eq!(
            (strange.status, strange.spec.priority_class_name),
            (PodStatus::default(), None)
        );
    }

    #[test]
    fn only_pods_of_the_system_are_judged() {
        let class = |name: &str| ("/spec", "priorityClassName", json!(name));
        let app = |name: &str| ("/metadata/labels", "k8s-app", json!(name));
        let elsewhere = ("/metadata", "namespace", json!("default"));
        for (judged, changes) in [
            (true, vec![]),
            (true, vec![class("system-node-critical"), elsewhere.clone()]),
            (false, vec![class("system-node-critical-2")]),
            (false, vec![class("")]),
            (true, vec![class("batch"), app("kube-apiserver")]),
            (true, vec![class("batch"), app("kube-scheduler")]),
            (true, vec![class("batch"), app("kube-controller-manager")]),
            (false, vec![class("batch"), app("kube-proxy")]),
            (false, vec![class("batch"), app("kube-apiserver"), elsewhere]),
        ] {
            assert_eq!(is_judged(&with(&changes)), judged, "{changes:?}");
        }
    }

    #[test]
    fn a_restart_that_ended_well_is_the_same_pod() {
        let mut after = full();
        after["metadata"]["resourceVersion"] = json!("8");
        after["status"]["containerStatuses"][0]["restartCount"] = json!(4);
        assert!(pod(full()).same(&pod(after)));
        for change in [
            ("/metadata", "uid", json!("w")),
            ("/spec", "nodeName", json!("m")),
            ("/status", "phase", json!("Failed")),
        ] {
            assert!(!pod(full()).same(&with(std::slice::from_ref(&change))), "{change:?}");
        }
    }
}
