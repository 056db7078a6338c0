//! The state of the upgrades, as metrics: their number by state, and the progress of those that run.
//!
//! The state is what the conditions say, so it is the same after a restart. Nobody deletes an upgrade that is over: a
//! failed one counts as failed only until another one has begun after its end.

use std::collections::BTreeMap;
use std::slice;

use jiff::Timestamp;
use prometheus::IntGaugeVec;
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::containership::cluster_upgrade::{PROGRESSING, SUCCEEDED};
use tidewaiter_api::containership::{ClusterUpgrade, ClusterUpgradeStatus};
use tidewaiter_kit::metrics::{MetricsError, StateGauge};
use tidewaiter_kit::{Key, Metrics};

const SUCCESS: &str = "succeeded";
const FAILED: &str = "failed";
const SUPERSEDED: &str = "superseded";

/// The reasons of the condition `Progressing`, and the state of an upgrade that is not over.
const WAITS: [(&str, &str); 13] = [
    ("NotPermitted", "not_permitted"),
    ("OtherUpgrade", "other_upgrade"),
    ("Withdrawn", "other_upgrade"),
    ("Paused", "paused"),
    ("MaintenanceWindow", "window"),
    ("Unhealthy", "unhealthy"),
    ("Draining", "draining"),
    ("Uncordoning", "uncordoning"),
    ("Soaking", "soaking"),
    ("FellBack", "fallen_back"),
    ("Beginning", "upgrading"),
    ("Upgrading", "upgrading"),
    ("Aborting", "upgrading"),
];

/// The nodes of upgrades in progress: at the version, failed, neither.
const NODE_STATES: [&str; 3] = ["done", "failed", "remaining"];

/// The upgrades, and their metrics.
pub(super) struct UpgradeMetrics {
    upgrades: StateGauge<Entry>,
    nodes: IntGaugeVec,
}

/// The metrics of one upgrade.
struct Entry {
    state: &'static str,
    place: Option<Place>,
    /// In the order of [`NODE_STATES`]; 0 unless it is in progress.
    nodes: [u32; 3],
}

/// The place of an upgrade that has begun among the others: what is in progress comes last, and before it what ended
/// last. An upgrade may be created before another one and begin after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// It ended then.
    Over(Timestamp),
    InProgress,
}

impl UpgradeMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let upgrades = [
            "tidewaiter_upgrades",
            "ClusterUpgrades by state: what those that are not over wait for (not_permitted, other_upgrade, paused, window, unhealthy, draining, uncordoning, soaking, fallen_back, upgrading); succeeded; failed; superseded (failed, and another one has begun since). 0 on a replica that does not lead.",
            "state",
        ];
        let waits = WAITS.map(|(_, state)| state).into_iter();
        let states = waits.chain([SUCCESS, FAILED, SUPERSEDED]);
        let shown = Self {
            upgrades: StateGauge::new(metrics, upgrades, states, |entry: &Entry| slice::from_ref(&entry.state))?,
            nodes: metrics.gauge_vec(
                "tidewaiter_upgrade_nodes",
                "Nodes of the upgrade in progress by state: done (at the version), failed, remaining. 0 without one, and on a replica that does not lead.",
                &["state"],
            )?,
        };
        shown.count_nodes(&BTreeMap::new());
        Ok(shown)
    }

    /// The upgrade is so. One without conditions was not decided about yet.
    pub(super) fn set(&self, key: &Key, upgrade: &ClusterUpgrade) {
        self.show(key, upgrade.status.as_ref().and_then(Entry::of));
    }

    /// The upgrade is gone.
    pub(super) fn remove(&self, key: &Key) {
        self.show(key, None);
    }

    fn show(&self, key: &Key, entry: Option<Entry>) {
        self.upgrades.change(|all| {
            match entry {
                Some(entry) => all.insert(key.clone(), entry),
                None => all.remove(key),
            };
            let last = all.values().filter_map(|it| it.place).max();
            for it in all.values_mut().filter(|it| [FAILED, SUPERSEDED].contains(&it.state)) {
                it.state = if it.place < last { SUPERSEDED } else { FAILED };
            }
            self.count_nodes(all);
        });
    }

    fn count_nodes(&self, all: &BTreeMap<Key, Entry>) {
        for (place, shown) in NODE_STATES.into_iter().enumerate() {
            let count = all.values().map(|it| i64::from(it.nodes[place])).sum();
            self.nodes.with_label_values(&[shown]).set(count);
        }
    }
}

