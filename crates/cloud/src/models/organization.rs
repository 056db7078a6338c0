//! Organizations, which own all other objects.

use serde_json::{Map, Value};

use super::Kind;
use super::fields::{Model, model};
use super::resource::{Facts, Resource, UniqueName};
use super::values::{DisplayName, OrganizationId, UnixMillis, UserId};

model! {
    /// The settings of an organization.
    OrganizationSpec, "an organization" =>
    /// The name.
    required name: DisplayName,
}

model! {
    /// An organization.
    Organization, OrganizationSpec::KIND =>
    required id: OrganizationId,
    flatten spec: OrganizationSpec,
    required owner_id: UserId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    /// The organization is locked against changes.
    required locked: bool,
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
