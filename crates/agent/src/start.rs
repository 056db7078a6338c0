//! The table of the agent's controllers, and the caches that they share.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tidewaiter_api::CloudSync;
use tidewaiter_api::cloud_sync::CLOUD_SYNC;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, TERMINATE_MARKER};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, Controller, ControllerContext, Queue, Reconciler as _, Tasks};
use tokio::sync::watch;

use crate::host::{AllCalls, Host, HostError};
use crate::identity::Identity;
use crate::node_report;
use crate::settings::{AgentSettings, ForeignLines, Upgrades};
use crate::upgrade::controller;
use crate::upgrade::relay::{Relay, RelayError};
use crate::upgrade::report::ReportedUpgrade;
use crate::user_controller::{self, AuthorizedKeysFiles, Marker, Observed, RETRIES, Status, User, UserController};
use crate::watcher::Watcher;

/// The reason why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The name of the node is not set.
    #[error("nodeName is not set: set it, or NODE_NAME, to the name of this node")]
    NoNodeName,
    /// The folder is not there.
    #[error("folder is {folder:?}: it must be a folder that the agent can open")]
    Folder {
        /// The setting.
        folder: String,
        /// The cause.
        #[source]
        source: HostError,
    },
    /// The folder of what the agent remembers cannot be created.
    #[error("stateFolder is {folder:?}, and cannot be created: mount a folder of the host there, as deploy/agent does")]
    State {
        /// The setting.
        folder: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is no name of a Node.
    #[error("nodeName")]
    NodeName(#[from] tidewaiter_api::InvalidValue),
    /// The client of the coordinator cannot be built.
    #[error(transparent)]
    Coordinator(#[from] RelayError),
    /// Two metrics have one name.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

/// Starts the controllers of the role.
///
/// # Errors
/// When a setting is wrong.
pub fn start(settings: AgentSettings, role: Role<'_>) -> Result<(), StartError> {
    let Role {
        context,
        clients,
        tasks,
        ..
    } = role;
    let node = settings.node_name.as_deref().filter(|name| !name.is_empty());
    let identity = Identity::new(node.ok_or(StartError::NoNodeName)?);
    let host = Host::new(Path::new(&settings.folder), settings.owner(), Arc::new(AllCalls));
    host.look(&[]).map_err(|source| StartError::Folder {
        folder: settings.folder.clone(),
        source,
    })?;
    let watcher = Watcher::new();
    let upgrades = Upgrading::of(&settings, &host)?;
    if settings.foreign_lines == ForeignLines::Remove {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&settings.state_folder);
        made.map_err(|source| StartError::State {
            folder: settings.state_folder.clone(),
            source,
        })?;
    }
    let queue = Queue::new();
    queue.push(user_controller::key());
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let users = Cache::<User>::namespaced(reader.clone(), CONTAINERSHIP_NAMESPACE);
    let sync = Cache::<CloudSync>::all(reader.clone()).fields(&format!("metadata.name={CLOUD_SYNC}"));
    let markers = Cache::<Marker>::namespaced(reader, CONTAINERSHIP_NAMESPACE)
        .named("terminate")
        .fields(&format!("metadata.name={TERMINATE_MARKER}"));
    let observed = Observed::new(
        users.start(tasks, &context.kit),
        sync.optional().start(tasks, &context.kit),
        markers.optional().start(tasks, &context.kit),
        &queue,
    );
    let shutdown = tasks.shutdown_token();
    tasks.spawn(
        "user/files",
        watcher
            .clone()
            .run(queue.clone(), user_controller::key(), shutdown.clone()),
    );
    tasks.spawn(
        "user/first-list",
        observed.clone().first_list(queue.clone(), shutdown.clone()),
    );
    let clock = Arc::clone(&context.kit.clock);
    let folder = settings.folder.clone();
    let files = Arc::new(AuthorizedKeysFiles::new(host, settings, watcher, clock.monotonic()));
    let lost = user_controller::lost(Arc::clone(&files), folder, shutdown.clone());
    tasks.spawn("user/folder", lost);
    let compare = user_controller::compare(Arc::clone(&files), queue.clone(), Arc::clone(&clock), shutdown.clone());
    tasks.spawn("user/contents", compare);
    tasks.spawn(
        "user/stop",
        user_controller::stop(Arc::clone(&files), Arc::clone(&clock), shutdown),
    );
    let events = context.events.of(UserController::NAME);
    let status = Status::new(identity.clone(), events, Arc::clone(&clock), &context.kit.metrics)?;
    let upgrade = start_upgrades(upgrades, observed.sync(), &identity, &clients, &context, tasks)?;
    node_report::start(identity, status.subscribe(), upgrade, &clients, &context, tasks);
    let controller = UserController {
        files,
        observed,
        status,
        clock,
        known: Mutex::default(),
    };
    Controller::new(controller, queue)
        .backoff(RETRIES)
        .start(context, tasks);
    Ok(())
}

/// The parts of the upgrade controller; None if upgrades are disabled.
struct Upgrading(Option<(controller::HostAccess, Relay)>);

impl Upgrading {
    /// Checks the settings before anything starts.
    fn of(settings: &AgentSettings, host: &Host) -> Result<Self, StartError> {
        if settings.upgrades == Upgrades::Disabled {
            return Ok(Self(None));
        }
        let access = controller::HostAccess {
            host: host.clone(),
            pinned: Host::of_root(Path::new(&settings.pinned_folder)),
            node: settings.node_name.as_deref().unwrap_or_default().parse()?,
            folders: [settings.folder.clone(), settings.state_folder.clone()],
            watcher: Watcher::new(),
        };
        Ok(Self(Some((access, Relay::new(settings.coordinator.clone())?))))
    }
}

fn start_upgrades(
    Upgrading(parts): Upgrading,
    sync: Cache<CloudSync>,
    identity: &Identity,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<watch::Receiver<ReportedUpgrade>, MetricsError> {
    let Some(parts) = parts else {
        return Ok(watch::channel(ReportedUpgrade::Disabled).1);
    };
    controller::start(parts, sync, identity.clone(), clients, context, tasks)
}
