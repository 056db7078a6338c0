//! The audit log of the API server.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::iter::Map;
use std::path::Path;
use std::slice::Iter;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

/// Entries of the audit log, oldest first; the filters narrow them.
///
/// There is one entry for each finished request, refused ones included, and one more for each watch that has begun.
#[derive(Clone, Debug)]
pub struct Audit(pub(super) Vec<Arc<AuditEntry>>);

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
    /// The caller.
    pub user: AuditUser,
    /// The impersonated user, if there is one.
    #[serde(default)]
    pub impersonated_user: Option<AuditUser>,
    /// The user agent of the client.
    #[serde(default)]
    pub user_agent: String,
    /// The requested object; absent for what is not a resource.
    #[serde(default)]
    pub object_ref: ObjectRef,
    /// The response; absent if there was none.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// When it came in.
    pub request_received_timestamp: Timestamp,
    /// When the stage was reached: of a finished request, its end.
    pub stage_timestamp: Timestamp,
}

/// The file of the audit log, as far as it has been read: each line is parsed once.
#[derive(Debug, Default)]
pub(super) struct AuditLog {
    /// The number of bytes that have been read.
    offset: u64,
    entries: Vec<Arc<AuditEntry>>,
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

impl AuditLog {
    /// Reads what the file has gained, and returns all entries; a line that is not complete yet is left for the next
    /// time.
    pub(super) fn read(&mut self, path: &Path) -> &[Arc<AuditEntry>] {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(path) {
            file.seek(SeekFrom::Start(self.offset))
                .expect("the audit log is a file");
            file.read_to_end(&mut bytes).expect("the audit log can be read");
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = bytes[..whole]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        self.entries
            .extend(lines.map(|line| Arc::new(serde_json::from_slice(line).expect("an audit entry"))));
        self.offset += u64::try_from(whole).expect("a log is shorter than 2^64 bytes");
        &self.entries
    }

    /// From now on the log begins after what has been read.
    pub(super) fn forget(&mut self) {
        self.entries.clear();
    }
}

impl Audit {
    /// Those after the mark.
    #[must_use]
    pub fn since(mut self, mark: AuditMark) -> Self {
        self.0.drain(..mark.0.min(self.0.len()));
        self
    }

    /// Those for which `keep` is true.
    #[must_use]
    pub fn filter(mut self, mut keep: impl FnMut(&AuditEntry) -> bool) -> Self {
        self.0.retain(|entry| keep(entry));
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

    /// Returns the number of entries.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Each in turn.
    pub fn iter(&self) -> <&Self as IntoIterator>::IntoIter {
        self.0.iter().map(Arc::as_ref)
    }
}

impl<'a> IntoIterator for &'a Audit {
    type Item = &'a AuditEntry;
    type IntoIter = Map<Iter<'a, Arc<AuditEntry>>, fn(&'a Arc<AuditEntry>) -> &'a AuditEntry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl AuditEntry {
    /// Returns true if it is a finished request that changes something, or would have if it had not been refused.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.stage != "ResponseStarted"
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection"
            )
    }
}
