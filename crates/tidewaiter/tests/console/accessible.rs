//! Every page in light and dark, narrow and wide: no rule of axe-core is violated, and nothing is wider than the
//! window.

use reqwest::Method;
use serde_json::json;

use crate::world::{Ask, EMAIL, On};
use crate::{Scene, page};

const WIDTHS: [u32; 4] = [360, 390, 1440, 2560];
/// The widths of which pictures are kept.
const PHOTOGRAPHED: [u32; 2] = [390, 1440];

#[tokio::test]
async fn nobody_is_kept_from_a_page() {
    let scene = Scene::new(On::Sqlite).await;
    let (server, land) = (&scene.server, &scene.land);
    let upgrade = json!({"type": "kubernetes", "description": "next", "targetVersion": "v1.31.0", "labelSelector": [],
        "nodeTimeoutSeconds": 900});
    let upgrades = format!("{}/upgrades", land.cluster);
    let upgrade = server.post(&land.token, &upgrades, &upgrade).await.is(201).field("id");
    let label = json!({"key": "cluster.containership.io/zone", "value": "a"});
    server.post(&land.token, &land.labels, &label).await.is(201);
    server
        .post(&land.token, &land.nodes, &json!({"name": "node-1"}))
        .await
        .is(201);
    let held = json!({"revision": "0123456789ab", "deletions": 6, "names": ["zone"], "reason": "many at once"});
    let waiting = json!({"version": "1.1.0", "digest": "abc", "creates": 1, "diff": ["create ConfigMap a/b"]});
    let report = json!({"synced": false, "accepts_releases": true,
        "kinds": [{"kind": "User", "held": held, "refused_objects": 1, "refused": [{"id": "bob", "reason": "no key"}]}],
        "plugins": [{"id": "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "name": "metrics/prometheus", "state": "Blocked",
            "waiting": waiting}],
        "agents": {"nodes": 5, "reporting": 4}});
    let path = format!("{}/report", land.cluster);
    let sent = server.send(&land.api_key, Method::PUT, &path, Ask::body(&report)).await;
    sent.unwrap().is(200);
    let cluster = page(&land.cluster);
    let organization = page(&land.organization);
    let pool = page(land.nodes.trim_end_matches("/nodes")).replace("/node-pools/", "/pools/");
    let pages = [
        ("clusters", format!("{organization}/clusters")),
        ("attach", format!("{organization}/attach")),
        ("cluster", cluster.clone()),
        ("pool", pool),
        ("upgrade", format!("{cluster}/upgrades/{upgrade}")),
        ("missing", format!("{cluster}/upgrades/missing")),
    ];
    scene
        .browse(async |browser| {
            let check = async |name: &str| {
                for (width, scheme) in WIDTHS.iter().flat_map(|width| [(*width, "light"), (*width, "dark")]) {
                    browser.look(width, scheme).await;
                    let place = format!("{name} at {width} in {scheme}");
                    assert_eq!(browser.violations().await, json!([]), "{place}");
                    let script = "return document.documentElement.scrollWidth > innerWidth";
                    assert_eq!(browser.run(script, Vec::new()).await, false, "{place} scrolls sideways");
                    if PHOTOGRAPHED.contains(&width) {
                        browser.photograph(&format!("{name}-{width}-{scheme}")).await;
                    }
                }
            };
            browser.sign_in(EMAIL, "wrong password").await;
            check("sign-in").await;
            browser.enter(EMAIL).await;
            for (name, path) in &pages {
                browser.open(path).await;
                check(name).await;
            }
            browser.open(&cluster).await;
            browser.fill("version", "v1.32.0").await;
            browser.press("Upgrade the cluster").await;
            browser.shows("This is what will change").await;
            check("confirm").await;
        })
        .await;
}
