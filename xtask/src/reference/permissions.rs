//! The permissions of each service account, from the manifests.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Manifest;
use super::markdown::{cell, code, codes, head, section, table};

const INTRODUCTION: &str = "The permissions of each service account in the cluster, from the generated manifests in \
    `deploy/`. The comments in these files name the use of each rule. Permissions in the cloud are in \
    [the cloud API](../cloud-api.md), and those at a cloud provider in [Credentials](../operating.md#credentials).";

/// The rows of each service account.
type Accounts = BTreeMap<String, Vec<[String; 5]>>;

/// Returns the page.
pub fn page(manifests: &[Manifest]) -> String {
    let mut accounts = Accounts::new();
    for manifest in manifests {
        for binding in &manifest.objects {
            if ["RoleBinding", "ClusterRoleBinding"]
                .iter()
                .any(|kind| binding["kind"] == *kind)
            {
                bind(manifest, binding, &mut accounts);
            }
        }
    }
    let mut page = head("Permissions", INTRODUCTION);
    for (account, rows) in accounts {
        section(&mut page, &account);
        table(&mut page, ["in", "resources", "only named", "verbs", "file"], rows);
    }
    page
}

/// Adds the rules of the binding's role to its subjects.
fn bind(manifest: &Manifest, binding: &Value, accounts: &mut Accounts) {
    let namespace = &binding["metadata"]["namespace"];
    let place = namespace.as_str().map_or_else(|| "the cluster".to_owned(), code);
    let role = &binding["roleRef"];
    let is_bound = |object: &&Value| {
        object["kind"] == role["kind"]
            && object["metadata"]["name"] == role["name"]
            && (object["kind"] == "ClusterRole" || object["metadata"]["namespace"] == *namespace)
    };
    let rows: Vec<[String; 5]> = if let Some(object) = manifest.objects.iter().find(is_bound) {
        rules(object)
            .map(|[resources, names, verbs]| [place.clone(), resources, names, verbs, code(&manifest.path)])
            .collect()
    } else {
        let all = format!("all of the ClusterRole {}", codes(role["name"].as_str()));
        vec![[place, all, String::new(), String::new(), code(&manifest.path)]]
    };
    for subject in binding["subjects"].as_array().into_iter().flatten() {
        let [name, namespace] = [&subject["name"], &subject["namespace"]].map(|text| text.as_str().unwrap_or_default());
        let account = accounts.entry(format!("{namespace}/{name}")).or_default();
        account.extend(rows.iter().cloned());
    }
}

/// Returns the resources, names and verbs of each rule of a role.
fn rules(role: &Value) -> impl Iterator<Item = [String; 3]> {
    role["rules"].as_array().into_iter().flatten().map(|rule| {
        let groups: Vec<&str> = texts(&rule["apiGroups"]).collect();
        let resources = groups.into_iter().flat_map(|group| {
            texts(&rule["resources"]).map(move |resource| {
                let (name, below) = resource.split_at(resource.find('/').unwrap_or(resource.len()));
                match group {
                    "" => resource.to_owned(),
                    group => format!("{name}.{group}{below}"),
                }
            })
        });
        let paths = texts(&rule["nonResourceURLs"]).map(str::to_owned);
        let resources: Vec<String> = resources.chain(paths).collect();
        [
            codes(resources.iter().map(String::as_str)),
            codes(texts(&rule["resourceNames"])),
            cell(&texts(&rule["verbs"]).collect::<Vec<_>>().join(", ")),
        ]
    })
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_account_has_the_rules_of_its_bindings() {
        let subjects = json!([{"kind": "ServiceAccount", "namespace": "n", "name": "a"}]);
        let objects = vec![
            json!({"kind": "Role", "metadata": {"namespace": "n", "name": "r"}, "rules": [
                {"apiGroups": ["", "apps"], "resources": ["pods/log"], "resourceNames": ["one"],
                    "verbs": ["get", "list"]},
            ]}),
            json!({"kind": "RoleBinding", "metadata": {"namespace": "n", "name": "b"}, "subjects": subjects,
                "roleRef": {"kind": "Role", "name": "r"}}),
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "subjects": subjects,
                "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}),
        ];
        let path = "deploy/a.yaml".to_owned();
        let page = page(&[Manifest { path, objects }]);
        for row in [
            "\n## n/a\n",
            "\n| `n` | `pods/log`, `pods.apps/log` | `one` | get, list | `deploy/a.yaml` |\n",
            "\n| the cluster | all of the ClusterRole `cluster-admin` |  |  | `deploy/a.yaml` |\n",
        ] {
            assert!(page.contains(row), "{row} in {page}");
        }
    }
}
