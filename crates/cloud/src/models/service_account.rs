//! Service accounts: identities of programs in one organization. They have tokens and no password, are in no list of
//! users, and have no SSH keys, teams or role bindings.

use super::fields::model;
use super::values::{Description, DisplayName, EndTime, OrganizationId, ServiceAccountId, UnixMillis, UserId, words};
use super::{Facts, Kind, Resource, schema};

words! {
    /// The role of a service account in its organization: that of a user, except `owner`.
    ServiceAccountRole, "role of a service account" {
        /// Sees everything except credentials and the audit log.
        ReadOnly = "read_only",
        /// Changes labels and autoscaling policies.
        Member = "member",
        /// Changes everything except the organization, its users, their SSH keys, and service accounts.
        Admin = "admin",
    }
}

model! {
    /// The settings of a service account.
    ServiceAccountSpec, "a service account" =>
    required name: DisplayName,
    or_default description: Description,
    required role: ServiceAccountRole,
    /// From this second on, no token of the service account is accepted. If absent, the service account does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable expires_at: Option<EndTime> as Option<schema::EndTime>,
}

model! {
    /// A service account.
    ServiceAccount, ServiceAccountSpec::KIND =>
    required id: ServiceAccountId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required organization_id: OrganizationId,
    required owner_id: UserId,
    flatten spec: ServiceAccountSpec,
}

impl Resource for ServiceAccountSpec {
    type Object = ServiceAccount;

    const FACTS: Facts = Facts {
        event: None,
        tag: "Service accounts",
        is_for_clusters: false,
        columns: &["name", "role", "description", "expires_at"],
        about: "Identities of programs, with tokens and without a password",
        aliases: &["service-account"],
        ..Facts::of::<Self>(Kind::ServiceAccount, "service-accounts", &[Kind::Organization])
    };
}
