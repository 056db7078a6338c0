//! The schemas of the bodies, by their names in the table of endpoints: those of the models, and those of types that
//! only this server has.
#![expect(dead_code, reason = "the types here stand for their schemas alone")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use utoipa::openapi::{Object, OneOfBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::models::schema::Described;
use crate::models::values::{
    ClusterId, DisplayName, Email, HttpUrl, OrganizationId, Phone, PluginReference, Slug, UnixMillis, UserId, Version,
};
use crate::models::{
    Account, AutoscalingPolicy, AutoscalingPolicySpec, Catalogue, Cluster, ClusterLabel, ClusterLabelSpec, ClusterSpec,
    Failure, HealthCheck, Jobs, Login, Manifest, Node, NodePool, NodePoolLabel, NodePoolLabelSpec, NodePoolSpec,
    NodeSpec, NodeStatusReport, OpenObject, Organization, OrganizationSpec, Plugin, PluginDefinition, PluginManifests,
    PluginSpec, PluginVersion, Provider, ProviderSpec, Registry, RegistrySpec, Role, RoleBinding, RoleBindingSpec,
    RoleSpec, Secret, SshKey, SshKeySpec, Team, TeamSpec, Token, Upgrade, UpgradeProgress, UpgradeScript, UpgradeSpec,
    User, UserSpec,
};

macro_rules! described {
    ($($name:literal: $type:ty),+ $(,)?) => {
        /// The schema with the name `name` in the table.
        fn described(name: &str) -> Option<Described> {
            match name {
                $($name => Some(Described::of::<$type>()),)+
                _ => None,
            }
        }
    };
}

described! {
    "Account": Account, "AccountSpec": AccountSpec, "ApiKeyInfo": ApiKeyInfo, "AttachedCluster": AttachedCluster,
    "AuditRow": AuditRow, "Authenticated": Authenticated, "AutoscalingPolicy": AutoscalingPolicy,
    "AutoscalingPolicySpec": AutoscalingPolicySpec, "Catalogue": Catalogue, "Cluster": Cluster,
    "ClusterLabel": ClusterLabel, "ClusterLabelSpec": ClusterLabelSpec, "ClusterSpec": ClusterSpec, "ClusterToken": ClusterToken,
    "CreatedApiKey": CreatedApiKey, "CreatedToken": CreatedToken, "Failure": Failure,
    "Lock": Lock, "LoginRequest": LoginRequest, "MemberSpec": MemberSpec, "Membership": Membership, "NewPassword": NewPassword,
    "Node": Node, "NodePool": NodePool, "NodePoolLabel": NodePoolLabel,
    "NodePoolLabelSpec": NodePoolLabelSpec, "NodePoolSpec": NodePoolSpec,
    "NodeSpec": NodeSpec, "Organization": Organization, "OrganizationSpec": OrganizationSpec,
    "Operator": Operator, "PasswordChange": PasswordChange, "Plugin": Plugin, "PluginDefinition": PluginDefinition,
    "PluginManifests": PluginManifests, "PluginSpec": PluginSpec, "PluginVersion": PluginVersion,
    "PluginWithManifests": PluginWithManifests, "Provider": Provider, "ProviderSpec": ProviderSpec,
    "Registry": Registry, "RegistrySpec": RegistrySpec, "Role": Role, "RoleBinding": RoleBinding,
    "RoleBindingSpec": RoleBindingSpec, "RoleChange": RoleChange, "RoleSpec": RoleSpec, "SshKey": SshKey,
    "SshKeySpec": SshKeySpec, "StatusReport": NodeStatusReport, "Team": Team, "TeamSpec": TeamSpec, "Token": Token,
    "TokenInfo": TokenInfo, "TokenSpec": TokenSpec, "Upgrade": Upgrade, "UpgradeReport": UpgradeReport,
    "UpgradeScript": UpgradeScript, "UpgradeSpec": UpgradeSpec, "User": Member, "UserSpec": UserSpec,
}

/// The schema of a request; an unknown name has an empty object.
pub(super) fn request(name: &str) -> RefOr<Schema> {
    described(name).map_or_else(|| Object::new().into(), Described::request)
}

/// The schema of a body that replaces an object with the schema `shown`.
pub(super) fn replacement(said: &str, shown: &str) -> RefOr<Schema> {
    let replacement = described(said)
        .zip(described(shown))
        .map(|(said, shown)| said.replacement(shown));
    replacement.unwrap_or_else(|| request(said))
}

/// The schema of a patch of an object with the schema `shown`.
pub(super) fn patch(said: &str, shown: &str) -> RefOr<Schema> {
    let patch = described(said)
        .zip(described(shown))
        .map(|(said, shown)| said.patch(shown));
    patch.unwrap_or_else(|| request(said))
}

/// The schema of a response, with all schemas that it refers to.
pub(super) fn answer(name: &str) -> BTreeMap<String, RefOr<Schema>> {
    let Some(described) = described(name) else {
        return BTreeMap::new();
    };
    let own = described.name.clone();
    let mut schemas = described.answer();
    // The table may use another name than the type.
    if let Some(schema) = schemas.remove(&own) {
        schemas.insert(name.to_owned(), schema);
    }
    schemas
}

pub(super) fn slug() -> RefOr<Schema> {
    Slug::schema()
}

pub(super) fn version() -> RefOr<Schema> {
    Version::schema()
}

/// The role of a user in an organization.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum Rank {
    ReadOnly,
    Member,
    Admin,
    Owner,
}

/// The settings of the own account.
#[derive(ToSchema)]
struct AccountSpec {
    name: DisplayName,
    email: Email,
    phone: Option<Phone>,
    avatar_url: Option<HttpUrl>,
}

