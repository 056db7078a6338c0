//! The model: what can happen, in any order, and what must always be so.
//!
//! Two coordinators act at any time, as if both led. Each plans with the code and sends one write, which arrives later,
//! or never, and which the API server refuses if the upgrade was written since. The agents of three nodes see the
//! newest state, as those of older versions do, the order that is derived from it, or any order that there was, at any
//! time and as often as one likes; they lose what they do not have in their ledger. A script installs the kubelet and
//! goes on; it succeeds, fails, hangs or is interrupted, and the last word of its host reaches the API server later, or
//! never. A Node is deleted and registers again while its script runs, and its report is gone with it. A person
//! upgrades a node by hand. Clocks differ. With a minimum time that nodes are Ready, a kubelet dies at any time, and
//! the API server shows it as Ready for a while; or it is not Ready for a moment, which no coordinator may see.
//!
//! No sequence of states repeats: each action changes the progress, a budget, a ledger, an age that only grows, or a
//! version that only grows. So whatever can happen comes to an end, and it is enough to look at the states in which
//! time and coordinators change nothing any more.

use stateright::{Model, Property};
use tidewaiter_upgrade::Upgrade;
use tidewaiter_upgrade::agent::{self, Again, Refused, Repeatable};

use crate::state::{Cluster, Host, NODES, NodeState, OldOrder, PAIR, Progress, Said, Script, State, Write};
use crate::world::{GRACE, MIN_READY, MINORS, SUPERSEDED, TARGETS, TIMEOUT, World};

/// The view that the agent of a node reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All upgrades, as agents of older versions see them.
    Newest,
    /// The order that the coordinator derives from them. It says nothing of newer generations once the node has ended.
    Order,
    /// The last order of this upgrade, whatever was seen since.
    Old(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Somebody creates the second upgrade.
    CreateSecond,
    /// A coordinator decides about an upgrade, and sends the write.
    Plan { coordinator: usize, upgrade: usize },
    /// The write arrives.
    Arrive(usize),
    /// The write is lost, or its coordinator crashes before it is sent.
    Lose(usize),
    /// Time passes.
    Tick,
    /// An agent looks, and records a run if it is the turn of its node.
    Look(usize, View),
    /// An agent that has recorded a run looks again, and lets the script run.
    Run(usize, View),
    /// An agent restarts.
    Restart(usize),
    /// The script installs the new version, and goes on.
    Install(usize),
    /// The script ends well.
    Succeed(usize),
    /// The script ends otherwise, also after it has installed the version, or the power is away.
    Fail(usize),
    /// The last word of the host about this upgrade reaches the API server.
    Report(usize, usize),
    /// The Node is deleted and registers again, while its script runs. Its report goes with it.
    Register(usize),
    /// Its agent writes a report again.
    Announce(usize),
    /// The node becomes Ready, or a kubelet that has died begins again.
    BecomeReady(usize),
    /// The node is not Ready any more.
    Unready(usize),
    /// The kubelet dies.
    Die(usize),
    /// The node is broken for good.
    Break(usize),
    /// A person brings the node to the version of the first upgrade.
    ByHand(usize),
}

#[expect(clippy::struct_excessive_bools, reason = "each is something that the model may have")]
pub struct Protocol {
    pub world: World,
    /// The maximum number of nodes that are upgraded at once.
    pub max_unavailable: usize,
    /// True if there is a second upgrade.
    pub second: bool,
    /// True if the agents report what became of the script. Then it has a life of its own; otherwise it ends when it
    /// has installed the kubelet.
    pub reports: bool,
    /// True if a node must be Ready for a minimum time, and kubelets die. Then one coordinator leads, because the
    /// minimum time is by its clock, and there are two nodes, because that has enough states: the third is at the
    /// version.
    pub min_ready: bool,
    /// True if Nodes register again. Then one coordinator leads, for the number of states.
    pub registers: bool,
    /// The number of faults: a write is lost, a node or a kubelet breaks, a Node registers again, or a person acts.
    pub faults: u8,
}

