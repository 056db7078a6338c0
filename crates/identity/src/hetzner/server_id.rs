//! The id of a server. A value exists only if its text is well-formed, so nothing else is ever sent.

use std::fmt;

use tidewaiter_api::ProviderId;

use crate::refusal::Refusal;

const RULE: &str = "does not have the form hcloud://ID, where ID is a number such as 42";

/// The maximum length: the API keeps ids below 2^53.
const MAX_DIGITS: usize = 16;

/// A number without a sign or leading zeros, so that a server has only one providerID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ServerId(u64);

impl ServerId {
    /// Parses `hcloud://ID`.
    ///
    /// # Errors
    /// [`Refusal::InvalidProviderId`] for anything else.
    pub(super) fn read(provider_id: &ProviderId) -> Result<Self, Refusal> {
        Self::parse(provider_id).ok_or_else(|| Refusal::InvalidProviderId {
            provider_id: provider_id.clone(),
            rule: RULE,
        })
    }

    fn parse(provider_id: &ProviderId) -> Option<Self> {
        let digits = provider_id.rest();
        let ok = provider_id.scheme() == "hcloud"
            && (1..=MAX_DIGITS).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && !digits.starts_with('0');
        ok.then(|| digits.parse().ok()).flatten().map(Self)
    }

    /// The providerID of its Node; `None` if the API never gives such an id.
    pub(super) fn provider_id(self) -> Option<ProviderId> {
        let provider_id = format!("hcloud://{self}").parse().ok()?;
        Self::parse(&provider_id).map(|_| provider_id)
    }

    /// An id from a response of the API.
    pub(super) fn of(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ServerId> {
        ServerId::parse(&text.parse().unwrap())
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(parse("hcloud://42"), Some(ServerId(42)));
        assert_eq!(
            parse("hcloud://9007199254740991"),
            Some(ServerId(9_007_199_254_740_991))
        );
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "hcloud://0",
            "hcloud://042",
            "hcloud://+42",
            "hcloud://-42",
            "hcloud://4.2",
            "hcloud:///42",
            "hcloud://42/",
            "hcloud://42/actions",
            "hcloud://42?x=y",
            "hcloud://..",
            "hcloud://bm-42",
            "hcloud://nodes-1",
            "hcloud://12345678901234567",
            "hrobot://42",
            "gce://42",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
