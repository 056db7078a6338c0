//! The state that all requests share: the store, the keys, the limits, and the caches of responses and identities.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use moka::future::Cache;
use parking_lot::Mutex;
use prometheus::IntCounter;
use serde_json::Value;
use tidewaiter_kit::SharedClock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Error;
use super::answers::{Held, ResponseBudget};
use super::call::Call;
use super::digest::{derived, etag, uuid};
use super::guesses::Guesses;
use super::identity::ProvenKeys;
use super::limits::Limits;
use super::metrics::Requests;
use super::principal::Known;
use super::refusal::Refusal;
use super::script_keys::ScriptKeys;
use super::sealing::{Owner, Sealer};
use super::serve::ServerParts;
use super::store::{Feed, Row, Scope, Store};
use super::token::{Claims, SignError, Tokens};
use crate::models::{Credential, Kind};

/// The reason why nobody can log in, and the remedy.
pub(super) const NO_SIGNING_KEY: &str = "no signing key is left, because the last one was removed; its operator \
                                         adds one with tidewaiter cloud keys rotate";

/// The maximum memory of cached responses, in bytes.
const ANSWERS: u64 = 64 * 1024 * 1024;
/// The time after which a computed response is dropped that nobody took.
const FLIGHT: Duration = Duration::from_secs(1);
/// The maximum number of cached identities.
pub(super) const IDENTITIES: u64 = 20_000;

/// The lifetimes of tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenLifetimes {
    /// A user's token, from a login.
    pub login: SignedDuration,
    /// A cluster's token.
    pub cluster: SignedDuration,
    /// A user's token for a kube-apiserver, which is not notified of a revocation.
    pub kubernetes: SignedDuration,
}

impl Default for TokenLifetimes {
    fn default() -> Self {
        Self {
            login: SignedDuration::from_hours(12),
            cluster: SignedDuration::from_hours(1),
            kubernetes: SignedDuration::from_mins(10),
        }
    }
}

/// The state that all requests share. Clones share it.
pub type Cloud = Arc<CloudState>;

/// See [`Cloud`].
pub struct CloudState {
    /// The settings.
    pub(super) parts: ServerParts,
    /// The database.
    pub(super) store: Store,
    /// Signs and verifies tokens.
    pub(super) tokens: ArcSwap<Tokens>,
    /// Encrypts credentials.
    pub(super) sealer: ArcSwap<Sealer>,
    /// Sign the scripts of upgrades.
    pub(super) script_keys: ArcSwap<ScriptKeys>,
    /// The limits of requests.
    pub(super) limits: Limits,
    /// Counts wrong passwords.
    pub(super) guesses: Guesses,
    /// The metrics of requests.
    pub(super) requests: Requests,
    /// The source of time.
    pub(super) clock: SharedClock,
    /// Cancelled when the process shuts down: then streams end.
    pub(super) shutdown: CancellationToken,
    /// The identities of verified tokens, by the digest of the token.
    pub(super) identities: Cache<[u8; 32], Arc<Known>>,
    /// The API keys that are looked up apart from those that anybody may have invented.
    pub(super) keys: ProvenKeys,
    /// The cached responses.
    pub(super) answers: Answers,
    /// The memory of responses that are built or sent.
    pub(super) budget: ResponseBudget,
}

/// The cached responses.
pub(super) struct Answers {
    cached: Cache<String, Arc<Answer>>,
    /// The responses that are being computed, each for all requests that wait for it.
    flights: Cache<String, Result<Flight, Error>>,
    computed: IntCounter,
}

/// A computed response, and the part of the budget that it holds until it is sent to all who wait for it.
type Flight = (Arc<Answer>, Arc<Held>);

impl Answers {
    /// An empty cache. `computed` counts the responses that were computed, and not taken from the cache.
    pub(super) fn new(computed: IntCounter) -> Self {
        let weigh = |key: &String, answer: &Arc<Answer>| {
            let body = answer.body.as_ref().map_or(0, Bytes::len);
            u32::try_from(key.len() + body + 256).unwrap_or(u32::MAX)
        };
        Self {
            cached: Cache::builder().max_capacity(ANSWERS).weigher(weigh).build(),
            flights: Cache::builder().time_to_live(FLIGHT).build(),
            computed,
        }
    }
}

