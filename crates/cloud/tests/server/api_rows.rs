//! The API of the original service, row by row: each path is answered with every field that its clients read, or
//! refused with a message that says what to do instead.

use reqwest::Method;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::world::{Answer, World, on_both};

on_both!(
    every_path_has_the_fields_that_old_clients_read,
    what_old_clients_delete_is_gone,
    what_is_not_served_says_what_to_do_instead,
);

/// Asserts that `found` has the fields of `wanted`, with values of the same types. `null` stands for a text or null,
/// and a list for a list that is not empty.
fn has(found: &Value, wanted: &Value, at: &str) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (field, wanted) in wanted {
                let at = format!("{at}.{field}");
                has(
                    found.get(field).unwrap_or_else(|| panic!("{at} is missing")),
                    wanted,
                    &at,
                );
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            for wanted in wanted {
                assert!(!found.is_empty(), "{at} is empty");
                for found in found {
                    has(found, wanted, at);
                }
            }
        }
        (Value::Null, Value::Null | Value::String(_))
        | (Value::String(_), Value::String(_))
        | (Value::Bool(_), Value::Bool(_))
        | (Value::Number(_), Value::Number(_)) => {}
        (wanted, found) => panic!("{at} is {found}, wanted {wanted}"),
    }
}

fn status() -> Value {
    json!({"type": "", "message": null, "percent": 0})
}

/// A list, and an item of it.
fn both(rows: &mut Vec<(String, Value)>, list: &str, id: &str, fields: &Value) {
    rows.push((format!("{list}/{id}"), fields.clone()));
    rows.push((list.to_owned(), json!([fields])));
}

fn of_organization() -> Vec<(String, Value)> {
    let mut rows = Vec::new();
    let key =
        json!({"id": "", "created_at": "", "updated_at": "", "user_id": "", "name": "", "fingerprint": "", "key": ""});
    let mut user = json!({"id": "", "name": "", "email": "", "avatar_url": null, "added_at": "", "ssh_keys": [key]});
    rows.push(("/users/{user_id}".to_owned(), user.clone()));
    user["ssh_keys"] = json!([]);
    rows.push(("/users".to_owned(), json!([user])));
    rows.push(("/clusters/{cluster_id}/ssh-users".to_owned(), json!([user])));
    let registry = json!({"id": "", "created_at": "", "updated_at": "", "description": "", "organization_id": "", "provider": "",
        "serveraddress": "", "credentials": {}});
    both(&mut rows, "/registries", "{id}", &registry);
    let provider =
        json!({"id": "", "created_at": "", "updated_at": "", "organization_id": "", "provider": "", "description": ""});
    both(&mut rows, "/providers", "{id}", &provider);
    // The API and the service for provisioning both had this path, with different fields.
    let cluster = json!({"id": "", "created_at": "", "updated_at": "", "organization_id": "", "name": "", "owner_id": "",
        "api_server_address": null, "worker_nodes_address": null, "environment": null, "version": null, "provider_name": "",
        "provider_id": null, "engine": null, "configuration": {"provider": {}, "resource": {}}, "status": status(),
        "provision_service_version": null});
    both(&mut rows, "/clusters", "{cluster_id}", &cluster);
    rows.push(("/templates".to_owned(), json!([])));
    let allowed = json!({"type": "", "api_groups": [], "resources": [], "resource_names": [], "verbs": [""], "non_resource_urls": []});
    let role = json!({"id": "", "created_at": "", "updated_at": "", "organization_id": "", "name": "", "description": "",
        "owner_id": "", "rules": [allowed]});
    rows.push(("/clusters/{cluster_id}/roles?side_load=rules".to_owned(), json!([role])));
    let binding = json!({"id": "", "created_at": "", "updated_at": "", "organization_id": "", "owner_id": "", "type": "",
        "authorization_role_id": "", "user_id": "", "team_id": null, "cluster_id": "", "namespace": ""});
    rows.push(("/role-bindings?cluster_id={cluster_id}".to_owned(), json!([binding])));
    rows
}

