//! A coordinator that starts while the cloud is away: it goes by the last list that the process before it stored.

use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use tidewaiter_api::names::{CLOUD_LIST_LABEL, cloud_list_secret};
use tidewaiter_testkit::{eventually, leaks};

use crate::objects::{KINDS, Kind, POOL, id, pool};
use crate::script::{Answer, Script, registry};
use crate::world::{NAMESPACE, SOON, World, names};

/// The kinds whose list is stored.
fn stored() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().filter(|kind| *kind != Kind::Upgrade)
}

/// The objects of this resource, in the namespace of the mirror if they have one.
pub fn api(world: &World, resource: &str, group: &str) -> Api<DynamicObject> {
    let (group, version) = group.split_once('/').unwrap_or(("", group));
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, ""), resource);
    if ["autoscalinggroups", "autoscalingpolicies"].contains(&resource) {
        Api::all_with(world.client(), &kind)
    } else {
        Api::namespaced_with(world.client(), NAMESPACE, &kind)
    }
}

/// Each kind has these objects in the cloud.
fn lists(world: &World, objects: &[(usize, usize)]) {
    for kind in KINDS {
        let pools = (kind == Kind::AutoscalingGroup).then(|| pool(POOL, None));
        let objects = objects.iter().map(|(number, value)| kind.object(*number, *value));
        let objects = pools.into_iter().chain(objects);
        world.cloud.list(format!("/{}", kind.path()), objects);
    }
}

fn leaves(world: &World) {
    for kind in KINDS {
        let away = Answer::Exactly(503, vec![], "away".to_owned());
        world.cloud.set(format!("/{}", kind.path()), away);
    }
}

/// The cluster's state of an object of each kind, by resource.
async fn shown(world: &World, number: usize) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    for (resource, group) in stored().flat_map(Kind::resources) {
        let found = api(world, resource, group)
            .get_opt(&Kind::name(resource, number))
            .await
            .unwrap();
        let alive = found.filter(|found| found.metadata.deletion_timestamp.is_none());
        let text = alive.map(|object| Kind::shown(resource, &serde_json::to_value(object).unwrap()));
        all.push(((*resource).to_owned(), text));
    }
    all
}

async fn has(world: &World, number: usize, value: usize) {
    eventually(format!("object {number} of each kind"), SOON, async || {
        let wrong: Vec<_> = shown(world, number).await;
        let wrong: Vec<_> = wrong
            .into_iter()
            .filter(|(_, text)| *text != Some(format!("v{value}")))
            .collect();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(format!("{wrong:?}"))
        }
    })
    .await;
}

