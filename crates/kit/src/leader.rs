//! Leadership: one replica writes, the others are warm.
//!
//! An elector of our own on a `coordination.k8s.io` Lease, field by field and second by second as client-go writes and reads
//! it, so that a kops-controller written in Go can stand by for it and take over from it. The published crates do not
//! give that: they compare the clocks of two machines, or own the Lease's fields by server-side apply.
//!
//! What is kept true: this replica writes only while less than the renew deadline has passed since it *began* the last
//! renewal whose success it knows, on a clock that goes on while the process is stopped. Others wait longer than that
//! before they take over, on their own clocks. An answer that did not come is never taken for a success.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::SharedClock;
use crate::in_flight::{Entered, InFlight};

mod elector;
mod record;

pub use elector::{Elector, LeaderError, LeaseSettings, Loss, identity};
pub use record::{InvalidTiming, Timing};

/// Whether this replica leads, asked at the moment of each write. Clones share it.
#[derive(Clone)]
pub struct Leadership {
    shared: Arc<Shared>,
}

struct Shared {
    clock: SharedClock,
    /// Monotonic nanoseconds until which this replica leads; 0 before and after.
    until: AtomicU64,
    acquired: watch::Sender<bool>,
    /// Controllers that have begun and not ended.
    work: InFlight,
    /// Writes that were sent and not answered.
    writes: InFlight,
}

impl Leadership {
    /// Does not lead yet.
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                until: AtomicU64::new(0),
                acquired: watch::Sender::new(false),
                work: InFlight::new(),
                writes: InFlight::new(),
            }),
        }
    }

    /// Leads for ever: for roles without election (an agent) and for tests.
    #[must_use]
    pub fn always(clock: SharedClock) -> Self {
        let leadership = Self::new(clock);
        leadership.lead_until(Duration::MAX);
        leadership
    }

    /// Never leads: for whoever only reads, so that not even a mistake writes.
    #[must_use]
    pub fn never(clock: SharedClock) -> Self {
        Self::new(clock)
    }

    /// Whether this replica leads at this instant.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        nanos(self.shared.clock.monotonic()) < self.shared.until.load(Ordering::Acquire)
    }

    /// Completes when this replica leads for the first time; never if it does not.
    pub async fn acquired(&self) {
        let mut acquired = self.shared.acquired.subscribe();
        // The sender lives in self, so waiting cannot fail.
        let _ = acquired.wait_for(|acquired| *acquired).await;
    }

    /// Says that work under this leadership goes on until the returned value is dropped: on shutdown the Lease is not
    /// given back while it does, for as long as the grace allows.
    pub(crate) fn begin_work(&self) -> Entered {
        self.shared.work.enter()
    }

    /// Leave for one write, to be held until its answer is there; `None` when this replica does not lead.
    pub(crate) fn begin_write(&self) -> Option<Entered> {
        // Counted first: whoever resigns and then sees no write in flight knows that none comes any more.
        let entered = self.shared.writes.enter();
        self.is_leader().then_some(entered)
    }

    /// Completes when no controller works under this leadership.
    pub(crate) async fn worked(&self) {
        self.shared.work.until(|count| count == 0).await;
    }

    /// Completes when every write that was sent is answered, or was given up.
    pub(crate) async fn written(&self) {
        self.shared.writes.until(|count| count == 0).await;
    }

    /// Leads until the given monotonic time.
    pub(crate) fn lead_until(&self, until: Duration) {
        self.shared.until.store(nanos(until), Ordering::Release);
        self.shared.acquired.send_replace(true);
    }

    /// Leads no more.
    pub(crate) fn resign(&self) {
        self.shared.until.store(0, Ordering::Release);
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
