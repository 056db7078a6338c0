//! The storage of an organization, a cluster and a caller: the size, the refusals, and the deletions from the audit
//! log.

use std::num::NonZeroU32;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use tidewaiter_cloud::server::store;
use tidewaiter_testkit::eventually;

use crate::fixture::{self, Fixture};
use crate::stream::SOON;
use crate::world::{Answer, PASSWORD, World, on_both, sqlite_url};

on_both!(
    what_is_counted_is_what_is_there,
    a_change_costs_what_it_changes,
    objects_have_a_limit,
    stored_responses_have_a_limit,
    a_large_audit_log_drops_its_oldest_rows_and_says_so,
    who_fills_the_audit_log_is_refused_and_nobody_else,
    reports_of_an_upgrade_within_a_minute_are_one_change,
);

const MIB: NonZeroU32 = NonZeroU32::MIN;

async fn database(world: &World) -> AnyConnection {
    AnyConnection::connect(world.database.as_str()).await.unwrap()
}

/// Counts everything again, as the migration does, while nothing else is written. Returns what was counted before and
/// after that.
async fn count_again(world: &World) -> [Vec<(String, String, i64)>; 2] {
    let mut database = database(world).await;
    database.execute("BEGIN").await.unwrap();
    database.execute("UPDATE sequence SET value = value").await.unwrap();
    let along = counted(&mut database).await;
    let migration = include_str!("../../migrations/0007_stored.sql");
    database.execute(migration).await.unwrap();
    let again = counted(&mut database).await;
    database.execute("COMMIT").await.unwrap();
    [along, again]
}

async fn counted(database: &mut AnyConnection) -> Vec<(String, String, i64)> {
    let statement = "SELECT what, owner, bytes FROM stored WHERE bytes <> 0 ORDER BY what, owner";
    sqlx::query_as(statement).fetch_all(database).await.unwrap()
}

/// Checks that what was counted along is what is there.
async fn assert_counted(world: &World) -> Vec<(String, String, i64)> {
    let [along, again] = count_again(world).await;
    assert_eq!(along, again);
    along
}

async fn post_once(world: &World, token: &str, path: &str, key: &str, body: &Value) -> Answer {
    let request = world.request(token, Method::POST, path).header("idempotency-key", key);
    world.send(request.json(body)).await
}

fn policy(bytes: usize) -> Value {
    let mut policy = fixture::policy();
    policy["metric_configuration"] = json!({"blob": "a".repeat(bytes)});
    policy
}

fn named(mut body: Value, name: &str) -> Value {
    body["name"] = json!(name);
    body
}

/// The newest changes of an object, the last one first.
async fn changes(fixture: &Fixture, id: &str) -> Vec<Value> {
    let audit = fixture.near("/audit?limit=1000");
    let rows = fixture.world.get(fixture.token("owner"), &audit).await.is(200).json();
    let of = |row: &&Value| row["object_id"] == *id;
    rows.as_array().unwrap().iter().filter(of).cloned().collect()
}

