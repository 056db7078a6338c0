//! The tokens that this service signs: JWT (RFC 7519) with ES256, and nothing else.
//!
//! Invariants: a token for one use is refused for all others, because its audience differs; only ES256 with a key of
//! the ring is accepted, whatever the token's header says; every claim is required. Verification reads no clock, no
//! file and nothing that the header refers to. No error contains a part of a token.

use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, decode, decode_header, encode};
use serde::{Deserialize, Serialize};
use tidewaiter_api::names::{TEAM_PREFIX, USER_PREFIX};
use uuid::Uuid;

use super::signing::KeyRing;
use crate::models::CLUSTER_AUDIENCE;
use crate::models::values::{ClusterId, ServiceAccountId, TeamId, UserId};
use crate::signature::signature_only;

/// The maximum length of a token, in bytes. With the rest of a request's head it fits into the limits of proxies.
pub const MAX_BYTES: usize = 8 * 1024;

/// The maximum lag of a verifier's clock. The end of a token's lifetime has no leeway.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// The `typ` of each token's header.
const TYPE: &str = "JWT";

const CLUSTER: &str = "containership.io/cluster_id#";
const SERVICE_ACCOUNT: &str = "containership.io/service_account_id#";

/// The owner and the use of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenUse {
    /// A user, for this API.
    User(UserId),
    /// A service account, for this API.
    ServiceAccount(ServiceAccountId),
    /// A cluster, for this API.
    Cluster(ClusterId),
    /// A user, for the kube-apiserver of one cluster. Not valid for this API.
    Kubernetes {
        user: UserId,
        cluster: ClusterId,
        /// The groups of the user in the cluster's role bindings.
        teams: Vec<TeamId>,
    },
}

impl TokenUse {
    /// `sub`: `containership.io/user_id#…`, as in the role bindings of a cluster,
    /// `containership.io/service_account_id#…` or `containership.io/cluster_id#…`.
    #[must_use]
    pub fn subject(&self) -> String {
        match self {
            Self::User(user) | Self::Kubernetes { user, .. } => format!("{USER_PREFIX}{user}"),
            Self::ServiceAccount(account) => format!("{SERVICE_ACCOUNT}{account}"),
            Self::Cluster(cluster) => format!("{CLUSTER}{cluster}"),
        }
    }

    /// `aud`: the issuer itself for this API, `https://containership.io/clusters/…` for a kube-apiserver.
    #[must_use]
    pub fn audience(&self, issuer: &str) -> String {
        match self {
            Self::User(_) | Self::ServiceAccount(_) | Self::Cluster(_) => issuer.to_owned(),
            Self::Kubernetes { cluster, .. } => format!("{CLUSTER_AUDIENCE}{cluster}"),
        }
    }

    fn groups(&self) -> Vec<String> {
        match self {
            Self::User(_) | Self::ServiceAccount(_) | Self::Cluster(_) => Vec::new(),
            Self::Kubernetes { teams, .. } => teams.iter().map(|team| format!("{TEAM_PREFIX}{team}")).collect(),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::User(_) => Kind::User,
            Self::ServiceAccount(_) => Kind::ServiceAccount,
            Self::Cluster(_) => Kind::Cluster,
            Self::Kubernetes { .. } => Kind::Kubernetes,
        }
    }
}

/// The claims of a token, except for its issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `sub`, `aud`, `groups` and `token_use`.
    pub token_use: TokenUse,
    /// `iat`, in whole seconds like all times here.
    pub issued_at: Timestamp,
    /// `nbf`: the token is rejected more than a minute before this time.
    pub not_before: Timestamp,
    /// `exp`: the token is rejected from this time on.
    pub expires_at: Timestamp,
    /// `jti`: unique.
    pub id: Uuid,
}

impl Claims {
    /// The claims of a new token, valid from now.
    #[must_use]
    pub fn new(token_use: TokenUse, now: Timestamp, life: SignedDuration) -> Self {
        let issued_at = whole_seconds(now);
        Self {
            token_use,
            issued_at,
            not_before: issued_at,
            expires_at: whole_seconds(now.saturating_add(life).unwrap_or(Timestamp::MAX)),
            id: Uuid::new_v4(),
        }
    }
}

/// The uses of tokens that a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedUses {
    /// Tokens for this API: all requests except `GET /v3/authenticate`.
    Api,
    /// All uses: `GET /v3/authenticate`, which describes a token.
    Any,
}

#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("there is no signing key")]
    NoKey,
    #[error("cannot sign a token")]
    Sign(#[source] jsonwebtoken::errors::Error),
    #[error("the token would have {0} bytes, but the limit is {MAX_BYTES}: the user is a member of too many teams")]
    TooLong(usize),
}

/// The reason why a token is rejected. For logs and metrics: the caller gets no details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// More than [`MAX_BYTES`].
    #[error("the token is too long")]
    TooLong,
    /// Not three parts, not base64url, not JSON, not a JWT, or a header with unsupported requirements (`crit`).
    #[error("the token is not a JSON Web Token")]
    Malformed,
    #[error("the token is not signed with ES256")]
    Algorithm,
    /// No `kid`, or an unknown one.
    #[error("the signing key of the token is unknown")]
    Key,
    /// The signature is invalid: another key signed it, or it was modified.
    #[error("the signature of the token is invalid")]
    Signature,
    #[error("the token lacks a claim, or a claim is malformed")]
    Claims,
    #[error("the token has another issuer")]
    Issuer,
    #[error("the token has another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
}

