//! The reports of clusters on themselves: who reads them, what they cost, and the numbers by which a reader knows what
//! a cluster has followed.

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::stream::{Listening, kinds};
use crate::world::{Answer, World, on_both};

on_both!(
    the_last_report_is_shown_to_readers_with_its_time,
    a_report_wakes_nobody_and_adds_nothing_to_the_audit_log,
    a_report_goes_with_its_cluster,
    responses_name_the_change_that_they_are_of_and_up_to_which_they_are_current,
);

fn report(message: &str) -> Value {
    let waiting = json!({"version": "1.1.0", "digest": "abc", "creates": 1, "diff": ["create ConfigMap a/b"]});
    json!({
        "synced": false, "message": message,
        "kinds": [{"kind": "User", "follows": ["users"], "change": "17", "objects": 3,
            "held": {"revision": "0123456789ab", "deletions": 2, "names": ["Bob"]},
            "refused_objects": 1, "refused": [{"id": "a", "reason": "no key"}]}],
        "plugins": [{"id": "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "name": "metrics/prometheus", "waiting": waiting}],
        "agents": {"nodes": 5, "reporting": 4},
    })
}

fn change(answer: &Answer) -> i64 {
    answer.header("tidewaiter-change").parse().unwrap()
}

async fn the_last_report_is_shown_to_readers_with_its_time(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let (cluster, reader) = (fixture.token("cluster"), fixture.token("read_only"));
    let (path, all) = (fixture.near("/clusters/{cluster_id}/report"), fixture.near("/reports"));
    world.get(reader, &path).await.is(404);
    assert_eq!(world.get(reader, &all).await.is(200).json(), json!([]));
    let put = world.put(cluster, &path, report("held")).await.is(200);
    let shown = world.get(reader, &path).await.is(200);
    assert_eq!((put.json(), put.header("etag")), (shown.json(), shown.header("etag")));
    let first = shown.json();
    assert_eq!(first["cluster_id"], fixture.near.of("cluster"));
    assert_eq!(first["kinds"][0]["held"]["names"], json!(["Bob"]));
    assert_eq!(first["plugins"][0]["waiting"]["diff"], json!(["create ConfigMap a/b"]));
    // The list has all but the diffs, which are long.
    let mut listed = first.clone();
    listed["plugins"][0]["waiting"]["diff"] = json!([]);
    assert_eq!(world.get(reader, &all).await.is(200).json(), json!([listed]));

    // A report with the same contents has another time.
    world.put(cluster, &path, report("held")).await.is(200);
    let mut second = world.get(reader, &path).await.is(200).json();
    assert!(second["reported_at"].as_str() > first["reported_at"].as_str());
    second["reported_at"] = first["reported_at"].clone();
    assert_eq!(second, first);

    // A field of a newer coordinator is ignored; what a field cannot have is refused.
    let mut newer = report("newer");
    newer["newer"] = json!({});
    world.put(cluster, &path, newer).await.is(200);
    world
        .put(cluster, &path, json!({"message": "\u{1b}[31m"}))
        .await
        .is(422);
    let large = json!({"plugins": [], "newer": "x".repeat(64 * 1024)});
    world.put(cluster, &path, large).await.is(413);
    assert_eq!(world.get(reader, &path).await.is(200).json()["message"], "newer");
}

async fn a_report_wakes_nobody_and_adds_nothing_to_the_audit_log(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    let (inside, path) = (
        fixture.near("/clusters/{cluster_id}"),
        fixture.near("/clusters/{cluster_id}/report"),
    );
    world.put(cluster, &path, report("first")).await.is(200);
    let mut listening = Listening::to(world, cluster, &inside, None).await;
    assert_eq!(listening.heard().await.event, "hello");
    let audit = fixture.near("/audit?limit=1000");
    let before = world.changes(owner, &audit).await;
    for number in 0..5 {
        let put = world.put(cluster, &path, report(&number.to_string())).await.is(200);
        assert_eq!(put.header("tidewaiter-change"), "", "it is no change");
    }
    assert_eq!(world.changes(owner, &audit).await, before);
    let label = json!({"key": "cluster.containership.io/more", "value": ""});
    world.post(owner, &format!("{inside}/labels"), label).await.is(201);
    assert_eq!(kinds(&listening.heard().await), ["labels"]);
}

async fn a_report_goes_with_its_cluster(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let inside = fixture.near(&format!("/clusters/{}", fixture.beside));
    let key = fixture.token("beside");
    world
        .put(key, &format!("{inside}/report"), report("first"))
        .await
        .is(200);
    world.delete(owner, &inside).await.is(204);
    world.get(owner, &format!("{inside}/report")).await.is(404);
    assert_eq!(
        world.get(owner, &fixture.near("/reports")).await.is(200).json(),
        json!([])
    );
}

async fn responses_name_the_change_that_they_are_of_and_up_to_which_they_are_current(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    let labels = fixture.near("/clusters/{cluster_id}/labels");
    let label = |name: &str| json!({"key": format!("cluster.containership.io/{name}"), "value": ""});
    let made = world.post(owner, &labels, label("first")).await.is(201);
    let listed = world.get(cluster, &labels).await.is(200);
    assert!(change(&listed) >= change(&made));

    // Another kind changes: the list is the same one, and current up to that.
    let role = world
        .post(owner, &fixture.near("/roles"), crate::fixture::role("Another"))
        .await
        .is(201);
    assert!(change(&role) > change(&made));
    let request = world.request(cluster, reqwest::Method::GET, &labels);
    let same = world.send(request.header("if-none-match", listed.header("etag"))).await;
    assert!(change(&same.is(304)) >= change(&role));

    let gone = world.delete(owner, &made.header("location")).await.is(204);
    assert!(change(&gone) > change(&role));
    let listed = world.get(cluster, &labels).await.is(200);
    assert!(change(&listed) >= change(&gone));
    // A refusal says nothing.
    let refused = world.post(owner, &labels, json!({})).await.is(422);
    assert_eq!(refused.header("tidewaiter-change"), "");
}
