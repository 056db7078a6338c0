//! The field that was probably meant by one that is not known.

use super::{Fields, InvalidField};

/// The maximum distance of two keys of which one is a misspelling of the other.
const CLOSE: usize = 2;

impl Fields<'_> {
    /// The refusal of an unread field that is probably the missing field `key`.
    pub(super) fn misspelt(&self, key: &str) -> Option<InvalidField> {
        let short = |typed: &&String| self.object.is_input() && typed.len() <= key.len() + CLOSE;
        let is_close = |typed: &&String| strsim::damerau_levenshtein(typed, key) <= CLOSE.min(key.len() / 2);
        let mut unread = self.map.keys().filter(|typed| !self.known.contains(&typed.as_str()));
        let typed = unread.find(|typed| short(typed) && is_close(typed))?;
        Some(self.invalid(typed, format!("is not known; the nearest known field is {key}")))
    }

    /// The known field that is nearest to `key`, as the end of a message.
    pub(super) fn nearest(&self, key: &str) -> String {
        let key: String = key.chars().take(64).collect();
        let known = self.known.iter();
        let nearest = known.min_by_key(|known| strsim::damerau_levenshtein(known, &key));
        nearest.map_or_else(String::new, |known| format!("; the nearest known field is {known}"))
    }
}
