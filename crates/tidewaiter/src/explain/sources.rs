//! The sources of an explanation: the cluster, the state store and the cloud, reached as the controller would reach
//! them, and the source of labels, decided as it decides.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tidewaiter_controller::explain::Explainer;
use tidewaiter_controller::node_controller::LabelsFrom;
use tidewaiter_identity::Identifier;
use tidewaiter_kit::role::WithRole;
use tidewaiter_kit::settings::{environment, load};
use tidewaiter_kit::{Kit, Leadership, SystemClock, client};
use tidewaiter_kops::Definitions;

use crate::cli::ExplainSources;
use crate::controller::cloud::{Cloud, node_names};
use crate::controller::label_source::decide;
use crate::controller::settings::ControllerSettings;
use crate::controller::state_store::{open_store, store_options};
use crate::controller::{Given, definitions};
use crate::place::{api_server, config};

/// Prepares an explanation. No request is sent yet, except to find the region or project, and for the version of kOps.
pub(super) async fn explainer(sources: &ExplainSources, from_cloud: bool) -> Result<Explainer> {
    let kit = Kit::new(SystemClock::shared())?;
    let environment = environment();
    let variables = environment.iter().cloned();
    let settings = load::<WithRole<ControllerSettings>>(sources.settings.as_deref(), variables, &sources.flags)?;
    let (WithRole { role, own: settings }, origins) = (settings.values, settings.origins);
    // Without a state store nothing is compared.
    let (mut node_names, mut policy) = (settings.node_names, settings.policy(LabelsFrom::AsRecorded));
    let cluster = api_server(role.kubeconfig.as_deref(), sources.context.as_deref()).await?;
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
            let reached = reach(&given, sources.place.conf.is_some(), from_cloud, &kit).await?;
            policy.labels_from = reached.labels;
            (Some(reached.definitions), reached.cloud)
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

/// The sources that a configuration leads to.
struct Reached {
    definitions: Definitions,
    cloud: Option<Arc<dyn Identifier>>,
    labels: LabelsFrom,
}

/// `named`: whether the configuration names the cloud. Otherwise the Cluster does.
async fn reach(given: &Given, named: bool, from_cloud: bool, kit: &Kit) -> Result<Reached> {
    let Given { config, settings, .. } = given;
    if from_cloud {
        let cloud = Cloud::of(given, kit).await.context("the cloud cannot be asked")?;
        return Ok(Reached {
            definitions: definitions(config, settings, cloud.store, kit)?,
            cloud: Some(cloud.identifier),
            labels: cloud.labels.from,
        });
    }
    let store = open_store(given, store_options(given, kit)?)?;
    let definitions = definitions(config, settings, Arc::clone(&store), kit)?;
    let cluster = if named {
        None
    } else {
        definitions.cluster_summary().await.ok()
    };
    let cloud = cluster.and_then(|cluster| cluster.cloud).unwrap_or(config.cloud);
    let labels = decide(settings, cloud, &*store, &*kit.clock).await.from;
    Ok(Reached {
        definitions,
        cloud: None,
        labels,
    })
}
