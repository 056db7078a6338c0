//! The operations of a writer, each with its audit row and its event, all within one transaction.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};
use sqlx::{Any, AnyConnection, Executor as _};
use uuid::Uuid;

use super::StoreError;
use super::deadline::{Lease, within};
use super::draft::{Author, Draft, References};
use super::feed::{CommittedChange, Scope};
use super::names;
use super::quotas::Quotas;
use super::row::{Columns, Row, SecretColumn, select};
use crate::models::Kind;
use crate::server::Error;
use crate::server::refusal::Refusal;

/// The audit action of a deletion.
pub(super) const DELETE: &str = "delete";

/// An open transaction.
pub struct Transaction {
    pub(super) connection: Lease,
    pub(super) sequence: i64,
    pub(super) notes: Vec<CommittedChange>,
    pub(super) by: Author,
    pub(super) now: Timestamp,
    /// Whether the transaction must be committed although it contains no change.
    pub(super) silent: bool,
    pub(super) quotas: Arc<Quotas>,
    /// The error after which the connection cannot be used.
    pub(super) lost: Option<Arc<StoreError>>,
}

impl Transaction {
    /// The time of all changes in this transaction.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The object, if it exists.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn get(&mut self, kind: Kind, id: &str) -> Result<Option<Row>, StoreError> {
        get(&mut self.connection, kind, id).await
    }

    /// The children of `parent`, in the order of their creation.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn children(&mut self, kind: Kind, parent: &str) -> Result<Vec<Row>, StoreError> {
        children(&mut self.connection, kind, parent).await
    }

    /// All objects of one kind.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn of_kind(&mut self, kind: Kind) -> Result<Vec<Row>, StoreError> {
        of_kind(&mut self.connection, kind).await
    }

    /// The id of the object with this name.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn named(&mut self, kind: Kind, scope: &str, name: &str) -> Result<Option<String>, StoreError> {
        named(&mut self.connection, kind, scope, name).await
    }

    /// The objects that refer to this one.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn users_of(&mut self, kind: Kind, id: &str) -> Result<Vec<(Kind, String)>, StoreError> {
        let found: Vec<(String, String)> = within(
            sqlx::query_as("SELECT kind, id FROM uses WHERE used_kind = $1 AND used_id = $2 ORDER BY kind, id")
                .bind(kind.word())
                .bind(id)
                .fetch_all(&mut *self.connection),
        )
        .await?;
        Ok(found
            .into_iter()
            .filter_map(|(kind, id)| Some((Kind::of(&kind)?, id)))
            .collect())
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If its name or id already exists, or the database cannot be written.
    pub async fn insert(&mut self, draft: Draft) -> Result<Row, Error> {
        if self.get(draft.kind, &draft.id).await?.is_some() {
            let message = format!("{} {} already exists", draft.kind.singular(), draft.id);
            return Err(Refusal::conflict(message).into());
        }
        self.count_one(draft.kind, &draft.organization_id).await?;
        let now = self.now.to_string();
        let row = Row {
            kind: draft.kind,
            id: draft.id,
            organization_id: draft.organization_id,
            cluster_id: draft.cluster_id,
            parent_id: draft.parent_id,
            owner_id: draft.owner_id,
            position: self.sequence + 1,
            created_at: now.clone(),
            updated_at: now,
            spec: draft.spec,
            status: None,
            secret: SecretColumn(draft.secret),
        };
        within(sqlx::query::<Any>(
            "INSERT INTO objects (kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, updated_at, spec, status, secret) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        )
        .bind(row.kind.word())
        .bind(&row.id)
        .bind(&row.organization_id)
        .bind(&row.cluster_id)
        .bind(&row.parent_id)
        .bind(&row.owner_id)
        .bind(row.position)
        .bind(&row.created_at)
        .bind(&row.updated_at)
        .bind(row.spec_text())
        .bind(row.status_text())
        .bind(&row.secret.0)
        .execute(&mut *self.connection)).await?;
        self.tie(&row, &draft.ties).await?;
        self.record(&row, "create", "", &row.audited()).await?;
        Ok(row)
    }

    /// Updates `before` to `spec` and `secret`. An unchanged object is not written.
    ///
    /// # Errors
    /// If its name is taken, or the database cannot be written.
    pub async fn update(
        &mut self,
        before: &Row,
        spec: Map<String, Value>,
        secret: String,
        ties: &References,
    ) -> Result<Row, Error> {
        if before.spec == spec && before.secret.0 == secret {
            return Ok(before.clone());
        }
        let after = Row {
            spec,
            secret: SecretColumn(secret),
            updated_at: self.now.to_string(),
            ..before.clone()
        };
        self.untie(before).await?;
        self.tie(&after, ties).await?;
        self.write(&after).await?;
        self.record(&after, "update", &before.audited(), &after.audited())
            .await?;
        Ok(after)
    }

    pub(super) async fn write(&mut self, after: &Row) -> Result<(), StoreError> {
        within(
            sqlx::query::<Any>(
                "UPDATE objects SET updated_at = $1, spec = $2, status = $3, secret = $4 WHERE kind = $5 AND id = $6",
            )
            .bind(&after.updated_at)
            .bind(after.spec_text())
            .bind(after.status_text())
            .bind(&after.secret.0)
            .bind(after.kind.word())
            .bind(&after.id)
            .execute(&mut *self.connection),
        )
        .await?;
        Ok(())
    }

    /// Removes `row` and all its descendants.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub async fn remove(&mut self, row: &Row) -> Result<(), Error> {
        let mut going = vec![row.clone()];
        let mut next = 0;
        while let Some(parent) = going.get(next).cloned() {
            for kind in parent.kind.children() {
                going.extend(self.children(kind, &parent.id).await?);
            }
            next += 1;
        }
        for row in going.iter().rev() {
            self.untie(row).await?;
            for statement in [
                "DELETE FROM uses WHERE used_kind = $1 AND used_id = $2",
                "DELETE FROM objects WHERE kind = $1 AND id = $2",
            ] {
                self.delete_of(row, statement).await?;
            }
            self.count_less(row.kind, &row.organization_id, 1).await?;
            self.record(row, DELETE, &row.audited(), "").await?;
        }
        Ok(())
    }

    /// Publishes a change of `row` to the clusters of `organization` too, which is not its own.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub async fn tell(&mut self, row: &Row, organization: &str, action: &'static str) -> Result<(), Error> {
        let elsewhere = Row {
            organization_id: organization.to_owned(),
            ..row.clone()
        };
        self.record(&elsewhere, action, "", "").await
    }

    async fn tie(&mut self, row: &Row, ties: &References) -> Result<(), Error> {
        if let Some(name) = &ties.name {
            if self.named(row.kind, &name.scope, &name.name).await?.is_some() {
                let reason = format!("{} with {} already exists", row.kind.singular(), name.key);
                let mut refusal = Refusal::field(name.field, reason);
                refusal.status = http::StatusCode::CONFLICT;
                return Err(refusal.into());
            }
            within(
                sqlx::query::<Any>("INSERT INTO names (kind, scope_id, name, id) VALUES ($1, $2, $3, $4)")
                    .bind(row.kind.word())
                    .bind(&name.scope)
                    .bind(names::stored(&name.name))
                    .bind(&row.id)
                    .execute(&mut *self.connection),
            )
            .await?;
        }
        for (kind, id) in &ties.uses {
            within(
                sqlx::query::<Any>(
                    "INSERT INTO uses (used_kind, used_id, kind, id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
                )
                .bind(kind.word())
                .bind(id)
                .bind(row.kind.word())
                .bind(&row.id)
                .execute(&mut *self.connection),
            )
            .await?;
        }
        Ok(())
    }

    async fn untie(&mut self, row: &Row) -> Result<(), StoreError> {
        for statement in [
            "DELETE FROM names WHERE kind = $1 AND id = $2",
            "DELETE FROM uses WHERE kind = $1 AND id = $2",
        ] {
            self.delete_of(row, statement).await?;
        }
        Ok(())
    }

    /// Runs `statement` with the kind and the id of `row`.
    async fn delete_of(&mut self, row: &Row, statement: &'static str) -> Result<(), StoreError> {
        let deleted = sqlx::query::<Any>(statement).bind(row.kind.word()).bind(&row.id);
        within(deleted.execute(&mut *self.connection)).await.map(drop)
    }

    pub(super) async fn record(
        &mut self,
        row: &Row,
        action: &'static str,
        before: &str,
        after: &str,
    ) -> Result<(), Error> {
        self.sequence += 1;
        within(sqlx::query::<Any>(
            "INSERT INTO changes (sequence, at, organization_id, cluster_id, kind, object_id, action, actor, request_id, before, after) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        )
        .bind(self.sequence)
        .bind(self.now.to_string())
        .bind(&row.organization_id)
        .bind(&row.cluster_id)
        .bind(row.kind.word())
        .bind(&row.id)
        .bind(action)
        .bind(&self.by.actor)
        .bind(&self.by.request_id)
        .bind(before)
        .bind(after)
        .execute(&mut *self.connection)).await?;
        self.notes.push(CommittedChange {
            sequence: self.sequence,
            scope: scope(row.kind, &row.organization_id, &row.cluster_id),
            decides: row.kind.decides_for(&row.id, action == DELETE),
        });
        Ok(())
    }

    pub(super) async fn say(&mut self, statement: &'static str) -> Result<(), StoreError> {
        within(self.connection.execute(statement)).await.map(drop)
    }
}

