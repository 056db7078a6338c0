//! Limits how often the controller writes for one Node. A kubelet may change its Node many times a second, and each change may ask for
//! another record.
//!
//! Invariants:
//! - A pass that may not write is repeated when it may, and plans from what it observes then: the last state is always written.
//! - A Node that seldom changes never waits, and neither does a new one. No Node waits because of another.
//! - Nothing is stored of a Node that is gone, or, from the next write a minute later on, whose allowance is full.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidewaiter_kit::allowance::Allowance;
use tidewaiter_kit::{Key, Notice, SharedClock};

/// The passes that write for one Node. One pass sends three writes at most. A Node that joins, changes its group and is edited by a
/// person needs a few.
const PASSES: Allowance = Allowance {
    burst: 20,
    refill: Duration::from_secs(10),
};

/// Full allowances are forgotten this often.
const SWEEP: Duration = Duration::from_mins(1);

/// The allowances of all Nodes.
pub(super) struct WriteLimits {
    clock: SharedClock,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    /// The monotonic time at which each allowance is full again.
    full_at: BTreeMap<Key, Duration>,
    swept: Duration,
}

impl WriteLimits {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            nodes: Mutex::default(),
        }
    }

    /// Takes one pass that writes from the Node's allowance.
    ///
    /// # Errors
    /// When none is left: the time until there is one.
    pub(super) fn take(&self, node: &Key) -> Result<(), Duration> {
        let now = self.clock.monotonic();
        let mut nodes = self.lock();
        if nodes.swept + SWEEP <= now {
            nodes.swept = now;
            nodes.full_at.retain(|_, full_at| *full_at > now);
        }
        let full_at = PASSES.take(nodes.full_at.get(node).copied(), now)?;
        nodes.full_at.insert(node.clone(), full_at);
        Ok(())
    }

    /// The Node is gone.
    pub(super) fn forget(&self, node: &Key) {
        self.lock().full_at.remove(node);
    }

    fn lock(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the owner of a Node should read that changes too often.
pub(super) fn notice() -> Notice {
    let note = format!(
        "What this Node reports, or its labels, change so often that its labels and its record are written only every {} s. Find out what \
         changes them: its kubelet, or another controller.",
        PASSES.refill.as_secs()
    );
    Notice::warning("ChangesTooOften", "Write", note)
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;

    use super::*;

    fn limits() -> (WriteLimits, ManualClock) {
        let clock = ManualClock::default();
        (WriteLimits::new(clock.shared()), clock)
    }

    /// How many passes in a row may write.
    fn taken(limits: &WriteLimits, node: &str) -> u32 {
        let mut taken = 0;
        while limits.take(&Key::new(node)).is_ok() {
            taken += 1;
        }
        taken
    }

    #[test]
    fn each_node_has_an_allowance_of_its_own() {
        let (limits, clock) = limits();
        assert_eq!(taken(&limits, "a"), PASSES.burst);
        assert_eq!(taken(&limits, "b"), PASSES.burst);
        assert_eq!(limits.take(&Key::new("a")), Err(PASSES.refill));
        clock.advance(PASSES.refill);
        assert_eq!(taken(&limits, "a"), 1);
    }

    #[test]
    fn a_node_that_is_created_again_has_all_of_it() {
        let (limits, _) = limits();
        taken(&limits, "a");
        limits.forget(&Key::new("a"));
        assert_eq!(taken(&limits, "a"), PASSES.burst);
    }

    #[test]
    fn nothing_is_stored_of_nodes_that_seldom_change() {
        let (limits, clock) = limits();
        for number in 0..1_000 {
            limits.take(&Key::new(&number.to_string())).unwrap();
        }
        taken(&limits, "busy");
        clock.advance(SWEEP);
        limits.take(&Key::new("a")).unwrap();
        let stored: Vec<Key> = limits.lock().full_at.keys().cloned().collect();
        assert_eq!(stored, [Key::new("a"), Key::new("busy")]);
    }
}
