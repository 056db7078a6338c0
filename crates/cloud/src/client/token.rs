//! The token that authorizes requests.

use std::fmt;
use std::str::FromStr;

use http::HeaderValue;

/// A user's token or a cluster's API key, as a header value. It is never printed.
#[derive(Clone)]
pub struct AccessToken(HeaderValue);

/// The text is not a valid token. It is not printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("(not shown): must be 1 to 16384 visible ASCII characters without spaces, as the cloud issued it")]
pub struct InvalidToken;

impl AccessToken {
    /// The value of `Authorization`.
    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl FromStr for AccessToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let plain = (1..=16_384).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        let mut value = HeaderValue::from_str(&format!("JWT {text}")).map_err(|_| InvalidToken)?;
        value.set_sensitive(true);
        if plain { Ok(Self(value)) } else { Err(InvalidToken) }
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_log_of_headers_shows_it() {
        let token: AccessToken = "hunter2".parse().unwrap();
        assert_eq!(
            format!("{:?} {token:?}", token.header()),
            "Sensitive AccessToken(not shown)"
        );
    }
}
