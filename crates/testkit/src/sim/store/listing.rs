//! Lists: pages of one revision, and what an older replica of the server would still say. A page costs what is in it,
//! and what has changed since the revision, however many objects there are.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Bound;
use std::sync::Arc;

use super::{Key, Store, Stored};
use crate::sim::call::Call;
use crate::sim::selector::Selector;
use crate::sim::status::Refused;

/// A page of a list.
#[derive(Debug)]
pub(in crate::sim) struct Listed {
    pub(in crate::sim) items: Vec<Arc<Stored>>,
    /// The revision of the whole list.
    pub(in crate::sim) revision: u64,
    /// The token of the next page, if there is one.
    pub(in crate::sim) next: Option<String>,
}

impl Store {
    /// A page of a list. `stale` is the revision that the server's cache has, for requests that allow one.
    pub(in crate::sim) fn list(&self, call: &Call, stale: u64) -> Result<Listed, Refused> {
        let selector = Selector::read(call.query("labelSelector"), call.query("fieldSelector"))?;
        let limit = call.number("limit")?.unwrap_or_default();
        let token = call.query("continue");
        let (revision, after) = if token.is_empty() {
            (self.revision_for(call, stale)?, None)
        } else {
            let (revision, after) = read_token(token, call.kind)?;
            (revision, Some(after))
        };
        let too_old = || Refused::expired("The provided continue parameter is too old");
        let mut rest = self
            .rest(call.kind, revision, after)
            .ok_or_else(too_old)?
            .filter(|(key, _)| call.namespace.is_empty() || key.namespace == call.namespace)
            .filter(|(_, object)| selector.matches(&object.value))
            .peekable();
        let mut items = Vec::new();
        let mut last = None;
        while let Some((key, object)) = rest.next_if(|_| limit == 0 || (items.len() as u64) < limit) {
            items.push(Arc::clone(object));
            last = Some(key);
        }
        let more = rest.peek().is_some();
        let next = last.filter(|_| more);
        Ok(Listed {
            items,
            revision,
            next: next.map(|key| format!("{revision}/{}/{}", key.namespace, key.name)),
        })
    }

    /// The revision that a list shows: the newest, unless an older one is good enough.
    fn revision_for(&self, call: &Call, stale: u64) -> Result<u64, Refused> {
        match call.number("resourceVersion")? {
            None => Ok(self.revision),
            Some(0) => Ok(stale),
            Some(wanted) if call.query("resourceVersionMatch") == "Exact" => Ok(wanted),
            Some(wanted) => Ok(stale.max(wanted)),
        }
    }

    /// The objects of a kind as they were at a revision, those after the key `after`; `None` when that is not known any
    /// more.
    fn rest(
        &self,
        kind: usize,
        revision: u64,
        after: Option<Key>,
    ) -> Option<impl Iterator<Item = (&Key, &Arc<Stored>)>> {
        let from = after.map_or_else(|| Bound::Included(Key::new(kind, "", "")), Bound::Excluded);
        let range = (from, Bound::Excluded(Key::new(kind + 1, "", "")));
        // Of several changes of one object the first says what it was before all of them.
        let changes = self.log(kind, revision)?.iter().rev();
        let before: BTreeMap<&Key, _> = changes.map(|change| (&change.key, change.before.as_ref())).collect();
        let then: Vec<_> = before
            .range::<Key, _>(range.clone())
            .filter_map(|(key, object)| Some((*key, (*object)?)))
            .collect();
        let mut then = then.into_iter().peekable();
        let unchanged = self
            .objects
            .range(range)
            .filter(move |(key, _)| !before.contains_key(key));
        let mut unchanged = unchanged.peekable();
        Some(iter::from_fn(move || match (then.peek(), unchanged.peek()) {
            (Some((one, _)), Some((other, _))) if one < other => then.next(),
            (Some(_), None) => then.next(),
            _ => unchanged.next(),
        }))
    }
}

fn read_token(token: &str, kind: usize) -> Result<(u64, Key), Refused> {
    let mut parts = token.splitn(3, '/');
    let revision = parts.next().and_then(|revision| revision.parse().ok());
    let (Some(revision), Some(namespace), Some(name)) = (revision, parts.next(), parts.next()) else {
        return Err(Refused::bad_request("continue key is not valid"));
    };
    Ok((revision, Key::new(kind, namespace, name)))
}
