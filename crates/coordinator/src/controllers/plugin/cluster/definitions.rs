//! Kinds and namespaces that a plugin brings and others use: the versions in which a definition serves its kind, and
//! the objects of others that would be deleted with the definition or the namespace.
//!
//! An object that was applied in a version that is not served any more still exists. After a change of a definition,
//! the API server's lists of what it serves lag behind what it serves, for some seconds if it is busy. So the
//! definitions are read, and objects that they serve are not gone.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, Object, ObjectMeta, PartialObjectMeta};
use kube::discovery::{ApiCapabilities, Scope};
use kube::error::DiscoveryError;
use kube::{Api, Error};
use serde::Deserialize;
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_kit::client::{is_not_found, path_segment};

use super::read::is_absent;
use super::{Cluster, Kind, PAGE, is_forbidden};
use crate::controllers::plugin::desired::ObjectId;

/// Definitions in a page of a list: each may have some hundred kilobytes.
const DEFINITIONS: u32 = 20;

/// The parts of a `CustomResourceDefinition` that count here.
#[derive(Clone, Debug, Deserialize)]
struct DefinitionSpec {
    group: String,
    names: Names,
    scope: String,
    versions: Vec<Version>,
}

#[derive(Clone, Debug, Deserialize)]
struct Names {
    kind: String,
    plural: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Version {
    name: String,
    served: bool,
    #[serde(default)]
    storage: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct DefinitionStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

type Definition = Object<DefinitionSpec, DefinitionStatus>;

/// Returns true if the definition is established: one whose names conflict with those of another is not established,
/// and has no objects.
fn is_established(definition: &Definition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| condition.type_ == "Established")
        .any(|condition| condition.status == "True")
}

impl Cluster {
    /// The kind in this version, or else in another one.
    pub(crate) async fn kind_in_any_version(
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

    /// The kind in a version in which it is served, as its definition says; of a kind without a definition, as the API
    /// server's lists say.
    pub(crate) async fn other_version(&self, group: &str, kind: &str) -> Result<Option<Kind>, Error> {
        if let Some(defined) = self.defined(group, kind).await? {
            return Ok(Some(defined));
        }
        let served = match kube::discovery::group(&self.own, group).await {
            Ok(served) => served,
            Err(Error::Discovery(_)) => return Ok(None),
            // A version that is listed and not served: that of a definition that is not established, which has no
            // objects.
            Err(error) if is_not_found(&error) => return Ok(None),
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

    /// The kind, given by its name or its plural, if an established definition serves it, or is about to.
    pub(crate) async fn defined(&self, group: &str, kind: &str) -> Result<Option<Kind>, Error> {
        let definitions: Api<Definition> = Api::all_with(self.own.clone(), &definitions());
        let mut params = ListParams::default().limit(DEFINITIONS);
        loop {
            let page = definitions.list(&params).await?;
            if let Some(found) = page.items.iter().find_map(|definition| served(definition, group, kind)) {
                return Ok(Some(found));
            }
            params.continue_token = page.metadata.continue_.filter(|next| !next.is_empty());
            if params.continue_token.is_none() {
                return Ok(None);
            }
        }
    }
}

/// The kind of the definition, if that is this one.
fn served(definition: &Definition, group: &str, kind: &str) -> Option<Kind> {
    let DefinitionSpec {
        group: of,
        names,
        scope,
        versions,
    } = &definition.spec;
    let is_it = of == group && (names.kind == kind || names.plural == kind);
    // Objects in the version in which they are stored need no conversion: the webhook for that may be the plugin's,
    // which is being removed.
    let served = versions.iter().filter(|version| version.served);
    let version = served.max_by_key(|version| version.storage)?;
    (is_it && is_established(definition)).then(|| Kind {
        resource: resource(group, &version.name, &names.kind, &names.plural),
        namespaced: scope == "Namespaced",
    })
}

fn definitions() -> ApiResource {
    resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    )
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// A definition serves the kind, and the API server does not: it is about to.
pub(crate) fn not_yet(group: &str, kind: &str) -> Error {
    let what = format!("{kind} of {group}, which is defined, but which the API server does not serve yet");
    Error::Discovery(DiscoveryError::MissingKind(what))
}

/// Owners, and owners of owners, that are looked at. An object with more is of others.
const OWNERS: usize = 16;

/// Requests about owners in one search. With more of them, an object is of others. A plugin with all its 2,000 objects
/// in a namespace, each with another object between it and its pods, has fewer.
const LOOKUPS: usize = 5_000;

/// An object that is deleted with everything in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    Namespace,
    Definition,
}

/// A search, and the owners that it has met: the creator of an object decides how many owners it names.
struct Search<'a> {
    cluster: &'a Cluster,
    plugin: &'a str,
    whole: Whole,
    /// By version and kind.
    kinds: HashMap<(String, String), Option<Kind>>,
    /// By the whole reference and the namespace: another one with the same uid may name something else.
    owners: HashMap<String, Owner>,
    lookups: usize,
}

/// An owner, as far as it decides about what it owns.
#[derive(Clone)]
enum Owner {
    /// It is the plugin's, or gone.
    Nobody,
    Others,
    /// It has owners itself.
    Owned(Vec<OwnerReference>),
}

impl Cluster {
    /// An object of the definition that is not the plugin's, which would be deleted with it.
    pub(crate) async fn instance(&self, definition: &ObjectId, plugin: &str) -> Result<Option<String>, Error> {
        let Some((plural, group)) = definition.name.split_once('.') else {
            return Ok(None);
        };
        let Some(Kind { resource, .. }) = self.defined(group, plural).await? else {
            return Ok(None);
        };
        let api = Api::all_with(self.client.clone(), &resource);
        let mut search = Search::new(self, plugin, Whole::Definition);
        match search.other(&api, &resource).await {
            Err(error) if is_not_found(&error) => Err(not_yet(group, &resource.kind)),
            found => found,
        }
    }

