//! The skeleton of a role: everything around its controllers.
//!
//! [`process`] starts logs and traces, the tokio runtime, the [`Kit`], the supervised [`Tasks`] and the health port,
//! and runs until a signal or the first task that ends. [`run`] adds what a role in a cluster needs: the kubeconfig,
//! the Lease, the fenced client, Events and the admin port. A role is its settings and a function that starts its
//! controllers.
//!
//! Invariants: addresses are checked and credentials are read before that function is called, and the kit's own tasks
//! (ports, leader election) start after it has succeeded. A role that cannot start has written nothing. A port that
//! another process uses delays nothing else: it is served when it is free.

use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use tokio::runtime;
use tracing::{info, warn};

use crate::client::{ClientError, Clients};
use crate::clock::SystemClock;
use crate::controller::{ControllerContext, Pause};
use crate::events::{Events, Reporter};
use crate::leader::{self, Elector, LeaseSettings, Timing};
use crate::serve::{Options, Port, serve_with};
use crate::tasks::{GRACE, TaskEnded, stop_signal};
use crate::telemetry::{self, LogSettings};
use crate::{Kit, Leadership, Tasks, admin};

mod cluster;
mod settings;

pub use cluster::{ClusterError, kube_config, kube_config_in, kube_contexts};
pub use settings::{RoleSettings, WithRole, address};

type BoxError = Box<dyn Error + Send + Sync>;

/// The reason why a process ended without a signal.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// Flags, settings or files are wrong, or an address is not one of this machine. Nothing was started: exit code 2.
    #[error(transparent)]
    Configuration(BoxError),
    /// A task ended, or leadership was lost: exit code 1.
    #[error(transparent)]
    Running(BoxError),
}

impl RoleError {
    fn configuration(error: impl Into<BoxError>) -> Self {
        Self::Configuration(error.into())
    }

    fn running(error: impl Into<BoxError>) -> Self {
        Self::Running(error.into())
    }
}

/// A process, before it runs.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// The name in traces and, for a role in a cluster, of the reporter of its Events: `tidewaiter-controller`.
    pub name: &'static str,
    /// The events that are logged, and their format.
    pub log: LogSettings,
    /// The address on which `/healthz` and `/readyz` are served.
    pub health_address: SocketAddr,
    /// The variables that the tracing library reads.
    pub environment: Vec<(String, String)>,
    /// Logged at the start, one line each.
    pub warnings: Vec<String>,
    /// The threads of the runtime; None is one for each core.
    pub threads: Option<usize>,
    /// The longest time that tasks take after SIGTERM.
    pub grace: Duration,
}

/// A role in a cluster, before it runs.
#[derive(Clone, Debug)]
pub struct RoleSpec {
    /// Its name: `tidewaiter-controller`.
    pub name: &'static str,
    /// The settings that every role has.
    pub settings: RoleSettings,
    /// The Lease that one replica holds; None for a role without election, such as an agent.
    pub lease: Option<LeaseName>,
    /// The variables that the tracing library reads.
    pub environment: Vec<(String, String)>,
    /// Logged at the start, one line each.
    pub warnings: Vec<String>,
}

/// Names a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A process that starts: what the function of [`process`] gets.
#[derive(Debug)]
pub struct Process {
    /// Clock, metrics and checks.
    pub kit: Kit,
    /// The supervised tasks.
    pub tasks: Tasks,
}

impl Process {
    /// Serves `/metrics` and the checks on a port for operators.
    pub fn serve_admin(&mut self, port: Port) {
        serve_on(
            &mut self.tasks,
            &self.kit,
            "admin",
            port,
            admin::router(self.kit.clone()),
        );
    }
}

/// A role that starts: what the function of [`run`] gets.
pub struct Role<'a> {
    /// The context of controllers: kit, leadership, Events, shutdown.
    pub context: ControllerContext,
    /// A client for each controller, whose writes pass only while this replica leads.
    pub clients: Clients,
    /// A client for what every replica writes, whether it leads or not: a request that it received and that the leader
    /// carries out.
    pub unfenced: Clients,
    /// The supervised tasks.
    pub tasks: &'a mut Tasks,
}

impl Role<'_> {
    /// Serves `router` on a port of the role's own.
    pub fn serve(&mut self, name: &'static str, port: Port, router: Router) {
        serve_on(self.tasks, &self.context.kit, name, port, router);
    }
}

/// Runs a process until SIGTERM, SIGINT or the first task that ends.
///
/// # Errors
/// [`RoleError::Configuration`] when `start` fails or the logs or the health port cannot be set up, and
/// [`RoleError::Running`] when a task ended.
pub fn process<E: Into<BoxError>>(
    spec: ProcessSpec,
    start: impl AsyncFnOnce(&mut Process) -> Result<(), E>,
) -> Result<(), RoleError> {
    let telemetry = telemetry::start(spec.name, &spec.log, &spec.environment).map_err(RoleError::configuration)?;
    for warning in &spec.warnings {
        warn!("{warning}");
    }
    let mut builder = runtime::Builder::new_multi_thread();
    if let Some(threads) = spec.threads {
        builder.worker_threads(threads);
    }
    let runtime = builder.enable_all().build().map_err(RoleError::running)?;
    let result = runtime.block_on(async {
        let stop = stop_signal().map_err(|error| RoleError::running(TaskEnded::Signals(error)))?;
        let start = async |process: &mut Process| {
            telemetry.count_in(&process.kit.metrics)?;
            start(process).await.map_err(Into::into)
        };
        run_process::<BoxError>(spec, stop, start).await
    });
    // Threads that still block have had their grace.
    runtime.shutdown_background();
    telemetry.stop();
    result
}

