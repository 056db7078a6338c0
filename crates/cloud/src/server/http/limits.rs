//! The limits of requests: their rate, how many are in progress, and how many change streams are open, each by caller.
//! A request without a known caller counts for its address, and has permits of its own, so that it takes none from
//! others.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tidewaiter_kit::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::body_budget::Budget;
use super::client_address::TrustedProxies;
use super::permits::{CALLER_WAIT, KEYS, Keyed, WAIT, too_soon, wait};
use super::unauthenticated_bodies::UnauthenticatedBodies;
use crate::server::Error;
use crate::server::refusal::Refusal;
use crate::server::store::READERS;

/// The maximum number of passwords that are hashed concurrently: each takes 19 MiB and a core for a while.
const HASHES: usize = 2;
/// The number of passwords that are hashed or wait for it.
const HASH_QUEUE: usize = 32;
/// The part of the queue for callers who proved before who they are.
const HASH_RESERVE: usize = 8;
/// The passwords of one account, or that one caller sets, which are in the queue.
const HASHES_BY_CALLER: usize = 2;
/// The passwords of all callers of one organization that are in the queue.
const HASHES_BY_ORGANIZATION: usize = 8;
/// The number of requests without a known caller in progress. More than the queue of hashes, so that a flood of logins
/// does not delay the first request of a cluster.
const UNAUTHENTICATED: usize = 64;
/// The number of requests without a known caller in progress for one address.
const UNAUTHENTICATED_BY_ADDRESS: usize = 16;
/// The requests per second of one address for the description of the API, which is large and public. Bursts have
/// [`TEN`] times as many.
const DESCRIPTIONS: NonZeroU32 = NonZeroU32::MIN;
/// The minimum time between two requests of a program that waits for a person; it is told to wait for a little longer.
const POLL: Duration = Duration::from_secs(4);
/// One caller has at most this part of all permits.
const PART: usize = 4;
/// The callers of one organization have at most this part: an admin can create any number of callers.
const ORGANIZATION_PART: usize = 2;
/// The number of callers that are looked up concurrently, on half of the connections that read.
const LOOKUPS: usize = READERS as usize / 2;
/// The number of change streams that are opened concurrently, and for one organization. Thousands of clusters open
/// theirs after a restart, and other requests always find a connection that reads.
const OPENINGS: usize = READERS as usize / 4;
const OPENINGS_BY_ORGANIZATION: usize = 1;
#[derive(Clone, Debug)]
pub struct LimitSettings {
    /// The maximum number of requests per second of one caller, with bursts of ten times as many.
    pub requests_a_second: NonZeroU32,
    /// The maximum number of concurrent requests.
    pub requests_at_once: usize,
    /// The maximum number of open change streams of one caller.
    pub streams: usize,
    /// The proxies whose `Forwarded` or `X-Forwarded-For` header names the client.
    pub proxies: TrustedProxies,
}

/// The limits of a server.
#[derive(Debug)]
pub struct Limits {
    callers: DefaultKeyedRateLimiter<String>,
    unauthenticated: DefaultKeyedRateLimiter<IpAddr>,
    descriptions: DefaultKeyedRateLimiter<IpAddr>,
    /// The requests of programs that wait for a person, by the digest of their code.
    polls: DefaultKeyedRateLimiter<String>,
    clock: DefaultClock,
    /// The permits for the concurrent requests of known callers, and of each.
    permits: Semaphore,
    by_caller: Keyed<String>,
    by_organization: Keyed<String>,
    /// The permits for the other concurrent requests, and of each address.
    unauthenticated_permits: Semaphore,
    by_address: Keyed<IpAddr>,
    /// The permits to look up a known caller.
    lookups: Semaphore,
    streams: Keyed<String>,
    /// The permits to open a change stream, and of each organization.
    openings: Semaphore,
    openings_by_organization: Keyed<String>,
    hashes: Arc<Semaphore>,
    /// The permits that callers who are not proven need first, so that a proven caller waits for no more of them than
    /// are hashed concurrently.
    unproven_hashes: Arc<Semaphore>,
    hash_queue: Arc<Semaphore>,
    hashes_by_caller: Keyed<String>,
    hashes_by_organization: Keyed<String>,
    /// The memory of bodies of known callers.
    pub(crate) budget: Budget,
    /// The bodies of others.
    pub(crate) unauthenticated_bodies: UnauthenticatedBodies,
    pub(crate) proxies: TrustedProxies,
}

