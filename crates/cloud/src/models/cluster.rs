//! Clusters: one object with the fields of API's and Provision's cluster, because one URL serves both.

use utoipa::ToSchema;

use super::fields::model;
use super::values::{
    Address, ClusterId, DisplayName, OrganizationId, ProviderId, Slug, UnixMillis, UserId, VersionText,
};
use super::written::or_empty;
use super::{Body, Facts, Kind, OpenObject, Resource, Secret, Status, Use, schema};

model! {
    /// The settings of a cluster.
    ClusterSpec, "a cluster" =>
    required name: DisplayName,
    optional environment: Option<Slug>,
    optional version: Option<VersionText>,
    optional api_server_address: Option<Address>,
    optional worker_nodes_address: Option<Address>,
    optional provider_id: Option<ProviderId>,
    /// Empty in responses if it is not known.
    #[serde(serialize_with = "or_empty")]
    optional provider_name: Option<Slug> as Option<schema::SlugOrEmpty>,
    optional engine: Option<Slug>,
}

/// The audience of tokens for the kube-apiserver of a cluster begins with this; the id of the cluster follows.
pub const CLUSTER_AUDIENCE: &str = "https://containership.io/clusters/";

model! {
    /// A cluster.
    Cluster, ClusterSpec::KIND =>
    required id: ClusterId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required organization_id: OrganizationId,
    required owner_id: UserId,
    flatten spec: ClusterSpec,
    or_default configuration: ClusterConfiguration,
    or_default status: Status,
    optional provision_service_version: Option<VersionText>,
}

/// A cluster and its first API key, which is shown only once.
#[derive(ToSchema)]
#[expect(dead_code, reason = "stands for its schema alone")]
struct AttachedCluster {
    #[serde(flatten)]
    cluster: Cluster,
    api_key: Secret,
}

model! {
    /// The provisioning parameters of a cluster; stored unchanged.
    #[derive(Default)]
    ClusterConfiguration, "a cluster's configuration" =>
    or_default provider: OpenObject,
    or_default resource: OpenObject,
}

impl Resource for ClusterSpec {
    type Object = Cluster;

    const FACTS: Facts = Facts {
        quota: 5_000,
        tag: "Clusters",
        is_for_clusters: false,
        has_older_forms: true,
        columns: &["name", "provider_name", "version", "status"],
        about: "Clusters",
        aliases: &["cluster"],
        is_declared: false,
        ..Facts::of::<Self>(Kind::Cluster, "clusters", &[Kind::Organization])
    };

    fn uses(&self) -> Vec<Use> {
        let provider = self.provider_id.iter();
        provider.map(|id| Use::new("provider_id", Kind::Provider, id)).collect()
    }

    fn created() -> Body {
        Body::of::<AttachedCluster>()
    }
}
