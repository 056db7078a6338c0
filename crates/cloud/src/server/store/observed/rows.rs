//! The rows of what was observed, and their counts.

use jiff::Timestamp;
use serde_json::json;

use super::{Count, Subject, Written};
use crate::server::Error;
use crate::server::store::database::Store;
use crate::server::store::draft::{Author, Origin};
use crate::server::store::error::StoreError;
use crate::server::store::row::size;
use crate::server::store::source::query;
use crate::server::store::storage_limits::What;
use crate::server::store::transaction::Transaction;

/// The maximum number of rows of one write, for which others wait.
const CHUNK: usize = 100;

impl Store {
    /// Counts what the request `origin` did.
    pub fn observe(&self, subject: Subject, origin: &Origin, now: Timestamp) {
        self.observed.add(subject, origin.clone(), now);
    }

    /// Writes what was observed since the last time.
    pub(in crate::server::store) async fn write_observed(&self) -> Result<(), Error> {
        for pending in self.observed.pending().chunks(CHUNK) {
            let pending = pending.to_vec();
            let write = async move |transaction: &mut Transaction| {
                let mut rows = Vec::new();
                for (subject, count) in pending {
                    let written = transaction.write_count(&subject, &count).await?;
                    rows.push((subject, count.first, written));
                }
                Ok(rows)
            };
            let rows = self.write(Author::system(), write).await?;
            self.observed.written(rows);
        }
        Ok(())
    }
}

impl Transaction {
    /// Writes one row, or its new count.
    async fn write_count(&mut self, subject: &Subject, count: &Count) -> Result<Written, StoreError> {
        let Count { first, last, .. } = count;
        let after = json!({ "count": count.number, "first": first.to_string(), "last": last.to_string() }).to_string();
        let mut written = Written {
            row: 0,
            count: count.number,
            bytes: size(&["", &after]),
        };
        if let Some(before) = &count.written {
            written.row = before.row;
            let update = "UPDATE changes SET after = $1 WHERE sequence = $2 RETURNING sequence";
            let update = query(update, &[&after]);
            // None if the log has dropped it.
            if !self.all(update.bind(written.row)).await?.is_empty() {
                let (what, owner) = What::of_change(&subject.actor, &subject.organization);
                self.add(what, owner, written.bytes - before.bytes);
                self.silent = true;
            }
        } else {
            self.by = Author {
                actor: subject.actor.clone(),
                origin: count.origin.clone(),
                ..Author::default()
            };
            let place = (
                &*subject.organization,
                &*subject.cluster,
                subject.kind.word(),
                &*subject.object,
            );
            self.add_change(place, subject.action.word(), "", &after).await?;
            written.row = self.sequence;
        }
        self.growth.is_free = true;
        Ok(written)
    }
}
