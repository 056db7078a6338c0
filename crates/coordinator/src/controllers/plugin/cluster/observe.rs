//! Finds what there is of a plugin: one list for each kind, and a look at each object that no list shows. In a namespace that does not exist, there is
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use kube::Error;

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
        plugin: &str,
        release: &Release,
        record: &Record,
    ) -> Result<(Observed, Vec<Place>), Error> {
        let mut observed = Observed::default();
        let expected = self.expected(release, record, &mut observed).await?;
        let namespaces = new_namespaces(release, record, &observed);
        let found = self.look(namespaces.clone(), plugin).await?;
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
        let found = self.look(unseen, plugin).await?;
        observed.seen.extend(found);
        Ok((observed, expected.into_iter().map(|expected| expected.place).collect()))
    }

    /// A cluster that has nothing of the release, but serves its kinds.
    pub(in crate::controllers::plugin) async fn nothing_of(&self, release: &Release) -> Result<Observed, Error> {
        let mut observed = Observed::default();
        self.expected(release, &Record::default(), &mut observed).await?;
        Ok(observed)
    }

    /// Where the objects of the release and of the record may be. Fills the kinds of `observed`.
    async fn expected(
        &self,
        release: &Release,
        record: &Record,
        observed: &mut Observed,
    ) -> Result<Vec<Expected>, Error> {
        let of_release = release.all().map(|object| (&object.id, object.version.as_str()));
        let of_record = record.objects().map(|(id, applied)| (id, applied.version.as_str()));
        let all: Vec<_> = of_release.chain(of_record).collect();
        let named = |(id, version): &(&ObjectId, &str)| (id.group.clone(), (*version).to_owned(), id.kind.clone());
        let wanted: BTreeSet<_> = release
            .all()
            .map(|object| named(&(&object.id, &object.version)))
            .collect();
        let mut kinds = BTreeMap::new();
        for key in all.iter().map(named).collect::<BTreeSet<_>>() {
            let kind = if wanted.contains(&key) {
                self.kind(&key.0, &key.1, &key.2).await?
            } else {
                self.kind_in_any_version(&key.0, &key.1, &key.2).await?
            };
            let Some(kind) = kind else { continue };
            if wanted.contains(&key) {
                observed.kinds.insert(key.clone(), kind.namespaced);
            }
            kinds.insert(key, kind);
        }
        let mut expected = BTreeMap::new();
        for object in &all {
            let key = named(object);
            let Some(kind) = kinds.get(&key) else { continue };
            let id = object.0.in_scope(kind.namespaced);
            let namespace = (self.account.is_some() && kind.namespaced).then(|| id.namespace.clone());
            let new = || Expected {
                place: Place {
                    kind: kind.clone(),
                    namespace: namespace.clone(),
                },
                ids: Vec::new(),
            };
            expected
                .entry((key, namespace.clone()))
                .or_insert_with(new)
                .ids
                .push(id);
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
