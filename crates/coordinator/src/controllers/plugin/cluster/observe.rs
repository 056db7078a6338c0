//! The cluster, as far as a plugin is concerned: the objects that its version and its inventory name, who has them, and
//! the objects that the version may not have there. In a namespace that does not exist, there is nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use kube::Error;

use super::apply::perform_reads;
use super::claim::Claimant;
use super::health::{Health, JobState};
use super::read::{Read, Wanted};
use super::{Cluster, Place};
use crate::controllers::plugin::desired::{Object, ObjectId, Record, Refused, Release, refused};
use crate::controllers::plugin::report::Problem;

/// An object of the plugin in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Live {
    pub(crate) uid: String,
    pub(crate) deleting: bool,
    /// The finalizers, which keep it while it is being deleted.
    pub(crate) finalizers: Vec<String>,
    /// The digest of the fields that are ours.
    pub(crate) fields: String,
    /// The digest of who wrote which fields when, without the status: it changes with each change by anybody.
    pub(crate) writes: String,
    pub(crate) health: Health,
    /// Of a job, what became of it.
    pub(crate) job: Option<JobState>,
    /// True if fields of it belong to `kubectl apply` without `--server-side`, or to nobody although that applied it.
    pub(crate) is_kubectls: bool,
    /// True if `kubectl apply` gave it the label of the plugin, which the manifest had, and not a person who hands it
    /// over.
    pub(crate) is_labelled_by_kubectl: bool,
}

impl Live {
    /// An object that is as it was created, and that nothing has to make ready.
    pub(crate) fn created(uid: String, fields: String) -> Self {
        Self {
            uid,
            deleting: false,
            finalizers: Vec::new(),
            fields,
            writes: String::new(),
            health: Health::Current,
            job: None,
            is_kubectls: false,
            is_labelled_by_kubectl: false,
        }
    }
}

/// The reason why an object without the label of the plugin becomes the plugin's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The plugin applied it, and somebody took the label off.
    Unlabelled,
    /// It has the label of this plugin, which does not exist any more.
    Orphan(String),
    /// `kubectl apply` made it from the same manifest, as the Go coordinator does.
    Inherited,
}

impl Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlabelled => f.write_str("its label was taken off"),
            Self::Orphan(plugin) => write!(f, "it was left by plugin {plugin}, which does not exist any more"),
            Self::Inherited => f.write_str("kubectl apply made it from the same manifest, as the Go coordinator does"),
        }
    }
}

/// The object that occupies a name of the plugin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    /// An object with the label of the plugin.
    Ours(Live),
    /// An object without it that becomes the plugin's. It is not deleted before.
    Adoptable(Live, Claim),
    /// An object of somebody else.
    Foreign,
    /// An object with the label of this other plugin.
    OtherPlugin(String),
    /// It may not be read, so nothing is known of it.
    Unreadable(Problem),
}

/// The cluster, as far as the plugin is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// By kind (group, version, kind), whether it is namespaced. Kinds that the API server does not serve are absent.
    pub(crate) kinds: BTreeMap<(String, String, String), bool>,
    /// The existing objects; what is absent does not exist.
    pub(crate) seen: BTreeMap<ObjectId, Seen>,
}

impl Observed {
    /// Returns true if the kind of the object is namespaced; None while it is not served.
    pub(crate) fn is_namespaced(&self, object: &Object) -> Option<bool> {
        // A plugin has many objects of few kinds: to compare all is less work than to make a key.
        let found = self.kinds.iter().find(|((group, version, kind), _)| {
            *kind == object.id.kind && *group == object.id.group && *version == object.version
        });
        found.map(|(_, namespaced)| *namespaced)
    }

    /// True for a namespaced kind, as the API server says, or the definition that comes with the object. None if
    /// neither knows the kind.
    fn scope(&self, object: &Object, release: &Release) -> Option<bool> {
        self.is_namespaced(object).or_else(|| {
            let mut defined = release.defined.iter();
            let of_kind = defined.find(|it| it.group == object.id.group && it.kind == object.id.kind);
            of_kind.map(|it| it.namespaced)
        })
    }

    /// The object in its place; None while its kind is not served.
    pub(crate) fn place(&self, object: &Object) -> Option<ObjectId> {
        self.is_namespaced(object)
            .map(|namespaced| object.id.in_scope(namespaced))
    }

    /// The objects of others that have names of the plugin.
    pub(crate) fn obstacles(&self) -> impl Iterator<Item = ObjectId> {
        let theirs = |seen: &Seen| matches!(seen, Seen::Foreign | Seen::OtherPlugin(_) | Seen::Unreadable(_));
        let obstacles = self.seen.iter().filter(move |(_, seen)| theirs(seen));
        obstacles.map(|(id, _)| id.clone())
    }

    pub(crate) fn ours(&self, id: &ObjectId) -> Option<&Live> {
        match self.seen.get(id)? {
            Seen::Ours(live) => Some(live),
            Seen::Adoptable(..) | Seen::Foreign | Seen::OtherPlugin(_) | Seen::Unreadable(_) => None,
        }
    }
}

/// The objects of the release that are not healthy, and how they are.
pub(crate) fn unhealthy<'b>(release: &Release, observed: &'b Observed) -> Vec<(ObjectId, &'b Health)> {
    let objects = release.prerequisites.iter().chain(release.groups.iter().flatten());
    let placed = objects.filter_map(|object| observed.place(object));
    placed
        .filter_map(|id| {
            let health = &observed.ours(&id)?.health;
            (*health != Health::Current).then_some((id, health))
        })
        .collect()
}

/// The named objects of a kind in a namespace, each with its manifest if the version has it.
struct Expected<'a> {
    place: Place,
    ids: BTreeMap<ObjectId, Option<&'a Object>>,
}

impl Cluster {
    /// Observes the objects of the release and of the record of the plugin, with their places.
    pub(crate) async fn observe(
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
            let named = ids.iter().map(|(id, object)| (id, *object));
            Read::all(place, named.filter(|(id, _)| may_exist(id)).collect())
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
        for found in perform_reads(requests).await {
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

    pub(crate) fn unreadable(&self, id: &ObjectId, error: &Error) -> Seen {
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

/// Refuses cluster-scoped objects that differ in nothing but a namespace, which has no meaning for them.
pub(crate) fn check_scope(release: &Release, observed: &Observed) -> Result<(), Refused> {
    let mut known = BTreeSet::new();
    let mut all = release.all();
    let twice =
        all.find(|object| observed.scope(object, release) == Some(false) && !known.insert(object.id.in_scope(false)));
    twice.map_or(Ok(()), |object| {
        let why = "is there twice, because its kind is cluster-scoped: leave out one of them, and metadata.namespace";
        Err(refused(object.id.to_string(), why))
    })
}
