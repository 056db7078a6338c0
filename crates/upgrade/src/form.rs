//! The form in which an upgrade is stored: that of the Containership cluster manager, in `spec` and `spec.status` of a
//! `ClusterUpgrade`.

use std::collections::BTreeMap;

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;
use tidewaiter_api::containership::{
    ClusterUpgrade, MaxUnavailable, OnDrainTimeout, Start, UpgradePolicy, UpgradeProgress, UpgradeStatus, UpgradeType,
};
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE};

use crate::observation::{CanaryPolicy, DrainPolicy, NodeState, Policy, PoolLimit, Progress, Spec, Upgrade};
use crate::orders::whole_seconds;
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::window::Windows;

/// The longest time for a node, as in the definition of `ClusterUpgrade` and in the cloud. The unit on the host ends a
/// script after it, too.
const MOST_SECONDS: i64 = 86_400;

/// Go's `time.UnixDate`, in UTC.
const UNIX_DATE: &str = "%a %b %e %H:%M:%S UTC %Y";

/// For how long the pods of a node may take to leave it, if the policy does not say it.
const DRAIN_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// For how long a node must be Ready before it is done, if the policy does not say it.
const MIN_READY: SignedDuration = SignedDuration::from_secs(30);

/// After how many failed nodes the upgrade ends, if the policy does not say it: a script that breaks a node does not
/// run on the next one.
const MAX_FAILURES: u32 = 1;

/// For how long the cluster must be healthy after the canaries, if the policy does not say it.
const SOAK: SignedDuration = SignedDuration::from_mins(10);

/// Reads an upgrade.
#[must_use]
pub fn read(object: &ClusterUpgrade) -> Upgrade {
    let meta = &object.metadata;
    let labels = meta.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(MANAGED_LABEL));
    let created = meta.creation_timestamp.as_ref();
    Upgrade {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        created: created.map(|created| created.0),
        managed: label.is_some_and(|value| value == MANAGED_VALUE),
        deleted: meta.deletion_timestamp.is_some(),
        spec: spec(object),
        progress: progress(object.spec.status.as_ref()),
    }
}

/// The id by which scripts are signed and named, and which a `NodeReport` names: that of the cloud, or the name of an
/// upgrade that a person created.
#[must_use]
pub fn id(upgrade: &ClusterUpgrade) -> &str {
    let name = upgrade.metadata.name.as_deref().unwrap_or_default();
    Some(upgrade.spec.id.as_str())
        .filter(|id| !id.is_empty())
        .unwrap_or(name)
}

/// Writes the progress. The old form has one start: that of the current node, which was started last. The starts of the
/// others are beside it.
#[must_use]
pub fn write(progress: &Progress) -> UpgradeProgress {
    let current = progress.current.as_ref();
    let since = current.and_then(|name| match progress.nodes.get(name) {
        Some(NodeState::InProgress { since }) => *since,
        _ => None,
    });
    let status = |state: &NodeState| match state {
        NodeState::InProgress { .. } => UpgradeStatus::InProgress,
        NodeState::Success => UpgradeStatus::Success,
        NodeState::Failed => UpgradeStatus::Failed,
    };
    let nodes = progress.nodes.iter();
    let others = progress.in_progress().filter(|(name, _)| Some(*name) != current);
    let starts = others.filter_map(|(name, since)| {
        let since = whole_seconds(since?);
        Some((name.to_string(), Start { since }))
    });
    UpgradeProgress {
        starts: starts.collect(),
        cluster_status: progress.cluster,
        node_statuses: nodes.map(|(name, state)| (name.to_string(), status(state))).collect(),
        current_node: current.map(NodeName::to_string).unwrap_or_default(),
        current_start_time: since.map(unix_date).unwrap_or_default(),
        cordons: progress
            .cordons
            .iter()
            .map(|(name, cordon)| (name.to_string(), *cordon))
            .collect(),
        verifying: stored_times(&progress.verifying),
        fallen_back: stored_times(&progress.fallen_back),
        postponed: stored_times(&progress.postponed),
        soaking_since: progress.soaking_since,
    }
}

fn stored_times(times: &BTreeMap<NodeName, Timestamp>) -> BTreeMap<String, Start> {
    let times = times.iter();
    times
        .map(|(name, since)| (name.to_string(), Start { since: *since }))
        .collect()
}

fn times(stored: &BTreeMap<String, Start>) -> BTreeMap<NodeName, Timestamp> {
    let stored = stored.iter();
    stored
        .filter_map(|(name, start)| Some((name.parse().ok()?, start.since)))
        .collect()
}

