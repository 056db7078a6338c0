use std::fmt::Write as _;
use std::sync::Arc;

use super::*;
use crate::cluster::Cluster;

const CLUSTER_KUBELET: LabelSource = LabelSource::ClusterKubelet;
const GROUP_KUBELET: LabelSource = LabelSource::GroupKubelet;
const ROLE: LabelSource = LabelSource::Role;
const GROUP: LabelSource = LabelSource::GroupNodeLabels;

const SPOT: &str = "node-role.kubernetes.io/spot-worker";
const SCHEDULED: &str = "node-role.kubernetes.io/scheduled-worker";

/// A definition through the real parsers; each argument is the YAML of a `spec`, one line per key.
fn definition(cluster: &str, group: &str) -> Definition {
    let document = |kind: &str, name: &str, spec: &str| {
        let spec = if spec.is_empty() {
            "{}".to_owned()
        } else {
            spec.replace('\n', "\n  ")
        };
        format!("apiVersion: kops.k8s.io/v1alpha2\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  {spec}\n")
    };
    let cluster = document("Cluster", "c.example.com", cluster);
    let group = document("InstanceGroup", "nodes", group);
    let (name, of) = ("nodes".parse().unwrap(), "c.example.com".parse().unwrap());
    Definition {
        cluster: Arc::new(Cluster::parse(CLUSTER_FILE, cluster.as_bytes(), &of).unwrap()),
        group: Arc::new(InstanceGroup::parse(&InstanceGroup::file(&name), group.as_bytes(), &name, &of).unwrap()),
    }
}

/// The wanted labels as `key=value`, without the group's name.
fn wanted(labels: &NodeLabels) -> Vec<String> {
    let others = labels
        .wanted
        .iter()
        .filter(|label| label.key.as_str() != INSTANCE_GROUP_LABEL);
    others.map(|label| format!("{}={}", label.key, label.value)).collect()
}

fn labels(cluster: &str, group: &str) -> NodeLabels {
    node_labels(&definition(cluster, group), Lifecycle::OnDemand, &[])
}

#[test]
fn each_role_gives_its_labels() {
    let control_plane = [
        "kops.k8s.io/kops-controller-pki=",
        "node-role.kubernetes.io/control-plane=",
        "node.kubernetes.io/exclude-from-external-load-balancers=",
    ];
    for (role, expected) in [
        ("ControlPlane", &control_plane[..]),
        ("Master", &control_plane[..]),
        ("Node", &["node-role.kubernetes.io/node="]),
        ("APIServer", &["node-role.kubernetes.io/api-server="]),
        ("Bastion", &[]),
        ("Etcd", &["node-role.kubernetes.io/etcd="]),
        ("Scheduler", &["node-role.kubernetes.io/scheduler="]),
        (
            "KubeControllerManager",
            &["node-role.kubernetes.io/kube-controller-manager="],
        ),
        (
            "Scheduler,APIServer",
            &[
                "node-role.kubernetes.io/api-server=",
                "node-role.kubernetes.io/scheduler=",
            ],
        ),
    ] {
        let labels = labels("", &format!("role: {role}"));
        assert_eq!(wanted(&labels), expected, "{role}");
        assert_eq!(labels.rejected, [], "{role}");
    }
}

#[test]
fn the_lifecycle_of_the_instance_adds_its_label_whatever_the_role() {
    for role in ["Node", "Master", "Bastion"] {
        let definition = definition("", &format!("role: {role}"));
        let plain = wanted(&node_labels(&definition, Lifecycle::OnDemand, &[]));
        assert!(!plain.iter().any(|label| label.contains("-worker")), "{plain:?}");
        for (lifecycle, key) in [(Lifecycle::Spot, SPOT), (Lifecycle::Scheduled, SCHEDULED)] {
            let labels = node_labels(&definition, lifecycle, &[]);
            let label = labels.wanted.iter().find(|label| label.key.as_str() == key).unwrap();
            assert_eq!((label.value.as_str(), label.source), ("true", LabelSource::Lifecycle));
            assert_eq!(
                (label.file.as_str(), label.field.as_str()),
                ("", ""),
                "it follows from the instance alone"
            );
            assert_eq!(
                labels.wanted.len(),
                plain.len() + 2,
                "the group's name and the lifecycle"
            );
        }
    }
}

