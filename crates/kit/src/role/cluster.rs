//! Which cluster a process works in.

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::Chain;

/// A cluster that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is neither a kubeconfig nor a service account.
    #[error("no cluster to work in: set kubeconfig")]
    Missing(#[source] InferConfigError),
    /// The file that the setting names is not a kubeconfig.
    #[error("kubeconfig is {path}: it cannot be used")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: FileError,
    },
}

/// What is wrong with a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or parsed.
    #[error("{0}")]
    Read(String),
    /// A context, a cluster, a user or a certificate in it cannot be used.
    #[error(transparent)]
    Context(KubeconfigError),
}

/// The cluster of the kubeconfig at `path`; without a path that of `KUBECONFIG`, or the one that the pod runs in. Uses the
/// context that is called `context` if there is one, otherwise the current context.
///
/// # Errors
/// When there is no kubeconfig and no service account, or the file cannot be used.
pub async fn kube_config(path: Option<&Path>, context: Option<&str>) -> Result<Config, ClusterError> {
    let Some(path) = path else {
        if context.is_some()
            && let Ok(kubeconfig) = Kubeconfig::read()
            && let Ok(config) = in_context(kubeconfig, context).await
        {
            return Ok(config);
        }
        return Config::infer().await.map_err(ClusterError::Missing);
    };
    let failed = |source| ClusterError::File {
        path: path.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| failed(FileError::Read(first_line(&error))))?;
    let config = in_context(kubeconfig, context).await;
    config.map_err(|error| failed(FileError::Context(error)))
}

async fn in_context(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, KubeconfigError> {
    let named = context.filter(|name| kubeconfig.contexts.iter().any(|context| context.name == *name));
    let options = KubeConfigOptions {
        context: named.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(kubeconfig, &options).await
}

/// The YAML parser names the place in its first line and draws it in the next ones.
fn first_line(error: &KubeconfigError) -> String {
    let text = Chain(error).to_string();
    text.lines().next().unwrap_or_default().to_owned()
}
