//! The changes that make the cluster as the cloud says, for one kind. Pure, but for the memory of the brake.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use tidewaiter_api::cloud_sync::UNREADABLE_LIST;
use tidewaiter_kit::Key;
use tidewaiter_kit::children::{Changes, compare};

use super::brake::{Brake, DeletionHold, MassDeletion, Response, TooMany};
use super::cloud_list::Specs;
use super::listing::Listing;
use super::record::Record;
use super::window::{Remembered, Scoped};

/// Finalizers of a deletion that waits for dependents, which the garbage collector removes.
pub(crate) const OF_KUBERNETES: [&str; 2] = ["foregroundDeletion", "orphan"];

/// The longest text about objects that cannot be deleted.
const MAX_TEXT: usize = 512;

/// The input of a plan, besides the objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    /// The condition under which a mass deletion takes place.
    pub(super) mass_deletion: MassDeletion,
    /// The sync interval.
    pub(super) interval: Duration,
    /// The time when the cloud said so last, on the monotonic clock.
    pub(super) confirmed: Duration,
    /// The revision that a person released.
    pub(super) released: Option<&'a str>,
    /// The cloud's record of deletions.
    pub(super) record: &'a Record,
    /// True if only a person releases deletions, whatever `mass_deletion` is.
    pub(super) by_person: bool,
    /// The largest number of objects of which more than half may be deleted if the cloud's record names them.
    pub(super) few: usize,
}

/// The traits of a kind in a plan.
pub(super) struct Traits<'a, R> {
    /// The list that was in force before, if there is one: for the first list of the cloud, the one that an earlier
    /// process stored.
    pub(super) before: Option<&'a Specs<R>>,
    /// The memory of that process besides.
    pub(super) remembered: Option<&'a Remembered>,
    /// True if an object of the cloud can have this name.
    pub(super) is_name: &'a dyn Fn(&str) -> bool,
    /// True if the mirror may change and delete an object of the cluster.
    pub(super) ours: &'a dyn Fn(&R) -> bool,
    /// The right that an object gives: a list that adds nothing changes none.
    pub(super) gives: &'a dyn Fn(&R) -> String,
    /// The scope of an object, which a list must not empty.
    pub(super) scope: &'a dyn Fn(&R) -> String,
}

/// The changes of a pass.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan<R> {
    /// The writes.
    pub(super) changes: Changes<R>,
    pub(super) hold: Option<Hold>,
    /// The protected objects that the list deletes, when it is planned for the first time.
    pub(super) lost: BTreeSet<Key>,
}

/// Deletions that are held, and the additions of the same list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// The objects that would be deleted.
    pub(super) deletions: BTreeSet<Key>,
    /// The additions, if the list lacks too much to be right.
    pub(super) additions: Additions,
    /// The number of objects deleted within the last ten sync intervals that count with these.
    pub(super) counted: usize,
    /// The reason for the hold.
    pub(super) reason: HoldReason,
    /// The display names of the first objects.
    pub(super) names: Vec<String>,
}

/// The additions of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Additions {
    /// The objects that are not protected.
    pub(super) new: BTreeSet<Key>,
    /// The objects that would give another right than before.
    pub(super) changed: BTreeSet<Key>,
}

impl Additions {
    fn contain(&self, key: &Key) -> bool {
        self.new.contains(key) || self.changed.contains(key)
    }
}

/// The reason why deletions are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldReason {
    /// The cloud's record of deletions does not name them.
    Unrecorded,
    /// The cloud's record of deletions cannot be read.
    Unread,
    /// All objects of the kind, or of a node pool, would be deleted, and the cloud has no record of deletions.
    Emptied,
    /// More than half of the objects would be deleted.
    MostObjects,
    /// The response contains an object without a valid id, which may be any of those that are missing from it.
    Unreadable,
}

impl HoldReason {
    /// In the words of `CloudSync`, Events and errors.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Unrecorded => "the cloud's record of deletions does not name them",
            Self::Unread => "the cloud's record of deletions cannot be read",
            Self::Emptied => {
                "the last objects of the kind or of a node pool would be deleted, and the cloud has no record of deletions"
            }
            Self::MostObjects => "more than half of the objects would be deleted within ten sync intervals",
            Self::Unreadable => UNREADABLE_LIST,
        }
    }
}

impl Hold {
    /// The reason, with the earlier deletions, where those count.
    pub(super) fn told(&self) -> String {
        let text = self.reason.text();
        match (self.reason, self.counted) {
            (HoldReason::MostObjects | HoldReason::Emptied, counted @ 1..) => {
                format!("{text}, {counted} deleted before included")
            }
            _ => text.to_owned(),
        }
    }

