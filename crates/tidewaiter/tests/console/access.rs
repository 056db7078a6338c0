//! Journeys through the pages of people, teams, roles, registries and the audit log, as an admin and as a member.

use serde_json::{Value, json};

use crate::Scene;
use crate::browser::Browser;
use crate::world::{EMAIL, On, PASSWORD};

on_both!(admins_manage_access);

const PAULA: &str = "paula@example.org";
const END: &str = "2099-01-31T18:00:00";

async fn admins_manage_access(on: On) {
    let scene = Scene::new(on).await;
    let admin = scene.person("admin").await;
    let member = scene.person("member").await;
    scene
        .browse(async |browser| {
            browser.enter(&admin).await;
            creates_a_person(browser, &scene).await;
            manages_a_team(browser, &scene).await;
            creates_and_grants_a_role(browser, &scene, &member).await;
            changes_a_role(browser, &scene).await;
            creates_a_registry(browser, &scene).await;
            filters_the_audit_log(browser, &scene, &admin).await;
            browser.enter(&member).await;
            only_reads(browser, &scene).await;
            browser.enter(&admin).await;
            removes_a_person(browser, &scene).await;
            changes_no_settings(browser, &scene).await;
            invites_a_person(browser, &scene).await;
            browser.enter(EMAIL).await;
            ends_all_logins(browser, &scene, &member).await;
            changes_the_settings(browser, &scene).await;
        })
        .await;
}

async fn creates_a_person(browser: &Browser, scene: &Scene) {
    browser.open(&scene.page("people")).await;
    browser.follow("Create a person").await;
    browser.fill("name", "Paula").await;
    browser.fill("email", PAULA).await;
    browser.set_in("main", "expires_at", END).await;
    browser.press("Show the effect").await;
    browser.fill("secret.password", PASSWORD).await;
    browser.confirm(PAULA, "Create the person").await;
    browser.shows(PAULA).await;
    let paula = scene
        .list("users")
        .await
        .into_iter()
        .find(|user| user["email"] == PAULA);
    assert_eq!(paula.unwrap()["expires_at"], format!("{END}Z"));
    scene.log_in(PAULA).await;
}

async fn manages_a_team(browser: &Browser, scene: &Scene) {
    browser.open(&scene.page("people")).await;
    browser.fill_in("form[action$='/teams']", "name", "Night shift").await;
    let effect = "A team without members";
    browser.change("Create a team", effect, "Create the team").await;
    browser.follow("Night shift").await;
    let form = "form[action$='/members']";
    browser.fill_in(form, "person", PAULA).await;
    browser.set_in(form, "expires_at", END).await;
    browser
        .change("Add a member", "becomes a member", "Add the member")
        .await;
    let team = scene.list("teams").await.remove(0);
    let paula = scene.id("users", "email", PAULA).await;
    assert_eq!(team["user_ids"], json!([paula]));
    assert_eq!(team["user_ends"], json!({&paula: format!("{END}Z")}));
    browser.press_in_row("Paula", "Remove").await;
    browser.confirm("leaves the team", "Remove the member").await;
    assert!(!browser.text("main").await.contains("Paula"));
    assert_eq!(scene.list("teams").await[0]["user_ids"], json!([]));
}

async fn creates_and_grants_a_role(browser: &Browser, scene: &Scene, member: &str) {
    browser.open(&scene.page("roles")).await;
    browser.follow("Create a role").await;
    browser.fill("name", "Reader").await;
    for (name, words) in [("api_groups", "\"\""), ("resources", "pods"), ("verbs", "get, list")] {
        browser.fill(name, words).await;
    }
    browser
        .change("Show the effect", "get, list pods", "Create the role")
        .await;
    browser.follow("Reader").await;
    browser.follow("Grant the role").await;
    browser.fill("person", member).await;
    browser.choose_in("main", "cluster", "prod").await;
    browser.set_in("main", "expires_at", END).await;
    browser
        .change("Show the effect", "get, list pods", "Grant the role")
        .await;
    browser.shows("Reader").await;
    let binding = scene.list("role-bindings").await.remove(0);
    assert_eq!(binding["user_id"], scene.id("users", "email", member).await);
    assert_eq!(binding["expires_at"], format!("{END}Z"));
}

