//! Plugins of a cluster: the implementation and version of each type.

use serde::Serialize;
use utoipa::ToSchema;

use super::document::InvalidField;
use super::fields::{Fields, Model};
use super::open_object::OpenObject;
use super::values::{ClusterId, Description, DetachedSignature, OrganizationId, PluginId, Slug, UnixMillis, Version};

/// The settings of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct PluginSpec {
    #[serde(rename = "type")]
    pub plugin_type: Slug,
    pub implementation: Slug,
    pub version: Version,
    #[schema(value_type = Option<Description>)]
    pub description: Description,
    /// Depends on the schema of the version; stored unchanged.
    #[schema(value_type = Option<OpenObject>)]
    pub configuration: OpenObject,
    /// The signature of the manifests of the version for this cluster, for clusters that require one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<DetachedSignature>,
}

/// A plugin of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Plugin {
    pub id: PluginId,
    pub added_at: Option<UnixMillis>,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub organization_id: OrganizationId,
    pub cluster_id: ClusterId,
    #[serde(flatten)]
    pub spec: PluginSpec,
}

/// The body of a PATCH.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PluginChange {
    /// The version that it should have.
    pub version: Version,
    /// The signature of the manifests of that version for this cluster, for clusters that require one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<DetachedSignature>,
}

impl Model for PluginSpec {
    const KIND: &'static str = "a plugin";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            plugin_type: fields.required("type")?,
            implementation: fields.required("implementation")?,
            version: fields.required("version")?,
            description: fields.or_default("description")?,
            configuration: fields.or_default("configuration")?,
            signature: fields.optional("signature")?,
        })
    }
}

impl Model for Plugin {
    const KIND: &'static str = PluginSpec::KIND;

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            id: fields.required("id")?,
            added_at: fields.optional("added_at")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
            organization_id: fields.required("organization_id")?,
            cluster_id: fields.required("cluster_id")?,
            spec: PluginSpec::take(fields)?,
        })
    }
}

impl Model for PluginChange {
    const KIND: &'static str = "a change of a plugin";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            version: fields.required("version")?,
            signature: fields.optional("signature")?,
        })
    }
}
