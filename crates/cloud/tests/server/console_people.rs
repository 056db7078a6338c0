//! The pages of access, people, teams, registries, roles, catalogue, audit, account and operators: each change in its
//! two steps, as the role that may make it and as one that may not.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::fixture::{registry, role, ssh_key};
use crate::world::{PASSWORD, World, on_both};

on_both!(
    access_is_granted_ended_and_withdrawn,
    a_person_is_created_changed_and_removed,
    a_team_is_created_changed_and_deleted,
    the_credentials_of_a_registry_are_only_written,
    a_change_of_a_role_shows_who_gains_and_loses_what,
    the_catalogue_names_the_clusters_of_a_version,
    the_audit_log_is_filtered,
    an_account_is_changed_by_its_owner,
    operators_manage_organizations_and_each_other,
    no_text_becomes_markup_and_no_page_has_a_secret,
);

/// A password whose space at the beginning counts.
const SPACED: &str = " another good password";
const EVIL: &str = "<script>alert(\"1\")</script>";

impl Browser<'_> {
    pub async fn page(&self, path: &str) -> String {
        self.get(path).await.is(200).body
    }

    /// Makes a change in its two steps. Returns the page of the first.
    pub async fn change(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let review = self.post(path, fields).await.is(200);
        self.confirm(path, &review, fields).await.is(303);
        review.body
    }

    /// A change that the API refuses with this status, although no page has its form.
    pub async fn is_refused(&self, status: u16, path: &str, fields: &[(&str, &str)]) {
        let confirmed = [fields, &[("confirmed", "yes")]].concat();
        let refused = self.post(path, &confirmed).await.is(status);
        assert!(refused.body.contains("role=\"alert\""), "{refused:?}");
    }

    /// Asserts that a page has no form that changes something, but the one to sign out.
    async fn only_reads(&self, path: &str) {
        let page = self.page(path).await;
        assert_eq!(page.matches("method=\"post\"").count(), 1, "{page}");
    }
}

#[track_caller]
pub fn has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[track_caller]
pub fn has_not(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(!page.contains(part), "{part}: {page}");
    }
}

pub async fn make(world: &World, token: &str, list: &str, body: Value) -> String {
    world.post(token, list, body).await.is(201).field("id")
}

async fn access_is_granted_ended_and_withdrawn(world: World) {
    let owner = world.owner().await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    let reader = make(&world, &owner, "~/roles", role("Reader")).await;
    let cluster = make(&world, &owner, "~/clusters", json!({"name": "prod"})).await;
    let other = make(&world, &owner, "~/clusters", json!({"name": "test"})).await;
    let browser = Browser::of(&world, &owner);
    has(
        &browser.page("~/access/grant").await,
        &["Reader", "prod", "all clusters"],
    );
    let grant = [
        ("person", "alice@example.org"),
        ("role", &*reader),
        ("cluster", &*cluster),
        ("namespace", "dev"),
        ("expires_at", "2099-01-31T18:00"),
    ];
    let review = browser.change("~/access/grant", &grant).await;
    has(
        &review,
        &["Alice", "Reader", "get pods", "prod", "dev", "2099-01-31T18:00:00Z"],
    );
    let bindings = world.get(&owner, "~/role-bindings").await.is(200).json();
    assert_eq!(bindings[0]["user_id"], alice);
    assert_eq!(bindings[0]["expires_at"], "2099-01-31T18:00:00Z");
    let id = bindings[0]["id"].as_str().unwrap();
    let (here, all) = (format!("~/access/{id}"), browser.page("~/access").await);
    has(
        &all,
        &[
            &format!("/people/{alice}"),
            &format!("/roles/{reader}"),
            &format!("/access/{id}"),
        ],
    );
    for (filter, is_shown) in [
        ("person=alice@example.org".to_owned(), true),
        ("person=olivia@example.org".to_owned(), false),
        (format!("cluster={cluster}"), true),
        (format!("cluster={other}"), false),
        (format!("role={reader}"), true),
    ] {
        let page = browser.page(&format!("~/access?{filter}")).await;
        assert_eq!(page.contains(&format!("/access/{id}")), is_shown, "{filter}: {page}");
    }
    has(&browser.page(&here).await, &[id, "Withdraw"]);
    let member = Browser::of(&world, &login);
    for path in ["~/access", &here] {
        member.only_reads(path).await;
    }
    member.is_refused(403, &format!("{here}/withdraw"), &[]).await;
    member.is_refused(403, "~/access/grant", &grant).await;
    for form in ["~/access/grant", "~/people/new", "~/roles/new", "~/registries/new"] {
        browser.get(form).await.is(200);
        let refused = member.get(form).await.is(403);
        assert!(refused.body.contains("only an admin"), "{refused:?}");
    }
    has(
        &browser.change(&format!("{here}/end"), &[("expires_at", "")]).await,
        &["no end"],
    );
    assert_eq!(
        world.get(&owner, "~/role-bindings").await.json()[0].get("expires_at"),
        None
    );
    let key = json!({"name": "laptop", "key": ssh_key()});
    make(&world, &login, "/v3/account/ssh_keys", key).await;
    has(&browser.page("~/access/logins").await, &["Alice", "laptop", "SHA256:"]);
    has(
        &browser.change(&format!("{here}/withdraw"), &[]).await,
        &["Alice", "Reader"],
    );
    assert_eq!(world.get(&owner, "~/role-bindings").await.json(), json!([]));
    browser.get(&here).await.is(404);
}

