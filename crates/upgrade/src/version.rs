//! Versions of Kubernetes.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use tidewaiter_api::values::quoted;

/// A version of Kubernetes, as kubelets report it: `v1.36.3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(semver::Version);

/// A text that is no version of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no version of Kubernetes: it must be like v1.36.3")]
pub struct InvalidVersion(String);

impl Version {
    /// The major version.
    #[must_use]
    pub fn major(&self) -> u64 {
        self.0.major
    }

    /// The minor version.
    #[must_use]
    pub fn minor(&self) -> u64 {
        self.0.minor
    }

    /// Whether this version is the target. Build metadata, such as `+k3s1`, counts only if the target has some.
    #[must_use]
    pub fn is(&self, target: &Self) -> bool {
        self.order(target) == Ordering::Equal && (target.0.build.is_empty() || self.0.build == target.0.build)
    }

    /// Which of the two is newer, without build metadata (Semantic Versioning 2.0, section 11).
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        self.0.cmp_precedence(&other.0)
    }

    /// How many minor versions this one is older than `newer`; 0 if it is not older.
    pub(crate) fn minors_before(&self, newer: &Self) -> u64 {
        newer.minor().saturating_sub(self.minor())
    }
}

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let version = text.strip_prefix('v').and_then(|number| number.parse().ok());
        version.map(Self).ok_or_else(|| InvalidVersion(quoted(text)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_semantic_versions() {
        for (version, target, is, order) in [
            ("v1.36.3", "v1.36.3", true, Ordering::Equal),
            ("v1.36.10", "v1.36.9", false, Ordering::Greater),
            ("v1.36.0-rc.1", "v1.36.0", false, Ordering::Less),
            ("v1.36.3+k3s1", "v1.36.3", true, Ordering::Equal),
            ("v1.36.3", "v1.36.3+k3s1", false, Ordering::Equal),
            ("v1.36.3+k3s1", "v1.36.3+k3s2", false, Ordering::Equal),
        ] {
            let (parsed, of_target): (Version, Version) = (version.parse().unwrap(), target.parse().unwrap());
            assert_eq!(
                (parsed.is(&of_target), parsed.order(&of_target)),
                (is, order),
                "{version} {target}"
            );
            assert_eq!(parsed.to_string(), version);
        }
        for text in ["", "1.36.3", "v1.36", "v1.36.3\n", "vv1.36.3", "v1.36.3/x"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }
}
