//! The fields of a kOps `InstanceGroup` that define labels.
//!
//! All other fields are ignored; the ones that are read are strict. A group without a known role is invalid: its nodes
//! get no labels from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidewaiter_api::values::Role;
use tidewaiter_api::{ClusterName, InstanceGroupName};

use crate::cluster::{Cluster, containerd_enables, kubelet_labels};
use crate::document::{InvalidFile, Mapping, NodeLabelField};
use crate::spec::spec_of_group;

/// The folder below the configuration base with one file for each group.
pub const GROUPS_FOLDER: &str = "instancegroup";

/// The fields of an InstanceGroup that define labels of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceGroup {
    /// `metadata.name`, which is also the name of its file.
    pub name: InstanceGroupName,
    /// `spec.role`. Never empty.
    pub roles: BTreeSet<Role>,
    /// `spec.kubelet.nodeLabels`.
    pub kubelet: NodeLabelField,
    /// `spec.nodeLabels`.
    pub node_labels: NodeLabelField,
    /// True if `spec.machineType` is a type of EC2 instances with a GPU.
    pub gpu_machine: bool,
    /// `spec.containerd.nvidiaGPU.enabled`.
    pub nvidia_gpu: bool,
    /// `spec.containerd.gvisor.enabled`.
    pub gvisor: bool,
}

const ROLES_ALLOWED: &str = "one of ControlPlane, Master, Node, Bastion, APIServer, Etcd, Scheduler, KubeControllerManager, or \
    several with a comma between";

/// Reads `role` from an InstanceGroup's `spec`: in newer kOps versions a list, such as `APIServer,Scheduler`. Never
/// empty.
fn roles(spec: &Mapping<'_>) -> Result<BTreeSet<Role>, InvalidFile> {
    let field = spec.require("role", ROLES_ALLOWED)?;
    let role = |text: &str| {
        Role::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, role)| *role)
    };
    let text = field.text(ROLES_ALLOWED)?;
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let roles: Option<BTreeSet<Role>> = names.map(role).collect();
    let roles = roles.filter(|roles| !roles.is_empty());
    roles.ok_or_else(|| field.must_be(ROLES_ALLOWED))
}

/// The role that stands for all of the group.
pub(crate) fn role(spec: &Mapping<'_>) -> Result<Role, InvalidFile> {
    Ok(roles(spec)?.first().copied().unwrap_or(Role::Node))
}

/// The definition of the labels of a group's nodes: its Cluster and its InstanceGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The group.
    pub group: Arc<InstanceGroup>,
}

impl InstanceGroup {
    /// Path of the group's file below the configuration base.
    #[must_use]
    pub fn file(name: &InstanceGroupName) -> String {
        format!("{GROUPS_FOLDER}/{name}")
    }

    /// Parses `bytes`, the content of `file`, as the InstanceGroup named `expected` of `cluster`.
    ///
    /// # Errors
    /// If it is not a single YAML or JSON document, not an InstanceGroup of kOps, another group or of another
    /// cluster, without a known role, or if a field that defines labels has the wrong type.
    pub fn parse(
        file: &str,
        bytes: &[u8],
        expected: &InstanceGroupName,
        cluster: &ClusterName,
    ) -> Result<Self, InvalidFile> {
        spec_of_group(file, bytes, expected, cluster, |spec| {
            // Its errors are those of the summary: they cost no node its labels.
            let machine_type = spec.get("machineType").and_then(|field| field.text("").ok());
            Ok(Self {
                name: expected.clone(),
                roles: roles(spec)?,
                kubelet: kubelet_labels(spec, "kubelet")?,
                node_labels: spec.node_labels("nodeLabels")?,
                gpu_machine: machine_type.is_some_and(has_gpu),
                nvidia_gpu: containerd_enables(spec, "nvidiaGPU")?,
                gvisor: containerd_enables(spec, "gvisor")?,
            })
        })
    }
}

