//! What every request shares: the store, the keys, the limits, and what is kept in memory of answers and of who somebody is.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::SignedDuration;
use moka::future::Cache;
use serde_json::Value;
use tidewaiter_kit::SharedClock;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Error;
use super::digest::{etag, uuid};
use super::document::Credential;
use super::kind::Kind;
use super::limits::Limits;
use super::principal::Known;
use super::sealing::{Owner, Sealer};
use super::store::{Feed, Row, Scope, Store};
use super::token::Tokens;

/// How much memory the kept answers may take, in bytes.
const ANSWERS: u64 = 64 * 1024 * 1024;
/// So many tokens are known at once without that the database is asked.
const IDENTITIES: u64 = 20_000;

/// How long what is signed is valid.
#[derive(Clone, Copy, Debug)]
pub struct Lives {
    /// A user's token, from a login.
    pub login: SignedDuration,
    /// A cluster's token.
    pub cluster: SignedDuration,
    /// A user's token for a kube-apiserver, which cannot be told that it was revoked.
    pub kubernetes: SignedDuration,
}

impl Default for Lives {
    fn default() -> Self {
        Self {
            login: SignedDuration::from_hours(12),
            cluster: SignedDuration::from_hours(1),
            kubernetes: SignedDuration::from_mins(10),
        }
    }
}

/// From what a [`Cloud`] is made.
pub struct CloudParts {
    /// The database.
    pub store: Store,
    /// Signs and verifies tokens.
    pub tokens: Tokens,
    /// Seals credentials.
    pub sealer: Sealer,
    /// Where the signing keys lie: they are read again now and then.
    pub keys: PathBuf,
    /// Where the sealing keys lie.
    pub sealing: PathBuf,
    /// Under which address everybody reaches this server; what its tokens say issued them.
    pub issuer: Url,
    /// How long what is signed is valid.
    pub lives: Lives,
    /// How much somebody may ask.
    pub limits: Limits,
    /// The time.
    pub clock: SharedClock,
    /// Cancelled when the process is to stop: streams end then.
    pub shutdown: CancellationToken,
}

/// What every request shares. Clones share it.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

/// See [`Cloud`].
pub struct Inner {
    pub(super) store: Store,
    pub(super) tokens: ArcSwap<Tokens>,
    pub(super) sealer: ArcSwap<Sealer>,
    pub(super) keys: PathBuf,
    pub(super) sealing: PathBuf,
    pub(super) issuer: Url,
    pub(super) lives: Lives,
    pub(super) limits: Limits,
    pub(super) clock: SharedClock,
    pub(super) shutdown: CancellationToken,
    pub(super) identities: Cache<[u8; 32], Arc<Known>>,
    answers: Cache<String, Arc<Answer>>,
}

impl std::ops::Deref for Cloud {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cloud")
            .field("issuer", &self.issuer.as_str())
            .finish_non_exhaustive()
    }
}

/// An answer, and what it depends on.
pub(super) struct Answer {
    as_of: i64,
    scopes: Vec<Scope>,
    pub(super) etag: String,
    /// None where it holds what should not lie about in memory.
    pub(super) body: Option<Bytes>,
    /// Where the next part of a list is.
    pub(super) next: Option<String>,
}

impl Answer {
    /// An answer that was read when the feed stood at `as_of`.
    pub(super) fn new(as_of: i64, scopes: Vec<Scope>, body: Bytes, next: Option<String>) -> Self {
        Self {
            as_of,
            scopes,
            etag: etag(&body),
            body: Some(body),
            next,
        }
    }

    fn holds(&self, feed: &Feed) -> bool {
        feed.holds(self.as_of, &self.scopes)
    }
}

impl Cloud {
    /// The state of a server.
    #[must_use]
    pub fn new(parts: CloudParts) -> Self {
        let weigh = |key: &String, answer: &Arc<Answer>| {
            let body = answer.body.as_ref().map_or(0, Bytes::len);
            u32::try_from(key.len() + body + 256).unwrap_or(u32::MAX)
        };
        Self(Arc::new(Inner {
            store: parts.store,
            tokens: ArcSwap::from_pointee(parts.tokens),
            sealer: ArcSwap::from_pointee(parts.sealer),
            keys: parts.keys,
            sealing: parts.sealing,
            issuer: parts.issuer,
            lives: parts.lives,
            limits: parts.limits,
            clock: parts.clock,
            shutdown: parts.shutdown,
            identities: Cache::new(IDENTITIES),
            answers: Cache::builder().max_capacity(ANSWERS).weigher(weigh).build(),
        }))
    }

    /// The answer that is kept under `key`, while it is still right.
    pub(super) async fn kept(&self, key: &str) -> Option<Arc<Answer>> {
        self.answers
            .get(key)
            .await
            .filter(|answer| answer.holds(self.store.feed()))
    }

    /// Keeps `answer`; of one with `secrets` only what it is recognised by.
    pub(super) async fn keep(&self, key: String, answer: Arc<Answer>, secrets: bool) {
        let kept = if secrets {
            Arc::new(Answer {
                as_of: answer.as_of,
                scopes: answer.scopes.clone(),
                etag: answer.etag.clone(),
                body: None,
                next: answer.next.clone(),
            })
        } else {
            answer
        };
        self.answers.insert(key, kept).await;
    }

    /// What is to stand in the column that nothing shows.
    ///
    /// # Errors
    /// When it cannot be sealed.
    pub(super) fn seal(&self, kind: Kind, id: &str, organization: &str, text: &str) -> Result<String, Error> {
        let sealed = self.sealer.load().seal(owner(kind, id, organization), text.as_bytes());
        Ok(STANDARD.encode(sealed.map_err(Error::internal)?))
    }

    /// What is sealed in `row`; None when nothing is.
    ///
    /// # Errors
    /// When it cannot be opened: the key is not there any more, or the row is not what it was.
    pub(super) fn open(&self, row: &Row) -> Result<Option<Zeroizing<String>>, Error> {
        if row.secret.0.is_empty() {
            return Ok(None);
        }
        self.unseal(row.kind, &row.id, &row.organization_id, &row.secret.0)
            .map(Some)
    }

    /// What [`seal`](Self::seal) sealed for the same owner.
    ///
    /// # Errors
    /// When it cannot be opened.
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

    /// Whether what begins with `head` was sealed with the key that seals now.
    pub(super) fn is_current(&self, head: &str) -> bool {
        let head = STANDARD.decode(head).unwrap_or_default();
        self.sealer.load().is_current(&head)
    }

    /// The credentials of `row`, as the object that they are in an answer.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) fn credentials(&self, row: &Row) -> Result<Option<Value>, Error> {
        let opened = self.open(row)?;
        opened
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(Error::internal)
    }

    /// The column for `credentials`: what stands there already where they are the same, because each sealing looks different.
    ///
    /// # Errors
    /// When they cannot be sealed, or what stands there cannot be opened.
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
        if let Some(before) = before
            && self.open(before)?.as_deref() == Some(&**text)
        {
            return Ok(before.secret.0.clone());
        }
        self.seal(kind, id, organization, text)
    }
}

/// For what has no UUID of its own: another one for each id.
fn derived(id: &str) -> Uuid {
    let digest = digest(&SHA256, id.as_bytes());
    let bytes = std::array::from_fn(|index| digest.as_ref()[index]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Nothing sealed can be moved to another object, nor to another organization's.
fn owner<'a>(kind: Kind, id: &str, organization: &str) -> Owner<'a> {
    Owner {
        kind: kind.word(),
        object: Uuid::try_parse(id).unwrap_or_else(|_| derived(id)),
        organization: uuid(organization),
    }
}
