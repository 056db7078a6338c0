//! Objects that exist before a plugin is applied: which of them become the plugin's, and which stay somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Stdio;

use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_coordinator::controllers::{PluginDrift, PluginSettings};
use tidewaiter_testkit::{AuditMark, Identity, eventually};

use crate::cluster::{SOON, coordinator};
use crate::world::{World, config, definition, id, plugin_of};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl World {
    /// Runs kubectl as a person; these words are its arguments.
    pub fn kubectl(&self, words: &str, input: &str) {
        let mut kubectl = self.plane().kubectl(&Identity::Admin);
        let kubectl = kubectl
            .args(words.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut kubectl = kubectl.spawn().unwrap();
        kubectl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(kubectl.wait().unwrap().success(), "kubectl {words}");
    }

    /// Applies the manifests as the Go coordinator does: it writes them to a file, and runs `kubectl apply` on it.
    fn go_applies(&self, objects: &[Value]) {
        for object in objects {
            self.kubectl("apply -f -", &object.to_string());
            if object["kind"] == "CustomResourceDefinition" {
                let name = object["metadata"]["name"].as_str().unwrap();
                self.kubectl(&format!("wait --for=condition=Established crd/{name}"), "");
            }
        }
    }

    /// Waits until the version is applied to its end, although no controller makes its Deployments ready.
    pub async fn is_applied(&self, number: usize, version: &str) {
        eventually(format!("version {version} of {number}"), SOON, async || {
            let plugin = self
                .plugins()
                .get(&id(number))
                .await
                .map_err(|error| error.to_string())?;
            let status = plugin.status.unwrap_or_default();
            if status.applied_version == version {
                Ok(())
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await;
    }

    /// The requests of the coordinator about `ConfigMap`s since `mark`.
    async fn requests(&self, mark: AuditMark, verb: &str) -> Vec<String> {
        let audit = self.plane().audit().await.since(mark).by(&coordinator());
        let requests = audit.of("configmaps").verb(verb);
        requests.iter().map(|entry| entry.uri.clone()).collect()
    }

    /// Waits until this many passes have read the ConfigMap `two`.
    async fn has_passed(&self, mark: AuditMark, passes: usize) {
        eventually(format!("{passes} passes"), SOON, async || {
            let reads = self.requests(mark, "get").await;
            match reads.iter().filter(|uri| uri.contains("/two")).count() {
                found if found >= passes => Ok(()),
                found => Err(found),
            }
        })
        .await;
        self.is_quiet().await;
    }

    async fn config(&self, name: &str) -> DynamicObject {
        self.configs().get(name).await.unwrap()
    }

    async fn label(&self, name: &str, plugin: Option<&str>) {
        let label = json!({"metadata": {"labels": {PLUGIN_LABEL: plugin}}});
        let (configs, label) = (self.configs(), Patch::Merge(label));
        configs.patch(name, &PatchParams::default(), &label).await.unwrap();
    }

    async fn set(&self, name: &str, value: &str) {
        let (configs, patch) = (self.configs(), Patch::Merge(json!({"data": {"a": value}})));
        configs.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "creationTimestamp": null, "labels": {"app": name}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "strategy": {},
            "template": {"metadata": {"labels": {"app": name}, "creationTimestamp": null}, "spec": {"containers": [
                {"name": "main", "image": "main:1", "resources": {"limits": {"cpu": "1000m"}}}]}}}, "status": {}})
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default", "annotations": {"a": "b"}},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

/// The objects that the Go coordinator has applied.
fn taken_over(world: &World) -> [(Api<DynamicObject>, &'static str); 7] {
    [
        (world.objects("v1", "namespaces", "Namespace", None), "taken-over"),
        (
            world.objects("apiextensions.k8s.io/v1", "customresourcedefinitions", "", None),
            "widgets.taken.example.com",
        ),
        (
            world.objects("taken.example.com/v1", "widgets", "Widget", Some("taken-over")),
            "w",
        ),
        (world.configs(), "one"),
        (world.configs(), "two"),
        (
            world.objects("apps/v1", "deployments", "Deployment", Some("default")),
            "web",
        ),
        (world.objects("v1", "services", "Service", Some("default")), "web"),
    ]
}

/// The traces of kubectl on an object.
fn of_kubectl(object: &DynamicObject) -> Vec<String> {
    let annotations = object.metadata.annotations.clone().unwrap_or_default();
    let annotation = annotations.contains_key(LAST_APPLIED).then(|| LAST_APPLIED.to_owned());
    let managers = object.metadata.managed_fields.iter().flatten();
    let managers = managers.filter_map(|entry| entry.manager.clone());
    let others = managers.filter(|manager| manager.starts_with("kubectl") || manager == "before-first-apply");
    others.chain(annotation).collect()
}

#[tokio::test]
async fn what_the_go_coordinator_applied_is_taken_over_without_a_gap() {
    let world = World::start().await;
    let two = |version: &str, b: Option<&str>| {
        let mut object = config("two", version);
        if let Some(b) = b {
            object["data"]["b"] = json!(b);
        }
        object
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "taken-over"}});
    let widget = json!({"apiVersion": "taken.example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "taken-over"},
        "spec": {"size": 1}});
    let objects = |b: Option<&str>, definition: Value| {
        vec![
            namespace.clone(),
            definition,
            widget.clone(),
            config("one", "1"),
            two("1", b),
            deployment("web"),
            service("web"),
        ]
    };
    let old = objects(Some("2"), definition("taken.example.com"));
    world.go_applies(&old);
    // One of the time before the API server recorded who owns which field.
    let forget = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]);
    let forget = Patch::<()>::Json(serde_json::from_value(forget).unwrap());
    let configs = world.configs();
    configs.patch("one", &PatchParams::default(), &forget).await.unwrap();
    assert_eq!(world.config("one").await.metadata.managed_fields, None);
    let apis = taken_over(&world);
    let look = async || {
        let mut found = BTreeMap::new();
        for (place, (api, name)) in apis.iter().enumerate() {
            found.insert(place, api.get(name).await.unwrap());
        }
        found
    };
    let uids = |found: &BTreeMap<usize, DynamicObject>| -> Vec<_> {
        found.values().map(|it| it.metadata.uid.clone()).collect()
    };
    let before = look().await;
    let mark = world.plane().audit_mark().await;

    world.offer(1, "1.0.0", &json!([old]));
    let running = world.run(PluginSettings::default()).await;
    world.is_applied(1, "1.0.0").await;
    let after = look().await;
    assert_eq!(uids(&after), uids(&before), "nothing was created again");
    for (place, object) in &after {
        assert_eq!(
            plugin_of(&serde_json::to_value(object).unwrap()),
            Some(id(1).as_str()),
            "{:?}",
            object.metadata.name
        );
        assert_eq!(of_kubectl(object), [""; 0], "{:?}", object.metadata.name);
        let content = ["spec", "data"].map(|field| (object.data.get(field), before[place].data.get(field)));
        for (now, then) in content {
            assert_eq!(now, then, "its content stays as it is");
        }
    }
    let written = world.written_since(mark).await;
    assert!(!written.iter().any(|write| write.starts_with("delete")), "{written:?}");
    let note = world.event(&id(1), "ObjectAdopted").await;
    assert!(note.contains("as the Go coordinator does"), "{note}");
    world.is_quiet().await;

    // What a version leaves out goes, although kubectl applied it, and the definition is upgraded.
    let mut next = definition("taken.example.com");
    next["spec"]["names"]["shortNames"] = json!(["wdg"]);
    world.offer(1, "1.1.0", &json!([objects(None, next)]));
    world.is_applied(1, "1.1.0").await;
    let after = look().await;
    assert_eq!(after[&4].data["data"], json!({"a": "1"}));
    assert_eq!(after[&1].data["spec"]["names"]["shortNames"], json!(["wdg"]));
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    world.offer(1, "1.2.0", &json!([[namespace, empty]]));
    world.is_applied(1, "1.2.0").await;
    world
        .has_exactly(
            1,
            &BTreeSet::from(["ConfigMap default/one".to_owned(), "Namespace taken-over".to_owned()]),
        )
        .await;
    assert_eq!(world.config("one").await.data.get("data"), None);
    running.stop().await;
}

