//! The contents of a plugin: a namespace, and in it many objects of six kinds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::applies;

/// The objects of a plugin besides its namespace, by path of the API, plural and kind.
pub const CONTENTS: [(&str, &str, &str, usize); 6] = [
    ("api/v1", "serviceaccounts", "ServiceAccount", 49),
    ("api/v1", "configmaps", "ConfigMap", 150),
    ("api/v1", "secrets", "Secret", 50),
    ("apis/rbac.authorization.k8s.io/v1", "roles", "Role", 100),
    ("apis/rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", 100),
    ("apis/networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", 50),
];

/// The objects of the plugin in this namespace, each with the path of its collection, the namespace first.
pub fn objects(namespace: &str) -> Vec<(String, Value)> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let mut objects = vec![("/api/v1/namespaces".to_owned(), body)];
    for (api, plural, kind, number) in CONTENTS {
        let version = api.trim_start_matches("apis/").trim_start_matches("api/");
        let collection = format!("/{api}/namespaces/{namespace}/{plural}");
        for number in 0..number {
            let mut object = content(kind, number);
            object["apiVersion"] = json!(version);
            object["kind"] = json!(kind);
            let labels = json!({"app.kubernetes.io/name": "bench", "app.kubernetes.io/component": name(number)});
            object["metadata"] = json!({"name": name(number), "namespace": namespace, "labels": labels});
            objects.push((collection.clone(), object));
        }
    }
    objects
}

pub fn name(number: usize) -> String {
    format!("component-{number:03}")
}

/// Returns the content of an object of this kind besides its metadata.
fn content(kind: &str, number: usize) -> Value {
    let group = "rbac.authorization.k8s.io";
    let text = |line: usize| format!("line {line} of the settings of {}\n", name(number));
    match kind {
        "ConfigMap" => json!({"data": {"settings": (0..20).map(text).collect::<String>(), "mode": "plain"}}),
        "Secret" => json!({"data": {"token": STANDARD.encode(name(number))}, "type": "Opaque"}),
        "Role" => json!({"rules": [
            {"apiGroups": [""], "resources": ["pods", "services", "endpoints"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        ]}),
        "RoleBinding" => json!({
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name(number)},
            "subjects": [{"kind": "ServiceAccount", "name": name(number % 49), "namespace": "default"}],
        }),
        "NetworkPolicy" => json!({"spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/component": name(number)}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {}}], "ports": [{"protocol": "TCP", "port": 8080}]}],
        }}),
        _ => json!({}),
    }
}

/// The apply of an object of a plugin, with a label as long as the one that the controller gives it.
pub fn labelled((collection, mut object): (String, Value)) -> applies::Patch {
    object["metadata"]["labels"]["bench.example.org/plugin-id"] = json!("00000000-0000-4000-8000-000000000001");
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    applies::Patch::apply(&collection, &name, &object)
}
