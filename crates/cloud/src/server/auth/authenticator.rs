//! Authenticates a request by its token: a JSON Web Token of a user, a service account or a cluster, or the API key of
//! a cluster.
//!
//! A verified token is cached by its digest, until a change that may affect its owner or the token: a revocation takes
//! effect with the next request, and the identities of others stay cached. The id in an API key is no secret: an
//! unknown one is refused without a hash, which would cost more than the rest of the request.
//!
//! Anybody can invent a token. So a token is looked up in the database with the permits of known callers only if it
//! proves something without the database: it is signed by this server, or an API key that was verified before, or has
//! the id of a key. The others are looked up with the permits of unauthenticated clients, and so are those beyond the
//! limit of their user, cluster or key.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use moka::future::Cache;
use tidewaiter_kit::SharedClock;
use uuid::Uuid;

use crate::models::values::{EndTime, ServiceAccountId};
use crate::models::{InvalidField, Kind, TokenScope, Unknown, parse};
use crate::server::Error;
use crate::server::access::organizations::requires_second_factor;
use crate::server::access::users::{end_of, not_ended, role_of};
use crate::server::auth::signed_in::SignedIn;
use crate::server::digest::{head, uuid};
use crate::server::keys::hash::{ApiKey, KEY_PREFIX};
use crate::server::keys::token::Tokens;
use crate::server::keys::token::{AcceptedUses, Claims, TokenUse, signed_by};
use crate::server::principal::{Authenticated, OrgRole, Principal};
use crate::server::store::{Row, Store};

/// The maximum number of cached identities.
const IDENTITIES: u64 = 20_000;

/// The field of a token's document with its scope.
pub(crate) const SCOPE: &str = "scope";

/// The home of the owner of a token, or the API key of a cluster's, and the next end of a membership of a user.
type Issued = (Uuid, Option<EndTime>);

/// The home of a user or a service account, the end of its access, and the next end of a membership of the user.
type Ends = (Uuid, [Option<EndTime>; 2]);

/// A user or a service account, and the scope of its token.
type Live = (Row, Option<Arc<TokenScope>>);

/// The token of a request.
pub(crate) struct Token<'a>(&'a str);

impl<'a> Token<'a> {
    /// The text after `JWT` or `Bearer`.
    pub(crate) fn sent(headers: &'a HeaderMap) -> Option<Self> {
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
    pub(crate) fn read(&self, authenticator: &Authenticator, accepted: AcceptedUses) -> Option<Credential> {
        if self.0.starts_with(KEY_PREFIX) {
            return ApiKey::parse(self.0).ok().map(Credential::Key);
        }
        let (tokens, now) = (authenticator.tokens.load(), authenticator.clock.now());
        let claims = tokens.verify(self.0, now, accepted);
        claims.ok().map(Credential::Claims)
    }
}

/// The contents of a token. Only the database knows whether it is valid.
pub(crate) enum Credential {
    Key(ApiKey),
    Claims(Claims),
}

/// The API keys that are probably valid.
#[derive(Debug)]
pub(crate) struct ProvenKeys {
    /// The ids of the keys when the server started.
    ids: HashSet<Uuid>,
    /// The digests of the keys that were verified since then.
    verified: Cache<[u8; 32], ()>,
}

impl ProvenKeys {
    pub(crate) fn new(ids: HashSet<Uuid>) -> Self {
        Self {
            ids,
            verified: Cache::new(IDENTITIES),
        }
    }

    /// The name under which looking up a token that proves something without the database is counted; `None` if it
    /// proves nothing. All tokens of one user or cluster count together, because those that were revoked are still
    /// signed. A client that knows only the id of a key takes nothing from a client with the key, once that was
    /// verified.
    pub(crate) fn share(&self, token: &Token<'_>, credential: &Credential) -> Option<String> {
        match credential {
            Credential::Claims(claims) => Some(format!("lookup:{}", claims.token_use.subject())),
            Credential::Key(_) if self.verified.contains_key(&token.name()) => {
                Some(format!("key:{}", tidewaiter_signature::hex(&token.name())))
            }
            Credential::Key(key) => self.ids.contains(&key.id()).then(|| format!("key-id:{}", key.id())),
        }
    }
}

/// Authenticates requests, and caches the identities of verified tokens.
pub(crate) struct Authenticator {
    store: Store,
    clock: SharedClock,
    pub(crate) tokens: ArcSwap<Tokens>,
    /// The API keys that are looked up apart from those that anybody may have invented.
    pub(crate) proven_keys: ProvenKeys,
    /// The identities of verified tokens, by the digest of the token.
    identities: Cache<[u8; 32], Arc<Authenticated>>,
}

impl Authenticator {
    /// An authenticator with the ids of all API keys.
    pub(crate) fn new(store: Store, clock: SharedClock, tokens: Tokens, api_keys: HashSet<Uuid>) -> Self {
        Self {
            store,
            clock,
            tokens: ArcSwap::from_pointee(tokens),
            proven_keys: ProvenKeys::new(api_keys),
            identities: Cache::new(IDENTITIES),
        }
    }

