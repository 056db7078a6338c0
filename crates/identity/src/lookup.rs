//! Batches the queries of many Nodes into few calls, and caches the answers.
//!
//! Invariants: if no call is in flight, a query is sent at once, together with other queries of the same moment. Queries that
//! arrive during a call are batched into the next one. An answer is cached for one (uid, providerID) until it expires, and is
//! proven again for each caller's claim. A refusal is never cached. A dropped caller affects no other; its query is not sent if
//! it is still waiting.
//!
//! One place decides the pace: a call that is throttled or gets no response delays the next one, for all Nodes and with jitter,
//! so that thousands of Nodes cannot stampede. A slow call, for example because one zone does not respond, delays later Nodes by
//! at most [`PATIENCE`].

mod answer_cache;
mod pace;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use tidewaiter_api::NodeUid;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{SharedClock, random};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::claim::Claim;
use crate::identifier::Identifier;
use crate::identity::Identity;
use crate::proof::{NodeNames, Proven, prove};
use crate::refusal::{Refusal, UnavailableCause};
use answer_cache::{AnswerCache, CachedAnswer};
use pace::{CallOutcome, Pace};

/// The time after which waiting queries no longer wait for a call in flight, but start another one.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The minimum age of an answer that is in doubt: a kubelet that gives reason to doubt at each of its reports causes at most one
/// query in this time.
pub const DOUBTED_AGE: Duration = Duration::from_mins(1);

/// The maximum number of calls in flight. It is sufficient for one call per second while one failing zone delays each of them
/// until the provider's own deadline.
const MAX_CALLS: usize = 16;

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
    /// How long the answer stays cached. A query after this time reaches the cloud, batched with other expired ones.
    pub fresh_for: Duration,
}

/// The queue and the cache in front of a provider. Share it; [`Lookup::run`] makes the calls.
pub struct Lookup {
    identifier: Arc<dyn Identifier>,
    clock: SharedClock,
    settings: LookupSettings,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiter>,
    kept: AnswerCache,
    /// The call in flight for each Node. [`Lookup::forget`] removes a Node, so that its answer is not cached.
    asked: HashMap<NodeUid, u64>,
    calls: u64,
    closed: bool,
}

#[derive(Debug)]
struct Waiter {
    claim: Claim,
    reply: Reply,
}

type Reply = oneshot::Sender<Result<CachedAnswer, Refusal>>;

/// Waiters whose claims are queried in one call.
#[derive(Debug)]
struct Batch {
    call: u64,
    claims: Vec<Claim>,
    replies: Mutex<Vec<Option<Reply>>>,
}

impl Lookup {
    /// An empty lookup.
    #[must_use]
    pub fn new(identifier: Arc<dyn Identifier>, clock: SharedClock, settings: LookupSettings) -> Self {
        Self {
            identifier,
            clock,
            settings,
            state: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Identifies the Node of `claim`, from the cache or by querying the cloud. Waits for the cloud; may be dropped at any
    /// time. The claim is judged as passed in: if the Node changes meanwhile, call this again.
    ///
    /// # Errors
    /// A [`Refusal`]. [`Identifier`] defines what each means and when to query again.
    pub async fn identify(&self, claim: Claim) -> Result<Answer, Refusal> {
        let known = self.lock().kept.get(&claim, self.clock.monotonic());
        let kept = match known {
            Some(kept) => kept,
            None => self.ask(claim.clone()).await?,
        };
        let proven = prove(&claim, kept.identity, self.settings.node_names)?;
        Ok(Answer {
            proven,
            fresh_for: kept.until.saturating_sub(self.clock.monotonic()),
        })
    }

    /// Drops the cached answer of this Node, because it was deleted or its answer is in doubt. Its next query reaches
    /// the cloud.
    pub fn forget(&self, uid: &NodeUid) {
        let mut state = self.lock();
        state.kept.forget(uid);
        state.asked.remove(uid);
    }

    /// Lets the cached answer of this Node expire soon, because another instance may have its name now: at once, or
    /// [`DOUBTED_AGE`] after it was obtained.
    pub fn doubt(&self, uid: &NodeUid) {
        let mut state = self.lock();
        state.kept.expire_at_age(uid, DOUBTED_AGE);
        state.asked.remove(uid);
    }

    /// Makes the calls until `shutdown`. Queries that are still waiting then, and later ones, are refused as
    /// unavailable.
    ///
    /// # Errors
    /// Never: a supervised task needs an error type.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) -> Result<(), Infallible> {
        let mut pace = Pace::new(self.clock.clone());
        let mut calls = FuturesUnordered::new();
        loop {
            let delay = pace.delay();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some((call, verdict)) = calls.next(), if !calls.is_empty() => pace.ended(call, verdict),
                () = self.due(delay), if calls.len() < MAX_CALLS => {
                    if let Some(batch) = self.take() {
                        pace.begun(batch.call);
                        calls.push(self.call(batch));
                    }
                }
            }
        }
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        Ok(())
    }

