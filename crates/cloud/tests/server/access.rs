//! The callers that may use each endpoint, against a table that was written down and read; and that objects of others
//! look as if they did not exist.

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::server::http::endpoint::{Endpoint, Input};
use tidewaiter_cloud::server::routes::ENDPOINTS;
use uuid::Uuid;

use crate::fixture::{self, Fixture, Place, SCRIPT, plugin_version, ssh_key};
use crate::world::{Answer, World, on_both};

const TABLE: &str = include_str!("access.golden");

/// A body with which nothing is changed that others in the table need.
pub fn body(endpoint: &Endpoint, place: &Place) -> Value {
    let last = endpoint.path.rsplit('/').next();
    match (endpoint.method.as_str(), endpoint.kind, last) {
        ("POST", _, Some("tokens" | "access_tokens")) => json!({"name": "another", "expires_in_seconds": 3600}),
        ("POST", _, Some("invitations")) => json!({"email": "another@example.org", "role": "member"}),
        ("POST", Some(Kind::User), _) => json!({"name": "Carol", "email": "carol@example.org"}),
        ("POST", Some(kind), _) => new(kind, place),
        ("PUT", Some(Kind::Upgrade), Some("status")) => {
            json!({"status": {"clusterStatus": "InProgress", "nodeStatuses": {}}})
        }
        ("PUT", _, Some("status")) => json!({"status": {"type": "RUNNING"}}),
        ("POST", None, Some("organizations")) => json!({"name": "Another"}),
        ("POST", None, Some("releases")) => json!({"kind": "ClusterLabel", "revision": "0123456789ab"}),
        ("POST", None, Some("approvals")) => json!({"plugin": Uuid::nil().to_string(), "digest": "abc"}),
        ("PUT", _, Some("password")) if endpoint.path.contains("/account/") => {
            json!({"old_password": "not this one", "new_password": "correct horse battery"})
        }
        ("PUT", _, Some("password")) => json!({"password": "correct horse battery"}),
        ("PUT", _, Some("role")) => json!({"role": "member"}),
        ("PUT", None, Some("locked")) => json!({"locked": false}),
        ("PUT", None, Some("{version}")) => plugin_version("1.0.0"),
        ("PUT", None, Some("manifests")) => fixture::manifests(),
        _ => json!({}),
    }
}

/// Another object of this kind.
fn new(kind: Kind, place: &Place) -> Value {
    match kind {
        Kind::Team => json!({"name": "Day shift", "description": "", "user_ids": []}),
        Kind::Registry => fixture::registry("another"),
        Kind::Provider => fixture::provider(),
        Kind::Cluster => json!({"name": "another"}),
        Kind::Role => fixture::role("Another"),
        Kind::RoleBinding => {
            json!({"type": "UserBinding", "user_id": place.of("user"), "authorization_role_id": place.of("roles")})
        }
        Kind::SshKey => json!({"name": "another", "key": ssh_key()}),
        Kind::Plugin => fixture::plugin(),
        Kind::ClusterLabel => json!({"key": "cluster.containership.io/another", "value": ""}),
        Kind::NodePoolLabel => json!({"key": "nodepool.containership.io/another", "value": ""}),
        Kind::NodePool => fixture::pool("another"),
        Kind::AutoscalingPolicy => fixture::policy(),
        Kind::Upgrade => fixture::upgrade(),
        Kind::Node => json!({}),
        Kind::ServiceAccount => json!({"name": "another", "role": "member"}),
        other => fixture::example(other),
    }
}

pub async fn ask(world: &World, token: &str, endpoint: &Endpoint, place: &Place, path: &str) -> Answer {
    let path = if endpoint.path.ends_with("/upgrade/kubernetes") {
        format!("{path}?version=1.30.1")
    } else {
        path.to_owned()
    };
    let mut request = world.request(token, endpoint.method.clone(), &path);
    // Anyone who gets so far is let in; nothing is lost by it.
    if endpoint.shared.contains(&"If-Match") {
        request = request.header("if-match", "\"another\"");
    }
    request = match endpoint.takes {
        Input::Nothing => request,
        Input::Text => request.body(SCRIPT),
        Input::Json(_) | Input::Patch(_) => request.json(&body(endpoint, place)),
    };
    world.send(request).await
}

