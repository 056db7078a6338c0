//! A stored object.

use serde_json::{Map, Value};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::error::StoreError;
use crate::models::Kind;

/// The size of a row without its texts, with its indexes, in bytes. The migration 0007 has the same number.
const ROW: usize = 512;

/// A stored object. Ids, times and documents were validated before; an absent value is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub kind: Kind,
    /// Unique among its kind.
    pub id: String,
    /// Its organization; for an organization its own id, for the catalogue empty.
    pub organization_id: String,
    /// The cluster that it concerns; empty if it concerns the whole organization.
    pub cluster_id: String,
    pub parent_id: String,
    /// The user who created it.
    pub owner_id: String,
    /// The position in lists, a number that only grows.
    pub position: i64,
    /// The time of creation, RFC 3339.
    pub created_at: String,
    /// The time of the last change, RFC 3339.
    pub updated_at: String,
    /// The fields that clients set.
    pub spec: Map<String, Value>,
    /// The status that a cluster reported.
    pub status: Option<Value>,
    /// The column that no response contains: encrypted credentials, or a hash.
    pub secret: SecretColumn,
}

/// The secret column, which is never printed.
#[derive(Clone, Default, PartialEq)]
pub struct SecretColumn(pub String);

impl std::fmt::Debug for SecretColumn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "not shown" })
    }
}

/// The condition that an object is not removed: see [`removal`](super::removal).
macro_rules! present {
    () => {
        "NOT EXISTS (SELECT 1 FROM removals WHERE removals.parent_id = objects.parent_id AND removals.kind = objects.kind \
         AND removals.position >= objects.position AND removals.kept <> objects.id)"
    };
}
pub(super) use present;

/// A statement that selects objects for [`Row::read`], given the part after `WHERE`, with those that are removed.
macro_rules! select_all {
    ($($where:expr),+) => {
        concat!(
            "SELECT kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, updated_at, spec, status, secret ",
            "FROM objects WHERE ",
            $($where),+
        )
    };
}
pub(super) use select_all;

/// As `select_all!`, without removed objects. The part after `WHERE` has no `OR`.
macro_rules! select {
    ($where:literal) => {
        $crate::server::store::row::select_all!($crate::server::store::row::present!(), " AND ", $where)
    };
}
pub(super) use select;

impl Row {
    /// An object that is to be created, with nothing but a kind and an id.
    pub fn new(kind: Kind, id: impl Into<String>) -> Self {
        Self {
            kind,
            id: id.into(),
            organization_id: String::new(),
            cluster_id: String::new(),
            parent_id: String::new(),
            owner_id: String::new(),
            position: 0,
            created_at: String::new(),
            updated_at: String::new(),
            spec: Map::new(),
            status: None,
            secret: SecretColumn::default(),
        }
    }

    /// The object in a row of [`select`].
    pub(super) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        let text = |column| row.try_get::<String, _>(column);
        let parsed = |column| row.try_get::<&str, _>(column);
        let (kind, id) = (text("kind")?, text("id")?);
        let damaged = |what: &str| StoreError::Damaged(format!("{what} of {kind} {id}"));
        let status = match parsed("status")? {
            "" => None,
            text => Some(serde_json::from_str(text).map_err(|_| damaged("the status"))?),
        };
        Ok(Self {
            kind: Kind::of(&kind).ok_or_else(|| damaged("the kind"))?,
            organization_id: text("organization_id")?,
            cluster_id: text("cluster_id")?,
            parent_id: text("parent_id")?,
            owner_id: text("owner_id")?,
            position: row.try_get("position")?,
            created_at: text("created_at")?,
            updated_at: text("updated_at")?,
            spec: serde_json::from_str(parsed("spec")?).map_err(|_| damaged("the document"))?,
            status,
            secret: SecretColumn(text("secret")?),
            id,
        })
    }

    /// A field of the spec, if it is a text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.spec.get(field).and_then(Value::as_str)
    }

    pub(super) fn spec_text(&self) -> String {
        Value::Object(self.spec.clone()).to_string()
    }

    pub(super) fn status_text(&self) -> String {
        self.status.as_ref().map_or_else(String::new, Value::to_string)
    }

    /// The audit log's representation: everything except secrets, and a user's telephone number, which is private.
    pub(super) fn audited(&self) -> Value {
        let mut shown = self.spec.clone();
        if self.kind == Kind::User {
            shown.remove("phone");
        }
        if let Some(status) = &self.status {
            shown.insert("status".to_owned(), status.clone());
        }
        Value::Object(shown)
    }

    /// Returns its size in the database, in bytes.
    pub(super) fn bytes(&self) -> i64 {
        size(&[&self.spec_text(), &self.status_text(), &self.secret.0])
    }
}

/// Returns the size of a row with these texts, in bytes.
pub(super) fn size(texts: &[&str]) -> i64 {
    let texts: usize = texts.iter().map(|text| text.len()).sum();
    i64::try_from(texts + ROW).unwrap_or(i64::MAX)
}

/// The id of a membership.
pub fn membership_id(organization: &str, user: &str) -> String {
    format!("{organization}.{user}")
}
