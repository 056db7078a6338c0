//! Times as people read them: an age, in the units of kubectl's `HumanDuration`.

use jiff::Timestamp;
use tidewaiter_kit::SystemClock;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time in the text: RFC 3339, or the milliseconds since 1970 of the API.
pub(crate) fn read(text: &str) -> Option<Timestamp> {
    let milliseconds = text.parse().ok();
    milliseconds.map_or_else(
        || text.parse().ok(),
        |milliseconds| Timestamp::from_millisecond(milliseconds).ok(),
    )
}

/// The age, for example `5d`. A time that is yet to come has the age zero.
pub(crate) fn age(time: Timestamp, now: Timestamp) -> String {
    units(now.duration_since(time).as_secs().max(0))
}

/// The distance in time, for example `5d ago` or `in 12h`.
pub(crate) fn relative(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(time).as_secs();
    if seconds < 0 {
        format!("in {}", units(seconds.saturating_neg()))
    } else {
        format!("{} ago", units(seconds))
    }
}

/// The distance of the time in the text from now; a text that is no time stays.
pub(crate) fn from_now(text: &str) -> String {
    read(text).map_or_else(|| text.to_owned(), |time| relative(time, SystemClock::shared().now()))
}

/// At most two units, as many as matter.
fn units(seconds: i64) -> String {
    let two = |large: i64, unit: &str, small: i64, smaller: &str| match seconds % large / small {
        0 => format!("{}{unit}", seconds / large),
        rest => format!("{}{unit}{rest}{smaller}", seconds / large),
    };
    match seconds {
        i64::MIN..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    /// The expectations are those of kubectl's own test.
    #[test]
    fn an_age_is_that_of_kubectl() {
        for (seconds, expected) in [
            (1, "1s"),
            (70, "70s"),
            (190, "3m10s"),
            (70 * MINUTE, "70m"),
            (47 * HOUR, "47h"),
            (49 * HOUR, "2d1h"),
            (8 * DAY + 2 * HOUR, "8d"),
            (367 * DAY, "367d"),
            (4 * YEAR, "4y"),
            (4 * YEAR + 100 * DAY, "4y100d"),
            (9 * YEAR, "9y"),
            (5 * HOUR, "5h"),
            (5 * MINUTE, "5m"),
        ] {
            let now = read("2026-01-01T00:00:00Z").unwrap();
            let then = now - SignedDuration::from_secs(seconds);
            assert_eq!(age(then, now), expected);
            assert_eq!(relative(then, now), format!("{expected} ago"));
            assert_eq!(relative(now, then), format!("in {expected}"));
            assert_eq!(age(now, then), "0s");
        }
        assert_eq!(read("1767225600000"), read("2026-01-01T00:00:00Z"));
        assert_eq!(read("tomorrow"), None);
    }
}
