//! The token that authorizes requests.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tidewaiter_kit::files;
use tracing::{info, warn};

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

/// The end of a token's lifetime as the token states it, which is not verified; `None` for what is no token of a user.
#[must_use]
pub fn stated_expiry(token: &str) -> Option<Timestamp> {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

/// The source of the token of a request. Clones share the last token that was read.
#[derive(Clone)]
pub(super) struct TokenSource {
    file: Option<PathBuf>,
    last: Arc<Mutex<Last>>,
}

struct Last {
    token: HeaderValue,
    /// The reason why the file could not be used; logged once.
    error: Option<String>,
}

impl TokenSource {
    pub(super) fn new(token: &AccessToken, file: Option<PathBuf>) -> Self {
        let last = Last {
            token: token.header(),
            error: None,
        };
        Self {
            file,
            last: Arc::new(Mutex::new(last)),
        }
    }

    /// The value of `Authorization`. Reads the file, which is small; while it cannot be used, the last token stays.
    pub(super) fn header(&self) -> HeaderValue {
        let read = self.file.as_deref().map(|path| (path, read(path)));
        let mut last = self.last.lock();
        match read {
            Some((path, Ok(token))) => {
                let token = token.header();
                if token != last.token {
                    info!(file = %path.display(), "the file contains another token, which is used from now on");
                    last.token = token;
                }
                last.error = None;
            }
            Some((path, Err(error))) if last.error.as_ref() != Some(&error) => {
                warn!(file = %path.display(), error, "the token cannot be read again; the last one stays in use");
                last.error = Some(error);
            }
            _ => {}
        }
        last.token.clone()
    }
}

/// The token in a file, without the white space around it. No error contains it.
fn read(path: &Path) -> Result<AccessToken, String> {
    let text = files::read(path).and_then(files::text);
    let text = text.map_err(|error| error.to_string())?;
    text.trim().parse().map_err(|error: InvalidToken| error.to_string())
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_an_editor_adds_to_the_file_is_no_part_of_it() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all("\u{feff}twk_hunter2\r\n".as_bytes()).unwrap();
        assert_eq!(read(file.path()).unwrap().header(), "JWT twk_hunter2");
    }

    #[test]
    fn no_log_of_headers_shows_it() {
        let token: AccessToken = "hunter2".parse().unwrap();
        assert_eq!(
            format!("{:?} {token:?}", token.header()),
            "Sensitive AccessToken(not shown)"
        );
    }
}
