//! The location of a state store: `s3://bucket/path`, `gs://bucket/path` or `file:///path`.

use std::fmt;
use std::str::FromStr;

use object_store::path::Path;
use tidewaiter_api::values::quoted;

use crate::cloud::Cloud;

/// The base of a cluster's files: the `configBase` of kOps.
///
/// It contains no `..`, no empty part and no query, so that a path below it cannot escape it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateUrl {
    scheme: Scheme,
    bucket: String,
    prefix: Path,
}

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Amazon S3, or a store with the same protocol.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// A folder of this host.
    File,
}

impl Scheme {
    const ALL: [Self; 3] = [Self::S3, Self::Gs, Self::File];

    fn prefix(self) -> &'static str {
        match self {
            Self::S3 => "s3://",
            Self::Gs => "gs://",
            Self::File => "file://",
        }
    }
}

/// The text is not the URL of a state store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidStateUrl {
    /// Nothing that kOps knows, or not a complete URL.
    #[error("{shown} is not a state store: must be s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH{hint}")]
    Malformed {
        /// The text.
        shown: String,
        /// The error in it; may be empty.
        hint: &'static str,
    },
    /// A store of a cloud that this version does not support.
    #[error("{shown} is a state store of {cloud}: {}", Cloud::SUPPORTED)]
    Unsupported {
        /// The text.
        shown: String,
        /// The cloud.
        cloud: Cloud,
    },
}

/// The schemes of kOps' other state stores. Source: `util/pkg/vfs` of kOps.
const UNSUPPORTED: [(&str, Cloud); 5] = [
    ("azureblob://", Cloud::Azure),
    ("do://", Cloud::DigitalOcean),
    ("linode://", Cloud::Linode),
    ("scw://", Cloud::Scaleway),
    ("swift://", Cloud::Openstack),
];

impl StateUrl {
    /// The kind of the store.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The bucket; empty for a folder.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The object of `file`, a path below the base.
    pub(crate) fn object(&self, file: &str) -> Path {
        self.prefix.parts().chain(Path::from(file).parts()).collect()
    }
}

impl FromStr for StateUrl {
    type Err = InvalidStateUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |hint| InvalidStateUrl::Malformed {
            shown: quoted(text),
            hint,
        };
        if let Some((_, cloud)) = UNSUPPORTED.into_iter().find(|(scheme, _)| text.starts_with(scheme)) {
            return Err(InvalidStateUrl::Unsupported {
                shown: quoted(text),
                cloud,
            });
        }
        let scheme = Scheme::ALL.into_iter().find(|scheme| text.starts_with(scheme.prefix()));
        let scheme = scheme.ok_or_else(|| invalid(""))?;
        let rest = &text[scheme.prefix().len()..];
        if rest.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '%' | '\\')) {
            return Err(invalid(", without whitespace, '?', '#', '%' or '\\'"));
        }
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        if scheme == Scheme::File && (!bucket.is_empty() || !rest.starts_with('/')) {
            return Err(invalid(" (a directory is an absolute path: three slashes)"));
        }
        if scheme != Scheme::File && !is_bucket(bucket) {
            return Err(invalid(
                " (a bucket name consists of letters, digits, '.', '-' and '_')",
            ));
        }
        let prefix = Path::parse(path.trim_end_matches('/'));
        Ok(Self {
            scheme,
            bucket: bucket.to_owned(),
            prefix: prefix.map_err(|_| invalid(" (the path must not contain an empty part, '.' or '..')"))?,
        })
    }
}

fn is_bucket(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=255).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

impl fmt::Display for StateUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}", self.scheme.prefix(), self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_kops_writes() {
        for (text, scheme, bucket, object) in [
            (
                "s3://state/c.example.com",
                Scheme::S3,
                "state",
                "c.example.com/instancegroup/nodes",
            ),
            (
                "s3://state.example.com/c.example.com/",
                Scheme::S3,
                "state.example.com",
                "c.example.com/instancegroup/nodes",
            ),
            ("s3://state", Scheme::S3, "state", "instancegroup/nodes"),
            (
                "gs://state_1/a/b/c.example.com",
                Scheme::Gs,
                "state_1",
                "a/b/c.example.com/instancegroup/nodes",
            ),
            (
                "file:///var/state/c.example.com",
                Scheme::File,
                "",
                "var/state/c.example.com/instancegroup/nodes",
            ),
        ] {
            let url: StateUrl = text.parse().unwrap();
            assert_eq!((url.scheme(), url.bucket()), (scheme, bucket), "{text}");
            assert_eq!(url.object("instancegroup/nodes").as_ref(), object, "{text}");
            assert_eq!(
                url.to_string(),
                text.trim_end_matches('/').to_owned() + if text.matches('/').count() == 2 { "/" } else { "" }
            );
        }
    }

    #[test]
    fn what_is_no_state_store_is_refused_in_one_line() {
        for text in [
            "",
            "state",
            "/var/state",
            "s3:/state/x",
            "s3://",
            "s3:///x",
            "S3://state/x",
            "http://state/x",
            "memfs://x",
            "s3://a b/c",
            "s3://state/a//b",
            "s3://state/../x",
            "s3://state/a/./b",
            "s3://state/a?b",
            "s3://state/a#b",
            "s3://user@state/x",
            "s3://state:80/x",
            "s3://../x",
            "s3://state/%2e%2e/x",
            "file://var/x",
            "file://",
            "file:///a/../b",
            "s3://state/a\nb",
            "s3://-a/b",
            &format!("s3://{}/a", "x".repeat(300)),
        ] {
            let error = text.parse::<StateUrl>().unwrap_err().to_string();
            assert!(
                error.contains("must be s3://BUCKET/PATH") && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