/// The effect names the person, and each permission that the person gains and loses, before anything changes.
async fn changes_a_role(browser: &Browser, scene: &Scene) {
    browser.open(&scene.page("roles")).await;
    browser.follow("Reader").await;
    browser.fill_in("fieldset", "resources", "nodes").await;
    browser.press("Show the effect").await;
    browser.shows("This is what will change").await;
    let effect = browser.text("[aria-label='Effect on people']").await;
    for part in ["member", "prod", "get nodes", "list nodes", "get pods", "list pods"] {
        assert!(effect.contains(part), "{part}: {effect}");
    }
    let resources = async || scene.list("roles").await[0]["rules"][0]["resources"].clone();
    assert_eq!(resources().await, json!(["pods"]));
    browser.confirm("Rules after", "Change the role").await;
    assert_eq!(resources().await, json!(["nodes"]));
}

async fn creates_a_registry(browser: &Browser, scene: &Scene) {
    browser.open(&scene.page("registries")).await;
    browser.follow("Create a registry").await;
    browser.fill("serveraddress", "registry.example.org").await;
    browser.choose_in("main", "provider", "Other").await;
    browser.press("Show the effect").await;
    browser.fill("secret.username", "puller").await;
    browser.fill("secret.password", "hunter2 registry").await;
    let effect = "All clusters of the organization get a pull secret";
    browser.confirm(effect, "Create the registry").await;
    browser.follow("registry.example.org").await;
    browser.shows_in("h1", "Registry").await;
    let page = browser
        .run("return document.documentElement.outerHTML", Vec::new())
        .await;
    assert!(!page.as_str().unwrap().contains("hunter2"), "{page}");
}

async fn filters_the_audit_log(browser: &Browser, scene: &Scene, admin: &str) {
    browser.open(&scene.page("audit")).await;
    browser.shows("Night shift").await;
    browser.fill("actor", admin).await;
    browser.fill("kind", "roles").await;
    browser.press("Filter").await;
    browser.shows("Reader").await;
    let rows = browser.text("tbody").await;
    assert!(!rows.contains("Night shift") && !rows.contains("Paula"), "{rows}");
}

/// A member sees the pages without their forms, and what a form would send is refused.
async fn only_reads(browser: &Browser, scene: &Scene) {
    let paula = scene.page(&format!("people/{}", scene.id("users", "email", PAULA).await));
    let team = scene.page(&format!("teams/{}", scene.id("teams", "name", "Night shift").await));
    let role = scene.page(&format!("roles/{}", scene.id("roles", "name", "Reader").await));
    let binding = scene.list("role-bindings").await.remove(0);
    let binding = scene.page(&format!("access/{}", binding["id"].as_str().unwrap()));
    let registry = scene.id("registries", "serveraddress", "registry.example.org").await;
    let registry = scene.page(&format!("registries/{registry}"));
    let [people, access, roles, registries] = ["people", "access", "roles", "registries"].map(|list| scene.page(list));
    for path in [
        &people,
        &paula,
        &team,
        &access,
        &binding,
        &roles,
        &role,
        &registries,
        &registry,
    ] {
        browser.only_reads(path).await;
    }
    let person = json!({"name": "Mine", "email": "mine@example.org", "role": "owner"});
    let all = json!({"name": "Mine", "type": "kubernetes", "api_groups": "*", "resources": "*", "verbs": "*",
        "resource_names": "", "non_resource_urls": ""});
    for (path, fields) in [
        (people.clone(), person.clone()),
        (scene.page("invitations"), person),
        (scene.page("teams"), json!({"name": "Mine"})),
        (format!("{team}/members"), json!({"person": "member@example.org"})),
        (roles, all.clone()),
        (role, all),
        (
            registries,
            json!({"serveraddress": "registry.example.com", "provider": "private"}),
        ),
        (format!("{registry}/delete"), json!({})),
        (format!("{binding}/withdraw"), json!({})),
        (format!("{paula}/role"), json!({"role": "owner"})),
        (format!("{paula}/logins"), json!({})),
        (format!("{paula}/remove"), json!({})),
    ] {
        assert_eq!(browser.post(&path, fields).await, Value::from(403), "{path}");
    }
    for form in ["people/new", "roles/new", "registries/new", "access/grant", "audit"] {
        browser.open(&scene.page(form)).await;
        browser.shows_in("h1", "Not permitted").await;
    }
}

