//! The vocabulary that every role shares: custom resources (one file per kind), names, conditions, and the value types
//! that raw strings become at the edge.
//!
//! Nothing here does I/O, reads a clock or knows a client; a plan function can depend on all of it and stay pure.

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

/// Every `CustomResourceDefinition` that Tidewaiter brings, in the order in which to apply them.
///
/// `tidewaiter crds` prints them and `cargo xtask generate` writes them under `deploy/`: both from here, so they cannot differ.
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
    fn one_write_says_everything() {
        let crds = crds();
        let versions = crds.iter().flat_map(|crd| &crd.spec.versions);
        assert!(versions.clone().count() == 2 && versions.clone().all(|version| version.subresources.is_none()));
    }
}
