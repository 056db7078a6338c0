//! `tidewaiter controller`: the NodeController, the MetricsServer and ClusterHealth, with a cluster, a cloud and a
//! state store.
//!
//! The input of the operator is read and checked before anything starts.

pub(crate) mod cloud;
pub(crate) mod environment;
pub(crate) mod label_source;
pub(crate) mod settings;
pub(crate) mod state_store;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tidewaiter_controller::controllers::{self, ControllerRole};
use tidewaiter_identity::{Identifier, Lookup, LookupSettings};
use tidewaiter_kit::Kit;
use tidewaiter_kit::role::{self, Role, RoleSettings, RoleSpec, WithRole};
use tidewaiter_kit::serve::Port;
use tidewaiter_kit::settings::{environment, load};
use tidewaiter_kops::{ControllerConfig, Definitions, DefinitionsSettings, StateStore};
use tidewaiter_validation as validation;
use tracing::info;

use crate::Failure;
use crate::cli::ControllerArgs;
use crate::place::read_conf;
use crate::settings::print;
use cloud::Cloud;
use settings::ControllerSettings;

/// The name of the role in Events and traces.
const NAME: &str = "tidewaiter-controller";

/// Runs the role until a signal or a failure.
pub(crate) fn main(args: &ControllerArgs) -> Result<(), Failure> {
    let (role, given) = Given::read(args).map_err(Failure::Configuration)?;
    if args.print_config {
        let own = given.settings;
        return print(&WithRole { role, own }, &given.warnings).map_err(Failure::Running);
    }
    let spec = RoleSpec {
        name: NAME,
        settings: role,
        lease: Some(given.settings.lease.clone().into()),
        environment: given.environment.clone(),
        warnings: given.warnings.clone(),
    };
    role::run(spec, async |role| Box::pin(start(&given, role)).await)?;
    Ok(())
}

/// The operator's input, read and checked.
pub(crate) struct Given {
    pub(crate) config: ControllerConfig,
    pub(crate) settings: ControllerSettings,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) warnings: Vec<String>,
}

impl Given {
    fn read(args: &ControllerArgs) -> Result<(RoleSettings, Self)> {
        let environment = environment();
        let variables = environment.iter().cloned();
        let settings = load::<WithRole<ControllerSettings>>(args.settings.as_deref(), variables, &args.flags())?;
        let WithRole { role, own } = settings.values;
        let config = read_conf(&args.conf)?;
        cloud::check(config.config.cloud).with_context(|| args.conf.display().to_string())?;
        own.check(config.config.cloud, &settings.origins)?;
        let store = config.config.config_base.scheme();
        let about_variables = environment::warnings(config.config.cloud, store, &environment);
        let warnings = settings
            .warnings
            .into_iter()
            .chain(about_variables)
            .chain(config.warnings);
        let mut given = Self {
            warnings: warnings.collect(),
            config: config.config,
            settings: own,
            environment,
        };
        let about_region = cloud::check_region(&given, &args.conf, &settings.origins)?;
        given.warnings.extend(about_region);
        let about_names = cloud::check_node_names(&given, &args.conf, &settings.origins)?;
        given.warnings.extend(about_names);
        Ok((role, given))
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        environment::variable(&self.environment, name)
    }
}

/// Starts the controllers of the role: [`controllers::start`] is their table.
async fn start(given: &Given, mut role: Role<'_>) -> Result<()> {
    let Given { config, settings, .. } = given;
    let kit = role.context.kit.clone();
    let Cloud {
        identifier,
        store,
        groups,
        labels,
    } = Cloud::of(given, &kit).await?;
    let metrics = Port::open("metricsAddress", settings.metrics_address).await?;
    let parts = ControllerRole {
        cluster: config.cluster_name.clone(),
        clients: role.clients.clone(),
        identities: identities(identifier, given, &kit),
        definitions: definitions(config, settings, store, &kit)?,
        groups,
        policy: settings.policy(labels.from),
        options: validation::Options {
            max_unready_nodes: settings.max_unready_nodes,
            counts_only: true,
        },
    };
    let server = controllers::start(parts, &role.context, role.tasks)?;
    role.serve("metrics-server/http", metrics, server.router());
    info!(reason = labels.why, "labels come from {}", labels.sources());
    info!(cluster = %config.cluster_name, state = %config.config_base, "started");
    Ok(())
}

fn identities(identifier: Arc<dyn Identifier>, given: &Given, kit: &Kit) -> Arc<Lookup> {
    let lookup = LookupSettings {
        node_names: cloud::node_names(given),
        expiry: given.settings.identity_expiry(),
        ..LookupSettings::default()
    };
    Arc::new(Lookup::new(identifier, kit.clock.clone(), lookup))
}

pub(crate) fn definitions(
    config: &ControllerConfig,
    settings: &ControllerSettings,
    store: Arc<StateStore>,
    kit: &Kit,
) -> Result<Definitions> {
    let polled = DefinitionsSettings {
        poll: settings.definitions_poll(),
        ..DefinitionsSettings::default()
    };
    let cluster = config.cluster_name.clone();
    Ok(Definitions::new(
        store,
        cluster,
        polled,
        kit.clock.clone(),
        &kit.metrics,
    )?)
}
