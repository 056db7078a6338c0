//! Objects of an organization by their ids, names and references, for pages. Each set takes one statement, which reads
//! the rows that a page shows and no others.
//!
//! A pattern is one of `LIKE`, and is compared with lower case. Databases differ in the case of letters that are not
//! ASCII: the caller decides which of the found objects it means.

use std::collections::HashMap;

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::bulk::{CHUNK, listing, places, statement};
use super::database::Store;
use super::error::StoreError;
use super::row::{Row, present, select, select_all};
use super::source::query;
use crate::models::Kind;

/// A selection of the role bindings of an organization. An empty field selects all.
#[derive(Clone, Copy, Debug, Default)]
pub struct BindingFilter<'a> {
    /// The bindings of these users, and of their teams.
    pub people: &'a [&'a str],
    pub team: &'a str,
    pub role: &'a str,
    /// The bindings of this cluster, and those of all clusters.
    pub cluster: &'a str,
}

impl<'a> BindingFilter<'a> {
    /// The statement that selects the bindings of `organization`, and its first parameters. The last two are the
    /// position after which the bindings begin, and their maximum number.
    fn statement(&self, organization: &'a str) -> (String, Vec<&'a str>) {
        let (mut values, mut conditions) = (vec![organization], Vec::new());
        for (kind, id) in [("teams", self.team), ("roles", self.role)] {
            if !id.is_empty() {
                values.push(id);
                conditions.push(format!("id IN ({})", using(kind, &format!("= ${}", values.len()))));
            }
        }
        if !self.people.is_empty() {
            let people = format!("IN ({})", places(values.len(), self.people.len()));
            values.extend(self.people);
            conditions.push(format!(
                "id IN ({} UNION SELECT given.id FROM uses AS member JOIN uses AS given ON given.used_kind = 'teams' \
                 AND given.used_id = member.id AND given.kind = 'role-bindings' WHERE member.used_kind = 'users' \
                 AND member.used_id {people} AND member.kind = 'teams')",
                using("users", &people)
            ));
        }
        // The index by parents would read all bindings of the organization to find a few.
        let owner = if conditions.is_empty() {
            "parent_id"
        } else {
            "organization_id"
        };
        if !self.cluster.is_empty() {
            values.push(self.cluster);
            // With `=`, SQLite would look through the bindings of all clusters for each one.
            conditions.push(format!(
                "(id IN ({}) OR NOT EXISTS (SELECT 1 FROM uses WHERE uses.kind = 'role-bindings' \
                 AND uses.id = objects.id AND used_kind LIKE 'clusters'))",
                using("clusters", &format!("= ${}", values.len()))
            ));
        }
        let (after, limit) = (values.len() + 1, values.len() + 2);
        conditions.push(format!(
            "{owner} = $1 AND position > ${after} ORDER BY position LIMIT ${limit}"
        ));
        let bindings = select!("kind = 'role-bindings'");
        (format!("{bindings} AND {}", conditions.join(" AND ")), values)
    }
}

/// The statement that selects the role bindings that refer to objects of the kind `used`.
fn using(used: &str, ids: &str) -> String {
    format!("SELECT id FROM uses WHERE used_kind = '{used}' AND used_id {ids} AND kind = 'role-bindings'")
}

impl Store {
    /// At most `limit` role bindings of an organization after the position `after`.
    pub async fn bindings(
        &self,
        organization: &str,
        selected: &BindingFilter<'_>,
        (after, limit): (i64, i64),
    ) -> Result<Vec<Row>, StoreError> {
        let (text, values) = selected.statement(organization);
        let found = self.read(statement(&text, "", &values).bind(after).bind(limit)).await?;
        objects(&found)
    }

    /// The members, teams, roles and clusters of an organization that have these ids.
    pub async fn named_objects(&self, organization: &str, ids: &[&str]) -> Result<Vec<Row>, StoreError> {
        let text = select!(
            "kind IN ('users', 'teams', 'roles', 'clusters') AND id IN ({}) AND (parent_id = $1 OR (kind = 'users' \
             AND EXISTS (SELECT 1 FROM objects AS member WHERE member.kind = 'memberships' \
             AND member.id = $1 || '.' || objects.id)))"
        );
        objects(&self.with_list(text, &[organization], ids).await?)
    }

