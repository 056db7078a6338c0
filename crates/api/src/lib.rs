//! The types that all roles share: custom resources (one file per kind), names, conditions, and the value types that strings
//! are parsed into.
//!
//! This crate does no I/O, reads no clock and has no client, so that a pure plan function can depend on all of it.

pub mod cluster_health;
pub mod condition;
pub mod names;
pub mod node_identity;
pub mod values;

pub use cluster_health::{ClusterHealth, ClusterHealthSpec, ClusterHealthStatus, HealthCounts};
pub use condition::{Condition, ConditionStatus};
pub use node_identity::{NodeIdentity, NodeIdentitySpec, NodeIdentityStatus, RecordedLabel};
pub use values::{
    ClusterName, InstanceGroupName, InvalidValue, LabelKey, LabelSource, LabelValue, Lifecycle, NodeName, NodeUid,
    ProviderId,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// All `CustomResourceDefinition`s of Tidewaiter, in the order in which to apply them.
///
/// `tidewaiter crds` prints them, and `cargo xtask generate` writes them to `deploy/crds`.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![node_identity::crd(), cluster_health::crd()]
}

fn without_status_subresource(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_has_a_status_subresource() {
        let crds = crds();
        let versions = crds.iter().flat_map(|crd| &crd.spec.versions);
        assert!(versions.clone().count() == 2 && versions.clone().all(|version| version.subresources.is_none()));
    }
}
