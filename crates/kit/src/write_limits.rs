//! Limits how often a controller writes for one object. Anyone who may change an object (a kubelet its Node) may change
//! it many times a second, and each change may require a write.
//!
//! Invariants:
//! - A pass that may not write is repeated when it may, and plans from what it observes then: the last state is always
//!   written.
//! - An object that seldom changes never waits, and neither does a new one. No object waits because of another.
//! - Nothing is stored of an object that is gone, or, from the next write a minute later on, whose allowance is full.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::allowance::Allowance;
use crate::clock::SharedClock;
use crate::key::Key;

/// The passes that write for one object. A Node that joins, changes its group and is edited by a person needs a few.
const WRITING_PASSES: Allowance = Allowance {
    burst: 20,
    refill: Duration::from_secs(10),
};

/// The interval at which full buckets are dropped.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// The allowances of all objects of a controller.
#[derive(Debug)]
pub struct WriteLimits {
    clock: SharedClock,
    objects: Mutex<Objects>,
}

#[derive(Debug, Default)]
struct Objects {
    /// The monotonic time at which each allowance is full again.
    full_at: BTreeMap<Key, Duration>,
    swept: Duration,
}

impl WriteLimits {
    /// The time between two passes that write for an object that changes all the time.
    pub const REFILL: Duration = WRITING_PASSES.refill;

    /// Every object has all of its allowance.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            objects: Mutex::default(),
        }
    }

    /// Takes one pass that writes from the object's allowance.
    ///
    /// # Errors
    /// When none is left: the time until there is one.
    pub fn take(&self, object: &Key) -> Result<(), Duration> {
        let now = self.clock.monotonic();
        let mut objects = self.objects.lock();
        if objects.swept + SWEEP_INTERVAL <= now {
            objects.swept = now;
            objects.full_at.retain(|_, full_at| *full_at > now);
        }
        let full_at = WRITING_PASSES.take(objects.full_at.get(object).copied(), now)?;
        objects.full_at.insert(object.clone(), full_at);
        Ok(())
    }

    /// The object is gone.
    pub fn forget(&self, object: &Key) {
        self.objects.lock().full_at.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn limits() -> (WriteLimits, ManualClock) {
        let clock = ManualClock::default();
        (WriteLimits::new(clock.shared()), clock)
    }

    /// The number of passes in a row that may write.
    fn taken(limits: &WriteLimits, object: &str) -> u32 {
        let mut taken = 0;
        while limits.take(&Key::new(object)).is_ok() {
            taken += 1;
        }
        taken
    }

    #[test]
    fn each_object_has_an_allowance_of_its_own() {
        let (limits, clock) = limits();
        assert_eq!(taken(&limits, "a"), WRITING_PASSES.burst);
        assert_eq!(taken(&limits, "b"), WRITING_PASSES.burst);
        assert_eq!(limits.take(&Key::new("a")), Err(WRITING_PASSES.refill));
        clock.advance(WRITING_PASSES.refill);
        assert_eq!(taken(&limits, "a"), 1);
    }

    #[test]
    fn an_object_that_is_created_again_has_all_of_it() {
        let (limits, _) = limits();
        taken(&limits, "a");
        limits.forget(&Key::new("a"));
        assert_eq!(taken(&limits, "a"), WRITING_PASSES.burst);
    }

    #[test]
    fn nothing_is_stored_of_objects_that_seldom_change() {
        let (limits, clock) = limits();
        for number in 0..1_000 {
            limits.take(&Key::new(&number.to_string())).unwrap();
        }
        taken(&limits, "busy");
        clock.advance(SWEEP_INTERVAL);
        limits.take(&Key::new("a")).unwrap();
        let stored: Vec<Key> = limits.objects.lock().full_at.keys().cloned().collect();
        assert_eq!(stored, [Key::new("a"), Key::new("busy")]);
    }
}
