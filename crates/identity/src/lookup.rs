//! Batches the queries of many Nodes into few calls, and caches the answers.
//!
//! Invariants: if no call is in flight, a query is sent at once, together with other queries of the same moment.
//! Queries that arrive during a call are batched into the next one. An answer is cached for one (uid, providerID)
//! until it expires, and is proven again for each caller's claim. A refusal is never cached, unless it may pass by
//! itself: then the claim is parked. A dropped caller affects no other; its query is not sent if it is still waiting.
//!
//! One place decides the pace: a call that is throttled or gets no response delays the next one, for all Nodes and with
//! jitter, so that thousands of Nodes cannot stampede. A slow call, for example because one zone does not respond,
//! delays later Nodes by at most [`PATIENCE`]. Until the cloud has answered once, there is at most one call, and its
//! failure refuses all waiting queries.
//!
//! While the cloud is away, the lookup itself tries again: the parked claims share one call every few seconds, and
//! their Nodes get the last refusal without a call. The first good answer to one of them releases all: each is
//! announced, and queries again, joined with the others.
//!
//! Claims whose instance the cloud does not list yet, or not completely, are parked in the same way, apart from those:
//! they share one call at growing intervals, and a good answer releases its own Node only.

mod calls;
mod state;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tidewaiter_api::{NodeName, NodeUid};
use tidewaiter_kit::SharedClock;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::identifier::{Claim, Identifier};
use crate::proof::{NodeNames, Proven, prove};
use crate::refusal::{Refusal, UnavailableCause};
use calls::Pace;
use state::{CachedAnswer, Parked, State, Waiter};

/// The time after which waiting queries no longer wait for a call in flight, but start another one.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The minimum age of an answer that is in doubt: a kubelet that gives reason to doubt at each of its reports causes at
/// most one query in this time. Also the maximum age of an answer about an instance that is starting.
pub const DOUBTED_AGE: Duration = Duration::from_mins(1);

/// The maximum number of calls in flight. It is sufficient for one call per second while one failing zone delays each
/// of them until the provider's own deadline.
const MAX_CALLS: usize = 16;

/// The interval between two checks whether more queries are expected.
const COALESCE_POLL: Duration = Duration::from_millis(1);

/// The delay after the last of the expected queries has begun.
const LAST_QUERY_DELAY: Duration = Duration::from_millis(5);

/// A call starts after every other task has run this many times without adding a query.
const YIELDS: usize = if cfg!(test) { 2 } else { 32 };

/// The settings of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupSettings {
    /// The rule for the name of a Node.
    pub node_names: NodeNames,
    /// The maximum age of a cached answer. Most answers are renewed somewhat earlier, in batches.
    pub expiry: Duration,
    /// The timeout of a query. The provider's own timeouts should be shorter.
    pub deadline: Duration,
}

impl Default for LookupSettings {
    fn default() -> Self {
        Self {
            node_names: NodeNames::default(),
            expiry: Duration::from_hours(1),
            deadline: Duration::from_mins(1),
        }
    }
}

/// The confirmed identity of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The proof.
    pub proven: Proven,
    /// The time for which the answer stays cached. A query after this time reaches the cloud, batched with other
    /// expired ones.
    pub fresh_for: Duration,
}

/// The queue and the cache in front of a provider. Share it; [`Lookup::run`] makes the calls.
pub struct Lookup {
    identifier: Arc<dyn Identifier>,
    clock: SharedClock,
    settings: LookupSettings,
    state: Mutex<State>,
    wake: Notify,
    parked: Notify,
    released: Notify,
}

impl Lookup {
    /// An empty lookup.
    #[must_use]
    pub fn new(identifier: Arc<dyn Identifier>, clock: SharedClock, settings: LookupSettings) -> Self {
        Self {
            identifier,
            clock,
            settings,
            state: Mutex::new(State {
                unlisted: Parked::unlisted(),
                ..State::default()
            }),
            wake: Notify::new(),
            parked: Notify::new(),
            released: Notify::new(),
        }
    }

    /// Identifies the Node of `claim`, from the cache or by querying the cloud. Waits for the cloud; may be dropped at
    /// any time. The claim is judged as passed in: if the Node changes meanwhile, call this again.
    ///
    /// # Errors
    /// A [`Refusal`]. [`Identifier`] defines what each means and when to query again. After a transient one,
    /// [`Lookup::run`] announces the Node when the cloud is back; after one that
    /// [`may_be_too_new`](Refusal::may_be_too_new), when it no longer is.
    pub async fn identify(&self, claim: Claim) -> Result<Answer, Refusal> {
        let known = self.state.lock().known(&claim, self.clock.monotonic());
        let answer = match known {
            Some(known) => known?,
            None => self.ask(claim.clone()).await?,
        };
        let proven = prove(&claim, answer.identity, self.settings.node_names);
        if let Err(refusal @ Refusal::Starting { .. }) = &proven {
            let mut state = self.state.lock();
            state.cached.forget(&claim.uid);
            state.unlisted.park(claim, refusal.clone(), self.clock.monotonic());
            self.parked.notify_one();
        }
        Ok(Answer {
            proven: proven?,
            fresh_for: answer.until.saturating_sub(self.clock.monotonic()),
        })
    }

