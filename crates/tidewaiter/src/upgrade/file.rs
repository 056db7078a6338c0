//! The upgrade of a file that is not created yet: a `ClusterUpgrade`, or a document of the cloud.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::yaml;

use crate::text_file;

/// Reads the upgrade. That of a document is named as its file.
pub(super) fn read(path: &Path) -> Result<ClusterUpgrade> {
    let shown = text_file::origin(path);
    let text = text_file::read_named(path).with_context(|| format!("reading {shown}"))?;
    let mut documents = yaml::documents(&text).with_context(|| shown.clone())?;
    let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
        bail!("{shown} must contain exactly one document");
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    upgrade(document, &name).context(shown)
}

fn upgrade(document: Value, name: &str) -> Result<ClusterUpgrade> {
    if document["kind"] == "ClusterUpgrade" {
        return serde_json::from_value(document).context("it is no valid ClusterUpgrade");
    }
    let spec = document.get("spec").unwrap_or(&document);
    let spec = Kind::Upgrade.read_value(spec);
    let spec = spec.map_err(|error| anyhow!("spec: {error}"))?.spec;
    // As the coordinator creates it.
    let metadata = json!({"name": name, "labels": {MANAGED_LABEL: MANAGED_VALUE}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).context("the upgrade")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_the_cloud_and_an_object_of_the_cluster_are_the_same_upgrade() {
        let spec = json!({"type": "kubernetes", "targetVersion": "v1.36.3", "nodeTimeoutSeconds": 900,
            "labelSelector": [{"label": "a", "operator": "in", "value": ["b"]}], "policy": {"canary": 1}});
        let labels = json!({MANAGED_LABEL: MANAGED_VALUE});
        let object = json!({"apiVersion": "containership.io/v3", "kind": "ClusterUpgrade",
            "metadata": {"name": "u", "labels": labels}, "spec": spec});
        let expected = upgrade(object, "").unwrap();
        for document in [spec.clone(), json!({"kind": "Upgrade", "spec": spec})] {
            let found = upgrade(document, "u").unwrap();
            assert_eq!((&found.metadata, &found.spec), (&expected.metadata, &expected.spec));
        }
        for (field, value) in [("targetVersion", json!("latest")), ("targetVersoin", json!("v1.36.3"))] {
            let mut invalid = spec.clone();
            invalid[field] = value;
            let error = upgrade(invalid, "u").unwrap_err().to_string();
            assert!(error.starts_with("spec: ") && error.contains(field), "{error}");
        }
    }
}
