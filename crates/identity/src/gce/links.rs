//! References to other resources: the managed instance group in an instance's metadata, the template in a group's
//! listing.
//!
//! Invariants: a parsed link is in our project, and only names according to RFC 1035 are ever sent. Its project may be
//! a number, which we cannot compare with ours; a number is accepted and **never used**: every call names our project
//! by its id, so a resource of the same name in another project is never read.

use std::fmt;

use super::names::{Name, ProjectId, Target, Zone};

/// The maximum length of a link that is compared or printed.
const MAX_LEN: usize = 512;

/// A managed instance group that may contain an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Mig {
    pub(super) place: Place,
    pub(super) name: Name,
}

/// The location of a managed instance group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
    /// All its instances are in this zone.
    Zone(Zone),
    /// Its instances are distributed over zones of this region.
    Region(Name),
}

/// An instance template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TemplateLink {
    /// `None`: a global template.
    pub(super) region: Option<Name>,
    pub(super) name: Name,
}

/// A link to a resource that we must not query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InvalidLink {
    /// It is in another project.
    Foreign(String),
    /// It is not a link of this kind, or is in another location than the instance.
    NotFound,
}

impl Mig {
    /// Parses `created-by` of an instance of `zone`: `projects/P/zones/Z/instanceGroupManagers/NAME`, or with
    /// `regions/R`.
    ///
    /// An instance can write any value there. It is only a hint which listing to read; that listing decides.
    pub(super) fn read(text: &str, zone: &Zone, ours: &ProjectId) -> Result<Self, InvalidLink> {
        let [_, scope, place, kind, name] = parts(text, ours)?;
        let place = match scope {
            "zones" if place == zone.as_str() => Place::Zone(zone.clone()),
            "regions" if place == zone.region() => Place::Region(Name::parse(place).ok_or(InvalidLink::NotFound)?),
            _ => return Err(InvalidLink::NotFound),
        };
        match Name::parse(name) {
            Some(name) if kind == "instanceGroupManagers" => Ok(Self { place, name }),
            _ => Err(InvalidLink::NotFound),
        }
    }
}

impl TemplateLink {
    /// Parses the URL of a template, `…/projects/P/global/instanceTemplates/T` or
    /// `…/projects/P/regions/R/instanceTemplates/T`, of an instance in `region`. The cloud writes it; the node cannot.
    pub(super) fn read(url: &str, region: &str, ours: &ProjectId) -> Result<Self, InvalidLink> {
        let path = path(url);
        let name = |text: &str| Name::parse(text).ok_or(InvalidLink::NotFound);
        if let Ok([_, "global", "instanceTemplates", template]) = parts::<4>(path, ours) {
            return Ok(Self {
                region: None,
                name: name(template)?,
            });
        }
        match parts(path, ours)? {
            [_, "regions", place, "instanceTemplates", template] if place == region => Ok(Self {
                region: Some(name(place)?),
                name: name(template)?,
            }),
            _ => Err(InvalidLink::NotFound),
        }
    }
}

impl Place {
    /// Parses `zones/Z` or `regions/R`.
    pub(super) fn of_scope(scope: &str) -> Option<Self> {
        match scope.split_once('/')? {
            ("zones", zone) => Zone::parse(zone).map(Self::Zone),
            ("regions", region) => Name::parse(region).map(Self::Region),
            _ => None,
        }
    }

    /// The name of the zone or region.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Zone(zone) => zone.as_str(),
            Self::Region(region) => region.as_str(),
        }
    }

    pub(super) fn region(&self) -> &str {
        match self {
            Self::Zone(zone) => zone.region(),
            Self::Region(region) => region.as_str(),
        }
    }
}

/// Parses the URL of an instance, `…/projects/P/zones/Z/instances/NAME`.
pub(super) fn instance(url: &str, ours: &ProjectId) -> Option<Target> {
    match parts(path(url), ours) {
        Ok([_, "zones", zone, "instances", name]) => Some(Target {
            zone: Zone::parse(zone)?,
            name: Name::parse(name)?,
        }),
        _ => None,
    }
}

/// The part of a URL that begins with `projects/`.
fn path(url: &str) -> &str {
    url.find("/projects/").map_or(url, |start| &url[start + 1..])
}

/// The `N` parts after `projects/`. The first is the project, which must be ours.
fn parts<'a, const N: usize>(path: &'a str, ours: &ProjectId) -> Result<[&'a str; N], InvalidLink> {
    if path.len() > MAX_LEN {
        return Err(InvalidLink::NotFound);
    }
    let rest = path.strip_prefix("projects/").ok_or(InvalidLink::NotFound)?;
    let project = rest.split('/').next().unwrap_or_default();
    let is_number = (1..=20).contains(&project.len()) && project.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number && project != ours.as_str() {
        return Err(match project.parse::<ProjectId>() {
            Ok(theirs) => InvalidLink::Foreign(theirs.to_string()),
            Err(_) => InvalidLink::NotFound,
        });
    }
    let parts: Vec<&str> = rest.split('/').collect();
    parts.try_into().map_err(|_| InvalidLink::NotFound)
}