    /// The number of objects that it holds.
    pub(super) fn count(&self) -> usize {
        self.keys().count()
    }

    /// The objects that it holds.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        let Additions { new, changed } = &self.additions;
        self.deletions.iter().chain(new).chain(changed)
    }
}

/// The plan that makes the objects in the cluster those of the listing. A malformed object of the cloud is neither
/// changed nor deleted in the cluster, and while one cannot even be named, nothing is deleted that the brake protects.
pub(super) fn plan<R: Resource + Clone>(
    listing: &Listing<R>,
    actual: &[Arc<R>],
    traits: &Traits<'_, R>,
    brake: &mut Brake,
    rules: Rules<'_>,
) -> Plan<R> {
    let judged: Vec<Arc<R>> = actual
        .iter()
        .filter(|object| !listing.refuses(object.meta().name.as_deref().unwrap_or_default()))
        .cloned()
        .collect();
    let mut changes = compare(listing.desired.values().cloned().collect(), &judged, traits.ours);
    changes
        .update
        .extend(edited_while_deleted(listing, &judged, traits.ours));
    let protected = brake.protected(|| listed_before(actual, traits));
    let mut stays = protected.clone();
    stays.retain(|key, _| !listing.is_unmirrored(key.name()));
    let missing = stays.keys().filter(|key| !listing.contains(key));
    let missing: BTreeSet<Key> = missing.cloned().collect();
    let (
        DeletionHold {
            objects: deletions,
            too_many,
            counted,
            holds_additions,
        },
        reason,
    ) = held_deletions(listing, &missing, brake, rules);
    changes.delete.retain(|object| !deletions.contains(&Key::of(&**object)));
    stays.retain(|key, _| listing.contains(key) || deletions.contains(key));
    let additions = if holds_additions {
        all_additions(listing, &stays, traits)
    } else {
        Additions::default()
    };
    changes.create.retain(|object| !additions.contain(&Key::of(object)));
    changes
        .update
        .retain(|(object, _)| !additions.contain(&Key::of(object)));
    let let_through = listing.desired.iter().filter(|(key, _)| !additions.new.contains(*key));
    stays.extend(let_through.map(|(key, object)| (key.clone(), (traits.scope)(object))));
    brake.protect(stays, too_many.is_some(), rules.confirmed);
    let lost = missing.difference(&deletions).cloned().collect();
    let hold = reason.map(|reason| Hold {
        deletions,
        additions,
        counted,
        reason,
        names: Vec::new(),
    });
    Plan { changes, hold, lost }
}

/// The additions of a list: objects that are not `protected`, and those that would give another right than before.
fn all_additions<R: Resource>(listing: &Listing<R>, protected: &Scoped, traits: &Traits<'_, R>) -> Additions {
    let (old, new): (Vec<_>, Vec<_>) = listing
        .desired
        .iter()
        .partition(|(key, _)| protected.contains_key(*key));
    let is_changed = |(key, object): &(&Key, &R)| {
        let before = traits.before.and_then(|before| before.get(key.name())?.as_ref());
        before.is_some_and(|before| (traits.gives)(before) != (traits.gives)(object))
    };
    let changed = old.into_iter().filter(is_changed);
    Additions {
        new: new.into_iter().map(|(key, _)| key.clone()).collect(),
        changed: changed.map(|(key, _)| key.clone()).collect(),
    }
}

/// The objects that the cloud listed before this process: those of the stored list. Without one, those of the cluster
/// that may come from it: anyone who may write objects could otherwise have the first list held.
fn listed_before<R: Resource>(actual: &[Arc<R>], traits: &Traits<'_, R>) -> Scoped {
    if let Some(stored) = traits.before {
        let stored: Vec<_> = stored.values().flatten().cloned().collect();
        let mut before = scoped(&stored, |_| true, traits);
        let unstored = traits
            .remembered
            .into_iter()
            .flat_map(|remembered| &remembered.protected);
        for (key, scope) in unstored {
            before.entry(Key::new(key)).or_insert_with(|| scope.clone());
        }
        return before;
    }
    let may_come_from_it = |object: &R| {
        let meta = object.meta();
        let is_named = meta.name.as_deref().is_some_and(traits.is_name);
        is_named && meta.deletion_timestamp.is_none() && (traits.ours)(object)
    };
    scoped(actual, may_come_from_it, traits)
}

