//! The conditions and the Events of an upgrade. Pure.

use jiff::Timestamp;
use tidewaiter_api::containership::cluster_upgrade::{PROGRESSING, SUCCEEDED};
use tidewaiter_api::containership::{ClusterUpgrade, ClusterUpgradeStatus, UpgradeStatus};
use tidewaiter_api::names::UPGRADE_FINALIZER;
use tidewaiter_api::{Condition, ConditionStatus, NodeName};
use tidewaiter_kit::{Finalizer, Notice};
use tidewaiter_upgrade::drain::{DrainBlocker, RemainingPod};
use tidewaiter_upgrade::{Counts, Ending, NodeState, Observation, Order, Progress, Step, Upgrade};

use crate::meta::unversioned;

/// The maximum number of pods that a forecast names: an Event has room for 1,024 characters.
const FORECAST: usize = 4;

/// The reason of the condition `Progressing` of an upgrade that is over.
const FINISHED: &str = "Finished";

/// The message of the condition `Succeeded` until the upgrade is over. What follows it, after a semicolon, is the first
/// node that failed: the end of the upgrade may be many steps later, and nothing else records why a node failed.
const NOT_OVER: &str = "the upgrade is not over";

/// The conditions after a step. The upgrade of `seen` has the progress that the step made.
pub(super) fn status(seen: &Observation<'_>, step: &Step, before: &ClusterUpgradeStatus) -> ClusterUpgradeStatus {
    let known = before.conditions.iter().find(|condition| condition.type_ == SUCCEEDED);
    let is_over = matches!(
        seen.upgrade.progress.cluster,
        UpgradeStatus::Success | UpgradeStatus::Failed
    );
    let spec = seen.upgrade.spec.as_ref();
    let counts = spec.map(|spec| Counts::of(seen, spec)).unwrap_or_default();
    let ending = step.orders.iter().find_map(ending);
    let numbers = match known {
        // It ended before anybody counted, or the numbers are those of its end.
        None if is_over && ending.is_none() => [None; 3],
        Some(known) if is_over && known.status != ConditionStatus::Unknown => {
            [before.nodes, before.done, before.failed]
        }
        // Without a spec nobody knows which nodes it has.
        _ if spec.is_err() => [None; 3],
        _ => [counts.nodes, counts.done, counts.failed].map(|count| Some(number(count))),
    };
    let failure = first_failure(&seen.upgrade.progress, step, known);
    let (progressing, succeeded) = if is_over {
        let kept = known.filter(|condition| ending.is_none() && condition.status != ConditionStatus::Unknown);
        let succeeded = kept.map_or_else(|| over(seen.upgrade, ending, failure.as_deref()), Word::of);
        let mut conditions = before.conditions.iter().filter(|_| kept.is_some());
        let said = conditions.find(|condition| condition.type_ == PROGRESSING && condition.reason == FINISHED);
        let finished = said.map_or_else(|| finished(&seen.upgrade.progress, &succeeded, failure), Word::of);
        (finished, succeeded)
    } else {
        let progressing = progressing(seen, step, counts, failure.as_deref());
        let message = failure.map_or_else(|| NOT_OVER.to_owned(), |failure| format!("{NOT_OVER}; {failure}"));
        (progressing, Word::new(ConditionStatus::Unknown, "NotFinished", message))
    };
    let conditions = [(PROGRESSING, progressing), (SUCCEEDED, succeeded)];
    let conditions = conditions.map(|(type_, word)| word.condition(type_, before, seen.upgrade.generation, seen.now));
    let [nodes, done, failed] = numbers;
    ClusterUpgradeStatus {
        nodes,
        done,
        failed,
        conditions: conditions.into(),
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns true if the upgrade is over, and its conditions say so.
pub(super) fn is_reported(object: &ClusterUpgrade) -> bool {
    let progress = object.spec.status.as_ref();
    let is_over = progress
        .is_some_and(|progress| matches!(progress.cluster_status, UpgradeStatus::Success | UpgradeStatus::Failed));
    let is_free = !Finalizer(UPGRADE_FINALIZER).is_on(&object.metadata);
    is_over && is_free && object.status.as_ref().is_some_and(is_final)
}

/// Returns true if two states of an upgrade differ in their conditions alone, which decide nothing. A pass writes them,
/// and may name other pods each time: if that started another pass, the passes would not end.
pub(super) fn differs_in_conditions(before: &ClusterUpgrade, after: &ClusterUpgrade) -> bool {
    // Another spec is another generation.
    let is_same = unversioned(&before.metadata) == unversioned(&after.metadata);
    is_same && is_reported(before) == is_reported(after)
}

/// Returns true if the conditions say that the upgrade is over.
fn is_final(status: &ClusterUpgradeStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == SUCCEEDED && condition.status != ConditionStatus::Unknown)
}

/// The first node that failed, and why, if it is known: from the condition, or else from this step. A process that was
/// killed before it wrote the conditions has not recorded it.
fn first_failure(progress: &Progress, step: &Step, known: Option<&Condition>) -> Option<String> {
    if progress.count(NodeState::Failed) == 0 {
        return None;
    }
    let recorded = known.and_then(|condition| condition.message.strip_prefix(NOT_OVER)?.strip_prefix("; "));
    let failed = step.orders.iter().find_map(|order| match order {
        Order::Fail(node, failure) => Some(node_failed(node, Some(&failure.to_string()))),
        _ => None,
    });
    recorded.map(str::to_owned).or(failed)
}

fn node_failed(node: &NodeName, why: Option<&str>) -> String {
    let why = why.map_or_else(String::new, |why| format!(": {}", first_sentence(why)));
    format!("node {node} failed{why}")
}

/// The condition `Progressing` of an upgrade that is over. `kubectl get -o wide` shows its message, so it says in one
/// sentence why the upgrade failed.
fn finished(progress: &Progress, succeeded: &Word, failure: Option<String>) -> Word {
    let mut failed = progress.nodes.iter().filter(|(_, state)| **state == NodeState::Failed);
    let first = failed.next().map(|(node, _)| node_failed(node, None));
    let message = match (failure.or(first), failed.count()) {
        _ if succeeded.status == ConditionStatus::True => "the upgrade is over".to_owned(),
        (Some(failure), 0) if is_of_nodes(succeeded) => failure,
        (Some(failure), 1) if is_of_nodes(succeeded) => format!("{failure}; another node failed, too"),
        (Some(failure), more) if is_of_nodes(succeeded) => format!("{failure}; {more} other nodes failed, too"),
        _ => first_sentence(&succeeded.message).to_owned(),
    };
    Word::new(ConditionStatus::False, FINISHED, message)
}

/// Returns true if nodes that failed are why the upgrade ended.
fn is_of_nodes(succeeded: &Word) -> bool {
    let endings = [Ending::Failures(1), Ending::TooManyFailures(1), Ending::CanaryFailed];
    endings.iter().any(|ending| ending.reason() == succeeded.reason)
}

/// Without the remedy that follows in another sentence.
fn first_sentence(text: &str) -> &str {
    let first = text.split_once(". ").map_or(text, |(first, _)| first);
    first.trim_end_matches('.')
}

fn ending(order: &Order) -> Option<&Ending> {
    match order {
        Order::Finish(ending) => Some(ending),
        _ => None,
    }
}

/// The end of the upgrade, and the node that failed first. The node comes first where it is the reason: after a node of
/// the control plane has failed, its workers are refused. When the process was killed before it could say it, the
/// progress has to do.
fn over(upgrade: &Upgrade, ending: Option<&Ending>, failure: Option<&str>) -> Word {
    let failed = upgrade.progress.count(NodeState::Failed);
    let guess = match upgrade.progress.cluster {
        UpgradeStatus::Success => Some(Ending::Success),
        _ if failed > 0 => Some(Ending::Failures(failed)),
        _ => None,
    };
    let Some(ending) = ending.or(guess.as_ref()) else {
        let message = "the upgrade was refused or aborted; its Events of that time say why".to_owned();
        return Word::new(ConditionStatus::False, "Refused", message);
    };
    let status = if *ending == Ending::Success {
        ConditionStatus::True
    } else {
        ConditionStatus::False
    };
    let message = match (failure, ending) {
        (None, _) | (_, Ending::Success) => ending.to_string(),
        (Some(failure), Ending::Aborted) => format!("{ending}; {failure}"),
        (Some(failure), _) => format!("{failure}; {ending}"),
    };
    Word::new(status, ending.reason(), message)
}

fn progressing(seen: &Observation<'_>, step: &Step, counts: Counts, failure: Option<&str>) -> Word {
    let is_in_progress = seen.upgrade.is_in_progress();
    let status = if is_in_progress {
        ConditionStatus::True
    } else {
        ConditionStatus::False
    };
    let (reason, message) = match &step.wait {
        Some(wait) => (wait.reason(), wait.to_string()),
        None if is_in_progress => ("Beginning", "the first node is started next".to_owned()),
        None => ("Withdrawn", "another upgrade goes first".to_owned()),
    };
    let message = if is_in_progress {
        let failure = failure.map(|failure| format!("; {failure}"));
        format!("{message}; {counts}{}", failure.unwrap_or_default())
    } else {
        message
    };
    Word::new(status, reason, message)
}

/// The Events of a step, on the upgrade.
pub(super) fn notices(upgrade: &Upgrade, step: &Step) -> Vec<Notice> {
    let target = upgrade
        .spec
        .as_ref()
        .map(|spec| spec.target.to_string())
        .unwrap_or_default();
    let refused = step
        .wait
        .iter()
        .filter(|_| !upgrade.managed && !upgrade.is_in_progress());
    let refused =
        refused.map(|wait| Notice::warning("NotPermitted", "Upgrade", format!("{}.", sentence(&wait.to_string()))));
    step.orders
        .iter()
        .filter_map(|order| notice(order, &target))
        .chain(refused)
        .collect()
}

/// The reasons that the Go coordinator used, where it had one.
fn notice(order: &Order, target: &str) -> Option<Notice> {
    Some(match order {
        Order::Begin => Notice::normal("Accepted", "Upgrade", format!("The upgrade to {target} begins.")),
        Order::Withdraw => Notice::normal("Withdrawn", "Upgrade", "Another upgrade goes first; this one waits."),
        Order::Cordon { node, before: false } => Notice::normal(
            "NodeDrainStarted",
            "Upgrade",
            format!("Node {node} is cordoned and drained."),
        ),
        Order::Cordon { node, before: true } => {
            let note = format!("Node {node} is drained. It was cordoned before, and stays cordoned.");
            Notice::normal("NodeDrainStarted", "Upgrade", note)
        }
        Order::Soak { healthy: true } => Notice::normal(
            "SoakStarted",
            "Upgrade",
            "The canaries are done. The others follow if the cluster stays healthy.",
        ),
        Order::Soak { healthy: false } => Notice::warning(
            "SoakInterrupted",
            "Upgrade",
            "The cluster is not healthy after the canaries. The time begins again.",
        ),
        Order::Release(node) => Notice::normal(
            "NodeReleased",
            "Upgrade",
            format!("Node {node} is not kept out of service any more."),
        ),
        Order::Start(node) => Notice::normal(
            "NodeUpgradeStarted",
            "Upgrade",
            format!("Node {node} is to be upgraded to {target}."),
        ),
        Order::Postpone { node, to } => Notice::normal(
            "NodeUpgradePostponed",
            "Upgrade",
            format!(
                "Node {node} waits: the signature of its script counts from {to} on, and nodeTimeoutSeconds begin then."
            ),
        ),
        // The condition says it, and with thousands of nodes it would be thousands of Events.
        Order::Verify { .. } => return None,
        Order::FallBack { node, holds: true } => Notice::warning(
            "NodeFellBack",
            "Upgrade",
            format!(
                "Node {node} was done, and is not at {target} or not Ready any more. Nothing is started until it is."
            ),
        ),
        Order::FallBack { node, holds: false } => Notice::normal(
            "NodeRecovered",
            "Upgrade",
            format!("Node {node} is done as before, or its Node is gone."),
        ),
        Order::Succeed(node) => Notice::normal(
            "NodeUpgradeSuccess",
            "Upgrade",
            format!("Node {node} is at {target}, and Ready."),
        ),
        Order::Fail(node, failure) => Notice::warning(
            "NodeUpgradeFailure",
            "Upgrade",
            format!("Node {node} failed: {failure}."),
        ),
        Order::Finish(ending) => {
            let note = format!("The upgrade is over: {ending}");
            let note = format!("{}.", note.trim_end_matches('.'));
            if *ending == Ending::Success {
                Notice::normal("ClusterUpgradeComplete", "Upgrade", note)
            } else {
                Notice::warning("ClusterUpgradeComplete", "Upgrade", note)
            }
        }
    })
}

/// The pods that will prevent the drain of each node; None if there are none.
pub(super) fn forecast<'a>(nodes: impl Iterator<Item = (&'a NodeName, &'a Vec<RemainingPod>)>) -> Option<String> {
    let kept = nodes.flat_map(|(node, left)| {
        let kept = left.iter().filter(|left| left.blocker != DrainBlocker::Leaving);
        kept.map(move |left| format!("node {node}: {left}"))
    });
    some_of("Pods would not leave their nodes now", &kept.collect::<Vec<_>>())
}

