//! What changed since this process looked: by it cached answers are known to be right, and streams are woken.
//!
//! Numbers only grow and are published in order, after their commit. An answer that was made when the feed stood at N holds
//! as long as nothing that it depends on changed after N.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use tidewaiter_kit::random;
use tokio::sync::watch;
use uuid::Uuid;

use crate::server::kind::Kind;

/// So many changes can be replayed to a stream without asking the database.
const RECENT: usize = 4_096;

/// What a change concerns: objects of one kind, of an organization (nil: of all), of a cluster (nil: of all).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The kind.
    pub kind: Kind,
    /// The organization.
    pub organization: Uuid,
    /// The cluster.
    pub cluster: Uuid,
}

/// A change that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommittedChange {
    /// Its number.
    pub sequence: i64,
    /// What it concerns.
    pub scope: Scope,
    /// Whether it may change who somebody is or what he may do.
    pub decides: bool,
}

impl CommittedChange {
    /// Whether `cluster` of `organization` has to know.
    #[must_use]
    pub fn concerns(&self, organization: Uuid, cluster: Uuid) -> bool {
        let scope = self.scope;
        (scope.organization.is_nil() || scope.organization == organization)
            && (scope.cluster.is_nil() || scope.cluster == cluster)
    }
}

/// Who listens: for each organization, for each of its clusters.
type Listeners = HashMap<Uuid, HashMap<Uuid, watch::Sender<i64>>>;