impl Protocol {
    /// One upgrade, of one node at a time, with one fault.
    pub fn new(world: World) -> Self {
        Self {
            world,
            max_unavailable: 1,
            second: false,
            reports: false,
            min_ready: false,
            registers: false,
            faults: 1,
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut first = State::new(false);
        if self.min_ready {
            first.hosts[2].version = TARGETS[0];
        }
        if self.second {
            vec![first, State::new(true)]
        } else {
            vec![first]
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.second && !state.upgrades[1].exists {
            actions.push(Action::CreateSecond);
        }
        actions.push(Action::Tick);
        for coordinator in 0..self.coordinators() {
            if state.writes[coordinator].is_some() {
                actions.push(Action::Arrive(coordinator));
                actions.push(Action::Lose(coordinator));
            } else {
                actions.extend((0..PAIR).map(|upgrade| Action::Plan { coordinator, upgrade }));
            }
        }
        for node in (0..self.nodes()).filter(|node| !state.hosts[*node].dead) {
            let host = &state.hosts[node];
            let old = (0..PAIR)
                .filter(|upgrade| host.orders[*upgrade].is_some_and(|order| order.superseded))
                .map(View::Old);
            let views = [View::Newest, View::Order].into_iter().chain(old);
            if host.armed.is_some() {
                actions.extend(views.map(|view| Action::Run(node, view)));
                actions.push(Action::Restart(node));
            } else if host.script.is_none() {
                actions.extend(views.map(|view| Action::Look(node, view)));
            }
            if host.script.is_some() {
                actions.extend([Action::Install(node), Action::Fail(node)]);
            }
            if self.reports {
                actions.push(Action::Succeed(node));
                actions.extend((0..PAIR).map(|upgrade| Action::Report(node, upgrade)));
            }
            if self.registers && host.script.is_some() {
                actions.push(Action::Register(node));
            }
            if host.silenced {
                actions.push(Action::Announce(node));
            }
            if !host.ready || !host.lives {
                actions.push(Action::BecomeReady(node));
            }
            if self.min_ready && host.ready && host.lives {
                actions.extend([Action::Unready(node), Action::Die(node)]);
            }
            actions.extend([Action::Break(node), Action::ByHand(node)]);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::CreateSecond => state.upgrades[1].exists = true,
            Action::Plan { coordinator, upgrade } => {
                state.writes[coordinator] = Some(self.plan(&mut state, coordinator, upgrade)?);
            }
            Action::Arrive(coordinator) => arrive(&mut state, coordinator),
            Action::Lose(coordinator) => {
                self.fault(&mut state)?;
                state.writes[coordinator] = None;
            }
            Action::Tick => self.tick(&mut state),
            Action::Look(node, view) => self.look(&mut state, node, view),
            Action::Run(node, view) => self.run(&mut state, node, view),
            Action::Restart(node) => state.hosts[node].armed = None,
            Action::Install(node) => {
                let target = TARGETS[usize::from(state.hosts[node].script?.upgrade)];
                if state.hosts[node].version == target {
                    return None;
                }
                state.install(node, target);
                if !self.reports {
                    state.hosts[node].script = None;
                }
            }
            Action::Succeed(node) => {
                let upgrade = usize::from(state.hosts[node].script?.upgrade);
                if state.hosts[node].version != TARGETS[upgrade] {
                    return None;
                }
                state.hosts[node].end(Said::Succeeded);
            }
            Action::Fail(node) => state.hosts[node].end(Said::Failed),
            Action::Report(node, upgrade) => {
                let host = &mut state.hosts[node];
                host.reported[upgrade] = host.said[upgrade] != Said::Nothing;
                host.silenced &= !host.reported[upgrade];
            }
            Action::Register(node) => {
                self.fault(&mut state)?;
                let host = &mut state.hosts[node];
                (host.registered, host.silenced, host.reported) = (true, true, [false; PAIR]);
            }
            Action::Announce(node) => state.hosts[node].silenced = false,
            Action::BecomeReady(node) => {
                let host = &mut state.hosts[node];
                // Nobody can know that it was away for a moment.
                host.steady = (host.steady + host.silent).min(MIN_READY);
                (host.lives, host.silent) = (true, 0);
                host.becomes(true);
            }
            Action::Unready(node) => {
                self.fault(&mut state)?;
                state.hosts[node].becomes(false);
            }
            Action::Die(node) => {
                self.fault(&mut state)?;
                state.hosts[node].lives = false;
            }
            Action::Break(node) => {
                self.fault(&mut state)?;
                let host = &mut state.hosts[node];
                (host.dead, host.armed, host.script) = (true, None, None);
                host.becomes(false);
            }
            Action::ByHand(node) => {
                self.fault(&mut state)?;
                if state.hosts[node].script.is_some() || state.hosts[node].version >= TARGETS[0] {
                    return None;
                }
                state.hosts[node].version = TARGETS[0];
            }
        }
        if !self.reports {
            state.broken.early = false;
            state
                .hosts
                .iter_mut()
                .for_each(|host| host.said = [Said::Nothing; PAIR]);
        }
        if !self.min_ready {
            for host in &mut state.hosts {
                (host.lives, host.silent, host.unchanged, host.steady) = (true, 0, 0, 0);
            }
            (state.broken.unsteady, state.broken.fallen) = (false, false);
        }
        state.forget();
        (state != *before).then_some(state)
    }

    #[expect(clippy::too_many_lines, reason = "it is a list")]
    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "never two nodes at once beyond the allowed number",
                |model: &Self, state: &State| {
                    let busy = (0..NODES).filter(|node| state.is_busy(*node)).count();
                    busy <= if state.is_busy(0) { 1 } else { model.max_unavailable }
                },
            ),
            Property::always("never a worker before the control plane", |_, state: &State| {
                !state.broken.ahead && is_in_order(state, &state.upgrades[0].progress)
            }),
            Property::always("no script runs for a node that is not current", |_, state: &State| {
                !state.broken.not_current
            }),
            Property::always("no script runs twice", |_, state: &State| !state.broken.twice),
            Property::always("no order of an old generation is followed", |_, state: &State| {
                !state.broken.old_generation
            }),
            Property::always("every upgrade ends", |model: &Self, state: &State| {
                !model.is_stuck(state)
            }),
            Property::always("a version never goes down", |_, state: &State| !state.broken.down),
            Property::always("no node is done before its script", |_, state: &State| {
                !state.broken.early
            }),
            Property::always("no node is done before the minimum time", |_, state: &State| {
                !state.broken.unsteady
            }),
            Property::always(
                "nothing is started and no upgrade succeeds after a node fell back",
                |_, state: &State| !state.broken.fallen,
            ),
            Property::sometimes("a node falls back and fails", |model: &Self, state: &State| {
                let failed = |node: usize| {
                    state.upgrades[0].progress.nodes[node] == NodeState::Failed
                        && state.hosts[node].said[0] == Said::Succeeded
                };
                !model.min_ready || (0..NODES).any(failed)
            }),
            Property::sometimes(
                "a kubelet that has died is Ready in the minimum time",
                |model: &Self, state: &State| {
                    let verifying = &state.upgrades[0].progress.verifying;
                    let dying = |(host, age): (&Host, &Option<i8>)| host.ready && !host.lives && age.is_some();
                    !model.min_ready || state.hosts.iter().zip(verifying).any(dying)
                },
            ),
            Property::sometimes(
                "a kubelet is new and Ready while its script runs",
                |model: &Self, state: &State| {
                    let runs = |host: &Host| {
                        host.script
                            .is_some_and(|it| host.version == TARGETS[usize::from(it.upgrade)])
                    };
                    !model.reports || state.hosts.iter().any(|host| host.ready && runs(host))
                },
            ),
            Property::sometimes(
                "a node that registers again is upgraded, and nobody hears of its script meanwhile",
                |model: &Self, state: &State| {
                    let is_silent = |host: &Host| host.silenced && host.ready && host.script.is_some();
                    !model.registers
                        || state
                            .hosts
                            .iter()
                            .any(|host| is_silent(host) && host.version == TARGETS[0])
                },
            ),
            Property::sometimes("every node is upgraded", |model: &Self, state: &State| {
                let done = |upgrade: usize| state.upgrades[upgrade].progress.cluster == Cluster::Success;
                state.hosts.iter().all(|host| host.version == TARGETS[0])
                    && done(0)
                    && (!model.second || done(1) || state.is_over())
            }),
            Property::sometimes("an upgrade fails", |_, state: &State| {
                state.upgrades[0].progress.cluster == Cluster::Failed
            }),
            Property::sometimes("two coordinators write at once", |model: &Self, state: &State| {
                model.coordinators() < PAIR || state.writes.iter().all(Option::is_some)
            }),
            Property::sometimes("two upgrades have a claim", |model: &Self, state: &State| {
                let claims = state
                    .upgrades
                    .iter()
                    .filter(|upgrade| upgrade.progress.cluster == Cluster::InProgress);
                !model.second || claims.count() == PAIR
            }),
            Property::sometimes(
                "an agent may see an order again that it knows to be old",
                |_, state: &State| {
                    state
                        .hosts
                        .iter()
                        .flat_map(|host| host.orders)
                        .flatten()
                        .any(|order| order.outdated)
                },
            ),
            Property::sometimes("a script runs until the host stops it", |_, state: &State| {
                state
                    .hosts
                    .iter()
                    .any(|host| host.script.is_some_and(|script| script.left == 1))
            }),
        ]
    }
}

