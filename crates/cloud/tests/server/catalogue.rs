//! The catalogue: operators see who changed it, and what clusters may have applied is not changed unawares.

use reqwest::Method;
use serde_json::{Value, json};

use crate::fixture;
use crate::requests::conditional;
use crate::world::{World, on_both};

on_both!(
    operators_see_who_changed_the_catalogue,
    operators_see_which_organizations_came_and_went,
    published_manifests_are_replaced_only_by_name,
    a_version_is_changed_as_it_was_seen,
);

const VERSION: &str = "/v3/plugins/metrics/implementations/prometheus/versions/1.0.0";

async fn operators_see_who_changed_the_catalogue(world: World) {
    let operator = world.owner().await;
    let (_, admin) = world.user(&operator, &world.organization, "Admin", "owner").await;
    world.catalogue(&operator).await;
    world.delete(&operator, VERSION).await.is(204);
    world.get(&admin, "/v3/audit").await.is(403);
    let rows = world.get(&operator, "/v3/audit").await.is(200).json();
    let seen: Vec<(&str, &str)> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["kind"].as_str().unwrap(), row["action"].as_str().unwrap()))
        .collect();
    let expected = [
        ("plugin-manifests", "delete"),
        ("plugin-versions", "delete"),
        ("plugin-manifests", "create"),
        ("plugin-versions", "create"),
        ("organizations", "create"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(rows[0]["actor"], format!("user:{}", world.owner));
    assert_eq!(rows[0]["object_id"], "metrics/prometheus/1.0.0");
    let older = world
        .get(&operator, &format!("/v3/audit?limit=1&before={}", rows[1]["id"]))
        .await;
    assert_eq!(older.is(200).json()[0], rows[2]);
}

async fn operators_see_which_organizations_came_and_went(world: World) {
    let operator = world.owner().await;
    let made = world
        .post(&operator, "/v3/organizations", json!({"name": "Other"}))
        .await;
    let id = made.is(201).field("id");
    let path = format!("/v3/organizations/{id}");
    world.patch(&operator, &path, json!({"name": "Another"})).await.is(200);
    world.delete(&operator, &path).await.is(204);
    world.get(&operator, &format!("{path}/audit")).await.is(404);
    let rows = world.get(&operator, "/v3/audit?limit=2").await.is(200).json();
    for (row, action, name) in [(&rows[0], "delete", "before"), (&rows[1], "create", "after")] {
        assert_eq!(
            (&row["kind"], &row["action"], &row["object_id"]),
            (&json!("organizations"), &json!(action), &json!(id))
        );
        let expected = if name == "before" { "Another" } else { "Other" };
        assert_eq!(row[name]["name"], expected, "{row}");
        assert_eq!(row["actor"], format!("user:{}", world.owner));
    }
}

async fn published_manifests_are_replaced_only_by_name(world: World) {
    let operator = world.owner().await;
    world.catalogue(&operator).await;
    let path = format!("{VERSION}/manifests");
    let put = async |etag: &str, body: &Value| {
        if etag.is_empty() {
            world.put(&operator, &path, body.clone()).await
        } else {
            conditional(&world, &operator, Method::PUT, &path, ("if-match", etag), body).await
        }
    };
    // Publishing the same again changes nothing.
    put("", &fixture::manifests()).await.is(204);
    let other = json!({"manifests": [], "jobs": {}});
    let refused = put("", &other).await.is(428);
    assert!(refused.body.contains("If-Match"), "{refused:?}");
    put("\"another\"", &other).await.is(412);
    let seen = world.get(&operator, &path).await.is(200);
    assert_eq!(seen.json()["manifests"], fixture::manifests()["manifests"]);
    put(&seen.header("etag"), &other).await.is(204);
    assert_eq!(world.get(&operator, &path).await.is(200).json()["manifests"], json!([]));
    put(&seen.header("etag"), &fixture::manifests()).await.is(412);
    // The version itself may be disabled at any time.
    let mut version = fixture::plugin_version("1.0.0");
    version["disabled"] = json!(true);
    world.put(&operator, VERSION, version).await.is(200);
}

async fn a_version_is_changed_as_it_was_seen(world: World) {
    let operator = world.owner().await;
    world.catalogue(&operator).await;
    let seen = world.get(&operator, VERSION).await.is(200).header("etag");
    let mut version = fixture::plugin_version("1.0.0");
    version["disabled"] = json!(true);
    let change = async |method: Method, path: &str, etag: &str| {
        conditional(&world, &operator, method, path, ("if-match", etag), &version).await
    };
    change(Method::PUT, VERSION, "\"another\"").await.is(412);
    change(Method::PUT, VERSION, &seen).await.is(200);
    change(Method::DELETE, VERSION, &seen).await.is(412);
    let absent = VERSION.replace("1.0.0", "9.0.0");
    let mut version = version.clone();
    version["version"] = json!("9.0.0");
    conditional(&world, &operator, Method::PUT, &absent, ("if-match", "*"), &version)
        .await
        .is(412);
    let now = world.get(&operator, VERSION).await.is(200).header("etag");
    change(Method::DELETE, VERSION, &now).await.is(204);
}
