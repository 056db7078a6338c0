//! Signed manifests of plugins: which text is signed, and how a signature is made and verified.
//!
//! The signature itself is that of [`tidewaiter_signature`]. Invariants:
//! - The signed text names the cluster, the plugin with its type and implementation, the version, and the digest of the
//!   manifests. So no signature counts for another cluster, plugin or version, or for changed manifests.
//! - The time of a signature is in its trusted comment (`timestamp:SECONDS`), which is signed, too. Anyone who verifies
//!   must refuse a time before that of the last signature it accepted: so an older version, or older manifests of the
//!   same version, need a new signature.
//!
//! The digest is over a canonical form and not over the bytes of a response, because the cloud stores JSON, not text:
//! the compact JSON of an object with the members `depends_on`, `manifests`, `post_apply` and `pre_apply`, each a list.
//! A list that is missing or `null` is empty there. The keys of objects are sorted by their bytes, numbers are written
//! as in the shortest form that is read as the same number.

#![expect(missing_docs, reason = "a field that its name explains has no comment")]

use serde_json::Value;
pub use tidewaiter_signature::{SignatureError, SigningKey, TrustedKey};
use tidewaiter_signature::{sha256, statement};

/// The first line of each signed text: no signature for another purpose counts.
const PURPOSE: &str = "tidewaiter plugin manifests 1";

/// The data that is signed.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    pub cluster: &'a str,
    pub plugin: &'a str,
    pub plugin_type: &'a str,
    pub implementation: &'a str,
    pub version: &'a str,
    /// The digest of the manifests ([`manifests_digest`]).
    pub digest: &'a str,
}

impl Statement<'_> {
    /// The text that is signed; `minisign -S` of a file with this text makes the same signature.
    ///
    /// # Errors
    /// When a part is empty, or is not printable ASCII without spaces.
    pub fn text(&self) -> Result<String, SignatureError> {
        let parts = [
            ("cluster", self.cluster),
            ("plugin", self.plugin),
            ("type", self.plugin_type),
            ("implementation", self.implementation),
            ("version", self.version),
            ("sha256", self.digest),
        ];
        statement(PURPOSE, &parts)
    }
}

/// The lists of manifests, each in the canonical form.
#[derive(Debug)]
pub struct SignedLists {
    pub depends_on: String,
    pub manifests: String,
    pub post_apply: String,
    pub pre_apply: String,
}

impl SignedLists {
    /// The digest of the manifests, as [`manifests_digest`] has it.
    #[must_use]
    pub fn digest(&self) -> String {
        let Self {
            depends_on,
            manifests,
            post_apply,
            pre_apply,
        } = self;
        let canonical = format!(
            r#"{{"depends_on":{depends_on},"manifests":{manifests},"post_apply":{post_apply},"pre_apply":{pre_apply}}}"#
        );
        sha256(canonical.as_bytes())
    }
}

/// The digest of the manifests, as the cloud serves them or as they are sent to it: SHA-256 in hexadecimal digits.
#[must_use]
pub fn manifests_digest(manifests: &Value) -> String {
    let jobs = manifests.get("jobs").unwrap_or(&Value::Null);
    let list = |value: Option<&Value>| {
        let value = value.filter(|value| !value.is_null());
        value.map_or_else(|| "[]".to_owned(), Value::to_string)
    };
    let lists = SignedLists {
        depends_on: list(manifests.get("depends_on")),
        manifests: list(manifests.get("manifests")),
        post_apply: list(jobs.get("post_apply")),
        pre_apply: list(jobs.get("pre_apply")),
    };
    lists.digest()
}

/// Verifies the signature of the statement, and returns when it was made, in seconds since 1970.
///
/// # Errors
/// The reason why the signature is rejected.
pub fn verify(keys: &[TrustedKey], statement: &Statement<'_>, signature: &str) -> Result<i64, SignatureError> {
    tidewaiter_signature::verify(keys, &statement.text()?, signature)
}

/// Signs the statement at `time`, in seconds since 1970. Returns the four lines of the signature.
///
/// # Errors
/// When the statement cannot be signed.
pub fn sign(key: &SigningKey, statement: &Statement<'_>, time: i64) -> Result<String, SignatureError> {
    let name = format!("plugin-{}-{}", statement.plugin, statement.version);
    key.sign(&statement.text()?, &name, time)
}

#[cfg(test)]
mod tests;
