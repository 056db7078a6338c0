//! The bodies of the second factor.

use jiff::Timestamp;
use utoipa::ToSchema;

use crate::models::values::{DisplayName, UnixMillis};
use crate::models::{OpenObject, Secret};

/// A security key, which a login with a password needs too.
#[derive(ToSchema)]
pub(in crate::server) struct SecurityKey {
    #[schema(format = "uuid")]
    id: String,
    name: DisplayName,
    created_at: UnixMillis,
    /// Absent before the first login with the key.
    #[schema(nullable = false)]
    last_used_at: Option<Timestamp>,
}

/// The challenge for a new security key, which is valid once and for five minutes.
#[derive(ToSchema)]
pub(in crate::server) struct SecurityKeyChallenge {
    challenge: Secret,
    /// `PublicKeyCredentialCreationOptionsJSON` (WebAuthn 3).
    options: OpenObject,
}

/// The answer of a browser to the challenge.
#[derive(ToSchema)]
pub(in crate::server) struct NewSecurityKey {
    name: DisplayName,
    #[schema(write_only)]
    challenge: Secret,
    /// `RegistrationResponseJSON` (WebAuthn 3).
    credential: OpenObject,
}

/// A new security key.
#[derive(ToSchema)]
pub(in crate::server) struct RegisteredSecurityKey {
    #[serde(flatten)]
    key: SecurityKey,
    /// With the first key: each replaces a key once.
    #[schema(nullable = false)]
    recovery_codes: Option<Vec<Secret>>,
}

/// Codes that are shown once, of which each replaces a security key once.
#[derive(ToSchema)]
pub(in crate::server) struct RecoveryCodes {
    recovery_codes: Vec<Secret>,
}
