//! The wiring: which change starts which pass.

use std::sync::Arc;

use kube::Api;
use parking_lot::Mutex;
use tidewaiter_api::names::{
    CONTAINERSHIP_NAMESPACE, CONTROLLER_LABEL, MANAGED_LABEL, MANAGED_VALUE, PULL_SECRETS_DISABLED, PULL_SECRETS_LABEL,
    REGISTRY_SECRET_LABEL,
};
use tidewaiter_kit::client::MOST_IN_FLIGHT;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Cache, Change, Controller, Desired as _, Difference, Everywhere, ForeignObjects, Key, Queue, Reconciler as _,
    Tasks, Trigger, Writer,
};

use super::board::Board;
use super::copies::PullSecretController;
use super::pull_secret::SecretCopy;
use super::shelf::Registries;
use super::stored::{StoredRegistry, StoredSecret};
use super::unlabelled::{self, UnlabelledController};
use super::verify::{Verifier, Verify};
use super::{RegistryController, RegistrySettings, selector};
use crate::controllers::{Shared, StartError};

/// Passes that write at once: a cold start writes one copy for each namespace and registry.
const CONCURRENCY: usize = 32;

/// Starts the controllers of registries and of their pull secrets.
pub(in crate::controllers) fn start(
    settings: &RegistrySettings,
    shared: &Shared<'_>,
    tasks: &mut Tasks,
) -> Result<Registries, StartError> {
    let verifier = Verifier::new(Arc::clone(&shared.context.kit.clock))?;
    Ok(start_with(verifier, settings, shared, tasks)?)
}

/// Starts the controller with another verifier.
pub(super) fn start_with<V: Verify>(
    verifier: V,
    settings: &RegistrySettings,
    shared: &Shared<'_>,
    tasks: &mut Tasks,
) -> Result<Registries, MetricsError> {
    let kit = &shared.context.kit;
    // Optional: a cluster may not have the definition of Registry yet.
    let objects = Cache::<StoredRegistry>::namespaced(shared.reader.clone(), CONTAINERSHIP_NAMESPACE)
        .named("registry-controller")
        .optional()
        .start(tasks, kit);
    let secrets = Cache::<StoredSecret>::namespaced(shared.reader.clone(), CONTAINERSHIP_NAMESPACE)
        .labels(&selector(settings.registry_credentials))
        .named("secret-registries")
        .start(tasks, kit);
    let copies = Cache::<SecretCopy>::all(shared.reader.clone())
        .labels(&format!("{MANAGED_LABEL}={MANAGED_VALUE},{CONTROLLER_LABEL}"))
        .named("secret-copies")
        .keep(SecretCopy::is_named_as_pull_secret)
        .page_size(500)
        .packed()
        .start(tasks, kit);
    let registries = Registries::new(objects.clone(), shared.registry_lists.clone());
    let everywhere = Everywhere::new(shared.namespaces.clone(), copies.clone());
    let everywhere = Arc::new(everywhere.with_opt_out(PULL_SECRETS_LABEL, PULL_SECRETS_DISABLED));
    let writer = shared
        .clients
        .for_controller(PullSecretController::NAME, MOST_IN_FLIGHT);
    // One for both, so that neither repeats what the other has just written.
    let name = RegistryController::<V>::NAME;
    let writer = Arc::new(Writer::new(writer, name, Arc::clone(&kit.clock)));

    let queue = Queue::new();
    everywhere.notify(&queue, &writer, is_settled(&registries));
    registries.notify(&queue, &shared.namespaces);
    let reconciler = PullSecretController {
        registries: registries.clone(),
        everywhere: Arc::clone(&everywhere),
        by_namespace: copies.index(|copy| {
            let namespace = Key::of(copy).namespace().map(Key::new);
            namespace.filter(|_| copy.is_pull_secret())
        }),
        foreign: ForeignObjects::start(PullSecretController::NAME, shared.reader.clone(), queue.clone(), tasks),
        writer: Arc::clone(&writer),
    };
    Controller::new(reconciler, queue)
        .reads(&objects)
        .concurrency(CONCURRENCY)
        .start(shared.context.clone(), tasks);

    let queue = Queue::new();
    unlabelled::notify(&queue, &registries, &objects);
    let reconciler = UnlabelledController {
        registries: registries.clone(),
        secrets: Api::all(shared.reader.clone()),
        writer: Arc::clone(&writer),
    };
    Controller::new(reconciler, queue)
        .reads(&objects)
        .start(shared.context.clone(), tasks);

    let queue = Queue::new();
    objects.notify(by_name(&queue));
    registries.notify_list(&queue);
    secrets.notify(queue.label_value(REGISTRY_SECRET_LABEL));
    let reconciler = RegistryController {
        settings: settings.clone(),
        registries: registries.clone(),
        secrets: secrets.clone(),
        everywhere,
        writer,
        verifier,
        calls: kit.metrics.cloud_calls(),
        board: Board::new(&kit.metrics)?,
        clock: Arc::clone(&kit.clock),
        accepted: Mutex::default(),
        missing: Mutex::default(),
    };
    Controller::new(reconciler, queue)
        .reads(&copies)
        .start(shared.context.clone(), tasks);
    Ok(registries)
}

/// Returns a predicate that is true if a copy that changed is as desired.
fn is_settled(registries: &Registries) -> impl Fn(&SecretCopy) -> bool + Send + Sync + use<> {
    let registries = registries.clone();
    move |copy| {
        let key = Key::of(copy);
        let secret = registries
            .pull_secret(key.name())
            .filter(|_| registries.exists(key.name()));
        secret.is_some_and(|secret| secret.difference(copy) == Difference::None)
    }
}

/// A registry is known by its id alone, in whichever object.
fn by_name(queue: &Queue) -> Trigger<StoredRegistry> {
    queue.trigger(|queue, change: &Change<'_, StoredRegistry>| {
        queue.push(Key::new(change.key().name()));
    })
}
