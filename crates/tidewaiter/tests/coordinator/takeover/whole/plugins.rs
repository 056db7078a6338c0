//! The plugins of the cluster: what the cloud has for each, as the Go coordinator applied it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Output;

use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::PLUGIN_LABEL;
use tokio::process::Command;

use super::*;
use crate::write;

const VERSION: &str = "1.0.0";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The `ConfigMap`s of two plugins that a person has changed. The manifest of one has the label of the plugin.
const EDITED: [(&str, &str); 2] = [("edited", "default"), ("labelled", CORE)];
/// The groups of manifests by the type of the plugin.
const MANIFESTS: &str = include_str!("plugins.yaml");

/// A plugin that the cloud lists.
pub struct OfCloud {
    pub id: String,
    type_: String,
}

impl Whole {
    /// Adds seven plugins to the cloud.
    pub async fn add_plugins(scene: &Scene) -> Vec<OfCloud> {
        let cloud = &scene.cloud;
        let put = async |path: &str, body: Value| {
            let (status, answer) = cloud.send(&cloud.owner, Method::PUT, path, body).await;
            assert!((200..300).contains(&status), "{path}: {status} {answer}");
        };
        let types: BTreeMap<String, Value> = serde_saphyr::from_str(MANIFESTS).unwrap();
        let mut plugins = Vec::new();
        for (type_, groups) in types {
            let path = format!("/v3/plugins/{type_}/implementations/ours/versions/{VERSION}");
            put(&path, json!({"version": VERSION})).await;
            let plugin = json!({"type": type_, "implementation": "ours", "version": VERSION});
            let made = cloud.post("^/plugins", plugin).await;
            let id = made["id"].as_str().unwrap().to_owned();
            let groups: Value = serde_json::from_str(&groups.to_string().replace("PLUGIN_ID", &id)).unwrap();
            put(&format!("{path}/manifests"), json!({ "manifests": groups })).await;
            plugins.push(OfCloud { id, type_ });
        }
        plugins
    }

    /// The groups of manifests that the cloud sends the coordinator of the cluster.
    async fn groups(&self, plugin: &OfCloud) -> Vec<Vec<Value>> {
        let cloud = &self.scene.cloud;
        let path = format!("^/plugins/{}?previous_version=", plugin.id);
        let (status, mut sent) = cloud.send(&cloud.key, Method::GET, &path, Value::Null).await;
        assert_eq!(status, 200, "{sent}");
        serde_json::from_value(sent["manifests"].take()).unwrap()
    }

    /// Runs kubectl as the admin of the cluster, in the folder of the repository.
    pub async fn kubectl(&self, words: &[&str]) -> Output {
        let mut kubectl = Command::from(self.scene.world.cluster.kubectl(&Identity::Admin));
        kubectl.args(words).current_dir(deploy().join("../.."));
        kubectl.output().await.unwrap()
    }

    /// Applies the manifests of each plugin as the Go coordinator does when it starts: a file for each group, and
    /// `kubectl apply` on the folder, which it tries again when it fails.
    pub async fn go_applies_plugins(&self) {
        for plugin in &self.plugins {
            let folder = self.write_manifests(plugin).await;
            let words = ["apply", "-f", folder.to_str().unwrap()];
            eventually(format!("kubectl to apply {}", plugin.type_), SOON, async || {
                let output = self.kubectl(&words).await;
                if output.status.success() {
                    Ok(())
                } else {
                    Err(String::from_utf8_lossy(&output.stderr).into_owned())
                }
            })
            .await;
        }
    }

    async fn write_manifests(&self, plugin: &OfCloud) -> PathBuf {
        let folder = self.scene.world.scratch.path().join(format!("plugins/{}", plugin.id));
        std::fs::create_dir_all(&folder).unwrap();
        for (number, group) in self.groups(plugin).await.iter().enumerate() {
            let text: String = group.iter().map(Value::to_string).collect();
            write(&folder.join(format!("{number}.json")), &text);
        }
        folder
    }

    /// The custom resources of the plugins, their objects, an instance of a definition that a person created, and what
    /// people changed.
    pub async fn go_has_applied_plugins(&self) {
        for OfCloud { id, type_ } in &self.plugins {
            let plugin = json!({"apiVersion": "containership.io/v3", "kind": "Plugin", "metadata": {"name": id},
                "spec": {"id": id, "added_at": "", "description": "", "type": type_, "version": VERSION,
                    "implementation": "ours"}});
            self.scene.by_go(plugin).await;
        }
        self.go_applies_plugins().await;
        let databases = self.dynamic("db.example.com/v1", "Database", Some("default"));
        let theirs = json!({"apiVersion": "db.example.com/v1", "kind": "Database", "metadata": {"name": "theirs"},
            "spec": {"size": 3}});
        let theirs = serde_json::from_value(theirs).unwrap();
        databases.create(&PostParams::default(), &theirs).await.unwrap();
        for (name, namespace) in EDITED {
            let configs = self.dynamic("v1", "ConfigMap", Some(namespace));
            let edit = Patch::Merge(json!({"data": {"a": "edited"}}));
            configs.patch(name, &PatchParams::default(), &edit).await.unwrap();
        }
    }