async fn a_person_is_created_changed_and_removed(world: World) {
    let owner = world.owner().await;
    let browser = Browser::of(&world, &owner);
    let person = [
        ("name", "Alice"),
        ("email", "alice@example.org"),
        ("role", "member"),
        ("expires_at", ""),
    ];
    let with_password = [&person[..], &[("secret.password", PASSWORD)]].concat();
    let review = browser.change("~/people", &with_password).await;
    has(&review, &["Alice", "alice@example.org", "Create the person"]);
    has_not(&review, &[PASSWORD]);
    let login = world.log_in("alice@example.org", PASSWORD).await.is(200).field("token");
    let users = world.get(&owner, "~/users").await.json();
    let users = users.as_array().unwrap();
    let alice = users.iter().find(|user| user["name"] == "Alice").unwrap()["id"]
        .as_str()
        .unwrap();
    let here = format!("~/people/{alice}");
    let reader = make(&world, &owner, "~/roles", role("Reader")).await;
    let team = json!({"name": "Night", "description": "", "user_ids": [alice]});
    let team = make(&world, &owner, "~/teams", team).await;
    let binding = json!({"type": "TeamBinding", "team_id": team, "authorization_role_id": reader});
    make(&world, &owner, "~/role-bindings", binding).await;
    let key = make(
        &world,
        &login,
        "/v3/account/ssh_keys",
        json!({"name": "laptop", "key": ssh_key()}),
    )
    .await;
    has(
        &browser.page("~/people").await,
        &["Alice", "alice@example.org", "Night", "member"],
    );
    has_not(&browser.page("~/people?person=olivia").await, &["alice@example.org"]);
    has(
        &browser.page(&here).await,
        &["Night", "Reader", "laptop", "SHA256:", "Remove the person"],
    );
    let member = Browser::of(&world, &login);
    for path in ["~/people", &here] {
        member.only_reads(path).await;
    }
    for action in ["role", "remove", "logins"] {
        member
            .is_refused(403, &format!("{here}/{action}"), &[("role", "owner")])
            .await;
    }
    let review = browser.change(&format!("{here}/role"), &[("role", "read_only")]).await;
    has(&review, &["member", "read_only", "SSH keys"]);
    let path = format!("~/users/{alice}");
    assert_eq!(world.get(&owner, &path).await.field("role"), "read_only");
    browser
        .change(&format!("{here}/end"), &[("expires_at", "2099-01-31T18:00:30")])
        .await;
    assert_eq!(
        world.get(&owner, &path).await.field("expires_at"),
        "2099-01-31T18:00:30Z"
    );
    let review = browser.change(&format!("{here}/keys/{key}/delete"), &[]).await;
    has(&review, &["laptop"]);
    browser.change(&format!("{here}/logins"), &[]).await;
    world.get(&login, "/v3/account").await.is(401);
    member.get(&here).await.is(303);
    // Someone else changes the person after the first step.
    let review = browser.post(&format!("{here}/remove"), &[]).await.is(200);
    has(&review.body, &["Night", "leaves the organization"]);
    world.patch(&owner, &path, json!({"name": "Alice B"})).await.is(200);
    let stale = browser.confirm(&format!("{here}/remove"), &review, &[]).await.is(412);
    has(&stale.body, &["Alice B", "has changed"]);
    browser.confirm(&format!("{here}/remove"), &stale, &[]).await.is(303);
    world.get(&owner, &path).await.is(404);
}

