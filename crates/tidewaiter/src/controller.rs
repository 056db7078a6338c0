//! `tidewaiter controller`: the NodeController, the MetricsServer and ClusterHealth, wired to a cluster, a cloud and a state store.
//!
//! What the operator gave is read and checked before anything is started; after that, one supervised set of tasks runs until
//! a signal or a failure.

pub(crate) mod cloud;
pub(crate) mod settings;

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tidewaiter_controller::node_controller::{self, LabelsFrom, NodeControllerParts};
use tidewaiter_controller::verdicts::{VerdictParts, Verdicts};
use tidewaiter_controller::{MetricsServer, cluster_health};
use tidewaiter_identity::{Identifier, Lookup, LookupSettings};
use tidewaiter_kit::client::{Clients, MOST_IN_FLIGHT};
use tidewaiter_kit::events::Reporter;
use tidewaiter_kit::leader::{Elector, LeaseSettings, Timing};
use tidewaiter_kit::settings::{environment, load, to_yaml};
use tidewaiter_kit::{
    Chain, Checks, ControllerContext, Events, Kit, Metrics, SystemClock, Tasks, admin, leader, serve, telemetry,
};
use tidewaiter_kops::{ControllerConfig, Definitions, DefinitionsSettings, StateStore, StoreOptions};
use tidewaiter_validation as validation;
use tracing::{info, warn};

use crate::Failure;
use crate::cli::ControllerArgs;
use cloud::Cloud;
use settings::ControllerSettings;

/// The name under which Events and traces are booked.
const REPORTER: &str = "tidewaiter-controller";

/// Runs the role until it is told to stop, or fails.
pub(crate) fn main(args: &ControllerArgs) -> Result<(), Failure> {
    let given = Given::read(args).map_err(Failure::Configuration)?;
    if args.print_config {
        return given.print().map_err(Failure::Running);
    }
    let telemetry = telemetry::start(REPORTER, &given.settings.log, &given.environment)
        .map_err(|error| Failure::Configuration(error.into()))?;
    for warning in &given.warnings {
        warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(|error| Failure::Running(error.into()))?;
    let result = runtime.block_on(run(given));
    // Whatever is still blocked has had its grace.
    runtime.shutdown_background();
    telemetry.stop();
    result
}

/// It waits for networks: a third thread would only hold memory.
const WORKERS: usize = 2;

/// What the operator gave, read and checked.
pub(crate) struct Given {
    pub(crate) config: ControllerConfig,
    pub(crate) settings: ControllerSettings,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) warnings: Vec<String>,
}

impl Given {
    fn read(args: &ControllerArgs) -> Result<Self> {
        let environment = environment();
        let settings =
            load::<ControllerSettings>(args.settings.as_deref(), environment.iter().cloned(), &args.flags())?;
        let config = ControllerConfig::load(&args.conf)?;
        cloud::check(config.config.cloud).with_context(|| args.conf.display().to_string())?;
        settings.values.check(config.config.cloud)?;
        let warnings = settings.warnings.into_iter().chain(config.warnings).collect();
        Ok(Self {
            config: config.config,
            settings: settings.values,
            environment,
            warnings,
        })
    }

    fn print(&self) -> Result<()> {
        use std::io::Write as _;
        for warning in &self.warnings {
            // What matters is on standard output.
            let _ = writeln!(std::io::stderr(), "tidewaiter: {warning}");
        }
        let yaml = to_yaml(&self.settings)?;
        std::io::stdout()
            .write_all(yaml.as_bytes())
            .context("writing to standard output")
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let found = self
            .environment
            .iter()
            .find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }
}

async fn run(given: Given) -> Result<(), Failure> {
    let clock = SystemClock::shared();
    let metrics = Metrics::new(&clock).map_err(|error| Failure::Running(error.into()))?;
    let kit = Kit {
        clock,
        metrics,
        checks: Checks::new(),
    };
    let cluster = kube_config(&given.settings, None)
        .await
        .map_err(Failure::Configuration)?;
    let cloud = Cloud::of(&given, &kit).await.map_err(Failure::Configuration)?;
    let mut tasks = Tasks::new(Arc::clone(&kit.clock));
    start(&given, cluster, cloud, &kit, &mut tasks)
        .await
        .map_err(Failure::Configuration)?;
    info!(cluster = %given.config.cluster_name, state = %given.config.config_base, "started");
    tasks.run().await.map_err(|error| Failure::Running(error.into()))
}

