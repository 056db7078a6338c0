//! Kinds whose definition serves other versions than before. What was applied in a version that is not served any more is still there.
//!
//! After a change of a definition, the API server's lists of what it serves lag behind what it serves, for some seconds if it is busy. So a kind
//! that these lists do not have is gone only if no definition has it either.

use kube::api::ListParams;
use kube::core::{ApiResource, Object};
use kube::discovery::Scope;
use kube::error::DiscoveryError;
use kube::{Api, Error};
use serde::Deserialize;

use super::{Cluster, HealthCheck, Kind, Live, ObjectId, Place};

/// Definitions in a page of a list: each may have some hundred kilobytes.
const DEFINITIONS: u32 = 20;

/// What counts here of a `CustomResourceDefinition`.
#[derive(Clone, Debug, Deserialize)]
struct DefinitionSpec {
    group: String,
    names: Names,
    versions: Vec<Version>,
}

#[derive(Clone, Debug, Deserialize)]
struct Names {
    kind: String,
    plural: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Version {
    served: bool,
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

/// Whether the API server serves the definition's kind, or is about to.
fn is_served(definition: &Definition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| &status.conditions);
    let is_established = conditions
        .filter(|condition| condition.type_ == "Established")
        .any(|condition| condition.status == "True");
    is_established && definition.spec.versions.iter().any(|version| version.served)
}

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
        found.ok_or_else(|| not_yet(&resource.group, &resource.kind))
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
        let found = match kube::discovery::group(&self.own, group).await {
            Ok(served) => served
                .versions()
                .flat_map(|version| served.versioned_resources(version))
                .find(|(resource, _)| resource.kind == kind),
            Err(Error::Discovery(_)) => None,
            Err(error) => return Err(error),
        };
        if found.is_none() {
            self.has_no_definition(group, kind).await?;
        }
        Ok(found.map(|(resource, capabilities)| Kind {
            resource,
            namespaced: capabilities.scope == Scope::Namespaced,
        }))
    }

    /// Fails if a definition has the kind, given by its name or its plural: then the API server is about to serve it.
    pub(super) async fn has_no_definition(&self, group: &str, kind: &str) -> Result<(), Error> {
        let resource = ApiResource {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "apiextensions.k8s.io/v1".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
        };
        let definitions: Api<Definition> = Api::all_with(self.own.clone(), &resource);
        let mut params = ListParams::default().limit(DEFINITIONS);
        loop {
            let page = definitions.list(&params).await?;
            let has_it = |definition: &Definition| {
                let DefinitionSpec { group: of, names, .. } = &definition.spec;
                of == group && (names.kind == kind || names.plural == kind) && is_served(definition)
            };
            if page.items.iter().any(has_it) {
                return Err(not_yet(group, kind));
            }
            params.continue_token = page.metadata.continue_.filter(|next| !next.is_empty());
            if params.continue_token.is_none() {
                return Ok(());
            }
        }
    }
}

fn not_yet(group: &str, kind: &str) -> Error {
    let what = format!("{kind} of {group}, which is defined, but which the API server does not serve yet");
    Error::Discovery(DiscoveryError::MissingKind(what))
}
