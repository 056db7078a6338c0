//! The innermost cause of an error, for descriptions of failed calls.

use std::error::Error;

/// The error and its causes, the innermost last.
pub(crate) fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The innermost cause, escaped and bounded: `Connection refused (os error 111)`.
pub(crate) fn system_word(error: &(dyn Error + 'static)) -> String {
    let innermost = causes(error).last().map(ToString::to_string).unwrap_or_default();
    innermost.chars().flat_map(char::escape_debug).take(120).collect()
}
