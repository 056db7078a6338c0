//! Killed before or after any of its writes, the controllers end where they end without that, and are quiet then.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidewaiter_coordinator::controllers::RbacSettings;
use tidewaiter_testkit::{ApiProxy, ApiRequest, Moment, eventually, every};

use crate::cluster::{MORE, is_killed, kills};
use crate::objects::id;
use crate::world::{Running, SOON, World, coordinator, on};

/// The cluster's objects of the cloud: the roles by number with what they permit to read, and the bindings by number
/// with their role and namespace. From one state to the other, something of each is created, changed, replaced, moved
/// and deleted.
struct State {
    roles: &'static [(usize, &'static str)],
    bindings: &'static [(usize, usize, &'static str)],
}

impl State {
    /// The desired objects.
    fn wanted(&self) -> BTreeSet<String> {
        let roles = self.roles.iter();
        let roles = roles.flat_map(|(number, resource)| [id(*number), format!("{} gives {resource}", id(*number))]);
        let bindings = self.bindings.iter();
        let bindings = bindings.flat_map(|(number, role, namespace)| {
            let binding = id(*number);
            [binding.clone(), format!("{namespace}/{binding} binds {}", id(*role))]
        });
        roles.chain(bindings).collect()
    }
}

const STATES: [State; 2] = [
    State {
        roles: &[(1, "pods"), (2, "services")],
        bindings: &[(11, 1, ""), (12, 2, "apps"), (13, 1, "apps")],
    },
    State {
        roles: &[(1, "configmaps"), (2, "services"), (3, "nodes")],
        bindings: &[(11, 2, ""), (12, 2, ""), (14, 3, "")],
    },
];

/// The writes from one state to the other.
const WRITES: usize = 13;

const WRITTEN: [&str; 5] = [
    "authorizationroles",
    "authorizationrolebindings",
    "clusterroles",
    "clusterrolebindings",
    "rolebindings",
];

struct Scene {
    world: World,
    proxy: ApiProxy,
}

#[tokio::test]
async fn killed_at_any_write_they_end_the_same_and_are_quiet() {
    let world = World::start().await;
    world.namespace("apps").await;
    let proxy = ApiProxy::start(&world.cluster, &coordinator());
    let scene = Scene { world, proxy };
    scene.becomes(&STATES[0]).await;
    let mut running = scene.start().await;
    scene.ends_as(&STATES[0]).await;
    let mut writes = (1..).step_by(every(3));
    let mut is_over = false;
    while !is_over {
        let nth = writes.next().unwrap();
        assert!(nth <= WRITES + MORE, "more writes than {nth}");
        for (moment, state) in [(Moment::Before, &STATES[1]), (Moment::After, &STATES[0])] {
            let killed = kills(&scene.proxy, &running, nth, moment, is_counted);
            scene.becomes(state).await;
            let is_done = async || scene.found().await == state.wanted();
            if is_killed(&killed, format!("{moment:?} write {nth}"), nth > WRITES, is_done).await {
                scene.proxy.clear_hook();
                running = scene.start().await;
            } else {
                // There is no such write any more.
                is_over = true;
                scene.proxy.clear_hook();
            }
            scene.ends_as(state).await;
        }
    }
    running.stop().await;
    let _running = scene.start().await;
    scene.world.is_quiet().await;
    scene.ends_as(&STATES[0]).await;
}

impl Scene {
    async fn start(&self) -> Running {
        let config = kube::Config::new(self.proxy.url().parse().unwrap());
        self.world.run_with(config, RbacSettings::default(), None).await
    }

    /// The custom resources become these, as the mirror makes them.
    async fn becomes(&self, state: &State) {
        let (roles, bindings) = (self.world.roles(), self.world.bindings());
        for (number, resource) in state.roles {
            self.world.role(&id(*number), &[on(&[resource], &["get"])]).await;
        }
        for (number, role, namespace) in state.bindings {
            self.world.bind_user(&id(*number), &id(*role), "ann", namespace).await;
        }
        delete_others(&bindings, state.bindings.iter().map(|(number, ..)| id(*number))).await;
        delete_others(&roles, state.roles.iter().map(|(number, _)| id(*number))).await;
    }

    /// Waits until there is exactly what belongs to these.
    async fn ends_as(&self, state: &State) {
        let wanted = state.wanted();
        eventually("what belongs to the resources", SOON, async || {
            let found = self.found().await;
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}, wanted {wanted:?}"))
            }
        })
        .await;
    }

    /// The custom resources by name, and what was made of them.
    async fn found(&self) -> BTreeSet<String> {
        let (roles, bindings) = (self.world.roles(), self.world.bindings());
        let mut found: BTreeSet<String> = names(&roles).await.chain(names(&bindings).await).collect();
        found.extend(
            made::<ClusterRole>(&self.world, |role| {
                format!(
                    "{} gives {}",
                    text(role, "/metadata/name"),
                    text(role, "/rules/0/resources/0")
                )
            })
            .await,
        );
        let binds = |binding: &Value| {
            let [namespace, name, role] = ["/metadata/namespace", "/metadata/name", "/roleRef/name"];
            format!(
                "{}/{} binds {}",
                text(binding, namespace),
                text(binding, name),
                text(binding, role)
            )
        };
        found.extend(made::<ClusterRoleBinding>(&self.world, binds).await);
        found.extend(made::<RoleBinding>(&self.world, binds).await);
        found
    }
}

fn is_counted(request: &ApiRequest) -> bool {
    request.is_write() && WRITTEN.contains(&request.resource())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

async fn names<K>(api: &Api<K>) -> impl Iterator<Item = String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let all = api.list(&ListParams::default()).await.unwrap();
    all.into_iter().map(|object| object.name_any())
}

async fn delete_others<K>(api: &Api<K>, kept: impl Iterator<Item = String>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kept: BTreeSet<String> = kept.collect();
    for name in names(api).await.filter(|name| !kept.contains(name)) {
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }
}

/// The objects of a kind that the controllers made.
async fn made<K>(world: &World, words: impl Fn(&Value) -> String) -> Vec<String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let managed = ListParams::default().labels("containership.io/managed=true");
    let all = world.all::<K>().list(&managed).await.unwrap();
    all.into_iter()
        .map(|object| words(&serde_json::to_value(object).unwrap()))
        .collect()
}
