//! Random versions of a plugin, crashes, and edits by people: in the end the cluster has the objects of the last
//! version and nothing else of the plugin, and what others made is as they left it.
//!
//! One seed is one history. `TIDEWAITER_SIM_SEED=7` repeats one and prints it, `TIDEWAITER_SIM_SEEDS=0..1000` plays
//! more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_testkit::sim::Seeds;
use tidewaiter_testkit::{ApiProxy, ApiRequest, Moment, eventually};

use crate::cluster::{Running, SOON, coordinator, kills};
use crate::world::{World, config, id};

/// Some 20 s of two cores.
const HISTORIES: u64 = 8;

/// The places of objects: apiVersion, plural, kind, namespace, name. Versions that change the kind or the namespace of
/// an object move it from one to another.
const PLACES: [(&str, &str, &str, Option<&str>, &str); 7] = [
    ("v1", "configmaps", "ConfigMap", Some("default"), "a"),
    ("v1", "configmaps", "ConfigMap", Some("default"), "b"),
    ("v1", "configmaps", "ConfigMap", Some("kube-public"), "a"),
    ("v1", "secrets", "Secret", Some("default"), "a"),
    ("v1", "serviceaccounts", "ServiceAccount", Some("kube-public"), "b"),
    ("rbac.authorization.k8s.io/v1", "roles", "Role", Some("default"), "a"),
    (
        "rbac.authorization.k8s.io/v1",
        "clusterroles",
        "ClusterRole",
        None,
        "random:a",
    ),
];

/// The place of an object, by its number in [`PLACES`].
type Place = usize;

/// The objects of a version, with a number that changes.
type Version = BTreeMap<Place, u8>;

#[derive(Clone, Debug)]
enum Step {
    /// The cloud has another version.
    Offer(Version),
    /// The cloud does not have the plugin any more.
    Withdraw,
    /// The coordinator is killed at its nth write from now on, before or after it.
    Kill(usize, bool),
    /// Nothing happens until the coordinator has nothing to do.
    Rest,
    /// A person changes an object.
    Change(Place),
    /// A person deletes an object.
    Delete(Place),
    /// A person takes an object away from the plugin, while the coordinator is not there.
    Relabel(Place),
    /// A person creates an object where there is none.
    Create(Place),
}

fn any_step() -> impl Strategy<Value = Step> {
    let place = || 0..PLACES.len();
    prop_oneof![
        5 => btree_map(place(), 0..3_u8, 1..=4).prop_map(Step::Offer),
        1 => Just(Step::Withdraw),
        4 => (1..9_usize, any::<bool>()).prop_map(|(nth, after)| Step::Kill(nth, after)),
        3 => Just(Step::Rest),
        2 => place().prop_map(Step::Change),
        2 => place().prop_map(Step::Delete),
        1 => place().prop_map(Step::Relabel),
        1 => place().prop_map(Step::Create),
    ]
}

#[test]
fn after_any_history_the_cluster_has_the_last_version_and_nothing_else_of_the_plugin() {
    let arguments = "--test plugins after_any_history";
    Seeds::chosen(0..HISTORIES).run(arguments, |seed, traces| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut random = TestRunner::new_with_rng(Config::default(), random);
        let steps = vec(any_step(), 5..12).new_tree(&mut random).unwrap().current();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let mut history = History::start().await;
            for step in steps {
                history.goes_on(&step, traces).await;
            }
            history.ends().await
        })
    });
}

/// A plugin in a cluster, and what became of it.
struct History {
    world: World,
    proxy: ApiProxy,
    running: Option<Running>,
    killed: Arc<AtomicBool>,
    /// The number of versions.
    versions: usize,
    version: Option<Version>,
    /// The objects of people, by the version in which they left them.
    theirs: BTreeMap<Place, Option<String>>,
    /// Of another plugin, which nothing happens to.
    bystander: Option<String>,
}

