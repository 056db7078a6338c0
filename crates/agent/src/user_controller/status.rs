//! The reports of the user controller: metrics, Events on the Node, the log, and its part of the node's report.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};
use tidewaiter_api::node_report::MOST_NAMED;
use tidewaiter_kit::metrics::{Metrics, MetricsError};
use tidewaiter_kit::{Chain, Events, Notice, SharedClock};
use tokio::sync::watch;
use tracing::{info, warn};

use super::authorized_keys_files::Outcome;
use super::expiry::Expiry;
use crate::host::HostError;
use crate::identity::Identity;

/// The state that the node's report is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentStatus {
    /// The outcome of the last pass that did not fail.
    pub(crate) outcome: Option<Arc<Outcome>>,
    /// The reason why the last pass failed, or could only overwrite a file in place.
    pub(crate) error: Option<String>,
    /// The number of changes that were undone.
    pub(crate) restores: u32,
    /// The last changes that others made.
    pub(crate) tampering: VecDeque<(Timestamp, String)>,
}

impl AgentStatus {
    /// Returns true if the Users are not listed yet, and nothing is wrong.
    pub(crate) fn awaits_users(&self) -> bool {
        self.error.is_none() && self.outcome.as_ref().is_some_and(|outcome| !outcome.is_listed)
    }
}

/// Publishes the reports.
pub(crate) struct Status {
    identity: Identity,
    events: Events,
    clock: SharedClock,
    published: watch::Sender<AgentStatus>,
    metrics: UserMetrics,
}

/// The label of restores: the file of the keys, and everything else.
const FILES: [&str; 2] = ["authorized_keys", "other"];

struct UserMetrics {
    users: IntGauge,
    keys: IntGauge,
    refused: IntGauge,
    other_lines: IntGaugeVec,
    foreign_keys: IntGaugeVec,
    foreign_until: IntGauge,
    break_glass_use: IntGauge,
    is_applied: IntGauge,
    is_held: IntGauge,
    is_expiring: IntGauge,
    restores: IntCounterVec,
}

impl UserMetrics {
    fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let new = Self {
            users: metrics.gauge(
                "tidewaiter_agent_users",
                "Number of users with a key in authorized_keys of this node.",
            )?,
            keys: metrics.gauge(
                "tidewaiter_agent_keys",
                "Number of keys of users in authorized_keys of this node.",
            )?,
            refused: metrics.gauge(
                "tidewaiter_agent_refused_keys",
                "Number of keys in Users that are not written.",
            )?,
            other_lines: metrics.gauge_vec(
                "tidewaiter_agent_other_lines",
                "Number of lines in authorized_keys that are no user's, by kind (foreign, break_glass).",
                &["kind"],
            )?,
            foreign_keys: metrics.gauge_vec(
                "tidewaiter_agent_foreign_key",
                "1 for each of the first keys in foreign lines of authorized_keys, by fingerprint.",
                &["fingerprint"],
            )?,
            foreign_until: metrics.gauge(
                "tidewaiter_agent_foreign_lines_removal_timestamp_seconds",
                "When foreign lines of authorized_keys are removed that stay until then, in seconds since 1970; 0 if none.",
            )?,
            break_glass_use: metrics.gauge(
                "tidewaiter_agent_break_glass_use_timestamp_seconds",
                "When somebody last logged in with a break-glass key, in seconds since 1970; 0 if nobody has.",
            )?,
            is_applied: metrics.gauge(
                "tidewaiter_agent_applied",
                "1 while authorized_keys of this node is as the Users say, else 0.",
            )?,
            is_held: metrics.gauge(
                "tidewaiter_agent_removals_held",
                "1 while the removal of many users waits for the mirror of the cloud, else 0.",
            )?,
            is_expiring: metrics.gauge(
                "tidewaiter_agent_keys_expiring",
                "1 from hours before keys that the mirror does not confirm are removed, else 0.",
            )?,
            restores: metrics.counter_vec(
                "tidewaiter_agent_restores_total",
                "Changes of others to the agent's files that were undone, by file.",
                &["file"],
            )?,
        };
        // The first increase counts only if there was a value before.
        for file in FILES {
            new.restores.with_label_values(&[file]);
        }
        Ok(new)
    }
}

impl Status {
    pub(crate) fn new(
        identity: Identity,
        events: Events,
        clock: SharedClock,
        metrics: &Metrics,
    ) -> Result<Self, MetricsError> {
        Ok(Self {
            identity,
            events,
            clock,
            published: watch::Sender::default(),
            metrics: UserMetrics::new(metrics)?,
        })
    }

    /// The Node, for Events.
    pub(super) fn node(&self) -> ObjectReference {
        self.identity.reference()
    }

    /// The last state, and each change of it.
    pub(crate) fn subscribe(&self) -> watch::Receiver<AgentStatus> {
        self.published.subscribe()
    }

    /// A pass failed.
    pub(super) fn failed(&self, error: &HostError) {
        self.metrics.is_applied.set(0);
        let error = Chain(error).to_string();
        self.published.send_if_modified(|status| {
            let is_new = status.error.as_ref() != Some(&error);
            status.error = Some(error);
            is_new
        });
    }

