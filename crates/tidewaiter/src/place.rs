//! Shared by all read-only commands: the cluster, and access to its state store.

use anyhow::{Context as _, Result};
use tidewaiter_kit::Kit;
use tidewaiter_kops::{self as kops, ControllerConfig, StoreOptions};

use crate::cli::Place;
use crate::controller::Given;
use crate::controller::cloud::google_credentials;

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
    }))
}

/// How a person reaches the state store: with their own credentials.
pub(crate) fn store_options(given: &Given, kit: &Kit) -> StoreOptions {
    let region = given.settings.region.as_deref();
    let region = region.or_else(|| given.variable("AWS_REGION"));
    StoreOptions {
        endpoint: given.settings.state_endpoint.clone(),
        google_credentials: google_credentials(&given.environment),
        likely_region: region.or(given.config.region.as_deref()).map(str::to_owned),
        clock: kit.clock.clone(),
        ..StoreOptions::default()
    }
}
