//! The fields of a kOps `InstanceGroup` for a list of groups: role, machine type, sizes, subnets.
//!
//! Separate from [`InstanceGroup`](crate::InstanceGroup), so that a file with invalid sizes still defines the labels of
//! its nodes, and a size that an autoscaler changes concerns no Node. The fields that are read are strict.

use tidewaiter_api::values::Role;
use tidewaiter_api::{ClusterName, InstanceGroupName};

use crate::document::InvalidFile;
use crate::instance_group::role;
use crate::spec::spec_of_group;

/// A row in a list of InstanceGroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// `metadata.name`, which is also the name of its file.
    pub name: InstanceGroupName,
    /// `spec.role`.
    pub role: Role,
    /// `spec.machineType`; empty when the file has none.
    pub machine_type: String,
    /// `spec.minSize`, in instances.
    pub min_size: Option<u32>,
    /// `spec.maxSize`, in instances.
    pub max_size: Option<u32>,
    /// `spec.subnets`, by their names in the Cluster.
    pub subnets: Vec<String>,
    /// True if Karpenter makes the instances of a group of workers (`spec.manager`), and the cloud has no group of
    /// them. Source: `IsKarpenterManaged` of kOps (`pkg/apis/kops/instancegroup.go`).
    pub karpenter: bool,
}

impl GroupSummary {
    /// Parses `bytes`, the content of `file`, as the InstanceGroup named `expected` of `cluster`.
    ///
    /// # Errors
    /// If it is not a single YAML or JSON document, not an InstanceGroup of kOps, another group or of another
    /// cluster, without a known role, or if a field of the summary has the wrong type.
    pub fn parse(
        file: &str,
        bytes: &[u8],
        expected: &InstanceGroupName,
        cluster: &ClusterName,
    ) -> Result<Self, InvalidFile> {
        spec_of_group(file, bytes, expected, cluster, |spec| {
            let size = |key: &str| spec.get(key).map(|field| field.count()).transpose();
            let machine_type = spec
                .get("machineType")
                .map(|field| field.text("a string").map(str::to_owned));
            let subnets = spec.get("subnets").map(|field| field.texts("a list of strings"));
            let manager = spec.get("manager").map(|field| field.text("a string")).transpose()?;
            let role = role(spec)?;
            Ok(Self {
                name: expected.clone(),
                role,
                machine_type: machine_type.transpose()?.unwrap_or_default(),
                min_size: size("minSize")?,
                max_size: size("maxSize")?,
                subnets: subnets.transpose()?.unwrap_or_default(),
                karpenter: manager == Some("Karpenter") && role == Role::Node,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = include_str!("../fixtures/instancegroup/nodes-a");

    fn parse(text: &str) -> Result<GroupSummary, InvalidFile> {
        let (group, cluster) = ("nodes-a".parse().unwrap(), "cluster.example.com".parse().unwrap());
        GroupSummary::parse("instancegroup/nodes-a", text.as_bytes(), &group, &cluster)
    }

    #[test]
    fn the_group_that_kops_writes() {
        let expected = GroupSummary {
            name: "nodes-a".parse().unwrap(),
            role: Role::Node,
            machine_type: "t3.medium".to_owned(),
            min_size: Some(1),
            max_size: Some(10),
            subnets: vec!["us-test-1a".to_owned()],
            karpenter: false,
        };
        assert_eq!(parse(NODES).unwrap(), expected);
    }

    #[test]
    fn which_groups_are_karpenters() {
        for (manager, role, expected) in [
            ("Karpenter", "Node", true),
            ("Karpenter", "Master", false),
            ("CloudGroup", "Node", false),
            ("null", "Node", false),
        ] {
            let text = format!(
                "apiVersion: kops.k8s.io/v1alpha2\nkind: InstanceGroup\nmetadata: {{name: nodes-a}}\n\
                 spec: {{role: {role}, manager: {manager}}}\n"
            );
            assert_eq!(parse(&text).unwrap().karpenter, expected, "{manager} {role}");
        }
    }

    #[test]
    fn what_the_file_does_not_say_is_not_made_up() {
        let text = "apiVersion: kops.k8s.io/v1alpha2\nkind: InstanceGroup\nmetadata: {name: nodes-a}\n\
                    spec: {role: Bastion, minSize: null}\n";
        let group = parse(text).unwrap();
        assert_eq!(
            (group.role, group.min_size, group.max_size),
            (Role::Bastion, None, None)
        );
        assert!(group.machine_type.is_empty() && group.subnets.is_empty());
    }

    #[test]
    fn a_field_of_the_wrong_shape_is_named() {
        let number = "must be a whole number from 0 to 4294967295";
        for (from, to, found) in [
            (
                "minSize: 1",
                "minSize: -1",
                format!("spec.minSize: is the number -1, {number}"),
            ),
            (
                "maxSize: 10",
                "maxSize: 1.5",
                format!("spec.maxSize: is the number 1.5, {number}"),
            ),
            (
                "maxSize: 10",
                "maxSize: 4294967296",
                format!("spec.maxSize: is the number 4294967296, {number}"),
            ),
            (
                "maxSize: 10",
                "maxSize: ten",
                format!("spec.maxSize: is \"ten\", {number}"),
            ),
            (
                "t3.medium",
                "[a]",
                "spec.machineType: is a list, must be a string".to_owned(),
            ),
            (
                "- us-test-1a",
                "- 7",
                "spec.subnets: is a list, must be a list of strings".to_owned(),
            ),
            (
                "role: Node",
                "role: Worker",
                "spec.role: is \"Worker\", must be one of".to_owned(),
            ),
            (
                "name: nodes-a",
                "name: nodes-b",
                "metadata.name: is \"nodes-b\"".to_owned(),
            ),
            (
                "kops.k8s.io/cluster: cluster.example.com",
                "kops.k8s.io/cluster: other.example.com",
                "metadata.labels.kops.k8s.io/cluster: is \"other.example.com\"".to_owned(),
            ),
        ] {
            let error = parse(&NODES.replace(from, to)).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("instancegroup/nodes-a: {found}")),
                "{to}: {error}"
            );
        }
    }
}
