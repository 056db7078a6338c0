//! The expiry of keys that the mirror does not confirm. Pure.
//!
//! All times are monotonic: a node whose clock is wrong removes nothing early. An agent that starts counts its start as
//! a confirmation, because it knows no earlier one.

use std::time::Duration;

/// The mirror confirms an unchanged list once an hour, so a shorter expiry would remove keys by accident.
pub(crate) const MIN_EXPIRY: Duration = Duration::from_hours(12);

/// The time between the announcement and the removal.
const ANNOUNCEMENT_PERIOD: Duration = Duration::from_hours(6);

/// The expiry of the users' keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Keys do not expire.
    Off,
    /// The mirror confirmed them. The announcement is due after this time.
    Confirmed(Duration),
    /// They are removed after this time.
    Soon(Duration),
    /// They are removed now.
    Expired,
}

/// `confirmed` is when the mirror last confirmed the users.
pub(crate) fn expiry(after: Option<Duration>, confirmed: Duration, now: Duration) -> Expiry {
    let Some(after) = after else { return Expiry::Off };
    let age = now.saturating_sub(confirmed);
    if age >= after {
        return Expiry::Expired;
    }
    match after.saturating_sub(ANNOUNCEMENT_PERIOD).checked_sub(age) {
        Some(left) if !left.is_zero() => Expiry::Confirmed(left),
        _ => Expiry::Soon(after.saturating_sub(age)),
    }
}

impl Expiry {
    /// The reason of the condition: one for each state.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::Confirmed(_) => "Confirmed",
            Self::Soon(_) => "NotConfirmed",
            Self::Expired => "Expired",
        }
    }

    /// The time until the next state.
    pub(crate) fn next(self) -> Option<Duration> {
        match self {
            Self::Confirmed(left) | Self::Soon(left) => Some(left),
            Self::Off | Self::Expired => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_age_has_its_answer() {
        let hours = Duration::from_hours;
        let start = hours(100);
        let day = Some(hours(24));
        for (after, age, expected) in [
            (None, hours(1_000), Expiry::Off),
            (day, hours(0), Expiry::Confirmed(hours(18))),
            (day, hours(17), Expiry::Confirmed(hours(1))),
            (day, hours(18), Expiry::Soon(hours(6))),
            (day, hours(23), Expiry::Soon(hours(1))),
            (day, hours(24), Expiry::Expired),
            (Some(MIN_EXPIRY), hours(0), Expiry::Confirmed(hours(6))),
        ] {
            assert_eq!(expiry(after, start, start + age), expected, "{age:?}");
        }
        assert_eq!(expiry(day, start, Duration::ZERO), Expiry::Confirmed(hours(18)));
    }
}
