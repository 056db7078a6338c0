//! Chromium, as a person uses it: by the names of buttons and fields, and by what a page says.

use std::fs;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fantoccini::elements::Element;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use futures::FutureExt as _;
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tidewaiter_testkit::{Process, Program, Scratch, assets, eventually, free_port};
use url::{ParseError, Url};

use crate::world::{PASSWORD, SOON};

/// The rules of axe-core that are checked: those of WCAG 2.2 AA, and its best practices.
const AXE: &str = r#"
    const done = arguments[0];
    const values = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
    axe.run({ runOnly: { type: "tag", values } }).then(
        (found) => done(found.violations.map((rule) =>
            `${rule.id}: ${rule.help}: ${rule.nodes.map((node) => node.html).join(" ")}`)),
        (error) => done([String(error)]));
"#;

/// Sends the second step of a change, from the page that is open.
const POST: &str = r#"
    const [path, fields, done] = arguments;
    const csrf = document.querySelector("[name=csrf]").value;
    const body = new URLSearchParams({ ...fields, csrf, confirmed: "yes" });
    fetch(path, { method: "POST", body }).then((answer) => done(answer.status), (error) => done(String(error)));
"#;

/// A key of the keyboard: its name, its code in Windows, and the text that it enters.
type Key = (&'static str, u32, &'static str);
pub const TAB: Key = ("Tab", 9, "");
pub const ENTER: Key = ("Enter", 13, "\r");

/// A command of chromedriver that the client does not have.
#[derive(Debug)]
struct Command {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Command {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// A browser with one window.
pub struct Browser {
    client: Client,
    base: String,
    _driver: Process,
}

impl Browser {
    pub async fn start(scratch: &Scratch, base: &str) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let (folder, port) = (assets::chromium(), free_port());
        let name = format!("chromedriver-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let program = Program::new(folder.join("chromedriver")).name(name);
        let driver = Process::start(scratch, program.arg(format!("--port={port}")));
        // Root may not have a sandbox, and a container little shared memory.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--lang=en-US",
            // No page needs another host, and none waits for one that is not there.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
        ];
        let options = json!({"binary": folder.join("chromium"), "args": arguments});
        let capabilities = Capabilities::from_iter([
            ("goog:chromeOptions".to_owned(), options),
            // The warning of a local authority is clicked away.
            ("acceptInsecureCerts".to_owned(), json!(true)),
        ]);
        let url = format!("http://127.0.0.1:{port}");
        let client = eventually("chromedriver to begin a session", SOON, async || {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities.clone());
            builder.connect(&url).await
        })
        .await;
        Self {
            client,
            base: base.to_owned(),
            _driver: driver,
        }
    }

    /// Runs `journey` in a browser of its own, which ends with it.
    pub async fn browse(scratch: &Scratch, base: &str, journey: impl AsyncFnOnce(&Self)) {
        let browser = Self::start(scratch, base).await;
        let ended = AssertUnwindSafe(journey(&browser)).catch_unwind().await;
        browser.close().await;
        if let Err(panic) = ended {
            resume_unwind(panic);
        }
    }

    pub async fn close(self) {
        self.client.close().await.unwrap();
    }

    pub async fn dev_tools(&self, command: &'static str, parameters: Value) -> Value {
        let path = "goog/cdp/execute";
        let body = json!({"cmd": command, "params": parameters});
        self.client.issue_cmd(Command { path, body }).await.unwrap()
    }