pub(super) fn scope(kind: Kind, organization: &str, cluster: &str) -> Scope {
    let id = |text: &str| Uuid::try_parse(text).unwrap_or_default();
    Scope {
        kind,
        organization: id(organization),
        cluster: id(cluster),
    }
}

pub(super) async fn get(connection: &mut AnyConnection, kind: Kind, id: &str) -> Result<Option<Row>, StoreError> {
    let statement = select!("kind = $1 AND id = $2");
    let found: Option<Columns> = within(
        sqlx::query_as(statement)
            .bind(kind.word())
            .bind(id)
            .fetch_optional(connection),
    )
    .await?;
    found.map(Row::try_from).transpose()
}

pub(super) async fn children(connection: &mut AnyConnection, kind: Kind, parent: &str) -> Result<Vec<Row>, StoreError> {
    let statement = select!("kind = $1 AND parent_id = $2 ORDER BY position");
    let found: Vec<Columns> = within(
        sqlx::query_as(statement)
            .bind(kind.word())
            .bind(parent)
            .fetch_all(connection),
    )
    .await?;
    found.into_iter().map(Row::try_from).collect()
}

pub(super) async fn of_kind(connection: &mut AnyConnection, kind: Kind) -> Result<Vec<Row>, StoreError> {
    let found: Vec<Columns> = within(
        sqlx::query_as(select!("kind = $1 ORDER BY position"))
            .bind(kind.word())
            .fetch_all(connection),
    )
    .await?;
    found.into_iter().map(Row::try_from).collect()
}

pub(super) async fn named(
    connection: &mut AnyConnection,
    kind: Kind,
    scope: &str,
    name: &str,
) -> Result<Option<String>, StoreError> {
    let found: Option<(String,)> = within(
        sqlx::query_as("SELECT id FROM names WHERE kind = $1 AND scope_id = $2 AND name = $3")
            .bind(kind.word())
            .bind(scope)
            .bind(names::stored(name))
            .fetch_optional(connection),
    )
    .await?;
    Ok(found.map(|(id,)| id))
}
