//! The memory of the responses that are built or sent, in all and for each organization.
//!
//! A slow reader holds its response in memory, and each connection can have one, so the limits of requests do not bound
//! them. A request holds a part of the budget before anything is read for it, more while its response grows, and
//! exactly the size of the response until its last byte is written. A cached response counts while it is sent, once for
//! all who receive it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::response::Response;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde::Serialize;
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::clock::timeout;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::call::Call;
use super::permits::{CALLER_WAIT, Keyed};
use crate::server::Error;
use crate::server::digest::GrowingEtag;
use crate::server::refusal::Refusal;
use crate::server::store::READERS;

const MIB: usize = 1024 * 1024;
/// The maximum size of all responses, in bytes, besides those that are only cached.
const ALL: usize = 192 * MIB;
/// The maximum size of those for one organization. The list of 100,000 nodes fits, and two of the largest manifests.
const EACH: usize = ALL / 3;
/// The maximum size of one response: besides it, the request holds its first parts.
const LARGEST: usize = EACH - MIB;
/// The part that each request holds until the size of its response is known.
const FIRST: usize = 64 * 1024;
/// The steps in which a growing list takes more.
const STEP: usize = 256 * 1024;
/// The number of lists that are read concurrently for one organization: half of the connections that read, so that the
/// requests of others do not wait for all of its lists.
const LISTS: usize = READERS as usize / 2;
/// The time that a request waits for its part.
const WAIT: Duration = Duration::from_secs(1);

/// The unit of the semaphores is a KiB.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

pub(crate) struct ResponseBudget {
    clock: SharedClock,
    all: Arc<Semaphore>,
    of_each: Keyed<String>,
    lists: Keyed<String>,
}

/// A part of the budget.
#[derive(Debug)]
pub(crate) struct Held {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

fn too_large() -> Refusal {
    let message = format!(
        "the response would have more than {} MiB, the maximum: ask for a list in pages, with limit",
        LARGEST / MIB
    );
    Refusal::new(StatusCode::INSUFFICIENT_STORAGE, message)
}

/// The refusal while the responses `to` somebody take all of their part.
fn full(to: &str, part: &str, status: StatusCode) -> Refusal {
    let message = format!("the responses {to} that are not yet received have {part}: try again in 1 second");
    Refusal::too_many(message, 1).with_status(status)
}

fn own_are_full() -> Refusal {
    let part = format!("{} MiB, the maximum", EACH / MIB);
    full("to this organization", &part, StatusCode::TOO_MANY_REQUESTS)
}

fn all_are_full() -> Refusal {
    let part = format!("{} MiB, the maximum", ALL / MIB);
    full("of this server", &part, StatusCode::SERVICE_UNAVAILABLE)
}

/// Refuses an organization that would hold more than it leaves for all others: so some that do not read leave a part
/// for each that does.
fn check_share(own: &Semaphore, all: &Semaphore) -> Result<(), Refusal> {
    let held = EACH / 1024 - own.available_permits();
    if held <= all.available_permits() {
        Ok(())
    } else {
        let part = "more than what they leave for all others";
        Err(full("to this organization", part, StatusCode::TOO_MANY_REQUESTS))
    }
}

impl ResponseBudget {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            all: Arc::new(Semaphore::new(ALL / 1024)),
            of_each: Keyed::new(EACH / 1024, WAIT),
            lists: Keyed::new(LISTS, CALLER_WAIT),
        }
    }

    /// A part of the budget of `owner`, an organization or a caller without one, if it is free within a second.
    async fn hold_for(&self, owner: &str, bytes: usize) -> Result<Held, Refusal> {
        let clock = &*self.clock;
        if bytes > LARGEST {
            return Err(too_large());
        }
        let own = self.of_each.wait_for(clock, &owner.to_owned(), units(bytes)).await;
        let own = own.map_err(|_| own_are_full())?;
        let all = timeout(clock, WAIT, Arc::clone(&self.all).acquire_many_owned(units(bytes))).await;
        let all = all.ok().and_then(Result::ok).ok_or_else(all_are_full)?;
        check_share(own.semaphore(), &self.all)?;
        Ok(Held { own, all })
    }

    /// The part of the budget with which a request begins.
    pub(crate) async fn hold_first(&self, call: &Call) -> Result<Held, Refusal> {
        self.hold(call, FIRST).await
    }

    /// A part of the budget for the response to `call`.
    pub(crate) async fn hold(&self, call: &Call, bytes: usize) -> Result<Held, Refusal> {
        self.hold_for(&call.by().queue, bytes).await
    }

    /// The response, whose body holds its part of the budget until it is sent: its own, or `first`. A write is done, so
    /// its response is sent in any case.
    pub(crate) async fn sent(&self, call: &Call, mut response: Response, first: Held) -> Result<Response, Error> {
        let Some(size) = size(&response) else {
            return Ok(response);
        };
        let own = response.extensions_mut().remove::<Arc<Held>>();
        let held = if let Some(held) = own {
            held
        } else {
            let mut held = first;
            if held.resize(size).is_err() && call.endpoint.method == Method::GET {
                drop(held);
                held = self.hold(call, size).await?;
            }
            Arc::new(held)
        };
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map_err(Error::internal)?.to_bytes();
        let body = Body::from(Bytes::from_owner(Sent { bytes, _held: held }));
        Ok(Response::from_parts(parts, body))
    }
}

