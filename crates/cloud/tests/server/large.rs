//! Long or large responses cost only what is requested, and an organization that does not receive costs no other.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_kit::{Clock as _, SystemClock};
use tidewaiter_testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::fixture::{Fixture, manifests, plugin, policy, role};
use crate::stream::SOON;
use crate::world::{Answer, World, on_both};

on_both!(
    a_page_costs_what_it_has,
    the_rules_of_all_roles_have_pages,
    what_a_request_leaves_out_is_left_out_before_a_page_is_full,
    the_audit_log_is_read_in_pages_of_a_limited_size,
    a_page_of_large_objects_is_short,
    a_spec_has_at_most_64_kib,
    a_larger_spec_of_before_can_be_read_and_made_smaller,
);

const KIB: usize = 1024;

/// The number of rows that were read for lists and pages.
pub async fn rows_read(world: &World) -> u64 {
    let metrics = world.get("", "/metrics").await.is(200).body;
    let lines = metrics.lines();
    let mut counts = lines.filter_map(|line| line.strip_prefix("tidewaiter_cloud_list_rows_read_total "));
    counts.next().unwrap().parse().unwrap()
}

async fn database(world: &World) -> AnyConnection {
    AnyConnection::connect(world.database.as_str()).await.unwrap()
}

/// The location of the next page.
fn next(page: &Answer) -> Option<String> {
    let link = page.header("link");
    let (url, rel) = link.split_once(">; ")?;
    assert_eq!(rel, "rel=\"next\"");
    Some(url.trim_start_matches('<').to_owned())
}

/// The pages from `first` on.
async fn pages(world: &World, token: &str, first: String) -> Vec<Vec<Value>> {
    let (mut pages, mut path) = (Vec::new(), Some(first));
    while let Some(asked) = path {
        let page = world.get(token, &asked).await.is(200);
        path = next(&page);
        pages.push(serde_json::from_str(&page.body).unwrap());
    }
    pages
}

async fn a_page_costs_what_it_has(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let copies = sqlx::query(
        "INSERT INTO objects (kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, \
         updated_at, spec, status, secret) \
         WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < 5000) \
         SELECT kind, substr(id, 1, 24) || CAST(100000000000 + i AS TEXT), organization_id, cluster_id, parent_id, \
         owner_id, 1000000 + i, created_at, updated_at, spec, status, secret \
         FROM objects, number WHERE kind = 'nodes' AND id = $1",
    );
    let mut database = database(world).await;
    let copies = copies.bind(fixture.near.of("nodes").to_owned());
    copies.execute(&mut database).await.unwrap();
    for list in [
        "/clusters/{cluster_id}/nodes",
        "/clusters/{cluster_id}/node-pools/{node_pool_id}/nodes",
    ] {
        let list = fixture.near(list);
        let before = rows_read(world).await;
        let page = world.get(owner, &format!("{list}?limit=1")).await.is(200);
        let second = world.get(owner, &next(&page).unwrap()).await.is(200);
        assert_eq!(rows_read(world).await - before, 4, "each page, and the object after it");
        // An id alone is a cursor too.
        let first = page.json()[0]["id"].as_str().unwrap().to_owned();
        let after = world.get(owner, &format!("{list}?limit=1&after={first}")).await.is(200);
        assert_eq!(after.body, second.body);
        let before = rows_read(world).await;
        let pages = pages(world, owner, format!("{list}?limit=999")).await;
        assert_eq!(
            pages.iter().map(Vec::len).collect::<Vec<_>>(),
            [999, 999, 999, 999, 999, 6]
        );
        assert_eq!(rows_read(world).await - before, 5 * 1_000 + 6);
        let whole = world.get(owner, &list).await.is(200).json();
        assert_eq!(Value::from(pages.concat()), whole);
    }
}

