//! Stands by, leads, and releases the Lease.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::record::{Timing, holder, released, successor};
use super::{Leadership, Window};
use crate::Kit;
use crate::chain::Chain;
use crate::checks::Fitness;
use crate::client::{ClientError, fenced};
use crate::clock::timeout;
use crate::events::cut;
use crate::random;

mod access;
mod requests;
mod standby;
mod versions;

use access::Access;
use requests::{Failure, Requests};
use versions::Rewind;

/// On shutdown: the time for controllers to finish what they began, for writes under way to be answered, and for the
/// Lease to be released. Together less than the grace of the process ([`crate::tasks::GRACE`]).
const WORK_TIMEOUT: Duration = Duration::from_millis(350);
const WRITES_TIMEOUT: Duration = Duration::from_millis(250);
const RELEASE_TIMEOUT: Duration = Duration::from_millis(250);

/// A leader that has not been fit to lead for this time asks for a successor.
const UNFIT_BEFORE_HANDOVER: Duration = Duration::from_secs(30);

/// The Lease, and the identity that claims it.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Names this process; unique, as [`identity`] makes it.
    pub identity: String,
    /// The times of the election.
    pub timing: Timing,
}

/// An identity that no other process has: the name of the host or pod and a random suffix, as with client-go.
#[must_use]
pub fn identity(host: &str) -> String {
    format!("{host}_{:016x}{:016x}", random::u64(), random::u64())
}

/// This replica cannot go on, and must exit.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// It led, and does not lead any more.
    #[error("lost the Lease {lease}: {loss}")]
    Lost {
        /// Namespace and name.
        lease: String,
        /// The way in which it was lost.
        loss: Loss,
    },
    /// The storage of the API server was restored from a backup, or is empty: whatever this replica has cached may be
    /// lost, and no watch says so.
    #[error(
        "the storage of the API server went back in time, so this replica starts anew: the Lease {lease} has the version {version}, after {newest}"
    )]
    Rewound {
        /// Namespace and name.
        lease: String,
        /// The version that the Lease has now.
        version: u64,
        /// The newest version that it had before.
        newest: u64,
    },
}

/// The way in which leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No renewal succeeded within this time, or the process was stopped for longer.
    Deadline(Duration),
    /// Another identity holds the Lease, or none does (empty).
    Taken(String),
    /// It was released for a replica that is fit to lead, because this one was not.
    HandedOver {
        /// The identity of that replica.
        successor: String,
        /// The check that failed.
        reason: String,
    },
}

impl Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(deadline) => write!(f, "not renewed within {deadline:?}"),
            Self::Taken(holder) if holder.is_empty() => f.write_str("it was released in our name"),
            Self::Taken(holder) => write!(f, "{} holds it", cut(holder, MAX_SHOWN_BYTES)),
            Self::HandedOver { successor, reason } => {
                let (successor, reason) = (cut(successor, MAX_SHOWN_BYTES), cut(reason, MAX_SHOWN_BYTES));
                write!(
                    f,
                    "{successor} takes over, because this replica is not fit to lead ({reason})"
                )
            }
        }
    }
}

/// The start of a holder's name, or of a reason, that is shown, in bytes: everyone with permission to write the Lease
/// can write any name.
const MAX_SHOWN_BYTES: usize = 253;

/// The shortest time between two tries to renew.
const MIN_RENEW_INTERVAL: Duration = Duration::from_millis(250);

/// Takes part in the election. One for each process.
#[derive(Debug)]
pub struct Elector {
    requests: Requests,
    settings: LeaseSettings,
    kit: Kit,
    leadership: Leadership,
}

/// The time since which this leader has not been fit to lead.
#[derive(Debug, Default)]
struct Unfit {
    /// Monotonic.
    since: Option<Duration>,
    /// The check that fails, for as long that a successor is to be found.
    reason: Option<String>,
}

impl Unfit {
    /// Runs the checks. Returns true if a successor is to be found.
    fn update(&mut self, kit: &Kit) -> bool {
        let (Fitness::Impaired(reason) | Fitness::Unfit(reason)) = kit.checks.fitness() else {
            *self = Self::default();
            return false;
        };
        let now = kit.clock.monotonic();
        if now.saturating_sub(*self.since.get_or_insert(now)) < UNFIT_BEFORE_HANDOVER {
            return false;
        }
        if self.reason.is_none() {
            warn!(reason, "not fit to lead: leads until another replica offers to");
        }
        self.reason = Some(reason);
        true
    }
}

