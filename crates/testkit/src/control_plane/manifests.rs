//! Applying YAML as an operator would with `kubectl apply`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Client, ResourceExt};

use crate::eventually;

const MANAGER: &str = "tidewaiter-testkit";
/// An API server on a busy machine takes many seconds for a new kind.
const DEADLINE: Duration = Duration::from_mins(3);

/// The `*.yaml` and `*.yml` files of a folder by name, or the one file.
pub(super) fn files(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a folder's entry").path()).collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
    });
    files.sort();
    assert!(!files.is_empty(), "{} holds no manifests", path.display());
    files
}

/// The documents of a YAML text; `origin` names it in messages.
pub(super) fn parse(origin: &str, text: &str) -> Vec<DynamicObject> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{origin}: {error}"))
}

/// Applies all: namespaces and definitions first, since others lie in the former and are defined by the latter.
pub(super) async fn apply(client: &Client, mut objects: Vec<DynamicObject>) {
    objects.sort_by_key(|object| match kind(object).kind.as_str() {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    });
    for object in objects {
        apply_one(client, object).await;
    }
}

async fn apply_one(client: &Client, object: DynamicObject) {
    let kind = kind(&object);
    let name = object.name_any();
    let (resource, capabilities) = eventually(format_args!("the API server to serve {kind:?}"), DEADLINE, async || {
        discovery::pinned_kind(client, &kind).await
    })
    .await;
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
    };
    let applied = api
        .patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object))
        .await;
    applied.unwrap_or_else(|error| panic!("{} {name} cannot be applied: {error}", kind.kind));
    if kind.kind == "CustomResourceDefinition" {
        established(client, &name).await;
    }
}

async fn established(client: &Client, name: &str) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    eventually(format_args!("{name} to be Established"), DEADLINE, async || {
        let definition = api.get(name).await.map_err(|error| error.to_string())?;
        let conditions = definition
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let established = conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True");
        if established {
            Ok(())
        } else {
            Err(format!("{conditions:?}"))
        }
    })
    .await;
}

fn kind(object: &DynamicObject) -> GroupVersionKind {
    let types = object
        .types
        .as_ref()
        .unwrap_or_else(|| panic!("{} has no kind", object.name_any()));
    types.try_into().unwrap_or_else(|error| panic!("{types:?}: {error}"))
}
