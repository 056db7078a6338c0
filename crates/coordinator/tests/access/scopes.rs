//! Rules and bindings that arrive within the same milliseconds: no rule is in force where it amounts to full control,
//! not for one write.
//!
//! etcd counts all writes in one order. So the watches of roles and of bindings together say what was in force after
//! each write.

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::StreamExt as _;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;
use tidewaiter_coordinator::controllers::RbacSettings;
use tidewaiter_testkit::{Action, ApiProxy, ApiRequest, Gate, eventually};

use crate::world::{Running, SOON, World, apply, apply_as, coordinator, id, on};

/// The last object of each kind that a test makes.
const END: &str = "end";
const SYSTEM: &str = "kube-system";
const ROUNDS: usize = 100;
const MADE: [&str; 3] = ["clusterroles", "clusterrolebindings", "rolebindings"];

/// A revision, an object, and whether it gives from then on what amounts to full control together with an object of the
/// other kind.
type Fact = (u64, String, bool);

struct Scene {
    world: World,
    proxy: ApiProxy,
    role: String,
}

impl Scene {
    /// A cluster with a role to read pods that is bound in an ordinary namespace.
    async fn start() -> Self {
        let world = World::start().await;
        world.namespace("apps").await;
        let proxy = ApiProxy::start(&world.cluster, &coordinator());
        let scene = Self {
            world,
            proxy,
            role: id(),
        };
        scene.permits(false).await;
        scene.world.bind_user(&id(), &scene.role, "ann", "apps").await;
        scene
    }

    async fn run(&self) -> Running {
        let config = kube::Config::new(self.proxy.url().parse().unwrap());
        let running = self.world.run_with(config, RbacSettings::default(), None).await;
        self.world.becomes("ann", ("get", "pods", "apps"), true).await;
        running
    }

    /// The role permits to read pods, and perhaps Secrets.
    async fn permits(&self, secrets: bool) {
        let rules = [on(&["pods"], &["get"]), on(&["secrets"], &["get"])];
        self.world.role(&self.role, &rules[..=usize::from(secrets)]).await;
    }