/// Creates again the objects that a `DELETE` without a condition deleted with the last principal.
async fn refresh(fixture: &Fixture, endpoint: &Endpoint, token: &str, place: &mut Place) {
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let is_own_token = endpoint.path.ends_with("/access_tokens/{id}");
    if endpoint.method != Method::DELETE && !is_own_token {
        return;
    }
    match endpoint.path.trim_start_matches("/v3") {
        path if path.ends_with("/api-keys/{id}") => {
            let keys = fixture.near("/clusters/{cluster_id}/api-keys");
            place.set(
                "api-keys",
                world.post(owner, &keys, json!({})).await.is(201).field("id"),
            );
        }
        path if path.ends_with("/service-accounts/{service_account_id}/tokens/{id}") => {
            let tokens = fixture.near("/service-accounts/{service_account_id}/tokens");
            let made = json!({"name": "again", "expires_in_seconds": 3600});
            place.set("tokens", world.post(owner, &tokens, made).await.is(201).field("id"));
        }
        path if path.ends_with("/autoscaling-policies/{id}") && path.contains("{node_pool_id}") => {
            let assigned = "/clusters/{cluster_id}/node-pools/{node_pool_id}/autoscaling-policies/{id}";
            world.put(owner, &fixture.near(assigned), json!({})).await.is(204);
        }
        path if path.ends_with("/invitations/{id}") => {
            let made = json!({"email": "again@example.org", "role": "member"});
            let list = fixture.near("/invitations");
            place.set("invitations", world.post(owner, &list, made).await.is(201).field("id"));
        }
        "/account/tokens/{id}" | "/account/access_tokens/{id}" => {
            let made = json!({"name": "again", "expires_in_seconds": 3600});
            let made = world.post(token, "/v3/account/tokens", made).await;
            let id = if made.status == 201 {
                made.field("id")
            } else {
                Uuid::new_v4().to_string()
            };
            place.set(if is_own_token { "access_tokens" } else { "tokens" }, id);
        }
        "/account/ssh_keys/{id}" => {
            let key = json!({"name": "own", "key": ssh_key()});
            let made = world.post(token, "/v3/account/ssh_keys", key).await;
            let id = if made.status == 201 {
                made.field("id")
            } else {
                Uuid::new_v4().to_string()
            };
            place.set("ssh_keys", id);
        }
        _ => {}
    }
}

/// The whole table, cell by cell, as it is.
async fn table(fixture: &Fixture) -> String {
    let mut lines = vec![format!(
        "# endpoint: {}",
        fixture
            .principals
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    )];
    for endpoint in ENDPOINTS.iter() {
        let mut cells = Vec::new();
        for (name, token) in &fixture.principals {
            let mut place = fixture.near.clone();
            refresh(fixture, endpoint, token, &mut place).await;
            let is_key = ["/tokens/{id}", "/api-keys/{id}"]
                .iter()
                .any(|end| endpoint.path.ends_with(end));
            if !is_key {
                place.set("tokens", Uuid::nil());
                place.set("api-keys", Uuid::nil());
            }
            let answer = ask(&fixture.world, token, endpoint, &place, &place.path(&endpoint.path)).await;
            let status = answer.status.as_u16();
            assert!(
                status < 500,
                "{} {} by {name}: {answer:?}",
                endpoint.method,
                endpoint.path
            );
            if status == 401 {
                assert_eq!(answer.header("www-authenticate"), "Bearer");
            }
            if status >= 400 {
                assert_eq!(answer.json()["code"], status, "{answer:?}");
            }
            cells.push(match status {
                401 | 403 | 404 => status.to_string(),
                _ => "ok ".to_owned(),
            });
        }
        lines.push(format!("{} {} {}", cells.join(" "), endpoint.method, endpoint.path));
    }
    lines.join("\n") + "\n"
}

