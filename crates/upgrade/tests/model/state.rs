//! The state of the model: the objects in the API server, the hosts, and the writes that are on their way. Small,
//! because there are millions.

/// The number of nodes. The first is the control plane.
pub const NODES: usize = 3;

/// The number of upgrades, and of coordinators.
pub const PAIR: usize = 2;

/// The state of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cluster {
    NotStarted,
    InProgress,
    Success,
    Failed,
}

/// The state of a node in an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    NotStarted,
    /// For so many ticks, as the API server says: less than zero while its start is in the future.
    InProgress(i8),
    Success,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    pub cluster: Cluster,
    pub nodes: [NodeState; NODES],
    pub current: Option<u8>,
    /// For how many ticks each node has had everything but the minimum time, or has fallen back.
    pub verifying: [Option<i8>; NODES],
    pub fallen_back: [Option<i8>; NODES],
}

/// A `ClusterUpgrade` in the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Upgrade {
    pub exists: bool,
    pub progress: Progress,
}

/// A write of a coordinator that has not arrived. It is conditional on the upgrade being as it was observed, so it is
/// gone as soon as another write to the upgrade arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub upgrade: u8,
    pub progress: Progress,
}

/// An order that an agent may see late, or again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OldOrder {
    pub age: i8,
    /// True if the upgrade was written since.
    pub superseded: bool,
    /// True if the agent has seen that, and so a newer generation.
    pub outdated: bool,
}

/// A script that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Script {
    pub upgrade: u8,
    /// Ticks until the host stops it.
    pub left: i8,
}

/// The last report of the host on an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// Nothing yet: no script was offered, it runs, or it is lost.
    Nothing,
    Succeeded,
    /// It failed, was stopped, interrupted, or cannot run again.
    Failed,
}

/// A node and its host.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// An index into the versions of the model.
    pub version: u8,
    pub ready: bool,
    /// True if the kubelet lives. The API server shows one that has died as Ready for [`GRACE`](crate::world::GRACE)
    /// ticks.
    pub lives: bool,
    /// For how many ticks it has not renewed the Lease of its Node.
    pub silent: i8,
    /// For how many ticks `ready` has been as it is, and the kubelet has lived and been Ready at the version.
    pub unchanged: i8,
    pub steady: i8,
    /// For good: nothing happens on it any more.
    pub dead: bool,
    /// The upgrade whose run is recorded and has not begun.
    pub armed: Option<u8>,
    pub script: Option<Script>,
    /// By upgrade: whether the ledger of the agent says that the script was begun.
    pub begun: [bool; PAIR],
    /// By upgrade: whether the script was begun in truth.
    pub ran: [bool; PAIR],
    /// By upgrade: the last word of the host, and whether the API server has it.
    pub said: [Said; PAIR],
    pub reported: [bool; PAIR],
    /// True if its Node has registered again since the node was started, and has no report since.
    pub registered: bool,
    pub silenced: bool,
    /// By upgrade: the last order.
    pub orders: [Option<OldOrder>; PAIR],
}

/// Rules that were broken when a script began, or ended.
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken {
    pub not_current: bool,
    pub twice: bool,
    pub old_generation: bool,
    pub down: bool,
    pub ahead: bool,
    /// A node was counted as done before its script had succeeded.
    pub early: bool,
    /// A node was counted as done that was not Ready for the minimum time with a kubelet that lived.
    pub unsteady: bool,
    /// A node was started, or the upgrade was over well, although one that was done had fallen back.
    pub fallen: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// True if the second upgrade sorts before the first one.
    pub second_is_older: bool,
    pub upgrades: [Upgrade; PAIR],
    pub hosts: [Host; NODES],
    pub writes: [Option<Write>; PAIR],
    pub faults: u8,
    pub broken: Broken,
}

impl State {
    pub fn new(second_is_older: bool) -> Self {
        let progress = Progress {
            cluster: Cluster::NotStarted,
            nodes: [NodeState::NotStarted; NODES],
            current: None,
            verifying: [None; NODES],
            fallen_back: [None; NODES],
        };
        let upgrade = |exists| Upgrade { exists, progress };
        let host = Host {
            version: 0,
            ready: true,
            lives: true,
            silent: 0,
            unchanged: 0,
            steady: 0,
            dead: false,
            armed: None,
            script: None,
            begun: [false; PAIR],
            ran: [false; PAIR],
            said: [Said::Nothing; PAIR],
            reported: [false; PAIR],
            registered: false,
            silenced: false,
            orders: [None; PAIR],
        };
        Self {
            second_is_older,
            upgrades: [upgrade(true), upgrade(false)],
            hosts: [host; NODES],
            writes: [None; PAIR],
            faults: 0,
            broken: Broken::default(),
        }
    }

    /// Forgets what nothing reads any more: the nodes of an upgrade that is over, except where an old order of it may
    /// still be seen, and everything about a broken node but its version.
    pub fn forget(&mut self) {
        for (index, upgrade) in self.upgrades.iter_mut().enumerate() {
            if !matches!(upgrade.progress.cluster, Cluster::Success | Cluster::Failed) {
                continue;
            }
            upgrade.progress.nodes = [NodeState::NotStarted; NODES];
            upgrade.progress.verifying = [None; NODES];
            upgrade.progress.fallen_back = [None; NODES];
            for host in &mut self.hosts {
                let is_idle = host.armed.is_none() && host.script.is_none();
                if is_idle && host.orders[index].is_none() {
                    (host.begun[index], host.ran[index]) = (false, false);
                    (host.said[index], host.reported[index]) = (Said::Nothing, false);
                }
            }
        }
        for host in self.hosts.iter_mut().filter(|host| host.dead) {
            (host.begun, host.ran, host.orders) = ([false; PAIR], [false; PAIR], [None; PAIR]);
        }
    }

    /// Returns true if every upgrade is over.
    pub fn is_over(&self) -> bool {
        let mut existing = self.upgrades.iter().filter(|upgrade| upgrade.exists);
        existing.all(|upgrade| matches!(upgrade.progress.cluster, Cluster::Success | Cluster::Failed))
    }

    /// The upgrade in which the node is in progress, in truth.
    pub fn current(&self, node: usize) -> impl Iterator<Item = usize> {
        (0..PAIR).filter(move |upgrade| {
            let progress = &self.upgrades[*upgrade].progress;
            progress.cluster == Cluster::InProgress && matches!(progress.nodes[node], NodeState::InProgress(_))
        })
    }

    /// Returns true if the node is being upgraded: the API server says so, or a script runs on it.
    pub fn is_busy(&self, node: usize) -> bool {
        self.hosts[node].script.is_some() || self.current(node).next().is_some()
    }
}