/// The outcome of a renewal.
enum Renewal {
    /// Renewed, by a request that began at this monotonic time.
    Renewed(Box<Lease>, Duration),
    Lost(Loss),
}

impl Elector {
    /// An elector with connections of its own, so that no other traffic delays a renewal, and the leadership that it
    /// decides. It needs to get, create, update and watch the Lease.
    ///
    /// # Errors
    /// When the credentials or certificates of `config` cannot be used.
    pub async fn new(config: &Config, settings: LeaseSettings, kit: &Kit) -> Result<(Self, Leadership), ClientError> {
        let window = Window::new(Arc::clone(&kit.clock));
        let client = fenced(config, window.fence(), kit).await?;
        Ok(Self::with(client, window, settings, kit))
    }

    /// As [`Elector::new`], with a client that `connect` makes, fenced by what it is given: for simulations.
    #[cfg(any(test, feature = "test-util"))]
    pub fn over(connect: impl FnOnce(&Leadership) -> Client, settings: LeaseSettings, kit: &Kit) -> (Self, Leadership) {
        let window = Window::new(Arc::clone(&kit.clock));
        Self::with(connect(window.fence()), window, settings, kit)
    }

    fn with(client: Client, window: Window, settings: LeaseSettings, kit: &Kit) -> (Self, Leadership) {
        let access = Access::new(&settings.namespace, &settings.name, Arc::clone(&kit.clock));
        let requests = Requests::new(client, window, &settings, &kit.clock, access.clone());
        kit.checks.register("leader-election", move || access.check());
        let leadership = Leadership::new(Arc::clone(&kit.clock));
        let elector = Self {
            requests,
            settings,
            kit: kit.clone(),
            leadership: leadership.clone(),
        };
        (elector, leadership)
    }

