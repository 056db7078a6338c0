//! The table of the agent's controllers, and the caches that they share.

use std::path::Path;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};
use tidewaiter_api::CloudSync;
use tidewaiter_api::cloud_sync::CLOUD_SYNC;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, TERMINATE_MARKER};
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, Controller, Queue, Reconciler as _};

use crate::host::{AllCalls, Host, HostError};
use crate::identity::Identity;
use crate::node_report;
use crate::settings::AgentSettings;
use crate::user_controller::{self, Observed, RETRIES, Site, Status, User, UserController};
use crate::watcher::{WatchError, Watcher};

/// Why the agent cannot start.
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
        /// Why it cannot be opened.
        #[source]
        source: HostError,
    },
    /// The files cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Two metrics have one name.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

/// The metadata of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
pub(crate) struct Marker {
    #[serde(deserialize_with = "tidewaiter_kit::slim::without_labels")]
    metadata: ObjectMeta,
}

/// Starts the controllers of the role.
///
/// # Errors
/// When a setting is wrong, or the files cannot be watched.
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
    let watcher = Watcher::new()?;
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
    let site = Arc::new(Site::new(host, settings, watcher, clock.monotonic()));
    let lost = user_controller::lost(Arc::clone(&site), folder, shutdown.clone());
    tasks.spawn("user/folder", lost);
    tasks.spawn("user/stop", user_controller::stop(Arc::clone(&site), shutdown));
    let events = context.events.of(UserController::NAME);
    let status = Status::new(identity.clone(), events, Arc::clone(&clock), &context.kit.metrics)?;
    node_report::start(identity, status.told(), &clients, &context, tasks);
    let controller = UserController {
        site,
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
