//! Journeys through the pages of clusters, as those who may and as one who may only look, on both databases.

use serde_json::json;

use crate::browser::Browser;
use crate::world::{EMAIL, On};
use crate::{Scene, decisions, page};

on_both!(people_manage_a_cluster);

async fn people_manage_a_cluster(on: On) {
    let scene = Scene::new(on).await;
    let reader = scene.person("read_only").await;
    let member = scene.person("member").await;
    scene
        .browse(async |browser| {
            signs_in(browser, &scene).await;
            learns_how_to_attach(browser).await;
            creates_a_key(browser, &scene).await;
            upgrades(browser, &scene).await;
            sees_changes(browser, &scene).await;
            decisions::are_made(browser, &scene).await;
            signs_out(browser, &scene).await;
            browser.enter(&member).await;
            labels(browser, &scene).await;
            labels_a_pool(browser, &scene).await;
            browser.press("Sign out").await;
            browser.enter(&reader).await;
            only_looks(browser, &scene).await;
            decisions::are_refused(browser, &scene).await;
        })
        .await;
}

async fn signs_in(browser: &Browser, scene: &Scene) {
    let cluster = page(&scene.land.cluster);
    browser.open(&cluster).await;
    assert_eq!(browser.path().await, "/sign-in");
    browser.sign_in(EMAIL, "wrong password").await;
    browser.shows_in("[role=alert]", "password is wrong").await;
    // The address is still there, and the password is next.
    let focused = browser.run("return document.activeElement.name", Vec::new()).await;
    assert_eq!(focused, "password");
    browser.enter(EMAIL).await;
    browser.follow("prod").await;
    browser.shows_in("h1", "prod").await;
    assert_eq!(browser.path().await, cluster);
}

async fn learns_how_to_attach(browser: &Browser) {
    browser.follow("Clusters").await;
    browser.follow("Attach a cluster").await;
    browser.shows("tidewaiter cloud attach NAME").await;
    browser.shows(EMAIL).await;
}

async fn creates_a_key(browser: &Browser, scene: &Scene) {
    browser.open(&page(&scene.land.cluster)).await;
    browser.press("Create an API key").await;
    browser.shows("The key is shown only now").await;
    let key = browser.text("pre").await;
    scene.server.get(key.trim(), "/v3/authenticate").await.is(200);
    browser.follow("Back to the cluster").await;
    browser.shows("API keys").await;
    assert!(!browser.text("main").await.contains(key.trim()));
}

async fn upgrades(browser: &Browser, scene: &Scene) {
    browser.open(&page(&scene.land.cluster)).await;
    browser.fill("version", "v1.31.0").await;
    browser.fill("canary", "1").await;
    browser.press("Upgrade the cluster").await;
    browser.shows("This is what will change").await;
    browser.shows("workers").await;
    browser.press("Upgrade the cluster").await;
    browser.shows("The change is made").await;
    browser.follow("v1.31.0").await;
    for (action, confirm, state) in [
        ("Resume", "Resume the upgrade", "Waiting"),
        ("Pause", "Pause the upgrade", "Paused"),
        ("Resume", "Resume the upgrade", "Waiting"),
    ] {
        browser.press(action).await;
        browser.shows("This is what will change").await;
        browser.press(confirm).await;
        browser.shows_in("#state .badge", state).await;
    }
    // What the cluster reports appears by itself.
    let land = &scene.land;
    let list = format!("{}/upgrades", land.cluster);
    let upgrades = scene.server.get(&land.token, &list).await.is(200).json();
    let status = format!("{list}/{}/status", upgrades[0]["id"].as_str().unwrap());
    let report = json!({"status": {"clusterStatus": "InProgress", "nodeStatuses": {"node-1": "InProgress"},
        "nodes": 3, "done": 1}});
    scene.report(&status, &report).await;
    browser.shows_in("#timeline", "node-1").await;
    browser.shows_in("#state", "1 of 3").await;
    browser.press("Abort").await;
    browser.press("Abort the upgrade").await;
    browser.shows_in("#state .badge", "Aborted").await;
    assert!(!browser.has_button("Resume").await);
}