async fn the_rules_of_all_roles_have_pages(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    for (name, verbs) in [
        ("three", &["get", "list", "watch"][..]),
        ("one", &["get"]),
        ("none", &[]),
    ] {
        let mut more = role(name);
        let rule = |verb: &&str| {
            let mut rule = more["rules"][0].clone();
            rule["verbs"] = json!([verb]);
            rule
        };
        more["rules"] = verbs.iter().map(rule).collect();
        world.post(owner, &fixture.near("/roles"), more).await.is(201);
    }
    let list = fixture.near("/rules");
    let whole = world.get(owner, &list).await.is(200).json();
    let number = whole.as_array().unwrap().len();
    assert!(number >= 5, "{whole}");
    for limit in 1..=number {
        let pages = pages(world, owner, format!("{list}?limit={limit}")).await;
        assert!(pages.iter().rev().skip(1).all(|page| page.len() == limit), "{pages:?}");
        assert_eq!(Value::from(pages.concat()), whole, "{limit}");
    }
    // An id alone is a cursor too.
    let second = &whole[1]["id"].as_str().unwrap();
    let after = world.get(owner, &format!("{list}?after={second}")).await.is(200).json();
    assert_eq!(after.as_array().unwrap()[..], whole.as_array().unwrap()[2..]);
    let unknown = format!("{list}?after={}", uuid::Uuid::nil());
    assert!(world.get(owner, &unknown).await.is(400).body.contains("after"));
    // What did not change is not read again.
    let before = rows_read(world).await;
    world.get(owner, &list).await.is(200);
    assert_eq!(rows_read(world).await, before);
    // The role of the last rule has changed, and the rest of it is not lost.
    let page = world.get(owner, &format!("{list}?limit={}", number - 3)).await.is(200);
    world
        .delete(
            owner,
            &format!("{list}/{}", page.json()[number - 4]["id"].as_str().unwrap()),
        )
        .await
        .is(204);
    let rest = pages(world, owner, next(&page).unwrap()).await.concat();
    let now = world.get(owner, &list).await.is(200).json();
    assert!(rest.len() >= 3 && now.as_array().unwrap().ends_with(&rest), "{rest:?}");
}

async fn what_a_request_leaves_out_is_left_out_before_a_page_is_full(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let (cluster, user) = (fixture.near.of("cluster"), fixture.near.of("user"));
    let binding = |name: &str, cluster: Option<&str>| {
        let mut binding = json!({"type": "UserBinding", "user_id": user, "namespace": name});
        binding["authorization_role_id"] = fixture.near.of("roles").into();
        binding
            .as_object_mut()
            .unwrap()
            .extend(cluster.map(|id| ("cluster_id".to_owned(), json!(id))));
        binding
    };
    for number in 0..150 {
        let of = [Some(&*fixture.beside), None, Some(cluster), Some(&*fixture.beside)][number % 4];
        let binding = binding(&format!("n{number}"), of);
        world
            .post(owner, &fixture.near("/role-bindings"), binding)
            .await
            .is(201);
    }
    for number in 0..9 {
        let rules = if number % 3 == 1 {
            role("")["rules"].clone()
        } else {
            json!([])
        };
        let role = json!({"name": format!("Role {number}"), "description": "", "rules": rules});
        world.post(owner, &fixture.near("/roles"), role).await.is(201);
    }
    let of_cluster = fixture.near("/role-bindings") + "?cluster_id=" + cluster;
    let with_rules = fixture.near("/clusters/{cluster_id}/roles") + "?remove_empty=true&rule_type=kubernetes";
    for (token, list) in [
        (owner, &of_cluster),
        (fixture.token("cluster"), &of_cluster),
        (owner, &with_rules),
        (
            fixture.token("cluster"),
            &(fixture.near("/clusters/{cluster_id}/ssh-users") + "?colour=blue"),
        ),
    ] {
        let whole: Vec<Value> = serde_json::from_str(&world.get(token, list).await.is(200).body).unwrap();
        assert!(whole.len() > 3, "{list}");
        for limit in [1, 2, whole.len() - 1, whole.len(), 1_000] {
            let pages = pages(world, token, format!("{list}&limit={limit}")).await;
            let full = pages.iter().take(pages.len() - 1).all(|page| page.len() == limit);
            assert!(full && !pages.last().unwrap().is_empty(), "{list} by {limit}");
            assert_eq!(pages.concat(), whole, "{list} by {limit}");
        }
    }
}