#[test]
fn the_control_planes_kubelet_is_for_the_control_plane_alone() {
    let cluster = "kubelet: {nodeLabels: {a: plain, b: plain}}\nmasterKubelet: {nodeLabels: {a: control, c: control}}";
    for (role, expected) in [
        ("Master", ["a=control", "c=control"]),
        ("ControlPlane", ["a=control", "c=control"]),
        ("Node", ["a=plain", "b=plain"]),
        ("APIServer", ["a=plain", "b=plain"]),
        ("Bastion", ["a=plain", "b=plain"]),
        ("Etcd", ["a=control", "c=control"]),
        ("APIServer,Scheduler", ["a=control", "c=control"]),
    ] {
        let labels = labels(cluster, &format!("role: {role}"));
        assert_eq!(wanted(&labels)[..2], expected, "{role}");
        assert!(
            labels
                .wanted
                .iter()
                .take(2)
                .all(|label| label.source == CLUSTER_KUBELET && label.file == CLUSTER_FILE)
        );
    }
}

#[test]
fn the_control_planes_kubelet_by_either_name_the_newer_one_winning() {
    let field = |cluster: &str, key: &str| {
        let labels = labels(cluster, "role: ControlPlane");
        let label = labels.wanted.iter().find(|label| label.key.as_str() == key).unwrap();
        (label.value.to_string(), label.field.clone())
    };
    let old = "masterKubelet: {nodeLabels: {a: old, b: old}}";
    let new = "controlPlaneKubelet: {nodeLabels: {a: new}}";
    let both = format!("{old}\n{new}");
    let from_old = |value: &str, key: &str| (value.to_owned(), format!("spec.masterKubelet.nodeLabels[\"{key}\"]"));
    let from_new = |value: &str, key: &str| {
        (
            value.to_owned(),
            format!("spec.controlPlaneKubelet.nodeLabels[\"{key}\"]"),
        )
    };
    assert_eq!(field(old, "a"), from_old("old", "a"));
    assert_eq!(field(new, "a"), from_new("new", "a"));
    assert_eq!(field(&both, "a"), from_new("new", "a"));
    assert_eq!(field(&both, "b"), from_old("old", "b"));
}

#[test]
fn a_later_layer_wins_and_says_so() {
    let role = "node-role.kubernetes.io/node";
    let cluster = format!("kubelet: {{nodeLabels: {{a: \"1\", b: \"1\", c: \"1\", {role}: \"1\"}}}}");
    let group = format!(
        "role: Node\nkubelet: {{nodeLabels: {{b: \"2\", c: \"2\", d: \"2\", {role}: \"2\"}}}}\nnodeLabels: {{c: \"3\", e: \"3\"}}"
    );
    let found: Vec<_> = labels(&cluster, &group)
        .wanted
        .into_iter()
        .filter(|label| label.key.as_str() != INSTANCE_GROUP_LABEL)
        .map(|label| {
            (
                label.key.to_string(),
                label.value.to_string(),
                label.source,
                label.file,
                label.field,
            )
        })
        .collect();
    let expected = [
        (
            "a",
            "1",
            CLUSTER_KUBELET,
            CLUSTER_FILE,
            "spec.kubelet.nodeLabels[\"a\"]",
        ),
        (
            "b",
            "2",
            GROUP_KUBELET,
            "instancegroup/nodes",
            "spec.kubelet.nodeLabels[\"b\"]",
        ),
        ("c", "3", GROUP, "instancegroup/nodes", "spec.nodeLabels[\"c\"]"),
        (
            "d",
            "2",
            GROUP_KUBELET,
            "instancegroup/nodes",
            "spec.kubelet.nodeLabels[\"d\"]",
        ),
        ("e", "3", GROUP, "instancegroup/nodes", "spec.nodeLabels[\"e\"]"),
        (role, "", ROLE, "instancegroup/nodes", "spec.role"),
    ];
    let expected = expected.map(|(key, value, source, file, field)| {
        (
            key.to_owned(),
            value.to_owned(),
            source,
            file.to_owned(),
            field.to_owned(),
        )
    });
    assert_eq!(found, expected);
}

