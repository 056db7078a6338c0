//! Releases of what a cluster holds, and approvals of versions of plugins, by an owner and by one who only reads.

use serde_json::json;

use crate::browser::Browser;
use crate::demonstration::{DIGEST, PLUGIN, REVISION, report};
use crate::{Scene, page};

pub async fn are_made(browser: &Browser, scene: &Scene) {
    let (server, land) = (&scene.server, &scene.land);
    scene.report(&format!("{}/report", land.cluster), &report()).await;
    browser.open(&page(&land.cluster)).await;
    browser.change("Release", "quentin", "Release").await;
    browser.change("Approve", "1.1.0", "Approve").await;
    let decisions = format!("{}/decisions", land.cluster);
    let decisions = server.get(&land.api_key, &decisions).await.is(200).json();
    assert_eq!(decisions.as_array().unwrap().len(), 2, "{decisions}");
}

pub async fn are_refused(browser: &Browser, scene: &Scene) {
    let cluster = page(&scene.land.cluster);
    browser.open(&cluster).await;
    browser.shows("quentin").await;
    assert!(!browser.has_button("Release").await && !browser.has_button("Approve").await);
    for (list, fields) in [
        ("releases", json!({"kind": "User", "revision": REVISION})),
        ("approvals", json!({"plugin": PLUGIN, "digest": DIGEST})),
    ] {
        assert_eq!(browser.post(&format!("{cluster}/{list}"), fields).await, 403, "{list}");
    }
}
