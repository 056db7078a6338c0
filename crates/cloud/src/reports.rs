//! The summaries of the report of a cluster that tables show, in the command line and in the console, and what a
//! cluster has made of changes. A report is null if the cluster has not reported.

mod progress;

use std::fmt::Write as _;

use serde_json::Value;

pub use progress::{Made, Progress, progress};

/// The held changes of all kinds: `4 User, 1 Registry`; `None` without held changes.
#[must_use]
pub fn held(report: &Value) -> Option<String> {
    let held: Vec<String> = items(report, "kinds").iter().filter_map(held_of_kind).collect();
    (!held.is_empty()).then(|| held.join(", "))
}

/// The number of held changes of a kind: `4 User`; `None` without held changes.
#[must_use]
pub fn held_of_kind(kind: &Value) -> Option<String> {
    let held = kind.get("held").filter(|held| !held.is_null())?;
    let count = number(held, "deletions") + number(held, "additions");
    Some(format!("{count} {}", kind["kind"].as_str().unwrap_or_default()))
}

/// The number of plugins that are ready, of all, and of those with a version that awaits approval. `None` if there are
/// no plugins.
#[must_use]
pub fn plugins(report: &Value) -> Option<String> {
    let plugins = items(report, "plugins");
    let ready = plugins.iter().filter(|plugin| plugin["ready"] == true).count();
    let waiting = plugins.iter().filter(|plugin| plugin["waiting"].is_object()).count();
    match (plugins.len(), waiting) {
        (0, _) => None,
        (all, 0) => Some(format!("{ready}/{all}")),
        (all, _) => Some(format!("{ready}/{all}, {waiting} to approve")),
    }
}

/// The number of nodes with a report of their agent, of all, and of those among them with trouble. `None` if the
/// reports of agents cannot be read.
#[must_use]
pub fn agents(report: &Value) -> Option<String> {
    let agents = report.get("agents").filter(|agents| !agents.is_null())?;
    let mut shown = format!("{}/{}", number(agents, "reporting"), number(agents, "nodes"));
    for (field, words) in [
        ("not_applied", "not applied"),
        ("stale", "stale"),
        ("foreign_lines", "with foreign lines"),
    ] {
        let count = number(agents, field);
        if count > 0 {
            let _ = write!(shown, ", {count} {words}");
        }
    }
    Some(shown)
}

fn items<'a>(report: &'a Value, field: &str) -> &'a [Value] {
    report[field].as_array().map_or(&[][..], Vec::as_slice)
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_default()
}