    /// The ids and the names of at most `limit` objects of an organization whose names match `pattern`, by name.
    pub async fn names(
        &self,
        kind: Kind,
        organization: &str,
        pattern: &str,
        limit: i64,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let statement = "SELECT id, name FROM names WHERE kind = $1 AND scope_id = $2 AND lower(name) LIKE $3 \
                         ORDER BY name LIMIT $4";
        let found = self
            .read(query(statement, &[kind.word(), organization, pattern]).bind(limit))
            .await?;
        found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// At most `limit` memberships of an organization after the position `after`, of users whose documents match
    /// `pattern`.
    pub async fn memberships(
        &self,
        organization: &str,
        pattern: &str,
        (after, limit): (i64, i64),
    ) -> Result<Vec<Row>, StoreError> {
        // The id of a membership is that of the organization, a dot, and that of the user.
        let text = select!(
            "kind = 'memberships' AND parent_id = $1 AND EXISTS (SELECT 1 FROM objects AS person \
             WHERE person.kind = 'users' AND person.id = substr(objects.id, 38) AND lower(person.spec) LIKE $2) \
             AND position > $3 ORDER BY position LIMIT $4"
        );
        let found = self
            .read(query(text, &[organization, pattern]).bind(after).bind(limit))
            .await?;
        objects(&found)
    }

    /// The number of SSH keys of each of `users`. A user without keys is absent.
    pub async fn numbers_of_keys(&self, users: &[&str]) -> Result<HashMap<String, i64>, StoreError> {
        let text = "SELECT parent_id, COUNT(*) FROM objects WHERE kind = 'ssh-keys' AND parent_id IN ({}) \
                    GROUP BY parent_id";
        let found = self.with_list(text, &[], users).await?;
        found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// The teams of `users` in an organization: for each the id of the user, its id, and its name.
    pub async fn teams_of(&self, organization: &str, users: &[&str]) -> Result<Vec<[String; 3]>, StoreError> {
        // `CROSS` keeps SQLite from looking for each user in each team.
        let text = "SELECT used_id, uses.id, name FROM uses CROSS JOIN names WHERE used_kind = 'users' \
                    AND used_id IN ({}) AND uses.kind = 'teams' AND names.kind = 'teams' AND names.id = uses.id \
                    AND scope_id = $1 ORDER BY name";
        let found = self.with_list(text, &[organization], users).await?;
        let texts = |row: &AnyRow| Ok([row.try_get(0)?, row.try_get(1)?, row.try_get(2)?]);
        found.iter().map(texts).collect()
    }

    /// The last reports of `clusters`.
    pub async fn reports_of(&self, clusters: &[&str]) -> Result<Vec<Row>, StoreError> {
        let text = select!("kind = 'cluster-reports' AND parent_id IN ({})");
        objects(&self.with_list(text, &[], clusters).await?)
    }

    /// The last upgrade that has not ended of each of `clusters`.
    pub async fn open_upgrades_of(&self, clusters: &[&str]) -> Result<Vec<Row>, StoreError> {
        let text = select_all!(
            "kind = 'upgrades' AND parent_id IN ({}) AND position IN (SELECT MAX(position) FROM objects \
             WHERE kind = 'upgrades' AND parent_id IN ({}) AND status NOT LIKE '%\"clusterStatus\":\"Success\"%' \
             AND status NOT LIKE '%\"clusterStatus\":\"Failed\"%' AND ",
            present!(),
            " GROUP BY parent_id)"
        );
        objects(&self.with_list(text, &[], clusters).await?)
    }

    /// At most `limit` upgrades of a cluster before the position `before`, the last one first.
    pub async fn upgrades_before(&self, cluster: &str, (before, limit): (i64, i64)) -> Result<Vec<Row>, StoreError> {
        let text = select!("kind = 'upgrades' AND parent_id = $1 AND position < $2 ORDER BY position DESC LIMIT $3");
        let found = self.read(query(text, &[cluster]).bind(before).bind(limit)).await?;
        objects(&found)
    }

    /// The plugins of `clusters` whose documents match `pattern`, in the order of their creation: the first 200.
    pub async fn plugins_of(&self, clusters: &[&str], pattern: &str) -> Result<Vec<Row>, StoreError> {
        let text =
            select!("kind = 'plugins' AND parent_id IN ({}) AND lower(spec) LIKE $1 ORDER BY position LIMIT 200");
        objects(&self.with_list(text, &[pattern], clusters).await?)
    }

    /// The rows of `text`, which has the parameters `values`, with `listed` in place of `{}`.
    async fn with_list(&self, text: &'static str, values: &[&str], listed: &[&str]) -> Result<Vec<AnyRow>, StoreError> {
        let mut found = Vec::new();
        for listed in listed.chunks(CHUNK) {
            found.extend(self.read(listing(text, values, listed)).await?);
        }
        Ok(found)
    }
}

fn objects(found: &[AnyRow]) -> Result<Vec<Row>, StoreError> {
    found.iter().map(Row::read).collect()
}