async fn a_team_is_created_changed_and_deleted(world: World) {
    let owner = world.owner().await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    let browser = Browser::of(&world, &owner);
    let member = Browser::of(&world, &login);
    member.is_refused(403, "~/teams", &[("name", "Mine")]).await;
    browser
        .change("~/teams", &[("name", "Night"), ("description", "awake")])
        .await;
    let id = world.get(&owner, "~/teams").await.json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let (here, path) = (format!("~/teams/{id}"), format!("~/teams/{id}"));
    let reader = make(&world, &owner, "~/roles", role("Reader")).await;
    let binding = json!({"type": "TeamBinding", "team_id": id, "authorization_role_id": reader});
    make(&world, &owner, "~/role-bindings", binding).await;
    let add = [("person", "alice@example.org")];
    has(
        &browser.change(&format!("{here}/members"), &add).await,
        &["Alice", "Reader", "no end"],
    );
    assert_eq!(world.get(&owner, &path).await.json()["user_ids"], json!([alice]));
    let until = [add[0], ("expires_at", "2099-01-31T18:00")];
    let review = browser.change(&format!("{here}/members"), &until).await;
    has(&review, &["2099-01-31T18:00:00Z"]);
    has(&browser.page(&here).await, &["2099-01-31T18:00:00Z"]);
    let made = world.get(&owner, &path).await.json();
    assert_eq!(made["user_ids"], json!([alice]), "{made}");
    assert_eq!(made["user_ends"], json!({&alice: "2099-01-31T18:00:00Z"}));
    has(&browser.page(&here).await, &["Alice", "Reader", "Delete the team"]);
    member.only_reads(&here).await;
    member.is_refused(403, &format!("{here}/delete"), &[]).await;
    let renamed = [("name", "Late"), ("description", "")];
    has(&browser.change(&here, &renamed).await, &["Night", "Late"]);
    assert_eq!(world.get(&owner, &path).await.field("name"), "Late");
    browser.change(&format!("{here}/members/{alice}/remove"), &[]).await;
    assert_eq!(world.get(&owner, &path).await.json()["user_ids"], json!([]));
    has(
        &browser.change(&format!("{here}/delete"), &[]).await,
        &["Late", "Reader"],
    );
    assert_eq!(world.get(&owner, "~/role-bindings").await.json(), json!([]));
}

