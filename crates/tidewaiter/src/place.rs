//! Shared by all read-only commands: the cluster, and where its state store is.

use anyhow::{Context as _, Result};
use tidewaiter_kops::{self as kops, ControllerConfig};

use crate::cli::Place;

/// The location of the definitions, if given. Only a file names the cloud.
pub(crate) fn config(place: &Place) -> Result<Option<ControllerConfig>> {
    if let Some(path) = &place.conf {
        return Ok(Some(ControllerConfig::load(path)?.config));
    }
    let (Some(name), Some(state)) = (&place.name, &place.state) else {
        return Ok(None);
    };
    let base = format!("{}/{name}", state.trim_end_matches('/'));
    Ok(Some(ControllerConfig {
        cluster_name: name.clone(),
        // A placeholder: only a file, or the Cluster, names the cloud.
        cloud: kops::Cloud::Aws,
        config_base: base.parse().context("--state (KOPS_STATE_STORE)")?,
        region: None,
        project: None,
    }))
}
