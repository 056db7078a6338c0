//! The cluster, as far as a plugin is concerned. Pure.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use super::health::Health;
use super::job::JobState;
use super::object::{Object, ObjectId};
use super::problem::Problem;
use super::release::Release;

/// An object of the plugin in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live {
    pub(super) uid: String,
    pub(super) deleting: bool,
    /// The finalizers, which keep it while it is being deleted.
    pub(super) finalizers: Vec<String>,
    /// The digest of the fields that are ours.
    pub(super) fields: String,
    /// The digest of who wrote which fields when, without the status: it changes with each change by anybody.
    pub(super) writes: String,
    pub(super) health: Health,
    /// Of a job, what became of it.
    pub(super) job: Option<JobState>,
    /// True if fields of it belong to `kubectl apply` without `--server-side`, or to nobody although that applied it.
    pub(super) is_kubectls: bool,
    /// True if `kubectl apply` gave it the label of the plugin, which the manifest had, and not a person who hands it
    /// over.
    pub(super) is_labelled_by_kubectl: bool,
}

impl Live {
    /// An object that is as it was created, and that nothing has to make ready.
    pub(super) fn created(uid: String, fields: String) -> Self {
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
pub(super) enum Claim {
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
pub(super) enum Seen {
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
pub(super) struct Observed {
    /// By kind (group, version, kind), whether it is namespaced. Kinds that the API server does not serve are absent.
    pub(super) kinds: BTreeMap<(String, String, String), bool>,
    /// The existing objects; what is absent does not exist.
    pub(super) seen: BTreeMap<ObjectId, Seen>,
}

impl Observed {
    /// Returns true if the kind of the object is namespaced; None while it is not served.
    pub(super) fn is_namespaced(&self, object: &Object) -> Option<bool> {
        // A plugin has many objects of few kinds: to compare all is less work than to make a key.
        let found = self.kinds.iter().find(|((group, version, kind), _)| {
            *kind == object.id.kind && *group == object.id.group && *version == object.version
        });
        found.map(|(_, namespaced)| *namespaced)
    }

    /// The object in its place; None while its kind is not served.
    pub(super) fn place(&self, object: &Object) -> Option<ObjectId> {
        self.is_namespaced(object)
            .map(|namespaced| object.id.in_scope(namespaced))
    }

    /// The objects of others that have names of the plugin.
    pub(super) fn obstacles(&self) -> impl Iterator<Item = ObjectId> {
        let theirs = |seen: &Seen| matches!(seen, Seen::Foreign | Seen::OtherPlugin(_) | Seen::Unreadable(_));
        let obstacles = self.seen.iter().filter(move |(_, seen)| theirs(seen));
        obstacles.map(|(id, _)| id.clone())
    }

    pub(super) fn ours(&self, id: &ObjectId) -> Option<&Live> {
        match self.seen.get(id)? {
            Seen::Ours(live) => Some(live),
            Seen::Adoptable(..) | Seen::Foreign | Seen::OtherPlugin(_) | Seen::Unreadable(_) => None,
        }
    }
}

/// The objects of the release that are not healthy, and how they are.
pub(super) fn unhealthy<'b>(release: &Release, observed: &'b Observed) -> Vec<(ObjectId, &'b Health)> {
    let objects = release.prerequisites.iter().chain(release.groups.iter().flatten());
    let placed = objects.filter_map(|object| observed.place(object));
    placed
        .filter_map(|id| {
            let health = &observed.ours(&id)?.health;
            (*health != Health::Current).then_some((id, health))
        })
        .collect()
}
