//! The encrypted data: the secrets of objects, and the responses stored for requests with an Idempotency-Key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sqlx::Row as _;

use super::database::Store;
use super::error::StoreError;
use super::row::{Row, size};
use super::source::{Source, Statement, query};
use super::storage_limits::What;
use super::transaction::Transaction;
use crate::models::Kind;

/// The location of an encrypted value, and its first bytes in base64, which name its key.
#[derive(Clone, Debug)]
pub enum Sealed {
    /// The secret of an object.
    Object {
        kind: Kind,
        id: String,
        /// The first bytes of the value in base64.
        head: String,
    },
    /// The stored response of a request with an Idempotency-Key.
    Remembered {
        principal: String,
        name: String,
        head: String,
    },
}

impl Sealed {
    /// The first bytes of the value, which name its key; empty if it is malformed.
    pub fn head(&self) -> Vec<u8> {
        let (Self::Object { head, .. } | Self::Remembered { head, .. }) = self;
        STANDARD.decode(head).unwrap_or_default()
    }
}

impl Store {
    /// All encrypted values of objects of these kinds, and all stored responses.
    pub async fn sealed(&self, kinds: &[Kind]) -> Result<Vec<Sealed>, StoreError> {
        let mut source = self;
        let mut all = Vec::new();
        let statement = "SELECT id, substr(secret, 1, 24) FROM objects WHERE kind = $1 AND secret <> ''";
        for kind in kinds {
            for row in source.fetch(statement, &[kind.word()]).await? {
                let (kind, id, head) = (*kind, row.try_get(0)?, row.try_get(1)?);
                all.push(Sealed::Object { kind, id, head });
            }
        }
        let statement = "SELECT principal, name, substr(answer, 1, 24) FROM idempotency";
        for row in source.fetch(statement, &[]).await? {
            let (principal, name, head) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            all.push(Sealed::Remembered { principal, name, head });
        }
        Ok(all)
    }
}

impl Transaction {
    /// Replaces the secret of `row` by the same one, encrypted again: nothing visible changes, not even its length, so
    /// there is no audit row and no event.
    pub async fn reseal(&mut self, row: &Row, secret: &str) -> Result<(), StoreError> {
        let statement = "UPDATE objects SET secret = $1 WHERE kind = $2 AND id = $3";
        self.run_silently(query(statement, &[secret, row.kind.word(), &row.id]))
            .await
    }

    /// The encrypted request and response for an Idempotency-Key of `principal`.
    pub async fn remembered(&mut self, principal: &str, name: &str) -> Result<Option<String>, StoreError> {
        let statement = "SELECT answer FROM idempotency WHERE principal = $1 AND name = $2";
        let found = self.fetch(statement, &[principal, name]).await?;
        Ok(found.first().map(|row| row.try_get(0)).transpose()?)
    }

    /// Stores the response, until the maintenance task deletes it.
    pub async fn remember(&mut self, principal: &str, name: &str, sealed: &str) -> Result<(), StoreError> {
        let statement = "INSERT INTO idempotency (principal, name, answer, at) VALUES ($1, $2, $3, $4)";
        self.add(What::Replays, principal, size(&[sealed]));
        let stored = query(statement, &[principal, name, sealed]).bind(self.now.as_second());
        self.run_silently(stored).await
    }

    /// Replaces the stored response by the same one, encrypted again.
    pub async fn reseal_remembered(&mut self, principal: &str, name: &str, sealed: &str) -> Result<(), StoreError> {
        let statement = "UPDATE idempotency SET answer = $1 WHERE principal = $2 AND name = $3";
        self.run_silently(query(statement, &[sealed, principal, name])).await
    }

    /// Runs a statement that must be committed although it is no change.
    pub(super) async fn run_silently(&mut self, statement: Statement) -> Result<(), StoreError> {
        self.run(statement).await?;
        self.silent = true;
        Ok(())
    }
}
