//! The id of an EC2 instance. A value exists only if its text is well-formed, so nothing else is ever sent.

use std::collections::HashSet;
use std::fmt;

use tidewaiter_api::ProviderId;

use crate::refusal::Refusal;

const RULE: &str = "does not have the form aws:///ZONE/i-0123456789abcdef0";

/// `i-` and 8 (before 2018) or 17 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct InstanceId(Box<str>);

/// The instance and the zone in a providerID of EC2.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) id: InstanceId,
    pub(super) zone: Box<str>,
}

impl Target {
    /// Parses `aws:///ZONE/ID`.
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
        if provider_id.scheme() != "aws" {
            return None;
        }
        let (zone, id) = provider_id.rest().strip_prefix('/')?.split_once('/')?;
        let zone_chars = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let zone_ok = (1..=64).contains(&zone.len()) && zone.bytes().all(zone_chars);
        zone_ok.then_some(Self {
            id: InstanceId::parse(id)?,
            zone: zone.into(),
        })
    }
}

impl InstanceId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("i-")?;
        let ok =
            matches!(digits.len(), 8 | 17) && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        ok.then(|| Self(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The providerID of its Node; `None` if `zone` is not the name of a zone.
    pub(super) fn provider_id(&self, zone: &str) -> Option<ProviderId> {
        let provider_id: ProviderId = format!("aws:///{zone}/{self}").parse().ok()?;
        Target::parse(&provider_id).map(|_| provider_id)
    }
}

/// The words of an error message, so that an id does not match a longer one with the same prefix.
pub(super) fn named_in(message: &str) -> HashSet<&str> {
    message
        .split(|c: char| c != '-' && !c.is_ascii_alphanumeric())
        .collect()
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Target> {
        Target::parse(&text.parse().unwrap())
    }

    #[test]
    fn reads_both_lengths() {
        for id in ["i-0123456789abcdef0", "i-12345678"] {
            let target = parse(&format!("aws:///us-west-2-lax-1a/{id}")).unwrap();
            assert_eq!((target.id.as_str(), &*target.zone), (id, "us-west-2-lax-1a"));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "aws:///us-east-1a/",
            "aws:///us-east-1a/i-",
            "aws:///us-east-1a/i-0123456789abcdef",
            "aws:///us-east-1a/i-0123456789abcdef00",
            "aws:///us-east-1a/i-0123456789ABCDEF0",
            "aws:///us-east-1a/i-0123456789abcdeg0",
            "aws:///us-east-1a/i-0123456789abcdef0/",
            "aws:///us-east-1a/i-0123456789abcdef0,i-12345678",
            "aws:///us-east-1a/x/i-0123456789abcdef0",
            "aws:////i-0123456789abcdef0",
            "aws:///i-0123456789abcdef0",
            "aws://us-east-1a/i-0123456789abcdef0",
            "aws:///us-east-1a/*",
            "aws:///US-EAST-1A/i-0123456789abcdef0",
            "aws:///us-east-1a%2f/i-0123456789abcdef0",
            "gce:///us-east-1a/i-0123456789abcdef0",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_provider_id_of_an_instance_is_one_that_is_read() {
        let id = InstanceId::parse("i-0123456789abcdef0").unwrap();
        let provider_id = |zone: &str| id.provider_id(zone).map(|it| it.to_string());
        assert_eq!(
            provider_id("us-east-1a").as_deref(),
            Some("aws:///us-east-1a/i-0123456789abcdef0")
        );
        for zone in [
            "",
            "us-east-1a/x",
            "US-EAST-1A",
            "us east",
            "us-east-1a\n",
            &"a".repeat(600),
        ] {
            assert_eq!(provider_id(zone), None, "{zone}");
        }
    }

    #[test]
    fn ids_are_found_in_what_ec2_says() {
        let named = |message: &str| named_in(message).contains("i-12345678");
        assert!(named("The instance ID 'i-12345678' does not exist"));
        assert!(named("The instance IDs 'i-0123456789abcdef0, i-12345678' do not exist"));
        assert!(named("Invalid id: \"i-12345678\""));
        assert!(!named("The instance ID 'i-123456789abcdef01' does not exist"));
        assert!(!named("The instance IDs do not exist"));
    }
}
