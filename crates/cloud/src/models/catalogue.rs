//! The catalogue: the existing plugins, their versions, and the compatibility of each version.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::document::InvalidField;
use super::fields::{Fields, Model, model};
use super::open_object::OpenObject;
use super::schema;
use super::values::{Slug, Version};
use super::written::or_empty;

/// The response of `GET /v3/plugins`: an object whose keys are the types of plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(transparent)]
pub struct Catalogue(pub BTreeMap<Slug, Vec<PluginDefinition>>);

/// An implementation of a type of plugin.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct PluginDefinition {
    #[serde(rename = "type")]
    pub plugin_type: Slug,
    pub implementation: Slug,
    /// Without duplicates.
    #[schema(value_type = Option<Vec<PluginVersion>>)]
    pub versions: Vec<PluginVersion>,
}

/// A version of an implementation.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct PluginVersion {
    pub version: Version,
    #[schema(value_type = Option<bool>)]
    pub disabled: bool,
    /// The configuration schema, defined by the plugin; stored unchanged.
    #[schema(value_type = Option<Vec<OpenObject>>)]
    pub configuration_schema: Vec<OpenObject>,
    #[schema(value_type = Option<Compatibility>)]
    pub compatibility: Compatibility,
}

/// The compatibility of a version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Compatibility {
    #[schema(value_type = Option<VersionBounds>)]
    pub kubernetes: VersionBounds,
    /// The versions that this one can be upgraded to.
    #[schema(value_type = Option<BTreeSet<Version>>)]
    pub upgrades: Vec<Version>,
    /// The compatible implementations and versions, by type.
    #[schema(value_type = Option<BTreeMap<Slug, PluginBounds>>)]
    pub plugins: BTreeMap<Slug, PluginBounds>,
}

/// A range of versions, both ends included; an absent end is unlimited and written as the empty text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct VersionBounds {
    #[serde(serialize_with = "or_empty")]
    #[schema(value_type = Option<schema::VersionOrEmpty>)]
    pub min: Option<Version>,
    #[serde(serialize_with = "or_empty")]
    #[schema(value_type = Option<schema::VersionOrEmpty>)]
    pub max: Option<Version>,
}

/// Bounds of another plugin.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct PluginBounds {
    pub implementation: Slug,
    #[serde(flatten)]
    pub bounds: VersionBounds,
}

/// Parses an object with plugin types as keys.
#[derive(Default)]
struct ByType(BTreeMap<Slug, PluginBounds>);

impl Model for Catalogue {
    const KIND: &'static str = "the catalogue";
    const MAX_BYTES: usize = 16 * 1024 * 1024;

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let types: BTreeMap<Slug, Vec<PluginDefinition>> = fields.entries()?;
        for (key, definitions) in &types {
            if let Some(other) = definitions.iter().find(|definition| definition.plugin_type != *key) {
                let reason = format!("contains a definition of the type {}; move it there", other.plugin_type);
                return Err(fields.invalid(key.as_str(), reason));
            }
            let implementations: Vec<_> = definitions
                .iter()
                .map(|definition| &definition.implementation)
                .collect();
            fields.unique(key.as_str(), &implementations)?;
        }
        Ok(Self(types))
    }
}

impl Model for PluginDefinition {
    const KIND: &'static str = "the definition of a plugin";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let definition = Self {
            plugin_type: fields.required("type")?,
            implementation: fields.required("implementation")?,
            versions: fields.or_default("versions")?,
        };
        let versions: Vec<_> = definition.versions.iter().map(|version| &version.version).collect();
        fields.unique("versions", &versions)?;
        Ok(definition)
    }
}

model! {
    PluginVersion, "the version of a plugin" =>
    required { version } or_default { disabled, configuration_schema, compatibility }
}

impl Model for Compatibility {
    const KIND: &'static str = "a compatibility";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let ByType(plugins) = fields.or_default("plugins")?;
        let compatibility = Self {
            kubernetes: fields.or_default("kubernetes")?,
            upgrades: fields.or_default("upgrades")?,
            plugins,
        };
        fields.unique("upgrades", &compatibility.upgrades)?;
        Ok(compatibility)
    }
}

impl Model for VersionBounds {
    const KIND: &'static str = "bounds of a version";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let bounds = Self {
            min: fields.optional("min")?,
            max: fields.optional("max")?,
        };
        match (&bounds.min, &bounds.max) {
            (Some(min), Some(max)) if min > max => {
                Err(fields.invalid("max", format!("is {max}, must not be before min, {min}")))
            }
            _ => Ok(bounds),
        }
    }
}

model! { PluginBounds, "bounds of a plugin" => required { implementation } flatten { bounds } }

impl Model for ByType {
    const KIND: &'static str = "plugins by type";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        fields.entries().map(Self)
    }
}
