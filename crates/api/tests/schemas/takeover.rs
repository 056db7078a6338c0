//! A cluster in which the Go coordinator's definitions exist, made through apiextensions v1beta1, with objects: our definitions replace
//! them, and every object is served as before.

use std::path::Path;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tidewaiter_testkit::{ControlPlane, Identity, eventually};

use super::{NAMESPACE, golden};

const SOON: Duration = Duration::from_secs(30);

/// A definition of the Go coordinator or of Cerebral.
struct Old {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
}

#[rustfmt::skip]
static OLD: [Old; 10] = [
    Old { group: "containership.io", version: "v3", kind: "User", plural: "users", short: "usr" },
    Old { group: "containership.io", version: "v3", kind: "Registry", plural: "registries", short: "reg" },
    Old { group: "containership.io", version: "v3", kind: "Plugin", plural: "plugins", short: "plgn" },
    Old { group: "containership.io", version: "v3", kind: "ClusterLabel", plural: "clusterlabels", short: "cl" },
    Old { group: "provision.containership.io", version: "v3", kind: "NodePoolLabel", plural: "nodepoollabels", short: "npl" },
    Old { group: "provision.containership.io", version: "v3", kind: "ClusterUpgrade", plural: "clusterupgrades", short: "cup" },
    Old { group: "auth.containership.io", version: "v3", kind: "AuthorizationRole", plural: "authorizationroles", short: "authrole" },
    Old { group: "auth.containership.io", version: "v3", kind: "AuthorizationRoleBinding", plural: "authorizationrolebindings", short: "authbinding" },
    Old { group: "cerebral.containership.io", version: "v1alpha1", kind: "AutoscalingGroup", plural: "autoscalinggroups", short: "asg" },
    Old { group: "cerebral.containership.io", version: "v1alpha1", kind: "AutoscalingPolicy", plural: "autoscalingpolicies", short: "asp" },
];

impl Old {
    fn of(object: &Value) -> &'static Self {
        let kind = object["kind"].as_str().unwrap();
        OLD.iter().find(|old| old.kind == kind).unwrap()
    }

    fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    fn is_cerebral(&self) -> bool {
        self.group.starts_with("cerebral")
    }

    /// As `kubectl apply` sent it.
    fn applied(&self) -> Value {
        let scope = if self.is_cerebral() { "Cluster" } else { "Namespaced" };
        let names = json!({"kind": self.kind, "plural": self.plural, "shortNames": [self.short]});
        let mut definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1beta1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name()},
            "spec": {"group": self.group, "version": self.version, "scope": scope, "names": names},
        });
        if self.is_cerebral() {
            // Cerebral's definitions had schemas, which refused `null`. They were not structural, so nothing was pruned.
            let spec = json!({"properties": {"spec": {"required": [], "properties": {"policies": {"type": "array"}}}}});
            definition["spec"]["validation"] = json!({"openAPIV3Schema": spec});
        } else {
            definition["metadata"]["labels"] = json!({"containership.io/managed": "true"});
        }
        if self.kind == "AutoscalingGroup" {
            definition["spec"]["subresources"] = json!({"status": {}});
        }
        definition
    }

    /// As the API server of that time stored it.
    fn stored(&self, number: usize) -> Value {
        let mut definition = self.applied();
        let applied = definition.to_string();
        let metadata = definition["metadata"].as_object_mut().unwrap();
        metadata.insert("uid".to_owned(), json!(format!("00000000-0000-4000-9000-{number:012}")));
        metadata.insert("creationTimestamp".to_owned(), json!("2019-03-25T21:00:00Z"));
        metadata.insert("generation".to_owned(), json!(1));
        metadata.insert(
            "annotations".to_owned(),
            json!({"kubectl.kubernetes.io/last-applied-configuration": applied}),
        );
        let (singular, list) = (self.kind.to_lowercase(), format!("{}List", self.kind));
        let names = json!({
            "kind": self.kind, "plural": self.plural, "singular": singular, "listKind": list, "shortNames": [self.short],
        });
        let spec = definition["spec"].as_object_mut().unwrap();
        spec.insert("names".to_owned(), names.clone());
        let version = json!([{"name": self.version, "served": true, "storage": true}]);
        spec.insert("versions".to_owned(), version);
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
        spec.insert("preserveUnknownFields".to_owned(), json!(true));
        let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2019-03-25T21:00:00Z"});
        definition["status"] = json!({
            "acceptedNames": names,
            "conditions": [condition("NamesAccepted"), condition("Established")],
            "storedVersions": [self.version],
        });
        definition
    }

    fn api(&self, client: &kube::Client) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        if self.is_cerebral() {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), "containership-core", &resource)
        }
    }
}

/// What the Go coordinator wrote, and what somebody added that no version of it knows.
fn objects() -> Vec<Value> {
    let mut objects = golden::all();
    for object in &mut objects {
        object["annotation"] = json!("at the top");
        object["spec"]["legacy"] = json!({"a": [1, null, "x"], "b": null});
        for list in ["ssh_keys", "rules", "labelSelector"] {
            if let Some(Value::Object(item)) = object["spec"].pointer_mut(&format!("/{list}/0")) {
                item.insert("legacy".to_owned(), json!({"c": null}));
            }
        }
    }
    objects
}

