//! The bodies that only this server has, for their schemas.
#![expect(dead_code, reason = "the types here stand for their schemas alone")]

use jiff::Timestamp;
use utoipa::openapi::{OneOfBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::models::values::{
    ClusterId, Description, DisplayName, Email, HttpUrl, OrganizationId, Phone, RoleId, RuleId, ServiceAccountId,
    UnixMillis, UserId,
};
use crate::models::{Body, Login, OpenObject, OrgRole, RuleSpec, Secret, TokenScope, UpgradeProgress, User, UserSpec};

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
}

/// The user's new role in the organization.
#[derive(ToSchema)]
pub(in crate::server) struct RoleChange {
    role: OrgRole,
}

/// The user's role in the organization.
#[derive(ToSchema)]
pub(in crate::server) struct Membership {
    user_id: UserId,
    role: OrgRole,
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

/// Whether the organization is locked.
#[derive(ToSchema)]
pub(in crate::server) struct Lock {
    locked: bool,
}

/// A password: 12 to 256 characters without control characters.
#[derive(ToSchema)]
#[schema(
    format = "password",
    min_length = 12,
    max_length = 256,
    pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$",
    examples("not-a-real-password")
)]
struct Password(String);

/// The current and the new password.
#[derive(ToSchema)]
pub(in crate::server) struct PasswordChange {
    #[schema(write_only)]
    old_password: Secret,
    #[schema(write_only)]
    new_password: Password,
    /// True to revoke the tokens of programs too; by default, only the other logins end.
    #[schema(nullable = false)]
    end_tokens: Option<bool>,
}

/// A new password.
#[derive(ToSchema)]
pub(in crate::server) struct NewPassword {
    #[schema(write_only)]
    password: Password,
    /// True to revoke the tokens of programs too; by default, only the logins end.
    #[schema(nullable = false)]
    end_tokens: Option<bool>,
}

/// The credentials of a login: e-mail and password for `password`, an API key for `api_key`.
pub(in crate::server) struct LoginRequest;

impl ToSchema for LoginRequest {}

impl PartialSchema for LoginRequest {
    fn schema() -> RefOr<Schema> {
        let one = OneOfBuilder::new().item(Login::schema()).item(ApiKeyLogin::schema());
        Schema::OneOf(one.build()).into()
    }
}

/// The response to a login.
#[derive(ToSchema)]
pub(in crate::server) struct Token {
    /// The value for `Authorization: JWT …`.
    token: Secret,
}

/// The API key of a cluster.
#[derive(ToSchema)]
struct ApiKeyLogin {
    #[schema(inline, write_only)]
    api_key: Secret,
}

/// The settings of a token.
#[derive(ToSchema)]
pub(in crate::server) struct TokenSpec {
    name: DisplayName,
    /// The lifetime in seconds.
    #[schema(minimum = 60, maximum = 31_536_000, examples(86400))]
    expires_in_seconds: u32,
    /// By default, the token has all permissions of its owner.
    scope: Option<TokenScope>,
}

/// The settings of a token of a client of the original service.
#[derive(ToSchema)]
pub(in crate::server) struct AccessTokenSpec {
    name: DisplayName,
    /// The lifetime in seconds; a year by default.
    #[schema(minimum = 60, maximum = 31_536_000, examples(86400), nullable = false)]
    expires_in_seconds: Option<u32>,
    /// By default, the token has all permissions of its owner.
    scope: Option<TokenScope>,
}

/// A token, without its text.
#[derive(ToSchema)]
pub(in crate::server) struct TokenInfo {
    #[schema(format = "uuid")]
    id: String,
    name: DisplayName,
    user_id: UserId,
    created_at: UnixMillis,
    updated_at: UnixMillis,
    expires_at: Timestamp,
    /// Without one, the token has all permissions of its owner.
    #[schema(nullable = false)]
    scope: Option<TokenScope>,
}

/// A token with its text, which is shown only once.
#[derive(ToSchema)]
pub(in crate::server) struct CreatedToken {
    #[serde(flatten)]
    info: TokenInfo,
    token: Secret,
}

/// A token of a service account, without its text.
#[derive(ToSchema)]
pub(in crate::server) struct ServiceAccountToken {
    #[schema(format = "uuid")]
    id: String,
    name: DisplayName,
    service_account_id: ServiceAccountId,
    created_at: UnixMillis,
    updated_at: UnixMillis,
    expires_at: Timestamp,
    /// Without one, the token has all permissions of its service account.
    #[schema(nullable = false)]
    scope: Option<TokenScope>,
}

/// A token of a service account with its text, which is shown only once.
#[derive(ToSchema)]
pub(in crate::server) struct CreatedServiceAccountToken {
    #[serde(flatten)]
    info: ServiceAccountToken,
    token: Secret,
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

/// An API key, without the key.
#[derive(ToSchema)]
pub(in crate::server) struct ApiKeyInfo {
    #[schema(format = "uuid")]
    id: String,
    created_at: UnixMillis,
    owner_id: UserId,
}

/// An API key, which is shown only once.
#[derive(ToSchema)]
pub(in crate::server) struct CreatedApiKey {
    #[schema(format = "uuid")]
    id: String,
    api_key: Secret,
}

/// A short-lived token for the kube-apiserver of one cluster.
#[derive(ToSchema)]
pub(in crate::server) struct ClusterToken {
    token: Secret,
    expires_at: Timestamp,
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
    /// counted by the hour; or `forget`, for rows that were deleted because the log exceeded its limit.
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
