//! Wires the controller of plugins.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use tidewaiter_api::PluginInventory;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, PLUGIN_STORE_LABEL};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Backoffs, Cache, Change, Controller, ControllerContext, Key, Metadata, Queue, Reconciler as _, Tasks, Trigger,
    WriteLimits, Writer,
};

use super::board::Board;
use super::depends::Waiting;
use super::engines::Engines;
use super::fetch::Manifests;
use super::follow::Followed;
use super::gate::Rendered;
use super::reported::Reported;
use super::settings::PluginSettings;
use super::store::Store;
use super::wake::Wakes;
use super::{PluginController, WAITS};
use crate::cloud::Cloud;
use crate::controllers::listed::Listed;
use crate::mirror::Mirrored;

/// Plugins at once: each has few requests under way.
const PERMITS: usize = 64;
/// The time that the cloud may take with manifests, retries included.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks at the plugins that wait for others.
fn wakes_dependents<K: 'static>(waiting: &Waiting, queue: &Queue) -> Trigger<K> {
    let (waiting, queue) = (waiting.clone(), queue.clone());
    Trigger::calls(move |_: &Change<'_, K>| waiting.wake(&queue))
}

/// Looks at the plugin whose stored version somebody changed or deleted.
fn stored(queue: &Queue) -> Trigger<Metadata<Secret>> {
    let queue = queue.clone();
    Trigger::calls(move |change: &Change<'_, Metadata<Secret>>| {
        let labels = change.object().metadata.labels.as_ref();
        if let Some(plugin) = labels.and_then(|labels| labels.get(PLUGIN_STORE_LABEL)) {
            queue.push(Key::namespaced(CONTAINERSHIP_NAMESPACE, plugin));
        }
    })
}

/// Starts it. It fails only if a metric's name is taken.
pub(in crate::controllers) fn start(
    settings: PluginSettings,
    cloud: &Cloud,
    mirrored: Mirrored<Plugin>,
    namespaces: &Cache<Metadata<Namespace>>,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<(), MetricsError> {
    let (queue, kit) = (Queue::new(), &context.kit);
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
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
    secrets.notify(stored(&queue));
    let reported = Reported::default();
    plugins.cache().notify(reported.unless_reported(&queue));
    let wakes = Wakes::start(queue.clone(), Arc::clone(&kit.clock), tasks);
    // Before the pass that the change starts.
    let remembering = wakes.clone();
    inventories.derive(move |change| remembering.remember(change));
    inventories.notify(queue.same_name());
    namespaces.notify(wakes.of_namespaces());
    let waiting_for = Waiting::default();
    plugins.cache().notify(wakes_dependents(&waiting_for, &queue));
    inventories.notify(wakes_dependents(&waiting_for, &queue));
    let (all, kept) = (plugins.copies().clone(), inventories.clone());
    let (relisted, waits) = (queue.clone(), waiting_for.clone());
    // Only those that are concerned: a pass lists the objects of its plugin.
    plugins.notify_list(move |changed| {
        for key in all.keys().into_iter().chain(kept.keys()) {
            if changed.concerns(key.name()) {
                relisted.push(key);
            }
        }
        waits.wake(&relisted);
    });
    let client = clients.for_controller(PluginController::NAME, MOST_IN_FLIGHT);
    let reconciler = PluginController {
        manifests: Manifests::new(
            cloud.client.with_deadline(PATIENCE),
            cloud.cluster,
            &settings,
            Arc::clone(&kit.clock),
        ),
        store: Store::new(client.clone(), secrets.clone()),
        rendered: Rendered::default(),
        engines: Engines::new(&client, settings.accounts.clone()),
        settings,
        waiting: waiting_for,
        plugins: plugins.clone(),
        inventories: inventories.clone(),
        followed: Followed::start(wakes.clone(), Arc::clone(&kit.clock), tasks),
        wakes,
        reported,
        waits: Backoffs::new(WAITS),
        writer: Writer::new(client, PluginController::NAME, Arc::clone(&kit.clock)),
        events: context.events.of(PluginController::NAME),
        clock: Arc::clone(&kit.clock),
        limits: WriteLimits::new(Arc::clone(&kit.clock)),
        renders: WriteLimits::new(Arc::clone(&kit.clock)),
        board: Board::new(&kit.metrics)?,
    };
    Controller::new(reconciler, queue)
        .reads(plugins.cache())
        .reads(&inventories)
        .reads(&secrets)
        .permits(PERMITS)
        .start(context.clone(), tasks);
    Ok(())
}