/// The hosts that would refuse the script; None if there are none.
pub(super) fn unprepared(nodes: &[String]) -> Option<String> {
    some_of(
        "These nodes would not run the script, and fail when it is their turn",
        nodes,
    )
}

/// The first of what is wrong, and how many more there are.
fn some_of(what: &str, all: &[String]) -> Option<String> {
    let more = all.len().saturating_sub(FORECAST);
    let named = all.get(..FORECAST).unwrap_or(all).join("; ");
    match (all.len(), more) {
        (0, _) => None,
        (_, 0) => Some(format!("{what}: {named}.")),
        _ => Some(format!(
            "{what}: {named}; and {more} more. `tidewaiter upgrade plan` names them all."
        )),
    }
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

struct Word {
    status: ConditionStatus,
    reason: String,
    message: String,
}

impl Word {
    fn new(status: ConditionStatus, reason: &str, message: String) -> Self {
        let reason = reason.to_owned();
        Self {
            status,
            reason,
            message,
        }
    }

    fn of(condition: &Condition) -> Self {
        Self::new(condition.status, &condition.reason, condition.message.clone())
    }

    fn condition(self, type_: &str, before: &ClusterUpgradeStatus, generation: i64, now: Timestamp) -> Condition {
        let condition = Condition::new(type_, self.status, &self.reason, &self.message, &before.conditions, now);
        condition.observing(Some(generation))
    }
}

#[cfg(test)]
mod tests;
