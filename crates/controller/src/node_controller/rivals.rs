//! Which Nodes claim one instance: an index over the cached Nodes, by the providerID to the letter.
//!
//! Two forms of one instance cannot hide a rival: each provider takes only one form of an instance's id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The index. Kept by the Node cache's changes, read by observations.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    claims: Mutex<Claims>,
}

#[derive(Debug, Default)]
struct Claims {
    by_node: HashMap<Arc<str>, Arc<str>>,
    /// Almost always one.
    by_claim: HashMap<Arc<str>, Vec<Arc<str>>>,
}

impl Rivals {
    /// Notes what Node `name` claims now; `None` when it claims nothing, or is gone. Returns the other Nodes whose rivals
    /// changed by it.
    pub(super) fn note(&self, name: &str, claim: Option<&str>) -> Vec<Arc<str>> {
        let mut claims = self.lock();
        if claims.by_node.get(name).map(AsRef::as_ref) == claim {
            return Vec::new();
        }
        let mut touched = claims.withdraw(name);
        if let Some(claim) = claim {
            touched.extend(claims.enter(name, claim));
        }
        touched
    }

    /// The other Nodes that claim what `name` claims, in the order of their names.
    #[must_use]
    pub(super) fn of(&self, name: &str) -> Vec<Arc<str>> {
        let claims = self.lock();
        let rivals = claims.by_node.get(name).and_then(|claim| claims.by_claim.get(claim));
        let mut others: Vec<_> = rivals
            .into_iter()
            .flatten()
            .filter(|rival| rival.as_ref() != name)
            .cloned()
            .collect();
        others.sort_unstable();
        others
    }

    fn lock(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims {
    fn withdraw(&mut self, name: &str) -> Vec<Arc<str>> {
        let Some((name, claim)) = self.by_node.remove_entry(name) else {
            return Vec::new();
        };
        let Some(claimants) = self.by_claim.get_mut(&claim) else {
            return Vec::new();
        };
        claimants.retain(|claimant| *claimant != name);
        let left = claimants.clone();
        if left.is_empty() {
            self.by_claim.remove(&claim);
        }
        left
    }

    fn enter(&mut self, name: &str, claim: &str) -> Vec<Arc<str>> {
        let (name, claim): (Arc<str>, Arc<str>) = (name.into(), claim.into());
        let claimants = self.by_claim.entry(Arc::clone(&claim)).or_default();
        let met = claimants.clone();
        claimants.reserve_exact(1);
        claimants.push(Arc::clone(&name));
        self.by_node.insert(name, claim);
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(found: &[Arc<str>]) -> Vec<&str> {
        found.iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn two_claims_of_one_instance_are_rivals_until_one_goes() {
        let rivals = Rivals::default();
        assert!(rivals.note("a", Some("aws:///z/i-1")).is_empty());
        assert!(rivals.note("b", Some("aws:///z/i-2")).is_empty());
        assert_eq!(names(&rivals.note("b2", Some("aws:///z/i-1"))), ["a"]);
        assert_eq!(names(&rivals.of("a")), ["b2"]);
        assert_eq!(names(&rivals.of("b2")), ["a"]);
        assert!(rivals.of("b").is_empty());
        assert_eq!(names(&rivals.note("b2", None)), ["a"]);
        assert!(rivals.of("a").is_empty());
    }

    #[test]
    fn a_claim_that_stays_touches_nobody() {
        let rivals = Rivals::default();
        rivals.note("a", Some("x"));
        rivals.note("b", Some("x"));
        assert!(rivals.note("b", Some("x")).is_empty());
        assert_eq!(names(&rivals.note("b", Some("y"))), ["a"]);
    }

    #[test]
    fn what_is_gone_is_not_kept() {
        let rivals = Rivals::default();
        rivals.note("a", Some("x"));
        rivals.note("a", None);
        rivals.note("never", None);
        let claims = rivals.lock();
        assert!(claims.by_node.is_empty() && claims.by_claim.is_empty());
    }
}
