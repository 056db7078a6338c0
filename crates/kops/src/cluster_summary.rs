//! The fields of a kOps `Cluster` with its location and the DNS name of its API.
//!
//! Separate from [`Cluster`](crate::Cluster), so that an invalid value here costs no node its labels. The fields that
//! are read are strict.

use std::collections::BTreeSet;

use tidewaiter_api::ClusterName;

use crate::cloud::Cloud;
use crate::document::{InvalidFile, Mapping};
use crate::spec::spec_of_cluster;

/// Source: kOps. A cluster with this suffix finds its API by gossip and publishes no DNS name.
const GOSSIP: &str = ".k8s.local";
const A_MAPPING: &str = "a mapping";
const A_STRING: &str = "a string";
const SUBNETS: &str = "a list of mappings";

/// The location of a cluster, and how to find its API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSummary {
    /// `metadata.name`.
    pub name: ClusterName,
    /// The DNS name of the API: `spec.api.publicName`, `spec.masterPublicName` in v1alpha2, or else `api.` and the name
    /// of the cluster. `None` if the cluster publishes no name: `spec.topology.dns.type` is `None`, or it uses gossip.
    pub api_name: Option<String>,
    /// `spec.cloudProvider`: a name, or a mapping with the name as its only key.
    pub cloud: Option<Cloud>,
    /// `spec.cloudProvider.gce.project`, or `spec.project` in v1alpha2.
    pub project: Option<String>,
    /// The zones of `spec.networking.subnets`, or `spec.subnets` in v1alpha2.
    pub zones: BTreeSet<String>,
}

impl ClusterSummary {
    /// Parses `bytes`, the content of `file`, as the Cluster named `expected`.
    ///
    /// # Errors
    /// If it is not a single YAML or JSON document, not a Cluster of kOps, another cluster, or if a field that is
    /// read has the wrong type.
    pub fn parse(file: &str, bytes: &[u8], expected: &ClusterName) -> Result<Self, InvalidFile> {
        spec_of_cluster(file, bytes, expected, |spec| {
            Ok(Self {
                name: expected.clone(),
                api_name: api_name(spec, expected)?,
                cloud: cloud(spec)?,
                project: project(spec)?,
                zones: zones(spec)?,
            })
        })
    }

    /// The AWS region of all zones, including local zones and wavelength zones; `None` if they differ.
    #[must_use]
    pub fn aws_region(&self) -> Option<String> {
        let regions: Option<BTreeSet<String>> = self.zones.iter().map(|zone| region_of(zone)).collect();
        let mut regions = regions?.into_iter();
        regions.next().filter(|_| regions.next().is_none())
    }
}

/// The region of a zone: `us-west-2` for `us-west-2b` and `us-west-2-lax-1a`.
fn region_of(zone: &str) -> Option<String> {
    let start = zone.find(|c: char| c.is_ascii_digit()).filter(|start| *start > 0)?;
    let digits = zone[start..].chars().take_while(char::is_ascii_digit).count();
    Some(zone[..start + digits].to_owned())
}

fn api_name(spec: &Mapping<'_>, cluster: &ClusterName) -> Result<Option<String>, InvalidFile> {
    let newer = mapping(spec, "networking")?.map(|networking| mapping(&networking, "topology"));
    let topology = newer.transpose()?.flatten().or(mapping(spec, "topology")?);
    let dns_type = match topology.and_then(|topology| topology.get("dns")) {
        Some(dns) => match dns.text("") {
            Ok(dns) => Some(dns),
            Err(_) => text(&dns.mapping(A_MAPPING)?, "type")?,
        },
        None => None,
    };
    let public = match &mapping(spec, "api")? {
        Some(api) => text(api, "publicName")?,
        None => None,
    };
    let public = public.or(text(spec, "masterPublicName")?);
    if dns_type == Some("None") || cluster.as_str().ends_with(GOSSIP) {
        return Ok(None);
    }
    Ok(Some(public.map_or_else(|| format!("api.{cluster}"), str::to_owned)))
}

fn cloud(spec: &Mapping<'_>) -> Result<Option<Cloud>, InvalidFile> {
    spec.get("cloudProvider")
        .map(|field| Cloud::read_or_key(&field))
        .transpose()
}

fn project(spec: &Mapping<'_>) -> Result<Option<String>, InvalidFile> {
    let older = text(spec, "project")?;
    let cloud = spec.get("cloudProvider").and_then(|field| field.mapping("").ok());
    let project = match cloud.map(|cloud| mapping(&cloud, "gce")).transpose()?.flatten() {
        Some(gce) => text(&gce, "project")?.or(older),
        None => older,
    };
    Ok(project.map(str::to_owned))
}

fn zones(spec: &Mapping<'_>) -> Result<BTreeSet<String>, InvalidFile> {
    let newer = mapping(spec, "networking")?.and_then(|networking| networking.get("subnets"));
    let subnets = newer
        .or_else(|| spec.get("subnets"))
        .map(|field| field.mappings(SUBNETS));
    let mut zones = BTreeSet::new();
    for subnet in subnets.transpose()?.unwrap_or_default() {
        zones.extend(text(&subnet, "zone")?.map(str::to_owned));
    }
    Ok(zones)
}

fn mapping<'a>(parent: &Mapping<'a>, key: &str) -> Result<Option<Mapping<'a>>, InvalidFile> {
    parent.get(key).map(|field| field.mapping(A_MAPPING)).transpose()
}

