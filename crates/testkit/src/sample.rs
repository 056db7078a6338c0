//! The cases that `make test` tries, of tests that could try all, such as a death at each write.

/// The distance between two cases: `nth`, or 1, so that all are tried, if `TIDEWAITER_THOROUGH` is set (`make
/// thorough`).
#[expect(clippy::disallowed_methods, reason = "how a person has all tried")]
#[must_use]
pub fn every(nth: usize) -> usize {
    if std::env::var_os("TIDEWAITER_THOROUGH").is_some() {
        1
    } else {
        nth
    }
}
