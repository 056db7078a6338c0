//! The bodies that only this server has, for their schemas.
#![expect(dead_code, reason = "the types here stand for their schemas alone")]

pub(in crate::server) mod invitations;
pub(in crate::server) mod logins;
pub(in crate::server) mod security_keys;
pub(in crate::server) mod tokens;

use jiff::Timestamp;
use utoipa::ToSchema;

use crate::models::schema::EndTime;
use crate::models::values::{
    ClusterId, Description, DisplayName, Email, HttpUrl, OrganizationId, Phone, RoleId, RuleId, ServiceAccountId,
    UnixMillis, UserId,
};
use crate::models::{Body, OpenObject, OrgRole, RuleSpec, UpgradeProgress, User, UserSpec};
use logins::Password;

/// A member of an organization, whom the API calls a user.
pub(in crate::server) fn user_body() -> Body {
    Body::of::<Member>().named("User")
}

/// The settings of the own account.
#[derive(ToSchema)]
pub(in crate::server) struct AccountSpec {
    name: DisplayName,
    email: Email,
    phone: Option<Phone>,
    avatar_url: Option<HttpUrl>,
}

/// The settings of a user whose home will be the organization.
#[derive(ToSchema)]
pub(in crate::server) struct MemberSpec {
    #[serde(flatten)]
    user: UserSpec,
    /// By default `member`.
    #[schema(nullable = false)]
    role: Option<OrgRole>,
    /// The end of the membership. If absent, the membership does not end.
    role_expires_at: Option<EndTime>,
    /// Without a password, the user cannot log in.
    #[schema(nullable = false, write_only)]
    password: Option<Password>,
}

/// A member of an organization.
#[derive(ToSchema)]
struct Member {
    #[serde(flatten)]
    user: User,
    role: OrgRole,
    /// From this second on, the user is no member of the organization. If absent, the membership does not end. A
    /// cluster receives the earlier one of both ends as `expires_at`.
    #[schema(nullable = false)]
    role_expires_at: Option<EndTime>,
    /// True in the home of the user, whose admins can change the user. Clusters do not receive it.
    #[schema(nullable = false)]
    home: Option<bool>,
}

/// The user's new role in the organization.
#[derive(ToSchema)]
pub(in crate::server) struct RoleChange {
    role: OrgRole,
    /// The end of the membership, from which on it counts for nothing; `null` for none. If absent, it stays as it is.
    /// One owner always has none.
    expires_at: Option<EndTime>,
}

/// The user's role in the organization.
#[derive(ToSchema)]
pub(in crate::server) struct Membership {
    user_id: UserId,
    role: OrgRole,
    #[schema(nullable = false)]
    expires_at: Option<EndTime>,
}

/// A user who administers all organizations.
#[derive(ToSchema)]
pub(in crate::server) struct Operator {
    id: UserId,
    name: DisplayName,
    email: Email,
    /// Since when the user is an operator.
    added_at: UnixMillis,
}

/// An organization, with what it has of its limits.
#[derive(ToSchema)]
pub(in crate::server) struct OrganizationUsage {
    id: OrganizationId,
    name: DisplayName,
    locked: bool,
    created_at: UnixMillis,
    /// The kinds of which it has objects.
    objects: Vec<KindUsage>,
    /// The size of its objects without tokens.
    bytes: u64,
    /// The maximum size (`storageMiB.objects`).
    bytes_limit: u64,
}

/// The objects of a kind in an organization.
#[derive(ToSchema)]
struct KindUsage {
    /// Its name in `quotas`.
    #[schema(examples("clusters"))]
    kind: String,
    count: u64,
    limit: u64,
}

/// The lock of an organization.
#[derive(ToSchema)]
pub(in crate::server) struct Lock {
    locked: bool,
}

/// A rule with its role, whose name, description and times it has.
#[derive(ToSchema)]
pub(in crate::server) struct RuleOfRole {
    #[serde(flatten)]
    rule: RuleSpec,
    id: RuleId,
    role_id: RoleId,
    organization_id: OrganizationId,
    owner_id: Option<UserId>,
    name: DisplayName,
    description: Description,
    created_at: UnixMillis,
    updated_at: UnixMillis,
}

/// The progress of an upgrade.
#[derive(ToSchema)]
pub(in crate::server) struct UpgradeReport {
    status: UpgradeProgress,
}

/// A script template, without its text.
#[derive(ToSchema)]
pub(in crate::server) struct ScriptTemplate {
    id: String,
    /// The cluster; `null`: all clusters of the organization.
    cluster_id: Option<ClusterId>,
    /// The version that it upgrades to, or `any`.
    #[schema(examples("v1.36.3"))]
    version: String,
    /// The digest of the text (SHA-256), in hexadecimal digits.
    sha256: String,
    updated_at: UnixMillis,
}

/// A change with its author, or a count of what changes nothing.
#[derive(ToSchema)]
pub(in crate::server) struct AuditRow {
    /// The number of the change.
    id: u64,
    at: Timestamp,
    /// The cluster that it concerns, or empty.
    cluster_id: String,
    /// The kind of the object.
    #[schema(examples("node-pools"))]
    kind: String,
    object_id: String,
    /// `create`, `update`, `delete`; `failed-login`, `read` (of credentials) or `issue` (a token for a kube-apiserver),
    /// counted by the hour; `recover`, by which a user became an operator on the server's machine; or `forget`, for rows
    /// that were deleted because the log exceeded its limit.
    #[schema(examples("update"))]
    action: String,
    /// `user:ID`, `service_account:ID`, `cluster:ID` or `system`; empty if nobody logged in.
    actor: String,
    /// The `x-request-id` of the response.
    request_id: String,
    /// The address of the client.
    address: String,
    /// The `x-request-id` of the request, which its client chose.
    client_request_id: String,
    /// The object without secrets that was deleted; of an update, the fields that changed, and of a list, the elements
    /// that were removed; `null` if it was created. A value of more than 4 KiB is `sha256:DIGEST (N bytes)`.
    before: Option<OpenObject>,
    /// The object that was created; of an update, the fields that changed, and of a list, the elements that were added;
    /// `null` if it was deleted. Both are empty if only a secret changed. What is counted has `count`, `first` and
    /// `last`.
    after: Option<OpenObject>,
}

/// A deletion by which a cluster tells a list that lacks an object from one that is wrong.
#[derive(ToSchema)]
pub(in crate::server) struct Deletion {
    /// The kind as the change stream names it: `users` also for a user who left the organization or became read-only.
    #[schema(examples("plugins"))]
    kind: String,
    /// The id of the object, which no list of the cluster has.
    id: String,
    at: Timestamp,
}

/// The owner of the token.
#[derive(ToSchema)]
pub(in crate::server) struct Authenticated {
    iss: String,
    /// For a token; an API key has none and does not expire.
    #[schema(nullable = false)]
    sub: Option<String>,
    #[schema(nullable = false)]
    aud: Option<String>,
    /// Seconds since 1970.
    #[schema(nullable = false)]
    exp: Option<u64>,
    /// `user`, `service_account` or `cluster`.
    #[serde(rename = "type")]
    principal: String,
    #[schema(nullable = false)]
    user_id: Option<UserId>,
    #[schema(nullable = false)]
    service_account_id: Option<ServiceAccountId>,
    #[schema(nullable = false)]
    cluster_id: Option<ClusterId>,
    organizations: Vec<Belonging>,
    metadata: OpenObject,
}

/// An organization and the caller's role in it.
#[derive(ToSchema)]
struct Belonging {
    id: OrganizationId,
    /// The role of the user or service account, or `cluster`.
    role: String,
}
