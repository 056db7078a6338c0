//! The `ClusterRoles` that are held as another coordinator left them, because ours would permit less: for `CloudSync`,
//! and for a release.
//!
//! The authorization role controller decides which are held. A person sees all of them at once, and releases all of
//! them by one revision.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tidewaiter_api::cloud_sync::{CLUSTER_ROLE, RELEASE_ANNOTATION};
use tidewaiter_api::{HeldDeletions, KindSync};
use tidewaiter_kit::SharedClock;
use tokio::sync::watch;

use crate::digest::digest;

/// Roles that the status names.
const NAMED: usize = 16;

/// Roles that the condition names, each with what it would lose.
const EXPLAINED: usize = 3;

/// Digits of a revision.
const REVISION: usize = 12;

/// The held roles. Clones share them.
#[derive(Clone)]
pub struct HeldRoles(Arc<Shared>);

struct Shared {
    clock: SharedClock,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    wakes: Mutex<Vec<Wake>>,
}

/// Is called with the id of each role that was released.
type Wake = Box<dyn Fn(&str) + Send + Sync>;

/// The rules that each role would lose, in words, by the id of the role.
type Lost = BTreeMap<String, Vec<String>>;

#[derive(Default)]
struct State {
    held: Lost,
    /// What a person released. A role that would lose other rules is held again.
    released: Lost,
    since: Timestamp,
}

impl HeldRoles {
    /// Starts empty.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self(Arc::new(Shared {
            clock,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            wakes: Mutex::default(),
        }))
    }

    /// Holds the role, which would lose these rules, unless a person has released that. Returns whether it is held.
    pub(crate) fn hold(&self, role: &str, lost: &[String]) -> bool {
        let mut state = self.state();
        if state.released.get(role).is_some_and(|released| released == lost) {
            return false;
        }
        if state.held.is_empty() {
            state.since = self.0.clock.now();
        }
        let before = state.held.insert(role.to_owned(), lost.to_vec());
        drop(state);
        if before.as_deref() != Some(lost) {
            self.0.changed.send_replace(());
        }
        true
    }

    /// The role is not held any more: it is as our rules say, or gone.
    pub(crate) fn clear(&self, role: &str) {
        let before = self.state().held.remove(role);
        if before.is_some() {
            self.0.changed.send_replace(());
        }
    }

    /// Whether the role is held.
    pub(crate) fn contains(&self, role: &str) -> bool {
        self.state().held.contains_key(role)
    }

    /// Calls `wake` with the id of each role that a person releases.
    pub(crate) fn notify(&self, wake: impl Fn(&str) + Send + Sync + 'static) {
        lock(&self.0.wakes).push(Box::new(wake));
    }

    /// Releases everything that is held, if this is its revision. Returns whether it is.
    pub(super) fn release(&self, revision: &str) -> bool {
        let mut state = self.state();
        if state.held.is_empty() || state.revision() != revision {
            return false;
        }
        let released = std::mem::take(&mut state.held);
        let roles: Vec<String> = released.keys().cloned().collect();
        state.released.extend(released);
        drop(state);
        self.0.changed.send_replace(());
        for role in roles {
            lock(&self.0.wakes).iter().for_each(|wake| wake(&role));
        }
        true
    }

    /// Notifies of every change.
    pub(super) fn updates(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// The entry of `CloudSync`; None if nothing was held since the start.
    pub(super) fn status(&self) -> Option<KindSync> {
        let state = self.state();
        if state.held.is_empty() && state.released.is_empty() {
            return None;
        }
        let held = (!state.held.is_empty()).then(|| HeldDeletions {
            revision: state.revision(),
            since: Timestamp::from_second(state.since.as_second()).unwrap_or(state.since),
            objects: u32::try_from(state.held.len()).unwrap_or(u32::MAX),
            additions: 0,
            names: state.held.keys().take(NAMED).cloned().collect(),
            reason: state.message(),
        });
        Some(KindSync {
            kind: CLUSTER_ROLE.to_owned(),
            held,
            ..KindSync::default()
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl State {
    fn revision(&self) -> String {
        let parts = self.held.iter().flat_map(|(role, lost)| {
            let lost = lost.iter().map(String::as_str);
            std::iter::once(role.as_str()).chain(lost)
        });
        digest(parts)[..REVISION].to_owned()
    }

    /// Who loses what, and the remedy; at most as long as a reason of `CloudSync` may be.
    fn message(&self) -> String {
        let loses = |(role, lost): (&String, &Vec<String>)| format!("{role} loses {}", shortened(&lost.join("; ")));
        let explained: Vec<String> = self.held.iter().take(EXPLAINED).map(loses).collect();
        format!(
            "{} ClusterRoles are held as another coordinator left them, because these settings permit less: {}. The Events RoleHeld name all rules. \
             To keep them, set allowPrivileged: true; to let them go: tidewaiter release {CLUSTER_ROLE}, or kubectl annotate --overwrite \
             cloudsync/cloud {RELEASE_ANNOTATION}={}",
            self.held.len(),
            explained.join(", "),
            self.revision()
        )
    }
}

/// The text, or its beginning up to the end of a rule, or of a word.
fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    let cut = &text[..text.floor_char_boundary(MOST)];
    if cut == text {
        return text.to_owned();
    }
    let end = cut.rfind("; ").or_else(|| cut.rfind(' ')).unwrap_or(cut.len());
    format!("{} …", &cut[..end])
}

impl fmt::Debug for HeldRoles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldRoles").field(&self.state().held).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;

    use super::*;

    #[test]
    fn what_is_too_long_ends_with_a_rule_or_a_word() {
        let rule = format!(
            "\"get secrets\" {}",
            "needs allowPrivileged: true ".repeat(5).trim_end()
        );
        assert_eq!(shortened(&rule), rule);
        assert_eq!(shortened(&format!("{rule}; {rule}")), format!("{rule} …"));
        let long = shortened(&"needs ".repeat(40));
        assert!(long.ends_with("needs …") && long.len() < 210, "{long}");
    }

    #[test]
    fn one_release_is_for_what_was_shown_and_a_longer_message_is_cut() {
        let held_roles = HeldRoles::new(ManualClock::default().shared());
        assert!(held_roles.status().is_none() && !held_roles.release(""));
        let woken = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&woken);
        held_roles.notify(move |role| lock(&log).push(role.to_owned()));
        let lost = |rule: &str| vec![rule.to_owned()];
        assert!(held_roles.hold("a", &lost("* *.*")) && held_roles.hold("b", &lost(&"é".repeat(2000))));
        let held = held_roles.status().unwrap().held.unwrap();
        assert!(
            held.reason.contains("a loses * *.*") && held.reason.len() <= 1024,
            "{}",
            held.reason
        );
        assert_eq!(
            (held.objects, &held.names[..]),
            (2, &["a".to_owned(), "b".to_owned()][..])
        );
        // Another role is held meanwhile: the person has not seen it.
        assert!(held_roles.hold("c", &lost("get secrets")));
        assert!(!held_roles.release(&held.revision) && held_roles.contains("a"));
        held_roles.clear("c");
        assert!(held_roles.release(&held.revision));
        assert_eq!(*lock(&woken), ["a", "b"]);
        assert!(!held_roles.hold("a", &lost("* *.*")) && !held_roles.contains("a"));
        assert!(held_roles.status().unwrap().held.is_none());
        assert!(
            held_roles.hold("a", &lost("get secrets")),
            "it would lose something else"
        );
    }
}