impl fmt::Display for Mig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, name) = (self.place.as_str(), self.name.as_str());
        match &self.place {
            Place::Zone(_) => write!(f, "zones/{place}/instanceGroupManagers/{name}"),
            Place::Region(_) => write!(f, "regions/{place}/instanceGroupManagers/{name}"),
        }
    }
}

impl fmt::Display for TemplateLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_str();
        match &self.region {
            None => write!(f, "global/instanceTemplates/{name}"),
            Some(region) => write!(f, "regions/{}/instanceTemplates/{name}", region.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mig(text: &str) -> Result<String, InvalidLink> {
        let zone = Zone::parse("us-central1-a").unwrap();
        Mig::read(text, &zone, &"my-project".parse().unwrap()).map(|mig| mig.to_string())
    }

    fn template(text: &str) -> Result<String, InvalidLink> {
        TemplateLink::read(text, "us-central1", &"my-project".parse().unwrap()).map(|link| link.to_string())
    }

    fn foreign(project: &str) -> Result<String, InvalidLink> {
        Err(InvalidLink::Foreign(project.to_owned()))
    }

    #[test]
    fn managed_instance_groups() {
        for (text, expected) in [
            (
                "projects/123456789012/zones/us-central1-a/instanceGroupManagers/a-nodes",
                "zones/us-central1-a/instanceGroupManagers/a-nodes",
            ),
            (
                "projects/my-project/zones/us-central1-a/instanceGroupManagers/a-nodes",
                "zones/us-central1-a/instanceGroupManagers/a-nodes",
            ),
            (
                "projects/123456789012/regions/us-central1/instanceGroupManagers/nodes",
                "regions/us-central1/instanceGroupManagers/nodes",
            ),
        ] {
            assert_eq!(mig(text), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn hints_that_lead_astray() {
        let elsewhere = Err(InvalidLink::NotFound);
        let long = format!(
            "projects/1/zones/us-central1-a/instanceGroupManagers/{}",
            "a".repeat(64)
        );
        for (text, expected) in [
            (
                "projects/other-project/zones/us-central1-a/instanceGroupManagers/a",
                foreign("other-project"),
            ),
            (
                "projects/my-project-2/regions/us-central1/instanceGroupManagers/a",
                foreign("my-project-2"),
            ),
            ("projects/other-project", foreign("other-project")),
            ("", elsewhere.clone()),
            ("user@example.com", elsewhere.clone()),
            (
                "projects/1/zones/us-central1-b/instanceGroupManagers/a",
                elsewhere.clone(),
            ),
            ("projects/1/regions/us-east1/instanceGroupManagers/a", elsewhere.clone()),
            (
                "projects/1/regions/us-central1-a/instanceGroupManagers/a",
                elsewhere.clone(),
            ),
            ("projects/1/zones/us-central1-a/instanceGroups/a", elsewhere.clone()),
            (
                "projects/1/zones/us-central1-a/instanceGroupManagers/",
                elsewhere.clone(),
            ),
            (
                "projects/1/zones/us-central1-a/instanceGroupManagers/a/b",
                elsewhere.clone(),
            ),
            (
                "projects/1/zones/us-central1-a/instanceGroupManagers/..",
                elsewhere.clone(),
            ),
            (
                "projects/1/zones/us-central1-a/instanceGroupManagers/a?x=y",
                elsewhere.clone(),
            ),
            (
                "projects/../zones/us-central1-a/instanceGroupManagers/a",
                elsewhere.clone(),
            ),
            (
                "https://evil.example/projects/1/zones/us-central1-a/instanceGroupManagers/a",
                elsewhere.clone(),
            ),
            (&long, elsewhere.clone()),
            (&"x".repeat(10_240), elsewhere),
        ] {
            assert_eq!(mig(text), expected, "{text}");
        }
    }

    #[test]
    fn templates() {
        let www = "https://www.googleapis.com/compute/v1/projects";
        for (text, expected) in [
            (
                format!("{www}/my-project/global/instanceTemplates/t"),
                Ok("global/instanceTemplates/t".to_owned()),
            ),
            (
                "https://compute.googleapis.com/compute/v1/projects/123456789012/global/instanceTemplates/t".to_owned(),
                Ok("global/instanceTemplates/t".to_owned()),
            ),
            (
                format!("{www}/my-project/regions/us-central1/instanceTemplates/t"),
                Ok("regions/us-central1/instanceTemplates/t".to_owned()),
            ),
            (
                "projects/my-project/global/instanceTemplates/t".to_owned(),
                Ok("global/instanceTemplates/t".to_owned()),
            ),
            (
                format!("{www}/other-project/global/instanceTemplates/t"),
                foreign("other-project"),
            ),
            (
                format!("{www}/my-project/regions/us-east1/instanceTemplates/t"),
                Err(InvalidLink::NotFound),
            ),
            (
                format!("{www}/my-project/global/instanceTemplates/"),
                Err(InvalidLink::NotFound),
            ),
            (format!("{www}/my-project/global/images/t"), Err(InvalidLink::NotFound)),
            (String::new(), Err(InvalidLink::NotFound)),
        ] {
            assert_eq!(template(&text), expected, "{text}");
        }
    }
}
