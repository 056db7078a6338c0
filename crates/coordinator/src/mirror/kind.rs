//! The traits of a kind that is mirrored from the cloud.

use k8s_openapi::NamespaceResourceScope;
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{Cluster, Path};
use tidewaiter_cloud::models::values::NodePoolId;
use tidewaiter_cloud::models::{InvalidItem, Kind, Model, NodePool};
use tidewaiter_kit::cache::CacheBuilder;
use tidewaiter_kit::{Cache, Cacheable};
use uuid::Uuid;

use super::brake::FEW;

/// The characters of an id of the cloud.
const ID_LENGTH: usize = 36;

/// The most characters that are shown of what people call an object.
pub(super) const CALLED: usize = 80;

/// A kind that is mirrored: where the cloud lists it, and how an object of the cloud becomes an object of the cluster.
pub(crate) trait MirroredKind: Send + Sync + 'static {
    /// The name in metrics and in the readiness check: `users`.
    const NAME: &'static str;
    /// The name of its controller, under which the API server records the writes: `sync-users`.
    const CONTROLLER: &'static str;
    /// The kinds of the change stream after which it is listed again. The record of deletions names its objects under
    /// one of them, by their ids: deleted ones, and those that left the list of the cluster otherwise.
    const CHANGED: &'static [Kind];
    /// The objects of the cluster that are mirrored.
    const CACHE: CacheOf<Self::Resource>;
    /// The source in the cloud.
    const LISTED: Listed;
    /// The largest number of objects of which more than half may be deleted if the cloud's record names them.
    const FEW: usize = FEW;
    /// True if only a person releases deletions that the brake holds, because they cannot be undone or nobody can work
    /// meanwhile.
    const IS_RELEASED_BY_PERSON: bool = false;
    /// The finalizer by which a controller of ours keeps a deleted resource until it has finished its work.
    const FINALIZER: Option<&'static str> = None;
    /// The most characters that are shown of what people call an object.
    const CALLED: usize = CALLED;
    /// True if its last list is stored, so that objects are restored and corrected by it when the coordinator starts
    /// without the cloud.
    const STORED: bool = true;
    /// The object in the cloud's list.
    type Object: Model + Send;
    /// The object in the cluster.
    type Resource: Cacheable + Serialize + DeserializeOwned + PartialEq;

    /// Returns true if the object can be in the list of `source`. A response with an object of another cluster or
    /// organization is refused whole.
    fn belongs(&self, _object: &Self::Object, _source: &Source) -> bool {
        true
    }

    /// Sees each complete list of the cloud, which may say more than what is mirrored.
    fn sees(&self, _objects: &[Result<Self::Object, InvalidItem>]) {}

    /// The name of the resource that an object of the cloud becomes, which [`Self::resource`] must give it.
    fn name(id: Uuid) -> String {
        id.to_string()
    }

    /// Returns true if an object of the cloud can have the resource of this name.
    fn is_name(name: &str) -> bool {
        let id = name.len().checked_sub(ID_LENGTH).and_then(|start| name.get(start..));
        id.and_then(|id| id.parse().ok())
            .is_some_and(|id| Self::name(id) == name)
    }

    /// The resource of the object; `None` when it is not mirrored.
    fn resource(&self, object: Self::Object) -> Option<Self::Resource>;

    /// The name of the resource that must not exist although the cloud lists the object, so that the brake does not
    /// protect it.
    fn unmirrored(&self, _object: &Self::Object) -> Option<String> {
        None
    }

    /// The items in the list of a source.
    fn items(&self, _source: &Source, objects: Vec<Result<Self::Object, InvalidItem>>) -> Items<Self::Resource> {
        let mut items = Items::default();
        for object in objects {
            match object {
                Ok(object) => {
                    items.unmirrored.extend(self.unmirrored(&object));
                    items.desired.extend(self.resource(object));
                }
                Err(invalid) => items.refused.push(Refused::new(invalid.id.map(Self::name), &invalid)),
            }
        }
        items
    }

    /// The scope of a resource: what a single list of the cloud contains, if the kind has several.
    fn scope(&self, _resource: &Self::Resource) -> String {
        String::new()
    }

    /// The right that a resource gives: a list that lacks most of the kind, and is held, changes none.
    fn gives(&self, _resource: &Self::Resource) -> String {
        String::new()
    }

    /// The display name of the resource; empty if they know it by its id alone.
    fn called(&self, _resource: &Self::Resource) -> String {
        String::new()
    }

    /// Returns true if the resource is created where it is missing.
    fn creates(&self, _resource: &Self::Resource) -> bool {
        true
    }

    /// The reason why nothing acts on an object that somebody expects to be acted on, and the remedy.
    fn idle(&self, _resource: &Self::Resource) -> Option<String> {
        None
    }

    /// Returns true if an object of the cluster is one that the mirror may change and delete.
    fn ours(&self, _resource: &Self::Resource) -> bool {
        true
    }
}

