//! Kinds whose definition serves other versions than before. What was applied in a version that is not served any more is still there.

use kube::Error;
use kube::discovery::Scope;

use super::{Cluster, HealthCheck, Kind, Live, ObjectId, Place};

impl Cluster {
    /// The objects in the place with the label of the plugin, in whichever version the kind is served.
    pub(super) async fn list(
        &self,
        place: &Place,
        plugin: &str,
        check: Option<&HealthCheck>,
    ) -> Result<Vec<(ObjectId, Live)>, Error> {
        if let Some(found) = self.list_version(place, plugin, check).await? {
            return Ok(found);
        }
        let resource = &place.kind.resource;
        let Some(kind) = self.other_version(&resource.group, &resource.kind).await? else {
            return Ok(Vec::new());
        };
        let other = Place {
            kind,
            namespace: place.namespace.clone(),
        };
        let found = self.list_version(&other, plugin, check).await?;
        Ok(found.unwrap_or_default())
    }

    /// The kind in this version, or else in another one.
    pub(super) async fn kind_in_any_version(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Kind>, Error> {
        match self.kind(group, version, kind).await? {
            Some(found) => Ok(Some(found)),
            None => self.other_version(group, kind).await,
        }
    }

    async fn other_version(&self, group: &str, kind: &str) -> Result<Option<Kind>, Error> {
        let served = match kube::discovery::group(&self.own, group).await {
            Ok(served) => served,
            Err(Error::Discovery(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut all = served
            .versions()
            .flat_map(|version| served.versioned_resources(version));
        let found = all.find(|(resource, _)| resource.kind == kind);
        Ok(found.map(|(resource, capabilities)| Kind {
            resource,
            namespaced: capabilities.scope == Scope::Namespaced,
        }))
    }
}
