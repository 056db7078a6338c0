//! The differences between the two databases: every statement on the data has the same text for both.

mod postgres_url;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::io::Errno;
use sqlx::any::AnyPoolOptions;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{AnyConnection, AnyPool, Connection as _, Executor as _, Row as _};
use tidewaiter_kit::SystemClock;
use tidewaiter_kit::clock::timeout;
use url::Url;

use super::deadline::within;
use super::error::StoreError;

/// The timeout of a request for a connection.
const ACQUIRE: Duration = Duration::from_secs(5);
/// The maximum number of connections that read.
pub(in crate::server) const READERS: u32 = 8;
/// The maximum number of connections of the writer, which never waits for readers: one, one to read what others wrote,
/// and one that is being closed.
pub(super) const WRITERS: u32 = 3;
/// The time for an idle connection to answer, before another one is tried.
const ANSWER: Duration = Duration::from_millis(500);
/// A connection that was idle for less is used without asking.
const FRESH: Duration = Duration::from_secs(1);
const SQLITE_READONLY: u32 = 8;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_CANTOPEN: u32 = 14;
const SQLITE_NOTADB: u32 = 26;
/// With these, the server notices within seconds that a client is gone.
const KEEPALIVE: &str = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 10000";
/// FULL: an acknowledged commit is on disk, even after a power failure. The limit of the log: it is shortened after a
/// large commit.
const PRAGMAS: &str = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA journal_size_limit = 67108864; \
                       PRAGMA synchronous = FULL;";
/// The mode of a new file, in which the space of deleted rows is given back; a file of an earlier version keeps its
/// mode. Not part of [`PRAGMAS`], because it writes: a connection also reads from a file that was made read-only, or is
/// on a full disk.
const CREATE: &str = "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;";
/// The channel on which replicas notify each other of changes.
const CHANNEL: &str = "tidewaiter_changes";

/// A database.
#[async_trait]
pub(super) trait Engine: Send + Sync {
    /// The statements that differ.
    fn statements(&self) -> Statements;

    /// At most `connections` connections.
    async fn pool(&self, connections: u32) -> Result<AnyPool, StoreError>;

    /// Checks that the database exists, and that its file, if it has one, is intact and writable. Called once, before
    /// anything is served: a pool retries until its timeout and then reports only that.
    async fn check(&self) -> Result<(), StoreError>;

    /// Checks before each write that other processes still find the file, and its lock, where this one opened it: else
    /// its changes would be lost, or made beside those of another process.
    fn check_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Receives notifications of other replicas' commits; `None` if there cannot be other replicas.
    async fn listen(&self) -> Result<Option<CommitListener>, StoreError>;
}

/// The statements that differ between the two databases.
pub(super) struct Statements {
    /// Begins a write transaction. On SQLite it takes the write lock, so that the transaction cannot conflict later; on
    /// PostgreSQL the writer locks the row of `sequence` next.
    pub(super) begin: &'static str,
    /// Starts a consistent snapshot for a reader.
    pub(super) snapshot: &'static str,
    /// Counts the unused pages of the file, and gives some of them back, within a transaction; `None` if the database
    /// does that itself.
    pub(super) give_back: Option<(&'static str, &'static str)>,
    /// Notifies other replicas of a commit, within the transaction; `None` if there cannot be others.
    pub(super) announce: Option<&'static str>,
}

/// The notifications of other replicas' commits.
pub(super) struct CommitListener(PgListener);

