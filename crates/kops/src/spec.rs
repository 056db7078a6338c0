//! The `spec` of an object in the state store, after its identity was checked.

use tidewaiter_api::values::quoted;
use tidewaiter_api::{ClusterName, InstanceGroupName};

use crate::document::{InvalidFile, Mapping, parse};

/// The only version of kOps' API in state stores.
const API_VERSION: &str = "kops.k8s.io/v1alpha2";

/// Applies `read` to the `spec` of the Cluster named `expected`, which must be in `bytes`, the content of `file`.
pub(crate) fn spec_of_cluster<T>(
    file: &str,
    bytes: &[u8],
    expected: &ClusterName,
    read: impl FnOnce(&Mapping<'_>) -> Result<T, InvalidFile>,
) -> Result<T, InvalidFile> {
    let why = format!("clusterName of the configuration is {expected}");
    spec(file, bytes, "Cluster", expected.as_str(), &why, read)
}

/// As [`spec_of_cluster`], for an InstanceGroup.
pub(crate) fn spec_of_group<T>(
    file: &str,
    bytes: &[u8],
    expected: &InstanceGroupName,
    read: impl FnOnce(&Mapping<'_>) -> Result<T, InvalidFile>,
) -> Result<T, InvalidFile> {
    let why = format!("the file belongs to group {expected}");
    spec(file, bytes, "InstanceGroup", expected.as_str(), &why, read)
}

fn spec<T>(
    file: &str,
    bytes: &[u8],
    kind: &str,
    name: &str,
    why: &str,
    read: impl FnOnce(&Mapping<'_>) -> Result<T, InvalidFile>,
) -> Result<T, InvalidFile> {
    let document = parse(file, bytes)?;
    let root = Mapping::root(file, &document);
    expect_kind(&root, kind)?;
    expect_name(&root, name, why)?;
    read(&root.require("spec", "a mapping")?.mapping("a mapping")?)
}

/// Checks that the document is a `kind` of v1alpha2.
fn expect_kind(root: &Mapping<'_>, kind: &str) -> Result<(), InvalidFile> {
    for (key, wanted) in [("apiVersion", API_VERSION), ("kind", kind)] {
        let field = root.require(key, wanted)?;
        if field.text(wanted)? != wanted {
            return Err(field.must_be(wanted));
        }
    }
    Ok(())
}

/// Checks that `metadata.name` is `expected`; `why` states in words who expects it.
fn expect_name(root: &Mapping<'_>, expected: &str, why: &str) -> Result<(), InvalidFile> {
    let metadata = root.require("metadata", "a mapping")?.mapping("a mapping")?;
    let field = metadata.require("name", expected)?;
    let name = field.text("a string")?;
    if name == expected {
        Ok(())
    } else {
        Err(field.invalid(format!("is {}, but {why}", quoted(name))))
    }
}
