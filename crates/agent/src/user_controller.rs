//! The user controller: makes `authorized_keys` of the node what the Users of the cluster say, and undoes what others
//! change.
//!
//! A pass looks at everything: the Users, what the mirror of the cloud says of them, and the files. It starts when a
//! User changes, when the watcher sees a change in the agent's folders, and every minute. It writes only what differs
//! from the desired state.
//!
//! Before the first list of the Users, and while the API server is away, who could log in can log in. It never writes
//! an empty file because it knows nothing.

mod authorized_keys_files;
mod brake;
mod break_glass_users;
pub(crate) mod expiry;
mod grace;
mod plan;
mod status;
mod wanted;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidewaiter_api::CloudSync;
use tidewaiter_api::cloud_sync::CLOUD_SYNC;
use tidewaiter_kit::cache::Gone;
use tidewaiter_kit::{
    Backoff, Cache, Category, Chain, Key, Next, Notice, Pass, Queue, ReconcileError, Reconciler, Retry, SharedClock,
    random,
};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::host::HostError;
pub(crate) use authorized_keys_files::{AuthorizedKeysFiles, Input, Outcome};
use brake::MirrorState;
pub(crate) use status::{AgentStatus, Status};
pub(crate) use wanted::{Refused, User, Wanted, wanted};

/// The safety net: some changes are no event, such as those of another kernel on a network file system.
const RESYNC_INTERVAL: Duration = Duration::from_mins(1);

/// The longest time between two comparisons of the contents, which are at random times so that nobody can avoid them.
const MAX_COMPARE_INTERVAL: Duration = Duration::from_secs(1);

/// A full disk or a read-only host recovers without an event.
pub(crate) const RETRIES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// There is one file.
pub(crate) fn key() -> Key {
    Key::new("authorized_keys")
}

/// The reason why the files are not as desired.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    /// A file of the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The thread that wrote panicked, or the runtime ended.
    #[error("the files were not written")]
    Thread(#[source] tokio::task::JoinError),
}

impl ReconcileError for UserError {
    fn category(&self) -> Category {
        let class = match self {
            Self::Host(error) => error.class(),
            Self::Thread(_) => "thread",
        };
        let note = format!("The keys of users cannot be written: {}.", Chain(self));
        Category::new(class, Retry::Backoff).notify(Notice::warning("AuthorizedKeysNotWritten", "Write", note))
    }
}

/// The caches that the controller reads.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    users: Cache<User>,
    sync: Cache<CloudSync>,
    markers: Cache<Marker>,
    /// Counts the changes of Users.
    changes: Arc<AtomicU64>,
}

/// The object that says that the coordinator removes everything: the metadata of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
pub(crate) struct Marker {
    #[serde(deserialize_with = "tidewaiter_kit::slim::without_labels")]
    metadata: ObjectMeta,
}

impl Observed {
    /// Starts a pass for each change, and one when the Users are known.
    pub(crate) fn new(users: Cache<User>, sync: Cache<CloudSync>, markers: Cache<Marker>, queue: &Queue) -> Self {
        let changes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&changes);
        users.derive(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        users.notify(queue.always(key()).unawaited());
        sync.notify(queue.always(key()).unawaited());
        markers.notify(queue.always(key()).unawaited());
        Self {
            users,
            sync,
            markers,
            changes,
        }
    }

    pub(crate) fn sync(&self) -> Cache<CloudSync> {
        self.sync.clone()
    }

    /// No change starts a pass when there is no User.
    pub(crate) async fn first_list(self, queue: Queue, shutdown: CancellationToken) -> Result<(), Gone> {
        if let Some(synced) = shutdown.run_until_cancelled(self.users.synced()).await {
            synced?;
            queue.push(key());
            shutdown.cancelled().await;
        }
        Ok(())
    }
}

/// The number of changes of the Users, and whether a mirror of the cloud writes them.
pub(crate) type UsersVersion = (u64, bool);

/// The controller. Its one key is the file.
pub(crate) struct UserController {
    pub(crate) files: Arc<AuthorizedKeysFiles>,
    pub(crate) observed: Observed,
    pub(crate) status: Status,
    pub(crate) clock: SharedClock,
    /// The parsed keys.
    pub(crate) known: Mutex<Option<(UsersVersion, Arc<Wanted>)>>,
}

