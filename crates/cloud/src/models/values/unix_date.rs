//! The form of `currentStartTime`: that of the `date` command, which the old coordinator wrote and compares.

use std::fmt;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

use super::{UnixSeconds, written_as_shown};
use crate::models::document::InvalidField;
use crate::models::fields::{At, Read};

/// Go's `time.UnixDate`, in UTC.
const FORMAT: &str = "%a %b %e %H:%M:%S UTC %Y";
const WANTED: &str = "a time in UTC such as \"Fri Mar  1 12:00:00 UTC 2019\"";

/// A time in whole seconds, for example `Fri Mar  1 12:00:00 UTC 2019`. Unix seconds, which older versions of the
/// server wrote, are accepted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String,
    pattern = "^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ 123][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9] UTC [0-9]{4}$",
    examples("Fri Mar  1 12:00:00 UTC 2019"))]
pub struct UnixDate(Timestamp);

impl UnixDate {
    /// The time, without its fraction of a second.
    #[must_use]
    pub fn new(time: Timestamp) -> Self {
        Self(Timestamp::from_second(time.as_second()).unwrap_or(time))
    }

    #[must_use]
    pub fn get(self) -> Timestamp {
        self.0
    }

    /// Only the form in which this type writes a time, so that texts are equal where times are.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let time = strtime::parse(FORMAT, text).ok()?.to_datetime().ok()?;
        let time = Self::new(time.to_zoned(TimeZone::UTC).ok()?.timestamp());
        (time.to_string() == text).then_some(time)
    }
}

impl fmt::Display for UnixDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.strftime(FORMAT).fmt(f)
    }
}

written_as_shown!(UnixDate);

impl Read for UnixDate {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let seconds = || {
            let seconds = i64::try_from(UnixSeconds::read(at).ok()?.get()).ok()?;
            Timestamp::from_second(seconds).ok().map(Self)
        };
        let time = at.value.as_str().and_then(Self::parse).or_else(seconds);
        time.ok_or_else(|| at.must_be(WANTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_read;

    #[test]
    fn the_form_of_go_and_the_seconds_of_older_versions() {
        assert_read! { UnixDate:
            [
                "Sun Nov 22 05:29:17 UTC 2026" => "Sun Nov 22 05:29:17 UTC 2026",
                "Fri Mar  1 12:00:00 UTC 2019" => "Fri Mar  1 12:00:00 UTC 2019",
                "1551441600" => "Fri Mar  1 12:00:00 UTC 2019",
                1_551_441_600 => "Fri Mar  1 12:00:00 UTC 2019"
            ]
            not [
                "", "Sat Mar  1 12:00:00 UTC 2019", "Fri Mar 1 12:00:00 UTC 2019", "Fri Mar 01 12:00:00 UTC 2019",
                "Fri Mar  1 12:00:00 CET 2019", "Fri Feb 30 12:00:00 UTC 2019", "Fri Mar  1 24:00:00 UTC 2019",
                "2019-03-01T12:00:00Z"
            ]
        }
    }
}
