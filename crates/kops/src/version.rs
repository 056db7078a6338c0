//! The version of kOps that last updated the cluster, as it writes it into the state store.

use std::fmt;

use semver::Version;
use tidewaiter_api::values::quoted;

use crate::store::{Read, ReadFile, StoreError};

/// The file below the configuration base. Source: `PathKopsVersionUpdated` of kOps
/// (`pkg/apis/kops/registry/registry.go`).
pub const VERSION_FILE: &str = "kops-version.txt";

/// A version of kOps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KopsVersion(Version);

/// The reason why the version is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The file cannot be read.
    #[error(transparent)]
    Store(StoreError),
    /// The file contains something else.
    #[error("{VERSION_FILE}: is {found}, must be a version of kOps such as 1.36.0")]
    Invalid {
        /// Its content, quoted.
        found: String,
    },
}

impl KopsVersion {
    /// Reads the version.
    ///
    /// # Errors
    /// See [`VersionError`].
    pub async fn read(store: &dyn ReadFile) -> Result<Self, VersionError> {
        // No store says "not modified" of a file whose version nobody named.
        let Read::Found { bytes, .. } = store.read(VERSION_FILE, None).await.map_err(VersionError::Store)? else {
            return Err(VersionError::Invalid { found: quoted("") });
        };
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let version = Version::parse(text.strip_prefix('v').unwrap_or(text));
        version
            .map(Self)
            .map_err(|_| VersionError::Invalid { found: quoted(text) })
    }

    /// Returns true if kops-controller takes the labels of nodes on AWS from the tags of their instances: since 1.36,
    /// its pre-releases included.
    #[must_use]
    pub fn labels_from_tags(&self) -> bool {
        (self.0.major, self.0.minor) >= (1, 36)
    }
}

impl fmt::Display for KopsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::store::Etag;

    /// A store in which every file has this content.
    #[derive(Debug)]
    struct Holds(&'static [u8]);

    #[async_trait]
    impl ReadFile for Holds {
        async fn read(&self, file: &str, _: Option<&Etag>) -> Result<Read, StoreError> {
            assert_eq!(file, "kops-version.txt");
            let bytes = self.0.into();
            Ok(Read::Found { bytes, etag: None })
        }

        async fn list(&self, _: &str) -> Result<Vec<String>, StoreError> {
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn which_versions_take_labels_from_tags() {
        for (text, expected) in [
            ("1.36.0", true),
            ("1.36.0\n", true),
            ("1.36.0-alpha.1", true),
            ("1.37.0-alpha.1", true),
            ("1.36.0-beta.1+v1.36.0-beta.1-45-gabcdef", true),
            ("2.0.0", true),
            ("v1.36.1", true),
            ("1.35.9", false),
            ("1.9.0", false),
            ("0.99.0", false),
        ] {
            let found = KopsVersion::read(&Holds(text.as_bytes())).await;
            assert_eq!(
                found.is_ok_and(|version| version.labels_from_tags()),
                expected,
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn what_is_no_version_is_named() {
        for (text, shown) in [
            (&b""[..], "\"\""),
            (b"1.36", "\"1.36\""),
            (b"<html>\n", "\"<html>\""),
            (b"\xff\xfe1.36.0", "\"\u{fffd}\u{fffd}1.36.0\""),
        ] {
            let error = KopsVersion::read(&Holds(text)).await.unwrap_err();
            let expected = format!("kops-version.txt: is {shown}, must be a version of kOps such as 1.36.0");
            assert_eq!(error.to_string(), expected);
        }
    }
}
