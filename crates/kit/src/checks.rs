//! The readiness checks of the process, and what they mean for the election.
//!
//! Checks only read memory. Most concern readiness alone. A replica for which a required check has never passed could
//! do nothing as the leader, and does not stand for election. One that fails a preferred check, or now fails a required
//! one, could do a part of the work, and leaves the Lease to a replica that is fit.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The readiness checks of the process, in the order of their registration. Clones share them.
#[derive(Clone, Default)]
pub struct Checks {
    checks: Arc<RwLock<Vec<Registered>>>,
}

struct Registered {
    name: String,
    check: Check,
    effect: ElectionEffect,
    /// True if it has passed once.
    passed: AtomicBool,
}

/// The consequence of a failed check for the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElectionEffect {
    None,
    /// Another replica is the better leader.
    Deprioritize,
    /// Until it has passed once, the replica does not stand for election; afterwards as `Deprioritize`.
    BlockUntilPassed,
}

impl Registered {
    fn run(&self) -> Result<(), String> {
        (self.check)().inspect(|()| self.passed.store(true, Ordering::Relaxed))
    }
}

/// The part of a leader's work that this replica could do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// Every check that concerns the election passes.
    Fit,
    /// A part of it: a check fails. Contains its name and its reason.
    Impaired(String),
    /// Nothing: a required check has never passed. Contains its name and its reason.
    Unfit(String),
}

impl Checks {
    /// Without checks, which is ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check of readiness. It runs on every request, so it only reads memory. Its error names what is missing.
    pub fn register(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.add(name.into(), Box::new(check), ElectionEffect::None);
    }

    /// Adds a check of readiness without which a replica does only a part of its work: while it fails, another replica
    /// is the better leader.
    pub fn prefer(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.add(name.into(), Box::new(check), ElectionEffect::Deprioritize);
    }

    /// Adds a check of readiness without which a replica can do nothing: until it has passed once, the replica does not
    /// stand for election. Afterwards as [`Checks::prefer`].
    pub fn require(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.add(name.into(), Box::new(check), ElectionEffect::BlockUntilPassed);
    }

    fn add(&self, name: String, check: Check, effect: ElectionEffect) {
        let registered = Registered {
            name,
            check,
            effect,
            passed: AtomicBool::new(false),
        };
        let mut checks = self.checks.write();
        checks.push(registered);
    }

    /// True if every check passes, and a line for each, in the format of kube-apiserver's `/readyz?verbose`.
    #[must_use]
    pub fn report(&self) -> (bool, String) {
        let mut ready = true;
        let mut report = String::new();
        for registered in self.checks.read().iter() {
            match registered.run() {
                Ok(()) => report.extend(["[+]", &registered.name, " ok\n"]),
                Err(reason) => {
                    ready = false;
                    report.extend(["[-]", &registered.name, " failed: ", &reason, "\n"]);
                }
            }
        }
        report.push_str(if ready {
            "readyz check passed\n"
        } else {
            "readyz check failed\n"
        });
        (ready, report)
    }

    /// The fitness of this replica to lead now, with the first check that fails.
    #[must_use]
    pub fn fitness(&self) -> Fitness {
        let mut fitness = Fitness::Fit;
        let checks = self.checks.read();
        for registered in checks.iter().filter(|check| check.effect != ElectionEffect::None) {
            let Err(reason) = registered.run() else { continue };
            let failure = format!("{}: {reason}", registered.name);
            if registered.effect == ElectionEffect::BlockUntilPassed && !registered.passed.load(Ordering::Relaxed) {
                return Fitness::Unfit(failure);
            }
            if fitness == Fitness::Fit {
                fitness = Fitness::Impaired(failure);
            }
        }
        fitness
    }
}

impl Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.checks.read();
        f.debug_list().entries(checks.iter().map(|check| &check.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check that a test makes pass and fail.
    fn add(register: impl FnOnce(Check)) -> Arc<AtomicBool> {
        let passes = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&passes);
        register(Box::new(move || {
            let passes = asked.load(Ordering::Relaxed);
            passes.then_some(()).ok_or_else(|| "access denied".to_owned())
        }));
        passes
    }

    #[test]
    fn without_a_required_check_nobody_stands_until_it_has_passed_once() {
        let checks = Checks::new();
        let _fails = add(|check| checks.register("leader-election", check));
        assert_eq!(checks.fitness(), Fitness::Fit, "it concerns readiness alone");
        let store = add(|check| checks.prefer("state-store", check));
        let impaired = |name: &str| Fitness::Impaired(format!("{name}: access denied"));
        assert_eq!(checks.fitness(), impaired("state-store"));
        let nodes = add(|check| checks.require("cache/node", check));
        assert_eq!(checks.fitness(), Fitness::Unfit("cache/node: access denied".to_owned()));
        nodes.store(true, Ordering::Relaxed);
        assert_eq!(checks.fitness(), impaired("state-store"));
        store.store(true, Ordering::Relaxed);
        assert_eq!(checks.fitness(), Fitness::Fit);
        nodes.store(false, Ordering::Relaxed);
        assert_eq!(checks.fitness(), impaired("cache/node"), "it has what it once listed");
        assert!(!checks.report().0);
    }
}