    async fn ask(&self, claim: Claim) -> Result<CachedAnswer, Refusal> {
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.lock();
            if state.closed {
                return Err(stopped());
            }
            state.waiting.push_back(Waiter { claim, reply });
        }
        self.wake.notify_one();
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Completes when a call may start and a query is waiting.
    async fn due(&self, delay: Option<Duration>) {
        if let Some(delay) = delay {
            self.clock.sleep(delay).await;
        }
        while self.lock().waiting.is_empty() {
            self.wake.notified().await;
        }
        self.crowd().await;
    }

    /// Waits for other callers that are about to add queries: thousands start at once when a cluster is first seen, and
    /// the first query should not be sent alone. It ends when all other tasks have run several times without adding a
    /// query, which is immediately in an idle process.
    async fn crowd(&self) {
        let (mut crowd, mut turns) = (0, 0);
        while turns < YIELDS && crowd < self.identifier.max_batch() {
            tokio::task::yield_now().await;
            let now = self.lock().waiting.len();
            turns = if now > crowd { 0 } else { turns + 1 };
            crowd = now;
        }
    }

    /// The next batch: the longest-waiting queries, without dropped ones.
    fn take(&self) -> Option<Batch> {
        let now = self.clock.monotonic();
        let at_most = self.identifier.max_batch().max(1);
        let mut state = self.lock();
        state.kept.prune(now, self.settings.expiry);
        let (mut claims, mut replies) = (Vec::new(), Vec::new());
        while claims.len() < at_most {
            let Some(waiter) = state.waiting.pop_front() else { break };
            if !waiter.reply.is_closed() {
                claims.push(waiter.claim);
                replies.push(Some(waiter.reply));
            }
        }
        if claims.is_empty() {
            return None;
        }
        state.calls += 1;
        let call = state.calls;
        for claim in &claims {
            state.asked.insert(claim.uid.clone(), call);
        }
        Some(Batch {
            call,
            claims,
            replies: Mutex::new(replies),
        })
    }

    async fn call(&self, batch: Batch) -> (u64, CallOutcome) {
        let verdict = Mutex::new(CallOutcome::default());
        let answers = |place: usize, result: Result<Identity, Refusal>| {
            // The first answer for an index counts; an invalid index is ignored.
            if let Some(reply) = lock(&batch.replies).get_mut(place).and_then(Option::take) {
                lock(&verdict).count(&result);
                self.reply(&batch, place, reply, result);
            }
        };
        let asked = self.identifier.identify(&batch.claims, &answers);
        let outcome = timeout(&*self.clock, self.settings.deadline, asked).await;
        let why = if outcome.is_ok() { "no answer" } else { "timeout" };
        for place in 0..batch.claims.len() {
            answers(place, Err(unanswered(why)));
        }
        let verdict = *lock(&verdict);
        debug!(nodes = batch.claims.len(), ?verdict, "asked the cloud");
        (batch.call, verdict)
    }

    fn reply(&self, batch: &Batch, place: usize, reply: Reply, result: Result<Identity, Refusal>) {
        let Some(claim) = batch.claims.get(place) else { return };
        let answer = result.map(|identity| CachedAnswer {
            identity: Arc::new(identity),
            until: answer_cache::expires(self.clock.monotonic(), self.settings.expiry, random::f64()),
        });
        let mut state = self.lock();
        if state.asked.get(&claim.uid) == Some(&batch.call) {
            state.asked.remove(&claim.uid);
            if let Ok(kept) = &answer {
                state.kept.keep(claim, kept, self.clock.monotonic());
            }
        }
        drop(state);
        // The caller may have been dropped: then the answer is cached for the next one.
        let _ = reply.send(answer);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
