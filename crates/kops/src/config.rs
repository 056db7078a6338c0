//! The configuration file of kops-controller, as kOps writes it and mounts it into the container.
//!
//! Every file that kOps writes is accepted, YAML or JSON. A key for a feature that Tidewaiter does not have produces
//! one warning, an unknown key produces one with the nearest known key, and an invalid value is an error with the key,
//! the value and what is allowed. Keys are case-insensitive, as in Go's decoder: kOps itself writes `server.Listen` and
//! `server.provider.aws.Region`. Only what a message needs is ever logged.

use std::io;
use std::path::Path;

use tidewaiter_api::ClusterName;
use tidewaiter_api::values::quoted;
use tidewaiter_kit::files;

use crate::cloud::Cloud;
use crate::document::{Field, InvalidFile, Mapping, parse};
use crate::store::StateUrl;

/// The values that Tidewaiter reads from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// `clusterName`.
    pub cluster_name: ClusterName,
    /// `cloud`. The caller checks whether Tidewaiter [supports](Cloud::is_supported) that cloud.
    pub cloud: Cloud,
    /// `configBase`: the location of the cluster's files.
    pub config_base: StateUrl,
    /// `server.provider.aws.Region`, if present.
    pub region: Option<String>,
    /// `server.provider.gce.projectID`, if present.
    pub project: Option<String>,
    /// True if the nodes on AWS are named by their addresses, and not by the ids of their instances:
    /// `server.provider.aws.useIPBasedNodeNames`, or else the opposite of `server.useInstanceIDForNodeName`, if
    /// present.
    pub address_based_names: Option<bool>,
}

/// A configuration, with warnings for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The configuration.
    pub config: ControllerConfig,
    /// One line for each key without an effect, sorted by key, and one if the cluster must not be switched.
    pub warnings: Vec<String>,
}

/// The reason why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is missing or unreadable.
    #[error("{path}: cannot be read")]
    Read {
        /// The file.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidFile),
}

const CLUSTER_NAME: &str = "clusterName";
const CLOUD: &str = "cloud";
const CONFIG_BASE: &str = "configBase";
const READ: [&str; 3] = [CLUSTER_NAME, CLOUD, CONFIG_BASE];

const SERVER: &str = "server";
const PROVIDER: &str = "provider";
const NOT_IMPLEMENTED: [(&str, &str); 6] = [
    ("secretStore", "Tidewaiter does not read secrets"),
    (SERVER, "Tidewaiter has no bootstrap server"),
    (
        "cacheNodeidentityInfo",
        "Tidewaiter always caches, and reads again when something changes",
    ),
    ("enableCloudIPAM", "Tidewaiter does not assign pod networks"),
    ("discovery", "Tidewaiter does not publish addresses"),
    ("capi", "Tidewaiter does not use the Cluster API"),
];

/// The duties that no replica has while Tidewaiter holds the Lease, by the key that asks for it.
const LOST_DUTIES: [(&str, &str); 3] = [
    ("enableCloudIPAM", "new Nodes get no pod range"),
    ("capi", "nobody does the work for the Cluster API"),
    (
        "discovery",
        "pods do not learn the addresses of new control-plane nodes",
    ),
];
const DO_NOT_SWITCH: &str = "do not switch from kops-controller (see docs/takeover.md)";

const A_CLUSTER_NAME: &str = "the name of the cluster, for example cluster.example.com";
const A_STATE_STORE: &str = "s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH";
const A_PROJECT: &str = "the id of a project, for example my-project-42";
const A_REGION: &str = "the name of a region, for example us-east-1";

impl ControllerConfig {
    /// Reads and validates the file at `path`.
    ///
    /// # Errors
    /// If the file is missing, unreadable or not a YAML or JSON mapping, or if a required key is missing or invalid.
    pub fn load(path: &Path) -> Result<Loaded, ConfigError> {
        let name = path.display().to_string();
        let bytes = files::read(path).map_err(|source| ConfigError::Read {
            path: name.clone(),
            source,
        })?;
        Ok(Self::parse(&name, &bytes)?)
    }

    /// Validates `bytes`, the content of `file`.
    ///
    /// # Errors
    /// As [`load`](Self::load), except for reading.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Loaded, InvalidFile> {
        let document = parse(file, bytes)?;
        let root = Mapping::root(file, &document);
        let cluster_name = cluster_name(&root)?;
        let cloud = Cloud::read(&require(&root, CLOUD, &Cloud::allowed())?)?;
        let config = Self {
            cluster_name,
            cloud,
            config_base: config_base(&root, cloud)?,
            region: region(&root)?,
            project: project(&root)?,
            address_based_names: address_based_names(&root)?,
        };
        let keys = root.keys().filter(|key| !is_all_read(&root, key));
        let warnings = keys.filter_map(|key| warning(file, &root, key, cloud)).collect();
        Ok(Loaded { config, warnings })
    }
}

fn require<'a>(root: &Mapping<'a>, key: &str, wanted: &str) -> Result<Field<'a>, InvalidFile> {
    root.get_any_case(key)?.ok_or_else(|| root.missing(key, wanted))
}

fn cluster_name(root: &Mapping<'_>) -> Result<ClusterName, InvalidFile> {
    let field = require(root, CLUSTER_NAME, A_CLUSTER_NAME)?;
    let text = field.text(A_CLUSTER_NAME)?;
    text.parse()
        .map_err(|error: tidewaiter_api::InvalidValue| field.invalid(format!("{}: {}", error.shown, error.rule)))
}

