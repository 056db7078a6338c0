//! The cloud's listed objects of a kind, for the controllers that act on the objects in the cluster.
//!
//! The objects in the cluster are the mirror's copy of that, and a person may delete, edit or forge one: a copy neither
//! brings nor removes anything, and its spec counts only where it is not known how the cloud lists the object. An
//! object whose deletion the brake holds is listed as before. One whose addition it holds takes no effect yet, and
//! nothing goes that was made of it before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::ObjectMeta;
use kube::core::object::HasSpec;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tidewaiter_kit::Cacheable;
use tidewaiter_kit::writer::has_applied_all_of;

use super::kind::is_id;

/// The listed objects by their names, each as the cloud lists it; None where that is not known.
pub(crate) type Specs<R> = BTreeMap<String, Option<Arc<R>>>;

/// The objects of one kind. Clones share them.
#[derive(Clone)]
pub struct CloudList<R>(Arc<Shared<R>>);

struct Shared<R> {
    /// The controller that writes the copies.
    controller: &'static str,
    known: Mutex<Known<R>>,
    wakes: Mutex<Vec<Wake>>,
}

/// Is called after a change, with the names that it concerns.
type Wake = Box<dyn Fn(&Changed) + Send + Sync>;

/// The names of which a new list says something else than the one before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// It concerns every name.
    pub(crate) all: bool,
    /// The names that are listed or withheld and were not, or the other way round.
    pub(crate) names: BTreeSet<String>,
    /// The names that are listed as something else.
    pub(crate) specs: BTreeSet<String>,
}

impl Changed {
    /// Returns true if what is listed may be another set of names.
    pub(crate) fn changes_names(&self) -> bool {
        self.all || !self.names.is_empty()
    }

    /// Returns true if it may be listed and was not, or the other way round.
    pub(crate) fn concerns(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }

    /// The names that it concerns, of all that there are.
    pub(crate) fn concerned(&self, all: impl FnOnce() -> Vec<String>) -> Vec<String> {
        if self.all {
            return all();
        }
        self.names.union(&self.specs).cloned().collect()
    }
}

/// The origin of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// The cloud was not asked yet.
    #[default]
    Unread,
    /// The cloud does not answer, and no earlier process stored one.
    Nowhere,
    /// An earlier process stored it, and the cloud does not answer.
    Stored,
    /// The cloud.
    Cloud {
        /// True if it is known what it does not list.
        complete: bool,
    },
}

struct Known<R> {
    origin: Origin,
    listed: Arc<Specs<R>>,
    /// Objects that the cloud lists and the brake holds.
    withheld: BTreeSet<String>,
}

impl<R> Default for Known<R> {
    fn default() -> Self {
        Self {
            origin: Origin::default(),
            listed: Arc::default(),
            withheld: BTreeSet::new(),
        }
    }
}

impl<R: PartialEq> Known<R> {
    /// The difference from the list before.
    fn since(&self, before: &Self) -> Changed {
        if before.origin != self.origin {
            return Changed {
                all: true,
                ..Changed::default()
            };
        }
        let names = || self.listed.keys().chain(before.listed.keys());
        let is_other = |name: &&String| self.listed.contains_key(*name) != before.listed.contains_key(*name);
        let withheld = self.withheld.symmetric_difference(&before.withheld);
        let differs = |name: &&String| self.listed.get(*name) != before.listed.get(*name);
        Changed {
            all: false,
            names: names().filter(is_other).chain(withheld).cloned().collect(),
            specs: names().filter(differs).cloned().collect(),
        }
    }
}

/// The effect of an object of the cluster.
pub(crate) enum Effect<R> {
    /// As the cloud lists it.
    Listed(Arc<R>),
    /// As it is, if nobody but the mirror has written it: it is not known as what the cloud lists it.
    Own,
    /// No effect.
    Nothing,
}

impl<R: PartialEq> CloudList<R> {
    /// An object as the mirror `controller` writes it.
    pub(crate) fn new(controller: &'static str) -> Self {
        Self(Arc::new(Shared {
            controller,
            known: Mutex::default(),
            wakes: Mutex::default(),
        }))
    }

    /// The cloud lists these, but for those that are `withheld`. Unless this is `complete`, of the others it is not
    /// known.
    pub(crate) fn set(&self, listed: Specs<R>, withheld: BTreeSet<String>, complete: bool) {
        self.change(|_| {
            Some(Known {
                origin: Origin::Cloud { complete },
                listed: Arc::new(listed),
                withheld,
            })
        });
    }

