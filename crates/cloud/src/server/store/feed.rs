//! The changes since this process started: they invalidate cached responses and wake streams. Of those before it, the
//! ones that streams resume from are in memory too, so that thousands of them read nothing after a restart.
//!
//! Numbers only grow and are published in order, after their commit. A response made at number N is valid as long as
//! nothing that it depends on changed after N.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::{Mutex, RwLock};
use tidewaiter_kit::random;
use tokio::sync::watch;
use uuid::Uuid;

use crate::models::Kind;

/// The number of identities whose last change is remembered.
const IDENTITIES: usize = 100_000;

/// The scope of a change: objects of one kind, of an organization (nil: of all), of a cluster (nil: of all). A cluster
/// itself is of its own scope: the status that one reports concerns no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    pub kind: Kind,
    pub organization: Uuid,
    pub cluster: Uuid,
}

/// The scope of a change of the object `id`.
pub(super) fn scope(kind: Kind, id: &str, organization: &str, cluster: &str) -> Scope {
    let cluster = if kind == Kind::Cluster { id } else { cluster };
    let id = |text: &str| Uuid::try_parse(text).unwrap_or_default();
    Scope {
        kind,
        organization: id(organization),
        cluster: id(cluster),
    }
}

/// The scopes of `kind` that concern `cluster` of `organization`.
fn around(kind: Kind, organization: Uuid, cluster: Uuid) -> [Scope; 3] {
    let scope = |organization, cluster| Scope {
        kind,
        organization,
        cluster,
    };
    // The list of all clusters concerns none of them.
    let wide = if kind == Kind::Cluster { cluster } else { Uuid::nil() };
    [
        scope(organization, cluster),
        scope(organization, wide),
        scope(Uuid::nil(), wide),
    ]
}

/// A committed change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommittedChange {
    pub sequence: i64,
    pub scope: Scope,
    /// The user, token, cluster or API key whose identity or permissions it may affect.
    pub decides: Option<Uuid>,
}

/// The subscribers, by organization and cluster; nil for those of all clusters of the organization.
type Listeners = HashMap<Uuid, HashMap<Uuid, watch::Sender<i64>>>;

/// The last change that may affect each identity.
#[derive(Debug, Default)]
struct Identities {
    changed: HashMap<Uuid, i64>,
    /// The number up to which changes are no longer known by identity: one may affect any.
    forgotten: i64,
}

/// The published changes.
#[derive(Debug, Default)]
pub struct Feed {
    /// The number after which all changes are known.
    known_after: i64,
    latest: AtomicI64,
    /// Changes are published one batch at a time, so that their numbers are in order.
    publishing: Mutex<()>,
    /// While changes of other replicas are not received, no cached value is valid.
    disconnected: AtomicBool,
    changed: RwLock<HashMap<Scope, i64>>,
    /// The last change of each kind in each organization, whatever cluster it concerns.
    changed_in: RwLock<HashMap<(Kind, Uuid), i64>>,
    identities: RwLock<Identities>,
    listeners: Mutex<Listeners>,
}

impl Feed {
    /// A feed at the number `sequence`.
    pub(super) fn at(sequence: i64) -> Self {
        Self {
            known_after: sequence,
            latest: AtomicI64::new(sequence),
            ..Self::default()
        }
    }

    /// Returns the feed with `notes`: all changes after the number `known_after`, which are already published.
    pub(super) fn with_earlier(mut self, known_after: i64, notes: &[CommittedChange]) -> Self {
        self.known_after = known_after;
        self.record(notes);
        self
    }

    fn record(&self, notes: &[CommittedChange]) {
        let (mut changed, mut changed_in) = (self.changed.write(), self.changed_in.write());
        for note in notes {
            changed.insert(note.scope, note.sequence);
            changed_in.insert((note.scope.kind, note.scope.organization), note.sequence);
            if note.scope.kind == Kind::Cluster {
                let of_all = Scope {
                    cluster: Uuid::nil(),
                    ..note.scope
                };
                changed.insert(of_all, note.sequence);
            }
        }
    }

    /// The number of the last published change.
    pub fn latest(&self) -> i64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Returns true if a value that was read at `as_of` and depends on `scopes` is still valid.
    pub fn holds(&self, as_of: i64, scopes: &[Scope]) -> bool {
        if self.disconnected.load(Ordering::Acquire) {
            return false;
        }
        let changed = self.changed.read();
        scopes
            .iter()
            .all(|scope| changed.get(scope).is_none_or(|at| *at <= as_of))
    }

    /// Returns true if an identity that was read at `as_of` and depends on `whose` is still valid.
    pub fn identity_holds(&self, as_of: i64, whose: &[Uuid]) -> bool {
        let identities = self.identities.read();
        let unchanged = |id| identities.changed.get(id).is_none_or(|at| *at <= as_of);
        self.is_connected() && identities.forgotten <= as_of && whose.iter().all(unchanged)
    }

    /// Records whether changes of other replicas are received.
    pub(super) fn set_disconnected(&self, disconnected: bool) {
        self.disconnected.store(disconnected, Ordering::Release);
    }

