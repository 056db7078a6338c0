//! Hashes of passwords and API keys, as PHC strings of argon2id (RFC 9106).
//!
//! Invariants: a password that violates the rules is never hashed; an unknown account takes as long as a known one; no
//! output contains a password, a key or a hash. Hashing a password takes 19 MiB and about 20 ms of a core: callers
//! limit the concurrency and do not hash on threads that serve other requests.

use std::fmt;

use argon2::password_hash::{self, PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;
use zeroize::Zeroizing;

const PASSWORD_CHARACTERS: std::ops::RangeInclusive<usize> = 12..=256;

/// Memory in KiB, passes, lanes: the minimum of OWASP's Password Storage Cheat Sheet.
const PASSWORD_COST: (u32, u32, u32) = (19 * 1024, 2, 1);

/// A key has 256 random bits, which cannot be guessed whatever the cost of the hash: it needs no memory and must not
/// slow down each request. It is argon2id nevertheless, for the salt and a uniform format.
const KEY_COST: (u32, u32, u32) = (64, 1, 1);

/// The beginning of every API key.
pub(crate) const KEY_PREFIX: &str = "twk_";
const KEY_BYTES: usize = 32;

/// A value could not be hashed or compared.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// The library failed: no memory or randomness is available.
    #[error("cannot hash")]
    Hash(#[source] password_hash::Error),
    #[error("the stored hash cannot be read")]
    Stored(#[source] password_hash::Error),
}

/// A password that violates the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPassword {
    #[error("must have {} to {} characters", PASSWORD_CHARACTERS.start(), PASSWORD_CHARACTERS.end())]
    Length,
    /// It contains a control character, which cannot be typed reliably.
    #[error("must not have control characters")]
    Control,
}

/// A password that follows the rules: 12 to 256 characters, none a control character.
pub struct Password<'a>(&'a str);

impl<'a> Password<'a> {
    /// Checks the rules.
    ///
    /// # Errors
    /// The violated rule.
    pub fn new(text: &'a str) -> Result<Self, InvalidPassword> {
        if !PASSWORD_CHARACTERS.contains(&text.chars().count()) {
            return Err(InvalidPassword::Length);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidPassword::Control);
        }
        Ok(Self(text))
    }

    /// The hash to store.
    ///
    /// # Errors
    /// If memory or randomness is not available.
    pub fn hash(&self) -> Result<String, HashError> {
        hash(self.0.as_bytes(), PASSWORD_COST)
    }
}

impl fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(not shown)")
    }
}

/// Returns true if this is the password with the hash `stored`. Without a hash (an unknown account, or one without a
/// password) it returns false, after the same time.
///
/// # Errors
/// If the hash is malformed, or memory is not available.
pub fn verify_password(text: &str, stored: Option<&str>) -> Result<bool, HashError> {
    let Some(stored) = stored else {
        hash(text.as_bytes(), PASSWORD_COST)?;
        return Ok(false);
    };
    verify(text.as_bytes(), stored)
}

/// The text is not an API key. The error does not contain it, because it may be a key with a typing error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an API key")]
pub struct InvalidApiKey;

/// The key of a cluster: `twk_<id>_<secret>`, with the id as 32 hexadecimal digits and the secret as 43 characters of
/// base64url.
///
/// The id identifies the stored hash; the secret is verified with it.
pub struct ApiKey {
    id: Uuid,
    secret: Zeroizing<[u8; KEY_BYTES]>,
}

impl ApiKey {
    /// Creates a key.
    ///
    /// # Errors
    /// If no randomness is available.
    pub fn generate() -> Result<Self, HashError> {
        let mut secret = Zeroizing::new([0; KEY_BYTES]);
        let filled = aws_lc_rs::rand::fill(&mut *secret);
        filled.map_err(|_| HashError::Hash(password_hash::Error::Crypto))?;
        let id = Uuid::new_v4();
        Ok(Self { id, secret })
    }

    /// Parses a key; each key has exactly one text.
    ///
    /// # Errors
    /// If the text is not an API key.
    pub fn parse(text: &str) -> Result<Self, InvalidApiKey> {
        let parts = text.strip_prefix(KEY_PREFIX).and_then(|rest| rest.split_once('_'));
        let (id, secret) = parts.ok_or(InvalidApiKey)?;
        let parsed = Uuid::try_parse(id).map_err(|_| InvalidApiKey)?;
        if parsed.simple().to_string() != id {
            return Err(InvalidApiKey);
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        match URL_SAFE_NO_PAD.decode_slice(secret, &mut *bytes) {
            Ok(KEY_BYTES) => Ok(Self {
                id: parsed,
                secret: bytes,
            }),
            _ => Err(InvalidApiKey),
        }
    }

    /// The id, which is not secret.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The text, for the only response that contains it.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.secret));
        Zeroizing::new(format!("{KEY_PREFIX}{}_{}", self.id.simple(), *secret))
    }

    /// The hash to store.
    ///
    /// # Errors
    /// If memory or randomness is not available.
    pub fn hash(&self) -> Result<String, HashError> {
        hash(&*self.secret, KEY_COST)
    }

