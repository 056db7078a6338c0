//! Addresses of servers.

use std::str::FromStr;

use tidewaiter_api::InvalidValue;
use url::Url;

use super::{invalid_address, shown_and_read, text_value, written_as_shown};

const MAX_BYTES: usize = 2048;

/// A URL of `http` or `https` without user and password.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, max_length = 2048, pattern = r"^[Hh][Tt][Tt][Pp][Ss]?://[!#$&-.0-;=?A-Z\[\]_a-z~]+(/[!#-;=?A-Z\[\]_a-z~]*)?$", examples("https://example.com/a.png"))]
pub struct HttpUrl(Url);

impl HttpUrl {
    /// The URL as RFC 3986 normalizes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for HttpUrl {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        const KIND: &str = "URL";
        const RULE: &str =
            "must be an http or https URL of at most 2048 ASCII characters, for example https://example.com/a.png";
        // Normalization may lengthen it.
        let url = plain_url(text).filter(|url| url.as_str().len() <= MAX_BYTES);
        url.map(Self).ok_or_else(|| invalid_address(KIND, text, RULE))
    }
}

written_as_shown!(HttpUrl);
shown_and_read!(HttpUrl, "URL");

text_value! {
    /// The address of a server, exactly as given: `HOST`, `HOST:PORT`, with a path, or an `http` or `https` URL. For a
    /// registry it is the key under which a container runtime looks for the credentials, so not one byte may change.
    #[schema(max_length = 512, pattern = r"^(https?://|(?!.*://))[!$&-.0-;=A-Z\[\]_a-z~]+(/[!$-;=A-Z\[\]_a-z~]*)?$", examples("registry.example.com:5000"))]
    Address, "address", address,
    "must be HOST, HOST:PORT, HOST/PATH or an http or https URL, without user, query and fragment, of at most 512 ASCII characters",
    crate::models::values::invalid_address
}

fn address(text: &str) -> bool {
    let url = if text.starts_with("https://") || text.starts_with("http://") {
        plain_url(text)
    } else if text.contains("://") {
        None
    } else {
        plain_url(&format!("https://{text}"))
    };
    url.is_some_and(|url| url.query().is_none() && url.fragment().is_none() && text.len() <= 512)
}

/// The library ignores white space and backslashes; here they are rejected.
fn plain_url(text: &str) -> Option<Url> {
    let ascii = text.len() <= MAX_BYTES
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && !b"\\\"<>`{|}^@".contains(&b));
    let url = ascii.then(|| Url::parse(text).ok()).flatten()?;
    let web = matches!(url.scheme(), "http" | "https") && url.host().is_some();
    // The library also accepts `https:host` and any number of slashes before a host, and decodes a host.
    let authority = text.split_once("://").map_or("", |(_, rest)| rest);
    let host = authority.split('/').next().unwrap_or_default();
    (web && !host.is_empty() && !host.contains('%')).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_values;

    #[test]
    fn addresses_stay_as_they_were_written() {
        assert_values! { Address:
            [
                "quay.io", "registry.example.com:5000", "https://index.docker.io/v1/", "gcr.io/project", "10.0.0.1:6443",
                "[::1]:5000", "localhost"
            ]
            not [
                "", "/", "a b", "user:pass@quay.io", "ftp://a", "https://", "a?b", "a#b", "a:99999", "a\n",
                "\u{e4}.example", "a\\b", "//quay.io", "https:///quay.io", "%71uay.io", "a".repeat(513)
            ]
        }
        for text in ["registry.example.com:5000", "https://index.docker.io/v1/", "[::1]:5000"] {
            assert_eq!(text.parse::<Address>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn urls() {
        assert_eq!(
            "HTTPS://Example.com".parse::<HttpUrl>().unwrap().as_str(),
            "https://example.com/"
        );
        assert_values! { HttpUrl:
            []
            not [
                "", "example.com", "javascript:alert(1)", "data:,a", "https:a", "https:///", "https:///example.com",
                "https://%65xample.com", "https://a b", "https://a/\u{e4}", "\thttps://a"
            ]
        }
        let error = "https://me:hunter2@example.com".parse::<HttpUrl>().unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
