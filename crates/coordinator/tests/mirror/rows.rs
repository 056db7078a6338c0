//! The listed objects are in the cluster, nothing else is, and nothing is written twice.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_coordinator::mirror::{MassDeletion, RegistryCredentialsIn};
use tidewaiter_kit::{Clock as _, SystemClock};
use tidewaiter_testkit::eventually;

use crate::script::{Script, id, label, registry, user};
use crate::world::{SOON, World, names};

/// An interval after which nothing is polled within a test, however slow the machine is.
const NEVER: Duration = Duration::from_hours(1);

#[tokio::test]
async fn what_is_in_the_cloud_is_created_updated_and_deleted_in_the_cluster() {
    let world = World::start().await;
    world.cloud.list("/ssh-users", [user(1, "Ada"), user(2, "Grace")]);
    world.cloud.list("/labels", [label(3, "a")]);
    let first = world.coordinator().await;
    world.users_are(&["Ada", "Grace"]).await;
    assert_eq!(world.event("SyncCreate").await.1, "Created as the cloud lists it.");
    world.condition("Synced", "True Applied").await;

    world
        .cloud
        .list("/ssh-users", [user(1, "Ada Lovelace"), user(2, "Grace")]);
    world.users_are(&["Ada Lovelace", "Grace"]).await;
    assert_eq!(world.event("SyncUpdate").await.0, format!("User/{}", id(1)));
    world.cloud.replace("/ssh-users", [user(1, "Ada Lovelace")]);
    world.users_are(&["Ada Lovelace"]).await;
    assert_eq!(world.event("SyncDelete").await.0, format!("User/{}", id(2)));

    // Nothing is written when nothing differs: neither now nor after a restart.
    eventually("CloudSync to count one user", SOON, async || {
        let kinds = world.sync().await.status.unwrap_or_default().kinds;
        let users = kinds.into_iter().find(|kind| kind.kind == "User");
        let count = users.map_or(0, |kind| kind.objects);
        if count == 1 { Ok(()) } else { Err(count) }
    })
    .await;
    let mark = world.plane.audit_mark().await;
    world.polled("/ssh-users", 3).await;
    assert_eq!(world.written_since(mark).await, [""; 0]);
    first.stop().await;
    let _second = world.coordinator().await;
    world.polled("/ssh-users", 3).await;
    let written = world.written_since(mark).await;
    // On a slow machine CloudSync says for a moment that it waits for the first lists.
    assert!(written.iter().all(|write| write.contains("cloudsyncs")), "{written:?}");
    world.quiet().await;
}

#[tokio::test]
async fn the_end_of_a_user_is_mirrored_and_reported_and_deletes_nothing() {
    let world = World::start().await;
    let end = SystemClock.now() + SignedDuration::from_secs(10);
    let end = Timestamp::from_second(end.as_second()).unwrap().to_string();
    let mut ada = user(1, "Ada");
    ada["expires_at"] = json!(end);
    world.cloud.list("/ssh-users", [ada, user(2, "Grace")]);
    let _running = world.coordinator().await;
    let (about, note) = world.event("AccessEnded").await;
    assert_eq!(about, format!("User/{}", id(1)));
    assert!(note.contains(&end), "{note}");
    world.users_are(&["Ada", "Grace"]).await;
    let mirrored = world.users().get(&id(1)).await.unwrap();
    assert_eq!(mirrored.spec.expires_at, end);
}

#[tokio::test]
async fn the_end_of_a_user_is_announced_a_day_before() {
    let world = World::start().await;
    let end = SystemClock.now() + SignedDuration::from_hours(24) + SignedDuration::from_secs(5);
    let end = Timestamp::from_second(end.as_second()).unwrap().to_string();
    let mut ada = user(1, "Ada");
    ada["expires_at"] = json!(end);
    world.cloud.list("/ssh-users", [ada]);
    let _running = world.coordinator().await;
    let (about, note) = world.event("AccessEndsSoon").await;
    assert_eq!(about, format!("User/{}", id(1)));
    assert!(note.contains(&end), "{note}");
}

