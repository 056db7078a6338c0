//! Digests by which texts are compared without being held.

use std::fmt::Write as _;

use aws_lc_rs::digest::{self, Context, SHA256};

/// The SHA-256 of these texts, in hexadecimal digits; where one ends is part of it.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    digits(context.finish().as_ref())
}

/// The SHA-256 of these bytes, in hexadecimal digits.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    digits(digest::digest(&SHA256, bytes).as_ref())
}

fn digits(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