/// Waits until the list of each kind is stored as it is.
async fn is_stored(world: &World, parts: usize) {
    let lists = ListParams::default().labels(CLOUD_LIST_LABEL);
    eventually(format!("{parts} Secrets"), SOON, async || {
        let mut found = names(world.secrets().list(&lists).await.unwrap());
        // That the cloud has a record of deletions is stored when it is first asked for.
        found.retain(|name| name != "tidewaiter-list-deletions");
        if found.len() == parts {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    world.quiet().await;
}

/// An edit of what the object shows, by somebody.
async fn edit(world: &World, number: usize) {
    for (resource, group) in stored().flat_map(Kind::resources) {
        let patch = match *resource {
            "users" => json!({"spec": {"name": "edited", "ssh_keys": []}}),
            "secrets" => json!({"stringData": {"credentials.json": "{\"username\": \"evil\"}"}}),
            "clusterlabels" | "nodepoollabels" => json!({"spec": {"value": "edited"}}),
            "authorizationrolebindings" => json!({"spec": {"namespace": "edited"}}),
            "autoscalingpolicies" => json!({"spec": {"metric": "edited"}}),
            "autoscalinggroups" => json!({"spec": {"maxNodes": 77}}),
            _ => json!({"spec": {"description": "edited"}}),
        };
        let name = Kind::name(resource, number);
        let api = api(world, resource, group);
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }
}

async fn delete(world: &World, number: usize) {
    for (resource, group) in stored().flat_map(Kind::resources) {
        let (api, name) = (api(world, resource, group), Kind::name(resource, number));
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        // The controllers of roles and bindings do not run here. Before the deletion, the mirror would put the
        // finalizer back.
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match api.patch(&name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            patched => drop(patched.unwrap()),
        }
    }
}

/// A copy of object 1 of each kind under another id.
async fn forge(world: &World, number: usize) {
    for (resource, group) in stored().flat_map(Kind::resources) {
        let api = api(world, resource, group);
        let original = api.get(&Kind::name(resource, 1)).await.unwrap();
        let mut forged: Value =
            serde_json::from_str(&json!(original).to_string().replace(&id(1), &id(number))).unwrap();
        forged["metadata"] = json!({"name": Kind::name(resource, number), "labels": forged["metadata"]["labels"]});
        let params = PatchParams::apply("somebody").force();
        api.patch(&Kind::name(resource, number), &params, &Patch::Apply(forged))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn without_the_cloud_edits_are_undone_and_deleted_objects_are_back() {
    let world = World::with(Script::start(true).await).await;
    lists(&world, &[(1, 1), (2, 1)]);
    let running = world.coordinator().await;
    has(&world, 1, 1).await;
    world.condition("Synced", "True Applied").await;
    is_stored(&world, 10).await;
    lists(&world, &[(1, 2), (2, 2)]);
    world.cloud.changed(&KINDS.map(Kind::changed));
    has(&world, 2, 2).await;
    is_stored(&world, 10).await;
    running.stop().await;

    leaves(&world);
    edit(&world, 1).await;
    delete(&world, 2).await;
    forge(&world, 3).await;
    let running = world.coordinator().await;
    has(&world, 1, 2).await;
    has(&world, 2, 2).await;
    // And again, after the first pass.
    edit(&world, 2).await;
    delete(&world, 1).await;
    has(&world, 1, 2).await;
    has(&world, 2, 2).await;
    // It is not known that the cloud does not list it.
    let forged = shown(&world, 3).await;
    assert!(forged.iter().all(|(_, text)| text.is_some()), "{forged:?}");
    world.condition("Synced", "False ListFailed").await;
    running.stop().await;

    // The cloud is back: what it does not list goes, and at rest nothing is written.
    lists(&world, &[(1, 2), (2, 2)]);
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    eventually("the forged objects to be gone", SOON, async || {
        let left = shown(&world, 3).await;
        if left.iter().all(|(_, text)| text.is_none()) {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    is_stored(&world, 10).await;
}

#[tokio::test]
async fn a_stored_list_that_somebody_deletes_or_damages_is_stored_again() {
    let world = World::start().await;
    lists(&world, &[(1, 1), (2, 1)]);
    let _running = world.coordinator().await;
    has(&world, 2, 1).await;
    is_stored(&world, 10).await;
    let (deleted, damaged) = (cloud_list_secret("users", 0), cloud_list_secret("roles", 0));
    let data = async |name: &str| {
        world
            .secrets()
            .get_opt(name)
            .await
            .unwrap()
            .and_then(|secret| secret.data)
            .map(|mut data| {
                // What the brake counts leaves its window meanwhile.
                data.remove("brake");
                data
            })
    };
    let before = [data(&deleted).await, data(&damaged).await];
    world
        .secrets()
        .delete(&deleted, &DeleteParams::default())
        .await
        .unwrap();
    let damage = Patch::Merge(json!({"stringData": {"list": "nothing"}}));
    let patched = world.secrets().patch(&damaged, &PatchParams::default(), &damage).await;
    patched.unwrap();
    eventually("both lists", SOON, async || {
        let found = [data(&deleted).await, data(&damaged).await];
        if found == before {
            Ok(())
        } else {
            Err("one of them is not as before")
        }
    })
    .await;
    world.quiet().await;
}

/// Numbers and values of the objects of each kind.
const OBJECTS: [(usize, usize); 3] = [(1, 1), (2, 1), (3, 1)];

/// A coordinator has stored the lists and has stopped; since then, the lists of the cloud are empty.
async fn emptied() -> World {
    let world = World::with(Script::start(true).await).await;
    lists(&world, &OBJECTS);
    let running = world.coordinator().await;
    have_all(&world).await;
    is_stored(&world, 10).await;
    running.stop().await;
    for kind in KINDS {
        world.cloud.list(format!("/{}", kind.path()), []);
    }
    world
}

async fn have_all(world: &World) {
    for (number, value) in OBJECTS {
        has(world, number, value).await;
    }
}

#[tokio::test]
async fn a_restart_while_deletions_are_held_keeps_the_stored_list() {
    // The first list of the next process is empty, or has a malformed object.
    let world = emptied().await;
    let malformed = json!({"id": id(1), "key": 7});
    let labels = [
        malformed,
        Kind::ClusterLabel.object(2, 1),
        Kind::ClusterLabel.object(3, 1),
    ];
    world.cloud.list(format!("/{}", Kind::ClusterLabel.path()), labels);
    let running = world.coordinator().await;
    let message = world.condition("Held", "True DeletionsHeld").await;
    assert!(message.contains("would be deleted"), "{message}");
    world.quiet().await;
    running.stop().await;

    leaves(&world);
    edit(&world, 1).await;
    delete(&world, 2).await;
    let _running = world.coordinator().await;
    have_all(&world).await;
}

/// Several starts during one wrong list, when nothing is stored and when what is stored is damaged.
#[tokio::test]
async fn a_wrong_list_is_never_stored_as_what_the_cluster_has() {
    let world = emptied().await;
    for is_deleted in [true, false] {
        for secret in names(
            world
                .secrets()
                .list(&ListParams::default().labels(CLOUD_LIST_LABEL))
                .await
                .unwrap(),
        ) {
            if is_deleted {
                world.secrets().delete(&secret, &DeleteParams::default()).await.unwrap();
            } else {
                let damage = Patch::Merge(json!({"stringData": {"list": "nothing"}}));
                world
                    .secrets()
                    .patch(&secret, &PatchParams::default(), &damage)
                    .await
                    .unwrap();
            }
        }
        for _ in 0..2 {
            let running = world.coordinator().await;
            world.polled("/ssh-users", 3).await;
            world.condition("Held", "True DeletionsHeld").await;
            world.quiet().await;
            running.stop().await;
        }
        have_all(&world).await;
    }
}

/// The longest password, which cannot be compressed: sixty registries do not fit into one Secret.
fn large(number: usize) -> Value {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let password: String = std::iter::repeat_with(|| random.alphanumeric()).take(16_000).collect();
    registry(number, &leaks::secret(&password))
}

#[tokio::test]
async fn a_list_that_is_too_large_for_one_secret_is_in_several() {
    let world = World::with(Script::start(true).await).await;
    world.cloud.list("/registries", (0..60).map(large));
    let running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    is_stored(&world, 11).await;
    running.stop().await;
    leaves(&world);
    let credentials = format!("registry-{}", id(7));
    let before = world.secrets().get(&credentials).await.unwrap();
    world
        .secrets()
        .delete(&credentials, &DeleteParams::default())
        .await
        .unwrap();
    let running = world.coordinator().await;
    eventually("the credentials", SOON, async || {
        let found = world.secrets().get_opt(&credentials).await.unwrap();
        if found.is_some_and(|found| found.data == before.data) {
            Ok(())
        } else {
            Err("none, or others")
        }
    })
    .await;
    running.stop().await;

    // Half of it is none: it is not used, and the next list replaces it.
    let half = "tidewaiter-list-registry-credentials-1";
    world.secrets().delete(half, &DeleteParams::default()).await.unwrap();
    world.cloud.list("/registries", (0..60).map(large));
    let running = world.coordinator().await;
    is_stored(&world, 11).await;
    // What it does not need any more goes.
    world.cloud.replace("/registries", (0..31).map(large));
    eventually("the part to go", SOON, async || {
        // One that is announced before the stream is open is not heard.
        world.cloud.changed(&["registries"]);
        match world.secrets().get_opt(half).await.unwrap() {
            None => Ok(()),
            Some(_) => Err("it is there"),
        }
    })
    .await;
    is_stored(&world, 10).await;
    running.stop().await;
}
