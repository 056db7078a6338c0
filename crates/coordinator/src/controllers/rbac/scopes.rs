//! For which scope the rules of each role may be in force, and in which scope bindings may give it: what a cache shows
//! only later.
//!
//! A rule may amount to full control only in a wide scope. The role controller would write it and the binding
//! controller would bind the role in that scope within the same milliseconds, each by caches that do not show the
//! other's write. So each enters here what it is about to write before it looks at what the other one has entered: of
//! two, the second one waits.
//!
//! - A binding is entered before the rules are looked at. It is removed when the API server has shown that the binding
//!   does not exist.
//! - Rules are entered before they are written, and count until the API server has confirmed others. A write without an
//!   answer counts for [`IN_DOUBT`], because it may still take effect.
//! - After a restart nothing is known of the rules: then the `ClusterRole` is read from the API server.
//!
//! Never: a decision from what a process before has written, or believes to have written.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewaiter_api::access::Scope;
use tidewaiter_kit::{SharedClock, WriteError};

/// Longer than an API server works on a request. Source: its flag `--request-timeout`, one minute.
const IN_DOUBT: Duration = Duration::from_secs(65);

/// The record of one process. Clones share it.
#[derive(Clone)]
pub(in crate::controllers) struct Scopes {
    state: Arc<Mutex<State>>,
    clock: SharedClock,
}

#[derive(Default)]
struct State {
    /// By the id of the role.
    rules: BTreeMap<String, Rules>,
    /// By the name of the `AuthorizationRoleBinding`.
    bindings: BTreeMap<String, Vec<Entered>>,
    /// The number of bindings that are entered, by the id of the role and the scope.
    counts: BTreeMap<(String, Scope), usize>,
}

/// The widest scopes in which rules of a role do not amount to full control.
#[derive(Default)]
struct Rules {
    /// Of the rules that the API server confirmed; None if that is not known.
    confirmed: Option<Scope>,
    /// Of the rules that are being written.
    in_flight: Option<Scope>,
    /// Of rules that may or may not have been written, and until when they may be.
    in_doubt: Option<(Scope, Duration)>,
}

/// A place where a binding may give a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controllers) struct Place {
    pub(in crate::controllers) role: String,
    /// None for the whole cluster.
    pub(in crate::controllers) namespace: Option<String>,
    pub(in crate::controllers) scope: Scope,
}

struct Entered {
    place: Place,
    /// A write of it may take effect until then (monotonic).
    in_doubt: Duration,
}

impl Scopes {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            state: Arc::default(),
            clock,
        }
    }

    /// Enters the binding, which is about to be written.
    pub(in crate::controllers) fn enter(&self, binding: &str, place: &Place) {
        let mut state = self.state.lock();
        let State { bindings, counts, .. } = &mut *state;
        let entries = bindings.entry(binding.to_owned()).or_default();
        if entries.iter().any(|entry| entry.place == *place) {
            return;
        }
        entries.push(Entered {
            place: place.clone(),
            in_doubt: Duration::ZERO,
        });
        *counts.entry((place.role.clone(), place.scope)).or_default() += 1;
    }

    /// A write of the binding had no answer.
    pub(in crate::controllers) fn doubt(&self, binding: &str) {
        let until = self.clock.monotonic() + IN_DOUBT;
        for entry in self.state.lock().bindings.get_mut(binding).into_iter().flatten() {
            entry.in_doubt = until;
        }
    }

    /// The places in which the binding is entered.
    pub(in crate::controllers) fn places(&self, binding: &str) -> Vec<Place> {
        let state = self.state.lock();
        let entries = state.bindings.get(binding).into_iter().flatten();
        entries.map(|entry| entry.place.clone()).collect()
    }

    /// Removes the binding, which the API server does not have. Returns whether no write can bring it any more.
    pub(in crate::controllers) fn remove(&self, binding: &str, place: &Place) -> bool {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let State { bindings, counts, .. } = &mut *state;
        let Some(entries) = bindings.get_mut(binding) else {
            return true;
        };
        let Some(found) = entries.iter().position(|entry| entry.place == *place) else {
            return true;
        };
        if now < entries[found].in_doubt {
            return false;
        }
        entries.swap_remove(found);
        if entries.is_empty() {
            bindings.remove(binding);
        }
        if let Entry::Occupied(mut count) = counts.entry((place.role.clone(), place.scope)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        true
    }

    /// The widest scope in which a binding that is entered gives the role.
    pub(super) fn entered(&self, role: &str) -> Scope {
        self.state.lock().entered(role)
    }

    /// Begins to write rules that amount to full control in no scope up to `scope`. None if a binding of a wider one is
    /// entered.
    pub(in crate::controllers) fn begin(&self, role: &str, scope: Scope) -> Option<RulesWrite> {
        let mut state = self.state.lock();
        if scope < state.entered(role) {
            return None;
        }
        state.rules.entry(role.to_owned()).or_default().in_flight = Some(scope);
        Some(RulesWrite {
            scopes: self.clone(),
            role: role.to_owned(),
            scope,
            outcome: Outcome::InDoubt,
        })
    }

    /// Returns true if the role can be bound in the scope: that is, none of the rules that may be in force amounts to
    /// full control there. None if that is not known.
    pub(in crate::controllers) fn permits(&self, role: &str, scope: Scope) -> Option<bool> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let rules = state.rules.get_mut(role)?;
        if rules.in_doubt.is_some_and(|(_, until)| until <= now) {
            (rules.confirmed, rules.in_doubt) = (None, None);
        }
        let pending = rules
            .in_flight
            .into_iter()
            .chain(rules.in_doubt.map(|(scope, _)| scope));
        if pending.min().is_some_and(|pending| pending < scope) {
            return Some(false);
        }
        rules.confirmed.map(|confirmed| scope <= confirmed)
    }

    /// The API server has no rules of the role.
    pub(in crate::controllers) fn forget(&self, role: &str) {
        let mut state = self.state.lock();
        if state.rules.get(role).is_some_and(|rules| rules.in_doubt.is_none()) {
            state.rules.remove(role);
        }
    }
}

