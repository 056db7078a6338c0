//! Times as milliseconds since 1970, the form of `created_at`, `updated_at` and `added_at`.
//!
//! The old command line reads nothing else: it shows an RFC 3339 time as one in 1970.

use std::fmt;

use jiff::Timestamp;

use super::written_as_shown;
use crate::models::document::InvalidField;
use crate::models::fields::{At, Read};

const WANTED: &str =
    "milliseconds since 1970 such as \"1551441600000\", or an RFC 3339 time such as 2019-03-01T12:00:00Z";

/// A time as milliseconds since 1970: a string on the wire. A number and an RFC 3339 time, which older versions of the
/// server wrote, are accepted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^[0-9]{1,15}$", examples("1551441600000"))]
pub struct UnixMillis(Timestamp);

impl UnixMillis {
    /// The time in whole milliseconds, if it is not before 1970.
    #[must_use]
    pub fn new(time: Timestamp) -> Option<Self> {
        let milliseconds = Timestamp::from_millisecond(time.as_millisecond()).ok()?;
        (time >= Timestamp::UNIX_EPOCH).then_some(Self(milliseconds))
    }

    #[must_use]
    pub fn get(self) -> Timestamp {
        self.0
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_millisecond().fmt(f)
    }
}

written_as_shown!(UnixMillis);

impl Read for UnixMillis {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let text = at.value.as_str().filter(digits).and_then(|text| text.parse().ok());
        let time = match at.value.as_i64().or(text) {
            Some(milliseconds) => Timestamp::from_millisecond(milliseconds).ok(),
            None => Timestamp::read(at).ok(),
        };
        time.and_then(Self::new).ok_or_else(|| at.must_be(WANTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_read;

    #[test]
    fn milliseconds_or_rfc_3339_and_never_before_1970() {
        assert_read! { UnixMillis:
            [
                "1551441600120" => "1551441600120",
                1_551_441_600_120_u64 => "1551441600120",
                "2019-03-01T12:00:00.120999Z" => "1551441600120",
                "2019-03-01T13:00:00.12+01:00" => "1551441600120"
            ]
            not ["", "-1", -1, "1.5", 1.5, "\u{661}", "1969-12-31T23:59:59Z", "99999999999999999999", true]
        }
    }
}