#[tokio::test]
async fn what_somebody_changes_in_the_cluster_is_undone_without_a_request_to_the_cloud() {
    let mut world = World::with(Script::start(true).await).await;
    world.interval = NEVER;
    world.cloud.list("/ssh-users", [user(1, "Ada"), user(2, "Grace")]);
    let _running = world.coordinator().await;
    world.users_are(&["Ada", "Grace"]).await;
    world.condition("Synced", "True Applied").await;
    let requests = world.asked("/ssh-users").await;

    world.users().delete(&id(1), &DeleteParams::default()).await.unwrap();
    world.users_are(&["Ada", "Grace"]).await;
    let edit = json!({"spec": {"name": "Mallory", "added": "by somebody"}});
    let merge = Patch::Merge(edit);
    world
        .users()
        .patch(&id(2), &PatchParams::default(), &merge)
        .await
        .unwrap();
    world.users_are(&["Ada", "Grace"]).await;
    // What somebody added is gone, too.
    let api: kube::Api<kube::core::DynamicObject> = dynamic(&world);
    eventually("the added field to be gone", SOON, async || {
        let user = api.get(&id(2)).await.unwrap();
        let spec: &Value = &user.data["spec"];
        if spec.get("added").is_none() {
            Ok(())
        } else {
            Err(spec.to_string())
        }
    })
    .await;
    assert_eq!(world.cloud.requests("/ssh-users"), requests);

    // An object that the cloud does not list is deleted.
    let mut intruder = world.users().get(&id(1)).await.unwrap();
    intruder.metadata = kube::core::ObjectMeta {
        name: Some("intruder".to_owned()),
        ..Default::default()
    };
    intruder.spec.id = "intruder".to_owned();
    world.users().create(&PostParams::default(), &intruder).await.unwrap();
    world.users_are(&["Ada", "Grace"]).await;
}

fn dynamic(world: &World) -> kube::Api<kube::core::DynamicObject> {
    use kube::Resource as _;
    use tidewaiter_api::containership::User;
    let resource = kube::api::ApiResource {
        group: User::group(&()).into_owned(),
        version: User::version(&()).into_owned(),
        api_version: User::api_version(&()).into_owned(),
        kind: User::kind(&()).into_owned(),
        plural: User::plural(&()).into_owned(),
    };
    kube::Api::namespaced_with(world.client(), crate::world::NAMESPACE, &resource)
}

#[tokio::test]
async fn a_change_arrives_by_the_stream_and_only_what_changed_is_listed() {
    let mut world = World::with(Script::start(true).await).await;
    world.interval = NEVER;
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    let roles = world.asked("/roles").await;
    world.cloud.list("/ssh-users", [user(1, "Ada")]);
    world.cloud.changed(&["users"]);
    world.users_are(&["Ada"]).await;
    assert_eq!(world.cloud.requests("/roles"), roles);
}

#[tokio::test]
async fn credentials_are_in_a_secret_or_in_the_registry_and_nowhere_else() {
    let mut world = World::start().await;
    world.cloud.list("/registries", [registry(1, "hunter2 one")]);
    let running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    let name = format!("registry-{}", id(1));
    let secret = world.secrets().get(&name).await.unwrap();
    let data = secret.data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    assert_eq!(text("serveraddress"), "registry.example.org");
    let credentials: Value = serde_json::from_str(&text("credentials.json")).unwrap();
    assert_eq!(credentials, json!({"username": "puller", "password": "hunter2 one"}));
    let found = serde_json::to_string(&world.registries().get(&id(1)).await.unwrap()).unwrap();
    assert!(!found.contains("hunter2"), "{found}");
    let sync = serde_json::to_string(&world.sync().await).unwrap();
    assert!(!sync.contains("hunter2"), "{sync}");
    running.stop().await;

    world.credentials = RegistryCredentialsIn::Inline;
    let _running = world.coordinator().await;
    eventually("the credentials in the Registry", SOON, async || {
        let found = world.registries().get(&id(1)).await.unwrap().spec.credentials;
        let password = found.get("password").ok_or("there is no password")?;
        if password.expose() == "hunter2 one" {
            Ok(())
        } else {
            Err("another")
        }
    })
    .await;
    eventually("the Secret to be gone", SOON, async || {
        let found = world.secrets().get_opt(&name).await.unwrap();
        if found.is_none() { Ok(()) } else { Err("it exists") }
    })
    .await;
}

