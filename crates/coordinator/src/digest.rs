//! Digests by which texts are compared without being held.

use aws_lc_rs::digest::{Context, Digest, SHA256};
use tidewaiter_signature::hex;

/// The SHA-256 of these texts, in hexadecimal digits; where one ends is part of it.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    hex(digest_of_all(parts).as_ref())
}

/// The SHA-256 of these parts; where one ends is part of it.
pub(crate) fn digest_of_all<'a, P: AsRef<[u8]> + ?Sized + 'a>(parts: impl IntoIterator<Item = &'a P>) -> Digest {
    let mut context = Context::new(&SHA256);
    for part in parts {
        let part = part.as_ref();
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.finish()
}