fn kubectl(control_plane: &ControlPlane, arguments: &[&str]) -> String {
    let output = control_plane
        .kubectl(&Identity::Admin)
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {arguments:?}: {error}");
    text
}

/// A control plane with the old definitions, whose objects are created and returned as they are served.
async fn old_cluster() -> (ControlPlane, Vec<Value>) {
    let control_plane = ControlPlane::start().await;
    control_plane.apply(NAMESPACE).await;
    for (number, old) in OLD.iter().enumerate() {
        let key = format!("apiextensions.k8s.io/customresourcedefinitions/{}", old.name());
        control_plane.store(&key, &old.stored(number)).await;
    }
    let client = control_plane.client(&Identity::Admin);
    let mut served = Vec::new();
    for object in objects() {
        let new: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let api = Old::of(&object).api(&client);
        let created = eventually(format_args!("the old {}", object["kind"]), SOON, async || {
            api.create(&PostParams::default(), &new).await
        })
        .await;
        let created = serde_json::to_value(created).unwrap();
        assert_eq!(created["spec"], object["spec"], "nothing is pruned before");
        served.push(created);
    }
    (control_plane, served)
}

/// As an operator does it: `kubectl apply -f deploy/crds/coordinator`, perhaps with more arguments.
async fn take_over(control_plane: &ControlPlane, more: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds/coordinator");
    let apply = ["apply", "-f", folder.to_str().unwrap()];
    kubectl(control_plane, &[&apply, more].concat());
    let client = control_plane.client(&Identity::Admin);
    for old in &OLD {
        let api = old.api(&client);
        let new = json!({
            "apiVersion": format!("{}/{}", old.group, old.version), "kind": old.kind,
            "metadata": {"name": "no-spec"}, "spec": "no object",
        });
        let new: DynamicObject = serde_json::from_value(new).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually(format_args!("the new {}", old.kind), SOON, async || {
            match api.create(&dry_run, &new).await {
                Err(kube::Error::Api(status)) if status.code == 422 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_old_definitions_are_replaced_and_every_object_is_served_as_before() {
    let (control_plane, before) = old_cluster().await;
    let client = control_plane.client(&Identity::Admin);
    let definition = |name: &str| -> Value {
        serde_json::from_str(&kubectl(&control_plane, &["get", "crd", name, "-o", "json"])).unwrap()
    };
    let old = definition("users.containership.io");
    assert_eq!(old["spec"]["preserveUnknownFields"], true, "{old:#}");
    assert_eq!(old["spec"]["versions"][0]["schema"], Value::Null, "{old:#}");

    take_over(&control_plane, &[]).await;

    for (number, old) in OLD.iter().enumerate() {
        let new = definition(&old.name());
        assert_eq!(
            new["metadata"]["uid"],
            old.stored(number)["metadata"]["uid"],
            "it is the same definition"
        );
        let preserves = &new["spec"]["preserveUnknownFields"];
        assert!([&Value::Null, &json!(false)].contains(&preserves), "{new:#}");
        let conditions = new["status"]["conditions"].as_array().unwrap();
        let structural = conditions
            .iter()
            .all(|condition| condition["type"] != "NonStructuralSchema");
        assert!(structural, "{conditions:?}");
        let table = kubectl(&control_plane, &["get", old.short, "-n", "containership-core"]);
        let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(columns, ["NAME", "AGE"], "{}", old.kind);
    }
    for object in &before {
        let (name, api) = (
            object["metadata"]["name"].as_str().unwrap(),
            Old::of(object).api(&client),
        );
        let after = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
        assert_eq!(&after, object, "served as before");
    }
}

/// A Go client writes whole objects, with `null` for an empty list. We apply the fields that we know; a list is replaced as a whole.
#[tokio::test]
async fn both_coordinators_can_write_the_objects_that_were_there() {
    let (control_plane, before) = old_cluster().await;
    take_over(&control_plane, &["--server-side", "--force-conflicts"]).await;
    let client = control_plane.client(&Identity::Admin);
    for (golden, object) in golden::all().into_iter().zip(before) {
        let (kind, api) = (object["kind"].to_string(), Old::of(&object).api(&client));
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut put = object.clone();
        put["metadata"]["annotations"] = json!({"written-by": "go"});
        let put: DynamicObject = serde_json::from_value(put).unwrap();
        let written = api.replace(&name, &PostParams::default(), &put).await;
        written.unwrap_or_else(|error| panic!("the Go coordinator's {kind}: {error}"));

        let mut body = golden::written_back(&object);
        body["metadata"] = json!({"name": name});
        let apply = PatchParams::apply("tidewaiter/test").force();
        let applied = api.patch(&name, &apply, &Patch::Apply(&body)).await;
        let applied = applied.unwrap_or_else(|error| panic!("our {kind}: {error}"));
        let applied = serde_json::to_value(applied).unwrap();
        golden::assert_kept(&golden["spec"], &applied["spec"], &kind);
        // The cloud decides the whole spec of the others.
        let legacy = if object["kind"] == "ClusterUpgrade" {
            &object["spec"]["legacy"]
        } else {
            &Value::Null
        };
        assert_eq!(&applied["spec"]["legacy"], legacy, "{kind}");
    }
}
