//! A Node of the size and shape that a kubelet on EC2 gives it.

use k8s_openapi::api::core::v1::{Node, NodeAddress, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// The most images that a kubelet reports by default (`nodeStatusMaxImages`).
const MAX_IMAGES: u64 = 50;

/// A Node of this name as its kubelet registers it: Ready, no providerID, no `InternalIP`, the labels that a kubelet
/// sets itself.
pub fn node(name: &str) -> NodeBuilder {
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {
                "alpha.kubernetes.io/provided-node-ip": "172.20.41.17",
                "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"{name}\"}}"),
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/instance-type": "t3.medium",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "t3.medium",
            },
            "managedFields": managed_fields(),
        },
        "spec": {},
        "status": status(name),
    });
    NodeBuilder(serde_json::from_value(node).expect("a Node"))
}

/// Builds a Node.
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeBuilder(Node);

impl NodeBuilder {
    /// `spec.providerID`, as `aws:///us-test-1a/i-0123456789abcdef0`.
    pub fn provider_id(mut self, provider_id: &str) -> Self {
        self.0.spec.get_or_insert_default().provider_id = Some(provider_id.to_owned());
        self
    }

    /// One more address of type `InternalIP`.
    pub fn internal_ip(self, address: &str) -> Self {
        self.address("InternalIP", address)
    }

    /// One more address.
    pub fn address(mut self, kind: &str, address: &str) -> Self {
        let addresses = self.0.status.get_or_insert_default().addresses.get_or_insert_default();
        addresses.push(NodeAddress {
            type_: kind.to_owned(),
            address: address.to_owned(),
        });
        self
    }

    /// A label. A kubelet may not set those under kubernetes.io and k8s.io but for a few.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.meta()
            .labels
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
        self
    }

    /// An annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.meta()
            .annotations
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
        self
    }

    /// A taint, as `tidewaiter.dev/unidentified` with `NoSchedule`. A kubelet may set them at registration only.
    pub fn taint(mut self, key: &str, effect: &str) -> Self {
        let taints = self.0.spec.get_or_insert_default().taints.get_or_insert_default();
        taints.push(Taint {
            key: key.to_owned(),
            effect: effect.to_owned(),
            ..Taint::default()
        });
        self
    }

    /// Sets the condition Ready to `True`, `False` or `Unknown`.
    pub fn ready(mut self, status: &str) -> Self {
        let conditions = self.0.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions
            .iter_mut()
            .filter(|condition| condition.type_ == "Ready")
            .for_each(|ready| status.clone_into(&mut ready.status));
        self
    }

    /// The Node.
    #[must_use]
    pub fn build(self) -> Node {
        self.0
    }

    fn meta(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

/// The conditions that a kubelet reports, each with this heartbeat.
pub(crate) fn conditions(heartbeat: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": "2026-01-12T09:21:08Z",
        })
    };
    json!([
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available"
        ),
        condition(
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure"
        ),
        condition(
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available"
        ),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ])
}

fn status(name: &str) -> Value {
    json!({
        "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalDNS", "address": name}],
        "allocatable": resources("18242267924", "3803244Ki"),
        "capacity": resources("20145724Ki", "3905644Ki"),
        "conditions": conditions("2026-01-12T09:21:08Z"),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "features": {"supplementalGroupsPolicy": true},
        "images": (0..MAX_IMAGES).map(image).collect::<Vec<_>>(),
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "5b0c1d6e-3f24-4a6b-9f7a-5d3f0e0a8c11",
            "containerRuntimeVersion": "containerd://2.2.9",
            "kernelVersion": "6.8.0-1021-aws",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.3",
            "machineID": "ec2a7cd1cb5f9e7ea8d90f0f2b2a4c5d",
            "operatingSystem": "linux",
            "osImage": "Ubuntu 24.04.3 LTS",
            "systemUUID": "ec2a7cd1-cb5f-9e7e-a8d9-0f0f2b2a4c5d",
        },
        "runtimeHandlers": [
            {"name": "", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}},
            {"name": "runc", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": true}},
        ],
    })
}

fn resources(storage: &str, memory: &str) -> Value {
    json!({
        "cpu": "2", "ephemeral-storage": storage, "hugepages-1Gi": "0", "hugepages-2Mi": "0", "memory": memory, "pods": "110",
    })
}

