//! The parts that the upgrade controller reads of Nodes, and of the pods of the control plane on them.
//!
//! A kubelet writes all of it on its own Node, except the name and the labels of roles.

use std::collections::BTreeMap;
use std::ops::Deref;

use k8s_openapi::api::core::v1::{Node as FullNode, Pod as FullPod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::names::CORDONED_BY_ANNOTATION;
use tidewaiter_kit::slim;
use tidewaiter_upgrade::{self as upgrade, Version};

use super::agents::AgentReports;

/// The parts of the control plane whose images decide, as in the Go coordinator.
const COMPONENTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// A slim Node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = FullNode)]
pub struct UpgradeNode {
    #[serde(deserialize_with = "marked")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    node_info: NodeInfo,
    /// The condition `Ready` alone.
    #[serde(default, deserialize_with = "ready")]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeInfo {
    #[serde(default)]
    kubelet_version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    /// A text: one that is no time counts as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_transition_time: Option<String>,
}

/// Slim metadata with the mark of who has cordoned the node.
fn marked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = slim::dated(deserializer)?;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| key == CORDONED_BY_ANNOTATION);
    }
    metadata.annotations = metadata.annotations.filter(|annotations| !annotations.is_empty());
    Ok(ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        creation_timestamp: metadata.creation_timestamp,
        labels: metadata.labels,
        annotations: metadata.annotations,
        ..ObjectMeta::default()
    })
}

fn ready<'de, D: Deserializer<'de>>(conditions: D) -> Result<Vec<Condition>, D::Error> {
    let mut conditions = Option::<Vec<Condition>>::deserialize(conditions)?.unwrap_or_default();
    conditions.retain(|condition| condition.type_ == "Ready");
    Ok(conditions)
}

impl UpgradeNode {
    /// Returns true if an upgrade decides the same about both: a heartbeat changes nothing.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.metadata, &other.metadata);
        let same = mine.labels == theirs.labels && mine.annotations == theirs.annotations;
        same && self.spec == other.spec && self.status == other.status
    }

    /// The node as the protocol observes it; None if its name is malformed.
    fn observed(
        &self,
        components: &BTreeMap<String, Vec<Version>>,
        agents: &AgentReports,
        upgrade: &str,
    ) -> Option<upgrade::Node> {
        let name = self.metadata.name.as_deref()?;
        let ready = self.status.conditions.first();
        let changed = ready.and_then(|ready| ready.last_transition_time.as_ref()?.parse().ok());
        Some(upgrade::Node {
            name: name.parse().ok()?,
            labels: self.metadata.labels.clone().unwrap_or_default(),
            kubelet: self.status.node_info.kubelet_version.parse().ok(),
            components: components.get(name).cloned().unwrap_or_default(),
            ready: ready.is_some_and(|condition| condition.status == "True"),
            ready_changed: changed,
            created: self.metadata.creation_timestamp.as_ref().map(|created| created.0),
            renewed: agents.renewed(name),
            host: agents.host(name, upgrade),
            parallel: agents.of(name).is_some_and(|agent| agent.follows_own_status),
            host_problem: agents.problem(name).map(str::to_owned),
            cordoned: self.spec.unschedulable,
            cordoned_by: self
                .metadata
                .annotations
                .as_ref()
                .and_then(|marks| marks.get(CORDONED_BY_ANNOTATION).cloned()),
        })
    }
}

/// A slim pod of the control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = FullPod)]
pub struct ComponentPod {
    #[serde(deserialize_with = "slim::metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Container {
    #[serde(default)]
    image: String,
}

impl ComponentPod {
    /// Returns true if an upgrade decides the same about both.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    /// The versions of the parts of the control plane in it.
    fn versions(&self) -> impl Iterator<Item = Version> {
        self.spec
            .containers
            .iter()
            .filter_map(|container| component(&container.image))
    }
}

