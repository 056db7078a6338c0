//! The controllers of the role in one table, and the caches that they share.

mod containership;

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::{Cache, ControllerContext, Metadata, Tasks};

/// Starts every controller of the role. They write when this replica leads.
///
/// | controller | reads | writes |
/// | --- | --- | --- |
/// | containership | Namespaces | the service account `containership` in each of them |
pub fn start(clients: &Clients, context: &ControllerContext, tasks: &mut Tasks) {
    let kit = &context.kit;
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let namespaces = Cache::<Metadata<Namespace>>::metadata(reader.clone()).start(tasks, kit);
    let writer = clients.for_controller("containership", MOST_IN_FLIGHT);
    containership::start(&namespaces, &reader, writer, context, tasks);
}
