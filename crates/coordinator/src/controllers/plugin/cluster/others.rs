//! What a namespace or a definition of a plugin has of others: it would be deleted with it.

use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::discovery::Scope;
use kube::{Api, Error};
use tidewaiter_api::names::PLUGIN_LABEL;

use super::versions::not_yet;
use super::{Cluster, Kind, ObjectId, PAGE};

impl Cluster {
    /// An object of the definition that is not the plugin's, which would be deleted with it.
    pub(in crate::controllers::plugin) async fn instance(
        &self,
        definition: &ObjectId,
        plugin: &str,
    ) -> Result<Option<String>, Error> {
        let Some((plural, group)) = definition.name.split_once('.') else {
            return Ok(None);
        };
        let Some(Kind { resource, .. }) = self.defined(group, plural).await? else {
            return Ok(None);
        };
        let api = Api::all_with(self.client.clone(), &resource);
        match self.other(&api, &resource, plugin).await {
            Err(Error::Api(status)) if status.code == 404 => Err(not_yet(group, &resource.kind)),
            found => found,
        }
    }

    /// An object in the namespace that is not the plugin's, which would be deleted with it.
    pub(in crate::controllers::plugin) async fn occupant(
        &self,
        namespace: &str,
        plugin: &str,
    ) -> Result<Option<String>, Error> {
        let served = kube::Discovery::new(self.own.clone()).run_aggregated().await?;
        let kinds = served
            .groups()
            .flat_map(kube::discovery::ApiGroup::resources_by_stability);
        let listable = kinds.filter(|(resource, capabilities)| {
            let lasting = !matches!(
                resource.kind.as_str(),
                "Event" | "Lease" | "EndpointSlice" | "Endpoints"
            );
            lasting && capabilities.scope == Scope::Namespaced && capabilities.supports_operation("list")
        });
        for (resource, _) in listable {
            let api = Api::namespaced_with(self.client.clone(), namespace, &resource);
            match self.other(&api, &resource, plugin).await {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                // The kind is not served any more.
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// An object that is not of the plugin, was not made for another object, and is not in every namespace.
    async fn other(
        &self,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
        plugin: &str,
    ) -> Result<Option<String>, Error> {
        let selector = format!("{PLUGIN_LABEL}!={plugin},containership.io/managed!=true");
        let everywhere = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
        let mut params = ListParams::default().labels(&selector).limit(PAGE);
        loop {
            let page = api.list_metadata(&params).await?;
            let next = page.metadata.continue_.clone().filter(|next| !next.is_empty());
            let found = page.items.into_iter().find_map(|item| {
                let meta = item.metadata;
                let name = meta.name.filter(|_| meta.owner_references.is_none())?;
                let usual = everywhere.contains(&(resource.kind.as_str(), name.as_str()));
                (!usual).then(|| format!("{} {name}", resource.kind))
            });
            if found.is_some() || next.is_none() {
                return Ok(found);
            }
            params.continue_token = next;
        }
    }
}
