//! Statements on many rows: one for each chunk of rows instead of one for each row, because each costs a round trip to
//! the database while all other writes wait.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Row as _};

use super::differences::{differing, recorded};
use super::error::StoreError;
use super::row::{Row, membership_id, present, select};
use super::source::{Source as _, Statement};
use super::transaction::{DELETE, Transaction};
use crate::models::Kind;
use crate::server::Error;

/// The maximum number of rows of one statement: both databases permit more than 32,000 parameters.
pub(super) const CHUNK: usize = 500;

/// A change of `row`, with its representations in the audit log.
pub(super) struct Recorded<'a> {
    pub(super) row: &'a Row,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
}

/// `count` placeholders after the first `skipped`.
pub(super) fn places(skipped: usize, count: usize) -> String {
    let places: Vec<_> = (1..=count).map(|place| format!("${}", skipped + place)).collect();
    places.join(", ")
}

/// `rows` times the placeholders of `columns` values, after the first `skipped`.
fn tuples(skipped: usize, columns: usize, rows: usize) -> String {
    let tuple = |row| format!("({})", places(skipped + row * columns, columns));
    let tuples: Vec<_> = (0..rows).map(tuple).collect();
    tuples.join(", ")
}

/// `text` with `rows` in place of `{}`, and with its first parameters. It is not prepared: each number of rows is
/// another statement, which would displace those that are.
pub(super) fn statement(text: &str, rows: &str, values: &[&str]) -> Statement {
    let query = sqlx::query(AssertSqlSafe(text.replace("{}", rows))).persistent(false);
    values.iter().fold(query, |query, value| query.bind(*value))
}

/// `text` with the parameters `values`, and with the list `listed` in place of `{}`.
pub(super) fn listing(text: &str, values: &[&str], listed: &[&str]) -> Statement {
    let query = statement(text, &places(values.len(), listed.len()), values);
    listed.iter().fold(query, |query, value| query.bind(*value))
}

