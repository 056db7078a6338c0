//! The time at which access ends.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use serde::{Serialize, Serializer};

use super::InvalidValue;

/// The length of `2027-01-31T18:00:00Z`.
const LENGTH: usize = 20;

/// The time at which access ends, as RFC 3339 in whole seconds of UTC: `2027-01-31T18:00:00Z`. From this second on,
/// the access has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndTime(Timestamp);

impl EndTime {
    /// The pattern of a field of a custom resource: an end, or nothing for access that does not end.
    pub(crate) const FIELD_PATTERN: &'static str =
        "^([0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)?$";

    /// Reads a field that may be stored malformed: `None` if it is empty, because the access does not end. Access with
    /// a malformed end has ended, or a typing error would be access for ever. The last day of the year 9999 has the
    /// form of an end, and is too late for a [`Timestamp`].
    #[must_use]
    pub fn of_field(text: &str) -> Option<Self> {
        let civil = text.strip_suffix('Z').filter(|_| text.len() == LENGTH);
        let has_form = civil.is_some_and(|civil| civil.parse::<DateTime>().is_ok_and(|time| time.to_string() == civil));
        let otherwise = if has_form { Timestamp::MAX } else { Timestamp::MIN };
        (!text.is_empty()).then(|| text.parse().unwrap_or(Self(otherwise)))
    }

    /// The time.
    #[must_use]
    pub fn get(self) -> Timestamp {
        self.0
    }

    /// Returns true if the access has ended at `now`.
    #[must_use]
    pub fn has_passed(self, now: Timestamp) -> bool {
        self.0 <= now
    }
}

impl FromStr for EndTime {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let time = text.parse::<Timestamp>().ok();
        // The library also accepts other spellings of the same time.
        let exact = time.filter(|time| text.len() == LENGTH && time.to_string() == text);
        exact.map(Self).ok_or_else(|| {
            let rule = "must be an RFC 3339 time in whole seconds of UTC, for example 2027-01-31T18:00:00Z";
            InvalidValue::new("end", text, rule)
        })
    }
}

impl Serialize for EndTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for EndTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "2027-01-31T18:00:00Z";

    #[test]
    fn an_end_has_one_spelling() {
        assert_eq!(TEXT.parse::<EndTime>().unwrap().to_string(), TEXT);
        for bad in [
            "",
            "soon",
            "2027-01-31",
            "2027-01-31T18:00Z",
            "2027-01-31t18:00:00z",
            "2027-01-31 18:00:00Z",
            "2027-01-31T18:00:00.5Z",
            "2027-01-31T19:00:00+01:00",
            "2027-01-31T18:00:60Z",
            "2027-02-30T18:00:00Z",
            "2027-01-31T18:00:00Z[UTC]",
            "+02027-01-31T18:00:00Z",
        ] {
            assert!(bad.parse::<EndTime>().is_err(), "{bad}");
        }
    }

    #[test]
    fn access_ends_with_its_second_and_not_before() {
        let end: EndTime = TEXT.parse().unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(!end.has_passed(at("2027-01-31T17:59:59.999999999Z")));
        assert!(end.has_passed(at(TEXT)));
    }

    #[test]
    fn a_malformed_end_has_passed_and_none_never_does() {
        assert_eq!(EndTime::of_field(""), None);
        for bad in [
            "never",
            "2027-02-30T18:00:00Z",
            "9999-12-31 23:59:59Z",
            "9999-12-31T23:59:59+",
        ] {
            let end = EndTime::of_field(bad).unwrap();
            assert!(end.has_passed(Timestamp::UNIX_EPOCH), "{bad}");
        }
        let last = EndTime::of_field("9999-12-31T23:59:59Z").unwrap();
        assert_eq!(last.get(), Timestamp::MAX);
    }
}
