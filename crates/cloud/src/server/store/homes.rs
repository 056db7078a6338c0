//! The home organization of a user, which changes when it is deleted.

use super::deadline::within;
use super::reads::query;
use super::{Row, Transaction};
use crate::models::Kind;
use crate::server::Error;

impl Transaction {
    /// Makes `home` the home of the user, with what belongs to the user. No quota of `home` applies: the user is a member of
    /// it already, and would be lost otherwise.
    pub async fn move_home(&mut self, user: &Row, home: &str) -> Result<(), Error> {
        let statement =
            "UPDATE objects SET organization_id = $1, parent_id = $1, updated_at = $2 WHERE kind = 'users' AND id = $3";
        let now = self.now.to_string();
        self.run(query(statement, &[home, &now, &user.id])).await?;
        self.count_moved(Kind::User, &user.organization_id, home, 1).await?;
        for kind in Kind::User.children() {
            let statement = "UPDATE objects SET organization_id = $1 WHERE kind = $2 AND parent_id = $3";
            let moved = query(statement, &[home, kind.word(), &user.id]);
            let moved = within(moved.execute(&mut *self.connection)).await?.rows_affected();
            let number = i64::try_from(moved).unwrap_or(i64::MAX);
            self.count_moved(kind, &user.organization_id, home, number).await?;
        }
        let moved = Row {
            organization_id: home.to_owned(),
            ..user.clone()
        };
        self.record(&moved, "update", &user.audited(), &moved.audited()).await
    }
}
