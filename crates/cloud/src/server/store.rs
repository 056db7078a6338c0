//! The store: objects, each change in one transaction with its audit row and its event.
//!
//! Reads see committed data. Writes go through the single writer of the process, which batches them into commits.
//! The feed publishes changes, of this replica at once and of others as soon as they are received.

mod audit;
mod backup;
mod bulk;
mod deadline;
mod differences;
mod draft;
mod engine;
mod feed;
mod forget;
mod homes;
mod listed;
mod maintenance;
mod migrations;
mod names;
mod observed;
mod pace;
mod queue;
mod quotas;
mod reads;
mod removal;
mod reports;
mod row;
mod script_windows;
mod sealed;
mod stored;
mod tokens;
mod transaction;
mod writer;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::migrate::MigrateError;
use sqlx::{AnyConnection, AnyPool};
use tidewaiter_kit::{Chain, SharedClock};
use tokio::sync::{Semaphore, oneshot};
use tracing::info;
use url::Url;
use uuid::Uuid;

use super::Error;
use crate::models::Kind;
pub(super) use audit::recorded;
pub use backup::{BackupError, BackupSummary, backup, restore};
use deadline::{Lease, within};
pub(super) use draft::{Author, Origin, References};
use engine::Engine;
pub(super) use engine::READERS;
pub(super) use feed::{CommittedChange, Feed, Scope};
pub(super) use listed::Listed;
pub(super) use maintenance::Maintenance;
pub use maintenance::Retention;
use migrations::MIGRATIONS;
use observed::Observed;
pub(super) use observed::{Action, Subject};
pub(super) use quotas::Quotas;
pub(super) use reads::Source;
pub(super) use row::{Row, SecretColumn};
pub(super) use script_windows::ScriptWindow;
pub(super) use sealed::Sealed;
pub(super) use stored::Storage;
pub use stored::StorageLimits;
pub(super) use transaction::Transaction;
use transaction::{DELETE, scope};
pub(super) use writer::Change;
pub(super) use writer::Writer;
use writer::{Jobs, Waiting};

/// A client that missed more changes than this before the process started lists everything again.
const REPLAYED: i64 = 10_000;

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The setting with its URL is invalid.
    #[error("{0}")]
    Setting(String),
    /// The file, a file next to it, or their directory is not writable.
    #[error(
        "database is {path}, which cannot be written: the file, the files next to it and their directory must exist and be writable for the user that runs this process"
    )]
    File {
        /// The file or directory.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file of the database, or its lock, is not the one that this process opened.
    #[error(
        "{0} was moved, removed or replaced while the server runs: nothing is written. Move it back, or restart the server with the right one"
    )]
    Moved(String),
    /// The database does not respond, or rejects a statement.
    #[error("the database is unusable")]
    Unavailable(#[source] sqlx::Error),
    /// A statement did not end in time.
    #[error("the database does not answer within {0:?}")]
    Silent(Duration),
    /// The database rejects one statement because of its data; others are not concerned.
    #[error("the database rejects a statement")]
    Rejected(#[source] sqlx::Error),
    /// It contains data that no version of the server wrote.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The tables cannot be migrated to this version.
    #[error("the database schema does not match this version: {0}")]
    Migrate(#[source] MigrateError),
    /// A write exceeds its time, so that it does not delay others for longer.
    #[error("the write takes too long")]
    TooLong,
    /// The queue of writes is full.
    #[error("too many writes are pending")]
    Full,
    /// The process is shutting down.
    #[error("the server is stopping")]
    Stopping,
}

impl StoreError {
    /// Returns true if the connection cannot be used after it.
    fn is_of_connection(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Silent(_))
    }
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            // A full disk, a database that is only read, or one that is gone.
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Self::Unavailable(error),
            error => Self::Migrate(error),
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let code = error
            .as_database_error()
            .and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        if code.is_some_and(|code| engine::rejects(&code)) {
            Self::Rejected(error)
        } else {
            Self::Unavailable(error)
        }
    }
}

/// The state of the database as the writer last found it: it accepts writes, or the reason why not.
#[derive(Debug)]
struct Health(Mutex<Option<String>>);

impl Default for Health {
    /// Before the first write: a disk may be full since before the start.
    fn default() -> Self {
        Self(Mutex::new(Some(
            "the database has not accepted a write since the start".to_owned(),
        )))
    }
}

impl Health {
    /// A commit failed.
    fn failed(&self, error: &StoreError) {
        *self.0.lock() = Some(Chain(error).to_string());
    }

    /// A write that needs as much space as any was committed. A smaller one may fit where others do not.
    fn recovered(&self) {
        *self.0.lock() = None;
    }

    fn check(&self) -> Result<(), String> {
        self.0.lock().clone().map_or(Ok(()), Err)
    }
}

/// The database. Clones share it.
#[derive(Clone)]
pub(super) struct Store {
    pool: AnyPool,
    jobs: Arc<Jobs>,
    feed: Arc<Feed>,
    health: Arc<Health>,
    epoch: Arc<str>,
    observed: Arc<Observed>,
    long_lists: Arc<Semaphore>,
}