impl State {
    fn entered(&self, role: &str) -> Scope {
        let widest = [Scope::Cluster, Scope::SystemNamespace];
        let is_entered = |scope: &Scope| self.counts.contains_key(&(role.to_owned(), *scope));
        widest.into_iter().find(is_entered).unwrap_or_default()
    }
}

/// A write of rules. One that is dropped without an outcome is in doubt.
pub(in crate::controllers) struct RulesWrite {
    scopes: Scopes,
    role: String,
    scope: Scope,
    outcome: Outcome,
}

#[derive(Clone, Copy)]
enum Outcome {
    Confirmed,
    Refused,
    InDoubt,
}

impl RulesWrite {
    /// Ends it as the API server has answered.
    pub(in crate::controllers) fn end<T>(mut self, written: &Result<T, WriteError>) {
        self.outcome = match written {
            Ok(_) => Outcome::Confirmed,
            Err(error) if error.is_in_doubt() => Outcome::InDoubt,
            Err(_) => Outcome::Refused,
        };
    }
}

impl Drop for RulesWrite {
    fn drop(&mut self) {
        let now = self.scopes.clock.monotonic();
        let mut state = self.scopes.state.lock();
        let rules = state.rules.entry(self.role.clone()).or_default();
        rules.in_flight = None;
        rules.confirmed = match self.outcome {
            Outcome::Confirmed => Some(self.scope),
            Outcome::Refused | Outcome::InDoubt => None,
        };
        if matches!(self.outcome, Outcome::InDoubt) {
            let before = rules.in_doubt.filter(|(_, until)| now < *until).map(|(scope, _)| scope);
            let scope = before.map_or(self.scope, |before| before.min(self.scope));
            rules.in_doubt = Some((scope, now + IN_DOUBT));
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;

    use super::*;

    const ROLE: &str = "r";

    fn scopes() -> (Scopes, ManualClock) {
        let clock = ManualClock::default();
        (Scopes::new(clock.shared()), clock)
    }

    fn place(namespace: Option<&str>) -> Place {
        Place {
            role: ROLE.to_owned(),
            namespace: namespace.map(str::to_owned),
            scope: namespace.map_or(Scope::Cluster, |_| Scope::SystemNamespace),
        }
    }

    fn confirm(scopes: &Scopes, scope: Scope) {
        scopes.begin(ROLE, scope).unwrap().end(&Ok(()));
    }

    #[test]
    fn of_a_wide_binding_and_a_rule_the_second_one_waits() {
        let (scopes, _) = scopes();
        let writing = scopes.begin(ROLE, Scope::Namespace).unwrap();
        scopes.enter("b", &place(None));
        assert_eq!(scopes.permits(ROLE, Scope::Cluster), Some(false));
        assert_eq!(scopes.permits("another", Scope::Cluster), None);
        writing.end(&Ok(()));
        assert_eq!(scopes.permits(ROLE, Scope::Cluster), Some(false));
        assert!(scopes.begin(ROLE, Scope::SystemNamespace).is_none());
        confirm(&scopes, Scope::Cluster);
        assert_eq!(scopes.permits(ROLE, Scope::Cluster), Some(true));
        assert!(scopes.remove("b", &place(None)));
        confirm(&scopes, Scope::Namespace);
        assert_eq!(scopes.permits(ROLE, Scope::SystemNamespace), Some(false));
    }

    #[test]
    fn the_widest_binding_counts_until_it_is_removed() {
        let (scopes, _) = scopes();
        let (everywhere, system) = (place(None), place(Some("kube-system")));
        for (binding, place) in [
            ("a", &everywhere),
            ("a", &everywhere),
            ("b", &everywhere),
            ("a", &system),
        ] {
            scopes.enter(binding, place);
        }
        assert_eq!(scopes.places("a"), [everywhere.clone(), system.clone()]);
        for (binding, place, left) in [
            ("a", &everywhere, Scope::Cluster),
            ("a", &everywhere, Scope::Cluster),
            ("b", &everywhere, Scope::SystemNamespace),
            ("a", &system, Scope::Namespace),
        ] {
            assert!(scopes.remove(binding, place));
            assert_eq!(scopes.entered(ROLE), left, "{binding}");
        }
        assert!(scopes.state.lock().bindings.is_empty() && scopes.state.lock().counts.is_empty());
    }

    #[test]
    fn a_write_without_an_answer_counts_as_long_as_it_may_take_effect() {
        let (scopes, clock) = scopes();
        confirm(&scopes, Scope::Cluster);
        drop(scopes.begin(ROLE, Scope::Namespace));
        // Another one that succeeds does not undo it: it may arrive later.
        confirm(&scopes, Scope::Cluster);
        clock.advance(IN_DOUBT / 2);
        drop(scopes.begin(ROLE, Scope::SystemNamespace));
        confirm(&scopes, Scope::Cluster);
        assert_eq!(scopes.permits(ROLE, Scope::SystemNamespace), Some(false));
        clock.advance(IN_DOUBT);
        assert_eq!(scopes.permits(ROLE, Scope::SystemNamespace), None, "it must be read");

        scopes.enter("b", &place(None));
        scopes.doubt("b");
        assert!(!scopes.remove("b", &place(None)));
        clock.advance(IN_DOUBT);
        assert!(scopes.remove("b", &place(None)));
    }
}