impl History {
    async fn start() -> Self {
        let world = World::start().await;
        let proxy = ApiProxy::start(world.plane(), &coordinator());
        world.offer(2, "1.0.0", &json!([[config("bystander", "1")]]));
        let running = world.run_through(&proxy).await;
        world.is_ready(2, "1.0.0").await;
        let bystander = world
            .configs()
            .get("bystander")
            .await
            .unwrap()
            .metadata
            .resource_version;
        Self {
            world,
            proxy,
            running: Some(running),
            killed: Arc::default(),
            versions: 0,
            version: None,
            theirs: BTreeMap::new(),
            bystander,
        }
    }

    #[expect(clippy::print_stderr, reason = "how a person reads a history")]
    async fn goes_on(&mut self, step: &Step, traces: bool) {
        self.revive().await;
        if traces {
            eprintln!("{step:?}");
        }
        match step {
            Step::Offer(version) => {
                self.versions += 1;
                let objects: Vec<Value> = version
                    .iter()
                    .map(|(place, value)| object(*place, &value.to_string()))
                    .collect();
                self.world.offer(1, &self.number(), &json!([objects]));
                self.version = Some(version.clone());
            }
            Step::Withdraw => {
                self.world.withdraw(1);
                self.version = None;
            }
            Step::Kill(nth, after) => {
                let moment = if *after { Moment::After } else { Moment::Before };
                let running = self.running.as_ref().unwrap();
                self.killed = kills(&self.proxy, running, *nth, moment, is_counted);
            }
            Step::Rest => self.rests().await,
            Step::Change(place) => self.changes(*place).await,
            Step::Delete(place) => self.deletes(*place).await,
            Step::Relabel(place) => self.relabels(*place).await,
            Step::Create(place) => self.creates(*place).await,
        }
    }

    fn number(&self) -> String {
        format!("1.0.{}", self.versions)
    }

    fn api(&self, place: Place) -> Api<DynamicObject> {
        let (api_version, plural, kind, namespace, _) = PLACES[place];
        self.world.objects(api_version, plural, kind, namespace)
    }

    /// Starts the coordinator again if it was killed.
    async fn revive(&mut self) {
        if self.killed.swap(false, Ordering::SeqCst) {
            self.restart().await;
        }
    }

    async fn restart(&mut self) {
        self.proxy.clear_hook();
        self.running = Some(self.world.run_through(&self.proxy).await);
    }

    /// Waits until the coordinator has nothing to do for the version that the cloud has, or is dead.
    async fn rests(&self) {
        eventually("the coordinator to rest", SOON, async || {
            if self.killed.load(Ordering::SeqCst) {
                return Ok(());
            }
            let plugin = self
                .world
                .plugins()
                .get_opt(&id(1))
                .await
                .map_err(|error| error.to_string())?;
            let inventory = self
                .world
                .inventories()
                .get_opt(&id(1))
                .await
                .map_err(|error| error.to_string())?;
            match (&self.version, plugin) {
                (None, None) if inventory.is_none() => Ok(()),
                (Some(_), Some(plugin)) if plugin.spec.version == self.number() => {
                    let conditions = plugin.status.unwrap_or_default().conditions;
                    let mut ready = conditions.iter().filter(|condition| condition.type_ == "Ready");
                    let rests = ready.any(|condition| {
                        let is_end = ["Applied", "ForeignObject"].contains(&condition.reason.as_str());
                        is_end && condition.observed_generation == plugin.metadata.generation
                    });
                    if rests { Ok(()) } else { Err(format!("{conditions:?}")) }
                }
                (wanted, found) => Err(format!("{wanted:?}: {found:?}")),
            }
        })
        .await;
    }

