//! Containership controller: ensures that the service account `containership` exists in every namespace that is not
//! terminating, and attaches the pull secrets of the registries to it and to the accounts that the settings name.
//!
//! - An account `containership` that Tidewaiter has not written and that lacks its label is reported on the Namespace
//!   and left alone. One of ours whose label somebody took off gets it back. An account goes with its namespace.
//!   Accounts of other names are never created.
//! - Of `imagePullSecrets` only the entries of ours change. An annotation names them, so that the entry of a registry
//!   that is gone is removed, also after a restart, and whatever others put there stays. The Go coordinator recorded
//!   none: in its account, ids of the cloud are ours.
//! - A namespace that opts out gets no account, and its accounts lose the entries. An account `containership` that is
//!   there stays, because pods may run as it.
//! - An account that has the annotation and that the settings do not name any more loses its entries.
//! - A leader learns what the registries' credentials are a moment after it begins. An account that is missing is not
//!   created before, for five seconds at most, because it would be changed at once.
//! - A pull secret is attached when its registry has a working credential, and detached when the Registry is gone: a
//!   Registry whose credential is missing or broken changes nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{LocalObjectReference, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tidewaiter_api::names::{
    ATTACHED_ANNOTATION, CONTAINERSHIP_ACCOUNT, CONTAINERSHIP_NAMESPACE, MANAGED_LABEL, MANAGED_VALUE,
    PULL_SECRETS_DISABLED, PULL_SECRETS_LABEL,
};
use tidewaiter_kit::client::MOST_IN_FLIGHT;
use tidewaiter_kit::{
    Cache, ChildrenError, Controller, Desired, Difference, Everywhere, Index, Key, Next, Pass, Queue, Reconciler,
    SharedClock, Tasks, Writer,
};

mod account;

use super::Shared;
use super::rbac::is_written_by;
use super::registry::{Entries, Registries, RegistrySettings};
pub(crate) use account::Account;

/// Passes that write at once: a cold start writes one account for each namespace.
const CONCURRENCY: usize = 32;

/// The field manager of the accounts.
const MANAGER: &str = "tidewaiter/containership";

/// The time after the first pass in which an account is not created without the pull secrets that are still to come.
const FIRST_ENTRIES: Duration = Duration::from_secs(5);

struct ContainershipController {
    /// The names of the accounts to which pull secrets are attached.
    names: BTreeSet<String>,
    accounts: Everywhere<Account>,
    by_namespace: Index<Key>,
    registries: Registries,
    writer: Arc<Writer>,
    clock: SharedClock,
    /// The time of the first pass (monotonic).
    begun: OnceLock<Duration>,
}

/// Starts it.
pub(super) fn start(settings: &RegistrySettings, shared: &Shared<'_>, registries: Registries, tasks: &mut Tasks) {
    let (queue, kit) = (Queue::new(), &shared.context.kit);
    let names: BTreeSet<String> = settings
        .pull_secret_service_accounts
        .iter()
        .map(ToString::to_string)
        .chain([CONTAINERSHIP_ACCOUNT.to_owned()])
        .collect();
    let wanted = names.clone();
    // One watch of all accounts, because no selector finds those that only have the annotation.
    let accounts = Cache::<Account>::all(shared.reader.clone())
        .keep(move |account| account.is_one_of(&wanted) || account.has_entries_of_ours())
        .page_size(500)
        .packed()
        .start(tasks, kit);
    let everywhere = Everywhere::new(shared.namespaces.clone(), accounts.clone())
        .with_opt_out(PULL_SECRETS_LABEL, PULL_SECRETS_DISABLED);
    let client = shared
        .clients
        .for_controller(ContainershipController::NAME, MOST_IN_FLIGHT);
    let writer = Arc::new(Writer::new(
        client,
        ContainershipController::NAME,
        Arc::clone(&kit.clock),
    ));
    everywhere.notify(&queue, &writer, is_settled(&names, &registries));
    registries.notify(&queue, &shared.namespaces);
    let reconciler = ContainershipController {
        names,
        accounts: everywhere,
        by_namespace: accounts.index(|account| Key::of(account).namespace().map(Key::new)),
        registries,
        writer,
        clock: Arc::clone(&kit.clock),
        begun: OnceLock::new(),
    };
    Controller::new(reconciler, queue)
        .concurrency(CONCURRENCY)
        .start(shared.context.clone(), tasks);
}

/// Returns a predicate that is true if an account that changed is as desired.
fn is_settled(names: &BTreeSet<String>, registries: &Registries) -> impl Fn(&Account) -> bool + Send + Sync + use<> {
    let (names, registries) = (names.clone(), registries.clone());
    move |account| {
        let (key, entries) = (Key::of(account), registries.entries());
        let desired = DesiredAccount {
            name: key.name(),
            entries: entries.as_ref(),
        };
        names.contains(desired.name) && desired.difference(account) == Difference::None
    }
}

