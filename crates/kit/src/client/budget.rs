//! The number of requests that may be under way at once: of each controller, and of all of them together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

/// A request that was not sent: its controller, or the process, had too many others under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: none of the {permits} request permits of {holder} became free within {limit:?}")]
pub struct NoPermit {
    /// The holder of the permits: a controller.
    pub holder: &'static str,
    /// The number of its permits.
    pub permits: usize,
    /// The time that the request waited.
    pub limit: Duration,
}

/// The permits that the requests of a client need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) holder: &'static str,
    pub(super) permits: usize,
    /// True if each request also needs one of the permits of the process.
    within_process: bool,
}

impl Budget {
    /// At most `permits` requests, which count towards the limit of the process.
    pub(super) fn within_process(holder: &'static str, permits: usize) -> Self {
        Self {
            holder,
            permits,
            within_process: true,
        }
    }

    /// At most `permits` requests beside those that the process allows to everybody else.
    pub(super) fn beside(holder: &'static str, permits: usize) -> Self {
        Self {
            holder,
            permits,
            within_process: false,
        }
    }
}

/// The permits of one client.
#[derive(Debug)]
pub(super) struct Permits {
    budget: Budget,
    own: Semaphore,
    process: Option<Arc<Semaphore>>,
}

/// The permits of one request while it is under way.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    _own: SemaphorePermit<'a>,
    _process: Option<SemaphorePermit<'a>>,
}

impl Permits {
    pub(super) fn new(budget: Budget, process: &Arc<Semaphore>) -> Self {
        Self {
            budget,
            own: Semaphore::new(budget.permits),
            process: budget.within_process.then(|| Arc::clone(process)),
        }
    }

    /// True if a write of this client keeps the Lease from being released until it is answered. A late Event harms
    /// nobody.
    pub(super) fn delay_release(&self) -> bool {
        self.budget.within_process
    }

    /// Waits for a permit: first for one of its own, so that no more of its requests than it has permits wait for those
    /// of the process, which are given in order of arrival.
    pub(super) async fn acquire(&self) -> Result<Permit<'_>, AcquireError> {
        let own = self.own.acquire().await?;
        let process = match &self.process {
            Some(process) => Some(process.acquire().await?),
            None => None,
        };
        Ok(Permit {
            _own: own,
            _process: process,
        })
    }

    pub(super) fn missed(&self, limit: Duration) -> NoPermit {
        NoPermit {
            holder: self.budget.holder,
            permits: self.budget.permits,
            limit,
        }
    }
}