/// A worker was started only after the control plane was done, or is at the version. The second upgrade has no node of
/// the control plane.
fn is_in_order(state: &State, progress: &Progress) -> bool {
    let control_plane = matches!(progress.nodes[0], NodeState::Success | NodeState::Failed);
    let workers = progress.nodes[1..].iter().any(|node| *node != NodeState::NotStarted);
    control_plane || !workers || state.hosts[0].version == TARGETS[0]
}

fn arrive(state: &mut State, coordinator: usize) {
    let Some(write) = state.writes[coordinator].take() else {
        return;
    };
    // The API server refuses the other one.
    state.writes[1 - coordinator].take_if(|other| other.upgrade == write.upgrade);
    let upgrade = usize::from(write.upgrade);
    let before = std::mem::replace(&mut state.upgrades[upgrade].progress, write.progress);
    for node in 0..NODES {
        let is_done = write.progress.nodes[node] == NodeState::Success;
        if is_done && before.nodes[node] != NodeState::Success {
            let is_early = state.hosts[node].script.is_some() || state.hosts[node].said[upgrade] != Said::Succeeded;
            state.broken.early |= is_early;
        }
        let order = &mut state.hosts[node].orders[upgrade];
        match write.progress.nodes[node] {
            NodeState::InProgress(age) if before.nodes[node] != write.progress.nodes[node] => {
                *order = Some(OldOrder {
                    age,
                    superseded: false,
                    outdated: false,
                });
            }
            _ => order.iter_mut().for_each(|order| order.superseded = true),
        }
    }
}

