//! Deadlines for statements, because a database that goes silent, such as one behind a load balancer that lost the
//! connection, answers nothing and closes nothing.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection};
use tidewaiter_kit::SystemClock;
use tidewaiter_kit::clock::timeout;

use super::error::StoreError;

/// The deadline of each statement.
const STATEMENT: Duration = Duration::from_secs(4);

/// Runs one statement.
pub(super) async fn within<T>(statement: impl Future<Output = Result<T, sqlx::Error>> + Send) -> Result<T, StoreError> {
    match timeout(&SystemClock, STATEMENT, statement).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(StoreError::Silent(STATEMENT)),
    }
}

/// A connection of the pool. It goes back to the pool only after its last statement ended: otherwise it is closed,
/// because the pool would wait for a silent database.
pub(super) struct Lease {
    connection: PoolConnection<Any>,
    ended: bool,
}

impl Lease {
    pub(super) fn of(connection: PoolConnection<Any>) -> Self {
        Self {
            connection,
            ended: false,
        }
    }

    /// All statements have ended: the connection may be used again. Returns their `result`.
    pub(super) fn end<T>(mut self, result: T) -> T {
        self.ended = true;
        result
    }
}

impl Deref for Lease {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.connection
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.connection
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.close_on_drop();
        }
    }
}
