//! Signatures of minisign, with its prehashed algorithm (`ED`): Ed25519 over BLAKE2b-512. Pure: no clock, no file, no
//! network.
//!
//! A signature is over a statement: a purpose, and one line for each part, `name value`. Invariants:
//! - The purpose is the first line, so no signature for another purpose counts.
//! - A part is printable ASCII without spaces, so none can be mistaken for another one.
//! - The time of a signature is in its trusted comment (`timestamp:SECONDS`), which is signed, too.

pub mod small_order;

use std::fmt::{self, Display, Write as _};
use std::io::Cursor;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign::{PublicKey, PublicKeyBox, SecretKey, SecretKeyBox, SignatureBox};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The base64 of 64 bytes.
const GLOBAL_SIGNATURE: usize = 88;

/// A secret key of minisign, decoded, and the checksum at its end.
const KEY_BYTES: usize = 158;
const CHECKSUM_BYTES: usize = 32;

/// The reason why a signature is rejected, or cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It has not the form of a signature.
    #[error("the signature is malformed: it must be the four lines that minisign writes, of the prehashed algorithm")]
    Malformed,
    /// It was made with another key.
    #[error("the signature is of the key {0}, which is not trusted: sign with a key that is, or add this one to those")]
    UnknownKey(String),
    /// It is of a trusted key, and for something else.
    #[error("the signature is not for this cluster and this content: what it names, or the content, was changed")]
    Mismatch,
    /// It does not say when it was made.
    #[error("the signature has no time: its trusted comment must contain timestamp:SECONDS")]
    NoTime,
    /// A part of the statement could be mistaken for another one.
    #[error("{0} cannot be signed: it must be printable ASCII without spaces")]
    Unprintable(&'static str),
    /// The secret key cannot be used.
    #[error("the secret key cannot be used: {0}")]
    SecretKey(String),
}

/// The text of a statement. `minisign -S` of a file with this text makes the same signature.
///
/// # Errors
/// When a part is empty, or is not printable ASCII without spaces.
pub fn statement(purpose: &str, parts: &[(&'static str, &str)]) -> Result<String, SignatureError> {
    let mut text = format!("{purpose}\n");
    for (name, value) in parts {
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SignatureError::Unprintable(name));
        }
        // A String takes everything.
        let _ = writeln!(text, "{name} {value}");
    }
    Ok(text)
}

/// SHA-256 in hexadecimal digits.
#[must_use]
pub fn sha256(content: &[u8]) -> String {
    hex(digest(&SHA256, content).as_ref())
}

/// The bytes in hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A public key of minisign: the base64 of its second line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrustedKey(PublicKey);

impl TrustedKey {
    /// The algorithm (2 bytes), the number of the key (8 bytes) and the key.
    fn bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// The number of the key, as minisign shows it.
    #[must_use]
    pub fn id(&self) -> String {
        shown(self.bytes().get(2..10).unwrap_or_default())
    }
}

/// The number of a key, as minisign shows it.
fn shown(number: &[u8]) -> String {
    let bytes: Vec<u8> = number.iter().rev().copied().collect();
    hex(&bytes).to_uppercase()
}

impl PartialEq for TrustedKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for TrustedKey {}

impl FromStr for TrustedKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = PublicKey::from_base64(text).ok().map(Self);
        let key = key.filter(|key| key.bytes().starts_with(b"Ed"));
        if key
            .as_ref()
            .is_some_and(|key| key.bytes().last_chunk().is_some_and(small_order::is))
        {
            return Err(
                "must not be a key for which anybody can make signatures: create one with minisign -G".to_owned(),
            );
        }
        key.ok_or_else(|| {
            "must be public keys of minisign: the second line of minisign.pub, for example RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
                .to_owned()
        })
    }
}

impl TryFrom<String> for TrustedKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TrustedKey> for String {
    fn from(key: TrustedKey) -> Self {
        key.to_string()
    }
}

impl Display for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_base64())
    }
}