/// An order that is over is not delivered any more. Its agent would refuse it, as it does when it looks at the newest
/// state.
fn tick(state: &mut State) {
    let writes = state.writes.iter_mut().flatten().map(|write| &mut write.progress);
    for progress in state
        .upgrades
        .iter_mut()
        .map(|upgrade| &mut upgrade.progress)
        .chain(writes)
    {
        for node in &mut progress.nodes {
            if let NodeState::InProgress(age) = node {
                *age = (*age + 1).min(TIMEOUT);
            }
        }
        let times = progress.verifying.iter_mut().chain(&mut progress.fallen_back);
        times.flatten().for_each(|age| *age = (*age + 1).min(GRACE));
    }
    for host in &mut state.hosts {
        host.unchanged = (host.unchanged + 1).min(GRACE);
        if host.ready && host.lives && host.version == TARGETS[0] {
            host.steady = (host.steady + 1).min(MIN_READY);
        }
        if !host.lives && host.ready {
            host.silent += 1;
            if host.silent >= GRACE {
                host.becomes(false);
            }
        }
        host.orders.iter_mut().flatten().for_each(|order| order.age += 1);
        host.orders
            .iter_mut()
            .for_each(|order| *order = order.filter(|order| order.age <= TIMEOUT));
        if let Some(script) = &mut host.script {
            script.left -= 1;
            if script.left <= 0 {
                host.end(Said::Failed);
            }
        }
    }
}

impl Protocol {
    fn fault(&self, state: &mut State) -> Option<()> {
        state.faults += 1;
        (state.faults <= self.faults).then_some(())
    }

    fn coordinators(&self) -> usize {
        if self.min_ready || self.registers { 1 } else { PAIR }
    }

    fn nodes(&self) -> usize {
        if self.min_ready { 2 } else { NODES }
    }

    /// Time passes. Without a minimum time, nothing that only it reads changes.
    fn tick(&self, state: &mut State) {
        tick(state);
        if !self.min_ready {
            state
                .hosts
                .iter_mut()
                .for_each(|host| (host.unchanged, host.steady) = (0, 0));
        }
    }

    fn plan(&self, state: &mut State, coordinator: usize, upgrade: usize) -> Option<Write> {
        let progress = self.world.step(state, coordinator, upgrade)?;
        state.judge(&state.upgrades[upgrade].progress.clone(), &progress);
        Some(Write {
            upgrade: u8::try_from(upgrade).unwrap(),
            progress,
        })
    }

    fn view(&self, state: &State, node: usize, view: View) -> Vec<Upgrade> {
        match view {
            View::Newest => self.world.newest(state),
            View::Order => self.world.order(state, node),
            View::Old(upgrade) => {
                let order = state.hosts[node].orders[upgrade];
                order
                    .map(|order| self.world.old(node, upgrade, order))
                    .unwrap_or_default()
            }
        }
    }

