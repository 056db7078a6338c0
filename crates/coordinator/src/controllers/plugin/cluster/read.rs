//! Reads the objects that are named, and no others: few of one kind in one namespace each by its name, many with a list
//! by the label of the plugin.
//!
//! A list has no more pages than the named objects fill. What it does not show then is read by its name: others may
//! have any number of objects with the label there.
//!
//! Occupants of the names that these lists do not show are looked for in the same way, no matter who owns them, and
//! only their metadata is read: a plugin of 500 objects would ask 500 times before it creates them.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Api, Error};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_kit::client::{is_not_found, path_segment};

use super::apply::perform_reads;
use super::claim::Claimant;
use super::definitions::not_yet;
use super::health::is_inert;
use super::observe::{Live, Observed, Seen};
use super::{Cluster, Kind, PAGE, Place, is_forbidden, live, with_metadata};
use crate::controllers::plugin::desired::{Object, ObjectId};

/// Named objects in one place that are read with one request, or a few pages.
pub(crate) struct Read<'a> {
    pub(crate) place: &'a Place,
    /// Each with its manifest if the version has it.
    pub(crate) named: Vec<(&'a ObjectId, Option<&'a Object>)>,
}

/// The result of a [`Read`].
pub(crate) struct Found {
    pub(crate) seen: Vec<(ObjectId, Seen)>,
    /// The place whose list ended before it showed everything.
    pub(crate) incomplete: Option<Place>,
}

/// The objects of a list that are named.
struct Listed {
    /// The version in which the kind is served.
    pub(crate) place: Place,
    pub(crate) objects: Vec<(ObjectId, Live)>,
    pub(crate) is_complete: bool,
}

impl<'a> Read<'a> {
    /// The reads for these objects of a place.
    pub(crate) fn all(place: &'a Place, named: Vec<(&'a ObjectId, Option<&'a Object>)>) -> Vec<Self> {
        let read = |named| Self { place, named };
        if named.len() < MANY {
            named.into_iter().map(|one| read(vec![one])).collect()
        } else {
            vec![read(named)]
        }
    }

    /// The reads for what a list of the place ended before.
    pub(crate) fn rest(&self, place: &'a Place, observed: &Observed) -> Vec<Self> {
        let unseen = self.named.iter().filter(|(id, _)| !observed.seen.contains_key(*id));
        let by_name = |one: &(&'a ObjectId, Option<&'a Object>)| Self {
            place,
            named: vec![*one],
        };
        unseen.map(by_name).collect()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &'a ObjectId> {
        self.named.iter().map(|(id, _)| *id)
    }
}

impl Cluster {
    /// The named objects, as far as they exist.
    pub(crate) async fn read(&self, read: &Read<'_>, claimant: Claimant<'_>) -> Result<Found, Error> {
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
            Err(error) if is_not_found(&error) => {
                let listed = self.list(read, claimant.plugin).await?.objects;
                return Ok(listed.into_iter().next().map(|(id, live)| (id, Seen::Ours(live))));
            }
            Err(error) => return Err(error),
        };
        Ok(judged(kind, id, object, &found, claimant))
    }

    /// The named objects with the label of the plugin, in whichever version the kind is served.
    async fn list(&self, read: &Read<'_>, plugin: &str) -> Result<Listed, Error> {
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

    /// The named objects with the label of the plugin. None if the version is not served any more.
    async fn list_version(&self, place: &Place, read: &Read<'_>, plugin: &str) -> Result<Option<Listed>, Error> {
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
                Err(error) if is_not_found(&error) => {
                    self.forget(kind);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            page.retain(|object: &DynamicObject| is_named(&object.metadata));
            objects.extend(page.iter().map(|object| live(kind, object)));
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
    !is_inert(&resource.group, &resource.kind)
}

/// Returns true if the API server has no object of this name. Without the name, the response may be about the kind.
pub(crate) fn is_absent(error: &Error, name: &str) -> bool {
    let Error::Api(status) = error else { return false };
    let named = status.details.as_ref().is_some_and(|details| details.name == name);
    status.code == 404 && named
}

/// From this number of objects of one kind in one namespace on, they are read with a list.
pub(crate) const MANY: usize = 8;

/// An object to look for.
pub(crate) struct Wanted<'a> {
    pub(crate) id: ObjectId,
    /// The version of its group.
    pub(crate) version: &'a str,
    /// Its manifest, if the version of the plugin has it.
    pub(crate) object: Option<&'a Object>,
}

/// Objects of one kind in one namespace.
struct SameKind<'a> {
    kind: Kind,
    wanted: Vec<Wanted<'a>>,
}

