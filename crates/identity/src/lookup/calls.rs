//! The calls: which claims share one, and what is done with each answer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewaiter_api::NodeName;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::random;
use tracing::debug;

use super::answer_cache::{self, CachedAnswer};
use super::pace::CallOutcome;
use super::parked::UNLISTED_AT_ONCE;
use super::{DOUBTED_AGE, Lookup, Reply, State, Waiter, unanswered};
use crate::claim::Claim;
use crate::identity::Identity;
use crate::proof::prove;
use crate::refusal::Refusal;

/// Claims that are queried in one call.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) call: u64,
    claims: Vec<Claim>,
    /// The expected answer of each claim.
    expected: Mutex<Vec<Expected>>,
}

/// The use of the first answer to a claim.
#[derive(Debug)]
enum Expected {
    /// A caller waits for it.
    Reply(Reply),
    /// The claim is parked while the cloud is away, and this is a try.
    Try,
    /// The instance is not listed yet, and this is a try.
    Listing,
    /// The answer is there.
    Nothing,
}

impl Lookup {
    /// The next batch: the longest-waiting queries, without dropped ones.
    pub(super) fn take(&self) -> Option<Batch> {
        let now = self.clock.monotonic();
        let at_most = self.identifier.max_batch().max(1);
        let mut state = self.state.lock();
        state.kept.prune(now, self.settings.expiry);
        let (mut claims, mut expected) = (Vec::new(), Vec::new());
        while claims.len() < at_most {
            let Some(waiter) = state.waiting.pop_front() else { break };
            if !waiter.reply.is_closed() {
                claims.push(waiter.claim);
                expected.push(Expected::Reply(waiter.reply));
            }
        }
        state.batch(claims, expected)
    }

    /// The next try of parked claims that is due.
    pub(super) fn take_try(&self) -> Option<Batch> {
        let now = self.clock.monotonic();
        let at_most = self.identifier.max_batch().max(1);
        let mut state = self.state.lock();
        let mut claims = state.parked.take(at_most, now);
        let mut expected: Vec<_> = claims.iter().map(|_| Expected::Try).collect();
        if claims.is_empty() {
            claims = state.unlisted.take(at_most.min(UNLISTED_AT_ONCE), now);
            expected.extend(claims.iter().map(|_| Expected::Listing));
        }
        state.batch(claims, expected)
    }

    /// Makes one call. Every claim has an answer when this completes: from the provider, or that there was none.
    pub(super) async fn call(&self, batch: Batch, on_back: &(dyn Fn(&NodeName) + Send + Sync)) -> (u64, CallOutcome) {
        let verdict = Mutex::new(CallOutcome::default());
        let answers = |place: usize, result: Result<Identity, Refusal>| {
            // The first answer for an index counts; an invalid index is ignored.
            let taken = |it| std::mem::replace(it, Expected::Nothing);
            let expected = batch.expected.lock().get_mut(place).map(taken);
            match expected {
                Some(Expected::Reply(reply)) => {
                    verdict.lock().count(&result);
                    // The caller may have been dropped: then the answer is cached for the next one.
                    let _ = reply.send(self.answered(&batch, place, result));
                }
                Some(Expected::Try) => self.tried(&batch, place, result, on_back),
                Some(Expected::Listing) => self.tried_unlisted(&batch, place, result, on_back),
                Some(Expected::Nothing) | None => {}
            }
        };
        let asked = self.identifier.identify(&batch.claims, &answers);
        let outcome = timeout(&*self.clock, self.settings.deadline, asked).await;
        let why = if outcome.is_ok() { "no answer" } else { "timeout" };
        for place in 0..batch.claims.len() {
            answers(place, Err(unanswered(why)));
        }
        let verdict = *verdict.lock();
        self.state.lock().ended(verdict, self.clock.monotonic());
        debug!(nodes = batch.claims.len(), ?verdict, "asked the cloud");
        (batch.call, verdict)
    }

