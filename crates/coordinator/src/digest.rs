//! Digests by which texts are compared without being held.

use std::fmt::Write as _;

use aws_lc_rs::digest::{Context, SHA256};

/// The SHA-256 of these texts, in hexadecimal digits; where one ends is part of it.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut text = String::with_capacity(64);
    for byte in context.finish().as_ref() {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
