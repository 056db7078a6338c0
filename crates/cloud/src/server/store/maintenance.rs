//! Receives other replicas' commits, probes whether the database accepts writes, and deletes expired data.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AnyConnection, Executor as _};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, SharedClock};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::engine::{Engine, READERS};
use super::{Store, StoreError, catch_up};

/// The interval of the write probe, and so the time after which readiness recovers.
const PROBE: Duration = Duration::from_secs(5);
/// The lifetime of responses stored for requests with an Idempotency-Key, in seconds.
const REMEMBERED: i64 = 24 * 60 * 60;

/// The maintenance task.
pub struct Maintenance {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) store: Store,
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
        self.store.feed.set_deaf(false);
        loop {
            // A dead connection delivers no notification, so changes are also polled.
            if let Ok(next) = timeout(&*self.clock, PROBE, heard.next()).await {
                next?;
            }
            catch_up(&self.store.pool, &self.store.feed).await?;
        }
    }

    async fn probe_on(&self) {
        loop {
            let probed = timeout(&*self.clock, PROBE, self.probe()).await;
            let probed = probed.unwrap_or_else(|_| Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)));
            if let Err(error) = &probed {
                warn!(error = %Chain(error), "the database refuses a write");
            }
            self.store.health.wrote(&probed);
            self.clock.sleep(PROBE).await;
        }
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let mut probed = Ok(());
        for _ in 0..=READERS {
            let mut connection = self.store.reader().await?;
            probed = self.write(&mut connection).await;
            if probed.is_ok() {
                break;
            }
            // A connection that was opened while the file was read-only stays read-only; a new one may work.
            connection.close_on_drop();
        }
        probed
    }

    async fn write(&self, connection: &mut AnyConnection) -> Result<(), StoreError> {
        connection
            .execute("UPDATE sequence SET value = value WHERE one = 1")
            .await?;
        sqlx::query("DELETE FROM idempotency WHERE at < $1")
            .bind(self.clock.now().as_second() - REMEMBERED)
            .execute(connection)
            .await?;
        Ok(())
    }
}
