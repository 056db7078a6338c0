//! Finds what there is of a plugin: the objects that its version and its inventory name. In a namespace that does not
//! exist, there is nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use kube::Error;

use super::super::claim::Claimant;
use super::super::look::Wanted;
use super::super::object::{Object, ObjectId};
use super::super::observed::{Observed, Seen};
use super::super::problem::Problem;
use super::super::record::Record;
use super::super::release::Release;
use super::super::requests;
use super::read::Read;
use super::{Cluster, Place};

/// The named objects of a kind in a namespace, each with its manifest if the version has it.
struct Expected<'a> {
    place: Place,
    ids: BTreeMap<ObjectId, Option<&'a Object>>,
}

impl Cluster {
    /// Observes the objects of the release and of the record of the plugin, with their places.
    pub(in crate::controllers::plugin) async fn observe(
        &self,
        release: &Release,
        claimant: Claimant<'_>,
    ) -> Result<(Observed, Vec<Place>), Error> {
        let record = claimant.record;
        let mut observed = Observed::default();
        let expected = self.expected(release, record, &mut observed).await?;
        let namespaces = new_namespaces(release, record, &observed);
        let wanted = namespaces.iter().map(|(id, object)| Wanted {
            id: id.clone(),
            version: &object.version,
            object: Some(object),
        });
        let found = self.look(wanted.collect(), claimant).await?;
        observed.seen.extend(found);
        let absent: BTreeSet<&str> = namespaces
            .iter()
            .filter(|(id, _)| !observed.seen.contains_key(id))
            .map(|(id, _)| id.name.as_str())
            .collect();
        let may_exist = |id: &ObjectId| {
            let namespace = if id.is_namespace() { &id.name } else { &id.namespace };
            !absent.contains(namespace.as_str())
        };
        let reads = expected.iter().flat_map(|Expected { place, ids }| {
            let resource = &place.kind.resource;
            let check = release.health_check(&resource.group, &resource.version, &resource.kind);
            let named = ids.iter().map(|(id, object)| (id, *object));
            Read::all(place, check, named.filter(|(id, _)| may_exist(id)).collect())
        });
        let reads: Vec<Read<'_>> = reads.collect();
        let incomplete = self.read_all(&reads, claimant, &mut observed).await?;
        let rest = incomplete.iter().flat_map(|(place, read)| read.rest(place, &observed));
        let rest: Vec<Read<'_>> = rest.collect();
        self.read_all(&rest, claimant, &mut observed).await?;
        // A list by the label does not show what others have, or what has lost the label. What was read by its name and
        // not found does not exist.
        let by_name: BTreeSet<&ObjectId> = rest.iter().flat_map(Read::ids).collect();
        let listed = reads.iter().filter(|read| read.named.len() > 1);
        let unseen = listed.flat_map(|read| &read.named).filter(|(id, object)| {
            let may_be_left = object.is_some() || record.applied(id).is_some();
            may_be_left && !by_name.contains(id) && !observed.seen.contains_key(*id)
        });
        let unseen = unseen.filter_map(|(id, object)| {
            let version = object.map_or_else(|| record.version(id), |object| Some(object.version.as_str()))?;
            Some(Wanted {
                id: (*id).clone(),
                version,
                object: *object,
            })
        });
        let unseen = unseen.collect();
        let found = self.look(unseen, claimant).await?;
        observed.seen.extend(found);
        Ok((observed, expected.into_iter().map(|expected| expected.place).collect()))
    }

    /// Performs the reads, and returns those whose list is incomplete, with their places.
    async fn read_all<'a, 'b>(
        &self,
        reads: &'b [Read<'a>],
        claimant: Claimant<'_>,
        observed: &mut Observed,
    ) -> Result<Vec<(Place, &'b Read<'a>)>, Error> {
        let requests = reads
            .iter()
            .map(|read| async move { self.read(read, claimant).await.map(|found| (read, found)) });
        let mut incomplete = Vec::new();
        for found in requests::read(requests).await {
            let (read, found) = found?;
            observed.seen.extend(found.seen);
            incomplete.extend(found.incomplete.map(|place| (place, read)));
        }
        Ok(incomplete)
    }

    /// The places in which the objects of the release and of the record may be. Fills the kinds of `observed`.
    async fn expected<'a>(
        &self,
        release: &'a Release,
        record: &'a Record,
        observed: &mut Observed,
    ) -> Result<Vec<Expected<'a>>, Error> {
        let of_release = release
            .all()
            .map(|object| (&object.id, object.version.as_str(), Some(object)));
        let of_record = record
            .objects()
            .map(|(id, applied)| (id, applied.version.as_str(), None));
        let (mut kinds, mut expected) = (BTreeMap::new(), BTreeMap::new());
        for (id, version, object) in of_release.chain(of_record) {
            let key = (id.group.as_str(), version, id.kind.as_str());
            if let Entry::Vacant(unknown) = kinds.entry(key) {
                let kind = if object.is_some() {
                    self.kind(&id.group, version, &id.kind).await?
                } else {
                    self.kind_in_any_version(&id.group, version, &id.kind).await?
                };
                if let Some(kind) = kind.as_ref().filter(|_| object.is_some()) {
                    let named = (id.group.clone(), version.to_owned(), id.kind.clone());
                    observed.kinds.insert(named, kind.namespaced);
                }
                unknown.insert(kind);
            }
            let Some(Some(kind)) = kinds.get(&key) else { continue };
            let id = id.in_scope(kind.namespaced);
            let namespace = kind.namespaced.then(|| id.namespace.clone());
            let place = expected
                .entry((key, namespace))
                .or_insert_with_key(|(_, namespace)| Expected {
                    place: Place {
                        kind: kind.clone(),
                        namespace: namespace.clone(),
                    },
                    ids: BTreeMap::new(),
                });
            place.ids.entry(id).or_insert(object);
        }
        Ok(expected.into_values().collect())
    }

    pub(in crate::controllers::plugin) fn unreadable(&self, id: &ObjectId, error: &Error) -> Seen {
        Seen::Unreadable(Problem::failed("read", id, error, self.account.as_ref()))
    }
}

/// The namespaces of the release that were not applied yet.
fn new_namespaces<'a>(release: &'a Release, record: &Record, observed: &Observed) -> Vec<(ObjectId, &'a Object)> {
    let placed = release
        .prerequisites
        .iter()
        .filter_map(|object| Some((observed.place(object)?, object)));
    placed
        .filter(|(id, _)| id.is_namespace() && record.applied(id).is_none())
        .collect()
}
