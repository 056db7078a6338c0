//! Label keys and values, by Kubernetes' own rules. An invalid label of a definition is found before it is sent,
//! because the API server rejects the whole patch for it (422).
//!
//! Source: `IsQualifiedName` and `IsValidLabelValue` of `k8s.io/apimachinery/pkg/util/validation`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{name::dns_subdomain, string_value};

/// A label key: `name` or `prefix/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend(
    "maxLength" = 317,
    "pattern" = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    "allOf" = [{"pattern": "^([^/]{1,253}/)?[^/]+$"}],
))]
pub struct LabelKey(Arc<str>);
string_value!(LabelKey, "label key", qualified_name);

/// A label value. It may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("maxLength" = 63, "pattern" = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"))]
pub struct LabelValue(Arc<str>);
string_value!(LabelValue, "label value", label_value);

/// The origin of a label. For the same key, a later source takes precedence over an earlier one.
///
/// Source: the order in which kOps builds a node's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum LabelSource {
    /// `nodeLabels` of the Cluster's `spec.kubelet`, or of its `spec.controlPlaneKubelet` for a control-plane group.
    ClusterKubelet,
    /// `spec.kubelet.nodeLabels` of the `InstanceGroup`.
    GroupKubelet,
    /// The role of the `InstanceGroup`.
    Role,
    /// `spec.nodeLabels` of the `InstanceGroup`.
    GroupNodeLabels,
    /// The way in which the cloud bills the instance.
    Lifecycle,
    /// A tag of the instance. Used where the setting `labelSource` allows tags.
    InstanceTag,
}

fn qualified_name(text: &str) -> Result<(), &'static str> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(prefix) = prefix {
        dns_subdomain(prefix)
            .map_err(|_| "the part before '/' must be a lower-case DNS subdomain of at most 253 characters")?;
    }
    if name.is_empty() || !name_part(name) {
        return Err(
            "the name must be 1 to 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit",
        );
    }
    Ok(())
}

fn label_value(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || name_part(text) {
        Ok(())
    } else {
        Err("must be empty, or at most 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit")
    }
}

fn name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let long = "a".repeat(63);
        for key in [
            "a",
            "A.b_c-9",
            "example.com/a",
            "node-role.kubernetes.io/control-plane",
            &long,
        ] {
            assert!(key.parse::<LabelKey>().is_ok(), "{key:?}");
        }
        let too_long = "a".repeat(64);
        for key in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "Example.com/a",
            "a b",
            "-a",
            "a-",
            "a\n",
            "ä",
            "a/ä",
            "a:b",
            &too_long,
        ] {
            assert!(key.parse::<LabelKey>().is_err(), "{key:?}");
        }
    }

    #[test]
    fn values() {
        let long = "a".repeat(63);
        for value in ["", "a", "9", "m5.large", "A_b-c", &long] {
            assert!(value.parse::<LabelValue>().is_ok(), "{value:?}");
        }
        let too_long = "a".repeat(64);
        for value in ["-", ".a", "a.", "a b", "a/b", "a,b", "ä", "a\n", &too_long] {
            assert!(value.parse::<LabelValue>().is_err(), "{value:?}");
        }
    }

    #[test]
    fn a_later_source_wins_by_its_order() {
        assert!(LabelSource::ClusterKubelet < LabelSource::GroupKubelet);
        assert!(LabelSource::Role < LabelSource::GroupNodeLabels);
        assert!(LabelSource::GroupNodeLabels < LabelSource::Lifecycle);
        assert!(LabelSource::Lifecycle < LabelSource::InstanceTag);
    }
}
