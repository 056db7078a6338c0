//! Plugins of a cluster: the implementation and version of each type.

use utoipa::ToSchema;

use super::fields::model;
use super::values::{
    ClusterId, Description, DetachedSignature, OrganizationId, PluginId, PluginReference, Slug, UnixMillis, Version,
};
use super::{Body, Facts, Jobs, Kind, Manifest, OpenObject, Parameter, ParameterType, Resource, Use};

model! {
    /// The settings of a plugin.
    PluginSpec, "a plugin" =>
    required plugin_type = "type": Slug,
    required implementation: Slug,
    required version: Version,
    or_default description: Description,
    /// Depends on the schema of the version; stored unchanged (but numbers have 64 bits, as in Kubernetes), and shown
    /// to all who may read the plugin. A text that looks like a secret is refused.
    clear_text configuration: OpenObject as Option<OpenObject>,
    /// The signature of the manifests of the version for this cluster, for clusters that require one.
    #[serde(skip_serializing_if = "Option::is_none")]
    optional signature: Option<DetachedSignature>,
}

model! {
    /// A plugin of a cluster.
    Plugin, PluginSpec::KIND =>
    required id: PluginId,
    optional added_at: Option<UnixMillis>,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required organization_id: OrganizationId,
    required cluster_id: ClusterId,
    flatten spec: PluginSpec,
}

/// A plugin with the manifests of its version.
#[derive(ToSchema)]
#[expect(dead_code, reason = "stands for its schema alone")]
struct PluginWithManifests {
    #[serde(flatten)]
    plugin: Plugin,
    /// Groups, applied in this order; absent if the catalogue has none for this version.
    #[schema(nullable = false)]
    manifests: Option<Vec<Vec<Manifest>>>,
    /// Jobs that must succeed before and after.
    jobs: Option<Jobs>,
    /// The plugins of the cluster that must be ready before.
    #[schema(nullable = false)]
    depends_on: Option<Vec<PluginReference>>,
}

impl Resource for PluginSpec {
    type Object = Plugin;

    const FACTS: Facts = Facts {
        quota: 50_000,
        tag: "Plugins",
        item_query: &[Parameter {
            name: "previous_version",
            description: "the current version of the cluster",
            form: ParameterType::Version,
            required: false,
        }],
        key: &["type", "implementation"],
        columns: &["type", "implementation", "version"],
        about: "Plugins of a cluster",
        aliases: &["plugin"],
        ..Facts::of::<Self>(Kind::Plugin, "plugins", &[Kind::Cluster])
    };

    fn uses(&self) -> Vec<Use> {
        let id = format!("{}/{}/{}", self.plugin_type, self.implementation, self.version);
        vec![Use::new("version", Kind::PluginVersion, &id)]
    }

    fn shown() -> Body {
        Body::of::<PluginWithManifests>()
    }
}