    /// Returns true if changes of other replicas are received.
    pub fn is_connected(&self) -> bool {
        !self.disconnected.load(Ordering::Acquire)
    }

    /// Publishes `notes`, which are in order. Already published ones are skipped.
    pub(super) fn publish(&self, notes: &[CommittedChange]) {
        let publishing = self.publishing.lock();
        let latest = self.latest();
        let fresh = notes.iter().filter(|note| note.sequence > latest);
        let fresh: Vec<CommittedChange> = fresh.copied().collect();
        let Some(last) = fresh.last() else { return };
        self.record(&fresh);
        {
            let mut identities = self.identities.write();
            for note in &fresh {
                if let Some(id) = note.decides {
                    identities.changed.insert(id, note.sequence);
                }
            }
            if identities.changed.len() > IDENTITIES {
                identities.changed.clear();
                identities.forgotten = last.sequence;
            }
        }
        self.latest.store(last.sequence, Ordering::Release);
        drop(publishing);
        self.wake(&fresh);
    }

    fn wake(&self, notes: &[CommittedChange]) {
        let listeners = self.listeners.lock();
        // Subscribers that lost their permission are woken too, so that their streams end.
        let waking = |note: &&CommittedChange| note.decides.is_some() || note.scope.kind.facts().event.is_some();
        for note in notes.iter().filter(waking) {
            let organizations: Box<dyn Iterator<Item = &HashMap<Uuid, watch::Sender<i64>>>> =
                if note.scope.organization.is_nil() {
                    Box::new(listeners.values())
                } else {
                    Box::new(listeners.get(&note.scope.organization).into_iter())
                };
            for clusters in organizations {
                if note.scope.cluster.is_nil() {
                    for wake in clusters.values() {
                        wake.send_replace(note.sequence);
                    }
                } else {
                    for wake in [note.scope.cluster, Uuid::nil()]
                        .iter()
                        .filter_map(|id| clusters.get(id))
                    {
                        wake.send_replace(note.sequence);
                    }
                }
            }
        }
    }