/// The id of the key in the header of `token`.
pub(crate) fn signed_by(token: &str) -> Option<String> {
    decode_header(token).ok()?.kid
}

/// Signs and verifies tokens with a fixed set of keys; after a rotation, a new value is constructed.
#[derive(Debug)]
pub struct Tokens {
    issuer: String,
    ring: KeyRing,
}

impl Tokens {
    /// Tokens of this issuer (`iss`: the URL of this API) with these keys.
    #[must_use]
    pub fn new(issuer: impl Into<String>, ring: KeyRing) -> Self {
        let issuer = issuer.into();
        Self { issuer, ring }
    }

    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    #[must_use]
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// A token with these claims, signed with the key that is active at its issue time.
    ///
    /// # Errors
    /// If no key is left, the token is longer than verifiers accept, or signing fails.
    pub fn sign(&self, claims: &Claims) -> Result<String, SignError> {
        let key = self.ring.signer(claims.issued_at).ok_or(SignError::NoKey)?;
        let header = Header {
            typ: Some(TYPE.to_owned()),
            kid: Some(key.id.clone()),
            ..Header::new(Algorithm::ES256)
        };
        let token = encode(&header, &Wire::of(claims, &self.issuer), &key.private).map_err(SignError::Sign)?;
        if token.len() > MAX_BYTES {
            return Err(SignError::TooLong(token.len()));
        }
        Ok(token)
    }

    /// The claims of a token, if it is valid now.
    ///
    /// # Errors
    /// The reason why it is not valid.
    pub fn verify(&self, token: &str, now: Timestamp, accepted: AcceptedUses) -> Result<Claims, TokenError> {
        if token.len() > MAX_BYTES {
            return Err(TokenError::TooLong);
        }
        let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
        if header.alg != Algorithm::ES256 {
            return Err(TokenError::Algorithm);
        }
        // RFC 7515, 4.1.11: critical parameters must be understood, and none is supported.
        if header.typ.as_deref() != Some(TYPE) || header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        let key = header.kid.as_deref().and_then(|kid| self.ring.find(kid));
        let key = key.ok_or(TokenError::Key)?;
        let decoded = decode::<Wire>(token, &key.public, &signature_only());
        let wire = decoded.map_err(|error| refused(error.kind()))?.claims;
        if wire.iss != self.issuer {
            return Err(TokenError::Issuer);
        }
        let claims = wire.claims().ok_or(TokenError::Claims)?;
        let kubernetes = wire.token_use == Kind::Kubernetes;
        if wire.aud != claims.token_use.audience(&self.issuer) || (kubernetes && accepted == AcceptedUses::Api) {
            return Err(TokenError::Audience);
        }
        if claims.expires_at <= now {
            return Err(TokenError::Expired);
        }
        if claims.not_before.max(claims.issued_at).duration_since(now) > LEEWAY {
            return Err(TokenError::NotYetValid);
        }
        Ok(claims)
    }
}

fn refused(error: &ErrorKind) -> TokenError {
    match error {
        ErrorKind::InvalidSignature => TokenError::Signature,
        // The header was parsed before, so only the signed part can be malformed.
        ErrorKind::Json(_) => TokenError::Claims,
        _ => TokenError::Malformed,
    }
}

/// The claims on the wire. Times are whole seconds, and the audience is one string: a token with two audiences is
/// malformed.
#[derive(Serialize, Deserialize)]
struct Wire {
    iss: String,
    sub: String,
    aud: String,
    iat: i64,
    nbf: i64,
    exp: i64,
    jti: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    token_use: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    User,
    ServiceAccount,
    Cluster,
    Kubernetes,
}

impl Wire {
    fn of(claims: &Claims, issuer: &str) -> Self {
        Self {
            iss: issuer.to_owned(),
            sub: claims.token_use.subject(),
            aud: claims.token_use.audience(issuer),
            iat: claims.issued_at.as_second(),
            nbf: claims.not_before.as_second(),
            exp: claims.expires_at.as_second(),
            jti: claims.id.to_string(),
            groups: claims.token_use.groups(),
            token_use: claims.token_use.kind(),
        }
    }

    /// `None` if a claim is malformed. The audience is parsed only for the cluster; the caller compares it as a whole.
    fn claims(&self) -> Option<Claims> {
        let teams = self.groups.iter().map(|group| named(group, TEAM_PREFIX));
        let token_use = match self.token_use {
            Kind::User => TokenUse::User(named(&self.sub, USER_PREFIX)?),
            Kind::ServiceAccount => TokenUse::ServiceAccount(named(&self.sub, SERVICE_ACCOUNT)?),
            Kind::Cluster => TokenUse::Cluster(named(&self.sub, CLUSTER)?),
            Kind::Kubernetes => TokenUse::Kubernetes {
                user: named(&self.sub, USER_PREFIX)?,
                cluster: named(&self.aud, CLUSTER_AUDIENCE)?,
                teams: teams.collect::<Option<_>>()?,
            },
        };
        Some(Claims {
            token_use,
            issued_at: Timestamp::from_second(self.iat).ok()?,
            not_before: Timestamp::from_second(self.nbf).ok()?,
            expires_at: Timestamp::from_second(self.exp).ok()?,
            id: Uuid::try_parse(&self.jti).ok()?,
        })
    }
}

fn named<T: FromStr>(text: &str, prefix: &str) -> Option<T> {
    text.strip_prefix(prefix)?.parse().ok()
}

/// Truncated to whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