/// `stop` completes with the reason to stop. It is heeded from the start on: `start` may wait for networks.
async fn run_process<E: Into<BoxError>>(
    spec: ProcessSpec,
    stop: impl Future<Output = &'static str>,
    start: impl AsyncFnOnce(&mut Process) -> Result<(), E>,
) -> Result<(), RoleError> {
    let kit = Kit::new(SystemClock::shared()).map_err(RoleError::running)?;
    let health = Port::open("healthAddress", spec.health_address);
    let health = health.await.map_err(RoleError::configuration)?;
    let mut tasks = Tasks::new(kit.clock.clone()).with_grace(spec.grace);
    // The start may wait, for a database or for another replica that upgrades it, and is not to be killed meanwhile.
    let is_started = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_started);
    kit.checks.register("start", move || {
        let is_started = seen.load(Ordering::Relaxed);
        is_started.then_some(()).ok_or_else(|| "it is not complete".to_owned())
    });
    serve_on(&mut tasks, &kit, "health", health, admin::health(kit.clone()));
    let mut process = Process { kit, tasks };
    let mut stop = pin!(stop);
    tokio::select! {
        biased;
        reason = stop.as_mut() => {
            info!(reason, "stopping before the start is complete");
            return Ok(());
        }
        started = start(&mut process) => started.map_err(RoleError::configuration)?,
    }
    is_started.store(true, Ordering::Relaxed);
    process.tasks.run_until(stop).await.map_err(RoleError::running)
}

/// A role waits for networks. A third thread would only take memory.
const THREADS: usize = 2;

/// Runs a role until SIGTERM, SIGINT or the first task that ends. `start` creates its controllers and spawns their
/// tasks; they may write as soon as this replica holds the Lease.
///
/// # Errors
/// The errors of [`process`]; and [`RoleError::Configuration`] when the kubeconfig or the admin port cannot be used.
pub fn run<E: Into<BoxError>>(
    spec: RoleSpec,
    start: impl AsyncFnOnce(Role<'_>) -> Result<(), E>,
) -> Result<(), RoleError> {
    let RoleSpec { name, settings, .. } = spec;
    let process_spec = ProcessSpec {
        name,
        log: settings.log,
        health_address: settings.health_address,
        environment: spec.environment,
        warnings: spec.warnings,
        threads: Some(THREADS),
        grace: GRACE,
    };
    process(process_spec, async |process| {
        let Process { kit, tasks } = process;
        let config = kube_config(settings.kubeconfig.as_deref(), None).await?;
        let origin = cluster::origin(settings.kubeconfig.as_deref());
        let admin = Port::open("adminAddress", settings.admin_address).await?;
        let (elector, role) = role(name, spec.lease, &config, kit, tasks).await?;
        start(role).await.map_err(Into::into)?;
        info!(server = %config.cluster_url, from = origin, "the API server");
        serve_on(tasks, kit, "admin", admin, admin::router(kit.clone()));
        if let Some(elector) = elector {
            tasks.spawn("leader-election", elector.run(tasks.shutdown_token()));
        }
        Ok::<(), BoxError>(())
    })
}

/// The role in a cluster, and its elector.
async fn role<'a>(
    name: &'static str,
    lease: Option<LeaseName>,
    config: &kube::Config,
    kit: &Kit,
    tasks: &'a mut Tasks,
) -> Result<(Option<Elector>, Role<'a>), ClientError> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (elector, leadership) = match lease {
        None => (None, Leadership::always(kit.clock.clone())),
        Some(LeaseName { namespace, name }) => {
            let lease = LeaseSettings {
                namespace,
                name,
                identity: leader::identity(&host),
                timing: Timing::default(),
            };
            let (elector, leadership) = Elector::new(config, lease, kit).await?;
            (Some(elector), leadership)
        }
    };
    let clients = Clients::new(config, &leadership, kit).await?;
    let unfenced = Clients::new(config, &Leadership::always(kit.clock.clone()), kit).await?;
    let reporter = Reporter {
        controller: name.to_owned(),
        instance: host,
    };
    let context = ControllerContext {
        kit: kit.clone(),
        leadership,
        events: Events::start(clients.for_events(), kit.clock.clone(), reporter, tasks),
        pause: Pause::never(),
        shutdown: tasks.shutdown_token(),
    };
    let ControllerContext {
        leadership,
        events,
        shutdown,
        ..
    } = context.clone();
    tasks.spawn(
        "undecodable-objects",
        kit.undecodable
            .clone()
            .report(leadership, events, kit.clock.clone(), shutdown),
    );
    Ok((
        elector,
        Role {
            context,
            clients,
            unfenced,
            tasks,
        },
    ))
}

fn serve_on(tasks: &mut Tasks, kit: &Kit, name: &'static str, port: Port, router: Router) {
    let (shutdown, clock) = (tasks.shutdown_token(), kit.clock.clone());
    tasks.spawn(name, async move {
        let Some(listener) = shutdown.run_until_cancelled(port.listener(&*clock)).await else {
            return Ok(());
        };
        serve_with(listener, router, Options::default(), clock, shutdown).await
    });
}

#[cfg(test)]
mod tests;
