//! A token bucket, with which clouds throttle.

use std::time::Instant;

use super::protocol::Quota;

/// A token bucket as clouds throttle with: each call takes a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// The most tokens that it holds.
    pub capacity: f64,
    /// The tokens that come back each second.
    pub refill: f64,
}

impl TokenBucket {
    /// The quota that EC2 grants an account for calls that describe, without filters and pages.
    pub const DESCRIBE: Self = Self {
        capacity: 100.0,
        refill: 20.0,
    };

    /// The quota that Compute Engine grants a project for calls of one kind: 1,500 a minute.
    pub const COMPUTE: Self = Self {
        capacity: 1_500.0,
        refill: 25.0,
    };

    /// The quota that Hetzner Cloud grants a project: 3,600 an hour.
    pub const HETZNER: Self = Self {
        capacity: 3_600.0,
        refill: 1.0,
    };
}

#[derive(Debug)]
pub(super) struct Bucket {
    shape: TokenBucket,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(super) fn full(shape: TokenBucket) -> Self {
        Self {
            shape,
            tokens: shape.capacity,
            filled: Instant::now(),
        }
    }

    pub(super) fn quota(&self) -> Quota {
        Quota {
            capacity: self.shape.capacity,
            tokens: self.tokens,
            full_in: (self.shape.capacity - self.tokens) / self.shape.refill,
        }
    }

    pub(super) fn take(&mut self) -> bool {
        let now = Instant::now();
        let refilled = now.duration_since(self.filled).as_secs_f64() * self.shape.refill;
        self.filled = now;
        self.tokens = (self.tokens + refilled).min(self.shape.capacity);
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}
