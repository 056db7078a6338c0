//! A journey with a security key, which Chromium has in software.

use serde_json::json;

use crate::Scene;
use crate::world::{EMAIL, On, PASSWORD, Place};

#[tokio::test]
async fn a_security_key_is_asked_for_after_the_password() {
    let place = Place::new(On::Sqlite).await;
    // Browsers bind keys to a host name.
    let origin = format!("http://localhost:{}", place.port);
    place.without_public_url();
    place.add_setting("publicUrl", &origin);
    let mut scene = Scene::at(place).await;
    scene.server.base = origin;
    scene
        .browse(async |browser| {
            browser.add_security_key().await;
            browser.enter(EMAIL).await;
            browser.open("/account").await;
            browser.press("Register a security key").await;
            browser.shows("Register the security key").await;
            assert_eq!(browser.violations().await, json!([]));
            browser.fill("name", "Blue key").await;
            browser.press("Register the security key").await;
            browser.shows("They are not shown again").await;
            let codes = browser.text("pre").await;
            browser.follow("Continue").await;
            browser.shows("Blue key").await;
            browser.press("Sign out").await;
            browser.sign_in(EMAIL, PASSWORD).await;
            browser.shows("Use the security key").await;
            assert_eq!(browser.violations().await, json!([]));
            // Nobody is in before it.
            browser.open("/account").await;
            assert_eq!(browser.path().await, "/sign-in");
            browser.sign_in(EMAIL, PASSWORD).await;
            browser.shows("Use the security key").await;
            browser.press("Use the security key").await;
            browser.shows("Clusters").await;
            browser.press("Sign out").await;
            browser.sign_in(EMAIL, PASSWORD).await;
            browser.shows("Recovery code").await;
            browser.fill("code", codes.lines().next().unwrap()).await;
            browser.press("Use the recovery code").await;
            browser.shows("Clusters").await;
            // The login of the person who requires it has it already.
            browser.open(&scene.page("settings")).await;
            let check = "document.querySelector('[name=second_factor_required]').click()";
            browser.run(check, Vec::new()).await;
            browser
                .change("Show the effect", "end at once", "Change the settings")
                .await;
        })
        .await;
}
