//! The fields of a kOps `Cluster` that decide labels.
//!
//! Read from `cluster-completed.spec`, the Cluster with the defaults of kOps. All other fields are ignored; the ones
//! that are read are strict.

use tidewaiter_api::ClusterName;

use crate::document::{InvalidFile, Mapping, NodeLabelField};
use crate::spec::spec_of_cluster;

/// Path of the Cluster below the configuration base.
pub const CLUSTER_FILE: &str = "cluster-completed.spec";

/// The fields of a Cluster that define labels of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// `metadata.name`.
    pub name: ClusterName,
    /// `spec.kubelet.nodeLabels`: for every node except those of the control plane.
    pub kubelet: NodeLabelField,
    /// For control-plane nodes, the last one overriding: `spec.masterKubelet.nodeLabels`, the name in v1alpha2, and
    /// `spec.controlPlaneKubelet.nodeLabels`, the newer name.
    pub control_plane_kubelet: [NodeLabelField; 2],
    /// `spec.containerd.nvidiaGPU.enabled`.
    pub nvidia_gpu: bool,
}

impl Cluster {
    /// Parses `bytes`, the content of `file`, as the Cluster named `expected`.
    ///
    /// # Errors
    /// If it is not a single YAML or JSON document, not a Cluster of kOps, another cluster, or if a field that
    /// defines labels has the wrong type.
    pub fn parse(file: &str, bytes: &[u8], expected: &ClusterName) -> Result<Self, InvalidFile> {
        spec_of_cluster(file, bytes, expected, |spec| {
            Ok(Self {
                name: expected.clone(),
                kubelet: kubelet_labels(spec, "kubelet")?,
                control_plane_kubelet: [
                    kubelet_labels(spec, "masterKubelet")?,
                    kubelet_labels(spec, "controlPlaneKubelet")?,
                ],
                nvidia_gpu: containerd_enables(spec, "nvidiaGPU")?,
            })
        })
    }
}

/// `nodeLabels` of the kubelet configuration under `key`.
pub(crate) fn kubelet_labels(spec: &Mapping<'_>, key: &str) -> Result<NodeLabelField, InvalidFile> {
    match spec.get(key) {
        Some(kubelet) => kubelet
            .mapping("a mapping of kubelet settings")?
            .node_labels("nodeLabels"),
        None => Ok(NodeLabelField::default()),
    }
}