    /// Drops the cached answer of this Node, because it was deleted or its answer is in doubt. Its next query reaches
    /// the cloud.
    pub fn forget(&self, uid: &NodeUid) {
        self.state.lock().forget(uid);
    }

    /// Lets the cached answer of this Node expire soon, because another instance may have its name now: at once, or
    /// [`DOUBTED_AGE`] after it was obtained.
    pub fn doubt(&self, uid: &NodeUid) {
        let mut state = self.state.lock();
        state.cached.expire_at_age(uid, DOUBTED_AGE);
        state.in_flight.remove(uid);
    }

    /// Makes the calls until `shutdown`, and calls `on_back` for each Node that got a transient refusal when the cloud
    /// answers again, and for each whose instance is listed at last. A call waits for at most [`PATIENCE`] while
    /// `expects_more` says that other callers are about to add queries. Neither may block. Queries that are still
    /// waiting at shutdown, and later ones, are refused as unavailable.
    ///
    /// # Errors
    /// Never: a supervised task needs an error type.
    pub async fn run(
        self: Arc<Self>,
        shutdown: CancellationToken,
        on_back: impl Fn(&NodeName) + Send + Sync,
        expects_more: impl Fn() -> bool + Send + Sync,
    ) -> Result<(), Infallible> {
        let mut pace = Pace::new(self.clock.clone());
        let mut calls = FuturesUnordered::new();
        loop {
            let delay = pace.delay();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = self.released.notified() => pace.reset(),
                Some((call, verdict)) = calls.next(), if !calls.is_empty() => pace.ended(call, verdict),
                () = self.due(delay, &expects_more), if calls.len() < self.max_calls() => {
                    if let Some(batch) = self.take() {
                        pace.begun(batch.call);
                        calls.push(self.call(batch, &on_back));
                    }
                }
                () = self.try_due(), if calls.len() < MAX_CALLS => {
                    if let Some(batch) = self.take_try() {
                        calls.push(self.call(batch, &on_back));
                    }
                }
            }
        }
        self.state.lock().close();
        Ok(())
    }

    fn max_calls(&self) -> usize {
        if self.state.lock().answered { MAX_CALLS } else { 1 }
    }

    async fn ask(&self, claim: Claim) -> Result<CachedAnswer, Refusal> {
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if state.closed {
                return Err(stopped());
            }
            state.parked.forget(&claim.uid);
            state.unlisted.forget(&claim.uid);
            state.waiting.push_back(Waiter { claim, reply });
        }
        self.wake.notify_one();
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Completes when a call may start and a query is waiting.
    async fn due(&self, delay: Option<Duration>, expects_more: &(dyn Fn() -> bool + Send + Sync)) {
        if let Some(delay) = delay {
            self.clock.sleep(delay).await;
        }
        while self.state.lock().waiting.is_empty() {
            self.wake.notified().await;
        }
        self.coalesce(expects_more).await;
    }

    /// Waits for other callers that are about to add queries: thousands start at once when a cluster is first seen, and
    /// the first query should not be sent alone. Those that start after the first answers would wait behind the writes
    /// that follow from them. It ends when no more are expected and all other tasks have run several times without
    /// adding a query, which is immediately in an idle process.
    async fn coalesce(&self, expects_more: &(dyn Fn() -> bool + Send + Sync)) {
        let end = self.clock.monotonic().saturating_add(PATIENCE);
        let mut waited = false;
        while expects_more() && self.clock.monotonic() < end {
            self.clock.sleep(COALESCE_POLL).await;
            waited = true;
        }
        if waited {
            // The last of them have begun, and may not have added their queries yet.
            self.clock.sleep(LAST_QUERY_DELAY).await;
        }
        let (mut queries, mut turns) = (0, 0);
        while turns < YIELDS && queries < self.identifier.max_batch() {
            tokio::task::yield_now().await;
            let now = self.state.lock().waiting.len();
            turns = if now > queries { 0 } else { turns + 1 };
            queries = now;
        }
    }

    /// Completes when it is time to try parked claims again.
    async fn try_due(&self) {
        loop {
            let due = self.state.lock().next_try();
            match due.map(|due| due.saturating_sub(self.clock.monotonic())) {
                None => self.parked.notified().await,
                Some(Duration::ZERO) => return,
                Some(wait) => tokio::select! {
                    () = self.clock.sleep(wait) => {}
                    () = self.parked.notified() => {}
                },
            }
        }
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup")
            .field("scheme", &self.identifier.scheme())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn stopped() -> Refusal {
    unanswered("this process is stopping")
}

fn unanswered(why: &str) -> Refusal {
    Refusal::Unavailable {
        api: "lookup",
        cause: UnavailableCause::Unreachable,
        detail: why.to_owned(),
    }
}

#[cfg(test)]
mod tests;