/// An empty string counts as absent, as in Go.
fn text<'a>(parent: &Mapping<'a>, key: &str) -> Result<Option<&'a str>, InvalidFile> {
    let text = parent.get(key).map(|field| field.text(A_STRING)).transpose()?;
    Ok(text.filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::CLUSTER_FILE;

    const COMPLETED: &str = include_str!("../fixtures/cluster-completed.spec");

    fn named(name: &str, text: &str) -> Result<ClusterSummary, InvalidFile> {
        ClusterSummary::parse(CLUSTER_FILE, text.as_bytes(), &name.parse().unwrap())
    }

    fn parse(text: &str) -> Result<ClusterSummary, InvalidFile> {
        named("cluster.example.com", text)
    }

    /// The fixture with additional fields in its `spec`.
    fn with(more: &str) -> String {
        COMPLETED.replace("\nspec:\n", &format!("\nspec:\n  {more}\n"))
    }

    fn zones(zones: &[&str]) -> ClusterSummary {
        let mut summary = parse(COMPLETED).unwrap();
        summary.zones = zones.iter().copied().map(str::to_owned).collect();
        summary
    }

    #[test]
    fn the_completed_cluster_that_kops_writes() {
        let expected = ClusterSummary {
            name: "cluster.example.com".parse().unwrap(),
            api_name: Some("api.cluster.example.com".to_owned()),
            cloud: Some(Cloud::Aws),
            project: None,
            zones: ["us-test-1a".to_owned()].into(),
        };
        assert_eq!(parse(COMPLETED).unwrap(), expected);
    }

    #[test]
    fn the_api_has_the_name_that_the_cluster_publishes() {
        let public = |more: &str| parse(&with(more)).unwrap().api_name;
        for (more, expected) in [
            ("masterPublicName: k.example.com", Some("k.example.com")),
            ("masterPublicName: ''", Some("api.cluster.example.com")),
            ("topology: {dns: {type: Public}}", Some("api.cluster.example.com")),
            ("topology: {dns: {type: Private}}", Some("api.cluster.example.com")),
            ("topology: {dns: {type: None}}", None),
            ("networking: {topology: {dns: None}}", None),
            (
                "networking: {topology: {dns: Private}}",
                Some("api.cluster.example.com"),
            ),
        ] {
            assert_eq!(public(more).as_deref(), expected, "{more}");
        }
        let newer = COMPLETED.replace("  api:\n", "  api:\n    publicName: n.example.com\n");
        let newer = newer.replace("\nspec:\n", "\nspec:\n  masterPublicName: k.example.com\n");
        assert_eq!(parse(&newer).unwrap().api_name.as_deref(), Some("n.example.com"));
        let gossip = COMPLETED.replace("  name: cluster.example.com", "  name: c.k8s.local");
        assert_eq!(named("c.k8s.local", &gossip).unwrap().api_name, None);
    }

    #[test]
    fn a_cloud_is_a_name_or_the_one_key_of_a_mapping() {
        let cloud = |value: &str| parse(&COMPLETED.replace("cloudProvider: aws", &format!("cloudProvider: {value}")));
        assert_eq!(cloud("{gce: {project: p}}").unwrap().cloud, Some(Cloud::Gce));
        assert_eq!(cloud("{gce: {project: p}}").unwrap().project.as_deref(), Some("p"));
        assert_eq!(cloud("null").unwrap().cloud, None);
        for (value, found) in [
            ("{aws: {}, gce: {}}", "a mapping"),
            ("{moon: {}}", "a mapping"),
            ("moon", "\"moon\""),
            ("[aws]", "a list"),
        ] {
            let error = cloud(value).unwrap_err().to_string();
            let expected = format!("cluster-completed.spec: spec.cloudProvider: is {found}, must be one of aws, gce, ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn the_subnets_have_two_places() {
        let newer = COMPLETED.replace(
            "\n  subnets:\n",
            "\n  networking: {subnets: [{zone: us-test-1b}]}\n  older:\n",
        );
        assert_eq!(parse(&newer).unwrap().zones, ["us-test-1b".to_owned()].into());
    }

    #[test]
    fn a_region_is_what_all_zones_lie_in() {
        for (given, expected) in [
            (&["eu-central-1a", "eu-central-1b"][..], Some("eu-central-1")),
            (&["us-gov-west-1a"], Some("us-gov-west-1")),
            (
                &["us-west-2b", "us-west-2-lax-1a", "us-west-2-wl1-las-wlz-1"],
                Some("us-west-2"),
            ),
            (&["eu-central-1a", "eu-west-1a"], None),
            (&["eu-central-1a", "home"], None),
            (&[], None),
        ] {
            assert_eq!(zones(given).aws_region().as_deref(), expected, "{given:?}");
        }
    }

    #[test]
    fn a_field_of_the_wrong_shape_is_named() {
        for (text, found) in [
            (with("project: 7"), "spec.project: is the number 7, must be a string"),
            (
                with("masterPublicName: []"),
                "spec.masterPublicName: is a list, must be a string",
            ),
            (
                with("topology: on"),
                "spec.topology: is the boolean true, must be a mapping",
            ),
            (
                with("topology: {dns: {type: [None]}}"),
                "spec.topology.dns.type: is a list, must be a string",
            ),
            (
                COMPLETED.replace("zone: us-test-1a", "zone: {}"),
                "spec.subnets[0].zone: is a mapping, must be a string",
            ),
            (
                COMPLETED.replace("  subnets:\n", "  subnets:\n  - us-test-1a\n"),
                "spec.subnets: is a list, must be a list of mappings",
            ),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert_eq!(error, format!("cluster-completed.spec: {found}"));
        }
    }
}
