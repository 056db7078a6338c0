//! Containership controller: ensures that the service account `containership` exists in every namespace that is not terminating.
//!
//! A Namespace is reconciled when it is created, and when its account changes or is deleted. An account of that name that is not managed by
//! Tidewaiter is reported on the Namespace and left alone. An account goes with its namespace.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::core::{ObjectMeta, PartialObjectMetaExt as _};
use kube::{Client, Resource as _};
use tidewaiter_api::names::{CONTAINERSHIP_ACCOUNT, MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_kit::{
    Cache, Children, ChildrenError, Controller, ControllerContext, Key, Metadata, Next, Ownership, Pass, Queue,
    Reconciler, Tasks, Writer,
};

const OURS: Ownership = Ownership {
    key: MANAGED_LABEL,
    value: MANAGED_VALUE,
};

/// Passes that write at once: a cold start writes one account for each namespace.
const PERMITS: usize = 32;

struct ContainershipController {
    namespaces: Cache<Metadata<Namespace>>,
    accounts: Children<Metadata<ServiceAccount>>,
    writer: Writer,
}

/// Starts it.
pub(super) fn start(
    namespaces: &Cache<Metadata<Namespace>>,
    reader: &Client,
    writer: Client,
    context: &ControllerContext,
    tasks: &mut Tasks,
) {
    let queue = Queue::new();
    let accounts = Cache::<Metadata<ServiceAccount>>::metadata(reader.clone())
        .fields(&format!("metadata.name={CONTAINERSHIP_ACCOUNT}"))
        .start(tasks, &context.kit);
    namespaces.notify(queue.same_name().unless(same));
    accounts.notify(queue.namespace());
    let controller = ContainershipController {
        namespaces: namespaces.clone(),
        accounts: Children::new(accounts.clone(), OURS, |account| {
            account.metadata.namespace.as_deref().map(Key::new)
        }),
        writer: Writer::new(writer, ContainershipController::NAME, Arc::clone(&context.kit.clock)),
    };
    Controller::new(controller, queue)
        .reads(namespaces)
        .reads(&accounts)
        .permits(PERMITS)
        .start(context.clone(), tasks);
}

impl Reconciler for ContainershipController {
    const NAME: &'static str = "containership";
    type Error = ChildrenError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        let namespace = self
            .namespaces
            .get(pass.key())
            .filter(|namespace| !is_terminating(namespace));
        let Some(namespace) = namespace else {
            return Ok(Next::UntilChanged);
        };
        pass.about(namespace.object_ref(&()));
        self.accounts
            .ensure(&self.writer, pass.key(), vec![desired(pass.key())])
            .await
    }
}

fn desired(namespace: &Key) -> Metadata<ServiceAccount> {
    let metadata = ObjectMeta {
        name: Some(CONTAINERSHIP_ACCOUNT.to_owned()),
        namespace: Some(namespace.to_string()),
        ..ObjectMeta::default()
    };
    metadata.into_request_partial::<ServiceAccount>()
}

fn is_terminating(namespace: &Metadata<Namespace>) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

fn same(before: &Metadata<Namespace>, after: &Metadata<Namespace>) -> bool {
    is_terminating(before) == is_terminating(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_account_in_the_namespace() {
        let account = desired(&Key::new("team-a"));
        assert_eq!(Key::of(&account), Key::namespaced("team-a", CONTAINERSHIP_ACCOUNT));
    }
}