    /// Stands by until the Lease can be claimed, then leads until `shutdown`, then releases it. A replica stands when
    /// it is fit to lead; one that can do a part of its work stands when nobody else did for a lease duration, and
    /// releases the Lease when a replica that is fit offers to lead.
    ///
    /// # Errors
    /// [`LeaderError::Lost`] when it led and does not lead any more, [`LeaderError::Rewound`] on any replica: the
    /// process must exit, and writes nothing more.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), LeaderError> {
        let lease = || format!("{}/{}", self.settings.namespace, self.settings.name);
        let ended = tokio::select! {
            biased;
            Rewind { version, newest } = self.requests.versions.rewound() => {
                Err(LeaderError::Rewound { lease: lease(), version, newest })
            }
            ended = self.take_part(&shutdown) => ended.map_err(|loss| LeaderError::Lost { lease: lease(), loss }),
        };
        if ended.is_err() {
            self.leadership.resign();
            self.kit.metrics.leader.set(0);
        }
        ended
    }

    async fn take_part(&self, shutdown: &CancellationToken) -> Result<(), Loss> {
        let mut unconfirmed = false;
        let acquired = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            acquired = self.stand_by(&mut unconfirmed) => Some(acquired),
        };
        let Some(acquired) = acquired else {
            if unconfirmed {
                self.release(None).await;
            }
            return Ok(());
        };
        self.lead(acquired, shutdown).await
    }

    /// Renews until `shutdown` or until it cannot.
    async fn lead(&self, acquired: (Lease, Duration), shutdown: &CancellationToken) -> Result<(), Loss> {
        let timing = self.settings.timing;
        let (mut lease, mut renewed) = acquired;
        info!(identity = self.settings.identity, "leading");
        self.kit.metrics.leader.set(1);
        let mut unfit = Unfit::default();
        loop {
            let deadline = renewed + timing.renew_deadline;
            // A response that arrives after the last deadline comes too late, however early its request was sent.
            if !self.leadership.lead_until(deadline) {
                return Err(Loss::Deadline(timing.renew_deadline));
            }
            let mut due = renewed + timing.retry_period;
            (lease, renewed) = loop {
                let wait = due.min(deadline).saturating_sub(self.now());
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => {
                        self.hand_over(&lease).await;
                        return Ok(());
                    }
                    () = self.kit.clock.sleep(wait) => {}
                }
                if self.now() >= deadline {
                    return Err(Loss::Deadline(timing.renew_deadline));
                }
                let renew = self.renew(&lease, unfit.update(&self.kit), deadline);
                let renewal = tokio::select! {
                    biased;
                    // Dropped half-way: the release finds out what became of it.
                    () = shutdown.cancelled() => continue,
                    renewal = timeout(&*self.kit.clock, deadline.saturating_sub(self.now()), renew) => {
                        renewal.map_err(Failure::from).flatten()
                    }
                };
                match renewal {
                    Ok(Renewal::Renewed(lease, began)) => break (*lease, began),
                    Ok(Renewal::Lost(loss)) => return Err(loss),
                    Err(error) => {
                        let left = deadline.saturating_sub(self.now());
                        warn!(left_ms = left.as_millis(), error = %Chain(&error), "cannot renew the Lease");
                        // More often towards the deadline, so that a server that is back in time is used.
                        due = self.now() + timing.retry_period.min((left / 2).max(MIN_RENEW_INTERVAL));
                    }
                }
            };
            if let (Some(reason), Some(successor)) = (&unfit.reason, successor(&lease)) {
                let (reason, successor) = (reason.clone(), successor.to_owned());
                self.hand_over(&lease).await;
                return Err(Loss::HandedOver { successor, reason });
            }
        }
    }

    /// Renews once, and asks for a successor if this replica is `unfit`. After a conflict, the Lease as it is decides.
    async fn renew(&self, lease: &Lease, unfit: bool, deadline: Duration) -> Result<Renewal, Failure> {
        let renewed = |(lease, began)| Renewal::Renewed(Box::new(lease), began);
        let missing = match self.requests.put(lease, unfit, deadline).await {
            Ok(done) => return Ok(renewed(done)),
            Err(error) if error.is(404) => true,
            Err(error) if error.is(409) => false,
            Err(error) => return Err(error),
        };
        let found = if missing { None } else { self.requests.get().await? };
        match found.as_ref().map(holder) {
            // It was deleted. The first replica that creates it holds it.
            None => self.requests.create(deadline).await.map(renewed),
            // A renewal of ours whose response did not arrive, or a label that somebody set.
            Some(Some(holder)) if holder == self.settings.identity => self
                .requests
                .put(found.as_ref().unwrap_or(lease), unfit, deadline)
                .await
                .map(renewed),
            Some(holder) => Ok(Renewal::Lost(Loss::Taken(holder.unwrap_or_default().to_owned()))),
        }
    }

    /// Stops writing, then releases the Lease.
    async fn hand_over(&self, lease: &Lease) {
        let clock = &*self.kit.clock;
        self.leadership.end_work();
        if timeout(clock, WORK_TIMEOUT, self.leadership.worked()).await.is_err() {
            info!("reconciles under way are interrupted");
        }
        self.leadership.resign();
        self.kit.metrics.leader.set(0);
        let answered = timeout(clock, WRITES_TIMEOUT, self.leadership.written()).await.is_ok();
        let lately = self.now().saturating_sub(self.settings.timing.lease_duration);
        if !answered || self.leadership.abandoned_since(lately) {
            // One of them may still take effect: others wait until the Lease has expired.
            warn!("the Lease is not released: writes are not answered");
            return;
        }
        self.release(Some(lease)).await;
    }

    /// Releases the Lease if it is ours, starting from `lease`, our last known state of it.
    async fn release(&self, lease: Option<&Lease>) {
        let released = timeout(&*self.kit.clock, RELEASE_TIMEOUT, self.try_release(lease)).await;
        match released.map_err(Failure::from).flatten() {
            Ok(()) => info!("the Lease is released"),
            Err(error) => warn!(error = %Chain(&error), "the Lease is not released"),
        }
    }

    async fn try_release(&self, lease: Option<&Lease>) -> Result<(), Failure> {
        let until = self.now() + RELEASE_TIMEOUT;
        let released = |lease: &Lease| released(lease, self.kit.clock.now());
        if let Some(lease) = lease {
            match self.requests.replace(&released(lease), until).await {
                Err(error) if error.is(409) => {}
                outcome => return outcome.map(drop),
            }
        }
        match self.requests.get().await? {
            Some(found) if holder(&found) == Some(&self.settings.identity) => {
                self.requests.replace(&released(&found), until).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    fn now(&self) -> Duration {
        self.kit.clock.monotonic()
    }
}

#[cfg(test)]
mod tests;