    /// Returns true if this is the key with the hash `stored`.
    ///
    /// # Errors
    /// If the hash is malformed, or memory is not available.
    pub fn verify(&self, stored: &str) -> Result<bool, HashError> {
        verify(&*self.secret, stored)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn hash(secret: &[u8], (memory, passes, lanes): (u32, u32, u32)) -> Result<String, HashError> {
    let params = Params::new(memory, passes, lanes, None).map_err(|error| HashError::Hash(error.into()))?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash = argon2.hash_password(secret).map_err(HashError::Hash)?;
    Ok(hash.to_string())
}

fn verify(secret: &[u8], stored: &str) -> Result<bool, HashError> {
    // The parameters are those of the stored hash.
    match Argon2::default().verify_password(secret, stored) {
        Ok(()) => Ok(true),
        Err(password_hash::Error::PasswordInvalid) => Ok(false),
        Err(error) => Err(HashError::Stored(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidewaiter_kit::clock::{Clock as _, SystemClock};

    use super::*;

    const PASSWORD: &str = "correct horse battery staple";

    #[test]
    fn a_password_is_itself_and_no_other() {
        let stored = Password::new(PASSWORD).unwrap().hash().unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(verify_password(PASSWORD, Some(&stored)).unwrap());
        assert!(!verify_password("correct horse battery stable", Some(&stored)).unwrap());
        assert!(!verify_password(PASSWORD, None).unwrap());
        let again = Password::new(PASSWORD).unwrap().hash().unwrap();
        assert_ne!(stored, again, "each hash has a salt of its own");
    }

    #[test]
    fn an_unknown_account_costs_as_much_as_a_known_one() {
        let stored = Password::new(PASSWORD).unwrap().hash().unwrap();
        let cost = |stored: Option<&str>| -> Duration {
            let one = || {
                let start = SystemClock.monotonic();
                verify_password("not the password", stored).unwrap();
                SystemClock.monotonic().saturating_sub(start)
            };
            (0..3).map(|_| one()).min().unwrap()
        };
        // Without hashing it would take a thousandth of the time: the margin is for a busy machine.
        let (known, unknown) = (cost(Some(&stored)), cost(None));
        assert!(unknown * 50 > known, "{unknown:?} of {known:?}");
    }

    #[test]
    fn rules_of_passwords() {
        let accepted = [
            "twelve chars".to_owned(),
            "zwölf Zeichn".to_owned(),
            "ü".repeat(256),
            " ".repeat(12),
        ];
        for text in accepted {
            assert!(Password::new(&text).is_ok(), "{text:?}");
        }
        let refused = [
            (String::new(), InvalidPassword::Length),
            ("elevenchars".to_owned(), InvalidPassword::Length),
            ("üüüüüüüüüüü".to_owned(), InvalidPassword::Length),
            ("x".repeat(257), InvalidPassword::Length),
            ("twelve chars\n".to_owned(), InvalidPassword::Control),
            ("twelve\0chars..".to_owned(), InvalidPassword::Control),
            ("twelve\u{85}chars.".to_owned(), InvalidPassword::Control),
        ];
        for (text, expected) in refused {
            assert_eq!(Password::new(&text).unwrap_err(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_key_is_itself_and_no_other() {
        let key = ApiKey::generate().unwrap();
        let text = key.expose();
        let parsed = ApiKey::parse(&text).unwrap();
        assert_eq!((parsed.id(), &*parsed.expose()), (key.id(), &*text));
        let stored = key.hash().unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=64,t=1,p=1$"), "{stored}");
        assert!(parsed.verify(&stored).unwrap());
        let other = ApiKey::generate().unwrap();
        assert!(!other.verify(&stored).unwrap());
        assert_ne!(other.id(), key.id());
        assert_ne!(*other.secret, *key.secret);
        assert_ne!(*key.secret, [0; KEY_BYTES]);
    }

    #[test]
    fn a_key_has_one_text() {
        const ID: &str = "9f3d1c9e6a0b4c578d7e1f2a3b4c5d6e";
        let secret = "A".repeat(43);
        let good = format!("twk_{ID}_{secret}");
        assert_eq!(good.len(), 4 + 32 + 1 + 43);
        assert_eq!(*ApiKey::parse(&good).unwrap().expose(), good);
        let refused = [
            String::new(),
            good.replacen("twk_", "", 1),
            good.replacen("twk_", "TWK_", 1),
            format!("twk_{}_{secret}", ID.to_uppercase()),
            format!("twk_9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e_{secret}"),
            format!("twk_{}_{secret}", &ID[1..]),
            format!("twk_{ID}{secret}"),
            format!("{good}A"),
            format!("{good}="),
            format!("{good}\n"),
            good[..good.len() - 1].to_owned(),
            // The last character encodes two unused bits.
            format!("twk_{ID}_{}B", "A".repeat(42)),
            format!("twk_{ID}_{}+", "A".repeat(42)),
        ];
        for text in refused {
            assert_eq!(ApiKey::parse(&text).unwrap_err(), InvalidApiKey, "{text:?}");
        }
    }

    #[test]
    fn nothing_shows_a_secret() {
        let key = ApiKey::generate().unwrap();
        let secret = URL_SAFE_NO_PAD.encode(*key.secret);
        let shown = format!("{key:?} {:?}", Password::new(PASSWORD).unwrap());
        assert!(!shown.contains(&secret) && !shown.contains(PASSWORD), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
        let error = key.verify("$argon2id$nonsense").unwrap_err();
        assert!(matches!(error, HashError::Stored(_)));
        assert!(!format!("{error} {error:?}").contains("nonsense"), "{error:?}");
    }
}