/// What changed.
#[derive(Debug, Default)]
pub struct Feed {
    latest: AtomicI64,
    /// While it is not known what other replicas do, nothing that is kept counts.
    deaf: AtomicBool,
    changed: RwLock<HashMap<Scope, i64>>,
    /// The last change that may decide who somebody is.
    identities: AtomicI64,
    recent: Mutex<VecDeque<CommittedChange>>,
    listeners: Mutex<Listeners>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feed {
    /// A feed that stands at `sequence`.
    pub(super) fn at(sequence: i64) -> Self {
        let feed = Self::default();
        feed.latest.store(sequence, Ordering::Release);
        feed
    }

    /// The number of the last change that was published.
    pub fn latest(&self) -> i64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Whether what was read when the feed stood at `as_of`, and depends on `scopes`, is still so.
    pub fn holds(&self, as_of: i64, scopes: &[Scope]) -> bool {
        if self.deaf.load(Ordering::Acquire) {
            return false;
        }
        let changed = self.changed.read().unwrap_or_else(PoisonError::into_inner);
        scopes
            .iter()
            .all(|scope| changed.get(scope).is_none_or(|at| *at <= as_of))
    }

    /// Whether what was known at `as_of` of somebody's identity is still so.
    pub fn identities_hold(&self, as_of: i64) -> bool {
        !self.deaf.load(Ordering::Acquire) && self.identities.load(Ordering::Acquire) <= as_of
    }

    /// That it is not known any more, or is known again, what other replicas do.
    pub(super) fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::Release);
    }

    /// Whether other replicas are heard.
    pub fn hears(&self) -> bool {
        !self.deaf.load(Ordering::Acquire)
    }

    /// Publishes `notes`, which are in order. Those that were published already are left out.
    pub(super) fn publish(&self, notes: &[CommittedChange]) {
        // One at a time, so that numbers are published in order.
        let mut recent = held(&self.recent);
        let latest = self.latest();
        let fresh = notes.iter().filter(|note| note.sequence > latest);
        let fresh: Vec<CommittedChange> = fresh.copied().collect();
        let Some(last) = fresh.last() else { return };
        {
            let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
            for note in &fresh {
                changed.insert(note.scope, note.sequence);
            }
        }
        if let Some(note) = fresh.iter().rev().find(|note| note.decides) {
            self.identities.store(note.sequence, Ordering::Release);
        }
        recent.extend(&fresh);
        let over = recent.len().saturating_sub(RECENT);
        recent.drain(..over);
        self.latest.store(last.sequence, Ordering::Release);
        drop(recent);
        self.wake(&fresh);
    }

    fn wake(&self, notes: &[CommittedChange]) {
        let listeners = held(&self.listeners);
        // Whoever listens and may not any more is woken too, so that his stream ends.
        let waking = |note: &&CommittedChange| note.decides || note.scope.kind.event().is_some();
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
                } else if let Some(wake) = clusters.get(&note.scope.cluster) {
                    wake.send_replace(note.sequence);
                }
            }
        }
    }

    /// Hears of what concerns `cluster`: the number of the last such change since.
    pub fn subscribe(&self, organization: Uuid, cluster: Uuid) -> watch::Receiver<i64> {
        let mut listeners = held(&self.listeners);
        let clusters = listeners.entry(organization).or_default();
        // Those whose streams have ended go when somebody comes.
        if clusters.len() > 64 && random::index(clusters.len()) == 0 {
            clusters.retain(|_, wake| wake.receiver_count() > 0);
        }
        clusters
            .entry(cluster)
            .or_insert_with(|| watch::Sender::new(0))
            .subscribe()
    }

    /// The changes after `sequence` that concern `cluster`; None when it is too long ago for the memory of this process.
    pub fn since(&self, sequence: i64, organization: Uuid, cluster: Uuid) -> Option<Vec<CommittedChange>> {
        let recent = held(&self.recent);
        let covered = recent.front().map_or(self.latest(), |first| first.sequence - 1);
        if sequence < covered {
            return None;
        }
        let from = recent.partition_point(|note| note.sequence <= sequence);
        let concerning = recent.range(from..).filter(|note| note.concerns(organization, cluster));
        Some(concerning.copied().collect())
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
        let decides = kind.decides_who_may(false);
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
        // An old number once more changes nothing.
        feed.publish(&[note(6, Kind::User, 1, 0)]);
        assert!(feed.holds(5, &[users]));
        assert_eq!(feed.latest(), 7);
        feed.set_deaf(true);
        assert!(!feed.holds(7, &[users]) && !feed.identities_hold(7));
    }

    #[test]
    fn only_what_decides_who_may_makes_identities_doubtful() {
        let feed = Feed::at(0);
        feed.publish(&[note(1, Kind::ClusterLabel, 1, 2)]);
        assert!(feed.identities_hold(0));
        feed.publish(&[note(2, Kind::Membership, 1, 0), note(3, Kind::Node, 1, 2)]);
        assert!(!feed.identities_hold(1));
        assert!(feed.identities_hold(2));
    }

    #[test]
    fn a_stream_hears_what_concerns_its_cluster() {
        let feed = Feed::at(0);
        let (o, c) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let hears = feed.subscribe(o, c);
        feed.publish(&[
            note(1, Kind::ClusterLabel, 1, 3),
            note(2, Kind::User, 9, 0),
            note(3, Kind::Token, 1, 0),
        ]);
        assert!(!hears.has_changed().unwrap());
        feed.publish(&[note(4, Kind::PluginVersion, 0, 0)]);
        assert!(hears.has_changed().unwrap());
        feed.publish(&[note(5, Kind::User, 1, 0), note(6, Kind::Node, 1, 2)]);
        let numbers = |since| {
            let notes = feed.since(since, o, c)?;
            Some(notes.iter().map(|note| note.sequence).collect::<Vec<_>>())
        };
        assert_eq!(numbers(0).unwrap(), [3, 4, 5, 6]);
        assert_eq!(numbers(5).unwrap(), [6]);
        feed.publish(
            &(7..7 + i64::try_from(RECENT).unwrap())
                .map(|n| note(n, Kind::Node, 1, 2))
                .collect::<Vec<_>>(),
        );
        assert_eq!(numbers(5), None);
        assert_eq!(numbers(6).unwrap().len(), RECENT);
    }
}
