//! Versions of Kubernetes.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use semver::{BuildMetadata, Prerelease};
use tidewaiter_api::values::quoted;

/// The first words of Kubernetes' own pre-releases. Any other text behind the number is a distribution's build.
/// Source: <https://kubernetes.io/releases/release/>.
const PRE_RELEASES: [&str; 3] = ["alpha", "beta", "rc"];

/// A version of Kubernetes, as kubelets report it: `v1.36.3`, or with a distribution's build `v1.36.3-eks-3abbec1` or
/// `v1.36.3+k3s1`.
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

    /// Returns true if this version is the target. The build, such as `-eks-3abbec1`, counts only if the target names
    /// one.
    #[must_use]
    pub fn is(&self, target: &Self) -> bool {
        self.0 == target.0 || self.release() == target.0
    }

    /// The order of the two releases. Builds of one release have no order: each distribution numbers its own.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        self.release().cmp_precedence(&other.release())
    }

    /// The version without the build of a distribution.
    fn release(&self) -> semver::Version {
        let pre = &self.0.pre;
        let word = pre.split('.').next().unwrap_or_default();
        let pre = if PRE_RELEASES.contains(&word) {
            pre.clone()
        } else {
            Prerelease::EMPTY
        };
        semver::Version {
            pre,
            build: BuildMetadata::EMPTY,
            ..self.0
        }
    }

    /// The number of minor versions by which this one is older than `newer`; 0 if it is not older.
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
    fn versions_are_compared_by_their_release() {
        for (version, target, is, order) in [
            ("v1.36.3", "v1.36.3", true, Ordering::Equal),
            ("v1.36.10", "v1.36.9", false, Ordering::Greater),
            ("v1.36.0-rc.1", "v1.36.0", false, Ordering::Less),
            ("v1.36.3+k3s1", "v1.36.3", true, Ordering::Equal),
            ("v1.36.3", "v1.36.3+k3s1", false, Ordering::Equal),
            ("v1.36.3+k3s1", "v1.36.3+k3s2", false, Ordering::Equal),
            ("v1.36.3-eks-3abbec1", "v1.36.3", true, Ordering::Equal),
            ("v1.36.3-gke.1212000", "v1.36.3", true, Ordering::Equal),
            ("v1.36.3-gke.1212000", "v1.36.3-gke.1212000", true, Ordering::Equal),
            ("v1.36.3-gke.1212000", "v1.36.3-gke.1301000", false, Ordering::Equal),
            ("v1.36.3", "v1.36.3-gke.1212000", false, Ordering::Equal),
            ("v1.36.3-vmware.1-fips.2+a.1", "v1.36.3", true, Ordering::Equal),
            ("v1.36.2-eks-3abbec1", "v1.36.3", false, Ordering::Less),
            ("v1.36.4-eks-3abbec1", "v1.36.3", false, Ordering::Greater),
            ("v1.36.3-release", "v1.36.3", true, Ordering::Equal),
            ("v1.36.0-rc.1+k3s1", "v1.36.0-rc.1", true, Ordering::Equal),
            ("v1.36.0-rc.1+k3s1", "v1.36.0", false, Ordering::Less),
            ("v1.36.0-alpha.2.12+a1b2c3", "v1.36.0-beta.0", false, Ordering::Less),
            ("v1.36.0-rc.1", "v1.36.0-eks-3abbec1", false, Ordering::Less),
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
