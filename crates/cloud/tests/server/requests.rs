//! What every request has in common: conditions, answers that are repeated, lists in parts, and what is told of a refusal.

use std::num::NonZeroU32;
use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_cloud::models::{
    AutoscalingPolicy, Cluster, ClusterLabel, Model, Node, NodePool, NodePoolLabel, Organization, Plugin,
    PluginDefinition, Provider, Registry, Role, RoleBinding, SshKey, Team, Unknown, Upgrade, User, parse, parse_list,
};
use tidewaiter_cloud::server::ServerParts;
use tidewaiter_cloud::server::endpoints::{Action, ENDPOINTS};
use tidewaiter_cloud::server::kind::Kind;

use crate::fixture::{self, Fixture, role, ssh_key};
use crate::stream::{Listening, kinds};
use crate::world::{Answer, World, on_both};

on_both!(
    an_etag_changes_exactly_when_the_answer_does,
    a_request_with_a_key_is_answered_once_and_for_all,
    a_list_in_parts_is_the_list,
    clients_read_every_list_and_item,
    a_list_below_what_is_gone_is_not_an_empty_one,
);

/// A change of an item of this kind.
fn edit(kind: Kind) -> Value {
    match kind {
        Kind::Team | Kind::Registry | Kind::Provider | Kind::Plugin | Kind::Upgrade | Kind::Role => {
            json!({"description": "edited"})
        }
        Kind::ClusterLabel | Kind::NodePoolLabel => json!({"value": "edited"}),
        Kind::NodePool => json!({"count": 7}),
        Kind::AutoscalingPolicy => json!({"poll_interval": 30}),
        Kind::RoleBinding => json!({"namespace": "edited"}),
        _ => json!({"name": "edited"}),
    }
}

async fn conditional(
    world: &World,
    token: &str,
    method: Method,
    path: &str,
    header: (&str, &str),
    body: &Value,
) -> Answer {
    let request = world.request(token, method, path).header(header.0, header.1);
    world
        .send(if body.is_null() { request } else { request.json(body) })
        .await
}

