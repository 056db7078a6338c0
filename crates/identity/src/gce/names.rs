//! Names of projects, zones and instances. A value exists only if its text is well-formed, so nothing else is ever
//! sent.
//!
//! Source: "Resource naming conventions" (Compute Engine) and "Creating and managing projects" (Resource Manager).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tidewaiter_api::values::quoted;
use tidewaiter_api::{ClusterName, ProviderId};

use crate::refusal::{Mark, Refusal};

const RULE: &str = "does not have the form gce://PROJECT/ZONE/NAME";

/// The id of a project, with its domain if it has one: `my-project`, `example.com:my-project`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProjectId(Arc<str>);

/// The text is not a valid project id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the project {shown} is not valid: must be 6 to 30 lower-case letters, digits and '-', begin with a letter and end with a \
     letter or digit, for example my-project"
)]
pub struct InvalidProject {
    /// The text, safe to show.
    pub shown: String,
}

/// A resource name according to RFC 1035: 1 to 63 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name(Box<str>);

/// A zone: the name of its region, and a suffix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Zone(Name);

/// The instance in a providerID of our project. A name is unique only within its zone, so the zone is part of the
/// query.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) zone: Zone,
    pub(super) name: Name,
}

impl ProjectId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProjectId {
    type Err = InvalidProject;

    fn from_str(text: &str) -> Result<Self, InvalidProject> {
        let (domain, id) = match text.split_once(':') {
            Some((domain, id)) => (Some(domain), id),
            None => (None, text),
        };
        let ok = (6..=30).contains(&id.len()) && is_rfc1035(id) && domain.is_none_or(is_domain);
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(InvalidProject { shown: quoted(text) })
        }
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Name {
    pub(super) fn parse(text: &str) -> Option<Self> {
        is_rfc1035(text).then(|| Self(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Zone {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (region, _) = text.rsplit_once('-')?;
        (is_rfc1035(region) && is_rfc1035(text)).then(|| Self(Name(text.into())))
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// `us-central1` of `us-central1-a`.
    pub(super) fn region(&self) -> &str {
        self.as_str().rsplit_once('-').map_or("", |(region, _)| region)
    }
}

impl Target {
    /// Parses `gce://PROJECT/ZONE/NAME`.
    ///
    /// # Errors
    /// [`Refusal::InvalidProviderId`] for anything else, [`Refusal::ForeignProject`] if the project is not ours, which
    /// is refused without a call.
    pub(super) fn read(provider_id: &ProviderId, ours: &ProjectId, cluster: &ClusterName) -> Result<Self, Refusal> {
        let invalid = || Refusal::InvalidProviderId {
            provider_id: provider_id.clone(),
            rule: RULE,
        };
        let (project, target) = Self::parse(provider_id).ok_or_else(invalid)?;
        if project == *ours {
            return Ok(target);
        }
        Err(Refusal::ForeignProject {
            instance: target.to_string(),
            mark: Mark::Template,
            theirs: Some(project.to_string()),
            ours: cluster.clone(),
        })
    }

    /// The providerID of the instance's Node in `project`.
    pub(super) fn provider_id(&self, project: &ProjectId) -> Option<ProviderId> {
        format!("gce://{project}/{self}").parse().ok()
    }

    fn parse(provider_id: &ProviderId) -> Option<(ProjectId, Self)> {
        if provider_id.scheme() != "gce" {
            return None;
        }
        let (project, rest) = provider_id.rest().split_once('/')?;
        let (zone, name) = rest.split_once('/')?;
        let target = Self {
            zone: Zone::parse(zone)?,
            name: Name::parse(name)?,
        };
        Some((project.parse().ok()?, target))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.zone.as_str(), self.name.as_str())
    }
}

fn is_rfc1035(text: &str) -> bool {
    let bytes = text.as_bytes();
    let lower_or_digit = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(lower_or_digit)
        && bytes.iter().all(|byte| lower_or_digit(byte) || *byte == b'-')
}

/// Returns true if the text is the domain of an organisation's projects: at least two labels.
fn is_domain(text: &str) -> bool {
    let label = |part: &str| {
        let bytes = part.as_bytes();
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        bytes.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= 253 && text.contains('.') && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, project: &str) -> Result<Target, &'static str> {
        let ours: ProjectId = project.parse().unwrap();
        let cluster: ClusterName = "ours.example.com".parse().unwrap();
        Target::read(&text.parse().unwrap(), &ours, &cluster).map_err(|refusal| refusal.reason())
    }

    #[test]
    fn reads_project_zone_and_name() {
        let long = "n".repeat(63);
        for (project, zone, name, region) in [
            ("my-project", "us-central1-a", "nodes-x7k2", "us-central1"),
            ("example.com:my-project", "europe-west12-b", "n", "europe-west12"),
            ("project-123456", "us-south1-ai1a", &long, "us-south1"),
        ] {
            let target = read(&format!("gce://{project}/{zone}/{name}"), project).unwrap();
            assert_eq!(target.to_string(), format!("{zone}/{name}"));
            assert_eq!(target.zone.region(), region);
        }
    }

    #[test]
    fn another_project_is_told_from_junk() {
        for (text, reason) in [
            ("gce://other-project/us-central1-a/n", "ForeignProject"),
            ("gce://example.com:my-project/us-central1-a/n", "ForeignProject"),
            ("gce://123456789012/us-central1-a/n", "InvalidProviderId"),
            ("gce://My-Project/us-central1-a/n", "InvalidProviderId"),
            ("gce:///us-central1-a/n", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/", "InvalidProviderId"),
            ("gce://my-project/us-central1-a", "InvalidProviderId"),
            ("gce://my-project//n", "InvalidProviderId"),
            ("gce://my-project/uscentral/n", "InvalidProviderId"),
            ("gce://my-project/us-central1-/n", "InvalidProviderId"),
            ("gce://my-project/US-central1-a/n", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/N", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/n.o", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/1", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/n-", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/n/o", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/..", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/n%2fo", "InvalidProviderId"),
            ("gce://my-project/us-central1-a/n?alt=media", "InvalidProviderId"),
            ("gce://a:b:my-project/us-central1-a/n", "InvalidProviderId"),
            ("gce://com:my-project/us-central1-a/n", "InvalidProviderId"),
            ("aws:///us-central1-a/n", "InvalidProviderId"),
        ] {
            assert_eq!(read(text, "my-project"), Err(reason), "{text}");
        }
        let long = format!("gce://my-project/us-central1-a/{}", "n".repeat(64));
        assert_eq!(read(&long, "my-project"), Err("InvalidProviderId"));
    }

    #[test]
    fn project_ids() {
        for good in ["abcdef", "a-1234", "example.com:abcdef", &"a".repeat(30)] {
            assert!(good.parse::<ProjectId>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "abcde",
            &"a".repeat(31),
            "1abcdef",
            "abcdef-",
            "Abcdef",
            "abc.def",
            "abc/def",
            "123456789012",
            ".com:abcdef",
            "a..b:abcdef",
            "example.com:",
            "abcdef\n",
            "../../etc",
        ] {
            let error = bad.parse::<ProjectId>().unwrap_err();
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
