//! Compresses values that are held by the thousand, to a few hundred bytes each.
//!
//! Values of one kind resemble each other: the JSON of the first value is the dictionary with which the others are
//! compressed (LZ4), so what they have in common is held once. The price is that each read decompresses.

use std::marker::PhantomData;
use std::sync::OnceLock;

use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A packed value. Only the packer that made it can read it.
#[derive(Clone, Debug)]
pub struct Packed(Box<[u8]>);

/// Packs values of one kind, which must be read as they were written.
#[derive(Debug)]
pub struct Packer<T> {
    /// The first value that was packed, as JSON.
    dictionary: OnceLock<Box<[u8]>>,
    kind: PhantomData<fn() -> T>,
}

/// A packer as a cache holds it, which does not know that its objects can be written as JSON.
pub(crate) trait Packing<T>: Send + Sync {
    fn pack(&self, value: &T) -> Packed;
    fn unpack(&self, packed: &Packed) -> T;
}

impl<T: Serialize + DeserializeOwned> Packing<T> for Packer<T> {
    fn pack(&self, value: &T) -> Packed {
        self.pack(value)
    }

    fn unpack(&self, packed: &Packed) -> T {
        self.unpack(packed)
    }
}

impl<T> Packer<T> {
    /// A packer without a dictionary yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            dictionary: OnceLock::new(),
            kind: PhantomData,
        }
    }
}

impl<T> Default for Packer<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Serialize + DeserializeOwned> Packer<T> {
    /// Packs `value`.
    ///
    /// # Panics
    /// When it cannot be written as JSON: such a type has a map whose keys are no strings.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a fault of the type, which its first test shows")]
    pub fn pack(&self, value: &T) -> Packed {
        let json = serde_json::to_vec(value).expect("a value can be written as JSON");
        let dictionary = self.dictionary.get_or_init(|| json.as_slice().into());
        Packed(compress_prepend_size_with_dict(&json, dictionary).into_boxed_slice())
    }

    /// The value that was packed here.
    ///
    /// # Panics
    /// When it was packed elsewhere, or its type cannot read what it writes.
    #[must_use]
    #[expect(clippy::expect_used, reason = "it was packed here, in this process")]
    pub fn unpack(&self, packed: &Packed) -> T {
        let dictionary = self.dictionary.get().map_or(&[][..], |dictionary| dictionary);
        let json = decompress_size_prepended_with_dict(&packed.0, dictionary).expect("what was packed can be unpacked");
        serde_json::from_slice(&json).expect("a value can be read as it was written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: usize) -> Vec<String> {
        let name = format!("i-{number:017x}");
        let common = (0..20).map(|label| format!("example.com/label-{label}=value-{label}"));
        common.chain([name]).collect()
    }

    #[test]
    fn what_values_have_in_common_is_held_once() {
        let packer = Packer::new();
        for number in 0..50 {
            let small = packer.pack(&value(number));
            assert_eq!(packer.unpack(&small), value(number));
            let alone = serde_json::to_vec(&value(number)).unwrap().len();
            assert!(small.0.len() * 8 < alone, "{} bytes of {alone}", small.0.len());
        }
    }
}