#[test]
fn a_groups_own_labels_win_over_its_role_and_the_lifecycle_over_both() {
    let group = format!("role: Node\nnodeLabels: {{{ROLE_NODE_LABEL}: own, {SPOT}: \"no\"}}");
    let labels = node_labels(&definition("", &group), Lifecycle::Spot, &[]);
    assert_eq!(
        wanted(&labels),
        [format!("{ROLE_NODE_LABEL}=own"), format!("{SPOT}=true")]
    );
}

#[test]
fn the_group_is_named_as_the_cloud_names_it() {
    let named = |group: &str, cluster: &str| {
        let labels = labels(cluster, &format!("role: Bastion\n{group}"));
        let label = labels
            .wanted
            .iter()
            .find(|label| label.key.as_str() == INSTANCE_GROUP_LABEL)
            .unwrap()
            .clone();
        assert_eq!((label.value.as_str(), label.source), ("nodes", GROUP), "{group}");
        assert_eq!(labels.wanted.len(), 1, "{:?}", labels.wanted);
        (label.field, labels.rejected)
    };
    let own = format!("nodeLabels: {{{INSTANCE_GROUP_LABEL}: nodes}}");
    assert_eq!(
        named(&own, ""),
        (format!("spec.nodeLabels[\"{INSTANCE_GROUP_LABEL}\"]"), vec![])
    );
    assert_eq!(
        named("", ""),
        ("metadata.name".to_owned(), vec![]),
        "kOps' older versions do not write it"
    );

    let other = format!("nodeLabels: {{{INSTANCE_GROUP_LABEL}: control-plane}}");
    let (field, rejected) = named(&other, "");
    assert_eq!(field, "metadata.name");
    assert_eq!(
        (
            rejected[0].value.as_str(),
            rejected[0].field.as_str(),
            rejected[0].reason.as_str()
        ),
        (
            "\"control-plane\"",
            "spec.nodeLabels[\"kops.k8s.io/instancegroup\"]",
            "names another group than nodes, the group of the node"
        )
    );
    let (_, rejected) = named("", &format!("kubelet: {{nodeLabels: {{{INSTANCE_GROUP_LABEL}: all}}}}"));
    assert_eq!(
        (rejected[0].source, rejected[0].file.as_str()),
        (CLUSTER_KUBELET, CLUSTER_FILE)
    );
}

/// The admission policy would refuse the patch, and with it all labels of the node.
#[test]
fn a_label_of_a_kubelet_or_of_the_coordinator_is_refused_alone() {
    let group = "role: Node\nnodeLabels:\n  good: x\n  kubernetes.io/hostname: x\n  cluster.containership.io/env: prod\n  containership.io/node-pool-id: a";
    let labels = labels("", group);
    assert_eq!(
        wanted(&labels),
        [
            "containership.io/node-pool-id=a",
            "good=x",
            "node-role.kubernetes.io/node="
        ]
    );
    let rejected = labels
        .rejected
        .iter()
        .map(|label| (label.key.as_str(), label.reason.as_str()));
    let reason = "belongs to the kubelet or to the coordinator, and no group can define it: remove it";
    let expected = ["cluster.containership.io/env", "kubernetes.io/hostname"].map(|key| (key, reason));
    assert_eq!(rejected.collect::<Vec<_>>(), expected);
}