/// Adds changes of `bytes` each to the audit log of the organization, as of manifests.
async fn changes(world: &World, count: i64, bytes: usize) {
    let mut database = database(world).await;
    let large = json!({ "text": "x".repeat(bytes) }).to_string();
    for number in 0..count {
        let change = sqlx::query(
            "INSERT INTO changes (sequence, at, organization_id, cluster_id, kind, object_id, action, actor, \
             request_id, before, after) \
             VALUES ($1, '2026-01-01T00:00:00Z', $2, '', 'roles', 'r', 'update', 'user:u', 'r', '', $3)",
        );
        let change = change
            .bind(1_000_000 + number)
            .bind(world.organization.clone())
            .bind(large.clone());
        change.execute(&mut database).await.unwrap();
    }
}

async fn the_audit_log_is_read_in_pages_of_a_limited_size(world: World) {
    let owner = world.owner().await;
    changes(&world, 12, 1024 * KIB).await;
    let before = rows_read(&world).await;
    let pages = pages(&world, &owner, "~/audit?limit=1000".to_owned()).await;
    assert_eq!(pages[0].len(), 4, "4 MiB");
    assert_eq!(
        (pages[0][0]["before"].clone(), pages[0][0]["kind"].clone()),
        (Value::Null, "roles".into())
    );
    let ids: Vec<i64> = pages
        .concat()
        .iter()
        .map(|change| change["id"].as_i64().unwrap())
        .collect();
    assert!(ids.is_sorted_by(|one, other| one > other), "{ids:?}");
    assert_eq!(ids[..12], (1_000_000..1_000_012).rev().collect::<Vec<_>>());
    let read = usize::try_from(rows_read(&world).await - before).unwrap();
    assert!(
        ids.len() > 12 && read < ids.len() + pages.len(),
        "{read} of {}",
        ids.len()
    );
    // Few small ones are one page, as before.
    let all = world.get(&owner, "~/audit?limit=1000&before=1000000").await.is(200);
    assert_eq!(all.header("link"), "");
    let one = world.get(&owner, "~/audit?limit=1").await.is(200);
    assert_eq!(one.json().as_array().unwrap().len(), 1);
    assert!(one.header("link").contains("/audit?limit=1&before=1000011>"));
}

/// Replaces the stored spec of an object, as an older version may have stored it. A large one that is written through
/// the server may take longer than a busy machine permits.
async fn store(world: &World, id: &str, spec: &Value) {
    let mut database = database(world).await;
    let update = sqlx::query(
        "UPDATE objects SET spec = $1 WHERE kind IN ('autoscaling-policies', 'plugin-manifests') AND id = $2",
    );
    let stored = update.bind(spec.to_string()).bind(id).execute(&mut database).await;
    assert_eq!(stored.unwrap().rows_affected(), 1);
}

/// Replaces the policy of `fixture` by one with `bytes`.
async fn enlarge(fixture: &Fixture, bytes: usize) {
    let mut stored = policy();
    stored["metric_configuration"] = json!({ "query": "x".repeat(bytes) });
    store(&fixture.world, fixture.near.of("autoscaling-policies"), &stored).await;
}

async fn a_page_of_large_objects_is_short(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let list = fixture.near("/clusters/{cluster_id}/autoscaling-policies");
    enlarge(&fixture, 5 * 1024 * KIB).await;
    world.post(owner, &list, with_configuration(KIB)).await.is(201);
    let pages = pages(world, owner, format!("{list}?limit=10")).await;
    let whole = world.get(owner, &list).await.is(200).json();
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(Value::from(pages.concat()), whole);
}

