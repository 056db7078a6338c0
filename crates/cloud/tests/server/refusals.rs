//! The values that each kind refuses through its `POST`: by the name of the field, and nothing is created.

use serde_json::{Value, json};

use crate::fixture::{self, Fixture, Place, role, ssh_key};
use crate::world::{Answer, PASSWORD, World, on_both};

on_both!(
    each_field_of_each_kind_is_refused_by_its_name,
    nothing_is_there_twice,
    an_empty_id_in_the_path_is_not_found,
);

/// The lists to which one of each kind can be sent, and one of each.
fn samples(place: &Place) -> Vec<(String, Value)> {
    let at = |rest: &str| place.path(&format!("/v3/organizations/{{organization_id}}{rest}"));
    let inside = |rest: &str| at(&format!("/clusters/{{cluster_id}}{rest}"));
    let user = place.of("user");
    let binding = json!({"type": "UserBinding", "user_id": user, "authorization_role_id": place.of("roles"),
        "cluster_id": place.of("cluster"), "namespace": "other"});
    let mut registry = fixture::registry("sample");
    registry["email"] = json!("ci@example.org");
    let mut pool = fixture::pool("sample");
    pool["autoscaling"] = json!({"enabled": true, "min_nodes": 1, "max_nodes": 5});
    let cluster = json!({"name": "sample", "environment": "production", "version": "v1.30.1",
        "api_server_address": "https://10.0.0.1:6443", "provider_id": place.of("providers"), "provider_name": "aws"});
    let member = json!({"name": "Sample", "email": "sample@example.org", "avatar_url": "https://example.org/a.png",
        "role": "member", "password": PASSWORD});
    vec![
        (at("/users"), member),
        (
            at(&format!("/users/{user}/ssh_keys")),
            json!({"name": "sample", "key": ssh_key()}),
        ),
        (
            at("/teams"),
            json!({"name": "Sample", "description": "some", "user_ids": [user]}),
        ),
        (at("/registries"), registry),
        (
            at("/providers"),
            json!({"description": "sample", "provider": "aws", "credentials": {"key": "hunter2"}}),
        ),
        (at("/roles"), role("Sample")),
        (at("/role-bindings"), binding),
        (at("/clusters"), cluster),
        (inside("/plugins"), fixture::plugin()),
        (
            inside("/labels"),
            json!({"key": "cluster.containership.io/sample", "value": "some"}),
        ),
        (inside("/node-pools"), pool),
        (
            inside("/node-pools/{node_pool_id}/labels"),
            json!({"key": "nodepool.containership.io/sample", "value": "some"}),
        ),
        (
            inside("/node-pools/{node_pool_id}/nodes"),
            json!({"name": "sample", "provider_id": "aws:///us-east-1a/i-0123"}),
        ),
        (inside("/autoscaling-policies"), {
            let mut policy = fixture::policy();
            policy["name"] = json!("Sample");
            policy
        }),
        (inside("/upgrades"), fixture::upgrade()),
    ]
}

/// Every place in `value`, with the path by which an error names it.
fn places(value: &Value, path: &str, pointer: &str, found: &mut Vec<(String, String)>) {
    let below: Vec<(String, String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                (path, format!("{pointer}/{key}"), value)
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(place, value)| (format!("{path}[{place}]"), format!("{pointer}/{place}"), value))
            .collect(),
        _ => Vec::new(),
    };
    for (path, pointer, value) in below {
        found.push((path.clone(), pointer.clone()));
        places(value, &path, &pointer, found);
    }
}

/// Checks that it is refused by the name of the field, without a secret.
pub async fn refused(world: &World, token: &str, path: &str, body: &Value, field: &str) -> Answer {
    let answer = world.post(token, path, body.clone()).await;
    assert_eq!(answer.status, 422, "{field} of {path}: {body} {answer:?}");
    let failure = answer.json();
    assert_eq!(
        (&failure["code"], failure["field"].as_str()),
        (&json!(422), Some(field)),
        "{path}: {body} {failure}"
    );
    assert!(!answer.body.contains("hunter2"), "{answer:?}");
    answer
}

