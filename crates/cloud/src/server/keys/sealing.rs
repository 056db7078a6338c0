//! Encrypts credentials at rest with AES-256-GCM-SIV (RFC 8452), so that a copy of the database reveals none.
//!
//! Invariants: a sealed value can be decrypted only for the owner that it was encrypted for, so a copy under another
//! object, organization or kind is useless; a nonce is random, and a repeated one would reveal only that two values are
//! equal; keys are in a file that only its owner can read. No error and no `Debug` output contains a key or a value.
//!
//! The file has one line per key, `<id>:<base64 of 32 bytes>`. The first key encrypts, all keys decrypt. If several
//! servers share a database, add a new key to all of them as a later line before it becomes the first one anywhere.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::secret_file::{self, SecretFileError};

const VERSION: u8 = 1;
const KEY_BYTES: usize = 32;

/// The version, the id of the key and the nonce, before the encrypted bytes.
const HEAD: usize = 1 + KeyId::BYTES + NONCE_LEN;

/// An encryption or decryption failed.
#[derive(Debug, thiserror::Error)]
pub enum SealingError {
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// A line of the file is not a key.
    #[error("line {line} of {}: {rule}", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        rule: &'static str,
    },
    #[error("{} contains no key", path.display())]
    Empty { path: PathBuf },
    #[error("the value is encrypted with the key {id}, which {} does not contain", path.display())]
    NoKey { id: KeyId, path: PathBuf },
    /// The keys of the file are not those of the database.
    #[error(
        "{} does not contain the key {id}, with which values of the database are encrypted: add its line, or put the right file there",
        path.display()
    )]
    Lacking { id: KeyId, path: PathBuf },
    /// The value is not an encrypted one, or was written by a newer version.
    #[error("the value is not an encrypted value")]
    Malformed,
    #[error("the value encrypted with the key {id} was modified or belongs to another object")]
    Refused { id: KeyId },
    /// The library could not encrypt or create a key: no randomness is available.
    #[error("cannot seal")]
    Seal,
}

/// The id of a key: eight random hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyId([u8; Self::BYTES]);

impl KeyId {
    const BYTES: usize = 4;

    fn parse(text: &str) -> Option<Self> {
        let id = Self(u32::from_str_radix(text, 16).ok()?.to_be_bytes());
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The owner of a value. It can be decrypted only for the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The kind and field: `registry.credentials`.
    pub kind: &'a str,
    pub object: Uuid,
    pub organization: Uuid,
}

impl Owner<'_> {
    /// The data that is authenticated with the value, including its head. Only the kind has a variable length, and it
    /// comes last.
    fn bound_to(&self, head: [u8; HEAD - NONCE_LEN]) -> Aad<Vec<u8>> {
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(self.object.as_bytes());
        bytes.extend_from_slice(self.organization.as_bytes());
        bytes.extend_from_slice(self.kind.as_bytes());
        Aad::from(bytes)
    }
}

/// The keys of a file, at least one; the first one encrypts.
#[derive(Debug)]
pub struct Sealer {
    path: PathBuf,
    keys: Vec<(KeyId, RandomizedNonceKey)>,
}