    /// An object in the namespace that is not the plugin's, which would be deleted with it.
    pub(crate) async fn occupant(&self, namespace: &str, plugin: &str) -> Result<Option<String>, Error> {
        let served = kube::Discovery::new(self.own.clone()).run_aggregated().await?;
        let kinds = served
            .groups()
            .flat_map(kube::discovery::ApiGroup::resources_by_stability);
        let mut search = Search::new(self, plugin, Whole::Namespace);
        for (resource, _) in kinds.filter(|(resource, capabilities)| keeps_namespace(resource, capabilities)) {
            let api = Api::namespaced_with(self.client.clone(), namespace, &resource);
            match search.other(&api, &resource).await {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) if is_not_found(&error) => {
                    // The version is not served any more. The kind may be, in another one.
                    if self.defined(&resource.group, &resource.kind).await?.is_some() {
                        return Err(not_yet(&resource.group, &resource.kind));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl<'a> Search<'a> {
    fn new(cluster: &'a Cluster, plugin: &'a str, whole: Whole) -> Self {
        Self {
            cluster,
            plugin,
            whole,
            kinds: HashMap::new(),
            owners: HashMap::new(),
            lookups: 0,
        }
    }

    /// An object that is not of the plugin, and is not in every namespace.
    async fn other(&mut self, api: &Api<DynamicObject>, resource: &ApiResource) -> Result<Option<String>, Error> {
        let (plugin, whole) = (self.plugin, self.whole);
        let selector = format!("{PLUGIN_LABEL}!={plugin},containership.io/managed!=true");
        let everywhere = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
        let mut params = ListParams::default().labels(&selector).limit(PAGE);
        loop {
            let page = api.list_metadata(&params).await?;
            let next = page.metadata.continue_.clone().filter(|next| !next.is_empty());
            for PartialObjectMeta { metadata, .. } in page.items {
                let name = metadata.name.as_deref().unwrap_or_default();
                let is_usual = everywhere.contains(&(resource.kind.as_str(), name));
                if !is_usual && self.is_of_others(&metadata).await? {
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

    /// Returns true if an object without the label of the plugin is there for others: it has no owner, or one that is
    /// of others. One whose owners are the plugin's, or gone, is deleted by the garbage collector.
    async fn is_of_others(&mut self, metadata: &ObjectMeta) -> Result<bool, Error> {
        let mut unseen = metadata.owner_references.clone().unwrap_or_default();
        if unseen.is_empty() {
            return Ok(true);
        }
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        for _ in 0..OWNERS {
            let Some(owner) = unseen.pop() else {
                return Ok(false);
            };
            match self.owner(namespace, &owner).await? {
                Owner::Nobody => {}
                Owner::Others => return Ok(true),
                Owner::Owned(above) => unseen.extend(above),
            }
        }
        Ok(!unseen.is_empty())
    }

    async fn owner(&mut self, namespace: &str, owner: &OwnerReference) -> Result<Owner, Error> {
        let key = format!(
            "{namespace} {} {} {} {}",
            owner.api_version, owner.kind, owner.name, owner.uid
        );
        if let Some(known) = self.owners.get(&key) {
            return Ok(known.clone());
        }
        if self.lookups >= LOOKUPS {
            return Ok(Owner::Others);
        }
        self.lookups += 1;
        let found = self.look_up(namespace, owner).await?;
        self.owners.insert(key, found.clone());
        Ok(found)
    }

    async fn look_up(&mut self, namespace: &str, owner: &OwnerReference) -> Result<Owner, Error> {
        let Some(kind) = self.kind(owner).await? else {
            return Ok(Owner::Others);
        };
        let place = ObjectId {
            namespace: namespace.to_owned(),
            ..ObjectId::default()
        };
        let found = match self
            .cluster
            .api(&kind, &place)
            .get_metadata(&path_segment(&owner.name))
            .await
        {
            Ok(found) => found.metadata,
            Err(error) if is_absent(&error, &owner.name) => return Ok(Owner::Nobody),
            Err(error) if is_forbidden(&error) => return Ok(Owner::Others),
            // The version may not be served any more: that says nothing of the owner.
            Err(error) if is_not_found(&error) => {
                self.cluster.forget(&kind);
                return Ok(Owner::Others);
            }
            Err(error) => return Err(error),
        };
        let label = found.labels.as_ref().and_then(|labels| labels.get(PLUGIN_LABEL));
        if found.uid.as_deref() != Some(&*owner.uid) || label.map(String::as_str) == Some(self.plugin) {
            return Ok(Owner::Nobody);
        }
        let above = found.owner_references.unwrap_or_default();
        Ok(if above.is_empty() {
            Owner::Others
        } else {
            Owner::Owned(above)
        })
    }

    async fn kind(&mut self, owner: &OwnerReference) -> Result<Option<Kind>, Error> {
        let key = (owner.api_version.clone(), owner.kind.clone());
        if let Some(known) = self.kinds.get(&key) {
            return Ok(known.clone());
        }
        let (group, version) = owner.api_version.rsplit_once('/').unwrap_or(("", &owner.api_version));
        let found = self.cluster.kind_in_any_version(group, version, &owner.kind).await?;
        self.kinds.insert(key, found.clone());
        Ok(found)
    }
}

/// Returns true if objects of the kind are in a namespace for others. What cannot be deleted, such as the measurements
/// and catalogues of aggregated API servers, is computed, and goes with what it describes.
fn keeps_namespace(resource: &ApiResource, capabilities: &ApiCapabilities) -> bool {
    let lasting = !matches!(
        resource.kind.as_str(),
        "Event" | "Lease" | "EndpointSlice" | "Endpoints"
    );
    let can = |verb| capabilities.supports_operation(verb);
    lasting && capabilities.scope == Scope::Namespaced && can("list") && can("delete")
}

#[cfg(test)]
mod tests;
