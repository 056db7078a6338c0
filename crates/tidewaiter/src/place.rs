//! Shared by all read-only commands: the cluster, and where its state store is.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use kube::Config;
use tidewaiter_kit::role::{ClusterError, kube_config, kube_config_in};
use tidewaiter_kops::{self as kops, ConfigError, ControllerConfig, Loaded};

use crate::cli::Place;

/// The location of the definitions, if given. Only a file names the cloud.
pub(crate) fn config(place: &Place) -> Result<Option<ControllerConfig>> {
    if let Some(path) = &place.conf {
        return Ok(Some(read_conf(path)?.config));
    }
    let (name, state) = match (&place.name, &place.state) {
        (Some(name), Some(state)) => (name, state),
        (None, None) => return Ok(None),
        (Some(_), None) => bail!("--name (KOPS_CLUSTER_NAME) requires --state (KOPS_STATE_STORE)"),
        (None, Some(_)) => bail!("--state (KOPS_STATE_STORE) requires --name (KOPS_CLUSTER_NAME)"),
    };
    let base = format!("{}/{name}", state.trim_end_matches('/'));
    Ok(Some(ControllerConfig {
        cluster_name: name.clone(),
        // A placeholder: only a file, or the Cluster, names the cloud.
        cloud: kops::Cloud::Aws,
        config_base: base.parse().context("--state (KOPS_STATE_STORE)")?,
        region: None,
        project: None,
        address_based_names: None,
    }))
}

/// The API server of the context, or without one of the current context.
///
/// # Errors
/// The context does not exist, or its cluster cannot be used.
pub(crate) async fn api_server(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ClusterError> {
    match context {
        Some(context) => kube_config_in(kubeconfig, context).await,
        None => kube_config(kubeconfig, None).await,
    }
}

/// Reads the configuration file that kOps wrote.
///
/// # Errors
/// If it is unreadable or invalid.
pub(crate) fn read_conf(path: &Path) -> Result<Loaded> {
    match ControllerConfig::load(path) {
        Err(error @ ConfigError::Read { .. }) => {
            Err(error).context("--conf must name the configuration file that kOps wrote for kops-controller")
        }
        loaded => Ok(loaded?),
    }
}