#[test]
fn a_label_that_kubernetes_refuses_is_refused_alone() {
    let group = "role: Node\nnodeLabels:\n  good: x\n  bad key: x\n  bad-value: a b\n  flag: true\n  number: 1.0\n  list: [a]\n  empty:\n  Upper.Example/x: z";
    let labels = labels("", group);
    assert_eq!(wanted(&labels), ["empty=", "good=x", "node-role.kubernetes.io/node="]);
    let found: Vec<_> = labels
        .rejected
        .iter()
        .map(|label| (label.key.as_str(), label.value.as_str(), label.field.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("Upper.Example/x", "\"z\"", "spec.nodeLabels[\"Upper.Example/x\"]"),
            ("bad key", "\"x\"", "spec.nodeLabels[\"bad key\"]"),
            ("bad-value", "\"a b\"", "spec.nodeLabels[\"bad-value\"]"),
            ("flag", "the boolean true", "spec.nodeLabels[\"flag\"]"),
            ("list", "a list", "spec.nodeLabels[\"list\"]"),
            ("number", "the number 1", "spec.nodeLabels[\"number\"]"),
        ]
    );
    assert!(
        labels
            .rejected
            .iter()
            .all(|label| label.file == "instancegroup/nodes" && label.source == GROUP)
    );
    let reason = |key: &str| {
        labels
            .rejected
            .iter()
            .find(|label| label.key == key)
            .unwrap()
            .reason
            .as_str()
    };
    assert_eq!(reason("flag"), "is not a string: put the value in quotes");
    assert!(
        reason("bad-value").starts_with("is not a valid label: the value must be empty, or at most 63 letters"),
        "{}",
        reason("bad-value")
    );
    assert!(
        reason("bad key").starts_with("is not a valid label: the name must be 1 to 63 letters"),
        "{}",
        reason("bad key")
    );
}

#[test]
fn what_a_later_layer_overrides_does_not_count_right_or_wrong() {
    let labels_now = labels(
        "kubelet: {nodeLabels: {a: \"not valid\"}}",
        "role: Bastion\nnodeLabels: {a: good}",
    );
    assert_eq!(
        (wanted(&labels_now), labels_now.rejected),
        (vec!["a=good".to_owned()], vec![])
    );
    let labels_now = labels(
        "kubelet: {nodeLabels: {a: good}}",
        "role: Bastion\nnodeLabels: {a: \"not valid\"}",
    );
    assert_eq!(
        wanted(&labels_now),
        Vec::<String>::new(),
        "the group does not mean the cluster's value"
    );
    assert_eq!(labels_now.rejected.len(), 1);
}

#[test]
fn there_is_an_end_to_the_labels_of_a_node_and_what_kops_needs_is_within_it() {
    let mut group = "role: Node\nnodeLabels:\n".to_owned();
    for n in 0..1_000 {
        writeln!(group, "  a-{n:04}: x").unwrap();
    }
    let labels = node_labels(&definition("", &group), Lifecycle::Spot, &[]);
    let keys: Vec<&str> = labels.wanted.iter().map(|label| label.key.as_str()).collect();
    assert_eq!(keys.len(), MAX_LABELS);
    assert!(keys.is_sorted());
    for key in [INSTANCE_GROUP_LABEL, ROLE_NODE_LABEL, SPOT, "a-0000"] {
        assert!(keys.contains(&key), "{key}");
    }
    assert_eq!(labels.rejected.len(), 1_003 - MAX_LABELS);
    assert!(
        labels
            .rejected
            .iter()
            .all(|label| label.reason.contains("limit of 250 labels"))
    );
}

#[test]
fn what_is_said_of_a_label_is_short_and_one_line() {
    let group = format!(
        "role: Node\nnodeLabels:\n  \"a\\n{}\": x\n  b: \"{}\"",
        "k".repeat(900),
        "v\\n".repeat(100_000)
    );
    for label in labels("", &group).rejected {
        for text in [&label.key, &label.value, &label.field, &label.reason] {
            assert!(text.len() < 400, "{text}");
        }
        assert!(!(label.value + &label.field + &label.reason).contains('\n'));
    }
}

/// The labels of a spot instance of group `nodes` with these tags.
fn of_tags(lifecycle: Lifecycle, tags: &[(&str, &str)]) -> NodeLabels {
    let tags: Vec<(String, String)> = tags
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    tag_labels(&"nodes".parse().unwrap(), lifecycle, &tags)
}

