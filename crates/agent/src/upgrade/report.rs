//! The agent's report on upgrades of its node: in the `NodeReport` and in metrics. Pure but for the metrics.

use jiff::{SignedDuration, Timestamp};
use prometheus::IntGauge;
use tidewaiter_api::node_report::{UpgradeReport, UpgradeState};
use tidewaiter_kit::metrics::{Metrics, MetricsError};

use super::files::{Outcome, RunResult};

/// The part about upgrades of the node's report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReportedUpgrade {
    /// Upgrades are disabled on the node.
    Disabled,
    /// The upgrade controller has not looked yet.
    #[default]
    Unknown,
    /// The report of its last pass.
    Reported(UpgradeReport),
}

/// The length of a message in the report.
const MAX_MESSAGE_CHARS: usize = 1024;

/// The length of an id in the report.
const MAX_ID_CHARS: usize = 253;

/// The findings of a pass.
#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    /// The upgrade that says that it is the turn of this node; None if none does.
    pub(super) turn: Option<&'a str>,
    /// No order for this node is left, so a result `Blocked` is obsolete.
    pub(super) is_over: bool,
    /// The reason why the script is not offered to the host.
    pub(super) error: Option<String>,
    /// From when on the signature of the script counts, if that is the reason.
    pub(super) not_before: Option<Timestamp>,
    /// The result of the host.
    pub(super) result: Option<RunResult>,
    /// True if the host has had the offer for so long that it would have answered.
    pub(super) is_overdue: bool,
    /// The time of the agent.
    pub(super) now: Timestamp,
    /// True if the host permits scripts without a signature.
    pub(super) permits_unsigned: bool,
    /// The reason why no script would run: the host would refuse each, or nobody can order one.
    pub(super) host_problem: String,
}

impl Found<'_> {
    /// The report. It never has the output of the script, which may be secret. A run that has begun, or a final result,
    /// counts, whatever the agent fails to do meanwhile.
    pub(super) fn report(self) -> UpgradeReport {
        let id: String = self.turn.unwrap_or_default().chars().take(MAX_ID_CHARS).collect();
        // A host that cannot read the order does not know its id.
        let answer = self
            .result
            .map(|result| settled(result, self.now))
            .filter(|result| id.is_empty() || result.id == id || result.id.is_empty())
            .filter(|result| !self.is_over || result.outcome != Outcome::Blocked);
        let mut report = match (self.error, answer) {
            (_, Some(result)) if result.outcome != Outcome::Blocked => reported(result),
            (Some(message), _) => UpgradeReport {
                not_before: self.not_before,
                ..with_message(UpgradeState::Blocked, message)
            },
            (None, Some(result)) => reported(result),
            (None, None) if id.is_empty() => UpgradeReport::default(),
            (None, None) if self.is_overdue => with_message(UpgradeState::Offered, UNANSWERED.to_owned()),
            (None, None) => with_message(UpgradeState::Offered, "the host has not answered yet".to_owned()),
        };
        if !id.is_empty() {
            report.id = id;
        }
        report.message = report.message.chars().take(MAX_MESSAGE_CHARS).collect();
        report.unsigned_scripts = self.permits_unsigned;
        // `offer` decides by it.
        report.follows_own_status = true;
        report.host_problem = self.host_problem.chars().take(MAX_MESSAGE_CHARS).collect();
        report
    }
}

const UNANSWERED: &str = "the host does not answer: on the node, run tidewaiter host install if it was never run, \
     then systemctl enable --now tidewaiter-upgrade.path tidewaiter-upgrade.service";

/// The time that the host has after the end of a run to write the result.
const RESULT_GRACE: SignedDuration = SignedDuration::from_mins(2);

/// A run past its end counts as stopped: the host stops it then. So its units are dead, and nothing else would report
/// it.
fn settled(result: RunResult, now: Timestamp) -> RunResult {
    let is_running = matches!(result.outcome, Outcome::Running | Outcome::RollingBack);
    match result
        .until
        .filter(|until| is_running && now.duration_since(*until) > RESULT_GRACE)
    {
        None => result,
        Some(until) => RunResult {
            outcome: Outcome::Interrupted,
            message: format!(
                "the host has not said what became of the script, which must have ended at {until}: on the node, see systemctl status \
                 tidewaiter-upgrade.service tidewaiter-upgrade-way-back.service"
            ),
            ..result
        },
    }
}