impl Cluster {
    /// Returns the existing objects with these names. What is absent does not exist.
    pub(crate) async fn look(
        &self,
        unseen: Vec<Wanted<'_>>,
        claimant: Claimant<'_>,
    ) -> Result<Vec<(ObjectId, Seen)>, Error> {
        let mut places: BTreeMap<(String, String, String, String), SameKind<'_>> = BTreeMap::new();
        for wanted in unseen {
            let Wanted { id, version, .. } = &wanted;
            let Some(kind) = self.kind(&id.group, version, &id.kind).await? else {
                continue;
            };
            let key = (
                id.group.clone(),
                (*version).to_owned(),
                id.kind.clone(),
                id.namespace.clone(),
            );
            let place = places.entry(key).or_insert_with(|| SameKind {
                kind,
                wanted: Vec::new(),
            });
            place.wanted.push(wanted);
        }
        let (many, few): (Vec<_>, Vec<_>) = places.into_values().partition(|place| place.wanted.len() >= MANY);
        let pages = many.into_iter().map(|place| self.pages(place, claimant));
        let (mut seen, mut single) = (Vec::new(), few);
        for page in perform_reads(pages).await {
            match page? {
                Ok(found) => seen.extend(found),
                Err(place) => single.push(place),
            }
        }
        let each = single
            .iter()
            .flat_map(|place| place.wanted.iter().map(|wanted| (&place.kind, wanted)));
        let looks: Vec<_> = each
            .map(|(kind, wanted)| self.look_at(kind, wanted, claimant))
            .collect();
        for found in perform_reads(looks.into_iter()).await {
            seen.extend(found?);
        }
        Ok(seen)
    }

    /// Returns the objects on as many pages of a list as the objects fill; the place when there are more.
    async fn pages<'a>(
        &self,
        place: SameKind<'a>,
        claimant: Claimant<'_>,
    ) -> Result<Result<Vec<(ObjectId, Seen)>, SameKind<'a>>, Error> {
        let SameKind { kind, wanted } = &place;
        let Some(first) = wanted.first() else {
            return Ok(Ok(Vec::new()));
        };
        let by_name: BTreeMap<&str, _> = wanted.iter().map(|wanted| (wanted.id.name.as_str(), wanted)).collect();
        let mut params = ListParams::default().limit(PAGE);
        let mut seen = Vec::new();
        for _ in 0..=wanted.len() / PAGE as usize {
            let page = match self.api(kind, &first.id).list_metadata(&params).await {
                // Each says for itself that it may not be read, or that its kind is not served any more.
                Err(error) if is_forbidden(&error) || is_not_found(&error) => return Ok(Err(place)),
                page => page?,
            };
            seen.extend(page.items.into_iter().filter_map(|item| {
                let wanted = by_name.get(item.metadata.name.as_deref()?)?;
                // One with the label appeared after the list: it is seen with its content at the next pass.
                let found = with_metadata(item.metadata);
                judged(kind, &wanted.id, wanted.object, &found, claimant)
            }));
            params.continue_token = page.metadata.continue_.filter(|next| !next.is_empty());
            if params.continue_token.is_none() {
                return Ok(Ok(seen));
            }
        }
        Ok(Err(place))
    }

    async fn look_at(
        &self,
        kind: &Kind,
        wanted: &Wanted<'_>,
        claimant: Claimant<'_>,
    ) -> Result<Option<(ObjectId, Seen)>, Error> {
        let id = &wanted.id;
        let found = match self.api(kind, id).get_metadata_opt(&path_segment(&id.name)).await {
            Err(error) if is_forbidden(&error) => return Ok(Some((id.clone(), self.unreadable(id, &error)))),
            found => found?,
        };
        Ok(found.and_then(|found| judged(kind, id, wanted.object, &with_metadata(found.metadata), claimant)))
    }
}

/// The owner of the object that was found under a name.
fn judged(
    kind: &Kind,
    id: &ObjectId,
    object: Option<&Object>,
    found: &DynamicObject,
    claimant: Claimant<'_>,
) -> Option<(ObjectId, Seen)> {
    let live = live(kind, found).1;
    let seen = match object {
        Some(object) => claimant.judge(id, object, &found.metadata, live),
        None => claimant.judge_surplus(id, &found.metadata, live)?,
    };
    Some((id.clone(), seen))
}
