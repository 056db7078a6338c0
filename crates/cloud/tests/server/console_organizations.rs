//! The pages of service accounts and of all organizations, the clusters that have followed a change, the pages that
//! follow an organization, and the notices before an end: each as the role that may see it and as one that may not.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::{Clock as _, SystemClock};
use tidewaiter_testkit::eventually;

use crate::browser::Browser;
use crate::console_people::{has, has_not, make};
use crate::fixture::ssh_key;
use crate::stream::{SOON, cluster};
use crate::world::{Answer, World, on_both};

on_both!(
    a_service_account_and_its_tokens_are_for_admins,
    operators_see_all_organizations_and_the_limits_reached,
    the_page_after_a_change_names_the_clusters_that_have_not_followed,
    pages_follow_an_organization,
    an_end_is_pointed_out_before_it,
);

/// The end after this time, in whole seconds.
fn end_in(time: SignedDuration) -> String {
    let end: Timestamp = SystemClock.now() + time;
    end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The token in the page that shows it once.
fn token_in(page: &Answer) -> &str {
    let (_, token) = page.body.split_once("aria-label=\"Token\"><code>").unwrap();
    token.split_once('<').unwrap().0
}

async fn a_service_account_and_its_tokens_are_for_admins(world: World) {
    let owner = world.owner().await;
    let (prod, _) = cluster(&world, &owner, "prod").await;
    let prod = prod.trim_start_matches("~/clusters/");
    let (_, admin) = world.user(&owner, &world.organization, "Adam", "admin").await;
    let (_, member) = world.user(&owner, &world.organization, "Max", "member").await;
    let (browser, others) = (Browser::of(&world, &admin), Browser::of(&world, &member));
    has(&browser.page("~/people").await, &["/service-accounts\""]);
    has_not(&others.page("~/people").await, &["/service-accounts\""]);
    let account = [
        ("name", "ci"),
        ("role", "admin"),
        ("expires_at", "2099-01-31T18:00"),
        ("description", "builds"),
    ];
    let review = browser.change("~/service-accounts", &account).await;
    has(&review, &["ci", "admin", "builds", "2099-01-31T18:00:00Z"]);
    let listed = world.get(&owner, "~/service-accounts").await.json();
    let id = listed[0]["id"].as_str().unwrap();
    let here = format!("~/service-accounts/{id}");
    has(&browser.page("~/service-accounts").await, &[id, "builds"]);
    let limited = [
        ("name", "deploy"),
        ("days", "2"),
        ("kinds", "labels"),
        ("clusters", prod),
        ("read_only", "yes"),
    ];
    let tokens = format!("{here}/tokens");
    let made = browser.post(&tokens, &limited).await.is(201);
    assert_eq!(made.header("cache-control"), "no-store");
    let token = token_in(&made);
    world.get(token, &format!("~/clusters/{prod}/labels")).await.is(200);
    world.get(token, "~/roles").await.is(403);
    world.delete(token, &format!("~/clusters/{prod}")).await.is(403);
    let page = browser.page(&here).await;
    has(&page, &["deploy", "kinds: labels", "clusters: prod", "verbs: read"]);
    has_not(&page, &[token]);
    browser
        .post(&tokens, &[("name", "deploy"), ("days", "400")])
        .await
        .is(422);
    for path in ["~/service-accounts", &here] {
        others.get(path).await.is(403);
    }
    let (end, delete) = (format!("{here}/end"), format!("{here}/delete"));
    let changes: [(&str, &[(&str, &str)]); 3] = [
        ("~/service-accounts", &account),
        (&end, &[("expires_at", "")]),
        (&delete, &[]),
    ];
    for (path, fields) in changes {
        others.is_refused(403, path, fields).await;
    }
    others.post(&tokens, &limited).await.is(403);
    let listed = world.get(&owner, &tokens).await.json();
    let revoke = format!("{tokens}/{}/revoke", listed[0]["id"].as_str().unwrap());
    others.is_refused(403, &revoke, &[]).await;
    world.get(token, &format!("~/clusters/{prod}/labels")).await.is(200);
    has(&browser.change(&revoke, &[]).await, &["deploy", "verbs: read"]);
    world.get(token, &format!("~/clusters/{prod}/labels")).await.is(401);
    let review = browser.change(&end, &[("expires_at", "")]).await;
    has(&review, &["no end", "ci"]);
    assert_eq!(world.get(&owner, &here).await.json().get("expires_at"), None);
    browser.change(&delete, &[]).await;
    browser.get(&here).await.is(404);
}

async fn operators_see_all_organizations_and_the_limits_reached(world: World) {
    let world = world
        .restarted(|parts| parts.quotas = [(Kind::Cluster, 1)].into())
        .await;
    let owner = world.owner().await;
    let (_, admin) = world.user(&owner, &world.organization, "Adam", "admin").await;
    let other = world.another_organization(&owner, "Other").await;
    let (_, sven) = world.user(&owner, &other, "Sven", "owner").await;
    let leave = format!("/v3/organizations/{other}/users/{}", world.owner);
    world.delete(&owner, &leave).await.is(204);
    let browser = Browser::of(&world, &owner);
    let page = browser.page("/operators").await;
    has(&page, &["Acme", "Other", &other]);
    has_not(&page, &[">clusters</span>"]);
    let clusters = format!("/v3/organizations/{other}/clusters");
    world.post(&sven, &clusters, json!({"name": "prod"})).await.is(201);
    let page = browser.page("/operators").await;
    has(&page, &[">clusters</span>", "1 of 1 clusters"]);
    // It is no member of the other one, whose pages nothing leads to.
    has(&page, &[&format!("/organizations/{}/clusters\"", world.organization)]);
    has_not(&page, &[&format!("/organizations/{other}/clusters\""), "prod", "sven"]);
    browser.get(&format!("/organizations/{other}/clusters")).await.is(404);
    let lock = [("id", &*other), ("locked", "true")];
    has(
        &browser.change("/operators/lock", &lock).await,
        &["<strong>Other</strong>"],
    );
    let renamed = json!({"name": "Another"});
    let refused = world
        .patch(&sven, &format!("/v3/organizations/{other}"), renamed)
        .await
        .is(403);
    assert!(refused.body.contains("locked"), "{refused:?}");
    let others = Browser::of(&world, &admin);
    others.get("/operators").await.is(403);
    others.is_refused(403, "/operators/lock", &lock).await;
    // Page by page.
    for number in 0..100 {
        world.another_organization(&owner, &format!("Number {number}")).await;
    }
    let first = browser.page("/operators").await;
    has_not(&first, &["Number 99"]);
    let (_, next) = first.split_once("rel=\"next\" href=\"").unwrap();
    let next = next.split('"').next().unwrap();
    has(&browser.page(next).await, &["Number 99"]);
}

async fn the_page_after_a_change_names_the_clusters_that_have_not_followed(world: World) {
    let owner = world.owner().await;
    let (prod, key) = cluster(&world, &owner, "prod").await;
    cluster(&world, &owner, "test").await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    let browser = Browser::of(&world, &owner);
    let after = async |path: &str, fields: &[(&str, &str)]| {
        let review = browser.post(path, fields).await.is(200);
        let made = browser.confirm(path, &review, fields).await.is(303);
        made.header("location")
    };
    let number = |location: &str| {
        let (_, change) = location.split_once("done=").unwrap();
        change.split_once('.').unwrap().0.to_owned()
    };
    let report = async |labels: &str, users: &str| {
        let kinds = json!([
            {"kind": "ClusterLabel", "follows": ["labels"], "change": labels},
            {"kind": "User", "follows": ["users"], "change": users},
        ]);
        let report = json!({"synced": true, "kinds": kinds});
        world.put(&key, &format!("{prod}/report"), report).await.is(200);
    };
    // What is of one cluster concerns that one alone.
    let label = [("key", "cluster.containership.io/zone"), ("value", "a")];
    let location = after(&format!("{prod}/labels"), &label[..]).await;
    let page = browser.page(&location).await;
    has(
        &page,
        &[
            "The change is made. 0 of 1 clusters have followed.",
            "it has never reported",
            "data-soon",
        ],
    );
    let labels = number(&location);
    report(&labels, "1").await;
    let page = browser.page(&location).await;
    has(&page, &["The change is made. 1 of 1 clusters have followed."]);
    has_not(&page, &["data-soon"]);
    let location = after(&format!("~/people/{alice}/role"), &[("role", "read_only")][..]).await;
    has(
        &browser.page(&location).await,
        &["0 of 2 clusters have followed.", "prod", "test"],
    );
    report(&labels, &number(&location)).await;
    has(
        &browser.page(&location).await,
        &["1 of 2 clusters have followed.", ">test</a>: "],
    );
    // Clusters of all organizations of a person follow what the person does with the own account.
    let key = ssh_key();
    let own = [("name", "desk"), ("key", &*key)];
    let own = after("/account/keys", &own[..]).await;
    has(
        &browser.page(&own).await,
        &["0 of 2 clusters have followed.", "User is not synced yet"],
    );
    report(&labels, &number(&own)).await;
    has(&browser.page(&own).await, &["1 of 2 clusters have followed."]);
    // Each member sees it, and nobody else; a change that is not one names no cluster.
    let reader = Browser::of(&world, &login);
    has(&reader.page(&location).await, &["1 of 2 clusters"]);
    let other = world.another_organization(&owner, "Other").await;
    let (_, stranger) = world.user(&owner, &other, "Sven", "owner").await;
    Browser::of(&world, &stranger).get(&location).await.is(404);
    for done in ["yes", "1.none.a.b", "%3Cscript%3E", "1.labels.a.nowhere"] {
        let page = browser.page(&format!("~/people?done={done}")).await;
        has(&page, &["The change is made."]);
        has_not(&page, &["clusters have followed", "<script>"]);
    }
}

async fn pages_follow_an_organization(world: World) {
    let owner = world.owner().await;
    let (_, reader) = world.user(&owner, &world.organization, "Rita", "read_only").await;
    let other = world.another_organization(&owner, "Other").await;
    let (_, stranger) = world.user(&owner, &other, "Sven", "owner").await;
    let events = format!("/organizations/{}/events", world.organization);
    for (token, status) in [(&reader, 200), (&stranger, 404)] {
        let answer = Browser::of(&world, token).get(&events).await.is(status);
        let is_stream = answer.header("content-type") == "text/event-stream";
        assert_eq!(is_stream, status == 200, "{answer:?}");
    }
    let follows = format!("data-stream=\"{events}\"");
    let clusters = Browser::of(&world, &reader).page("~/clusters").await;
    has(&clusters, &[&follows, "data-kinds=\"clusters upgrades\""]);
    let browser = Browser::of(&world, &owner);
    has(&browser.page("~/audit").await, &[&follows, "id=\"log\" data-live"]);
    // An older part of the log does not change.
    has_not(&browser.page("~/audit?before=1").await, &["data-live"]);
}

async fn an_end_is_pointed_out_before_it(world: World) {
    let owner = world.owner().await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    let key = json!({"name": "laptop", "key": ssh_key()});
    make(&world, &login, "/v3/account/ssh_keys", key).await;
    let (browser, own) = (Browser::of(&world, &owner), Browser::of(&world, &login));
    let until = async |time: SignedDuration| {
        let role = json!({"role": "member", "expires_at": end_in(time)});
        let path = format!("~/users/{alice}/role");
        world.put(&owner, &path, role).await.is(200);
    };
    let hours = SignedDuration::from_hours;
    until(hours(8 * 24)).await;
    has_not(&browser.page("~/people").await, &[">soon<"]);
    has_not(&own.page("~/clusters").await, &[">soon<"]);
    until(hours(48)).await;
    for path in ["~/people", &format!("~/people/{alice}"), "~/access/logins"] {
        has(&browser.page(path).await, &[">soon<"]);
    }
    has(
        &own.page("~/clusters").await,
        &[">soon<", "ask an admin for a later end"],
    );
    has_not(&browser.page("~/clusters").await, &[">soon<"]);
    let team = json!({"name": "Night", "user_ids": [alice, world.owner], "user_ends": {&alice: end_in(hours(48))}});
    let team = make(&world, &owner, "~/teams", team).await;
    has(&browser.page(&format!("~/teams/{team}")).await, &[">soon<"]);
    has(&browser.page("~/access/logins").await, &["laptop"]);
    // An admin sets the end with the role; without the field, it stays.
    let (here, path) = (format!("~/people/{alice}/role"), format!("~/users/{alice}"));
    let prolonged = [("role", "member"), ("expires_at", "2099-01-31T18:00")];
    has(&browser.change(&here, &prolonged).await, &["2099-01-31T18:00:00Z"]);
    browser.change(&here, &[("role", "read_only")]).await;
    let member = world.get(&owner, &path).await.is(200);
    assert_eq!(member.field("role"), "read_only");
    assert_eq!(member.field("role_expires_at"), "2099-01-31T18:00:00Z");
    own.is_refused(403, &here, &prolonged).await;
    until(SignedDuration::from_secs(5)).await;
    eventually("the end of the membership", SOON, async || {
        let page = browser.page("~/access/logins").await;
        if page.contains("laptop") {
            Err("the key")
        } else {
            Ok(())
        }
    })
    .await;
}
