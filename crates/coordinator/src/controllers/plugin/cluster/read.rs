//! Reads the objects that are named, and no others: few of one kind in one namespace each by its name, many with a list
//! by the label of the plugin.
//!
//! A list has no more pages than the named objects fill. What it does not show then is read by its name: others may
//! have any number of objects with the label there.

use std::collections::BTreeSet;

use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Api, Error};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_kit::client::path_segment;

use super::super::claim::Claimant;
use super::super::health::is_inert;
use super::super::health_check::HealthCheck;
use super::super::look::MANY;
use super::super::object::{Object, ObjectId};
use super::super::observed::{Live, Observed, Seen};
use super::{Cluster, PAGE, Place, all_live, is_forbidden, with_metadata};

/// Named objects in one place that are read with one request, or a few pages.
pub(super) struct Read<'a> {
    pub(super) place: &'a Place,
    /// The plugin's health check of the kind, if there is one.
    pub(super) check: Option<&'a HealthCheck>,
    /// Each with its manifest if the version has it.
    pub(super) named: Vec<(&'a ObjectId, Option<&'a Object>)>,
}

/// The result of a [`Read`].
pub(super) struct Found {
    pub(super) seen: Vec<(ObjectId, Seen)>,
    /// The place whose list ended before it showed everything.
    pub(super) incomplete: Option<Place>,
}

/// The objects of a list that are named.
pub(super) struct Listed {
    /// The version in which the kind is served.
    pub(super) place: Place,
    pub(super) objects: Vec<(ObjectId, Live)>,
    pub(super) is_complete: bool,
}

impl<'a> Read<'a> {
    /// The reads for these objects of a place.
    pub(super) fn all(
        place: &'a Place,
        check: Option<&'a HealthCheck>,
        named: Vec<(&'a ObjectId, Option<&'a Object>)>,
    ) -> Vec<Self> {
        let read = |named| Self { place, check, named };
        if named.len() < MANY {
            named.into_iter().map(|one| read(vec![one])).collect()
        } else {
            vec![read(named)]
        }
    }

    /// The reads for what a list of the place ended before.
    pub(super) fn rest(&self, place: &'a Place, observed: &Observed) -> Vec<Self> {
        let unseen = self.named.iter().filter(|(id, _)| !observed.seen.contains_key(*id));
        let by_name = |one: &(&'a ObjectId, Option<&'a Object>)| Self {
            place,
            check: self.check,
            named: vec![*one],
        };
        unseen.map(by_name).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &'a ObjectId> {
        self.named.iter().map(|(id, _)| *id)
    }
}

impl Cluster {
    /// The named objects, as far as they exist.
    pub(super) async fn read(&self, read: &Read<'_>, claimant: Claimant<'_>) -> Result<Found, Error> {
        if let [(id, object)] = read.named[..] {
            let seen = self.read_by_name(read, id, object, claimant).await?;
            return Ok(Found {
                seen: seen.into_iter().collect(),
                incomplete: None,
            });
        }
        match self.list(read, claimant.plugin).await {
            Ok(listed) => {
                let objects = listed.objects.into_iter();
                Ok(Found {
                    seen: objects.map(|(id, live)| (id, Seen::Ours(live))).collect(),
                    incomplete: (!listed.is_complete).then_some(listed.place),
                })
            }
            Err(error) if is_forbidden(&error) => {
                let unreadable = |id: &ObjectId| (id.clone(), self.unreadable(id, &error));
                Ok(Found {
                    seen: read.ids().map(unreadable).collect(),
                    incomplete: None,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// The object of this name, with its content if its health depends on it.
    async fn read_by_name(
        &self,
        read: &Read<'_>,
        id: &ObjectId,
        object: Option<&Object>,
        claimant: Claimant<'_>,
    ) -> Result<Option<(ObjectId, Seen)>, Error> {
        let Place { kind, .. } = read.place;
        let (api, name) = (self.api(kind, id), path_segment(&id.name));
        let got = if needs_content(read) {
            api.get(&name).await
        } else {
            api.get_metadata(&name).await.map(|it| with_metadata(it.metadata))
        };
        let found = match got {
            Ok(found) => found,
            Err(error) if is_absent(&error, &id.name) => return Ok(None),
            Err(error) if is_forbidden(&error) => return Ok(Some((id.clone(), self.unreadable(id, &error)))),
            // The version may not be served any more.
            Err(Error::Api(status)) if status.code == 404 => {
                let listed = self.list(read, claimant.plugin).await?.objects;
                return Ok(listed.into_iter().next().map(|(id, live)| (id, Seen::Ours(live))));
            }
            Err(error) => return Err(error),
        };
        let metadata = found.metadata.clone();
        let live = all_live(kind, vec![found], read.check).await?;
        let Some((_, live)) = live.into_iter().next() else {
            return Ok(None);
        };
        let seen = match object {
            Some(object) => claimant.judge(id, object, &metadata, live),
            None => {
                return Ok(claimant
                    .judge_surplus(id, &metadata, live)
                    .map(|seen| (id.clone(), seen)));
            }
        };
        Ok(Some((id.clone(), seen)))
    }

    /// The named objects with the label of the plugin. None if the version is not served any more.
    pub(super) async fn list_version(
        &self,
        place: &Place,
        read: &Read<'_>,
        plugin: &str,
    ) -> Result<Option<Listed>, Error> {
        let Place { kind, namespace } = place;
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource),
            None => Api::all_with(self.client.clone(), &kind.resource),
        };
        let names: BTreeSet<&str> = read.ids().map(|id| id.name.as_str()).collect();
        let is_named = |meta: &ObjectMeta| meta.name.as_deref().is_some_and(|name| names.contains(name));
        let mut params = ListParams::default()
            .labels(&format!("{PLUGIN_LABEL}={plugin}"))
            .limit(PAGE);
        let mut objects = Vec::new();
        for _ in 0..=names.len() / PAGE as usize {
            let page = if needs_content(read) {
                api.list(&params).await.map(|page| (page.metadata, page.items))
            } else {
                let page = api.list_metadata(&params).await;
                page.map(|page| {
                    let items = page.items.into_iter().map(|it| with_metadata(it.metadata));
                    (page.metadata, items.collect())
                })
            };
            let (metadata, mut page) = match page {
                Ok(page) => page,
                Err(Error::Api(status)) if status.code == 404 => {
                    self.forget(kind);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            page.retain(|object: &DynamicObject| is_named(&object.metadata));
            objects.extend(all_live(kind, page, read.check).await?);
            params.continue_token = metadata.continue_.filter(|next| !next.is_empty());
            if params.continue_token.is_none() || objects.len() == names.len() {
                break;
            }
        }
        Ok(Some(Listed {
            place: place.clone(),
            is_complete: params.continue_token.is_none() || objects.len() == names.len(),
            objects,
        }))
    }
}

/// Returns true if the health of the objects depends on more than their metadata.
fn needs_content(read: &Read<'_>) -> bool {
    let resource = &read.place.kind.resource;
    read.check.is_some() || !is_inert(&resource.group, &resource.kind)
}

/// Returns true if the API server has no object of this name. Without the name, the response may be about the kind.
pub(super) fn is_absent(error: &Error, name: &str) -> bool {
    let Error::Api(status) = error else { return false };
    let named = status.details.as_ref().is_some_and(|details| details.name == name);
    status.code == 404 && named
}
