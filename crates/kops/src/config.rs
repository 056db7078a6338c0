//! The configuration file of kops-controller, as kOps writes it and mounts it into the container.
//!
//! Every file that kOps writes is accepted, YAML or JSON. A key for a feature that Tidewaiter does not have produces
//! one warning, an unknown key produces one with the nearest known key, and an invalid value is an error with the key,
//! the value and what is allowed. Keys are case-insensitive, as in Go's decoder: kOps itself writes `server.Listen` and
//! `server.provider.aws.Region`. Only what a message needs is ever logged.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use tidewaiter_api::ClusterName;
use tidewaiter_api::values::quoted;

use crate::document::{Field, InvalidFile, MAX_BYTES, Mapping, parse};
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
}

/// A configuration, with warnings for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The configuration.
    pub config: ControllerConfig,
    /// One line for each key without an effect, sorted by key.
    pub warnings: Vec<String>,
}

/// Why a configuration file cannot be used.
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

/// The clouds that kOps supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is the name of a product")]
pub enum Cloud {
    Aws,
    Gce,
    Openstack,
    DigitalOcean,
    Hetzner,
    Azure,
    Scaleway,
    Metal,
    Linode,
}

impl Cloud {
    const ALL: [Self; 9] = [
        Self::Aws,
        Self::Gce,
        Self::Openstack,
        Self::DigitalOcean,
        Self::Hetzner,
        Self::Azure,
        Self::Scaleway,
        Self::Metal,
        Self::Linode,
    ];

    /// The clouds that this version supports, in words.
    pub const SUPPORTED: &'static str = "this version of Tidewaiter supports aws, gce and hetzner only";

    /// Whether this version supports the cloud.
    #[must_use]
    pub fn is_supported(self) -> bool {
        matches!(self, Self::Aws | Self::Gce | Self::Hetzner)
    }

    /// The name that kOps uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Gce => "gce",
            Self::Openstack => "openstack",
            Self::DigitalOcean => "digitalocean",
            Self::Hetzner => "hetzner",
            Self::Azure => "azure",
            Self::Scaleway => "scaleway",
            Self::Metal => "metal",
            Self::Linode => "linode",
        }
    }

    fn read(field: &Field<'_>) -> Result<Self, InvalidFile> {
        let text = field.text(&Self::allowed())?;
        Self::named(text).ok_or_else(|| field.must_be(&Self::allowed()))
    }

    /// Like [`read`](Self::read), but also accepts a mapping with the cloud as its only key, as newer kOps versions
    /// write it.
    pub(crate) fn read_or_key(field: &Field<'_>) -> Result<Self, InvalidFile> {
        let Ok(mapping) = field.mapping("") else {
            return Self::read(field);
        };
        let keys: Vec<_> = mapping.keys().collect();
        let known = match keys[..] {
            [key] => Self::named(key),
            _ => None,
        };
        known.ok_or_else(|| field.must_be(&Self::allowed()))
    }

    fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cloud| cloud.as_str() == text)
    }

    fn allowed() -> String {
        format!("one of {}", Self::ALL.map(Self::as_str).join(", "))
    }
}

impl fmt::Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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
        let bytes = read(path).map_err(|source| ConfigError::Read {
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
        };
        let keys = root.keys().filter(|key| !is_all_read(&root, key));
        let warnings = keys.filter_map(|key| warning(file, key, cloud)).collect();
        Ok(Loaded { config, warnings })
    }
}

/// Reads at most one byte more than the maximum size, so that an endless special file does not fill the memory.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
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

