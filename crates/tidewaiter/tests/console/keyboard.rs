//! The console by the keyboard alone: the focus is seen, in the order of the page, and Enter does what a click does.

use serde_json::json;

use crate::browser::{Browser, ENTER, TAB};
use crate::world::{On, PASSWORD};
use crate::{Scene, page};

/// The first words of the element that has the focus.
const FOCUSED: &str = "return document.activeElement.innerText.split('\\n')[0].trim()";
/// Returns true if the focus has an outline, and is in the window.
const IS_SEEN: &str = "const focused = document.activeElement;
    const style = getComputedStyle(focused);
    const place = focused.getBoundingClientRect();
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2
        && place.bottom > 0 && place.top < innerHeight && place.right > 0 && place.left < innerWidth;";
/// More than any page has between its beginning and its first row.
const MAX_TABS: usize = 40;

#[tokio::test]
async fn the_keyboard_is_enough() {
    let scene = Scene::new(On::Sqlite).await;
    let member = scene.person("member").await;
    scene
        .browse(async |browser| {
            let on = json!({"enabled": true});
            browser.dev_tools("Emulation.setFocusEmulationEnabled", on).await;
            browser.open("/sign-in").await;
            // The first field has the focus.
            browser.enter_text(&member).await;
            browser.key(TAB).await;
            browser.enter_text(PASSWORD).await;
            browser.key(ENTER).await;
            browser.shows_in("h1", "Clusters").await;
            let order = [
                "Skip to the content",
                "Tidewaiter",
                "member",
                "Sign out",
                "Clusters",
                "Access",
                "Audit",
                "prod",
            ];
            let passed = reached(browser, "prod").await;
            let places = order.map(|label| passed.iter().position(|other| other == label));
            assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{passed:?}");
            assert_eq!(places[0], Some(0), "{passed:?}");
            browser.key(ENTER).await;
            browser.shows_in("h1", "prod").await;
            // The first link leads over the navigation.
            browser.key(TAB).await;
            browser.key(ENTER).await;
            assert_eq!(
                browser.run("return document.activeElement.id", Vec::new()).await,
                "content"
            );
            reached_and_pressed(browser, &scene).await;
        })
        .await;
}

/// Goes from one element to the next until this one. Returns the labels of all.
async fn reached(browser: &Browser, label: &str) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    while labels.last().is_none_or(|last| last != label) {
        assert!(labels.len() < MAX_TABS, "{label} is not reached: {labels:?}");
        browser.key(TAB).await;
        let focused = browser.run(FOCUSED, Vec::new()).await;
        assert_eq!(
            browser.run(IS_SEEN, Vec::new()).await,
            true,
            "{focused} has no visible focus"
        );
        labels.push(focused.as_str().unwrap().to_owned());
    }
    labels
}

/// Enter in a field begins the change, and on the button of the review makes it.
async fn reached_and_pressed(browser: &Browser, scene: &Scene) {
    browser.open(&format!("{}#labels", page(&scene.land.cluster))).await;
    browser
        .run("document.querySelector('main [name=key]').focus()", Vec::new())
        .await;
    browser.run("document.activeElement.value = ''", Vec::new()).await;
    browser.enter_text("cluster.containership.io/typed").await;
    browser.key(TAB).await;
    browser.enter_text("a").await;
    browser.key(ENTER).await;
    browser.shows("This is what will change").await;
    reached(browser, "Add the label").await;
    browser.key(ENTER).await;
    browser.shows("The change is made").await;
    browser.shows_in("#label-list", "cluster.containership.io/typed").await;
}