impl Reconciler for UserController {
    const NAME: &'static str = "user";
    type Error = UserError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, UserError> {
        pass.about(self.status.node());
        let input = self.observe();
        let has_users = input.wanted.is_some();
        let files = Arc::clone(&self.files);
        let result = spawn_blocking(move || files.pass(&input))
            .await
            .map_err(UserError::Thread)?;
        let outcome = match result {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return Ok(Next::UntilChanged),
            Err(error) => {
                self.status.failed(&error);
                return Err(error.into());
            }
        };
        if !has_users && self.knows_users() {
            return Ok(Next::Pending(Duration::ZERO));
        }
        self.status.publish(&outcome);
        if let Some(error) = outcome.unplaced {
            return Err(error.into());
        }
        let files = Arc::clone(&self.files);
        spawn_blocking(move || files.prepare())
            .await
            .map_err(UserError::Thread)?;
        Ok(next(&outcome, has_users, self.clock.now()))
    }
}

impl UserController {
    fn observe(&self) -> Input {
        let marked = !self.observed.markers.is_empty();
        let sync = self.observed.sync.get(&Key::new(CLOUD_SYNC));
        let mirror = MirrorState::of(sync.as_deref(), marked);
        let is_mirrored = !mirror.revision.is_empty();
        Input {
            wanted: self.knows_users().then(|| self.wanted(is_mirrored)),
            mirror,
            now: self.clock.monotonic(),
            time: self.clock.now(),
        }
    }

    /// Returns true if the Users were listed, and the file was read before, which says what keys there are.
    fn knows_users(&self) -> bool {
        self.files.has_begun() && self.observed.users.is_synced()
    }

    /// Parses the keys of all Users when one has changed: a thousand users take longer than the restore of a file may.
    fn wanted(&self, is_mirrored: bool) -> Arc<Wanted> {
        let made_of = (self.observed.changes.load(Ordering::SeqCst), is_mirrored);
        let mut known = self.known.lock();
        if let Some((of, wanted)) = &*known
            && *of == made_of
        {
            return Arc::clone(wanted);
        }
        let new = Arc::new(wanted(self.observed.users.iter(), &self.files.accepted(), is_mirrored));
        *known = Some((made_of, Arc::clone(&new)));
        new
    }
}

/// The time when to look again: foreign lines go when their grace ends, and not with a later look.
fn next(outcome: &Outcome, has_users: bool, now: Timestamp) -> Next {
    if let Some(wait) = outcome.wait {
        return Next::Pending(wait);
    }
    let left = outcome.foreign_until.map(|until| until.duration_since(now));
    let left = left.map(|left| Duration::try_from(left).unwrap_or_default());
    let look = left.map_or(RESYNC_INTERVAL, |left| left.min(RESYNC_INTERVAL));
    if outcome.is_held || !has_users {
        return Next::Pending(look);
    }
    let due = outcome.expiry.next().unwrap_or(RESYNC_INTERVAL);
    Next::After(due.min(look))
}

/// Starts a pass when a file was written through a mapping, which is no event, and when a key has ended. The clock may
/// be set meanwhile, so it is read each time: no key ends before its second, and none more than a second later.
pub(crate) async fn compare(
    files: Arc<AuthorizedKeysFiles>,
    queue: Queue,
    clock: SharedClock,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let comparing = async {
        loop {
            let pause = MAX_COMPARE_INTERVAL / 2 + Duration::from_millis(random::u64() % 500);
            clock.sleep(pause).await;
            let (files, time) = (Arc::clone(&files), clock.now());
            let is_due = move || files.is_changed() || files.is_end_due(time);
            if spawn_blocking(is_due).await.unwrap_or(true) {
                queue.push(key());
            }
        }
    };
    shutdown.run_until_cancelled(comparing).await;
    Ok(())
}

/// Ends the process when the folder on the host was moved or removed: only a new container gets the one that is there
/// now.
pub(crate) async fn lost(
    files: Arc<AuthorizedKeysFiles>,
    folder: String,
    shutdown: CancellationToken,
) -> Result<(), HostError> {
    let lost = files.lost();
    match shutdown.run_until_cancelled(lost.cancelled()).await {
        Some(()) => Err(HostError::Lost { path: folder }),
        None => Ok(()),
    }
}

/// At shutdown, ends all passes, and removes the users' keys if the settings say so.
pub(crate) async fn stop(
    files: Arc<AuthorizedKeysFiles>,
    clock: SharedClock,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    shutdown.cancelled().await;
    let stopped = spawn_blocking(move || files.stop(clock.now())).await;
    if let Ok(Err(error)) = stopped {
        warn!(error = %Chain(&error), "the keys of users are not removed");
    }
    Ok(())
}
