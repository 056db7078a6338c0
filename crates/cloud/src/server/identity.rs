//! Authenticates a request by its token: a JSON Web Token of a user or a cluster, or the API key of a cluster.
//!
//! A verified token is cached by its digest, until a change that may affect its owner or the token: a revocation takes
//! effect with the next request, and the identities of others stay cached. The id in an API key is no secret: an unknown one is
//! refused without a hash, which would cost more than the rest of the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use uuid::Uuid;

use super::Error;
use super::cloud::Cloud;
use super::digest::{head, uuid};
use super::hash::ApiKey;
use super::principal::{Known, OrgRole, Principal};
use super::store::{Row, StoreError};
use super::token::{AcceptedUses, Claims, TokenUse, signed_by};
use crate::models::Kind;

/// The token of a request.
pub(super) struct Token<'a>(&'a str);

impl<'a> Token<'a> {
    /// The text after `JWT` or `Bearer`.
    pub(super) fn sent(headers: &'a HeaderMap) -> Option<Self> {
        Self::of(headers.get(AUTHORIZATION)?.to_str().ok()?)
    }

    /// The same, from the text of the header.
    fn of(text: &'a str) -> Option<Self> {
        let (scheme, token) = text.split_once(' ')?;
        let known = scheme.eq_ignore_ascii_case("jwt") || scheme.eq_ignore_ascii_case("bearer");
        Some(token.trim()).filter(|token| known && !token.is_empty()).map(Self)
    }

    pub(super) fn is_api_key(&self) -> bool {
        self.0.starts_with("twk_")
    }

    fn name(&self) -> [u8; 32] {
        head(self.0.as_bytes())
    }
}

/// The caller with this token, if the token was verified before and nothing changed since.
pub(super) async fn cached(cloud: &Cloud, token: &Token<'_>, accepted: AcceptedUses) -> Option<Arc<Known>> {
    let known = cloud.identities.get(&token.name()).await?;
    let accepts = accepted == AcceptedUses::Any || known.is_for_us();
    (known.still_is(cloud, cloud.clock.now()) && accepts).then_some(known)
}

/// Verifies `token`; `None` if it is invalid.
pub(super) async fn looked_up(
    cloud: &Cloud,
    token: &Token<'_>,
    accepted: AcceptedUses,
) -> Result<Option<Arc<Known>>, Error> {
    let as_of = cloud.store.feed().latest();
    let found = if token.is_api_key() {
        by_key(cloud, token.0).await?.map(|principal| (principal, None))
    } else {
        by_token(cloud, token.0, cloud.clock.now(), accepted).await?
    };
    let Some((principal, claims)) = found else {
        return Ok(None);
    };
    let key = ApiKey::parse(token.0).ok().map(|key| key.id());
    let (Principal::User { id, .. } | Principal::Cluster { id, .. }) = &principal;
    let proofs = claims.as_ref().map(|claims| claims.id).into_iter().chain(key);
    let known = Arc::new(Known {
        depends_on: proofs.chain([*id]).collect(),
        principal,
        signed_by: claims.as_ref().and_then(|_| signed_by(token.0)),
        claims,
        as_of,
    });
    cloud.identities.insert(token.name(), Arc::clone(&known)).await;
    Ok(Some(known))
}

/// Authenticates the text of a header `Authorization`; `None` without a valid token.
pub(super) async fn of(
    cloud: &Cloud,
    authorization: &str,
    accepted: AcceptedUses,
) -> Result<Option<Arc<Known>>, Error> {
    let Some(token) = Token::of(authorization) else {
        return Ok(None);
    };
    match cached(cloud, &token, accepted).await {
        Some(known) => Ok(Some(known)),
        None => looked_up(cloud, &token, accepted).await,
    }
}

impl Known {
    /// Whether a cached identity is still valid: the token has not expired, and nothing changed that may affect
    /// identities.
    pub(super) fn still_is(&self, cloud: &Cloud, now: Timestamp) -> bool {
        let lives = self.claims.as_ref().is_none_or(|claims| now < claims.expires_at);
        // Removing a key from its directory invalidates its tokens.
        let tokens = cloud.tokens.load();
        let proven = self
            .signed_by
            .as_ref()
            .is_none_or(|id| tokens.ring().find(id).is_some());
        lives && proven && cloud.store.feed().identity_holds(self.as_of, &self.depends_on)
    }

    /// A token for a kube-apiserver is known to others and is not valid for this API.
    fn is_for_us(&self) -> bool {
        let of_use = |claims: &Claims| !matches!(claims.token_use, TokenUse::Kubernetes { .. });
        self.claims.as_ref().is_none_or(of_use)
    }
}

/// The cluster with the API key `text`.
pub(super) async fn by_key(cloud: &Cloud, text: &str) -> Result<Option<Principal>, Error> {
    let Ok(key) = ApiKey::parse(text) else { return Ok(None) };
    let row = cloud.store.get(Kind::ApiKey, &key.id().to_string()).await?;
    let Some(row) = row else { return Ok(None) };
    let is_key = key.verify(&row.secret.0).map_err(Error::internal)?;
    Ok(is_key.then(|| Principal::Cluster {
        id: uuid(&row.cluster_id),
        organization: uuid(&row.organization_id),
    }))
}

async fn by_token(
    cloud: &Cloud,
    text: &str,
    now: Timestamp,
    accepted: AcceptedUses,
) -> Result<Option<(Principal, Option<Claims>)>, Error> {
    let Ok(claims) = cloud.tokens.load().verify(text, now, accepted) else {
        return Ok(None);
    };
    let principal = match &claims.token_use {
        TokenUse::User(user) => {
            // A token is revoked by deleting its row.
            let row = cloud.store.get(Kind::Token, &claims.id.to_string()).await?;
            let his = row.is_some_and(|row| row.parent_id == user.to_string());
            if his {
                user_principal(cloud, user.0).await?
            } else {
                None
            }
        }
        TokenUse::Kubernetes { user, .. } => user_principal(cloud, user.0).await?,
        TokenUse::Cluster(cluster) => {
            let row = cloud.store.get(Kind::Token, &claims.id.to_string()).await?;
            let its = row.filter(|row| row.cluster_id == cluster.to_string());
            its.map(|row| Principal::Cluster {
                id: cluster.0,
                organization: uuid(&row.organization_id),
            })
        }
    };
    Ok(principal.map(|principal| (principal, Some(claims))))
}

/// A user with the roles in all organizations, if the user exists.
pub(super) async fn user_principal(cloud: &Cloud, user: Uuid) -> Result<Option<Principal>, StoreError> {
    let id = user.to_string();
    if cloud.store.get(Kind::User, &id).await?.is_none() {
        return Ok(None);
    }
    let memberships = cloud.store.using(Kind::Membership, Kind::User, &id).await?;
    let operator = cloud.store.get(Kind::Operator, &id).await?.is_some();
    let membership = |row: &Row| Some((uuid(&row.organization_id), role_of(row)?));
    let memberships: BTreeMap<Uuid, OrgRole> = memberships.iter().filter_map(membership).collect();
    Ok(Some(Principal::User {
        id: user,
        memberships,
        operator,
    }))
}

/// The role of a membership.
pub(super) fn role_of(membership: &Row) -> Option<OrgRole> {
    membership.text("role").and_then(OrgRole::of)
}
