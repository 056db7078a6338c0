//! The home organization of a user, which changes when it is deleted.

use std::slice::from_ref;

use super::row::Row;
use super::source::{Source as _, query};
use super::transaction::Transaction;
use crate::models::Kind;
use crate::server::Error;

impl Transaction {
    /// Makes `home` the home of the user, with what belongs to the user. No quota of `home` applies: the user is a
    /// member of it already, and would be lost otherwise. Its limit in bytes does.
    pub async fn move_home(&mut self, user: &Row, home: &str) -> Result<(), Error> {
        let statement =
            "UPDATE objects SET organization_id = $1, parent_id = $1, updated_at = $2 WHERE kind = 'users' AND id = $3";
        let now = self.now.to_string();
        self.run(query(statement, &[home, &now, &user.id])).await?;
        self.count_home(Kind::User, from_ref(user), &user.organization_id, home)
            .await?;
        for kind in Kind::User.children() {
            let rows = self.children(kind, &user.id).await?;
            let statement = "UPDATE objects SET organization_id = $1 WHERE kind = $2 AND parent_id = $3";
            self.run(query(statement, &[home, kind.word(), &user.id])).await?;
            self.count_home(kind, &rows, &user.organization_id, home).await?;
        }
        let moved = of_home(user, home);
        self.record(&moved, "update", Some(user.audited()), Some(moved.audited()))
            .await
    }

    /// Counts `rows` in `to`, and no longer in `from`.
    async fn count_home(&mut self, kind: Kind, rows: &[Row], from: &str, to: &str) -> Result<(), Error> {
        for row in rows {
            self.add_object(row, -row.bytes());
            self.add_object(&of_home(row, to), row.bytes());
        }
        let number = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        Ok(self.count_moved(kind, from, to, number).await?)
    }
}

fn of_home(row: &Row, home: &str) -> Row {
    Row {
        organization_id: home.to_owned(),
        ..row.clone()
    }
}
