//! Builders for the tables.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE, ROLE_CONTROL_PLANE_LABEL};

use crate::drain::RemainingPod;
use crate::observation::{Health, HostReport, Node, NodeState, Observation, Policy, Progress, Spec, Upgrade};
use crate::orders::Order;
use crate::selector::Selector;
use crate::step::step;
use crate::version::Version;

pub(crate) const MINUTE: SignedDuration = SignedDuration::from_mins(1);

pub(crate) fn version(text: &str) -> Version {
    text.parse().unwrap()
}

pub(crate) fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

/// The time this many seconds after the beginning.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + seconds).unwrap()
}

/// A node that is managed and Ready. Its name begins with `cp` if it is of the control plane, and `!` says that it is
/// not Ready.
pub(crate) fn node(node: &str, kubelet: &str) -> Node {
    let ready = !node.ends_with('!');
    let node = node.trim_end_matches('!');
    let mut labels = vec![(MANAGED_LABEL.to_owned(), MANAGED_VALUE.to_owned())];
    if node.starts_with("cp") {
        labels.push((ROLE_CONTROL_PLANE_LABEL.to_owned(), String::new()));
    }
    Node {
        name: name(node),
        labels: labels.into_iter().collect(),
        kubelet: kubelet.parse().ok(),
        components: Vec::new(),
        ready,
        ready_changed: None,
        created: None,
        renewed: None,
        host: HostReport::Silent,
        parallel: false,
        host_problem: None,
        cordoned: false,
        cordoned_by: None,
    }
}

/// `"cp=v1.35.4 w1!=v1.36.3"`
pub(crate) fn nodes(text: &str) -> Vec<Node> {
    let nodes = text.split_whitespace().map(|item| item.split_once('=').unwrap());
    nodes.map(|(name, version)| node(name, version)).collect()
}

static NOTHING_LEFT: BTreeMap<NodeName, Vec<RemainingPod>> = BTreeMap::new();

const HEALTHY: Health = Health {
    unhealthy: None,
    etcd_failed: false,
    is_unknown: false,
};

/// An upgrade to v1.36.3, with ten minutes for each node, that was created at the time 0.
pub(crate) fn upgrade(name: &str) -> Upgrade {
    Upgrade {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        generation: 5,
        created: Some(at(0)),
        managed: true,
        deleted: false,
        spec: Ok(Spec {
            target: version("v1.36.3"),
            selector: Selector::default(),
            timeout: MINUTE * 10,
            policy: Policy::default(),
        }),
        progress: Progress::default(),
    }
}

/// The upgrade in progress, with these nodes: `"cp=Success w1=InProgress"`. Those in progress were started at the time
/// 0.
pub(crate) fn in_progress(name_of_upgrade: &str, states: &str) -> Upgrade {
    let mut upgrade = upgrade(name_of_upgrade);
    upgrade.progress.cluster = tidewaiter_api::containership::UpgradeStatus::InProgress;
    for item in states.split_whitespace() {
        let (node, state) = item.split_once('=').unwrap();
        let state = match state {
            "Success" => NodeState::Success,
            "Failed" => NodeState::Failed,
            _ => NodeState::InProgress { since: Some(at(0)) },
        };
        upgrade.progress.nodes.insert(name(node), state);
    }
    let current = upgrade.progress.in_progress().map(|(name, _)| name.clone()).next();
    upgrade.progress.current = current;
    upgrade
}

pub(crate) fn observation<'a>(
    upgrade: &'a Upgrade,
    upgrades: &'a [Upgrade],
    nodes: &'a [Node],
    api_server: &'a Version,
    seconds: i64,
) -> Observation<'a> {
    Observation {
        upgrade,
        upgrades,
        nodes,
        api_server,
        health: &HEALTHY,
        left: &NOTHING_LEFT,
        now: at(seconds),
    }
}

/// The orders of one step, in short, and what it waits for.
pub(crate) fn says(seen: &Observation<'_>) -> String {
    let step = step(seen);
    let orders = step.orders.iter().map(|order| match order {
        Order::Begin => "begin".to_owned(),
        Order::Withdraw => "withdraw".to_owned(),
        Order::Cordon { node, before } => format!("cordon {node}{}", if *before { " (it was before)" } else { "" }),
        Order::Release(node) => format!("release {node}"),
        Order::Soak { healthy } => format!("soak {healthy}"),
        Order::Start(node) => format!("start {node}"),
        Order::Postpone { node, to } => format!("postpone {node} to {}", to.duration_since(at(0)).as_secs()),
        Order::Verify { node, holds } => format!("verify {node} {holds}"),
        Order::FallBack { node, holds } => format!("fall back {node} {holds}"),
        Order::Succeed(node) => format!("succeed {node}"),
        Order::Fail(node, failure) => format!("fail {node} ({failure})"),
        Order::Finish(ending) => format!("finish {:?} ({ending})", ending.status()),
    });
    let wait = step.wait.map(|wait| format!("wait: {wait}"));
    orders.chain(wait).collect::<Vec<_>>().join("; ")
}
