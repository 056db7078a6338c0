//! What is stored sealed: the secrets of objects, and the answers that are remembered for requests with an Idempotency-Key.

use sqlx::Any;

use super::StoreError;
use super::row::Row;
use super::transaction::Transaction;
use crate::server::Error;

impl Transaction {
    /// Gives `row` the same secret, sealed anew: nothing that anybody sees changes, so there is no audit row and no event.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn reseal(&mut self, row: &Row, secret: &str) -> Result<(), Error> {
        sqlx::query::<Any>("UPDATE objects SET secret = $1 WHERE kind = $2 AND id = $3")
            .bind(secret)
            .bind(row.kind.word())
            .bind(&row.id)
            .execute(&mut *self.connection)
            .await?;
        self.silent = true;
        Ok(())
    }

    /// What was asked and answered under an Idempotency-Key of `principal`, sealed.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn remembered(&mut self, principal: &str, name: &str) -> Result<Option<String>, StoreError> {
        let found: Option<(String,)> =
            sqlx::query_as("SELECT answer FROM idempotency WHERE principal = $1 AND name = $2")
                .bind(principal)
                .bind(name)
                .fetch_optional(&mut *self.connection)
                .await?;
        Ok(found.map(|(sealed,)| sealed))
    }

    /// Remembers it, until the keeper throws it away.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn remember(&mut self, principal: &str, name: &str, sealed: &str) -> Result<(), StoreError> {
        sqlx::query::<Any>("INSERT INTO idempotency (principal, name, at, answer) VALUES ($1, $2, $3, $4)")
            .bind(principal)
            .bind(name)
            .bind(self.now.as_second())
            .bind(sealed)
            .execute(&mut *self.connection)
            .await?;
        self.silent = true;
        Ok(())
    }
}
