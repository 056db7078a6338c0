//! Durations as people write them: `90s`, `1h30m`, `1h 30m`, `1.5h`, `7d`, `2 weeks`. All settings and flags read them
//! here.
//!
//! jiff reads them. Of what it can read, signs, commas, months, years and `01:30:00` are refused: nobody needs them,
//! and the chart has to accept the same (`tidewaiter.duration` in `_helpers.tpl`). A day has 24 hours.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

const UNITS: &str = "w wk wks week weeks d day days h hr hrs hour hours m min mins minute minutes s sec secs second \
    seconds ms msec msecs milli millis millisecond milliseconds";

/// Reads a duration. Only `0` needs no unit.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.trim_matches(' ');
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let words = text.split(|c: char| c.is_ascii_digit() || matches!(c, '.' | ' '));
    if !words
        .filter(|word| !word.is_empty())
        .all(|word| UNITS.split(' ').any(|unit| unit == word))
    {
        return None;
    }
    let span: Span = text.parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    duration.try_into().ok()
}

/// Reads a duration that a setting or a flag permits.
///
/// # Errors
/// The permitted range. `words` say it, with an example: `from 1s to 24h, for example 30s`.
pub fn within(text: &str, permitted: &RangeInclusive<Duration>, words: &str) -> Result<Duration, String> {
    let read = parse(text).filter(|duration| permitted.contains(duration));
    read.ok_or_else(|| format!("must be a duration with units (w, d, h, m, s or ms), {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_people_write_them() {
        for (text, seconds) in [
            ("0", 0.0),
            ("0s", 0.0),
            ("90s", 90.0),
            ("1m30s", 90.0),
            ("10m0s", 600.0),
            ("1h30m", 5_400.0),
            ("1h 30m", 5_400.0),
            (" 1 hour 30 mins ", 5_400.0),
            ("1.5h", 5_400.0),
            ("500ms", 0.5),
            ("30d", 2_592_000.0),
            ("7 days", 604_800.0),
            ("1w", 604_800.0),
            ("2 weeks 1d12h", 1_339_200.0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in [
            "",
            " ",
            "7",
            "d",
            "1dd",
            "-1d",
            "+1d",
            "1d ago",
            "1h, 30m",
            "01:30:00",
            "P1D",
            "PT1H",
            "1D",
            "1mo",
            "0mo",
            "1y",
            "1us",
            "30m1h",
            "1h1h",
            "1.5d",
            "1.5h30m",
            "1h\n",
            "1e3s",
            "ten",
            "--count",
            "99999999999999d",
            "99999999999999999999h",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_out_of_range_says_what_is_permitted() {
        let permitted = Duration::from_secs(1)..=Duration::from_hours(24);
        for text in ["1s", "1d", "24h"] {
            assert!(within(text, &permitted, "").is_ok(), "{text}");
        }
        for text in ["999ms", "1d1ms", "soon"] {
            let error = within(text, &permitted, "from 1s to 24h, for example 30s").unwrap_err();
            assert_eq!(
                error,
                "must be a duration with units (w, d, h, m, s or ms), from 1s to 24h, for example 30s"
            );
        }
    }
}