    async fn changes(&self, place: Place) {
        if !self.theirs.contains_key(&place) {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"value": "changed"}}}));
            // It may not be there.
            let _ = self
                .api(place)
                .patch(PLACES[place].4, &PatchParams::default(), &patch)
                .await;
        }
    }

    async fn deletes(&self, place: Place) {
        if !self.theirs.contains_key(&place) {
            let _ = self.api(place).delete(PLACES[place].4, &DeleteParams::default()).await;
        }
    }

    async fn relabels(&mut self, place: Place) {
        self.proxy.clear_hook();
        let running = self.running.take().unwrap();
        if !self.killed.swap(false, Ordering::SeqCst) {
            running.stop().await;
        }
        if !self.theirs.contains_key(&place) {
            let patch = Patch::Merge(json!({"metadata": {"labels": {PLUGIN_LABEL: null}}}));
            let taken = self
                .api(place)
                .patch(PLACES[place].4, &PatchParams::default(), &patch)
                .await;
            if let Ok(taken) = taken {
                self.theirs.insert(place, taken.metadata.resource_version);
            }
        }
        self.restart().await;
    }

    async fn creates(&mut self, place: Place) {
        let theirs: DynamicObject = serde_json::from_value(object(place, "theirs")).unwrap();
        if let Ok(created) = self.api(place).create(&PostParams::default(), &theirs).await {
            self.theirs.insert(place, created.metadata.resource_version);
        }
    }

    /// Ends the faults; what is wrong then.
    async fn ends(mut self) -> Vec<String> {
        self.proxy.clear_hook();
        self.revive().await;
        self.rests().await;
        let version = self.version.clone().unwrap_or_default();
        let mut wrong = self.of_others().await;
        let blocked: Vec<Place> = version
            .keys()
            .copied()
            .filter(|place| self.theirs.contains_key(place))
            .collect();
        if !blocked.is_empty() {
            let number = self.number();
            self.world.condition(1, &number, "Stalled", "True ForeignObject").await;
            // The people give way, and the next coordinator looks at once.
            for place in blocked {
                self.theirs.remove(&place);
                self.api(place)
                    .delete(PLACES[place].4, &DeleteParams::default())
                    .await
                    .unwrap();
            }
            self.running.take().unwrap().stop().await;
            self.restart().await;
        }
        if self.version.is_some() {
            self.world.is_ready(1, &self.number()).await;
        }
        self.world.is_quiet_for(Duration::from_secs(1)).await;
        wrong.extend(self.of_others().await);
        let wanted: BTreeSet<String> = version.keys().map(|place| name(*place)).collect();
        let found = self.world.labelled(1).await.unwrap();
        if found != wanted {
            wrong.push(format!("the plugin has {found:?}, not {wanted:?}"));
        }
        let inventory = self.world.inventories().get_opt(&id(1)).await.unwrap();
        let known = inventory.map_or(0, |inventory| inventory.spec.objects().count());
        if known != wanted.len() {
            wrong.push(format!("the inventory has {known} objects, not {}", wanted.len()));
        }
        for (place, value) in version {
            let found = self.api(place).get_opt(PLACES[place].4).await.unwrap();
            let found = found.and_then(|found| found.metadata.annotations.unwrap_or_default().remove("value"));
            if found != Some(value.to_string()) {
                wrong.push(format!("{} has {found:?}, not {value}", name(place)));
            }
        }
        wrong
    }

    /// The objects that are not as others left them.
    async fn of_others(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (place, version) in &self.theirs {
            let found = self.api(*place).get_opt(PLACES[*place].4).await.unwrap();
            if found
                .as_ref()
                .and_then(|found| found.metadata.resource_version.as_ref())
                != version.as_ref()
            {
                wrong.push(format!("{} is not as a person left it: {found:?}", name(*place)));
            }
        }
        let bystander = self.world.configs().get("bystander").await.unwrap();
        if bystander.metadata.resource_version != self.bystander {
            wrong.push(format!("the other plugin's object was written: {bystander:?}"));
        }
        wrong
    }
}

fn object(place: Place, value: &str) -> Value {
    let (api_version, _, kind, namespace, name) = PLACES[place];
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "annotations": {"value": value}}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn name(place: Place) -> String {
    let (_, _, kind, namespace, name) = PLACES[place];
    let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{kind} {namespace}{name}")
}

fn is_counted(request: &ApiRequest) -> bool {
    request.is_write() && !["events", "cloudsyncs", "leases"].contains(&request.resource())
}