/// The number of passwords that are hashed concurrently: they leave half of the cores to other requests.
fn hashes() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    (cores / 2).clamp(1, HASHES)
}

impl Limits {
    /// No request has been made so far.
    #[must_use]
    pub fn new(settings: LimitSettings) -> Self {
        let (requests_a_second, requests_at_once) = (settings.requests_a_second, settings.requests_at_once);
        let quota = |second: NonZeroU32| Quota::per_second(second).allow_burst(second.saturating_mul(TEN));
        Self {
            callers: RateLimiter::keyed(quota(requests_a_second)),
            unauthenticated: RateLimiter::keyed(quota(requests_a_second)),
            descriptions: RateLimiter::keyed(quota(DESCRIPTIONS)),
            polls: RateLimiter::keyed(Quota::with_period(POLL).unwrap_or(quota(NonZeroU32::MIN))),
            clock: DefaultClock::default(),
            permits: Semaphore::new(requests_at_once),
            by_caller: Keyed::new((requests_at_once / PART).max(1), CALLER_WAIT),
            by_organization: Keyed::new((requests_at_once / ORGANIZATION_PART).max(1), CALLER_WAIT),
            unauthenticated_permits: Semaphore::new(requests_at_once.min(UNAUTHENTICATED)),
            by_address: Keyed::new(UNAUTHENTICATED_BY_ADDRESS, WAIT),
            lookups: Semaphore::new(LOOKUPS),
            streams: Keyed::new(settings.streams, Duration::ZERO),
            openings: Semaphore::new(OPENINGS),
            openings_by_organization: Keyed::new(OPENINGS_BY_ORGANIZATION, CALLER_WAIT),
            hashes: Arc::new(Semaphore::new(hashes())),
            unproven_hashes: Arc::new(Semaphore::new(hashes())),
            hash_queue: Arc::new(Semaphore::new(HASH_QUEUE)),
            hashes_by_caller: Keyed::new(HASHES_BY_CALLER, CALLER_WAIT),
            hashes_by_organization: Keyed::new(HASHES_BY_ORGANIZATION, CALLER_WAIT),
            budget: Budget::default(),
            unauthenticated_bodies: UnauthenticatedBodies::default(),
            proxies: settings.proxies,
        }
    }

    /// Counts a request of the caller `actor`, and waits until the caller has few enough others in progress.
    pub(crate) async fn caller(&self, clock: &dyn Clock, actor: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        let actor = actor.to_owned();
        self.count(&self.callers, &actor)?;
        self.by_caller.wait(clock, &actor).await
    }

    /// Counts a request without a valid token, by the address of its client.
    pub(crate) fn count_failed_token(&self, client: IpAddr) -> Result<(), Refusal> {
        self.count(&self.unauthenticated, &client)
    }

    /// Counts a request for the description of the API.
    pub(crate) fn description(&self, client: IpAddr) -> Result<(), Refusal> {
        self.count(&self.descriptions, &client)
    }

    /// Returns true if a program that waits for a person asks sooner than it may.
    pub(crate) fn polls_too_soon(&self, digest: &str) -> bool {
        self.count(&self.polls, &digest.to_owned()).is_err()
    }

    /// Counts a request for which no caller has to be known, and waits until its address has few enough others in
    /// progress.
    pub(crate) async fn wait_for_unauthenticated_quota(
        &self,
        clock: &dyn Clock,
        client: IpAddr,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        self.count_failed_token(client)?;
        self.by_address.wait(clock, &client).await
    }

    /// Waits until the callers of `organization` have few enough other requests in progress.
    pub(crate) async fn organization(
        &self,
        clock: &dyn Clock,
        organization: &str,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        self.by_organization.wait(clock, &organization.to_owned()).await
    }

