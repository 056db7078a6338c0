//! Stands by, leads, and gives back.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::record::{Claimable, Observed, Timing, holder, released};
use super::{Leadership, Window};
use crate::Kit;
use crate::backoff::jittered;
use crate::chain::Chain;
use crate::client::{ClientError, fenced};
use crate::clock::timeout;
use crate::random;

mod requests;

use requests::{Events, Failure, Requests, next};

/// On shutdown: how long controllers may finish what they began, writes that were sent may be answered, and the Lease may be
/// given back. Together less than the grace of the process ([`crate::tasks::GRACE`]).
const FINISH: Duration = Duration::from_millis(350);
const ANSWER: Duration = Duration::from_millis(250);
const RELEASE: Duration = Duration::from_millis(250);

/// A standby whose watch ended looks again this soon.
const WATCH_AGAIN: Duration = Duration::from_millis(500);
/// Replicas that stand by look at different times.
const JITTER: f64 = 0.2;

/// Which Lease, and who asks for it.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who this process is; no two processes may say the same: [`identity`].
    pub identity: String,
    /// The times of the election.
    pub timing: Timing,
}

/// An identity that no other process has: the host's or pod's name, and something random, as client-go's users make it.
#[must_use]
pub fn identity(host: &str) -> String {
    format!("{host}_{:016x}{:016x}", random::u64(), random::u64())
}

/// This replica leads no more and must exit.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// It led, and does not lead any more.
    #[error("lost the Lease {lease}: {loss}")]
    Lost {
        /// Namespace and name.
        lease: String,
        /// How.
        loss: Loss,
    },
}

/// How leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No renewal succeeded for this long; or the process was stopped for longer.
    Deadline(Duration),
    /// It is somebody else's, or nobody's (empty).
    Taken(String),
}

impl Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(deadline) => write!(f, "not renewed within {deadline:?}"),
            Self::Taken(holder) if holder.is_empty() => f.write_str("somebody gave it back in our name"),
            Self::Taken(holder) => write!(f, "{holder} holds it"),
        }
    }
}

/// Takes part in the election. One for each process.
#[derive(Debug)]
pub struct Elector {
    requests: Requests,
    settings: LeaseSettings,
    kit: Kit,
    leadership: Leadership,
}

/// A renewal's end.
enum Renewal {
    /// Renewed by a request that began at this monotonic time.
    Renewed(Box<Lease>, Duration),
    Lost(Loss),
}

impl Elector {
    /// An elector with connections of its own, so that no other traffic holds up a renewal, and the leadership that it
    /// decides about. It needs to get, create, update and watch the Lease.
    ///
    /// # Errors
    /// When the credentials or certificates of `config` cannot be used.
    pub fn new(config: &Config, settings: LeaseSettings, kit: &Kit) -> Result<(Self, Leadership), ClientError> {
        let window = Window::new(Arc::clone(&kit.clock));
        let client = fenced(config, window.fence(), kit)?;
        Ok(Self::with(client, window, settings, kit))
    }

    fn with(client: Client, window: Window, settings: LeaseSettings, kit: &Kit) -> (Self, Leadership) {
        let requests = Requests::new(client, window, &settings, &kit.clock);
        let leadership = Leadership::new(Arc::clone(&kit.clock));
        let elector = Self {
            requests,
            settings,
            kit: kit.clone(),
            leadership: leadership.clone(),
        };
        (elector, leadership)
    }