    /// Sets the width and the height of the window in pixels, and `light` or `dark`.
    pub async fn look(&self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.dev_tools("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.dev_tools("Emulation.setEmulatedMedia", features).await;
    }

    /// Plugs in a security key, which a person touches whenever it is asked for (WebAuthn 2, 11).
    pub async fn add_security_key(&self) {
        let path = "webauthn/authenticator";
        let body = json!({"protocol": "ctap2", "transport": "usb", "hasResidentKey": false,
            "hasUserVerification": true, "isUserConsenting": true, "isUserVerified": true});
        self.client.issue_cmd(Command { path, body }).await.unwrap();
    }

    pub async fn open(&self, path: &str) {
        self.client.goto(&format!("{}{path}", self.base)).await.unwrap();
    }

    /// The path of the page.
    pub async fn path(&self) -> String {
        self.client.current_url().await.unwrap().path().to_owned()
    }

    pub async fn sign_in(&self, email: &str, password: &str) {
        self.open("/sign-in").await;
        self.fill("email", email).await;
        self.fill("password", password).await;
        self.press("Sign in").await;
    }

    /// Signs in, and waits until the person is in.
    pub async fn enter(&self, email: &str) {
        self.sign_in(email, PASSWORD).await;
        self.shows("Clusters").await;
    }

    /// Signs in on the pages of the provider of the tests, which does not know the browser.
    pub async fn at_provider(&self, login: &str) {
        self.shows_in("h1", "Sign-in").await;
        self.fill_in("form", "login", login).await;
        self.fill_in("form", "password", "any").await;
        self.press("Sign-in").await;
        self.press("Continue").await;
    }

    /// Forgets all sessions, also those of other servers of this machine.
    pub async fn forget(&self) {
        self.dev_tools("Network.clearBrowserCookies", json!({})).await;
    }

    /// Types into the first field with this name.
    pub async fn fill(&self, name: &str, text: &str) {
        self.fill_in("main", name, text).await;
    }

    /// Types into the first field with this name inside of `place`, a selector.
    pub async fn fill_in(&self, place: &str, name: &str, text: &str) {
        let field = self.field(place, name).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Sets a field that is no text, such as a time.
    pub async fn set_in(&self, place: &str, name: &str, value: &str) {
        let script = "document.querySelector(arguments[0]).value = arguments[1]";
        self.run(script, vec![json!(selector(place, name)), json!(value)]).await;
    }

    /// Chooses the option with this label.
    pub async fn choose_in(&self, place: &str, name: &str, label: &str) {
        let list = self.field(place, name).await;
        list.select_by_label(label).await.unwrap();
    }

    async fn field(&self, place: &str, name: &str) -> Element {
        let selector = selector(place, name);
        eventually(format!("the field {selector}"), SOON, async || {
            self.client.find(Locator::Css(&selector)).await
        })
        .await
    }

    fn button(label: &str) -> String {
        format!("//button[normalize-space()='{label}']")
    }

    /// Presses the first button with this label.
    pub async fn press(&self, label: &str) {
        self.click(Locator::XPath(&Self::button(label))).await;
    }

    /// Presses the button with this label in the first row of a table with this text.
    pub async fn press_in_row(&self, text: &str, label: &str) {
        let button = format!("//tr[contains(normalize-space(), '{text}')]//button[normalize-space()='{label}']");
        self.click(Locator::XPath(&button)).await;
    }

    /// Begins a change with the button `begin`, sees its effect, and makes it with the button `confirm`.
    pub async fn change(&self, begin: &str, effect: &str, confirm: &str) {
        self.press(begin).await;
        self.confirm(effect, confirm).await;
    }

    /// Sees the effect of a change that has begun, and makes it with the button `confirm`.
    pub async fn confirm(&self, effect: &str, confirm: &str) {
        self.shows("This is what will change").await;
        self.shows(effect).await;
        self.press(confirm).await;
        self.shows("The change is made").await;
    }

    /// Asserts that the page has no form that changes something.
    pub async fn only_reads(&self, path: &str) {
        self.open(path).await;
        let forms = "return [...document.querySelectorAll('main form[method=post]')].map((form) => form.action)";
        assert_eq!(self.run(forms, Vec::new()).await, json!([]), "{path}");
    }

    /// Sends the second step of a change that no page offers to this person. Returns the status of the answer.
    pub async fn post(&self, path: &str, fields: Value) -> Value {
        let arguments = vec![json!(path), fields];
        self.client.execute_async(POST, arguments).await.unwrap()
    }

    /// Presses a key.
    pub async fn key(&self, (key, code, text): Key) {
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        for kind in [down, "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.dev_tools("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Types into the field that has the focus.
    pub async fn enter_text(&self, text: &str) {
        self.dev_tools("Input.insertText", json!({"text": text})).await;
    }

    /// Clicks an element. The script may replace it in between: then it is found again.
    async fn click(&self, locator: Locator<'_>) {
        eventually(format!("a click on {locator:?}"), SOON, async || {
            self.client.find(locator).await?.click().await
        })
        .await;
    }

    pub async fn has_button(&self, label: &str) -> bool {
        let button = Self::button(label);
        !self.client.find_all(Locator::XPath(&button)).await.unwrap().is_empty()
    }

    pub async fn follow(&self, link: &str) {
        self.click(Locator::LinkText(link)).await;
    }

    /// The text of the elements of this selector.
    pub async fn text(&self, selector: &str) -> String {
        self.try_text(selector).await.unwrap()
    }

    /// The same; an error while another page is being loaded.
    async fn try_text(&self, selector: &str) -> Result<String, String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText).join('\\n')";
        let text = self.client.execute(script, vec![json!(selector)]).await;
        text.map(|text| text.as_str().unwrap_or_default().to_owned())
            .map_err(|error| error.to_string())
    }

    /// Waits until the page says this.
    pub async fn shows(&self, text: &str) {
        self.shows_in("main", text).await;
    }

    /// Waits until the elements of this selector say this.
    pub async fn shows_in(&self, selector: &str, text: &str) {
        eventually(format!("a page with {text:?} in {selector}"), SOON, async || {
            let shown = self.try_text(selector).await?;
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    pub async fn run(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.client.execute(script, arguments).await.unwrap()
    }

    /// The violations of the rules of accessibility.
    pub async fn violations(&self) -> Value {
        if self.run("return typeof axe", Vec::new()).await == "undefined" {
            let axe = fs::read_to_string(assets::axe()).unwrap();
            self.client.execute(&axe, Vec::new()).await.unwrap();
        }
        self.client.execute_async(AXE, Vec::new()).await.unwrap()
    }

    /// Saves the window as a picture. Returns its size in bytes.
    pub async fn photograph(&self, file: &Path) -> usize {
        let picture = self.dev_tools("Page.captureScreenshot", json!({"format": "png"})).await;
        let picture = STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        fs::write(file, &picture).unwrap();
        picture.len()
    }
}

/// The first field with this name inside of `place`.
fn selector(place: &str, name: &str) -> String {
    format!("{place} [name=\"{name}\"]:not([type=hidden])")
}