    /// The permit to handle one request of a known caller, if there is one within [`WAIT`].
    pub(crate) async fn permit(&self, clock: &dyn Clock) -> Option<SemaphorePermit<'_>> {
        wait(clock, WAIT, &self.permits).await
    }

    /// The permit to handle one request, or to look up one caller, without a known caller.
    pub(crate) async fn unauthenticated_permit(&self, clock: &dyn Clock) -> Option<SemaphorePermit<'_>> {
        wait(clock, WAIT, &self.unauthenticated_permits).await
    }

    /// The permit to look up a caller who proves something, if there is one within [`CALLER_WAIT`].
    pub(crate) async fn lookup(&self, clock: &dyn Clock) -> Option<SemaphorePermit<'_>> {
        wait(clock, CALLER_WAIT, &self.lookups).await
    }

    /// The turn of a change stream of `organization`. Organizations take turns, because only one stream of each waits
    /// for the permit to open it.
    pub(crate) async fn turn(&self, clock: &dyn Clock, organization: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        self.openings_by_organization
            .wait(clock, &organization.to_owned())
            .await
    }

    /// The permit to open one change stream, if there is one within [`CALLER_WAIT`].
    pub(crate) async fn opening(&self, clock: &dyn Clock) -> Option<SemaphorePermit<'_>> {
        wait(clock, CALLER_WAIT, &self.openings).await
    }

    /// The permit for one open change stream of `actor`.
    pub(crate) fn stream(&self, actor: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        let permits = self.streams.of(&actor.to_owned());
        permits.try_acquire_owned().map_err(|_| {
            let limit = self.streams.limit;
            let message = format!(
                "you already have {limit} open change streams: close one, or ask the operator of the server to raise streamsPerCaller"
            );
            Refusal::too_many(message, 1)
        })
    }

    /// Hashes a password with `work`, on a separate thread because it takes a core for a while, for `caller` of
    /// `organization` (empty if that is unknown). First waits until few enough others of both are in the queue, and
    /// then refuses at once when many wait already. A part of the queue is for `proven` callers.
    ///
    /// A caller that leaves frees nothing before the work has ended: it is not interrupted.
    pub(crate) async fn hashed<T: Send + 'static>(
        &self,
        clock: &dyn Clock,
        (caller, organization, proven): (String, String, bool),
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let of_caller = self.hashes_by_caller.wait(clock, &caller).await?;
        let of_organization = match &*organization {
            "" => None,
            _ => Some(self.hashes_by_organization.wait(clock, &organization).await?),
        };
        let reserved = if proven { 0 } else { HASH_RESERVE };
        if self.hash_queue.available_permits() <= reserved {
            return Err(too_soon(1).into());
        }
        let in_queue = Arc::clone(&self.hash_queue).try_acquire_owned();
        let in_queue = in_queue.map_err(|_| too_soon(1))?;
        let first = if proven {
            None
        } else {
            let first = Arc::clone(&self.unproven_hashes).acquire_owned().await;
            Some(first.map_err(|_| too_soon(1))?)
        };
        let on_core = Arc::clone(&self.hashes).acquire_owned().await;
        let on_core = on_core.map_err(|_| too_soon(1))?;
        let worked = tokio::task::spawn_blocking(move || {
            let _permits = (of_caller, of_organization, in_queue, first, on_core);
            work()
        });
        worked.await.map_err(Error::internal)?
    }

    fn count<K: Clone + Eq + Hash>(&self, limiter: &DefaultKeyedRateLimiter<K>, key: &K) -> Result<(), Refusal> {
        if limiter.len() > KEYS {
            limiter.retain_recent();
        }
        limiter.check_key(key).map_err(|not_until| {
            let wait = not_until.wait_time_from(self.clock.now());
            too_soon(wait.as_secs() + 1)
        })
    }
}