    /// Restores the list that an earlier process stored, if it did, unless the cloud has listed something since. It
    /// says what was listed, but of nothing that it is not.
    pub(crate) fn recall(&self, stored: Option<Arc<Specs<R>>>) {
        self.change(|known| {
            (known.origin == Origin::Unread).then(|| Known {
                origin: stored.as_ref().map_or(Origin::Nowhere, |_| Origin::Stored),
                listed: stored.unwrap_or_default(),
                withheld: BTreeSet::new(),
            })
        });
    }

    fn change(&self, next: impl FnOnce(&Known<R>) -> Option<Known<R>>) {
        let mut known = self.0.known.lock();
        let Some(next) = next(&known) else { return };
        let changed = next.since(&known);
        *known = next;
        drop(known);
        if changed != Changed::default() {
            for wake in self.0.wakes.lock().iter() {
                wake(&changed);
            }
        }
    }
}

impl<R> CloudList<R> {
    /// Returns true if there is neither a list nor the knowledge that none is stored: nothing takes effect yet, and
    /// nothing goes.
    pub(super) fn is_unread(&self) -> bool {
        self.0.known.lock().origin == Origin::Unread
    }

    /// Returns true if the cloud has listed the kind since the start.
    pub(crate) fn is_current(&self) -> bool {
        matches!(self.0.known.lock().origin, Origin::Cloud { .. })
    }

    /// Calls `wake` when it changes.
    pub(crate) fn notify(&self, wake: impl Fn(&Changed) + Send + Sync + 'static) {
        self.0.wakes.lock().push(Box::new(wake));
    }

    /// The effect of an object of this name.
    pub(crate) fn effect(&self, name: &str) -> Effect<R> {
        let known = self.0.known.lock();
        match known.listed.get(name) {
            _ if known.withheld.contains(name) => Effect::Nothing,
            Some(Some(listed)) => Effect::Listed(Arc::clone(listed)),
            Some(None) => Effect::Own,
            None if known.origin == Origin::Nowhere => Effect::Own,
            None => Effect::Nothing,
        }
    }

    /// Returns true if `field` of the object, with this value, is as the mirror wrote it, and the object is not being
    /// deleted.
    pub(crate) fn wrote(&self, object: &ObjectMeta, field: &str, value: &Value) -> bool {
        object.deletion_timestamp.is_none() && has_applied_all_of(self.0.controller, object, field, value)
    }

    /// Returns true if what was made of the object of this name stays, although the cluster may have none (`present`).
    /// As long as it is not known what the cloud lists, that of every id of the cloud does. People give other names:
    /// their objects go when they are deleted.
    pub(crate) fn retains(&self, name: &str, present: Option<&ObjectMeta>) -> bool {
        let known = self.0.known.lock();
        if known.listed.contains_key(name) || known.withheld.contains(name) {
            return true;
        }
        let lives = || present.is_some_and(|meta| meta.deletion_timestamp.is_none());
        !is_complete(&known) && (is_id(name) || lives())
    }

    /// The cloud's list, as far as it is known.
    pub(crate) fn listed(&self) -> Arc<Specs<R>> {
        Arc::clone(&self.0.known.lock().listed)
    }

    /// Returns true if it is known what the cloud does not list.
    pub(crate) fn is_complete(&self) -> bool {
        is_complete(&self.0.known.lock())
    }

    /// Returns true if `present` is true for everything that the cloud lists, which is known.
    pub(crate) fn is_covered(&self, present: impl Fn(&str) -> bool) -> bool {
        let known = self.0.known.lock();
        is_complete(&known) && known.listed.keys().all(|name| present(name))
    }
}

