//! Codes that are used once: random texts, their digests, and the codes that people type.

use aws_lc_rs::rand::fill;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::server::digest::head;

/// The letters of a code that a person types: no vowels, so that no word is among the codes (RFC 8628, 6.1).
const CONSONANTS: [u8; 20] = *b"BCDFGHJKLMNPQRSTVWXZ";

/// The system has no randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no randomness is available")]
pub struct NoRandomness;

/// 256 random bits, as 43 characters of base64url.
///
/// # Errors
/// If no randomness is available.
pub fn random_code() -> Result<String, NoRandomness> {
    let mut bytes = [0; 32];
    fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The SHA-256 of `text`, as 43 characters of base64url: the challenge of a verifier (RFC 7636, S256).
#[must_use]
pub fn s256(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(head::<32>(text.as_bytes()))
}

/// A random code that a person types: `XXXX-XXXX`, 34 bits.
///
/// # Errors
/// If no randomness is available.
pub fn user_code() -> Result<String, NoRandomness> {
    Ok(normalized(&random_letters::<8>()?))
}

/// A random code by which a person recovers an account: `XXXXX-XXXXX-XXXXX-XXXXX`, 86 bits.
///
/// # Errors
/// If no randomness is available.
pub fn recovery_code() -> Result<String, NoRandomness> {
    let groups: Result<Vec<_>, _> = (0..4).map(|_| random_letters::<5>()).collect();
    Ok(groups?.join("-"))
}

fn random_letters<const N: usize>() -> Result<String, NoRandomness> {
    let mut bytes = [0; N];
    fill(&mut bytes).map_err(|_| NoRandomness)?;
    let letters = bytes.map(|byte| char::from(CONSONANTS[usize::from(byte) % CONSONANTS.len()]));
    Ok(String::from_iter(letters))
}

/// The letters of a code that a person typed: in any case, with any separators.
#[must_use]
pub fn letters(typed: &str) -> String {
    let letters = typed.chars().filter(char::is_ascii_alphabetic);
    letters.map(|letter| letter.to_ascii_uppercase()).collect()
}

/// The code as it is stored, of what a person typed: in any case, with any separators.
#[must_use]
pub fn normalized(typed: &str) -> String {
    let letters = letters(typed);
    match letters.split_at_checked(4) {
        Some((first, last)) => format!("{first}-{last}"),
        None => letters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(s256(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert_ne!(random_code().unwrap(), random_code().unwrap());
        assert_eq!(random_code().unwrap().len(), 43);
    }

    #[test]
    fn a_code_is_the_same_however_it_is_typed() {
        let code = user_code().unwrap();
        assert!(code.len() == 9 && code.as_bytes()[4] == b'-', "{code}");
        for typed in [
            code.to_lowercase(),
            code.replace('-', ""),
            format!(" {} ", code.replace('-', " ")),
        ] {
            assert_eq!(normalized(&typed), code);
        }
        assert_eq!(normalized("bcd"), "BCD");
        let code = recovery_code().unwrap();
        assert_eq!((code.len(), letters(&code).len()), (23, 20), "{code}");
        assert_eq!(letters(&code.to_lowercase().replace('-', " ")), letters(&code));
    }
}
