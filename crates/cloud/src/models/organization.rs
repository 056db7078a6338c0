//! Organizations, which own all other objects.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::Kind;
use super::fields::{Model, model};
use super::resource::{Facts, Resource, UniqueName};
use super::values::{DisplayName, OrganizationId, UnixMillis, UserId};

/// The settings of an organization.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct OrganizationSpec {
    /// The name.
    pub name: DisplayName,
}

/// An organization.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Organization {
    pub id: OrganizationId,
    #[serde(flatten)]
    pub spec: OrganizationSpec,
    pub owner_id: UserId,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    /// The organization is locked against changes.
    pub locked: bool,
}

impl Resource for OrganizationSpec {
    type Object = Organization;

    const FACTS: Facts = Facts {
        event: None,
        quota: i64::MAX,
        has_own_endpoints: true,
        generated: &["id", "owner_id", "created_at", "updated_at", "locked"],
        columns: &["name", "locked"],
        about: "Organizations that you are a member of",
        aliases: &["organization", "orgs"],
        is_declared: false,
        ..Facts::of(Kind::Organization, "organizations", Self::KIND, &[])
    };

    /// Two organizations may have the same name.
    fn name(&self, _: &Map<String, Value>) -> Option<UniqueName> {
        None
    }
}

model! { OrganizationSpec, "an organization" => required { name } }

model! {
    Organization, OrganizationSpec::KIND =>
    required { id } flatten { spec } required { owner_id, created_at, updated_at, locked }
}
