//! The cloud synchronizer: mirrors what the cloud lists into the cluster, one sync loop for each kind.
//!
//! The change stream of the cloud wakes the loops; each polls besides. A loop (`lister`) asks the cloud and keeps its
//! last complete response. A controller (`sync`) makes the objects of the cluster as that response, whichever of the
//! two changed. What it would delete passes the brake (`brake`). The state of all loops is one object, `CloudSync`
//! (`cloud_sync`).

mod board;
mod brake;
mod cloud_list;
mod cloud_sync;
mod ends;
mod held;
mod kind;
mod kinds;
mod lister;
mod listing;
mod plan;
mod record;
mod reported;
mod shared;
mod shown_upgrades;
mod stored;
mod sync;
mod window;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use k8s_openapi::api::core::v1::Secret;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use tidewaiter_api::cloud_sync::CLOUD_SYNC;
use tidewaiter_api::containership::{
    AuthorizationRole, AuthorizationRoleBinding, ClusterLabel, NodePoolLabel, Plugin, Registry,
};
use tidewaiter_kit::client::{DEFAULT_IN_FLIGHT, MANY_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, Cacheable, Controller, ControllerContext, Key, Queue, Reconciler as _, Writer};

use crate::changes::Changes;
use crate::cloud::Cloud;
use crate::controllers::Upgrades;
use crate::loops;
use crate::retries::{PATIENCE, Retries};
use board::Board;
pub use brake::MassDeletion;
pub use cloud_list::CloudList;
pub(crate) use cloud_list::{Changed, Effect};
pub(crate) use cloud_sync::CLOUD_SYNC_CONTROLLER;
use cloud_sync::Release;
pub use held::Held;
use kind::MirroredKind;
pub use kind::is_id;
pub use kinds::RegistryCredentialsIn;
pub(crate) use kinds::is_of_cloud;
pub(crate) use lister::LIST_AGAIN;
use lister::{Lister, Memory};
pub(crate) use plan::OF_KUBERNETES;
pub(crate) use record::{HasRecord, Record};
pub(crate) use reported::MirrorState;
use shared::Shared;
pub(crate) use shown_upgrades::MirroredUpgrades;
use stored::StoredList;
pub(crate) use stored::list_secret;
use sync::SyncController;

/// The settings of the mirror.
#[derive(Clone, Debug)]
pub struct MirrorSettings {
    /// The mirrored cloud.
    pub cloud: Cloud,
    /// The condition under which a mass deletion takes place.
    pub mass_deletion: MassDeletion,
    /// The place in which the credentials of registries are stored.
    pub registry_credentials: RegistryCredentialsIn,
    /// The setting of node upgrades.
    pub upgrades: Upgrades,
}

/// A kind that is mirrored, as other controllers see it.
#[derive(Clone)]
pub struct Mirrored<R: Cacheable> {
    /// The cloud's list of the kind.
    pub list: CloudList<R>,
    /// The cluster's objects of the kind.
    pub cache: Cache<R>,
}

