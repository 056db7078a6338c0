//! Leadership: one replica writes, the others keep their caches warm.
//!
//! The elector is our own because a kops-controller written in Go must be able to stand by for it and take over from
//! it: it reads and writes a `coordination.k8s.io` Lease with the fields and the times of client-go. The published
//! crates compare the clocks of two machines, or own the Lease's fields by server-side apply.
//!
//! Invariants:
//! - This replica writes only while less than the renew deadline has passed since the *start* of the last renewal that
//!   is known to have succeeded, by a clock that goes on while the process is stopped. Other replicas wait longer than
//!   that before they take over, by their own clocks. A response that did not arrive is never taken for a success.
//! - Leadership is a latch: once it has lapsed, or somebody has seen it lapsed, nothing brings it back, and the process
//!   exits. A write that was refused, or a reconcile that was skipped, in the gap would otherwise be lost.
//!
//! Both hold as long as nobody else deletes or empties the Lease: then two replicas may lead until the next renewal, as
//! with client-go. A Lease that somebody else takes with an endless duration is claimed after a minute without a
//! change.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::in_flight::{Entered, InFlight};

mod elector;
mod record;

pub use elector::{Elector, LeaderError, LeaseSettings, Loss, identity};
pub use record::Timing;

/// The leadership of this replica, asked at the moment of each write. Clones share it.
#[derive(Clone)]
pub struct Leadership {
    shared: Arc<Shared>,
}

struct Shared {
    clock: SharedClock,
    /// Monotonic nanoseconds until which this replica leads; [`NEVER`] before, [`LOST`] afterwards.
    until: AtomicU64,
    acquired: watch::Sender<bool>,
    /// Controllers that have begun and not ended.
    work: InFlight,
    /// Cancelled when they are to end.
    ending: CancellationToken,
    /// Writes that were sent and not answered.
    writes: InFlight,
    /// Monotonic nanoseconds at which the last write was abandoned without an answer; zero if there was none.
    abandoned: AtomicU64,
}

/// A write that may have been sent. Dropped before [`UnderWay::answered`], it is abandoned: it may still take effect.
#[derive(Debug)]
pub(crate) struct UnderWay {
    leadership: Leadership,
    answered: bool,
    _entered: Entered,
}

impl UnderWay {
    /// Its answer is known, or it was not sent.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.answered {
            let Shared { clock, abandoned, .. } = &*self.leadership.shared;
            abandoned.fetch_max(nanos(clock.monotonic()), Ordering::SeqCst);
        }
    }
}

/// It has not led yet.
const NEVER: u64 = 0;
/// It led once and never will again. No deadline is this early.
const LOST: u64 = 1;

impl Leadership {
    /// Does not lead yet.
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                until: AtomicU64::new(NEVER),
                acquired: watch::Sender::new(false),
                work: InFlight::new(),
                ending: CancellationToken::new(),
                writes: InFlight::new(),
                abandoned: AtomicU64::new(0),
            }),
        }
    }

    /// Leads forever: for roles without election (an agent) and for tests.
    #[must_use]
    pub fn always(clock: SharedClock) -> Self {
        let leadership = Self::new(clock);
        leadership.lead_until(Duration::MAX);
        leadership
    }

    /// Never leads: for commands that only read, so that not even a mistake writes.
    #[must_use]
    pub fn never(clock: SharedClock) -> Self {
        Self::new(clock)
    }

    /// True if this replica leads at this instant. Once this was true, the first false is final.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.end(None)
    }

    /// Completes when this replica leads for the first time; never if it does not.
    pub async fn acquired(&self) {
        let mut acquired = self.shared.acquired.subscribe();
        // The sender lives in self, so waiting cannot fail.
        let _ = acquired.wait_for(|acquired| *acquired).await;
    }

    /// Marks work under this leadership until the returned value is dropped: on shutdown the Lease is not released
    /// before, for as long as the grace allows.
    pub(crate) fn begin_work(&self) -> Entered {
        self.shared.work.enter()
    }

    /// Asks the controllers to begin no pass any more, and to finish those under way.
    pub(crate) fn end_work(&self) {
        self.shared.ending.cancel();
    }

    /// Completes when the controllers are to end.
    pub(crate) async fn ending(&self) {
        self.shared.ending.cancelled().await;
    }

    /// Permission for one write, to be held until its response is there; `None` when this replica does not lead.
    pub(crate) fn begin_write(&self) -> Option<UnderWay> {
        // Counted first: after resigning, a count of zero means that no write begins any more.
        let entered = self.shared.writes.enter();
        self.is_leader().then(|| UnderWay {
            leadership: self.clone(),
            answered: false,
            _entered: entered,
        })
    }

    /// True if a write was abandoned without an answer at or after this monotonic time.
    pub(crate) fn abandoned_since(&self, time: Duration) -> bool {
        let abandoned = self.shared.abandoned.load(Ordering::SeqCst);
        abandoned > 0 && abandoned >= nanos(time)
    }

    /// Completes when no controller works under this leadership.
    pub(crate) async fn worked(&self) {
        self.shared.work.until(|count| count == 0).await;
    }

    /// Completes when every write that was sent is answered or abandoned.
    pub(crate) async fn written(&self) {
        self.shared.writes.until(|count| count == 0).await;
    }

    /// Leads until the given monotonic time. False when it led before and has lapsed: it stays lost.
    pub(crate) fn lead_until(&self, until: Duration) -> bool {
        let leads = self.end(Some(nanos(until).max(LOST)));
        if leads {
            self.shared.acquired.send_replace(true);
        }
        leads
    }

    /// Ends the leadership for good.
    pub(crate) fn resign(&self) {
        self.shared.until.store(LOST, Ordering::SeqCst);
    }

    /// True if this replica leads, after moving the end of its leadership to `later` if it has not lapsed.
    ///
    /// Anyone who finds that it has lapsed stores that before answering: of an observer and a renewal that come at the
    /// same time one is first, and the other agrees with it.
    fn end(&self, later: Option<u64>) -> bool {
        let Shared { clock, until, .. } = &*self.shared;
        let mut end = until.load(Ordering::SeqCst);
        loop {
            // The clock is read after the deadline: a process that was stopped in between finds that it has passed.
            let leads = end > LOST && nanos(clock.monotonic()) < end;
            let next = match later {
                _ if end == LOST => return false,
                None if leads || end == NEVER => return leads,
                Some(later) if leads || end == NEVER => later,
                _ => LOST,
            };
            match until.compare_exchange(end, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return next != LOST,
                Err(changed) => end = changed,
            }
        }
    }
}

