//! What has the name of an object that the lists of a plugin do not show, whoever owns it.
//!
//! Many objects of one kind in one namespace are looked for in one page of a list, unless others have too many there: a plugin of 500
//! objects would ask 500 times before it creates them. Only metadata is read.

use std::collections::{BTreeMap, BTreeSet};

use kube::Error;
use kube::api::ListParams;
use kube::core::ObjectMeta;
use tidewaiter_api::names::PLUGIN_LABEL;

use super::cluster::{Cluster, Kind, is_forbidden, live, with_metadata};
use super::object::{Object, ObjectId};
use super::observed::Seen;
use super::requests;

/// From this number of objects on, a list is asked for.
const MANY: usize = 8;
/// Objects in the page.
const PAGE: u32 = 500;

/// Objects of one kind in one namespace.
struct Place {
    kind: Kind,
    ids: Vec<ObjectId>,
}

impl Cluster {
    /// What has these names. What is absent does not exist.
    pub(super) async fn look(
        &self,
        unseen: Vec<(ObjectId, &Object)>,
        plugin: &str,
    ) -> Result<Vec<(ObjectId, Seen)>, Error> {
        let mut places: BTreeMap<(String, String, String, String), Place> = BTreeMap::new();
        for (id, object) in unseen {
            let Some(kind) = self.kind(&id.group, &object.version, &id.kind).await? else {
                continue;
            };
            let key = (
                id.group.clone(),
                object.version.clone(),
                id.kind.clone(),
                id.namespace.clone(),
            );
            let place = places.entry(key).or_insert_with(|| Place { kind, ids: Vec::new() });
            place.ids.push(id);
        }
        let (many, few): (Vec<Place>, Vec<Place>) = places.into_values().partition(|place| place.ids.len() >= MANY);
        let pages = many.into_iter().map(|place| self.page(place, plugin));
        let (mut seen, mut single) = (Vec::new(), few);
        for page in requests::read(pages).await {
            match page? {
                Ok(found) => seen.extend(found),
                Err(place) => single.push(place),
            }
        }
        let each = single
            .iter()
            .flat_map(|place| place.ids.iter().map(|id| (&place.kind, id)));
        let looks: Vec<_> = each.map(|(kind, id)| self.look_at(kind, id, plugin)).collect();
        for found in requests::read(looks.into_iter()).await {
            seen.extend(found?);
        }
        Ok(seen)
    }

    /// What one page of a list shows; the place when there are more pages.
    async fn page(&self, place: Place, plugin: &str) -> Result<Result<Vec<(ObjectId, Seen)>, Place>, Error> {
        let Place { kind, ids } = &place;
        let Some(first) = ids.first() else {
            return Ok(Ok(Vec::new()));
        };
        let one_page = ListParams::default().limit(PAGE);
        let page = match self.api(kind, first).list_metadata(&one_page).await {
            // Each says for itself that it may not be read.
            Err(error) if is_forbidden(&error) => return Ok(Err(place)),
            page => page?,
        };
        if page.metadata.continue_.is_some_and(|next| !next.is_empty()) {
            return Ok(Err(place));
        }
        let wanted: BTreeSet<&str> = ids.iter().map(|id| id.name.as_str()).collect();
        let found = page.items.into_iter().filter_map(|item| {
            let name = item
                .metadata
                .name
                .clone()
                .filter(|name| wanted.contains(name.as_str()))?;
            let id = ObjectId { name, ..first.clone() };
            Some(seen_as(kind, id, item.metadata, plugin))
        });
        Ok(Ok(found.collect()))
    }

    async fn look_at(&self, kind: &Kind, id: &ObjectId, plugin: &str) -> Result<Option<(ObjectId, Seen)>, Error> {
        let found = match self.api(kind, id).get_metadata_opt(&id.name).await {
            Err(error) if is_forbidden(&error) => return Ok(Some((id.clone(), self.unreadable(id, &error)))),
            found => found?,
        };
        Ok(found.map(|found| seen_as(kind, id.clone(), found.metadata, plugin)))
    }
}

fn seen_as(kind: &Kind, id: ObjectId, metadata: ObjectMeta, plugin: &str) -> (ObjectId, Seen) {
    let owner = metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(PLUGIN_LABEL))
        .cloned();
    let seen = match owner {
        // It appeared after the list: with its content, at the next pass.
        Some(owner) if owner == plugin => Seen::Ours(live(kind, &with_metadata(metadata), None).1),
        Some(owner) => Seen::OtherPlugin(owner),
        None => Seen::Foreign,
    };
    (id, seen)
}
