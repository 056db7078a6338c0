//! Authenticates a request by its token: a JSON Web Token of a user or a cluster, or the API key of a cluster.
//!
//! A verified token is cached by its digest, until a change that may affect its owner or the token: a revocation takes
//! effect with the next request, and the identities of others stay cached. The id in an API key is no secret: an
//! unknown one is refused without a hash, which would cost more than the rest of the request.
//!
//! Anybody can invent a token. So a token is looked up in the database with the permits of known callers only if it
//! proves something without the database: it is signed by this server, or an API key that was verified before, or has
//! the id of a key. The others are looked up with the permits of strangers, and so are those beyond the limit of their
//! user, cluster or key.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use moka::future::Cache;
use uuid::Uuid;

use super::Error;
use super::cloud::{Cloud, IDENTITIES};
use super::digest::{head, uuid};
use super::hash::{ApiKey, KEY_PREFIX};
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

    /// The text after `JWT` or `Bearer` in the text of the header.
    fn of(text: &'a str) -> Option<Self> {
        let (scheme, token) = text.split_once(' ')?;
        let known = scheme.eq_ignore_ascii_case("jwt") || scheme.eq_ignore_ascii_case("bearer");
        Some(token.trim()).filter(|token| known && !token.is_empty()).map(Self)
    }

    fn name(&self) -> [u8; 32] {
        head(self.0.as_bytes())
    }

    /// Returns the contents of the token, if it is well-formed and, unless it is an API key, signed by this server and
    /// not expired.
    pub(super) fn read(&self, cloud: &Cloud, accepted: AcceptedUses) -> Option<Credential> {
        if self.0.starts_with(KEY_PREFIX) {
            return ApiKey::parse(self.0).ok().map(Credential::Key);
        }
        let claims = cloud.tokens.load().verify(self.0, cloud.clock.now(), accepted);
        claims.ok().map(Credential::Claims)
    }
}

/// The contents of a token. Only the database knows whether it is valid.
pub(super) enum Credential {
    Key(ApiKey),
    Claims(Claims),
}

/// The API keys that are probably valid.
#[derive(Debug)]
pub(super) struct ProvenKeys {
    /// The ids of the keys when the server started.
    ids: HashSet<Uuid>,
    /// The digests of the keys that were verified since then.
    verified: Cache<[u8; 32], ()>,
}

impl ProvenKeys {
    pub(super) fn new(ids: HashSet<Uuid>) -> Self {
        Self {
            ids,
            verified: Cache::new(IDENTITIES),
        }
    }

    /// The name under which looking up a token that proves something without the database is counted; `None` if it
    /// proves nothing. All tokens of one user or cluster count together, because those that were revoked are still
    /// signed. A client that knows only the id of a key takes nothing from a client with the key, once that was
    /// verified.
    pub(super) fn share(&self, token: &Token<'_>, credential: &Credential) -> Option<String> {
        match credential {
            Credential::Claims(claims) => Some(format!("lookup:{}", claims.token_use.subject())),
            Credential::Key(_) if self.verified.contains_key(&token.name()) => {
                Some(format!("key:{}", tidewaiter_signature::hex(&token.name())))
            }
            Credential::Key(key) => self.ids.contains(&key.id()).then(|| format!("key-id:{}", key.id())),
        }
    }
}

/// The caller with this token, if the token was verified before and nothing changed since.
pub(super) async fn cached(cloud: &Cloud, token: &Token<'_>, accepted: AcceptedUses) -> Option<Arc<Known>> {
    let known = cloud.identities.get(&token.name()).await?;
    let accepts = accepted == AcceptedUses::Any || known.is_for_us();
    (known.still_is(cloud, cloud.clock.now()) && accepts).then_some(known)
}

/// Looks up whether `token`, which says `credential`, is valid; `None` if it is not.
pub(super) async fn looked_up(
    cloud: &Cloud,
    token: &Token<'_>,
    credential: Credential,
) -> Result<Option<Arc<Known>>, Error> {
    let as_of = cloud.store.feed().latest();
    let (found, proof, key, claims) = match credential {
        Credential::Key(key) => {
            let found = by_key(cloud, &key).await?;
            match found {
                Some(_) => cloud.keys.verified.insert(token.name(), ()).await,
                None => cloud.keys.verified.invalidate(&token.name()).await,
            }
            (found, key.id(), key.id(), None)
        }
        Credential::Claims(claims) => {
            let (found, key) = by_claims(cloud, &claims).await?.unzip();
            (found, claims.id, key.unwrap_or_default(), Some(claims))
        }
    };
    let Some(principal) = found else {
        return Ok(None);
    };
    let mut depends_on = vec![proof, key];
    match &principal {
        Principal::User { id, memberships, .. } => depends_on.extend(memberships.keys().chain([id])),
        Principal::Cluster { id, organization } => depends_on.extend([id, organization]),
    }
    let known = Arc::new(Known {
        depends_on,
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
    if let Some(known) = cached(cloud, &token, accepted).await {
        return Ok(Some(known));
    }
    match token.read(cloud, accepted) {
        Some(credential) => looked_up(cloud, &token, credential).await,
        None => Ok(None),
    }
}

impl Known {
    /// Returns true if a cached identity is still valid: the token has not expired, and nothing changed that may affect
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

/// The cluster with the API key `key`.
pub(super) async fn by_key(cloud: &Cloud, key: &ApiKey) -> Result<Option<Principal>, Error> {
    let row = cloud.store.get(Kind::ApiKey, &key.id().to_string()).await?;
    let Some(row) = row else { return Ok(None) };
    let is_key = key.verify(&row.secret.0).map_err(Error::internal)?;
    // A key of a removed cluster may not yet be deleted.
    let exists = is_key && cloud.store.get(Kind::Cluster, &row.cluster_id).await?.is_some();
    Ok(exists.then(|| Principal::Cluster {
        id: uuid(&row.cluster_id),
        organization: uuid(&row.organization_id),
    }))
}

/// The caller, and the id of the user or API key for which the token was issued.
async fn by_claims(cloud: &Cloud, claims: &Claims) -> Result<Option<(Principal, Uuid)>, Error> {
    let user = match &claims.token_use {
        TokenUse::Kubernetes { user, .. } => user,
        TokenUse::User(user) => {
            // A token is revoked by deleting its row.
            let row = cloud.store.get(Kind::Token, &claims.id.to_string()).await?;
            if row.is_none_or(|row| row.parent_id != user.to_string()) {
                return Ok(None);
            }
            user
        }
        TokenUse::Cluster(cluster) => {
            let row = cloud.store.get(Kind::Token, &claims.id.to_string()).await?;
            let Some(row) = row.filter(|row| row.cluster_id == cluster.to_string()) else {
                return Ok(None);
            };
            let principal = Principal::Cluster {
                id: cluster.0,
                organization: uuid(&row.organization_id),
            };
            // A token of a removed key or cluster may not yet be deleted.
            let key = cloud.store.get(Kind::ApiKey, &row.parent_id).await?;
            let exists = key.is_some() && cloud.store.get(Kind::Cluster, &row.cluster_id).await?.is_some();
            return Ok(exists.then(|| (principal, uuid(&row.parent_id))));
        }
    };
    let principal = user_principal(cloud, user.0).await?;
    Ok(principal.map(|principal| (principal, user.0)))
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
