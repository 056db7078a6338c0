//! The sources of an explanation: the cluster, the state store and the cloud, reached as the controller would reach
//! them.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tidewaiter_controller::explain::Explainer;
use tidewaiter_identity::Identifier;
use tidewaiter_kit::role::{WithRole, kube_config};
use tidewaiter_kit::settings::{environment, load};
use tidewaiter_kit::{Kit, Leadership, SystemClock, client};
use tidewaiter_kops::Definitions;

use crate::cli::ExplainSources;
use crate::controller::cloud::{Cloud, node_names};
use crate::controller::settings::ControllerSettings;
use crate::controller::state_store::store_options;
use crate::controller::{Given, definitions};
use crate::place::config;

/// Prepares an explanation. No request is sent yet, except, with `from_cloud`, to find the region or project.
pub(super) async fn explainer(sources: &ExplainSources, from_cloud: bool) -> Result<Explainer> {
    let kit = Kit::new(SystemClock::shared())?;
    let environment = environment();
    let variables = environment.iter().cloned();
    let settings = load::<WithRole<ControllerSettings>>(sources.settings.as_deref(), variables, &sources.flags)?;
    let (WithRole { role, own: settings }, origins) = (settings.values, settings.origins);
    let (mut node_names, policy) = (settings.node_names, settings.policy());
    let cluster = kube_config(role.kubeconfig.as_deref(), None).await?;
    let (definitions, cloud) = match config(&sources.place)? {
        None => (None, None),
        Some(config) => {
            settings.check(config.cloud, &origins)?;
            let given = Given {
                config,
                settings,
                environment,
                warnings: Vec::new(),
            };
            node_names = self::node_names(&given);
            let (definitions, cloud) = reach(&given, from_cloud, &kit).await?;
            (Some(definitions), cloud)
        }
    };
    Ok(Explainer {
        client: client::fenced(&cluster, &Leadership::never(kit.clock.clone()), &kit).await?,
        definitions,
        cloud,
        node_names,
        policy,
        clock: kit.clock,
    })
}

async fn reach(given: &Given, from_cloud: bool, kit: &Kit) -> Result<(Definitions, Option<Arc<dyn Identifier>>)> {
    let (store, cloud) = if from_cloud {
        let cloud = Cloud::of(given, kit).await.context("the cloud cannot be asked")?;
        (cloud.store, Some(cloud.identifier))
    } else {
        (store_options(given, kit)?, None)
    };
    Ok((definitions(&given.config, &given.settings, store, kit)?, cloud))
}
