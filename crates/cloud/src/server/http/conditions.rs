//! Conditions on the version of an object (RFC 9110, section 13.1).

use crate::server::digest::etag;
use crate::server::refusal::Refusal;

/// The value of `If-Match`.
pub(crate) struct Condition(Option<String>);

impl Condition {
    pub(crate) fn new(header: Option<&str>) -> Self {
        Self(header.map(str::to_owned))
    }

    /// Returns true if the caller said which version it has seen.
    pub(crate) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// Checks that the caller has seen no version of an object that does not exist.
    pub(crate) fn check_absent(&self) -> Result<(), Refusal> {
        if self.is_given() {
            return Err(Refusal::changed());
        }
        Ok(())
    }

    /// Checks that an object whose representation is `body` is the version that the caller has seen.
    pub(crate) fn check(&self, body: &[u8]) -> Result<(), Refusal> {
        match &self.0 {
            Some(wanted) if !matches(wanted, &etag(body), false) => Err(Refusal::changed()),
            _ => Ok(()),
        }
    }
}

/// Returns true if a list of ETags has `etag`. A compressing proxy turns a strong tag into a weak one, which is
/// sufficient to see that nothing changed.
pub(crate) fn matches(list: &str, etag: &str, weak: bool) -> bool {
    list.split(',').map(str::trim).any(|one| {
        let one = if weak {
            one.strip_prefix("W/").unwrap_or(one)
        } else {
            one
        };
        one == "*" || one == etag
    })
}