/// When writes about the Lease itself may be sent: closed behind each of them and opened for the next.
#[derive(Clone, Debug)]
pub(crate) struct Window(Leadership);

impl Window {
    /// Closed.
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self(Leadership::new(clock))
    }

    /// Open until the given monotonic time.
    pub(crate) fn open_until(&self, until: Duration) {
        self.0.shared.until.store(nanos(until).max(LOST), Ordering::SeqCst);
    }

    /// The fence of a client whose writes need the window.
    pub(crate) fn fence(&self) -> &Leadership {
        &self.0
    }
}

impl Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("is_leader", &self.is_leader())
            .finish()
    }
}

/// 2^64 nanoseconds are 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::BoxFuture;
    use jiff::Timestamp;

    use super::*;
    use crate::clock::{Clock, ManualClock};

    const SECOND: Duration = Duration::from_secs(1);

    /// Leads for 10 s from now on.
    fn leader() -> (Leadership, ManualClock) {
        let clock = ManualClock::default();
        let leadership = Leadership::new(clock.shared());
        assert!(!leadership.is_leader());
        assert!(leadership.lead_until(ManualClock::ORIGIN + 10 * SECOND));
        assert!(leadership.is_leader());
        (leadership, clock)
    }

    #[test]
    fn renewed_in_time_it_goes_on() {
        let (leadership, clock) = leader();
        clock.advance(9 * SECOND);
        assert!(leadership.lead_until(ManualClock::ORIGIN + 19 * SECOND));
        clock.advance(9 * SECOND);
        assert!(leadership.is_leader());
    }

    #[test]
    fn lapsed_it_stays_lost() {
        for looked_at in [false, true] {
            let (leadership, clock) = leader();
            clock.advance(10 * SECOND);
            assert!(!(looked_at && leadership.is_leader()));
            assert!(!leadership.lead_until(Duration::MAX), "looked at: {looked_at}");
            assert!(!leadership.is_leader());
        }
    }

    #[test]
    fn resigned_it_stays_lost() {
        let (leadership, _) = leader();
        leadership.resign();
        assert!(!leadership.lead_until(Duration::MAX));
        assert!(!leadership.is_leader() && leadership.begin_write().is_none());
    }

    /// Between the reading of the clock and what follows from it, the process is stopped for 11 s, and `observer` looks
    /// first.
    #[derive(Debug, Default)]
    struct Stopped {
        seconds: AtomicU64,
        observer: Mutex<Option<Leadership>>,
    }

    impl Clock for Stopped {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn monotonic(&self) -> Duration {
            let before = Duration::from_secs(self.seconds.load(Ordering::SeqCst));
            let observer = self.observer.lock().unwrap().take();
            if let Some(observer) = observer {
                self.seconds.fetch_add(11, Ordering::SeqCst);
                assert!(!observer.is_leader());
            }
            before
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn seen_lapsed_while_it_is_renewed_it_stays_lost() {
        let clock = Arc::new(Stopped::default());
        let leadership = Leadership::new(Arc::<Stopped>::clone(&clock));
        assert!(leadership.lead_until(10 * SECOND));
        *clock.observer.lock().unwrap() = Some(leadership.clone());
        assert!(!leadership.lead_until(30 * SECOND));
        assert!(!leadership.is_leader());
    }
}