#[tokio::test]
async fn what_somebody_changed_of_the_go_coordinators_objects_is_shown_before_it_is_changed() {
    let world = World::start().await;
    let objects = [config("one", "1"), config("two", "1")];
    world.go_applies(&objects);
    world.set("two", "edited").await;
    world.offer(1, "1.0.0", &json!([objects]));
    let running = world.run(PluginSettings::default()).await;
    let pending = world.pending(1, "1.0.0").await;
    assert_eq!((pending.creates, pending.changes, pending.deletes), (0, 2, 0));
    let diff = world.diff(1).await;
    let change = diff
        .changes
        .iter()
        .find(|change| change.object.ends_with("two"))
        .unwrap();
    let differs = |path: &str| change.differences.iter().find(|it| it.path == path);
    let data = differs("data.a").unwrap();
    assert_eq!((&data.before, &data.after), (&Some(json!("edited")), &Some(json!("1"))));
    assert!(change.note.contains("as the Go coordinator does"), "{}", change.note);
    world.is_quiet().await;
    assert!(world.labelled(1).await.unwrap().is_empty());
    world.config_is("two", Some("edited")).await;

    // Passes in which nothing has changed render nothing.
    let mark = world.plane().audit_mark().await;
    for number in 0..3 {
        world.annotate(1, "note", Some(&number.to_string())).await;
        world.has_passed(mark, number + 1).await;
    }
    assert_eq!(world.requests(mark, "patch").await, [""; 0]);
    // No watch shows an object without a label.
    world.set("two", "edited again").await;
    world.annotate(1, "note", None).await;
    eventually("a dry run", SOON, async || {
        let rendered = world.requests(mark, "patch").await;
        if rendered.iter().any(|uri| uri.contains("dryRun=All")) {
            Ok(())
        } else {
            Err(format!("{rendered:?}"))
        }
    })
    .await;
    let pending = world.pending_but(1, "1.0.0", &pending.digest).await;

    // A restart changes nothing.
    running.stop().await;
    let running = world.run(PluginSettings::default()).await;
    world.pending(1, "1.0.0").await;
    world.is_quiet().await;
    world.config_is("two", Some("edited again")).await;
    world.approve(1, &pending.digest).await;
    world.is_ready(1, "1.0.0").await;
    world.config_is("two", Some("1")).await;
    // From now on it is a plugin like any other.
    world.offer(1, "1.1.0", &json!([[config("one", "2"), config("two", "2")]]));
    world.is_ready(1, "1.1.0").await;
    world.config_is("two", Some("2")).await;
    running.stop().await;
}