async fn every_endpoint_is_for_whom_the_table_says(world: World) {
    let fixture = Fixture::new(world).await;
    let found = table(&fixture).await;
    let is_new = |line: &&str| !TABLE.lines().any(|known| known == *line);
    let new: Vec<&str> = found.lines().filter(is_new).collect();
    assert!(new.is_empty(), "not in access.golden:\n{}", new.join("\n"));
    assert_eq!(TABLE, found);
}

/// An answer without what is of the request alone.
fn plain(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let headers = answer
        .headers
        .iter()
        .filter(|(name, _)| *name != "x-request-id" && *name != "date");
    let headers = headers
        .map(|(name, value)| (name.to_string(), format!("{value:?}")))
        .collect();
    (answer.status.as_u16(), headers, answer.body.clone())
}

/// `place` with ids of nothing for `names`.
fn nowhere(place: &Place, names: &[&'static str]) -> Place {
    let mut place = place.clone();
    for name in names {
        place.set(name, Uuid::new_v4());
    }
    place
}

async fn what_is_anothers_looks_like_what_is_not_there(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let mut far = fixture.far.clone();
    let invitations = far.path("/v3/organizations/{organization_id}/invitations");
    let invited = json!({"email": "invited@example.org", "role": "member"});
    let invited = world.post(fixture.token("stranger"), &invitations, invited).await;
    far.set("invitations", invited.is(201).field("id"));
    let (near, far) = (&fixture.near, &far);
    let mut beside = near.clone();
    beside.set("cluster", &*fixture.beside);
    // The organization of one, and in it what is of another.
    let mut mixed = far.clone();
    mixed.set("organization", near.of("organization"));
    let mut mixed_cluster = mixed.clone();
    mixed_cluster.set("cluster", near.of("cluster"));
    let mut mixed_pool = mixed_cluster.clone();
    mixed_pool.set("pool", near.of("pool"));
    let items = [
        "cluster",
        "pool",
        "user",
        "teams",
        "registries",
        "providers",
        "roles",
        "role-bindings",
        "plugins",
        "labels",
        "pool labels",
        "autoscaling-policies",
        "upgrades",
        "nodes",
        "ssh_keys",
        "service-accounts",
        "invitations",
    ];
    let tries: [(&str, &Place, &[&'static str]); 9] = [
        ("stranger", near, &["organization"]),
        ("operator", near, &["organization"]),
        ("far cluster", near, &["organization"]),
        ("cluster", &beside, &["cluster"]),
        ("beside", near, &["cluster"]),
        ("owner", far, &["organization"]),
        ("owner", &mixed, &items),
        ("owner", &mixed_cluster, &items[1..]),
        ("owner", &mixed_pool, &items[2..]),
    ];
    let mut compared = 0;
    for endpoint in ENDPOINTS
        .iter()
        .filter(|endpoint| endpoint.path.contains("{organization_id}"))
    {
        if endpoint.path.contains("/api-keys/{id}") {
            continue;
        }
        for (name, place, names) in tries {
            let gone = nowhere(place, names);
            let (path, none) = (place.path(&endpoint.path), gone.path(&endpoint.path));
            // An operator may know which organizations there are, and lock them.
            if path == none || (endpoint.path.ends_with("/locked") && name == "operator") {
                continue;
            }
            let token = fixture.token(name);
            let seen = ask(world, token, endpoint, place, &path).await;
            let unseen = ask(world, token, endpoint, place, &none).await;
            assert_eq!(plain(&seen), plain(&unseen), "{} {path} by {name}", endpoint.method);
            assert!(
                [403, 404].contains(&seen.status.as_u16()),
                "{} {path} by {name}: {seen:?}",
                endpoint.method
            );
            compared += 1;
        }
    }
    assert!(compared > 400, "{compared}");
}

on_both!(
    every_endpoint_is_for_whom_the_table_says,
    what_is_anothers_looks_like_what_is_not_there,
);
