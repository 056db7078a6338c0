//! The state of the plugins, as metrics: their number by state, and the number of their objects.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::containership::PluginStatus;
use tidewaiter_api::containership::plugin::{READY, STALLED};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Key, Metrics};

use super::status::APPROVAL_NEEDED;

const STATES: [&str; 4] = ["ready", "progressing", "awaits_approval", "stalled"];

/// The plugins that are applied.
pub(super) struct Board {
    all: Mutex<BTreeMap<Key, PluginCounts>>,
    plugins: IntGaugeVec,
    objects: IntGauge,
    unhealthy: IntGauge,
    drifted: IntGauge,
    outdated: IntGauge,
    corrected: IntCounterVec,
}

/// The metrics of one plugin.
struct PluginCounts {
    state: &'static str,
    objects: u32,
    unhealthy: u32,
    drifted: u32,
    outdated: bool,
}

impl Board {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let board = Self {
            all: Mutex::default(),
            plugins: metrics.gauge_vec(
                "tidewaiter_plugins",
                "Plugins of the cloud by state: ready; progressing; awaits_approval (of a person); stalled (nothing helps but a change, or it takes too long). 0 on a replica that does not lead.",
                &["state"],
            )?,
            objects: metrics.gauge("tidewaiter_plugin_objects", "Objects of all plugins.")?,
            unhealthy: metrics.gauge(
                "tidewaiter_plugin_objects_unhealthy",
                "Objects of plugins that are not healthy. Counted when the version is applied.",
            )?,
            drifted: metrics.gauge(
                "tidewaiter_plugin_objects_drifted",
                "Objects of plugins that somebody changed or deleted and that are left so, with pluginDrift: report.",
            )?,
            outdated: metrics.gauge(
                "tidewaiter_plugins_outdated",
                "Plugins whose manifests could not be fetched again from the cloud. What was fetched before stays applied.",
            )?,
            corrected: metrics.counter_vec(
                "tidewaiter_plugin_corrections_total",
                "Objects of plugins that somebody changed or deleted and that were made as the plugin says again.",
                &[],
            )?,
        };
        board.correct(0);
        board.show(&BTreeMap::new());
        Ok(board)
    }

    /// The plugin has this status, and its manifests may be `outdated`.
    pub(super) fn set(&self, key: &Key, status: &PluginStatus, outdated: bool) {
        let holds = |type_| {
            let mut conditions = status.conditions.iter();
            conditions.any(|it| it.type_ == type_ && it.status == ConditionStatus::True)
        };
        let awaits = status
            .conditions
            .iter()
            .any(|it| it.type_ == READY && it.reason == APPROVAL_NEEDED);
        let state = match (holds(STALLED), holds(READY)) {
            (true, _) => "stalled",
            (false, true) => "ready",
            (false, false) if awaits => "awaits_approval",
            (false, false) => "progressing",
        };
        let counts = PluginCounts {
            state,
            objects: status.objects,
            unhealthy: status.unhealthy,
            drifted: status.drifted,
            outdated,
        };
        self.change(|all| {
            all.insert(key.clone(), counts);
        });
    }

    /// The plugin is gone, or is not applied any more.
    pub(super) fn remove(&self, key: &Key) {
        self.change(|all| {
            all.remove(key);
        });
    }

    /// Counts corrected objects.
    pub(super) fn correct(&self, objects: usize) {
        self.corrected.with_label_values::<&str>(&[]).inc_by(objects as u64);
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Key, PluginCounts>)) {
        let mut all = self.all.lock();
        change(&mut all);
        self.show(&all);
    }

    fn show(&self, all: &BTreeMap<Key, PluginCounts>) {
        for state in STATES {
            let count = all.values().filter(|its| its.state == state).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.plugins.with_label_values(&[state]).set(count);
        }
        let sum = |of: fn(&PluginCounts) -> u32| -> i64 { all.values().map(|its| i64::from(of(its))).sum() };
        self.objects.set(sum(|its| its.objects));
        self.unhealthy.set(sum(|its| its.unhealthy));
        self.drifted.set(sum(|its| its.drifted));
        self.outdated.set(sum(|its| its.outdated.into()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_kit::ManualClock;

    use super::*;

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
}