fn image(number: u64) -> Value {
    let repository = format!("registry.example.com/platform/workload-{number:02}/service");
    let digest = format!("{:016x}", (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(4);
    json!({
        "names": [format!("{repository}@sha256:{digest}"), format!("{repository}:v1.{number}.0")],
        "sizeBytes": 150_000_000 - number * 1_000_000,
    })
}

fn managed_fields() -> Value {
    let resources = fields(&[
        "cpu",
        "ephemeral-storage",
        "hugepages-1Gi",
        "hugepages-2Mi",
        "memory",
        "pods",
    ]);
    let condition = fields(&[
        "lastHeartbeatTime",
        "lastTransitionTime",
        "message",
        "reason",
        "status",
        "type",
    ]);
    let registered = json!({
        "f:metadata": {
            "f:annotations": fields(&[
                "alpha.kubernetes.io/provided-node-ip",
                "volumes.kubernetes.io/controller-managed-attach-detach",
            ]),
            "f:labels": fields(&[
                "beta.kubernetes.io/arch",
                "beta.kubernetes.io/instance-type",
                "beta.kubernetes.io/os",
                "kubernetes.io/arch",
                "kubernetes.io/hostname",
                "kubernetes.io/os",
                "node.kubernetes.io/instance-type",
            ]),
        },
        "f:spec": {"f:providerID": {}},
    });
    let reported = json!({
        "f:metadata": {"f:annotations": {"f:csi.volume.kubernetes.io/nodeid": {}}},
        "f:status": {
            "f:addresses": {},
            "f:allocatable": resources,
            "f:capacity": resources,
            "f:conditions": {
                ".": {},
                "k:{\"type\":\"DiskPressure\"}": condition,
                "k:{\"type\":\"MemoryPressure\"}": condition,
                "k:{\"type\":\"PIDPressure\"}": condition,
                "k:{\"type\":\"Ready\"}": condition,
            },
            "f:images": {},
            "f:nodeInfo": fields(&["bootID", "machineID", "systemUUID"]),
        },
    });
    let allocated = json!({
        "f:metadata": {"f:annotations": {"f:node.alpha.kubernetes.io/ttl": {}}},
        "f:spec": {"f:podCIDR": {}, "f:podCIDRs": {".": {}, "v:\"100.96.3.0/24\"": {}}},
    });
    json!([
        managed("kubelet", "", &registered),
        managed("kube-controller-manager", "", &allocated),
        managed("kubelet", "status", &reported),
    ])
}

fn managed(manager: &str, subresource: &str, fields: &Value) -> Value {
    json!({
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-12T09:21:08Z",
        "fieldsType": "FieldsV1",
        "subresource": subresource,
        "fieldsV1": fields,
    })
}

/// An object that is managed itself, with these members.
fn fields(names: &[&str]) -> Value {
    let itself = (".".to_owned(), json!({}));
    Value::Object(
        names
            .iter()
            .map(|name| (format!("f:{name}"), json!({})))
            .chain([itself])
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_large_as_real_ones() {
        let size = serde_json::to_vec(&node("ip-172-20-41-17.ec2.internal").build())
            .unwrap()
            .len();
        assert!((15_000..40_000).contains(&size), "{size} bytes");
    }

    #[test]
    fn what_a_test_sets_is_in_the_node() {
        let node = node("a")
            .provider_id("aws:///z/i-1")
            .internal_ip("10.0.0.1")
            .label("k", "v")
            .taint("t", "NoSchedule")
            .ready("False")
            .build();
        let spec = node.spec.unwrap();
        assert_eq!(spec.provider_id.as_deref(), Some("aws:///z/i-1"));
        assert_eq!(spec.taints.unwrap()[0].key, "t");
        assert_eq!(node.metadata.labels.unwrap()["k"], "v");
        let status = node.status.unwrap();
        assert!(
            status
                .addresses
                .unwrap()
                .iter()
                .any(|address| address.type_ == "InternalIP" && address.address == "10.0.0.1")
        );
        assert!(
            status
                .conditions
                .unwrap()
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "False")
        );
    }
}
