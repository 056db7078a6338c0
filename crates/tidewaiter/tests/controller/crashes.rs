//! Killed (SIGKILL) before and after each of its writes, the process leaves what its next start brings to the same end:
//! no key is forgotten, and then nothing is left to do.

use std::time::Duration;

use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_api::names::{INSTANCE_GROUP_LABEL, UNIDENTIFIED_TAINT};
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{ApiRequest, Kubelet, Moment, eventually};

use crate::world::{Controller, Labels, SOON, World};

/// The labels that a definition gives.
type Definition<'a> = &'a [(&'a str, &'a str)];

const FIRST: Definition = &[("changed", "before"), ("left", "yes"), ("stays", "yes")];
/// Adds a key, changes one and removes one.
const SECOND: Definition = &[("added", "yes"), ("changed", "after"), ("stays", "yes")];
/// Without the key that only `SECOND` has, with the one that only `FIRST` has.
const THIRD: Definition = &[("changed", "finally"), ("left", "again"), ("stays", "yes")];

/// Somebody else's label, which is to stay whatever happens.
const FOREIGN: (&str, &str) = ("mine", "yes");

#[tokio::test]
async fn killed_at_any_write_it_ends_the_same() {
    let world = World::start().await;
    let controller = world.controller().await;
    let scenario = |name, first, writes| Scenario {
        world: &world,
        controller: &controller,
        name,
        first,
        writes,
    };
    // The record, the Node.
    scenario("new", 100, 2).each_crash(a_new_node).await;
    // The record, the Node, the record narrowed, the Event.
    let changed = scenario("changed", 200, 4);
    changed.each_crash(a_changed_definition).await;
    let meanwhile = scenario("meanwhile", 300, 4);
    meanwhile
        .each_crash(a_definition_that_changes_again_before_the_restart)
        .await;
    // The record, the Event.
    scenario("refused", 400, 2).each_crash(a_refused_node).await;
    // All of them are in the last process's hands.
    world.quiet(Duration::from_secs(3)).await;
    controller.stops().await;
}

async fn a_new_node(run: &Run<'_>) {
    run.define(FIRST);
    let done = async || run.ends_as(FIRST).await;
    run.crash(async || run.join().await, done).await;
    run.goes_on().await;
    run.ends_as(FIRST).await;
}

async fn a_changed_definition(run: &Run<'_>) {
    run.define(FIRST);
    run.join().await;
    run.ends_as(FIRST).await;
    let done = async || run.ends_as(SECOND).await;
    run.crash(async || run.define(SECOND), done).await;
    run.goes_on().await;
    run.ends_as(SECOND).await;
}

/// A label that the killed run has recorded has left the definition when the next run starts.
async fn a_definition_that_changes_again_before_the_restart(run: &Run<'_>) {
    run.define(FIRST);
    run.join().await;
    run.ends_as(FIRST).await;
    run.scenario.controller.process.kill();
    run.define(SECOND);
    let done = async || run.ends_as(SECOND).await;
    run.crash(async || run.starts().await, done).await;
    run.define(THIRD);
    run.goes_on().await;
    run.ends_as(THIRD).await;
}

async fn a_refused_node(run: &Run<'_>) {
    let join = async || run.join_as_instance_that_is_not().await;
    run.crash(join, async || run.ends_refused().await).await;
    run.goes_on().await;
    run.ends_refused().await;
}

/// The changes of a Node and its group, in a run of its own for each crash.
struct Scenario<'a> {
    world: &'a World,
    controller: &'a Controller,
    name: &'a str,
    first: u32,
    /// The number of writes without a crash.
    writes: usize,
}

/// One run of a scenario: one Node, one group.
struct Run<'a> {
    scenario: &'a Scenario<'a>,
    instance: FakeInstance,
    group: String,
    /// When the process is killed: at the nth write, before or after it; or never.
    crash: Option<(usize, Moment)>,
}