    /// A pass did this.
    pub(super) fn publish(&self, outcome: &Outcome) {
        self.measure(outcome);
        for what in &outcome.tampering {
            let file = FILES[usize::from(!what.starts_with(FILES[0]))];
            self.metrics.restores.with_label_values(&[file]).inc();
            warn!(what, "restored");
            let note = format!(
                "On the node, somebody changed what the agent wrote: {what}. It was restored. The kernel does not say which process it was."
            );
            let notice = Notice::warning("AuthorizedKeysRestored", "Restore", note);
            self.events.publish(&self.node(), notice);
        }
        if let Some((at, fingerprint)) = self.new_use(outcome) {
            let note = format!("At {at}, somebody logged in on the node with the break-glass key {fingerprint}.");
            warn!(%at, %fingerprint, "a break-glass key was used");
            self.events
                .publish(&self.node(), Notice::warning("BreakGlassUsed", "Login", note));
        }
        if outcome.is_held {
            let note = "Most users, or the last one, would lose access to the node. Their keys stay until CloudSync confirms it.";
            self.events
                .publish(&self.node(), Notice::warning("UserRemovalHeld", "Hold", note));
        }
        // While restores are slowed down, the files were not looked at.
        if outcome.wait.is_none() {
            self.update(outcome);
        }
    }

    /// A use since the last pass. One from before the start is in the report alone.
    fn new_use<'a>(&self, outcome: &'a Outcome) -> Option<&'a (Timestamp, String)> {
        let status = self.published.borrow();
        let before = status.outcome.as_ref()?.break_glass_use.as_ref();
        let found = outcome.break_glass_use.as_ref()?;
        before.is_none_or(|before| before.0 < found.0).then_some(found)
    }

    fn update(&self, outcome: &Outcome) {
        let now = self.clock.now();
        self.published.send_if_modified(|status| {
            let before = status.outcome.as_ref().and_then(|before| before.logins.as_ref());
            if before != outcome.logins.as_ref()
                && let Some(logins) = &outcome.logins
            {
                info!(users = logins.len(), "the users that can log in");
            }
            let error = outcome.unplaced.as_ref().map(|error| Chain(error).to_string());
            let is_same = status.error == error
                && status
                    .outcome
                    .as_ref()
                    .is_some_and(|before| before.has_same_report(outcome));
            status.error = error;
            status.outcome = Some(Arc::new(outcome.clone()));
            if !outcome.tampering.is_empty() {
                status.restores = status.restores.saturating_add(1);
            }
            status
                .tampering
                .extend(outcome.tampering.iter().map(|what| (now, what.clone())));
            let excess = status.tampering.len().saturating_sub(MOST_NAMED);
            status.tampering.drain(..excess);
            !is_same || !outcome.tampering.is_empty()
        });
    }

    fn measure(&self, outcome: &Outcome) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let metrics = &self.metrics;
        if let Some(logins) = &outcome.logins {
            metrics.users.set(count(logins.len()));
            metrics.keys.set(count(logins.values().map(Vec::len).sum()));
        }
        metrics.refused.set(count(outcome.refused.len()));
        if outcome.wait.is_none() {
            let lines = &metrics.other_lines;
            lines.with_label_values(&["foreign"]).set(count(outcome.foreign_lines));
            lines
                .with_label_values(&["break_glass"])
                .set(count(outcome.break_glass.len()));
            metrics.foreign_keys.reset();
            for key in outcome.foreign_keys.iter().take(MOST_NAMED) {
                metrics.foreign_keys.with_label_values(&[&key.fingerprint]).set(1);
            }
            let seconds = |at: Option<Timestamp>| at.map_or(0, Timestamp::as_second);
            metrics.foreign_until.set(seconds(outcome.foreign_until));
            let last_use = outcome.break_glass_use.as_ref().map(|(at, _)| *at);
            metrics.break_glass_use.set(seconds(last_use));
        }
        let is_undone = outcome.wait.is_none() && outcome.unplaced.is_none();
        let is_applied = outcome.is_listed && is_undone && !outcome.is_held;
        metrics.is_applied.set(i64::from(is_applied));
        metrics.is_held.set(i64::from(outcome.is_held));
        let is_expiring = matches!(outcome.expiry, Expiry::Soon(_) | Expiry::Expired);
        metrics.is_expiring.set(i64::from(is_expiring));
    }
}

impl Outcome {
    /// True if a report of both has the same content.
    fn has_same_report(&self, other: &Self) -> bool {
        let reported = |it: &Self| {
            (
                it.is_listed,
                it.is_held,
                it.foreign_lines,
                it.foreign_until,
                it.expiry.word(),
            )
        };
        reported(self) == reported(other)
            && self.logins == other.logins
            && self.refused == other.refused
            && self.foreign_keys == other.foreign_keys
            && self.break_glass == other.break_glass
            && self.break_glass_users == other.break_glass_users
            && self.break_glass_use == other.break_glass_use
    }
}
