//! Everything of a person goes with one command, which may be repeated.

use serde_json::{Value, json};
use tidewaiter_cloud::client::{Cluster, Method, Request};

use crate::real::{Real, real};
use crate::world::Person;

const BOB: (&str, &str) = ("BOB", "hunter2-hunter2");

const DOCUMENTS: &str = "kind: User
spec: {name: Bob, email: bob@example.com, role: member, password: {fromEnv: BOB}}
---
kind: SshKey
user: bob@example.com
spec: {name: laptop, key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5}
---
kind: Team
spec: {name: developers, users: [bob@example.com, alice@example.com]}
---
kind: Role
spec: {name: viewer, rules: [{type: kubernetes, api_groups: [''], resources: [pods], verbs: [get, list]}]}
---
kind: RoleBinding
spec: {role: viewer, user: bob@example.com}
";

/// A cloud with Bob, who is a member of another organization, too, with this role; the id of that one.
async fn with_bob(role: &str) -> (Real, String) {
    let real = real().await;
    let person = &real.person;
    let file = person.file("bob.yaml", DOCUMENTS);
    person.run_with(&["cloud", "apply", "-f", &file], &[BOB]).await.well();
    let other = person.create_organization("other", &[]).await;
    let bob = objects(&real, "users").await;
    let bob = bob.iter().find(|user| user["email"] == "bob@example.com").unwrap()["id"].clone();
    let join = [
        "cloud",
        "set-role",
        bob.as_str().unwrap(),
        role,
        "--organization",
        &other,
    ];
    person.run(&join).await.well();
    (real, other)
}

async fn objects(real: &Real, kind: &str) -> Vec<Value> {
    objects_at(&real.person, kind, &[]).await
}

async fn objects_at(person: &Person, kind: &str, place: &[&str]) -> Vec<Value> {
    let get = [&["cloud", "get", kind, "-o", "json"][..], place].concat();
    serde_json::from_str(&person.run(&get).await.well()).unwrap()
}

/// Checks that Bob is still a user, without a team, who may only read.
async fn has_lost_access(person: &Person, place: &[&str]) {
    let teams = objects_at(person, "teams", place).await;
    assert_eq!(teams[0]["user_ids"].as_array().unwrap().len(), 1, "{teams:?}");
    let users = objects_at(person, "users", place).await;
    let bob = users.iter().find(|user| user["email"] == "bob@example.com").unwrap();
    assert_eq!(bob["role"], "read_only", "{bob}");
}

const OFFBOARD: [&str; 3] = ["cloud", "offboard", "bob@example.com"];