impl Scenario<'_> {
    async fn each_crash(&self, run: impl AsyncFn(&Run<'_>)) {
        let crashes = (1..=self.writes).flat_map(|nth| [Some((nth, Moment::Before)), Some((nth, Moment::After))]);
        for (number, crash) in (self.first..).zip(crashes.chain([None])) {
            let when = crash.map_or("never".to_owned(), |(nth, moment)| {
                format!("{moment:?}-{nth}").to_lowercase()
            });
            let group = format!("{}-{when}", self.name);
            let instance = FakeInstance::numbered(number);
            run(&Run {
                scenario: self,
                instance,
                group,
                crash,
            })
            .await;
            self.controller.has_not_panicked();
        }
    }
}

impl Run<'_> {
    fn node(&self) -> &str {
        self.instance.node_name()
    }

    fn define(&self, labels: Definition) {
        self.scenario.world.group(&self.group, labels);
    }

    /// Registers the Node, which carries the startup taint.
    async fn join(&self) {
        let instance = self.instance.clone().kops(crate::world::CLUSTER, &self.group);
        self.scenario.world.ec2.launch([instance]);
        self.join_as_instance_that_is_not().await;
    }

    /// The same without an instance.
    async fn join_as_instance_that_is_not(&self) {
        let (key, value) = FOREIGN;
        let node = World::node_of(&self.instance)
            .label(key, value)
            .taint(UNIDENTIFIED_TAINT, "NoSchedule");
        Kubelet::register(&self.scenario.world.cluster, &node.build()).await;
    }

    /// Does what makes the process write, and waits until it is killed; or until it is done, when it is not to be
    /// killed.
    async fn crash(&self, change: impl AsyncFnOnce(), done: impl AsyncFnOnce()) {
        let Controller { process, proxy, .. } = self.scenario.controller;
        let name = self.node().to_owned();
        let (nth, moment) = self.crash.unwrap_or((self.scenario.writes + 1, Moment::Before));
        proxy.kill_at(process, nth, moment, move |request| is_write_about(request, &name));
        change().await;
        if self.crash.is_some() {
            eventually(format!("{} to be killed", self.group), SOON, async || {
                if process.is_running() { Err("it runs") } else { Ok(()) }
            })
            .await;
        } else {
            done().await;
            assert!(process.is_running(), "it writes more often than was thought");
        }
        proxy.clear_hook();
    }

    /// Starts the process, if it does not run.
    async fn goes_on(&self) {
        if !self.scenario.controller.process.is_running() {
            self.starts().await;
            self.scenario.controller.ready().await;
            self.scenario.controller.leads().await;
        }
    }

    async fn starts(&self) {
        self.scenario.world.expire_lease().await;
        self.scenario.controller.process.start_again();
    }

    /// The Node has these labels of its group and somebody else's, the record remembers just the group's, the taint is
    /// gone.
    async fn ends_as(&self, definition: Definition<'_>) {
        let world = self.scenario.world;
        let of_kops = [
            (INSTANCE_GROUP_LABEL, self.group.as_str()),
            ("node-role.kubernetes.io/node", ""),
        ];
        let ours = [definition, &of_kops].concat();
        world.has_labels(self.node(), &[&ours[..], &[FOREIGN]].concat()).await;
        let ours: Labels = ours
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        eventually(
            format!("the record of {} to hold {ours:?}", self.group),
            SOON,
            async || {
                let recorded = world.recorded(self.node()).await;
                if recorded == ours {
                    Ok(())
                } else {
                    Err(format!("{recorded:?}"))
                }
            },
        )
        .await;
        world.is_verified(self.node(), True, "Proven").await;
        assert!(!world.is_tainted(self.node()).await);
    }

    /// The Node has got nothing, and its owner can read why.
    async fn ends_refused(&self) {
        let world = self.scenario.world;
        world.is_verified(self.node(), False, "NotFound").await;
        world.told(self.node(), "NotFound").await;
        world.has_labels(self.node(), &[FOREIGN]).await;
        assert!(world.is_tainted(self.node()).await);
    }
}

/// Returns true if it writes the Node, its record, or an Event about it.
pub fn is_write_about(request: &ApiRequest, node: &str) -> bool {
    let body = request.json();
    let named = [body.pointer("/metadata/name"), body.pointer("/regarding/name")];
    let in_body = named.into_iter().flatten().any(|name| name == node);
    request.is_write() && (in_body || request.path.rsplit('/').next() == Some(node))
}
