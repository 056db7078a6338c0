//! What organizations have of their limits, from the numbers that each change counts: no object is read.

use std::collections::HashMap;

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::database::Store;
use super::deadline::within;
use super::error::StoreError;
use super::source::query;
use crate::models::Kind;

/// What an organization has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of objects of each kind, in the order of the names of the kinds.
    pub counts: Vec<(Kind, i64)>,
    /// The size of its objects without tokens, in bytes.
    pub bytes: i64,
}

impl Store {
    /// What the organizations at the positions `first` to `last` have, by their ids.
    pub async fn usage(&self, (first, last): (i64, i64)) -> Result<HashMap<String, Usage>, StoreError> {
        let counts = "SELECT organization_id, kind, count FROM counts WHERE count > 0 AND organization_id IN \
                      (SELECT id FROM objects WHERE kind = 'organizations' AND parent_id = '' \
                      AND position BETWEEN $1 AND $2) ORDER BY kind";
        let bytes = "SELECT owner, bytes FROM stored WHERE what = 'objects' AND owner IN \
                     (SELECT id FROM objects WHERE kind = 'organizations' AND parent_id = '' \
                     AND position BETWEEN $1 AND $2)";
        let mut found: HashMap<String, Usage> = HashMap::new();
        for row in self.rows_between(counts, (first, last)).await? {
            if let Some(kind) = Kind::of(row.try_get("kind")?) {
                let usage = found.entry(row.try_get("organization_id")?).or_default();
                usage.counts.push((kind, row.try_get("count")?));
            }
        }
        for row in self.rows_between(bytes, (first, last)).await? {
            found.entry(row.try_get("owner")?).or_default().bytes = row.try_get("bytes")?;
        }
        Ok(found)
    }

    async fn rows_between(
        &self,
        statement: &'static str,
        (first, last): (i64, i64),
    ) -> Result<Vec<AnyRow>, StoreError> {
        let mut reader = self.reader().await?;
        let query = query(statement, &[]).bind(first).bind(last);
        let found = within(query.fetch_all(&mut *reader)).await?;
        Ok(reader.end(found))
    }
}
