//! Releases and approvals of what clusters hold: who may, of what exactly, and only once.

use jiff::SignedDuration;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_kit::{Clock as _, SystemClock};

use crate::fixture::Fixture;
use crate::stream::{Listening, kinds};
use crate::world::{World, on_both};

on_both!(
    a_decision_is_about_what_the_cluster_reports_and_is_taken_once,
    a_decision_ends_and_is_withdrawn_by_an_admin,
    only_a_cluster_reports_what_it_holds,
);

const PLUGIN: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";
const REVISION: &str = "0123456789ab";

fn report(accepts: bool) -> Value {
    let held = json!({"revision": REVISION, "deletions": 6});
    json!({
        "accepts_releases": accepts,
        "kinds": [{"kind": "ClusterLabel", "held": held}, {"kind": "User", "held": held}, {"kind": "Registry"}],
        "plugins": [{"id": PLUGIN, "waiting": {"digest": "abc"}}],
    })
}

async fn a_decision_is_about_what_the_cluster_reports_and_is_taken_once(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let [owner, admin, cluster] = ["owner", "admin", "cluster"].map(|name| fixture.token(name));
    let inside = fixture.near("/clusters/{cluster_id}");
    let (releases, approvals, decisions) = (
        format!("{inside}/releases"),
        format!("{inside}/approvals"),
        format!("{inside}/decisions"),
    );
    let release = |kind: &str, revision: &str| json!({"kind": kind, "revision": revision});
    let approval = |digest: &str| json!({"plugin": PLUGIN, "digest": digest});

    // A cluster that does not accept them, or has not reported, gets none.
    world.post(owner, &releases, release("User", REVISION)).await.is(409);
    world
        .put(cluster, &format!("{inside}/report"), report(false))
        .await
        .is(200);
    for (path, body) in [(&releases, release("User", REVISION)), (&approvals, approval("abc"))] {
        let refused = world.post(owner, path, body).await.is(409);
        assert!(refused.body.contains("acceptReleasesFromCloud"), "{refused:?}");
    }
    world
        .put(cluster, &format!("{inside}/report"), report(true))
        .await
        .is(200);

    let mut listening = Listening::to(world, cluster, &inside, None).await;
    assert_eq!(listening.heard().await.event, "hello");
    // Exactly what is held: no other kind, revision or digest.
    for (path, body) in [
        (&releases, release("ClusterLabel", "ffffffffffff")),
        (&releases, release("Registry", REVISION)),
        (&releases, release("Team", REVISION)),
        (&approvals, approval("abd")),
    ] {
        world.post(owner, path, body).await.is(409);
    }
    // What takes access away is an owner's.
    world.post(admin, &releases, release("User", REVISION)).await.is(403);
    for _ in 0..2 {
        world
            .post(admin, &releases, release("ClusterLabel", REVISION))
            .await
            .is(204);
    }
    assert_eq!(kinds(&listening.heard().await), ["decisions"]);
    world.post(admin, &approvals, approval("abc")).await.is(204);
    world.post(owner, &releases, release("User", REVISION)).await.is(204);
    let listed = world.get(cluster, &decisions).await.is(200).json();
    let listed = listed.as_array().unwrap();
    let wanted = [
        (release("ClusterLabel", REVISION), Value::Null),
        (Value::Null, approval("abc")),
        (release("User", REVISION), Value::Null),
    ];
    let found: Vec<_> = listed
        .iter()
        .map(|decision| (decision["release"].clone(), decision["approval"].clone()))
        .collect();
    assert_eq!(found, wanted, "the same one once");

    let row = &world.changes(owner, &fixture.near("/audit?limit=100")).await[0];
    assert_eq!((&row["action"], &row["kind"]), (&json!("create"), &json!("decisions")));
    assert_eq!(row["after"]["release"], release("User", REVISION));
    for decision in listed {
        let path = format!("{decisions}/{}", decision["id"].as_str().unwrap());
        world.delete(fixture.token("beside"), &path).await.is(404);
        world.delete(cluster, &path).await.is(204);
        world.delete(cluster, &path).await.is(404);
    }
    assert_eq!(world.get(cluster, &decisions).await.is(200).json(), json!([]));
}

async fn a_decision_ends_and_is_withdrawn_by_an_admin(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let [owner, admin, cluster] = ["owner", "admin", "cluster"].map(|name| fixture.token(name));
    let inside = fixture.near("/clusters/{cluster_id}");
    let decisions = format!("{inside}/decisions");
    let path = format!("{inside}/report");
    world.put(cluster, &path, report(true)).await.is(200);
    let decide = async || {
        let body = json!({"kind": "ClusterLabel", "revision": REVISION});
        world.post(admin, &format!("{inside}/releases"), body).await.is(204);
        let listed = world.get(cluster, &decisions).await.is(200).json();
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
        format!("{decisions}/{}", listed[0]["id"].as_str().unwrap())
    };
    let ended = decide().await;
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let before = SystemClock.now() - SignedDuration::from_mins(16);
    let aged = sqlx::query("UPDATE objects SET created_at = $1 WHERE kind = 'decisions'").bind(before.to_string());
    assert_eq!(aged.execute(&mut database).await.unwrap().rows_affected(), 1);
    assert_eq!(world.get(cluster, &decisions).await.is(200).json(), json!([]));
    world.delete(cluster, &ended).await.is(404);

    // The ended one is no reason to store no other one, and is deleted.
    let fresh = decide().await;
    assert_ne!(fresh, ended);
    let left = sqlx::query("DELETE FROM objects WHERE kind = 'decisions' AND created_at = $1").bind(before.to_string());
    assert_eq!(left.execute(&mut database).await.unwrap().rows_affected(), 0);
    world.delete(fixture.token("member"), &fresh).await.is(403);
    world.delete(admin, &fresh).await.is(204);
    world.delete(cluster, &fresh).await.is(404);
    let row = &world.changes(owner, &fixture.near("/audit?limit=100")).await[0];
    assert_eq!((&row["action"], &row["kind"]), (&json!("delete"), &json!("decisions")));
    assert!(row["actor"].as_str().unwrap().starts_with("user:"), "{row}");
}

async fn only_a_cluster_reports_what_it_holds(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let path = fixture.near("/clusters/{cluster_id}/report");
    for name in ["owner", "admin"] {
        let refused = world.put(fixture.token(name), &path, report(true)).await.is(403);
        assert!(refused.body.contains("only the cluster itself"), "{refused:?}");
    }
    world.get(fixture.token("owner"), &path).await.is(404);
}
