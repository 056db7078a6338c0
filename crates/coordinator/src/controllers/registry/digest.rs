//! The digest of what a pull secret contains, by which thousands of copies are compared without being held.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::digest::digest_of_all;

/// A SHA-256, in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Digest(String);

impl Digest {
    /// Of these parts, in order; where one ends is part of it.
    pub(super) fn of<'a, P: AsRef<[u8]> + ?Sized + 'a>(parts: impl IntoIterator<Item = &'a P>) -> Self {
        Self(STANDARD_NO_PAD.encode(digest_of_all(parts)))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(not shown)")
    }
}
