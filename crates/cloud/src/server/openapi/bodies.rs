//! The bodies that only this server has, for their schemas.
#![expect(dead_code, reason = "the types here stand for their schemas alone")]

use std::collections::BTreeSet;

use jiff::Timestamp;
use utoipa::openapi::{OneOfBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::models::schema::EndTime;
use crate::models::values::{
    ClusterId, Description, DisplayName, Email, HttpUrl, OrganizationId, Phone, RoleId, RuleId, ServiceAccountId,
    TeamId, UnixMillis, UserId,
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

/// The settings of an invitation.
#[derive(ToSchema)]
pub(in crate::server) struct InvitationSpec {
    /// The address with which the person logs in.
    email: Email,
    role: OrgRole,
    /// The teams of the new member.
    team_ids: Option<BTreeSet<TeamId>>,
    /// The end of the membership.
    role_expires_at: Option<EndTime>,
    /// The end of the link, within 30 days; after 7 days by default.
    expires_at: Option<EndTime>,
}

/// An invitation that nobody has accepted.
#[derive(ToSchema)]
pub(in crate::server) struct Invitation {
    #[schema(format = "uuid")]
    id: String,
    email: Email,
    role: OrgRole,
    team_ids: Vec<TeamId>,
    #[schema(nullable = false)]
    role_expires_at: Option<EndTime>,
    /// From this second on, the link does not work.
    expires_at: EndTime,
    created_at: UnixMillis,
    /// The author. The link works while the author may invite with this role.
    owner_id: UserId,
}

/// An invitation with its link, which is shown only once.
#[derive(ToSchema)]
pub(in crate::server) struct CreatedInvitation {
    #[serde(flatten)]
    invitation: Invitation,
    /// The parameter `secret` of its query accepts the invitation.
    link: Secret,
}

/// The secret of an invitation, which works once, and the account to create.
#[derive(ToSchema)]
pub(in crate::server) struct InvitationAcceptance {
    #[schema(write_only)]
    secret: Secret,
    name: DisplayName,
    #[schema(write_only)]
    password: Password,
}

/// The secret of an invitation, which works once.
#[derive(ToSchema)]
pub(in crate::server) struct InvitationSecret {
    #[schema(write_only)]
    secret: Secret,
}

/// The new membership.
#[derive(ToSchema)]
pub(in crate::server) struct AcceptedInvitation {
    organization_id: OrganizationId,
    user_id: UserId,
    email: Email,
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
    /// True to revoke the tokens of programs and to remove links with providers too; by default, only the other logins
    /// end.
    #[schema(nullable = false)]
    end_tokens: Option<bool>,
}

/// A new password.
#[derive(ToSchema)]
pub(in crate::server) struct NewPassword {
    #[schema(write_only)]
    password: Password,
    /// True to revoke the tokens of programs and to remove links with providers too; by default, only the logins end.
    #[schema(nullable = false)]
    end_tokens: Option<bool>,
}

/// The credentials of a login: e-mail and password for `password`, an API key for `api_key`, a code that a person
/// granted for `browser` and `device`.
pub(in crate::server) struct LoginRequest;

impl ToSchema for LoginRequest {}

impl PartialSchema for LoginRequest {
    fn schema() -> RefOr<Schema> {
        let one = OneOfBuilder::new().item(Login::schema()).item(ApiKeyLogin::schema());
        let one = one.item(BrowserLogin::schema()).item(DeviceCodeLogin::schema());
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

/// The code that came to the program with the browser.
#[derive(ToSchema)]
struct BrowserLogin {
    #[schema(inline, write_only)]
    code: Secret,
    /// The text whose SHA-256 is the `code_challenge`.
    #[schema(inline, write_only)]
    code_verifier: Secret,
    redirect_uri: String,
}

/// The code of a program that waits. Until a person has decided, the response is 400, whose message begins with
/// `authorization_pending:`, `slow_down:`, `access_denied:` or `expired_token:` (RFC 8628, 3.5).
#[derive(ToSchema)]
struct DeviceCodeLogin {
    #[schema(inline, write_only)]
    device_code: Secret,
}

/// A program that is to be logged in.
#[derive(ToSchema)]
pub(in crate::server) struct Program {
    /// Its name, which the person sees: at most 64 characters.
    name: DisplayName,
}

/// The codes of a login that waits for a person.
#[derive(ToSchema)]
pub(in crate::server) struct DeviceLogin {
    /// The code with which the program asks for its token.
    device_code: Secret,
    /// The code that the person types.
    #[schema(examples("WDJB-MJHT"))]
    user_code: String,
    /// The page for the code.
    verification_uri: String,
    /// The page, with the code filled in.
    verification_uri_complete: String,
    /// Seconds.
    expires_in: u32,
    /// The minimum number of seconds between two requests for the token.
    interval: u32,
}

/// A login that you grant to a program.
#[derive(ToSchema)]
pub(in crate::server) struct LoginGrantRequest {
    /// The name of the program: at most 64 characters.
    name: DisplayName,
    /// The address of the program: `http://127.0.0.1:PORT/` or `http://[::1]:PORT/`.
    #[schema(examples("http://127.0.0.1:49152/"))]
    redirect_uri: String,
    /// The SHA-256 of a verifier that only the program has (RFC 7636, S256).
    #[schema(
        min_length = 43,
        max_length = 43,
        examples("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
    )]
    code_challenge: String,
}

/// The code for the program, which is valid once and for a minute.
#[derive(ToSchema)]
pub(in crate::server) struct GrantedLogin {
    code: Secret,
}

/// Your decision about a program that shows a code.
#[derive(ToSchema)]
pub(in crate::server) struct DeviceDecision {
    #[schema(examples("WDJB-MJHT"))]
    user_code: String,
    /// Without it, nothing is decided.
    #[schema(nullable = false)]
    approved: Option<bool>,
}

/// A program that waits for your decision.
#[derive(ToSchema)]
pub(in crate::server) struct WaitingProgram {
    /// Its name, as it says.
    name: DisplayName,
    /// The address from which it asked.
    address: String,
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
