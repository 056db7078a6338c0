//! The keys that sign tokens (ES256, RFC 7518), as files in a directory.
//!
//! Invariants: a key is published for [`ACTIVATION_DELAY`] before it signs, so that a verifier that caches the
//! published keys for at most that long never meets a token with an unknown key; it stays published until all tokens
//! that it signed have expired. The signing key depends only on the keys' times and the current time, so all servers
//! with the same directory agree. Private keys never leave the directory and this process. A key whose file is removed
//! is no longer trusted after a reload, also the last one: an operator who removes a stolen key relies on it.
//!
//! A file is named `<time of creation>-<kid>.pem` and contains the key as PKCS#8. The kid is the thumbprint of the
//! public key (RFC 7638): a file with another key's name is rejected.

mod document;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use zeroize::Zeroizing;

use super::secret_file::{self, SecretFileError};

pub use document::Discovery;

/// The time for which a key is published before it signs. Verifiers refresh their copy of the published keys at least
/// this often, and so does each server.
pub const ACTIVATION_DELAY: SignedDuration = SignedDuration::from_hours(1);

const CREATED: &str = "%Y%m%dT%H%M%SZ";
const SUFFIX: &str = ".pem";

/// The error of a key ring.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error(transparent)]
    File(#[from] SecretFileError),
    #[error("{} already contains signing keys: add one with tidewaiter cloud keys rotate", folder.display())]
    NotEmpty { folder: PathBuf },
    #[error("{} contains no signing key (<time>-<kid>{SUFFIX}): tidewaiter cloud keys rotate makes one", folder.display())]
    Empty { folder: PathBuf },
    #[error("{} {rule}", path.display())]
    Key { path: PathBuf, rule: &'static str },
    /// The library could not create a key: no randomness is available.
    #[error("cannot generate a signing key")]
    Generate,
}

/// The keys of a directory, the oldest first. There is at least one, unless the last one was removed while the server
/// ran.
#[derive(Debug, Default)]
pub struct KeyRing {
    keys: Vec<Arc<Key>>,
}

/// One key.
pub(crate) struct Key {
    created: Timestamp,
    /// Its `kid`.
    pub(crate) id: String,
    pub(crate) private: EncodingKey,
    pub(crate) public: DecodingKey,
    jwk: Jwk,
    path: PathBuf,
}

impl KeyRing {
    /// Creates a ring with its first key, which signs at once. The directory is created with mode 0700 if it does not
    /// exist.
    ///
    /// # Errors
    /// If the directory already contains keys, or cannot be written.
    pub fn create(folder: &Path, now: Timestamp) -> Result<Self, SigningError> {
        secret_file::create_folder(folder)?;
        match Self::load(folder) {
            Err(SigningError::Empty { .. }) => Self::rotate(folder, now),
            Err(error) => Err(error),
            Ok(_) => {
                let folder = folder.to_owned();
                Err(SigningError::NotEmpty { folder })
            }
        }
    }

    /// Reads the ring.
    ///
    /// # Errors
    /// If the directory contains no key, one that does not match its name, or one that other users can read or change.
    pub fn load(folder: &Path) -> Result<Self, SigningError> {
        let (ring, errors) = Self::default().read(folder)?;
        if let Some(error) = errors.into_iter().next() {
            return Err(error);
        }
        if ring.is_empty() {
            let folder = folder.to_owned();
            return Err(SigningError::Empty { folder });
        }
        Ok(ring)
    }

    /// The ring after files changed, perhaps empty. A key whose file is gone, or whose whole directory is, is gone too.
    /// A file that cannot be read or is no key, because it is being written, keeps the key that it had before; the
    /// errors name these files.
    ///
    /// # Errors
    /// If the directory cannot be listed: then no file is known to be gone.
    pub fn reload(&self, folder: &Path) -> Result<(Self, Vec<SigningError>), SigningError> {
        match self.read(folder) {
            Err(error) if error.is_gone() => Ok((Self::default(), Vec::new())),
            read => read,
        }
    }

    /// Other files are ignored, including those of an interrupted write, which begin with a dot.
    fn read(&self, folder: &Path) -> Result<(Self, Vec<SigningError>), SigningError> {
        let unreadable = |source| SecretFileError::Read {
            path: folder.to_owned(),
            source,
        };
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_str().unwrap_or_default();
            let Some(stem) = name.strip_suffix(SUFFIX).filter(|stem| !stem.starts_with('.')) else {
                continue;
            };
            match Key::read(path.clone(), stem) {
                Ok(key) => found.push(Arc::new(key)),
                // It was removed after the directory was listed, or is a link to a file that was.
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    found.extend(self.keys.iter().find(|key| key.path == path).cloned());
                    errors.push(error);
                }
            }
        }
        found.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        let mut keys: Vec<Arc<Key>> = Vec::with_capacity(found.len());
        for key in found {
            if keys.iter().any(|other| other.id == key.id) {
                // The key would have two times of creation.
                let (path, rule) = (key.path.clone(), "is one of two files with the same key");
                errors.push(SigningError::Key { path, rule });
            } else {
                keys.push(key);
            }
        }
        Ok((Self { keys }, errors))
    }

    /// Returns true if no key is left: then no token can be signed, and none is valid.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds a key, published at once, that signs after [`ACTIVATION_DELAY`], or at once if it is the only one. Its time
    /// is at least a second after that of the newest key, so that keys are ordered by creation.
    ///
    /// # Errors
    /// As for [`load`](Self::load), except that the directory may contain no key; and if it cannot be written.
    pub fn rotate(folder: &Path, now: Timestamp) -> Result<Self, SigningError> {
        let newest = match Self::load(folder) {
            Err(SigningError::Empty { .. }) => None,
            ring => ring?.keys.last().map(|key| key.created),
        };
        let after = newest.and_then(|newest| newest.checked_add(SignedDuration::from_secs(1)).ok());
        add_key(folder, after.map_or(now, |after| now.max(after)))?;
        Self::load(folder)
    }

    /// Removes the keys whose tokens have all expired, given the maximum lifetime `longest_life` of a token, and
    /// returns their kids. The signing key is never removed.
    ///
    /// # Errors
    /// As for [`load`](Self::load), and if the directory cannot be written.
    pub fn retire(folder: &Path, now: Timestamp, longest_life: SignedDuration) -> Result<Vec<String>, SigningError> {
        let ring = Self::load(folder)?;
        let pairs = ring.keys.iter().zip(&ring.keys[1..]);
        // A key signs until the next one is active.
        let over = pairs.take_while(|(_, next)| now.duration_since(next.signs_from()) >= longest_life);
        over.map(|(key, _)| {
            secret_file::remove(&key.path)?;
            Ok(key.id.clone())
        })
        .collect()
    }

    /// The public keys, as in `/.well-known/jwks.json` (RFC 7517).
    #[must_use]
    pub fn jwks(&self) -> JwkSet {
        let keys = self.keys.iter().map(|key| key.jwk.clone());
        JwkSet { keys: keys.collect() }
    }

    /// The key that signs at this time: the newest active one, or the oldest while none is active; `None` if there is
    /// none.
    pub(crate) fn signer(&self, now: Timestamp) -> Option<&Key> {
        let due = self.keys.iter().rfind(|key| key.signs_from() <= now);
        due.or(self.keys.first()).map(AsRef::as_ref)
    }

    /// The key with this kid. A kid is only compared, never used as a file name.
    pub(crate) fn find(&self, kid: &str) -> Option<&Key> {
        let found = self.keys.iter().find(|key| key.id == kid);
        found.map(AsRef::as_ref)
    }
}

