//! The bindings that a change concerns.

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_kit::{Change, Index, Metadata, Queue, Trigger};

use super::{is_terminating, plan};
use crate::controllers::listed::key_of;
use crate::controllers::rbac::{Rbac, of_resource};

/// Reconciles the bindings of a role, which the object has the name of.
pub(super) fn bindings_of<K: kube::Resource + 'static>(queue: &Queue, rbac: &Rbac) -> Trigger<K> {
    indexed(queue, rbac.bindings_of.clone())
}

/// Reconciles the bindings in a namespace that is new or begins to terminate.
pub(super) fn of_namespace(queue: &Queue, rbac: &Rbac) -> Trigger<Metadata<Namespace>> {
    let bindings = rbac.bindings.cache();
    let in_namespace = bindings.index(|binding| Some(binding.spec.namespace.clone()));
    indexed(queue, in_namespace).unless(|before, after| is_terminating(before) == is_terminating(after))
}

/// Reconciles the bindings that the index has under the name of the object.
fn indexed<K: kube::Resource + 'static>(queue: &Queue, index: Index<String>) -> Trigger<K> {
    queue.trigger(move |queue, change: &Change<'_, K>| {
        let name = change.object().meta().name.clone().unwrap_or_default();
        for key in index.keys(&name) {
            queue.push(key);
        }
    })
}

/// Reconciles the `AuthorizationRoleBinding` of a binding.
pub(super) fn made_of<K: kube::Resource + 'static>(queue: &Queue) -> Trigger<K> {
    of_resource(queue, |binding: &K| binding.meta().name.as_deref().map(plan::id_of))
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