    /// Holds requests of the coordinator.
    fn holds(&self, which: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Gate {
        let gate = Gate::new();
        let held = gate.clone();
        self.proxy.on(which, move || Action::Hold(held.clone()));
        gate
    }

    async fn has_secrets(&self) -> bool {
        let role: ClusterRole = self.world.all().get(&self.role).await.unwrap();
        permits_secrets(&role)
    }

    /// In which places the role is bound that are system namespaces or the whole cluster.
    async fn places(&self) -> Vec<String> {
        let (all, within): (Api<ClusterRoleBinding>, Api<RoleBinding>) = (self.world.all(), self.world.within(SYSTEM));
        let params = ListParams::default();
        let (all, within) = tokio::join!(all.list(&params), within.list(&params));
        let all = all
            .unwrap()
            .items
            .into_iter()
            .map(|it| (it.role_ref.name, String::new()));
        let within = within.unwrap().items.into_iter();
        let within = within.map(|it| (it.role_ref.name, SYSTEM.to_owned()));
        let ours = all.chain(within).filter(|(role, _)| *role == self.role);
        ours.map(|(_, place)| place).collect()
    }

    /// Waits until the role is bound in this place only, and permits what it may there.
    async fn settles(&self, secrets: bool, place: Option<&str>) {
        let wanted = (secrets && place.is_none(), Vec::from_iter(place.map(str::to_owned)));
        eventually(format!("{wanted:?}"), SOON, async || {
            let found = (self.has_secrets().await, self.places().await);
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// Does this, and returns the revisions at which the role was bound where a rule of it amounts to full control.
    async fn escalations(&self, changes: impl Future<Output = ()>) -> Vec<u64> {
        let world = &self.world;
        let is_bound = |role: &str, subjects: bool| role == self.role && subjects;
        let changes = async {
            changes.await;
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
            apply(&world.all::<ClusterRole>(), END, json!({"metadata": {"name": END}})).await;
            let end = json!({"metadata": {"name": END}, "roleRef": role});
            apply(&world.all::<ClusterRoleBinding>(), END, end.clone()).await;
            apply(&world.within::<RoleBinding>(SYSTEM), END, end).await;
        };
        let (rules, everywhere, within, ()) = tokio::join!(
            facts(world.all::<ClusterRole>(), |role| {
                role.name_any() == self.role && permits_secrets(role)
            }),
            facts(world.all::<ClusterRoleBinding>(), |it| {
                is_bound(&it.role_ref.name, it.subjects.is_some())
            }),
            facts(world.within::<RoleBinding>(SYSTEM), |it| {
                is_bound(&it.role_ref.name, it.subjects.is_some())
            }),
            changes
        );
        let bindings = everywhere.into_iter().chain(within).map(|fact| (true, fact));
        let mut all: Vec<(bool, Fact)> = rules.into_iter().map(|fact| (false, fact)).chain(bindings).collect();
        all.sort_by_key(|(_, (revision, ..))| *revision);
        let (mut sides, mut escalations) = ([BTreeSet::new(), BTreeSet::new()], Vec::new());
        for (side, (revision, object, gives)) in all {
            let side = &mut sides[usize::from(side)];
            if gives {
                side.insert(object);
            } else {
                side.remove(&object);
            }
            if sides.iter().all(|side| !side.is_empty()) {
                escalations.push(revision);
            }
        }
        escalations
    }
}

fn permits_secrets(role: &ClusterRole) -> bool {
    json!(role.rules).to_string().contains("secrets")
}

/// The facts after each write to an object of the kind, until there is the object [`END`].
async fn facts<K>(api: Api<K>, gives: impl Fn(&K) -> bool) -> Vec<Fact>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let list = api.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    let revision = |object: &K| object.resource_version().unwrap().parse().unwrap();
    let name = |object: &K| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    let fact = |object: &K, gives: bool| (revision(object), name(object), gives);
    let mut facts: Vec<Fact> = list.items.iter().map(|object| fact(object, gives(object))).collect();
    let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    loop {
        match events.next().await.expect("the watch goes on").unwrap() {
            WatchEvent::Added(object) if object.name_any() == END => return facts,
            WatchEvent::Added(object) | WatchEvent::Modified(object) => facts.push(fact(&object, gives(&object))),
            WatchEvent::Deleted(object) => facts.push(fact(&object, false)),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => panic!("{error:?}"),
        }
    }
}

fn writes(resource: &'static str) -> impl Fn(&ApiRequest) -> bool + Send + Sync {
    move |request| request.is_write() && request.resource() == resource
}

async fn is_held(gate: &Gate) {
    eventually("a request that is held", SOON, async || {
        if gate.held() > 0 { Ok(()) } else { Err("none") }
    })
    .await;
}

/// Waits until a wide binding is bound, or waits for its role.
async fn is_decided(scene: &Scene, running: &Running) {
    eventually("the binding to be decided on", SOON, async || {
        let waits = running.metric("tidewaiter_role_bindings_waiting{for=\"role\"}") == Some(1.0);
        if waits || !scene.places().await.is_empty() {
            Ok(())
        } else {
            Err("it is not")
        }
    })
    .await;
}

#[tokio::test]
async fn a_wide_binding_waits_for_rules_that_are_being_written() {
    let scene = Scene::start().await;
    let running = scene.run().await;
    let changes = async {
        let gate = scene.holds(writes("clusterroles"));
        scene.permits(true).await;
        is_held(&gate).await;
        scene.world.bind_user(&id(), &scene.role, "eve", "").await;
        is_decided(&scene, &running).await;
        gate.open();
        scene.settles(true, Some("")).await;
    };
    assert_eq!(Box::pin(scene.escalations(changes)).await, [0_u64; 0]);
    running.stop().await;
}

#[tokio::test]
async fn rules_are_judged_for_a_binding_that_is_being_written_although_the_cloud_lists_it_no_more() {
    let scene = Scene::start().await;
    let running = scene.run().await;
    let changes = async {
        let (gate, wide) = (scene.holds(writes("clusterrolebindings")), id());
        scene.world.bind_user(&wide, &scene.role, "eve", "").await;
        is_held(&gate).await;
        scene.world.delete(&scene.world.bindings(), &wide).await;
        scene.permits(true).await;
        eventually("the rule to be decided on", SOON, async || {
            let refused = running.metric("tidewaiter_role_rules_refused{reason=\"privileged\"}");
            if refused == Some(1.0) || scene.has_secrets().await {
                Ok(())
            } else {
                Err("it is not")
            }
        })
        .await;
        gate.open();
        scene.world.is_gone(&scene.world.bindings(), &wide).await;
        scene.settles(true, None).await;
    };
    assert_eq!(Box::pin(scene.escalations(changes)).await, [0_u64; 0]);
    running.stop().await;
}

/// The process before wrote rules that a cache of this one does not show.
#[tokio::test]
async fn after_a_restart_the_rules_in_the_cluster_count() {
    let scene = Scene::start().await;
    scene.run().await.stop().await;
    let watches = scene.holds(|request: &ApiRequest| request.is_watch() && request.resource() == "clusterroles");
    let running = scene.run().await;
    is_held(&watches).await;
    let changes = async {
        let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
        let labels = json!({"containership.io/managed": "true"});
        let late = json!({"metadata": {"name": scene.role, "labels": labels}, "rules": rules});
        let made: Api<ClusterRole> = scene.world.all();
        apply_as("tidewaiter/authorization-role", &made, &scene.role, late).await;
        scene.world.bind_user(&id(), &scene.role, "eve", "").await;
        is_decided(&scene, &running).await;
        watches.open();
        scene.settles(false, Some("")).await;
    };
    assert_eq!(Box::pin(scene.escalations(changes)).await, [0_u64; 0]);
    running.stop().await;
}

#[tokio::test]
async fn random_changes_of_rules_and_bindings_escalate_at_no_moment() {
    let scene = Scene::start().await;
    let running = scene.run().await;
    let mut random = fastrand::Rng::with_seed(32);
    let binding = id();
    let changes = async {
        for _ in 0..ROUNDS {
            let secrets = random.bool();
            let place = random.choice(["apps", "", SYSTEM]).unwrap();
            let looks = [random.usize(..3), random.usize(..3), random.usize(..8)];
            // In most rounds, what is decided meanwhile is written together.
            let gate = scene.holds(|request| request.is_write() && MADE.contains(&request.resource()));
            if random.u8(..4) == 0 {
                gate.open();
            }
            let of_rules = async {
                passes(&scene, looks[0]).await;
                scene.permits(secrets).await;
            };
            let of_binding = async {
                passes(&scene, looks[1]).await;
                scene.world.bind_user(&binding, &scene.role, "eve", place).await;
            };
            tokio::join!(of_rules, of_binding);
            passes(&scene, looks[2]).await;
            gate.open();
            if random.bool() {
                scene
                    .settles(secrets, Some(place).filter(|place| *place != "apps"))
                    .await;
            }
        }
        scene.permits(true).await;
        scene.world.bind_user(&binding, &scene.role, "eve", "").await;
        scene.settles(true, Some("")).await;
    };
    assert_eq!(Box::pin(scene.escalations(changes)).await, [0_u64; 0]);
    running.stop().await;
}

/// As much time as so many requests take.
async fn passes(scene: &Scene, requests: usize) {
    for _ in 0..requests {
        scene.has_secrets().await;
    }
}
