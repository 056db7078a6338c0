//! Sign-ins in the browser: at a certified provider with its own pages, and of the command line, on this machine and on
//! another one; by people who may, and by those who may not or say no.

use serde_json::json;
use tidewaiter_testkit::oidc_provider::{CLIENT_ID, CLIENT_SECRET};
use tidewaiter_testkit::{OidcProvider, Process, Program, eventually};

use crate::browser::Browser;
use crate::world::{EMAIL, On, PASSWORD, SOON};
use crate::{Scene, base};

on_both!(people_sign_in);

async fn people_sign_in(on: On) {
    let place = Scene::place(on).await;
    let provider = OidcProvider::start(&format!("{}/sign-in/callback", base(&place))).await;
    let settings = json!({"providers": [{"name": "certified", "title": "Certified", "issuer": provider.issuer(),
        "clientId": CLIENT_ID, "clientSecretFile": place.secret_file("client-secret", CLIENT_SECRET)}]});
    place.add_setting("signIn", &settings.to_string());
    let scene = Scene::at(place).await;
    let reader = scene.person("read_only").await;
    scene
        .browse(async |browser| {
            a_stranger_of_the_provider_is_refused(browser).await;
            a_linked_person_signs_in_at_the_provider(browser).await;
            the_command_line_is_signed_in_or_not(browser, &scene, &reader).await;
            another_machine_is_signed_in_or_not(browser, &scene).await;
        })
        .await;
}

async fn a_stranger_of_the_provider_is_refused(browser: &Browser) {
    browser.open("/sign-in").await;
    browser.follow("Sign in with Certified").await;
    browser.shows_in("h1", "Sign-in").await;
    browser.follow("[ Cancel ]").await;
    browser.shows_in("[role=alert]", "access_denied").await;
    browser.open("/sign-in").await;
    browser.follow("Sign in with Certified").await;
    browser.at_provider("mallory").await;
    browser.shows_in("[role=alert]", "no user is linked").await;
    browser.open("/account").await;
    assert_eq!(browser.path().await, "/sign-in");
    browser.forget().await;
}

async fn a_linked_person_signs_in_at_the_provider(browser: &Browser) {
    browser.enter(EMAIL).await;
    browser.open("/account/identities").await;
    browser.press("Link Certified").await;
    browser.at_provider("olivia").await;
    browser.shows("Certified (olivia)").await;
    browser.forget().await;
    browser.open("/sign-in?return_to=%2Faccount%2Fidentities").await;
    browser.follow("Sign in with Certified").await;
    browser.at_provider("olivia").await;
    browser.shows("Certified (olivia)").await;
    browser.press("Sign out").await;
    browser.shows_in("h1", "Sign in").await;
}

/// A command line that waits for the browser.
struct Waiting(Process);

impl Waiting {
    fn start(scene: &Scene, name: &str, how: &str) -> Self {
        let scratch = &scene.place.scratch;
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter")).name(format!("login-{name}"));
        let program = program.args(["cloud", "login", "--server", &scene.server.base, "--context", name, how]);
        let program = program.env("XDG_CONFIG_HOME", scratch.path().join(name));
        Self(Process::start(scratch, program))
    }

    /// The path of the page that it prints.
    async fn page(&self, scene: &Scene) -> String {
        eventually("the link of the login", SOON, async || {
            let log = self.0.log();
            let link = log
                .lines()
                .find_map(|line| line.trim().strip_prefix(&scene.server.base));
            // The log may end within a line.
            let link = link.filter(|link| link.contains('?') && log.ends_with('\n'));
            link.map(str::to_owned).ok_or_else(|| log.clone())
        })
        .await
    }

    async fn ends(&self, code: i32, words: &str) {
        let status = self.0.exited(SOON).await;
        let log = self.0.log();
        assert!(status.code() == Some(code) && log.contains(words), "{status}: {log}");
    }
}

async fn the_command_line_is_signed_in_or_not(browser: &Browser, scene: &Scene, reader: &str) {
    let waiting = Waiting::start(scene, "granted", "--no-browser");
    browser.open(&waiting.page(scene).await).await;
    // The person signs in first, and is led back.
    assert_eq!(browser.path().await, "/sign-in");
    browser.fill("email", reader).await;
    browser.fill("password", PASSWORD).await;
    browser.press("Sign in").await;
    browser.shows("Sign in the command line on").await;
    browser.press("Sign in").await;
    browser.shows_in("body", "Return to the terminal").await;
    waiting.ends(0, &format!("as {reader}")).await;
    let waiting = Waiting::start(scene, "denied", "--no-browser");
    browser.open(&waiting.page(scene).await).await;
    browser.shows("Sign in the command line on").await;
    browser.press("Cancel").await;
    waiting.ends(1, "access_denied").await;
}

async fn another_machine_is_signed_in_or_not(browser: &Browser, scene: &Scene) {
    let [granted, denied] = ["device", "stranger"].map(|name| Waiting::start(scene, name, "--device"));
    for (waiting, decision, shown) in [
        (&granted, "Sign in", "is signed in"),
        (&denied, "Deny", "is not signed in"),
    ] {
        browser.open(&waiting.page(scene).await).await;
        browser.press("Continue").await;
        browser.shows("at the address 127.0.0.1").await;
        browser.press(decision).await;
        browser.shows(shown).await;
    }
    granted.ends(0, "context device").await;
    denied.ends(1, "the login was denied").await;
}