#[test]
fn labels_come_from_tags_with_the_lifecycle_and_the_name_of_the_group() {
    let labels = of_tags(Lifecycle::Spot, &[(ROLE_NODE_LABEL, ""), ("team", "red")]);
    let found: Vec<_> = labels
        .wanted
        .iter()
        .map(|label| {
            (
                label.key.as_str(),
                label.value.as_str(),
                label.source,
                label.field.as_str(),
            )
        })
        .collect();
    let tag = LabelSource::InstanceTag;
    let expected = [
        (INSTANCE_GROUP_LABEL, "nodes", tag, "tag kops.k8s.io/instancegroup"),
        (ROLE_NODE_LABEL, "", tag, "tag for \"node-role.kubernetes.io/node\""),
        (SPOT, "true", LabelSource::Lifecycle, ""),
        ("team", "red", tag, "tag for \"team\""),
    ];
    assert_eq!(found, expected);
    assert!(labels.wanted.iter().all(|label| label.file.is_empty()));
    assert_eq!(labels.rejected, []);
}

#[test]
fn a_tag_wins_over_the_lifecycle_as_in_kops() {
    let labels = of_tags(Lifecycle::Spot, &[(SPOT, "false")]);
    assert_eq!(wanted(&labels), [format!("{SPOT}=false")]);
}

#[test]
fn tags_that_are_no_labels_are_refused_one_by_one() {
    let tags = [
        ("", "x"),
        ("bad key!\u{1b}", "x"),
        ("good", "yes"),
        (INSTANCE_GROUP_LABEL, "masters"),
        ("value", "not a value"),
    ];
    let labels = of_tags(Lifecycle::OnDemand, &tags);
    assert_eq!(wanted(&labels), ["good=yes"]);
    let group = labels
        .wanted
        .iter()
        .find(|label| label.key.as_str() == INSTANCE_GROUP_LABEL);
    assert_eq!(group.unwrap().value.as_str(), "nodes", "whatever the tag says");
    let refused: Vec<&str> = labels.rejected.iter().map(|label| label.key.as_str()).collect();
    assert_eq!(refused, ["", "bad key!\u{1b}", INSTANCE_GROUP_LABEL, "value"]);
    for label in &labels.rejected {
        assert_eq!((label.source, label.file.as_str()), (LabelSource::InstanceTag, ""));
        assert!(
            label.field.starts_with("tag for ") && !label.field.contains('\u{1b}'),
            "{label:?}"
        );
    }
}

const GPU_MACHINE: &str = "role: Node\nmachineType: g4dn.xlarge";

/// The labels with these keys, as key, value, file and field.
fn found(labels: &NodeLabels, keys: &[&str]) -> Vec<(String, String, String, String)> {
    let labels = labels.wanted.iter().filter(|label| keys.contains(&label.key.as_str()));
    let shown = |label: &WantedLabel| {
        let (file, field) = (label.file.clone(), label.field.clone());
        (label.key.to_string(), label.value.to_string(), file, field)
    };
    labels.map(shown).collect()
}

