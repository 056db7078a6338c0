//! Translates between the state of the model and what the code observes. The code decides; nothing is decided here.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;
use tidewaiter_api::containership::{NodeSelector, SelectorOperator, UpgradeStatus};
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE, ROLE_CONTROL_PLANE_LABEL};
use tidewaiter_upgrade::agent::{CLOCK_ERROR, Host as AgentHost, Ledger, Run};
use tidewaiter_upgrade::{
    Health, HostReport, Node, Observation, Policy, PoolLimit, Selector, Spec, Upgrade, Version, node_upgrade,
    observation,
};

use crate::state::{Cluster, Host, NODES, NodeState, OldOrder, PAIR, Progress, Said, State};

/// The length of a tick: the clock error that the agents allow for.
const TICK: SignedDuration = CLOCK_ERROR;

/// After so many ticks a node has failed.
pub const TIMEOUT: i8 = 2;

/// A node is done when it has been Ready for so many ticks, and a kubelet that has died is Ready for so many ticks.
pub const MIN_READY: i8 = 1;
pub const GRACE: i8 = 2;

/// The versions: at the beginning, the target of the second upgrade, and that of the first one.
const VERSIONS: [&str; 3] = ["v1.35.4", "v1.35.9", "v1.36.3"];

/// The indices of the targets.
pub const TARGETS: [u8; PAIR] = [2, 1];

/// The minor versions.
pub const MINORS: [u8; 3] = [35, 35, 36];

/// The ticks by which the clock of each coordinator, and of each agent, is ahead. Any two differ by one at most.
const COORDINATOR_CLOCKS: [i8; PAIR] = [0, 1];
const AGENT_CLOCKS: [i8; NODES] = [0, 1, 0];

/// The generation of what is newest, and of an order that was superseded.
pub const NEWEST: i64 = 2;
pub const SUPERSEDED: i64 = 1;

/// The label of the node that the second upgrade selects: the first worker. The first upgrade selects all nodes.
const SECOND_LABEL: &str = "second";

/// The constants of a run.
pub struct World {
    pub names: [NodeName; NODES],
    versions: [Version; 3],
    nodes: [Node; NODES],
    upgrades: [Upgrade; PAIR],
    reports: bool,
    min_ready: bool,
}

impl World {
    /// With so many workers at once, and agents that report what became of the script, or do not. With more than one,
    /// their agents follow the status of their own node. With a minimum time that nodes are Ready, or without.
    pub fn new(max_unavailable: usize, reports: bool, min_ready: bool) -> Self {
        let names = ["cp", "w1", "w2"].map(|name| name.parse().unwrap());
        let versions = VERSIONS.map(|version| version.parse().unwrap());
        let node = |index: usize| {
            let mut labels = vec![(MANAGED_LABEL.to_owned(), MANAGED_VALUE.to_owned())];
            if index == 1 {
                labels.push((SECOND_LABEL.to_owned(), String::new()));
            }
            if index == 0 {
                labels.push((ROLE_CONTROL_PLANE_LABEL.to_owned(), String::new()));
            }
            let name: &NodeName = &names[index];
            Node {
                name: name.clone(),
                labels: labels.into_iter().collect(),
                kubelet: None,
                components: Vec::new(),
                ready: true,
                ready_changed: None,
                created: None,
                renewed: None,
                host: HostReport::Silent,
                parallel: max_unavailable > 1,
                host_problem: None,
                cordoned: false,
                cordoned_by: None,
            }
        };
        let upgrade = |index: usize| Upgrade {
            name: format!("upgrade-{index}"),
            uid: format!("{index}"),
            generation: NEWEST,
            created: None,
            managed: true,
            deleted: false,
            spec: Ok(Spec {
                target: Version::clone(&versions[usize::from(TARGETS[index])]),
                selector: if index == 0 {
                    Selector::default()
                } else {
                    second_selector()
                },
                timeout: TICK * i32::from(TIMEOUT),
                policy: Policy {
                    max_unavailable: (max_unavailable > 1).then_some(PoolLimit::Nodes(max_unavailable)),
                    min_ready: TICK * i32::from(if min_ready { MIN_READY } else { 0 }),
                    ..Policy::default()
                },
            }),
            progress: observation::Progress::default(),
        };
        Self {
            nodes: [node(0), node(1), node(2)],
            upgrades: [upgrade(0), upgrade(1)],
            reports,
            min_ready,
            names,
            versions,
        }
    }

