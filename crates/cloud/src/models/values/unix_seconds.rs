//! Times as seconds since 1970.

use std::fmt;

use super::written_as_shown;
use crate::models::document::InvalidField;
use crate::models::fields::{At, Read};

/// The year 10000, the end of the range of RFC 3339.
const END: u64 = 253_402_300_800;
const WANTED: &str = "whole seconds since 1970, for example \"1551441600\"";

/// A time as seconds since 1970: a string on the wire, for compatibility. A number is accepted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^[0-9]{1,12}$", examples("1551441600"))]
pub struct UnixSeconds(u64);

impl UnixSeconds {
    /// The time, if it is before the year 10000.
    #[must_use]
    pub fn new(seconds: u64) -> Option<Self> {
        (seconds < END).then_some(Self(seconds))
    }

    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_as_shown!(UnixSeconds);

impl Read for UnixSeconds {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let digits = |text: &&str| text.bytes().all(|b| b.is_ascii_digit());
        let text = at.value.as_str().filter(digits).and_then(|text| text.parse().ok());
        let seconds = at.value.as_u64().or(text);
        seconds.and_then(Self::new).ok_or_else(|| at.must_be(WANTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_read;

    #[test]
    fn a_text_or_a_number() {
        assert_read! { UnixSeconds:
            ["1551441600" => "1551441600", 1_551_441_600 => "1551441600"]
            not ["", "-1", "+1", "1.5", "\u{661}", -1, 1.5, END]
        }
    }
}