    /// Stores the answer for a caller: an identity is cached, a claim without an answer or an instance is parked. A
    /// Node that was forgotten meanwhile is not stored.
    fn answered(
        &self,
        batch: &Batch,
        place: usize,
        result: Result<Identity, Refusal>,
    ) -> Result<CachedAnswer, Refusal> {
        let answer = result.map(|identity| {
            let most = if identity.starting { DOUBTED_AGE } else { Duration::MAX };
            let expiry = self.settings.expiry.min(most);
            CachedAnswer {
                identity: Arc::new(identity),
                until: answer_cache::expires(self.clock.monotonic(), expiry, random::f64()),
            }
        });
        let Some(claim) = batch.claims.get(place) else {
            return answer;
        };
        let mut state = self.state.lock();
        state.answered |= !answer.as_ref().is_err_and(Refusal::is_transient);
        if state.asked.get(&claim.uid) != Some(&batch.call) {
            return answer;
        }
        state.asked.remove(&claim.uid);
        let now = self.clock.monotonic();
        match &answer {
            Ok(kept) => state.kept.keep(claim, kept, now),
            Err(refusal) if refusal.is_transient() => state.parked.park(claim.clone(), refusal.clone(), now),
            Err(refusal) if refusal.may_be_too_new() => state.unlisted.park(claim.clone(), refusal.clone(), now),
            Err(_) => {}
        }
        if answer.is_err() {
            self.parked.notify_one();
        }
        answer
    }

    /// Stores the answer to a parked claim. The first good one releases all of them.
    fn tried(
        &self,
        batch: &Batch,
        place: usize,
        result: Result<Identity, Refusal>,
        on_back: &(dyn Fn(&NodeName) + Send + Sync),
    ) {
        let Some(claim) = batch.claims.get(place) else { return };
        match result {
            Err(refusal) if refusal.is_transient() => self.state.lock().parked.refused_again(claim, refusal),
            result => {
                let released = self.state.lock().parked.release();
                let _ = self.answered(batch, place, result);
                if !released.is_empty() {
                    self.released.notify_one();
                }
                released.iter().for_each(on_back);
            }
        }
    }

    /// Stores the answer to a claim whose instance was not listed. A good one lets the others be tried soon.
    fn tried_unlisted(
        &self,
        batch: &Batch,
        place: usize,
        result: Result<Identity, Refusal>,
        on_back: &(dyn Fn(&NodeName) + Send + Sync),
    ) {
        let Some(claim) = batch.claims.get(place) else { return };
        let proven = result
            .clone()
            .and_then(|identity| prove(claim, Arc::new(identity), self.settings.node_names));
        let mut state = self.state.lock();
        match proven {
            Err(refusal) if refusal.may_be_too_new() => state.unlisted.refused_again(claim, refusal),
            _ if !state.unlisted.forget(&claim.uid) => {}
            _ => {
                state.unlisted.hurry(self.clock.monotonic());
                drop(state);
                let _ = self.answered(batch, place, result);
                on_back(&claim.node);
            }
        }
    }
}

impl State {
    /// Until the cloud has answered once, a call without any answer refuses all waiting queries, which would only cause
    /// more such calls.
    fn ended(&mut self, verdict: CallOutcome, now: Duration) {
        let of_callers = verdict != CallOutcome::default();
        let refusal = self.parked.first_refusal().filter(|_| of_callers && !self.answered);
        let Some(refusal) = refusal else { return };
        for Waiter { claim, reply } in self.waiting.drain(..) {
            self.parked.park(claim, refusal.clone(), now);
            let _ = reply.send(Err(refusal.clone()));
        }
    }

    /// The monotonic time of the next try; `None` while nothing is parked.
    pub(super) fn next_try(&self) -> Option<Duration> {
        self.parked.due().into_iter().chain(self.unlisted.due()).min()
    }

    fn batch(&mut self, claims: Vec<Claim>, expected: Vec<Expected>) -> Option<Batch> {
        if claims.is_empty() {
            return None;
        }
        self.calls += 1;
        let call = self.calls;
        for claim in &claims {
            self.asked.insert(claim.uid.clone(), call);
        }
        Some(Batch {
            call,
            claims,
            expected: Mutex::new(expected),
        })
    }
}
