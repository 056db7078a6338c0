//! Finds what there is of a plugin: one list for each kind, and a look at each object that no list shows. In a namespace that does not exist, there is
//! nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use kube::Error;

use super::super::claim::Claimant;
use super::super::object::{Object, ObjectId};
use super::super::observed::{Observed, Seen};
use super::super::problem::Problem;
use super::super::record::Record;
use super::super::release::Release;
use super::super::requests;
use super::{Cluster, Place, is_forbidden};

/// What is to be found in a place: objects that may be there.
struct Expected {
    place: Place,
    ids: Vec<ObjectId>,
}

impl Cluster {
    /// What there is of the release and of the record of the plugin, and where that is.
    pub(in crate::controllers::plugin) async fn observe(
        &self,
        release: &Release,
        claimant: Claimant<'_>,
    ) -> Result<(Observed, Vec<Place>), Error> {
        let Claimant { plugin, record, .. } = claimant;
        let mut observed = Observed::default();
        let expected = self.expected(release, record, &mut observed).await?;
        let namespaces = new_namespaces(release, record, &observed);
        let found = self.look(namespaces.clone(), claimant).await?;
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
        let listing = expected
            .iter()
            .filter(|expected| expected.ids.iter().any(may_exist))
            .map(|expected| self.list_or_refusal(expected, plugin, release));
        for list in requests::read(listing).await {
            observed.seen.extend(list?);
        }
        let placed = release
            .all()
            .filter_map(|object| Some((observed.place(object)?, object)));
        let unseen = placed
            .filter(|(id, _)| !observed.seen.contains_key(id) && may_exist(id))
            .collect();
        let found = self.look(unseen, claimant).await?;
        observed.seen.extend(found);
        Ok((observed, expected.into_iter().map(|expected| expected.place).collect()))
    }

    /// Where the objects of the release and of the record may be. Fills the kinds of `observed`.
    async fn expected(
        &self,
        release: &Release,
        record: &Record,
        observed: &mut Observed,
    ) -> Result<Vec<Expected>, Error> {
        let of_release = release.all().map(|object| (&object.id, object.version.as_str(), true));
        let of_record = record
            .objects()
            .map(|(id, applied)| (id, applied.version.as_str(), false));
        let (mut kinds, mut expected) = (BTreeMap::new(), BTreeMap::new());
        for (id, version, wanted) in of_release.chain(of_record) {
            let key = (id.group.as_str(), version, id.kind.as_str());
            if let Entry::Vacant(unknown) = kinds.entry(key) {
                let kind = if wanted {
                    self.kind(&id.group, version, &id.kind).await?
                } else {
                    self.kind_in_any_version(&id.group, version, &id.kind).await?
                };
                if let Some(kind) = kind.as_ref().filter(|_| wanted) {
                    let named = (id.group.clone(), version.to_owned(), id.kind.clone());
                    observed.kinds.insert(named, kind.namespaced);
                }
                unknown.insert(kind);
            }
            let Some(Some(kind)) = kinds.get(&key) else { continue };
            let id = id.in_scope(kind.namespaced);
            let namespace = (self.account.is_some() && kind.namespaced).then(|| id.namespace.clone());
            let place = expected
                .entry((key, namespace))
                .or_insert_with_key(|(_, namespace)| Expected {
                    place: Place {
                        kind: kind.clone(),
                        namespace: namespace.clone(),
                    },
                    ids: Vec::new(),
                });
            place.ids.push(id);
        }
        Ok(expected.into_values().collect())
    }

    /// What is in the place, or that nothing of it may be read.
    async fn list_or_refusal(
        &self,
        expected: &Expected,
        plugin: &str,
        release: &Release,
    ) -> Result<Vec<(ObjectId, Seen)>, Error> {
        let resource = &expected.place.kind.resource;
        let check = release.health_check(&resource.group, &resource.version, &resource.kind);
        match self.list(&expected.place, plugin, check).await {
            Ok(found) => Ok(found.into_iter().map(|(id, live)| (id, Seen::Ours(live))).collect()),
            Err(error) if is_forbidden(&error) => {
                let unreadable = |id: &ObjectId| (id.clone(), self.unreadable(id, &error));
                Ok(expected.ids.iter().map(unreadable).collect())
            }
            Err(error) => Err(error),
        }
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
