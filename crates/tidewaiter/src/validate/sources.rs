//! The sources of a validation, from the flags. No request is sent yet, so that an unavailable source is an unknown
//! part of a verdict and not an error.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tidewaiter_kit::role::{WithRole, kube_config, kube_config_in};
use tidewaiter_kit::settings::{environment, load};
use tidewaiter_kit::{Kit, Leadership, SystemClock, client};
use tidewaiter_kops::StateUrl;
use tidewaiter_validation::Sources;

use super::cloud::CloudOfCluster;
use crate::cli::ValidateArgs;
use crate::controller::settings::ControllerSettings;
use crate::controller::state_store::{open_store, store_options};
use crate::controller::{Given, definitions};
use crate::place::config;

/// The sources, and the location of the definitions for messages.
pub(super) struct Targets {
    pub(super) sources: Sources,
    pub(super) store: StateUrl,
    /// The value of `TERM`.
    pub(super) term: Option<String>,
}

/// Prepares to look.
///
/// # Errors
/// When what the operator gave is wrong.
pub(super) async fn open(args: &ValidateArgs) -> Result<Targets> {
    let kit = Kit::new(SystemClock::shared())?;
    let environment = environment();
    let variables = environment.iter().cloned();
    let settings = load::<WithRole<ControllerSettings>>(args.settings.as_deref(), variables, &args.flags)?;
    let WithRole { role, own: settings } = settings.values;
    let config = config(&args.place)?
        .context("no cluster is selected: use --name (KOPS_CLUSTER_NAME) and --state (KOPS_STATE_STORE), or --conf")?;
    let given = Given {
        config,
        settings,
        environment,
        warnings: Vec::new(),
    };
    let cluster = given.config.cluster_name.clone();
    let kubeconfig = role.kubeconfig.as_deref();
    let server = match &args.context {
        Some(context) => kube_config_in(kubeconfig, context).await?,
        None => kube_config(kubeconfig, Some(cluster.as_str()))
            .await
            .context("no kubeconfig for the API server: use --kubeconfig with a file from kops export kubeconfig")?,
    };
    let opened = open_store(&given, store_options(&given, &kit)?)?;
    let definitions = definitions(&given.config, &given.settings, opened, &kit)?;
    let store = given.config.config_base.clone();
    let route = client::route(&server, &given.environment);
    let client = client::fenced(&server, &Leadership::never(kit.clock.clone()), &kit).await?;
    let clock = kit.clock.clone();
    let term = given.variable("TERM").map(str::to_owned);
    let named = args.place.conf.is_some();
    let cloud = CloudOfCluster::new(given, named, definitions.clone(), kit);
    Ok(Targets {
        sources: Sources {
            cluster,
            definitions,
            cloud: Arc::new(cloud),
            client,
            server: route,
            clock,
        },
        store,
        term,
    })
}
