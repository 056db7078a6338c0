//! The memory of the bodies of known callers' requests in progress, reserved before anything of a body is read. No
//! caller and no organization has more than a part of it, so that none can have others wait.

use std::sync::Arc;

use tidewaiter_kit::Clock;
use tidewaiter_kit::clock::timeout;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::permits::{CALLER_WAIT, Keyed, WAIT};
use crate::server::refusal::Refusal;

/// The unit of a reservation, in bytes.
const UNIT: usize = 1024;
/// The bytes that a tree of values takes for each byte of its JSON, roughly: more than any ordinary body needs.
const EXPANSION: usize = 16;
/// The units of all requests in progress, of the callers of one organization, and of one caller.
const ALL: usize = 128 * 1024;
const ORGANIZATION: usize = 32 * 1024;
const CALLER: usize = 24 * 1024;

/// The memory for request bodies in progress, by organization and caller.
#[derive(Debug)]
pub(crate) struct Budget {
    all: Arc<Semaphore>,
    by_organization: Keyed<String>,
    by_caller: Keyed<String>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(ALL)),
            by_organization: Keyed::new(ORGANIZATION, CALLER_WAIT),
            by_caller: Keyed::new(CALLER, CALLER_WAIT),
        }
    }
}

/// A reservation, until it is dropped.
pub(crate) struct Reserved {
    _permits: [OwnedSemaphorePermit; 3],
}

impl Budget {
    /// Reserves the memory for a body of `bytes` and for what is made of it, as soon as there is enough of it. One that
    /// needs more than a caller may have takes all of that.
    pub(crate) async fn reserve(
        &self,
        clock: &dyn Clock,
        (caller, organization): &(String, String),
        bytes: usize,
    ) -> Result<Reserved, Refusal> {
        let units = bytes.saturating_mul(EXPANSION).div_ceil(UNIT).clamp(1, CALLER);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let of_caller = self.by_caller.wait_for(clock, caller, units).await;
        let of_caller = of_caller.map_err(|_| exceeded("this caller"))?;
        let of_organization = self.by_organization.wait_for(clock, organization, units).await;
        let of_organization = of_organization.map_err(|_| exceeded("its organization"))?;
        let of_all = timeout(clock, WAIT, Arc::clone(&self.all).acquire_many_owned(units)).await;
        let of_all = of_all.ok().and_then(Result::ok);
        let of_all = of_all.ok_or_else(|| exceeded("all callers"))?;
        Ok(Reserved {
            _permits: [of_caller, of_organization, of_all],
        })
    }
}

fn exceeded(whose: &str) -> Refusal {
    let message = format!(
        "the bodies of the requests in progress of {whose} are too large together: try again when some have ended"
    );
    Refusal::too_many(message, 1)
}