    /// The caller with this token, if the token was verified before and nothing changed since.
    pub(crate) async fn cached(&self, token: &Token<'_>, accepted: AcceptedUses) -> Option<Arc<Authenticated>> {
        let known = self.identities.get(&token.name()).await?;
        let accepts = accepted == AcceptedUses::Any || known.is_for_api();
        (known.is_still_valid(self) && accepts).then_some(known)
    }

    /// Looks up whether `token`, which says `credential`, is valid; `None` if it is not.
    pub(crate) async fn look_up(
        &self,
        token: &Token<'_>,
        credential: Credential,
    ) -> Result<Option<Arc<Authenticated>>, Error> {
        let as_of = self.store.feed().latest();
        let (found, proof, (key, until), claims) = match credential {
            Credential::Key(key) => {
                let found = self.by_key(&key).await?;
                match found {
                    Some(_) => self.proven_keys.verified.insert(token.name(), ()).await,
                    None => self.proven_keys.verified.invalidate(&token.name()).await,
                }
                (found, key.id(), (key.id(), None), None)
            }
            Credential::Claims(mut claims) => {
                let (found, of_key) = self.by_claims(&mut claims).await?.unzip();
                (found, claims.id, of_key.unwrap_or_default(), Some(claims))
            }
        };
        let Some(principal) = found else {
            return Ok(None);
        };
        let mut depends_on = vec![proof, key];
        match &principal {
            Principal::User { id, memberships, .. } => depends_on.extend(memberships.keys().chain([id])),
            Principal::ServiceAccount { id, organization, .. } | Principal::Cluster { id, organization } => {
                depends_on.extend([id, organization]);
            }
        }
        let known = Arc::new(Authenticated {
            depends_on,
            principal,
            signed_by: claims.as_ref().and_then(|_| signed_by(token.0)),
            claims,
            until,
            as_of,
        });
        self.identities.insert(token.name(), Arc::clone(&known)).await;
        Ok(Some(known))
    }

    /// Authenticates the text of a header `Authorization`; `None` without a valid token.
    pub(crate) async fn authenticate(
        &self,
        authorization: &str,
        accepted: AcceptedUses,
    ) -> Result<Option<Arc<Authenticated>>, Error> {
        let Some(token) = Token::of(authorization) else {
            return Ok(None);
        };
        if let Some(known) = self.cached(&token, accepted).await {
            return Ok(Some(known));
        }
        match token.read(self, accepted) {
            Some(credential) => self.look_up(&token, credential).await,
            None => Ok(None),
        }
    }

    /// The cluster with the API key `key`.
    pub(crate) async fn by_key(&self, key: &ApiKey) -> Result<Option<Principal>, Error> {
        let row = self.store.get(Kind::ApiKey, &key.id().to_string()).await?;
        let Some(row) = row else { return Ok(None) };
        let is_key = key.verify(&row.secret.0).map_err(Error::internal)?;
        // A key of a removed cluster may not yet be deleted.
        let exists = is_key && self.store.get(Kind::Cluster, &row.cluster_id).await?.is_some();
        Ok(exists.then(|| Principal::Cluster {
            id: uuid(&row.cluster_id),
            organization: uuid(&row.organization_id),
        }))
    }

    /// The caller. The token of a user or a service account expires with the owner's access at the latest.
    async fn by_claims(&self, claims: &mut Claims) -> Result<Option<(Principal, Issued)>, Error> {
        // A token is revoked by deleting its row.
        let token = match &claims.token_use {
            TokenUse::Kubernetes { .. } => None,
            _ => self.store.get(Kind::Token, &claims.id.to_string()).await?,
        };
        let found = match (&claims.token_use, token) {
            (TokenUse::Kubernetes { user, .. }, _) => self.user_principal(user.0, None).await?,
            (TokenUse::User(user), Some(token)) if token.parent_id == user.to_string() => {
                self.user_principal(user.0, Some(&token)).await?
            }
            (TokenUse::ServiceAccount(account), Some(token)) if token.parent_id == account.to_string() => {
                self.service_account(*account, &token).await?
            }
            (TokenUse::Cluster(cluster), Some(token)) if token.cluster_id == cluster.to_string() => {
                let principal = Principal::Cluster {
                    id: cluster.0,
                    organization: uuid(&token.organization_id),
                };
                // A token of a removed key or cluster may not yet be deleted.
                let key = self.store.get(Kind::ApiKey, &token.parent_id).await?;
                let exists = key.is_some() && self.store.get(Kind::Cluster, &token.cluster_id).await?.is_some();
                return Ok(exists.then(|| (principal, (uuid(&token.parent_id), None))));
            }
            _ => None,
        };
        let Some((principal, (home, [end, until]))) = found else {
            return Ok(None);
        };
        if let Some(end) = end {
            claims.expires_at = claims.expires_at.min(end.get());
        }
        Ok(Some((principal, (home, until))))
    }

