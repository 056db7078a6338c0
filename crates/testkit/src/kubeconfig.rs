//! Kubeconfig files.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::Scratch;
use crate::control_plane::write_private;

/// Writes one with this cluster and this user, which only its owner can read.
pub(crate) fn write(scratch: &Scratch, name: &str, cluster: &Value, user: &Value) -> PathBuf {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testkit", "cluster": cluster}],
        "users": [{"name": "testkit", "user": user}],
        "contexts": [{"name": "testkit", "context": {"cluster": "testkit", "user": "testkit"}}],
        "current-context": "testkit",
    });
    let path = scratch.path().join(format!("kubeconfig-{name}.yaml"));
    write_private(
        &path,
        &serde_saphyr::to_string(&kubeconfig).expect("a kubeconfig is YAML"),
    );
    path
}
