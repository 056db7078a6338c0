//! The home organization of a user, which changes when it is deleted.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::reads::Source as _;
use super::stored::size;
use super::{Row, StoreError, Transaction};
use crate::models::Kind;
use crate::server::Error;

impl Transaction {
    /// Makes `home` the home of the user, with what belongs to the user. No quota of `home` applies: the user is a member of
    /// it already, and would be lost otherwise.
    pub async fn move_home(&mut self, user: &Row, home: &str) -> Result<(), Error> {
        let statement = "UPDATE objects SET organization_id = $1, parent_id = $1, updated_at = $2 WHERE kind = 'users' AND id = $3 \
                         RETURNING OCTET_LENGTH(spec) + OCTET_LENGTH(status) + OCTET_LENGTH(secret)";
        let now = self.now.to_string();
        let found = self.fetch(statement, &[home, &now, &user.id]).await?;
        self.moved(Kind::User, &user.organization_id, home, &found).await?;
        for kind in Kind::User.children() {
            let statement = "UPDATE objects SET organization_id = $1 WHERE kind = $2 AND parent_id = $3 \
                             RETURNING OCTET_LENGTH(spec) + OCTET_LENGTH(status) + OCTET_LENGTH(secret)";
            let found = self.fetch(statement, &[home, kind.word(), &user.id]).await?;
            self.moved(kind, &user.organization_id, home, &found).await?;
        }
        let moved = Row {
            organization_id: home.to_owned(),
            ..user.clone()
        };
        self.record(&moved, "update", Some(user.audited()), Some(moved.audited()))
            .await
    }

    /// Counts the objects, each with its bytes, in `to` and no more in `from`.
    async fn moved(&mut self, kind: Kind, from: &str, to: &str, found: &[AnyRow]) -> Result<(), Error> {
        for row in found {
            let bytes = row.try_get::<i64, _>(0).map_err(StoreError::from)? + size(&[]);
            self.add_object(from, "", -bytes);
            self.add_object(to, "", bytes);
        }
        let number = i64::try_from(found.len()).unwrap_or(i64::MAX);
        Ok(self.count_moved(kind, from, to, number).await?)
    }
}