async fn removes_a_person(browser: &Browser, scene: &Scene) {
    browser.open(&scene.page("people")).await;
    browser.follow("Paula").await;
    let effect = "leaves the organization";
    browser.change("Remove the person", effect, "Remove the person").await;
    assert!(!browser.text("main").await.contains(PAULA));
    browser.press("Sign out").await;
    browser.sign_in(PAULA, PASSWORD).await;
    browser.shows_in("h1", "Sign in").await;
    browser.enter("admin@example.org").await;
}

/// The link makes one account, and no second one.
async fn invites_a_person(browser: &Browser, scene: &Scene) {
    browser.open(&scene.page("people")).await;
    let form = "form[action$='/invitations']";
    browser.fill_in(form, "email", "ivy@example.org").await;
    browser.press("Invite a person").await;
    browser.shows("It works once").await;
    let link = browser.text("pre").await;
    let link = link.trim().strip_prefix(&scene.server.base).unwrap();
    browser.press("Sign out").await;
    browser.open(link).await;
    browser.fill("name", "Ivy").await;
    browser.fill("password", PASSWORD).await;
    browser.press("Become a member").await;
    browser.shows("You are a member now").await;
    browser.open(link).await;
    browser.fill("name", "Mallory").await;
    browser.fill("password", PASSWORD).await;
    browser.press("Become a member").await;
    browser.shows_in("[role=alert]", "invitation").await;
    browser.enter("ivy@example.org").await;
    browser.only_reads(&scene.page("people")).await;
}

/// An owner ends the sessions of a person, whose tokens are refused from then on.
async fn ends_all_logins(browser: &Browser, scene: &Scene, member: &str) {
    let login = scene.log_in(member).await;
    scene.server.get(&login, "/v3/account").await.is(200);
    browser.open(&scene.page("people")).await;
    browser.follow("member").await;
    browser
        .change("End all logins", "become invalid", "End all logins")
        .await;
    scene.server.get(&login, "/v3/account").await.is(401);
}

/// An admin is no owner.
async fn changes_no_settings(browser: &Browser, scene: &Scene) {
    let settings = scene.page("settings");
    browser.open(&settings).await;
    browser.shows_in("h1", "Not permitted").await;
    assert_eq!(browser.post(&settings, json!({"name": "Mine"})).await, 403);
}

async fn changes_the_settings(browser: &Browser, scene: &Scene) {
    browser.open(&scene.page("people")).await;
    browser.follow("Settings").await;
    browser.fill("name", "Acme Ltd").await;
    browser
        .change("Show the effect", "Acme Ltd", "Change the settings")
        .await;
    browser.shows_in("header", "Acme Ltd").await;
    // The API's own reason.
    browser
        .run(
            "document.querySelector('[name=passwords_disabled]').click()",
            Vec::new(),
        )
        .await;
    browser.press("Show the effect").await;
    browser.shows("no → yes").await;
    browser.press("Change the settings").await;
    browser.shows_in("[role=alert]", "link a provider").await;
}
