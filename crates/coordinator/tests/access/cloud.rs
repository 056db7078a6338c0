//! Beside the mirror: what the cloud lists decides, not its copy in the cluster, and the brake covers role bindings.

use futures::future::join_all;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::AuthorizationRoleBinding;
use tidewaiter_api::names::AUTHORIZATION_ROLE_BINDING_FINALIZER;
use tidewaiter_api::{CloudSync, CloudSyncSpec};
use tidewaiter_testkit::eventually;

use crate::objects::{Kind, id};
use crate::script::Script;
use crate::world::{SOON, World, apply, on};

/// The roles: to read pods, and to read Secrets.
pub const ROLE: usize = 1;
pub const SECRETS: usize = 2;
/// Their bindings: everywhere, and in the namespace `apps`.
pub const EVERYWHERE: usize = 11;
pub const IN_APPS: usize = 12;
const LATER: usize = 13;
/// The users.
pub const ANN: usize = 21;
pub const WEB: usize = 22;
pub const BOB: usize = 23;
pub const EVE: usize = 24;

/// A finalizer of somebody else.
const KEPT: &str = "example.com/keeps";

pub fn role(number: usize, resource: &str, verb: &str) -> Value {
    let mut role = Kind::Role.object(number, 1);
    let permits = json!({"id": id(number + 900), "type": "kubernetes", "api_groups": [""], "resources": [resource], "verbs": [verb]});
    role["rules"] = json!([permits]);
    role
}

/// The role for a user, in a namespace or everywhere.
pub fn binding(number: usize, role: usize, user: usize, namespace: Option<&str>) -> Value {
    let mut binding = Kind::RoleBinding.object(number, 1);
    binding["authorization_role_id"] = json!(id(role));
    binding["user_id"] = json!(id(user));
    binding["namespace"] = json!(namespace);
    binding
}

/// A cluster whose cloud lists two roles and two bindings.
pub struct Scene {
    pub world: World,
    pub cloud: Script,
}

impl Scene {
    pub async fn start() -> Self {
        let (world, cloud) = (World::start().await, Script::start(true).await);
        world.namespace("apps").await;
        let scene = Self { world, cloud };
        scene
            .cloud
            .list("/roles", [role(ROLE, "pods", "get"), role(SECRETS, "secrets", "get")]);
        scene.binds([
            binding(EVERYWHERE, ROLE, ANN, None),
            binding(IN_APPS, SECRETS, WEB, Some("apps")),
        ]);
        scene
    }

    /// The cloud lists these bindings from now on.
    pub fn binds(&self, bindings: impl IntoIterator<Item = Value>) {
        self.cloud.replace("/role-bindings", bindings);
        self.cloud.changed(&["role-bindings"]);
    }

    pub async fn everybody_may(&self) -> bool {
        let (ann, web) = (id(ANN), id(WEB));
        let ann = self.world.may(&ann, &[], "get", "pods", "");
        let web = self.world.may(&web, &[], "get", "secrets", "apps");
        let (ann, web) = tokio::join!(ann, web);
        ann && web
    }

    pub async fn works(&self) {
        eventually("everybody to be allowed", SOON, async || {
            if self.everybody_may().await {
                Ok(())
            } else {
                Err("not yet")
            }
        })
        .await;
    }

    /// Nobody loses a permission while `changes` run, and nothing that gives one is written.
    pub async fn nobody_loses(&self, changes: impl Future<Output = ()>) {
        let mark = self.world.cluster.audit_mark().await;
        let watching = async {
            loop {
                assert!(self.everybody_may().await, "a moment without a permission");
            }
        };
        tokio::select! {
            () = changes => {}
            () = watching => {}
        }
        assert!(self.everybody_may().await, "a permission is gone");
        assert_eq!(self.world.access_written_since(mark).await, [""; 0]);
    }

    /// The role and the binding, each by its uid.
    async fn uids(&self) -> [Option<String>; 2] {
        let role = self.world.roles().get(&id(ROLE)).await.unwrap();
        let binding = self.world.bindings().get(&id(EVERYWHERE)).await.unwrap();
        [role.metadata.uid, binding.metadata.uid]
    }

    /// Waits until the mirror has made both again, and their controllers have seen them.
    async fn restored(&self, before: &[Option<String>; 2]) {
        eventually("other resources", SOON, async || {
            let role = self.world.roles().get_opt(&id(ROLE)).await;
            let binding = self.world.bindings().get_opt(&id(EVERYWHERE)).await;
            let (Ok(Some(role)), Ok(Some(binding))) = (role, binding) else {
                return Err("one of them is gone".to_owned());
            };
            let now = [role.metadata, binding.metadata];
            let lives = |meta: &kube::core::ObjectMeta| meta.finalizers.is_some() && meta.deletion_timestamp.is_none();
            let others = now.iter().zip(before).all(|(now, before)| now.uid != *before);
            if others && now.iter().all(lives) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        })
        .await;
    }

