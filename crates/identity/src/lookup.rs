//! Joins the questions of many Nodes into few calls, and keeps the answers for a while.
//!
//! What holds here: a question that finds nothing under way is asked at once, with those that come in the same moment; what
//! comes while a call is under way is asked together when it ends. An answer is kept for one (uid, providerID) until it expires, and is proven anew against the claim of
//! each caller. A refusal is never kept. A caller who goes away harms nobody: what was not yet asked for them alone is not
//! asked at all.
//!
//! The pace is decided in one place: a call that the cloud throttles, or does not answer at all, delays the next
//! one, for all Nodes together and with jitter, so that thousands of them cannot stampede. A call that takes long, because one
//! zone does not answer, does not hold up the Nodes that come after it for more than [`PATIENCE`].

mod kept;
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
use crate::refusal::{Refusal, Trouble};
use kept::{Kept, KeptAnswers};
use pace::{Pace, Verdict};

/// How long a call may take before those who wait stop waiting for it and make another.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The calls under way at most, when they take longer than [`PATIENCE`]: enough for one that begins each second and one zone
/// that makes each of them last until the provider's own deadline.
const MAX_CALLS: usize = 16;

/// So many turns of all other tasks in which nobody asks, and a call is made.
const TURNS: usize = if cfg!(test) { 2 } else { 32 };

/// How a lookup behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupSettings {
    /// What a Node's name has to be.
    pub node_names: NodeNames,
    /// The longest that an answer is kept; most are asked again somewhat earlier, in groups.
    pub expiry: Duration,
    /// The longest that a provider may take for one question: its own deadlines should come first.
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

/// A Node that the cloud vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What was proven.
    pub proven: Proven,
    /// How long the cloud's answer is still kept: asking again after this reaches the cloud, together with others whose time
    /// is up.
    pub fresh_for: Duration,
}

/// What stands between the Nodes and one provider. Share it; [`Lookup::run`] makes the calls.
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
    kept: KeptAnswers,
    /// For whom which call is under way: [`Lookup::forget`] takes a Node out, and then its answer is not kept.
    asked: HashMap<NodeUid, u64>,
    calls: u64,
    closed: bool,
}

#[derive(Debug)]
struct Waiter {
    claim: Claim,
    reply: Reply,
}

type Reply = oneshot::Sender<Result<Kept, Refusal>>;

/// Waiters whose claims are asked together.
#[derive(Debug)]
struct Batch {
    call: u64,
    claims: Vec<Claim>,
    replies: Mutex<Vec<Option<Reply>>>,
}

impl Lookup {
    /// A lookup with nothing in it.
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

    /// Who the Node of `claim` is: from what is kept, or from the cloud. Waits as long as the cloud takes; may be dropped at
    /// any time. The claim is judged as it was when it was asked: when the Node changes meanwhile, ask again.
    ///
    /// # Errors
    /// A [`Refusal`]; what each means and when to ask again: [`Identifier`].
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

    /// Keeps nothing of this Node: it is gone, or what the cloud said of it is in doubt. Its next question reaches the cloud.
    pub fn forget(&self, uid: &NodeUid) {
        let mut state = self.lock();
        state.kept.forget(uid);
        state.asked.remove(uid);
    }

    /// Makes the calls until `shutdown`. Whoever still waits then is refused as unavailable, as is whoever asks later.
    ///
    /// # Errors
    /// Never: a task that is supervised has to have a type for them.
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

    async fn ask(&self, claim: Claim) -> Result<Kept, Refusal> {
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

    /// Completes when a call may be made and there is somebody to make it for.
    async fn due(&self, delay: Option<Duration>) {
        if let Some(delay) = delay {
            self.clock.sleep(delay).await;
        }
        while self.lock().waiting.is_empty() {
            self.wake.notified().await;
        }
        self.crowd().await;
    }

    /// Lets those who are about to ask do so: thousands begin at once when a cluster is met for the first time, and the first
    /// of them should not go alone. It ends when all other tasks have had their turn several times and nobody came, which
    /// is at once when nothing is going on.
    async fn crowd(&self) {
        let (mut crowd, mut turns) = (0, 0);
        while turns < TURNS && crowd < self.identifier.max_batch() {
            tokio::task::yield_now().await;
            let now = self.lock().waiting.len();
            turns = if now > crowd { 0 } else { turns + 1 };
            crowd = now;
        }
    }

    /// The next batch: those who wait longest, without those who no longer do.
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

    async fn call(&self, batch: Batch) -> (u64, Verdict) {
        let verdict = Mutex::new(Verdict::default());
        let answers = |place: usize, result: Result<Identity, Refusal>| {
            // The first answer for a place counts; one for no place is a provider's mistake that hurts nobody.
            if let Some(reply) = lock(&batch.replies).get_mut(place).and_then(Option::take) {
                lock(&verdict).count(&result);
                self.reply(&batch, place, reply, result);
            }
        };
        let asked = self.identifier.identify(&batch.claims, &answers);
        let outcome = timeout(&*self.clock, self.settings.deadline, asked).await;
        let why = if outcome.is_ok() {
            "it gave no answer"
        } else {
            "no answer in time"
        };
        for place in 0..batch.claims.len() {
            answers(place, Err(unanswered(why)));
        }
        let verdict = *lock(&verdict);
        debug!(nodes = batch.claims.len(), ?verdict, "asked the cloud");
        (batch.call, verdict)
    }

    fn reply(&self, batch: &Batch, place: usize, reply: Reply, result: Result<Identity, Refusal>) {
        let Some(claim) = batch.claims.get(place) else { return };
        let answer = result.map(|identity| Kept {
            identity: Arc::new(identity),
            until: kept::expires(self.clock.monotonic(), self.settings.expiry, random::f64()),
        });
        let mut state = self.lock();
        if state.asked.get(&claim.uid) == Some(&batch.call) {
            state.asked.remove(&claim.uid);
            if let Ok(kept) = &answer {
                state.kept.keep(claim, kept);
            }
        }
        drop(state);
        // The caller may have gone: then the answer is there for the next one.
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
        trouble: Trouble::Unreachable,
        detail: why.to_owned(),
    }
}

#[cfg(test)]
mod tests;
