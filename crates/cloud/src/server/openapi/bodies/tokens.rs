//! The bodies of tokens and API keys.

use jiff::Timestamp;
use utoipa::ToSchema;

use crate::models::values::{DisplayName, ServiceAccountId, UnixMillis, UserId};
use crate::models::{Secret, TokenScope};

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
