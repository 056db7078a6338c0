//! The parts of pages that show how things are: badges, times, and content that follows changes.

use jiff::Timestamp;
use maud::{Markup, html};

use super::controls::timestamp;
use super::fields::FormFields;
use crate::models::Kind;

/// The query of the page after a change.
pub(super) const DONE: (&str, &str) = ("done", "yes");

/// The meaning of a badge, which its colour shows and its text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Active,
    Bad,
    Neutral,
}

impl Tone {
    /// The tone of a status that a cluster reports.
    pub(super) fn of(status: &str) -> Self {
        match status.to_ascii_uppercase().as_str() {
            "RUNNING" | "READY" | "ACTIVE" | "SUCCESS" | "HEALTHY" | "APPLIED" | "SYNCED" => Self::Good,
            "INPROGRESS" | "UPDATING" | "UPGRADING" | "PROVISIONING" | "PENDING" | "PAUSED" | "HELD" => Self::Active,
            "FAILED" | "ERROR" | "DEGRADED" | "BLOCKED" | "UNHEALTHY" | "ABORTED" => Self::Bad,
            _ => Self::Neutral,
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Good => "badge good",
            Self::Active => "badge active",
            Self::Bad => "badge bad",
            Self::Neutral => "badge",
        }
    }
}

/// A status, in the colour of its meaning.
pub(super) fn badge(status: &str) -> Markup {
    html! { span class=(Tone::of(status).class()) { (status) } }
}

/// A value before and after a change.
pub(super) fn changed(before: &str, after: &str) -> Markup {
    html! { del.before { (before) } " → " ins.after { (after) } }
}

/// The message after a change, on the page that it leads to.
pub(super) fn done(query: &FormFields) -> Markup {
    html! {
        @if query.get(DONE.0).is_some() {
            p.done role="status" { "The change is made. Clusters follow it when they read the cloud next." }
        }
    }
}

/// The time between `time` and `now`, with the exact time in its title. A time that is none is shown as it is.
pub(super) fn ago(time: &str, now: Timestamp) -> Markup {
    let Some(at) = timestamp(time) else {
        return html! { (time) };
    };
    let exact = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let seconds = now.duration_since(at).as_secs();
    html! { time.ago datetime=(exact) title=(exact) { (words(seconds)) } }
}

/// A duration in the largest unit that fits, as the script of the pages writes it too.
fn words(seconds: i64) -> String {
    let (size, unit) = match seconds.unsigned_abs() {
        0..60 => return "just now".to_owned(),
        60..3_600 => (60, "min"),
        3_600..86_400 => (3_600, "h"),
        _ => (86_400, "d"),
    };
    let count = seconds.unsigned_abs() / size;
    if seconds < 0 {
        format!("in {count} {unit}")
    } else {
        format!("{count} {unit} ago")
    }
}

/// Content that the script replaces when something changes. `id` is unique on the page.
pub(super) fn live(id: &str, content: &Markup) -> Markup {
    html! { section id=(id) data-live { (content) } }
}

/// Names the change stream at this path, which the page follows as far as it is about these kinds.
pub(super) fn follows(path: &str, kinds: &[Kind]) -> Markup {
    let words: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
    html! { span hidden data-stream=(path) data-kinds=(words.join(" ")) {} }
}

/// The pages above this one.
pub(super) fn breadcrumbs(above: &[(&str, &str)]) -> Markup {
    html! {
        nav.breadcrumbs aria-label="Breadcrumbs" {
            ol { @for (path, name) in above { li { a href=(path) { (name) } } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_in_the_largest_unit() {
        let cases = [
            (0, "just now"),
            (59, "just now"),
            (60, "1 min ago"),
            (7_200, "2 h ago"),
            (172_800, "2 d ago"),
            (-300, "in 5 min"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(words(seconds), expected);
        }
    }

    #[test]
    fn a_status_of_another_version_is_neutral() {
        assert_eq!(Tone::of("Success"), Tone::Good);
        assert_eq!(Tone::of("<script>"), Tone::Neutral);
        assert!(!badge("<script>").into_string().contains("<script>"));
    }
}
