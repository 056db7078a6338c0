//! A loop for each kind that lists the desired objects from the cloud.
//!
//! It asks when the change stream names the kind, and otherwise polls with jitter. A response that cannot be used
//! changes nothing: the last complete one stays. Only the leader asks, and not while everything that the coordinator
//! manages is removed.

mod fetch;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidewaiter_cloud::client::{Client, ClientError};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::{Cache, Chain, Leadership, Pause, Queue, SharedClock};
use tracing::{debug, warn};

use super::board::{Board, Contents};
use super::cloud_list::Specs;
use super::kind::MirroredKind;
use super::listing::Foreign;
use super::record::HasRecord;
use super::shared::{Known, Shared};
use super::stored::StoredList;
use crate::changes::Asked;
use crate::cloud::Cloud;
use crate::explained::explained;
use crate::retries::Retries;
pub(super) use fetch::Memory;

/// Spreads the polls of many clusters.
const JITTER: f64 = 0.1;

/// While nothing is wrong, every kind is listed again after this many sync intervals, in case the change stream lost an
/// event. The stream itself polls at each interval while it is interrupted.
const QUIET_INTERVALS: u32 = 5;

/// The pause after a list that the change stream caused. A poll has no pause after it, because the next change would
/// have to wait.
const REST: Duration = Duration::from_millis(500);

/// The delay before a list is requested again that does not show the change that the stream announced.
pub(crate) const LIST_AGAIN: Duration = Duration::from_secs(2);

/// The first list does not wait longer than this for the change stream.
const FIRST: Duration = Duration::from_secs(2);

/// The number of lists that follow one that deletes something or is held. Each waits twice as long as the one before,
/// beginning with [`FIRST_RECHECK`], and at most one sync interval: two and a half minutes in all, as long as a list is
/// due without that.
const RECHECKS: u32 = 8;
const FIRST_RECHECK: Duration = Duration::from_secs(1);

/// The reason why a kind could not be listed.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(transparent)]
    Cloud(#[from] ClientError),
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// Without the list of the process before, a forged object cannot be distinguished from one of the cloud.
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

/// The next request of the cloud, if nothing changes.
#[derive(Clone, Copy)]
enum Poll {
    First,
    /// Soon, for the given time, because the last list deleted something or is held.
    Recheck(u32),
    /// Once more soon, because a change was announced that the list does not show: another replica of the cloud may
    /// have answered, which had not received it yet.
    Again,
    /// After [`QUIET_INTERVALS`], or after one interval while the brake holds something.
    Regularly,
}

/// The loop of one kind.
pub(super) struct Lister<K: MirroredKind> {
    pub(super) cloud: Cloud,
    pub(super) cache: Cache<K::Resource>,
    pub(super) shared: Arc<Shared<K>>,
    pub(super) stored: Arc<StoredList<K::Resource>>,
    pub(super) asked: Arc<Asked>,
    pub(super) queue: Queue,
    pub(super) board: Board,
    pub(super) pause: Pause,
    pub(super) clock: SharedClock,
    pub(super) memory: Memory<K::Resource>,
    pub(super) retries: Retries,
    /// True once the cloud has answered with a record of deletions.
    pub(super) has_record: HasRecord,
    /// True if the cloud's record of deletions could not be read the last time.
    pub(super) unread: AtomicBool,
}

impl<K: MirroredKind> Lister<K> {
    /// Lists while this replica leads.
    pub(super) async fn run(self, leadership: Leadership) {
        leadership.acquired().await;
        self.follow().await;
    }

    /// Lists the kind again and again.
    async fn follow(mut self) -> Infallible {
        self.board.started(K::NAME);
        let (mut poll, mut failed, mut is_news) = (Poll::First, false, false);
        loop {
            let (woken, named) = tokio::select! {
                biased;
                named = self.asked.asked() => (true, named),
                () = self.shared.doubted.notified() => {
                    poll = Poll::Recheck(0);
                    continue;
                }
                // What failed waited already.
                () = async { if !failed { self.due(poll).await } } => (false, false),
            };
            if self.pause.is_paused() {
                self.pause.until(false).await;
                self.board.started(K::NAME);
                // A termination has removed both.
                self.stored.forget();
                self.has_record.forget();
            }
            self.retries.begin();
            is_news |= woken || matches!(poll, Poll::Again);
            let listed = self.list(poll, is_news).await;
            failed = listed.is_err();
            is_news &= failed;
            match listed {
                Ok(changed) => {
                    poll = match poll {
                        Poll::Recheck(times) if times < RECHECKS => Poll::Recheck(times + 1),
                        _ if named && !changed => Poll::Again,
                        _ => Poll::Regularly,
                    };
                    self.retries.succeeded();
                    if woken {
                        self.clock.sleep(REST).await;
                    }
                }
                Err(asked) => {
                    self.recall().await;
                    self.retries.failed(asked).await;
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
        // An error is that of the request, which is retried.
        if let Ok(stored) = self.stored().await {
            self.shared.recall(stored);
            self.queue.push(super::key());
        }
    }

    /// The list that an earlier process stored.
    async fn stored(&self) -> Result<Option<Arc<Specs<K::Resource>>>, kube::Error> {
        if K::STORED { self.stored.read().await } else { Ok(None) }
    }

    /// The time of the next poll. Whether something is held is known only after the response was compared with the
    /// cluster.
    async fn due(&self, poll: Poll) {
        let wait = match poll {
            Poll::First => Some(FIRST),
            Poll::Again => Some(LIST_AGAIN),
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

    /// Requests the lists once; `is_news` means that a change was announced. Returns true if they have changed; fails
    /// with the pause that the cloud requires.
    async fn list(&mut self, poll: Poll, is_news: bool) -> Result<bool, Duration> {
        match self.fetch(poll).await {
            Ok(changed) => {
                self.accept(changed, is_news).await;
                Ok(changed)
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

    async fn accept(&self, changed: bool, is_news: bool) {
        let confirmed = self.clock.monotonic();
        if changed {
            let listing = self.memory.listing(K::NAME);
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
            let record = Arc::new(self.record(&listing).await);
            self.shared.set(Known {
                listing,
                confirmed: Some(confirmed),
                record,
                change: self.memory.change,
            });
            self.board.listed(K::NAME, Some(contents));
        } else {
            // Somebody may have deleted or damaged what is stored.
            self.stored.doubt();
            if let Some(known) = self.shared.known() {
                let record = Arc::new(self.record(&known.listing).await);
                // A poll shows what others change in the cloud: as a new number, it would be reported each time.
                let change = if is_news { self.memory.change } else { known.change };
                self.shared.set(Known {
                    confirmed: Some(confirmed),
                    record,
                    change,
                    ..known
                });
            }
            self.board.listed(K::NAME, None);
        }
        self.queue.push(super::key());
    }
}