/// Another policy than that of the fixture.
fn with_configuration(bytes: usize) -> Value {
    let mut said = policy();
    said["name"] = json!(format!("With {bytes} bytes"));
    said["metric_configuration"] = json!({ "query": "x".repeat(bytes) });
    said
}

async fn a_spec_has_at_most_64_kib(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let list = fixture.near("/clusters/{cluster_id}/autoscaling-policies");
    let fits = world.post(owner, &list, with_configuration(63 * KIB)).await.is(201);
    let item = format!("{list}/{}", fits.field("id"));
    let refused = world.post(owner, &list, with_configuration(64 * KIB)).await.is(413);
    assert!(refused.body.contains("64 KiB"), "{refused:?}");
    world.put(owner, &item, with_configuration(64 * KIB)).await.is(413);
    // In parts it does not get in either.
    let more = json!({"metric_configuration": {"more": "x".repeat(2 * KIB)}});
    let refused = world.patch(owner, &item, more).await.is(400);
    assert!(refused.body.contains("64 KiB"), "{refused:?}");
    assert_eq!(world.get(owner, &item).await.is(200).body, fits.body);
}

async fn a_larger_spec_of_before_can_be_read_and_made_smaller(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let item = fixture.near("/clusters/{cluster_id}/autoscaling-policies/{id}");
    let item = item.replace("{id}", fixture.near.of("autoscaling-policies"));
    for bytes in [300, 200] {
        enlarge(&fixture, bytes * KIB).await;
        let seen = world.get(owner, &item).await.is(200).json();
        assert_eq!(
            seen["metric_configuration"]["query"].as_str().unwrap().len(),
            bytes * KIB
        );
        let more = json!({"metric_configuration": {"more": "x".repeat(KIB)}});
        world.patch(owner, &item, more).await.is(400);
        let renamed = world.patch(owner, &item, json!({"metric": "cpu"})).await.is(200).json();
        assert_eq!(renamed["metric_configuration"], seen["metric_configuration"]);
        if bytes == 300 {
            let less = json!({"metric_configuration": {"query": null}});
            world.patch(owner, &item, less).await.is(200);
            world.put(owner, &item, policy()).await.is(200);
        }
    }
    world.delete(owner, &item).await.is(204);
}

/// Responses that nobody reads.
struct Unread<'a> {
    world: &'a World,
    token: &'a str,
    paths: Vec<String>,
    streams: Vec<TcpStream>,
    /// Monotonic.
    since: Duration,
}

/// The server closes a connection after 30 seconds in which its client does not read. In this time, it surely has not.
const OPEN: Duration = Duration::from_secs(25);

impl<'a> Unread<'a> {
    async fn of(world: &'a World, token: &'a str, paths: Vec<String>) -> Self {
        let mut unread = Self {
            world,
            token,
            paths,
            streams: Vec::new(),
            since: SystemClock.monotonic(),
        };
        unread.begin().await;
        unread
    }

    async fn begin(&mut self) {
        self.streams.clear();
        self.since = SystemClock.monotonic();
        for path in &self.paths {
            let stream = eventually("a response to begin", SOON, async || self.ask(path).await).await;
            self.streams.push(stream);
        }
    }

