//! The holds apart from the deletions of mirrored objects, until a person releases them: for `CloudSync`, and for a
//! release. A person sees all of a kind at once, and releases all of it by one revision.
//!
//! - The `ClusterRoles` that stay as another coordinator left them, because ours would permit less. The authorization
//!   role controller decides which.
//! - The Nodes whose node pool stays, because a list of the cloud lacks them and its record of deletions does not name
//!   them. The loop that lists the nodes decides which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tidewaiter_api::cloud_sync::{CLUSTER_ROLE, NODE, RELEASE_ANNOTATION};
use tidewaiter_api::names::NODE_POOL_LABEL;
use tidewaiter_api::{HeldDeletions, KindSync};
use tidewaiter_kit::SharedClock;
use tokio::sync::watch;

use super::kind::{CALLED, with_name};
use crate::digest::digest;

/// Objects that the status names.
pub(super) const NAMED: usize = 16;

/// Roles that the condition names, each with what it would lose.
const EXPLAINED: usize = 3;

/// Digits of a revision.
const REVISION: usize = 12;

/// The holds of one kind. Clones share it.
#[derive(Clone)]
pub struct Held(Arc<Shared>);

struct Shared {
    kind: &'static str,
    message: fn(&State, &str) -> String,
    clock: SharedClock,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    wakes: Mutex<Vec<Wake>>,
}

/// Is called with the name of each object that was released.
type Wake = Box<dyn Fn(&str) + Send + Sync>;

/// The losses of each object, in words, by its name.
type Lost = BTreeMap<String, Vec<String>>;

#[derive(Default)]
struct State {
    held: Lost,
    /// The losses that a person released. An object that would lose something else is held again.
    released: Lost,
    why: &'static str,
    since: Timestamp,
    /// True if anything was held since the start.
    was_held: bool,
    /// The display names of the objects, by their names.
    called: BTreeMap<String, String>,
}

impl State {
    fn called(&self, name: &str) -> String {
        with_name(self.called.get(name).map_or("", String::as_str), CALLED, name)
    }
}

impl Held {
    /// The `ClusterRoles`, by the ids of the roles.
    #[must_use]
    pub fn roles(clock: SharedClock) -> Self {
        Self::new(CLUSTER_ROLE, roles, clock)
    }

    /// The Nodes. What they would lose is the same for all, so it is not recorded.
    #[must_use]
    pub fn nodes(clock: SharedClock) -> Self {
        Self::new(NODE, nodes, clock)
    }

    fn new(kind: &'static str, message: fn(&State, &str) -> String, clock: SharedClock) -> Self {
        Self(Arc::new(Shared {
            kind,
            message,
            clock,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            wakes: Mutex::default(),
        }))
    }

    /// Holds the object, which would lose this, unless a person has released that. Returns whether it is held.
    pub(crate) fn hold(&self, name: &str, lost: &[String]) -> bool {
        let mut is_held = true;
        self.update(|state| {
            is_held = state.released.get(name).is_none_or(|released| released != lost);
            is_held && state.held.insert(name.to_owned(), lost.to_vec()).as_deref() != Some(lost)
        });
        is_held
    }

    /// People call the object so.
    pub(crate) fn call(&self, name: &str, called: &str) {
        self.0.state.lock().called.insert(name.to_owned(), called.to_owned());
    }

    /// Holds exactly these objects, but for those that a person has released. Returns the held ones.
    pub(crate) fn hold_exactly(&self, names: &BTreeSet<String>, why: &'static str) -> BTreeSet<String> {
        let mut names = names.clone();
        self.update(|state| {
            state.released.retain(|name, _| names.contains(name));
            names.retain(|name| !state.released.contains_key(name));
            let is_news = !names.iter().eq(state.held.keys()) || (!names.is_empty() && state.why != why);
            state.held = names.iter().map(|name| (name.clone(), Vec::new())).collect();
            state.why = why;
            is_news
        });
        names
    }

    /// The object is not held any more: it is as it should be, or gone.
    pub(crate) fn clear(&self, name: &str) {
        self.update(|state| {
            state.called.remove(name);
            state.held.remove(name).is_some()
        });
    }

    /// Notifies if `change` returns that it changed something.
    fn update(&self, change: impl FnOnce(&mut State) -> bool) {
        let mut state = self.0.state.lock();
        if state.held.is_empty() {
            state.since = self.0.clock.now();
        }
        let is_news = change(&mut state);
        state.was_held |= !state.held.is_empty();
        drop(state);
        if is_news {
            self.0.changed.send_replace(());
        }
    }

