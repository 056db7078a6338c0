//! Rows of the audit log.

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

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRow {
    /// The number of the change.
    pub sequence: i64,
    /// The time, RFC 3339.
    pub at: String,
    /// The cluster that it concerns, or empty.
    pub cluster_id: String,
    /// The kind of the object.
    pub kind: String,
    /// The object.
    pub object_id: String,
    /// `create`, `update` or `delete`.
    pub action: String,
    /// The author: `user:ID`, `cluster:ID` or `system`.
    pub actor: String,
    /// The id of the request.
    pub request_id: String,
    /// The object before the change, without secrets; null if it was created.
    pub before: Value,
    /// The object after the change, without secrets; null if it was deleted.
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
