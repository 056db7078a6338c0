//! What makes the cluster as the cloud says, for one kind. Pure, but for the memory of the brake.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use tidewaiter_kit::Key;
use tidewaiter_kit::children::{Changes, compare};

use super::brake::{Brake, MassDeletion, MassDeletionOf};
use super::listing::Listing;

/// What a plan is made of, besides the objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    /// What lets a mass deletion take place.
    pub(super) mass_deletion: MassDeletion,
    /// The sync interval.
    pub(super) interval: Duration,
    /// When the cloud said so last, on the monotonic clock.
    pub(super) confirmed: Duration,
    /// The revision that a person released.
    pub(super) released: Option<&'a str>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan<R> {
    /// The writes.
    pub(super) changes: Changes<R>,
    /// The deletions that are held.
    pub(super) hold: Option<Hold>,
}

/// Deletions that are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// The objects that would be deleted.
    pub(super) keys: BTreeSet<Key>,
    /// Why they are not.
    pub(super) reason: HoldReason,
}

/// Why deletions are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldReason {
    /// More than half of the objects would be deleted.
    MostObjects,
    /// The response contains an object without a valid id, which may be any of those that are missing from it.
    Unreadable,
}

/// What is to be done so that the objects in the cluster are those of the listing. A malformed object of the cloud is neither changed nor
/// deleted in the cluster, and while one cannot even be named, nothing is deleted.
pub(super) fn plan<R: Resource + Clone>(
    listing: &Listing<R>,
    actual: &[Arc<R>],
    ours: impl Fn(&R) -> bool,
    brake: &mut Brake,
    rules: Rules<'_>,
) -> Plan<R> {
    let judged: Vec<Arc<R>> = actual
        .iter()
        .filter(|object| !listing.refuses(object))
        .cloned()
        .collect();
    let mut changes = compare(listing.desired.values().cloned().collect(), &judged, ours);
    let keys: BTreeSet<Key> = changes.delete.iter().map(|object| Key::of(&**object)).collect();
    let reason = if !listing.is_readable() {
        (!keys.is_empty()).then_some(HoldReason::Unreadable)
    } else if changes.delete_most() {
        let response = MassDeletionOf {
            keys: &keys,
            confirmed: rules.confirmed,
            released: rules.released == Some(listing.revision.as_str()),
        };
        let lets = brake.lets(response, rules.mass_deletion, rules.interval);
        (!lets).then_some(HoldReason::MostObjects)
    } else {
        brake.reset();
        None
    };
    if reason.is_some() {
        changes.hold();
    }
    Plan {
        changes,
        hold: reason.map(|reason| Hold { keys, reason }),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;

    use super::super::listing::Refused;
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
            revision: "r1".to_owned(),
        }
    }

    /// What is created, updated, deleted and held.
    fn planned(
        listing: &Listing<ServiceAccount>,
        actual: &[&str],
        brake: &mut Brake,
        second: u64,
        released: Option<&str>,
    ) -> String {
        let actual: Vec<_> = actual.iter().map(|name| Arc::new(object(name))).collect();
        let rules = Rules {
            mass_deletion: MassDeletion::Confirm,
            interval: INTERVAL,
            confirmed: Duration::from_secs(second),
            released,
        };
        let Plan { changes, hold } = plan(listing, &actual, |_| true, brake, rules);
        let names = |objects: Vec<&ServiceAccount>| -> String {
            objects.iter().filter_map(|it| it.metadata.name.clone()).collect()
        };
        format!(
            "+{} ={} -{} held {}",
            names(changes.create.iter().collect()),
            names(changes.update.iter().map(|(desired, _)| desired).collect()),
            names(changes.delete.iter().map(AsRef::as_ref).collect()),
            hold.map_or("nothing".to_owned(), |hold| format!(
                "{} {:?}",
                hold.keys.len(),
                hold.reason
            )),
        )
    }

    #[test]
    fn the_cluster_becomes_as_the_cloud_lists_it() {
        for (desired, refused, actual, expected) in [
            (&["a", "b"][..], &[][..], &["b", "c"][..], "+a =b -c held nothing"),
            (&[], &[], &["a", "b", "c", "d", "e"], "+ = -abcde held nothing"),
            (&[], &[], &["a", "b", "c", "d", "e", "f"], "+ = - held 6 MostObjects"),
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
        let empty = listing(&[], &[]);
        let mut brake = Brake::default();
        for (second, released, is_held) in [
            (0, None, true),
            (29, None, true),
            (29, Some("r0"), true),
            (30, None, false),
        ] {
            let found = planned(&empty, &actual, &mut brake, second, released);
            assert_eq!(found.contains("held 6"), is_held, "after {second} s: {found}");
        }
        let found = planned(&empty, &actual, &mut Brake::default(), 0, Some("r1"));
        assert_eq!(found, "+ = -abcdef held nothing");
    }

    #[test]
    fn a_complete_list_in_between_ends_what_was_held() {
        let actual = ["a", "b", "c", "d", "e", "f"];
        let mut brake = Brake::default();
        assert!(planned(&listing(&[], &[]), &actual, &mut brake, 0, None).contains("held 6"));
        assert!(planned(&listing(&actual, &[]), &actual, &mut brake, 10, None).contains("held nothing"));
        assert!(planned(&listing(&[], &[]), &actual, &mut brake, 40, None).contains("held 6"));
    }
}
