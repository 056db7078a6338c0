//! Waits for the Lease. A replica that is fit to lead claims it as soon as it is free. One that could do only a part of
//! the work waits for one lease duration more, in which a replica that is fit claims it; and one that could do nothing
//! never claims it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tracing::{info, warn};

use super::requests::{Events, next};
use super::{Elector, LeaseSettings, MAX_SHOWN_BYTES};
use crate::backoff::jittered;
use crate::chain::Chain;
use crate::checks::Fitness;
use crate::events::cut;
use crate::leader::record::{Claimable, Observed, holder, offered};

/// A standby whose watch ended reads the Lease again after this time.
const REWATCH_DELAY: Duration = Duration::from_millis(500);
/// Spreads the reads of several standbys.
const JITTER: f64 = 0.2;
/// A replica that is not fit to lead, and has found the Lease free, looks at its checks again after this time. They
/// read memory.
const FITNESS_RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The state of the Lease, as a standby knows it.
struct View {
    observed: Observed,
    /// True if the last read succeeded.
    is_known: bool,
    watch: Option<Events>,
    /// Monotonic time.
    watch_began: Duration,
    /// The holder that was logged last.
    holder: String,
    /// The reason why this replica does not claim a free Lease, as it was logged last.
    reason: String,
    /// The reason why the Lease cannot be read, as it was logged last. Empty after a read that succeeded.
    failure: String,
}

impl View {
    fn new(now: Duration) -> Self {
        Self {
            observed: Observed::new(None, now),
            is_known: false,
            watch: None,
            watch_began: now,
            holder: String::new(),
            reason: String::new(),
            failure: String::new(),
        }
    }
}

/// The permitted next step of a standby.
enum Turn {
    Claim,
    /// The Lease is free, and this replica is not fit to lead.
    Unfit,
    /// Somebody holds the Lease until this monotonic time, unless it changes.
    Held(Duration),
}

impl Elector {
    /// Waits for the Lease and claims it: returns it with the time at which the request that claimed it began. Sets
    /// `unconfirmed` while the outcome of a claim is not known.
    pub(super) async fn stand_by(&self, unconfirmed: &mut bool) -> (Lease, Duration) {
        let timing = self.settings.timing;
        let mut view = View::new(self.now());
        let mut conflicts = 0;
        loop {
            // Each round begins with a read, so that a claim is based on the Lease as it is.
            let read = self.now();
            self.read(&mut view).await;
            let mut next_read = read + jittered(timing.retry_period, JITTER);
            loop {
                let next_claim = match self.turn(&mut view) {
                    Turn::Claim => {
                        *unconfirmed = true;
                        match self.requests.claim(view.observed.lease()).await {
                            Ok(acquired) => return acquired,
                            // Another replica was faster, or our own last claim succeeded unconfirmed: read, but not
                            // without end.
                            Err(error) if error.is(409) && conflicts < 2 => {
                                conflicts += 1;
                                break;
                            }
                            Err(error) => warn!(error = %Chain(&error), "cannot claim the Lease"),
                        }
                        next_read
                    }
                    Turn::Unfit => self.now() + FITNESS_RECHECK_INTERVAL,
                    Turn::Held(until) => {
                        (*unconfirmed, conflicts) = (false, 0);
                        self.offer(&mut view).await;
                        until
                    }
                };
                let wait = next_claim.min(next_read).saturating_sub(self.now());
                tokio::select! {
                    biased;
                    event = next(&mut view.watch) => if let Some(lease) = event {
                        view.observed.see(lease, self.now());
                    } else {
                        view.watch = None;
                        // A watch that ended at once would end again: it waits for the next round.
                        if self.now() >= view.watch_began + REWATCH_DELAY {
                            next_read = next_read.min(read + REWATCH_DELAY);
                        }
                    },
                    () = self.kit.clock.sleep(wait) => if self.now() >= next_read { break },
                }
            }
        }
    }

    fn turn(&self, view: &mut View) -> Turn {
        let LeaseSettings { identity, timing, .. } = &self.settings;
        let now = self.now();
        let free_since = match view.observed.claimable(identity, now, *timing) {
            Claimable::Ours => return Turn::Claim,
            Claimable::Since(time) => time,
            Claimable::At(time) => return Turn::Held(time),
        };
        let reason = match self.kit.checks.fitness() {
            Fitness::Fit => return Turn::Claim,
            Fitness::Impaired(_) if now >= free_since + timing.lease_duration => return Turn::Claim,
            Fitness::Impaired(reason) | Fitness::Unfit(reason) => reason,
        };
        if view.is_known && view.reason != reason {
            info!(reason, "the Lease is free, but this replica is not fit to lead");
            view.reason = reason;
        }
        Turn::Unfit
    }

    /// Offers to succeed a holder that is not fit to lead, if this replica is.
    async fn offer(&self, view: &mut View) {
        let LeaseSettings { identity, timing, .. } = &self.settings;
        let Some(offer) = view.observed.lease().and_then(|lease| offered(lease, identity)) else {
            return;
        };
        if self.kit.checks.fitness() != Fitness::Fit {
            return;
        }
        match self.requests.replace(&offer, self.now() + timing.retry_period).await {
            Ok(lease) => {
                info!("offers to lead, because the leader is not fit to");
                view.observed.see(Some(lease), self.now());
            }
            // The leader renewed it meanwhile.
            Err(error) if error.is(409) => {}
            Err(error) => warn!(error = %Chain(&error), "cannot offer to lead"),
        }
    }

    /// Reads the Lease, and watches it from there if it is not watched.
    async fn read(&self, view: &mut View) {
        let began = self.now();
        let lease = self.requests.get().await;
        view.is_known = lease.is_ok();
        match lease {
            Ok(lease) => {
                view.failure.clear();
                view.observed.see(lease, self.now());
                if view.watch.is_none() {
                    view.watch = view.observed.lease().and_then(|lease| self.requests.watch(lease));
                    view.watch_began = began;
                }
            }
            Err(error) => {
                let failure = Chain(&error).to_string();
                if view.failure != failure {
                    warn!(error = failure, "cannot read the Lease");
                    view.failure = failure;
                }
            }
        }
        if let Some(other) = view.observed.lease().and_then(holder)
            && view.holder != other
        {
            other.clone_into(&mut view.holder);
            info!(holder = cut(other, MAX_SHOWN_BYTES), "standing by");
        }
    }
}