    async fn ask(&self, path: &str) -> Result<TcpStream, String> {
        let mut stream = TcpStream::connect(self.world.base.trim_start_matches("http://"))
            .await
            .unwrap();
        let token = self.token;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: JWT {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        if &begin == b"HTTP/1.1 200" {
            Ok(stream)
        } else {
            Err(String::from_utf8_lossy(&begin).into_owned())
        }
    }

    /// The request is refused while these responses are not read. On a busy machine, it may come so late that they must
    /// be asked for again.
    async fn refuse(&mut self, request: impl AsyncFn() -> Answer) -> Answer {
        loop {
            let answer = request().await;
            if answer.status == 429 || SystemClock.monotonic() < self.since + OPEN {
                return answer.is(429);
            }
            self.begin().await;
        }
    }
}

#[tokio::test]
async fn what_one_organization_does_not_receive_costs_no_other() {
    let fixture = Fixture::new(World::sqlite().await).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let mut large = manifests();
    large["manifests"][0][0]["metadata"]["annotations"] = json!({"text": "x".repeat(15 * 1024 * KIB)});
    store(world, "metrics/prometheus/1.0.0", &large).await;
    let path = fixture.near("/clusters/{cluster_id}/plugins/{id}");
    let path = path.replace("{id}", fixture.near.of("plugins"));
    let mut unread = Unread::of(world, owner, vec![path.clone(); 3]).await;
    let refused = unread.refuse(async || world.get(owner, &path).await).await;
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.body.contains("64 MiB"), "{refused:?}");
    // Neither is a plugin created or changed, because its response has the manifests.
    let plugins = fixture.near("/clusters/{cluster_id}/plugins");
    unread
        .refuse(async || world.post(owner, &plugins, plugin()).await)
        .await;
    let same = json!({"version": "1.0.0"});
    unread
        .refuse(async || world.patch(owner, &path, same.clone()).await)
        .await;
    // What is small has its place, also for the same organization, and others have theirs.
    world.get(owner, &plugins).await.is(200);
    let elsewhere = "/v3/organizations/{organization_id}/clusters/{cluster_id}/plugins/{id}";
    let elsewhere = fixture.far.path(&elsewhere.replace("{id}", fixture.far.of("plugins")));
    let far = world.get(fixture.far.of("key"), &elsewhere).await.is(200);
    assert!(far.body.len() > 15 * 1024 * KIB);
    // Who goes away gives back what was held.
    drop(unread);
    eventually("the budget to be free", SOON, async || {
        let status = world.get(owner, &path).await.status;
        if status == 200 { Ok(()) } else { Err(status) }
    })
    .await;
}

#[tokio::test]
async fn lists_of_one_organization_leave_connections_for_others() {
    let fixture = Fixture::new(World::postgres().await).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let audit = fixture.far.path("/v3/organizations/{organization_id}/audit");
    world.get(fixture.token("stranger"), &audit).await.is(200);
    let mut database = database(world).await;
    let mut locked = database.begin().await.unwrap();
    let lock = "LOCK TABLE objects IN ACCESS EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *locked).await.unwrap();
    let list = fixture.near("/registries");
    // Each is a list of its own, and waits for the lock.
    let lists = join_all((0..64).map(|number| {
        let list = format!("{list}?by={number}");
        async move { world.get(owner, &list).await }
    }));
    let others = async {
        for _ in 0..20 {
            world.get(fixture.token("stranger"), &audit).await.is(200);
        }
    };
    tokio::select! {
        biased;
        _ = lists => panic!("others had to wait"),
        () = others => {}
    }
    locked.rollback().await.unwrap();
}

/// Opens a stream, and another one when it ended or was refused.
async fn open_again(world: &World, token: &str, events: &str) {
    loop {
        world.get(token, events).await;
    }
}

