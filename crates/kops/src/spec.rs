//! The `spec` of an object in the state store, after its identity was checked.

use tidewaiter_api::values::quoted;
use tidewaiter_api::{ClusterName, InstanceGroupName};

use crate::document::{InvalidFile, Mapping, parse};

const A_MAPPING: &str = "a mapping";

/// The versions of kOps' API, also with its first group. The fields that have other names in one are read by all their
/// names.
const API_VERSIONS: [&str; 4] = [
    "kops.k8s.io/v1alpha2",
    "kops.k8s.io/v1alpha3",
    "kops/v1alpha2",
    "kops/v1alpha3",
];

/// The label with which kOps marks an InstanceGroup as one of a cluster.
const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";

/// Applies `read` to the `spec` of the Cluster named `expected`, which must be in `bytes`, the content of `file`.
pub(crate) fn spec_of_cluster<T>(
    file: &str,
    bytes: &[u8],
    expected: &ClusterName,
    read: impl FnOnce(&Mapping<'_>) -> Result<T, InvalidFile>,
) -> Result<T, InvalidFile> {
    let document = parse(file, bytes)?;
    let root = Mapping::root(file, &document);
    expect_kind(&root, "Cluster")?;
    let why = format!("clusterName of the configuration is {expected}");
    expect_name(&root, expected.as_str(), &why)?;
    read(&spec(&root)?)
}

/// As [`spec_of_cluster`], for an InstanceGroup of `cluster`.
pub(crate) fn spec_of_group<T>(
    file: &str,
    bytes: &[u8],
    expected: &InstanceGroupName,
    cluster: &ClusterName,
    read: impl FnOnce(&Mapping<'_>) -> Result<T, InvalidFile>,
) -> Result<T, InvalidFile> {
    let document = parse(file, bytes)?;
    let root = Mapping::root(file, &document);
    expect_kind(&root, "InstanceGroup")?;
    let why = format!("the file belongs to group {expected}");
    expect_name(&root, expected.as_str(), &why)?;
    expect_cluster(&root, cluster)?;
    read(&spec(&root)?)
}

fn spec<'a>(root: &Mapping<'a>) -> Result<Mapping<'a>, InvalidFile> {
    root.require("spec", A_MAPPING)?.mapping(A_MAPPING)
}

/// Checks that the document is a `kind` of kOps' API.
fn expect_kind(root: &Mapping<'_>, kind: &str) -> Result<(), InvalidFile> {
    let versions = format!("one of {}", API_VERSIONS.join(", "));
    for (key, allowed, wanted) in [
        ("apiVersion", &API_VERSIONS[..], versions.as_str()),
        ("kind", &[kind][..], kind),
    ] {
        let field = root.require(key, wanted)?;
        if !allowed.contains(&field.text(wanted)?) {
            return Err(field.must_be(wanted));
        }
    }
    Ok(())
}

/// Checks that `metadata.name` is `expected`; `why` states in words who expects it.
fn expect_name(root: &Mapping<'_>, expected: &str, why: &str) -> Result<(), InvalidFile> {
    let field = metadata(root)?.require("name", expected)?;
    let name = field.text("a string")?;
    if name == expected {
        Ok(())
    } else {
        Err(field.invalid(format!("is {}, but {why}", quoted(name))))
    }
}

/// Checks that the label for the cluster, if there is one, names `expected`: a file may have been copied from the
/// folder of another cluster.
fn expect_cluster(root: &Mapping<'_>, expected: &ClusterName) -> Result<(), InvalidFile> {
    let Some(labels) = metadata(root)?.get("labels") else {
        return Ok(());
    };
    let Some(field) = labels.mapping(A_MAPPING)?.get(CLUSTER_LABEL) else {
        return Ok(());
    };
    let name = field.text("a string")?;
    if name.is_empty() || name == expected.as_str() {
        Ok(())
    } else {
        Err(field.invalid(format!(
            "is {}, but clusterName of the configuration is {expected}",
            quoted(name)
        )))
    }
}

fn metadata<'a>(root: &Mapping<'a>) -> Result<Mapping<'a>, InvalidFile> {
    root.require("metadata", A_MAPPING)?.mapping(A_MAPPING)
}
