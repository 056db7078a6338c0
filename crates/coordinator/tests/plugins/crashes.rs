//! Killed before or after each of its writes, the controller ends where it ends without that: with exactly the last
//! version's objects.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tidewaiter_testkit::{ApiProxy, ApiRequest, Moment, eventually, every};

use crate::approval::manual;
use crate::cluster::{MORE, Running, SOON, coordinator, kills};
use crate::jobs::job;
use crate::rollback::ROLLBACK;
use crate::world::{World, config, definition, id, in_namespace};

/// The most writes from one state to the next, without those of the status.
const WRITES: usize = 16;

/// The states of the plugin, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Installed,
    Upgraded,
    Removed,
}

const STATES: [State; 3] = [State::Installed, State::Upgraded, State::Removed];

const GROUP: &str = "crashes.example.com";

impl State {
    fn version(self) -> &'static str {
        match self {
            Self::Installed => "1.0.0",
            Self::Upgraded => "2.0.0",
            Self::Removed => "",
        }
    }

    /// The `ConfigMaps`, by namespace, name and value.
    fn configs(self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Self::Installed => &[("crashes", "kept", "1"), ("default", "gone", "1")],
            Self::Upgraded => &[("crashes", "kept", "2"), ("default", "new", "2")],
            Self::Removed => &[],
        }
    }

    fn manifests(self) -> Value {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crashes"}});
        let widget = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget",
            "metadata": {"name": "w", "namespace": "crashes"}});
        let widgets = (self == Self::Installed).then_some(widget);
        let configs = self.configs().iter();
        let configs = configs.map(|(namespace, name, value)| in_namespace(config(name, value), namespace));
        let objects: Vec<Value> = configs.chain(widgets).collect();
        json!([objects, [namespace, definition(GROUP)]])
    }

    /// The objects, jobs by the beginning of their name.
    fn objects(self) -> BTreeSet<String> {
        let configs = self.configs().iter();
        let configs = configs.map(|(namespace, name, _)| format!("ConfigMap {namespace}/{name}"));
        let first = match self {
            Self::Installed => vec!["Widget crashes/w", "Job default/prepare"],
            Self::Upgraded | Self::Removed => vec![],
        };
        let both = match self {
            Self::Removed => vec![],
            _ => vec![
                "Namespace crashes",
                "CustomResourceDefinition widgets.crashes.example.com",
            ],
        };
        configs
            .chain(first.into_iter().chain(both).map(str::to_owned))
            .collect()
    }
}

struct Scene {
    world: World,
    proxy: ApiProxy,
}

#[tokio::test]
async fn killed_at_its_first_writes_it_ends_the_same() {
    killed_at(1..=4).await;
}

#[tokio::test]
async fn killed_at_its_next_writes_it_ends_the_same() {
    killed_at(5..=8).await;
}

#[tokio::test]
async fn killed_at_its_last_writes_it_ends_the_same() {
    let last = killed_at(9..=WRITES + MORE).await;
    assert!(last < WRITES + MORE, "more writes than {last}");
}

/// An object that was created just before the death is removed, although no version has it any more.
#[tokio::test]
async fn what_a_killed_coordinator_created_is_not_left_behind() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    for (number, next) in [(1, json!([[config("kept", "2")]])), (2, Value::Null)] {
        let running = world.run_through(&proxy).await;
        let creates = |request: &ApiRequest| request.is_write() && request.resource() == "configmaps";
        let killed = kills(&proxy, &running, 1, Moment::After, creates);
        world.offer(number, "1.0.0", &json!([[config("left", "1")]]));
        eventually("its death", SOON, async || {
            if killed.load(Ordering::SeqCst) {
                Ok(())
            } else {
                Err("it lives")
            }
        })
        .await;
        world.config_is("left", Some("1")).await;
        // While no coordinator is there, the cloud changes its mind.
        if next.is_null() {
            world.withdraw(number);
        } else {
            world.offer(number, "2.0.0", &next);
        }
        proxy.clear_hook();
        let running = world.run_through(&proxy).await;
        world.config_is("left", None).await;
        if next.is_null() {
            world.is_forgotten(number).await;
        } else {
            world.is_ready(number, "2.0.0").await;
        }
        running.stop().await;
    }
}

