//! Every page in light and dark, narrow and wide: no rule of axe-core is violated, and nothing is wider than the
//! window. If `TIDEWAITER_PICTURES` names a folder, pictures of the pages are saved there.

use std::path::Path;
use std::{env, fs};

use serde_json::json;

use crate::browser::Browser;
use crate::world::{EMAIL, On};
use crate::{Scene, demonstration, page};

/// The size of the window and the scheme of each check of a page.
const LOOKS: [((u32, u32), &str); 2] = [((360, 900), "dark"), ((2560, 900), "light")];
const IS_WIDER: &str = "return document.documentElement.scrollWidth > innerWidth";

/// The router of the console, which has all pages.
const ROUTER: &str = include_str!("../../../cloud/src/server/console.rs");
/// The paths of the router that are no pages of their own.
const NO_PAGES: [&str; 5] = [
    "/assets/{name}",
    "/clusters/{cluster}/events",
    "/events",
    "/sign-in/callback",
    "/sign-in/with/{provider}",
];

/// The pages whose pictures the README and the documentation show.
const DOCUMENTED: [&str; 6] = ["access", "audit", "cluster", "clusters", "effect", "upgrade"];
/// The maximum size of these pictures, in bytes.
const MAX_PICTURE: usize = 150_000;
/// The maximum height of the other pictures, in pixels.
const MAX_HEIGHT: u32 = 6_000;

#[tokio::test]
async fn nobody_is_kept_from_a_page() {
    let scene = Scene::new(On::Sqlite).await;
    let pages = demonstration::pages(&scene).await;
    scene
        .browse(async |browser| {
            browser.open("/invitation?secret=none").await;
            check(browser, "invitation").await;
            browser.sign_in(EMAIL, "wrong password").await;
            check(browser, "refused").await;
            browser.enter(EMAIL).await;
            let second = json!({"name": "Acme Labs"});
            let made = scene.server.post(&scene.land.token, "/v3/organizations", &second).await;
            made.is(201);
            for (name, path) in &pages {
                browser.open(path).await;
                check(browser, name).await;
            }
            let role = scene.id("roles", "name", "Reader").await;
            browser.open(&scene.page(&format!("roles/{role}"))).await;
            browser.fill_in("fieldset", "resources", "pods, services").await;
            browser.fill_in("fieldset", "verbs", "get").await;
            browser.press("Show the effect").await;
            browser.shows("Effect on people").await;
            check(browser, "effect").await;
            browser.open(&page(&scene.land.cluster)).await;
            browser.fill("version", "v1.32.0").await;
            browser.press("Upgrade the cluster").await;
            browser.shows("This is what will change").await;
            check(browser, "confirm").await;
        })
        .await;
    // A page that is added to the console is added here, too.
    let organization = page(&scene.land.organization);
    let is_checked = |route: &&str| {
        let mut paths = pages
            .iter()
            .map(|(_, path)| path.strip_prefix(&organization).unwrap_or(path));
        NO_PAGES.contains(route) || paths.any(|path| is_at(route, path))
    };
    let unchecked: Vec<&str> = routes().filter(|route| !is_checked(route)).collect();
    assert!(unchecked.is_empty(), "not checked: {unchecked:?}");
}

/// The paths that the router answers to GET, below an organization without the path of that.
fn routes() -> impl Iterator<Item = &'static str> {
    ROUTER
        .split("get(")
        .filter_map(|before| before.rsplit('"').nth(1))
        .filter(|path| path.starts_with('/'))
}

/// Returns true if the page is one of the route, whose parameters are in braces.
fn is_at(route: &str, page: &str) -> bool {
    let page = page.split('?').next().unwrap_or_default();
    let (route, page): (Vec<&str>, Vec<&str>) = (route.split('/').collect(), page.split('/').collect());
    let mut parts = route.iter().zip(&page);
    route.len() == page.len() && parts.all(|(part, segment)| part.starts_with('{') || part == segment)
}

/// Checks the page that is open.
async fn check(browser: &Browser, name: &str) {
    for (size, scheme) in LOOKS {
        browser.look(size, scheme).await;
        let place = format!("{name} at {} in {scheme}", size.0);
        assert_eq!(browser.violations().await, json!([]), "{place}");
        assert_eq!(
            browser.run(IS_WIDER, Vec::new()).await,
            false,
            "{place} scrolls sideways"
        );
    }
    if let Some(folder) = env::var_os("TIDEWAITER_PICTURES") {
        photograph(browser, name, Path::new(&folder)).await;
    }
}

/// Saves pictures of the whole page, and the one for the documentation.
async fn photograph(browser: &Browser, name: &str, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let is_documented = DOCUMENTED.contains(&name);
    let schemes: &[&str] = if is_documented { &["light", "dark"] } else { &["light"] };
    for (width, scheme) in [360, 1280]
        .into_iter()
        .flat_map(|width| schemes.iter().map(move |scheme| (width, scheme)))
    {
        browser.look((width, 800), scheme).await;
        let height = browser
            .run("return document.documentElement.scrollHeight", Vec::new())
            .await;
        let height = u32::try_from(height.as_u64().unwrap()).unwrap();
        browser.look((width, height.min(MAX_HEIGHT)), scheme).await;
        let file = format!("{name}-{width}-{scheme}.png");
        browser.photograph(&folder.join(file)).await;
    }
    if is_documented {
        browser.look((1280, 800), "light").await;
        let size = browser.photograph(&folder.join(format!("console-{name}.png"))).await;
        assert!(size <= MAX_PICTURE, "the picture of {name} has {size} bytes");
    }
}
