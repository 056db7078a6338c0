//! The change stream: a client that follows it, from whatever cursor and however often the connection is lost, misses
//! nothing.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use eventsource_stream::{Event, Eventsource as _};
use futures::{Stream, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_cloud::models::Kind;
use tidewaiter_testkit::eventually;

use crate::fixture::{self, Fixture, role, ssh_key};
use crate::world::{World, on_both};

/// Long for a machine that has much else to do; nothing waits so long that goes right.
pub const SOON: Duration = Duration::from_mins(3);

/// A connection to the stream of a cluster.
pub struct Listening(Pin<Box<dyn Stream<Item = Option<Event>> + Send>>);

impl Listening {
    /// Listens as `token`; `path` is that of the cluster.
    pub async fn to(world: &World, token: &str, path: &str, after: Option<&str>) -> Self {
        let mut request = world.request(token, Method::GET, &format!("{path}/events"));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{response:?}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-cache");
        Self(Box::pin(response.bytes_stream().eventsource().map(Result::ok)))
    }

    /// The next event; None at the end.
    pub async fn next(&mut self) -> Option<Event> {
        tokio::time::timeout(SOON, self.0.next())
            .await
            .expect("an event in time")
            .flatten()
    }

    pub async fn heard(&mut self) -> Event {
        self.next().await.expect("the stream goes on")
    }
}

#[track_caller]
pub fn kinds(event: &Event) -> Vec<String> {
    assert_eq!(event.event, "change", "{event:?}");
    let data: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!(data.as_object().unwrap().len(), 1, "{data}");
    serde_json::from_value(data["kinds"].clone()).unwrap()
}

on_both!(
    a_cluster_hears_which_kinds_change_and_nothing_else,
    a_cluster_reads_which_of_its_objects_were_deleted,
    the_record_of_deletions_names_what_left_the_lists_of_a_cluster_and_nothing_that_they_have,
    what_no_cluster_mirrors_takes_no_place_in_the_record_of_deletions,
    an_organization_hears_what_changes_in_all_of_its_clusters,
    who_is_cut_off_again_and_again_ends_with_what_a_lister_sees,
    a_stream_ends_with_the_right_to_hear_it,
    a_server_that_stops_ends_its_streams,
);

async fn a_cluster_hears_which_kinds_change_and_nothing_else(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, operator) = (&fixture.world, fixture.token("owner"), fixture.token("operator"));
    let (path, cluster) = (fixture.near("/clusters/{cluster_id}"), fixture.token("cluster"));
    let mut listening = Listening::to(world, cluster, &path, None).await;
    let hello = listening.heard().await;
    assert_eq!((&*hello.event, &*hello.data), ("hello", "{}"));
    let inside = |rest: &str| fixture.near(&format!("/clusters/{{cluster_id}}{rest}"));
    let pool = |rest: &str| inside(&format!("/node-pools/{{node_pool_id}}{rest}"));
    let user = fixture.near.of("user");
    let binding = json!({"type": "UserBinding", "user_id": user, "authorization_role_id": fixture.near.of("roles")});
    let key = json!({"name": "another", "key": ssh_key()});
    let running = json!({"status": {"type": "RUNNING", "message": "hunter2"}});
    for (method, path, body, kind) in [
        (
            Method::POST,
            fixture.near("/registries"),
            fixture::registry("more"),
            "registries",
        ),
        (Method::POST, fixture.near("/roles"), role("More"), "roles"),
        (Method::POST, fixture.near("/role-bindings"), binding, "role-bindings"),
        (
            Method::POST,
            fixture.near("/teams"),
            json!({"name": "More", "description": "", "user_ids": []}),
            "teams",
        ),
        (
            Method::POST,
            fixture.near(&format!("/users/{user}/ssh_keys")),
            key,
            "users",
        ),
        (
            Method::PUT,
            fixture.near(&format!("/users/{user}/role")),
            json!({"role": "read_only"}),
            "users",
        ),
        (
            Method::PATCH,
            fixture.near(&format!("/users/{user}")),
            json!({"name": "Alicia"}),
            "users",
        ),
        (
            Method::POST,
            inside("/labels"),
            json!({"key": "cluster.containership.io/more", "value": ""}),
            "labels",
        ),
        (Method::DELETE, inside("/plugins/{id}"), json!({}), "plugins"),
        (Method::PATCH, pool(""), json!({"count": 4}), "node-pools"),
        (Method::PUT, pool("/status"), running.clone(), "node-pools"),
        (
            Method::POST,
            pool("/labels"),
            json!({"key": "nodepool.containership.io/more", "value": ""}),
            "node-pool-labels",
        ),
        (Method::POST, pool("/nodes"), json!({}), "nodes"),
        (Method::PUT, inside("/nodes/{id}/status"), running, "nodes"),
        (
            Method::PUT,
            pool("/autoscaling-policies/{id}"),
            json!({}),
            "autoscaling-policies",
        ),
        (Method::POST, inside("/upgrades"), fixture::upgrade(), "upgrades"),
        (
            Method::PUT,
            inside("/upgrades/{id}/script"),
            json!("#!/bin/sh\n"),
            "upgrades",
        ),
        (Method::PATCH, inside(""), json!({"name": "renamed"}), "clusters"),
    ] {
        // What another cluster, another organization or nobody's cluster has to know is not heard in between.
        let elsewhere = format!("/clusters/{}/labels", fixture.beside);
        let label =
            json!({"key": format!("cluster.containership.io/a{}", uuid::Uuid::new_v4().simple()), "value": "hunter2"});
        world
            .post(owner, &fixture.near(&elsewhere), label.clone())
            .await
            .is(201);
        let far = fixture
            .far
            .path("/v3/organizations/{organization_id}/clusters/{cluster_id}/labels");
        world.post(fixture.token("stranger"), &far, label).await.is(201);
        let provider = json!({"description": uuid::Uuid::new_v4().to_string(), "provider": "digital_ocean", "credentials": {"token": "hunter2"}});
        world.post(owner, &fixture.near("/providers"), provider).await.is(201);
        let answer = world.send(world.request(owner, method, &path).body(if path.ends_with("/script") {
            fixture::SCRIPT.replace("script", "again")
        } else {
            body.to_string()
        }));
        let answer = answer.await;
        assert!(answer.status.is_success(), "{path}: {answer:?}");
        let event = listening.heard().await;
        assert_eq!(kinds(&event), [kind], "{path}");
        assert!(!event.data.contains("hunter2"));
    }
    // The catalogue is everybody's.
    let version = "/v3/plugins/metrics/implementations/other/versions/1.0.0";
    world
        .put(operator, version, fixture::plugin_version("1.0.0"))
        .await
        .is(200);
    assert_eq!(kinds(&listening.heard().await), ["plugins"]);
}

