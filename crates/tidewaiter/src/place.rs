//! What every command that only looks needs: which cluster it is, and how its state store is reached.

use anyhow::{Context as _, Result};
use tidewaiter_kit::Kit;
use tidewaiter_kops::{self as kops, ControllerConfig, StoreOptions};

use crate::cli::Place;
use crate::controller::Given;
use crate::controller::cloud::google_credentials;

/// What says where the definitions are, if anything does. Only a file names the cloud.
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
        // It is asked nothing: that takes a file, or the Cluster, that names it.
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
