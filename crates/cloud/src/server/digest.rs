//! Ids and digests as texts.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// The strong ETag of a body.
pub(super) fn etag(body: &[u8]) -> String {
    let digest = digest(&SHA256, body);
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..16]))
}

/// The bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Parses an id from a column that contains UUIDs; nil if it is not a UUID.
pub(super) fn uuid(text: &str) -> Uuid {
    Uuid::try_parse(text).unwrap_or_default()
}