async fn each_field_of_each_kind_is_refused_by_its_name(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let audit = fixture.near("/audit?limit=1000");
    let before = world.changes(owner, &audit).await;
    let mut tried = 0;
    for (path, sample) in samples(&fixture.near) {
        let mut found = Vec::new();
        places(&sample, "", "", &mut found);
        for (field, pointer) in found {
            let here = sample.pointer(&pointer).unwrap();
            let mut bad = match here {
                Value::String(_) => vec![
                    json!(7),
                    json!([]),
                    json!({}),
                    json!(true),
                    json!("a\u{1}b"),
                    json!("a\u{202e}b"),
                    json!("a".repeat(20_000)),
                ],
                Value::Number(_) => vec![json!("1"), json!([]), json!(true), json!({})],
                Value::Bool(_) => vec![json!("true"), json!(1), json!([])],
                Value::Array(_) => vec![json!("a"), json!({}), json!(1)],
                _ => vec![json!("a"), json!([]), json!(1)],
            };
            // Credentials are texts of any sort, and a password has its own words.
            if field.starts_with("credentials.") || field == "password" {
                bad = vec![json!(7), json!([]), json!(null)];
                bad.truncate(if field == "password" { 2 } else { 3 });
            }
            for bad in bad {
                let mut body = sample.clone();
                *body.pointer_mut(&pointer).unwrap() = bad;
                // The name of a credential is not shown: people swap the two.
                let named = if field.starts_with("credentials.") {
                    "credentials"
                } else {
                    &field
                };
                let answer = world.post(owner, &path, body.clone()).await;
                assert_eq!(answer.status, 422, "{field} of {path}: {answer:?}");
                let found = answer.json()["field"].as_str().unwrap_or_default().to_owned();
                assert!(
                    found == named
                        || found.starts_with(&format!("{named}."))
                        || found.starts_with(&format!("{named}[")),
                    "{field} of {path}: {answer:?}"
                );
                assert!(
                    !answer.body.contains("hunter2") && !answer.body.contains(PASSWORD),
                    "{answer:?}"
                );
                tried += 1;
            }
        }
        for (field, value) in [("nonsense", json!(1)), ("id", json!(fixture.near.of("user")))] {
            let mut body = sample.clone();
            body[field] = value;
            refused(world, owner, &path, &body, field).await;
        }
    }
    assert!(tried > 400, "{tried}");
    assert_eq!(world.changes(owner, &audit).await, before);
    // And the samples are good.
    for (path, sample) in samples(&fixture.near)
        .into_iter()
        .filter(|(path, _)| !path.ends_with("/plugins"))
    {
        world.post(owner, &path, sample).await.is(201);
    }
}

async fn nothing_is_there_twice(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    for (path, sample) in samples(&fixture.near) {
        // Upgrades and members of a pool have no names.
        let first = world.post(owner, &path, sample.clone()).await;
        let again = world.post(owner, &path, sample.clone()).await;
        if path.ends_with("/upgrades") {
            assert_eq!(
                (first.status, again.status),
                (201_u16.try_into().unwrap(), 201_u16.try_into().unwrap())
            );
            continue;
        }
        let refused = again.is(409).json();
        let field = refused["field"].as_str().unwrap_or_default();
        assert!(sample.get(field).is_some(), "{path}: {refused}");
    }
    // In letters of another case, and in another organization.
    let other = json!({"name": "Other", "email": "SAMPLE@Example.org"});
    let far = fixture.far.path("/v3/organizations/{organization_id}/users");
    let refused = world.post(fixture.token("stranger"), &far, other).await.is(409);
    assert_eq!(refused.json()["field"], "email");
    // A name that was given up is free.
    let labels = fixture.near("/clusters/{cluster_id}/labels");
    let listed = world.get(owner, &labels).await.is(200).json();
    let path = |place: usize| format!("{labels}/{}", listed[place]["id"].as_str().unwrap());
    world
        .patch(owner, &path(0), json!({"key": "cluster.containership.io/sample"}))
        .await
        .is(409);
    world
        .patch(owner, &path(1), json!({"key": "cluster.containership.io/moved"}))
        .await
        .is(200);
    world
        .patch(owner, &path(0), json!({"key": "cluster.containership.io/sample"}))
        .await
        .is(200);
}

async fn an_empty_id_in_the_path_is_not_found(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let label = json!({"key": "nodepool.containership.io/nobody", "value": "some"});
    for path in [
        "/v3/organizations/{organization_id}/clusters/{cluster_id}/node-pools//labels",
        "/v3/organizations/{organization_id}/clusters//node-pools/{node_pool_id}/labels",
        "/v3/organizations//clusters/{cluster_id}/node-pools/{node_pool_id}/labels",
    ] {
        let path = fixture.near.path(path);
        world.post(owner, &path, label.clone()).await.is(404);
        world.get(owner, &path).await.is(404);
    }
}