impl<R> CloudList<R>
where
    R: Cacheable + HasSpec<Spec: Clone + PartialEq + Serialize>,
{
    /// The object as it takes effect: with the spec, and with the annotations, that the cloud lists. None if it takes
    /// none.
    pub(crate) fn effective(&self, copy: &Arc<R>) -> Option<Arc<R>> {
        let name = copy.meta().name.as_deref().unwrap_or_default();
        let listed = match self.effect(name) {
            Effect::Listed(listed) => listed,
            Effect::Own => {
                let spec = serde_json::to_value(copy.spec()).ok()?;
                return self.wrote(copy.meta(), "spec", &spec).then(|| Arc::clone(copy));
            }
            Effect::Nothing => return None,
        };
        let present = copy.meta().annotations.as_ref();
        let has = |(key, value): (&String, &String)| present.and_then(|present| present.get(key)) == Some(value);
        let mut annotations = listed.meta().annotations.iter().flatten();
        if copy.spec() == listed.spec() && annotations.all(has) {
            return Some(Arc::clone(copy));
        }
        let mut effective = (**copy).clone();
        effective.spec_mut().clone_from(listed.spec());
        if let Some(annotations) = &listed.meta().annotations {
            let present = effective.meta_mut().annotations.get_or_insert_default();
            present.extend(annotations.clone());
        }
        Some(Arc::new(effective))
    }
}