fn of_cluster() -> Vec<(String, Value)> {
    let (cluster, pool) = (
        "/clusters/{cluster_id}",
        "/clusters/{cluster_id}/node-pools/{node_pool_id}",
    );
    let mut rows = Vec::new();
    let plugin = json!({"id": "", "created_at": "", "updated_at": "", "type": "", "implementation": "", "version": "",
        "organization_id": "", "cluster_id": "", "configuration": {}});
    both(&mut rows, &format!("{cluster}/plugins"), "{id}", &plugin);
    let mut label = json!({"id": "", "created_at": "", "updated_at": "", "key": "", "value": ""});
    both(&mut rows, &format!("{cluster}/labels"), "{id}", &label);
    label["node_pool_id"] = json!("");
    both(&mut rows, &format!("{pool}/labels"), "{id}", &label);
    let scaling = json!({"enabled": true, "suspended": true, "min_nodes": 0, "max_nodes": 0, "cooldown_period": 0,
        "scaling_strategy": {"scale_up": "", "scale_down": ""}});
    let node_pool = json!({"id": "", "status": status(), "os": null, "name": "", "count": 0, "docker_version": "",
        "kubernetes_mode": "", "kubernetes_version": "", "etcd": true, "etcd_version": null, "is_schedulable": true,
        "autoscaling": scaling});
    both(
        &mut rows,
        &format!("{cluster}/node-pools"),
        "{node_pool_id}",
        &node_pool,
    );
    let node = json!({"id": "", "status": status(), "created_at": "", "updated_at": ""});
    both(&mut rows, &format!("{pool}/nodes"), "{id}", &node);
    let step = json!({"threshold": 0, "comparison_operator": "", "adjustment_type": "", "adjustment_value": 0});
    let policy = json!({"id": "", "name": "", "metrics_backend": "", "metric": "", "metric_configuration": {}, "poll_interval": 0,
        "sample_period": 0, "scaling_policy": {"scale_up": step, "scale_down": step}});
    both(&mut rows, &format!("{cluster}/autoscaling-policies"), "{id}", &policy);
    rows.push((format!("{pool}/autoscaling-policies"), json!([policy])));
    rows
}

fn of_server() -> Vec<(String, Value)> {
    let version = json!({"version": "", "disabled": true, "configuration_schema": [],
        "compatibility": {"kubernetes": {"min": "", "max": ""}, "upgrades": [], "plugins": {}}});
    let definition = json!({"type": "", "implementation": "", "versions": [version]});
    let organization =
        json!({"id": "", "name": "", "owner_id": "", "created_at": "", "updated_at": "", "locked": true});
    let account = json!({"id": "", "created_at": "", "updated_at": "", "name": "", "enabled": true, "email": "", "phone": null,
        "avatar_url": null});
    let rows = [
        ("/v3/account", account),
        ("/v3/organizations", json!([organization])),
        ("/v3/organizations/{organization_id}", organization),
        ("/v3/plugins", json!({"metrics": [definition]})),
        ("/v3/plugins/metrics", json!([definition])),
        ("/v3/plugins/metrics/implementations/prometheus", definition),
        ("/v3/plugins/metrics/implementations/prometheus/versions/1.0.0", version),
        ("/v3/authenticate", json!({})),
    ];
    rows.map(|(path, fields)| (path.to_owned(), fields)).to_vec()
}

