//! Versions.

use std::str::FromStr;

use tidewaiter_api::InvalidValue;

use super::{invalid, pattern_value, read_as_text, written_as_shown};

/// The maximum length of a label's value, because a version may become one.
const MAX_BYTES: usize = 63;

/// A newtype of a semantic version, written with `before` before the number. `parse` finds the version in a text.
macro_rules! version {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $before:literal, $parse:path, $rule:literal, $wanted:literal) => {
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
        $(#[$doc])*
        pub struct $type(pub semver::Version);

        impl FromStr for $type {
            type Err = InvalidValue;

            fn from_str(text: &str) -> Result<Self, InvalidValue> {
                $parse(text).map(Self).ok_or_else(|| invalid($kind, text, $rule))
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($before, "{}"), self.0)
            }
        }

        written_as_shown!($type);
        read_as_text!($type, $wanted);
    };
}
version! {
    /// A version by Semantic Versioning 2.0.0, for example `1.2.3-rc.1`.
    #[schema(value_type = String, max_length = 63, pattern = r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*))*)?(\+[0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*)?$", examples("1.2.3"))]
    Version, "version", "", number,
    "must be a semantic version of at most 63 characters, for example 1.2.3",
    "a version, for example 1.2.3"
}
version! {
    /// A version of Kubernetes without `v`. One with `v` is accepted too.
    #[schema(value_type = String, max_length = 64, pattern = r"^v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*))*)?(\+[0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*)?$", examples("1.12.3"))]
    KubernetesVersion, "Kubernetes version", "", number_or_v_number,
    "must be a version of Kubernetes, for example 1.12.3",
    "a version of Kubernetes, for example 1.12.3"
}
version! {
    /// The target version of an upgrade, with `v`: `v1.12.3`.
    #[schema(value_type = String, max_length = 64, pattern = r"^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*))*)?(\+[0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*)?$", examples("v1.12.3"))]
    TargetVersion, "target version", "v", v_number,
    "must be a version of Kubernetes with a leading v, for example v1.12.3",
    "a version of Kubernetes, for example v1.12.3"
}

fn number(text: &str) -> Option<semver::Version> {
    (text.len() <= MAX_BYTES)
        .then(|| semver::Version::parse(text).ok())
        .flatten()
}

fn v_number(text: &str) -> Option<semver::Version> {
    text.strip_prefix('v').and_then(number)
}

fn number_or_v_number(text: &str) -> Option<semver::Version> {
    number(text.strip_prefix('v').unwrap_or(text))
}

pattern_value! {
    /// A version with a numbering of its own, for example `17.03.2-ce` of Docker, which is not a semantic version.
    VersionText, "version",
    r"^v?[0-9][A-Za-z0-9.+\-~_]*$",
    most 63, example "17.03.2-ce",
    "must be a version of at most 63 ASCII characters, for example 17.03.2-ce"
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
        let none = "|v|1|1.2|01.2.3|1.2.3 |1.2.3\n|1.2.x|latest|1.2.\u{663}";
        for text in none.split('|').chain([&*long]) {
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
