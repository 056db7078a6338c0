//! The faults between a client and the server, drawn for each request.

use std::time::Duration;

use super::call::Verb;

/// The frequencies of faults. Chances are in a thousand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The longest that a request, an answer and an event of a watch take one way.
    pub latency: Duration,
    /// A request that takes long to arrive: up to [`Faults::SLOW`].
    pub slow: u32,
    /// A connection that has to be made before the request, and takes up to [`Faults::CONNECT`].
    pub connects: u32,
    /// A request that is lost: it has no effect. Half of them break off, the others are never answered.
    pub lost: u32,
    /// A request that has its effect, and whose answer is lost in the same ways.
    pub unanswered: u32,
    /// An answer 429, 500, 503 or 504. A write that is answered 500 or 504 may have had its effect.
    pub refused: u32,
    /// An answer 409 to a write on an object that has not changed.
    pub conflicts: u32,
    /// A watch that is not served, or lasts a second only.
    pub short_watches: u32,
    /// A watch that breaks off after up to a minute.
    pub broken_watches: u32,
    /// A watch that never shows anything and does not end before its time.
    pub silent_watches: u32,
    /// A watch that ends with 410 Gone.
    pub expired_watches: u32,
    /// An event of a watch that comes up to [`Faults::LATE`] later.
    pub late_events: u32,
    /// Each bookmark comes twice.
    pub repeated_bookmarks: bool,
    /// A list that allows it shows an older revision.
    pub stale_lists: u32,
}

/// The fate of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// The delay of the request.
    pub(super) there: Duration,
    pub(super) fault: Option<Fault>,
    /// The delay of the answer.
    pub(super) back: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Lost(Silence),
    Unanswered(Silence),
    Refused { code: u16, applied: bool },
    Conflict,
}

/// The way in which an answer fails to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    BreaksOff,
    Hangs,
}

/// The fate of one watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchFault {
    Refused(u16),
    Expired,
    Silent,
    Ends {
        after: Duration,
        /// With an error; otherwise as if it were complete.
        broken: bool,
    },
}

impl Faults {
    /// The longest way of a slow request: longer than any client waits.
    pub const SLOW: Duration = Duration::from_secs(45);
    /// The longest that making a connection takes.
    pub const CONNECT: Duration = Duration::from_secs(5);
    /// The longest that a late event takes.
    pub const LATE: Duration = Duration::from_secs(20);

    /// Nothing goes wrong; requests take up to two milliseconds.
    #[must_use]
    pub fn none() -> Self {
        Self {
            latency: Duration::from_millis(2),
            slow: 0,
            connects: 0,
            lost: 0,
            unanswered: 0,
            refused: 0,
            conflicts: 0,
            short_watches: 0,
            broken_watches: 0,
            silent_watches: 0,
            expired_watches: 0,
            late_events: 0,
            repeated_bookmarks: false,
            stale_lists: 0,
        }
    }

    /// A mix of its own: each kind of fault happens not at all, now and then, or often. A history in which everything
    /// goes wrong at once hides what a single kind of fault does.
    #[must_use]
    pub fn drawn(random: &mut fastrand::Rng) -> Self {
        let mut chance = |often: u32| match random.u8(..4) {
            0 => random.u32(..often),
            1 => often / 8,
            _ => 0,
        };
        Self {
            slow: chance(80),
            connects: chance(200),
            lost: chance(150),
            unanswered: chance(150),
            refused: chance(200),
            conflicts: chance(200),
            short_watches: chance(300),
            broken_watches: chance(500),
            silent_watches: chance(150),
            expired_watches: chance(200),
            late_events: chance(300),
            stale_lists: chance(500),
            repeated_bookmarks: random.bool(),
            latency: Duration::from_millis(random.u64(1..100)),
        }
    }

    pub(super) fn fate(&self, verb: Verb, random: &mut fastrand::Rng) -> Fate {
        let silence = |random: &mut fastrand::Rng| {
            if random.bool() {
                Silence::BreaksOff
            } else {
                Silence::Hangs
            }
        };
        let fault = if happens(self.lost, random) {
            Some(Fault::Lost(silence(random)))
        } else if happens(self.unanswered, random) {
            Some(Fault::Unanswered(silence(random)))
        } else if happens(self.refused, random) {
            let code = [429, 500, 503, 504][random.usize(..4)];
            let applied = matches!(code, 500 | 504) && random.bool();
            Some(Fault::Refused { code, applied })
        } else if matches!(verb, Verb::Update | Verb::Patch) && happens(self.conflicts, random) {
            Some(Fault::Conflict)
        } else {
            None
        };
        let there = if happens(self.slow, random) {
            up_to(Self::SLOW, random)
        } else {
            up_to(self.latency, random)
        };
        let back = up_to(self.latency, random);
        Fate { there, fault, back }
    }

    pub(super) fn watch(&self, random: &mut fastrand::Rng) -> Option<WatchFault> {
        let ends = |longest, random: &mut fastrand::Rng| WatchFault::Ends {
            after: up_to(longest, random),
            broken: random.bool(),
        };
        if happens(self.short_watches, random) {
            Some(match random.u8(..3) {
                0 => WatchFault::Refused([429, 500, 503][random.usize(..3)]),
                _ => ends(Duration::from_secs(1), random),
            })
        } else if happens(self.expired_watches, random) {
            Some(WatchFault::Expired)
        } else if happens(self.silent_watches, random) {
            Some(WatchFault::Silent)
        } else if happens(self.broken_watches, random) {
            Some(ends(Duration::from_mins(1), random))
        } else {
            None
        }
    }

    /// Returns the delay of an event of a watch.
    pub(super) fn event(&self, random: &mut fastrand::Rng) -> Duration {
        let longest = if happens(self.late_events, random) {
            Self::LATE
        } else {
            self.latency
        };
        up_to(longest, random)
    }

    /// Returns the time that a request waits for a connection.
    pub(super) fn connecting(&self, random: &mut fastrand::Rng) -> Duration {
        if happens(self.connects, random) {
            up_to(Self::CONNECT, random)
        } else {
            Duration::ZERO
        }
    }
}

pub(super) fn happens(chance: u32, random: &mut fastrand::Rng) -> bool {
    chance > 0 && random.u32(..1000) < chance
}

fn up_to(longest: Duration, random: &mut fastrand::Rng) -> Duration {
    let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    // No request takes no time at all.
    Duration::from_micros(random.u64(..=micros).max(100))
}
