//! The only source of randomness that behaviour depends on: jitter, shuffled orders, identities of processes.
//!
//! It draws from fastrand's generator, of which each thread has its own. A simulation runs on one thread (tokio's
//! `current_thread` runtime): [`seed`] at its start makes every later draw, and so a whole role, repeatable. Without
//! one, fastrand seeds it from the time and the thread. Nothing here is fit for secrets: those come from the TLS
//! library.

#![expect(clippy::disallowed_methods, reason = "the only place that draws")]

/// Seeds the generator of this thread. For simulations only: two processes with one seed draw the same identity.
pub fn seed(seed: u64) {
    fastrand::seed(seed);
}

/// A number in [0, 1).
#[must_use]
pub fn f64() -> f64 {
    fastrand::f64()
}

/// Any number.
#[must_use]
pub fn u64() -> u64 {
    fastrand::u64(..)
}

/// An index into a collection of `length` elements; 0 when it is empty.
#[must_use]
pub fn index(length: usize) -> usize {
    fastrand::usize(..length.max(1))
}

/// Shuffles `slice`.
pub fn shuffle<T>(slice: &mut [T]) {
    fastrand::shuffle(slice);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::{Backoff, jittered};
    use std::time::Duration;

    #[test]
    fn one_seed_gives_one_history() {
        let history = |number| {
            seed(number);
            let mut order: Vec<usize> = (0..20).collect();
            shuffle(&mut order);
            let second = Duration::from_secs(1);
            let waits = [Backoff::new(second, 8 * second).delay(3), jittered(second, 0.5)];
            (order, waits, u64(), index(1_000))
        };
        assert_eq!(history(7), history(7));
        assert_ne!(history(7), history(8));
    }

    #[test]
    fn an_index_is_within_the_collection() {
        assert_eq!(index(0), 0);
        assert!((0..100).all(|_| index(3) < 3));
    }
}
