//! Signed manifests of plugins: which text is signed, and how a signature is made and verified.
//!
//! A signature is one of minisign, with its prehashed algorithm (`ED`): Ed25519 over BLAKE2b-512. Invariants:
//! - The signed text names the cluster, the plugin with its type and implementation, the version, and the digest of the manifests. So no
//!   signature counts for another cluster, plugin or version, or for changed manifests.
//! - The time of a signature is in its trusted comment (`timestamp:SECONDS`), which is signed, too. Whoever verifies must refuse a time before that
//!   of the last signature it accepted: so an older version, or older manifests of the same version, need a new signature.
//!
//! The digest is over a canonical form and not over the bytes of a response, because the cloud stores JSON, not text: the compact JSON of an
//! object with the members `depends_on`, `health_checks`, `manifests`, `post_apply` and `pre_apply`, each a list. A list that is missing or `null` is empty
//! there. The keys of objects are sorted by their bytes, numbers are written as in the shortest form that is read as the same number.

use std::fmt::{self, Display, Write as _};
use std::io::Cursor;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign::{PublicKey, SecretKey, SecretKeyBox, SignatureBox};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The first line of each signed text: no signature for another purpose counts.
const PURPOSE: &str = "tidewaiter plugin manifests 1";
/// The base64 of 64 bytes.
const GLOBAL_SIGNATURE: usize = 88;

/// What is signed.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    /// The id of the cluster.
    pub cluster: &'a str,
    /// The id of the plugin.
    pub plugin: &'a str,
    /// The type of the plugin.
    pub plugin_type: &'a str,
    /// The implementation of the plugin.
    pub implementation: &'a str,
    /// The version of the plugin.
    pub version: &'a str,
    /// The digest of the manifests ([`manifests_digest`]).
    pub digest: &'a str,
}

/// Why a signature does not count, or cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It has not the form of a signature.
    #[error("the signature is malformed: it must be the four lines that minisign writes, of the prehashed algorithm")]
    Malformed,
    /// It was made with another key.
    #[error("the signature is of the key {0}, which is not trusted")]
    UnknownKey(String),
    /// It is of a trusted key, and for something else.
    #[error("the signature is not for this cluster, plugin, version and these manifests")]
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

impl Statement<'_> {
    /// The text that is signed; `minisign -S` of a file with this text makes the same signature.
    ///
    /// # Errors
    /// When a part is empty, or is not printable ASCII without spaces.
    pub fn text(&self) -> Result<String, SignatureError> {
        let parts = [
            ("cluster", self.cluster),
            ("plugin", self.plugin),
            ("type", self.plugin_type),
            ("implementation", self.implementation),
            ("version", self.version),
            ("sha256", self.digest),
        ];
        let mut text = format!("{PURPOSE}\n");
        for (name, value) in parts {
            if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(SignatureError::Unprintable(name));
            }
            // A String takes everything.
            let _ = writeln!(text, "{name} {value}");
        }
        Ok(text)
    }
}

/// The digest of the manifests, as the cloud serves them or as they are sent to it: SHA-256 in hexadecimal digits.
#[must_use]
pub fn manifests_digest(manifests: &Value) -> String {
    let jobs = manifests.get("jobs").unwrap_or(&Value::Null);
    let list = |value: Option<&Value>| {
        value
            .filter(|value| !value.is_null())
            .cloned()
            .unwrap_or_else(|| json!([]))
    };
    let canonical = json!({
        "depends_on": list(manifests.get("depends_on")),
        "health_checks": list(manifests.get("health_checks")),
        "manifests": list(manifests.get("manifests")),
        "post_apply": list(jobs.get("post_apply")),
        "pre_apply": list(jobs.get("pre_apply")),
    });
    let hashed = digest(&SHA256, canonical.to_string().as_bytes());
    let mut text = String::with_capacity(64);
    for byte in hashed.as_ref() {
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
        key.filter(|key| key.bytes().starts_with(b"Ed")).ok_or_else(|| {
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

/// Verifies the signature of the statement, and returns when it was made, in seconds since 1970.
///
/// # Errors
/// Why it does not count.
pub fn verify(keys: &[TrustedKey], statement: &Statement<'_>, signature: &str) -> Result<i64, SignatureError> {
    let text = statement.text()?;
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
        let mut shown = String::new();
        for byte in number.iter().rev() {
            // A String takes everything.
            let _ = write!(shown, "{byte:02X}");
        }
        return Err(SignatureError::UnknownKey(shown));
    }
    let is_valid =
        |key: &TrustedKey| minisign::verify(&key.0, &signature, Cursor::new(&text), true, false, false).is_ok();
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
        let invalid = |error: minisign::PError| SignatureError::SecretKey(error.to_string());
        let key_box = SecretKeyBox::from_string(text).map_err(invalid)?;
        let key = if is_encrypted(text) {
            key_box.into_secret_key(Some(password()?))
        } else {
            key_box.into_unencrypted_secret_key()
        };
        Ok(Self(key.map_err(invalid)?))
    }

    /// Signs the statement at `time`, in seconds since 1970. Returns the four lines of the signature.
    ///
    /// # Errors
    /// When the statement cannot be signed.
    pub fn sign(&self, statement: &Statement<'_>, time: i64) -> Result<String, SignatureError> {
        let text = statement.text()?;
        let comment = format!(
            "timestamp:{time}\tfile:plugin-{}-{}",
            statement.plugin, statement.version
        );
        let signed = minisign::sign(None, &self.0, Cursor::new(text), Some(&comment), None);
        signed
            .map(SignatureBox::into_string)
            .map_err(|error| SignatureError::SecretKey(error.to_string()))
    }
}

/// Whether the key has a password: its key derivation is scrypt. Source: minisign's format of secret keys.
fn is_encrypted(text: &str) -> bool {
    let line = text.lines().nth(1).unwrap_or_default();
    let bytes = STANDARD.decode(line.trim()).unwrap_or_default();
    bytes.get(2..4) == Some(b"Sc")
}

#[cfg(test)]
mod tests;
