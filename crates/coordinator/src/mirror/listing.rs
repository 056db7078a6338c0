//! The cloud's list for one kind, as it would be in the cluster. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewaiter_cloud::client::ETag;
use tidewaiter_cloud::models::InvalidItem;
use tidewaiter_kit::Key;
use tidewaiter_signature::sha256;

use super::cloud_list::Specs;
use super::kind::{Items, MirroredKind, Refused, Source};

/// The characters of a revision: enough to tell two lists of one cluster apart, few enough to type.
const REVISION_LENGTH: usize = 12;

/// A complete response: a list of the cloud, translated.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part<R> {
    /// The version of the list in the cloud.
    pub(super) etag: Option<ETag>,
    /// The subject of the list.
    pub(super) source: Source,
    items: Items<R>,
}

/// Everything that the cloud lists for one kind.
#[derive(Clone, Debug)]
pub(super) struct Listing<R> {
    /// The well-formed objects, each name once.
    pub(super) desired: BTreeMap<Key, R>,
    /// The others. What the cluster has of them is kept as it is.
    pub(super) refused: Vec<Refused>,
    /// The names of objects that the cluster does not get although the cloud has them.
    pub(super) unmirrored: BTreeSet<String>,
    /// Names these contents for a person who releases what the brake holds.
    pub(super) revision: String,
}

/// The response is not the list that was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the response is not the list that was requested: it contains an object of another cluster or organization, or an incomplete one"
)]
pub(crate) struct Foreign;

impl<R: kube::Resource> Part<R> {
    /// # Errors
    /// [`Foreign`] when the list is not that of `source`.
    pub(super) fn new<K: MirroredKind<Resource = R>>(
        kind: &K,
        source: Source,
        objects: Vec<Result<K::Object, InvalidItem>>,
        etag: Option<ETag>,
    ) -> Result<Self, Foreign> {
        if objects.iter().flatten().any(|object| !kind.belongs(object, &source)) {
            return Err(Foreign);
        }
        kind.sees(&objects);
        let items = kind.items(&source, objects);
        Ok(Self { etag, source, items })
    }
}

impl<R: kube::Resource + Clone> Listing<R> {
    /// All parts of a kind together, and what is malformed besides. An id that occurs twice is malformed: which of the
    /// two is meant cannot be known.
    pub(super) fn of<'a>(kind: &str, parts: impl IntoIterator<Item = &'a Part<R>>, mut refused: Vec<Refused>) -> Self
    where
        R: 'a,
    {
        let (mut desired, mut twice, mut unmirrored) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut etags = String::new();
        for part in parts {
            refused.extend(part.items.refused.iter().cloned());
            unmirrored.extend(part.items.unmirrored.iter().cloned());
            etags.extend(part.etag.iter().map(ETag::to_string));
            etags.push('\n');
            for resource in &part.items.desired {
                let key = Key::of(resource);
                if desired.insert(key.clone(), resource.clone()).is_some() {
                    twice.insert(key);
                }
            }
        }
        for key in twice {
            desired.remove(&key);
            refused.push(Refused {
                name: Some(key.name().to_owned()),
                reason: "its id occurs twice in the list".to_owned(),
            });
        }
        let revision = revision(kind, &etags, &desired);
        Self {
            desired,
            refused,
            unmirrored,
            revision,
        }
    }

    /// The listing that an earlier process stored. It has no revision: nothing is released of it.
    pub(super) fn stored(list: &Specs<R>) -> Self {
        let objects = list
            .values()
            .flatten()
            .map(|object| (Key::of(&**object), (**object).clone()));
        Self {
            desired: objects.collect(),
            refused: Vec::new(),
            unmirrored: BTreeSet::new(),
            revision: String::new(),
        }
    }

    /// Returns true if the list contains the object, well-formed or not.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.desired.contains_key(key) || self.refuses(key.name())
    }

    /// Returns true if the cloud has the object, and the cluster does not get it.
    pub(super) fn is_unmirrored(&self, name: &str) -> bool {
        self.unmirrored.contains(name)
    }

    /// Returns true if the list contains a malformed object of this name.
    pub(super) fn refuses(&self, name: &str) -> bool {
        self.refused.iter().any(|refused| refused.name.as_deref() == Some(name))
    }

    /// The listed objects, by the names as far as they can be read, and the names that take no new effect. A malformed
    /// object, and each of `held`, is listed as in the list `before`, and takes no new effect if that lacks it. Without
    /// such a list, it is not known as what it was listed.
    pub(super) fn specs<'a>(
        &'a self,
        held: impl Iterator<Item = &'a str>,
        before: Option<&Specs<R>>,
    ) -> (Specs<R>, BTreeSet<String>) {
        let desired = self.desired.iter();
        let mut listed: Specs<R> = desired
            .map(|(key, object)| (key.name().to_owned(), Some(Arc::new(object.clone()))))
            .collect();
        let mut withheld = BTreeSet::new();
        let malformed = self.refused.iter().filter_map(|refused| refused.name.as_deref());
        let malformed = malformed.filter(|name| !self.desired.contains_key(&Key::new(name)));
        for name in malformed.chain(held) {
            let known = before.map_or(Some(None), |before| before.get(name).cloned());
            if let Some(known) = known {
                listed.insert(name.to_owned(), known);
            } else {
                listed.remove(name);
                withheld.insert(name.to_owned());
            }
        }
        (listed, withheld)
    }

    /// Returns true if it is known what the list does not contain.
    pub(super) fn is_readable(&self) -> bool {
        self.refused.iter().all(|refused| refused.name.is_some())
    }
}

/// Changes with the version in the cloud and with the set of names, and with nothing that is secret. Two kinds never
/// have the same: all empty lists may have one `ETag`, and a release is for one kind.
fn revision<R>(kind: &str, etags: &str, desired: &BTreeMap<Key, R>) -> String {
    let names: Vec<&str> = desired.keys().map(Key::name).collect();
    let text = format!("{kind}\n{etags}{}", names.join("\n"));
    sha256(text.as_bytes())[..REVISION_LENGTH].to_owned()
}
