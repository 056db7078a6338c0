//! The store: objects, each change in one transaction with its audit row and its event.
//!
//! Reads see committed data. Writes go through the single [`Writer`] of the process, which batches them into commits.
//! The [`Feed`] publishes changes, of this replica at once and of others as soon as they are received.

mod audit;
mod backup;
mod draft;
mod engine;
mod feed;
mod maintenance;
mod names;
mod row;
mod sealed;
mod transaction;
mod writer;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{Any, AnyConnection, AnyPool};
use tidewaiter_kit::{Chain, SharedClock};
use tokio::sync::{mpsc, oneshot};
use url::Url;
use uuid::Uuid;

use super::Error;
use super::kind::Kind;
use audit::AuditColumns;
pub use audit::AuditRow;
pub use backup::{BackupError, BackupSummary, backup, restore};
pub use draft::{Author, Draft, Name, References};
use engine::Engine;
pub use feed::{CommittedChange, Feed, Scope};
pub use maintenance::Maintenance;
use row::{Columns, select};
pub use row::{Row, SecretColumn};
pub use sealed::Sealed;
pub use transaction::Transaction;
use transaction::{DELETE, scope};
pub use writer::Writer;
use writer::{Job, QUEUE, Waiting};

/// A client that missed more changes than this lists everything again.
const REPLAYED: i64 = 10_000;

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

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
    /// The database does not respond, or rejects a statement.
    #[error("the database is unusable")]
    Unavailable(#[source] sqlx::Error),
    /// The database rejects one statement because of its data; others are not concerned.
    #[error("the database rejects a statement")]
    Rejected(#[source] sqlx::Error),
    /// It contains data that no version of the server wrote.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The tables cannot be migrated to this version.
    #[error("the database schema does not match this version: {0}")]
    Migrate(#[source] MigrateError),
    /// The queue of writes is full.
    #[error("too many writes are pending")]
    Full,
    /// The process is shutting down.
    #[error("the server is stopping")]
    Stopping,
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

/// Whether the database accepts writes.
#[derive(Debug, Default)]
struct Health(Mutex<Option<String>>);

impl Health {
    fn wrote<E: std::borrow::Borrow<StoreError>>(&self, result: &Result<(), E>) {
        let trouble = result.as_ref().err().map(|error| Chain(error.borrow()).to_string());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn check(&self) -> Result<(), String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .map_or(Ok(()), Err)
    }
}

/// The database. Clones share it.
#[derive(Clone)]
pub struct Store {
    pool: AnyPool,
    jobs: mpsc::Sender<Box<dyn Job>>,
    feed: Arc<Feed>,
    health: Arc<Health>,
    epoch: Arc<str>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// An open database, and the tasks that it needs.
pub struct Opened {
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
        let pool = engine.pool().await?;
        MIGRATIONS.run(&pool).await.map_err(StoreError::Migrate)?;
        names::shorten(&pool).await?;
        let epoch = epoch(&mut *pool.acquire().await?).await?;
        let (sequence,): (i64,) = sqlx::query_as("SELECT value FROM sequence WHERE one = 1")
            .fetch_one(&pool)
            .await?;
        let feed = Arc::new(Feed::at(sequence));
        // Until the maintenance task has subscribed.
        feed.set_deaf(engine.announce().is_some());
        let health = Arc::new(Health::default());
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let store = Self {
            pool: pool.clone(),
            jobs,
            feed: Arc::clone(&feed),
            health: Arc::clone(&health),
            epoch: epoch.into(),
        };
        Ok(Opened {
            maintenance: Maintenance {
                engine: Arc::clone(&engine),
                store: store.clone(),
                clock: clock.clone(),
            },
            writer: Writer {
                engine,
                pool,
                jobs: waiting,
                feed,
                health,
                clock,
                kept: None,
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

    /// The object, if it exists.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn get(&self, kind: Kind, id: &str) -> Result<Option<Row>, StoreError> {
        transaction::get(&mut *self.reader().await?, kind, id).await
    }

    /// The children of `parent`, in the order of their creation.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn children(&self, kind: Kind, parent: &str) -> Result<Vec<Row>, StoreError> {
        transaction::children(&mut *self.reader().await?, kind, parent).await
    }

    /// All objects of one kind in a cluster, in the order of their creation.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn in_cluster(&self, kind: Kind, cluster: &str) -> Result<Vec<Row>, StoreError> {
        let found: Vec<Columns> = sqlx::query_as(select!("kind = $1 AND cluster_id = $2 ORDER BY position"))
            .bind(kind.word())
            .bind(cluster)
            .fetch_all(&self.pool)
            .await?;
        found.into_iter().map(Row::try_from).collect()
    }

    /// All objects of one kind.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn of_kind(&self, kind: Kind) -> Result<Vec<Row>, StoreError> {
        transaction::of_kind(&mut *self.reader().await?, kind).await
    }

    /// The members of an organization, whatever their home, and their SSH keys.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn members(&self, organization: &str) -> Result<(Vec<Row>, Vec<Row>), StoreError> {
        let of = |statement: &'static str| sqlx::query_as(statement).bind(organization).fetch_all(&self.pool);
        let users: Vec<Columns> = of(select!(
            "kind = 'users' AND id IN (SELECT used_id FROM uses WHERE used_kind = 'users' AND kind = 'memberships' \
             AND id IN (SELECT id FROM objects WHERE kind = 'memberships' AND parent_id = $1))"
        ))
        .await?;
        let keys: Vec<Columns> = of(select!(
            "kind = 'ssh-keys' AND parent_id IN (SELECT used_id FROM uses WHERE used_kind = 'users' AND kind = 'memberships' \
             AND id IN (SELECT id FROM objects WHERE kind = 'memberships' AND parent_id = $1)) ORDER BY position"
        ))
        .await?;
        let rows = |found: Vec<Columns>| found.into_iter().map(Row::try_from).collect::<Result<_, _>>();
        Ok((rows(users)?, rows(keys)?))
    }

    /// The id of the object with this name.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn named(&self, kind: Kind, scope: &str, name: &str) -> Result<Option<String>, StoreError> {
        transaction::named(&mut *self.reader().await?, kind, scope, name).await
    }

    /// The objects of `kind` that refer to the object `id` of the kind `used`, in the order of their creation.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn using(&self, kind: Kind, used: Kind, id: &str) -> Result<Vec<Row>, StoreError> {
        let found: Vec<Columns> = sqlx::query_as(select!(
            "kind = $1 AND id IN (SELECT id FROM uses WHERE used_kind = $2 AND used_id = $3 AND kind = $1) ORDER BY position"
        ))
        .bind(kind.word())
        .bind(used.word())
        .bind(id)
        .fetch_all(&self.pool)
        .await?;
        found.into_iter().map(Row::try_from).collect()
    }

    async fn reader(&self) -> Result<sqlx::pool::PoolConnection<Any>, StoreError> {
        Ok(self.pool.acquire().await?)
    }

    /// Applies a change completely or not at all. It is committed when this returns.
    ///
    /// # Errors
    /// If `change` refuses, or the database cannot be written. After a database error the change may still be
    /// committed, if the response to the commit was lost.
    pub async fn write<T, F>(&self, by: Author, change: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Transaction) -> futures::future::BoxFuture<'t, Result<T, Error>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Waiting {
            by,
            change: Some(Box::new(change)),
            result: None,
            answer,
        };
        self.jobs.try_send(Box::new(job)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StoreError::Full,
            mpsc::error::TrySendError::Closed(_) => StoreError::Stopping,
        })?;
        answered.await.unwrap_or_else(|_| Err(StoreError::Stopping.into()))
    }

    /// The changes after `sequence` that concern `cluster`; `None` if there were more than 10,000 changes in total
    /// since.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn since(
        &self,
        sequence: i64,
        organization: Uuid,
        cluster: Uuid,
    ) -> Result<Option<Vec<CommittedChange>>, StoreError> {
        if self.feed.latest() - sequence > REPLAYED {
            return Ok(None);
        }
        if let Some(notes) = self.feed.since(sequence, organization, cluster) {
            return Ok(Some(notes));
        }
        let mut notes = notes_after(&self.pool, sequence).await?;
        notes.retain(|note| note.concerns(organization, cluster));
        Ok(Some(notes))
    }

    /// The audit log of an organization, newest first: at most `limit` changes before the number `before`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn audit(&self, organization: &str, before: i64, limit: u32) -> Result<Vec<AuditRow>, StoreError> {
        let found: Vec<AuditColumns> = sqlx::query_as(
            "SELECT sequence, at, cluster_id, kind, object_id, action, actor, request_id, before, after FROM changes \
             WHERE organization_id = $1 AND sequence < $2 ORDER BY sequence DESC LIMIT $3",
        )
        .bind(organization)
        .bind(before)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        Ok(found.into_iter().map(AuditRow::from).collect())
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
    let found: Vec<(i64, String, String, String, String, String)> = sqlx::query_as(
        "SELECT sequence, kind, object_id, organization_id, cluster_id, action FROM changes WHERE sequence > $1 ORDER BY sequence",
    )
    .bind(sequence)
    .fetch_all(pool)
    .await?;
    let note = |(sequence, kind, id, organization, cluster, action): (i64, String, String, String, String, String)| {
        let kind = Kind::of(&kind)?;
        Some(CommittedChange {
            sequence,
            scope: scope(kind, &organization, &cluster),
            decides: kind.decides_for(&id, action == DELETE),
        })
    };
    Ok(found.into_iter().filter_map(note).collect())
}

/// Publishes what is committed and not yet published.
async fn catch_up(pool: &AnyPool, feed: &Feed) -> Result<(), StoreError> {
    let notes = notes_after(pool, feed.latest()).await?;
    feed.publish(&notes);
    Ok(())
}
