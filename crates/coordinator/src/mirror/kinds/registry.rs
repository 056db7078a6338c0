//! Registries. Their credentials are in Secrets, unless the operator wants them in the custom resource.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidewaiter_api::containership::{AuthToken, Registry, RegistrySpec};
use tidewaiter_api::values::SecretText;
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;

use super::or_empty;
use crate::mirror::kind::{CacheOf, Listed, MirroredKind, Source, in_core, named};

/// The place in which the credentials of registries are stored in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RegistryCredentialsIn {
    /// In a Secret for each registry, in the namespace of the Registry.
    #[default]
    Secret,
    /// In the Registry itself, as the Go coordinator did. Everyone who may read Registries can read them.
    Inline,
}

/// The registries of the organization.
pub(crate) struct Registries(pub(crate) RegistryCredentialsIn);

impl MirroredKind for Registries {
    const NAME: &'static str = "registries";
    const CONTROLLER: &'static str = "sync-registries";
    const CHANGED: &'static [Kind] = &[Kind::Registry];
    const CACHE: CacheOf<Registry> = in_core;
    const LISTED: Listed = Listed::At(|cluster| cluster.organization().registries());
    const IS_RELEASED_BY_PERSON: bool = true;
    type Object = models::Registry;
    type Resource = Registry;

    fn belongs(&self, registry: &models::Registry, source: &Source) -> bool {
        registry.organization_id == source.cluster.organization
    }

    fn called(&self, registry: &Registry) -> String {
        let RegistrySpec {
            description,
            serveraddress,
            ..
        } = &registry.spec;
        if description.is_empty() {
            serveraddress
        } else {
            description
        }
        .clone()
    }

    fn resource(&self, registry: models::Registry) -> Option<Registry> {
        let credentials = match self.0 {
            RegistryCredentialsIn::Secret => BTreeMap::new(),
            RegistryCredentialsIn::Inline => inline(&registry.spec.credentials),
        };
        let spec = RegistrySpec {
            id: registry.id.to_string(),
            added_at: or_empty(registry.added_at),
            description: registry.spec.description.to_string(),
            organization_id: registry.organization_id.to_string(),
            email: or_empty(registry.spec.email),
            serveraddress: registry.spec.serveraddress.to_string(),
            provider: registry.spec.provider.to_string(),
            credentials,
            owner: or_empty(registry.owner),
            auth_token: AuthToken::default(),
        };
        Some(Registry {
            metadata: named(&spec.id),
            spec,
        })
    }
}

fn inline(credentials: &models::Credentials) -> BTreeMap<String, SecretText> {
    let revealed = credentials.revealed().into_iter();
    revealed
        .map(|(name, value)| (name.to_owned(), SecretText::from(value.to_owned())))
        .collect()
}