fn texts(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

impl Transaction {
    /// Returns the ids of `ids` that exist.
    pub async fn existing_ids(&mut self, kind: Kind, ids: &[String]) -> Result<HashSet<String>, StoreError> {
        let mut found = HashSet::new();
        for ids in ids.chunks(CHUNK) {
            let there = concat!("SELECT id FROM objects WHERE kind = $1 AND id IN ({}) AND ", present!());
            for row in self.all(listing(there, &[kind.word()], &texts(ids))).await? {
                found.insert(row.try_get(0)?);
            }
        }
        Ok(found)
    }

    /// The number of teams of each of `users`, in all organizations. A user without teams is absent.
    pub async fn numbers_of_teams(&mut self, users: &[String]) -> Result<BTreeMap<String, i64>, StoreError> {
        let mut found = BTreeMap::new();
        for users in users.chunks(CHUNK) {
            // An index has all that is read.
            let counted = "SELECT used_id, COUNT(*) FROM uses WHERE used_kind = 'users' AND used_id IN ({}) \
                           AND kind = 'teams' GROUP BY used_id";
            for row in self.all(listing(counted, &[], &texts(users))).await? {
                found.insert(row.try_get(0)?, row.try_get(1)?);
            }
        }
        Ok(found)
    }

    /// The number of teams of `user` in `organization`.
    pub async fn number_of_teams(&mut self, organization: &str, user: &str) -> Result<i64, StoreError> {
        let counted = "SELECT COUNT(*) FROM uses WHERE used_kind = 'users' AND used_id = $1 AND kind = 'teams' \
                       AND EXISTS (SELECT 1 FROM objects WHERE objects.kind = 'teams' AND objects.id = uses.id \
                       AND organization_id = $2)";
        let found = self.fetch(counted, &[user, organization]).await?;
        Ok(found.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
    }

    /// Makes `wanted` the references of `row`. Only what differs is written: a team may have thousands of users.
    pub(super) async fn refer(&mut self, row: &Row, wanted: &[(Kind, String)]) -> Result<(), StoreError> {
        let (kind, id) = (row.kind.word(), row.id.as_str());
        let mut present = BTreeSet::new();
        let statement = "SELECT used_kind, used_id FROM uses WHERE kind = $1 AND id = $2";
        for row in self.fetch(statement, &[kind, id]).await? {
            present.insert((row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?));
        }
        let wanted = wanted.iter().map(|(kind, id)| (kind.word().to_owned(), id.clone()));
        let wanted: BTreeSet<_> = wanted.collect();
        let mut gone: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (kind, id) in present.difference(&wanted) {
            gone.entry(kind).or_default().push(id);
        }
        for (used, ids) in gone {
            for ids in ids.chunks(CHUNK) {
                let statement = "DELETE FROM uses WHERE kind = $1 AND id = $2 AND used_kind = $3 AND used_id IN ({})";
                self.run(listing(statement, &[kind, id, used], ids)).await?;
            }
        }
        let added: Vec<_> = wanted.difference(&present).collect();
        for added in added.chunks(CHUNK) {
            let values: Vec<_> = added.iter().flat_map(|(used, of)| [used, of, kind, id]).collect();
            let statement = "INSERT INTO uses (used_kind, used_id, kind, id) VALUES {}";
            self.run(self::statement(statement, &tuples(0, 4, added.len()), &values))
                .await?;
        }
        Ok(())
    }

    /// The objects of `kind` in `organization` that refer to `user`.
    pub async fn of_user(&mut self, kind: Kind, organization: &str, user: &str) -> Result<Vec<Row>, StoreError> {
        let statement = select!(
            "kind = $1 AND organization_id = $2 AND id IN \
             (SELECT id FROM uses WHERE used_kind = 'users' AND used_id = $3 AND kind = $1) ORDER BY position"
        );
        self.rows(statement, &[kind.word(), organization, user]).await
    }

    /// The memberships in other organizations of the users whose home is `organization`.
    pub async fn memberships_elsewhere(&mut self, organization: &str) -> Result<Vec<Row>, StoreError> {
        let statement = select!(
            "kind = 'memberships' AND organization_id <> $1 AND id IN (SELECT uses.id FROM uses WHERE used_kind = 'users' \
             AND uses.kind = 'memberships' AND used_id IN (SELECT id FROM objects WHERE kind = 'users' AND parent_id = $1)) \
             ORDER BY position"
        );
        self.rows(statement, &[organization]).await
    }

    /// True if `organization` has an owner other than `user` whose membership does not end.
    pub async fn has_owner_except(&mut self, organization: &str, user: &str) -> Result<bool, StoreError> {
        let statement = select!(
            "kind = 'memberships' AND parent_id = $1 AND id <> $2 AND spec LIKE '%\"role\":\"owner\"%' \
             AND spec NOT LIKE '%\"expires_at\"%' ORDER BY position LIMIT 1"
        );
        let own = membership_id(organization, user);
        Ok(!self.rows(statement, &[organization, &own]).await?.is_empty())
    }

    /// Removes `user` from `teams`.
    pub async fn leave_teams(&mut self, user: &str, teams: &[Row]) -> Result<(), Error> {
        for teams in teams.chunks(CHUNK) {
            let now = self.now.to_string();
            let without = |team: &Row| {
                let mut team = team.clone();
                team.updated_at.clone_from(&now);
                if let Some(users) = team.spec.get_mut("user_ids").and_then(Value::as_array_mut) {
                    users.retain(|id| id.as_str() != Some(user));
                }
                if let Some(ends) = team.spec.get_mut("user_ends").and_then(Value::as_object_mut) {
                    ends.remove(user);
                }
                team
            };
            let after: Vec<_> = teams.iter().map(without).collect();
            let specs: Vec<_> = after.iter().map(Row::spec_text).collect();
            let values = after.iter().zip(&specs).flat_map(|(row, spec)| [row.id.as_str(), spec]);
            let values: Vec<_> = [now.as_str()].into_iter().chain(values).collect();
            let text = "UPDATE objects SET updated_at = $1, spec = new.column2 FROM (VALUES {}) AS new \
                        WHERE objects.kind = 'teams' AND objects.id = new.column1";
            self.run(statement(text, &tuples(1, 2, teams.len()), &values)).await?;
            let ids: Vec<_> = teams.iter().map(|team| team.id.as_str()).collect();
            let text = "DELETE FROM uses WHERE used_kind = 'users' AND used_id = $1 AND kind = 'teams' AND id IN ({})";
            self.run(listing(text, &[user], &ids)).await?;
            let mut changes = Vec::new();
            for (before, row) in teams.iter().zip(&after) {
                self.add_object(row, row.bytes() - before.bytes());
                let (first, last) = differing(&before.audited(), &row.audited());
                changes.push(Recorded {
                    row,
                    before: Some(first),
                    after: Some(last),
                });
            }
            self.record_all("update", changes).await?;
        }
        Ok(())
    }

    /// Covers the objects of `kind` below `parents`, except `kept`, by rows of `removals`.
    pub(super) async fn cover_kind(&mut self, kind: Kind, parents: &[&str], kept: &str) -> Result<(), StoreError> {
        for parents in parents.chunks(CHUNK) {
            let (by, origin) = (self.by.clone(), self.by.origin.text());
            let values = [
                kind.word(),
                kept,
                &by.queue,
                &by.actor,
                &origin,
                &self.sequence.to_string(),
            ];
            let text = "INSERT INTO removals (parent_id, kind, position, kept, queue, actor, request_id) \
                        SELECT DISTINCT parent_id, kind, CAST($6 AS BIGINT), $2, $3, $4, $5 FROM objects \
                        WHERE kind = $1 AND parent_id IN ({}) AND id <> $2 ON CONFLICT (parent_id, kind) DO UPDATE SET \
                        position = excluded.position, kept = excluded.kept, queue = excluded.queue, \
                        actor = excluded.actor, request_id = excluded.request_id";
            self.run(listing(text, &values, parents)).await?;
        }
        Ok(())
    }

    /// Removes `rows`, which are of one kind. What is below them stays.
    pub async fn remove_all(&mut self, rows: &[Row]) -> Result<(), Error> {
        for rows in rows.chunks(CHUNK) {
            let kind = rows[0].kind;
            let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
            for text in [
                "DELETE FROM names WHERE kind = $1 AND id IN ({})",
                "DELETE FROM uses WHERE kind = $1 AND id IN ({})",
                "DELETE FROM uses WHERE used_kind = $1 AND used_id IN ({})",
                "DELETE FROM objects WHERE kind = $1 AND id IN ({})",
            ] {
                self.run(listing(text, &[kind.word()], &ids)).await?;
            }
            let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
            for row in rows {
                *counts.entry(&row.organization_id).or_default() += 1;
                self.add_object(row, -row.bytes());
            }
            for (organization, number) in counts {
                self.count_less(kind, organization, number).await?;
            }
            let gone = rows.iter().map(|row| Recorded {
                row,
                before: Some(row.audited()),
                after: None,
            });
            self.record_all(DELETE, gone.collect()).await?;
        }
        Ok(())
    }

    /// Records at most [`CHUNK`] changes.
    async fn record_all(&mut self, action: &'static str, changes: Vec<Recorded<'_>>) -> Result<(), StoreError> {
        let text = "INSERT INTO changes (at, organization_id, cluster_id, kind, object_id, action, actor, request_id, \
                    before, after, sequence) VALUES {}";
        let mut inserted = statement(text, &tuples(0, 11, changes.len()), &[]);
        for Recorded { row, before, after } in changes {
            let place = (&*row.organization_id, &*row.cluster_id, row.kind.word(), &*row.id);
            for value in self.next_change(place, action, &recorded(before), &recorded(after)) {
                inserted = inserted.bind(value);
            }
            inserted = inserted.bind(self.sequence);
            self.note(row, action);
        }
        self.run(inserted).await
    }
}