/// An open database, and the tasks that it needs.
pub(super) struct Opened {
    /// The handle for all requests.
    pub store: Store,
    /// The task that writes.
    pub writer: Writer,
    /// The task that receives changes of other replicas.
    pub maintenance: Maintenance,
}

impl Store {
    /// Opens the database at `url` (`sqlite:///FOLDER/FILE` or `postgres://…`), creates it if it is a file that does
    /// not exist, and upgrades its tables to this version.
    ///
    /// # Errors
    /// If it is unusable: the message names the file or contains the server's error, never the password.
    pub async fn open(url: &Url, clock: SharedClock) -> Result<Opened, StoreError> {
        let engine: Arc<dyn Engine> = Arc::from(engine::of(url)?);
        engine.check().await?;
        let pool = engine.pool(engine::READERS).await?;
        // It has no deadline: tables may be large, and another replica may be at it.
        info!("checking the tables of the database, and migrating those of an older version");
        MIGRATIONS.run(&pool).await?;
        names::shorten(&pool).await?;
        let epoch = epoch(&mut *pool.acquire().await?).await?;
        let (sequence,): (i64,) = sqlx::query_as("SELECT value FROM sequence WHERE one = 1")
            .fetch_one(&pool)
            .await?;
        let replayed = sequence - REPLAYED;
        let feed = Feed::at(sequence).with_earlier(replayed, &notes_after(&pool, replayed).await?);
        // Until the maintenance task has subscribed.
        feed.set_deaf(engine.statements().announce.is_some());
        let store = Self {
            pool,
            jobs: Arc::default(),
            feed: Arc::new(feed),
            health: Arc::default(),
            epoch: epoch.into(),
            observed: Arc::default(),
            long_lists: Arc::new(listed::long_lists()),
        };
        let storage = Arc::new(Storage::new(StorageLimits::default(), None));
        Ok(Opened {
            maintenance: Maintenance {
                engine: Arc::clone(&engine),
                store: store.clone(),
                retention: Retention::default(),
                storage: Arc::clone(&storage),
                clock: clock.clone(),
            },
            writer: Writer {
                pool: engine.pool(engine::WRITERS).await?,
                engine,
                store: store.clone(),
                clock,
                quotas: Arc::default(),
                storage,
                kept: None,
                overhead: Duration::ZERO,
                sweeping: Arc::default(),
            },
            store,
        })
    }

    /// The published changes.
    #[must_use]
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The id of the database. A restored backup has another one, so that cursors of the old database are not valid in
    /// it.
    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Checks that it accepts writes, and that changes of other replicas are received.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn check(&self) -> Result<(), String> {
        self.health.check()?;
        if self.feed.hears() {
            Ok(())
        } else {
            Err("changes of other replicas are not received: the connection to the database is lost".to_owned())
        }
    }

    /// Applies a change completely or not at all. It is committed when this returns.
    ///
    /// # Errors
    /// If `change` refuses, or the database cannot be written. After a database error the change may still be
    /// committed, if the response to the commit was lost.
    pub async fn write<T, F>(&self, by: Author, change: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: AsyncFnOnce(&mut Transaction) -> Result<T, Error> + for<'t> Change<'t, T>,
    {
        let (answer, answered) = oneshot::channel();
        let queue = by.queue.clone();
        let job = Waiting {
            by,
            change: Some(change),
            result: None,
            answer,
        };
        self.jobs.push(&queue, Box::new(job))?;
        answered.await.unwrap_or_else(|_| Err(StoreError::Stopping.into()))
    }
}

/// The id of the database, created if it has none.
async fn epoch(connection: &mut AnyConnection) -> Result<String, StoreError> {
    sqlx::query("INSERT INTO meta (name, value) VALUES ('epoch', $1) ON CONFLICT DO NOTHING")
        .bind(Uuid::new_v4().simple().to_string())
        .execute(&mut *connection)
        .await?;
    let (epoch,): (String,) = sqlx::query_as("SELECT value FROM meta WHERE name = 'epoch'")
        .fetch_one(connection)
        .await?;
    Ok(epoch)
}

async fn notes_after(pool: &AnyPool, sequence: i64) -> Result<Vec<CommittedChange>, StoreError> {
    let mut reader = Lease::of(pool.acquire().await?);
    let statement = "SELECT sequence, kind, object_id, organization_id, cluster_id, action FROM changes \
                     WHERE sequence > $1 AND action IN ('create', 'update', 'delete') ORDER BY sequence";
    let found = sqlx::query_as(statement).bind(sequence).fetch_all(&mut *reader);
    let found: Vec<(i64, String, String, String, String, String)> = within(found).await?;
    let note = |(sequence, kind, id, organization, cluster, action): (_, String, String, String, String, String)| {
        let kind = Kind::of(&kind)?;
        Some(CommittedChange {
            sequence,
            scope: scope(kind, &id, &organization, &cluster),
            decides: kind.decides_for(&id, action == DELETE),
        })
    };
    Ok(reader.end(found).into_iter().filter_map(note).collect())
}

/// Publishes what is committed and not yet published.
async fn catch_up(pool: &AnyPool, feed: &Feed) -> Result<(), StoreError> {
    let notes = notes_after(pool, feed.latest()).await?;
    feed.publish(&notes);
    Ok(())
}