fn with_message(state: UpgradeState, message: String) -> UpgradeReport {
    UpgradeReport {
        state,
        message,
        ..UpgradeReport::default()
    }
}

fn reported(result: RunResult) -> UpgradeReport {
    let state = match result.outcome {
        Outcome::Blocked => UpgradeState::Blocked,
        Outcome::Running => UpgradeState::Running,
        Outcome::RollingBack => UpgradeState::RollingBack,
        Outcome::Succeeded => UpgradeState::Succeeded,
        Outcome::Failed => UpgradeState::Failed,
        Outcome::TimedOut => UpgradeState::TimedOut,
        Outcome::Interrupted => UpgradeState::Interrupted,
        Outcome::Refused => UpgradeState::Refused,
    };
    UpgradeReport {
        id: result.id.chars().take(MAX_ID_CHARS).collect(),
        exit_code: result.exit_code,
        rolled_back: result.rolled_back,
        ..with_message(state, result.message)
    }
}

pub(super) struct UpgradeMetrics {
    is_refused: IntGauge,
    permits_unsigned: IntGauge,
    is_unprepared: IntGauge,
}

impl UpgradeMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            is_refused: metrics.gauge(
                "tidewaiter_agent_upgrade_script_refused",
                "1 while it is the turn of this node to be upgraded and no script runs: the agent or the host refuses it, the upgrade has no script, it was interrupted, or the host does not answer; else 0.",
            )?,
            permits_unsigned: metrics.gauge(
                "tidewaiter_agent_unsigned_scripts_permitted",
                "1 while this node permits upgrade scripts without a signature, else 0.",
            )?,
            is_unprepared: metrics.gauge(
                "tidewaiter_agent_upgrade_host_unprepared",
                "1 while no upgrade script can run on this node, whosever turn it is: nothing or no key is pinned on it, what is pinned is for another Node or cannot be read, or the agent cannot read the orders of the coordinator; else 0.",
            )?,
        })
    }

    pub(super) fn show(&self, report: &UpgradeReport, is_turn: bool, is_overdue: bool) {
        let is_refused = is_turn
            && match report.state {
                UpgradeState::Blocked if report.not_before.is_some() => false,
                UpgradeState::Blocked | UpgradeState::Refused | UpgradeState::Interrupted => true,
                UpgradeState::Offered => is_overdue,
                _ => false,
            };
        self.is_refused.set(i64::from(is_refused));
        self.permits_unsigned.set(i64::from(report.unsigned_scripts));
        self.is_unprepared.set(i64::from(!report.host_problem.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;

    use super::*;

    use UpgradeState as State;

    fn result(id: &str, outcome: Outcome) -> RunResult {
        RunResult {
            id: id.to_owned(),
            outcome,
            message: "m".to_owned(),
            exit_code: None,
            rolled_back: false,
            at: jiff::Timestamp::UNIX_EPOCH,
            until: None,
            tail: "secret".to_owned(),
        }
    }

    /// The state, the id, and whether the metric says that no script runs.
    fn shown(found: Found<'_>) -> (UpgradeState, String, i64) {
        let metrics = UpgradeMetrics::new(&Metrics::new(&ManualClock::default().shared()).unwrap()).unwrap();
        let (is_turn, is_overdue) = (found.turn.is_some(), found.is_overdue);
        let report = found.report();
        metrics.show(&report, is_turn, is_overdue);
        assert!(!format!("{report:?}").contains("secret"));
        (report.state, report.id, metrics.is_refused.get())
    }

    #[test]
    fn what_should_have_ended_does_not_run_for_ever() {
        let until = Timestamp::from_second(1_000).unwrap();
        for (outcome, seconds, expected) in [
            (Outcome::Running, 1_120, State::Running),
            (Outcome::Running, 1_121, State::Interrupted),
            (Outcome::RollingBack, 1_121, State::Interrupted),
            (Outcome::Succeeded, 1_121, State::Succeeded),
        ] {
            let told = RunResult {
                until: Some(until),
                ..result("a", outcome)
            };
            let found = Found {
                result: Some(told),
                now: Timestamp::from_second(seconds).unwrap(),
                ..Found::default()
            };
            let report = found.report();
            assert_eq!(
                (report.state, report.message.contains("systemctl")),
                (expected, expected == State::Interrupted)
            );
        }
    }

    #[test]
    fn what_the_host_says_counts_for_its_upgrade_and_silence_is_said() {
        use Outcome::{Blocked, Failed, Interrupted, Refused, RollingBack, Running, Succeeded};
        for (turn, error, answer, is_overdue, expected) in [
            (None, None, None, false, (State::None, "", 0)),
            (Some("a"), None, None, false, (State::Offered, "a", 0)),
            (Some("a"), None, None, true, (State::Offered, "a", 1)),
            // A result of another upgrade is no answer.
            (Some("a"), None, Some(("b", Failed)), true, (State::Offered, "a", 1)),
            (Some("a"), None, Some(("a", Running)), true, (State::Running, "a", 0)),
            (Some("a"), None, Some(("a", Failed)), false, (State::Failed, "a", 0)),
            (Some("a"), None, Some(("a", Refused)), false, (State::Refused, "a", 1)),
            (
                Some("a"),
                None,
                Some(("a", Interrupted)),
                false,
                (State::Interrupted, "a", 1),
            ),
            (
                Some("a"),
                None,
                Some(("a", RollingBack)),
                false,
                (State::RollingBack, "a", 0),
            ),
            // It cannot read the order, so it does not know its id.
            (Some("a"), None, Some(("", Blocked)), false, (State::Blocked, "a", 1)),
            // A failure of the agent hides no run that has begun, and no final result.
            (
                Some("a"),
                Some("e"),
                Some(("a", Running)),
                false,
                (State::Running, "a", 0),
            ),
            (
                Some("a"),
                Some("e"),
                Some(("a", Succeeded)),
                false,
                (State::Succeeded, "a", 0),
            ),
            (
                Some("a"),
                Some("e"),
                Some(("a", Refused)),
                false,
                (State::Refused, "a", 1),
            ),
            (
                Some("a"),
                Some("e"),
                Some(("a", Blocked)),
                false,
                (State::Blocked, "a", 1),
            ),
            (
                Some("a"),
                Some("e"),
                Some(("b", Failed)),
                false,
                (State::Blocked, "a", 1),
            ),
            (Some("a"), Some("e"), None, false, (State::Blocked, "a", 1)),
            // It is over.
            (None, None, Some(("a", Refused)), false, (State::Refused, "a", 0)),
            (None, Some("e"), None, false, (State::Blocked, "", 0)),
        ] {
            let found = Found {
                turn,
                error: error.map(str::to_owned),
                result: answer.map(|(id, outcome)| result(id, outcome)),
                is_overdue,
                ..Found::default()
            };
            let case = format!("{found:?}");
            let (state, id, refused) = expected;
            assert_eq!(shown(found), (state, id.to_owned(), refused), "{case}");
        }
    }

    /// An order whose time is over is still one: the coordinator ends the node with the reason of its host.
    #[test]
    fn what_blocked_a_script_is_reported_until_its_order_is_gone() {
        for (outcome, is_over, expected) in [
            (Outcome::Blocked, false, (State::Blocked, "a")),
            (Outcome::Blocked, true, (State::None, "")),
            (Outcome::Running, true, (State::Running, "a")),
            (Outcome::Failed, true, (State::Failed, "a")),
        ] {
            let found = Found {
                result: Some(result("a", outcome)),
                is_over,
                ..Found::default()
            };
            let (state, id, refused) = shown(found);
            assert_eq!(
                (state, &*id, refused),
                (expected.0, expected.1, 0),
                "{outcome:?} {is_over}"
            );
        }
    }

    #[test]
    fn a_script_that_counts_later_is_blocked_until_then_and_not_refused() {
        let early = |answer: Option<RunResult>| Found {
            turn: Some("a"),
            error: Some("e".to_owned()),
            not_before: Some(Timestamp::MAX),
            result: answer,
            ..Found::default()
        };
        assert_eq!(shown(early(None)), (State::Blocked, "a".to_owned(), 0));
        assert_eq!(early(None).report().not_before, Some(Timestamp::MAX));
        // A run that has begun, and a final result, come first.
        let failed = early(Some(result("a", Outcome::Failed))).report();
        assert_eq!((failed.state, failed.not_before), (State::Failed, None));
    }
}