impl CommitListener {
    /// Waits for the next commit. An error means that the connection was lost, and commits may have been missed.
    pub(super) async fn next(&mut self) -> Result<(), StoreError> {
        match self.0.try_recv().await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(StoreError::Unavailable(sqlx::Error::PoolClosed)),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that the server answers on this connection. Without it, one that a load balancer forgot would deliver
    /// nothing forever; the library gives no access to the keepalives of the socket. What arrives meanwhile is returned
    /// by [`next`](Self::next).
    pub(super) async fn ping(&mut self) -> Result<(), StoreError> {
        within(self.0.execute("SELECT 1")).await.map(drop)
    }
}

/// The engine for `url`, for the process that writes.
///
/// # Errors
/// If the scheme or a query parameter is unknown, or another process uses the same file.
pub(super) fn of(url: &Url) -> Result<Box<dyn Engine>, StoreError> {
    engine(url, true)
}

/// The engine for `url`, for a process that only reads, next to the writer.
///
/// # Errors
/// If the scheme or a query parameter is unknown.
pub(super) fn open_for_reading(url: &Url) -> Result<Box<dyn Engine>, StoreError> {
    engine(url, false)
}

fn engine(url: &Url, writes: bool) -> Result<Box<dyn Engine>, StoreError> {
    sqlx::any::install_default_drivers();
    match url.scheme() {
        "sqlite" => Ok(Box::new(Sqlite::at(url, writes)?)),
        "postgres" | "postgresql" => Ok(Box::new(Postgres {
            url: postgres_url::checked(url)?,
        })),
        other => Err(StoreError::Setting(format!(
            "database is {other}://…, must be sqlite:///FOLDER/FILE or postgres://USER@HOST/DATABASE"
        ))),
    }
}

fn unwritable(path: &Path, source: io::Error) -> StoreError {
    StoreError::File {
        path: path.display().to_string(),
        source,
    }
}

/// A file, used by one process.
struct Sqlite {
    path: PathBuf,
    url: String,
    /// The caches are correct only while no other process writes.
    _lock: Option<Lock>,
    place: Arc<Place>,
}

/// A locked file. It is unlocked and not only closed: a child process between its fork and its exec has it open, too,
/// and would keep the lock.
struct Lock(File);

impl Lock {
    fn of(file: File) -> Result<Self, Errno> {
        flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It fails only for what is no open file.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The file and its lock, each with its device and inode.
struct Place(Vec<(PathBuf, (u64, u64))>);

impl Place {
    fn check(&self) -> Result<(), StoreError> {
        for (path, opened) in &self.0 {
            if fs::metadata(path).is_ok_and(|found| identity(&found) == *opened) {
                continue;
            }
            return Err(StoreError::Moved(path.display().to_string()));
        }
        Ok(())
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Sqlite {
    fn at(url: &Url, writes: bool) -> Result<Self, StoreError> {
        let is_plain =
            url.host_str().unwrap_or_default().is_empty() && url.query().is_none() && url.fragment().is_none();
        let path = url.to_file_path().ok();
        let path = path.filter(|path| is_plain && path.file_name().is_some());
        let path = path.ok_or_else(|| {
            StoreError::Setting(format!(
                "database is {url}, must be sqlite:///FOLDER/FILE, in which # is written as %23, ? as %3F and % as %25"
            ))
        })?;
        let file = |path: &Path| {
            let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
            opened.map_err(|source| unwritable(path, source))
        };
        let mut opened = Vec::new();
        let lock = if writes {
            let lock_path = path.with_added_extension("lock");
            let lock = Lock::of(file(&lock_path)?).map_err(|_| {
                StoreError::Setting(format!(
                    "database is {}, which another process uses; stop that process, or use PostgreSQL for several replicas",
                    path.display()
                ))
            })?;
            for (path, file) in [(&path, &file(&path)?), (&lock_path, &lock.0)] {
                let metadata = file.metadata().map_err(|source| unwritable(path, source))?;
                opened.push((path.clone(), identity(&metadata)));
            }
            // SQLite creates files next to it while it is open, and removes them when it is closed.
            if let Some(folder) = path.parent() {
                access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| unwritable(folder, error.into()))?;
            }
            Some(lock)
        } else if path.exists() {
            None
        } else {
            return Err(StoreError::Setting(format!(
                "database is {}, which does not exist",
                path.display()
            )));
        };
        Ok(Self {
            url: format!("sqlite://{}?mode=rw", url.path()),
            path,
            _lock: lock,
            place: Arc::new(Place(opened)),
        })
    }
}

#[async_trait]
impl Engine for Sqlite {
    fn statements(&self) -> Statements {
        Statements {
            begin: "BEGIN IMMEDIATE",
            snapshot: "BEGIN",
            give_back: Some(("PRAGMA freelist_count", "PRAGMA incremental_vacuum(1000)")),
            announce: None,
        }
    }

    async fn pool(&self, connections: u32) -> Result<AnyPool, StoreError> {
        let place = Arc::clone(&self.place);
        let pool = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE)
            .after_connect(move |connection, _| {
                let place = Arc::clone(&place);
                Box::pin(async move {
                    // Else a reader would read another file than the writer writes. The pragmas are the first to read
                    // it.
                    place.check().map_err(sqlx::Error::config)?;
                    connection.execute(PRAGMAS).await.map(drop)
                })
            })
            .connect(&self.url)
            .await?;
        Ok(pool)
    }

    async fn check(&self) -> Result<(), StoreError> {
        let path = self.path.display();
        let damaged = |said: &str| StoreError::Damaged(format!("{path} ({said}); restore a backup"));
        let checked = async {
            let mut connection = AnyConnection::connect(&self.url).await?;
            let row = connection.fetch_one("PRAGMA quick_check(1)").await?;
            let said: String = row.try_get(0)?;
            let row = connection.fetch_one("PRAGMA auto_vacuum").await?;
            if row.try_get::<i64, _>(0)? == 0 {
                connection.execute(CREATE).await?;
            }
            connection.execute("BEGIN IMMEDIATE; ROLLBACK").await?;
            connection.close().await?;
            Ok(said)
        };
        let checked: Result<String, sqlx::Error> = checked.await;
        let error = match checked {
            Ok(said) if said == "ok" => return Ok(()),
            Ok(said) => return Err(damaged(&said)),
            Err(error) => error,
        };
        let database = error.as_database_error();
        let code = database.and_then(|error| error.code()?.parse::<u32>().ok());
        // The last byte is the primary result code (sqlite.org/rescode.html).
        Err(match code.unwrap_or_default() & 0xff {
            SQLITE_CORRUPT | SQLITE_NOTADB => damaged(database.map_or("", |error| error.message())),
            SQLITE_READONLY | SQLITE_CANTOPEN => unwritable(&self.path, io::Error::other(error)),
            _ => error.into(),
        })
    }

    fn check_place(&self) -> Result<(), StoreError> {
        self.place.check()
    }

    async fn listen(&self) -> Result<Option<CommitListener>, StoreError> {
        Ok(None)
    }
}

/// A server, shared by any number of replicas.
struct Postgres {
    url: Url,
}

#[async_trait]
impl Engine for Postgres {
    fn statements(&self) -> Statements {
        Statements {
            // A writer that went silent does not hold the lock of all others.
            begin: "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '4s'",
            snapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            give_back: None,
            announce: Some("SELECT pg_notify('tidewaiter_changes', '')"),
        }
    }

    async fn pool(&self, connections: u32) -> Result<AnyPool, StoreError> {
        let options = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE)
            // Instead of the library's own test, which waits for a silent connection without a limit.
            .test_before_acquire(false)
            .before_acquire(|connection, idle| {
                Box::pin(async move {
                    let answers = idle.idle_for < FRESH || timeout(&SystemClock, ANSWER, connection.ping()).await.is_ok_and(|it| it.is_ok());
                    Ok(answers)
                })
            })
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(KEEPALIVE).await.map(drop) })
            });
        Ok(options.connect(self.url.as_str()).await?)
    }

    async fn check(&self) -> Result<(), StoreError> {
        within(async { AnyConnection::connect(self.url.as_str()).await?.close().await }).await
    }

    async fn listen(&self) -> Result<Option<CommitListener>, StoreError> {
        let options: PgConnectOptions = self.url.as_str().parse()?;
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(ACQUIRE);
        let pool = pool.connect_with(options).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.execute(KEEPALIVE).await?;
        listener.listen(CHANNEL).await?;
        Ok(Some(CommitListener(listener)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_the_library_would_misread_is_no_engine() {
        for end in ["#1", "?sslmod=verify-full"] {
            let url = Url::parse(&format!("postgres://user@host/team{end}")).unwrap();
            assert!(of(&url).is_err() && open_for_reading(&url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_child_that_begins_keeps_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = Lock::of(File::create(&path).unwrap()).unwrap();
        assert!(Lock::of(File::open(&path).unwrap()).is_err());
        // As a child has it between its fork and its exec.
        let _child = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(Lock::of(File::open(&path).unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_new_connection_does_not_read_the_file_that_took_the_place_of_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.db");
        let engine = of(&Url::parse(&format!("sqlite://{}", path.display())).unwrap()).unwrap();
        let pool = engine.pool(2).await.unwrap();
        let _first = pool.acquire().await.unwrap();
        fs::rename(&path, path.with_added_extension("old")).unwrap();
        File::create(&path).unwrap();
        assert!(pool.acquire().await.is_err());
        fs::rename(path.with_added_extension("old"), &path).unwrap();
        pool.acquire().await.unwrap();
    }
}