async fn the_credentials_of_a_registry_are_only_written(world: World) {
    let owner = world.owner().await;
    let (_, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    let browser = Browser::of(&world, &owner);
    let settings = [
        ("serveraddress", "registry.example.org"),
        ("provider", "private"),
        ("description", "ours"),
        ("email", ""),
    ];
    let secrets = [("secret.username", "puller-1"), ("secret.password", "hunter2 registry")];
    let all = [&settings[..], &secrets[..]].concat();
    has_not(&browser.change("~/registries", &all).await, &["puller-1", "hunter2"]);
    let list = async || world.get(&owner, "~/registries").await.is(200).json()[0].clone();
    let made = list().await;
    assert_eq!(
        made["credentials"],
        json!({"username": "puller-1", "password": "hunter2 registry"})
    );
    let here = format!("~/registries/{}", made["id"].as_str().unwrap());
    for path in ["~/registries", &here] {
        let page = browser.page(path).await;
        has(&page, &["registry.example.org"]);
        has_not(&page, &["puller-1", "hunter2"]);
    }
    let member = Browser::of(&world, &login);
    member.only_reads(&here).await;
    member.is_refused(403, &format!("{here}/delete"), &[]).await;
    let mut changed = settings;
    changed[2].1 = "theirs";
    let empty = [&changed[..], &[("secret.username", ""), ("secret.password", "")]].concat();
    has(&browser.change(&here, &empty).await, &["ours", "theirs"]);
    let kept = list().await;
    assert_eq!(
        (&kept["description"], &kept["credentials"]),
        (&json!("theirs"), &made["credentials"])
    );
    let new = [&changed[..], &[("secret.password", "hunter3 registry")]].concat();
    has_not(&browser.change(&here, &new).await, &["hunter"]);
    assert_eq!(
        list().await["credentials"],
        json!({"username": "puller-1", "password": "hunter3 registry"})
    );
    browser.change(&format!("{here}/delete"), &[]).await;
    assert_eq!(world.get(&owner, "~/registries").await.json(), json!([]));
}

async fn a_change_of_a_role_shows_who_gains_and_loses_what(world: World) {
    let owner = world.owner().await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    let (bob, _) = world.user(&owner, &world.organization, "Bob", "member").await;
    let browser = Browser::of(&world, &owner);
    let rule = |resources: &'static str| {
        [
            ("type", "kubernetes"),
            ("api_groups", "\"\""),
            ("resources", resources),
            ("resource_names", ""),
            ("verbs", "get, list"),
            ("non_resource_urls", ""),
        ]
    };
    let named = [("name", "Reader"), ("description", "may look")];
    let with = |resources| {
        [
            &named[..],
            &rule(resources)[..],
            &rule("")[..4],
            &[("verbs", ""), ("non_resource_urls", "")],
        ]
        .concat()
    };
    has(&browser.change("~/roles", &with("pods")).await, &["get, list pods"]);
    let made = world.get(&owner, "~/roles").await.json()[0].clone();
    // The last rule of the form has nothing but its groups.
    assert_eq!(made["rules"].as_array().unwrap().len(), 1, "{made}");
    assert_eq!(made["rules"][0]["api_groups"], json!([""]));
    let id = made["id"].as_str().unwrap();
    let here = format!("~/roles/{id}");
    let team = json!({"name": "Night", "description": "", "user_ids": [alice, bob]});
    let team = make(&world, &owner, "~/teams", team).await;
    let cluster = make(&world, &owner, "~/clusters", json!({"name": "prod"})).await;
    let other = make(&world, &owner, "~/roles", role("Other")).await;
    for binding in [
        json!({"type": "TeamBinding", "team_id": team, "authorization_role_id": id, "cluster_id": cluster}),
        json!({"type": "UserBinding", "user_id": bob, "authorization_role_id": other}),
    ] {
        make(&world, &owner, "~/role-bindings", binding).await;
    }
    has(
        &browser.page(&here).await,
        &["get, list pods", "Night", "Delete the role"],
    );
    let member = Browser::of(&world, &login);
    member.only_reads(&here).await;
    member.is_refused(403, &here, &with("nodes")).await;
    let review = browser.post(&here, &with("nodes")).await.is(200);
    has(&review.body, &["Rules before", "get, list nodes", "prod"]);
    let (_, effect) = review.body.split_once("Effect on people").unwrap();
    let (of_alice, of_bob) = effect.split_once(&format!("/people/{bob}")).unwrap();
    has(of_alice, &["Alice", "get nodes", "list nodes", "get pods", "list pods"]);
    // Bob may still get pods by the other role, in all clusters.
    has(of_bob, &["get nodes", "list pods"]);
    has_not(of_bob, &["<li>get pods</li>"]);
    world
        .patch(&owner, &here, json!({"description": "changed meanwhile"}))
        .await
        .is(200);
    browser.confirm(&here, &review, &with("nodes")).await.is(412);
    let review = browser.change(&here, &with("nodes")).await;
    has(&review, &["changed meanwhile"]);
    assert_eq!(
        world.get(&owner, &here).await.json()["rules"][0]["resources"],
        json!(["nodes"])
    );
    browser.is_refused(409, &format!("{here}/delete"), &[]).await;
}

async fn the_catalogue_names_the_clusters_of_a_version(world: World) {
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    world.fill(&owner, &world.organization, &alice).await;
    let browser = Browser::of(&world, &owner);
    let here = "~/catalogue/metrics/prometheus";
    has(&browser.page("~/catalogue").await, &["metrics", "prometheus", "1.0.0"]);
    has(&browser.page(here).await, &["1.0.0", "prod"]);
    let version = format!("{here}/1.0.0");
    has(&browser.page(&version).await, &["Manifests", "Namespace"]);
    let member = Browser::of(&world, &login);
    has_not(&member.page(&version).await, &["Manifests"]);
    member.get("~/catalogue/metrics/none").await.is(404);
}

