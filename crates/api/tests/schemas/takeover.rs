//! A cluster in which the Go coordinator's definitions exist, made through apiextensions v1beta1, with objects: our
//! definitions replace them, and every object is served as before.

use std::path::Path;
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_testkit::builders::{GO_DEFINITIONS, GoDefinition};
use tidewaiter_testkit::{ControlPlane, Identity, eventually};

use super::{NAMESPACE, golden};

const SOON: Duration = Duration::from_mins(3);

/// Objects as the Go coordinator wrote them, with a field that no version of it knows.
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
    for (number, old) in GO_DEFINITIONS.iter().enumerate() {
        control_plane.store(&old.key(), &old.stored(number)).await;
    }
    let client = control_plane.client(&Identity::Admin);
    let mut served = Vec::new();
    for object in objects() {
        let new: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let api = GoDefinition::of(&object).api(&client);
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
    for old in &GO_DEFINITIONS {
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

    for (number, old) in GO_DEFINITIONS.iter().enumerate() {
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
            GoDefinition::of(object).api(&client),
        );
        let after = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
        assert_eq!(&after, object, "served as before");
    }
}

/// A Go client writes whole objects, with `null` for an empty list. We apply the fields that we know; a list is
/// replaced as a whole.
#[tokio::test]
async fn both_coordinators_can_write_the_objects_that_were_there() {
    let (control_plane, before) = old_cluster().await;
    take_over(&control_plane, &["--server-side", "--force-conflicts"]).await;
    let client = control_plane.client(&Identity::Admin);
    for (golden, object) in golden::all().into_iter().zip(before) {
        let (kind, api) = (object["kind"].to_string(), GoDefinition::of(&object).api(&client));
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
