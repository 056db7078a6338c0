//! Plugin controller: applies the manifests of each Plugin, removes what they do not have any more, and says how it is.
//!
//! Three rooms: `desired` has the versions (fetch, trust, read, store, render), `cluster` their objects (observe, plan,
//! apply, remove, follow), `report` the status, problems and Events. Only `controller` decides which version is
//! applied.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use tidewaiter_api::PluginInventory;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, PLUGIN_STORE_LABEL};
use tidewaiter_kit::client::{DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, Change, Controller, Key, Metadata, Queue, Reconciler as _, Trigger, WriteLimits, Writer};

mod cluster;
mod controller;
mod desired;
mod report;
mod settings;

pub(crate) use cluster::PluginRemoval;
pub use desired::{DIFF_KEY, Difference, ObjectChange, Operation, PluginDiff};
pub(crate) use report::PluginError;
pub use settings::{Approval, ByPlugin, PluginAccount, PluginApproval, PluginDrift, PluginSettings, PluginSync};

use super::listed::Listed;
use crate::cloud::Cloud;
use crate::mirror::Mirrored;
use cluster::{Applier, Clusters, Followed, Wakes};
use controller::PluginController;
use desired::{Dependencies, Manifests, Proposals, Store};
use report::Reporter;

/// Plugins at once: each has few requests under way.
const CONCURRENCY: usize = 64;
/// The time that the cloud may take with manifests, retries included.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the controller of plugins, which the mirror has.
///
/// # Errors
/// A metric's name is taken.
pub fn start(
    settings: PluginSettings,
    cloud: &Cloud,
    mirrored: Mirrored<Plugin>,
    namespaces: &Cache<Metadata<Namespace>>,
    role: &mut Role<'_>,
) -> Result<(), MetricsError> {
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let (queue, kit) = (Queue::new(), &context.kit);
    let clock = || Arc::clone(&kit.clock);
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let client = clients.for_controller(PluginController::NAME, MOST_IN_FLIGHT);
    let writer = Arc::new(Writer::new(client.clone(), PluginController::NAME, clock()));
    let events = context.events.of(PluginController::NAME);
    let reporter = Arc::new(Reporter::new(Arc::clone(&writer), events, kit)?);
    let plugins = Listed::new(mirrored.cache, Some(mirrored.list));
    // Optional: a cluster may not have the definition yet.
    let inventories = Cache::<PluginInventory>::namespaced(reader.clone(), CONTAINERSHIP_NAMESPACE)
        .optional()
        .packed()
        .start(tasks, kit);
    let secrets = Cache::<Metadata<Secret>>::metadata_in(reader, CONTAINERSHIP_NAMESPACE)
        .labels(PLUGIN_STORE_LABEL)
        .named("plugin-store")
        .optional()
        .start(tasks, kit);
    writer.follow(&inventories);
    writer.follow(&secrets);
    secrets.notify(stored(&queue));
    plugins.cache().notify(reporter.unless_reported(&queue));
    let wakes = Wakes::start(queue.clone(), clock(), tasks);
    // Before the pass that the change starts.
    let remembering = wakes.clone();
    inventories.derive(move |change| remembering.remember(change));
    inventories.notify(queue.same_name());
    namespaces.notify(wakes.of_namespaces());
    let dependencies = Dependencies::new(&plugins, &inventories, &queue);
    wake_relisted(&plugins, &inventories, &dependencies, &queue);
    let store = Arc::new(Store::new(client.clone(), secrets.clone(), Arc::clone(&writer)));
    let applier = Applier {
        clusters: Clusters::new(&client, settings.accounts.clone()),
        plugins: plugins.clone(),
        inventories: inventories.clone(),
        drift: settings.drift,
        followed: Followed::start(wakes.clone(), clock(), tasks),
        wakes,
        limits: WriteLimits::new(clock()),
        store: Arc::clone(&store),
        reporter: Arc::clone(&reporter),
    };
    let reconciler = PluginController {
        manifests: Manifests::new(cloud.client.with_deadline(PATIENCE), cloud.cluster, &settings, clock()),
        proposals: Proposals::new(settings.drift, Arc::clone(&store), Arc::clone(&reporter), clock()),
        settings,
        plugins: plugins.clone(),
        inventories: inventories.clone(),
        dependencies,
        store,
        applier,
        reporter,
        writer,
        clock: clock(),
    };
    Controller::new(reconciler, queue)
        .concurrency(CONCURRENCY)
        .start(context.clone(), tasks);
    Ok(())
}

/// Looks at the plugins that are concerned when the cloud lists others, and at those that wait for others: a pass lists
/// the objects of its plugin.
fn wake_relisted(
    plugins: &Listed<Plugin>,
    inventories: &Cache<PluginInventory>,
    dependencies: &Dependencies,
    queue: &Queue,
) {
    let (all, kept) = (plugins.copies().clone(), inventories.clone());
    let (queue, waiting) = (queue.clone(), dependencies.waiting());
    plugins.notify_list(move |changed| {
        for key in all.keys().into_iter().chain(kept.keys()) {
            if changed.concerns(key.name()) {
                queue.push(key);
            }
        }
        waiting.wake(&queue);
    });
}

/// Looks at the plugin whose stored version somebody changed or deleted.
fn stored(queue: &Queue) -> Trigger<Metadata<Secret>> {
    queue.trigger(|queue, change: &Change<'_, Metadata<Secret>>| {
        let labels = change.object().metadata.labels.as_ref();
        if let Some(plugin) = labels.and_then(|labels| labels.get(PLUGIN_STORE_LABEL)) {
            queue.push(Key::namespaced(CONTAINERSHIP_NAMESPACE, plugin));
        }
    })
}
