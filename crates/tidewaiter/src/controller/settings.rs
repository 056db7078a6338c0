//! The controller's settings: a file, the environment, flags, in that order; later wins.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use tidewaiter_api::names::{KOPS_LEASE, KOPS_NAMESPACE};
use tidewaiter_controller::node_controller::{ForeignLabels, LabelsFrom, OnForgery, OnGroupChange, Policy};
use tidewaiter_identity::NodeNames;
use tidewaiter_kit::role::address;
use tidewaiter_kit::settings::Origins;
use tidewaiter_kops::Cloud;
use url::Url;

use super::label_source::LabelSource;
use crate::settings::{LeasePlace, endpoint, endpoint_without_path, seconds, whole_number, whole_seconds};

/// The settings of the controller itself, besides those of every role and kOps' configuration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct ControllerSettings {
    /// The address of the MetricsServer's `/metrics`; `[::]:3987` with only IPv6.
    #[serde(deserialize_with = "address")]
    pub(crate) metrics_address: SocketAddr,
    /// The number of workers that may be not ready before the verdict on the cluster is `failed`.
    #[serde(deserialize_with = "whole_number")]
    pub(crate) max_unready_nodes: u32,
    /// The names that a Node may have.
    pub(crate) node_names: NodeNames,
    /// The source of the labels of a proven Node.
    pub(crate) label_source: LabelSource,
    /// The handling of a label on a proven Node whose key only other groups define.
    pub(crate) foreign_labels: ForeignLabels,
    /// The handling of a Node that is refused for forgery.
    pub(crate) on_forgery: OnForgery,
    /// The handling of a Node whose instance is in another group than the one for which it was verified. `follow` is
    /// not possible with `labelSource: tags`.
    pub(crate) on_group_change: OnGroupChange,
    /// The maximum age of the cloud's answer about an instance.
    #[serde(deserialize_with = "whole_seconds")]
    pub(crate) identity_expiry_seconds: NonZeroU32,
    /// The interval at which the files of the state store are listed and checked.
    #[serde(deserialize_with = "whole_seconds")]
    pub(crate) definitions_poll_seconds: NonZeroU32,
    /// The region of the instances; else what kOps' file says, else `AWS_REGION`, else what the instance's metadata
    /// says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    /// EC2's address, where it is not the region's own: for test servers and private endpoints.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) ec2_endpoint: Option<Url>,
    /// The address of Auto Scaling, where it is not the region's own.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) autoscaling_endpoint: Option<Url>,
    /// The project of the instances on Google Cloud; else `GCP_PROJECT`, else what kOps' file says, else what the
    /// instance's metadata says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    /// Compute Engine's address, where it is not the public one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) gce_endpoint: Option<Url>,
    /// The address of Hetzner Cloud's API, without `/v1`, where it is not the public one. It gets the token.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint_without_path")]
    pub(crate) hetzner_endpoint: Option<Url>,
    /// The state store's address, where it is not the cloud's own; overrides `S3_ENDPOINT`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) state_endpoint: Option<Url>,
    /// The Lease of the leader.
    pub(crate) lease: LeasePlace,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            metrics_address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 3987)),
            max_unready_nodes: 0,
            node_names: NodeNames::default(),
            label_source: LabelSource::default(),
            foreign_labels: ForeignLabels::default(),
            on_forgery: OnForgery::default(),
            on_group_change: OnGroupChange::default(),
            identity_expiry_seconds: seconds(3600),
            definitions_poll_seconds: seconds(30),
            region: None,
            ec2_endpoint: None,
            autoscaling_endpoint: None,
            project: None,
            gce_endpoint: None,
            hetzner_endpoint: None,
            state_endpoint: None,
            lease: LeasePlace {
                namespace: KOPS_NAMESPACE.to_owned(),
                name: KOPS_LEASE.to_owned(),
            },
        }
    }
}

impl ControllerSettings {
    pub(crate) fn identity_expiry(&self) -> Duration {
        Duration::from_secs(self.identity_expiry_seconds.get().into())
    }

    pub(crate) fn policy(&self, labels_from: LabelsFrom) -> Policy {
        Policy {
            labels_from,
            foreign_labels: self.foreign_labels,
            on_forgery: self.on_forgery,
            on_group_change: self.on_group_change,
        }
    }

    /// Checks that these settings are possible on this cloud, and together. The error names where each of them comes
    /// from.
    pub(crate) fn check(&self, cloud: Cloud, origins: &Origins) -> Result<()> {
        let source = match self.label_source {
            LabelSource::Auto | LabelSource::Store => return Ok(()),
            LabelSource::Tags => "tags",
            LabelSource::StoreThenTags => "store-then-tags",
        };
        let source_origin = origins.of("labelSource");
        if cloud != Cloud::Aws {
            bail!(
                "{source_origin}: labelSource is {source}, and cloud is {cloud}: only instances on aws carry labels as tags; set labelSource \
                 to store"
            );
        }
        if self.label_source == LabelSource::Tags && self.foreign_labels == ForeignLabels::Remove {
            let foreign_origin = origins.of("foreignLabels");
            bail!(
                "foreignLabels is remove (from {foreign_origin}), and labelSource is tags (from {source_origin}): only the state store \
                 defines which group owns a label; set foreignLabels to report, or labelSource to store"
            );
        }
        Ok(())
    }

    pub(crate) fn definitions_poll(&self) -> Duration {
        Duration::from_secs(self.definitions_poll_seconds.get().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_a_variable() {
        crate::settings::tests::each_has_a_variable::<ControllerSettings>();
    }
}
