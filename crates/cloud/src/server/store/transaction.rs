//! The operations of a writer, each with its audit row and its event, all within one transaction.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Map, Value};
use sqlx::any::AnyRow;
use sqlx::{Executor as _, Row as _};
use tidewaiter_kit::SharedClock;

use super::deadline::{Lease, within};
use super::differences::{differing, recorded};
use super::draft::{Author, References};
use super::error::StoreError;
use super::feed::{CommittedChange, scope};
use super::names;
use super::quotas::Quotas;
use super::row::{Row, SecretColumn, present, size};
use super::source::{Source, Statement, query};
use super::storage::{Growth, Storage};
use super::storage_limits::What;
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
    /// True if the transaction must be committed although it contains no change.
    pub(super) silent: bool,
    pub(super) quotas: Arc<Quotas>,
    pub(super) storage: Arc<Storage>,
    pub(super) growth: Growth,
    /// The error after which the connection cannot be used.
    pub(super) lost: Option<Arc<StoreError>>,
    /// The queues with removals that are not complete.
    pub(super) unswept: BTreeSet<String>,
    pub(super) clock: SharedClock,
    /// When the time of the current write ends, by the monotonic clock.
    pub(super) until: Duration,
    /// The statements and the rows that were read, since the transaction began.
    #[cfg(test)]
    pub(in crate::server) cost: (usize, usize),
}

impl Transaction {
    /// The time of all changes in this transaction.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The number of the last change that is published with the commit; `None` if nothing is.
    pub fn last_change(&self) -> Option<i64> {
        self.notes.last().map(|note| note.sequence)
    }

    /// The objects that refer to this one.
    pub async fn users_of(&mut self, kind: Kind, id: &str) -> Result<Vec<(Kind, String)>, StoreError> {
        let statement = concat!(
            "SELECT kind, id FROM uses WHERE used_kind = $1 AND used_id = $2 AND EXISTS (SELECT 1 FROM objects \
             WHERE objects.kind = uses.kind AND objects.id = uses.id AND ",
            present!(),
            ") ORDER BY kind, id"
        );
        let mut users = Vec::new();
        for row in self.fetch(statement, &[kind.word(), id]).await? {
            users.extend(Kind::of(row.try_get(0)?).zip(Some(row.try_get(1)?)));
        }
        Ok(users)
    }