async fn an_etag_changes_exactly_when_the_answer_does(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let cluster = fixture.near("/clusters/{cluster_id}");
    let mut items = Vec::new();
    for endpoint in ENDPOINTS.iter() {
        let list = endpoint.path.rsplit_once('/').unwrap().0;
        match endpoint.action {
            // A node says nothing that could be edited.
            Action::Get(kind) => items.push((kind, fixture.near.path(&endpoint.path), fixture.near.path(list))),
            Action::GetMember => items.push((Kind::User, fixture.near.path(&endpoint.path), fixture.near.path(list))),
            _ => {}
        }
    }
    assert_eq!(items.len(), 16);
    for (kind, path, list) in &items {
        let seen = world.get(owner, path).await.is(200);
        let etag = seen.header("etag");
        assert!(etag.starts_with('"') && etag.len() > 10, "{etag}");
        let lists = *kind != Kind::Organization;
        let listed = if lists {
            world.get(owner, list).await.is(200).header("etag")
        } else {
            String::new()
        };
        for known in [&*etag, "*", &format!("W/{etag}"), &format!("\"other\", {etag}")] {
            let same = conditional(world, owner, Method::GET, path, ("if-none-match", known), &Value::Null)
                .await
                .is(304);
            assert_eq!((same.header("etag"), &*same.body), (etag.clone(), ""));
        }
        let audit = world.get(owner, &fixture.near("/audit?limit=1")).await.is(200).body;
        let mut listening = Listening::to(world, owner, &cluster, None).await;
        listening.heard().await;
        // What was read is sent back as it is: nothing happens.
        let again = conditional(world, owner, Method::PUT, path, ("if-match", &etag), &seen.json())
            .await
            .is(200);
        assert_eq!(
            (again.json(), again.header("etag")),
            (seen.json(), etag.clone()),
            "{path}"
        );
        let again = conditional(world, owner, Method::PATCH, path, ("if-match", &etag), &json!({}))
            .await
            .is(200);
        assert_eq!(again.header("etag"), etag);
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            for other in ["\"other\"", &format!("W/{etag}")] {
                let refused = conditional(world, owner, method.clone(), path, ("if-match", other), &edit(*kind)).await;
                assert_eq!(refused.is(412).json()["code"], 412);
            }
        }
        assert_eq!(
            world.get(owner, &fixture.near("/audit?limit=1")).await.is(200).body,
            audit,
            "{path}"
        );
        assert_eq!(world.get(owner, path).await.is(200).header("etag"), etag);
        if *kind == Kind::Node {
            continue;
        }
        let edited = conditional(world, owner, Method::PATCH, path, ("if-match", &etag), &edit(*kind))
            .await
            .is(200);
        let after = world.get(owner, path).await.is(200);
        assert_eq!(
            (edited.json(), edited.header("etag")),
            (after.json(), after.header("etag")),
            "{path}"
        );
        assert_ne!(after.header("etag"), etag);
        for (field, value) in edit(*kind).as_object().unwrap() {
            assert_eq!(after.json()[field], *value, "{path}");
        }
        if lists {
            assert_ne!(world.get(owner, list).await.is(200).header("etag"), listed, "{list}");
        }
        assert_ne!(
            world.get(owner, &fixture.near("/audit?limit=1")).await.is(200).body,
            audit
        );
        conditional(world, owner, Method::PATCH, path, ("if-match", &etag), &edit(*kind))
            .await
            .is(412);
        // The first that is heard is the edit.
        if !matches!(kind, Kind::Organization | Kind::Provider) {
            assert_eq!(kinds(&listening.heard().await).len(), 1, "{path}");
        }
        // The server's own fields may be sent, and not changed.
        let mut whole = after.json();
        let (first, _) = whole
            .as_object()
            .unwrap()
            .iter()
            .find(|(field, _)| *field == "id")
            .unwrap();
        let first = first.clone();
        whole[&first] = json!("9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e");
        for (method, body) in [
            (Method::PUT, whole.clone()),
            (Method::PATCH, json!({ &*first: whole[&first] })),
        ] {
            let refused = world.send(world.request(owner, method, path).json(&body)).await.is(422);
            assert_eq!(refused.json()["field"], *first, "{path}");
        }
    }
    // Credentials that were never shown are still there.
    let audit = world.get(owner, &fixture.near("/audit?limit=1000")).await.is(200).body;
    assert!(!audit.contains("hunter2"), "{audit}");
    for (kind, path, _) in items
        .iter()
        .rev()
        .filter(|(kind, ..)| !matches!(kind, Kind::Organization | Kind::Role | Kind::Provider))
    {
        let seen = world.get(owner, path).await;
        // A binding goes with its user or its cluster, and a cluster with all that is in it.
        if seen.status == 200 {
            let gone = conditional(
                world,
                owner,
                Method::DELETE,
                path,
                ("if-match", &seen.header("etag")),
                &Value::Null,
            )
            .await;
            assert_eq!(gone.is(204).body, "", "{kind:?}");
        }
        world.get(owner, path).await.is(404);
    }
}

async fn a_request_with_a_key_is_answered_once_and_for_all(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, admin) = (&fixture.world, fixture.token("owner"), fixture.token("admin"));
    let (path, before) = (fixture.near("/clusters"), 2);
    let post = async |token: &str, path: &str, key: &str, body: Value| {
        conditional(world, token, Method::POST, path, ("idempotency-key", key), &body).await
    };
    let first = post(owner, &path, "one", json!({"name": "new"})).await.is(201);
    assert_eq!(first.header("idempotency-replayed"), "");
    // The same, with the key that is shown once.
    let again = post(owner, &path, "one", json!({"name": "new"})).await.is(201);
    assert_eq!(again.header("idempotency-replayed"), "true");
    for header in ["location", "etag", "content-type"] {
        assert!(!first.header(header).is_empty());
        assert_eq!(first.header(header), again.header(header), "{header}");
    }
    assert_eq!(first.body, again.body);
    world
        .get(&first.field("api_key"), &format!("{path}/{}", first.field("id")))
        .await
        .is(200);
    // Another request, of the same path or another.
    for (path, body) in [
        (path.clone(), json!({"name": "other"})),
        (fixture.near("/roles"), role("new")),
    ] {
        let refused = post(owner, &path, "one", body).await.is(422);
        assert_eq!(refused.json()["field"], "Idempotency-Key");
    }
    // What somebody else calls so is another.
    post(admin, &path, "one", json!({"name": "admin's"})).await.is(201);
    // What was refused may be tried again.
    post(owner, &path, "two", json!({"name": "new"})).await.is(409);
    post(owner, &path, "two", json!({"name": ""})).await.is(422);
    post(owner, &path, "two", json!({"name": "newer"})).await.is(201);
    for bad in [&*"k".repeat(256), "", "a\tb"] {
        let refused = post(owner, &path, bad, json!({"name": "bad"})).await.is(422);
        assert_eq!(refused.json()["field"], "Idempotency-Key", "{bad:?}");
    }
    post(owner, &path, &"k".repeat(255), json!({"name": "long"}))
        .await
        .is(201);
    // At once.
    let all = (0..20).map(|_| post(owner, &path, "three", json!({"name": "newest"})));
    let all = futures::future::join_all(all).await;
    let made = all
        .iter()
        .filter(|answer| answer.header("idempotency-replayed").is_empty());
    assert_eq!(made.count(), 1);
    assert!(
        all.iter()
            .all(|answer| answer.status == 201 && answer.body == all[0].body),
        "{all:?}"
    );
    let clusters = world.get(owner, &path).await.is(200).json();
    assert_eq!(clusters.as_array().unwrap().len(), before + 5);
    // It is not a way around a role that was lost.
    let organization = fixture.near("/users");
    let users = world.get(owner, &organization).await.is(200).json();
    let id = users
        .as_array()
        .unwrap()
        .iter()
        .find(|user| user["role"] == "admin")
        .unwrap()["id"]
        .clone();
    let role = format!("{organization}/{}/role", id.as_str().unwrap());
    world.put(owner, &role, json!({"role": "member"})).await.is(200);
    post(admin, &path, "one", json!({"name": "admin's"})).await.is(403);
}