/// The scope for which a response is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    /// Its ETag: it contains data that should not stay in memory.
    Etag,
    /// The response.
    Everything,
}

/// A cached response, and what it depends on.
pub(super) struct Answer {
    as_of: i64,
    scopes: Vec<Scope>,
    pub(super) etag: String,
    /// `None` if it contains data that should not stay in memory.
    pub(super) body: Option<Bytes>,
    /// The location of the next page of a list.
    pub(super) next: Option<String>,
    /// The part of the budget that it holds while it is sent to anybody.
    sent: Mutex<Weak<Held>>,
}

impl Answer {
    /// A response that was read when `as_of` was the last published change.
    pub(super) fn new(as_of: i64, scopes: Vec<Scope>, body: Bytes, next: Option<String>) -> Self {
        Self {
            as_of,
            scopes,
            etag: etag(&body),
            body: Some(body),
            next,
            sent: Mutex::default(),
        }
    }

    fn holds(&self, feed: &Feed) -> bool {
        feed.holds(self.as_of, &self.scopes)
    }
}

impl CloudState {
    /// The response cached under `key`, if it is still valid.
    pub(super) async fn kept(&self, key: &str) -> Option<Arc<Answer>> {
        self.answers
            .cached
            .get(key)
            .await
            .filter(|answer| answer.holds(self.store.feed()))
    }

    /// The part of the budget that `answer` holds while it is sent, one for all who receive it.
    pub(super) async fn held_by(&self, call: &Call, answer: &Answer) -> Result<Arc<Held>, Refusal> {
        let sent = || answer.sent.lock();
        if let Some(held) = sent().upgrade() {
            return Ok(held);
        }
        let held = Arc::new(self.hold(call, answer.body.as_ref().map_or(0, Bytes::len)).await?);
        *sent() = Arc::downgrade(&held);
        Ok(held)
    }

    /// Computes the response for `key` once for all requests that arrive meanwhile, and caches it as `kept` says.
    pub(super) async fn computed<F>(&self, key: &str, kept: Kept, compute: impl Fn() -> F) -> Result<Flight, Error>
    where
        F: Future<Output = Result<(Answer, Held), Error>>,
    {
        let arrived = self.store.feed().latest();
        loop {
            let flight = self.answers.flights.get_with_by_ref(key, async {
                self.answers.computed.inc();
                let (answer, held) = compute().await?;
                let (answer, held) = (Arc::new(answer), Arc::new(held));
                *answer.sent.lock() = Arc::downgrade(&held);
                self.keep(key, &answer, kept).await;
                Ok((answer, held))
            });
            let flight = flight.await;
            self.answers.flights.invalidate(key).await;
            // One that began before this request arrived may lack a change that the caller has seen.
            match &flight {
                Ok((answer, _)) if answer.as_of < arrived && !answer.holds(self.store.feed()) => {}
                _ => return flight,
            }
        }
    }

    async fn keep(&self, key: &str, answer: &Arc<Answer>, kept: Kept) {
        let answer = match kept {
            Kept::Nothing => return,
            Kept::Everything => Arc::clone(answer),
            Kept::Etag => Arc::new(Answer {
                as_of: answer.as_of,
                scopes: answer.scopes.clone(),
                etag: answer.etag.clone(),
                body: None,
                next: answer.next.clone(),
                sent: Mutex::default(),
            }),
        };
        self.answers.cached.insert(key.to_owned(), answer).await;
    }

    /// Signs a token.
    ///
    /// # Errors
    /// 503 if no signing key is left.
    pub(super) fn sign(&self, claims: &Claims) -> Result<String, Error> {
        self.tokens.load().sign(claims).map_err(|error| match error {
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
        let opened = self
            .sealer
            .load()
            .open(owner(kind, id, organization), &sealed)
            .map_err(Error::internal)?;
        let text = str::from_utf8(&opened).map_err(Error::internal)?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// The credentials of `row`, as a JSON object for a response.
    pub(super) fn credentials(&self, row: &Row) -> Result<Option<Value>, Error> {
        let opened = self.open(row)?;
        opened
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(Error::internal)
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