    /// Subscribes to changes that concern `cluster`, or any cluster of the organization if it is nil: the number of the
    /// last one.
    pub fn subscribe(&self, organization: Uuid, cluster: Uuid) -> watch::Receiver<i64> {
        let mut listeners = self.listeners.lock();
        let clusters = listeners.entry(organization).or_default();
        // Ended subscriptions are removed when new ones are added.
        if clusters.len() > 64 && random::index(clusters.len()) == 0 {
            clusters.retain(|_, wake| wake.receiver_count() > 0);
        }
        let wake = clusters.entry(cluster);
        wake.or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// The kinds of which something that concerns `cluster`, or anything in the organization if it is nil, changed
    /// after `sequence`, each with the number of its last change; `None` if not all changes after `sequence` are known.
    pub fn since(&self, sequence: i64, organization: Uuid, cluster: Uuid) -> Option<Vec<(Kind, i64)>> {
        if sequence < self.known_after {
            return None;
        }
        let (changed, changed_in) = (self.changed.read(), self.changed_in.read());
        let last = |kind: Kind| {
            let last = if cluster.is_nil() {
                let organizations = [organization, Uuid::nil()];
                organizations.iter().filter_map(|id| changed_in.get(&(kind, *id))).max()
            } else {
                let scopes = around(kind, organization, cluster);
                scopes.iter().filter_map(|scope| changed.get(scope)).max()
            };
            last.filter(|last| **last > sequence).map(|last| (kind, *last))
        };
        Some(Kind::ALL.iter().copied().filter_map(last).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(sequence: i64, kind: Kind, organization: u128, cluster: u128) -> CommittedChange {
        let scope = Scope {
            kind,
            organization: Uuid::from_u128(organization),
            cluster: Uuid::from_u128(cluster),
        };
        let decides = kind.decides_who_may(false).then(|| Uuid::from_u128(cluster));
        CommittedChange {
            sequence,
            scope,
            decides,
        }
    }

    #[test]
    fn an_answer_holds_until_something_that_it_depends_on_changes() {
        let feed = Feed::at(5);
        let users = note(0, Kind::User, 1, 0).scope;
        let labels = note(0, Kind::ClusterLabel, 1, 2).scope;
        assert!(feed.holds(5, &[users, labels]));
        feed.publish(&[note(6, Kind::ClusterLabel, 1, 3), note(7, Kind::ClusterLabel, 1, 2)]);
        assert!(feed.holds(5, &[users]));
        assert!(!feed.holds(6, &[users, labels]));
        assert!(feed.holds(7, &[users, labels]));
        // An old number has no effect.
        feed.publish(&[note(6, Kind::User, 1, 0)]);
        assert!(feed.holds(5, &[users]));
        assert_eq!(feed.latest(), 7);
        feed.set_disconnected(true);
        assert!(!feed.holds(7, &[users]) && !feed.identity_holds(7, &[]));
    }

    #[test]
    fn a_change_makes_only_the_identities_doubtful_that_it_may_affect() {
        let feed = Feed::at(0);
        let [olivia, max] = [2, 3].map(Uuid::from_u128);
        feed.publish(&[note(1, Kind::ClusterLabel, 1, 2)]);
        assert!(feed.identity_holds(0, &[olivia]));
        feed.publish(&[note(2, Kind::Membership, 1, 2), note(3, Kind::Node, 1, 3)]);
        assert!(!feed.identity_holds(1, &[max, olivia]));
        assert!(feed.identity_holds(1, &[max]));
        assert!(feed.identity_holds(2, &[olivia]));
        // More than are remembered.
        let many = i64::try_from(IDENTITIES).unwrap();
        let notes = (4..4 + many).map(|number| note(number, Kind::Membership, 1, number.unsigned_abs().into()));
        feed.publish(&notes.collect::<Vec<_>>());
        assert!(!feed.identity_holds(1, &[max]));
        assert!(feed.identity_holds(feed.latest(), &[max, olivia]));
    }

    #[test]
    fn a_stream_hears_what_concerns_its_cluster() {
        let feed = Feed::at(0);
        let (o, c) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let subscription = feed.subscribe(o, c);
        feed.publish(&[
            note(1, Kind::ClusterLabel, 1, 3),
            note(2, Kind::User, 9, 0),
            note(3, Kind::Token, 1, 0),
        ]);
        assert!(!subscription.has_changed().unwrap());
        feed.publish(&[note(4, Kind::PluginVersion, 0, 0)]);
        assert!(subscription.has_changed().unwrap());
        feed.publish(&[note(5, Kind::User, 1, 0), note(6, Kind::Node, 1, 2)]);
        let kinds = |since| feed.since(since, o, c).unwrap();
        assert_eq!(
            kinds(0),
            [
                (Kind::User, 5),
                (Kind::Node, 6),
                (Kind::Token, 3),
                (Kind::PluginVersion, 4)
            ]
        );
        assert_eq!(kinds(5), [(Kind::Node, 6)]);
    }

    #[test]
    fn a_stream_of_an_organization_hears_what_concerns_any_of_its_clusters() {
        let feed = Feed::at(0);
        let (o, all) = (Uuid::from_u128(1), Uuid::nil());
        let mut subscription = feed.subscribe(o, all);
        feed.publish(&[note(1, Kind::User, 9, 0), note(2, Kind::Node, 9, 2)]);
        assert!(!subscription.has_changed().unwrap());
        for (kind, organization, cluster) in [
            (Kind::Node, 1, 2),
            (Kind::Cluster, 1, 3),
            (Kind::User, 1, 0),
            (Kind::PluginVersion, 0, 0),
        ] {
            let before = feed.latest();
            feed.publish(&[note(before + 1, kind, organization, cluster)]);
            assert!(subscription.has_changed().unwrap(), "{kind:?}");
            subscription.mark_unchanged();
            assert_eq!(feed.since(before, o, all).unwrap(), [(kind, before + 1)]);
        }
        assert_eq!(feed.since(0, o, all).unwrap().len(), 4);
    }

    #[test]
    fn the_changes_of_others_hide_nothing_of_a_quiet_cluster() {
        let feed = Feed::at(7);
        let (o, c) = (Uuid::from_u128(1), Uuid::from_u128(2));
        feed.publish(&[note(8, Kind::Node, 1, 2)]);
        let others = (9..30_000).map(|number| note(number, Kind::Node, 1, 3));
        feed.publish(&others.collect::<Vec<_>>());
        assert_eq!(feed.since(7, o, c).unwrap(), [(Kind::Node, 8)]);
        assert_eq!(feed.since(8, o, c).unwrap(), []);
        assert_eq!(feed.since(6, o, c), None);
    }

    #[test]
    fn what_changed_before_the_start_is_known_from_a_number_on() {
        let (o, c) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let feed = Feed::at(9).with_earlier(5, &[note(6, Kind::User, 1, 0), note(8, Kind::Node, 1, 3)]);
        assert_eq!(feed.latest(), 9);
        assert_eq!(feed.since(4, o, c), None);
        assert_eq!(feed.since(5, o, c).unwrap(), [(Kind::User, 6)]);
        assert_eq!(feed.since(6, o, c).unwrap(), []);
    }

    #[test]
    fn what_a_cluster_reports_of_itself_concerns_no_other() {
        let feed = Feed::at(0);
        let (o, [one, other]) = (Uuid::from_u128(1), [2, 3].map(Uuid::from_u128));
        let streams = [one, other].map(|cluster| feed.subscribe(o, cluster));
        feed.publish(&[note(1, Kind::Cluster, 1, 3)]);
        assert_eq!(streams.map(|stream| stream.has_changed().unwrap()), [false, true]);
        assert_eq!(feed.since(0, o, one).unwrap(), []);
        assert_eq!(feed.since(0, o, other).unwrap(), [(Kind::Cluster, 1)]);
        // The list of all clusters shows it.
        assert!(feed.holds(0, &[note(0, Kind::Cluster, 1, 2).scope]));
        assert!(!feed.holds(0, &[note(0, Kind::Cluster, 1, 0).scope]));
    }
}
