//! Accounts at clouds. Their credentials are write-only: no response contains them.

use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::fields::model;
use super::values::{Description, OrganizationId, ProviderId, Slug, UnixMillis};
use super::{Credentials, Facts, Fields, InvalidField, Kind, Model, Resource, schema};

/// The settings of a provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProviderSpec {
    pub provider: Slug,
    pub description: Description,
    /// Read, and never written.
    #[serde(skip)]
    pub credentials: Credentials,
}

model! {
    /// A provider, as clients see it. Here credentials are an unknown field.
    Provider, ProviderSpec::KIND =>
    required id: ProviderId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required organization_id: OrganizationId,
    required provider: Slug,
    or_default description: Description,
}

impl ToSchema for ProviderSpec {}

/// Written by hand, because the derive omits fields that serde skips.
impl PartialSchema for ProviderSpec {
    fn schema() -> RefOr<Schema> {
        let spec = schema::object("The settings of a provider.")
            .property("provider", Slug::schema())
            .property("description", schema::nullable::<Description>())
            .property("credentials", schema::write_only(schema::nullable::<Credentials>()));
        spec.required("provider").into()
    }
}

impl Resource for ProviderSpec {
    type Object = Provider;

    const FACTS: Facts = Facts {
        event: None,
        tag: "Providers",
        is_for_clusters: false,
        generated: &["id", "created_at", "updated_at", "organization_id"],
        key: &["provider", "description"],
        columns: &["provider", "description"],
        about: "Accounts at cloud providers",
        aliases: &["provider"],
        ..Facts::of::<Self>(Kind::Provider, "providers", &[Kind::Organization])
    };

    fn credentials(&self) -> Option<&Credentials> {
        Some(&self.credentials)
    }
}

impl Model for ProviderSpec {
    const KIND: &'static str = "a provider";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            provider: fields.required("provider")?,
            description: fields.or_default("description")?,
            credentials: fields.or_default("credentials")?,
        })
    }
}