async fn a_cluster_reads_which_of_its_objects_were_deleted(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    let inside = |rest: &str| fixture.near(&format!("/clusters/{{cluster_id}}{rest}"));
    let deletions = async || -> Vec<(String, String)> {
        let rows = world.get(cluster, &inside("/deletions")).await.is(200).json();
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| {
            (
                row["kind"].as_str().unwrap().to_owned(),
                row["id"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
    };
    let before = deletions().await.len();
    let (user, plugin, pool) = (
        fixture.near.of("user"),
        fixture.near.of("plugins"),
        fixture.near.of("pool"),
    );
    let label = json!({"key": "nodepool.containership.io/more", "value": ""});
    let labels = inside(&format!("/node-pools/{pool}/labels"));
    let label = world.post(owner, &labels, label).await.is(201).field("id");
    for path in [
        inside(&format!("/plugins/{plugin}")),
        fixture.near(&format!("/users/{user}")),
        inside(&format!("/node-pools/{pool}")),
    ] {
        world.delete(owner, &path).await.is(204);
    }
    // What belongs to another cluster.
    let beside = fixture.near(&format!("/clusters/{}/labels", fixture.beside));
    let other = json!({"key": "cluster.containership.io/other", "value": ""});
    let other = world.post(owner, &beside, other).await.is(201).field("id");
    world.delete(owner, &format!("{beside}/{other}")).await.is(204);
    let found = deletions().await;
    for (kind, id) in [
        ("plugins", plugin),
        ("users", user),
        ("node-pools", pool),
        ("node-pool-labels", &*label),
    ] {
        assert!(
            found.contains(&(kind.to_owned(), id.to_owned())),
            "{kind} {id}: {found:?}"
        );
    }
    assert!(
        found.len() > before && found.iter().all(|(_, id)| *id != other),
        "{found:?}"
    );
    // Newest first.
    let at = |wanted: &str| found.iter().position(|(_, id)| id == wanted);
    assert!(at(pool) < at(user) && at(user) < at(plugin), "{found:?}");
}

/// The ids in a list of a cluster.
async fn ids(world: &World, token: &str, path: &str) -> Vec<String> {
    let rows = world.get(token, path).await.is(200).json();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// Otherwise a cluster could not tell it from a list that lacks the object by mistake.
async fn the_record_of_deletions_names_what_left_the_lists_of_a_cluster_and_nothing_that_they_have(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    let inside = |rest: &str| fixture.near(&format!("/clusters/{{cluster_id}}{rest}"));
    let (user, role, binding) = (
        fixture.near.of("user"),
        fixture.near.of("roles"),
        fixture.near.of("role-bindings"),
    );
    let of_containership = json!([{"type": "containership", "resources": ["clusters"], "verbs": ["get"]}]);
    let rules = fixture::role("Reader")["rules"].clone();
    for (id, list, method, path, leaves, returns) in [
        (
            user,
            inside("/ssh-users"),
            Method::PUT,
            fixture.near(&format!("/users/{user}/role")),
            json!({"role": "read_only"}),
            json!({"role": "member"}),
        ),
        (
            role,
            inside("/roles?side_load=rules&remove_empty=true&rule_type=kubernetes"),
            Method::PATCH,
            fixture.near(&format!("/roles/{role}")),
            json!({"rules": of_containership}),
            json!({ "rules": rules }),
        ),
        (
            binding,
            fixture.near("/role-bindings?cluster_id={cluster_id}"),
            Method::PATCH,
            fixture.near(&format!("/role-bindings/{binding}")),
            json!({"cluster_id": fixture.beside}),
            json!({"cluster_id": null}),
        ),
    ] {
        let list = list.replace("{cluster_id}", fixture.near.of("cluster"));
        for (body, is_listed) in [(None, true), (Some(leaves), false), (Some(returns), true)] {
            if let Some(body) = body {
                let request = world.request(owner, method.clone(), &path).json(&body);
                world.send(request).await.is(200);
            }
            let (list, record) = (
                ids(world, cluster, &list).await,
                ids(world, cluster, &inside("/deletions")).await,
            );
            let found = [&list, &record].map(|ids| ids.iter().any(|known| known == id));
            assert_eq!(found, [is_listed, !is_listed], "{path}");
        }
    }
    // The assignment of a policy goes, and the policy stays.
    let assigned = inside("/node-pools/{node_pool_id}/autoscaling-policies/{id}");
    for method in [Method::PUT, Method::DELETE] {
        world.send(world.request(owner, method, &assigned)).await.is(204);
    }
    let policy = fixture.near.of("autoscaling-policies");
    let record = ids(world, cluster, &inside("/deletions")).await;
    assert!(record.iter().all(|id| id != policy), "{record:?}");
}

async fn what_no_cluster_mirrors_takes_no_place_in_the_record_of_deletions(world: World) {
    let owner = world.owner().await;
    let (path, key) = cluster(&world, &owner, "prod").await;
    label(&world, &owner, &path, "gone").await;
    let labels = format!("{path}/labels");
    let id = world.get(&owner, &labels).await.is(200).json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    world.delete(&owner, &format!("{labels}/{id}")).await.is(204);
    // More deletions than the record has, as of a member who creates tokens and SSH keys and deletes them.
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let many = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1500) \
        INSERT INTO changes SELECT $1 + n, at, organization_id, '', $2, $2 || n, action, actor, request_id, before, after \
        FROM changes, numbers WHERE action = 'delete' AND object_id = $3";
    for (after, kind) in [(1_000_000_i64, Kind::Token), (2_000_000, Kind::SshKey)] {
        let rows = sqlx::query(many).bind(after).bind(kind.word()).bind(&id);
        assert_eq!(rows.execute(&mut database).await.unwrap().rows_affected(), 1500);
    }
    let record = async || world.get(&key, &format!("{path}/deletions")).await.is(200).json();
    let found = record().await;
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!((&found[0]["kind"], &found[0]["id"]), (&json!("labels"), &json!(id)));
    // An autoscaler deletes nodes all the time.
    let rows = sqlx::query(many).bind(2_500_000_i64).bind(Kind::Node.word()).bind(&id);
    rows.execute(&mut database).await.unwrap();
    let of_cluster = "UPDATE changes SET cluster_id = (SELECT cluster_id FROM changes WHERE object_id = $1 \
        AND action = 'delete') WHERE kind = $2";
    let rows = sqlx::query(of_cluster).bind(&id).bind(Kind::Node.word());
    assert_eq!(rows.execute(&mut database).await.unwrap().rows_affected(), 1500);
    let found = record().await;
    let count = |kind: &str| {
        found
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["kind"] == kind)
            .count()
    };
    assert_eq!((count("nodes"), count("labels")), (1_000, 1));
    // The newest of what concerns all clusters and of what concerns this one are one list.
    let rows = sqlx::query(many).bind(3_000_000_i64).bind(Kind::Role.word()).bind(&id);
    rows.execute(&mut database).await.unwrap();
    let newest = "UPDATE changes SET sequence = 4000000 WHERE object_id = $1 AND action = 'delete'";
    let rows = sqlx::query(newest).bind(&id);
    rows.execute(&mut database).await.unwrap();
    let found = record().await;
    let found: Vec<&str> = found
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["kind"] != "nodes")
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    assert_eq!(found.len(), 1_000);
    assert_eq!(found[..2], [&*id, "roles1500"]);
}

pub async fn cluster(world: &World, owner: &str, name: &str) -> (String, String) {
    let made = world.post(owner, "~/clusters", json!({ "name": name })).await.is(201);
    (format!("~/clusters/{}", made.field("id")), made.field("api_key"))
}

pub async fn label(world: &World, token: &str, path: &str, key: &str) {
    let label = json!({"key": format!("cluster.containership.io/{key}"), "value": ""});
    world.post(token, &format!("{path}/labels"), label).await.is(201);
}

/// A client's copy of the lists of its cluster, by kind.
type Mirror = BTreeMap<String, String>;

async fn look(world: &World, token: &str, path: &str, kind: &str) -> String {
    let base = if matches!(kind, "users" | "registries" | "roles") {
        "~"
    } else {
        path
    };
    world.get(token, &format!("{base}/{kind}")).await.is(200).body
}

const FOLLOWED: [&str; 5] = ["labels", "node-pools", "registries", "roles", "users"];

/// Follows the stream and is cut off after every second event.
async fn follow(world: &World, token: &str, path: &str, mirror: &tokio::sync::Mutex<Mirror>) {
    let mut cursor: Option<String> = None;
    loop {
        let mut listening = Listening::to(world, token, path, cursor.as_deref()).await;
        for _ in 0..2 {
            let Some(Some(event)) = listening.0.next().await else {
                break;
            };
            let changed = if event.event == "change" {
                kinds(&event)
            } else {
                FOLLOWED.map(str::to_owned).to_vec()
            };
            for kind in changed.iter().filter(|kind| FOLLOWED.contains(&&***kind)) {
                let list = look(world, token, path, kind).await;
                mirror.lock().await.insert(kind.clone(), list);
            }
            cursor = Some(event.id);
        }
    }
}

async fn write_much(world: &World, owner: &str, path: &str, writer: usize) {
    for turn in 0..12 {
        let name = format!("w{writer}-{turn}");
        match (writer + turn) % 4 {
            0 => label(world, owner, path, &name).await,
            1 => drop(
                world
                    .post(owner, &format!("{path}/node-pools"), fixture::pool(&name))
                    .await
                    .is(201),
            ),
            2 => drop(world.post(owner, "~/roles", role(&name)).await.is(201)),
            _ => {
                let made = world
                    .post(owner, "~/registries", fixture::registry(&name))
                    .await
                    .is(201);
                world
                    .delete(owner, &format!("~/registries/{}", made.field("id")))
                    .await
                    .is(204);
            }
        }
    }
}

async fn who_is_cut_off_again_and_again_ends_with_what_a_lister_sees(world: World) {
    let owner = world.owner().await;
    let (path, key) = cluster(&world, &owner, "prod").await;
    let mirror = tokio::sync::Mutex::new(Mirror::new());
    let followed = async {
        let writers = (0..6).map(|writer| write_much(&world, &owner, &path, writer));
        futures::future::join_all(writers).await;
        let mut listed = Mirror::new();
        for kind in FOLLOWED {
            listed.insert(kind.to_owned(), look(&world, &key, &path, kind).await);
        }
        eventually("the follower to see what a lister sees", SOON, async || {
            let mirror = mirror.lock().await.clone();
            if mirror == listed { Ok(()) } else { Err("it differs") }
        })
        .await;
        assert!(
            listed["labels"].len() > 100 && listed["registries"] == "[]",
            "{listed:?}"
        );
    };
    tokio::select! {
        () = followed => {}
        () = follow(&world, &key, &path, &mirror) => {}
    }
}

async fn a_stream_ends_with_the_right_to_hear_it(world: World) {
    let owner = world.owner().await;
    let home = world.organization.clone();
    let (path, _) = cluster(&world, &owner, "prod").await;
    let keys = format!("{path}/api-keys");
    let api_key = async || world.post(&owner, &keys, json!({})).await.is(201);
    let made = json!({"name": "short", "expires_in_seconds": 3600});
    let token = world.post(&owner, "/v3/account/tokens", made).await.is(201);
    let (user, his) = world.user(&owner, &home, "Max", "member").await;
    let (stays, by_key) = (api_key().await, api_key().await);
    let log_in = json!({"api_key": by_key.field("api_key")});
    let by_token = world.post("", "/v3/login/api_key", log_in).await.is(200).field("token");
    let by_key_path = format!("{keys}/{}", by_key.field("id"));
    let mut unbothered = Listening::to(&world, &stays.field("api_key"), &path, None).await;
    unbothered.heard().await;
    for (listeners, ended) in [
        (
            vec![token.field("token")],
            format!("/v3/account/tokens/{}", token.field("id")),
        ),
        (vec![by_key.field("api_key"), by_token], by_key_path),
        (vec![his], format!("~/users/{user}")),
    ] {
        let mut streams = Vec::new();
        for token in &listeners {
            let mut stream = Listening::to(&world, token, &path, None).await;
            stream.heard().await;
            streams.push(stream);
        }
        world.delete(&owner, &ended).await.is(204);
        for mut stream in streams {
            // Of his own end he may still hear, and of nothing after it.
            assert_eq!(stream.next().await, None, "{ended}");
        }
    }
    assert_eq!(kinds(&unbothered.heard().await), ["users"]);
    world.delete(&owner, &path).await.is(204);
    assert_eq!(unbothered.next().await, None);
}

async fn an_organization_hears_what_changes_in_all_of_its_clusters(world: World) {
    let owner = world.owner().await;
    let (user, reader) = world.user(&owner, &world.organization, "Rita", "read_only").await;
    let (prod, key) = cluster(&world, &owner, "prod").await;
    let (test, _) = cluster(&world, &owner, "test").await;
    let mut listening = Listening::to(&world, &reader, "~", None).await;
    let hello = listening.heard().await;
    assert_eq!((&*hello.event, &*hello.data), ("hello", "{}"));
    let other = world.another_organization(&owner, "Other").await;
    let role_elsewhere = format!("/v3/organizations/{other}/roles");
    world.post(&owner, &role_elsewhere, role("Other")).await.is(201);
    label(&world, &owner, &prod, "a").await;
    assert_eq!(kinds(&listening.heard().await), ["labels"]);
    let running = json!({"status": {"type": "RUNNING", "message": "hunter2"}});
    world.put(&owner, &format!("{test}/status"), running).await.is(200);
    let health = listening.heard().await;
    assert_eq!(kinds(&health), ["clusters"]);
    assert!(!health.data.contains("hunter2"), "{health:?}");
    world.post(&owner, "~/roles", role("More")).await.is(201);
    assert_eq!(kinds(&listening.heard().await), ["roles"]);
    // After a lost connection, nothing is missed.
    let mut again = Listening::to(&world, &reader, "~", Some(&hello.id)).await;
    assert_eq!(kinds(&again.heard().await), ["clusters", "labels", "roles"]);
    world.get(&key, "~/events").await.is(403);
    world.delete(&owner, &format!("~/users/{user}")).await.is(204);
    for mut stream in [listening, again] {
        assert_eq!(stream.next().await, None);
    }
}

async fn a_server_that_stops_ends_its_streams(mut world: World) {
    let owner = world.owner().await;
    let (path, key) = cluster(&world, &owner, "prod").await;
    let mut listening = Listening::to(&world, &key, &path, None).await;
    let hello = listening.heard().await;
    label(&world, &owner, &path, "a").await;
    listening.heard().await;
    tokio::time::timeout(Duration::from_secs(8), world.stop())
        .await
        .expect("no stream holds up the end");
    assert_eq!(listening.next().await, None);
    // And the next server knows the cursor.
    let next = world.replica().await;
    let mut again = Listening::to(&next, &key, &path, Some(&hello.id)).await;
    assert_eq!(kinds(&again.heard().await), ["labels"]);
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    // Long enough for what is done with the token before it expires.
    let short = jiff::SignedDuration::from_secs(20);
    let world = World::sqlite().await.restarted(|parts| parts.lives.login = short).await;
    let owner = world.owner().await;
    let (path, _) = cluster(&world, &owner, "prod").await;
    let mut listening = Listening::to(&world, &owner, &path, None).await;
    listening.heard().await;
    assert_eq!(listening.next().await, None);
    world.get(&owner, "/v3/account").await.is(401);
}

#[tokio::test]
async fn a_thousand_streams_hear_one_change() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    let mut clusters = Vec::new();
    for number in 0..10 {
        clusters.push(cluster(&world, &owner, &format!("c{number}")).await);
    }
    let mut streams = Vec::new();
    for (path, key) in &clusters {
        let opened = (0..100).map(|_| async {
            let mut stream = Listening::to(&world, key, path, None).await;
            assert_eq!(stream.heard().await.event, "hello");
            stream
        });
        streams.extend(futures::future::join_all(opened).await);
    }
    assert_eq!(streams.len(), 1_000);
    world
        .post(&owner, "~/registries", fixture::registry("ours"))
        .await
        .is(201);
    let heard = futures::future::join_all(streams.iter_mut().map(Listening::heard)).await;
    assert!(heard.iter().all(|event| kinds(event) == ["registries"]));
    let ids: std::collections::BTreeSet<_> = heard.iter().map(|event| &event.id).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
}