/// A cache of the objects of a kind.
pub(crate) type CacheOf<R> = fn(Client) -> CacheBuilder<R>;

/// The objects in the namespace of the custom resources.
pub(super) fn in_core<R>(reader: Client) -> CacheBuilder<R>
where
    R: Cacheable + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
{
    Cache::namespaced(reader, CONTAINERSHIP_NAMESPACE)
}

/// The source of a kind.
pub(crate) enum Listed {
    /// In one list.
    At(fn(Cluster) -> Path),
    /// In one list for each node pool.
    OfEachPool(fn(Cluster, NodePoolId) -> Path),
}

/// The subject of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    pub(crate) cluster: Cluster,
    /// The node pool, if the kind is listed for each pool.
    pub(crate) pool: Option<NodePool>,
}

impl Source {
    /// Returns true if the list is that of this node pool.
    pub(crate) fn is_of_pool(&self, id: NodePoolId) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.id == id)
    }
}

/// The items of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Items<R> {
    /// The mirrored resources.
    pub(crate) desired: Vec<R>,
    /// The malformed objects.
    pub(crate) refused: Vec<Refused>,
    /// The names of resources that must not exist although the cloud has the objects.
    pub(crate) unmirrored: Vec<String>,
}

impl<R> Default for Items<R> {
    fn default() -> Self {
        Self {
            desired: Vec::new(),
            refused: Vec::new(),
            unmirrored: Vec::new(),
        }
    }
}

/// The metadata of a resource in the namespace of the custom resources.
pub(super) fn named(id: &impl ToString) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(CONTAINERSHIP_NAMESPACE.to_owned()),
        ..cluster_scoped(id)
    }
}

/// The resource with the finalizer of the controller that removes the objects which it makes of the resource.
pub(super) fn kept(id: &impl ToString, finalizer: &str) -> ObjectMeta {
    ObjectMeta {
        finalizers: Some(vec![finalizer.to_owned()]),
        ..named(id)
    }
}

/// The metadata of a cluster-scoped resource.
pub(super) fn cluster_scoped(id: &impl ToString) -> ObjectMeta {
    ObjectMeta {
        name: Some(id.to_string()),
        ..ObjectMeta::default()
    }
}

/// The display name, of at most `most` characters, with the name of the resource. Members of the cloud choose display
/// names freely, and terminals print them.
pub(crate) fn with_name(called: &str, most: usize, name: &str) -> String {
    let called: String = called.trim().chars().take(most).collect();
    if called.is_empty() {
        name.to_owned()
    } else {
        format!("{} ({name})", printable(&called))
    }
}

/// Returns true if a name is an id of the cloud. People give their objects other names.
#[must_use]
pub fn is_id(name: &str) -> bool {
    name.parse::<Uuid>().is_ok()
}

/// An object of the cloud that is not mirrored because it is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The name that it would have; None when not even its id can be read.
    pub(crate) name: Option<String>,
    /// The problem, without its values where those may be secret.
    pub(crate) reason: String,
}

impl Refused {
    /// Of the resource that would have this name.
    pub(crate) fn new(name: Option<String>, invalid: &InvalidItem) -> Self {
        Self {
            name,
            reason: invalid.error.to_string(),
        }
    }
}