/// Whether `key` is the server, and contains nothing but a value that is read.
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
fn warning(file: &str, key: &str, cloud: Cloud) -> Option<String> {
    if READ.iter().any(|known| known.eq_ignore_ascii_case(key)) {
        return None;
    }
    let not_implemented = NOT_IMPLEMENTED
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(key));
    Some(match not_implemented {
        Some((known, why)) => {
            let used = match cloud {
                Cloud::Aws if *known == SERVER => "; only provider.aws.Region is used",
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

fn nearest(key: &str) -> &'static str {
    let known = READ.into_iter().chain(NOT_IMPLEMENTED.map(|(known, _)| known));
    let key: String = key.chars().take(64).flat_map(char::to_lowercase).collect();
    known
        .min_by_key(|known| strsim::damerau_levenshtein(&known.to_lowercase(), &key))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWS: &str = include_str!("../fixtures/config-aws.json");
    const GCE: &str = include_str!("../fixtures/config-gce.yaml");
    const PLAIN: &str = "clusterName: c.example.com\ncloud: aws\nconfigBase: s3://state/c.example.com\n";

    fn load(text: &str) -> Loaded {
        ControllerConfig::parse("config.yaml", text.as_bytes()).unwrap()
    }

    fn error(text: &str) -> String {
        ControllerConfig::parse("config.yaml", text.as_bytes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_json_that_kops_writes_loads_with_a_warning_for_each_key_that_is_not_implemented() {
        let Loaded { config, warnings } = load(AWS);
        assert_eq!(config.cluster_name.as_str(), "cluster.example.com");
        assert_eq!(config.cloud, Cloud::Aws);
        assert_eq!(
            config.config_base.to_string(),
            "s3://state.example.com/cluster.example.com"
        );
        assert_eq!(config.region.as_deref(), Some("us-test-1"));
        let keys: Vec<&str> = warnings.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
        assert_eq!(
            keys,
            [
                "cacheNodeidentityInfo",
                "capi",
                "discovery",
                "enableCloudIPAM",
                "secretStore",
                "server"
            ]
        );
        assert!(
            warnings
                .iter()
                .all(|line| line.starts_with("config.yaml: ") && !line.contains('\n')),
            "{warnings:?}"
        );
    }

    #[test]
    fn the_yaml_that_older_kops_writes_loads() {
        let Loaded { config, warnings } = load(GCE);
        assert_eq!((config.cloud, config.region), (Cloud::Gce, None));
        assert_eq!(config.project.as_deref(), Some("test-project"));
        assert_eq!(config.config_base.to_string(), "gs://state/cluster.k8s.local");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }

    #[test]
    fn the_warning_about_the_server_names_what_is_used_on_this_cloud() {
        for (cloud, used) in [
            ("aws", "; only provider.aws.Region is used"),
            ("gce", "; only provider.gce.projectID is used"),
            ("hetzner", ""),
        ] {
            let text = PLAIN.replace("aws", cloud) + "server: {Listen: \":3988\"}\n";
            let expected = format!("config.yaml: server has no effect: Tidewaiter has no bootstrap server{used}");
            assert_eq!(load(&text).warnings, [expected]);
        }
    }

    #[test]
    fn a_state_store_of_an_unsupported_cloud_is_reported_as_that_cloud() {
        for (cloud, base) in [
            ("azure", "azureblob://container/c.example.com"),
            ("scaleway", "scw://state/c.example.com"),
            ("digitalocean", "do://state/c.example.com"),
            ("openstack", "swift://state/c.example.com"),
        ] {
            let text = PLAIN.replace("aws", cloud).replace("s3://state/c.example.com", base);
            let expected = format!(
                "config.yaml: cloud: is {cloud}: this version of Tidewaiter supports aws, gce and hetzner only"
            );
            assert_eq!(error(&text), expected);
            // The store can be read without the cloud.
            assert!(!load(&PLAIN.replace("aws", cloud)).config.cloud.is_supported());
        }
        let error = error(&PLAIN.replace("s3://", "azureblob://"));
        assert!(error.starts_with("config.yaml: configBase: "), "{error}");
    }

    #[test]
    fn what_is_implemented_gives_no_warning() {
        assert_eq!(load(PLAIN).warnings, Vec::<String>::new());
        let empty = format!("{PLAIN}secretStore: null\nserver:\n");
        assert_eq!(
            load(&empty).warnings,
            Vec::<String>::new(),
            "a key without a value asks for nothing"
        );
        for (server, expected) in [
            ("{provider: {aws: {Region: us-test-1}}}", 0),
            ("{provider: {aws: {Region: us-test-1, nodesRoles: [a]}}}", 1),
            ("{provider: {aws: {Region: us-test-1}, gce: {}}}", 1),
            ("{Listen: \":3988\", provider: {aws: {Region: us-test-1}}}", 1),
            ("{provider: {aws: {nodesRoles: [a]}}}", 1),
        ] {
            let warnings = load(&format!("{PLAIN}server: {server}\n")).warnings;
            assert_eq!(warnings.len(), expected, "{server}: {warnings:?}");
        }
    }

    #[test]
    fn every_cloud_of_kops_is_known() {
        for cloud in [
            "aws",
            "gce",
            "openstack",
            "digitalocean",
            "hetzner",
            "azure",
            "scaleway",
            "metal",
            "linode",
        ] {
            assert_eq!(load(&PLAIN.replace("aws", cloud)).config.cloud.as_str(), cloud);
        }
    }

    #[test]
    fn keys_are_found_in_any_case_as_go_finds_them() {
        let text = "CLUSTERNAME: c.example.com\nCloud: aws\nconfigbase: s3://state/c\nServer: {Provider: {AWS: {region: eu-test-1}}}\n";
        let Loaded { config, warnings } = load(text);
        assert_eq!(config.region.as_deref(), Some("eu-test-1"));
        assert_eq!(warnings, Vec::<String>::new());
        let twice = error(&format!("{PLAIN}Cloud: gce\n"));
        assert_eq!(twice, "config.yaml: cloud: occurs twice, as Cloud and as cloud");
    }

    #[test]
    fn an_unknown_key_gives_one_warning_that_names_the_nearest_known_one() {
        for (key, nearest) in [
            ("clusterNames", "clusterName"),
            ("configBsae", "configBase"),
            ("secret-store", "secretStore"),
            ("enableCloudIpams", "enableCloudIPAM"),
            ("servers", "server"),
        ] {
            let warnings = load(&format!("{PLAIN}{key}: x\n")).warnings;
            let expected = format!(
                "config.yaml: the key \"{key}\" is unknown and has no effect; the nearest known key is {nearest}"
            );
            assert_eq!(warnings, [expected]);
        }
        let evil = format!("{PLAIN}\"a\\n{}\": x\n", "z".repeat(900));
        let warnings = load(&evil).warnings;
        assert!(warnings[0].len() < 400 && !warnings[0].contains('\n'), "{warnings:?}");
    }

    #[test]
    fn a_wrong_value_says_which_key_which_value_and_what_is_allowed() {
        let replaced = |from: &str, to: &str| error(&PLAIN.replace(from, to));
        for (found, expected) in [
            (
                replaced("cloud: aws", "cloud: awss"),
                "config.yaml: cloud: is \"awss\", must be one of aws, gce, openstack, digitalocean, hetzner, azure, scaleway, metal, linode",
            ),
            (
                replaced("cloud: aws", "cloud: [aws]"),
                "config.yaml: cloud: is a list, must be one of aws, gce, openstack, digitalocean, hetzner, azure, scaleway, metal, linode",
            ),
            (
                replaced("clusterName: c.example.com", "clusterName: 7"),
                "config.yaml: clusterName: is the number 7, must be the name of the cluster, for example cluster.example.com",
            ),
            (
                replaced("clusterName: c.example.com\n", ""),
                "config.yaml: clusterName: is missing: must be the name of the cluster, for example cluster.example.com",
            ),
            (
                replaced("clusterName: c.example.com", "clusterName: null"),
                "config.yaml: clusterName: is missing: must be the name of the cluster, for example cluster.example.com",
            ),
            (
                replaced("configBase: s3://state/c.example.com", "configBase: {s3: state}"),
                "config.yaml: configBase: is a mapping, must be s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH",
            ),
            (
                replaced("s3://state/c.example.com", "do://state/c"),
                "config.yaml: configBase: \"do://state/c\" is not a state store: must be s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH",
            ),
            (
                error(&format!("{PLAIN}server: {{provider: {{aws: {{Region: 3}}}}}}\n")),
                "config.yaml: server.provider.aws.Region: is the number 3, must be the name of a region, for example us-east-1",
            ),
            (
                error(&format!("{PLAIN}server: {{provider: {{aws: {{Region: \"a/b\"}}}}}}\n")),
                "config.yaml: server.provider.aws.Region: is \"a/b\", must be the name of a region, for example us-east-1",
            ),
            (
                error(&format!("{PLAIN}server: :3988\n")),
                "config.yaml: server: is \":3988\", must be a mapping",
            ),
        ] {
            assert_eq!(found, expected);
        }
        let name = replaced("clusterName: c.example.com", "clusterName: ../etc");
        assert!(
            name.starts_with("config.yaml: clusterName: \"../etc\": must be 1 to 253 characters"),
            "{name}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_says_so_and_why() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("config.yaml");
        for path in [missing.as_path(), folder.path(), &missing.join("below")] {
            let error = ControllerConfig::load(path).unwrap_err();
            assert_eq!(error.to_string(), format!("{}: cannot be read", path.display()));
            assert!(std::error::Error::source(&error).is_some());
        }
        let error = ControllerConfig::load(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "/dev/zero: is larger than 1024 KiB");
        let error = ControllerConfig::load(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.to_string(), "/dev/null: is empty");
    }
}
