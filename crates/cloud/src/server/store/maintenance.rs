//! Receives other replicas' commits, probes whether the database accepts writes, and deletes expired data. The probe is a write
//! like any other: readiness reports what the writer finds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, SharedClock};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::engine::Engine;
use super::reads::query;
use super::{Author, REPLAYED, Store, StoreError, Transaction, catch_up};

/// The interval of the write probe, and so the time after which readiness recovers.
const PROBE: Duration = Duration::from_secs(5);
/// The lifetime of responses stored for requests with an Idempotency-Key, in seconds.
const REMEMBERED: i64 = 24 * 60 * 60;
/// The maximum number of changes that one probe deletes.
const FORGOTTEN: i64 = 5_000;
/// The number of pages of 4 KiB that a probe writes after an error.
const PAGES: usize = 16;

/// How long changes stay in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// All changes.
    pub changes: SignedDuration,
    /// Those that clusters report, which are many.
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
                self.store.feed.set_deaf(true);
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
            self.store.feed.set_deaf(false);
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
            let author = Author {
                actor: "system".to_owned(),
                ..Author::default()
            };
            let (now, fill) = (self.clock.now(), self.store.health.check().is_err());
            let retention = self.retention;
            let written = self.store.write(author, async move |transaction| {
                transaction.expire(now, fill).await?;
                Ok(transaction.forget_changes(now, retention).await?)
            });
            match written.await {
                // Only what fills several pages shows that there is space for what other writes need.
                Ok(()) if fill => self.store.health.recovered(),
                Ok(()) => {}
                Err(error) => warn!(error = %Chain(&error), "the database refuses a write"),
            }
            self.clock.sleep(PROBE).await;
        }
    }
}

impl Transaction {
    /// Deletes expired tokens and stored responses; with `fill`, also writes as much as a large change.
    async fn expire(&mut self, now: Timestamp, fill: bool) -> Result<(), StoreError> {
        self.silent = true;
        if fill {
            let probe = "INSERT INTO meta (name, value) VALUES ('probe', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            let text = now.to_string().repeat(PAGES * 4_096 / 20);
            self.run(query(probe, &[&text])).await?;
        }
        let old = query("DELETE FROM idempotency WHERE at < $1", &[]).bind(now.as_second() - REMEMBERED);
        self.run(old).await?;
        self.expire_tokens(now).await
    }

    /// Deletes the oldest changes that are older than `retention`, except those that streams replay.
    async fn forget_changes(&mut self, now: Timestamp, retention: Retention) -> Result<(), StoreError> {
        let all = "DELETE FROM changes WHERE sequence < (SELECT MIN(sequence) FROM changes) + $1 AND sequence <= $2 AND at < $3";
        // What clusters wrote has an index. Only the first of them are read: all of them would delay every write.
        let reports = "DELETE FROM changes WHERE sequence IN (SELECT sequence FROM changes \
                       WHERE substr(actor, 1, 8) = 'cluster:' ORDER BY sequence LIMIT $1) AND sequence <= $2 AND at < $3";
        for (statement, retention) in [(all, retention.changes), (reports, retention.reports)] {
            let before = now.saturating_sub(retention).unwrap_or(Timestamp::MIN);
            let old = query(statement, &[]).bind(FORGOTTEN).bind(self.sequence - REPLAYED);
            self.run(old.bind(before.to_string())).await?;
        }
        Ok(())
    }
}