#[tokio::test]
async fn everything_of_a_person_goes_at_once_and_a_repetition_removes_nothing() {
    let (real, _) = with_bob("member").await;
    let person = &real.person;
    let operator = ["cloud", "operators", "add", "bob@example.com"];
    person.run(&operator).await.well();
    // Bob could return by the link.
    let third = person.create_organization("third", &[]).await;
    let third = ["--organization", &third];
    let invite = ["cloud", "invite", "bob@example.com"];
    person.run(&[&invite[..], &third].concat()).await.well();
    let shown = person.run(&[&OFFBOARD[..], &["--dry-run"]].concat()).await.well();
    for part in [
        "- invitation to third",
        "- operator of this server",
        "- User bob@example.com in acme (member)",
        "- User bob@example.com in other (member)",
        "- membership of the team developers in acme",
        "- RoleBinding ",
        "- SshKey laptop SHA256:",
        "whose home is acme",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    person.run(&OFFBOARD).await.refused(1, &["add --yes"]);
    assert_eq!(
        objects(&real, "role-bindings").await.len(),
        1,
        "nothing is removed unasked"
    );

    let yes = [&OFFBOARD[..], &["--yes"]].concat();
    let done = person.run(&yes).await.well();
    assert!(
        done.starts_with("- operator") && done.contains("\nremoved: logins and tokens\nremoved: operator"),
        "{done}"
    );
    for part in [
        "removed: operator of this server",
        "removed: user of acme",
        "removed: user of other",
        "have not, as far as the cloud knows: production",
        "Open SSH sessions go on",
    ] {
        assert!(done.contains(part), "{part}: {done}");
    }
    assert!(objects(&real, "role-bindings").await.is_empty());
    let invitations = ["cloud", "invitations", "list", "-o", "json"];
    let invitations = person.run(&[&invitations[..], &third].concat()).await.well();
    assert_eq!(invitations.trim(), "[]");
    let users = objects(&real, "users").await;
    assert!(
        users.len() == 1 && users[0]["email"] == "alice@example.com",
        "{users:?}"
    );
    let operators = person.run(&["cloud", "operators", "list"]).await.well();
    assert!(!operators.contains("bob@example.com"), "{operators}");
    let login = person.log_in(&real.url, "bob@example.com", "bob", BOB.1).await;
    login.refused(1, &["is wrong"]);

    let again = person.run(&yes).await.well();
    assert!(again.contains("nothing to remove"), "{again}");
    let own = ["cloud", "offboard", "alice@example.com", "--yes"];
    person.run(&own).await.refused(1, &["cannot offboard yourself"]);
}

#[tokio::test]
async fn an_account_that_cannot_be_removed_loses_its_access() {
    let (real, other) = with_bob("owner").await;
    let person = &real.person;
    // Bob alone owns the other organization, of which Alice is no member.
    let leave = [
        "cloud",
        "delete",
        "user",
        "alice@example.com",
        "--organization",
        &other,
        "--yes",
    ];
    person.run(&leave).await.well();
    let ran = person.run(&[&OFFBOARD[..], &["--yes"]].concat()).await;
    ran.refused(1, &["the account stays", "permissions outside this organization"]);
    assert!(ran.out.contains("removed: logins and tokens"), "{}", ran.out);
    assert!(objects(&real, "role-bindings").await.is_empty());
    has_lost_access(person, &[]).await;
}

#[tokio::test]
async fn a_refusal_in_one_organization_stops_nothing_in_another_one() {
    let real = real().await;
    let person = &real.person;
    let acme = real.cluster["organization_id"].as_str().unwrap();
    let other = person.create_organization("other", &[]).await;
    let select = async |organization: &str| {
        let select = ["cloud", "context", "set", "--organization", organization];
        person.run(&select).await.well();
    };
    let apply = async |documents: &str| {
        let file = person.file("documents.yaml", documents);
        person.run_with(&["cloud", "apply", "-f", &file], &[BOB]).await.well();
    };
    // Bob's home is the younger organization, of which Carol is an admin. In the older one, she may change nothing.
    select(&other).await;
    apply(DOCUMENTS).await;
    apply("kind: User\nspec: {name: Carol, email: carol@example.com, role: admin, password: {fromEnv: BOB}}\n").await;
    for user in objects(&real, "users").await {
        if user["email"] != "alice@example.com" {
            let id = user["id"].as_str().unwrap();
            let join = ["cloud", "set-role", id, "member", "--organization", acme];
            person.run(&join).await.well();
        }
    }
    select(acme).await;
    apply(&DOCUMENTS[DOCUMENTS.find("kind: Team").unwrap()..]).await;
    person
        .log_in(&real.url, "carol@example.com", "carol", BOB.1)
        .await
        .well();

    let ran = person
        .run(&[&OFFBOARD[..], &["--yes", "--context", "carol"]].concat())
        .await;
    ran.refused(1, &["the account stays", "acme: ", "other: "]);
    for part in [
        "stays in acme: RoleBinding ",
        "stays in acme: member of the team developers: ",
        "removed: member of the team developers",
        "have not, as far as the cloud knows: production",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let bindings = async |organization: &str| {
        let place = ["--organization", organization, "--context", "carol"];
        objects_at(person, "role-bindings", &place).await.len()
    };
    assert_eq!((bindings(acme).await, bindings(&other).await), (1, 0));
    let place = ["--organization", &other, "--context", "carol"];
    has_lost_access(person, &place).await;
}

#[tokio::test]
async fn an_account_whose_home_is_elsewhere_stays_and_that_is_a_failure() {
    let real = real().await;
    let person = &real.person;
    let acme = real.cluster["organization_id"].as_str().unwrap();
    let other = person.create_organization("other", &[]).await;
    let place = ["--organization", &other];
    let file = person.file("bob.yaml", &DOCUMENTS[..DOCUMENTS.find("---").unwrap()]);
    let apply = ["cloud", "apply", "-f", &file];
    let select = async |organization: &str| {
        let select = ["cloud", "context", "set", "--organization", organization];
        person.run(&select).await.well();
    };
    select(&other).await;
    person.run_with(&apply, &[BOB]).await.well();
    let users = objects_at(person, "users", &place).await;
    let bob = users.iter().find(|user| user["email"] == "bob@example.com").unwrap();
    let bob = bob["id"].as_str().unwrap();
    for (role, organization) in [("owner", &*other), ("member", acme)] {
        let join = ["cloud", "set-role", bob, role, "--organization", organization];
        person.run(&join).await.well();
    }
    let leave = ["cloud", "delete", "user", "alice@example.com", "--yes"];
    person.run(&leave).await.well();
    select(acme).await;
    let shown = person.run(&[&OFFBOARD[..], &["--dry-run"]].concat()).await.well();
    assert!(shown.contains("The account stays: its home is another"), "{shown}");
    let ran = person.run(&[&OFFBOARD[..], &["--yes"]].concat()).await;
    ran.refused(1, &["the account stays", "its home is another organization"]);
    assert!(ran.out.contains("removed: user of acme"), "{}", ran.out);
}

#[tokio::test]
async fn a_display_name_offboards_nobody_by_mistake() {
    let real = real().await;
    let person = &real.person;
    let apply = async |name: &str, email: &str| {
        let file = person.file(
            "user.yaml",
            &format!("kind: User\nspec: {{name: {name}, email: {email}}}\n"),
        );
        person.run(&["cloud", "apply", "-f", &file]).await.well();
    };
    let offboard = async |name: &str| person.run(&["cloud", "offboard", name, "--dry-run"]).await;
    // Anyone may set their own display name.
    apply("bob@example.com", "mallory@example.com").await;
    let found = offboard("bob@example.com").await.well();
    assert!(found.contains("nothing to remove"), "{found}");
    apply("Sam", "sam@example.com").await;
    assert!(offboard("Sam").await.well().contains("sam@example.com"));
    let other = person.create_organization("other", &[]).await;
    let select = ["cloud", "context", "set", "--organization", &other];
    person.run(&select).await.well();
    apply("Sam", "samuel@example.com").await;
    offboard("Sam").await.refused(1, &["2 users", "use an id"]);
}

#[tokio::test]
async fn credentials_that_the_person_created_are_named_and_clusters_that_have_followed() {
    let real = real().await;
    let person = &real.person;
    let bob = DOCUMENTS[..DOCUMENTS.find("---").unwrap()].replace("role: member", "role: admin");
    let file = person.file("bob.yaml", &bob);
    person.run_with(&["cloud", "apply", "-f", &file], &[BOB]).await.well();
    person.log_in(&real.url, "bob@example.com", "bob", BOB.1).await.well();
    let acme = real.cluster["organization_id"].as_str().unwrap();
    let place = ["--organization", acme, "--context", "bob"];
    let account = [
        "cloud",
        "create",
        "service-account",
        "--name",
        "robot",
        "--role",
        "admin",
    ];
    person.run(&[&account[..], &place].concat()).await.well();
    let key = ["cloud", "api-keys", "create", "--cluster", "production"];
    person.run_open(&[&key[..], &place].concat(), &[]).await.well();
    person.run(&["cloud", "context", "use", "127.0.0.1"]).await.well();

    let cluster = Cluster {
        organization: real.id("organization_id"),
        id: real.id("id"),
    };
    let users = json!({"kind": "User", "follows": ["users"], "change": "999999999"});
    let report = Request::new(Method::PUT, cluster.report()).json(json!({"synced": true, "kinds": [users]}));
    let client = real.client(real.cluster["api_key"].as_str().unwrap());
    client.request(&report).await.unwrap();
    let shown = person.run(&[&OFFBOARD[..], &["--dry-run"]].concat()).await.well();
    let done = person.run(&[&OFFBOARD[..], &["--yes"]].concat()).await.well();
    // The report names them once more.
    for (shown, count) in [(&shown, 2), (&done, 4)] {
        let named: Vec<&str> = shown.lines().filter(|line| line.starts_with("not removed: ")).collect();
        assert_eq!(named.len(), count, "{shown}");
        assert!(
            named[0].ends_with("ServiceAccount robot in acme") && named[1].contains("API key "),
            "{shown}"
        );
    }
    assert!(done.contains("have followed: production\n"), "{done}");
}