async fn a_list_in_parts_is_the_list(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let labels = fixture.near("/clusters/{cluster_id}/labels");
    for number in 0..24 {
        // Not in the order of their keys.
        let label = json!({"key": format!("k{:02}", (number * 7) % 24), "value": ""});
        world.post(owner, &labels, label).await.is(201);
    }
    for path in [labels.clone(), fixture.near("/users"), fixture.near("/roles")] {
        let whole = world.get(owner, &path).await.is(200);
        assert_eq!(whole.header("link"), "");
        let whole: Vec<Value> = serde_json::from_str(&whole.body).unwrap();
        for limit in [1, 7, 24, 25, 1_000] {
            let (mut found, mut next) = (Vec::new(), format!("{path}?limit={limit}&colour=blue"));
            loop {
                let part = world.get(owner, &next).await.is(200);
                let etag = part.header("etag");
                let same = conditional(world, owner, Method::GET, &next, ("if-none-match", &etag), &Value::Null);
                assert_eq!(same.await.is(304).header("link"), part.header("link"));
                let items: Vec<Value> = serde_json::from_str(&part.body).unwrap();
                assert!(!items.is_empty() && items.len() <= limit);
                found.extend(items);
                let link = part.header("link");
                let Some((url, rel)) = link.split_once(">; ") else {
                    break;
                };
                assert_eq!(rel, "rel=\"next\"");
                url.trim_start_matches('<').clone_into(&mut next);
            }
            assert_eq!(found, whole, "{path} by {limit}");
        }
        for bad in [
            "limit=0",
            "limit=1001",
            "limit=-1",
            "limit=ten",
            "after=9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e",
            "after=x",
        ] {
            let refused = world.get(owner, &format!("{path}?{bad}")).await.is(400);
            assert_eq!(refused.json()["field"], bad.split('=').next().unwrap());
        }
    }
}

fn read_as<T: Model>(answer: &Answer) {
    parse_list::<T>(answer.body.as_bytes(), Unknown::Ignore).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    assert_ne!(answer.body, "[]");
}

fn item_as<T: Model>(answer: &Answer) {
    parse::<T>(answer.body.as_bytes(), Unknown::Ignore).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
}

