//! What a namespace or a definition of a plugin has of others: it would be deleted with it.

use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::discovery::Scope;
use kube::{Api, Error};
use tidewaiter_api::names::PLUGIN_LABEL;

use super::versions::not_yet;
use super::{Cluster, Kind, ObjectId, PAGE, is_forbidden};

/// Owners, and owners of owners, that are looked at. An object with more is of others.
const OWNERS: usize = 16;

/// What would be deleted with everything in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    Namespace,
    Definition,
}

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
        match self.other(&api, &resource, plugin, Whole::Definition).await {
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
            match self.other(&api, &resource, plugin, Whole::Namespace).await {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                // The kind is not served any more.
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// An object that is not of the plugin, and is not in every namespace.
    async fn other(
        &self,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
        plugin: &str,
        whole: Whole,
    ) -> Result<Option<String>, Error> {
        let selector = format!("{PLUGIN_LABEL}!={plugin},containership.io/managed!=true");
        let everywhere = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
        let mut params = ListParams::default().labels(&selector).limit(PAGE);
        loop {
            let page = api.list_metadata(&params).await?;
            let next = page.metadata.continue_.clone().filter(|next| !next.is_empty());
            for PartialObjectMeta { metadata, .. } in page.items {
                let name = metadata.name.as_deref().unwrap_or_default();
                let is_usual = everywhere.contains(&(resource.kind.as_str(), name));
                if !is_usual && self.is_of_others(&metadata, plugin, whole).await? {
                    let namespace = metadata.namespace.as_deref().filter(|_| whole == Whole::Definition);
                    let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
                    return Ok(Some(format!("{} {namespace}{name}", resource.kind)));
                }
            }
            if next.is_none() {
                return Ok(None);
            }
            params.continue_token = next;
        }
    }

    /// Whether an object without the label of the plugin is there for others: it has no owner, or one that is of
    /// others. One whose owners are the plugin's, or gone, is deleted by the garbage collector.
    async fn is_of_others(&self, metadata: &ObjectMeta, plugin: &str, whole: Whole) -> Result<bool, Error> {
        let owners = |metadata: &ObjectMeta| metadata.owner_references.clone().unwrap_or_default();
        let mut unseen = owners(metadata);
        if unseen.is_empty() {
            return Ok(true);
        }
        for _ in 0..OWNERS {
            let Some(owner) = unseen.pop() else {
                return Ok(false);
            };
            let (group, version) = owner.api_version.rsplit_once('/').unwrap_or(("", &owner.api_version));
            let Some(kind) = self.kind_in_any_version(group, version, &owner.kind).await? else {
                return Ok(true);
            };
            if whole == Whole::Namespace && kind.namespaced {
                // It is in the namespace, too, and counts for itself.
                continue;
            }
            let place = ObjectId {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                ..ObjectId::default()
            };
            let found = match self.api(&kind, &place).get_metadata_opt(&owner.name).await {
                Err(error) if is_forbidden(&error) => return Ok(true),
                found => found?.map(|found| found.metadata),
            };
            let Some(found) = found.filter(|found| found.uid.as_deref() == Some(&*owner.uid)) else {
                continue;
            };
            let labels = found.labels.as_ref();
            if labels.and_then(|labels| labels.get(PLUGIN_LABEL)).map(String::as_str) == Some(plugin) {
                continue;
            }
            let above = owners(&found);
            if above.is_empty() {
                return Ok(true);
            }
            unseen.extend(above);
        }
        Ok(!unseen.is_empty())
    }
}