    fn look(&self, state: &mut State, node: usize, view: View) {
        let upgrades = self.view(state, node, view);
        let decided = self.world.on_host(&state.hosts[node], node, |host| {
            agent::decide(&upgrades, host, Repeatable::No)
        });
        state.see(node, view);
        let host = &mut state.hosts[node];
        match decided {
            Ok(run) => {
                let upgrade = World::upgrade_of(&run);
                host.begun[usize::from(upgrade)] = true;
                host.armed = Some(upgrade);
            }
            Err(refused) => {
                let is_turn = |it: &&Upgrade| {
                    let state = it.progress.nodes.get(&self.world.names[node]);
                    matches!(state, Some(tidewaiter_upgrade::NodeState::InProgress { .. }))
                };
                let mut turns = upgrades.iter().filter(is_turn);
                if let (Some(upgrade), None) = (turns.next(), turns.next()) {
                    host.refuse(World::index(upgrade), &refused);
                }
            }
        }
    }

    fn run(&self, state: &mut State, node: usize, view: View) {
        let upgrades = self.view(state, node, view);
        let Some(upgrade) = state.hosts[node].armed.take() else {
            return;
        };
        let uid = self.world.uid(upgrade);
        let decided = self.world.on_host(&state.hosts[node], node, |host| {
            agent::confirm(uid, Again::No, &upgrades, host)
        });
        state.see(node, view);
        if let Ok(run) = decided {
            let left = World::ticks(&run, node);
            state.begin(node, Script { upgrade, left }, run.generation);
        }
    }

    /// Returns true if neither time nor a coordinator changes anything any more, and an upgrade is not over.
    pub fn is_stuck(&self, state: &State) -> bool {
        if state.is_over() || state.writes.iter().any(Option::is_some) {
            return false;
        }
        let mut later = state.clone();
        self.tick(&mut later);
        let mut pairs =
            (0..self.coordinators()).flat_map(|coordinator| (0..PAIR).map(move |upgrade| (coordinator, upgrade)));
        later == *state && pairs.all(|(coordinator, upgrade)| self.world.step(state, coordinator, upgrade).is_none())
    }
}

impl Host {
    fn becomes(&mut self, ready: bool) {
        if self.ready != ready {
            (self.ready, self.unchanged, self.steady) = (ready, 0, 0);
        }
    }

    fn end(&mut self, said: Said) {
        if let Some(script) = self.script.take() {
            self.said[usize::from(script.upgrade)] = said;
        }
    }

    /// As `tidewaiter host run` does: a script that was begun and does not run is interrupted, and a kubelet at the
    /// version has nothing to run.
    fn refuse(&mut self, upgrade: usize, refused: &Refused) {
        if self.said[upgrade] != Said::Nothing {
            return;
        }
        self.said[upgrade] = match refused {
            Refused::AtVersion { version, target } if version.is(target) => Said::Succeeded,
            Refused::AtVersion { .. } | Refused::RunBefore => Said::Failed,
            _ => Said::Nothing,
        };
    }
}

impl State {
    /// Checks that a coordinator may decide this now.
    fn judge(&mut self, before: &Progress, after: &Progress) {
        let nodes = before.nodes.iter().zip(&after.nodes);
        let (mut starts, mut has_fallen) = (after.cluster == Cluster::Success, false);
        for (host, (before, after)) in self.hosts.iter().zip(nodes) {
            starts |= *before == NodeState::NotStarted && matches!(after, NodeState::InProgress(_));
            let is_well = host.ready && host.version == TARGETS[0];
            match (before, after) {
                (NodeState::InProgress(_), NodeState::Success) => {
                    self.broken.unsteady |= !is_well || host.steady < MIN_READY;
                }
                (_, NodeState::Success) => has_fallen |= !is_well,
                _ => {}
            }
        }
        self.broken.fallen |= starts && has_fallen;
    }

    /// The agent reads the view. An agent that looks at an old order sees nothing new.
    fn see(&mut self, node: usize, view: View) {
        if view == View::Newest {
            let orders = self.hosts[node].orders.iter_mut().flatten();
            orders.for_each(|order| order.outdated |= order.superseded);
        }
    }

    fn begin(&mut self, node: usize, script: Script, generation: i64) {
        let upgrade = usize::from(script.upgrade);
        let is_current = self.current(node).any(|current| current == upgrade);
        let target = MINORS[usize::from(TARGETS[upgrade])];
        let host = &mut self.hosts[node];
        self.broken.not_current |= !is_current;
        self.broken.twice |= host.ran[upgrade];
        let outdated = host.orders[upgrade].is_some_and(|order| order.outdated);
        self.broken.old_generation |= outdated && generation == SUPERSEDED;
        host.ran[upgrade] = true;
        host.script = Some(script);
        self.broken.ahead |= node != 0 && target > MINORS[usize::from(self.hosts[0].version)];
    }

    fn install(&mut self, node: usize, version: u8) {
        let host = &mut self.hosts[node];
        self.broken.down |= version < host.version;
        host.version = version;
        host.becomes(false);
    }
}