#[tokio::test]
async fn streams_that_are_opened_leave_connections_for_others() {
    let fixture = Fixture::new(World::postgres().await).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let audit = fixture.far.path("/v3/organizations/{organization_id}/audit");
    let events = fixture.near("/clusters/{cluster_id}/events");
    // The caller of one half is known, that of the other half has to be looked up.
    let made = json!({"name": "new", "expires_in_seconds": 3600});
    let made = world.post(owner, "/v3/account/tokens", made).await.is(201);
    let unknown = made.field("token");
    for token in [owner, fixture.token("stranger")] {
        world.get(token, "/v3/account").await.is(200);
    }
    world.get(fixture.token("stranger"), &audit).await.is(200);
    let mut database = database(world).await;
    let mut locked = database.begin().await.unwrap();
    let lock = "LOCK TABLE objects IN ACCESS EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *locked).await.unwrap();
    for token in [owner, &unknown] {
        // Each waits for the lock.
        let opened = join_all((0..64).map(|_| open_again(world, token, &events)));
        let others = async {
            for _ in 0..20 {
                world.get(fixture.token("stranger"), &audit).await.is(200);
            }
        };
        tokio::select! {
            biased;
            _ = opened => {}
            () = others => {}
        }
    }
    locked.rollback().await.unwrap();
}

/// The number of sessions of the database that wait for a lock.
async fn waiting(world: &World) -> i64 {
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let found = sqlx::query_as(waiting).fetch_one(&mut database(world).await).await;
    let (count,): (i64,) = found.unwrap();
    count
}

#[tokio::test]
async fn requests_of_one_organization_leave_permits_for_others() {
    // One of the two permits is for the callers of an organization.
    let two = World::postgres().await;
    let two = two.restarted(|parts| parts.limits.requests_at_once = 2).await;
    let fixture = Fixture::new(two).await;
    let (world, admin) = (&fixture.world, fixture.token("admin"));
    let (owner, stranger) = (fixture.token("owner"), fixture.token("stranger"));
    let (list, audit) = (fixture.near("/registries"), fixture.near("/audit"));
    let elsewhere = fixture.far.path("/v3/organizations/{organization_id}/audit");
    // Their tokens are not looked up again.
    for (token, path) in [(admin, &list), (owner, &audit), (stranger, &elsewhere)] {
        world.get(token, path).await.is(200);
    }
    let mut database = database(world).await;
    let mut locked = database.begin().await.unwrap();
    let lock = "LOCK TABLE objects IN ACCESS EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *locked).await.unwrap();
    // On a busy machine, the first request may end at the deadline of its statement before the others are answered.
    eventually("a request to wait for one of its organization", SOON, async || {
        let changed = format!("{list}?by={}", Uuid::new_v4());
        let others = async {
            eventually("the first request to wait for the lock", SOON, async || {
                if waiting(world).await > 0 {
                    Ok(())
                } else {
                    Err("it does not")
                }
            })
            .await;
            let of_another = async {
                for _ in 0..3 {
                    world.get(stranger, &elsewhere).await.is(200);
                }
            };
            tokio::select! {
                biased;
                answer = world.get(owner, &audit) => Err(format!("it did not wait: {answer:?}")),
                () = of_another => Ok(()),
            }
        };
        tokio::select! {
            biased;
            answer = world.get(admin, &changed) => Err(format!("the first one ended: {answer:?}")),
            waited = others => waited,
        }
    })
    .await;
    locked.rollback().await.unwrap();
}

#[tokio::test]
async fn a_cached_list_counts_once_for_all_who_receive_it() {
    let fixture = Fixture::new(World::sqlite().await).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let list = fixture.near("/clusters/{cluster_id}/autoscaling-policies");
    enlarge(&fixture, 20 * 1024 * KIB).await;
    let mut paths = vec![list.clone(); 12];
    // Another response of the same size counts for itself.
    paths.extend(["blue", "red"].map(|colour| format!("{list}?colour={colour}")));
    let mut unread = Unread::of(world, owner, paths).await;
    unread
        .refuse(async || world.get(owner, &format!("{list}?colour=green")).await)
        .await;
    enlarge(&fixture, 65 * 1024 * KIB).await;
    drop(unread);
    eventually("the list to be refused for its size", SOON, async || {
        let refused = world.get(owner, &format!("{list}?colour=grey")).await;
        if refused.status == 507 {
            Ok(())
        } else {
            Err(refused.status)
        }
    })
    .await;
}