fn scoped<R: Resource>(actual: &[Arc<R>], which: impl Fn(&R) -> bool, traits: &Traits<'_, R>) -> Scoped {
    let objects = actual.iter().filter(|object| which(object));
    objects
        .map(|object| (Key::of(&**object), (traits.scope)(object)))
        .collect()
}

impl Rules<'_> {
    /// About the response of this revision.
    fn response(&self, revision: &str) -> Response {
        Response {
            confirmed: self.confirmed,
            released: self.released == Some(revision),
            rule: self.mass_deletion,
            interval: self.interval,
        }
    }
}

/// The hold of the deletion of the missing objects, and its reason. A list with an unreadable object adds the others.
fn held_deletions<R: Resource + Clone>(
    listing: &Listing<R>,
    missing: &BTreeSet<Key>,
    brake: &mut Brake,
    rules: Rules<'_>,
) -> (DeletionHold, Option<HoldReason>) {
    if !listing.is_readable() {
        brake.confirms_nothing();
        let held = DeletionHold {
            objects: missing.clone(),
            ..DeletionHold::default()
        };
        return (held, (!missing.is_empty()).then_some(HoldReason::Unreadable));
    }
    let mut response = rules.response(&listing.revision);
    if rules.by_person {
        response.rule = MassDeletion::Release;
    }
    let stays = |key: &Key| listing.contains(key) || listing.is_unmirrored(key.name());
    let held = brake.hold(missing, rules.few, response, rules.record, stays);
    let reason = match (held.too_many, rules.record) {
        (Some(TooMany::Emptied), _) => Some(HoldReason::Emptied),
        (Some(TooMany::Most), _) => Some(HoldReason::MostObjects),
        (None, _) if held.objects.is_empty() => None,
        (None, Record::Unread) => Some(HoldReason::Unread),
        (None, _) => Some(HoldReason::Unrecorded),
    };
    (held, reason)
}

/// The objects that are being deleted although the cloud lists them, each with what it should be. A finalizer may keep
/// one for a long time, and edits of it are undone meanwhile.
pub(super) fn edited_while_deleted<R: Resource + Clone>(
    listing: &Listing<R>,
    actual: &[Arc<R>],
    ours: impl Fn(&R) -> bool,
) -> Vec<(R, Arc<R>)> {
    let deleted = actual
        .iter()
        .filter(|object| object.meta().deletion_timestamp.is_some() && ours(object));
    let update = deleted.filter_map(|object| {
        let mut desired = listing.desired.get(&Key::of(&**object))?.clone();
        // No finalizer can be added to it.
        let present = object.meta().finalizers.as_deref().unwrap_or_default();
        let finalizers = desired.meta_mut().finalizers.take().into_iter().flatten();
        let kept: Vec<String> = finalizers.filter(|finalizer| present.contains(finalizer)).collect();
        desired.meta_mut().finalizers = (!kept.is_empty()).then_some(kept);
        Some((desired, Arc::clone(object)))
    });
    update.collect()
}