/// Creates every part, and only then spawns their tasks: nothing has run, not even for the Lease, when this fails.
async fn start(given: &Given, cluster: kube::Config, cloud: Cloud, kit: &Kit, tasks: &mut Tasks) -> Result<()> {
    let Given { config, settings, .. } = given;
    let shutdown = tasks.shutdown_token();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let lease = LeaseSettings {
        namespace: settings.lease.namespace.clone(),
        name: settings.lease.name.clone(),
        identity: leader::identity(&host),
        timing: Timing::default(),
    };
    let (elector, leadership) = Elector::new(&cluster, lease, kit)?;
    let clients = Clients::new(&cluster, &leadership, kit)?;
    let client = clients.for_controller("node", MOST_IN_FLIGHT);
    let reporter = Reporter {
        controller: REPORTER.to_owned(),
        instance: host,
    };
    let events = Events::start(clients.for_events(), kit.clock.clone(), reporter, tasks);
    let context = ControllerContext {
        kit: kit.clone(),
        leadership,
        events,
        shutdown: shutdown.clone(),
    };
    let definitions = definitions(config, settings, cloud.store, kit)?;
    let verdicts = Verdicts::new(VerdictParts {
        cluster: config.cluster_name.clone(),
        client: client.clone(),
        definitions: match settings.label_source {
            LabelsFrom::Tags => Err("labelSource is tags, so the state store is not read"),
            LabelsFrom::Store | LabelsFrom::StoreThenTags => Ok(definitions.clone()),
        },
        cloud: cloud.groups,
        options: validation::Options {
            max_unready_nodes: settings.max_unready_nodes,
        },
    });
    let parts = NodeControllerParts {
        client: client.clone(),
        identities: identities(cloud.identifier, settings, kit),
        definitions,
        policy: settings.policy(),
        on_node: verdicts.on_node(),
        forged: verdicts.forged(),
        context: context.clone(),
    };
    let admin = serve::bind("adminAddress", settings.admin_address).await?;
    let health = serve::bind("healthAddress", settings.health_address).await?;
    let metrics = serve::bind("metricsAddress", settings.metrics_address).await?;

    let serve = |listener, router| serve::serve(listener, router, kit.clock.clone(), shutdown.clone());
    tasks.spawn("health", serve(health, admin::health(kit.clone())));
    tasks.spawn("admin", serve(admin, admin::router(kit.clone())));
    tasks.spawn("leader-election", elector.run(shutdown.clone()));
    let nodes = node_controller::start(parts, tasks, kit)?;
    let latest = verdicts.start(nodes, tasks, kit);
    let cluster = config.cluster_name.clone();
    let server = MetricsServer::start(cluster.clone(), client.clone(), latest.clone(), tasks, kit);
    tasks.spawn("metrics-server/http", serve(metrics, server.router()));
    cluster_health::start(cluster, client, latest, context, tasks);
    Ok(())
}

fn identities(identifier: Arc<dyn Identifier>, settings: &ControllerSettings, kit: &Kit) -> Arc<Lookup> {
    let lookup = LookupSettings {
        node_names: settings.node_names,
        expiry: settings.identity_expiry(),
        ..LookupSettings::default()
    };
    Arc::new(Lookup::new(identifier, kit.clock.clone(), lookup))
}

pub(crate) fn definitions(
    config: &ControllerConfig,
    settings: &ControllerSettings,
    store: StoreOptions,
    kit: &Kit,
) -> Result<Definitions> {
    let store = StateStore::open(&config.config_base, store)?;
    let polled = DefinitionsSettings {
        poll: settings.definitions_poll(),
        ..DefinitionsSettings::default()
    };
    let cluster = config.cluster_name.clone();
    let definitions = Definitions::new(Arc::new(store), cluster, polled, kit.clock.clone(), &kit.metrics)?;
    let checked = definitions.clone();
    kit.checks.register("state-store", move || checked.check());
    Ok(definitions)
}

/// The cluster to work in: what `kubeconfig` names, else what KUBECONFIG names, else the pod's own. Of the contexts of a
/// kubeconfig it is the one that is called `context`, if there is one, else the current one.
pub(crate) async fn kube_config(settings: &ControllerSettings, context: Option<&str>) -> Result<kube::Config> {
    let Some(path) = &settings.kubeconfig else {
        if context.is_some()
            && let Ok(kubeconfig) = Kubeconfig::read()
            && let Ok(config) = in_context(kubeconfig, context).await
        {
            return Ok(config);
        }
        return kube::Config::infer()
            .await
            .context("no cluster to work in: set kubeconfig");
    };
    let failed = || format!("kubeconfig is {}: it cannot be used", path.display());
    let kubeconfig = Kubeconfig::read_from(path)
        .map_err(|error| first_line(&error))
        .with_context(failed)?;
    in_context(kubeconfig, context).await.with_context(failed)
}

async fn in_context(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<kube::Config, KubeconfigError> {
    let named = context.filter(|name| kubeconfig.contexts.iter().any(|context| context.name == *name));
    let options = KubeConfigOptions {
        context: named.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    kube::Config::from_custom_kubeconfig(kubeconfig, &options).await
}

/// The parser of YAML says the place in its first line, and draws it in the next ones.
fn first_line(error: &KubeconfigError) -> anyhow::Error {
    let text = Chain(error).to_string();
    anyhow!("{}", text.lines().next().unwrap_or_default())
}
