//! Reads the occupants of the names of a plugin's objects that the lists of the plugin do not show, no matter who owns
//! them.
//!
//! Many objects of one kind in one namespace are looked for in a few pages of a list, unless others have too many
//! there: a plugin of 500 objects would ask 500 times before it creates them. Only metadata is read.

use std::collections::BTreeMap;

use kube::Error;
use kube::api::ListParams;
use kube::core::ObjectMeta;
use tidewaiter_kit::client::path_segment;

use super::claim::Claimant;
use super::cluster::{Cluster, Kind, PAGE, is_forbidden, is_not_found, live, with_metadata};
use super::object::{Object, ObjectId};
use super::observed::Seen;
use super::requests;

/// From this number of objects of one kind in one namespace on, they are read with a list.
pub(super) const MANY: usize = 8;

/// An object to look for.
pub(super) struct Wanted<'a> {
    pub(super) id: ObjectId,
    /// The version of its group.
    pub(super) version: &'a str,
    /// Its manifest, if the version of the plugin has it.
    pub(super) object: Option<&'a Object>,
}

/// Objects of one kind in one namespace.
struct Place<'a> {
    kind: Kind,
    wanted: Vec<Wanted<'a>>,
}

impl Cluster {
    /// Returns the existing objects with these names. What is absent does not exist.
    pub(super) async fn look(
        &self,
        unseen: Vec<Wanted<'_>>,
        claimant: Claimant<'_>,
    ) -> Result<Vec<(ObjectId, Seen)>, Error> {
        let mut places: BTreeMap<(String, String, String, String), Place<'_>> = BTreeMap::new();
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
            let place = places.entry(key).or_insert_with(|| Place {
                kind,
                wanted: Vec::new(),
            });
            place.wanted.push(wanted);
        }
        let (many, few): (Vec<_>, Vec<_>) = places.into_values().partition(|place| place.wanted.len() >= MANY);
        let pages = many.into_iter().map(|place| self.pages(place, claimant));
        let (mut seen, mut single) = (Vec::new(), few);
        for page in requests::read(pages).await {
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
        for found in requests::read(looks.into_iter()).await {
            seen.extend(found?);
        }
        Ok(seen)
    }

    /// Returns the objects on as many pages of a list as the objects fill; the place when there are more.
    async fn pages<'a>(
        &self,
        place: Place<'a>,
        claimant: Claimant<'_>,
    ) -> Result<Result<Vec<(ObjectId, Seen)>, Place<'a>>, Error> {
        let Place { kind, wanted } = &place;
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
                seen_as(kind, wanted, item.metadata, claimant)
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
        Ok(found.and_then(|found| seen_as(kind, wanted, found.metadata, claimant)))
    }
}

fn seen_as(
    kind: &Kind,
    Wanted { id, object, .. }: &Wanted<'_>,
    metadata: ObjectMeta,
    claimant: Claimant<'_>,
) -> Option<(ObjectId, Seen)> {
    // One with the label appeared after the list: it is seen with its content at the next pass.
    let found = with_metadata(metadata);
    let live = live(kind, &found, None).1;
    let seen = match object {
        Some(object) => claimant.judge(id, object, &found.metadata, live),
        None => claimant.judge_surplus(id, &found.metadata, live)?,
    };
    Some((id.clone(), seen))
}
