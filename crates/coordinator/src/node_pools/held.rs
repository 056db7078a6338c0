//! The Nodes whose node pool is held, because a list of the cloud lacks them and its record of deletions does not name
//! them: for `CloudSync`, and for a release.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tidewaiter_api::cloud_sync::NODE;
use tidewaiter_api::{HeldDeletions, KindSync};
use tidewaiter_kit::SharedClock;
use tokio::sync::{Notify, watch};

use crate::digest::digest;

/// Nodes that the status names.
const NAMED: usize = 16;

/// Digits of a revision.
const REVISION: usize = 12;

/// The held Nodes. Clones share them.
#[derive(Clone)]
pub struct HeldNodes(Arc<Shared>);

struct Shared {
    clock: SharedClock,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    released: Notify,
}

#[derive(Default)]
struct State {
    held: BTreeSet<String>,
    why: &'static str,
    since: Timestamp,
    /// What a person released, as long as the list lacks it.
    released: BTreeSet<String>,
    /// Whether anything was held since the start.
    was_held: bool,
}

impl std::fmt::Debug for HeldNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldNodes").finish_non_exhaustive()
    }
}

impl HeldNodes {
    /// Starts empty.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self(Arc::new(Shared {
            clock,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            released: Notify::new(),
        }))
    }

    /// Holds exactly these Nodes, but for those that a person has released. Returns the held ones.
    pub(super) fn hold(&self, nodes: &BTreeSet<String>, why: &'static str) -> BTreeSet<String> {
        let mut state = self.state();
        state.released.retain(|node| nodes.contains(node));
        let held: BTreeSet<String> = nodes.difference(&state.released).cloned().collect();
        let is_news = state.held != held || (!held.is_empty() && state.why != why);
        if state.held.is_empty() {
            state.since = self.0.clock.now();
        }
        state.was_held |= !held.is_empty();
        (state.held, state.why) = (held.clone(), why);
        drop(state);
        if is_news {
            self.0.changed.send_replace(());
        }
        held
    }

    /// Completes when a person has released something.
    pub(super) async fn released(&self) {
        self.0.released.notified().await;
    }

    /// Releases everything that is held, if this is its revision. Returns whether it is.
    pub(crate) fn release(&self, revision: &str) -> bool {
        let mut state = self.state();
        if state.held.is_empty() || state.revision() != revision {
            return false;
        }
        let released = std::mem::take(&mut state.held);
        state.released.extend(released);
        drop(state);
        self.0.changed.send_replace(());
        self.0.released.notify_one();
        true
    }

    /// Notifies of every change.
    pub(crate) fn updates(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// The entry of `CloudSync`; None if nothing was held since the start.
    pub(crate) fn status(&self) -> Option<KindSync> {
        let state = self.state();
        let held = (!state.held.is_empty()).then(|| HeldDeletions {
            revision: state.revision(),
            since: Timestamp::from_second(state.since.as_second()).unwrap_or(state.since),
            objects: u32::try_from(state.held.len()).unwrap_or(u32::MAX),
            additions: 0,
            names: state.held.iter().take(NAMED).cloned().collect(),
            reason: state.message(),
        });
        state.was_held.then(|| KindSync {
            kind: NODE.to_owned(),
            held,
            ..KindSync::default()
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn revision(&self) -> String {
        let names = self.held.iter().map(String::as_str);
        digest(std::iter::once(NODE).chain(names))[..REVISION].to_owned()
    }

    fn message(&self) -> String {
        format!(
            "{} Node would lose the labels of its node pool: the cloud's list of nodes lacks it, and {}. If that is right: `tidewaiter release Node` (revision {})",
            self.held.len(),
            self.why,
            self.revision()
        )
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;

    use super::*;

    #[test]
    fn a_release_lets_exactly_what_was_shown_pass_and_ends_with_the_list() {
        let held = HeldNodes::new(ManualClock::default().shared());
        let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(held.hold(&nodes(&[]), ""), nodes(&[]));
        assert_eq!(held.status(), None);
        assert_eq!(held.hold(&nodes(&["a", "b"]), "why"), nodes(&["a", "b"]));
        let shown = held.status().unwrap().held.unwrap();
        assert_eq!((shown.objects, shown.names), (2, vec!["a".to_owned(), "b".to_owned()]));
        assert!(shown.reason.contains("and why. If"), "{}", shown.reason);
        assert_eq!(held.hold(&nodes(&["a"]), "why"), nodes(&["a"]));
        assert!(!held.release(&shown.revision), "something else is held now");
        let revision = held.status().unwrap().held.unwrap().revision;
        assert!(held.release(&revision));
        assert_eq!(held.status().unwrap().held, None);
        assert_eq!(held.hold(&nodes(&["a", "b"]), "why"), nodes(&["b"]));
        assert_eq!(held.hold(&nodes(&[]), ""), nodes(&[]));
        assert_eq!(
            held.hold(&nodes(&["a"]), "why"),
            nodes(&["a"]),
            "a release is used once"
        );
    }
}
