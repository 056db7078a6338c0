//! Journeys through the own account: SSH keys, tokens and sessions, with the script of the pages and without it, and
//! what another person cannot do to them.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::demonstration::KEY;
use crate::world::On;
use crate::{Scene, page};

on_both!(people_manage_their_account);

/// The times as the server sends them, which the script replaces.
const RAW_TIMES: &str = "const times = [...document.querySelectorAll('td time')];
    return times.length > 0 && times.every((one) => one.textContent === one.dateTime);";

async fn people_manage_their_account(on: On) {
    let scene = Scene::new(on).await;
    let member = scene.person("member").await;
    let reader = scene.person("read_only").await;
    scene
        .browse(async |browser| {
            browser.enter(&member).await;
            adds_and_deletes_a_key(browser).await;
            creates_and_revokes_a_token(browser, &scene).await;
            sees_times_of_the_own_zone(browser).await;
            let (key, token) = leaves_a_key_and_a_token(&scene, &member).await;
            browser.enter(&reader).await;
            changes_nothing_of_others(browser, &key, &token).await;
            let id = scene.id("users", "email", &member).await;
            let user = format!("{}/users/{id}", scene.land.organization);
            scene.delete(&format!("{user}/ssh_keys/{key}")).await;
            browser.enter(&member).await;
            loses_the_session(browser, &scene, &user).await;
            works_without_the_script(browser, &scene, &member).await;
        })
        .await;
}

async fn adds_and_deletes_a_key(browser: &Browser) {
    browser.open("/account").await;
    let form = "form[action$='/account/keys']";
    browser.fill_in(form, "name", "laptop").await;
    browser.fill_in(form, "key", KEY).await;
    browser
        .change("Add a key", "you can log in on the nodes", "Add the key")
        .await;
    browser.shows("SHA256:").await;
    browser.press_in_row("SHA256:", "Delete").await;
    browser
        .confirm("cannot log in on nodes with this key", "Delete the key")
        .await;
    assert!(!browser.text("main").await.contains("SHA256:"));
}

/// The token is in one page, and works until it is revoked.
async fn creates_and_revokes_a_token(browser: &Browser, scene: &Scene) {
    browser.open("/account").await;
    browser
        .fill_in("form[action$='/account/tokens']", "name", "pipeline")
        .await;
    browser.press("Create a token").await;
    browser.shows("It is not shown again").await;
    let token = browser.text("pre").await.trim().to_owned();
    scene.server.get(&token, "/v3/account").await.is(200);
    browser.follow("Back to the account").await;
    browser.shows("pipeline").await;
    let page = browser
        .run("return document.documentElement.outerHTML", Vec::new())
        .await;
    assert!(!page.as_str().unwrap().contains(&token));
    browser.press_in_row("pipeline", "Revoke").await;
    browser.confirm("becomes invalid", "Revoke the token").await;
    assert!(!browser.text("main").await.contains("pipeline"));
    scene.server.get(&token, "/v3/account").await.is(401);
}

/// Times are those of the zone of the browser, and the exact one is the title, which a pointer shows.
async fn sees_times_of_the_own_zone(browser: &Browser) {
    let zone = json!({"timezoneId": "Asia/Kolkata"});
    browser.dev_tools("Emulation.setTimezoneOverride", zone).await;
    browser.open("/account").await;
    browser.shows_in("td time", "GMT+5:30").await;
    let exact = "const times = [...document.querySelectorAll('time')];
        return times.length > 0 && times.every((one) => one.title === one.dateTime && one.title.endsWith('Z'));";
    assert_eq!(browser.run(exact, Vec::new()).await, true);
    let zone = json!({"timezoneId": ""});
    browser.dev_tools("Emulation.setTimezoneOverride", zone).await;
}

/// The ids of a key and of a token of this person.
async fn leaves_a_key_and_a_token(scene: &Scene, email: &str) -> (String, String) {
    let login = scene.log_in(email).await;
    let make = async |path: &str, body: Value| scene.server.post(&login, path, &body).await.is(201);
    let key = make("/v3/account/ssh_keys", json!({"name": "desk", "key": KEY})).await;
    make(
        "/v3/account/tokens",
        json!({"name": "nightly", "expires_in_seconds": 3600}),
    )
    .await;
    let tokens = scene.server.get(&login, "/v3/account/tokens").await.is(200).json();
    let nightly = tokens
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["name"] == "nightly");
    let nightly = nightly.unwrap()["id"].as_str().unwrap();
    (key.field("id"), nightly.to_owned())
}

async fn changes_nothing_of_others(browser: &Browser, key: &str, token: &str) {
    browser.open("/account").await;
    let page = browser.text("main").await;
    assert!(!page.contains("desk") && !page.contains("nightly"), "{page}");
    for path in [
        format!("/account/keys/{key}/delete"),
        format!("/account/tokens/{token}/revoke"),
    ] {
        assert_eq!(browser.post(&path, json!({})).await, 404, "{path}");
    }
}

/// The page that is open when all logins of its person end leads to the sign-in by itself. `user` is the path of the
/// person in the API.
async fn loses_the_session(browser: &Browser, scene: &Scene, user: &str) {
    browser.open(&page(&scene.land.cluster)).await;
    browser.shows_in("h1", "prod").await;
    scene.delete(&format!("{user}/tokens")).await;
    browser.shows_in("h1", "Sign in").await;
}

/// Three journeys without JavaScript.
async fn works_without_the_script(browser: &Browser, scene: &Scene, member: &str) {
    let off = json!({"value": true});
    browser.dev_tools("Emulation.setScriptExecutionDisabled", off).await;
    browser.enter(member).await;
    browser.open("/account").await;
    assert_eq!(browser.run(RAW_TIMES, Vec::new()).await, true);
    adds_and_deletes_a_key(browser).await;
    creates_and_revokes_a_token(browser, scene).await;
    browser.open(&page(&scene.land.cluster)).await;
    browser.fill("key", "cluster.containership.io/plain").await;
    browser.change("Add a label", "plain", "Add the label").await;
    browser.shows_in("#label-list", "cluster.containership.io/plain").await;
    browser.press("Sign out").await;
    browser.shows_in("h1", "Sign in").await;
    let on = json!({"value": false});
    browser.dev_tools("Emulation.setScriptExecutionDisabled", on).await;
}
