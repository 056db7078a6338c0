//! The state that all requests share: the store, the keys, the limits, and the caches of responses and identities.

use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::Value;
use tidewaiter_kit::SharedClock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use webauthn_rs::Webauthn;
use zeroize::Zeroizing;

use super::Error;
use super::auth::authenticator::Authenticator;
use super::auth::guesses::Guesses;
use super::digest::{derived, uuid};
use super::http::limits::Limits;
use super::http::list_cache::ListCache;
use super::http::metrics::Requests;
use super::http::response_budget::ResponseBudget;
use super::keys::script_keys::ScriptKeys;
use super::keys::sealing::{Owner, Sealer};
use super::keys::token::{Claims, SignError};
use super::oidc::Oidc;
use super::openapi::Served;
use super::refusal::Refusal;
use super::settings::ServerParts;
use super::store::{Row, Store};
use crate::models::{Credential, Kind};

/// The reason why nobody can log in, and the remedy.
pub(super) const NO_SIGNING_KEY: &str = "no signing key is left, because the last one was removed; its operator \
                                         adds one with tidewaiter cloud keys rotate";

/// The state that all requests share. Clones share it.
pub type AppState = Arc<ServerState>;

pub struct ServerState {
    pub(super) parts: ServerParts,
    pub(super) store: Store,
    pub(super) authenticator: Authenticator,
    pub(super) sealer: ArcSwap<Sealer>,
    pub(super) script_keys: ArcSwap<ScriptKeys>,
    pub(super) limits: Limits,
    pub(super) guesses: Guesses,
    /// The codes of programs that a person typed.
    pub(super) user_codes: Guesses,
    /// The providers at which people sign in.
    pub(super) oidc: Oidc,
    /// Verifies security keys; `None` if the public URL has no host name.
    pub(super) webauthn: Option<Webauthn>,
    pub(super) requests: Requests,
    pub(super) clock: SharedClock,
    /// Cancelled when the process shuts down: then streams end.
    pub(super) shutdown: CancellationToken,
    pub(super) lists: ListCache,
    /// The memory of responses that are built or sent.
    pub(super) budget: ResponseBudget,
    /// The description of the API, as JSON and as HTML.
    pub(super) description: &'static LazyLock<[Served; 2]>,
}

impl ServerState {
    /// Signs a token.
    ///
    /// # Errors
    /// 503 if no signing key is left.
    pub(super) fn sign(&self, claims: &Claims) -> Result<String, Error> {
        self.authenticator
            .tokens
            .load()
            .sign(claims)
            .map_err(|error| match error {
                SignError::NoKey => {
                    let message = format!("the server cannot sign tokens: {NO_SIGNING_KEY}");
                    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).into()
                }
                error => Error::internal(error),
            })
    }

    /// Encrypts `text` for the secret column.
    pub(super) fn seal(&self, kind: Kind, id: &str, organization: &str, text: &str) -> Result<String, Error> {
        let sealed = self.sealer.load().seal(owner(kind, id, organization), text.as_bytes());
        Ok(STANDARD.encode(sealed.map_err(Error::internal)?))
    }

    /// Decrypts the secret column of `row`; `None` if it is empty.
    ///
    /// # Errors
    /// If the key no longer exists, or the row was modified.
    pub(super) fn open(&self, row: &Row) -> Result<Option<Zeroizing<String>>, Error> {
        if row.secret.0.is_empty() {
            return Ok(None);
        }
        self.unseal(row.kind, &row.id, &row.organization_id, &row.secret.0)
            .map(Some)
    }

    /// Decrypts what [`seal`](Self::seal) encrypted for the same owner.
    pub(super) fn unseal(
        &self,
        kind: Kind,
        id: &str,
        organization: &str,
        sealed: &str,
    ) -> Result<Zeroizing<String>, Error> {
        let sealed = STANDARD.decode(sealed).map_err(Error::internal)?;
        let opened = self.sealer.load().open(owner(kind, id, organization), &sealed);
        let opened = opened.map_err(Error::internal)?;
        let text = str::from_utf8(&opened).map_err(Error::internal)?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// The credentials of `row`, as a JSON object for a response.
    pub(super) fn credentials(&self, row: &Row) -> Result<Option<Value>, Error> {
        let opened = self.open(row)?;
        let read = opened.map(|text| serde_json::from_str(&text)).transpose();
        read.map_err(Error::internal)
    }

    /// The secret column for `credentials`: unchanged if they are the same, because each encryption gives another
    /// value.
    ///
    /// # Errors
    /// If they cannot be encrypted.
    pub(super) fn sealed(
        &self,
        kind: Kind,
        id: &str,
        organization: &str,
        credentials: Option<&Credential>,
        before: Option<&Row>,
    ) -> Result<String, Error> {
        let Some(Credential(text)) = credentials else {
            return Ok(String::new());
        };
        let is_same = |before: &&Row| self.open(before).is_ok_and(|same| same.as_deref() == Some(&**text));
        if let Some(before) = before.filter(is_same) {
            return Ok(before.secret.0.clone());
        }
        self.seal(kind, id, organization, text)
    }
}

/// Binds a value to its object and organization, so that it cannot be moved to another.
fn owner<'a>(kind: Kind, id: &str, organization: &str) -> Owner<'a> {
    Owner {
        kind: kind.word(),
        object: Uuid::try_parse(id).unwrap_or_else(|_| derived(id)),
        organization: uuid(organization),
    }
}