async fn the_audit_log_is_filtered(world: World) {
    let owner = world.owner().await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "admin").await;
    let (_, member) = world.user(&owner, &world.organization, "Max", "member").await;
    make(&world, &login, "~/roles", role("Reader")).await;
    make(&world, &owner, "~/roles", role("Writer")).await;
    let browser = Browser::of(&world, &login);
    let all = browser.page("~/audit").await;
    has(
        &all,
        &["Reader", "Writer", "Alice", "Olivia", &format!("/people/{alice}")],
    );
    let of_alice = browser.page("~/audit?actor=alice@example.org&kind=roles").await;
    has(&of_alice, &["Reader"]);
    has_not(&of_alice, &["Writer"]);
    has_not(&browser.page("~/audit?kind=teams").await, &["Reader"]);
    has_not(&browser.page("~/audit?since=2099-01-01").await, &["Reader"]);
    let last = world.get(&owner, "~/audit").await.json()[0]["id"].to_string();
    has_not(&browser.page(&format!("~/audit?before={last}")).await, &["Writer</a>"]);
    Browser::of(&world, &member).get("~/audit").await.is(403);
    has(
        &Browser::of(&world, &owner).page("/operators/audit").await,
        &["Audit of the server"],
    );
    browser.get("/operators/audit").await.is(403);
}

async fn an_account_is_changed_by_its_owner(world: World) {
    let owner = world.owner().await;
    let (_, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    let browser = Browser::of(&world, &login);
    let profile = [("name", "Alice B"), ("email", "alice@example.org"), ("phone", "")];
    has(&browser.change("/account", &profile).await, &["Alice B"]);
    assert_eq!(world.get(&login, "/v3/account").await.field("name"), "Alice B");
    let key = ssh_key();
    let added = [("name", "laptop"), ("key", &*key), ("expires_at", "2099-01-31T18:00")];
    has(
        &browser.change("/account/keys", &added).await,
        &["laptop", "2099-01-31T18:00:00Z"],
    );
    let keys = world.get(&login, "/v3/account/ssh_keys").await.json();
    assert_eq!(keys[0]["expires_at"], "2099-01-31T18:00:00Z");
    let page = browser.page("/account").await;
    has(&page, &["laptop", "SHA256:"]);
    let id = keys[0]["id"].as_str().unwrap();
    has(
        &browser.change(&format!("/account/keys/{id}/delete"), &[]).await,
        &["laptop"],
    );
    assert_eq!(world.get(&login, "/v3/account/ssh_keys").await.json(), json!([]));
    // A token is shown once.
    let made = browser
        .post("/account/tokens", &[("name", "ci"), ("days", "30")])
        .await
        .is(201);
    let (_, token) = made.body.split_once("aria-label=\"Token\"><code>").unwrap();
    let token = token.split_once('<').unwrap().0;
    world.get(token, "/v3/account").await.is(200);
    let page = browser.page("/account").await;
    has(&page, &["ci"]);
    has_not(&page, &[token, &login]);
    browser
        .post("/account/tokens", &[("name", "ci"), ("days", "400")])
        .await
        .is(422);
    let tokens = world.get(&login, "/v3/account/tokens").await.json();
    let ci = tokens
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["name"] == "ci")
        .unwrap();
    let revoke = format!("/account/tokens/{}/revoke", ci["id"].as_str().unwrap());
    has(&browser.change(&revoke, &[]).await, &["ci"]);
    world.get(token, "/v3/account").await.is(401);
    let wrong = [
        ("secret.old_password", "not this one at all"),
        ("secret.new_password", SPACED),
    ];
    browser.is_refused(422, "/account/password", &wrong).await;
    let right = [("secret.old_password", PASSWORD), ("secret.new_password", SPACED)];
    has_not(&browser.change("/account/password", &right).await, &[PASSWORD, SPACED]);
    world.log_in("alice@example.org", SPACED).await.is(200);
    let sign_in = [("email", "alice@example.org"), ("password", SPACED)];
    browser.post("/sign-in", &sign_in).await.is(303);
    browser.page("/account").await;
}

async fn operators_manage_organizations_and_each_other(world: World) {
    let owner = world.owner().await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "admin").await;
    let browser = Browser::of(&world, &owner);
    let admin = Browser::of(&world, &login);
    admin.get("/operators").await.is(403);
    admin.is_refused(403, "/operators", &[("person", &alice)]).await;
    has(&browser.page("/operators").await, &["Acme", "olivia@example.org"]);
    has(
        &browser.change("/operators/organizations", &[("name", "Second")]).await,
        &["Second"],
    );
    has(&browser.page("/operators").await, &["Second"]);
    let lock = |locked| [("id", &*world.organization), ("locked", locked)];
    has(
        &browser.change("/operators/lock", &lock("true")).await,
        &["Acme", "refuses every change"],
    );
    let refused = browser
        .post("~/teams", &[("name", "Night"), ("confirmed", "yes")])
        .await
        .is(403);
    has(&refused.body, &["locked"]);
    browser.change("/operators/lock", &lock("false")).await;
    let review = browser.change("/operators", &[("person", "alice@example.org")]).await;
    has(&review, &[&alice, "administers all organizations"]);
    admin.page("/operators").await;
    has(
        &browser.change(&format!("/operators/{alice}/remove"), &[]).await,
        &["Alice"],
    );
    admin.get("/operators").await.is(403);
    browser
        .is_refused(409, &format!("/operators/{}/remove", world.owner), &[])
        .await;
}

