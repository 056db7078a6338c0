//! The way back, as docs/coordinator.md says, and what the Go coordinator makes of it.

use std::collections::BTreeSet;

use super::*;

const PAGE: &str = include_str!("../../../../../../docs/coordinator.md");
/// The Deployment of the Go coordinator.
const DEPLOYMENT: &str = "containership-coordinator";

/// The fields of a kind that the Go coordinator compares: those of the spec, and those of the items of a list in it.
struct Compared {
    kind: &'static str,
    /// The list of the cloud.
    path: String,
    fields: &'static [&'static str],
    items: Option<(&'static str, &'static [&'static str])>,
}

impl Whole {
    /// Goes through the steps of the page.
    pub async fn goes_back(&self) {
        let labels = json!({"app": "go"});
        let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "go:1"}]}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": DEPLOYMENT, "namespace": CORE},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}});
        self.scene.world.cluster.apply(&deployment.to_string()).await;
        let [inline, stop, remove] = steps();
        let replica = self.scene.released("registries:\n  registryCredentials: inline\n");
        self.types(&inline).await;
        self.types(&stop).await;
        replica.process.stop(SOON).await;
        self.types(&remove).await;
        let bindings = self
            .api("ClusterRoleBinding", None)
            .list(&ListParams::default())
            .await
            .unwrap();
        let left = bindings
            .iter()
            .find(|binding| binding.name_any().starts_with("tidewaiter-"));
        assert_eq!(
            left.map(ResourceExt::name_any),
            None,
            "a binding of the coordinator is left"
        );
    }

    async fn types(&self, commands: &[String]) {
        for command in commands {
            let command = command.replace("NAME", DEPLOYMENT);
            let words: Vec<&str> = command.split_whitespace().collect();
            let output = self.kubectl(&words[1..]).await;
            assert!(
                output.status.success(),
                "{command}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }

    /// By what the Go coordinator compares, every custom resource is as the cloud lists it. Of a Registry it also wants
    /// a token, which it makes itself.
    pub async fn go_finds_everything(&self) {
        for Compared {
            kind,
            path,
            fields,
            items,
        } in compared(&self.scene.cloud)
        {
            let cloud = &self.scene.cloud;
            let (status, listed) = cloud.send(&cloud.key, Method::GET, &path, Value::Null).await;
            assert_eq!(status, 200, "{path}: {listed}");
            let listed = listed.as_array().unwrap();
            let definition = GoDefinition::of(&json!({ "kind": kind }));
            let api = definition.api(&self.scene.world.cluster.client(&Identity::Admin));
            let found = api.list(&ListParams::default()).await.unwrap().items;
            let names: BTreeSet<String> = found.iter().map(ResourceExt::name_any).collect();
            let ids = listed.iter().map(|object| object["id"].as_str().unwrap().to_owned());
            assert_eq!(names, ids.collect(), "{kind}");
            for object in listed {
                let id = object["id"].as_str().unwrap();
                let spec = &found.iter().find(|it| it.name_any() == id).unwrap().data["spec"];
                for field in fields {
                    assert!(
                        is_same(&object[field], &spec[field]),
                        "{kind}: {field} of {object} and {spec}"
                    );
                }
                let Some((list, fields)) = items else { continue };
                let by_id =
                    |items: &Value, id: &Value| items.as_array().unwrap().iter().find(|it| it["id"] == *id).cloned();
                for item in object[list].as_array().unwrap() {
                    let known = by_id(&spec[list], &item["id"]).unwrap_or_default();
                    for field in fields {
                        assert!(
                            is_same(&item[field], &known[field]),
                            "{kind}: {field} of {item} and {known}"
                        );
                    }
                }
            }
        }
    }

    /// The Go coordinator replaces what has no token by deleting it. Returns what goes.
    pub async fn go_replaces_registries(&self) -> Vec<String> {
        let mut gone = Vec::new();
        for id in &self.registries {
            let registry = self.scene.registry_of_go(id);
            let api = GoDefinition::of(&registry).api(&self.scene.world.cluster.client(&Identity::Admin));
            let token = &api.get(id).await.unwrap().data["spec"]["authToken"]["token"];
            assert_eq!(token.as_str().unwrap_or_default(), "", "{id}");
            api.delete(id, &DeleteParams::default()).await.unwrap();
            // Nothing keeps it.
            assert_eq!(
                api.get_opt(id).await.unwrap().map(|it| it.finalizers().to_vec()),
                None,
                "{id}"
            );
            self.scene.by_go(registry).await;
            gone.push(format!("Registry {CORE}/{id} is gone"));
        }
        gone
    }
}

/// The commands of each step of the page.
fn steps() -> [Vec<String>; 3] {
    let (_, section) = PAGE.split_once("\n### Going back\n").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let blocks = section.split("```console\n").skip(1).take(3);
    let blocks: Vec<Vec<String>> = blocks
        .map(|block| {
            let (block, _) = block.split_once("```").unwrap();
            let block = block.replace("\\\n", " ");
            let lines = block.lines().filter_map(|line| line.trim().strip_prefix("$ "));
            lines.map(str::to_owned).collect()
        })
        .collect();
    blocks.try_into().unwrap()
}

/// Returns the fields that its newest version compares (September 2019).
fn compared(cloud: &Cloud) -> [Compared; 6] {
    let of_kind = |kind, path: &str, fields, items| Compared {
        kind,
        path: path.to_owned(),
        fields,
        items,
    };
    [
        of_kind(
            "User",
            "^/ssh-users",
            &["name", "avatar_url"],
            Some(("ssh_keys", &["name", "fingerprint", "key"])),
        ),
        of_kind(
            "Registry",
            "~/registries",
            &[
                "description",
                "organization_id",
                "email",
                "serveraddress",
                "provider",
                "credentials",
                "owner",
            ],
            None,
        ),
        of_kind("Plugin", "^/plugins", &["version"], None),
        of_kind(
            "ClusterLabel",
            "^/labels",
            &["id", "created_at", "updated_at", "key", "value"],
            None,
        ),
        of_kind(
            "AuthorizationRole",
            "^/roles?side_load=rules&remove_empty=true&rule_type=kubernetes",
            &[
                "id",
                "created_at",
                "updated_at",
                "organization_id",
                "name",
                "description",
                "owner_id",
            ],
            Some((
                "rules",
                &[
                    "name",
                    "created_at",
                    "updated_at",
                    "organization_id",
                    "description",
                    "owner_id",
                    "type",
                    "api_groups",
                    "resources",
                    "resource_names",
                    "verbs",
                ],
            )),
        ),
        of_kind(
            "AuthorizationRoleBinding",
            &format!("~/role-bindings?cluster_id={}", cloud.cluster),
            &[
                "id",
                "created_at",
                "updated_at",
                "organization_id",
                "owner_id",
                "type",
                "authorization_role_id",
                "user_id",
                "team_id",
                "cluster_id",
                "namespace",
            ],
            None,
        ),
    ]
}

/// Equality for Go, which has neither `null` nor absent fields.
fn is_same(one: &Value, other: &Value) -> bool {
    let is_zero = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    one == other || (is_zero(one) && is_zero(other))
}