/// Verifies the signature of a text, and returns when it was made, in seconds since 1970.
///
/// # Errors
/// The reason why the signature is rejected.
pub fn verify(keys: &[TrustedKey], text: &str, signature: &str) -> Result<i64, SignatureError> {
    // The library expects a whole second signature.
    let global = signature.lines().nth(3).unwrap_or_default().trim();
    if global.len() != GLOBAL_SIGNATURE || !global.ends_with("==") {
        return Err(SignatureError::Malformed);
    }
    let signature = SignatureBox::from_string(signature).map_err(|_| SignatureError::Malformed)?;
    if !signature.is_prehashed() {
        return Err(SignatureError::Malformed);
    }
    let number = signature.keynum();
    let mut of_number = keys
        .iter()
        .filter(|key| key.bytes().get(2..10) == Some(number))
        .peekable();
    if of_number.peek().is_none() {
        return Err(SignatureError::UnknownKey(shown(number)));
    }
    let is_valid =
        |key: &TrustedKey| minisign::verify(&key.0, &signature, Cursor::new(text), true, false, false).is_ok();
    if !of_number.any(is_valid) {
        return Err(SignatureError::Mismatch);
    }
    let comment = signature.trusted_comment().map_err(|_| SignatureError::Malformed)?;
    let mut words = comment.split_ascii_whitespace();
    let time = words.find_map(|word| word.strip_prefix("timestamp:")?.parse().ok());
    time.filter(|time| *time >= 0).ok_or(SignatureError::NoTime)
}

/// A secret key of minisign. It is never shown.
pub struct SigningKey(SecretKey);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(not shown)")
    }
}

impl SigningKey {
    /// Reads the text of a key file; `password` is called if the key is encrypted.
    ///
    /// # Errors
    /// When it is not a key, or the password is wrong.
    pub fn read<E>(text: &str, password: impl FnOnce() -> Result<String, E>) -> Result<Self, E>
    where
        E: From<SignatureError>,
    {
        if PublicKeyBox::from_string(text).is_ok_and(|key| key.into_public_key().is_ok()) {
            let public = "it is a public key; the secret key is in the other file that minisign -G wrote";
            return Err(SignatureError::SecretKey(public.to_owned()).into());
        }
        let invalid = |error: minisign::PError| SignatureError::SecretKey(error.to_string());
        let key_box = SecretKeyBox::from_string(text).map_err(invalid)?;
        let bytes = key_bytes(text);
        let key = if is_encrypted(&bytes) {
            key_box.into_secret_key(Some(password()?))
        } else if is_without_checksum(&bytes) {
            SecretKey::from_bytes(&bytes)
        } else {
            key_box.into_unencrypted_secret_key()
        };
        Ok(Self(key.map_err(invalid)?))
    }

    /// Signs a text at `time`, in seconds since 1970. `name`, without spaces, names the content in the trusted comment.
    /// Returns the four lines of the signature.
    ///
    /// # Errors
    /// When the key cannot sign.
    pub fn sign(&self, text: &str, name: &str, time: i64) -> Result<String, SignatureError> {
        let comment = format!("timestamp:{time}\tfile:{name}");
        let signed = minisign::sign(None, &self.0, Cursor::new(text), Some(&comment), None);
        signed
            .map(SignatureBox::into_string)
            .map_err(|error| SignatureError::SecretKey(error.to_string()))
    }
}

/// The second line of a key file.
fn key_bytes(text: &str) -> Zeroizing<Vec<u8>> {
    let line = text.lines().nth(1).unwrap_or_default();
    Zeroizing::new(STANDARD.decode(line.trim()).unwrap_or_default())
}

/// Returns true if the key has a password: its key derivation is scrypt. Source: minisign's format of secret keys.
fn is_encrypted(bytes: &[u8]) -> bool {
    bytes.get(2..4) == Some(b"Sc")
}

/// Returns true if it is a key that `minisign -G -W` has made: without a password, minisign leaves the checksum, the
/// last 32 of 158 bytes, zero. The library refuses that.
fn is_without_checksum(bytes: &[u8]) -> bool {
    bytes.len() == KEY_BYTES
        && bytes[..4] == *b"Ed\0\0"
        && bytes[KEY_BYTES - CHECKSUM_BYTES..].iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests;
