//! The labels of nodes, from a Cluster and an InstanceGroup or from the tags of an instance. Pure: reads no file and no
//! Node.
//!
//! The layers are those of kOps, each overriding the one before: the cluster's kubelet, the group's kubelet, the role,
//! the group's `nodeLabels`, what kOps adds to these when it populates the group, the instance's lifecycle. Two things
//! differ from kOps on purpose. An invalid label is rejected individually, where kOps' patch fails as a whole. And
//! `kops.k8s.io/instancegroup` is always the group that the cloud confirms, whatever the file contains, because tools
//! and users rely on it.

use std::collections::{BTreeMap, BTreeSet};

use tidewaiter_api::names::{
    EXCLUDE_FROM_LOAD_BALANCERS_LABEL, GPU_LABEL, GVISOR_LABEL, INSTANCE_GROUP_LABEL, KOPS_CONTROLLER_PKI_LABEL,
    ROLE_API_SERVER_LABEL, ROLE_COMPONENT_LABELS, ROLE_CONTROL_PLANE_LABEL, ROLE_NODE_LABEL, belongs_to_no_group,
    belongs_to_others,
};
use tidewaiter_api::values::{Role, quoted};
use tidewaiter_api::{InstanceGroupName, InvalidValue, LabelKey, LabelSource, LabelValue, Lifecycle};

use crate::cluster::{CLUSTER_FILE, Cluster};
use crate::document::{LabelText, NodeLabelField};
use crate::instance_group::{Definition, InstanceGroup};

/// The maximum number of labels that a definition sets on a node. During a change, a node's record contains the old and
/// the new keys, at most 512.
pub const MAX_LABELS: usize = 250;

/// Labels of kOps that follow neither from the role nor from the lifecycle.
const OTHERS_OF_KOPS: [&str; 3] = [INSTANCE_GROUP_LABEL, GPU_LABEL, GVISOR_LABEL];

/// The maximum length of a key: a DNS subdomain, a slash and a name.
const LONGEST_KEY: usize = 253 + 1 + 63;

/// The resulting labels of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels {
    /// The labels that the node should have, sorted by key, each key once.
    pub wanted: Vec<WantedLabel>,
    /// Invalid labels in the files, sorted by key.
    ///
    /// A rejected key is not set to another layer's value either: the definition overrides the earlier layers. Leave a
    /// Node's label with such a key unchanged until the file is corrected.
    pub rejected: Vec<RejectedLabel>,
}

/// A label that the node should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedLabel {
    /// Its key.
    pub key: LabelKey,
    /// Its value.
    pub value: LabelValue,
    /// The layer that defines it.
    pub source: LabelSource,
    /// The file below the configuration base that defines it; empty if it follows from the instance alone.
    pub file: String,
    /// The field in that file, or the tag of the instance; empty if it follows from the instance's lifecycle.
    pub field: String,
}

/// An invalid label in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedLabel {
    /// Its key as in the file, cut if it is longer than any valid key.
    pub key: String,
    /// Its value, quoted or described, for a message.
    pub value: String,
    /// The layer that defines it.
    pub source: LabelSource,
    /// The file below the configuration base; empty if it follows from the instance alone.
    pub file: String,
    /// The field in that file, or the tag of the instance.
    pub field: String,
    /// The reason and the remedy, in one line without file, field and value.
    pub reason: String,
}

/// The labels of a node of this group whose instance has this lifecycle and, if they are read, these labels as tags.
///
/// Of the tags only [`GPU_LABEL`] counts, because the files do not say it of a machine type that is newer than this
/// version.
#[must_use]
pub fn node_labels(definition: &Definition, lifecycle: Lifecycle, tags: &[(String, String)]) -> NodeLabels {
    let group = &definition.group.name;
    overlay(definition, lifecycle, tags).checked(group, || WantedName {
        source: LabelSource::GroupNodeLabels,
        file: InstanceGroup::file(group),
        field: "metadata.name".to_owned(),
    })
}