    /// A role that the cloud removes goes, even if its resource stays.
    async fn goes(&self) {
        self.binds([binding(IN_APPS, SECRETS, WEB, Some("apps"))]);
        self.world.becomes(&id(ANN), ("get", "pods", ""), false).await;
        let made: Api<ClusterRoleBinding> = self.world.all();
        self.world.is_gone(&made, &id(EVERYWHERE)).await;
        // One of two: the brake holds the deletion of both.
        self.cloud.replace("/roles", [role(ROLE, "pods", "get")]);
        self.cloud.changed(&["roles"]);
        self.world.becomes(&id(WEB), ("get", "secrets", "apps"), false).await;
        let made: Api<ClusterRole> = self.world.all();
        self.world.is_gone(&made, &id(SECRETS)).await;
    }
}

async fn set_finalizers(bindings: &Api<AuthorizationRoleBinding>, name: &str, finalizers: Value) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    bindings.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_person_who_deletes_the_copies_takes_no_permission_away() {
    let scene = Scene::start().await;
    let _running = scene.world.mirrors(&scene.cloud).await;
    scene.works().await;
    let (roles, bindings, everywhere) = (scene.world.roles(), scene.world.bindings(), id(EVERYWHERE));
    let before = scene.uids().await;
    scene
        .nobody_loses(async {
            scene.world.delete(&roles, &id(ROLE)).await;
            // Somebody's finalizer keeps it for a while; ours does not.
            let both = json!([KEPT, AUTHORIZATION_ROLE_BINDING_FINALIZER]);
            set_finalizers(&bindings, &everywhere, both).await;
            scene.world.delete(&bindings, &everywhere).await;
            let is_kept = |found: &Value| found["metadata"]["finalizers"] == json!([KEPT]);
            scene.world.shows(&bindings, &everywhere, is_kept).await;
            set_finalizers(&bindings, &everywhere, Value::Null).await;
            scene.restored(&before).await;
        })
        .await;
    set_finalizers(&bindings, &everywhere, json!([KEPT])).await;
    scene.goes().await;
}

#[tokio::test]
async fn without_their_definitions_no_permission_goes() {
    let scene = Scene::start().await;
    let _running = scene.world.mirrors(&scene.cloud).await;
    scene.works().await;
    let definitions: Api<CustomResourceDefinition> = scene.world.all();
    let before = scene.uids().await;
    scene
        .nobody_loses(async {
            for name in ["authorizationrolebindings", "authorizationroles"] {
                let name = format!("{name}.auth.containership.io");
                definitions.delete(&name, &DeleteParams::default()).await.unwrap();
                scene.world.is_gone(&definitions, &name).await;
            }
            scene.world.define().await;
            scene.restored(&before).await;
        })
        .await;
    scene.goes().await;
}

#[tokio::test]
async fn what_the_cloud_does_not_list_gives_nothing_and_takes_nothing() {
    let scene = Scene::start().await;
    let _running = scene.world.mirrors(&scene.cloud).await;
    scene.works().await;
    let mark = scene.world.cluster.audit_mark().await;
    // Kept by a finalizer, because the mirror deletes them at once.
    let meta = |name: &str| json!({"name": name, "finalizers": [KEPT]});
    let (roles, bindings) = (scene.world.roles(), scene.world.bindings());
    let spec = json!({"id": id(3), "rules": [on(&["nodes"], &["get"])]});
    apply(&roles, &id(3), json!({"metadata": meta(&id(3)), "spec": spec})).await;
    // To a role of the cloud, to a forged one, and one that would make reading Secrets a permission for the whole
    // cluster.
    for (name, role) in [(id(91), ROLE), (id(92), 3), ("mallory".to_owned(), SECRETS)] {
        let spec = json!({"id": name, "type": "UserBinding", "user_id": id(EVE), "authorization_role_id": id(role)});
        apply(&bindings, &name, json!({"metadata": meta(&name), "spec": spec})).await;
        let is_deleted = |found: &Value| !found["metadata"]["deletionTimestamp"].is_null();
        scene.world.shows(&bindings, &name, is_deleted).await;
    }
    scene.binds([
        binding(EVERYWHERE, ROLE, ANN, None),
        binding(IN_APPS, SECRETS, WEB, Some("apps")),
        binding(LATER, ROLE, BOB, None),
    ]);
    scene.world.becomes(&id(BOB), ("get", "pods", ""), true).await;
    assert!(scene.everybody_may().await);
    for (verb, resource) in [("get", "pods"), ("get", "nodes"), ("get", "secrets")] {
        assert!(!scene.world.may(&id(EVE), &[], verb, resource, "").await, "{resource}");
    }
    let written = scene.world.access_written_since(mark).await;
    assert_eq!(written, [format!("patch clusterrolebindings {}", id(LATER))]);
}

