//! The ports on which the workloads listen, and who may connect to them, from the manifests.

use serde_json::Value;

use super::Manifest;
use super::markdown::{code, head, table};

const INTRODUCTION: &str = "The ports on which the pods of the generated manifests listen, for firewalls and network \
    policies. Outside of a cluster, the [settings](settings.md) of the addresses have the ports. Every role calls the \
    API server; the controller also calls the cloud provider and the state store, and the coordinator the cloud and \
    the registries. Agents call the coordinator's port `endpoints`.";

/// Returns the page.
pub fn page(manifests: &[Manifest]) -> String {
    let objects: Vec<&Value> = manifests.iter().flat_map(|manifest| &manifest.objects).collect();
    let workloads = objects
        .iter()
        .filter(|object| ["DaemonSet", "Deployment"].iter().any(|kind| object["kind"] == *kind));
    let rows = workloads.flat_map(|workload| {
        let containers = workload["spec"]["template"]["spec"]["containers"].as_array();
        let ports = containers
            .into_iter()
            .flatten()
            .filter_map(|container| container["ports"].as_array());
        let row = |port| row(workload, port, &objects);
        ports.flatten().map(row).collect::<Vec<_>>()
    });
    let mut page = head("Ports", INTRODUCTION);
    table(&mut page, ["workload", "port", "name", "Service", "open to"], rows);
    page
}

fn row(workload: &Value, port: &Value, objects: &[&Value]) -> [String; 5] {
    let selected = |kind: &str, selector: &str| {
        let found = objects
            .iter()
            .copied()
            .filter(|object| object["kind"] == kind && selects(object, selector, workload));
        found.collect::<Vec<_>>()
    };
    let services = selected("Service", "/spec/selector");
    let service = services.iter().find_map(|service| {
        let ports = service["spec"]["ports"].as_array()?;
        let found = ports.iter().find(|found| is_port(&found["targetPort"], port))?;
        Some(format!("{}:{}", text(&service["metadata"]["name"]), found["port"]))
    });
    let policies = selected("NetworkPolicy", "/spec/podSelector/matchLabels");
    let metadata = &workload["metadata"];
    [
        code(&format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]))),
        port["containerPort"].to_string(),
        text(&port["name"]).to_owned(),
        code(&service.unwrap_or_default()),
        open_to(workload, port, &policies),
    ]
}

/// Returns the clients that may connect, in words.
fn open_to(workload: &Value, port: &Value, policies: &[&Value]) -> String {
    let is_on_node = workload["spec"]["template"]["spec"]["hostNetwork"] == true;
    let words = match (is_on_node, policies.first()) {
        (true, _) if port["hostIP"] == "127.0.0.1" => "the node itself",
        (true, _) => "all that reach the node",
        (false, None) => "all",
        (false, Some(policy)) => {
            let rules = policy["spec"]["ingress"].as_array().into_iter().flatten();
            let mut of_port = rules.filter(|rule| {
                let mut ports = rule["ports"].as_array().into_iter().flatten();
                ports.any(|open| is_port(&open["port"], port))
            });
            match of_port.next().map(|rule| &rule["from"]) {
                None => "the node itself",
                Some(Value::Null) => "all",
                Some(_) => "pods of the cluster",
            }
        }
    };
    words.to_owned()
}

/// Returns true if the labels at `selector` select the workload's pods.
fn selects(object: &Value, selector: &str, workload: &Value) -> bool {
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    let wanted = object.pointer(selector).and_then(Value::as_object);
    let is_near = object["metadata"]["namespace"] == workload["metadata"]["namespace"];
    is_near && wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
}

/// Returns true if a reference, by name or by number, is to this port of a container.
fn is_port(reference: &Value, port: &Value) -> bool {
    *reference == port["name"] || *reference == port["containerPort"]
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_port_has_its_service_and_its_clients() {
        let pod = json!({"metadata": {"labels": {"app": "a", "other": "b"}}, "spec": {"containers": [{"ports": [
            {"name": "api", "containerPort": 8000}, {"name": "admin", "containerPort": 3984},
        ]}]}});
        let metadata = json!({"namespace": "n", "name": "a"});
        let objects = vec![
            json!({"kind": "Deployment", "metadata": metadata, "spec": {"template": pod}}),
            json!({"kind": "Service", "metadata": metadata, "spec": {"selector": {"app": "a"},
                "ports": [{"port": 443, "targetPort": "api"}]}}),
            json!({"kind": "NetworkPolicy", "metadata": metadata, "spec": {"podSelector": {"matchLabels": {"app": "a"}},
                "ingress": [{"ports": [{"port": "api"}]}, {"ports": [{"port": 3984}], "from": [{"namespaceSelector": {}}]}]}}),
        ];
        let path = String::new();
        let page = page(&[Manifest { path, objects }]);
        for row in [
            "\n| `n/a` | 8000 | api | `a:443` | all |\n",
            "\n| `n/a` | 3984 | admin |  | pods of the cluster |\n",
        ] {
            assert!(page.contains(row), "{row} in {page}");
        }
    }
}