/// The settings of a user whose home will be the organization.
#[derive(ToSchema)]
struct MemberSpec {
    #[serde(flatten)]
    user: UserSpec,
    /// By default `member`.
    #[schema(nullable = false)]
    role: Option<Rank>,
    /// Without a password, the user cannot log in.
    #[schema(nullable = false, write_only)]
    password: Option<Password>,
}

/// A member of an organization.
#[derive(ToSchema)]
struct Member {
    #[serde(flatten)]
    user: User,
    role: Rank,
}

/// The user's new role in the organization.
#[derive(ToSchema)]
struct RoleChange {
    role: Rank,
}

/// The user's role in the organization.
#[derive(ToSchema)]
struct Membership {
    user_id: UserId,
    role: Rank,
}

/// A user who administers all organizations.
#[derive(ToSchema)]
struct Operator {
    id: UserId,
    name: DisplayName,
    email: Email,
    /// Since when the user is an operator.
    added_at: UnixMillis,
}

/// Whether the organization is locked.
#[derive(ToSchema)]
struct Lock {
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
struct PasswordChange {
    #[schema(write_only)]
    old_password: Secret,
    #[schema(write_only)]
    new_password: Password,
}

/// A new password.
#[derive(ToSchema)]
struct NewPassword {
    #[schema(write_only)]
    password: Password,
}

/// With what one logs in: `password` takes the first, `api_key` the second.
struct LoginRequest;

impl ToSchema for LoginRequest {}

impl PartialSchema for LoginRequest {
    fn schema() -> RefOr<Schema> {
        let one = OneOfBuilder::new().item(Login::schema()).item(ApiKeyLogin::schema());
        Schema::OneOf(one.build()).into()
    }
}

/// The API key of a cluster.
#[derive(ToSchema)]
struct ApiKeyLogin {
    #[schema(inline, write_only)]
    api_key: Secret,
}

/// The settings of a token.
#[derive(ToSchema)]
struct TokenSpec {
    name: DisplayName,
    /// The lifetime in seconds.
    #[schema(minimum = 60, maximum = 31_536_000, examples(86400))]
    expires_in_seconds: u32,
}

/// A token, without its text.
#[derive(ToSchema)]
struct TokenInfo {
    #[schema(format = "uuid")]
    id: String,
    name: DisplayName,
    created_at: UnixMillis,
    expires_at: Timestamp,
}

/// A token with its text, which is shown only once.
#[derive(ToSchema)]
struct CreatedToken {
    #[serde(flatten)]
    info: TokenInfo,
    token: Secret,
}

/// An API key, without the key.
#[derive(ToSchema)]
struct ApiKeyInfo {
    #[schema(format = "uuid")]
    id: String,
    created_at: UnixMillis,
    owner_id: UserId,
}

/// An API key, which is shown only once.
#[derive(ToSchema)]
struct CreatedApiKey {
    #[schema(format = "uuid")]
    id: String,
    api_key: Secret,
}

/// A cluster and its first API key, which is shown only once.
#[derive(ToSchema)]
struct AttachedCluster {
    #[serde(flatten)]
    cluster: Cluster,
    api_key: Secret,
}

/// A short-lived token for the kube-apiserver of one cluster.
#[derive(ToSchema)]
struct ClusterToken {
    token: Secret,
    expires_at: Timestamp,
}

/// A plugin with the manifests of its version.
#[derive(ToSchema)]
struct PluginWithManifests {
    #[serde(flatten)]
    plugin: Plugin,
    /// Groups, applied in this order; absent if the catalogue has none for this version.
    #[schema(nullable = false)]
    manifests: Option<Vec<Vec<Manifest>>>,
    /// Jobs that must succeed before and after.
    jobs: Option<Jobs>,
    /// The plugins of the cluster that must be ready before.
    #[schema(nullable = false)]
    depends_on: Option<Vec<PluginReference>>,
    /// How objects of some kinds are judged.
    #[schema(nullable = false)]
    health_checks: Option<Vec<HealthCheck>>,
}

/// The progress of an upgrade.
#[derive(ToSchema)]
struct UpgradeReport {
    status: UpgradeProgress,
}

/// A change with its author.
#[derive(ToSchema)]
struct AuditRow {
    /// The number of the change.
    id: u64,
    at: Timestamp,
    /// The cluster that it concerns, or empty.
    cluster_id: String,
    /// The kind of the object.
    #[schema(examples("node-pools"))]
    kind: String,
    object_id: String,
    /// `create`, `update` or `delete`.
    #[schema(examples("update"))]
    action: String,
    /// `user:ID`, `cluster:ID` or `system`.
    actor: String,
    request_id: String,
    /// The object before the change, without secrets; `null` if it was created.
    before: Option<OpenObject>,
    /// The object after the change, without secrets; `null` if it was deleted.
    after: Option<OpenObject>,
}

/// The owner of the token.
#[derive(ToSchema)]
struct Authenticated {
    iss: String,
    /// For a token; an API key has none and does not expire.
    #[schema(nullable = false)]
    sub: Option<String>,
    #[schema(nullable = false)]
    aud: Option<String>,
    /// Seconds since 1970.
    #[schema(nullable = false)]
    exp: Option<u64>,
    /// `user` or `cluster`.
    #[serde(rename = "type")]
    principal: String,
    #[schema(nullable = false)]
    user_id: Option<UserId>,
    #[schema(nullable = false)]
    cluster_id: Option<ClusterId>,
    organizations: Vec<Belonging>,
    metadata: OpenObject,
}

/// An organization and the caller's role in it.
#[derive(ToSchema)]
struct Belonging {
    id: OrganizationId,
    /// The role of the user, or `cluster`.
    role: String,
}