    /// The users who have the SSH key with this fingerprint, its name, each with the id under which it is there.
    pub async fn holders(&mut self, fingerprint: &str) -> Result<Vec<(String, String)>, StoreError> {
        // By the index `names_of_ssh_keys`.
        let statement = "SELECT scope_id, id FROM names WHERE kind = 'ssh-keys' AND name = $1";
        let found = self.fetch(statement, &[fingerprint]).await?;
        found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// The fingerprints of a user's SSH keys.
    pub async fn fingerprints(&mut self, user: &str) -> Result<Vec<String>, StoreError> {
        let statement = "SELECT name FROM names WHERE kind = 'ssh-keys' AND scope_id = $1 ORDER BY name";
        let found = self.fetch(statement, &[user]).await?;
        found.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If its name or id already exists, or the database cannot be written.
    pub async fn insert(&mut self, new: Row, references: &References) -> Result<Row, Error> {
        if self.get(new.kind, &new.id).await?.is_some() {
            let message = format!("{} {} already exists", new.kind.singular(), new.id);
            return Err(Refusal::conflict(message).into());
        }
        self.count_one(new.kind, &new.organization_id).await?;
        let row = Row {
            position: self.sequence + 1,
            created_at: self.now.to_string(),
            updated_at: self.now.to_string(),
            ..new
        };
        let inserted = query(
            "INSERT INTO objects (kind, id, organization_id, cluster_id, parent_id, owner_id, created_at, updated_at, spec, status, secret, position) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            &[
                row.kind.word(),
                &row.id,
                &row.organization_id,
                &row.cluster_id,
                &row.parent_id,
                &row.owner_id,
                &row.created_at,
                &row.updated_at,
                &row.spec_text(),
                &row.status_text(),
                &row.secret.0,
            ],
        );
        self.run(inserted.bind(row.position)).await?;
        self.add_object(&row, row.bytes());
        self.name(&row, references).await?;
        if !references.uses.is_empty() {
            self.refer(&row, &references.uses).await?;
        }
        if row.kind == Kind::Organization {
            self.record_for_operators(&row, "create", None, Some(row.audited()))
                .await?;
        }
        self.record(&row, "create", None, Some(row.audited())).await?;
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
        references: &References,
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
        let unnamed = "DELETE FROM names WHERE kind = $1 AND id = $2";
        self.run(query(unnamed, &[after.kind.word(), &after.id])).await?;
        self.name(&after, references).await?;
        self.refer(&after, &references.uses).await?;
        self.write(before, &after).await?;
        let (first, last) = differing(&before.audited(), &after.audited());
        self.record(&after, "update", Some(first), Some(last)).await?;
        Ok(after)
    }

    /// Updates `before` to the spec and the secret of `row`; without it, creates the object.
    pub async fn put(&mut self, before: Option<&Row>, row: Row, references: &References) -> Result<Row, Error> {
        match before {
            Some(before) => self.update(before, row.spec, row.secret.0, references).await,
            None => self.insert(row, references).await,
        }
    }

    pub(super) async fn write(&mut self, before: &Row, after: &Row) -> Result<(), StoreError> {
        self.add_object(after, after.bytes() - before.bytes());
        let (spec, status) = (after.spec_text(), after.status_text());
        let (kind, id, secret) = (after.kind.word(), &after.id, &after.secret.0);
        let statement =
            "UPDATE objects SET updated_at = $1, spec = $2, status = $3, secret = $4 WHERE kind = $5 AND id = $6";
        self.run(query(statement, &[&after.updated_at, &spec, &status, secret, kind, id]))
            .await
    }

    /// Publishes a change of `row` to the clusters of `organization` too, which is not its own.
    pub async fn notify(&mut self, row: &Row, organization: &str, action: &'static str) -> Result<(), Error> {
        let elsewhere = Row {
            organization_id: organization.to_owned(),
            ..row.clone()
        };
        self.record(&elsewhere, action, None, None).await
    }

    async fn name(&mut self, row: &Row, references: &References) -> Result<(), Error> {
        if let Some(name) = &references.name {
            let stored = names::stored(&name.name);
            let taken = "SELECT id FROM names WHERE kind = $1 AND scope_id = $2 AND name = $3";
            let taken = self
                .fetch(taken, &[row.kind.word(), &references.scope, &stored])
                .await?;
            let taken: Option<String> = taken.first().map(|row| row.try_get(0)).transpose()?;
            if let Some(id) = taken
                && self.get(row.kind, &id).await?.is_some()
            {
                let reason = format!("{} with {} already exists", row.kind.singular(), name.key);
                let refusal = Refusal::field(name.field, reason);
                return Err(refusal.with_status(http::StatusCode::CONFLICT).into());
            }
            // A removed object loses its name before it is deleted.
            let statement = "INSERT INTO names (kind, scope_id, name, id) VALUES ($1, $2, $3, $4) \
                             ON CONFLICT (kind, scope_id, name) DO UPDATE SET id = excluded.id";
            let values: [&str; 4] = [row.kind.word(), &references.scope, &stored, &row.id];
            self.run(query(statement, &values)).await?;
        }
        Ok(())
    }

    /// Records that an organization has come or gone where operators see it: its own audit log goes with it.
    pub(super) async fn record_for_operators(
        &mut self,
        organization: &Row,
        action: &'static str,
        before: Option<Value>,
        after: Option<Value>,
    ) -> Result<(), Error> {
        let of_operators = Row {
            organization_id: String::new(),
            ..organization.clone()
        };
        self.record(&of_operators, action, before, after).await
    }

    /// Records that `user` became an operator on the server's own machine.
    pub async fn record_recovery(&mut self, user: &Row) -> Result<(), Error> {
        self.record(user, "recover", None, Some(user.audited())).await
    }

    /// Records a change of `row`, with what was there before and after it.
    pub(super) async fn record(
        &mut self,
        row: &Row,
        action: &'static str,
        before: Option<Value>,
        after: Option<Value>,
    ) -> Result<(), Error> {
        let place = (&*row.organization_id, &*row.cluster_id, row.kind.word(), &*row.id);
        self.add_change(place, action, &recorded(before), &recorded(after))
            .await?;
        self.note(row, action);
        Ok(())
    }

    /// Publishes the last change, which is one of `row`, after the commit.
    pub(super) fn note(&mut self, row: &Row, action: &'static str) {
        self.growth.is_free |= action == DELETE;
        self.notes.push(CommittedChange {
            sequence: self.sequence,
            scope: scope(row.kind, &row.id, &row.organization_id, &row.cluster_id),
            decides: row.kind.decides_for(&row.id, action == DELETE),
        });
    }

    /// Adds a row to the audit log: of an organization, a cluster, and an object of a kind.
    pub(super) async fn add_change(
        &mut self,
        place: (&str, &str, &str, &str),
        action: &str,
        before: &str,
        after: &str,
    ) -> Result<(), StoreError> {
        let values = self.next_change(place, action, before, after);
        let added = query(
            "INSERT INTO changes (at, organization_id, cluster_id, kind, object_id, action, actor, request_id, before, after, sequence) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &values.each_ref().map(String::as_str),
        );
        self.run(added.bind(self.sequence)).await
    }

    /// The columns of a row of the audit log except its number, which is the next one. It is counted.
    pub(super) fn next_change(
        &mut self,
        (organization, cluster, kind, id): (&str, &str, &str, &str),
        action: &str,
        before: &str,
        after: &str,
    ) -> [String; 10] {
        self.sequence += 1;
        let (now, by) = (self.now.to_string(), self.by.clone());
        let (what, owner) = What::of_change(&by.actor, organization);
        self.add(what, owner, size(&[before, after]));
        let (actor, request) = (&by.actor, &by.origin.text());
        [
            &now,
            organization,
            cluster,
            kind,
            id,
            action,
            actor,
            request,
            before,
            after,
        ]
        .map(str::to_owned)
    }

    pub(super) async fn run(&mut self, statement: Statement) -> Result<(), StoreError> {
        self.begin_statement()?;
        within(statement.execute(&mut *self.connection)).await.map(drop)
    }

    /// The rows of `statement`.
    pub(super) async fn all(&mut self, statement: Statement) -> Result<Vec<AnyRow>, StoreError> {
        self.begin_statement()?;
        let found = within(statement.fetch_all(&mut *self.connection)).await?;
        #[cfg(test)]
        {
            self.cost.1 += found.len();
        }
        Ok(found)
    }

    /// Checks that the current write has time left.
    fn begin_statement(&mut self) -> Result<(), StoreError> {
        #[cfg(test)]
        {
            self.cost.0 += 1;
        }
        if self.clock.monotonic() > self.until {
            return Err(StoreError::TooLong);
        }
        Ok(())
    }

    pub(super) async fn say(&mut self, statement: &'static str) -> Result<(), StoreError> {
        within(self.connection.execute(statement)).await.map(drop)
    }
}

#[async_trait]
impl Source for Transaction {
    async fn fetch(&mut self, statement: &'static str, values: &[&str]) -> Result<Vec<AnyRow>, StoreError> {
        self.all(query(statement, values)).await
    }
}