#[tokio::test]
async fn a_binding_to_a_role_without_a_rule_for_clusters_waits_for_nothing_and_works_with_its_first_rule() {
    const EMPTY: usize = 3;
    let scene = Scene::start().await;
    scene.binds([
        binding(EVERYWHERE, ROLE, ANN, None),
        binding(IN_APPS, SECRETS, WEB, Some("apps")),
        binding(LATER, EMPTY, BOB, None),
    ]);
    let running = scene.world.mirrors(&scene.cloud).await;
    scene.works().await;
    let is_there = |found: &Value| !found.is_null();
    scene.world.shows(&scene.world.bindings(), &id(LATER), is_there).await;
    scene.world.is_quiet().await;
    let waiting = running.metric("tidewaiter_role_bindings_waiting{for=\"role\"}");
    assert_eq!(waiting, Some(0.0));
    let events: Api<Event> = scene.world.within("containership-core");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let reasons: Vec<_> = events.into_iter().filter_map(|event| event.reason).collect();
    assert!(!reasons.contains(&"BindingWaits".to_owned()), "{reasons:?}");

    let roles = || [role(ROLE, "pods", "get"), role(SECRETS, "secrets", "get")];
    scene
        .cloud
        .list("/roles", roles().into_iter().chain([role(EMPTY, "nodes", "get")]));
    scene.cloud.changed(&["roles"]);
    scene.world.becomes(&id(BOB), ("get", "nodes", ""), true).await;
    scene.cloud.replace("/roles", roles());
    scene.cloud.changed(&["roles"]);
    scene.world.becomes(&id(BOB), ("get", "nodes", ""), false).await;
    let made: Api<ClusterRoleBinding> = scene.world.all();
    scene.world.is_gone(&made, &id(LATER)).await;
}

async fn sync(world: &World) -> CloudSync {
    let objects: Api<CloudSync> = world.all();
    let found = objects.get_opt("cloud").await.unwrap();
    found.unwrap_or_else(|| CloudSync::new("cloud", CloudSyncSpec {}))
}

/// Waits until the condition Held has this reason; returns its message.
async fn holds(world: &World, reason: &str) -> String {
    eventually(format!("Held to be {reason}"), SOON, async || {
        let sync = sync(world).await;
        let condition = sync.condition("Held").ok_or("there is none")?;
        if condition.reason == reason {
            Ok(condition.message.clone())
        } else {
            Err(format!("{}: {}", condition.reason, condition.message))
        }
    })
    .await
}

/// Waits until the cloud was asked for the bindings twice more.
async fn polled(cloud: &Script) {
    let before = cloud.requests("/role-bindings");
    eventually("two more requests", SOON, async || {
        let now = cloud.requests("/role-bindings");
        if now >= before + 2 { Ok(()) } else { Err(now - before) }
    })
    .await;
}

/// The users that get a permission at once.
const EVERYBODY: std::ops::Range<usize> = 30..43;

/// The number of them that may do it.
async fn allowed(world: &World, verb: &str) -> usize {
    let reviews = EVERYBODY.map(async |user| world.may(&id(user), &[], verb, "pods", "").await);
    join_all(reviews).await.into_iter().filter(|allowed| *allowed).count()
}

async fn are_allowed(world: &World, verb: &str, count: usize) {
    eventually(format!("{count} users to {verb} pods"), SOON, async || {
        match allowed(world, verb).await {
            found if found == count => Ok(()),
            found => Err(found),
        }
    })
    .await;
}

#[tokio::test]
async fn a_cloud_that_loses_its_bindings_is_held_and_one_that_adds_one_for_everybody_is_not() {
    let (world, cloud) = (World::start().await, Script::start(true).await);
    let binds = |bindings: Vec<Value>| {
        cloud.list("/role-bindings", bindings);
        cloud.changed(&["role-bindings"]);
    };
    let reads = || EVERYBODY.map(|user| binding(user + 100, ROLE, user, None));
    let deletes = || EVERYBODY.map(|user| binding(user + 200, SECRETS, user, None));
    cloud.list("/roles", [role(ROLE, "pods", "get"), role(SECRETS, "pods", "delete")]);
    binds(reads().collect());
    let _running = world.mirrors(&cloud).await;
    are_allowed(&world, "get", EVERYBODY.len()).await;

    binds(Vec::new());
    holds(&world, "DeletionsHeld").await;
    polled(&cloud).await;
    assert_eq!(allowed(&world, "get").await, EVERYBODY.len());
    binds(reads().collect());
    holds(&world, "NothingHeld").await;
    assert_eq!(allowed(&world, "get").await, EVERYBODY.len());

    binds(reads().chain(deletes()).collect());
    are_allowed(&world, "delete", EVERYBODY.len()).await;
    assert_eq!(allowed(&world, "get").await, EVERYBODY.len());
    holds(&world, "NothingHeld").await;
}
