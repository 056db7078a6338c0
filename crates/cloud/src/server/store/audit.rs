//! Rows of the audit.

use serde_json::Value;

pub(super) type AuditColumns = (
    i64,
    String,
    String,
    String,
    String,
    String,
    String,
    String,
    String,
    String,
);

/// A row of the audit.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRow {
    /// The number of the change.
    pub sequence: i64,
    /// When, RFC 3339.
    pub at: String,
    /// Which cluster it concerns, or empty.
    pub cluster_id: String,
    /// The kind of the object.
    pub kind: String,
    /// The object.
    pub object_id: String,
    /// `create`, `update` or `delete`.
    pub action: String,
    /// Who: `user:ID`, `cluster:ID` or `system`.
    pub actor: String,
    /// On which request.
    pub request_id: String,
    /// What it was, without secrets; null when it was not there.
    pub before: Value,
    /// What it is, without secrets; null when it is not there any more.
    pub after: Value,
}

impl From<AuditColumns> for AuditRow {
    fn from(columns: AuditColumns) -> Self {
        let (sequence, at, cluster_id, kind, object_id, action, actor, request_id, before, after) = columns;
        let document = |text: String| serde_json::from_str(&text).unwrap_or_default();
        Self {
            sequence,
            at,
            cluster_id,
            kind,
            object_id,
            action,
            actor,
            request_id,
            before: document(before),
            after: document(after),
        }
    }
}