/// The labels of a node of this group whose instance has this lifecycle and these labels as tags, as key and value.
/// This is the rule of newer kOps versions, in which a tag overrides the lifecycle.
#[must_use]
pub fn tag_labels(group: &InstanceGroupName, lifecycle: Lifecycle, tags: &[(String, String)]) -> NodeLabels {
    let mut layers = Layers::default();
    if let Some(key) = lifecycle_label(lifecycle) {
        layers.overlay_label(key, "true", LabelSource::Lifecycle, "", "");
    }
    for (key, value) in tags {
        layers.overlay_tag(key, value);
    }
    layers.checked(group, || WantedName {
        source: LabelSource::InstanceTag,
        file: String::new(),
        field: format!("tag {INSTANCE_GROUP_LABEL}"),
    })
}

/// Applies the layers in order. Labels are validated only after the last layer: an overridden label does not count,
/// valid or not.
fn overlay(definition: &Definition, lifecycle: Lifecycle, tags: &[(String, String)]) -> Layers {
    let (cluster, group) = (&definition.cluster, &definition.group);
    let group_file = InstanceGroup::file(&group.name);
    let mut layers = Layers::default();
    if has_control_plane_kubelet(&group.roles) {
        for field in &cluster.control_plane_kubelet {
            layers.overlay_field(LabelSource::ClusterKubelet, CLUSTER_FILE, field);
        }
    } else {
        layers.overlay_field(LabelSource::ClusterKubelet, CLUSTER_FILE, &cluster.kubelet);
    }
    layers.overlay_field(LabelSource::GroupKubelet, &group_file, &group.kubelet);
    for key in group.roles.iter().copied().flat_map(role_labels) {
        layers.overlay_label(key, "", LabelSource::Role, &group_file, "spec.role");
    }
    layers.overlay_field(LabelSource::GroupNodeLabels, &group_file, &group.node_labels);
    for (key, value) in tags.iter().filter(|(key, _)| key == GPU_LABEL) {
        layers.overlay_tag(key, value);
    }
    for Added { key, feature, in_group } in added_by_kops(group, Some(cluster)) {
        let file = if in_group { &group_file } else { CLUSTER_FILE };
        let field = format!("spec.containerd.{feature}.enabled");
        layers.overlay_label(key, "1", LabelSource::GroupNodeLabels, file, &field);
    }
    if let Some(key) = lifecycle_label(lifecycle) {
        layers.overlay_label(key, "true", LabelSource::Lifecycle, "", "");
    }
    layers
}

/// A label that kOps adds to a group's `nodeLabels` before it writes them into the tags of its instances. The state
/// store has the group without it.
struct Added {
    key: &'static str,
    /// The feature of containerd because of which it does.
    feature: &'static str,
    /// True if the group enables the feature itself, not only the Cluster.
    in_group: bool,
}

/// Source: `PopulateInstanceGroupSpec` of kOps. gVisor is a feature of single groups of workers.
fn added_by_kops(group: &InstanceGroup, cluster: Option<&Cluster>) -> impl Iterator<Item = Added> + use<> {
    let nvidia = group.nvidia_gpu || cluster.is_some_and(|cluster| cluster.nvidia_gpu);
    let gpu = (nvidia && group.gpu_machine).then_some(Added {
        key: GPU_LABEL,
        feature: "nvidiaGPU",
        in_group: group.nvidia_gpu,
    });
    let gvisor = (group.gvisor && group.roles.contains(&Role::Node)).then_some(Added {
        key: GVISOR_LABEL,
        feature: "gvisor",
        in_group: true,
    });
    gpu.into_iter().chain(gvisor)
}

