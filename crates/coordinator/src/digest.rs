//! Digests by which texts are compared without being held.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use tidewaiter_signature::hex;

/// The SHA-256 of these texts, in hexadecimal digits; where one ends is part of it.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    hex(sha256(parts).as_ref())
}

/// A SHA-256, in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Digest(String);

impl Digest {
    /// Of these parts, in order; where one ends is part of it.
    pub(crate) fn of<'a, P: AsRef<[u8]> + ?Sized + 'a>(parts: impl IntoIterator<Item = &'a P>) -> Self {
        Self(STANDARD_NO_PAD.encode(sha256(parts)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(not shown)")
    }
}

fn sha256<'a, P: AsRef<[u8]> + ?Sized + 'a>(parts: impl IntoIterator<Item = &'a P>) -> aws_lc_rs::digest::Digest {
    let mut context = Context::new(&SHA256);
    for part in parts {
        let part = part.as_ref();
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.finish()
}