    /// Returns true if the object is held.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.state.lock().held.contains_key(name)
    }

    /// Calls `wake` with the name of each object that a person releases.
    pub(crate) fn notify(&self, wake: impl Fn(&str) + Send + Sync + 'static) {
        self.0.wakes.lock().push(Box::new(wake));
    }

    /// Releases everything that is held, if this is its revision. Returns whether it is.
    pub(crate) fn release(&self, revision: &str) -> bool {
        let mut state = self.0.state.lock();
        if state.held.is_empty() || self.revision(&state) != revision {
            return false;
        }
        let released = std::mem::take(&mut state.held);
        let names: Vec<String> = released.keys().cloned().collect();
        state.released.extend(released);
        drop(state);
        self.0.changed.send_replace(());
        for name in names {
            self.0.wakes.lock().iter().for_each(|wake| wake(&name));
        }
        true
    }

    /// Notifies of every change.
    pub(super) fn updates(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// The entry of `CloudSync`; None if nothing was held since the start.
    pub(crate) fn status(&self) -> Option<KindSync> {
        let state = self.0.state.lock();
        let held = (!state.held.is_empty()).then(|| {
            let revision = self.revision(&state);
            HeldDeletions {
                since: Timestamp::from_second(state.since.as_second()).unwrap_or(state.since),
                objects: u32::try_from(state.held.len()).unwrap_or(u32::MAX),
                additions: 0,
                names: state.held.keys().take(NAMED).map(|name| state.called(name)).collect(),
                reason: (self.0.message)(&state, &revision),
                revision,
            }
        });
        state.was_held.then(|| KindSync {
            kind: self.0.kind.to_owned(),
            held,
            ..KindSync::default()
        })
    }

    fn revision(&self, state: &State) -> String {
        let parts = state.held.iter().flat_map(|(name, lost)| {
            let lost = lost.iter().map(String::as_str);
            std::iter::once(name.as_str()).chain(lost)
        });
        digest(std::iter::once(self.0.kind).chain(parts))[..REVISION].to_owned()
    }
}

/// The roles with their losses, and the remedy; at most as long as a reason of `CloudSync` may be.
fn roles(state: &State, revision: &str) -> String {
    let loses = |(role, lost): (&String, &Vec<String>)| {
        let lost = shortened(&lost.join("; "));
        format!("{} loses {lost}", state.called(role))
    };
    let explained: Vec<String> = state.held.iter().take(EXPLAINED).map(loses).collect();
    format!(
        "{} ClusterRoles are held as another coordinator left them, because these settings permit less: {}. The Events RoleHeld name all rules. \
         To keep them, set allowPrivileged: true; to let them go: tidewaiter release {CLUSTER_ROLE}, or kubectl annotate --overwrite \
         cloudsync/cloud {RELEASE_ANNOTATION}={revision}",
        state.held.len(),
        explained.join(", "),
    )
}

fn nodes(state: &State, revision: &str) -> String {
    format!(
        "{} Nodes would lose the labels of their node pools: the cloud's list of nodes lacks them, and {}. If that is right: tidewaiter release {NODE}, or \
         kubectl annotate --overwrite cloudsync/cloud {RELEASE_ANNOTATION}={revision}. With nodePools: cloud-then-label, a Node of a pool of which the cloud \
         names no other node keeps them as long as it has the label {NODE_POOL_LABEL}; to end that, too: kubectl label node NODE {NODE_POOL_LABEL}-",
        state.held.len(),
        state.why,
    )
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
        let held_roles = Held::roles(ManualClock::default().shared());
        assert!(held_roles.status().is_none() && !held_roles.release(""));
        let woken = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&woken);
        held_roles.notify(move |role| log.lock().push(role.to_owned()));
        let lost = |rule: &str| vec![rule.to_owned()];
        held_roles.call("a", "ad\u{1b}[2Jmins");
        assert!(held_roles.hold("a", &lost("* *.*")) && held_roles.hold("b", &lost(&"é".repeat(2000))));
        let held = held_roles.status().unwrap().held.unwrap();
        assert!(
            held.reason.contains("ad\\u{1b}[2Jmins (a) loses * *.*") && held.reason.len() <= 1024,
            "{}",
            held.reason
        );
        assert_eq!(
            (held.objects, &held.names[..]),
            (2, &["ad\\u{1b}[2Jmins (a)".to_owned(), "b".to_owned()][..])
        );
        // Another role is held meanwhile: the person has not seen it.
        assert!(held_roles.hold("c", &lost("get secrets")));
        assert!(!held_roles.release(&held.revision) && held_roles.contains("a"));
        held_roles.clear("c");
        assert!(held_roles.release(&held.revision));
        assert_eq!(*woken.lock(), ["a", "b"]);
        assert!(!held_roles.hold("a", &lost("* *.*")) && !held_roles.contains("a"));
        assert!(held_roles.status().unwrap().held.is_none());
        assert!(
            held_roles.hold("a", &lost("get secrets")),
            "it would lose something else"
        );
    }

    #[test]
    fn a_release_lets_exactly_what_was_shown_pass_and_ends_with_the_list() {
        let held = Held::nodes(ManualClock::default().shared());
        let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(held.hold_exactly(&nodes(&[]), ""), nodes(&[]));
        assert_eq!(held.status(), None);
        assert_eq!(held.hold_exactly(&nodes(&["a", "b"]), "why"), nodes(&["a", "b"]));
        let shown = held.status().unwrap().held.unwrap();
        assert_eq!((shown.objects, shown.names), (2, vec!["a".to_owned(), "b".to_owned()]));
        for words in [
            "and why. If",
            "With nodePools: cloud-then-label, a Node",
            "kubectl label node",
        ] {
            assert!(shown.reason.contains(words), "{}", shown.reason);
        }
        assert_eq!(held.hold_exactly(&nodes(&["a"]), "why"), nodes(&["a"]));
        assert!(!held.release(&shown.revision), "something else is held now");
        let revision = held.status().unwrap().held.unwrap().revision;
        assert!(held.release(&revision));
        assert_eq!(held.status().unwrap().held, None);
        assert_eq!(held.hold_exactly(&nodes(&["a", "b"]), "why"), nodes(&["b"]));
        assert_eq!(held.hold_exactly(&nodes(&[]), ""), nodes(&[]));
        let again = held.hold_exactly(&nodes(&["a"]), "why");
        assert_eq!(again, nodes(&["a"]), "a release is used once");
    }
}
