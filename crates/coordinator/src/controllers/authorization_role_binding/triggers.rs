//! The bindings that a change concerns.

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_kit::{Change, Index, Metadata, Queue, Trigger};

use super::{is_terminating, plan};
use crate::controllers::listed::key_of;
use crate::controllers::rbac::Rbac;

/// Reconciles the bindings of a role, which the object has the name of.
pub(super) fn bindings_of<K: kube::Resource + 'static>(queue: &Queue, rbac: &Rbac) -> Trigger<K> {
    let index = rbac.bindings_of.clone();
    queue.trigger(move |queue, change: &Change<'_, K>| {
        let name = change.object().meta().name.clone().unwrap_or_default();
        for key in index.keys(&name) {
            queue.push(key);
        }
    })
}

/// Reconciles the bindings in a namespace that is new or begins to terminate.
pub(super) fn of_namespace(queue: &Queue, rbac: &Rbac) -> Trigger<Metadata<Namespace>> {
    let in_namespace = rbac
        .bindings
        .cache()
        .index(|binding| Some(binding.spec.namespace.clone()));
    let trigger = queue.trigger(move |queue, change: &Change<'_, Metadata<Namespace>>| {
        let name = change.object().metadata.name.clone().unwrap_or_default();
        for key in in_namespace.keys(&name) {
            queue.push(key);
        }
    });
    trigger.unless(|before, after| is_terminating(before) == is_terminating(after))
}

/// Reconciles the `AuthorizationRoleBinding` of a binding.
pub(super) fn made_of<K: kube::Resource + 'static>(queue: &Queue) -> Trigger<K> {
    queue.trigger(|queue, change: &Change<'_, K>| {
        if let Some(name) = &change.object().meta().name {
            queue.push(key_of(plan::id_of(name)));
        }
    })
}

/// Reconciles every binding: each that the cluster has as a resource, and each of which something was made.
pub(super) fn all_bindings(
    queue: &Queue,
    rbac: &Rbac,
    by_name: &Index<String>,
) -> impl Fn() + Clone + Send + Sync + use<> {
    let (queue, resources) = (queue.clone(), rbac.bindings.copies().clone());
    let (everywhere, in_namespaces) = (rbac.everywhere.clone(), by_name.clone());
    move || {
        let ids = everywhere
            .keys()
            .into_iter()
            .map(|key| plan::id_of(key.name()).to_owned());
        let made = ids.chain(in_namespaces.values()).map(|id| key_of(&id));
        for key in resources.keys().into_iter().chain(made) {
            queue.push(key);
        }
    }
}