async fn no_text_becomes_markup_and_no_page_has_a_secret(world: World) {
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    let place = world.fill(&owner, &world.organization, &alice).await;
    let of = |kind: &str| format!("~/{kind}/{}", place.of(kind));
    let rule = json!({"type": "kubernetes", "api_groups": [""], "resources": ["pods"], "verbs": ["get"],
        "resource_names": [EVIL]});
    let evil = json!({"name": EVIL, "description": EVIL, "rules": [rule]});
    world.patch(&owner, &of("roles"), evil).await.is(200);
    let evil = json!({"name": EVIL, "description": EVIL});
    world.patch(&owner, &of("teams"), evil).await.is(200);
    let mut evil = registry(EVIL);
    evil["serveraddress"] = json!("registry.example.org");
    world.put(&owner, &of("registries"), evil).await.is(200);
    let evil = json!({"name": EVIL});
    for path in ["~", "/v3/account", &format!("~/users/{alice}")] {
        world.patch(&owner, path, evil.clone()).await.is(200);
    }
    make(
        &world,
        &owner,
        "/v3/account/ssh_keys",
        json!({"name": EVIL, "key": ssh_key()}),
    )
    .await;
    let token = json!({"name": EVIL, "expires_in_seconds": 3600});
    let token = world
        .post(&owner, "/v3/account/tokens", token)
        .await
        .is(201)
        .field("token");
    let browser = Browser::of(&world, &owner);
    let query: String = url::form_urlencoded::byte_serialize(EVIL.as_bytes()).collect();
    let key = place.of("key");
    let secrets = ["hunter2", key, &token, &owner, &login, PASSWORD, "puller"];
    let person = format!("~/people/{alice}");
    let binding = format!("~/access/{}", place.of("role-bindings"));
    let mut pages = Vec::new();
    for path in [
        "/account",
        "/operators",
        "/operators/audit",
        "~/access",
        "~/access/logins",
        "~/access/grant",
        &binding,
    ] {
        pages.push(browser.page(path).await);
    }
    for path in [
        "~/people",
        "~/people/new",
        &person,
        &of("teams"),
        "~/registries",
        &of("registries"),
        "~/roles",
        &of("roles"),
    ] {
        pages.push(browser.page(path).await);
    }
    for path in [
        "~/catalogue",
        "~/catalogue/metrics/prometheus",
        "~/catalogue/metrics/prometheus/1.0.0",
        "~/audit",
    ] {
        pages.push(browser.page(path).await);
    }
    for path in [
        "~/people?person=",
        "~/access?person=",
        "~/audit?actor=",
        "/operators/audit?actor=",
    ] {
        pages.push(browser.page(&format!("{path}{query}")).await);
    }
    for page in &pages {
        has(page, &["&lt;script&gt;alert"]);
    }
    let fields = [
        ("name", EVIL),
        ("description", EVIL),
        ("person", EVIL),
        ("key", EVIL),
        ("role", EVIL),
        ("serveraddress", EVIL),
        ("type", EVIL),
        ("resources", EVIL),
        ("expires_at", EVIL),
        (EVIL, EVIL),
        ("secret.password", "hunter2"),
    ];
    let roles = of("roles");
    for path in [
        "~/people",
        "~/teams",
        "~/registries",
        "~/roles",
        "~/access/grant",
        "/account",
        "/account/keys",
        &roles,
    ] {
        pages.push(browser.post(path, &fields).await.is(200).body);
        // The API refuses it, and quotes it.
        let refused = [&fields[..], &[("confirmed", "yes")]].concat();
        pages.push(browser.post(path, &refused).await.body);
    }
    for page in &pages {
        has_not(page, &["<script>alert"]);
        has_not(page, &secrets);
    }
}
