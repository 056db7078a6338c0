//! Journeys through the pages of operators, and their refusal to an admin.

use serde_json::json;

use crate::Scene;
use crate::browser::Browser;
use crate::world::{EMAIL, On};

on_both!(operators_manage_organizations);

async fn operators_manage_organizations(on: On) {
    let scene = Scene::new(on).await;
    let admin = scene.person("admin").await;
    scene
        .browse(async |browser| {
            browser.enter(&admin).await;
            is_no_operator(browser).await;
            browser.enter(EMAIL).await;
            creates_an_organization(browser).await;
            locks_it(browser).await;
        })
        .await;
}

async fn is_no_operator(browser: &Browser) {
    assert!(!browser.text("header").await.contains("Operators"));
    for (path, fields) in [
        ("/operators/organizations", json!({"name": "Mine"})),
        ("/operators", json!({"person": "admin@example.org"})),
    ] {
        assert_eq!(browser.post(path, fields).await, 403, "{path}");
    }
    for path in ["/operators", "/operators/audit"] {
        browser.open(path).await;
        browser.shows_in("h1", "Not permitted").await;
    }
}

async fn creates_an_organization(browser: &Browser) {
    browser.follow("Operators").await;
    let form = "form[action$='/operators/organizations']";
    browser.fill_in(form, "name", "Second").await;
    let effect = "whose owner you become";
    browser
        .change("Create an organization", effect, "Create the organization")
        .await;
    browser.shows("Second").await;
    browser.open("/").await;
    browser.shows_in("h1", "Organizations").await;
    browser.follow("Second").await;
    browser.shows("There are no clusters").await;
}

async fn locks_it(browser: &Browser) {
    browser.open("/operators").await;
    browser.press_in_row("Second", "Lock").await;
    browser.confirm("refuses every change", "Lock the organization").await;
    browser.press_in_row("Second", "Unlock").await;
    browser
        .confirm("accepts changes again", "Unlock the organization")
        .await;
}
