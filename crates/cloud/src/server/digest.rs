//! Ids and digests as texts.

use aws_lc_rs::digest::{Context, Digest, SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// The strong ETag of a body.
pub(super) fn etag(body: &[u8]) -> String {
    quoted(&digest(&SHA256, body))
}

/// The strong ETag of a body that grows part by part: hashed whole, a long one would take a core from others for long.
pub(super) struct GrowingEtag(Context);

impl Default for GrowingEtag {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl GrowingEtag {
    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    pub(super) fn end(self) -> String {
        quoted(&self.0.finish())
    }
}

fn quoted(digest: &Digest) -> String {
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(first::<16>(digest)))
}

/// A UUID derived from `text`.
pub(super) fn derived(text: &str) -> Uuid {
    uuid::Builder::from_custom_bytes(head(text.as_bytes())).into_uuid()
}

/// The first bytes of the digest of `bytes`.
pub(super) fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    first(&digest(&SHA256, bytes))
}

fn first<const N: usize>(digest: &Digest) -> [u8; N] {
    std::array::from_fn(|index| digest.as_ref()[index])
}

/// Parses an id from a column that contains UUIDs; nil if it is not a UUID.
pub(super) fn uuid(text: &str) -> Uuid {
    Uuid::try_parse(text).unwrap_or_default()
}
