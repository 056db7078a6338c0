//! The errors of reads, with texts that stay the same as long as the failure does.
//!
//! Request ids, durations and counts of retries are omitted: a message becomes an Event or a condition, and one that
//! differs between requests would be a new one each time. The log has them (level debug).

use std::error::Error;
use std::io;

use url::Url;

use super::url::{Scheme, StateUrl};
use crate::document::one_line;

/// The reason why a state store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The endpoint is invalid.
    #[error("the state store's endpoint {endpoint} must be http://HOST or https://HOST")]
    Endpoint {
        /// The address.
        endpoint: String,
    },
    /// The client cannot be created, for example because a credentials file is invalid.
    #[error("the state store {url} cannot be opened")]
    Client {
        /// The URL of the store.
        url: String,
        /// The error of the client.
        source: object_store::Error,
    },
}

/// The reason why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file or the bucket does not exist.
    #[error("{file}: is missing from the state store ({detail})")]
    Missing {
        /// The file, below the configuration base.
        file: String,
        /// The error of the store.
        detail: String,
    },
    /// The permission to read it is missing. S3 also responds this way for a missing file if the permission to list the
    /// bucket is missing.
    #[error("{file}: the state store denies access ({detail})")]
    Denied {
        /// The file, below the configuration base.
        file: String,
        /// The error of the store.
        detail: String,
    },
    /// The store is unavailable or its response is not a file. A later read may succeed.
    #[error("{file}: the state store does not return the file ({detail})")]
    Unavailable {
        /// The file, below the configuration base.
        file: String,
        /// Details in words.
        detail: String,
    },
    /// There is something else in place of the file, in a folder of this host.
    #[error("{file}: is {found}, must be a file")]
    NotAFile {
        /// The file, below the configuration base.
        file: String,
        /// The object in its place, in words.
        found: &'static str,
    },
    /// The file exceeds [`MAX_FILE_BYTES`](crate::store::MAX_FILE_BYTES).
    #[error("{file}: is larger than 1 MiB")]
    TooLarge {
        /// The file, below the configuration base.
        file: String,
    },
}

impl StoreError {
    /// The outcome of a read, for metrics.
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Denied { .. } => "denied",
            Self::Unavailable { .. } => "unavailable",
            Self::NotAFile { .. } => "not_a_file",
            Self::TooLarge { .. } => "too_large",
        }
    }

    pub(super) fn of(file: &str, url: &StateUrl, error: &object_store::Error) -> Self {
        tracing::debug!(file, store = %url, error = error as &dyn Error, "state store read failed");
        let file = file.to_owned();
        let detail = detail(error);
        match error {
            object_store::Error::NotFound { .. } => Self::Missing { file, detail },
            object_store::Error::PermissionDenied { .. } if url.scheme() == Scheme::S3 => Self::Denied {
                file,
                detail: format!(
                    "{detail}; without the permission s3:ListBucket, S3 also reports a missing file this way"
                ),
            },
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::Denied { file, detail }
            }
            _ if is_denied_by_the_host(error) => Self::Denied { file, detail },
            _ => Self::Unavailable { file, detail },
        }
    }
}

/// The error of a folder of this host.
pub(super) fn of_host(error: io::Error) -> object_store::Error {
    object_store::Error::Generic {
        store: "LocalFileSystem",
        source: Box::new(error),
    }
}

/// Returns true if the bucket is in another region than the requested one. S3 then redirects, with or without an
/// address.
pub(super) fn is_elsewhere(error: &object_store::Error) -> bool {
    const SIGNS: [&str; 5] = [
        REDIRECT,
        "redirect",
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraint",
    ];
    let text = error.to_string();
    matches!(error, object_store::Error::Generic { .. }) && SIGNS.iter().any(|sign| text.contains(sign))
}

/// A body that ended before its announced length.
pub(super) fn incomplete(got: usize, announced: u64) -> object_store::Error {
    object_store::Error::Generic {
        store: "state",
        source: format!("the body ended after {got} of {announced} bytes").into(),
    }
}

fn is_denied_by_the_host(error: &object_store::Error) -> bool {
    chain(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause| (*cause).source())
}

/// The client's text for a redirect that has an address, which it does not follow.
const REDIRECT: &str = "status code: 30";

/// The innermost cause in one line: the code and message of S3's and GCS's XML, or the text before a body.
fn detail(error: &object_store::Error) -> String {
    if error.to_string().contains(REDIRECT) {
        return "it redirects to another address, which is not followed".to_owned();
    }
    if is_elsewhere(error) {
        return "the bucket is in another region".to_owned();
    }
    let text = chain(error).last().map(ToString::to_string).unwrap_or_default();
    match (element(&text, "Code"), element(&text, "Message")) {
        (Some(code), Some(message)) => one_line(&format!("{code}: {message}")),
        (Some(code), None) => one_line(code),
        _ => {
            let text = text.split(['<', '{']).next().unwrap_or_default();
            let text = one_line(text.trim_end_matches([':', ' ']));
            match host(error).filter(|_| !text.contains("status code")) {
                Some(host) => format!("{text}; the host is {host}"),
                None => text,
            }
        }
    }
}

/// The host that a failed request was for; the system's errors about connections and names do not say it.
fn host(error: &object_store::Error) -> Option<String> {
    let texts = chain(error).map(ToString::to_string);
    let mut hosts = texts.filter_map(|text| {
        let mut words = text.split([' ', '(', ')']);
        let url = words.find_map(|word| word.parse::<Url>().ok().filter(|url| url.scheme().starts_with("http")))?;
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        Some(format!("{}{port}", url.host_str()?))
    });
    hosts.next()
}

/// The text of the first `<name>` in a response that is too small and simple for an XML parser.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(content, _)| content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> StateUrl {
        "s3://state/c.example.com".parse().unwrap()
    }

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic {
            store: "S3",
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn a_message_holds_nothing_that_changes_with_the_request() {
        let body = |id: &str| {
            generic(&format!(
                "Server returned non-2xx status code: 503 Service Unavailable: <?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code>\
                 <Message>Reduce your\nrequest rate.</Message><RequestId>{id}</RequestId></Error>"
            ))
        };
        let (first, second) = (
            StoreError::of("f", &url(), &body("A1")),
            StoreError::of("f", &url(), &body("B2")),
        );
        assert_eq!(first, second);
        assert_eq!(
            first.to_string(),
            "f: the state store does not return the file (SlowDown: Reduce your request rate.)"
        );
        let html = generic("Server returned non-2xx status code: 502 Bad Gateway: <html>\n<p>a1b2</p>");
        assert_eq!(detail(&html), "Server returned non-2xx status code: 502 Bad Gateway");
    }

    #[test]
    fn a_folder_that_we_may_not_enter_is_denied() {
        let error = object_store::Error::Generic {
            store: "LocalFileSystem",
            source: Box::new(io::Error::from(io::ErrorKind::PermissionDenied)),
        };
        assert_eq!(
            StoreError::of("f", &"file:///x".parse().unwrap(), &error).outcome(),
            "denied"
        );
    }

    #[test]
    fn the_signs_of_another_region() {
        for text in [
            "Received redirect without LOCATION, this normally indicates an incorrectly configured region",
            "Server returned non-2xx status code: 400 Bad Request: <Error><Code>AuthorizationHeaderMalformed</Code></Error>",
            "Server returned non-2xx status code: 307 Temporary Redirect: ",
        ] {
            assert!(is_elsewhere(&generic(text)), "{text}");
        }
        assert!(!is_elsewhere(&generic("connection refused")));
    }
}
