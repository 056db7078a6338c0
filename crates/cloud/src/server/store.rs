//! The store: objects, each change in one transaction with its audit row and its event.
//!
//! Reads see committed data. Writes go through the single writer of the process, which batches them into commits.
//! The feed publishes changes, of this replica at once and of others as soon as they are received.

mod audit;
mod backup;
mod bulk;
mod catch_up;
mod counts;
mod database;
mod deadline;
mod differences;
mod draft;
mod engine;
mod error;
mod feed;
mod forget;
mod homes;
mod jobs;
mod listed;
mod login_grants;
mod lookup;
mod maintenance;
mod metrics;
mod migrations;
mod names;
mod observed;
mod pace;
mod queue;
mod quotas;
mod removal;
mod reports;
mod row;
mod script_windows;
mod sealed;
mod source;
mod storage;
mod storage_limits;
mod stored;
mod tokens;
mod transaction;
mod usage;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use sqlx::AnyConnection;
use tidewaiter_kit::SharedClock;
use tracing::info;
use url::Url;
use uuid::Uuid;

pub(super) use audit::{ChangeFilter, recorded};
pub use backup::{BackupError, BackupSummary, backup, restore};
use catch_up::{REPLAYED, notes_after};
pub(super) use database::Store;
pub(super) use draft::{Author, Origin, References};
use engine::Engine;
pub(super) use engine::READERS;
pub use error::StoreError;
pub(super) use feed::{Feed, Scope};
pub(super) use jobs::Change;
pub(super) use listed::Listed;
pub(super) use login_grants::{GrantKind, GrantState, LoginGrant};
pub(super) use lookup::BindingFilter;
pub(super) use maintenance::Maintenance;
pub use maintenance::Retention;
pub(super) use metrics::StorageMetrics;
use migrations::MIGRATIONS;
pub(super) use observed::{Action, Subject};
pub(super) use quotas::Quotas;
pub(super) use row::{Row, SecretColumn, membership_id};
pub(super) use script_windows::ScriptWindow;
pub(super) use sealed::Sealed;
pub(super) use source::Source;
pub(super) use storage::Storage;
pub use storage_limits::StorageLimits;
pub(super) use transaction::Transaction;
pub(super) use usage::Usage;
pub(super) use writer::Writer;

/// An open database, and the tasks that it needs.
pub(super) struct Opened {
    pub store: Store,
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
        feed.set_disconnected(engine.statements().announce.is_some());
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