fn spec(object: &ClusterUpgrade) -> Result<Spec, Refusal> {
    let spec = &object.spec;
    if spec.type_ == UpgradeType::Etcd {
        return Err(Refusal::Etcd);
    }
    if !(1..=MOST_SECONDS).contains(&spec.node_timeout_seconds) {
        return Err(Refusal::Timeout(spec.node_timeout_seconds));
    }
    Ok(Spec {
        target: spec.target_version.parse().map_err(Refusal::Target)?,
        selector: Selector::new(&spec.label_selector)?,
        timeout: SignedDuration::from_secs(spec.node_timeout_seconds),
        policy: policy(spec.policy.as_ref().unwrap_or(&UpgradePolicy::default()))?,
    })
}

fn policy(policy: &UpgradePolicy) -> Result<Policy, Refusal> {
    let max_failures = policy.max_failures.unwrap_or(MAX_FAILURES);
    let seconds = |seconds: Option<u32>, default| seconds.map_or(default, |it| SignedDuration::from_secs(it.into()));
    Ok(Policy {
        paused: policy.paused,
        aborted: policy.aborted,
        max_failures: usize::try_from(max_failures).ok(),
        min_ready: seconds(policy.min_ready_seconds, MIN_READY),
        require_healthy: policy.require_healthy,
        windows: Windows::new(&policy.maintenance_windows)?,
        canary: policy
            .canary
            .and_then(|nodes| usize::try_from(nodes).ok())
            .map(|nodes| CanaryPolicy {
                nodes: nodes.max(1),
                soak: seconds(policy.soak_seconds, SOAK),
            }),
        drain: policy.drain.then(|| DrainPolicy {
            timeout: seconds(policy.drain_timeout_seconds, DRAIN_TIMEOUT),
            force: policy.on_drain_timeout == Some(OnDrainTimeout::Force),
        }),
        max_unavailable: policy.max_unavailable.as_ref().map(pool_limit).transpose()?,
    })
}

fn pool_limit(stored: &MaxUnavailable) -> Result<PoolLimit, Refusal> {
    match stored {
        MaxUnavailable::Number(nodes) => Ok(PoolLimit::Nodes(usize::try_from(*nodes).unwrap_or(usize::MAX))),
        MaxUnavailable::Percent(text) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
            let percent = percent.filter(|percent| (1..=100).contains(percent));
            let refused = || Refusal::MaxUnavailable(text.clone());
            percent.map(PoolLimit::Percent).ok_or_else(refused)
        }
    }
}

/// Reads the progress. The current node counts as in progress also where its own status is missing, and its start
/// counts for all nodes in progress without one of their own. A name that no Node can have is left out.
#[must_use]
pub fn progress(status: Option<&UpgradeProgress>) -> Progress {
    let Some(status) = status else {
        return Progress::default();
    };
    let current_since = parse_unix_date(&status.current_start_time);
    let cordons = status
        .cordons
        .iter()
        .filter_map(|(name, cordon)| Some((name.parse().ok()?, *cordon)));
    let mut progress = Progress {
        cluster: status.cluster_status,
        cordons: cordons.collect(),
        verifying: times(&status.verifying),
        fallen_back: times(&status.fallen_back),
        postponed: times(&status.postponed),
        soaking_since: status.soaking_since,
        ..Progress::default()
    };
    for (name, node) in &status.node_statuses {
        let Ok(parsed) = name.parse::<NodeName>() else {
            continue;
        };
        let state = match node {
            UpgradeStatus::NotStarted => continue,
            UpgradeStatus::InProgress => NodeState::InProgress {
                since: status.starts.get(name).map(|start| start.since).or(current_since),
            },
            UpgradeStatus::Success => NodeState::Success,
            UpgradeStatus::Failed => NodeState::Failed,
        };
        progress.nodes.insert(parsed, state);
    }
    if status.cluster_status == UpgradeStatus::InProgress
        && let Ok(current) = status.current_node.parse::<NodeName>()
    {
        let state = progress
            .nodes
            .entry(current.clone())
            .or_insert(NodeState::InProgress { since: current_since });
        progress.current = matches!(state, NodeState::InProgress { .. }).then_some(current);
    }
    progress
}

fn unix_date(time: Timestamp) -> String {
    time.strftime(UNIX_DATE).to_string()
}

fn parse_unix_date(text: &str) -> Option<Timestamp> {
    let time = strtime::parse(UNIX_DATE, text).ok()?.to_datetime().ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests;
