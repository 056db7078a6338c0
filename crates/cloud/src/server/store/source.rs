//! Reads of objects: of committed data, or within a transaction.

use async_trait::async_trait;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, Row as _};

use super::error::StoreError;
use super::names;
use super::row::{Row, present, select};
use crate::models::Kind;
use crate::server::Error;
use crate::server::refusal::Refusal;

/// A source of objects: a read-only request or a writing transaction, so that both check the parents of an object by
/// the same code. An error means that the database cannot be read.
#[async_trait]
pub trait Source: Send {
    /// The rows that `statement` selects, with `values` as its parameters.
    async fn fetch(&mut self, statement: &'static str, values: &[&str]) -> Result<Vec<AnyRow>, StoreError>;

    /// The rows that `statement` selects, as objects.
    async fn rows(&mut self, statement: &'static str, values: &[&str]) -> Result<Vec<Row>, StoreError> {
        let found = self.fetch(statement, values).await?;
        // Each is dropped when it was read: a list may have many, and manifests have megabytes.
        found.into_iter().map(|row| Row::read(&row)).collect()
    }

    /// The object, if it exists.
    async fn get(&mut self, kind: Kind, id: &str) -> Result<Option<Row>, StoreError> {
        let mut found = self.rows(select!("kind = $1 AND id = $2"), &[kind.word(), id]).await?;
        Ok(found.pop())
    }

    /// The document of the object as it is stored, if the object exists.
    async fn document(&mut self, kind: Kind, id: &str) -> Result<Option<String>, StoreError> {
        let statement = concat!("SELECT spec FROM objects WHERE kind = $1 AND id = $2 AND ", present!());
        let found = self.fetch(statement, &[kind.word(), id]).await?;
        let text = |row: &AnyRow| Ok(row.try_get("spec")?);
        found.first().map(text).transpose()
    }

    /// The object, or that it is not found.
    async fn existing(&mut self, kind: Kind, id: &str) -> Result<Row, Error> {
        let row = self.get(kind, id).await?;
        Ok(row.ok_or_else(Refusal::not_found)?)
    }

    /// The children of `parent`, in the order of their creation.
    async fn children(&mut self, kind: Kind, parent: &str) -> Result<Vec<Row>, StoreError> {
        let statement = select!("kind = $1 AND parent_id = $2 ORDER BY position");
        self.rows(statement, &[kind.word(), parent]).await
    }

    /// The ids of all objects of one kind, in the order of their creation.
    async fn ids_of(&mut self, kind: Kind) -> Result<Vec<String>, StoreError> {
        let statement = concat!(
            "SELECT id FROM objects WHERE kind = $1 AND ",
            present!(),
            " ORDER BY position"
        );
        let found = self.fetch(statement, &[kind.word()]).await?;
        found.iter().map(|row| Ok(row.try_get("id")?)).collect()
    }

    /// All objects of one kind.
    async fn of_kind(&mut self, kind: Kind) -> Result<Vec<Row>, StoreError> {
        self.rows(select!("kind = $1 ORDER BY position"), &[kind.word()]).await
    }

    /// The objects of `kind` that refer to the object `id` of the kind `used`, in the order of their creation.
    async fn using(&mut self, kind: Kind, used: Kind, id: &str) -> Result<Vec<Row>, StoreError> {
        let statement = select!(
            "kind = $1 AND id IN (SELECT id FROM uses WHERE used_kind = $2 AND used_id = $3 AND kind = $1) ORDER BY position"
        );
        self.rows(statement, &[kind.word(), used.word(), id]).await
    }

    /// The object with this name.
    async fn named(&mut self, kind: Kind, scope: &str, name: &str) -> Result<Option<Row>, StoreError> {
        let statement =
            select!("kind = $1 AND id IN (SELECT id FROM names WHERE kind = $1 AND scope_id = $2 AND name = $3)");
        let mut found = self
            .rows(statement, &[kind.word(), scope, &names::stored(name)])
            .await?;
        Ok(found.pop())
    }
}

/// A statement with its parameters.
pub(super) type Statement = Query<'static, Any, AnyArguments>;

/// `statement` with `values` as its first parameters.
pub(super) fn query(statement: &'static str, values: &[&str]) -> Statement {
    let query = sqlx::query(statement);
    values.iter().fold(query, |query, value| query.bind(*value))
}
