//! `spec.providerID` of a Node: the cloud and the instance that the Node claims to be.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::string_value;

/// A well-formed `scheme://rest`. It is a claim of the kubelet, not a proof: `NodeRestriction` lets a kubelet register
/// with any providerID.
///
/// Each provider parses the rest by its own rules. This type only ensures that the text is safe to print and to
/// compare.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderId(Arc<str>);
string_value!(ProviderId, "providerID", well_formed);

const RULE: &str = "must be SCHEME://REST with at most 512 printable ASCII characters, for example aws:///us-east-1a/i-0123456789abcdef0";

fn well_formed(text: &str) -> Result<(), &'static str> {
    let parts = text.split_once("://");
    let ok = text.len() <= 512
        && text.bytes().all(|b| b.is_ascii_graphic())
        && parts.is_some_and(|(scheme, rest)| {
            !scheme.is_empty()
                && scheme
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !rest.is_empty()
        });
    if ok { Ok(()) } else { Err(RULE) }
}

impl ProviderId {
    /// The part before `://`: `aws`, `gce`, …
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The part after `://`.
    #[must_use]
    pub fn rest(&self) -> &str {
        self.0.split_once("://").map_or("", |(_, rest)| rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_the_clouds() {
        for (text, scheme, rest) in [
            (
                "aws:///us-east-1a/i-0123456789abcdef0",
                "aws",
                "/us-east-1a/i-0123456789abcdef0",
            ),
            ("gce://project/us-central1-a/name", "gce", "project/us-central1-a/name"),
            ("hcloud://42", "hcloud", "42"),
        ] {
            let id: ProviderId = text.parse().unwrap();
            assert_eq!((id.scheme(), id.rest()), (scheme, rest));
        }
    }

    #[test]
    fn junk_is_refused_and_shown_safely() {
        for text in [
            "",
            "aws",
            "://x",
            "aws://",
            "AWS://x",
            "aws:// x",
            "aws://a\nb",
            "aws://ä",
            &format!("aws://{}", "x".repeat(10_240)),
        ] {
            let error = text.parse::<ProviderId>().unwrap_err();
            assert!(error.to_string().len() < 400, "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
