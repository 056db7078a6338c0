//! Pages of a large organization: each shows a part, leads to the next one, and reads no more than it shows.

use std::ops::Range;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::console_people::{has, has_not, make};
use crate::fixture::{role, upgrade};
use crate::large::rows_read;
use crate::world::{World, on_both};

on_both!(
    a_page_shows_a_part_and_leads_to_the_next,
    an_object_of_many_is_chosen_by_its_name,
    a_page_reads_no_more_of_a_larger_organization,
    a_search_of_the_audit_log_goes_on_at_the_next_page,
    older_upgrades_are_on_another_page,
);

/// More than a page has.
const MANY: usize = 105;

/// Makes an object of each body. Returns their ids.
async fn make_all(world: &World, owner: &str, list: &str, bodies: impl Iterator<Item = Value>) -> Vec<String> {
    let bodies: Vec<Value> = bodies.collect();
    let mut ids = Vec::new();
    for part in bodies.chunks(8) {
        let made = join_all(part.iter().map(|body| world.post(owner, list, body.clone()))).await;
        ids.extend(made.into_iter().map(|answer| answer.is(201).field("id")));
    }
    ids
}

async fn clusters(world: &World, owner: &str, numbers: Range<usize>) -> Vec<String> {
    let cluster = |number| json!({"name": format!("cluster-{number:03}")});
    make_all(world, owner, "~/clusters", numbers.map(cluster)).await
}

/// Makes people of these numbers, and a binding of the role for each.
async fn people(world: &World, owner: &str, role: &str, numbers: Range<usize>) -> Vec<String> {
    let person = |number| {
        let name = format!("person-{number:03}");
        json!({"name": name, "email": format!("{name}@example.org")})
    };
    let people = make_all(world, owner, "~/users", numbers.map(person)).await;
    let binding = |id: &String| json!({"type": "UserBinding", "user_id": id, "authorization_role_id": role});
    make_all(world, owner, "~/role-bindings", people.iter().map(binding)).await;
    people
}

/// The path of the next page.
fn next(page: &str) -> Option<String> {
    let (_, link) = page.split_once("rel=\"next\" href=\"")?;
    Some(link.split_once('"')?.0.replace("&amp;", "&"))
}

async fn a_page_shows_a_part_and_leads_to_the_next(world: World) {
    let owner = world.owner().await;
    let reader = make(&world, &owner, "~/roles", role("Reader")).await;
    let ids = people(&world, &owner, &reader, 0..MANY).await;
    let team = json!({"name": "Night", "description": "", "user_ids": ids});
    let team = make(&world, &owner, "~/teams", team).await;
    let browser = Browser::of(&world, &owner);
    let person = format!("<td><a href=\"/organizations/{}/people/", world.organization);
    for (path, all) in [
        ("~/people".to_owned(), MANY + 1),
        ("~/access".to_owned(), MANY),
        (format!("~/access?role={reader}"), MANY),
        (format!("~/teams/{team}"), MANY),
    ] {
        let first = browser.page(&path).await;
        let second = browser.page(&next(&first).unwrap()).await;
        let shown = [&first, &second].map(|page| page.matches(&person).count());
        assert_eq!(shown, [100, all - 100], "{path}");
        assert_eq!(next(&second), None, "{path}");
    }
    let found = browser.page("~/people?person=PERSON-104").await;
    assert_eq!(found.matches(&person).count(), 1, "{found}");
    has(&found, &["person-104@example.org", "Night"]);
    // What only the document of a person has is no name.
    let found = browser.page("~/people?person=%22email%22").await;
    assert_eq!(found.matches(&person).count(), 0, "{found}");
}

async fn an_object_of_many_is_chosen_by_its_name(world: World) {
    let owner = world.owner().await;
    let other = world.another_organization(&owner, "Other").await;
    let (stranger, _) = world.user(&owner, &other, "Zoe", "member").await;
    let reader = make(&world, &owner, "~/roles", role("Reader")).await;
    let ids = clusters(&world, &owner, 0..60).await;
    let browser = Browser::of(&world, &owner);
    let offered = |page: &str| page.matches("<option value=\"cluster-0").count();
    let form = browser.page("~/access/grant").await;
    // The roles are few.
    has(&form, &["<select name=\"role\"", "list=\"cluster-names\""]);
    has_not(&form, &["<select name=\"cluster\""]);
    assert_eq!(offered(&form), 50, "{form}");
    let grant = [
        ("person", "olivia@example.org"),
        ("role", "Reader"),
        ("cluster", "cluster-042"),
    ];
    let review = browser.change("~/access/grant", &grant).await;
    has(&review, &["Olivia Owner", "cluster-042"]);
    let bindings = world.get(&owner, "~/role-bindings").await.is(200).json();
    let clusters = world.get(&owner, "~/clusters").await.is(200).json();
    let granted = clusters.as_array().unwrap().iter();
    let granted = granted.filter(|cluster| cluster["id"] == bindings[0]["cluster_id"]);
    assert_eq!(
        granted.map(|cluster| &cluster["name"]).collect::<Vec<_>>(),
        ["cluster-042"]
    );
    assert_eq!(bindings[0]["authorization_role_id"], reader);
    let binding = format!("/access/{}\"", bindings[0]["id"].as_str().unwrap());
    for (filter, is_shown) in [
        ("cluster=cluster-042".to_owned(), true),
        ("cluster=cluster-041".to_owned(), false),
        (format!("cluster={}", bindings[0]["cluster_id"].as_str().unwrap()), true),
        (format!("cluster={}", ids[0]), false),
        ("cluster=cluster-04".to_owned(), false),
        ("role=Reader".to_owned(), true),
        ("role=Reade%00".to_owned(), false),
    ] {
        let page = browser.page(&format!("~/access?{filter}")).await;
        assert_eq!(page.contains(&binding), is_shown, "{filter}: {page}");
    }
    let page = browser.page("~/access?cluster=CLUSTER-04").await;
    assert_eq!(offered(&page), 10, "{page}");
    // The person exists, but in another organization.
    let grant = [("person", "zoe@example.org"), ("role", &*reader)];
    let review = browser.post("~/access/grant", &grant).await.is(200);
    has(&review.body, &["zoe@example.org"]);
    has_not(&review.body, &[&stranger]);
}