/// `enabled` of a feature of containerd.
pub(crate) fn containerd_enables(spec: &Mapping<'_>, feature: &str) -> Result<bool, InvalidFile> {
    let mut mapping = spec.clone();
    for key in ["containerd", feature] {
        match mapping.get(key) {
            Some(field) => mapping = field.mapping("a mapping")?,
            None => return Ok(false),
        }
    }
    mapping.get("enabled").map_or(Ok(false), |field| field.boolean())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::LabelText;

    const COMPLETED: &str = include_str!("../fixtures/cluster-completed.spec");

    fn parse(text: &str) -> Result<Cluster, InvalidFile> {
        Cluster::parse(CLUSTER_FILE, text.as_bytes(), &"cluster.example.com".parse().unwrap())
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    fn text_of(field: &NodeLabelField, key: &str) -> LabelText {
        field.entries[key].clone()
    }

    #[test]
    fn the_completed_cluster_that_kops_writes() {
        let cluster = parse(COMPLETED).unwrap();
        assert_eq!(cluster.name.as_str(), "cluster.example.com");
        assert_eq!(cluster.kubelet.field, "spec.kubelet.nodeLabels");
        assert_eq!(
            text_of(&cluster.kubelet, "example.com/tier"),
            LabelText::Text("workers".to_owned())
        );
        let [old, new] = &cluster.control_plane_kubelet;
        assert_eq!(old.field, "spec.masterKubelet.nodeLabels");
        assert_eq!(text_of(old, "example.com/tier"), LabelText::Text("control".to_owned()));
        assert_eq!(new, &NodeLabelField::default());
    }

    #[test]
    fn the_control_planes_kubelet_has_two_names() {
        let cluster = parse(&COMPLETED.replace("masterKubelet", "controlPlaneKubelet")).unwrap();
        let [old, new] = &cluster.control_plane_kubelet;
        assert_eq!(old, &NodeLabelField::default());
        assert_eq!(new.field, "spec.controlPlaneKubelet.nodeLabels");
        assert_eq!(text_of(new, "example.com/tier"), LabelText::Text("control".to_owned()));
    }

    #[test]
    fn a_cluster_without_labels_is_fine_and_json_is_too() {
        let text = r#"{"apiVersion":"kops.k8s.io/v1alpha2","kind":"Cluster","metadata":{"name":"cluster.example.com"},"spec":{"kubelet":null,"masterKubelet":{"nodeLabels":null}}}"#;
        let cluster = parse(text).unwrap();
        assert!(cluster.kubelet.entries.is_empty());
        assert!(
            cluster
                .control_plane_kubelet
                .iter()
                .all(|field| field.entries.is_empty())
        );
    }

    #[test]
    fn fields_that_are_not_read_may_hold_anything() {
        let strange = COMPLETED
            .replace("logLevel: 2", "logLevel: [1e400, {a: !custom aGk=}]")
            .replace("channel: stable", "channel: {}");
        assert_eq!(parse(&strange).unwrap(), parse(COMPLETED).unwrap());
    }

    #[test]
    fn each_version_of_kops_api_is_read() {
        for version in ["kops.k8s.io/v1alpha3", "kops/v1alpha2", "kops/v1alpha3"] {
            let text = COMPLETED.replace("kops.k8s.io/v1alpha2", version);
            assert_eq!(parse(&text).unwrap(), parse(COMPLETED).unwrap(), "{version}");
        }
    }

    #[test]
    fn what_is_not_this_cluster_is_refused_with_its_field() {
        let replaced = |from: &str, to: &str| error(&COMPLETED.replace(from, to));
        for (found, expected) in [
            (
                replaced("  name: cluster.example.com", "  name: other.example.com"),
                "cluster-completed.spec: metadata.name: is \"other.example.com\", but clusterName of the configuration is cluster.example.com",
            ),
            (
                replaced("kind: Cluster", "kind: InstanceGroup"),
                "cluster-completed.spec: kind: is \"InstanceGroup\", must be Cluster",
            ),
            (
                replaced("kops.k8s.io/v1alpha2", "kops.k8s.io/v1alpha1"),
                "cluster-completed.spec: apiVersion: is \"kops.k8s.io/v1alpha1\", must be one of kops.k8s.io/v1alpha2, kops.k8s.io/v1alpha3, \
                 kops/v1alpha2, kops/v1alpha3",
            ),
            (
                "apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nmetadata: {name: cluster.example.com}\n".to_owned(),
                "cluster-completed.spec: spec: is missing: must be a mapping",
            ),
        ] {
            let found = if found.starts_with("apiVersion") {
                error(&found)
            } else {
                found
            };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn labels_of_the_wrong_shape_make_the_file_unusable() {
        for (from, to, expected) in [
            (
                "    nodeLabels:\n      example.com/fleet: blue\n      example.com/tier: workers\n",
                "    nodeLabels: [a]\n",
                "cluster-completed.spec: spec.kubelet.nodeLabels: is a list, must be a mapping of label keys to values",
            ),
            (
                "  masterKubelet:\n    anonymousAuth: false\n    nodeLabels:\n      example.com/fleet: blue\n      example.com/tier: control\n    registerSchedulable: true\n",
                "  masterKubelet: on\n",
                "cluster-completed.spec: spec.masterKubelet: is the boolean true, must be a mapping of kubelet settings",
            ),
        ] {
            assert!(COMPLETED.contains(from));
            assert_eq!(error(&COMPLETED.replace(from, to)), expected);
        }
    }
}
