//! The encrypted data: the secrets of objects, and the responses stored for requests with an Idempotency-Key.

use sqlx::Any;

use super::deadline::within;
use super::row::Row;
use super::transaction::Transaction;
use super::{Store, StoreError};
use crate::models::Kind;
use crate::server::Error;

/// The location of an encrypted value, and its first bytes in base64, which name its key.
#[derive(Clone, Debug)]
pub enum Sealed {
    /// The secret of an object.
    Object {
        /// Its kind.
        kind: Kind,
        /// Its id.
        id: String,
        /// See [`Sealed`].
        head: String,
    },
    /// The stored response of a request with an Idempotency-Key.
    Remembered {
        /// The caller of the request.
        principal: String,
        /// The key.
        name: String,
        /// See [`Sealed`].
        head: String,
    },
}

impl Sealed {
    /// See [`Sealed`].
    #[must_use]
    pub fn head(&self) -> &str {
        let (Self::Object { head, .. } | Self::Remembered { head, .. }) = self;
        head
    }
}

impl Store {
    /// All encrypted values of objects of these kinds, and all stored responses.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn sealed(&self, kinds: &[Kind]) -> Result<Vec<Sealed>, StoreError> {
        let mut all = Vec::new();
        let mut reader = self.reader().await?;
        for kind in kinds {
            let found: Vec<(String, String)> = within(
                sqlx::query_as("SELECT id, substr(secret, 1, 24) FROM objects WHERE kind = $1 AND secret <> ''")
                    .bind(kind.word())
                    .fetch_all(&mut *reader),
            )
            .await?;
            let object = |(id, head)| Sealed::Object { kind: *kind, id, head };
            all.extend(found.into_iter().map(object));
        }
        let found: Vec<(String, String, String)> = within(
            sqlx::query_as("SELECT principal, name, substr(answer, 1, 24) FROM idempotency").fetch_all(&mut *reader),
        )
        .await?;
        let remembered = |(principal, name, head)| Sealed::Remembered { principal, name, head };
        all.extend(found.into_iter().map(remembered));
        Ok(reader.end(all))
    }
}

impl Transaction {
    /// Replaces the secret of `row` by the same one, encrypted again: nothing visible changes, so there is no audit row
    /// and no event.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub async fn reseal(&mut self, row: &Row, secret: &str) -> Result<(), Error> {
        within(
            sqlx::query::<Any>("UPDATE objects SET secret = $1 WHERE kind = $2 AND id = $3")
                .bind(secret)
                .bind(row.kind.word())
                .bind(&row.id)
                .execute(&mut *self.connection),
        )
        .await?;
        self.silent = true;
        Ok(())
    }

    /// The encrypted request and response for an Idempotency-Key of `principal`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn remembered(&mut self, principal: &str, name: &str) -> Result<Option<String>, StoreError> {
        let found: Option<(String,)> = within(
            sqlx::query_as("SELECT answer FROM idempotency WHERE principal = $1 AND name = $2")
                .bind(principal)
                .bind(name)
                .fetch_optional(&mut *self.connection),
        )
        .await?;
        Ok(found.map(|(sealed,)| sealed))
    }

    /// Stores the response, until the maintenance task deletes it.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub async fn remember(&mut self, principal: &str, name: &str, sealed: &str) -> Result<(), StoreError> {
        within(
            sqlx::query::<Any>("INSERT INTO idempotency (principal, name, at, answer) VALUES ($1, $2, $3, $4)")
                .bind(principal)
                .bind(name)
                .bind(self.now.as_second())
                .bind(sealed)
                .execute(&mut *self.connection),
        )
        .await?;
        self.silent = true;
        Ok(())
    }

    /// Replaces the stored response by the same one, encrypted again.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub async fn reseal_remembered(&mut self, principal: &str, name: &str, sealed: &str) -> Result<(), StoreError> {
        within(
            sqlx::query::<Any>("UPDATE idempotency SET answer = $1 WHERE principal = $2 AND name = $3")
                .bind(sealed)
                .bind(principal)
                .bind(name)
                .execute(&mut *self.connection),
        )
        .await?;
        self.silent = true;
        Ok(())
    }
}
