//! Writes values in the forms that clients of the old service expect.

use serde::{Serialize, Serializer};

/// Writes an absent value as the empty text, where clients of the old service do not expect `null`.
#[expect(clippy::ref_option, reason = "the signature that serde calls")]
pub(super) fn or_empty<T: Serialize, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(serializer),
        None => serializer.serialize_str(""),
    }
}
