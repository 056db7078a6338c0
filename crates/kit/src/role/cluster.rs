//! Which cluster a process works in.

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::settings::environment;
use crate::{Chain, proxy};

/// A cluster that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is neither a kubeconfig nor a service account.
    #[error("no cluster to work in: set kubeconfig (this is not a pod: {pod})")]
    Missing {
        /// Why the service account of a pod cannot be used.
        pod: InClusterError,
        /// Why the default kubeconfig cannot be used.
        #[source]
        kubeconfig: KubeconfigError,
    },
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
    /// The proxy is not a URL. Its text may contain a password, so it is not shown.
    #[error("the proxy is not a URL such as http://proxy.example.com:3128: correct proxy-url, or HTTPS_PROXY")]
    Proxy,
    /// A context, a cluster, a user or a certificate in it cannot be used.
    #[error(transparent)]
    Context(KubeconfigError),
}

/// The cluster of the kubeconfig at `path`; without a path that of `KUBECONFIG`, or the one that the pod runs in. Uses the
/// context that is called `context` if there is one, otherwise the current context.
///
/// The proxy is that of the kubeconfig, otherwise the one of the environment, as for kubectl. The API server of a pod's own
/// cluster is always reached directly.
///
/// # Errors
/// When there is no kubeconfig and no service account, or the file cannot be used.
pub async fn kube_config(path: Option<&Path>, context: Option<&str>) -> Result<Config, ClusterError> {
    let Some(path) = path else {
        let found = match Kubeconfig::read() {
            Ok(kubeconfig) => in_context(kubeconfig, context).await,
            Err(error) => Err(error),
        };
        return found
            .or_else(|kubeconfig| Config::incluster().map_err(|pod| ClusterError::Missing { pod, kubeconfig }));
    };
    let failed = |source| ClusterError::File {
        path: path.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| failed(FileError::Read(first_line(&error))))?;
    in_context(kubeconfig, context).await.map_err(|error| {
        failed(match error {
            KubeconfigError::ParseProxyUrl(_) => FileError::Proxy,
            error => FileError::Context(error),
        })
    })
}

async fn in_context(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, KubeconfigError> {
    let named = context.filter(|name| kubeconfig.contexts.iter().any(|context| context.name == *name));
    let has_proxy = has_proxy(&kubeconfig, named);
    let options = KubeConfigOptions {
        context: named.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // The library takes HTTPS_PROXY whatever NO_PROXY says. A proxy in the kubeconfig has no exceptions.
    if !has_proxy && proxy::is_direct(&config.cluster_url, &environment()) {
        config.proxy_url = None;
    }
    Ok(config)
}

/// Whether the cluster of the context has a `proxy-url`.
fn has_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let context = context.or(kubeconfig.current_context.as_deref());
    let contexts = kubeconfig.contexts.iter();
    let context = contexts
        .filter(|named| Some(named.name.as_str()) == context)
        .find_map(|named| named.context.as_ref());
    let clusters = kubeconfig.clusters.iter();
    let cluster = clusters
        .filter(|named| context.is_some_and(|context| named.name == context.cluster))
        .find_map(|named| named.cluster.as_ref());
    let proxy = cluster.and_then(|cluster| cluster.proxy_url.as_deref());
    proxy.is_some_and(|url| !url.is_empty())
}

/// The YAML parser names the place in its first line and draws it in the next ones.
fn first_line(error: &KubeconfigError) -> String {
    let text = Chain(error).to_string();
    text.lines().next().unwrap_or_default().to_owned()
}
