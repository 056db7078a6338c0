//! The scope of the objects of a version, also before the API server serves their kinds. Pure.

use std::collections::BTreeSet;

use super::object::Object;
use super::observed::Observed;
use super::refused::{Refused, refused};
use super::release::Release;

/// True for a namespaced kind, as the API server says, or the definition that comes with the object. None if neither
/// knows the kind.
pub(super) fn is_namespaced(object: &Object, release: &Release, observed: &Observed) -> Option<bool> {
    observed.is_namespaced(object).or_else(|| {
        let mut defined = release.defined.iter();
        let of_kind = defined.find(|it| it.group == object.id.group && it.kind == object.id.kind);
        of_kind.map(|it| it.namespaced)
    })
}

/// Refuses cluster-scoped objects that differ in nothing but a namespace, which has no meaning for them.
pub(super) fn check(release: &Release, observed: &Observed) -> Result<(), Refused> {
    let mut known = BTreeSet::new();
    let mut all = release.all();
    let twice = all.find(|object| {
        is_namespaced(object, release, observed) == Some(false) && !known.insert(object.id.in_scope(false))
    });
    twice.map_or(Ok(()), |object| {
        let why = "is there twice, because its kind is cluster-scoped: leave out one of them, and metadata.namespace";
        Err(refused(object.id.to_string(), why))
    })
}
