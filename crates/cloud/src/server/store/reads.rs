//! Reads of committed data, each with a deadline.

use super::audit::AuditColumns;
use super::deadline::{Lease, within};
use super::row::{Columns, Row, select};
use super::{AuditRow, Store, StoreError, transaction};
use crate::models::Kind;

impl Store {
    /// The object, if it exists.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn get(&self, kind: Kind, id: &str) -> Result<Option<Row>, StoreError> {
        let mut reader = self.reader().await?;
        let found = transaction::get(&mut reader, kind, id).await?;
        Ok(reader.end(found))
    }

    /// The children of `parent`, in the order of their creation.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn children(&self, kind: Kind, parent: &str) -> Result<Vec<Row>, StoreError> {
        let mut reader = self.reader().await?;
        let found = transaction::children(&mut reader, kind, parent).await?;
        Ok(reader.end(found))
    }

    /// All objects of one kind in a cluster, in the order of their creation.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn in_cluster(&self, kind: Kind, cluster: &str) -> Result<Vec<Row>, StoreError> {
        let mut reader = self.reader().await?;
        let found = sqlx::query_as(select!("kind = $1 AND cluster_id = $2 ORDER BY position"))
            .bind(kind.word())
            .bind(cluster)
            .fetch_all(&mut *reader);
        let found: Vec<Columns> = within(found).await?;
        reader.end(found).into_iter().map(Row::try_from).collect()
    }

    /// All objects of one kind.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn of_kind(&self, kind: Kind) -> Result<Vec<Row>, StoreError> {
        let mut reader = self.reader().await?;
        let found = transaction::of_kind(&mut reader, kind).await?;
        Ok(reader.end(found))
    }

    /// The members of an organization, whatever their home, and their SSH keys.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn members(&self, organization: &str) -> Result<(Vec<Row>, Vec<Row>), StoreError> {
        let users = select!(
            "kind = 'users' AND id IN (SELECT used_id FROM uses WHERE used_kind = 'users' AND kind = 'memberships' \
             AND id IN (SELECT id FROM objects WHERE kind = 'memberships' AND parent_id = $1))"
        );
        let keys = select!(
            "kind = 'ssh-keys' AND parent_id IN (SELECT used_id FROM uses WHERE used_kind = 'users' AND kind = 'memberships' \
             AND id IN (SELECT id FROM objects WHERE kind = 'memberships' AND parent_id = $1)) ORDER BY position"
        );
        let mut reader = self.reader().await?;
        let users = within(sqlx::query_as(users).bind(organization).fetch_all(&mut *reader)).await?;
        let keys = within(sqlx::query_as(keys).bind(organization).fetch_all(&mut *reader)).await?;
        let (users, keys) = reader.end((users, keys));
        let rows = |found: Vec<Columns>| found.into_iter().map(Row::try_from).collect::<Result<_, _>>();
        Ok((rows(users)?, rows(keys)?))
    }

    /// The id of the object with this name.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn named(&self, kind: Kind, scope: &str, name: &str) -> Result<Option<String>, StoreError> {
        let mut reader = self.reader().await?;
        let found = transaction::named(&mut reader, kind, scope, name).await?;
        Ok(reader.end(found))
    }

    /// The objects of `kind` that refer to the object `id` of the kind `used`, in the order of their creation.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn using(&self, kind: Kind, used: Kind, id: &str) -> Result<Vec<Row>, StoreError> {
        let mut reader = self.reader().await?;
        let found = sqlx::query_as(select!(
            "kind = $1 AND id IN (SELECT id FROM uses WHERE used_kind = $2 AND used_id = $3 AND kind = $1) ORDER BY position"
        ))
        .bind(kind.word())
        .bind(used.word())
        .bind(id)
        .fetch_all(&mut *reader);
        let found: Vec<Columns> = within(found).await?;
        reader.end(found).into_iter().map(Row::try_from).collect()
    }

    pub(super) async fn reader(&self) -> Result<Lease, StoreError> {
        Ok(Lease::of(self.pool.acquire().await?))
    }

    /// The audit log of an organization, newest first: at most `limit` changes before the number `before`.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn audit(&self, organization: &str, before: i64, limit: u32) -> Result<Vec<AuditRow>, StoreError> {
        let mut reader = self.reader().await?;
        let found = sqlx::query_as(
            "SELECT sequence, at, cluster_id, kind, object_id, action, actor, request_id, before, after FROM changes \
             WHERE organization_id = $1 AND sequence < $2 ORDER BY sequence DESC LIMIT $3",
        )
        .bind(organization)
        .bind(before)
        .bind(i64::from(limit))
        .fetch_all(&mut *reader);
        let found: Vec<AuditColumns> = within(found).await?;
        Ok(reader.end(found).into_iter().map(AuditRow::from).collect())
    }
}
