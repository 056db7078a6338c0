//! The credentials of registries, each in a Secret beside its Registry, with the address that they are for.
//!
//! The address is repeated there, so that a person who may edit a Registry cannot send its credentials to another
//! address.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE, REGISTRY_SECRET_LABEL, registry_secret_name, secret_keys};
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;
use uuid::Uuid;

use super::or_empty;
use super::registry::RegistryCredentialsIn;
use crate::mirror::kind::{CacheOf, Listed, MirroredKind, Source, in_core, named};

/// The Secrets with the credentials of the organization's registries.
pub(crate) struct RegistryCredentials(pub(crate) RegistryCredentialsIn);

impl MirroredKind for RegistryCredentials {
    const NAME: &'static str = "registry-credentials";
    const CONTROLLER: &'static str = "sync-registry-credentials";
    const CHANGED: &'static [Kind] = &[Kind::Registry];
    const CACHE: CacheOf<Secret> = |reader| in_core::<Secret>(reader).labels(REGISTRY_SECRET_LABEL);
    const LISTED: Listed = Listed::At(|cluster| cluster.organization().registries());
    const IS_RELEASED_BY_PERSON: bool = true;
    type Object = models::Registry;
    type Resource = Secret;

    fn belongs(&self, registry: &models::Registry, source: &Source) -> bool {
        registry.organization_id == source.cluster.organization
    }

    fn name(id: Uuid) -> String {
        registry_secret_name(&id.to_string())
    }

    fn unmirrored(&self, registry: &models::Registry) -> Option<String> {
        (self.0 == RegistryCredentialsIn::Inline).then(|| registry_secret_name(&registry.id.to_string()))
    }

    fn called(&self, secret: &Secret) -> String {
        let address = secret
            .data
            .as_ref()
            .and_then(|data| data.get(secret_keys::SERVER_ADDRESS));
        address.map_or_else(String::new, |address| String::from_utf8_lossy(&address.0).into_owned())
    }

    fn resource(&self, registry: models::Registry) -> Option<Secret> {
        if self.0 == RegistryCredentialsIn::Inline {
            return None;
        }
        let id = registry.id.to_string();
        let mut metadata = named(&registry_secret_name(&id));
        let labels = [(MANAGED_LABEL, MANAGED_VALUE), (REGISTRY_SECRET_LABEL, &id)];
        metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let data: BTreeMap<&str, String> = [
            (secret_keys::PROVIDER, registry.spec.provider.to_string()),
            (secret_keys::SERVER_ADDRESS, registry.spec.serveraddress.to_string()),
            (secret_keys::EMAIL, or_empty(registry.spec.email)),
            (
                secret_keys::CREDENTIALS,
                json!(registry.spec.credentials.revealed()).to_string(),
            ),
        ]
        .into();
        let bytes = |(key, value): (&str, String)| (key.to_owned(), ByteString(value.into_bytes()));
        Some(Secret {
            metadata,
            data: Some(data.into_iter().map(bytes).collect()),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        })
    }
}
