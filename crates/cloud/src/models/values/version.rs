//! Versions.

use std::str::FromStr;

use tidewaiter_api::InvalidValue;

use super::{invalid, read_as_text, text_value, written_as_shown};

/// The maximum length of a label's value, because a version may become one.
const MAX_BYTES: usize = 63;

fn semver(text: &str) -> Option<semver::Version> {
    (text.len() <= MAX_BYTES)
        .then(|| semver::Version::parse(text).ok())
        .flatten()
}

/// A version by Semantic Versioning 2.0.0, for example `1.2.3-rc.1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, max_length = 63, pattern = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*))*)?(\+[0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*)?$", examples("1.2.3"))]
pub struct Version(pub semver::Version);

/// A version of Kubernetes without `v`. One with `v` is accepted too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, max_length = 64, pattern = r"^v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*))*)?(\+[0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*)?$", examples("1.12.3"))]
pub struct KubernetesVersion(pub semver::Version);

/// The target version of an upgrade, with `v`: `v1.12.3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, max_length = 64, pattern = r"^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*))*)?(\+[0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*)?$", examples("v1.12.3"))]
pub struct TargetVersion(pub semver::Version);

impl FromStr for Version {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        const RULE: &str = "must be a semantic version of at most 63 characters, for example 1.2.3";
        semver(text).map(Self).ok_or_else(|| invalid("version", text, RULE))
    }
}

impl FromStr for KubernetesVersion {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        const RULE: &str = "must be a version of Kubernetes, for example 1.12.3";
        let version = semver(text.strip_prefix('v').unwrap_or(text));
        version
            .map(Self)
            .ok_or_else(|| invalid("Kubernetes version", text, RULE))
    }
}

impl FromStr for TargetVersion {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        const RULE: &str = "must be a version of Kubernetes with a leading v, for example v1.12.3";
        let version = text.strip_prefix('v').and_then(semver);
        version.map(Self).ok_or_else(|| invalid("target version", text, RULE))
    }
}

/// `Display`, serializing and parsing, with a prefix before the number.
macro_rules! written {
    ($type:ident, $before:literal, $wanted:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($before, "{}"), self.0)
            }
        }

        written_as_shown!($type);
        read_as_text!($type, $wanted);
    };
}
written!(Version, "", "a version, for example 1.2.3");
written!(KubernetesVersion, "", "a version of Kubernetes, for example 1.12.3");
written!(TargetVersion, "v", "a version of Kubernetes, for example v1.12.3");

text_value! {
    /// A version with a numbering of its own, for example `17.03.2-ce` of Docker, which is not a semantic version.
    #[schema(max_length = 63, pattern = r"^v?[0-9][A-Za-z0-9.+\-~_]*$", examples("17.03.2-ce"))]
    VersionText, "version", version_text,
    "must be a version of at most 63 ASCII characters, for example 17.03.2-ce"
}

fn version_text(text: &str) -> bool {
    let number = text.strip_prefix('v').unwrap_or(text);
    text.len() <= MAX_BYTES
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+-~_".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_own_form() {
        assert_eq!("1.2.3-rc.1+b".parse::<Version>().unwrap().to_string(), "1.2.3-rc.1+b");
        assert_eq!("v1.12.3".parse::<KubernetesVersion>().unwrap().to_string(), "1.12.3");
        assert_eq!("v1.12.3".parse::<TargetVersion>().unwrap().to_string(), "v1.12.3");
        assert_eq!("17.03.2-ce".parse::<VersionText>().unwrap().to_string(), "17.03.2-ce");
        let long = format!("1.2.3-{}", "a".repeat(63));
        for text in [
            "",
            "v",
            "1",
            "1.2",
            "01.2.3",
            "1.2.3 ",
            "1.2.3\n",
            "1.2.x",
            "latest",
            "1.2.\u{663}",
            &long,
        ] {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
            assert!(text.parse::<KubernetesVersion>().is_err(), "{text:?}");
            assert!(format!("v{text}").parse::<TargetVersion>().is_err(), "{text:?}");
        }
        assert!("v1.2.3".parse::<Version>().is_err());
        assert!("1.2.3".parse::<TargetVersion>().is_err());
        for text in ["", "v", "latest", "1 2", "1/2", "1\n", "\u{661}", &"1".repeat(64)] {
            assert!(text.parse::<VersionText>().is_err(), "{text:?}");
        }
    }
}
