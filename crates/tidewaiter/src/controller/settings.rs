//! The controller's settings: a file, the environment, flags, in that order; later wins.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::names::{KOPS_LEASE, KOPS_NAMESPACE};
use tidewaiter_controller::node_controller::{ForeignLabels, LabelsFrom, OnForgery, Policy};
use tidewaiter_identity::NodeNames;
use tidewaiter_kit::telemetry::LogSettings;
use tidewaiter_kops::Cloud;
use url::Url;

/// Everything that can be set, besides what kOps' configuration file says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct ControllerSettings {
    /// The kubeconfig to use; without one the pod's service account, else what `KUBECONFIG` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where /metrics is served; and /healthz and /readyz, too.
    #[serde(deserialize_with = "address")]
    pub(crate) admin_address: SocketAddr,
    /// Where /healthz and /readyz are served to probes.
    #[serde(deserialize_with = "address")]
    pub(crate) health_address: SocketAddr,
    /// Where the MetricsServer serves /metrics.
    #[serde(deserialize_with = "address")]
    pub(crate) metrics_address: SocketAddr,
    /// So many workers may be not ready before the verdict on the cluster is that it failed.
    #[serde(deserialize_with = "whole_number")]
    pub(crate) max_unready_nodes: u32,
    /// Whether a Node must have a name that the cloud gives its instance.
    pub(crate) node_names: NodeNames,
    /// Where the labels of a proven Node come from.
    pub(crate) label_source: LabelsFrom,
    /// What becomes of a label on a proven Node whose key only other groups define.
    pub(crate) foreign_labels: ForeignLabels,
    /// What becomes of a Node that is refused for forgery.
    pub(crate) on_forgery: OnForgery,
    /// The longest that the cloud's answer about an instance is kept.
    #[serde(deserialize_with = "whole_seconds")]
    pub(crate) identity_expiry_seconds: NonZeroU32,
    /// How often each file of the state store that is in use is asked about.
    #[serde(deserialize_with = "whole_seconds")]
    pub(crate) definitions_poll_seconds: NonZeroU32,
    /// The region of the instances; else `AWS_REGION`, else what kOps' file says, else what the instance's metadata says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<String>,
    /// EC2's address, where it is not the region's own: for test servers and private endpoints.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) ec2_endpoint: Option<Url>,
    /// The address of Auto Scaling, where it is not the region's own.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) autoscaling_endpoint: Option<Url>,
    /// The project of the instances on Google Cloud; else `GCP_PROJECT`, else what the instance's metadata says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
    /// Compute Engine's address, where it is not the public one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) gce_endpoint: Option<Url>,
    /// The address of Hetzner Cloud's API, where it is not the public one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) hetzner_endpoint: Option<Url>,
    /// The state store's address, where it is not the cloud's own.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "endpoint")]
    pub(crate) state_endpoint: Option<Url>,
    /// The Lease of the leader.
    pub(crate) lease: LeasePlace,
    /// What is logged, and how.
    pub(crate) log: LogSettings,
}

/// Which Lease the replicas hold in turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    default,
    deny_unknown_fields,
    expecting = "a mapping with namespace and name"
)]
pub(crate) struct LeasePlace {
    /// Its namespace.
    #[serde(deserialize_with = "object_name")]
    pub(crate) namespace: String,
    /// Its name.
    #[serde(deserialize_with = "object_name")]
    pub(crate) name: String,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            admin_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 3989)),
            health_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 3986)),
            metrics_address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 3987)),
            max_unready_nodes: 0,
            node_names: NodeNames::default(),
            label_source: LabelsFrom::default(),
            foreign_labels: ForeignLabels::default(),
            on_forgery: OnForgery::default(),
            identity_expiry_seconds: seconds(3600),
            definitions_poll_seconds: seconds(30),
            region: None,
            ec2_endpoint: None,
            autoscaling_endpoint: None,
            project: None,
            gce_endpoint: None,
            hetzner_endpoint: None,
            state_endpoint: None,
            lease: LeasePlace::default(),
            log: LogSettings::default(),
        }
    }
}

impl Default for LeasePlace {
    fn default() -> Self {
        Self {
            namespace: KOPS_NAMESPACE.to_owned(),
            name: KOPS_LEASE.to_owned(),
        }
    }
}

impl ControllerSettings {
    pub(crate) fn identity_expiry(&self) -> Duration {
        Duration::from_secs(self.identity_expiry_seconds.get().into())
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy {
            labels_from: self.label_source,
            foreign_labels: self.foreign_labels,
            on_forgery: self.on_forgery,
        }
    }

    /// Whether these settings can be kept on this cloud, and together.
    pub(crate) fn check(&self, cloud: Cloud) -> Result<()> {
        let source = match self.label_source {
            LabelsFrom::Store => return Ok(()),
            LabelsFrom::Tags => "tags",
            LabelsFrom::StoreThenTags => "store-then-tags",
        };
        if cloud != Cloud::Aws {
            bail!("labelSource is {source}, and cloud is {cloud}: only on aws do instances carry labels as tags");
        }
        if self.label_source == LabelsFrom::Tags && self.foreign_labels == ForeignLabels::Remove {
            bail!("foreignLabels is remove, and labelSource is tags: only the state store says whose a label is");
        }
        Ok(())
    }

    pub(crate) fn definitions_poll(&self) -> Duration {
        Duration::from_secs(self.definitions_poll_seconds.get().into())
    }
}

// What serde says of a wrong value is meant for programmers; these say what an operator may write.

pub(crate) fn address<'de, D: Deserializer<'de>>(value: D) -> Result<SocketAddr, D::Error> {
    SocketAddr::deserialize(value).map_err(|_| D::Error::custom("must be ADDRESS:PORT, for example 127.0.0.1:3989"))
}

fn whole_number<'de, D: Deserializer<'de>>(value: D) -> Result<u32, D::Error> {
    u32::deserialize(value).map_err(|_| D::Error::custom("must be a whole number, 0 or more"))
}

pub(crate) fn whole_seconds<'de, D: Deserializer<'de>>(value: D) -> Result<NonZeroU32, D::Error> {
    NonZeroU32::deserialize(value).map_err(|_| D::Error::custom("must be a whole number of seconds, 1 or more"))
}

pub(crate) fn endpoint<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Url>, D::Error> {
    let url = Option::<Url>::deserialize(value).ok();
    url.filter(|url| {
        url.as_ref()
            .is_none_or(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    })
    .ok_or_else(|| D::Error::custom("must be http://HOST or https://HOST, with a port if need be"))
}

/// It becomes a part of a path at the API server.
fn object_name<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    let name = String::deserialize(value)?;
    match name.parse::<tidewaiter_api::NodeName>() {
        Ok(_) => Ok(name),
        Err(error) => Err(D::Error::custom(error.rule)),
    }
}

pub(crate) const fn seconds(count: u32) -> NonZeroU32 {
    match NonZeroU32::new(count) {
        Some(count) => count,
        None => NonZeroU32::MIN,
    }
}