/// Returns true if this is a type of EC2 instances for which EC2's API lists GPUs, of any manufacturer, which is what
/// kOps looks at: the families whose letters are `g`, `gr` or `p` (NVIDIA, and AMD in `g4ad`), and `dl1` (Habana).
/// Machine types of other clouds contain no dot.
fn has_gpu(machine_type: &str) -> bool {
    let Some((family, _)) = machine_type.split_once('.') else {
        return false;
    };
    let letters = family.find(|c: char| c.is_ascii_digit()).map(|end| &family[..end]);
    family == "dl1" || matches!(letters, Some("g" | "gr" | "p"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::LabelText;

    const NODES: &str = include_str!("../fixtures/instancegroup/nodes-a");
    const CONTROL_PLANE: &str = include_str!("../fixtures/instancegroup/control-plane-a");

    fn parse(text: &str) -> Result<InstanceGroup, InvalidFile> {
        parse_as("nodes-a", text)
    }

    fn parse_as(name: &str, text: &str) -> Result<InstanceGroup, InvalidFile> {
        let (group, cluster) = (name.parse().unwrap(), "cluster.example.com".parse().unwrap());
        InstanceGroup::parse(&InstanceGroup::file(&group), text.as_bytes(), &group, &cluster)
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_group_that_kops_writes() {
        let group = parse(NODES).unwrap();
        assert_eq!((group.name.as_str(), group.roles), ("nodes-a", [Role::Node].into()));
        assert_eq!(
            group.kubelet.entries["example.com/tier"],
            LabelText::Text("batch".to_owned())
        );
        assert_eq!(group.node_labels.field, "spec.nodeLabels");
        assert_eq!(
            group.node_labels.entries["example.com/team"],
            LabelText::Text("data".to_owned())
        );
    }

    #[test]
    fn a_document_may_begin_with_its_mark() {
        let group = parse_as("control-plane-a", CONTROL_PLANE).unwrap();
        assert_eq!(group.roles, [Role::ControlPlane].into());
    }

    #[test]
    fn every_role_of_kops_is_known_and_master_means_control_plane() {
        for (name, role) in Role::NAMES {
            assert_eq!(
                parse(&NODES.replace("role: Node", &format!("role: {name}")))
                    .unwrap()
                    .roles,
                [role].into(),
                "{name}"
            );
        }
        assert_eq!(
            Role::NAMES.map(|(_, role)| role.to_string()),
            ["ControlPlane", "ControlPlane"]
                .into_iter()
                .chain([
                    "Node",
                    "Bastion",
                    "APIServer",
                    "Etcd",
                    "Scheduler",
                    "KubeControllerManager"
                ])
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .as_slice()
        );
    }

    #[test]
    fn a_group_may_have_several_roles() {
        let group = parse(&NODES.replace("role: Node", "role: Scheduler, APIServer,Scheduler")).unwrap();
        assert_eq!(group.roles, [Role::ApiServer, Role::Scheduler].into());
        assert_eq!(group.roles.first(), Some(&Role::ApiServer));
    }

    #[test]
    fn a_group_without_a_role_that_we_know_is_refused() {
        let allowed = "must be one of ControlPlane, Master, Node, Bastion, APIServer, Etcd, Scheduler, KubeControllerManager, \
            or several with a comma between";
        for (role, found) in [
            ("", format!("is missing: {allowed}")),
            ("  role:\n", format!("is missing: {allowed}")),
            ("  role: Worker\n", format!("is \"Worker\", {allowed}")),
            ("  role: node\n", format!("is \"node\", {allowed}")),
            ("  role: \"\"\n", format!("is \"\", {allowed}")),
            ("  role: [Node]\n", format!("is a list, {allowed}")),
            ("  role: true\n", format!("is the boolean true, {allowed}")),
            ("  role: Node,Worker\n", format!("is \"Node,Worker\", {allowed}")),
            ("  role: \",\"\n", format!("is \",\", {allowed}")),
        ] {
            let found_now = error(&NODES.replace("  role: Node\n", role));
            assert_eq!(
                found_now,
                format!("instancegroup/nodes-a: spec.role: {found}"),
                "{role}"
            );
        }
    }

    #[test]
    fn another_groups_file_is_refused() {
        assert_eq!(
            error(&NODES.replace("  name: nodes-a\n", "  name: nodes-b\n")),
            "instancegroup/nodes-a: metadata.name: is \"nodes-b\", but the file belongs to group nodes-a"
        );
        assert_eq!(
            error(&NODES.replace("kind: InstanceGroup", "kind: Cluster")),
            "instancegroup/nodes-a: kind: is \"Cluster\", must be InstanceGroup"
        );
        assert!(error(&format!("{NODES}---\n{NODES}")).starts_with("instancegroup/nodes-a: is not valid YAML: "));
    }

    #[test]
    fn a_group_of_another_cluster_is_refused_and_one_that_names_none_is_not() {
        let label = "    kops.k8s.io/cluster: cluster.example.com\n";
        assert_eq!(
            error(&NODES.replace("cluster: cluster.example.com", "cluster: other.example.com")),
            "instancegroup/nodes-a: metadata.labels.kops.k8s.io/cluster: is \"other.example.com\", but clusterName of the \
             configuration is cluster.example.com"
        );
        assert_eq!(
            error(&NODES.replace("cluster: cluster.example.com", "cluster: 7")),
            "instancegroup/nodes-a: metadata.labels.kops.k8s.io/cluster: is the number 7, must be a string"
        );
        for none in ["", "    team: a\n", "    kops.k8s.io/cluster: \"\"\n"] {
            assert!(NODES.contains(label));
            let group = parse(&NODES.replace(label, none));
            assert_eq!(group, parse(NODES), "{none}");
        }
    }

    #[test]
    fn features_of_containerd_are_read_and_the_machine_type() {
        let with = |containerd: &str| parse(&NODES.replace("spec:\n", &format!("spec:\n  containerd: {containerd}\n")));
        let features = |containerd: &str| {
            let group = with(containerd).unwrap();
            (group.nvidia_gpu, group.gvisor)
        };
        for (containerd, found) in [
            ("{}", (false, false)),
            ("null", (false, false)),
            ("{nvidiaGPU: {enabled: true}}", (true, false)),
            ("{gvisor: {enabled: true}, nvidiaGPU: {}}", (false, true)),
            ("{gvisor: {enabled: false}, nvidiaGPU: null}", (false, false)),
        ] {
            assert_eq!(features(containerd), found, "{containerd}");
        }
        let error = with("{gvisor: {enabled: \"yes\"}}").unwrap_err().to_string();
        let expected = "instancegroup/nodes-a: spec.containerd.gvisor.enabled: is \"yes\", must be true or false";
        assert_eq!(error, expected);
        let gpu = |machine_type: &str| parse(&NODES.replace("t3.medium", machine_type)).unwrap().gpu_machine;
        for with in [
            "g2.2xlarge",
            "g3s.xlarge",
            "g4dn.xlarge",
            "g4ad.xlarge",
            "g5g.metal",
            "g6e.48xlarge",
            "gr6.4xlarge",
            "p2.xlarge",
            "p4de.24xlarge",
            "p6-b200.48xlarge",
            "dl1.24xlarge",
        ] {
            assert!(gpu(with), "{with}");
        }
        for without in [
            "t3.medium",
            "m5.large",
            "c6gd.large",
            "gp.large",
            "inf2.xlarge",
            "trn1.2xlarge",
            "vt1.3xlarge",
            "g2-standard-4",
            "cx21",
            "g",
            "[g5.xlarge]",
            "7",
        ] {
            assert!(!gpu(without), "{without}");
        }
    }

    #[test]
    fn one_value_that_is_no_string_leaves_the_others() {
        let group = parse(&NODES.replace(
            "example.com/team: data",
            "example.com/team: yes\n    example.com/other: x",
        ))
        .unwrap();
        assert_eq!(
            group.node_labels.entries["example.com/team"],
            LabelText::NotText("the boolean true".to_owned())
        );
        assert_eq!(
            group.node_labels.entries["example.com/other"],
            LabelText::Text("x".to_owned())
        );
    }

    #[test]
    fn a_file_that_was_cut_short_is_no_group_or_the_same_group() {
        let whole = parse(NODES).unwrap();
        for end in 0..NODES.len() {
            if let Ok(group) = parse(&NODES[..end]) {
                assert_eq!(group, whole, "cut at {end}");
            }
        }
    }
}
