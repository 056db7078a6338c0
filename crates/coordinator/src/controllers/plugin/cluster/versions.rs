//! Kinds whose definition serves other versions than before. What was applied in a version that is not served any more
//! is still there.
//!
//! After a change of a definition, the API server's lists of what it serves lag behind what it serves, for some seconds
//! if it is busy. So the definitions are read, and objects that they serve are not gone.

use kube::api::ListParams;
use kube::core::{ApiResource, Object};
use kube::discovery::Scope;
use kube::error::DiscoveryError;
use kube::{Api, Error};
use serde::Deserialize;

use super::read::{Listed, Read};
use super::{Cluster, Kind};

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
    /// The named objects with the label of the plugin, in whichever version the kind is served.
    pub(super) async fn list(&self, read: &Read<'_>, plugin: &str) -> Result<Listed, Error> {
        if let Some(listed) = self.list_version(read.place, read, plugin).await? {
            return Ok(listed);
        }
        let mut place = read.place.clone();
        let (group, kind) = (place.kind.resource.group.clone(), place.kind.resource.kind.clone());
        let Some(served) = self.other_version(&group, &kind).await? else {
            return Ok(Listed {
                place,
                objects: Vec::new(),
                is_complete: true,
            });
        };
        place.kind = served;
        let listed = self.list_version(&place, read, plugin).await?;
        listed.ok_or_else(|| not_yet(&group, &kind))
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

    /// The kind in a version in which it is served, as its definition says; of a kind without a definition, as the API
    /// server's lists say.
    async fn other_version(&self, group: &str, kind: &str) -> Result<Option<Kind>, Error> {
        if let Some(defined) = self.defined(group, kind).await? {
            return Ok(Some(defined));
        }
        let served = match kube::discovery::group(&self.own, group).await {
            Ok(served) => served,
            Err(Error::Discovery(_)) => return Ok(None),
            // A version that is listed and not served: that of a definition that is not established, which has no
            // objects.
            Err(Error::Api(status)) if status.code == 404 => return Ok(None),
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
    pub(super) async fn defined(&self, group: &str, kind: &str) -> Result<Option<Kind>, Error> {
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
pub(super) fn not_yet(group: &str, kind: &str) -> Error {
    let what = format!("{kind} of {group}, which is defined, but which the API server does not serve yet");
    Error::Discovery(DiscoveryError::MissingKind(what))
}
