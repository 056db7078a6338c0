//! Clusters: one object with the fields of API's and Provision's cluster, because one URL serves both.

use serde::Serialize;
use utoipa::ToSchema;

use super::Kind;
use super::fields::{Model, model};
use super::open_object::OpenObject;
use super::resource::{Body, Facts, Resource, Use};
use super::schema;
use super::secret::Secret;
use super::status::Status;
use super::values::{
    Address, ClusterId, DisplayName, OrganizationId, ProviderId, Slug, UnixMillis, UserId, VersionText,
};
use super::written::or_empty;

/// The settings of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct ClusterSpec {
    pub name: DisplayName,
    pub environment: Option<Slug>,
    pub version: Option<VersionText>,
    pub api_server_address: Option<Address>,
    pub worker_nodes_address: Option<Address>,
    pub provider_id: Option<ProviderId>,
    /// Empty in responses if it is not known.
    #[serde(serialize_with = "or_empty")]
    #[schema(value_type = Option<schema::SlugOrEmpty>)]
    pub provider_name: Option<Slug>,
    pub engine: Option<Slug>,
}

/// The audience of tokens for the kube-apiserver of a cluster begins with this; the id of the cluster follows.
pub const CLUSTER_AUDIENCE: &str = "https://containership.io/clusters/";

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Cluster {
    pub id: ClusterId,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub organization_id: OrganizationId,
    pub owner_id: UserId,
    #[serde(flatten)]
    pub spec: ClusterSpec,
    #[schema(value_type = Option<ClusterConfiguration>)]
    pub configuration: ClusterConfiguration,
    #[schema(value_type = Option<Status>)]
    pub status: Status,
    pub provision_service_version: Option<VersionText>,
}

/// A cluster and its first API key, which is shown only once.
#[derive(ToSchema)]
#[expect(dead_code, reason = "stands for its schema alone")]
struct AttachedCluster {
    #[serde(flatten)]
    cluster: Cluster,
    api_key: Secret,
}

/// The provisioning parameters of a cluster; stored unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct ClusterConfiguration {
    #[schema(value_type = Option<OpenObject>)]
    pub provider: OpenObject,
    #[schema(value_type = Option<OpenObject>)]
    pub resource: OpenObject,
}

impl Resource for ClusterSpec {
    type Object = Cluster;

    const FACTS: Facts = Facts {
        quota: 5_000,
        tag: "Clusters",
        is_for_clusters: false,
        generated: &[
            "id",
            "created_at",
            "updated_at",
            "organization_id",
            "owner_id",
            "configuration",
            "status",
            "provision_service_version",
        ],
        has_older_forms: true,
        columns: &["name", "provider_name", "version", "status"],
        about: "Clusters",
        aliases: &["cluster"],
        is_declared: false,
        ..Facts::of(Kind::Cluster, "clusters", Self::KIND, &[Kind::Organization])
    };

    fn uses(&self) -> Vec<Use> {
        let provider = self.provider_id.iter();
        provider.map(|id| Use::new("provider_id", Kind::Provider, id)).collect()
    }

    fn created() -> Body {
        Body::of::<AttachedCluster>()
    }
}

model! {
    ClusterSpec, "a cluster" =>
    required { name }
    optional { environment, version, api_server_address, worker_nodes_address, provider_id, provider_name, engine }
}

model! {
    Cluster, ClusterSpec::KIND =>
    required { id, created_at, updated_at, organization_id, owner_id } flatten { spec }
    or_default { configuration, status } optional { provision_service_version }
}

model! { ClusterConfiguration, "a cluster's configuration" => or_default { provider, resource } }