async fn clients_read_every_list_and_item(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let reported = json!({"status": {"type": "RUNNING", "percent": "1"}});
    for path in [
        "/clusters/{cluster_id}/status",
        "/clusters/{cluster_id}/nodes/{id}/status",
    ] {
        world
            .put(fixture.token("cluster"), &fixture.near(path), reported.clone())
            .await
            .is(200);
    }
    let inside = |rest: &str| fixture.near(&format!("/clusters/{{cluster_id}}{rest}"));
    for (name, all) in [("owner", true), ("read_only", true), ("cluster", false)] {
        let token = fixture.token(name);
        let get = async |path: String| world.get(token, &path).await.is(200);
        read_as::<User>(&get(fixture.near("/users")).await);
        read_as::<Registry>(&get(fixture.near("/registries")).await);
        read_as::<Role>(&get(fixture.near("/roles")).await);
        read_as::<Role>(&get(inside("/roles")).await);
        read_as::<RoleBinding>(&get(fixture.near("/role-bindings")).await);
        read_as::<Plugin>(&get(inside("/plugins")).await);
        item_as::<Plugin>(&get(inside("/plugins/{id}")).await);
        item_as::<tidewaiter_cloud::models::PluginManifests>(
            &get(format!("{}?previous_version=0.9.0", inside("/plugins/{id}"))).await,
        );
        read_as::<ClusterLabel>(&get(inside("/labels")).await);
        read_as::<NodePool>(&get(inside("/node-pools")).await);
        read_as::<NodePoolLabel>(&get(inside("/node-pools/{node_pool_id}/labels")).await);
        read_as::<Node>(&get(inside("/node-pools/{node_pool_id}/nodes")).await);
        read_as::<Node>(&get(inside("/nodes")).await);
        read_as::<AutoscalingPolicy>(&get(inside("/autoscaling-policies")).await);
        read_as::<Upgrade>(&get(inside("/upgrades")).await);
        item_as::<Cluster>(&get(inside("")).await);
        item_as::<Organization>(&get(fixture.near("")).await);
        read_as::<PluginDefinition>(&get("/v3/plugins/metrics".to_owned()).await);
        if all {
            read_as::<Team>(&get(fixture.near("/teams")).await);
            read_as::<Provider>(&get(fixture.near("/providers")).await);
            read_as::<Cluster>(&get(fixture.near("/clusters")).await);
            read_as::<SshKey>(&get(fixture.near("/users/{user_id}/ssh_keys")).await);
            read_as::<Organization>(&get("/v3/organizations".to_owned()).await);
            item_as::<tidewaiter_cloud::models::Account>(&get("/v3/account".to_owned()).await);
        }
    }
    // Below a cluster roles show their rules on demand alone, and a role without is not one with none.
    let token = fixture.token("cluster");
    let rules = async |path: String| world.get(token, &path).await.is(200).json()[0]["rules"].clone();
    assert_eq!(rules(inside("/roles")).await, Value::Null);
    assert_eq!(
        rules(inside("/roles?side_load=rules")).await.as_array().unwrap().len(),
        1
    );
    assert_eq!(
        rules(inside("/roles?side_load=rules&rule_type=containership")).await,
        json!([])
    );
    let none = inside("/roles?side_load=rules&rule_type=containership&remove_empty=true");
    assert_eq!(world.get(token, &none).await.is(200).body, "[]");
    let script = world
        .get(token, &inside("/nodes/{id}/upgrade/kubernetes?version=1.30.1"))
        .await
        .is(200);
    assert_eq!(script.body, fixture::SCRIPT);
}

async fn a_list_below_what_is_gone_is_not_an_empty_one(world: World) {
    let owner = world.owner().await;
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let inside = format!("~/clusters/{}", made.field("id"));
    let pool = world
        .post(&owner, &format!("{inside}/node-pools"), fixture::pool("workers"))
        .await
        .is(201);
    let pool = format!("{inside}/node-pools/{}", pool.field("id"));
    let (user, _) = world.user(&owner, &world.organization, "Max", "member").await;
    let user = format!("~/users/{user}");
    for (above, below) in [
        (&pool, "nodes labels autoscaling-policies"),
        (&user, "ssh_keys"),
        (&inside, "labels plugins nodes node-pools upgrades api-keys roles"),
    ] {
        let lists: Vec<String> = below.split(' ').map(|list| format!("{above}/{list}")).collect();
        // Twice: the second answer may be the first one's, kept.
        for list in lists.iter().chain(&lists) {
            world.get(&owner, list).await.is(200);
        }
        world.delete(&owner, above).await.is(204);
        for list in &lists {
            world.get(&owner, list).await.is(404);
        }
    }
}

async fn limited(change: impl FnOnce(&mut ServerParts)) -> World {
    let mut world = World::sqlite().await;
    world.stop().await;
    World::served(world.database.clone(), Arc::clone(&world.folder), world.ids(), change)
        .await
        .unwrap()
}