async fn every_path_has_the_fields_that_old_clients_read(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let inside = |rest: &str| fixture.near(&format!("/clusters/{{cluster_id}}{rest}"));
    let assigned = inside("/node-pools/{node_pool_id}/autoscaling-policies/{id}");
    world.put(owner, &assigned, json!({})).await.is(204);
    let (pool, plugin) = (inside("/node-pools/{node_pool_id}"), inside("/plugins/{id}"));
    for (path, change) in [
        (&pool, json!({"count": 5})),
        (&pool, json!({"kubernetes_version": "1.31.0"})),
        (&pool, json!({"autoscaling": {"enabled": true}})),
        (&plugin, json!({"version": "1.0.0"})),
    ] {
        has(
            &world.patch(owner, path, change.clone()).await.is(200).json(),
            &change,
            path,
        );
    }
    let below = |(path, fields): (String, Value)| (format!("/v3/organizations/{{organization_id}}{path}"), fields);
    let rows = of_server().into_iter();
    for (path, wanted) in rows
        .chain(of_organization().into_iter().map(below))
        .chain(of_cluster().into_iter().map(below))
    {
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        let asked = format!(
            "{}?{}",
            fixture.near.path(path),
            query.replace("{cluster_id}", fixture.near.of("cluster"))
        );
        has(&world.get(owner, &asked).await.is(200).json(), &wanted, path);
    }
    has(
        &world
            .log_in("near-owner@example.org", crate::world::PASSWORD)
            .await
            .is(200)
            .json(),
        &json!({"token": ""}),
        "login",
    );
}

async fn what_old_clients_delete_is_gone(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    for path in [
        "/clusters/{cluster_id}/plugins/{id}",
        "/users/{user_id}",
        "/registries/{id}",
        "/providers/{id}",
        "/clusters/{cluster_id}",
        "",
    ] {
        let path = fixture.near(path);
        world.get(owner, &path).await.is(200);
        world.delete(owner, &path).await.is(204);
        let gone = world.get(owner, &path).await.status.as_u16();
        // Whose home the organization was is gone with it.
        assert!([401, 404].contains(&gone), "{path}: {gone}");
    }
}

async fn what_is_not_served_says_what_to_do_instead(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let template = json!({"provider_name": "digital_ocean", "description": "", "engine": "containership_kubernetes_engine",
        "configuration": {"variable": {}, "resource": {}}});
    let one = "/templates/9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";
    let proxy = "/clusters/{cluster_id}/k8sapi/proxy";
    for (method, path, body, remedy) in [
        (Method::POST, "/templates", template, "tidewaiter cloud create cluster"),
        (Method::GET, one, Value::Null, "tidewaiter cloud create cluster"),
        (Method::DELETE, one, Value::Null, "tidewaiter cloud create cluster"),
        (
            Method::POST,
            "/clusters",
            json!({"template_id": "9f3d1c9e"}),
            "attach it by its name",
        ),
        // What kubectl asks with the kubeconfig that `export kubeconfig` makes.
        (
            Method::GET,
            &*format!("{proxy}/api"),
            Value::Null,
            "tidewaiter credential",
        ),
        (
            Method::POST,
            &*format!("{proxy}/api/v1/namespaces"),
            json!({}),
            "tidewaiter credential",
        ),
    ] {
        let is_unread = !body.is_null() && path != "/clusters";
        let request = world.request(owner, method, &fixture.near(path));
        let request = if body.is_null() { request } else { request.json(&body) };
        // The list of templates is served, so it is the method that is refused.
        let status = if path == "/templates" { 405 } else { 501 };
        let answer: Answer = world.send(request).await.is(status);
        assert_eq!(answer.json()["code"], status);
        assert!(answer.field("message").contains(remedy), "{answer:?}");
        assert_eq!(answer.header("x-request-id").len(), 36);
        assert_eq!(answer.header("connection") == "close", is_unread, "{answer:?}");
        // kubectl shows the message of a Status.
        let kind = answer.json()["kind"].clone();
        assert_eq!(kind == "Status", path.contains("proxy"), "{answer:?}");
    }
    // Other paths are not there, as before.
    for path in [
        "/template",
        "/clusters/{cluster_id}/k8sapi",
        "/clusters/{cluster_id}/proxy/k8sapi",
    ] {
        world.get(owner, &fixture.near(path)).await.is(404);
    }
}
