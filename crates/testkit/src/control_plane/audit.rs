//! What the API server says was asked of it: its audit log.

use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

/// Entries of the audit log, oldest first; the filters narrow them.
///
/// There is one entry for each finished request, refused ones included, and one more for each watch that has begun.
#[derive(Clone, Debug)]
pub struct Audit(Vec<AuditEntry>);

/// A moment in the audit log: the number of entries before it.
#[derive(Clone, Copy, Debug)]
pub struct AuditMark(pub(super) usize);

/// One request, as `audit.k8s.io/v1` at level Metadata tells it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// `ResponseStarted` (of a watch), `ResponseComplete` or `Panic`.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// Who asked.
    pub user: AuditUser,
    /// The program that asked, by its own words.
    #[serde(default)]
    pub user_agent: String,
    /// What was asked for; absent for what is not a resource.
    #[serde(default)]
    pub object_ref: ObjectRef,
    /// What was answered; absent when nothing was.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// When it came in.
    pub request_received_timestamp: Timestamp,
}

/// The user of an [`AuditEntry`].
#[derive(Clone, Debug, Deserialize)]
pub struct AuditUser {
    /// As [`Identity::username`](crate::Identity::username) says it.
    pub username: String,
    /// All groups, `system:authenticated` included.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// The object of an [`AuditEntry`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    /// Plural and lower case, as `nodes`.
    pub resource: String,
    /// As `status`; empty for the object itself.
    pub subresource: String,
    /// Empty for what is cluster-scoped.
    pub namespace: String,
    /// Empty for lists.
    pub name: String,
}

/// The answer of an [`AuditEntry`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    /// The HTTP status, 0 when there was none.
    pub code: u16,
}

impl Audit {
    /// Reads what the file holds now; a line that is not complete yet is left out.
    pub(super) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let entries = bytes[..whole]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        Self(
            entries
                .map(|line| serde_json::from_slice(line).expect("an audit entry"))
                .collect(),
        )
    }

    /// Those after the mark.
    #[must_use]
    pub fn since(mut self, mark: AuditMark) -> Self {
        self.0.drain(..mark.0.min(self.0.len()));
        self
    }

    /// Those for which `keep` is true.
    #[must_use]
    pub fn filter(mut self, keep: impl FnMut(&AuditEntry) -> bool) -> Self {
        self.0.retain(keep);
        self
    }

    /// Those of this user.
    #[must_use]
    pub fn by(self, identity: &super::Identity) -> Self {
        let username = identity.username();
        self.filter(|entry| entry.user.username == username)
    }

    /// Those with this verb.
    #[must_use]
    pub fn verb(self, verb: &str) -> Self {
        self.filter(|entry| entry.verb == verb)
    }

    /// Those that concern this resource (plural, as `nodes`), its subresources included.
    #[must_use]
    pub fn of(self, resource: &str) -> Self {
        self.filter(|entry| entry.object_ref.resource == resource)
    }

    /// Finished requests that change something, or would have if they had not been refused.
    #[must_use]
    pub fn writes(self) -> Self {
        self.filter(AuditEntry::is_write)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Each in turn.
    pub fn iter(&self) -> std::slice::Iter<'_, AuditEntry> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Audit {
    type Item = &'a AuditEntry;
    type IntoIter = std::slice::Iter<'a, AuditEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl AuditEntry {
    /// Whether it is a finished request that changes something, or would have if it had not been refused.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.stage != "ResponseStarted"
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection"
            )
    }
}
