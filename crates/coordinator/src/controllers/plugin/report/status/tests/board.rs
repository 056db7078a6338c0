use serde_json::json;
use tidewaiter_kit::ManualClock;

use super::super::*;

fn status(ready: &str, stalled: &str, unhealthy: u32) -> PluginStatus {
    let (ready, reason) = ready.split_once(' ').unwrap_or((ready, "R"));
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions = [condition(READY, ready), condition(STALLED, stalled)];
    serde_json::from_value(json!({"objects": 5, "unhealthy": unhealthy, "drifted": 1, "conditions": conditions}))
        .unwrap()
}

/// The number of series does not depend on the number of plugins.
#[test]
fn plugins_are_counted_by_state_and_their_objects_together() {
    let metrics = Metrics::new(&ManualClock::default().shared()).unwrap();
    let board = Board::new(&metrics).unwrap();
    for (number, (ready, stalled)) in [
        ("True", "False"),
        ("False", "False"),
        ("False", "True"),
        ("True", "True"),
        ("False ApprovalNeeded", "False"),
    ]
    .into_iter()
    .enumerate()
    {
        board.set(&Key::new(&number.to_string()), &status(ready, stalled, 2), number > 2);
    }
    board.remove(&Key::new("1"));
    board.set(&Key::new("0"), &status("True", "False", 0), false);
    board.correct(3);
    let text = metrics.encode().unwrap();
    for line in [
        "tidewaiter_plugins{state=\"ready\"} 1",
        "tidewaiter_plugins{state=\"progressing\"} 0",
        "tidewaiter_plugins{state=\"awaits_approval\"} 1",
        "tidewaiter_plugins{state=\"stalled\"} 2",
        "tidewaiter_plugin_objects 20",
        "tidewaiter_plugin_objects_unhealthy 6",
        "tidewaiter_plugin_objects_drifted 4",
        "tidewaiter_plugins_outdated 2",
        "tidewaiter_plugin_corrections_total 3",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
}
