//! The cached lists and documents, each valid until something that it depends on changes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use moka::future::Cache;
use parking_lot::Mutex;
use prometheus::IntCounter;

use super::call::Call;
use super::response_budget::{Held, ResponseBudget};
use crate::server::Error;
use crate::server::refusal::Refusal;
use crate::server::store::{Feed, Scope};

/// The maximum memory of cached responses, in bytes.
const MAX_CACHE_BYTES: u64 = 64 * 1024 * 1024;
/// The time after which a computed response is dropped that nobody took.
const FLIGHT: Duration = Duration::from_secs(1);

pub(crate) struct ListCache {
    cached: Cache<String, Arc<CachedList>>,
    /// The responses that are being computed, each for all requests that wait for it.
    flights: Cache<String, Result<Flight, Error>>,
    computed: IntCounter,
}

/// A computed response, and the part of the budget that it holds until it is sent to all who wait for it.
type Flight = (Arc<CachedList>, Arc<Held>);

impl ListCache {
    /// An empty cache. `computed` counts the responses that were computed, and not taken from the cache.
    pub(crate) fn new(computed: IntCounter) -> Self {
        let weigh = |key: &String, answer: &Arc<CachedList>| {
            let body = answer.body.as_ref().map_or(0, Bytes::len);
            u32::try_from(key.len() + body + 256).unwrap_or(u32::MAX)
        };
        Self {
            cached: Cache::builder().max_capacity(MAX_CACHE_BYTES).weigher(weigh).build(),
            flights: Cache::builder().time_to_live(FLIGHT).build(),
            computed,
        }
    }

    /// The response cached under `key`, if it is still valid.
    pub(crate) async fn get(&self, feed: &Feed, key: &str) -> Option<Arc<CachedList>> {
        self.cached.get(key).await.filter(|answer| answer.holds(feed))
    }

    /// Computes the response for `key` once for all requests that arrive meanwhile, and caches it as `cached_part`
    /// says.
    pub(crate) async fn get_or_compute<F>(
        &self,
        feed: &Feed,
        key: &str,
        cached_part: CacheScope,
        compute: impl Fn() -> F,
    ) -> Result<Flight, Error>
    where
        F: Future<Output = Result<(CachedList, Held), Error>>,
    {
        let arrived = feed.latest();
        loop {
            let flight = self.flights.get_with_by_ref(key, async {
                self.computed.inc();
                let (answer, held) = compute().await?;
                let (answer, held) = (Arc::new(answer), Arc::new(held));
                *answer.sent.lock() = Arc::downgrade(&held);
                self.keep(key, &answer, cached_part).await;
                Ok((answer, held))
            });
            let flight = flight.await;
            self.flights.invalidate(key).await;
            // One that began before this request arrived may lack a change that the caller has seen.
            match &flight {
                Ok((answer, _)) if answer.as_of < arrived && !answer.holds(feed) => {}
                _ => return flight,
            }
        }
    }

    async fn keep(&self, key: &str, answer: &Arc<CachedList>, cached_part: CacheScope) {
        let answer = match cached_part {
            CacheScope::Nothing => return,
            CacheScope::Everything => Arc::clone(answer),
            CacheScope::Etag => Arc::new(CachedList {
                as_of: answer.as_of,
                scopes: answer.scopes.clone(),
                etag: answer.etag.clone(),
                body: None,
                next: answer.next.clone(),
                sent: Mutex::default(),
            }),
        };
        self.cached.insert(key.to_owned(), answer).await;
    }
}

/// The scope for which a response is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheScope {
    Nothing,
    /// Its ETag: it contains data that should not stay in memory.
    Etag,
    /// The response.
    Everything,
}

/// A cached response, and what it depends on.
pub(crate) struct CachedList {
    as_of: i64,
    scopes: Vec<Scope>,
    pub(crate) etag: String,
    /// `None` if it contains data that should not stay in memory.
    pub(crate) body: Option<Bytes>,
    /// The location of the next page of a list.
    pub(crate) next: Option<String>,
    /// The part of the budget that it holds while it is sent to anybody.
    sent: Mutex<Weak<Held>>,
}

impl CachedList {
    /// A response that was read when `as_of` was the last published change: its body and its ETag.
    pub(crate) fn new(as_of: i64, scopes: Vec<Scope>, (body, etag): (Bytes, String), next: Option<String>) -> Self {
        Self {
            as_of,
            scopes,
            etag,
            body: Some(body),
            next,
            sent: Mutex::default(),
        }
    }

    /// The part of the budget that it holds while it is sent, one for all who receive it.
    pub(crate) async fn held_by(&self, budget: &ResponseBudget, call: &Call) -> Result<Arc<Held>, Refusal> {
        let sent = || self.sent.lock();
        if let Some(held) = sent().upgrade() {
            return Ok(held);
        }
        let held = Arc::new(budget.hold(call, self.body.as_ref().map_or(0, Bytes::len)).await?);
        *sent() = Arc::downgrade(&held);
        Ok(held)
    }

    fn holds(&self, feed: &Feed) -> bool {
        feed.holds(self.as_of, &self.scopes)
    }
}