/// The page follows the cluster, and takes nothing away that a person has typed.
async fn sees_changes(browser: &Browser, scene: &Scene) {
    let (server, land) = (&scene.server, &scene.land);
    browser.open(&page(&land.cluster)).await;
    let label = |name: &str| json!({"key": format!("cluster.containership.io/{name}"), "value": "a"});
    // Neither does a page wait for an end of the changes, nor is it read for each of them.
    let watch = "window.reads = []; const read = window.fetch;
        window.fetch = (...all) => { window.reads.push(performance.now()); return read(...all); };
        window.changes = setInterval(() => document.dispatchEvent(new Event('focusout')), 50);";
    browser.run(watch, Vec::new()).await;
    for name in ["first", "next"] {
        server.post(&land.token, &land.labels, &label(name)).await.is(201);
        let shown = format!("cluster.containership.io/{name}");
        browser.shows_in("#label-list", &shown).await;
    }
    let pauses = "clearInterval(window.changes); const all = window.reads;
        return all.length > 1 && all.slice(1).every((at, index) => at - all[index] >= 1900);";
    assert_eq!(browser.run(pauses, Vec::new()).await, true);
    browser.fill("key", "cluster.containership.io/typed").await;
    browser.run("document.activeElement.blur()", Vec::new()).await;
    server.post(&land.token, &land.labels, &label("second")).await.is(201);
    let step = json!({"threshold": 0.5, "comparison_operator": ">=", "adjustment_type": "absolute",
        "adjustment_value": 1});
    let policy = json!({"name": "By CPU", "metrics_backend": "prometheus", "metric": "cpu_percent_utilization",
        "metric_configuration": {}, "poll_interval": 15, "sample_period": 600,
        "scaling_policy": {"scale_up": step, "scale_down": step}});
    let policies = format!("{}/autoscaling-policies", land.cluster);
    server.post(&land.token, &policies, &policy).await.is(201);
    browser.shows_in("#policy-list", "By CPU").await;
    let typed = browser
        .run("return document.querySelector('[name=key]').value", Vec::new())
        .await;
    assert_eq!(typed, "cluster.containership.io/typed");
}

async fn signs_out(browser: &Browser, scene: &Scene) {
    browser.press("Sign out").await;
    browser.shows_in("h1", "Sign in").await;
    browser.open(&page(&scene.land.cluster)).await;
    assert_eq!(browser.path().await, "/sign-in");
}

async fn labels(browser: &Browser, scene: &Scene) {
    browser.open(&page(&scene.land.cluster)).await;
    assert!(!browser.has_button("Create an API key").await && !browser.has_button("Upgrade the cluster").await);
    browser.fill("key", "cluster.containership.io/zone").await;
    let value = "main form[action$='/labels'] [name=value]";
    browser
        .run(
            "document.querySelector(arguments[0]).value = 'west'",
            vec![json!(value)],
        )
        .await;
    browser.press("Add a label").await;
    browser.shows("cluster.containership.io/zone=west").await;
    browser.press("Add the label").await;
    browser.shows("The change is made").await;
    browser.shows_in("#label-list", "cluster.containership.io/zone").await;
    // The first one is of the person before.
    browser.press("Delete").await;
    browser.shows("is removed from all nodes of the cluster prod").await;
    browser.press("Delete the label").await;
    browser.shows("The change is made").await;
    assert!(
        !browser
            .text("#label-list")
            .await
            .contains("cluster.containership.io/first")
    );
}

async fn labels_a_pool(browser: &Browser, scene: &Scene) {
    browser.open(&page(&scene.land.cluster)).await;
    browser.follow("workers").await;
    browser.shows_in("h1", "workers").await;
    let form = "form[action$='/labels']";
    browser.fill_in(form, "key", "nodepool.containership.io/disk").await;
    browser.fill_in(form, "value", "ssd").await;
    let effect = "all nodes of the node pool workers of the cluster prod";
    browser.change("Add a label", effect, "Add the label").await;
    browser.fill_in("td form", "value", "nvme").await;
    browser.change("Change", "nvme", "Change the label").await;
    browser.change("Delete", effect, "Delete the label").await;
    browser.shows("There are no labels").await;
}

async fn only_looks(browser: &Browser, scene: &Scene) {
    browser.open(&page(&scene.land.cluster)).await;
    browser.shows("cluster.containership.io/zone").await;
    for label in [
        "Create an API key",
        "Upgrade the cluster",
        "Add a label",
        "Change",
        "Delete",
    ] {
        assert!(!browser.has_button(label).await, "{label}");
    }
    for (rest, fields) in [
        ("/labels", json!({"key": "cluster.containership.io/a", "value": "b"})),
        ("/upgrades", json!({"version": "v1.33.0", "timeout": "900"})),
        ("/keys", json!({})),
    ] {
        let path = format!("{}{rest}", page(&scene.land.cluster));
        assert_eq!(browser.post(&path, fields).await, 403, "{path}");
    }
    browser.follow("v1.31.0").await;
    browser.shows("Aborted").await;
    assert!(!browser.has_button("Abort").await);
    let here = browser.path().await;
    for action in ["pause", "resume", "abort"] {
        assert_eq!(browser.post(&format!("{here}/{action}"), json!({})).await, 403);
    }
    let pool = page(scene.land.nodes.trim_end_matches("/nodes")).replace("/node-pools/", "/pools/");
    browser.only_reads(&pool).await;
}
