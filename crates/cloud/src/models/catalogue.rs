//! The catalogue: the existing plugins, their versions, and the compatibility of each version.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::fields::model;
use super::values::{Slug, Version};
use super::written::or_empty;
use super::{Fields, InvalidField, OpenObject, schema};

/// The response of `GET /v3/plugins`: an object whose keys are the types of plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[serde(transparent)]
pub struct Catalogue(pub BTreeMap<Slug, Vec<PluginDefinition>>);

model! {
    /// An implementation of a type of plugin.
    PluginDefinition, "the definition of a plugin", check =>
    required plugin_type = "type": Slug,
    required implementation: Slug,
    /// Without duplicates.
    or_default versions: Vec<PluginVersion>,
}

model! {
    /// A version of an implementation.
    PluginVersion, "the version of a plugin" =>
    required version: Version,
    or_default disabled: bool,
    /// The configuration schema, defined by the plugin; stored unchanged.
    or_default configuration_schema: Vec<OpenObject>,
    or_default compatibility: Compatibility,
}

model! {
    /// The compatibility of a version.
    #[derive(Default)]
    Compatibility, "a compatibility", check =>
    or_default kubernetes: VersionBounds,
    /// The versions that this one can be upgraded to.
    or_default upgrades: Vec<Version> as Option<BTreeSet<Version>>,
    /// The compatible implementations and versions, by type.
    or_default plugins: BTreeMap<Slug, PluginBounds>,
}

model! {
    /// A range of versions, both ends included; an absent end is unlimited and written as the empty text.
    #[derive(Default)]
    VersionBounds, "bounds of a version", check =>
    #[serde(serialize_with = "or_empty")]
    optional min: Option<Version> as Option<schema::VersionOrEmpty>,
    #[serde(serialize_with = "or_empty")]
    optional max: Option<Version> as Option<schema::VersionOrEmpty>,
}

model! {
    /// Bounds of another plugin.
    PluginBounds, "bounds of a plugin" =>
    required implementation: Slug,
    flatten bounds: VersionBounds,
}

impl PluginDefinition {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        let versions: Vec<_> = self.versions.iter().map(|version| &version.version).collect();
        fields.unique("versions", &versions)
    }
}

impl Compatibility {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        fields.unique("upgrades", &self.upgrades)
    }
}

impl VersionBounds {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        match (&self.min, &self.max) {
            (Some(min), Some(max)) if min > max => {
                Err(fields.invalid("max", format!("is {max}, must not be before min, {min}")))
            }
            _ => Ok(()),
        }
    }
}
