//! The numbers of objects of each kind in an organization, counted in the transaction that changes them.

use sqlx::Row as _;

use super::error::StoreError;
use super::source::query;
use super::transaction::Transaction;
use crate::models::Kind;
use crate::server::Error;

impl Transaction {
    /// Counts one object more of `kind`. Tokens are limited for each user instead: otherwise one user could fill the
    /// quota, and nobody else of the organization would log in any more.
    pub(super) async fn count_one(&mut self, kind: Kind, organization: &str) -> Result<(), Error> {
        let statement = "INSERT INTO counts (organization_id, kind, count) VALUES ($1, $2, 1) \
                         ON CONFLICT (organization_id, kind) DO UPDATE SET count = counts.count + 1 RETURNING count";
        let counted = query(statement, &[organization, kind.word()]);
        let counted = self.all(counted).await?;
        if kind == Kind::Token {
            return Ok(());
        }
        let count = counted.first().map(|row| row.try_get(0)).transpose()?;
        Ok(self.quotas.check(kind, count.unwrap_or_default())?)
    }

    /// Counts `number` objects less of `kind`.
    pub(super) async fn count_less(&mut self, kind: Kind, organization: &str, number: i64) -> Result<(), StoreError> {
        let statement = "UPDATE counts SET count = count - $3 WHERE organization_id = $1 AND kind = $2";
        let counted = query(statement, &[organization, kind.word()]).bind(number);
        self.run(counted).await
    }

    /// Counts `number` objects of `kind` as those of the organization `to`, whatever its quota.
    pub(super) async fn count_moved(
        &mut self,
        kind: Kind,
        from: &str,
        to: &str,
        number: i64,
    ) -> Result<(), StoreError> {
        self.count_less(kind, from, number).await?;
        let statement = "INSERT INTO counts (organization_id, kind, count) VALUES ($1, $2, $3) \
                         ON CONFLICT (organization_id, kind) DO UPDATE SET count = counts.count + excluded.count";
        self.run(query(statement, &[to, kind.word()]).bind(number)).await
    }
}
