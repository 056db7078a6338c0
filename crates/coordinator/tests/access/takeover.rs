//! The roles that a Go coordinator left: nobody loses a permission before a person has seen it and agreed.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::CloudSync;
use tidewaiter_coordinator::controllers::RbacSettings;
use tidewaiter_testkit::eventually;

use crate::objects::{Kind, id};
use crate::script::Script;
use crate::world::{SOON, World};

const ADMINS: usize = 1;
const VIEWERS: usize = 2;
const OF_ANN: usize = 11;
const OF_WEB: usize = 12;
const OF_BOB: usize = 13;
const ANN: usize = 21;
const WEB: usize = 22;
const BOB: usize = 23;

const GO: &str = "cloud-coordinator";

fn role(number: usize, groups: &str, resources: &str, verbs: &str) -> Value {
    let mut role = Kind::Role.object(number, 1);
    role["rules"] = json!([{"id": id(number + 900), "type": "kubernetes", "api_groups": [groups], "resources": [resources], "verbs": [verbs]}]);
    role
}

fn binding(number: usize, role: usize, user: usize) -> Value {
    super::cloud::binding(number, role, user, None)
}

struct Scene {
    world: World,
    cloud: Script,
}

impl Scene {
    /// A cluster in which a Go coordinator has run: Ann may do everything, and Web may read pods.
    async fn start() -> Self {
        let (world, cloud) = (World::start().await, Script::start(true).await);
        cloud.list(
            "/roles",
            [role(ADMINS, "*", "*", "*"), role(VIEWERS, "", "pods", "get")],
        );
        cloud.list(
            "/role-bindings",
            [binding(OF_ANN, ADMINS, ANN), binding(OF_WEB, VIEWERS, WEB)],
        );
        let scene = Self { world, cloud };
        for (number, group, resource, verb) in [(ADMINS, "*", "*", "*"), (VIEWERS, "", "pods", "get")] {
            let made = json!({"metadata": managed(number), "rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]});
            scene.by_go::<ClusterRole>(made).await;
        }
        for (number, role, user) in [(OF_ANN, ADMINS, ANN), (OF_WEB, VIEWERS, WEB)] {
            let user = format!("containership.io/user_id#{}", id(user));
            let made = json!({"metadata": managed(number),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": id(role)},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
            scene.by_go::<ClusterRoleBinding>(made).await;
        }
        scene.world.becomes(&id(ANN), ("delete", "nodes", ""), true).await;
        scene.world.becomes(&id(WEB), ("get", "pods", ""), true).await;
        scene
    }

    async fn by_go<K>(&self, object: Value)
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let params = PostParams {
            field_manager: Some(GO.to_owned()),
            ..PostParams::default()
        };
        let object: K = serde_json::from_value(object).unwrap();
        self.world.all().create(&params, &object).await.unwrap();
    }

    /// Ann and Web keep what they have while this runs.
    async fn nobody_loses(&self, changes: impl Future<Output = ()>) {
        let (ann, web) = (id(ANN), id(WEB));
        let watching = async {
            loop {
                assert!(
                    self.world.may(&ann, &[], "delete", "nodes", "").await,
                    "Ann is locked out"
                );
                assert!(self.world.may(&web, &[], "get", "pods", "").await, "Web is locked out");
            }
        };
        tokio::select! {
            () = changes => {}
            () = watching => {}
        }
    }

    /// Waits until the condition Held has the reason; returns its message, and the revision of the held roles.
    async fn held(&self, reason: &str) -> (String, Option<String>) {
        let objects: Api<CloudSync> = self.world.all();
        eventually(format!("Held to be {reason}"), SOON, async || {
            let sync = objects.get("cloud").await.map_err(|error| error.to_string())?;
            let condition = sync.condition("Held").ok_or("there is none")?;
            let (found, message) = (condition.reason.clone(), condition.message.clone());
            let kinds = sync.status.unwrap().kinds;
            let held = kinds
                .into_iter()
                .find(|kind| kind.kind == "ClusterRole")
                .and_then(|kind| kind.held);
            if found == reason {
                Ok((message, held.map(|held| held.revision)))
            } else {
                Err(format!("{found}: {message}"))
            }
        })
        .await
    }

    async fn release(&self, revision: &str) {
        let objects: Api<CloudSync> = self.world.all();
        let annotation = Patch::Merge(json!({"metadata": {"annotations": {"tidewaiter.dev/release": revision}}}));
        objects
            .patch("cloud", &PatchParams::default(), &annotation)
            .await
            .unwrap();
    }

    async fn is_written_by_us(&self, number: usize) {
        let roles: Api<ClusterRole> = self.world.all();
        let ours = |found: &Value| {
            found["metadata"]["managedFields"]
                .to_string()
                .contains("tidewaiter/authorization-role")
        };
        self.world.shows(&roles, &id(number), ours).await;
    }
}

fn managed(number: usize) -> Value {
    json!({"name": id(number), "labels": {"containership.io/managed": "true"}})
}

#[tokio::test]
async fn a_takeover_reports_who_loses_what_and_takes_it_away_when_a_person_agrees() {
    let scene = Scene::start().await;
    let world = &scene.world;
    let running = world.mirrors(&scene.cloud).await;
    let mut revision = String::new();
    scene
        .nobody_loses(async {
            let note = world.event(&id(ADMINS), "RoleHeld").await;
            assert!(
                note.contains("* *.*") && note.contains("tidewaiter release ClusterRole"),
                "{note}"
            );
            let (message, shown) = scene.held("RolesHeld").await;
            let words = [
                &id(ADMINS),
                "* *.*",
                "allowPrivileged: true",
                "tidewaiter release ClusterRole",
            ];
            assert!(words.iter().all(|word| message.contains(*word)), "{message}");
            revision = shown.unwrap();
            // What loses nothing is taken over.
            scene.is_written_by_us(VIEWERS).await;

            // Nobody else gets it, another revision releases nothing, and neither does a restart.
            let bindings = [
                binding(OF_ANN, ADMINS, ANN),
                binding(OF_WEB, VIEWERS, WEB),
                binding(OF_BOB, ADMINS, BOB),
            ];
            scene.cloud.list("/role-bindings", bindings);
            scene.cloud.changed(&["role-bindings"]);
            let note = world.event(&id(OF_BOB), "BindingWaits").await;
            assert!(note.contains("held as another coordinator left it"), "{note}");
            scene.release("0123456789ab").await;
            let objects: Api<CloudSync> = world.all();
            let is_removed = |found: &Value| found["metadata"]["annotations"]["tidewaiter.dev/release"].is_null();
            world.shows(&objects, "cloud", is_removed).await;
        })
        .await;
    running.stop().await;
    let _running = world.mirrors(&scene.cloud).await;
    scene
        .nobody_loses(async {
            scene.held("RolesHeld").await;
            world.is_quiet().await;
        })
        .await;
    assert!(!world.may(&id(BOB), &[], "delete", "nodes", "").await);

    scene.release(&revision).await;
    world.becomes(&id(ANN), ("delete", "nodes", ""), false).await;
    scene.held("NothingHeld").await;
    let roles: Api<ClusterRole> = world.all();
    let is_empty = |found: &Value| found["rules"].as_array().is_none_or(Vec::is_empty);
    world.shows(&roles, &id(ADMINS), is_empty).await;
    world.event(&id(ADMINS), "RulesRefused").await;
    // The bindings are there, for what the role may permit later.
    let bindings: Api<ClusterRoleBinding> = world.all();
    world.shows(&bindings, &id(OF_BOB), |found| !found.is_null()).await;
    assert!(world.may(&id(WEB), &[], "get", "pods", "").await);
}

#[tokio::test]
async fn with_allow_privileged_a_takeover_changes_nothing_and_holds_nothing() {
    let scene = Scene::start().await;
    let settings = RbacSettings {
        allow_privileged: true,
        ..RbacSettings::default()
    };
    let running = scene.world.mirrors_with(settings, &scene.cloud).await;
    scene
        .nobody_loses(async {
            scene.is_written_by_us(ADMINS).await;
            scene.is_written_by_us(VIEWERS).await;
            scene.held("NothingHeld").await;
        })
        .await;
    running.stop().await;
    // It is ours now, so the label does not hold it any more.
    let _running = scene.world.mirrors(&scene.cloud).await;
    scene.world.becomes(&id(ANN), ("delete", "nodes", ""), false).await;
}

/// A rule that the cloud removes goes at once, and a role that is held no longer is not reported.
#[tokio::test]
async fn what_the_cloud_removes_of_a_held_role_goes_at_once() {
    let scene = Scene::start().await;
    let _running = scene.world.mirrors(&scene.cloud).await;
    scene.held("RolesHeld").await;
    // The role has no such rule any more.
    scene.cloud.list(
        "/roles",
        [role(ADMINS, "", "services", "get"), role(VIEWERS, "", "pods", "get")],
    );
    scene.cloud.changed(&["roles"]);
    scene.world.becomes(&id(ANN), ("delete", "nodes", ""), false).await;
    scene.world.becomes(&id(ANN), ("get", "services", ""), true).await;
    scene.held("NothingHeld").await;
}

/// A rule that the cloud still lists stays, also when its coordinator would refuse it.
#[tokio::test]
async fn a_held_role_loses_the_rules_that_the_cloud_does_not_list() {
    let scene = Scene::start().await;
    let _running = scene.world.mirrors(&scene.cloud).await;
    scene.held("RolesHeld").await;
    scene.cloud.list(
        "/roles",
        [role(ADMINS, "", "secrets", "get"), role(VIEWERS, "", "pods", "get")],
    );
    scene.cloud.changed(&["roles"]);
    scene.world.becomes(&id(ANN), ("delete", "nodes", ""), false).await;
    let revision = eventually("the rule that the cloud lists to be held", SOON, async || {
        let (message, revision) = scene.held("RolesHeld").await;
        message.contains("get secrets").then_some(revision).ok_or(message)
    })
    .await;
    assert!(scene.world.may(&id(ANN), &[], "get", "secrets", "").await);
    scene.release(&revision.unwrap()).await;
    scene.world.becomes(&id(ANN), ("get", "secrets", ""), false).await;
    scene.is_written_by_us(ADMINS).await;
}

/// The ceiling holds the role, and not the table.
#[tokio::test]
async fn a_role_that_the_ceiling_holds_is_given_to_nobody_else() {
    let scene = Scene::start().await;
    let ceiling = json!({"metadata": {"name": "ceiling"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    scene.by_go::<ClusterRole>(ceiling).await;
    let settings = RbacSettings {
        ceiling: Some("ceiling".to_owned()),
        allow_privileged: true,
        ..RbacSettings::default()
    };
    let bindings = |of_ann| {
        [
            binding(OF_ANN, ADMINS, of_ann),
            binding(OF_WEB, VIEWERS, WEB),
            binding(OF_BOB, ADMINS, BOB),
        ]
    };
    scene.cloud.list("/role-bindings", bindings(ANN));
    let world = &scene.world;
    let _running = world.mirrors_with(settings, &scene.cloud).await;
    let note = world.event(&id(OF_BOB), "BindingWaits").await;
    assert!(note.contains("held as another coordinator left it"), "{note}");
    assert!(!world.may(&id(BOB), &[], "delete", "nodes", "").await);
    assert!(world.may(&id(ANN), &[], "delete", "nodes", "").await);

    // The binding that gives it is for somebody else now.
    scene.cloud.list("/role-bindings", bindings(WEB));
    scene.cloud.changed(&["role-bindings"]);
    world.becomes(&id(ANN), ("delete", "nodes", ""), false).await;
    let note = world.event(&id(OF_ANN), "BindingWaits").await;
    assert!(note.contains("held as another coordinator left it"), "{note}");
    world.is_quiet().await;
    for user in [WEB, BOB] {
        assert!(!world.may(&id(user), &[], "delete", "nodes", "").await);
    }
}
