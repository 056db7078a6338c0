//! The keys that sign the scripts of upgrades, each in a file that the setting `scriptKeys` names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::StatusCode;
use tidewaiter_kit::Chain;
use tidewaiter_signature::{SignatureError, SigningKey};
use tracing::error;

use super::secret_file::{self, SecretFileError};
use crate::server::refusal::Refusal;

/// A key for scripts cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptKeyError {
    #[error("a key of scriptKeys cannot be used")]
    File(#[from] SecretFileError),
    #[error("scriptKeys has {}", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: SignatureError,
    },
}

/// Each file with its key; `None` if the file was removed while the server ran.
#[derive(Debug)]
pub(crate) struct ScriptKeys(Vec<(PathBuf, Option<Arc<SigningKey>>)>);

impl ScriptKeys {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be read, is no key, or needs a password.
    pub(crate) fn load(files: &[PathBuf]) -> Result<Self, ScriptKeyError> {
        let load = |path: &PathBuf| Ok((path.clone(), Some(Arc::new(read(path)?))));
        files.iter().map(load).collect::<Result<_, _>>().map(Self)
    }

    /// The keys after files changed. A key whose file is gone is gone too, because it may have been stolen. A file that
    /// cannot be used, because it is being written, keeps the key that it had before. Logs both.
    pub(crate) fn reload(&self) -> Self {
        let reload = |(path, before): &(PathBuf, Option<Arc<SigningKey>>)| {
            let key = match read(path) {
                Ok(key) => Some(Arc::new(key)),
                Err(error) => {
                    error!(error = %Chain(&error), "cannot reload a key that signs scripts");
                    let gone = matches!(&error, ScriptKeyError::File(error) if error.is_gone());
                    before.clone().filter(|_| !gone)
                }
            };
            (path.clone(), key)
        };
        Self(self.0.iter().map(reload).collect())
    }

    /// Returns true if the server signs scripts.
    pub(crate) fn sign(&self) -> bool {
        !self.0.is_empty()
    }

    /// The keys whose files exist.
    ///
    /// # Errors
    /// 503 if none is left. A script without a signature is not served instead: a node that trusts keys would refuse
    /// it, and its upgrade would have failed.
    pub(crate) fn left(&self) -> Result<Vec<Arc<SigningKey>>, Refusal> {
        let left: Vec<_> = self.0.iter().filter_map(|(_, key)| key.clone()).collect();
        if left.is_empty() {
            let message = "the server cannot sign the script: the files of scriptKeys were removed; its operator adds \
                           them again, or changes scriptKeys and restarts it";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        Ok(left)
    }
}

/// Reads a key. A server cannot be asked for a password.
fn read(path: &Path) -> Result<SigningKey, ScriptKeyError> {
    let password = || {
        let reason = "it has a password: give the server one without (minisign -G -W), or sign with tidewaiter cloud sign-script";
        Err(SignatureError::SecretKey(reason.to_owned()))
    };
    let text = secret_file::read(path)?;
    SigningKey::read(&text, password).map_err(|source| ScriptKeyError::Key {
        path: path.to_owned(),
        source,
    })
}