async fn what_is_counted_is_what_is_there(world: World) {
    let fixture = Fixture::new(world).await;
    let (owner, cluster) = (fixture.token("owner"), fixture.token("cluster"));
    let world = &fixture.world;
    let roles = fixture.near("/roles");
    for name in ["kept", "gone", "refused"] {
        let made = post_once(world, owner, &roles, name, &fixture::role(name)).await;
        if name == "gone" {
            world.delete(owner, &made.is(201).header("location")).await.is(204);
        }
    }
    // A refused change counts nothing.
    world.post(owner, &roles, fixture::role("kept")).await.is(409);
    for percent in 0..5 {
        let path = fixture.near("/clusters/{cluster_id}/nodes/{id}/status");
        let report = json!({"status": {"type": "UPDATING", "percent": percent, "message": "ü".repeat(percent)}});
        world.put(cluster, &path, report).await.is(200);
        let (path, report) = (
            fixture.near("/clusters/{cluster_id}/report"),
            json!({"message": "ü".repeat(percent)}),
        );
        world.put(cluster, &path, report).await.is(200);
    }
    world.log_in("olivia@example.org", PASSWORD).await.is(200);
    // Tokens and responses that expire, and changes that are too old.
    let mut database = database(world).await;
    for statement in [
        "UPDATE objects SET spec = REPLACE(spec, '\"expires_at\":\"20', '\"expires_at\":\"19') \
         WHERE kind = 'tokens' AND spec LIKE '%short%'",
        "UPDATE idempotency SET at = 0 WHERE name = 'kept'",
        "UPDATE changes SET at = '2001-01-01T00:00:00Z' WHERE sequence < 5",
        "UPDATE sequence SET value = 10005",
    ] {
        database.execute(statement).await.unwrap();
    }
    eventually("what is old to be deleted", SOON, async || {
        let old = "SELECT (SELECT COUNT(*) FROM changes WHERE sequence < 5) \
            + (SELECT COUNT(*) FROM idempotency WHERE at = 0)";
        let (left,): (i64,) = sqlx::query_as(old).fetch_one(&mut database).await.unwrap();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    let far = format!("/v3/organizations/{}", fixture.far.of("organization"));
    world.delete(fixture.token("stranger"), &far).await.is(204);
    let counted_along = assert_counted(world).await;
    assert!(counted_along.iter().any(|(what, _, _)| what == "replays"));
    let (organization, of_cluster) = (fixture.near.of("organization"), fixture.near.of("cluster"));
    for (what, of) in [
        ("objects", organization),
        ("audit", organization),
        ("audit", ""),
        ("clusterObjects", of_cluster),
        ("reports", of_cluster),
    ] {
        assert!(
            counted_along.iter().any(|row| row.0 == what && row.1 == of),
            "{what} of {of}: {counted_along:?}"
        );
    }
}

async fn a_change_costs_what_it_changes(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let policies = fixture.near("/clusters/{cluster_id}/autoscaling-policies");
    let made = world
        .post(owner, &policies, named(policy(60_000), "large"))
        .await
        .is(201);
    let path = made.header("location");
    world.patch(owner, &path, json!({"name": "renamed"})).await.is(200);
    for letter in ["b", "c"] {
        let blob = json!({"metric_configuration": {"blob": letter.repeat(60_000)}});
        world.patch(owner, &path, blob).await.is(200);
    }
    world.delete(owner, &path).await.is(204);
    let rows = changes(&fixture, &made.field("id")).await;
    let [deleted, second, _, renamed, created] = rows.try_into().unwrap();
    assert_eq!(
        (&renamed["before"], &renamed["after"]),
        (&json!({"name": "large"}), &json!({"name": "renamed"}))
    );
    assert_eq!((&created["before"], &deleted["after"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&created["after"]["name"], &deleted["before"]["name"]),
        (&json!("large"), &json!("renamed"))
    );
    for document in [
        &created["after"],
        &second["before"],
        &second["after"],
        &deleted["before"],
    ] {
        let blob = document["metric_configuration"]["blob"].as_str().unwrap();
        assert!(blob.starts_with("sha256:") && blob.ends_with("(60002 bytes)"), "{blob}");
        assert!(document.to_string().len() < 2_000, "{document}");
    }
    assert_ne!(second["before"], second["after"]);
    assert_eq!(
        deleted["before"]["metric_configuration"],
        second["after"]["metric_configuration"]
    );
    // Of a list, who came and who went.
    let teams = fixture.near("/teams");
    let (alice, bob) = (fixture.near.of("user"), user_of(world, owner, &fixture, "admin").await);
    let team = world
        .post(owner, &teams, json!({"name": "ops", "user_ids": [alice]}))
        .await
        .is(201);
    let path = team.header("location");
    world.patch(owner, &path, json!({"user_ids": [bob]})).await.is(200);
    let rows = changes(&fixture, &team.field("id")).await;
    assert_eq!(
        (&rows[0]["before"], &rows[0]["after"]),
        (&json!({"user_ids": [alice]}), &json!({"user_ids": [bob]}))
    );
}

async fn user_of(world: &World, owner: &str, fixture: &Fixture, role: &str) -> String {
    let users = world.get(owner, &fixture.near("/users")).await.is(200).json();
    let user = users.as_array().unwrap().iter().find(|user| user["role"] == role);
    user.unwrap()["id"].as_str().unwrap().to_owned()
}

async fn objects_have_a_limit(world: World) {
    let world = world
        .restarted(|parts| {
            parts.storage.objects = MIB;
            parts.storage.cluster_objects = MIB;
        })
        .await;
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    let policies = fixture.near("/clusters/{cluster_id}/autoscaling-policies");
    let mut made = Vec::new();
    let refused = loop {
        let name = format!("p{}", made.len());
        let answer = world.post(owner, &policies, named(policy(50_000), &name)).await;
        if answer.status != 201 {
            break answer.is(403);
        }
        made.push(answer.header("location"));
        assert!(made.len() < 200, "never refused");
    };
    assert!((15..=20).contains(&made.len()), "{}", made.len());
    assert!(
        refused.body.contains("1 MiB") && refused.body.contains("storageMiB."),
        "{refused:?}"
    );
    // What is left takes some roles. The owner can log in all the same.
    let mut number = 0;
    while world
        .post(owner, &fixture.near("/roles"), fixture::role(&format!("r{number}")))
        .await
        .status
        == 201
    {
        number += 1;
        assert!(number < 200, "never refused");
    }
    world.log_in("near-owner@example.org", PASSWORD).await.is(200);
    // The status of a cluster counts too.
    let status = fixture.near("/clusters/{cluster_id}/nodes/{id}/status");
    let report = |bytes| json!({"status": {"type": "UPDATING", "message": "a".repeat(bytes)}});
    let large = world.put(cluster, &status, report(1_000)).await;
    if large.status != 200 {
        assert!(large.is(403).body.contains("storageMiB."));
    }
    // Others have their own, and what makes it smaller is always possible.
    let far = fixture.far.path("/v3/organizations/{organization_id}/roles");
    world
        .post(fixture.token("stranger"), &far, fixture::role("new"))
        .await
        .is(201);
    let smaller = json!({"metric_configuration": {"blob": ""}});
    world.patch(owner, &made[0], smaller).await.is(200);
    world
        .post(owner, &policies, named(policy(30_000), "again"))
        .await
        .is(201);
    world.delete(owner, &made[1]).await.is(204);
    world
        .post(owner, &policies, named(policy(40_000), "and again"))
        .await
        .is(201);
    // A refused change counts nothing.
    assert_counted(world).await;
    let metrics = world.get("", "/metrics").await.is(200).body;
    assert!(
        metrics.contains("tidewaiter_cloud_over_storage_total{limit=\""),
        "{metrics}"
    );
}

async fn stored_responses_have_a_limit(world: World) {
    let world = world.restarted(|parts| parts.storage.replays = MIB).await;
    let fixture = Fixture::new(world).await;
    let (world, owner, admin) = (&fixture.world, fixture.token("owner"), fixture.token("admin"));
    // The manifests of a plugin are not stored with each response.
    let inside = fixture.near("/clusters/{cluster_id}/plugins/{id}");
    world.delete(owner, &inside).await.is(204);
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"},
        "data": {"a": "a".repeat(900_000)}});
    let manifests = json!({"manifests": [[manifest]], "jobs": {"pre_apply": [], "post_apply": []}});
    let version = "/v3/plugins/metrics/implementations/prometheus/versions/1.0.0/manifests";
    let seen = world
        .get(fixture.token("operator"), version)
        .await
        .is(200)
        .header("etag");
    let replace = world
        .request(fixture.token("operator"), Method::PUT, version)
        .header("if-match", seen);
    world.send(replace.json(&manifests)).await.is(204);
    let plugins = fixture.near("/clusters/{cluster_id}/plugins");
    let first = post_once(world, owner, &plugins, "plugin", &fixture::plugin())
        .await
        .is(201);
    let second = post_once(world, owner, &plugins, "plugin", &fixture::plugin())
        .await
        .is(201);
    assert!(first.body.len() > 900_000 && second.header("idempotency-replayed") == "true");
    assert_eq!(first.json(), second.json());
    assert_eq!(first.header("etag"), second.header("etag"));
    let policies = fixture.near("/clusters/{cluster_id}/autoscaling-policies");
    let mut number = 0;
    let refused = loop {
        let body = named(policy(50_000), &format!("p{number}"));
        let answer = post_once(world, owner, &policies, &format!("p{number}"), &body).await;
        if answer.status != 201 {
            break answer.is(429);
        }
        number += 1;
        assert!(number < 200, "never refused");
    };
    // A response takes more than its text, because it is encrypted.
    assert!((9..=16).contains(&number), "{number}");
    assert!(
        refused.body.contains("Idempotency-Key") && refused.body.contains("storageMiB.replays"),
        "{refused:?}"
    );
    assert!(!refused.header("retry-after").is_empty());
    // Nothing was created, and without the header it is.
    let body = named(policy(50_000), &format!("p{number}"));
    world.post(owner, &policies, body).await.is(201);
    post_once(world, admin, &policies, "p0", &named(policy(10), "another's"))
        .await
        .is(201);
    let again = post_once(world, owner, &policies, "p0", &named(policy(50_000), "p0")).await;
    assert_eq!(again.is(201).header("idempotency-replayed"), "true");
}

async fn a_large_audit_log_drops_its_oldest_rows_and_says_so(world: World) {
    let world = world
        .restarted(|parts| {
            parts.storage.audit = MIB;
            parts.storage.reports = MIB;
        })
        .await;
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let (near, cluster) = (fixture.near.of("organization"), fixture.near.of("cluster"));
    let far_path = fixture.far.path("/v3/organizations/{organization_id}/audit?limit=1000");
    let far = world.changes(fixture.token("stranger"), &far_path).await;
    let mut database = database(world).await;
    // Before everything else, 3 MiB by a user and as many by the cluster; the second half of them stays, or less.
    database
        .execute("UPDATE changes SET sequence = sequence + 1000000")
        .await
        .unwrap();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) \
        INSERT INTO changes (sequence, at, organization_id, cluster_id, kind, object_id, action, actor, request_id, \
        before, after) \
        SELECT i * 2 + $1, $5, $2, '', 'roles', 'x', 'update', $3, '', $4, $4 FROM n";
    let at = far[0]["at"].as_str().unwrap().to_owned();
    for (first, actor) in [
        (0_i64, format!("user:{}", fixture.near.of("user"))),
        (1, format!("cluster:{cluster}")),
    ] {
        let rows = sqlx::query(rows)
            .bind(first)
            .bind(near)
            .bind(actor)
            .bind(json!({"a": "a".repeat(250)}).to_string());
        let rows = rows.bind(&at);
        rows.execute(&mut database).await.unwrap();
    }
    database.execute("UPDATE sequence SET value = 1100000").await.unwrap();
    count_again(world).await;
    let count = async |what: &str| {
        let condition = if what == "audit" { "<>" } else { "=" };
        let statement = format!(
            "SELECT COUNT(*), COALESCE(MIN(sequence), 0) FROM changes \
             WHERE substr(actor, 1, 8) {condition} 'cluster:' AND object_id = 'x'"
        );
        let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
        let counted: (i64, i64) = sqlx::query_as(AssertSqlSafe(statement))
            .fetch_one(&mut database)
            .await
            .unwrap();
        counted
    };
    eventually("the oldest rows to be deleted", SOON, async || {
        let bytes = counted(&mut database).await;
        let over = bytes
            .iter()
            .filter(|(what, _, bytes)| ["audit", "reports"].contains(&&**what) && *bytes > 1_048_576);
        let over = over.count();
        if over == 0 { Ok(()) } else { Err(format!("{bytes:?}")) }
    })
    .await;
    for what in ["audit", "reports"] {
        let (left, oldest) = count(what).await;
        // The newest of them, and not fewer than fit.
        assert!((700..1_030).contains(&left), "{what}: {left}");
        assert!(oldest > 3_900, "{what}: {oldest}");
    }
    let rows = world
        .get(owner, &fixture.near("/audit?limit=1000"))
        .await
        .is(200)
        .json();
    let marks: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["action"] == "forget")
        .collect();
    assert_eq!(marks.len(), 2, "{marks:?}");
    for (id, dropped) in [
        (near, 3_000 - count("audit").await.0),
        (cluster, 3_000 - count("reports").await.0),
    ] {
        let mark = marks.iter().find(|row| row["object_id"] == id).unwrap();
        assert_eq!((&mark["kind"], &mark["actor"]), (&json!("audit"), &json!("system")));
        assert_eq!(mark["after"], json!({"changes": dropped, "until": at}));
    }
    let left = world.changes(fixture.token("stranger"), &far_path).await;
    assert_eq!(left.len(), far.len());
    let metrics = world.get("", "/metrics").await.is(200).body;
    for metric in [
        "audit_rows_dropped_total{limit=\"audit\"}",
        "stored_bytes{limit=\"reports\"}",
        "largest_stored_bytes{limit=\"objects\"}",
    ] {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
    assert_counted(world).await;
    // More is dropped, and the row says so of all.
    let before = count("audit").await.0;
    sqlx::query("UPDATE stored SET bytes = bytes + 200000 WHERE what = 'audit' AND owner = $1")
        .bind(near)
        .execute(&mut database)
        .await
        .unwrap();
    eventually("more rows to be deleted", SOON, async || {
        let rows = world
            .get(owner, &fixture.near("/audit?limit=1000"))
            .await
            .is(200)
            .json();
        let marks: Vec<_> = rows
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["action"] == "forget" && row["object_id"] == near)
            .cloned()
            .collect();
        assert_eq!(marks.len(), 1, "{marks:?}");
        let left = count("audit").await.0;
        if left < before - 150 && marks[0]["after"]["changes"] == 3_000 - left {
            Ok(())
        } else {
            Err(format!("{left} {marks:?}"))
        }
    })
    .await;
}

