//! The database as requests use it: they read committed data, and hand their changes to the writer.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use sqlx::any::AnyRow;
use sqlx::{AnyPool, Row as _};
use tidewaiter_kit::Chain;
use tokio::sync::{Semaphore, oneshot};
use url::Url;
use uuid::Uuid;

use super::deadline::{Lease, within};
use super::draft::Author;
use super::engine;
use super::error::StoreError;
use super::feed::Feed;
use super::jobs::{Change, Jobs, PendingWrite};
use super::observed::Observed;
use super::row::{Row, present};
use super::source::{Source, Statement, query};
use super::transaction::Transaction;
use crate::models::Kind;
use crate::server::Error;
use crate::server::digest::uuid;

/// The state of the database as the writer last found it: it accepts writes, or the reason why not.
#[derive(Debug)]
pub(super) struct Health(Mutex<Option<String>>);

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
    pub(super) fn failed(&self, error: &StoreError) {
        *self.0.lock() = Some(Chain(error).to_string());
    }

    /// A write that needs as much space as any was committed. A smaller one may fit where others do not.
    pub(super) fn recovered(&self) {
        *self.0.lock() = None;
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.0.lock().clone().map_or(Ok(()), Err)
    }
}

/// The database. Clones share it.
#[derive(Clone)]
pub struct Store {
    pub(super) pool: AnyPool,
    pub(super) jobs: Arc<Jobs>,
    pub(super) feed: Arc<Feed>,
    pub(super) health: Arc<Health>,
    pub(super) epoch: Arc<str>,
    pub(super) observed: Arc<Observed>,
    pub(super) long_lists: Arc<Semaphore>,
}

impl Store {
    /// Checks that the database exists, if it is a file: opening it for writing would create it.
    pub fn check_exists(url: &Url) -> Result<(), StoreError> {
        engine::open_for_reading(url).map(drop)
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
        if self.feed.is_connected() {
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
        let job = PendingWrite {
            by,
            change: Some(change),
            result: None,
            answer,
        };
        self.jobs.push(&queue, Box::new(job))?;
        answered.await.unwrap_or_else(|_| Err(StoreError::Stopping.into()))
    }

    /// The object, if it exists.
    pub async fn get(&self, kind: Kind, id: &str) -> Result<Option<Row>, StoreError> {
        Source::get(&mut &*self, kind, id).await
    }

    /// The ids of all objects of one kind.
    pub async fn ids(&self, kind: Kind) -> Result<HashSet<Uuid>, StoreError> {
        let statement = concat!("SELECT id FROM objects WHERE kind = $1 AND ", present!());
        let found = Source::fetch(&mut &*self, statement, &[kind.word()]).await?;
        found.iter().map(|row| Ok(uuid(row.try_get("id")?))).collect()
    }

    /// The objects of `kind` that refer to the object `id` of the kind `used`, in the order of their creation.
    pub async fn using(&self, kind: Kind, used: Kind, id: &str) -> Result<Vec<Row>, StoreError> {
        Source::using(&mut &*self, kind, used, id).await
    }

    /// The rows that `statement` selects.
    pub(super) async fn read(&self, statement: Statement) -> Result<Vec<AnyRow>, StoreError> {
        let mut reader = self.reader().await?;
        let found = within(statement.fetch_all(&mut *reader)).await?;
        Ok(reader.end(found))
    }

    pub(super) async fn reader(&self) -> Result<Lease, StoreError> {
        Ok(Lease::of(self.pool.acquire().await?))
    }
}

#[async_trait]
impl Source for &Store {
    async fn fetch(&mut self, statement: &'static str, values: &[&str]) -> Result<Vec<AnyRow>, StoreError> {
        self.read(query(statement, values)).await
    }
}
