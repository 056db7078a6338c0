//! Accounts at clouds. Their credentials go in and never come out: no answer of the API has them.

use jiff::Timestamp;
use serde::Serialize;

use super::document::InvalidField;
use super::fields::{Fields, Model};
use super::secret::Credentials;
use super::values::{Description, OrganizationId, ProviderId, Slug};

/// What a person says of a provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each is the field of the API")]
pub struct ProviderSpec {
    pub provider: Slug,
    pub description: Description,
    /// Read, and never written.
    #[serde(skip)]
    pub credentials: Credentials,
}

/// A provider, as clients see it. Here credentials are an unknown field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "each is the field of the API")]
pub struct Provider {
    pub id: ProviderId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub organization_id: OrganizationId,
    pub provider: Slug,
    pub description: Description,
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

impl Model for Provider {
    const KIND: &'static str = ProviderSpec::KIND;

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            id: fields.required("id")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
            organization_id: fields.required("organization_id")?,
            provider: fields.required("provider")?,
            description: fields.or_default("description")?,
        })
    }
}