async fn who_fills_the_audit_log_is_refused_and_nobody_else(world: World) {
    let world = world.restarted(|parts| parts.storage.audit = MIB).await;
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let reader = fixture.token("read_only");
    let body = json!({"name": "a".repeat(120), "expires_in_seconds": 3600});
    let (mut last, mut tokens) = (String::new(), 0);
    let refused = loop {
        let answer = world.post(reader, "/v3/account/tokens", body.clone()).await;
        if answer.status != 201 {
            break answer.is(429);
        }
        last = answer.field("id");
        tokens += 1;
        assert!(tokens < 5_000, "never refused");
    };
    assert!(
        refused.body.contains("storageMiB.audit") && refused.body.contains("you have"),
        "{refused:?}"
    );
    assert!(!refused.header("retry-after").is_empty());
    let rows = counted(&mut database(world).await).await;
    let audit = rows
        .iter()
        .find(|row| row.0 == "audit" && row.1 == fixture.near.of("organization"));
    assert!(audit.unwrap().2 < 1_048_576, "{audit:?}");
    // It can clear up, which an owner can do for it, and what others do is no matter of it.
    world
        .delete(reader, &format!("/v3/account/tokens/{last}"))
        .await
        .is(204);
    for who in ["owner", "admin", "member"] {
        world
            .post(fixture.token(who), "/v3/account/tokens", body.clone())
            .await
            .is(201);
    }
    world
        .post(fixture.token("owner"), &fixture.near("/roles"), fixture::role("new"))
        .await
        .is(201);
    let id = user_of(world, fixture.token("owner"), &fixture, "read_only").await;
    world
        .delete(fixture.token("owner"), &fixture.near(&format!("/users/{id}")))
        .await
        .is(204);
    assert_counted(world).await;
}

