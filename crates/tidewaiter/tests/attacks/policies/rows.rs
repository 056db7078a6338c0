//! The writes: who tries what, and which policy refuses it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tidewaiter_testkit::Identity;
use tidewaiter_testkit::builders::node;

/// A Node with the name of its instance, one on Google Cloud, and one whose name says nothing of its instance.
pub const NODES: [&str; 3] = ["i-00000000000000001", "nodes-abcd", "ip-10-0-0-1.ec2.internal"];

/// A role and a binding of the coordinator have this name.
const OURS: &str = "22222222-2222-4222-8222-222222222222";
/// Bindings of others that have the label.
const LABELLED: [&str; 2] = ["labelled", "66666666-6666-4666-8666-666666666666"];
/// A binding to a role of the cloud whose label somebody has taken off.
const UNLABELLED: &str = "55555555-5555-4555-8555-555555555555";
/// Those of others have this one.
const FOREIGN: &str = "33333333-3333-4333-8333-333333333333";

/// Writes of the same author with the same outcome.
#[derive(Deserialize)]
struct Group {
    who: String,
    policy: Option<String>,
    #[serde(default)]
    words: String,
    rows: Vec<Written>,
}

/// One write, as in `rows.yaml`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    what: String,
    /// The name of the Node that a kubelet registers.
    register: Option<String>,
    #[serde(default, rename = "providerID")]
    provider_id: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    create: Option<String>,
    patch: Option<String>,
    delete: Option<String>,
    #[serde(default)]
    body: Value,
}

/// One write.
pub struct Row {
    pub what: String,
    pub who: Identity,
    pub method: &'static str,
    pub path: String,
    pub body: Value,
    /// The policy that refuses it, and words of it; None for what is somebody's work.
    pub refused: Option<(String, String)>,
}

/// The objects of RBAC that the rows change.
pub fn objects() -> Vec<Value> {
    let of = |name: &str, bound: &str, labels: Value| {
        let metadata = json!({"name": name, "labels": labels});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": bound}});
        [role, binding]
    };
    let labels = json!({"containership.io/managed": "true"});
    let all = [
        of(OURS, OURS, labels.clone()),
        // By an admin of a namespace, who wants them to stay.
        of(LABELLED[0], "view", labels.clone()),
        of(LABELLED[1], "view", labels),
        of(UNLABELLED, OURS, json!({})),
        of(FOREIGN, "view", json!({})),
    ];
    all.into_iter().flatten().collect()
}

pub fn rows() -> Vec<Row> {
    let groups: Vec<Group> = serde_saphyr::from_str(include_str!("rows.yaml")).unwrap();
    let rows = groups.into_iter().flat_map(|group| {
        let refused = group.policy.map(|policy| (policy, group.words));
        let row = move |written: Written| written.by(&group.who, refused.clone());
        group.rows.into_iter().map(row).collect::<Vec<_>>()
    });
    rows.collect()
}

impl Written {
    fn by(self, who: &str, refused: Option<(String, String)>) -> Row {
        let what = format!("the {who} {}", self.what);
        let (method, path, body) = match (&self.register, &self.create, &self.patch, &self.delete) {
            (Some(name), None, None, None) => ("POST", "nodes", self.registered(name)),
            (None, Some(path), None, None) => ("POST", path.as_str(), self.body),
            (None, None, Some(path), None) => ("PATCH", path.as_str(), self.body),
            (None, None, None, Some(path)) => ("DELETE", path.as_str(), Value::Null),
            _ => panic!("{what}: one of register, create, patch and delete"),
        };
        let own = self.register.as_deref().or_else(|| path.split('/').nth(1));
        let who = match (who, own) {
            ("controller", _) => Identity::service_account("kube-system", "tidewaiter-controller"),
            ("coordinator", _) => coordinator(),
            ("kubelet", Some(node)) => Identity::kubelet(node),
            ("kubelet without its group", Some(node)) => {
                Identity::user(format!("system:node:{node}"), &["system:masters"])
            }
            _ => Identity::user(who, &["system:masters"]),
        };
        let group = if path.contains("role") {
            "/apis/rbac.authorization.k8s.io/v1"
        } else {
            "/api/v1"
        };
        let path = format!("{group}/{path}");
        Row {
            what,
            who,
            method,
            path,
            body,
            refused,
        }
    }

    /// The Node, as its kubelet registers it.
    fn registered(&self, name: &str) -> Value {
        let node = self
            .labels
            .iter()
            .fold(node(name), |node, (key, value)| node.label(key, value));
        let node = match &self.provider_id {
            Some(provider_id) => node.provider_id(provider_id),
            None => node,
        };
        json!(node.build())
    }
}

pub fn coordinator() -> Identity {
    Identity::service_account("containership-core", "tidewaiter-coordinator")
}