    /// A user with the roles in all organizations, the end of the user's access, and the first end of a role; `None` if
    /// there is no such user, the scope of `token` is unreadable, or it is a login of a password alone and the home
    /// requires a second factor.
    ///
    /// # Errors
    /// 401 with the end if the access has ended: only the user has a token that proves so much.
    async fn user_principal(&self, user: Uuid, token: Option<&Row>) -> Result<Option<(Principal, Ends)>, Error> {
        let id = user.to_string();
        let Some((row, scope)) = self.live(Kind::User, &id, token).await? else {
            return Ok(None);
        };
        let signed_in = token.and_then(SignedIn::of);
        if signed_in.is_some_and(|signed_in| !signed_in.has_second_factor) {
            let home = self.store.get(Kind::Organization, &row.organization_id).await?;
            if home.as_ref().is_some_and(requires_second_factor) {
                return Ok(None);
            }
        }
        let now = self.clock.now();
        let has_ended = |end: Option<EndTime>| end.is_some_and(|end| end.has_passed(now));
        let mut memberships = self.store.using(Kind::Membership, Kind::User, &id).await?;
        memberships.retain(|row| !has_ended(end_of(row)));
        let until = memberships.iter().filter_map(end_of).min();
        let operator = scope.is_none() && self.store.get(Kind::Operator, &id).await?.is_some();
        let membership = |row: &Row| Some((uuid(&row.organization_id), role_of(row)?));
        let memberships: BTreeMap<Uuid, OrgRole> = memberships.iter().filter_map(membership).collect();
        let principal = Principal::User {
            id: user,
            memberships,
            operator,
            scope,
        };
        Ok(Some((principal, (uuid(&row.organization_id), [end_of(&row), until]))))
    }

    /// A service account, and the end of its access; `None` as for a user.
    ///
    /// # Errors
    /// As for a user.
    async fn service_account(
        &self,
        account: ServiceAccountId,
        token: &Row,
    ) -> Result<Option<(Principal, Ends)>, Error> {
        let live = self
            .live(Kind::ServiceAccount, &account.to_string(), Some(token))
            .await?;
        let Some((row, scope)) = live else {
            return Ok(None);
        };
        // No service account is an owner, whatever the database says.
        let Some(role) = role_of(&row).filter(|role| *role < OrgRole::Owner) else {
            return Ok(None);
        };
        let principal = Principal::ServiceAccount {
            id: account.0,
            organization: uuid(&row.organization_id),
            role,
            scope,
        };
        Ok(Some((principal, (uuid(&row.organization_id), [end_of(&row), None]))))
    }

    /// The user or service account `id`, and the scope of its `token`; `None` if there is none of this id, or the scope
    /// is unreadable: a newer version may have written it.
    ///
    /// # Errors
    /// 401 with the end if the access has ended.
    async fn live(&self, kind: Kind, id: &str, token: Option<&Row>) -> Result<Option<Live>, Error> {
        let Some(row) = self.store.get(kind, id).await? else {
            return Ok(None);
        };
        not_ended(&row, self.clock.now())?;
        let scope = token.map(scope_of).transpose();
        Ok(scope.ok().map(|scope| (row, scope.flatten())))
    }
}

/// The scope of a token; `None` without a limit.
fn scope_of(token: &Row) -> Result<Option<Arc<TokenScope>>, InvalidField> {
    let read = |scope: &serde_json::Value| parse(scope.to_string().as_bytes(), Unknown::Refuse).map(Arc::new);
    token.spec.get(SCOPE).map(read).transpose()
}

impl Authenticated {
    /// Returns true if a cached identity is still valid: neither the token nor a membership has ended, and nothing
    /// changed that may affect identities.
    pub(crate) fn is_still_valid(&self, authenticator: &Authenticator) -> bool {
        let now = authenticator.clock.now();
        let lives = self.claims.as_ref().is_none_or(|claims| now < claims.expires_at);
        // Removing a key from its directory invalidates its tokens.
        let tokens = authenticator.tokens.load();
        let key = self.signed_by.as_ref();
        let proven = key.is_none_or(|id| tokens.ring().find(id).is_some());
        let has_roles = self.until.is_none_or(|until| !until.has_passed(now));
        lives && has_roles && proven && authenticator.store.feed().identity_holds(self.as_of, &self.depends_on)
    }

    /// A token for a kube-apiserver is known to others and is not valid for this API.
    fn is_for_api(&self) -> bool {
        let of_use = |claims: &Claims| !matches!(claims.token_use, TokenUse::Kubernetes { .. });
        self.claims.as_ref().is_none_or(of_use)
    }
}