/// The kinds that other controllers act on.
#[derive(Clone)]
pub struct CloudLists {
    /// The registries, which are cached elsewhere without what nobody reads.
    pub registries: CloudList<Registry>,
    /// The Secrets with their credentials.
    pub registry_credentials: CloudList<Secret>,
    /// The plugins.
    pub plugins: Mirrored<Plugin>,
    /// The labels of the cluster.
    pub cluster_labels: Mirrored<ClusterLabel>,
    /// The labels of node pools.
    pub node_pool_labels: Mirrored<NodePoolLabel>,
    /// The roles.
    pub roles: Mirrored<AuthorizationRole>,
    /// Their bindings.
    pub role_bindings: Mirrored<AuthorizationRoleBinding>,
    /// The roles that are held as another coordinator left them.
    pub held_roles: Held,
    /// The Nodes whose node pool is held.
    pub held_nodes: Held,
    /// The upgrades, whose progress is reported.
    pub(crate) upgrades: MirroredUpgrades,
    /// The state of the sync loops, which is reported.
    pub(crate) state: MirrorState,
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
pub fn start(settings: MirrorSettings, changes: &Changes, role: &mut Role<'_>) -> Result<CloudLists, MetricsError> {
    let credentials = settings.registry_credentials;
    let upgrades = settings.upgrades;
    let mut mirror = Mirror::new(settings, changes, role)?;
    let users = mirror.register(kinds::Users);
    ends::start(&users.cache, mirror.role);
    let registry_credentials = mirror.register(kinds::RegistryCredentials(credentials)).list;
    let registries = mirror.register(kinds::Registries(credentials)).list;
    let plugins = mirror.register(kinds::Plugins);
    let cluster_labels = mirror.register(kinds::ClusterLabels);
    let node_pool_labels = mirror.register(kinds::NodePoolLabels);
    let roles = mirror.register(kinds::Roles);
    let role_bindings = mirror.register(kinds::RoleBindings {
        roles: roles.list.clone(),
        users: users.list,
    });
    ends::start(&role_bindings.cache, mirror.role);
    mirror.register(kinds::AutoscalingPolicies);
    mirror.register(kinds::AutoscalingGroups);
    let shown = shown_upgrades::ShownUpgrades::default();
    let kind = kinds::Upgrades {
        shown: shown.clone(),
        setting: upgrades,
    };
    let upgrades = mirror.register(kind).cache;
    Ok(CloudLists {
        upgrades: MirroredUpgrades { shown, upgrades },
        state: MirrorState::new(mirror.board, [mirror.held_roles.clone(), mirror.held_nodes.clone()]),
        registries,
        registry_credentials,
        plugins,
        cluster_labels,
        node_pool_labels,
        roles,
        role_bindings,
        held_roles: mirror.held_roles,
        held_nodes: mirror.held_nodes,
    })
}

/// The one key of every sync controller: it has one thing to do. `CloudSync` has this name, so that a release wakes all
/// of them.
fn key() -> Key {
    Key::new(CLOUD_SYNC)
}

struct Mirror<'a, 'r> {
    settings: MirrorSettings,
    role: &'a mut Role<'r>,
    reader: Client,
    board: Board,
    release: Release,
    held_roles: Held,
    held_nodes: Held,
    has_record: HasRecord,
    changes: &'a Changes,
}

impl<'a, 'r> Mirror<'a, 'r> {
    fn new(settings: MirrorSettings, changes: &'a Changes, role: &'a mut Role<'r>) -> Result<Self, MetricsError> {
        let kit = &role.context.kit;
        let board = Board::new(kit, settings.cloud.interval)?;
        let reader = role.clients.for_controller("caches", DEFAULT_IN_FLIGHT);
        let held_roles = Held::roles(Arc::clone(&kit.clock));
        let held_nodes = Held::nodes(Arc::clone(&kit.clock));
        let has_record = HasRecord::new(&role.clients, &kit.clock);
        let cluster = settings.cloud.cluster.id.to_string();
        let apart = [held_roles.clone(), held_nodes.clone()];
        let release = cloud_sync::start(board.clone(), cluster, apart, &reader, role);
        Ok(Self {
            settings,
            role,
            reader,
            board,
            release,
            held_roles,
            held_nodes,
            has_record,
            changes,
        })
    }

    /// Adds the sync loop and the controller of a kind.
    fn register<K: MirroredKind>(&mut self, kind: K) -> Mirrored<K::Resource> {
        let (context, tasks) = (&self.role.context, &mut *self.role.tasks);
        let ControllerContext {
            kit, leadership, pause, ..
        } = context;
        let (queue, asked) = (Queue::new(), self.changes.of(K::CHANGED));
        // Optional: without the definition of one kind, the others are mirrored.
        let cache = K::CACHE(self.reader.clone()).optional().start(tasks, kit);
        let watched = cache.clone();
        let trouble = move || watched.trouble();
        let resource = (K::Resource::kind(&()), K::CHANGED);
        self.board.register(K::NAME, resource, trouble, context);
        let shared = Arc::new(Shared::new(kind));
        let client = self.role.clients.for_controller(K::CONTROLLER, MANY_IN_FLIGHT);
        let stored = Arc::new(StoredList::new(client.clone(), K::NAME));
        cache.notify(queue.always(key()));
        self.release.notify(&queue);
        let cloud = Cloud {
            client: self.settings.cloud.client.with_deadline(PATIENCE),
            ..self.settings.cloud.clone()
        };
        let lister = Lister {
            cache: cache.clone(),
            retries: Retries::new(&cloud.client, cloud.interval, Arc::clone(&kit.clock)),
            cloud,
            shared: Arc::clone(&shared),
            stored: Arc::clone(&stored),
            asked,
            queue: queue.clone(),
            board: self.board.clone(),
            pause: pause.clone(),
            clock: Arc::clone(&kit.clock),
            memory: Memory::default(),
            has_record: self.has_record.clone(),
            unread: AtomicBool::new(false),
        };
        let listing = Box::pin(lister.run(leadership.clone()));
        loops::run(tasks, format!("sync/{}", K::NAME), listing);
        let list = shared.list.clone();
        let writer = Writer::new(client, SyncController::<K>::NAME, Arc::clone(&kit.clock));
        writer.follow(&cache);
        let controller = SyncController {
            shared,
            context: context.clone(),
            cache: cache.clone(),
            stored,
            writer,
            events: context.events.of(SyncController::<K>::NAME),
            board: self.board.clone(),
            release: self.release.clone(),
            mass_deletion: self.settings.mass_deletion,
            interval: self.settings.cloud.interval,
            brake: Mutex::default(),
            last: Mutex::default(),
        };
        Controller::new(controller, queue).start(context.clone(), tasks);
        Mirrored { list, cache }
    }
}