impl Sealer {
    /// Creates the file with one key; refuses to overwrite an existing file.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn create(path: &Path) -> Result<Self, SealingError> {
        secret_file::create(path, &new_line()?.1)?;
        Self::load(path)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// If other users can read or change the file, or if a line is not a key.
    pub fn load(path: &Path) -> Result<Self, SealingError> {
        let text = secret_file::read(path)?;
        let mut keys: Vec<(KeyId, RandomizedNonceKey)> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let wrong = |rule| SealingError::Line {
                path: path.to_owned(),
                line,
                rule,
            };
            let (id, key) =
                parse_line(text).ok_or_else(|| wrong("must be <8 hexadecimal digits>:<base64 of 32 bytes>"))?;
            if keys.iter().any(|(other, _)| *other == id) {
                return Err(wrong("has the same id as an earlier line"));
            }
            keys.push((id, key));
        }
        let path = path.to_owned();
        if keys.is_empty() {
            return Err(SealingError::Empty { path });
        }
        Ok(Self { path, keys })
    }

    /// Adds a new key as the first one: it encrypts from now on, the others only decrypt.
    ///
    /// # Errors
    /// As [`load`](Self::load), and if the file cannot be written.
    pub fn add_key(path: &Path) -> Result<Self, SealingError> {
        let sealer = Self::load(path)?;
        let (id, line) = new_line()?;
        if sealer.key(id).is_some() {
            // Two random ids are equal once in four billion cases: a retry uses another id.
            return Err(SealingError::Seal);
        }
        let text = secret_file::read(path)?;
        let mut all = Zeroizing::new(String::with_capacity(line.len() + text.len()));
        all.push_str(&line);
        all.push_str(&text);
        secret_file::replace(path, &all)?;
        Self::load(path)
    }

    /// Encrypts the value: version, id of the key, nonce, and the ciphertext with its tag of 16 bytes.
    ///
    /// # Errors
    /// If no randomness is available.
    pub fn seal(&self, owner: Owner<'_>, value: &[u8]) -> Result<Vec<u8>, SealingError> {
        let (id, key) = &self.keys[0];
        let head = head(*id);
        // Encrypted in place, with room for the tag, so that no reallocation leaves a copy of the value behind.
        let mut sealed = Zeroizing::new(Vec::with_capacity(value.len() + AES_256_GCM_SIV.tag_len()));
        sealed.extend_from_slice(value);
        let nonce = key.seal_in_place_append_tag(owner.bound_to(head), &mut *sealed);
        let nonce = nonce.map_err(|_| SealingError::Seal)?;
        Ok([&head[..], nonce.as_ref(), &sealed].concat())
    }

    /// Decrypts a value of this owner.
    ///
    /// # Errors
    /// If the value has another owner, was modified, or was encrypted with a key that is not in the file.
    pub fn open(&self, owner: Owner<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealingError> {
        let id = key_of(sealed).ok_or(SealingError::Malformed)?;
        let key = self.key(id).ok_or_else(|| SealingError::NoKey {
            id,
            path: self.path.clone(),
        })?;
        let (nonce, sealed) = sealed[HEAD - NONCE_LEN..].split_at(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealingError::Malformed)?;
        let mut value = Zeroizing::new(sealed.to_vec());
        let opened = key.open_in_place(nonce, owner.bound_to(head(id)), &mut value);
        let length = opened.map_err(|_| SealingError::Refused { id })?.len();
        value.truncate(length);
        Ok(value)
    }

    /// Returns true if the value is encrypted with the current key. Others must be encrypted again before an old key is
    /// removed from the file.
    #[must_use]
    pub fn is_current(&self, sealed: &[u8]) -> bool {
        key_of(sealed) == Some(self.keys[0].0)
    }

    /// The id of the key that encrypts.
    #[must_use]
    pub fn first(&self) -> KeyId {
        self.keys[0].0
    }

    /// The key of the encrypted value, if the file does not contain it.
    fn lacking(&self, sealed: &[u8]) -> Option<KeyId> {
        key_of(sealed).filter(|id| self.key(*id).is_none())
    }

    /// Checks that the keys are those of the database, of which `sealed` are encrypted values: that they have each key
    /// in use that `before` has, or at a start, which has none before, one of those in use. A key that was lost earlier
    /// hinders neither.
    ///
    /// # Errors
    /// If they are not.
    pub(crate) fn check(&self, sealed: &[Vec<u8>], before: Option<&Self>) -> Result<(), SealingError> {
        let was_there = |value: &&Vec<u8>| before.is_none_or(|before| before.lacking(value).is_none());
        let mut lost = sealed.iter().filter(was_there).filter_map(|value| self.lacking(value));
        let id = match before {
            None if lost.clone().count() < sealed.len() => None,
            _ => lost.next(),
        };
        let path = self.path.clone();
        id.map_or(Ok(()), |id| Err(SealingError::Lacking { id, path }))
    }

    fn key(&self, id: KeyId) -> Option<&RandomizedNonceKey> {
        let found = self.keys.iter().find(|(other, _)| *other == id);
        found.map(|(_, key)| key)
    }
}

fn head(KeyId(id): KeyId) -> [u8; HEAD - NONCE_LEN] {
    let [a, b, c, d] = id;
    [VERSION, a, b, c, d]
}

/// The id of the key in the head of a value.
fn key_of(sealed: &[u8]) -> Option<KeyId> {
    match sealed {
        [VERSION, a, b, c, d, rest @ ..] if rest.len() >= NONCE_LEN => Some(KeyId([*a, *b, *c, *d])),
        _ => None,
    }
}

fn new_line() -> Result<(KeyId, Zeroizing<String>), SealingError> {
    let (mut id, mut key) = (KeyId([0; KeyId::BYTES]), Zeroizing::new([0; KEY_BYTES]));
    let filled = aws_lc_rs::rand::fill(&mut id.0).and_then(|()| aws_lc_rs::rand::fill(&mut *key));
    filled.map_err(|_| SealingError::Seal)?;
    let key = Zeroizing::new(STANDARD.encode(*key));
    Ok((id, Zeroizing::new(format!("{id}:{}\n", *key))))
}

fn parse_line(line: &str) -> Option<(KeyId, RandomizedNonceKey)> {
    let (id, key) = line.split_once(':')?;
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    let length = STANDARD.decode_slice(key, &mut *bytes).ok()?;
    let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, &bytes[..length]).ok()?;
    Some((KeyId::parse(id)?, key))
}

#[cfg(test)]
mod tests;