async fn reports_of_an_upgrade_within_a_minute_are_one_change(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, cluster) = (&fixture.world, fixture.token("cluster"));
    let (upgrade, path) = (
        fixture.near.of("upgrades"),
        fixture.near("/clusters/{cluster_id}/upgrades/{upgrade_id}/status"),
    );
    let before = changes(&fixture, upgrade).await.len();
    let mut nodes = serde_json::Map::new();
    for number in 0..30 {
        nodes.insert(format!("node-{number}"), json!("InProgress"));
        let body = json!({"status": {"clusterStatus": "InProgress", "nodeStatuses": nodes}});
        world.put(cluster, &path, body).await.is(200);
    }
    let rows = changes(&fixture, upgrade).await;
    let reports = &rows[..rows.len() - before];
    // Two if a minute has just begun.
    assert!((1..=2).contains(&reports.len()), "{reports:?}");
    let all: usize = reports
        .iter()
        .map(|row| row["after"]["status"]["nodeStatuses"].as_object().unwrap().len())
        .sum();
    assert_eq!(all, 30, "{reports:?}");
    assert_eq!(
        reports.last().unwrap()["after"]["status"]["clusterStatus"],
        "InProgress"
    );
    // In another minute it is another row.
    let mut database = database(world).await;
    let earlier = "UPDATE changes SET at = '2026-01-01T00:00:00Z' WHERE object_id = $1";
    sqlx::query(earlier).bind(upgrade).execute(&mut database).await.unwrap();
    let body = json!({"status": {"clusterStatus": "Success", "nodeStatuses": nodes}});
    world.put(cluster, &path, body).await.is(200);
    let now = changes(&fixture, upgrade).await;
    assert_eq!(now.len(), rows.len() + 1);
    assert_eq!(now[0]["before"], json!({"status": {"clusterStatus": "InProgress"}}));
    assert_eq!(now[0]["after"], json!({"status": {"clusterStatus": "Success"}}));
}