#[tokio::test]
async fn an_upgrade_that_nothing_continues_is_reported() {
    let world = World::start().await;
    let upgrade =
        json!({"metadata": {"name": "by-hand"}, "spec": {"id": "", "type": "kubernetes", "targetVersion": "v1.30.1"}});
    let upgrade = serde_json::from_value(upgrade).unwrap();
    world.upgrades().create(&PostParams::default(), &upgrade).await.unwrap();
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    let set = async |status: &str| {
        let progress = Patch::Merge(json!({"spec": {"status": {"clusterStatus": status}}}));
        let patched = world
            .upgrades()
            .patch("by-hand", &PatchParams::default(), &progress)
            .await;
        patched.unwrap();
    };
    set("InProgress").await;
    let message = world.condition("Synced", "False UpgradesDisabled").await;
    assert!(
        message.contains("the upgrade by-hand is in progress, and upgrades are disabled"),
        "{message}"
    );
    world.event("UpgradesDisabled").await;
    set("Failed").await;
    world.condition("Synced", "True Applied").await;
}

#[tokio::test]
async fn an_upgrade_that_the_cloud_put_beside_the_go_coordinator_is_adopted_with_its_progress() {
    let world = World::start().await;
    let upgrade: ClusterUpgrade = serde_json::from_value(json!({
        "metadata": {"name": id(7), "labels": {"containership.io/managed": "true"}},
        "spec": {"id": id(7), "type": "kubernetes", "addedAt": "1551441600", "description": "old", "targetVersion": "v1.30.2",
            "labelSelector": [], "nodeTimeoutSeconds": 900, "status": {"clusterStatus": "Success"}},
    }))
    .unwrap();
    let by = PostParams {
        field_manager: Some("coordinator".to_owned()),
        ..PostParams::default()
    };
    world.upgrades().create(&by, &upgrade).await.unwrap();
    world.cloud.list(
        "/upgrades",
        [
            json!({"id": id(7), "addedAt": "1551441600", "type": "kubernetes", "description": "new",
        "targetVersion": "v1.30.2", "labelSelector": [], "nodeTimeoutSeconds": 900, "status": null}),
        ],
    );
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    let found = world.upgrades().get(&id(7)).await.unwrap();
    assert_eq!(found.spec.description, "new");
    assert!(found.spec.status.is_some(), "its progress is the upgrade controller's");
}

#[tokio::test]
async fn an_upgrade_of_a_person_is_left_alone() {
    let world = World::start().await;
    let upgrade = |name: &str, id: &str| {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"containership.io/managed": "true"}},
            "spec": {"id": id, "type": "kubernetes", "targetVersion": "v1.30.1"},
        }))
        .unwrap()
    };
    for (name, spec_id) in [("by-hand", ""), (&*id(8), &*id(8))] {
        world
            .upgrades()
            .create(&PostParams::default(), &upgrade(name, spec_id))
            .await
            .unwrap();
    }
    world.cloud.list(
        "/upgrades",
        [
            json!({"id": id(9), "addedAt": "1551441600", "type": "kubernetes", "description": "",
        "targetVersion": "v1.30.2", "labelSelector": [], "nodeTimeoutSeconds": 900, "status": null}),
        ],
    );
    let _running = world.coordinator().await;
    let all = async || names(world.upgrades().list(&ListParams::default()).await.unwrap());
    eventually("the upgrade", SOON, async || {
        let found = all().await;
        if found.contains(&id(9)) {
            Ok(())
        } else {
            Err(found.join(" "))
        }
    })
    .await;
    // Its progress is the upgrade controller's.
    let progress = json!({"spec": {"status": {"clusterStatus": "InProgress", "currentNode": "a"}}});
    let merge = Patch::Merge(progress);
    world
        .upgrades()
        .patch(&id(9), &PatchParams::default(), &merge)
        .await
        .unwrap();
    world.polled("/upgrades", 3).await;
    assert_eq!(
        world
            .upgrades()
            .get(&id(9))
            .await
            .unwrap()
            .spec
            .status
            .unwrap()
            .current_node,
        "a"
    );
    world.cloud.deleted("upgrades", [9]);
    world.cloud.list("/upgrades", []);
    eventually("only the others", SOON, async || {
        let found = all().await;
        if found == ["by-hand".to_owned(), id(8)] {
            Ok(())
        } else {
            Err(found.join(" "))
        }
    })
    .await;
}

