//! Hostile InstanceGroups: each has a Node, and what is wrong with one file concerns no other.

use futures::future::join_all;
use tidewaiter_api::ConditionStatus::{False, True, Unknown};
use tidewaiter_testkit::Kubelet;
use tidewaiter_testkit::builders::{InstanceGroupBuilder, instance_group};

use crate::field::Field;
use crate::world::{CLUSTER, Labels, World};
use Then::{Cut, Given, Rejected, Unusable};

/// The fate of the Node.
enum Then {
    /// The file cannot be used, and says why: the Node gets no label.
    Unusable(&'static str),
    /// One label is rejected, and says why; the Node gets the others.
    Rejected(&'static str),
    /// There are too many labels: the Node gets the first ones.
    Cut(&'static str),
    /// It is odd, and valid.
    Given,
}

/// The labels that a definition may give a Node.
const MOST: usize = 250;

/// The file of a group that gives its Node `team: red`, made hostile.
type Hostile = fn(InstanceGroupBuilder) -> String;

/// One row for each file.
static GROUPS: [(Hostile, Then); 32] = [
    // No document.
    (|_| String::new(), Unusable("is empty")),
    (|_| "spec: [".to_owned(), Unusable("is not valid YAML")),
    (
        |_| "<!DOCTYPE html><html><body>Please log in.</body></html>".to_owned(),
        Unusable("is HTML or XML, not YAML"),
    ),
    (|_| "- a\n- b".to_owned(), Unusable("must be a mapping")),
    (|_| "\u{0}\u{1}".to_owned(), Unusable("is not valid YAML")),
    (|_| "[".repeat(10_000), Unusable("is not valid YAML")),
    (
        |it| format!("{}# {}", it.to_yaml(), "x".repeat(2 * 1024 * 1024)),
        Unusable("is larger than 1 MiB"),
    ),
    (|_| bomb(), Unusable("is not valid YAML")),
    (|_| "a: &a [*a]".to_owned(), Unusable("is not valid YAML")),
    (
        |it| format!("{}---\n{}", it.to_yaml(), it.to_yaml()),
        Unusable("is not valid YAML"),
    ),
    (
        |it| format!("{}spec: {{role: Master}}\n", it.to_yaml()),
        Unusable("is not valid YAML"),
    ),
    // Another object.
    (
        |it| it.set(&["kind"], "Cluster").to_yaml(),
        Unusable("kind: is \"Cluster\", must be InstanceGroup"),
    ),
    (
        |it| it.set(&["apiVersion"], "kops.k8s.io/v1").to_yaml(),
        Unusable("apiVersion: is \"kops.k8s.io/v1\""),
    ),
    (
        |it| it.set(&["metadata", "name"], "masters").to_yaml(),
        Unusable("metadata.name: is \"masters\", but the file belongs to group"),
    ),
    (
        |it| it.set(&["metadata", "name"], "../nodes").to_yaml(),
        Unusable("metadata.name: is \"../nodes\""),
    ),
    (
        |it| {
            it.set(&["metadata", "labels", "kops.k8s.io/cluster"], "other.example.com")
                .to_yaml()
        },
        Unusable("is \"other.example.com\", but clusterName of the configuration is test.example.com"),
    ),
    // Fields of another type, or none.
    (|it| it.without(&["spec"]).to_yaml(), Unusable("spec: is missing")),
    (
        |it| it.without(&["spec", "role"]).to_yaml(),
        Unusable("spec.role: is missing"),
    ),
    (
        |it| it.set(&["spec", "role"], "Worker").to_yaml(),
        Unusable("spec.role: is \"Worker\""),
    ),
    (
        |it| it.set(&["spec", "role"], vec!["Node"]).to_yaml(),
        Unusable("spec.role: is a list"),
    ),
    (
        |it| it.set(&["spec", "nodeLabels"], "x").to_yaml(),
        Unusable("spec.nodeLabels"),
    ),
    (|it| it.set(&["spec", "kubelet"], 7).to_yaml(), Unusable("spec.kubelet")),
    (
        |it| it.set(&["spec", "containerd", "gvisor", "enabled"], "yes").to_yaml(),
        Unusable("spec.containerd.gvisor.enabled: is \"yes\", must be true or false"),
    ),
    // Labels that no Node can have.
    (
        |it| it.node_label("not a key", "x").to_yaml(),
        Rejected("is not a valid label"),
    ),
    (|it| it.node_label("", "x").to_yaml(), Rejected("is not a valid label")),
    (
        |it| it.node_label(&"k".repeat(1_000), "x").to_yaml(),
        Rejected("is not a valid label"),
    ),
    (
        |it| it.node_label("terminal", "\u{1b}[31m\nred").to_yaml(),
        Rejected("is not a valid label"),
    ),
    (
        |it| it.node_label("long", &"v".repeat(64)).to_yaml(),
        Rejected("is not a valid label"),
    ),
    (
        |it| it.set(&["spec", "nodeLabels", "flag"], true).to_yaml(),
        Rejected("is not a string"),
    ),
    (
        |it| it.node_label("kops.k8s.io/instancegroup", "masters").to_yaml(),
        Rejected("names another group than"),
    ),
    (many_labels, Cut("exceeds the limit of 250 labels per node")),
    (
        |it| format!("\u{feff}# {}\r\n{}", "\u{202e}", it.to_yaml().replace('\n', "\r\n")),
        Given,
    ),
];

pub async fn try_all(field: &Field) -> Vec<String> {
    let played = GROUPS
        .iter()
        .enumerate()
        .map(|(number, (hostile, then))| play(field, number, *hostile, then));
    join_all(played).await.into_iter().flatten().collect()
}

/// Returns the name of a Node that got nothing.
async fn play(field: &Field, number: usize, hostile: Hostile, then: &Then) -> Option<String> {
    let (world, group) = (&field.world, format!("hostile-{number:02}"));
    let base = instance_group(&group, CLUSTER, "Node").node_label("team", "red");
    world.store.put(&format!("instancegroup/{group}"), &hostile(base));
    let instance = field.launches(&group);
    let name = instance.node_name();
    Kubelet::register(&world.cluster, &World::node_of(&instance).build()).await;
    let own = [
        ("kops.k8s.io/instancegroup", group.as_str()),
        ("node-role.kubernetes.io/node", ""),
    ];
    match then {
        Unusable(words) => {
            world
                .says(name, "LabelsValid", Unknown, "DefinitionInvalid", words)
                .await;
            assert_eq!(world.labels(name).await, Labels::new(), "{group}");
            return Some(name.to_owned());
        }
        Rejected(words) => {
            world.says(name, "LabelsValid", False, "LabelRejected", words).await;
            world.tells(name, "LabelRejected", words).await;
            world.has_labels(name, &[&own[..], &[("team", "red")]].concat()).await;
        }
        Cut(words) => {
            world.says(name, "LabelsValid", False, "LabelRejected", words).await;
            let first: Vec<String> = (0..MOST - own.len()).map(key).collect();
            let first: Vec<_> = first.iter().map(|key| (key.as_str(), "x")).collect();
            world.has_labels(name, &[&own[..], &first].concat()).await;
        }
        Given => {
            world.says(name, "LabelsValid", True, "AllValid", "").await;
            world.has_labels(name, &[&own[..], &[("team", "red")]].concat()).await;
        }
    }
    None
}

/// A small file that would be a large tree.
fn bomb() -> String {
    let level = |level: u32| {
        let alias = vec![format!("*a{}", level - 1); 10].join(", ");
        format!("a{level}: &a{level} [{alias}]\n")
    };
    let levels: String = (1..8).map(level).collect();
    format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{levels}")
}

fn many_labels(group: InstanceGroupBuilder) -> String {
    (0..300)
        .fold(group, |group, number| group.node_label(&key(number), "x"))
        .to_yaml()
}

fn key(number: usize) -> String {
    format!("a-{number:03}")
}
