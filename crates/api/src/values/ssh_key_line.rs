//! SSH public keys. They become lines of `authorized_keys`, so a key consists only of a type, its data and a comment:
//! no options before it, and no second line.
//!
//! A key that OpenSSH cannot read is invalid here too: a report must not list a user who cannot log in. Spacing is as
//! free as in OpenSSH.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, EcdsaVerificationAlgorithm,
    ParsedPublicKey,
};
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, Certificate, EcdsaCurve, HashAlg, PublicKey};
use tidewaiter_signature::small_order;

use super::printable;

/// The longest text that is parsed, in bytes.
const MAX_BYTES: usize = 8 * 1024;
const MAX_COMMENT: usize = 256;

/// RFC 8301 requires at least 2048; much larger ones are not in use, and OpenSSH rejects more than 16384.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=16384;

/// With a modulus of more bits than these, OpenSSL verifies nothing if the exponent has more than 64.
const RSA_BITS_OF_LONG_EXPONENTS: usize = 3072;
const RSA_EXPONENT_BYTES: usize = 8;

/// The upper half of the order of each curve.
const P256_ORDER: [u8; 16] = *b"\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";
const P384_ORDER: [u8; 24] = [0xff; 24];
const P521_ORDER: [u8; 33] = {
    let mut order = [0xff; 33];
    order[0] = 1;
    order
};

const FORM: &str = "must be \"TYPE BASE64\" or \"TYPE BASE64 COMMENT\" as in a .pub file, without options";
const DATA: &str = "must be \"TYPE BASE64\" as in a .pub file: what follows the type is not a whole key of this type";
const TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];
const TYPE: &str = "must be of type ssh-ed25519, ecdsa-sha2-nistp256, -nistp384, -nistp521, ssh-rsa, \
                    sk-ssh-ed25519@openssh.com or sk-ecdsa-sha2-nistp256@openssh.com";

/// A public key of a type that OpenSSH supports, in one line: the type, the key in base64 and an optional comment. The
/// line is made from the parsed key, so two texts of one key differ in their comment at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshKeyLine {
    line: String,
    /// The length of the type and the data.
    data: usize,
    fingerprint: String,
}

impl SshKeyLine {
    /// Parses a text of at most 8192 bytes. It is a function that returns the rule alone, because an error that quoted
    /// the text might quote a private key.
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
        // A file of Windows, or a paste, ends so; tabs come from tables.
        let text = text.trim_matches([' ', '\t', '\r', '\n']).replace('\t', " ");
        if printable(&text) != text {
            return Err("must be one line of printable characters");
        }
        let (kind, rest) = text.split_once(' ').ok_or(FORM)?;
        let rest = rest.trim_start_matches(' ');
        let (data, comment) = rest.split_once(' ').unwrap_or((rest, ""));
        let key =
            PublicKey::from_openssh(&format!("{kind} {data} {}", comment.trim())).map_err(|_| unreadable(kind))?;
        allowed(&key)?;
        if key.comment().chars().count() > MAX_COMMENT {
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

/// The reason why a line with this first word cannot be parsed. Certificates have types, too, and options may be words.
fn unreadable(kind: &str) -> &'static str {
    let is_type = ["ssh-", "ecdsa-", "sk-"].iter().any(|start| kind.starts_with(start));
    match (TYPES.contains(&kind), is_type) {
        (true, _) => DATA,
        (false, true) => TYPE,
        (false, false) => FORM,
    }
}

fn has_small_order(key: &KeyData) -> bool {
    match key {
        KeyData::Ed25519(key) => small_order::is(&key.0),
        KeyData::SkEd25519(key) => small_order::is(&key.public_key().0),
        _ => false,
    }
}

/// OpenSSH's rule for points (`get_ec` and `sshkey_ec_validate_public`): uncompressed, on the curve, and with
/// coordinates that are longer than half the order and below it. Only the upper halves are compared, which decides the
/// same for generated keys.
fn is_point(curve: EcdsaCurve, point: &[u8]) -> bool {
    let (algorithm, order): (&'static EcdsaVerificationAlgorithm, &[u8]) = match curve {
        EcdsaCurve::NistP256 => (&ECDSA_P256_SHA256_FIXED, &P256_ORDER),
        EcdsaCurve::NistP384 => (&ECDSA_P384_SHA384_FIXED, &P384_ORDER),
        EcdsaCurve::NistP521 => (&ECDSA_P521_SHA512_FIXED, &P521_ORDER),
    };
    let [4, coordinates @ ..] = point else {
        return false;
    };
    coordinates.chunks_exact(2 * order.len()).all(|coordinate| {
        let upper = &coordinate[..order.len()];
        upper < order && upper.iter().any(|byte| *byte != 0)
    }) && ParsedPublicKey::new(algorithm, point).is_ok()
}

fn is_on_curve(key: &KeyData) -> bool {
    match key {
        KeyData::Ecdsa(key) => is_point(key.curve(), key.as_sec1_bytes()),
        KeyData::SkEcdsaSha2NistP256(key) => is_point(EcdsaCurve::NistP256, key.ec_point().as_bytes()),
        _ => true,
    }
}

fn application(key: &KeyData) -> &str {
    match key {
        KeyData::SkEcdsaSha2NistP256(key) => key.application(),
        KeyData::SkEd25519(key) => key.application(),
        _ => "",
    }
}

/// The rule for the exponent of an RSA key with a modulus of `bits`. OpenSSH reads any. With 1, a signature is the
/// padded message itself, which anybody can make and OpenSSH accepts; an even one has no private key.
fn is_exponent(number: &[u8], bits: usize) -> bool {
    let is_usable = bits <= RSA_BITS_OF_LONG_EXPONENTS || number.len() <= RSA_EXPONENT_BYTES;
    is_usable && number != [1] && number.last().is_some_and(|byte| byte % 2 == 1)
}

fn allowed(key: &PublicKey) -> Result<(), &'static str> {
    if has_small_order(key.key_data()) {
        return Err("must be a key that has a private key: anybody can make signatures for this one");
    }
    if !is_on_curve(key.key_data()) {
        return Err(
            "must have an uncompressed point of its curve, as in a .pub file of ssh-keygen: OpenSSH cannot read this one",
        );
    }
    if application(key.key_data()).contains(char::is_control) {
        return Err("must have an application without control characters: OpenSSH cannot read this one");
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
            let exponent = key.key_data().rsa().and_then(|rsa| rsa.e.as_positive_bytes());
            if !RSA_BITS.contains(&bits) {
                Err("must be an RSA key of 2048 to 16384 bits")
            } else if exponent.is_some_and(|exponent| is_exponent(exponent, bits)) {
                Ok(())
            } else {
                Err(
                    "must be an RSA key with an odd exponent from 3, of at most 64 bits if the key has more than 3072, such as 65537",
                )
            }
        }
        _ => Err(TYPE),
    }
}

#[cfg(test)]
mod tests;