#[tokio::test]
async fn what_is_deleted_is_given_back() {
    let fixture = Fixture::new(World::sqlite().await).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let policies = fixture.near("/clusters/{cluster_id}/autoscaling-policies");
    let mut made = Vec::new();
    for number in 0..480 {
        let policy = named(policy(62_000), &format!("p{number}"));
        made.push(world.post(owner, &policies, policy).await.is(201).header("location"));
    }
    let pages = async || {
        let mut database = database(world).await;
        let (pages,): (i64,) = sqlx::query_as("PRAGMA page_count")
            .fetch_one(&mut database)
            .await
            .unwrap();
        pages
    };
    let full = pages().await;
    assert!(full > 7_000, "{full}");
    for path in &made {
        world.delete(owner, path).await.is(204);
    }
    eventually("most of the file to be given back", SOON * 2, async || {
        let left = pages().await;
        if left < 2_500 { Ok(()) } else { Err(left) }
    })
    .await;
    // So does the file that a backup is restored into.
    let mut copy = Vec::new();
    store::backup(&world.database, &mut copy, &mut |_| {}).await.unwrap();
    let restored = sqlite_url(&world.folder.path().join("restored.db"));
    store::restore(&restored, &mut &*copy, &mut |_| {}).await.unwrap();
    let mut restored = AnyConnection::connect(restored.as_str()).await.unwrap();
    let (incremental,): (i64,) = sqlx::query_as("PRAGMA auto_vacuum")
        .fetch_one(&mut restored)
        .await
        .unwrap();
    assert_eq!(incremental, 2);
}