    /// The decision of the coordinator about an upgrade: the progress after its orders, if there are any.
    pub fn step(&self, state: &State, coordinator: usize, upgrade: usize) -> Option<Progress> {
        let upgrades: Vec<Upgrade> = (0..PAIR)
            .filter(|it| state.upgrades[*it].exists)
            .map(|it| self.upgrade(state, it))
            .collect();
        let nodes: Vec<Node> = (0..NODES).map(|it| self.node(&state.hosts[it], it, upgrade)).collect();
        let clock = COORDINATOR_CLOCKS[coordinator];
        let seen = Observation {
            upgrade: upgrades.iter().find(|it| it.uid == self.upgrades[upgrade].uid)?,
            upgrades: &upgrades,
            nodes: &nodes,
            api_server: &self.versions[usize::from(state.hosts[0].version)],
            health: &Health::default(),
            left: &BTreeMap::new(),
            now: at(clock),
        };
        let step = tidewaiter_upgrade::step(&seen);
        let mut progress = seen.upgrade.progress.clone();
        for order in &step.orders {
            progress.apply(order, seen.now);
        }
        (!step.orders.is_empty()).then(|| self.stored(&progress))
    }

    /// The newest view of a node's agent: the upgrades as they are.
    pub fn newest(&self, state: &State) -> Vec<Upgrade> {
        let existing = (0..PAIR).filter(|it| state.upgrades[*it].exists);
        existing.map(|it| self.upgrade(state, it)).collect()
    }

    /// The view of a node's agent: its order, if it has a turn.
    pub fn order(&self, state: &State, node: usize) -> Vec<Upgrade> {
        let newest = self.newest(state);
        let mut turns = node_upgrade::turns(&newest);
        let turn = turns.find(|(name, _)| **name == self.names[node]);
        turn.map(|(_, upgrade)| upgrade.clone()).into_iter().collect()
    }

    /// The view of a node's agent when this order was new.
    pub fn old(&self, node: usize, upgrade: usize, order: OldOrder) -> Vec<Upgrade> {
        let mut old = self.upgrades[upgrade].clone();
        let since = Some(at(-order.age));
        old.generation = if order.superseded { SUPERSEDED } else { NEWEST };
        old.progress.cluster = UpgradeStatus::InProgress;
        old.progress
            .nodes
            .insert(self.names[node].clone(), observation::NodeState::InProgress { since });
        old.progress.current = Some(self.names[node].clone());
        vec![old]
    }