/// All keys that a group's files or its role define, whether their values are valid or not, except those that belong to
/// no group (see [`belongs_to_no_group`]).
pub(crate) fn keys_of_group<'a>(group: &'a InstanceGroup, cluster: Option<&Cluster>) -> impl Iterator<Item = &'a str> {
    let files = group.kubelet.entries.keys().chain(group.node_labels.entries.keys());
    let roles = group.roles.iter().copied().flat_map(role_labels);
    files
        .map(String::as_str)
        .chain(roles.map(|key| -> &'a str { key }))
        .chain(added_by_kops(group, cluster).map(|added| added.key))
        .chain([INSTANCE_GROUP_LABEL])
        .filter(|key| !belongs_to_no_group(key))
}

/// All keys that the Cluster's kubelets define, for workers or the control plane, as in [`keys_of_group`].
pub(crate) fn keys_of_cluster(cluster: &Cluster) -> impl Iterator<Item = &str> {
    let fields = cluster.control_plane_kubelet.iter().chain([&cluster.kubelet]);
    fields
        .flat_map(|field| field.entries.keys())
        .map(String::as_str)
        .filter(|key| !belongs_to_no_group(key))
}

/// Returns true if a key is one of kOps' keys for group, role, lifecycle or containerd's features, in any cluster.
pub(crate) fn is_of_kops(key: &str) -> bool {
    let lifecycles = [Lifecycle::Spot, Lifecycle::Scheduled]
        .into_iter()
        .filter_map(lifecycle_label);
    let mut known = lifecycles.chain(ROLE_COMPONENT_LABELS).chain([ROLE_NODE_LABEL]);
    OTHERS_OF_KOPS.contains(&key) || known.any(|known| known == key) || is_control_plane_label(key)
}

/// Returns true if kOps gives the label only to groups of the control plane.
#[must_use]
pub fn is_control_plane_label(key: &str) -> bool {
    let roles = [
        Role::ControlPlane,
        Role::ApiServer,
        Role::Etcd,
        Role::Scheduler,
        Role::KubeControllerManager,
    ];
    let mut labels = roles.into_iter().flat_map(role_labels);
    labels.any(|label| *label == key) && !belongs_to_no_group(key)
}

fn role_labels(role: Role) -> &'static [&'static str] {
    match role {
        Role::ControlPlane => &[
            ROLE_CONTROL_PLANE_LABEL,
            KOPS_CONTROLLER_PKI_LABEL,
            EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
        ],
        Role::Node => &[ROLE_NODE_LABEL],
        Role::ApiServer => &[ROLE_API_SERVER_LABEL],
        Role::Etcd => &["node-role.kubernetes.io/etcd"],
        Role::Scheduler => &["node-role.kubernetes.io/scheduler"],
        Role::KubeControllerManager => &["node-role.kubernetes.io/kube-controller-manager"],
        Role::Bastion => &[],
    }
}

/// Returns true if the labels of the control plane's kubelet are those of a group. kOps versions with a split control
/// plane count all of its roles; those before gave a group of API servers the labels of workers, and it keeps them.
fn has_control_plane_kubelet(roles: &BTreeSet<Role>) -> bool {
    let split = [Role::Etcd, Role::Scheduler, Role::KubeControllerManager];
    roles.contains(&Role::ControlPlane) || split.iter().any(|role| roles.contains(role))
}

fn lifecycle_label(lifecycle: Lifecycle) -> Option<&'static str> {
    match lifecycle {
        Lifecycle::OnDemand => None,
        Lifecycle::Spot => Some("node-role.kubernetes.io/spot-worker"),
        Lifecycle::Scheduled => Some("node-role.kubernetes.io/scheduled-worker"),
    }
}

/// The source of the label with the group's name.
struct WantedName {
    source: LabelSource,
    file: String,
    field: String,
}

/// Sets kOps' label for the group to the group's own name, whatever the layers define.
fn name_the_group(wanted: &mut Vec<WantedLabel>, group: &InstanceGroupName, name: impl FnOnce() -> WantedName) {
    let Err(place) = wanted.binary_search_by(|label| label.key.as_str().cmp(INSTANCE_GROUP_LABEL)) else {
        return;
    };
    // The name of a group may be longer than a label value or contain characters that a value must not: then the label
    // is omitted.
    if let (Ok(key), Ok(value)) = (INSTANCE_GROUP_LABEL.parse(), group.as_str().parse()) {
        let WantedName { source, file, field } = name();
        let label = WantedLabel {
            key,
            value,
            source,
            file,
            field,
        };
        wanted.insert(place, label);
    }
}

