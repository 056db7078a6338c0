//! SSH public keys. They become lines of `authorized_keys`, so a key consists only of a type, its data and a comment: no options
//! before it, and no second line.

use ssh_key::public::KeyData;
use ssh_key::{Algorithm, Certificate, EcdsaCurve, HashAlg, PublicKey};
use tidewaiter_signature::small_order;

use super::printable;

/// The longest text that is parsed, in bytes.
const MAX_BYTES: usize = 8 * 1024;
const MAX_COMMENT: usize = 256;

/// RFC 8301 requires at least 2048; much larger ones are not in use, and OpenSSH rejects more than 16384.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=16384;

/// A public key of a type that OpenSSH supports, in one line: the type, the key in base64 and an optional comment. The line is made from the
/// parsed key, so two texts of one key differ in their comment at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshKeyLine {
    line: String,
    /// The length of the type and the data.
    data: usize,
    fingerprint: String,
}

impl SshKeyLine {
    /// Parses a text of at most 8192 bytes. It is a function that returns the rule alone, because an error that quoted the text might quote
    /// a private key.
    ///
    /// # Errors
    /// The violated rule.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_BYTES {
            return Err("must be at most 8192 bytes");
        }
        if text.contains("PRIVATE KEY") {
            return Err("must be the public key, from the file that ends in .pub");
        }
        // A file of Windows, or a paste, ends so.
        let text = text.trim_matches(' ').trim_end_matches(['\r', '\n', ' ']);
        if printable(text) != text {
            return Err("must be one line of printable characters");
        }
        let key = PublicKey::from_openssh(text)
            .map_err(|_| "must be \"TYPE BASE64\" or \"TYPE BASE64 COMMENT\" as in a .pub file, without options")?;
        allowed(&key)?;
        if key.comment().len() > MAX_COMMENT {
            return Err("must have a comment of at most 256 characters");
        }
        let line = key
            .to_openssh()
            .map_err(|_| "must be a key that can be serialized again")?;
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        let data = line.match_indices(' ').nth(1).map_or(line.len(), |(end, _)| end);
        Ok(Self {
            line,
            data,
            fingerprint,
        })
    }

    /// The line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.line
    }

    /// The type and the data, without the comment.
    #[must_use]
    pub fn without_comment(&self) -> &str {
        &self.line[..self.data]
    }

    /// The SHA-256 fingerprint, as `ssh-keygen -l` shows it.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// The SHA-256 fingerprint of a public key or certificate of any type that OpenSSH has or had, from `TYPE BASE64`. That
/// of a certificate is the one of its key, as `ssh-keygen -l` shows it. None if it cannot be parsed.
#[must_use]
pub fn fingerprint(key: &str) -> Option<String> {
    let data = match Certificate::from_openssh(key) {
        Ok(certificate) => certificate.public_key().clone(),
        Err(_) => PublicKey::from_openssh(key).ok()?.key_data().clone(),
    };
    Some(data.fingerprint(HashAlg::Sha256).to_string())
}

fn has_small_order(key: &KeyData) -> bool {
    match key {
        KeyData::Ed25519(key) => small_order::is(&key.0),
        KeyData::SkEd25519(key) => small_order::is(&key.public_key().0),
        _ => false,
    }
}

fn allowed(key: &PublicKey) -> Result<(), &'static str> {
    if has_small_order(key.key_data()) {
        return Err("must be a key that has a private key: anybody can make signatures for this one");
    }
    match key.algorithm() {
        Algorithm::Ed25519
        | Algorithm::SkEd25519
        | Algorithm::SkEcdsaSha2NistP256
        | Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256 | EcdsaCurve::NistP384 | EcdsaCurve::NistP521,
        } => Ok(()),
        Algorithm::Rsa { .. } => {
            let modulus = key.key_data().rsa().and_then(|rsa| rsa.n.as_positive_bytes());
            let bits = modulus.map_or(0, |bytes| {
                bytes.len() * 8 - bytes.first().map_or(0, |byte| byte.leading_zeros() as usize)
            });
            if RSA_BITS.contains(&bits) {
                Ok(())
            } else {
                Err("must be an RSA key of 2048 to 16384 bits")
            }
        }
        _ => Err(
            "must be of type ssh-ed25519, ecdsa-sha2-nistp256, -nistp384, -nistp521, ssh-rsa, \
                  sk-ssh-ed25519@openssh.com or sk-ecdsa-sha2-nistp256@openssh.com",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Created for these tests; the private key was deleted. The cloud's type has the tests of all key types.
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";

    #[test]
    fn the_comment_can_be_left_out() {
        for text in [
            KEY.to_owned(),
            format!("{KEY} alice # break-glass"),
            format!("  {KEY}  "),
            format!("{KEY}\r"),
            format!("{KEY} José@laptop \r\n"),
        ] {
            let key = SshKeyLine::parse(&text).unwrap();
            assert_eq!(key.without_comment(), KEY, "{text}");
            assert_eq!(key.as_str(), text.trim());
            assert_eq!(key.fingerprint(), "SHA256:m17ZU7hsyzWBFKqJ1CFX9iV5aFCCCwvuDg+IdcK5NY4");
        }
    }

    #[test]
    fn nothing_but_one_key_is_parsed() {
        for text in [
            format!("{KEY}\nssh-ed25519 AAAA"),
            format!("{KEY}\r{KEY}"),
            format!("{KEY}\t"),
            format!("{KEY}\0"),
            format!("command=\"/bin/sh\" {KEY}"),
            format!("{KEY} \u{202e}evil"),
            KEY.replace("ssh-ed25519 ", "ѕsh-ed25519 "),
            "x".repeat(MAX_BYTES + 1),
        ] {
            assert!(SshKeyLine::parse(&text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_key_for_which_anybody_can_sign_is_refused() {
        use ssh_key::public::Ed25519PublicKey;
        for point in small_order::POINTS {
            for sign in [0, 0x80] {
                let mut point = point;
                point[31] |= sign;
                let key = PublicKey::from(KeyData::Ed25519(Ed25519PublicKey(point)));
                let error = SshKeyLine::parse(&key.to_openssh().unwrap()).unwrap_err();
                assert!(error.contains("anybody can make signatures"), "{error}");
            }
        }
        let zero = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert!(SshKeyLine::parse(zero).is_err());
    }
}
