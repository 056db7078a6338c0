//! The copies of the pull secrets in every namespace.
//!
//! A copy exists while its registry exists: a Registry whose credential is missing, refused or unknown, or that a
//! person deleted, changes nothing. What is deleted is a managed pull secret whose registry the cloud does not list any
//! more, and nothing is deleted before all Registries are known. A namespace that opts out has none; the one of the
//! coordinator cannot, because its pull secrets are the record of what works.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::{ChildrenError, Everywhere, ForeignObjects, Index, Key, Next, Pass, Reconciler, Writer};

use super::pull_secret::{PullSecret, SecretCopy};
use super::shelf::Registries;

pub(super) struct PullSecretController {
    pub(super) registries: Registries,
    pub(super) everywhere: Arc<Everywhere<SecretCopy>>,
    pub(super) by_namespace: Index<Key>,
    pub(super) foreign: ForeignObjects<Secret>,
    pub(super) writer: Arc<Writer>,
}

impl Reconciler for PullSecretController {
    const NAME: &'static str = "pullsecret";
    type Error = ChildrenError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, ChildrenError> {
        if !self.registries.are_known() {
            return Ok(Next::UntilChanged);
        }
        let opts_out = self.everywhere.is_opted_out(pass.key()) && pass.key().name() != CONTAINERSHIP_NAMESPACE;
        let ready = self.registries.ready();
        let desired = ready.iter().map(|secret| &**secret);
        let desired: Vec<&PullSecret> = desired.filter(|_| !opts_out).collect();
        let mut unwanted = self.by_namespace.keys(pass.key());
        unwanted.retain(|key| opts_out || !self.registries.exists(key.name()));
        let ensured = self.everywhere.ensure(&self.writer, pass, &desired, &unwanted).await;
        self.foreign.track(pass.key(), ensured)
    }
}
