//! The calls: which claims share one, when the next one starts, and what is done with each answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewaiter_api::NodeName;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Backoff, SharedClock, random};
use tracing::debug;

use super::state::{CachedAnswer, Reply, State, UNLISTED_AT_ONCE, Waiter, expires};
use super::{DOUBTED_AGE, Lookup, PATIENCE, unanswered};
use crate::identifier::{Claim, Identity};
use crate::proof::prove;
use crate::refusal::Refusal;

/// The cloud throttles: its token bucket needs time to refill, and other callers use it too.
const THROTTLED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// There was no response. A refused connection takes no time at all, so without this every retry of every Node would be
/// a call. Short, because only one zone may be failing.
const UNAVAILABLE: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(1));

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
        state.cached.prune(now, self.settings.expiry);
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
                until: expires(self.clock.monotonic(), expiry, random::f64()),
            }
        });
        let Some(claim) = batch.claims.get(place) else {
            return answer;
        };
        let mut state = self.state.lock();
        state.answered |= !answer.as_ref().is_err_and(Refusal::is_transient);
        if state.in_flight.get(&claim.uid) != Some(&batch.call) {
            return answer;
        }
        state.in_flight.remove(&claim.uid);
        let now = self.clock.monotonic();
        match &answer {
            Ok(cached) => state.cached.insert(claim, cached, now),
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

    fn batch(&mut self, claims: Vec<Claim>, expected: Vec<Expected>) -> Option<Batch> {
        if claims.is_empty() {
            return None;
        }
        self.calls += 1;
        let call = self.calls;
        for claim in &claims {
            self.in_flight.insert(claim.uid.clone(), call);
        }
        Some(Batch {
            call,
            claims,
            expected: Mutex::new(expected),
        })
    }
}

/// The outcomes of the queries in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallOutcome {
    answered: usize,
    throttled: usize,
    unavailable: usize,
}

impl CallOutcome {
    pub(super) fn count(&mut self, result: &Result<Identity, Refusal>) {
        match result {
            Err(Refusal::Throttled { .. }) => self.throttled += 1,
            Err(refusal) if refusal.is_transient() => self.unavailable += 1,
            _ => self.answered += 1,
        }
    }
}

/// The time of the next call: the one place that slows down, for all Nodes.
#[derive(Debug)]
pub(super) struct Pace {
    clock: SharedClock,
    failures: u32,
    /// No call before this (monotonic time), because of how the last ones ended.
    not_before: Duration,
    /// The start of each call in flight.
    under_way: BTreeMap<u64, Duration>,
}

impl Pace {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            failures: 0,
            not_before: Duration::ZERO,
            under_way: BTreeMap::new(),
        }
    }

    /// The maximum time until the next call, if no call in flight ends before; `None` if it may start now.
    pub(super) fn delay(&self) -> Option<Duration> {
        let patience_ends = self
            .under_way
            .values()
            .max()
            .map_or(Duration::ZERO, |begun| *begun + PATIENCE);
        let delay = self
            .not_before
            .max(patience_ends)
            .saturating_sub(self.clock.monotonic());
        (!delay.is_zero()).then_some(delay)
    }

    pub(super) fn begun(&mut self, call: u64) {
        self.under_way.insert(call, self.clock.monotonic());
    }

    /// The cloud is back: no earlier failure delays a call any more.
    pub(super) fn reset(&mut self) {
        (self.failures, self.not_before) = (0, Duration::ZERO);
    }

    /// A success ends a series of failures, but not a delay that another call has caused meanwhile. A call without
    /// callers, which tries parked claims, changes nothing.
    pub(super) fn ended(&mut self, call: u64, verdict: CallOutcome) {
        self.under_way.remove(&call);
        if verdict == CallOutcome::default() {
            return;
        }
        let shape = match verdict {
            CallOutcome { throttled: 1.., .. } => THROTTLED,
            CallOutcome {
                answered: 0,
                unavailable: 1..,
                ..
            } => UNAVAILABLE,
            _ => {
                self.failures = 0;
                return;
            }
        };
        self.failures = self.failures.saturating_add(1);
        self.not_before = self.not_before.max(self.clock.monotonic() + shape.delay(self.failures));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewaiter_kit::ManualClock;

    const THROTTLE: CallOutcome = CallOutcome {
        answered: 9,
        throttled: 1,
        unavailable: 0,
    };
    const NOTHING: CallOutcome = CallOutcome {
        answered: 0,
        throttled: 0,
        unavailable: 10,
    };
    const PARTLY: CallOutcome = CallOutcome {
        answered: 1,
        throttled: 0,
        unavailable: 9,
    };

    fn pace() -> (ManualClock, Pace) {
        let clock = ManualClock::default();
        let pace = Pace::new(clock.shared());
        (clock, pace)
    }

    #[test]
    fn one_call_at_a_time_unless_it_takes_long() {
        let (clock, mut pace) = pace();
        assert_eq!(pace.delay(), None);
        pace.begun(1);
        assert_eq!(pace.delay(), Some(PATIENCE));
        clock.advance(PATIENCE);
        assert_eq!(pace.delay(), None, "patience is over");
        pace.begun(2);
        assert_eq!(pace.delay(), Some(PATIENCE), "one young call is enough to wait for");
        pace.ended(2, PARTLY);
        assert_eq!(pace.delay(), None, "the old one is waited for no more");
    }

    #[test]
    fn throttling_backs_off_further_each_time_and_a_success_resets_it() {
        let (clock, mut pace) = pace();
        for ceiling in [1, 2, 4, 8, 16, 30, 30] {
            pace.ended(1, THROTTLE);
            let delay = pace.delay().unwrap();
            let ceiling = Duration::from_secs(ceiling);
            assert!(delay >= ceiling / 2 && delay <= ceiling, "{delay:?} of {ceiling:?}");
            clock.advance(delay);
        }
        pace.ended(2, PARTLY);
        pace.ended(3, THROTTLE);
        assert!(pace.delay().unwrap() <= Duration::from_secs(1));
    }

    #[test]
    fn a_success_does_not_cut_short_the_wait_of_another_call() {
        let (_clock, mut pace) = pace();
        pace.begun(1);
        pace.ended(2, THROTTLE);
        pace.ended(1, PARTLY);
        assert!(pace.delay().is_some());
    }

    #[test]
    fn no_answer_at_all_waits_and_a_zone_without_answers_does_not() {
        let (clock, mut pace) = pace();
        for _ in 0..9 {
            pace.ended(1, NOTHING);
            let delay = pace.delay().unwrap();
            assert!(
                delay >= Duration::from_millis(100) && delay <= Duration::from_secs(1),
                "{delay:?}"
            );
            clock.advance(delay);
        }
        pace.ended(2, PARTLY);
        assert_eq!(pace.delay(), None);
    }

    /// Replicas and other clusters of the account that were throttled at the same time do not retry at the same time.
    #[test]
    fn the_wait_is_drawn() {
        let waits: std::collections::BTreeSet<_> = (0..20)
            .map(|_| {
                let (_clock, mut pace) = pace();
                pace.ended(1, THROTTLE);
                pace.delay()
            })
            .collect();
        assert!(waits.len() > 10, "{waits:?}");
    }
}
