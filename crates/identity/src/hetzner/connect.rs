//! Connects to Hetzner Cloud: the token, and a client whose calls have timeouts.

use std::fmt;
use std::str::FromStr;

use reqwest::header::HeaderValue;
use reqwest::redirect;
use url::Url;

use crate::client_settings::ClientSettings;

const ENDPOINT: &str = "https://api.hetzner.cloud";

/// Longer than any token.
const MAX_TOKEN: usize = 512;

/// A token for a project's API. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiToken(HeaderValue);

/// The text is not a valid token. It is not printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API token is not valid: must be 1 to 512 printable ASCII characters without spaces")]
pub struct InvalidToken;

impl FromStr for ApiToken {
    type Err = InvalidToken;

    /// Whitespace around the token is ignored: a file usually ends with a line break.
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let token = text.trim();
        if !(1..=MAX_TOKEN).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidToken);
        }
        let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| InvalidToken)?;
        header.set_sensitive(true);
        Ok(Self(header))
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiToken(…)")
    }
}

/// The client of [`Hetzner`](super::Hetzner). Create it with [`client`].
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) http: reqwest::Client,
    pub(super) servers: String,
    token: ApiToken,
}

/// The client could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the Hetzner Cloud client")]
pub struct ClientError(#[source] reqwest::Error);

/// A client for [`Hetzner`](super::Hetzner). It does not retry: the caller does. It follows no redirects, so the token
/// is not sent elsewhere.
///
/// # Errors
/// If TLS cannot be set up.
pub fn client(token: ApiToken, settings: &ClientSettings) -> Result<Client, ClientError> {
    let http = reqwest::Client::builder()
        .connect_timeout(settings.connect)
        .timeout(settings.call)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(concat!("tidewaiter/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(ClientError)?;
    let base = settings.endpoint.as_ref().map_or(ENDPOINT, Url::as_str);
    Ok(Client {
        http,
        servers: format!("{}/v1/servers", base.trim_end_matches('/')),
        token,
    })
}

impl Client {
    pub(super) fn authorization(&self) -> HeaderValue {
        self.token.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_checked_and_never_shown() {
        let token: ApiToken = "the-secret\n".parse().unwrap();
        assert_eq!(token.0.to_str().unwrap(), "Bearer the-secret");
        let client = client(token.clone(), &ClientSettings::default()).unwrap();
        for shown in [format!("{token:?}"), format!("{client:?}"), format!("{:?}", token.0)] {
            assert!(!shown.contains("secret"), "{shown}");
        }
        for bad in ["", " \n", "two words", "line\nbreak", "ä", &"x".repeat(513)] {
            assert_eq!(bad.parse::<ApiToken>(), Err(InvalidToken), "{bad:?}");
        }
    }
}
