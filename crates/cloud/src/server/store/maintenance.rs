//! Receives other replicas' commits, probes whether the database accepts writes, and deletes expired data. The probe is
//! a write like any other: readiness reports what the writer finds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sqlx::Row as _;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, SharedClock};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::catch_up::catch_up;
use super::database::Store;
use super::deadline::within;
use super::draft::Author;
use super::engine::Engine;
use super::error::StoreError;
use super::row::size;
use super::source::{Source as _, query};
use super::storage::Storage;
use super::storage_limits::What;
use super::transaction::Transaction;
use crate::server::Error;

/// The interval of the write probe, and so the time after which readiness recovers.
const PROBE: Duration = Duration::from_secs(5);
/// The lifetime of responses stored for requests with an Idempotency-Key, in seconds.
const REMEMBERED: i64 = 24 * 60 * 60;
/// The number of pages of 4 KiB that a probe writes after an error.
const PAGES: usize = 16;
/// The number of unused pages that stay in the file.
const SPARE: i64 = 1_000;

/// The time for which changes stay in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// All changes.
    pub changes: SignedDuration,
    /// The changes that clusters report, which are many.
    pub reports: SignedDuration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            changes: SignedDuration::from_hours(400 * 24),
            reports: SignedDuration::from_hours(30 * 24),
        }
    }
}

/// The maintenance task.
pub struct Maintenance {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) store: Store,
    /// The default one, unless the server sets another.
    pub(in crate::server) retention: Retention,
    pub(in crate::server) storage: Arc<Storage>,
    pub(super) clock: SharedClock,
}

impl Maintenance {
    /// Subscribes before anything is cached, so that every later commit is received.
    ///
    /// # Errors
    /// None: while the database is unavailable, no cached value is valid, and this retries.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Infallible> {
        let listening = self.listen_on();
        let probing = self.probe_on();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = listening => {}
            () = probing => {}
        }
        Ok(())
    }

    async fn listen_on(&self) {
        loop {
            if let Err(error) = self.listen().await {
                self.store.feed.set_disconnected(true);
                warn!(error = %Chain(&error), "changes of other replicas are not received");
            } else {
                // Only this process writes.
                return std::future::pending().await;
            }
            self.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    async fn listen(&self) -> Result<(), StoreError> {
        let Some(mut heard) = self.engine.listen().await? else {
            return Ok(());
        };
        // Reads commits from before the connection was established.
        catch_up(&self.store.pool, &self.store.feed).await?;
        loop {
            self.store.feed.set_disconnected(false);
            // A dead connection delivers no notification, so changes are also polled.
            match timeout(&*self.clock, PROBE, heard.next()).await {
                Ok(next) => next?,
                Err(_) => heard.ping().await?,
            }
            catch_up(&self.store.pool, &self.store.feed).await?;
        }
    }

    async fn probe_on(&self) {
        loop {
            let (now, fill) = (self.clock.now(), self.store.health.check().is_err());
            let (retention, give_back) = (self.retention, self.engine.statements().give_back);
            let written = self.store.write(Author::system(), async move |transaction| {
                transaction.expire(now, fill).await?;
                transaction.resume().await?;
                transaction.forget_changes(now, retention).await?;
                Ok(transaction.give_back(give_back).await?)
            });
            match written.await {
                // Only what fills several pages shows that there is space for what other writes need.
                Ok(()) if fill => self.store.health.recovered(),
                Ok(()) => {}
                Err(error) => warn!(error = %Chain(&error), "the database refuses a write"),
            }
            if let Err(error) = self.store.write_observed().await {
                warn!(error = %Chain(&error), "logins and reads of credentials are not in the audit log yet");
            }
            if let Err(error) = self.check_stored().await {
                warn!(error = %Chain(&error), "what is stored is not limited");
            }
            self.clock.sleep(PROBE).await;
        }
    }

    /// Shows how much is stored, and deletes what the audit log has beyond its limits.
    async fn check_stored(&self) -> Result<(), Error> {
        let (storage, mut store) = (&self.storage, &self.store);
        if let Some(metrics) = &storage.metrics {
            let statement = "SELECT what, CAST(SUM(bytes) AS BIGINT), MAX(CASE owner WHEN '' THEN 0 ELSE bytes END) FROM stored GROUP BY what";
            for row in store.fetch(statement, &[]).await? {
                let limit: &str = row.try_get(0)?;
                metrics.bytes.with_label_values(&[limit]).set(row.try_get(1)?);
                metrics.largest.with_label_values(&[limit]).set(row.try_get(2)?);
            }
        }
        for excess in store.excesses(&storage.limits).await? {
            let limit = excess.what.word();
            let owner = excess.owner.clone();
            let forget = async move |transaction: &mut Transaction| Ok(transaction.forget_excess(&excess).await?);
            let count = store.write(Author::system(), forget).await?;
            if count == 0 {
                // Streams replay all that there is.
                continue;
            }
            warn!(
                owner,
                limit, count, "the audit log is larger than storageMiB permits: its oldest rows were deleted"
            );
            if let Some(metrics) = &storage.metrics {
                metrics.forgotten.with_label_values(&[limit]).inc_by(count);
            }
        }
        Ok(())
    }
}

impl Transaction {
    /// Deletes expired tokens, login grants and stored responses; with `fill`, also writes as much as a large change.
    async fn expire(&mut self, now: Timestamp, fill: bool) -> Result<(), StoreError> {
        self.silent = true;
        if fill {
            let probe = "INSERT INTO meta (name, value) VALUES ('probe', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            let text = now.to_string().repeat(PAGES * 4_096 / 20);
            self.run(query(probe, &[&text])).await?;
        }
        let statement = "DELETE FROM idempotency WHERE at < $1 RETURNING principal, OCTET_LENGTH(answer)";
        let old = query(statement, &[]).bind(now.as_second() - REMEMBERED);
        for row in within(old.fetch_all(&mut *self.connection)).await? {
            self.add(What::Replays, row.try_get(0)?, -(row.try_get::<i64, _>(1)? + size(&[])));
        }
        self.expire_login_grants(now).await?;
        self.expire_tokens(now).await
    }

    /// Gives unused pages back to the file system, a few megabytes at a time; as many stay for the next changes.
    async fn give_back(&mut self, statements: Option<(&'static str, &'static str)>) -> Result<(), StoreError> {
        let Some((unused, give_back)) = statements else {
            return Ok(());
        };
        let found = self.fetch(unused, &[]).await?;
        if found.first().map_or(Ok(0), |row| row.try_get::<i64, _>(0))? > SPARE {
            self.say(give_back).await?;
        }
        Ok(())
    }
}
