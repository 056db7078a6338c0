//! The token in a file, as kubectl reads it: without the white space around it, and again after a minute.
//!
//! kube's own reader takes the file as it is, and no header can contain the line feed at its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use http::header::HeaderValue;
use kube::Config;
use kube::client::AuthError;
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;

use crate::clock::SharedClock;

/// The interval of reading the file again. The kubelet replaces the token of a pod long before the old one expires.
const RELOAD_INTERVAL: Duration = Duration::from_mins(1);

/// The token of a kubeconfig's `tokenFile`, or of the pod's service account.
pub(super) struct TokenFile {
    path: PathBuf,
    clock: SharedClock,
    /// The header, and when it was read.
    read: Mutex<(HeaderValue, Duration)>,
}

impl TokenFile {
    /// Takes the file out of the credentials of `config`. It overrides an inline token, which counts as long as the
    /// file cannot be read (client-go, `bearerAuthRoundTripper`).
    ///
    /// # Errors
    /// If there is no inline token, and the file cannot be read or contains what cannot be a token.
    pub(super) fn take(config: &mut Config, clock: &SharedClock) -> Result<Option<Arc<Self>>, kube::Error> {
        let Some(path) = config.auth_info.token_file.take().filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let path = PathBuf::from(path);
        let inline = config.auth_info.token.take();
        let inline = inline.filter(|token| !token.expose_secret().is_empty());
        let header = match (read(&path), inline) {
            (Err(_), Some(token)) => bearer(token.expose_secret()),
            (header, _) => header,
        };
        let header = header.map_err(kube::Error::Auth)?;
        Ok(Some(Arc::new(Self {
            path,
            read: Mutex::new((header, clock.monotonic())),
            clock: Arc::clone(clock),
        })))
    }

    /// The header `Authorization`. If the file cannot be read again, that of the last token, as in client-go
    /// (kubernetes/kubernetes#68164).
    pub(super) fn header(&self) -> HeaderValue {
        let mut last = self.read.lock();
        let now = self.clock.monotonic();
        if now.saturating_sub(last.1) >= RELOAD_INTERVAL {
            *last = (read(&self.path).unwrap_or_else(|_| last.0.clone()), now);
        }
        last.0.clone()
    }
}

fn read(path: &Path) -> Result<HeaderValue, AuthError> {
    let text = fs::read_to_string(path).map_err(|error| AuthError::ReadTokenFile(error, path.to_owned()))?;
    if text.trim().is_empty() {
        let empty = io::Error::other("it is empty");
        return Err(AuthError::ReadTokenFile(empty, path.to_owned()));
    }
    bearer(text.trim())
}

fn bearer(token: &str) -> Result<HeaderValue, AuthError> {
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header = header.map_err(AuthError::InvalidBearerToken)?;
    header.set_sensitive(true);
    Ok(header)
}
