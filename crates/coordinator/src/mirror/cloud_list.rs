//! Which objects of a kind the cloud lists, for the controllers that act on the objects in the cluster.
//!
//! The objects in the cluster are the mirror's copy of that, and a person may delete or forge one: the copy alone neither brings nor removes
//! anything that belongs to an object of the cloud. An object whose deletion the brake holds counts as listed. One whose addition it holds
//! takes no effect yet, and nothing goes that was made of it before.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::core::ObjectMeta;

use super::kind::is_id;

/// The names of the objects. Clones share them.
#[derive(Clone, Default)]
pub struct CloudList(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// None before the first complete list of this process.
    names: Mutex<Option<Names>>,
    wakes: Mutex<Vec<Wake>>,
}

/// Is called with the names of which something else is known than before.
type Wake = Box<dyn Fn(&Changed) + Send + Sync>;

/// The names of which a new list says something else than the one before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    All,
    Only(BTreeSet<String>),
}

impl Changed {
    pub(crate) fn concerns(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Names {
    listed: BTreeSet<String>,
    /// What the cloud lists and the brake holds.
    withheld: BTreeSet<String>,
    /// Whether it is known what the cloud does not list.
    complete: bool,
}

impl Names {
    /// What differs from the list before.
    fn since(&self, before: Option<&Self>) -> Changed {
        match before {
            Some(before) if before.complete == self.complete => {
                let listed = self.listed.symmetric_difference(&before.listed);
                let withheld = self.withheld.symmetric_difference(&before.withheld);
                Changed::Only(listed.chain(withheld).cloned().collect())
            }
            _ => Changed::All,
        }
    }
}

impl CloudList {
    /// These are listed, but for those that are `withheld`. Unless this is `complete`, of the others it is not known.
    pub(crate) fn set(&self, listed: BTreeSet<String>, withheld: BTreeSet<String>, complete: bool) {
        let names = Names {
            listed,
            withheld,
            complete,
        };
        let mut known = lock(&self.0.names);
        let changed = names.since(known.as_ref());
        *known = Some(names);
        drop(known);
        if changed != Changed::Only(BTreeSet::new()) {
            for wake in lock(&self.0.wakes).iter() {
                wake(&changed);
            }
        }
    }

    /// Calls `wake` when it changes.
    pub(crate) fn notify(&self, wake: impl Fn(&Changed) + Send + Sync + 'static) {
        lock(&self.0.wakes).push(Box::new(wake));
    }

    /// Whether the cloud lists it; None while that is not known.
    pub(crate) fn lists(&self, name: &str) -> Option<bool> {
        let names = lock(&self.0.names);
        let names = names.as_ref()?;
        let listed = names.listed.contains(name);
        (listed || names.complete).then_some(listed)
    }

    fn withholds(&self, name: &str) -> bool {
        let names = lock(&self.0.names);
        names.as_ref().is_some_and(|names| names.withheld.contains(name))
    }

    /// Whether an object of the cluster takes effect. As long as it is not known what the cloud lists, each does that is not being deleted.
    pub(crate) fn counts(&self, object: &ObjectMeta) -> bool {
        let name = object.name.as_deref().unwrap_or_default();
        if self.withholds(name) {
            return false;
        }
        self.lists(name).unwrap_or(object.deletion_timestamp.is_none())
    }

    /// Whether what was made of the object of this name stays, although the cluster may have none (`present`). As long as it is not known what
    /// the cloud lists, that of every id of the cloud does. People give other names: their objects go when they are deleted.
    pub(crate) fn retains(&self, name: &str, present: Option<&ObjectMeta>) -> bool {
        let lives = || present.is_some_and(|meta| meta.deletion_timestamp.is_none());
        if self.withholds(name) {
            return true;
        }
        self.lists(name).unwrap_or_else(|| is_id(name) || lives())
    }

    /// What the cloud lists, as far as it is known.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let names = lock(&self.0.names);
        names.as_ref().map(|names| names.listed.clone()).unwrap_or_default()
    }

    /// Whether it is known what the cloud does not list.
    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.0.names).as_ref().is_some_and(|names| names.complete)
    }

    /// Whether `present` is true for everything that the cloud lists, which is known.
    pub(crate) fn is_covered(&self, present: impl Fn(&str) -> bool) -> bool {
        let names = lock(&self.0.names);
        names
            .as_ref()
            .is_some_and(|names| names.complete && names.listed.iter().all(|name| present(name)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for CloudList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CloudList").field(&*lock(&self.0.names)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    const LISTED: &str = "cccccccc-0000-4000-8000-000000000001";
    const OTHER: &str = "cccccccc-0000-4000-8000-000000000002";
    const WITHHELD: &str = "cccccccc-0000-4000-8000-000000000003";

    fn object(name: &str, deleted: bool) -> ObjectMeta {
        let time = deleted.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({"name": name, "deletionTimestamp": time})).unwrap()
    }

    /// Whether it counts, alive and being deleted; whether what was made of it stays, alive, being deleted and absent.
    fn judged(list: &CloudList, name: &str) -> ([bool; 2], [bool; 3]) {
        let (alive, deleted) = (object(name, false), object(name, true));
        let retains = |present| list.retains(name, present);
        (
            [list.counts(&alive), list.counts(&deleted)],
            [retains(Some(&alive)), retains(Some(&deleted)), retains(None)],
        )
    }

    #[test]
    fn the_list_decides_and_before_it_is_known_nothing_of_the_cloud_goes() {
        let list = CloudList::default();
        assert_eq!(judged(&list, LISTED), ([true, false], [true; 3]));
        assert_eq!(judged(&list, "of-a-person"), ([true, false], [true, false, false]));
        assert!(!list.is_covered(|_| true));
        let set = |complete| list.set([LISTED.to_owned()].into(), [WITHHELD.to_owned()].into(), complete);
        set(true);
        assert_eq!(judged(&list, LISTED), ([true; 2], [true; 3]));
        for other in [OTHER, "of-a-person"] {
            assert_eq!(judged(&list, other), ([false; 2], [false; 3]), "{other}");
        }
        assert!(list.is_covered(|name| name == LISTED) && !list.is_covered(|_| false));
        assert_eq!(judged(&list, WITHHELD), ([false; 2], [true; 3]));
        assert_eq!(list.names(), [LISTED.to_owned()].into());
        // The list contains an object that cannot be named.
        set(false);
        assert_eq!(judged(&list, WITHHELD), ([false; 2], [true; 3]));
        assert_eq!(judged(&list, LISTED), ([true; 2], [true; 3]));
        assert_eq!(judged(&list, OTHER), ([true, false], [true; 3]));
        assert!(!list.is_covered(|_| true));
    }

    #[test]
    fn it_wakes_when_it_changes() {
        let (list, woken) = (CloudList::default(), Arc::new(AtomicUsize::new(0)));
        let counter = Arc::clone(&woken);
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        list.notify(move |changed| {
            counter.fetch_add(1, Ordering::Relaxed);
            log.lock()
                .unwrap()
                .push([LISTED, OTHER].map(|name| changed.concerns(name)));
        });
        for (names, withheld, times) in [
            (&[][..], &[][..], 1),
            (&[], &[], 1),
            (&[LISTED], &[], 2),
            (&[LISTED], &[], 2),
            (&[LISTED], &[OTHER], 3),
        ] {
            let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            list.set(set(names), set(withheld), true);
            assert_eq!(woken.load(Ordering::Relaxed), times);
        }
        list.set([LISTED.to_owned()].into(), [OTHER.to_owned()].into(), false);
        assert_eq!(
            *told.lock().unwrap(),
            [[true; 2], [true, false], [false, true], [true; 2]]
        );
    }
}