    /// Stands by until the Lease can be taken, then leads until `shutdown`, then gives it back.
    ///
    /// # Errors
    /// [`LeaderError::Lost`] when it led and does not lead any more: the process must exit, and writes nothing more.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), LeaderError> {
        let mut unheard = false;
        let acquired = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            acquired = self.stand_by(&mut unheard) => Some(acquired),
        };
        let Some(acquired) = acquired else {
            if unheard {
                self.give_back(None).await;
            }
            return Ok(());
        };
        self.lead(acquired, &shutdown).await.map_err(|loss| {
            self.leadership.resign();
            self.kit.metrics.leader.set(0);
            LeaderError::Lost {
                lease: format!("{}/{}", self.settings.namespace, self.settings.name),
                loss,
            }
        })
    }

    /// Waits for the Lease and takes it: gives it with the time at which the request that took it began. Sets `unheard`
    /// while a claim is out whose outcome is not known.
    async fn stand_by(&self, unheard: &mut bool) -> (Lease, Duration) {
        let LeaseSettings { identity, timing, .. } = &self.settings;
        let mut observed = Observed::new(None, self.now());
        let mut watch: Option<Events> = None;
        let mut watching = self.now();
        let mut said = String::new();
        let mut conflicts = 0;
        loop {
            // Each turn begins with a look, so that what is claimed is what is there.
            let looked = self.now();
            match self.requests.look().await {
                Ok(lease) => {
                    observed.see(lease, self.now());
                    if watch.is_none() {
                        watch = observed.lease().and_then(|lease| self.requests.watch(lease));
                        watching = looked;
                    }
                }
                Err(error) => warn!(error = %Chain(&error), "cannot read the Lease"),
            }
            if let Some(other) = observed.lease().and_then(holder)
                && said != other
            {
                other.clone_into(&mut said);
                info!(holder = other, "standing by");
            }
            let mut again = looked + jittered(timing.retry_period(), JITTER);
            loop {
                let free = match observed.claimable(identity, self.now(), *timing) {
                    Claimable::Now => {
                        *unheard = true;
                        match self.requests.claim(observed.lease()).await {
                            Ok(acquired) => return acquired,
                            // Somebody was faster, or our own last attempt succeeded unheard: look, but not without end.
                            Err(error) if error.is(409) && conflicts < 2 => {
                                conflicts += 1;
                                break;
                            }
                            Err(error) => warn!(error = %Chain(&error), "cannot take the Lease"),
                        }
                        again
                    }
                    Claimable::At(until) => {
                        (*unheard, conflicts) = (false, 0);
                        until
                    }
                };
                let wake = free.min(again).saturating_sub(self.now());
                tokio::select! {
                    biased;
                    event = next(&mut watch) => if let Some(lease) = event {
                        observed.see(lease, self.now());
                    } else {
                        watch = None;
                        // One that was refused or broken off at once will be again: it waits for the next turn.
                        if self.now() >= watching + WATCH_AGAIN {
                            again = again.min(looked + WATCH_AGAIN);
                        }
                    },
                    () = self.kit.clock.sleep(wake) => if self.now() >= again { break },
                }
            }
        }
    }

    /// Renews until `shutdown` or until it cannot.
    async fn lead(&self, acquired: (Lease, Duration), shutdown: &CancellationToken) -> Result<(), Loss> {
        let timing = self.settings.timing;
        let (mut lease, mut renewed) = acquired;
        info!(identity = self.settings.identity, "leading");
        self.kit.metrics.leader.set(1);
        loop {
            let deadline = renewed + timing.renew_deadline();
            // A response that arrives after the last deadline comes too late, however early its request was sent.
            if !self.leadership.lead_until(deadline) {
                return Err(Loss::Deadline(timing.renew_deadline()));
            }
            let mut due = renewed + timing.retry_period();
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
                    return Err(Loss::Deadline(timing.renew_deadline()));
                }
                let renewal = tokio::select! {
                    biased;
                    // Dropped half-way: giving back finds out what became of it.
                    () = shutdown.cancelled() => continue,
                    renewal = timeout(&*self.kit.clock, deadline.saturating_sub(self.now()), self.renew(&lease, deadline)) => {
                        renewal.map_err(Failure::from).flatten()
                    }
                };
                match renewal {
                    Ok(Renewal::Renewed(lease, began)) => break (*lease, began),
                    Ok(Renewal::Lost(loss)) => return Err(loss),
                    Err(error) => {
                        let left_ms = deadline.saturating_sub(self.now()).as_millis();
                        warn!(left_ms, error = %Chain(&error), "cannot renew the Lease");
                        due = self.now() + timing.retry_period();
                    }
                }
            };
        }
    }

    /// One renewal; what it finds on a conflict decides.
    async fn renew(&self, lease: &Lease, deadline: Duration) -> Result<Renewal, Failure> {
        let renewed = |(lease, began)| Renewal::Renewed(Box::new(lease), began);
        let missing = match self.requests.put(lease, deadline).await {
            Ok(done) => return Ok(renewed(done)),
            Err(error) if error.is(404) => true,
            Err(error) if error.is(409) => false,
            Err(error) => return Err(error),
        };
        let found = if missing { None } else { self.requests.look().await? };
        match found.as_ref().map(holder) {
            // Somebody deleted it. Whoever creates it first holds it.
            None => self.requests.create(deadline).await.map(renewed),
            // A renewal of ours whose answer did not come, or somebody else's label.
            Some(Some(holder)) if holder == self.settings.identity => self
                .requests
                .put(found.as_ref().unwrap_or(lease), deadline)
                .await
                .map(renewed),
            Some(holder) => Ok(Renewal::Lost(Loss::Taken(holder.unwrap_or_default().to_owned()))),
        }
    }

    /// Stops writing, then lets others in.
    async fn hand_over(&self, lease: &Lease) {
        let clock = &*self.kit.clock;
        if timeout(clock, FINISH, self.leadership.worked()).await.is_err() {
            info!("reconciles under way are cut off");
        }
        self.leadership.resign();
        self.kit.metrics.leader.set(0);
        if timeout(clock, ANSWER, self.leadership.written()).await.is_err() {
            // One of them may still take effect: others wait until the Lease has expired.
            warn!("the Lease is not given back: writes are not answered");
            return;
        }
        self.give_back(Some(lease)).await;
    }

    /// Gives the Lease back if it is ours, beginning with `lease` as it was last known to be ours.
    async fn give_back(&self, lease: Option<&Lease>) {
        let released = timeout(&*self.kit.clock, RELEASE, self.release(lease)).await;
        match released.map_err(Failure::from).flatten() {
            Ok(()) => info!("the Lease is given back"),
            Err(error) => warn!(error = %Chain(&error), "the Lease is not given back"),
        }
    }

    async fn release(&self, lease: Option<&Lease>) -> Result<(), Failure> {
        let until = self.now() + RELEASE;
        let released = |lease: &Lease| released(lease, self.kit.clock.now());
        if let Some(lease) = lease {
            match self.requests.replace(&released(lease), until).await {
                Err(error) if error.is(409) => {}
                outcome => return outcome.map(drop),
            }
        }
        match self.requests.look().await? {
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