    pub fn dynamic(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.scene.world.cluster.client(&Identity::Admin);
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// The objects of all plugins, and the instance of a person.
    pub async fn objects_of_plugins(&self) -> Vec<Watched> {
        let mut kinds = BTreeMap::<(String, String), BTreeSet<String>>::new();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for plugin in &self.plugins {
            for object in self.groups(plugin).await.iter().flatten() {
                let metadata = &object["metadata"];
                let place = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
                let kind = (text(&object["apiVersion"]), text(&object["kind"]));
                kinds.entry(kind).or_default().insert(place);
            }
        }
        let database = ("db.example.com/v1".to_owned(), "Database".to_owned());
        kinds.entry(database).or_default().insert("default/theirs".to_owned());
        let watched = kinds.into_iter().map(|((version, kind), names)| Watched {
            api: self.dynamic(&version, &kind, None),
            kind: format!("{kind} of a plugin,"),
            selector: "",
            names: Some(names),
            effect: content,
        });
        watched.collect()
    }

    /// The version of each plugin is applied to its end, but for those that somebody changed: these await approval.
    pub async fn are_adopted(&self) {
        let is_edited = |plugin: &OfCloud| EDITED.iter().any(|(type_, _)| *type_ == plugin.type_);
        self.plugins_are(&|plugin, status| {
            let pending = status["pending"]["version"].as_str();
            let expected = if is_edited(plugin) {
                (None, Some(VERSION))
            } else {
                (Some(VERSION), None)
            };
            (applied_version(status), pending) == expected
        })
        .await;
    }

    /// A person approves what is shown of the others; returns the only losses.
    pub async fn approve_what_differs(&self) -> Vec<String> {
        let mut expected = Vec::new();
        for (type_, namespace) in EDITED {
            let world = &self.scene.world;
            let shown = world.says_of_plugin(&["diff", type_, "-o", "json"]).await;
            let shown: Value = serde_json::from_str(&shown).unwrap();
            let differs = json!([{"path": "data.a", "before": "edited", "after": "1"}]);
            let changes = shown["changes"].as_array().unwrap();
            let change = changes
                .iter()
                .find(|change| change["object"] == format!("ConfigMap {namespace}/{type_}"));
            let differences = change.unwrap()["differences"].as_array().unwrap().iter();
            let of_data: Vec<_> = differences.filter(|it| it["path"] == "data.a").cloned().collect();
            assert_eq!(json!(of_data), differs, "{shown}");
            let digest = shown["digest"].as_str().unwrap();
            world
                .says_of_plugin(&["approve", type_, "--yes", "--digest", digest])
                .await;
            expected.push(format!("ConfigMap of a plugin, {namespace}/{type_}"));
        }
        self.all_are_applied().await;
        expected
    }

    pub async fn all_are_applied(&self) {
        self.plugins_are(&|_, status| applied_version(status) == Some(VERSION) && status["pending"].is_null())
            .await;
        for plugin in &self.plugins {
            for object in self.groups(plugin).await.iter().flatten() {
                let metadata = &object["metadata"];
                let text = |field: &Value| field.as_str().map(str::to_owned);
                let (version, kind) = (text(&object["apiVersion"]).unwrap(), text(&object["kind"]).unwrap());
                let api = self.dynamic(&version, &kind, text(&metadata["namespace"]).as_deref());
                let found = api.get(metadata["name"].as_str().unwrap()).await.unwrap();
                assert_eq!(found.labels().get(PLUGIN_LABEL), Some(&plugin.id), "{kind} {metadata}");
            }
        }
    }

    async fn plugins_are(&self, is_so: &dyn Fn(&OfCloud, &Value) -> bool) {
        let api: Api<Plugin> = Api::namespaced(self.scene.world.cluster.client(&Identity::Admin), CORE);
        eventually("the plugins to be taken over", SOON, async || {
            for plugin in &self.plugins {
                let found = api.get(&plugin.id).await.map_err(|error| error.to_string())?;
                let status = serde_json::to_value(found.status.unwrap_or_default()).unwrap();
                if !is_so(plugin, &status) {
                    return Err(format!("{}: {status}", plugin.type_));
                }
            }
            Ok(())
        })
        .await;
    }
}

fn applied_version(status: &Value) -> Option<&str> {
    status["appliedVersion"].as_str().filter(|version| !version.is_empty())
}

/// Everything of an object that is not the API server's, but for what kubectl remembers.
fn content(object: &DynamicObject) -> Value {
    let mut content = object.data.clone();
    content.as_object_mut().unwrap().remove("status");
    let mut annotations = object.annotations().clone();
    annotations.remove(LAST_APPLIED);
    content["metadata"] = json!({"uid": object.uid(), "labels": object.labels(), "annotations": annotations,
        "ownerReferences": object.owner_references()});
    content
}