impl SigningError {
    fn is_gone(&self) -> bool {
        matches!(self, Self::File(error) if error.is_gone())
    }
}

impl Key {
    fn signs_from(&self) -> Timestamp {
        self.created.saturating_add(ACTIVATION_DELAY).unwrap_or(Timestamp::MAX)
    }

    fn read(path: PathBuf, name: &str) -> Result<Self, SigningError> {
        let text = secret_file::read(&path)?;
        let wrong = |rule| SigningError::Key {
            path: path.clone(),
            rule,
        };
        let (created, kid) = parse_name(name).ok_or_else(|| wrong("is not named <time>-<kid>.pem"))?;
        let key = EncodingKey::from_ec_pem(text.as_bytes()).ok();
        let key = key.and_then(|key| public_half(&key).map(|(jwk, public)| (key, jwk, public)));
        let (private, jwk, public) =
            key.ok_or_else(|| wrong("does not contain a P-256 private key (PKCS#8 in PEM)"))?;
        if jwk.common.key_id.as_deref() != Some(kid) {
            return Err(wrong("contains a key other than the one in its name"));
        }
        let id = kid.to_owned();
        Ok(Self {
            created,
            id,
            private,
            public,
            jwk,
            path,
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("created", &self.created)
            .finish_non_exhaustive()
    }
}

fn add_key(folder: &Path, now: Timestamp) -> Result<(), SigningError> {
    let pem = generate().ok_or(SigningError::Generate)?;
    let key = EncodingKey::from_ec_pem(pem.as_bytes()).map_err(|_| SigningError::Generate)?;
    let (jwk, _) = public_half(&key).ok_or(SigningError::Generate)?;
    let kid = jwk.common.key_id.unwrap_or_default();
    let path = folder.join(format!("{}-{kid}{SUFFIX}", now.strftime(CREATED)));
    Ok(secret_file::create(&path, &pem)?)
}

/// A new private key as PKCS#8 in PEM (RFC 7468).
fn generate() -> Option<Zeroizing<String>> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).ok()?;
    let pkcs8 = pair.to_pkcs8v1().ok()?;
    let body = Zeroizing::new(STANDARD.encode(pkcs8.as_ref()));
    // A single allocation, so that no reallocation leaves a part of the key behind.
    let mut pem = Zeroizing::new(String::with_capacity(2 * body.len() + 64));
    pem.push_str("-----BEGIN PRIVATE KEY-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    Some(pem)
}

/// The public half of the key, as published and for verification; `None` for a key of another curve.
fn public_half(key: &EncodingKey) -> Option<(Jwk, DecodingKey)> {
    let mut jwk = Jwk::from_encoding_key(key, Algorithm::ES256).ok()?;
    jwk.common.public_key_use = Some(PublicKeyUse::Signature);
    jwk.common.key_id = Some(jwk.thumbprint(ThumbprintHash::SHA256).ok()?);
    let public = DecodingKey::from_jwk(&jwk).ok()?;
    Some((jwk, public))
}

/// The time and the kid in a file's name; a kid may begin with a hyphen, a time contains none.
fn parse_name(name: &str) -> Option<(Timestamp, &str)> {
    let (time, kid) = name.split_once('-')?;
    let created = DateTime::strptime(CREATED, time).ok()?;
    let created = created.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some((created, kid))
}

#[cfg(test)]
mod tests;