/// On a cloud that is not supported, the state store may be of that cloud, too: then the cloud is what to report.
fn config_base(root: &Mapping<'_>, cloud: Cloud) -> Result<StateUrl, InvalidFile> {
    let field = require(root, CONFIG_BASE, A_STATE_STORE)?;
    let text = field.text(A_STATE_STORE)?;
    text.parse().map_err(|error: crate::store::InvalidStateUrl| {
        if cloud.is_supported() {
            field.invalid(error.to_string())
        } else {
            root.invalid(CLOUD, format!("is {cloud}: {}", Cloud::SUPPORTED))
        }
    })
}

/// The field `key` of `server.provider.CLOUD`.
fn of_provider<'a>(root: &Mapping<'a>, cloud: Cloud, key: &str) -> Result<Option<Field<'a>>, InvalidFile> {
    let mut mapping = root.clone();
    for step in [SERVER, PROVIDER, cloud.as_str()] {
        match mapping.get_any_case(step)? {
            Some(field) => mapping = field.mapping("a mapping")?,
            None => return Ok(None),
        }
    }
    mapping.get_any_case(key)
}

fn project(root: &Mapping<'_>) -> Result<Option<String>, InvalidFile> {
    let Some(field) = of_provider(root, Cloud::Gce, "projectID")? else {
        return Ok(None);
    };
    let text = field.text(A_PROJECT)?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn region(root: &Mapping<'_>) -> Result<Option<String>, InvalidFile> {
    let Some(field) = of_provider(root, Cloud::Aws, "Region")? else {
        return Ok(None);
    };
    let text = field.text(A_REGION)?;
    // It becomes part of a host name.
    let ok = text.len() <= 63
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    match (text.is_empty(), ok) {
        (true, _) => Ok(None),
        (_, true) => Ok(Some(text.to_owned())),
        _ => Err(field.must_be(A_REGION)),
    }
}

fn address_based_names(root: &Mapping<'_>) -> Result<Option<bool>, InvalidFile> {
    if let Some(field) = of_provider(root, Cloud::Aws, "useIPBasedNodeNames")? {
        return field.boolean().map(Some);
    }
    let Some(server) = root.get_any_case(SERVER)? else {
        return Ok(None);
    };
    let field = server.mapping("a mapping")?.get_any_case("useInstanceIDForNodeName")?;
    field.map(|field| field.boolean().map(|by_id| !by_id)).transpose()
}

/// Returns true if `key` is the server, and contains nothing but a value that is read.
fn is_all_read(root: &Mapping<'_>, key: &str) -> bool {
    let mut mapping = root.clone();
    if !key.eq_ignore_ascii_case(SERVER) {
        return false;
    }
    for step in [key, "provider", "aws"] {
        let inner = mapping.get_any_case(step).ok().flatten();
        let Some(inner) = inner.and_then(|field| field.mapping("a mapping").ok()) else {
            return false;
        };
        mapping = inner;
        if mapping.keys().count() != 1 {
            return false;
        }
    }
    matches!(mapping.get_any_case("Region"), Ok(Some(_)))
}

/// The warning for a key with a value that has no effect.
fn warning(file: &str, root: &Mapping<'_>, key: &str, cloud: Cloud) -> Option<String> {
    if READ.iter().any(|known| known.eq_ignore_ascii_case(key)) {
        return None;
    }
    if let Some(lost) = lost_duty(root, key) {
        return Some(format!(
            "{file}: {key} has no effect: while Tidewaiter leads, {lost}: {DO_NOT_SWITCH}"
        ));
    }
    let not_implemented = NOT_IMPLEMENTED
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(key));
    Some(match not_implemented {
        Some((known, why)) => {
            let used = match cloud {
                Cloud::Aws if *known == SERVER => "; only the region and the names of nodes are used",
                Cloud::Gce if *known == SERVER => "; only provider.gce.projectID is used",
                _ => "",
            };
            format!("{file}: {key} has no effect: {why}{used}")
        }
        None => format!(
            "{file}: the key {} is unknown and has no effect; the nearest known key is {}",
            quoted(key),
            nearest(key)
        ),
    })
}

/// The consequence of a duty of the holder of the Lease that Tidewaiter does not have.
fn lost_duty(root: &Mapping<'_>, key: &str) -> Option<&'static str> {
    let (_, lost) = LOST_DUTIES.iter().find(|(known, _)| known.eq_ignore_ascii_case(key))?;
    let field = root.get_any_case(key).ok().flatten()?;
    let is_off = match field.mapping("") {
        Ok(options) => match options.get_any_case("enabled") {
            Ok(Some(enabled)) => enabled.boolean() == Ok(false),
            _ => false,
        },
        Err(_) => field.boolean() == Ok(false),
    };
    (!is_off).then_some(*lost)
}

fn nearest(key: &str) -> &'static str {
    let known = READ.into_iter().chain(NOT_IMPLEMENTED.map(|(known, _)| known));
    let key: String = key.chars().take(64).flat_map(char::to_lowercase).collect();
    known
        .min_by_key(|known| strsim::damerau_levenshtein(&known.to_lowercase(), &key))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