fn assert_refused(answer: &Answer, status: u16) {
    assert_eq!(answer.status.as_u16(), status, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("x-request-id").len(), 36);
    let body = answer.json();
    assert_eq!(body["code"], status);
    assert!(!body["message"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn a_refusal_says_why_in_one_form() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    let raw = async |method: Method, path: &str, kind: &str, body: String| {
        let request = world.request(&owner, method, path).header("content-type", kind);
        world.send(request.body(body)).await
    };
    let json = "application/json";
    for bad in ["", "{", "{\"name\": \"a\"} x", "\u{feff}{}"] {
        assert_refused(&raw(Method::POST, "~/roles", json, bad.to_owned()).await, 400);
    }
    for bad in ["[]", "7", "null", "\"text\"", "{\"name\": \"a\", \"name\": \"b\"}"] {
        let answer = raw(Method::POST, "~/roles", json, bad.to_owned()).await;
        assert!([400, 422].contains(&answer.status.as_u16()), "{answer:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        assert_refused(&raw(Method::POST, "~/roles", kind, role("a").to_string()).await, 415);
    }
    raw(
        Method::POST,
        "~/roles",
        "Application/JSON; charset=utf-8",
        role("a").to_string(),
    )
    .await
    .is(201);
    let large = format!("{{\"name\": \"{}\"}}", "a".repeat(1024 * 1024));
    assert_refused(&raw(Method::POST, "~/roles", json, large).await, 413);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let answer = raw(Method::POST, "~/roles", json, deep).await;
    assert!([400, 422].contains(&answer.status.as_u16()), "{:?}", answer.status);
    for path in [
        "/v3/nothing",
        "/",
        "/v2/organizations",
        "~/roles/",
        "/v3/organizations/..%2f",
    ] {
        assert_refused(&world.get(&owner, path).await, 404);
    }
    let not_so = raw(Method::DELETE, "~/roles", json, String::new()).await;
    assert_refused(&not_so, 405);
    assert!(
        not_so.header("allow").contains("GET") && not_so.header("allow").contains("POST"),
        "{not_so:?}"
    );
    for field in ["template_id", "configuration"] {
        let answer = world
            .post(&owner, "~/clusters", json!({"name": "new", field: {}}))
            .await;
        assert_refused(&answer, 501);
        assert_eq!(answer.json()["field"], field);
    }
    let unknown = world.get("", "~/roles").await;
    assert_refused(&unknown, 401);
    assert_eq!(unknown.header("www-authenticate"), "Bearer");
    // The caller's own request id, if it can stand in a log.
    for (id, kept) in [
        ("a.b-c_9", true),
        (&"x".repeat(128), true),
        (&*"x".repeat(129), false),
        ("a b", false),
        ("a\"b", false),
    ] {
        let answer = world
            .send(world.request(&owner, Method::GET, "~/roles").header("x-request-id", id))
            .await;
        assert_eq!(answer.header("x-request-id") == id, kept, "{id}");
    }
    let audit = world
        .send(
            world
                .request(&owner, Method::POST, "~/roles")
                .header("x-request-id", "mine")
                .json(&role("b")),
        )
        .await;
    audit.is(201);
    assert_eq!(
        world.get(&owner, "~/audit?limit=1").await.is(200).json()[0]["request_id"],
        "mine"
    );
}

#[tokio::test]
async fn who_asks_too_often_is_told_when_to_come_again() {
    let world = limited(|parts| parts.requests_a_second = NonZeroU32::MIN).await;
    let owner = world.owner().await;
    let mut last = world.get(&owner, "/v3/account").await.is(200);
    for _ in 0..30 {
        last = world.get(&owner, "/v3/account").await;
    }
    assert_refused(&last, 429);
    assert!(last.header("retry-after").parse::<u64>().unwrap() >= 1);
    // Others are not concerned.
    let made = World::sqlite().await;
    let owner = made.owner().await;
    for _ in 0..19 {
        made.log_in("olivia@example.org", "a wrong password").await.is(401);
    }
    let guessed = made.log_in("Olivia@Example.org", crate::world::PASSWORD).await;
    assert_refused(&guessed, 429);
    assert!(guessed.header("retry-after").parse::<u64>().unwrap() >= 1);
    made.get(&owner, "/v3/account").await.is(200);
    made.log_in("somebody@example.org", "a wrong password").await.is(401);
}

#[tokio::test]
async fn a_server_that_has_too_much_to_do_says_so() {
    let world = limited(|parts| parts.requests_at_once = 0).await;
    let answer = world.get("", "/v3/account").await;
    assert_refused(&answer, 503);
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
    world.get("", "/healthz").await.is(200);
}

#[tokio::test]
async fn one_who_is_not_known_is_told_in_the_same_words_as_one_who_is() {
    let world = World::sqlite().await;
    let one = world.log_in("olivia@example.org", "a wrong password").await.is(401);
    let other = world.log_in("nobody@example.org", "a wrong password").await.is(401);
    assert_eq!(one.body, other.body);
    let owner = world.owner().await;
    world
        .post(&owner, "/v3/account/ssh_keys", json!({"name": "own", "key": ssh_key()}))
        .await
        .is(201);
}
