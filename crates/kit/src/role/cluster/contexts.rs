//! The contexts of a kubeconfig, as a person names them.

use std::path::Path;

use kube::Config;
use kube::config::Kubeconfig;

use super::{ClusterError, FileError, check, first_line, kube_config, paths};

/// The cluster of the context `context`, which must exist, in the kubeconfig at `path`; without a path in that of
/// `KUBECONFIG`, otherwise in the default one.
///
/// # Errors
/// The context does not exist, or its cluster cannot be used.
pub async fn kube_config_in(path: Option<&Path>, context: &str) -> Result<Config, ClusterError> {
    let known = kube_contexts(path)?;
    if known.iter().any(|name| name == context) {
        return kube_config(path, Some(context)).await;
    }
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    Err(ClusterError::File {
        path: std::env::join_paths(paths(path)).unwrap_or_default().into(),
        source: FileError::NoContext {
            name: context.to_owned(),
            known,
        },
    })
}

/// The names of the contexts in the kubeconfig of [`kube_config_in`].
///
/// # Errors
/// The file cannot be read.
pub fn kube_contexts(path: Option<&Path>) -> Result<Vec<String>, ClusterError> {
    let mut known = Vec::new();
    // As for kubectl, those of the variable that do not exist are no error.
    let files = paths(path).into_iter().filter(|file| path.is_some() || file.exists());
    for file in files {
        check(&file)?;
        let read = Kubeconfig::read_from(&file).map_err(|error| ClusterError::File {
            path: file.clone(),
            source: FileError::Read(first_line(&error)),
        })?;
        known.extend(read.contexts.into_iter().map(|context| context.name));
    }
    Ok(known)
}