const TEN: NonZeroU32 = match NonZeroU32::new(10) {
    Some(ten) => ten,
    None => NonZeroU32::MIN,
};

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt as _;
    use futures::executor::block_on;
    use futures::future::join_all;
    use parking_lot::Mutex;
    use tidewaiter_kit::SystemClock;

    use super::*;

    fn settings() -> LimitSettings {
        LimitSettings {
            requests_a_second: NonZeroU32::MIN,
            requests_at_once: 1,
            streams: 1,
            proxies: TrustedProxies::default(),
        }
    }

    fn limits() -> Limits {
        Limits::new(settings())
    }

    #[tokio::test]
    async fn organizations_take_turns_to_open_streams() {
        let limits = limits();
        let open = async |organization| {
            let turn = limits.turn(&SystemClock, organization).await.unwrap();
            (turn, limits.opening(&SystemClock).await.unwrap())
        };
        let first = open("a").await;
        let mut again = Box::pin(open("a"));
        assert!(futures::poll!(&mut again).is_pending(), "one of each organization");
        let _second = open("b").await;
        let mut third = Box::pin(open("c"));
        assert!(futures::poll!(&mut third).is_pending(), "two of all");
        drop(first);
        let _third = third.await;
    }

    #[tokio::test]
    async fn one_organization_has_a_part_of_the_queue() {
        let limits = limits();
        let gate = Arc::new(Semaphore::new(0));
        let work = || {
            let gate = Arc::clone(&gate);
            move || {
                let _ = block_on(gate.acquire());
                Ok(())
            }
        };
        let of_acme = (0..10).map(|caller| (format!("user:{caller}"), "acme".to_owned(), true));
        let other = ("user:11".to_owned(), "other".to_owned(), true);
        let shares = of_acme.chain([other]);
        let mut hashes: Vec<_> = shares
            .map(|share| Box::pin(limits.hashed(&SystemClock, share, work())))
            .collect();
        for hash in &mut hashes {
            assert!(futures::poll!(hash).is_pending());
        }
        let waiting = HASH_QUEUE - limits.hash_queue.available_permits();
        gate.close();
        for hashed in join_all(hashes).await {
            hashed.unwrap();
        }
        assert_eq!(waiting, HASHES_BY_ORGANIZATION + 1);
    }

    #[tokio::test]
    async fn one_organization_has_half_of_the_permits_however_many_callers_it_has() {
        let limits = Limits::new(LimitSettings {
            requests_at_once: 8,
            ..settings()
        });
        let mut of_acme = Vec::new();
        for _ in 0..4 {
            of_acme.push(limits.organization(&SystemClock, "acme").await.unwrap());
        }
        let fifth = limits.organization(&SystemClock, "acme").boxed();
        assert!(futures::poll!(fifth).is_pending());
        drop(limits.organization(&SystemClock, "other").await.unwrap());
    }

    #[tokio::test]
    async fn a_proven_caller_overtakes_those_who_are_not() {
        let limits = limits();
        let (order, gate) = (Mutex::new(Vec::new()), Arc::new(Semaphore::new(0)));
        let hash = async |caller: usize, proven| {
            let share = (format!("address:{caller}"), String::new(), proven);
            let gate = Arc::clone(&gate);
            let work = move || {
                let _ = block_on(gate.acquire());
                Ok(())
            };
            limits.hashed(&SystemClock, share, work).await.unwrap();
            order.lock().push(proven);
        };
        let mut hashes: Vec<_> = (0..=10).map(|caller| Box::pin(hash(caller, caller == 10))).collect();
        for hash in &mut hashes {
            assert!(futures::poll!(hash).is_pending());
        }
        gate.close();
        join_all(hashes).await;
        let place = order.into_inner().into_iter().position(|proven| proven);
        assert!(place.is_some_and(|place| place <= 2 * super::hashes()), "{place:?}");
    }

    #[tokio::test]
    async fn a_caller_that_leaves_makes_no_room_for_another_hash() {
        let limits = limits();
        let (running, mut is_running) = tokio::sync::mpsc::unbounded_channel();
        let (release, held) = mpsc::channel::<()>();
        let work = move || {
            running.send(()).unwrap();
            held.recv().unwrap();
            Ok(())
        };
        let share = ("user:1".to_owned(), "acme".to_owned(), true);
        tokio::select! {
            biased;
            _ = limits.hashed(&SystemClock, share, work) => panic!("it ended"),
            _ = is_running.recv() => {}
        }
        assert_eq!(limits.hashes.available_permits(), hashes() - 1);
        release.send(()).unwrap();
        let all = u32::try_from(hashes()).unwrap();
        drop(limits.hashes.acquire_many(all).await.unwrap());
    }
}