impl Reconciler for ContainershipController {
    const NAME: &'static str = "containership";
    type Error = ChildrenError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        let found = self.by_namespace.keys(pass.key());
        if self.accounts.is_opted_out(pass.key()) && pass.key().name() != CONTAINERSHIP_NAMESPACE {
            let desired: Vec<_> = found
                .iter()
                .map(Key::name)
                .map(DesiredAccount::without_entries)
                .collect();
            let desired: Vec<&DesiredAccount<'_>> = desired.iter().collect();
            return self.accounts.ensure(&self.writer, pass, &desired, &[]).await;
        }
        let entries = self.registries.entries();
        let is_there = found.iter().any(|key| key.name() == CONTAINERSHIP_ACCOUNT);
        let now = self.clock.monotonic();
        let begun = *self.begun.get_or_init(|| now);
        let left = FIRST_ENTRIES.saturating_sub(now.saturating_sub(begun));
        if !is_there && !left.is_zero() && !entries.as_ref().is_some_and(Entries::are_final) {
            return Ok(Next::Pending(left));
        }
        let others = found.iter().map(Key::name).filter(|name| !self.names.contains(*name));
        let named = self.names.iter().map(String::as_str);
        let desired: Vec<DesiredAccount<'_>> = named
            .map(|name| DesiredAccount {
                name,
                entries: entries.as_ref(),
            })
            .chain(others.map(DesiredAccount::without_entries))
            .collect();
        let desired: Vec<&DesiredAccount<'_>> = desired.iter().collect();
        self.accounts.ensure(&self.writer, pass, &desired, &[]).await
    }
}

static NO_ENTRIES: Entries = Entries {
    ready: BTreeSet::new(),
    pending: BTreeSet::new(),
    unknown: false,
};

struct DesiredAccount<'a> {
    name: &'a str,
    /// None while the registries are not known.
    entries: Option<&'a Entries>,
}

impl<'a> DesiredAccount<'a> {
    /// The settings do not name it any more.
    fn without_entries(name: &'a str) -> Self {
        Self {
            name,
            entries: Some(&NO_ENTRIES),
        }
    }

    fn is_ours(&self) -> bool {
        self.name == CONTAINERSHIP_ACCOUNT
    }

    /// The entries and the annotation of an account that has these.
    fn attached(&self, entries: &[String], attached: &BTreeSet<String>) -> (Vec<String>, BTreeSet<String>) {
        let Some(wanted) = self.entries else {
            return (entries.to_vec(), attached.clone());
        };
        let stays = |name: &String| wanted.retain(name);
        let kept = entries.iter().filter(|name| !attached.contains(*name) || stays(name));
        let missing = wanted.ready.iter().filter(|name| !entries.contains(name));
        let ours = attached.iter().filter(|name| stays(name)).chain(&wanted.ready);
        (kept.chain(missing).cloned().collect(), ours.cloned().collect())
    }
}

impl Desired for DesiredAccount<'_> {
    type Child = Account;
    type Body = ServiceAccount;

    fn name(&self) -> &str {
        self.name
    }

    fn body(&self, namespace: &str) -> Option<ServiceAccount> {
        let (entries, attached) = self.attached(&[], &BTreeSet::new());
        let annotation = (ATTACHED_ANNOTATION.to_owned(), joined(&attached));
        let reference = |name| LocalObjectReference { name };
        self.is_ours().then(|| ServiceAccount {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                namespace: Some(namespace.to_owned()),
                labels: Some([(MANAGED_LABEL.to_owned(), MANAGED_VALUE.to_owned())].into()),
                annotations: (!attached.is_empty()).then(|| [annotation].into()),
                ..ObjectMeta::default()
            },
            image_pull_secrets: (!entries.is_empty()).then(|| entries.into_iter().map(reference).collect()),
            ..ServiceAccount::default()
        })
    }

    fn difference(&self, account: &Account) -> Difference {
        if account.is_too_long() {
            return Difference::Foreign;
        }
        if self.is_ours() && !account.is_managed() {
            return Difference::Unlabelled(json!({"metadata": {"labels": {MANAGED_LABEL: MANAGED_VALUE}}}));
        }
        let (entries, attached) = self.attached(account.entries(), &account.attached());
        let mut patch = json!({});
        if entries != account.entries() {
            let reference = |name: String| json!({ "name": name });
            patch["imagePullSecrets"] = entries.into_iter().map(reference).collect();
        }
        if attached != account.recorded() {
            let value = joined(&attached);
            patch["metadata"]["annotations"][ATTACHED_ANNOTATION] =
                if value.is_empty() { Value::Null } else { json!(value) };
        }
        if patch == json!({}) {
            return Difference::None;
        }
        Difference::Patch(patch)
    }

    /// Returns true if the object has our label, or if we wrote it and somebody took the label off.
    fn owns(&self, metadata: &ObjectMeta) -> bool {
        let labels = metadata.labels.as_ref();
        let is_labelled =
            labels.and_then(|labels| labels.get(MANAGED_LABEL)).map(String::as_str) == Some(MANAGED_VALUE);
        is_labelled || is_written_by(metadata, MANAGER)
    }

    /// The cache holds every account of the name, so one that it does not show is still to come.
    fn full_patch(&self) -> Option<Value> {
        None
    }
}

/// The patch that takes the entries of ours from an account; None if it has none.
pub(crate) fn detached(account: &Account) -> Option<Value> {
    match DesiredAccount::without_entries(Key::of(account).name()).difference(account) {
        Difference::Patch(patch) => Some(patch),
        // An account `containership` without our label is somebody else's.
        _ => None,
    }
}

fn joined(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