impl Entry {
    fn of(status: &ClusterUpgradeStatus) -> Option<Self> {
        let find = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
        let succeeded = find(SUCCEEDED)?;
        let over = match succeeded.status {
            ConditionStatus::True => Some(SUCCESS),
            ConditionStatus::False => Some(FAILED),
            ConditionStatus::Unknown => None,
        };
        let progressing = find(PROGRESSING)?;
        let waits = || WAITS.into_iter().find(|(reason, _)| *reason == progressing.reason);
        let is_in_progress = over.is_none() && progressing.status == ConditionStatus::True;
        let [nodes, done, failed] = [status.nodes, status.done, status.failed].map(Option::unwrap_or_default);
        let remaining = nodes.saturating_sub(done).saturating_sub(failed);
        Some(Self {
            state: over.or_else(|| waits().map(|(_, state)| state))?,
            place: match over {
                Some(_) => Some(Place::Over(succeeded.last_transition_time)),
                None => is_in_progress.then_some(Place::InProgress),
            },
            nodes: if is_in_progress {
                [done, failed, remaining]
            } else {
                [0; 3]
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_kit::ManualClock;
    use tidewaiter_upgrade::{Unhealthy, Wait};

    use super::*;

    /// `progressing` is the status and the reason of the condition. `minute` is when `Succeeded` got its status. All
    /// were created at the same time.
    fn upgrade(minute: u8, progressing: [&str; 2], succeeded: &str) -> ClusterUpgrade {
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z")});
        let [status, reason] = progressing;
        let conditions = [
            condition(PROGRESSING, status, reason),
            condition(SUCCEEDED, succeeded, "R"),
        ];
        serde_json::from_value(
            json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade",
            "metadata": {"name": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"type": "kubernetes", "targetVersion": "v1.36.3"},
            "status": {"nodes": 9, "done": 3, "failed": 2, "conditions": conditions}}),
        )
        .unwrap()
    }

    fn shows(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.encode().unwrap();
        for line in lines {
            assert!(text.lines().any(|it| it == *line), "{line} is not in {text}");
        }
    }

    /// The number of series does not depend on the number of upgrades.
    #[test]
    fn upgrades_are_counted_by_state_and_their_nodes_while_they_are_in_progress() {
        let metrics = Metrics::new(&ManualClock::default().shared()).unwrap();
        let shown = UpgradeMetrics::new(&metrics).unwrap();
        let series = |text: &str| {
            text.lines()
                .filter(|line| line.starts_with("tidewaiter_upgrade"))
                .count()
        };
        let before = series(&metrics.encode().unwrap());
        let over = ["False", "Finished"];
        for (number, upgrade) in [
            upgrade(1, over, "True"),
            upgrade(2, over, "False"),
            upgrade(3, over, "False"),
            upgrade(4, ["False", "MaintenanceWindow"], "Unknown"),
            upgrade(5, ["False", "Paused"], "Unknown"),
        ]
        .iter()
        .enumerate()
        {
            shown.set(&Key::new(&number.to_string()), upgrade);
        }
        shows(
            &metrics,
            &[
                "tidewaiter_upgrades{state=\"succeeded\"} 1",
                "tidewaiter_upgrades{state=\"failed\"} 1",
                "tidewaiter_upgrades{state=\"superseded\"} 1",
                "tidewaiter_upgrades{state=\"window\"} 1",
                "tidewaiter_upgrades{state=\"paused\"} 1",
                "tidewaiter_upgrade_nodes{state=\"failed\"} 0",
            ],
        );
        // One that has only waited does not supersede a failed one; one that is in progress does.
        shown.set(&Key::new("4"), &upgrade(5, ["True", "Paused"], "Unknown"));
        shows(
            &metrics,
            &[
                "tidewaiter_upgrades{state=\"failed\"} 0",
                "tidewaiter_upgrades{state=\"superseded\"} 2",
                "tidewaiter_upgrade_nodes{state=\"done\"} 3",
                "tidewaiter_upgrade_nodes{state=\"failed\"} 2",
                "tidewaiter_upgrade_nodes{state=\"remaining\"} 4",
            ],
        );
        shown.remove(&Key::new("4"));
        shows(
            &metrics,
            &[
                "tidewaiter_upgrades{state=\"failed\"} 1",
                "tidewaiter_upgrade_nodes{state=\"done\"} 0",
            ],
        );
        assert_eq!(series(&metrics.encode().unwrap()), before);
    }

    /// The numbers that count as failed, and as superseded, of these: when each ended, and whether it succeeded; None
    /// for one in progress.
    fn failed(upgrades: &[Option<(u8, bool)>]) -> (i64, i64) {
        let metrics = Metrics::new(&ManualClock::default().shared()).unwrap();
        let shown = UpgradeMetrics::new(&metrics).unwrap();
        for (number, it) in upgrades.iter().enumerate() {
            let upgrade = match it {
                Some((minute, success)) => {
                    upgrade(*minute, ["False", "Finished"], if *success { "True" } else { "False" })
                }
                None => upgrade(0, ["True", "Upgrading"], "Unknown"),
            };
            shown.set(&Key::new(&number.to_string()), &upgrade);
        }
        let text = metrics.encode().unwrap();
        let count = |state: &str| -> i64 {
            let series = format!("tidewaiter_upgrades{{state=\"{state}\"}} ");
            let count = text.lines().find_map(|line| line.strip_prefix(&series));
            count.unwrap().parse().unwrap()
        };
        (count(FAILED), count(SUPERSEDED))
    }

    #[test]
    fn the_last_one_counts_whatever_was_created_first() {
        for (upgrades, expected) in [
            // The first one was created, and paused; the second one succeeded; then the first one went on and failed.
            (&[Some((20, false)), Some((10, true))][..], (1, 0)),
            (&[Some((10, false)), Some((20, true))], (0, 1)),
            // The one that was created first is in progress again.
            (&[None, Some((10, false))], (0, 1)),
            (&[Some((10, false)), None], (0, 1)),
            (&[Some((10, false)), Some((20, false))], (1, 1)),
            (&[Some((10, false)), Some((10, false))], (2, 0)),
        ] {
            assert_eq!(failed(upgrades), expected, "{upgrades:?}");
        }
    }

    #[test]
    fn every_wait_has_a_state() {
        let nodes = || vec!["w1".parse().unwrap()];
        let opens: jiff::Zoned = "2026-11-22T06:00:00[UTC]".parse().unwrap();
        for (wait, state) in [
            (Wait::Label, "not_permitted"),
            (Wait::Upgrade("u".to_owned()), "other_upgrade"),
            (Wait::Paused, "paused"),
            (Wait::Soak(opens.timestamp()), "soaking"),
            (Wait::Window(opens), "window"),
            (Wait::Health(Unhealthy::Etcd), "unhealthy"),
            (Wait::Drain("w1".parse().unwrap(), None), "draining"),
            (Wait::Uncordon(nodes()), "uncordoning"),
            (Wait::Recovery(nodes()), "fallen_back"),
            (Wait::Nodes(nodes()), "upgrading"),
            (Wait::Aborted(Box::new(Wait::Nodes(nodes()))), "upgrading"),
        ] {
            let entry = Entry::of(&upgrade(1, ["True", wait.reason()], "Unknown").status.unwrap());
            assert_eq!(entry.map(|entry| entry.state), Some(state), "{wait:?}");
        }
    }
}
