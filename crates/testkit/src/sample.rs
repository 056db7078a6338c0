//! Tests that try all of something, such as a death at each write, and the part of it that `make test` tries.

/// The distance between two of what is tried: `nth`, or 1, which is all, where `TIDEWAITER_THOROUGH` is set (`make thorough`).
#[expect(clippy::disallowed_methods, reason = "how a person has all of it tried")]
#[must_use]
pub fn every(nth: usize) -> usize {
    if std::env::var_os("TIDEWAITER_THOROUGH").is_some() {
        1
    } else {
        nth
    }
}
