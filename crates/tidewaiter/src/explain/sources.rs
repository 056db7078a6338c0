//! Where an answer comes from: the cluster, the state store, the cloud, each as the controller would reach it.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tidewaiter_controller::node_controller::explain::Explainer;
use tidewaiter_identity::Identifier;
use tidewaiter_kit::settings::{environment, load};
use tidewaiter_kit::{Checks, Kit, Leadership, Metrics, SystemClock, client};
use tidewaiter_kops::{self as kops, ControllerConfig, Definitions, StoreOptions};

use crate::cli::ExplainSources;
use crate::controller::cloud::{Cloud, google_credentials};
use crate::controller::settings::ControllerSettings;
use crate::controller::{Given, definitions, kube_config};

/// Prepares to answer. Nothing is asked yet but, with `from_cloud`, where we are.
pub(super) async fn explainer(sources: &ExplainSources, from_cloud: bool) -> Result<Explainer> {
    let clock = SystemClock::shared();
    let kit = Kit {
        metrics: Metrics::new(&clock)?,
        checks: Checks::new(),
        clock,
    };
    let environment = environment();
    let variables = environment.iter().cloned();
    let settings = load::<ControllerSettings>(sources.settings.as_deref(), variables, &sources.flags)?.values;
    let (node_names, policy) = (settings.node_names, settings.policy());
    let cluster = kube_config(&settings).await?;
    let (definitions, cloud) = match config(sources)? {
        None => (None, None),
        Some(config) => {
            settings.check(config.cloud)?;
            let given = Given {
                config,
                settings,
                environment,
                warnings: Vec::new(),
            };
            let (definitions, cloud) = reach(&given, from_cloud, &kit).await?;
            (Some(definitions), cloud)
        }
    };
    Ok(Explainer {
        client: client::fenced(&cluster, &Leadership::never(kit.clock.clone()), &kit)?,
        definitions,
        cloud,
        node_names,
        policy,
        clock: kit.clock,
    })
}

/// What says where the definitions are, if anything does.
fn config(sources: &ExplainSources) -> Result<Option<ControllerConfig>> {
    if let Some(path) = &sources.conf {
        return Ok(Some(ControllerConfig::load(path)?.config));
    }
    let (Some(name), Some(state)) = (&sources.name, &sources.state) else {
        return Ok(None);
    };
    let base = format!("{}/{name}", state.trim_end_matches('/'));
    Ok(Some(ControllerConfig {
        cluster_name: name.clone(),
        // It is asked nothing: that takes a file that names it.
        cloud: kops::Cloud::Aws,
        config_base: base.parse()?,
        region: None,
    }))
}

async fn reach(given: &Given, from_cloud: bool, kit: &Kit) -> Result<(Definitions, Option<Arc<dyn Identifier>>)> {
    let (store, cloud) = if from_cloud {
        let cloud = Cloud::of(given, kit).await.context("the cloud cannot be asked")?;
        (cloud.store, Some(cloud.identifier))
    } else {
        let region = given.settings.region.as_deref();
        let region = region.or_else(|| given.variable("AWS_REGION"));
        let store = StoreOptions {
            endpoint: given.settings.state_endpoint.clone(),
            google_credentials: google_credentials(&given.environment),
            likely_region: region.or(given.config.region.as_deref()).map(str::to_owned),
            clock: kit.clock.clone(),
            ..StoreOptions::default()
        };
        (store, None)
    };
    Ok((definitions(&given.config, &given.settings, store, kit)?, cloud))
}