/// The most writes of an approved upgrade, without those of the status.
const APPROVED_WRITES: usize = 12;

#[tokio::test]
async fn an_approved_upgrade_ends_whenever_it_is_killed() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let version = |number: usize| format!("1.{number}.0");
    let manifests = |number: usize| {
        let own = format!("own-{number}");
        json!([[config("one", &number.to_string())], [config(&own, "1")]])
    };
    world.offer(1, &version(0), &manifests(0));
    let mut running = world.run_through_with(&proxy, manual()).await;
    let pending = world.pending(1, &version(0)).await;
    world.approve(1, &pending.digest).await;
    world.is_ready(1, &version(0)).await;
    let mut last = 0;
    for nth in (1..=APPROVED_WRITES + 1).step_by(every(3)) {
        world.offer(1, &version(nth), &manifests(nth));
        let pending = world.pending(1, &version(nth)).await;
        let moment = [Moment::Before, Moment::After][nth % 2];
        let killed = kills(&proxy, &running, nth, moment, is_counted);
        world.approve(1, &pending.digest).await;
        eventually(
            format!("{nth}, or the death {moment:?} write {nth}"),
            SOON,
            async || {
                let plugin = world.plugins().get(&id(1)).await.map_err(|error| error.to_string())?;
                let applied = plugin.status.unwrap_or_default().applied_version;
                if killed.load(Ordering::SeqCst) || applied == version(nth) {
                    Ok(())
                } else {
                    Err(applied)
                }
            },
        )
        .await;
        proxy.clear_hook();
        if killed.load(Ordering::SeqCst) {
            (running, last) = (world.run_through_with(&proxy, manual()).await, nth);
        }
        world.is_ready(1, &version(nth)).await;
        world.config_is("one", Some(&nth.to_string())).await;
        world
            .config_is(&format!("own-{}", nth.saturating_sub(every(3))), None)
            .await;
        world.is_taken(1, "tidewaiter.dev/approve").await;
    }
    assert!((4..=APPROVED_WRITES).contains(&last), "{last} writes");
    running.stop().await;
}

/// The most writes of a rollback, or of what undoes it, without those of the status.
const ROLLBACK_WRITES: usize = 12;

#[tokio::test]
async fn a_rollback_and_what_undoes_it_end_whenever_they_are_killed() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let mut running = world.run_through(&proxy).await;
    for number in 1..=2 {
        let own = config(&format!("own-{number}"), "1");
        let manifests = json!([[config("one", &number.to_string())], [own]]);
        world.offer(1, &format!("{number}.0.0"), &manifests);
        world.is_ready(1, &format!("{number}.0.0")).await;
    }
    let mut last = 0;
    for nth in (1..=ROLLBACK_WRITES + 1).step_by(every(3)) {
        for (turn, (version, reason)) in [("1", "RolledBack"), ("2", "Applied")].into_iter().enumerate() {
            let moment = [Moment::Before, Moment::After][(nth + turn) % 2];
            let killed = kills(&proxy, &running, nth, moment, is_counted);
            if turn == 0 {
                world.roll_back(1, "2.0.0", "1.0.0").await;
            } else {
                world.annotate(1, ROLLBACK, None).await;
            }
            let what = format!("{reason}, or the death {moment:?} write {nth}");
            eventually(what, SOON, async || {
                let plugin = world.plugins().get(&id(1)).await.map_err(|error| error.to_string())?;
                let status = plugin.status.unwrap_or_default();
                let is_there = status.conditions.iter().any(|condition| condition.reason == reason);
                if killed.load(Ordering::SeqCst) || is_there {
                    Ok(())
                } else {
                    Err(format!("{:?}", status.conditions))
                }
            })
            .await;
            proxy.clear_hook();
            if killed.load(Ordering::SeqCst) {
                (running, last) = (world.run_through(&proxy).await, nth);
            }
            let wanted = format!("True {reason}");
            world.condition(1, "2.0.0", "Ready", &wanted).await;
            world.config_is("one", Some(version)).await;
            let objects = ["one", &format!("own-{version}")].map(|name| format!("ConfigMap default/{name}"));
            world.has_exactly(1, &objects.into()).await;
        }
    }
    assert!((4..=ROLLBACK_WRITES).contains(&last), "{last} writes");
    running.stop().await;
}