/// Applies [`MAX_LABELS`]: first the labels that kOps itself needs, then the others by key.
fn cut(labels: &mut NodeLabels) {
    if labels.wanted.len() <= MAX_LABELS {
        return;
    }
    let needed = |label: &WantedLabel| {
        matches!(label.source, LabelSource::Role | LabelSource::Lifecycle)
            || OTHERS_OF_KOPS.contains(&label.key.as_str())
    };
    labels.wanted.sort_by_key(|label| (!needed(label), label.key.clone()));
    let reason = format!("exceeds the limit of {MAX_LABELS} labels per node");
    labels
        .rejected
        .extend(labels.wanted.drain(MAX_LABELS..).map(|label| RejectedLabel {
            key: label.key.into(),
            value: quoted(label.value.as_str()),
            source: label.source,
            file: label.file,
            field: label.field,
            reason: reason.clone(),
        }));
    labels.wanted.sort_by(|a, b| a.key.cmp(&b.key));
    labels.rejected.sort_by(|a, b| a.key.cmp(&b.key));
}

/// For each key, the value of the last layer that has it.
#[derive(Default)]
struct Layers(BTreeMap<String, LabelCandidate>);

/// A label of one layer, not validated yet.
struct LabelCandidate {
    text: LabelText,
    source: LabelSource,
    file: String,
    field: String,
}

impl Layers {
    /// The result of the layers, with each label validated individually.
    fn checked(self, group: &InstanceGroupName, name: impl FnOnce() -> WantedName) -> NodeLabels {
        let mut labels = NodeLabels::default();
        for (key, candidate) in self.0 {
            match candidate.check(&key, group) {
                Ok(wanted) => labels.wanted.push(wanted),
                Err(reason) => labels.rejected.push(candidate.rejected(&key, reason)),
            }
        }
        name_the_group(&mut labels.wanted, group, name);
        cut(&mut labels);
        labels
    }

    fn overlay_field(&mut self, source: LabelSource, file: &str, field: &NodeLabelField) {
        for (key, text) in &field.entries {
            let candidate = LabelCandidate {
                text: text.clone(),
                source,
                file: file.to_owned(),
                field: format!("{}[{}]", field.field, quoted(key)),
            };
            self.0.insert(key.clone(), candidate);
        }
    }

    fn overlay_tag(&mut self, key: &str, value: &str) {
        let field = format!("tag for {}", quoted(key));
        self.overlay_label(key, value, LabelSource::InstanceTag, "", &field);
    }

    fn overlay_label(&mut self, key: &str, value: &str, source: LabelSource, file: &str, field: &str) {
        let candidate = LabelCandidate {
            text: LabelText::Text(value.to_owned()),
            source,
            file: file.to_owned(),
            field: field.to_owned(),
        };
        self.0.insert(key.to_owned(), candidate);
    }
}

impl LabelCandidate {
    fn check(&self, key: &str, group: &InstanceGroupName) -> Result<WantedLabel, String> {
        let LabelText::Text(text) = &self.text else {
            return Err("is not a string: put the value in quotes".to_owned());
        };
        if belongs_to_others(key) {
            return Err(
                "belongs to the kubelet or to the coordinator, and no group can define it: remove it".to_owned(),
            );
        }
        if key == INSTANCE_GROUP_LABEL && text != group.as_str() {
            return Err(format!("names another group than {group}, the group of the node"));
        }
        Ok(WantedLabel {
            key: key
                .parse()
                .map_err(|error: InvalidValue| format!("is not a valid label: {}", error.rule))?,
            value: text
                .parse()
                .map_err(|error: InvalidValue| format!("is not a valid label: the value {}", error.rule))?,
            source: self.source,
            file: self.file.clone(),
            field: self.field.clone(),
        })
    }

    fn rejected(self, key: &str, reason: String) -> RejectedLabel {
        RejectedLabel {
            key: key.chars().take(LONGEST_KEY).collect(),
            value: match self.text {
                LabelText::Text(text) => quoted(&text),
                LabelText::NotText(shown) => shown,
            },
            source: self.source,
            file: self.file,
            field: self.field,
            reason,
        }
    }
}

#[cfg(test)]
mod tests;