#[tokio::test]
async fn what_somebody_changed_is_shown_as_well_if_the_manifests_had_the_label() {
    let world = World::start().await;
    let mut object = config("one", "1");
    object["metadata"]["labels"] = json!({PLUGIN_LABEL: id(1)});
    let objects = [object];
    world.go_applies(&objects);
    world.set("one", "edited").await;
    world.offer(1, "1.0.0", &json!([objects]));
    let running = world.run(PluginSettings::default()).await;
    let pending = world.pending(1, "1.0.0").await;
    assert_eq!((pending.creates, pending.changes, pending.deletes), (0, 1, 0));
    world.is_quiet().await;
    world.config_is("one", Some("edited")).await;
    world.approve(1, &pending.digest).await;
    world.is_ready(1, "1.0.0").await;
    world.config_is("one", Some("1")).await;
    assert_eq!(of_kubectl(&world.config("one").await), [""; 0]);
    running.stop().await;
}

#[tokio::test]
async fn an_object_of_a_stranger_is_adopted_only_when_somebody_hands_it_over() {
    let world = World::start().await;
    world.kubectl("apply -f -", &config("applied", "theirs").to_string());
    let mut theirs = config("put", "theirs");
    theirs["data"]["b"] = json!("theirs");
    world.put(&world.configs(), &theirs).await;
    world.offer(1, "1.0.0", &json!([[config("applied", "1"), config("put", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    let message = world.condition(1, "1.0.0", "Stalled", "True ForeignObject").await;
    world.is_quiet().await;
    world.config_is("applied", Some("theirs")).await;
    world.config_is("put", Some("theirs")).await;
    // The message says the command.
    let command = format!(
        "label configmap applied -n default containership.io/plugin-id={}",
        id(1)
    );
    assert!(message.contains(&format!("kubectl {command}.")), "{message}");
    world.kubectl(&command, "");
    world.config_is("applied", Some("1")).await;
    assert_eq!(of_kubectl(&world.config("applied").await), ["kubectl-label"]);
    world.label("put", Some(&id(1))).await;
    world.is_ready(1, "1.0.0").await;
    // Fields that the manifests do not have are anyone's.
    assert_eq!(world.config("put").await.data["data"], json!({"a": "1", "b": "theirs"}));
    // What appears after the first version was not made by the Go coordinator, although it is equal.
    world.kubectl("apply -f -", &config("later", "1").to_string());
    world.offer(
        1,
        "1.1.0",
        &json!([[config("applied", "1"), config("put", "1"), config("later", "1")]]),
    );
    let message = world.condition(1, "1.1.0", "Stalled", "True ForeignObject").await;
    assert!(message.contains("ConfigMap default/later"), "{message}");
    running.stop().await;
}

#[tokio::test]
async fn an_object_whose_label_is_taken_off_stays_the_plugins_and_one_that_is_made_anew_does_not() {
    let world = World::start().await;
    let objects = json!([[config("one", "1"), config("two", "1")]]);
    world.offer(1, "1.0.0", &objects);
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let before = world.config("one").await;
    world.label("one", None).await;
    world
        .shows(&world.configs(), "one", |found| plugin_of(found) == Some(&id(1)))
        .await;
    assert_eq!(world.config("one").await.metadata.uid, before.metadata.uid);
    world.is_ready(1, "1.0.0").await;
    running.stop().await;

    world.label("one", None).await;
    world.delete(&world.configs(), "two").await;
    world.put(&world.configs(), &config("two", "theirs")).await;
    let running = world.run(PluginSettings::default()).await;
    world
        .shows(&world.configs(), "one", |found| plugin_of(found) == Some(&id(1)))
        .await;
    let message = world.condition(1, "1.0.0", "Stalled", "True ForeignObject").await;
    assert!(message.contains("ConfigMap default/two"), "{message}");
    world.config_is("two", Some("theirs")).await;
    running.stop().await;
}

#[tokio::test]
async fn an_object_without_its_label_stays_when_the_plugin_goes_and_is_named() {
    const MANY: usize = 12;
    let world = World::start().await;
    let many = |version: &str| {
        (0..MANY)
            .map(|number| config(&format!("many-{number}"), version))
            .collect::<Vec<_>>()
    };
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "stringData": {"a": "b"}});
    let mut objects = many("1");
    objects.push(secret.clone());
    world.offer(1, "1.0.0", &json!([objects]));
    // A label that is taken off while the coordinator runs is not put back with this setting.
    let settings = PluginSettings {
        drift: PluginDrift::Report,
        ..PluginSettings::default()
    };
    let _running = world.run(settings).await;
    world.is_ready(1, "1.0.0").await;
    let said = |object: &str, command: &str| {
        format!(
            "{object} stays, because somebody took its label containership.io/plugin-id off. Delete it when nothing needs it any more: kubectl \
             delete {command}"
        )
    };
    // A version leaves it out.
    world.label("many-3", None).await;
    world.offer(1, "1.1.0", &json!([many("1")[4..].to_vec(), [secret]]));
    let note = said("ConfigMap default/many-3", "configmap many-3 -n default");
    world.says(&id(1), "ObjectLeft", &note).await;
    world.config_is("many-2", None).await;
    world.is_ready(1, "1.1.0").await;
    // The plugin goes. Many objects are found with a list, and few by their names.
    world.label("many-7", None).await;
    let secrets = world.objects("v1", "secrets", "Secret", Some("default"));
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": null}}));
    secrets
        .patch("one", &PatchParams::default(), &unlabelled)
        .await
        .unwrap();
    world.withdraw(1);
    world.is_forgotten(1).await;
    for (object, command) in [
        ("ConfigMap default/many-7", "configmap many-7 -n default"),
        ("Secret default/one", "secret one -n default"),
    ] {
        world.says(&id(1), "ObjectLeft", &said(object, command)).await;
    }
    assert!(world.labelled(1).await.unwrap().is_empty());
    for name in ["many-3", "many-7"] {
        world.config_is(name, Some("1")).await;
    }
    assert!(secrets.get_opt("one").await.unwrap().is_some());
}

#[tokio::test]
async fn what_a_plugin_left_is_adopted_by_the_plugin_that_is_added_again() {
    let world = World::start().await;
    let group = "again.example.com";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "again"}});
    world.offer(1, "1.0.0", &json!([[definition(group), namespace, config("one", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let widgets = world.objects("again.example.com/v1", "widgets", "Widget", Some("again"));
    let theirs = json!({"apiVersion": "again.example.com/v1", "kind": "Widget", "metadata": {"name": "theirs"}});
    world.put(&widgets, &theirs).await;
    world.withdraw(1);
    world.is_forgotten(1).await;
    let left = ["CustomResourceDefinition widgets.again.example.com", "Namespace again"];
    assert_eq!(world.labelled(1).await.unwrap(), left.map(str::to_owned).into());
    // An object whose inventory was lost.
    let mut orphan = config("one", "orphan");
    orphan["metadata"]["labels"] = json!({"containership.io/plugin-id": id(1)});
    world.put(&world.configs(), &orphan).await;

    let mut next = definition(group);
    next["spec"]["names"]["shortNames"] = json!(["wdg"]);
    world.offer(2, "2.0.0", &json!([[next, namespace, config("one", "2")]]));
    world.is_ready(2, "2.0.0").await;
    world.config_is("one", Some("2")).await;
    let all = left.into_iter().chain(["ConfigMap default/one"]).map(str::to_owned);
    world.has_exactly(2, &all.collect()).await;
    let definitions = world.objects("apiextensions.k8s.io/v1", "customresourcedefinitions", "", None);
    world
        .shows(&definitions, "widgets.again.example.com", |found| {
            found["spec"]["names"]["shortNames"] == json!(["wdg"])
        })
        .await;
    // A plugin that exists keeps what it has.
    world.offer(3, "3.0.0", &json!([[config("one", "3")]]));
    let message = world.condition(3, "3.0.0", "Stalled", "True ForeignObject").await;
    assert!(message.contains(&id(2)) && message.contains("--overwrite"), "{message}");
    world.config_is("one", Some("2")).await;
    running.stop().await;
}