    /// Calls the agent's decision with what its host is and remembers.
    pub fn on_host<T>(&self, host: &Host, node: usize, decide: impl FnOnce(AgentHost<'_>) -> T) -> T {
        let uid = |upgrade: usize| self.upgrades[upgrade].uid.clone();
        let seen = |order: Option<OldOrder>| {
            if order.is_some_and(|order| order.outdated) {
                NEWEST
            } else {
                0
            }
        };
        let ledger = Ledger {
            seen: (0..PAIR).map(|it| (uid(it), seen(host.orders[it]))).collect(),
            begun: (0..PAIR).filter(|it| host.begun[*it]).map(uid).collect(),
        };
        decide(AgentHost {
            node: &self.names[node],
            version: Some(&self.versions[usize::from(host.version)]),
            ledger: &ledger,
            now: at(AGENT_CLOCKS[node]),
        })
    }

    /// The uid of an upgrade.
    pub fn uid(&self, upgrade: u8) -> &str {
        &self.upgrades[usize::from(upgrade)].uid
    }

    /// The index of an upgrade.
    pub fn index(upgrade: &Upgrade) -> usize {
        upgrade.uid.parse().unwrap()
    }

    /// The upgrade of a run.
    pub fn upgrade_of(run: &Run) -> u8 {
        run.upgrade.parse().unwrap()
    }

    /// The number of ticks of a run.
    pub fn ticks(run: &Run, node: usize) -> i8 {
        let left = run.until.duration_since(at(AGENT_CLOCKS[node]));
        i8::try_from(left.as_secs().div_euclid(TICK.as_secs())).unwrap()
    }

    fn upgrade(&self, state: &State, index: usize) -> Upgrade {
        let stored = &state.upgrades[index];
        let mut upgrade = self.upgrades[index].clone();
        upgrade.created = Some(at(i8::from((index == 1) != state.second_is_older)));
        let progress = &stored.progress;
        upgrade.progress.cluster = match progress.cluster {
            Cluster::NotStarted => UpgradeStatus::NotStarted,
            Cluster::InProgress => UpgradeStatus::InProgress,
            Cluster::Success => UpgradeStatus::Success,
            Cluster::Failed => UpgradeStatus::Failed,
        };
        upgrade.progress.current = progress.current.map(|it| self.names[usize::from(it)].clone());
        for (name, node) in self.names.iter().zip(&progress.nodes) {
            let node = match node {
                NodeState::NotStarted => continue,
                NodeState::InProgress(age) => observation::NodeState::InProgress { since: Some(at(-age)) },
                NodeState::Success => observation::NodeState::Success,
                NodeState::Failed => observation::NodeState::Failed,
            };
            upgrade.progress.nodes.insert(name.clone(), node);
        }
        let times = |ages: &[Option<i8>; NODES]| {
            let ages = self.names.iter().zip(ages);
            ages.filter_map(|(name, age)| Some((name.clone(), at(-(*age)?))))
                .collect()
        };
        upgrade.progress.verifying = times(&progress.verifying);
        upgrade.progress.fallen_back = times(&progress.fallen_back);
        upgrade
    }

    /// The node as the coordinator sees it, when it decides about this upgrade.
    fn node(&self, host: &Host, index: usize, upgrade: usize) -> Node {
        let mut node = self.nodes[index].clone();
        node.host = match host.said[upgrade] {
            _ if !self.reports || host.silenced => HostReport::Silent,
            _ if !host.reported[upgrade] => HostReport::Pending,
            Said::Nothing => HostReport::Pending,
            Said::Succeeded => HostReport::Succeeded,
            Said::Failed => HostReport::Failed(String::new()),
        };
        node.kubelet = Some(self.versions[usize::from(host.version)].clone());
        node.ready = host.ready;
        // Before every start, or after it.
        node.created = Some(at(if host.registered { TIMEOUT } else { -2 * TIMEOUT }));
        if self.min_ready {
            node.ready_changed = Some(at(-host.unchanged));
            node.renewed = Some(at(-host.silent));
        }
        node
    }

    fn stored(&self, progress: &observation::Progress) -> Progress {
        let node = |name: &NodeName| match progress.nodes.get(name) {
            None => NodeState::NotStarted,
            Some(observation::NodeState::InProgress { since }) => NodeState::InProgress(age(since.unwrap())),
            Some(observation::NodeState::Success) => NodeState::Success,
            Some(observation::NodeState::Failed) => NodeState::Failed,
        };
        let ages = |times: &BTreeMap<NodeName, Timestamp>| {
            [0, 1, 2].map(|node: usize| times.get(&self.names[node]).map(|since| age(*since)))
        };
        let position = |current: &NodeName| self.names.iter().position(|name| name == current);
        Progress {
            cluster: match progress.cluster {
                UpgradeStatus::NotStarted => Cluster::NotStarted,
                UpgradeStatus::InProgress => Cluster::InProgress,
                UpgradeStatus::Success => Cluster::Success,
                UpgradeStatus::Failed => Cluster::Failed,
            },
            nodes: [node(&self.names[0]), node(&self.names[1]), node(&self.names[2])],
            current: progress
                .current
                .as_ref()
                .and_then(position)
                .and_then(|it| u8::try_from(it).ok()),
            verifying: ages(&progress.verifying),
            fallen_back: ages(&progress.fallen_back),
        }
    }
}

fn second_selector() -> Selector {
    let requirement = NodeSelector {
        label: SECOND_LABEL.parse().unwrap(),
        operator: SelectorOperator::Exists,
        value: Vec::new(),
    };
    Selector::new(&[requirement]).unwrap()
}

/// The time so many ticks after the true one, which is always the same.
fn at(ticks: i8) -> Timestamp {
    Timestamp::UNIX_EPOCH + TICK * i32::from(ticks)
}

fn age(since: Timestamp) -> i8 {
    let before = Timestamp::UNIX_EPOCH.duration_since(since);
    i8::try_from(before.as_secs() / TICK.as_secs()).unwrap()
}