fn is_complete<R>(known: &Known<R>) -> bool {
    known.origin == Origin::Cloud { complete: true }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_api::containership::ClusterLabel;

    use super::*;

    const LISTED: &str = "cccccccc-0000-4000-8000-000000000001";
    const OTHER: &str = "cccccccc-0000-4000-8000-000000000002";
    const WITHHELD: &str = "cccccccc-0000-4000-8000-000000000003";

    fn label(name: &str, value: &str, metadata: &Value) -> Arc<ClusterLabel> {
        let mut label =
            json!({"metadata": metadata, "spec": {"id": name, "key": "cluster.containership.io/k", "value": value}});
        label["metadata"]["name"] = json!(name);
        Arc::new(serde_json::from_value(label).unwrap())
    }

    fn copy(name: &str, value: &str, deleted: bool) -> Arc<ClusterLabel> {
        let time = deleted.then_some("2026-01-01T00:00:00Z");
        label(name, value, &json!({ "deletionTimestamp": time }))
    }

    /// A copy as the mirror writes it.
    fn written(name: &str, value: &str, by: &str) -> Arc<ClusterLabel> {
        let owned = json!({"f:spec": {"f:id": {}, "f:key": {}, "f:value": {}, "f:created_at": {}, "f:updated_at": {}}});
        let entry = json!({"manager": by, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": owned});
        label(name, value, &json!({ "managedFields": [entry] }))
    }

    fn list() -> CloudList<ClusterLabel> {
        CloudList::new("sync-labels")
    }

    fn specs(names: &[&str]) -> Specs<ClusterLabel> {
        let listed = |name: &&str| (name.to_string(), Some(copy(name, "listed", false)));
        names.iter().map(listed).collect()
    }

    fn withheld() -> BTreeSet<String> {
        [WITHHELD.to_owned()].into()
    }

    /// The effect of copies, alive and being deleted, and of one that the mirror wrote; whether what was made of it
    /// stays, alive, being deleted and absent.
    fn judged(list: &CloudList<ClusterLabel>, name: &str) -> (String, [bool; 3]) {
        let (alive, deleted) = (copy(name, "edited", false), copy(name, "edited", true));
        let own = written(name, "own", "tidewaiter/sync-labels");
        let effects = [&alive, &deleted, &own].map(|copy| {
            let effective = list.effective(copy);
            effective.map_or("-".to_owned(), |it| it.spec.value.to_string())
        });
        let retains = |present: Option<&Arc<ClusterLabel>>| list.retains(name, present.map(|copy| &copy.metadata));
        (
            effects.join(" "),
            [retains(Some(&alive)), retains(Some(&deleted)), retains(None)],
        )
    }

    fn is(effects: &str, retains: [bool; 3]) -> (String, [bool; 3]) {
        (effects.to_owned(), retains)
    }

    #[test]
    fn the_list_decides_and_before_it_is_known_nothing_of_the_cloud_goes() {
        let (all, none, lives) = ([true; 3], [false; 3], [true, false, false]);
        let list = list();
        // The cloud was not asked yet.
        assert_eq!(judged(&list, LISTED), is("- - -", all));
        assert_eq!(judged(&list, "of-a-person"), is("- - -", lives));
        assert!(!list.is_covered(|_| true));
        // It does not answer, and nothing is stored.
        assert!(list.is_unread());
        list.recall(None);
        assert!(!list.is_unread());
        assert_eq!(judged(&list, LISTED), is("- - own", all));
        assert_eq!(judged(&list, "of-a-person"), is("- - own", lives));
        // It is read once.
        list.recall(Some(Arc::new(specs(&[OTHER]))));
        assert_eq!(judged(&list, OTHER), is("- - own", all));

        list.set(specs(&[LISTED]), withheld(), true);
        assert_eq!(judged(&list, LISTED), is("listed listed listed", all));
        for other in [OTHER, "of-a-person"] {
            assert_eq!(judged(&list, other), is("- - -", none), "{other}");
        }
        assert!(list.is_covered(|name| name == LISTED) && !list.is_covered(|_| false));
        assert_eq!(judged(&list, WITHHELD), is("- - -", all));
        // The list contains an object that cannot be named.
        list.set(specs(&[LISTED]), withheld(), false);
        assert_eq!(judged(&list, WITHHELD), is("- - -", all));
        assert_eq!(judged(&list, LISTED), is("listed listed listed", all));
        assert_eq!(judged(&list, OTHER), is("- - -", all));
        assert!(!list.is_covered(|_| true));
        // As what the cloud lists it is not known: it is malformed there.
        list.set([(LISTED.to_owned(), None)].into(), BTreeSet::new(), true);
        assert_eq!(judged(&list, LISTED), is("- - own", all));
        list.recall(Some(Arc::new(specs(&[OTHER]))));
        assert_eq!(
            judged(&list, OTHER),
            is("- - -", none),
            "the cloud has said something since"
        );
    }

    #[test]
    fn a_stored_list_decides_what_takes_effect_and_removes_nothing() {
        let list = list();
        list.recall(Some(Arc::new(specs(&[LISTED]))));
        assert_eq!(judged(&list, LISTED), is("listed listed listed", [true; 3]));
        assert_eq!(judged(&list, OTHER), is("- - -", [true; 3]));
        assert_eq!(judged(&list, "of-a-person"), is("- - -", [true, false, false]));
        assert!(!list.is_complete() && !list.is_covered(|_| true));
    }

    #[test]
    fn a_copy_takes_effect_with_the_annotations_of_the_list_and_keeps_those_of_people() {
        let list = list();
        let signed = label(LISTED, "listed", &json!({"annotations": {"signature": "2"}}));
        list.set([(LISTED.to_owned(), Some(signed))].into(), BTreeSet::new(), true);
        let copy = |annotations| {
            label(
                LISTED,
                "listed",
                &json!({"annotations": annotations, "resourceVersion": "7"}),
            )
        };
        let approved = copy(json!({"signature": "1", "approve": "abc"}));
        let effective = list.effective(&approved).unwrap();
        assert_eq!(
            json!(effective.metadata.annotations),
            json!({"signature": "2", "approve": "abc"})
        );
        assert_eq!(effective.metadata.resource_version.as_deref(), Some("7"));
        let same = copy(json!({"signature": "2", "approve": "abc"}));
        assert!(Arc::ptr_eq(&list.effective(&same).unwrap(), &same));
    }

    #[test]
    fn only_what_the_mirror_wrote_is_its_own() {
        let list = list();
        list.recall(None);
        for (copy, is_own) in [
            (written(LISTED, "x", "tidewaiter/sync-labels"), true),
            (written(LISTED, "x", "kubectl"), false),
            (copy(LISTED, "x", false), false),
        ] {
            assert_eq!(list.effective(&copy).is_some(), is_own, "{copy:?}");
        }
    }

    #[test]
    fn it_wakes_when_it_changes() {
        let list = list();
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        list.notify(move |changed| {
            let concerned = changed.concerned(|| vec!["all".to_owned()]);
            log.lock().push((concerned, changed.changes_names()));
        });
        let of = |names: &[&str], changes_names: bool| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            Some((names, changes_names))
        };
        let other = |name: &str| [(name.to_owned(), Some(copy(name, "other", false)))].into();
        for (listed, withheld, complete, expected) in [
            (specs(&[]), BTreeSet::new(), true, of(&["all"], true)),
            (specs(&[]), BTreeSet::new(), true, None),
            (specs(&[LISTED]), BTreeSet::new(), true, of(&[LISTED], true)),
            (specs(&[LISTED]), BTreeSet::new(), true, None),
            (other(LISTED), BTreeSet::new(), true, of(&[LISTED], false)),
            (other(LISTED), withheld(), true, of(&[WITHHELD], true)),
            (other(LISTED), withheld(), false, of(&["all"], true)),
        ] {
            told.lock().clear();
            list.set(listed, withheld, complete);
            assert_eq!(told.lock().pop(), expected);
        }
    }
}