/// kOps writes these labels into the tags of the instances, and not into the state store.
#[test]
fn what_kops_adds_when_it_populates_a_group_is_added_here() {
    let group_file = InstanceGroup::file(&"nodes".parse().unwrap());
    let of_group = |key: &str, feature: &str| {
        let field = format!("spec.containerd.{feature}.enabled");
        vec![(key.to_owned(), "1".to_owned(), group_file.clone(), field)]
    };
    let field = "spec.containerd.nvidiaGPU.enabled".to_owned();
    let of_cluster = vec![(GPU_LABEL.to_owned(), "1".to_owned(), CLUSTER_FILE.to_owned(), field)];
    let nvidia = "containerd: {nvidiaGPU: {enabled: true}}";
    let gvisor = "containerd: {gvisor: {enabled: true}}";
    let own = "nodeLabels: {kops.k8s.io/gpu: mine, kops.k8s.io/gvisor: mine}";
    for (cluster, group, expected) in [
        (nvidia, GPU_MACHINE.to_owned(), of_cluster.clone()),
        (nvidia, GPU_MACHINE.replace("Node", "Master"), of_cluster),
        (
            nvidia,
            format!("{GPU_MACHINE}\n{nvidia}"),
            of_group(GPU_LABEL, "nvidiaGPU"),
        ),
        ("", format!("{GPU_MACHINE}\n{nvidia}"), of_group(GPU_LABEL, "nvidiaGPU")),
        (nvidia, "role: Node\nmachineType: t3.medium".to_owned(), vec![]),
        (nvidia, "role: Node".to_owned(), vec![]),
        ("", GPU_MACHINE.to_owned(), vec![]),
        ("", format!("role: Node\n{gvisor}"), of_group(GVISOR_LABEL, "gvisor")),
        ("", format!("role: Master\n{gvisor}"), vec![]),
        (gvisor, "role: Node".to_owned(), vec![]),
    ] {
        let labels = labels(cluster, &group);
        assert_eq!(
            found(&labels, &[GPU_LABEL, GVISOR_LABEL]),
            expected,
            "{cluster} {group}"
        );
    }
    let overridden = labels(nvidia, &format!("{GPU_MACHINE}\n{gvisor}\n{own}"));
    assert_eq!(
        wanted(&overridden)[..2],
        ["kops.k8s.io/gpu=1", "kops.k8s.io/gvisor=1"],
        "as in kOps, a user's value does not count"
    );
    let own = labels("", &format!("role: Node\n{own}"));
    assert_eq!(wanted(&own)[..2], ["kops.k8s.io/gpu=mine", "kops.k8s.io/gvisor=mine"]);
}

#[test]
fn the_tag_for_a_gpu_counts_beside_the_files_and_no_other_tag_does() {
    let tags = [("kops.k8s.io/gpu", "1"), ("team", "red")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let definition = definition(
        "containerd: {nvidiaGPU: {enabled: true}}",
        "role: Node\nmachineType: z9.large",
    );
    let labels = node_labels(&definition, Lifecycle::OnDemand, &tags);
    assert_eq!(wanted(&labels), ["kops.k8s.io/gpu=1", "node-role.kubernetes.io/node="]);
    let label = labels
        .wanted
        .iter()
        .find(|label| label.key.as_str() == GPU_LABEL)
        .unwrap();
    assert_eq!(label.source, LabelSource::InstanceTag);
}

/// For every kind of group: what kOps writes into the tags of its instances is what follows from the state store.
#[test]
fn tags_and_files_give_the_same_labels() {
    let features = "containerd: {nvidiaGPU: {enabled: true}, gvisor: {enabled: true}}";
    let roles = [
        (
            "Master",
            &[
                (KOPS_CONTROLLER_PKI_LABEL, ""),
                (ROLE_CONTROL_PLANE_LABEL, ""),
                (EXCLUDE_FROM_LOAD_BALANCERS_LABEL, ""),
                (GPU_LABEL, "1"),
            ][..],
        ),
        ("Node", &[(ROLE_NODE_LABEL, ""), (GPU_LABEL, "1"), (GVISOR_LABEL, "1")]),
        ("APIServer", &[(ROLE_API_SERVER_LABEL, ""), (GPU_LABEL, "1")]),
        ("Bastion", &[(GPU_LABEL, "1")]),
    ];
    for (role, tags) in roles {
        let group = format!("role: {role}\nmachineType: p5.48xlarge\n{features}\nnodeLabels: {{team: red}}");
        for lifecycle in [Lifecycle::OnDemand, Lifecycle::Spot] {
            let mut tags = tags.to_vec();
            tags.push(("team", "red"));
            let files = node_labels(&definition("", &group), lifecycle, &[]);
            assert_eq!(wanted(&files), wanted(&of_tags(lifecycle, &tags)), "{role}");
        }
    }
}