/// The first of the deleted objects that somebody else's finalizers keep, and what to say about all of them.
/// `finalizer` is ours.
pub(super) fn blocked<R: Resource>(
    actual: &[Arc<R>],
    ours: impl Fn(&R) -> bool,
    finalizer: Option<&str>,
) -> Option<(Arc<R>, String)> {
    let foreign = |object: &R| -> Vec<String> {
        let all = object.meta().finalizers.iter().flatten();
        let others = all.filter(|it| Some(it.as_str()) != finalizer && !OF_KUBERNETES.contains(&it.as_str()));
        others.cloned().collect()
    };
    let deleted = |object: &&Arc<R>| object.meta().deletion_timestamp.is_some() && ours(object);
    let kept = actual.iter().filter(deleted).map(|object| (object, foreign(object)));
    let mut all = kept.filter(|(_, finalizers)| !finalizers.is_empty());
    let (first, finalizers) = all.next()?;
    let name = first.meta().name.as_deref().unwrap_or_default();
    let more = match all.count() {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    let text = format!(
        "{name} is being deleted, but is kept by the finalizers {}{more}",
        finalizers.join(", ")
    );
    let end = text.floor_char_boundary(MAX_TEXT);
    Some((Arc::clone(first), text[..end].to_owned()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;

    use super::super::brake::FEW;
    use super::super::kind::Refused;
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn object(name: &str) -> ServiceAccount {
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(name.to_owned());
        account.metadata.uid = Some(name.to_owned());
        account
    }

    fn listing(desired: &[&str], refused: &[Option<&str>]) -> Listing<ServiceAccount> {
        let refused = refused.iter().map(|name| Refused {
            name: name.map(str::to_owned),
            reason: "malformed".to_owned(),
        });
        Listing {
            desired: desired.iter().map(|name| (Key::new(name), object(name))).collect(),
            refused: refused.collect(),
            unmirrored: BTreeSet::new(),
            revision: "r1".to_owned(),
        }
    }

    const TRAITS: Traits<'static, ServiceAccount> = Traits {
        before: None,
        remembered: None,
        is_name: &|name| name.len() == 1,
        ours: &|_| true,
        gives: &|_| String::new(),
        scope: &|_| String::new(),
    };
    static ABSENT: Record = Record::Absent;

    fn rules(second: u64) -> Rules<'static> {
        Rules {
            mass_deletion: MassDeletion::Confirm,
            interval: INTERVAL,
            confirmed: Duration::from_secs(second),
            released: None,
            record: &ABSENT,
            by_person: false,
            few: FEW,
        }
    }

    /// The created, updated, deleted and held objects.
    fn planned(
        listing: &Listing<ServiceAccount>,
        actual: &[&str],
        brake: &mut Brake,
        second: u64,
        released: Option<&str>,
    ) -> String {
        let actual: Vec<_> = actual.iter().map(|name| Arc::new(object(name))).collect();
        let rules = Rules {
            released,
            ..rules(second)
        };
        shown(plan(listing, &actual, &TRAITS, brake, rules))
    }

    fn shown(plan: Plan<ServiceAccount>) -> String {
        let Plan { changes, hold, .. } = plan;
        let names = |objects: Vec<&ServiceAccount>| -> String {
            objects.iter().filter_map(|it| it.metadata.name.clone()).collect()
        };
        format!(
            "+{} ={} -{} held {}",
            names(changes.create.iter().collect()),
            names(changes.update.iter().map(|(desired, _)| desired).collect()),
            names(changes.delete.iter().map(AsRef::as_ref).collect()),
            hold.map_or("nothing".to_owned(), |hold| {
                let added = hold.count() - hold.deletions.len();
                let added = if added == 0 { String::new() } else { format!("+{added}") };
                format!("{}{added} {:?}", hold.deletions.len(), hold.reason)
            }),
        )
    }

    #[test]
    fn the_cluster_becomes_as_the_cloud_lists_it() {
        for (desired, refused, actual, expected) in [
            (&["a", "b"][..], &[][..], &["b", "c"][..], "+a =b -c held nothing"),
            (&[], &[], &["a"], "+ = - held 1 Emptied"),
            (&["n"], &[], &["a", "b"], "+ = - held 2+1 Emptied"),
            (&[], &[], &["a", "b", "c", "d", "e", "f"], "+ = - held 6 Emptied"),
            (
                &["a", "b"],
                &[],
                &["a", "b", "c", "d", "e", "f"],
                "+ =ab - held 4 MostObjects",
            ),
            (
                &["a", "b", "c"],
                &[],
                &["a", "b", "c", "d", "e", "f"],
                "+ =abc -def held nothing",
            ),
            (&["n"], &[Some("a")], &["a", "b"], "+n = -b held nothing"),
            (&["n"], &[None], &["a"], "+n = - held 1 Unreadable"),
            (&["a"], &[None], &["a"], "+ =a - held nothing"),
        ] {
            let found = planned(&listing(desired, refused), actual, &mut Brake::default(), 0, None);
            assert_eq!(found, expected, "{desired:?} {refused:?} over {actual:?}");
        }
    }

    #[test]
    fn a_mass_deletion_takes_place_when_it_is_confirmed_or_released() {
        let actual = ["a", "b", "c", "d", "e", "f"];
        let few = listing(&["a", "n"], &[]);
        let mut brake = Brake::default();
        for (second, released, is_held) in [
            (0, None, true),
            (29, None, true),
            (29, Some("r0"), true),
            (30, None, false),
        ] {
            let found = planned(&few, &actual, &mut brake, second, released);
            assert_eq!(found.contains("held 5+1"), is_held, "after {second} s: {found}");
        }
        let found = planned(&listing(&[], &[]), &actual, &mut Brake::default(), 0, Some("r1"));
        assert_eq!(found, "+ = -abcdef held nothing");
    }

    #[test]
    fn what_appears_later_is_neither_counted_nor_protected() {
        let mut brake = Brake::default();
        let (known, forged) = (["a", "b", "c"], ["t", "u", "v", "w", "x", "y", "z"]);
        assert_eq!(
            planned(&listing(&known, &[]), &known, &mut brake, 0, None),
            "+ =abc - held nothing"
        );
        let all = [&known[..], &forged[..]].concat();
        assert_eq!(
            planned(&listing(&known, &[]), &all, &mut brake, 1, None),
            "+ =abc -tuvwxyz held nothing"
        );
        // Neither do many forged objects let most of the others be deleted.
        let known = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(
            planned(&listing(&known, &[]), &known, &mut brake, 2, None),
            "+ =abcdef - held nothing"
        );
        let all = [&known[..], &forged[..]].concat();
        assert_eq!(
            planned(&listing(&["a"], &[]), &all, &mut brake, 3, None),
            "+ =a -tuvwxyz held 5 MostObjects"
        );
        // What was let go stays let go, should its deletion fail.
        let found = planned(&listing(&["a"], &[]), &known, &mut brake, 40, None);
        assert_eq!(found, "+ =a -bcdef held nothing");
        let found = planned(&listing(&["a"], &[]), &known, &mut brake, 41, None);
        assert_eq!(found, "+ =a -bcdef held nothing");
    }

    #[test]
    fn at_the_first_list_only_what_the_cloud_may_have_listed_is_protected() {
        let all = ["a", "b", "forged-1", "forged-2", "forged-3", "x", "y", "z"];
        let first = |listed: &[&str], before: Option<&Specs<ServiceAccount>>| {
            let actual: Vec<_> = all.iter().map(|name| Arc::new(object(name))).collect();
            let traits = Traits { before, ..TRAITS };
            let plan = plan(&listing(listed, &[]), &actual, &traits, &mut Brake::default(), rules(0));
            let held = plan.hold.map(|hold| hold.deletions.len()).unwrap_or_default();
            (plan.changes.delete.len(), held)
        };
        let stored = ["a", "b"].map(|name| (name.to_owned(), Some(Arc::new(object(name)))));
        let stored = Specs::from(stored);
        assert_eq!(first(&["a", "b"], Some(&stored)), (6, 0));
        assert_eq!(first(&[], Some(&stored)), (6, 2));
        assert_eq!(first(&["a", "b", "x"], None), (5, 0));
        assert_eq!(first(&["a", "b"], None), (3, 3));
    }

    #[test]
    fn a_list_that_lacks_most_adds_nothing_and_gives_no_other_right() {
        let gives = |object: &ServiceAccount| object.metadata.generate_name.clone().unwrap_or_default();
        let before = ["a", "b", "d", "e", "f"].map(|name| (name.to_owned(), Some(Arc::new(object(name)))));
        let before = Specs::from(before);
        let traits = Traits {
            before: Some(&before),
            gives: &gives,
            ..TRAITS
        };
        // The cluster has both, by somebody who forged them.
        let more = |name| {
            let mut object = object(name);
            object.metadata.generate_name = Some("more".to_owned());
            object
        };
        let actual = [object("a"), more("b"), object("c")].map(Arc::new);
        for (names, expected, new, changed) in [
            (&["a", "b", "c"][..], "+ =a - held 3+2 MostObjects", "c", "b"),
            (&["a", "b", "c", "d", "e"], "+de =abc - held nothing", "", ""),
        ] {
            let mut listed = listing(names, &[]);
            listed.desired.insert(Key::new("b"), more("b"));
            let plan = plan(&listed, &actual, &traits, &mut Brake::default(), rules(0));
            let held = plan.hold.clone().map(|hold| hold.additions).unwrap_or_default();
            let text = |keys: &BTreeSet<Key>| keys.iter().map(Key::name).collect::<String>();
            assert_eq!((&*text(&held.new), &*text(&held.changed)), (new, changed), "{names:?}");
            assert_eq!(shown(plan), expected, "{names:?}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_completely_confirms_nothing() {
        let actual = ["a", "b", "c", "d", "e", "f"];
        let most = listing(&["a"], &[]);
        let mut brake = Brake::default();
        for (second, list, is_held) in [
            (0, &most, true),
            (10, &listing(&["a"], &[None]), true),
            (31, &most, true),
            (61, &most, false),
        ] {
            let found = planned(list, &actual, &mut brake, second, None);
            assert_eq!(found.contains("held 5"), is_held, "after {second} s: {found}");
        }
    }

    #[test]
    fn what_vanished_from_the_cluster_is_protected_all_the_same() {
        let mut brake = Brake::default();
        let all = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(
            planned(&listing(&all, &[]), &all, &mut brake, 0, None),
            "+ =abcdef - held nothing"
        );
        let found = planned(&listing(&[], &[]), &[], &mut brake, 1, None);
        assert_eq!(found, "+ = - held 6 Emptied");
    }

    #[test]
    fn an_object_that_is_being_deleted_is_put_right_and_reported() {
        let deleted = |name: &str, finalizers: &[&str]| {
            let mut object = object(name);
            object.metadata.deletion_timestamp = Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap());
            object.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
            Arc::new(object)
        };
        let mut listed = listing(&["a", "b"], &[]);
        for object in listed.desired.values_mut() {
            object.metadata.finalizers = Some(vec!["ours".to_owned()]);
        }
        let actual = [
            deleted("a", &["evil.io/x"]),
            deleted("b", &["ours"]),
            deleted("forged", &["orphan", "evil.io/y"]),
        ];
        let changes = plan(&listed, &actual, &TRAITS, &mut Brake::default(), rules(30)).changes;
        let finalizers: Vec<_> = changes
            .update
            .iter()
            .map(|(it, _)| it.metadata.finalizers.clone())
            .collect();
        assert_eq!(finalizers, [None, Some(vec!["ours".to_owned()])]);
        assert!(changes.create.is_empty() && changes.delete.is_empty());
        let (first, text) = blocked(&actual, |_| true, Some("ours")).unwrap();
        assert_eq!(first.metadata.name.as_deref(), Some("a"));
        assert_eq!(
            text,
            "a is being deleted, but is kept by the finalizers evil.io/x, and 1 more"
        );
        assert!(blocked(&actual[1..2], |_| true, Some("ours")).is_none());
        assert!(blocked(&actual, |_| false, None).is_none());
    }

    #[test]
    fn a_complete_list_in_between_ends_what_was_held() {
        let actual = ["a", "b", "c", "d", "e", "f"];
        let mut brake = Brake::default();
        assert!(planned(&listing(&[], &[]), &actual, &mut brake, 0, None).contains("held 6"));
        assert!(planned(&listing(&actual, &[]), &actual, &mut brake, 10, None).contains("held nothing"));
        assert!(planned(&listing(&[], &[]), &actual, &mut brake, 40, None).contains("held 6"));
    }

    #[test]
    fn what_the_cloud_lists_but_does_not_have_mirrored_is_not_protected() {
        let actual = ["a", "b", "c", "d", "e", "f"];
        let mut listed = listing(&["f"], &[]);
        listed.unmirrored = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        let found = planned(&listed, &actual, &mut Brake::default(), 0, None);
        assert_eq!(found, "+ =f -abcde held nothing");
    }

    #[test]
    fn what_the_record_does_not_name_stays_and_the_rest_of_the_list_is_in_force() {
        let names = |names: &str| Record::Names(names.chars().map(String::from).collect());
        for (listed, record, expected) in [
            ("abcd", names(""), "+ =abcd - held 2 Unrecorded, lost 0"),
            ("abcd", names("e"), "+ =abcd -e held 1 Unrecorded, lost 1"),
            ("abcdx", names("e"), "+x =abcd -e held 1 Unrecorded, lost 1"),
            ("abcdx", names("ef"), "+x =abcd -ef held nothing, lost 2"),
            ("abcdx", Record::Unread, "+x =abcd - held 2 Unread, lost 0"),
            // It lacks most, so it adds nothing.
            ("abxyz", names("e"), "+ =ab -e held 3+3 Unrecorded, lost 1"),
            ("xyz", Record::Unread, "+ = - held 6+3 Unread, lost 0"),
            ("", names("abcdef"), "+ = - held 6 MostObjects, lost 0"),
            ("", Record::Absent, "+ = - held 6 Emptied, lost 0"),
        ] {
            let letters = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
            let listed: Vec<String> = letters(listed);
            let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
            let actual: Vec<_> = letters("abcdef").iter().map(|name| Arc::new(object(name))).collect();
            let rules = Rules {
                record: &record,
                by_person: true,
                ..rules(0)
            };
            let plan = plan(&listing(&listed, &[]), &actual, &TRAITS, &mut Brake::default(), rules);
            let lost = plan.lost.len();
            assert_eq!(
                format!("{}, lost {lost}", shown(plan)),
                expected,
                "{listed:?} {record:?}"
            );
        }
    }
}