/// Returns the last write at which it was killed.
async fn killed_at(writes: RangeInclusive<usize>) -> usize {
    let world = World::with_controller_manager().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let scene = Scene { world, proxy };
    let (mut running, mut last) = (scene.start().await, 0);
    for nth in writes.step_by(every(3)) {
        for (number, state) in STATES.into_iter().enumerate() {
            let moment = [Moment::Before, Moment::After][(nth + number) % 2];
            let killed = kills(&scene.proxy, &running, nth, moment, is_counted);
            scene.becomes(state);
            eventually(
                format!("{state:?}, or the death {moment:?} write {nth}"),
                SOON,
                async || {
                    if killed.load(Ordering::SeqCst) {
                        return Ok(());
                    }
                    scene.is(state).await
                },
            )
            .await;
            scene.proxy.clear_hook();
            if killed.load(Ordering::SeqCst) {
                (running, last) = (scene.start().await, nth);
            }
            scene.ends_as(state).await;
        }
    }
    running.stop().await;
    last
}

impl Scene {
    async fn start(&self) -> Running {
        self.world.run_through(&self.proxy).await
    }

    fn becomes(&self, state: State) {
        let jobs = match state {
            State::Installed => json!({"pre_apply": [job("prepare")]}),
            State::Upgraded => json!({}),
            State::Removed => return self.world.withdraw(1),
        };
        self.world.offer_with(1, state.version(), &state.manifests(), &jobs);
    }

    /// Checks that the controller has nothing more to do.
    async fn is(&self, state: State) -> Result<(), String> {
        let words = |error: kube::Error| error.to_string();
        let plugin = self.world.plugins().get_opt(&id(1)).await.map_err(words)?;
        let inventory = self.world.inventories().get_opt(&id(1)).await.map_err(words)?;
        let is_done = match (state, plugin) {
            (State::Removed, plugin) => plugin.is_none() && inventory.is_none(),
            (_, None) => false,
            (state, Some(plugin)) => {
                let ready = plugin.status.is_some_and(|status| {
                    let mut ready = status
                        .conditions
                        .iter()
                        .filter(|condition| condition.reason == "Applied");
                    ready.any(|condition| condition.observed_generation == plugin.metadata.generation)
                });
                plugin.spec.version == state.version() && ready
            }
        };
        if is_done {
            Ok(())
        } else {
            Err("it is on the way".to_owned())
        }
    }

    async fn ends_as(&self, state: State) {
        let world = &self.world;
        if state == State::Removed {
            world.is_forgotten(1).await;
        } else {
            world.is_ready(1, state.version()).await;
            let inventory = world.inventories().get(&id(1)).await.unwrap();
            assert_eq!(inventory.spec.objects().count(), state.objects().len(), "{inventory:?}");
        }
        eventually(format!("exactly the objects of {state:?}"), SOON, async || {
            let found = world.labelled(1).await.map_err(|error| error.to_string())?;
            // The names of jobs end with a digest.
            let plain = |name: String| match name.split_once("prepare-") {
                Some((start, _)) => format!("{start}prepare"),
                None => name,
            };
            let found: BTreeSet<String> = found.into_iter().map(plain).collect();
            if found == state.objects() {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
        for (namespace, name, value) in state.configs() {
            let configs = world.objects("v1", "configmaps", "ConfigMap", Some(namespace));
            world.shows(&configs, name, |found| found["data"]["a"] == *value).await;
        }
    }
}

/// The status follows from the rest, and how often it is written depends on the time that things take.
fn is_counted(request: &ApiRequest) -> bool {
    let is_other = ["events", "cloudsyncs", "leases"].contains(&request.resource());
    request.is_write() && !is_other && !request.path.ends_with("/status") && !request.query.contains("dryRun")
}
