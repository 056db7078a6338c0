//! Permits for concurrent requests, for all of them and for each key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewaiter_kit::Clock;
use tidewaiter_kit::clock::timeout;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::server::refusal::Refusal;

/// Unused entries are dropped beyond this number.
pub(crate) const KEYS: usize = 50_000;
/// The time for which a request waits until others end. After a change of an organization all of its clusters ask at
/// once, and nobody's next change is to be refused because of that.
pub(crate) const WAIT: Duration = Duration::from_secs(1);

/// The time for which a request of a known caller waits where that delays nobody else, such as for others of the same
/// caller.
pub(crate) const CALLER_WAIT: Duration = Duration::from_secs(5);

/// The refusal of a request above the limit, which may be retried after `seconds`, at least one.
pub(crate) fn too_soon(seconds: u64) -> Refusal {
    Refusal::too_many(format!("too many requests: try again in {seconds} seconds"), seconds)
}

/// A limit that each key has for itself.
#[derive(Debug)]
pub(crate) struct Keyed<K> {
    pub(crate) limit: usize,
    wait: Duration,
    permits: Mutex<HashMap<K, Arc<Semaphore>>>,
}

impl<K: Clone + Eq + Hash> Keyed<K> {
    pub(crate) fn new(limit: usize, wait: Duration) -> Self {
        Self {
            limit,
            wait,
            permits: Mutex::default(),
        }
    }

    pub(crate) fn of(&self, key: &K) -> Arc<Semaphore> {
        let mut permits = self.permits.lock();
        if permits.len() > KEYS {
            permits.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        let new = || Arc::new(Semaphore::new(self.limit));
        Arc::clone(permits.entry(key.clone()).or_insert_with(new))
    }

    /// A permit for `key`, if there is one in time.
    pub(crate) async fn wait(&self, clock: &dyn Clock, key: &K) -> Result<OwnedSemaphorePermit, Refusal> {
        self.wait_for(clock, key, 1).await
    }

    /// `number` permits for `key`, if they are free in time.
    pub(crate) async fn wait_for(
        &self,
        clock: &dyn Clock,
        key: &K,
        number: u32,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        let permits = self.of(key);
        if let Ok(permit) = Arc::clone(&permits).try_acquire_many_owned(number) {
            return Ok(permit);
        }
        let permit = timeout(clock, self.wait, permits.acquire_many_owned(number)).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| too_soon(1))
    }
}

/// A permit of `permits`, if there is one within `limit`.
pub(crate) async fn wait<'a>(
    clock: &dyn Clock,
    limit: Duration,
    permits: &'a Semaphore,
) -> Option<SemaphorePermit<'a>> {
    if let Ok(permit) = permits.try_acquire() {
        return Some(permit);
    }
    timeout(clock, limit, permits.acquire()).await.ok()?.ok()
}
