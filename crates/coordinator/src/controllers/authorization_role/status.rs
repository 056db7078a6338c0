//! The rules of a role that do not apply, in Events and as a gauge.

use tidewaiter_api::cloud_sync::CLUSTER_ROLE;
use tidewaiter_kit::metrics::{MetricsError, StateGauge};
use tidewaiter_kit::{Category, Key, Metrics, Notice, ReconcileError, Retry, WriteError};

use super::plan::{Refused, Why};
use crate::controllers::rbac::notice;

/// The reason why the `ClusterRole` is not as the `AuthorizationRole` says.
#[derive(Debug, thiserror::Error)]
pub(super) enum RoleError {
    /// These rules are refused; the others apply, if there are any.
    #[error("{} of the rules are refused, the first: {}", .refused.len(), .refused[0])]
    Refused { refused: Vec<Refused>, others_apply: bool },
    /// The `ClusterRole` of another coordinator has these rules, which ours would not have.
    #[error("the ClusterRole is held as another coordinator left it; it would lose {} rules, the first: {}", .0.len(), .0[0])]
    Held(Vec<String>),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Refused rules that an Event names.
const NAMED: usize = 5;

impl ReconcileError for RoleError {
    fn category(&self) -> Category {
        match self {
            Self::Refused { refused, others_apply } => {
                let others = if *others_apply {
                    "The other rules of the role apply."
                } else {
                    "No rule of the role applies, so its bindings permit nothing."
                };
                let note = format!(
                    "Not applied: {}. {others} Change the role in the cloud, or the settings of the coordinator.",
                    named(refused)
                );
                Category::refusal("rules", Retry::Slow).notify(Notice::warning("RulesRefused", "Apply", note))
            }
            Self::Held(lost) => {
                let note = format!(
                    "Held as another coordinator left it: these rules are still permitted: {}. To keep them, set allowPrivileged: true; to let \
                     them go: tidewaiter release {CLUSTER_ROLE}.",
                    named(lost)
                );
                Category::refusal("held", Retry::Slow).notify(Notice::warning("RoleHeld", "Apply", note))
            }
            Self::Write(error) => error.category().notify(notice(error, "clusterrole")),
        }
    }
}

/// The first of the rules, and the number of the others.
fn named<T: ToString>(rules: &[T]) -> String {
    let mut named: Vec<String> = rules.iter().take(NAMED).map(T::to_string).collect();
    let more = rules.len().saturating_sub(NAMED);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join("; ")
}

/// The refused rules of each role, as a gauge.
pub(super) struct Refusals(StateGauge<Vec<&'static str>>);

impl Refusals {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let refused = [
            "tidewaiter_role_rules_refused",
            "Rules of roles of the cloud that are not applied: privileged (amounts to full control), ceiling (beyond rbacCeiling), invalid.",
            "reason",
        ];
        StateGauge::new(metrics, refused, Why::WORDS, Vec::as_slice).map(Self)
    }

    pub(super) fn set(&self, key: &Key, refused: &[Refused]) {
        let words = || refused.iter().map(|refused| refused.why.word()).collect();
        self.0.set(key, (!refused.is_empty()).then(words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_says_whether_other_rules_apply() {
        for (others_apply, words) in [
            (true, "The other rules of the role apply."),
            (false, "No rule of the role applies"),
        ] {
            let refused = Vec::new();
            let note = RoleError::Refused { refused, others_apply }.notice().unwrap().note;
            assert!(
                note.contains(words) && note.contains("Change the role in the cloud"),
                "{note}"
            );
        }
    }
}