/// The nodes as the protocol observes them, with the pods of the control plane on them, and what their hosts say of the
/// upgrade with this id.
pub fn observed<N, P>(
    nodes: impl IntoIterator<Item = N>,
    pods: impl IntoIterator<Item = P>,
    agents: &AgentReports,
    upgrade: &str,
) -> Vec<upgrade::Node>
where
    N: Deref<Target = UpgradeNode>,
    P: Deref<Target = ComponentPod>,
{
    let mut components = BTreeMap::<String, Vec<Version>>::new();
    for pod in pods {
        let versions = components.entry(pod.spec.node_name.clone()).or_default();
        versions.extend(pod.versions());
    }
    nodes
        .into_iter()
        .filter_map(|node| node.observed(&components, agents, upgrade))
        .collect()
}

/// The version in the image of a part of the control plane: `registry.k8s.io/kube-apiserver:v1.36.3`. In old releases
/// the name ends with the architecture.
fn component(image: &str) -> Option<Version> {
    let image = image.split_once('@').map_or(image, |(image, _)| image);
    let (repository, tag) = image.rsplit_once(':')?;
    let name = repository.rsplit('/').next()?;
    let is_component = COMPONENTS.iter().any(|component| {
        let rest = name.strip_prefix(component);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    if is_component { tag.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn observed(node: &UpgradeNode) -> upgrade::Node {
        node.observed(&BTreeMap::new(), &AgentReports::none(), "u").unwrap()
    }

    #[test]
    fn the_images_of_the_control_plane_have_its_version() {
        for (image, version) in [
            ("registry.k8s.io/kube-apiserver:v1.36.3", Some("v1.36.3")),
            ("localhost:5000/k8s/kube-scheduler-amd64:v1.12.3", Some("v1.12.3")),
            ("kube-controller-manager:v1.36.3@sha256:0123", Some("v1.36.3")),
            ("registry.k8s.io/kube-apiserver", None),
            ("registry.k8s.io/kube-apiserver:latest", None),
            ("registry.k8s.io/kube-proxy:v1.36.3", None),
            ("registry.k8s.io/etcd:v3.6.0", None),
        ] {
            assert_eq!(
                component(image).map(|version| version.to_string()).as_deref(),
                version,
                "{image}"
            );
        }
    }

    #[test]
    fn only_what_is_read_of_a_node_is_kept() {
        let node = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"}, "annotations": {"big": "one"}},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.3", "machineID": "m"},
                "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "False", "lastHeartbeatTime": "t",
                    "lastTransitionTime": "2026-11-22T06:00:00Z"}]}});
        let slim: UpgradeNode = serde_json::from_value(node.clone()).unwrap();
        let seen = observed(&slim);
        assert_eq!((seen.name.as_str(), seen.ready, seen.labels.len()), ("a", false, 1));
        assert_eq!(seen.ready_changed, Some("2026-11-22T06:00:00Z".parse().unwrap()));
        assert_eq!(
            seen.kubelet.map(|version| version.to_string()).as_deref(),
            Some("v1.36.3")
        );
        let cached: UpgradeNode = serde_json::from_str(&serde_json::to_string(&slim).unwrap()).unwrap();
        assert_eq!(cached, slim);
        let mut heartbeat = node.clone();
        heartbeat["metadata"]["resourceVersion"] = json!("8");
        heartbeat["status"]["conditions"][1]["lastHeartbeatTime"] = json!("later");
        assert!(slim.is_as(&serde_json::from_value(heartbeat).unwrap()));
        let mut cordoned = node.clone();
        cordoned["spec"] = json!({"unschedulable": true});
        cordoned["metadata"]["annotations"][CORDONED_BY_ANNOTATION] = json!("u");
        let cordoned: UpgradeNode = serde_json::from_value(cordoned).unwrap();
        let seen = observed(&cordoned);
        assert!(!slim.is_as(&cordoned) && seen.cordoned);
        assert_eq!(seen.cordoned_by.as_deref(), Some("u"));
        let mut ready = node;
        ready["status"]["conditions"][1]["status"] = json!("True");
        let ready: UpgradeNode = serde_json::from_value(ready).unwrap();
        assert!(!slim.is_as(&ready) && observed(&ready).ready);
    }
}