async fn a_page_reads_no_more_of_a_larger_organization(world: World) {
    let owner = world.owner().await;
    let reader = make(&world, &owner, "~/roles", role("Reader")).await;
    let browser = Browser::of(&world, &owner);
    let (mut ids, mut before): (Vec<String>, Vec<u64>) = (Vec::new(), Vec::new());
    let team = json!({"name": "Night", "description": "", "user_ids": []});
    let team = make(&world, &owner, "~/teams", team).await;
    for round in 0..2 {
        let numbers = round * MANY..(round + 1) * MANY;
        ids.extend(people(&world, &owner, &reader, numbers.clone()).await);
        let members = json!({ "user_ids": ids });
        world.patch(&owner, &format!("~/teams/{team}"), members).await.is(200);
        clusters(&world, &owner, numbers).await;
        let mut read = Vec::new();
        for path in [
            "~/access".to_owned(),
            "~/access?person=person-000@example.org".to_owned(),
            format!("~/access?role={reader}"),
            "~/access/grant".to_owned(),
            "~/access/logins".to_owned(),
            "~/people".to_owned(),
            "~/people?person=person-00".to_owned(),
            format!("~/people/{}", ids[0]),
            format!("~/teams/{team}"),
            format!("~/roles/{reader}"),
            "~/clusters".to_owned(),
            "~/audit".to_owned(),
            "~/audit?kind=teams".to_owned(),
        ] {
            let start = rows_read(&world).await;
            browser.page(&path).await;
            read.push(rows_read(&world).await - start);
        }
        // A page of 100, what it names, and the row after it.
        assert!(read.iter().all(|rows| *rows <= 400), "{read:?}");
        if round > 0 {
            // One more change of the team, and no other one. The API reads 200 users at once, and there were fewer.
            let grown = read.iter().zip(&before).filter(|(now, before)| **now > **before + 1);
            let grown: Vec<u64> = grown.map(|(now, _)| *now).collect();
            assert_eq!(grown, [200], "{before:?} {read:?}");
        }
        before = read;
    }
}

/// The last change of a role is older than the part of the log that a page searches.
async fn a_search_of_the_audit_log_goes_on_at_the_next_page(world: World) {
    use sqlx::Connection as _;

    let owner = world.owner().await;
    make(&world, &owner, "~/roles", role("Reader")).await;
    let mut database = sqlx::AnyConnection::connect(world.database.as_str()).await.unwrap();
    let changes = sqlx::query(
        "INSERT INTO changes (sequence, at, organization_id, cluster_id, kind, object_id, action, actor, request_id, \
         before, after) WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < 5000) \
         SELECT 1000000 + i, '2099-01-01T00:00:00Z', CAST($1 AS TEXT), '', 'teams', 't', 'update', 'user:u', 'r', '', \
         '' FROM number",
    );
    changes
        .bind(world.organization.clone())
        .execute(&mut database)
        .await
        .unwrap();
    let browser = Browser::of(&world, &owner);
    let first = browser.page("~/audit?kind=roles").await;
    has_not(&first, &["Reader"]);
    let second = browser.page(&next(&first).unwrap()).await;
    has(&second, &["Reader"]);
    assert_eq!(next(&second), None);
    // Nothing before is of that time.
    let since = browser.page("~/audit?kind=roles&since=2099-01-02").await;
    assert_eq!(next(&since), None);
}

async fn older_upgrades_are_on_another_page(world: World) {
    let owner = world.owner().await;
    let cluster = make(&world, &owner, "~/clusters", json!({"name": "prod"})).await;
    let described = |number| {
        let mut upgrade = upgrade();
        upgrade["description"] = json!(format!("number {number:02}"));
        upgrade
    };
    let list = format!("~/clusters/{cluster}/upgrades");
    make_all(&world, &owner, &list, (0..25).map(described)).await;
    let browser = Browser::of(&world, &owner);
    let first = browser.page(&format!("~/clusters/{cluster}")).await;
    let second = browser.page(&next(&first).unwrap()).await;
    let shown = [&first, &second].map(|page| page.matches("<td>number ").count());
    assert_eq!(shown, [20, 5]);
    has(&first, &["number 24"]);
    has(&second, &["number 00"]);
    // The list of clusters has the last one alone.
    let before = rows_read(&world).await;
    has(&browser.page("~/clusters").await, &["/upgrades/"]);
    assert!(rows_read(&world).await - before <= 3);
}