#[tokio::test]
async fn the_policy_of_an_upgrade_is_what_the_cloud_sets_and_what_the_cluster_adds() {
    let world = World::start().await;
    let upgrade = |policy: serde_json::Value| {
        json!({"id": id(9), "addedAt": "1551441600", "type": "kubernetes", "description": "", "targetVersion": "v1.30.2",
            "labelSelector": [], "nodeTimeoutSeconds": 900, "status": null, "policy": policy})
    };
    let window = json!([{"days": ["Fri"], "start": "22:00", "end": "04:00", "timeZone": "Europe/Berlin"}]);
    world.cloud.list(
        "/upgrades",
        [upgrade(
            json!({"drain": true, "canary": 1, "maintenanceWindows": window}),
        )],
    );
    let _running = world.coordinator().await;
    let is = async |wanted: serde_json::Value| {
        eventually(format!("the policy {wanted}"), SOON, async || {
            let object = world.upgrades().get(&id(9)).await.map_err(|error| error.to_string())?;
            let policy = serde_json::to_value(object.spec.policy).unwrap();
            if policy == wanted {
                Ok(())
            } else {
                Err(policy.to_string())
            }
        })
        .await;
    };
    is(json!({"drain": true, "canary": 1, "maintenanceWindows": window})).await;
    // What the cloud sets is undone, and what it does not set is the cluster's: somebody may pause it while the cloud
    // is away.
    let edit = json!({"spec": {"policy": {"drain": false, "canary": 9, "maintenanceWindows": [], "paused": true, "maxFailures": 2}}});
    world
        .upgrades()
        .patch(&id(9), &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    is(json!({"drain": true, "canary": 1, "maintenanceWindows": window, "paused": true, "maxFailures": 2})).await;
    world
        .cloud
        .list("/upgrades", [upgrade(json!({"aborted": true, "maxFailures": 1}))]);
    is(json!({"aborted": true, "paused": true, "maxFailures": 1})).await;
    world.cloud.list("/upgrades", [upgrade(json!(null))]);
    is(json!({"paused": true})).await;
}

#[tokio::test]
async fn node_pools_become_groups_and_labels() {
    let world = World::start().await;
    let pool = |enabled: bool| {
        json!({"id": id(5), "status": {"type": "RUNNING", "percent": 100}, "name": "workers", "os": null, "count": 3, "docker_version": "",
            "kubernetes_mode": "worker", "kubernetes_version": "1.30.1", "etcd": false, "etcd_version": null,
            "is_schedulable": true, "autoscaling": {"enabled": enabled, "min_nodes": 1, "max_nodes": 5}})
    };
    world.cloud.list("/node-pools", [pool(true)]);
    let of_pool = json!({"id": id(6), "created_at": "1551441600000", "updated_at": "1551441600000",
        "key": "nodepool.containership.io/tier", "value": "db", "node_pool_id": id(5)});
    world
        .cloud
        .list("/cccccccc-0000-4000-8000-000000000005/labels", [of_pool]);
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    let client = world.client();
    let groups: kube::Api<tidewaiter_api::containership::AutoscalingGroup> = kube::Api::all(client.clone());
    let group = groups.get(&id(5)).await.unwrap();
    assert_eq!(
        (group.spec.min_nodes, group.spec.max_nodes, &*group.spec.engine),
        (1, 5, "containership")
    );
    let labels: kube::Api<tidewaiter_api::containership::NodePoolLabel> =
        kube::Api::namespaced(client, crate::world::NAMESPACE);
    let label = labels.get(&id(6)).await.unwrap();
    assert_eq!(label.metadata.labels.unwrap()["containership.io/node-pool-id"], id(5));

    world.cloud.list("/node-pools", [pool(false)]);
    eventually("the group to be gone", SOON, async || {
        let found = groups.get_opt(&id(5)).await.unwrap();
        if found.is_none() { Ok(()) } else { Err("it exists") }
    })
    .await;
}

#[tokio::test]
async fn a_release_is_for_one_revision_and_is_used_once() {
    let mut world = World::start().await;
    world.mass_deletion = MassDeletion::Release;
    let all = ["a", "b", "c", "d", "e", "f"];
    let users = || all.iter().enumerate().map(|(number, name)| user(number, name));
    world.cloud.list("/ssh-users", users());
    let _running = world.coordinator().await;
    world.users_are(&all).await;
    world.cloud.list("/ssh-users", []);
    let message = world.condition("Held", "True DeletionsHeld").await;
    assert!(message.contains("6 of 6 User"), "{message}");
    world.polled("/ssh-users", 3).await;
    world.users_are(&all).await;

    annotate(&world, "0123456789ab").await;
    let (_, note) = world.event("ReleaseUnknown").await;
    let kinds = world.sync().await.status.unwrap().kinds;
    let held = kinds.iter().find_map(|kind| kind.held.clone()).unwrap();
    assert!(note.contains(&held.revision), "{note}");
    world.users_are(&all).await;
    annotate(&world, &held.revision).await;
    world.users_are(&[]).await;
    world.event("ReleaseEnded").await;
    world.condition("Held", "False NothingHeld").await;

    // The same accident again is held again.
    world.cloud.list("/ssh-users", users());
    world.users_are(&all).await;
    world.cloud.list("/ssh-users", []);
    world.condition("Held", "True DeletionsHeld").await;
    world.users_are(&all).await;
}

/// The lists of two kinds are empty at once, with the same `ETag`.
#[tokio::test]
async fn a_release_of_one_kind_releases_no_other_one() {
    let mut world = World::start().await;
    world.mass_deletion = MassDeletion::Release;
    let all = ["a", "b", "c", "d", "e", "f"];
    let users = all.iter().enumerate().map(|(number, name)| user(number, name));
    world.cloud.list("/ssh-users", users);
    world.cloud.list("/labels", (10..16).map(|number| label(number, "a")));
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    world.cloud.list("/ssh-users", []);
    world.cloud.list("/labels", []);
    let held = eventually("both to be held", SOON, async || {
        let kinds = world.sync().await.status.unwrap_or_default().kinds;
        let held = |kind: &str| kinds.iter().find(|known| known.kind == kind)?.held.clone();
        held("User").zip(held("ClusterLabel")).ok_or("one of them is not")
    });
    let (users, labels) = held.await;
    annotate(&world, &users.revision).await;
    world.users_are(&[]).await;
    world.event("ReleaseEnded").await;
    let left = world.labels().list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.len(), 6);
    annotate(&world, &labels.revision).await;
    eventually("the labels to be gone", SOON, async || {
        let left = world.labels().list(&ListParams::default()).await.unwrap().items.len();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

async fn annotate(world: &World, revision: &str) {
    let objects: kube::Api<tidewaiter_api::CloudSync> = kube::Api::all(world.client());
    let annotation = json!({"metadata": {"annotations": {"tidewaiter.dev/release": revision}}});
    let merge = Patch::Merge(annotation);
    objects.patch("cloud", &PatchParams::default(), &merge).await.unwrap();
}
