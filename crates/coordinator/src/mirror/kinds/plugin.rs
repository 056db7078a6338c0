//! Plugins of the cluster.

use tidewaiter_api::containership::{Plugin, PluginSpec};
use tidewaiter_api::names::SIGNATURE_ANNOTATION;
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;

use super::or_empty;
use crate::digest::digest;
use crate::mirror::kind::{CacheOf, Listed, MirroredKind, Source, in_core, named};

/// The plugins of the cluster.
pub(crate) struct Plugins;

impl MirroredKind for Plugins {
    const NAME: &'static str = "plugins";
    const CONTROLLER: &'static str = "sync-plugins";
    const CHANGED: &'static [Kind] = &[Kind::Plugin];
    const CACHE: CacheOf<Plugin> = in_core;
    const LISTED: Listed = Listed::At(Cluster::plugins);
    const IS_RELEASED_BY_PERSON: bool = true;
    type Object = models::Plugin;
    type Resource = Plugin;

    fn belongs(&self, plugin: &models::Plugin, source: &Source) -> bool {
        plugin.organization_id == source.cluster.organization && plugin.cluster_id == source.cluster.id
    }

    fn called(&self, plugin: &Plugin) -> String {
        format!("{}/{}", plugin.spec.type_, plugin.spec.implementation)
    }

    fn resource(&self, plugin: models::Plugin) -> Option<Plugin> {
        let mut metadata = named(&plugin.id);
        metadata.annotations = plugin.spec.signature.map(|signature| {
            let digest = digest([&*signature.to_string()]);
            [(SIGNATURE_ANNOTATION.to_owned(), digest)].into()
        });
        let spec = PluginSpec {
            id: plugin.id.to_string(),
            added_at: or_empty(plugin.added_at),
            description: plugin.spec.description.to_string(),
            type_: plugin.spec.plugin_type.to_string(),
            version: plugin.spec.version.to_string(),
            implementation: plugin.spec.implementation.to_string(),
        };
        Some(Plugin {
            metadata,
            spec,
            status: None,
        })
    }
}
