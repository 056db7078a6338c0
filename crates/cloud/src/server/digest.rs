//! Ids and digests as texts.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// The strong ETag of a body.
pub(super) fn etag(body: &[u8]) -> String {
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(head::<16>(body)))
}

/// A UUID derived from `text`.
pub(super) fn derived(text: &str) -> Uuid {
    uuid::Builder::from_custom_bytes(head(text.as_bytes())).into_uuid()
}

/// The first bytes of the digest of `bytes`.
pub(super) fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let digest = digest(&SHA256, bytes);
    std::array::from_fn(|index| digest.as_ref()[index])
}

/// Parses an id from a column that contains UUIDs; nil if it is not a UUID.
pub(super) fn uuid(text: &str) -> Uuid {
    Uuid::try_parse(text).unwrap_or_default()
}
