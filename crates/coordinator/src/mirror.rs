//! The cloud synchronizer: mirrors what the cloud lists into the cluster, one sync loop for each kind.
//!
//! The change stream of the cloud wakes the loops; each polls besides. A loop (`lister`) asks the cloud and keeps its last complete
//! response. A controller (`sync`) makes the objects of the cluster as that response, whichever of the two changed. What it would delete
//! passes the deletion brake (`brake`). The state of all loops is one object, `CloudSync` (`cloud_sync`).

mod board;
mod brake;
mod cloud_sync;
mod kind;
mod kinds;
mod lister;
mod listing;
mod plan;
mod sync;

use std::sync::{Arc, Mutex};

use kube::{Client, Resource as _};
use tidewaiter_api::cloud_sync::CLOUD_SYNC;
use tidewaiter_cloud::client::{self as cloud, Cluster};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Controller, ControllerContext, Key, Queue, Reconciler as _, Tasks, Writer};

use crate::changes::Changes;
use board::Board;
pub use brake::MassDeletion;
use cloud_sync::Release;
use kind::MirroredKind;
pub use kinds::RegistryCredentialsIn;
use lister::{Cloud, Lister, Memory};
use sync::{Shared, SyncController};

/// What the mirror needs.
#[derive(Clone, Debug)]
pub struct MirrorSettings {
    /// The client of the cloud.
    pub client: cloud::Client,
    /// This cluster, in the cloud.
    pub cluster: Cluster,
    /// The sync interval.
    pub interval: std::time::Duration,
    /// What lets a mass deletion take place.
    pub mass_deletion: MassDeletion,
    /// Where the credentials of registries are stored.
    pub registry_credentials: RegistryCredentialsIn,
}

/// Starts the sync loops. These kinds are registered with the cloud synchronizer:
///
/// | kind | listed by the cloud | custom resource |
/// | --- | --- | --- |
/// | `kinds::Users` | `clusters/C/ssh-users` | User |
/// | `kinds::Registries` | `registries` | Registry |
/// | `kinds::RegistryCredentials` | `registries` | Secret |
/// | `kinds::Plugins` | `clusters/C/plugins` | Plugin |
/// | `kinds::ClusterLabels` | `clusters/C/labels` | `ClusterLabel` |
/// | `kinds::NodePoolLabels` | `node-pools/P/labels` of each pool | `NodePoolLabel` |
/// | `kinds::Roles` | `clusters/C/roles` | `AuthorizationRole` |
/// | `kinds::RoleBindings` | `role-bindings?cluster_id=C` | `AuthorizationRoleBinding` |
/// | `kinds::AutoscalingPolicies` | `clusters/C/autoscaling-policies` | `AutoscalingPolicy` |
/// | `kinds::AutoscalingGroups` | `node-pools/P/autoscaling-policies` of each pool | `AutoscalingGroup` |
/// | `kinds::Upgrades` | `clusters/C/upgrades` | `ClusterUpgrade` |
///
/// # Errors
/// Only if two metrics had one name.
pub fn start(
    settings: MirrorSettings,
    changes: &Changes,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<(), MetricsError> {
    let credentials = settings.registry_credentials;
    let mut mirror = Mirror::new(settings, changes, clients, context, tasks)?;
    mirror.register(kinds::Users);
    mirror.register(kinds::RegistryCredentials(credentials));
    mirror.register(kinds::Registries(credentials));
    mirror.register(kinds::Plugins);
    mirror.register(kinds::ClusterLabels);
    mirror.register(kinds::NodePoolLabels);
    mirror.register(kinds::Roles);
    mirror.register(kinds::RoleBindings);
    mirror.register(kinds::AutoscalingPolicies);
    mirror.register(kinds::AutoscalingGroups);
    mirror.register(kinds::Upgrades);
    Ok(())
}

/// The one key of every sync controller: it has one thing to do. `CloudSync` has this name, so that a release wakes all of them.
fn key() -> Key {
    Key::new(CLOUD_SYNC)
}

struct Mirror<'a> {
    settings: MirrorSettings,
    clients: &'a Clients,
    reader: Client,
    context: &'a ControllerContext,
    tasks: &'a mut Tasks,
    board: Board,
    release: Release,
    changes: &'a Changes,
}

impl<'a> Mirror<'a> {
    fn new(
        settings: MirrorSettings,
        changes: &'a Changes,
        clients: &'a Clients,
        context: &'a ControllerContext,
        tasks: &'a mut Tasks,
    ) -> Result<Self, MetricsError> {
        let board = Board::new(&context.kit, settings.interval)?;
        let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
        let release = cloud_sync::start(board.clone(), &reader, clients, context, tasks);
        Ok(Self {
            settings,
            clients,
            reader,
            context,
            tasks,
            board,
            release,
            changes,
        })
    }

    /// Adds the sync loop and the controller of a kind.
    fn register<K: MirroredKind>(&mut self, kind: K) {
        let ControllerContext { kit, leadership, .. } = self.context;
        self.board
            .register(K::NAME, K::Resource::kind(&()), kit, leadership.clone());
        let (queue, asked) = (Queue::new(), self.changes.of(K::CHANGED));
        let cache = kind.cache(self.reader.clone()).start(self.tasks, kit);
        let shared = Arc::new(Shared::new(kind));
        cache.notify(queue.always(key()));
        self.release.notify(&queue);
        let lister = Lister {
            cloud: Cloud {
                client: self.settings.client.clone(),
                cluster: self.settings.cluster,
                interval: self.settings.interval,
            },
            shared: Arc::clone(&shared),
            asked,
            queue: queue.clone(),
            board: self.board.clone(),
            clock: Arc::clone(&kit.clock),
            memory: Memory::default(),
        };
        let listing = lister.run(leadership.clone(), self.tasks.shutdown_token());
        self.tasks.spawn(format!("sync/{}", K::NAME), listing);
        let writer = self.clients.for_controller(K::CONTROLLER, DEFAULT_IN_FLIGHT);
        let controller = SyncController {
            shared,
            cache: cache.clone(),
            writer: Writer::new(writer, SyncController::<K>::NAME, Arc::clone(&kit.clock)),
            events: self.context.events.of(SyncController::<K>::NAME),
            board: self.board.clone(),
            release: self.release.clone(),
            mass_deletion: self.settings.mass_deletion,
            interval: self.settings.interval,
            brake: Mutex::default(),
        };
        Controller::new(controller, queue)
            .reads(&cache)
            .reads(self.release.cache())
            .start(self.context.clone(), self.tasks);
    }
}