impl Held {
    /// Makes it a part of at least `bytes`.
    pub(crate) fn enlarge(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes <= self.own.num_permits() * 1024 {
            return Ok(());
        }
        self.resize(bytes.next_multiple_of(STEP).min(LARGEST.max(bytes)))
    }

    /// Makes it a part of `bytes`. It does not wait for more: two that wait for each other would both wait in vain.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > LARGEST {
            return Err(too_large());
        }
        let (has, needs) = (self.own.num_permits(), bytes.div_ceil(1024));
        if needs <= has {
            drop((self.own.split(has - needs), self.all.split(has - needs)));
            return Ok(());
        }
        let more = |permit: &OwnedSemaphorePermit| {
            Arc::clone(permit.semaphore()).try_acquire_many_owned(units(bytes) - units(has * 1024))
        };
        let own = more(&self.own).map_err(|_| own_are_full())?;
        let all = more(&self.all).map_err(|_| all_are_full())?;
        check_share(own.semaphore(), all.semaphore())?;
        self.own.merge(own);
        self.all.merge(all);
        Ok(())
    }
}

/// The size of the body; `None` for a stream.
fn size(response: &Response) -> Option<usize> {
    response.body().size_hint().exact()?.try_into().ok()
}

/// Gives the response its part of the budget, of which it keeps its size.
pub(crate) fn holding(mut response: Response, mut held: Held) -> Response {
    if let Some(size) = size(&response) {
        // It is at least the size, except for a write, which is sent in any case.
        let _ = held.resize(size);
    }
    response.extensions_mut().insert(Arc::new(held));
    response
}

/// As [`holding`], for responses of which only some need a part of the budget.
pub(crate) fn with_held(response: Response, held: Option<Held>) -> Response {
    match held {
        Some(held) => holding(response, held),
        None => response,
    }
}

/// A body, or what is left of it.
struct Sent {
    bytes: Bytes,
    _held: Arc<Held>,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The text of a list, which grows item by item.
pub(crate) struct Items {
    text: Vec<u8>,
    etag: GrowingEtag,
    held: Held,
    /// The permit to read, of the organization.
    _reading: OwnedSemaphorePermit,
}

impl Items {
    pub(crate) async fn begin(budget: &ResponseBudget, call: &Call) -> Result<Self, Refusal> {
        let reading = budget.lists.wait(&*budget.clock, &call.by().queue).await?;
        let mut etag = GrowingEtag::default();
        etag.add(b"[");
        Ok(Self {
            text: vec![b'['],
            etag,
            held: budget.hold_first(call).await?,
            _reading: reading,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn push(&mut self, item: &impl Serialize) -> Result<(), Error> {
        let before = self.text.len();
        if before > 1 {
            self.text.push(b',');
        }
        serde_json::to_writer(&mut self.text, item).map_err(Error::internal)?;
        self.etag.add(&self.text[before..]);
        Ok(self.held.enlarge(self.text.len())?)
    }

    /// The whole text and its ETag, with the part of the budget that it needs.
    pub(crate) fn end(mut self) -> Result<((Bytes, String), Held), Refusal> {
        self.text.push(b']');
        self.etag.add(b"]");
        self.text.shrink_to_fit();
        self.held.resize(self.text.len())?;
        Ok(((Bytes::from(self.text), self.etag.end()), self.held))
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::SystemClock;

    use super::*;

    #[tokio::test]
    async fn organizations_that_do_not_read_leave_a_part_for_others() {
        let budget = ResponseBudget::new(SystemClock::shared());
        let take = async |owner: &str, mib: usize, grows: bool| {
            let first = if grows { FIRST } else { mib * MIB };
            let mut part = budget.hold_for(owner, first).await?;
            part.resize(mib * MIB)?;
            Ok::<_, Refusal>(part)
        };
        let mut held = Vec::new();
        for attacker in 0..12 {
            let owner = attacker.to_string();
            for mib in [32, 16, 8, 4, 2, 1] {
                // A part that is not free would only make the test wait.
                if mib * 1024 <= budget.all.available_permits() {
                    held.extend(take(&owner, mib, attacker % 2 == 0).await);
                }
            }
        }
        let mut own = budget.hold_for("honest", FIRST).await.unwrap();
        own.resize(2 * FIRST).unwrap();
        let taken: usize = held.iter().map(|held| held.all.num_permits()).sum();
        assert!(taken > ALL / 1024 / 2, "{taken}");
        for grows in [false, true] {
            let refused = take("another", 8, grows).await.unwrap_err();
            assert_ne!(refused.status, StatusCode::INSUFFICIENT_STORAGE);
        }
    }

    #[tokio::test]
    async fn a_response_that_is_too_large_is_not_told_to_come_again() {
        let budget = ResponseBudget::new(SystemClock::shared());
        let _first = budget.hold_for("acme", FIRST).await.unwrap();
        let mut held = budget.hold_for("acme", FIRST).await.unwrap();
        held.enlarge(LARGEST - 1).unwrap();
        held.enlarge(LARGEST).unwrap();
        let refused = held.enlarge(LARGEST + 1).unwrap_err();
        assert_eq!(refused.status, StatusCode::INSUFFICIENT_STORAGE);
    }
}
