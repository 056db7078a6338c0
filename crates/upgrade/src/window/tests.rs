use serde_json::{Value, json};

use super::*;

fn windows(windows: Value) -> Result<Windows, Refusal> {
    let windows: Vec<MaintenanceWindow> = serde_json::from_value(windows).unwrap();
    Windows::new(&windows)
}

/// The state of a window of Berlin at this time: `open`, or when it opens.
fn says(days: &[&str], start: &str, end: &str, now: &str) -> String {
    let window = json!([{"days": days, "start": start, "end": end, "timeZone": "Europe/Berlin"}]);
    let opens = windows(window).unwrap().opens(now.parse().unwrap());
    opens.map_or_else(|| "open".to_owned(), |opens| opens.strftime("%a %F %R %Z").to_string())
}

#[test]
fn no_time_zone_is_utc() {
    for zone in [json!(null), json!(""), json!("UTC")] {
        let window = json!([{"start": "02:00", "end": "04:00", "timeZone": zone}]);
        let windows = windows(window).unwrap();
        for (now, is_open) in [("2026-11-22T01:59:59Z", false), ("2026-11-22T02:00:00Z", true)] {
            assert_eq!(windows.opens(now.parse().unwrap()).is_none(), is_open, "{zone} {now}");
        }
    }
}

/// 2026-11-22 is a Sunday. The clocks of Berlin are put forward on 2026-03-29 from 02:00 to 03:00, and back on
/// 2026-10-25 from 03:00 to 02:00.
#[test]
fn a_window_is_open_between_its_times_on_its_days() {
    for (days, start, end, now, expected) in [
        (
            &[][..],
            "02:00",
            "04:00",
            "2026-11-22T00:59:59Z",
            "Sun 2026-11-22 02:00 CET",
        ),
        (&[], "02:00", "04:00", "2026-11-22T01:00:00Z", "open"),
        (&[], "02:00", "04:00", "2026-11-22T02:59:59Z", "open"),
        (
            &[],
            "02:00",
            "04:00",
            "2026-11-22T03:00:00Z",
            "Mon 2026-11-23 02:00 CET",
        ),
        (
            &["Sat"],
            "02:00",
            "04:00",
            "2026-11-22T01:00:00Z",
            "Sat 2026-11-28 02:00 CET",
        ),
        // A week from now, if it has just closed.
        (
            &["Sun"],
            "02:00",
            "04:00",
            "2026-11-22T03:00:00Z",
            "Sun 2026-11-29 02:00 CET",
        ),
        // Over midnight: the day is the one on which it opens.
        (&["Sat"], "22:00", "04:00", "2026-11-21T22:00:00Z", "open"),
        (&["Sat"], "22:00", "04:00", "2026-11-22T02:59:00Z", "open"),
        (
            &["Sat"],
            "22:00",
            "04:00",
            "2026-11-22T03:00:00Z",
            "Sat 2026-11-28 22:00 CET",
        ),
        (
            &["Sun"],
            "22:00",
            "04:00",
            "2026-11-22T01:00:00Z",
            "Sun 2026-11-22 22:00 CET",
        ),
        // A whole day.
        (&["Sun"], "00:00", "00:00", "2026-11-21T23:00:00Z", "open"),
        (&["Sun"], "00:00", "00:00", "2026-11-22T22:59:59Z", "open"),
        (
            &["Sun"],
            "00:00",
            "00:00",
            "2026-11-22T23:00:00Z",
            "Sun 2026-11-29 00:00 CET",
        ),
        // Two days in a row, without a gap.
        (&["Sat", "Sun"], "12:00", "12:00", "2026-11-22T11:00:00Z", "open"),
    ] {
        assert_eq!(
            says(days, start, end, now),
            expected,
            "{days:?} {start} to {end} at {now}"
        );
    }
}

#[test]
fn a_change_of_the_clock_opens_no_window_twice() {
    for (start, end, now, expected) in [
        // The night before the clock is put forward is an hour shorter.
        ("22:00", "04:00", "2026-03-28T20:59:59Z", "Sat 2026-03-28 22:00 CET"),
        ("22:00", "04:00", "2026-03-29T01:59:59Z", "open"),
        ("22:00", "04:00", "2026-03-29T02:00:00Z", "Sun 2026-03-29 22:00 CEST"),
        // The night before it is put back is an hour longer.
        ("22:00", "04:00", "2026-10-25T02:59:59Z", "open"),
        ("22:00", "04:00", "2026-10-25T03:00:00Z", "Sun 2026-10-25 22:00 CET"),
        // 02:15 does not exist: it is 03:15.
        ("02:15", "02:45", "2026-03-29T00:30:00Z", "Sun 2026-03-29 03:15 CEST"),
        ("02:15", "02:45", "2026-03-29T01:15:00Z", "open"),
        ("02:15", "02:45", "2026-03-29T01:45:00Z", "Mon 2026-03-30 02:15 CEST"),
        ("02:30", "03:30", "2026-03-29T01:00:00Z", "Mon 2026-03-30 02:30 CEST"),
        ("02:30", "04:30", "2026-03-29T01:30:00Z", "open"),
        // 02:15 is twice: the first one counts.
        ("02:15", "02:45", "2026-10-25T00:15:00Z", "open"),
        ("02:15", "02:45", "2026-10-25T00:45:00Z", "Mon 2026-10-26 02:15 CET"),
    ] {
        assert_eq!(says(&[], start, end, now), expected, "{start} to {end} at {now}");
    }
}

#[test]
fn of_several_windows_the_next_one_counts_wherever_it_is() {
    let several = windows(json!([
        {"start": "22:00", "end": "23:00", "timeZone": "America/New_York"},
        {"start": "22:00", "end": "23:00", "timeZone": "Asia/Kolkata"},
        {"start": "22:00", "end": "23:00"},
    ]))
    .unwrap();
    for (now, expected) in [
        ("2026-11-22T12:00:00Z", Some("2026-11-22T22:00:00+05:30[Asia/Kolkata]")),
        ("2026-11-22T16:30:00Z", None),
        ("2026-11-22T17:30:00Z", Some("2026-11-22T22:00:00+00:00[UTC]")),
        (
            "2026-11-22T23:00:00Z",
            Some("2026-11-22T22:00:00-05:00[America/New_York]"),
        ),
    ] {
        let opens = several.opens(now.parse().unwrap());
        assert_eq!(opens.map(|opens| opens.to_string()).as_deref(), expected, "{now}");
    }
    assert_eq!(Windows::default().opens("2026-11-22T12:00:00Z".parse().unwrap()), None);
}

#[test]
fn a_window_that_cannot_be_read_is_refused_with_its_field() {
    for (window, why) in [
        (
            json!({"start": "24:00", "end": "01:00"}),
            "maintenanceWindows[0].start is \"24:00\"",
        ),
        (
            json!({"start": "1:00", "end": "02:00"}),
            "maintenanceWindows[0].start is \"1:00\"",
        ),
        (
            json!({"start": "01:00", "end": "02:00\n"}),
            "maintenanceWindows[0].end is \"02:00",
        ),
        (
            json!({"start": "01:00", "end": "02:00", "timeZone": "Berlin"}),
            "maintenanceWindows[0].timeZone is \"Berlin\", not the name of a time zone such as Europe/Berlin, or nothing for UTC",
        ),
    ] {
        let refused = windows(json!([window])).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
