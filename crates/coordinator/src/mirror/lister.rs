//! One loop for each kind that asks the cloud what there should be.
//!
//! It asks when the change stream names the kind, and otherwise polls with jitter. A response that cannot be used changes nothing: the last
//! complete one stays. Only the leader asks, and not while everything that the coordinator manages is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{Resource as _, ResourceExt as _};
use tidewaiter_cloud::client::{Client, ClientError, Cluster, ETag, Fetched, Path};
use tidewaiter_cloud::models::NodePool;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::{Cache, Chain, Key, Leadership, Pause, Queue, SharedClock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::board::{Board, Contents};
use super::cloud_list::Specs;
use super::kind::{Listed, MirroredKind, Refused, Source};
use super::listing::{Foreign, Listing, Part};
use super::shared::{Known, Shared};
use super::stored::StoredList;
use crate::explained::{explained, silent};
use crate::retries::Retries;

/// Spreads the polls of many clusters.
const JITTER: f64 = 0.1;

/// While nothing is wrong, every kind is listed again after this many sync intervals, in case the change stream lost an event. The stream
/// itself polls at each interval while it is interrupted.
const QUIET_INTERVALS: u32 = 5;

/// The pause after a list that the change stream caused. A poll has no pause after it, because the next change would have to wait.
const REST: Duration = Duration::from_millis(500);

/// The first list does not wait longer than this for the change stream.
const FIRST: Duration = Duration::from_secs(2);

/// One request is retried silently for this long. What fails longer is reported, and retried by the loop.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// A request without a complete response for this long is reported in `CloudSync`, while it is still awaited.
const SILENCE: Duration = Duration::from_secs(5);

/// The number of lists that follow one that deletes something or is held. Each waits twice as long as the one before, beginning with
/// [`FIRST_RECHECK`], and at most one sync interval: two and a half minutes in all, as long as a list is due without that.
const RECHECKS: u32 = 8;
const FIRST_RECHECK: Duration = Duration::from_secs(1);

/// Lists that are requested at once.
const AT_ONCE: usize = 8;

/// Why a kind could not be listed.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(transparent)]
    Cloud(#[from] ClientError),
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// Without the list of the process before, a forged object cannot be told from one of the cloud.
    #[error("the list that the coordinator stored last cannot be read from its Secrets")]
    Stored(#[from] kube::Error),
}

impl ListError {
    fn class(&self) -> &'static str {
        match self {
            Self::Cloud(error) => error.class(),
            Self::Foreign(_) => "foreign",
            Self::Stored(_) => "stored",
        }
    }

    /// The error and its remedy, without the request: the kind says what was requested.
    fn explained(&self, client: &Client) -> String {
        match self {
            Self::Cloud(error) => explained(error, client),
            Self::Foreign(_) | Self::Stored(_) => Chain(self).to_string(),
        }
    }

    fn retry_after(&self) -> Duration {
        match self {
            Self::Cloud(error) => error.retry_after().unwrap_or_default(),
            Self::Foreign(_) | Self::Stored(_) => Duration::ZERO,
        }
    }
}

/// When the cloud is asked next, if nothing changes.
#[derive(Clone, Copy)]
enum Poll {
    First,
    /// Soon, for the given time, because the last list deleted something or is held.
    Recheck(u32),
    /// After [`QUIET_INTERVALS`], or after one interval while the brake holds something.
    Regularly,
}

/// The cloud of one cluster.
#[derive(Clone, Debug)]
pub(super) struct Cloud {
    pub(super) client: Client,
    pub(super) cluster: Cluster,
    /// The sync interval.
    pub(super) interval: Duration,
}

/// The loop of one kind.
pub(super) struct Lister<K: MirroredKind> {
    pub(super) cloud: Cloud,
    pub(super) cache: Cache<K::Resource>,
    pub(super) shared: Arc<Shared<K>>,
    pub(super) stored: Arc<StoredList<K::Resource>>,
    pub(super) asked: Arc<Notify>,
    pub(super) queue: Queue,
    pub(super) board: Board,
    pub(super) pause: Pause,
    pub(super) clock: SharedClock,
    pub(super) memory: Memory<K::Resource>,
    /// Whether the cloud's record of deletions could not be read the last time.
    pub(super) unread: AtomicBool,
}

/// The last complete responses.
pub(super) struct Memory<R> {
    pools: Pools,
    /// By path.
    parts: BTreeMap<String, Arc<Part<R>>>,
}

/// The node pools, if the kind is listed for each of them.
#[derive(Clone, Default)]
struct Pools {
    etag: Option<ETag>,
    /// The well-formed ones.
    well_formed: Vec<NodePool>,
    /// The malformed ones. What they have is not known, so nothing that is missing is known to be gone.
    refused: Vec<Refused>,
}

impl<R> Default for Memory<R> {
    fn default() -> Self {
        Self {
            pools: Pools::default(),
            parts: BTreeMap::new(),
        }
    }
}

impl<K: MirroredKind> Lister<K> {
    /// # Errors
    /// Never: a supervised task needs an error type.
    pub(super) async fn run(self, leadership: Leadership, shutdown: CancellationToken) -> Result<(), Infallible> {
        let listing = async {
            leadership.acquired().await;
            self.follow().await;
        };
        shutdown.run_until_cancelled(listing).await;
        Ok(())
    }

    /// Lists the kind again and again.
    async fn follow(mut self) -> Infallible {
        self.board.started(K::NAME);
        let (mut poll, mut failed) = (Poll::First, false);
        let mut retries = Retries::new(&self.cloud.client, self.cloud.interval, self.clock.clone());
        loop {
            let named = tokio::select! {
                biased;
                () = self.asked.notified() => true,
                () = self.shared.doubted.notified() => {
                    poll = Poll::Recheck(0);
                    continue;
                }
                // What failed waited already.
                () = async { if !failed { self.due(poll).await } } => false,
            };
            if self.pause.is_paused() {
                self.pause.until(false).await;
                self.board.started(K::NAME);
                // A termination has removed it.
                self.stored.forget();
            }
            retries.begin();
            let listed = self.list().await;
            failed = listed.is_err();
            match listed {
                Ok(()) => {
                    poll = match poll {
                        Poll::Recheck(times) if times < RECHECKS => Poll::Recheck(times + 1),
                        _ => Poll::Regularly,
                    };
                    retries.succeeded();
                    if named {
                        self.clock.sleep(REST).await;
                    }
                }
                Err(asked) => {
                    self.recall().await;
                    retries.failed(asked).await;
                }
            }
        }
    }

    /// The cloud does not answer. If it has not done so since the start, takes what an earlier process stored for what
    /// it lists: not before, because a process that was killed may have stored less than it applied.
    async fn recall(&self) {
        if !self.shared.list.is_unread() {
            return;
        }
        // An error is that of the request, which is tried again.
        if let Ok(stored) = self.stored().await {
            self.shared.recall(stored);
            self.queue.push(super::key());
        }
    }

    /// What an earlier process stored.
    async fn stored(&self) -> Result<Option<Arc<Specs<K::Resource>>>, kube::Error> {
        if K::STORED { self.stored.read().await } else { Ok(None) }
    }

    /// The time of the next poll. Whether something is held is known only after the response was compared with the cluster.
    async fn due(&self, poll: Poll) {
        let wait = match poll {
            Poll::First => Some(FIRST),
            Poll::Recheck(times) => Some((FIRST_RECHECK * (1 << times)).min(self.cloud.interval)),
            Poll::Regularly => None,
        };
        if let Some(wait) = wait {
            return self.clock.sleep(wait).await;
        }
        for _ in 0..QUIET_INTERVALS {
            let interval = self.cloud.interval;
            // Not before the interval is over: the same response must confirm what is held.
            self.clock.sleep(jittered(interval, JITTER).max(interval)).await;
            if self.board.is_held(K::NAME) {
                return;
            }
        }
    }

    /// Asks the cloud once. Fails with the pause that the cloud asks for.
    async fn list(&mut self) -> Result<(), Duration> {
        match self.fetch().await {
            Ok(changed) => {
                self.accept(changed).await;
                Ok(())
            }
            Err(error) => {
                let text = error.explained(&self.cloud.client);
                if self.board.failed(K::NAME, error.class(), &text) {
                    warn!(
                        kind = K::NAME,
                        error = text,
                        "the cloud's list cannot be used; the last one stays"
                    );
                }
                Err(error.retry_after())
            }
        }
    }

    async fn accept(&self, changed: bool) {
        let confirmed = self.clock.monotonic();
        if changed {
            let listing = Listing::of(
                K::NAME,
                self.memory.parts.values().map(|part| &**part),
                self.memory.pools.refused.clone(),
            );
            let contents = Contents {
                revision: listing.revision.clone(),
                objects: listing.desired.len(),
                refused: listing.refused.clone(),
            };
            debug!(
                kind = K::NAME,
                revision = contents.revision,
                objects = contents.objects,
                "the cloud's list"
            );
            let listing = Arc::new(listing);
            let recorded = self.recorded(&listing).await;
            self.shared.set(Known {
                listing,
                confirmed: Some(confirmed),
                recorded,
            });
            self.board.listed(K::NAME, Some(contents));
        } else {
            if let Some(known) = self.shared.known() {
                let recorded = self.recorded(&known.listing).await;
                self.shared.set(Known {
                    confirmed: Some(confirmed),
                    recorded,
                    ..known
                });
            }
            self.board.listed(K::NAME, None);
        }
        self.queue.push(super::key());
    }

    /// Awaits the response to one request, and reports that there is none for a while.
    async fn await_response<T>(&self, response: impl Future<Output = T>) -> T {
        let mut response = pin!(response);
        tokio::select! {
            biased;
            response = &mut response => return response,
            () = self.clock.sleep(SILENCE) => {}
        }
        let text = silent(SILENCE, &self.cloud.client);
        if self.board.late(K::NAME, &text) {
            warn!(
                kind = K::NAME,
                error = text,
                "the cloud's list is late; the last one stays"
            );
        }
        response.await
    }

    /// The names of deleted objects in the cloud's record, if the list lacks an object of the cluster, or one that was listed before. The
    /// record is read after the list, so it contains each deletion that the list shows. None if it cannot be read.
    async fn recorded(&self, listing: &Listing<K::Resource>) -> Option<Arc<BTreeSet<String>>> {
        let listed: BTreeSet<&str> = listing.desired.keys().map(Key::name).collect();
        let is_missing = |name: &str| !listed.contains(name) && !listing.refuses(name) && !listing.is_unmirrored(name);
        let is_mirrored =
            |object: &Arc<K::Resource>| object.meta().deletion_timestamp.is_none() && self.shared.kind.ours(object);
        let cluster = self.cache.iter().filter(is_mirrored);
        let known = self.stored.before(&self.shared.list).unwrap_or_default();
        if !known.keys().any(|name| is_missing(name)) && !cluster.map(|it| it.name_any()).any(|name| is_missing(&name))
        {
            return Some(Arc::default());
        }
        match self.cloud.client.deletions(self.cloud.cluster).await {
            Ok(deletions) => {
                let of_kind = deletions.iter().filter(|deletion| K::CHANGED.contains(&deletion.kind));
                self.unread.store(false, Ordering::Relaxed);
                Some(Arc::new(of_kind.map(|deletion| K::name(deletion.id)).collect()))
            }
            Err(error) => {
                if !self.unread.swap(true, Ordering::Relaxed) {
                    let error = explained(&error, &self.cloud.client);
                    warn!(kind = K::NAME, error, "the cloud's record of deletions cannot be read");
                }
                None
            }
        }
    }

    /// Asks for every list of the kind; true when one of them changed. An error leaves the memory as it was.
    async fn fetch(&mut self) -> Result<bool, ListError> {
        // Before the first list takes effect.
        self.stored().await?;
        let cluster = self.cloud.cluster;
        let (pools, paths) = match self.shared.kind.listed(cluster) {
            Listed::At(path) => (None, vec![(path, None)]),
            Listed::OfEachPool(path) => {
                let pools = self.pools().await?;
                let known = pools.as_ref().unwrap_or(&self.memory.pools);
                let paths = known
                    .well_formed
                    .iter()
                    .map(|pool| (path(cluster, pool.id), Some(pool.clone())));
                let paths = paths.collect();
                (pools, paths)
            }
        };
        let parts = paths
            .into_iter()
            .map(|(path, pool)| self.part(path, Source { cluster, pool }));
        let parts: Vec<_> = stream::iter(parts).buffered(AT_ONCE).try_collect().await?;
        let changed = pools.is_some() || parts.iter().any(|(_, part)| part.is_some());
        let mut before = std::mem::take(&mut self.memory.parts);
        let latest = parts.into_iter().filter_map(|(name, part)| {
            let part = part.or_else(|| before.remove(&name))?;
            Some((name, part))
        });
        self.memory.parts = latest.collect();
        if let Some(pools) = pools {
            self.memory.pools = pools;
        }
        Ok(changed)
    }

    /// The node pools, unless they are unchanged.
    async fn pools(&self) -> Result<Option<Pools>, ListError> {
        let path = self.cloud.cluster.node_pools();
        let known = self.memory.pools.etag.as_ref();
        let response = self.cloud.client.list_each::<NodePool>(path, known);
        let Fetched::Complete { value, etag } = self.await_response(response).await? else {
            return Ok(None);
        };
        let mut latest = Pools {
            etag,
            ..Pools::default()
        };
        for pool in value {
            match pool {
                Ok(pool) => latest.well_formed.push(pool),
                Err(invalid) => latest.refused.push(Refused::new(None, &invalid)),
            }
        }
        Ok(Some(latest))
    }

    /// One list by its name, unless it is unchanged.
    async fn part(&self, path: Path, source: Source) -> Result<NamedPart<K::Resource>, ListError> {
        let name = path.to_string();
        let known = self.memory.parts.get(&name).filter(|part| part.source == source);
        let etag = known.and_then(|part| part.etag.as_ref());
        let response = self.cloud.client.list_each::<K::Object>(path, etag);
        let part = match self.await_response(response).await? {
            Fetched::Unchanged => None,
            Fetched::Complete { value, etag } => Some(Arc::new(Part::new(&self.shared.kind, source, value, etag)?)),
        };
        Ok((name, part))
    }
}

/// The name of a list, and what it contains unless it is unchanged.
type NamedPart<R> = (String, Option<Arc<Part<R>>>);
