//! Hears of other replicas' commits, asks whether the database still takes what it is given, and throws away what is old.

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

/// How often the database is asked whether it takes a write: so soon does readiness recover.
const PROBE: Duration = Duration::from_secs(5);
/// Answers to requests with an Idempotency-Key are kept so long, in seconds.
const REMEMBERED: i64 = 24 * 60 * 60;

/// The task beside the writer.
pub struct Maintenance {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) store: Store,
    pub(super) clock: SharedClock,
}

impl Maintenance {
    /// Listens before anything is kept in memory: what is committed from then on is heard.
    ///
    /// # Errors
    /// None: while the database is away, nothing that is kept counts, and it is tried again.
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
                // One process alone writes here.
                return std::future::pending().await;
            }
            self.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    async fn listen(&self) -> Result<(), StoreError> {
        let Some(mut heard) = self.engine.listen().await? else {
            return Ok(());
        };
        // What was committed before the connection was there.
        catch_up(&self.store.pool, &self.store.feed).await?;
        self.store.feed.set_deaf(false);
        loop {
            // A connection that is quietly gone tells nothing, so it is looked all the same.
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
            // One that was opened while the file could not be written never writes; another one may.
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
