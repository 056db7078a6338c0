//! Organizations, which own all other objects.

use serde_json::{Map, Value};

use super::fields::model;
use super::values::{DisplayName, OrganizationId, UnixMillis, UserId};
use super::{Facts, Kind, Resource, UniqueName};

model! {
    /// The settings of an organization.
    OrganizationSpec, "an organization" =>
    /// The name.
    required name: DisplayName,
    /// Users whose home is this organization cannot log in with a password once they have linked a provider; only an
    /// owner who has linked one sets it. If absent, it stays as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    or_default passwords_disabled: bool,
    /// Users whose home is this organization sign in with a security key or a recovery code beside their password, in
    /// the console; a user without a key registers one there first. If absent, it stays as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    or_default second_factor_required: bool,
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
        columns: &["name", "locked"],
        about: "Organizations that you are a member of",
        aliases: &["organization", "orgs"],
        is_declared: false,
        ..Facts::of::<Self>(Kind::Organization, "organizations", &[])
    };

    /// Two organizations may have the same name.
    fn name(&self, _: &Map<String, Value>) -> Option<UniqueName> {
        None
    }
}
