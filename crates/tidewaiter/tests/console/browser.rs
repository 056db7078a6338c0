//! Chromium, as a person uses it: by the names of buttons and fields, and by what a page says.

use std::fs;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

/// A command of Chromium's own protocol.
#[derive(Debug)]
struct DevTools {
    command: &'static str,
    parameters: Value,
}

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        let body = json!({"cmd": self.command, "params": self.parameters});
        (Method::POST, Some(body.to_string()))
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
            // Nothing is loaded from elsewhere.
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

    async fn dev_tools(&self, command: &'static str, parameters: Value) -> Value {
        self.client.issue_cmd(DevTools { command, parameters }).await.unwrap()
    }

    /// Sets the width of the window in pixels, and `light` or `dark`.
    pub async fn look(&self, width: u32, scheme: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.dev_tools("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.dev_tools("Emulation.setEmulatedMedia", features).await;
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

    /// Types into the first field with this name.
    pub async fn fill(&self, name: &str, text: &str) {
        self.fill_at(&format!("main [name=\"{name}\"]:not([type=hidden])"), text)
            .await;
    }

    /// Types into the field of this selector.
    pub async fn fill_at(&self, selector: &str, text: &str) {
        let field = self.client.find(Locator::Css(selector)).await.unwrap();
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    fn button(label: &str) -> String {
        format!("//button[normalize-space()='{label}']")
    }

    /// Presses the first button with this label.
    pub async fn press(&self, label: &str) {
        self.click(Locator::XPath(&Self::button(label))).await;
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
        let script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText).join('\\n')";
        self.run(script, vec![json!(selector)])
            .await
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits until the page says this.
    pub async fn shows(&self, text: &str) {
        self.shows_in("main", text).await;
    }

    /// Waits until the elements of this selector say this.
    pub async fn shows_in(&self, selector: &str, text: &str) {
        eventually(format!("a page with {text:?} in {selector}"), SOON, async || {
            let shown = self.text(selector).await;
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    pub async fn run(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.client.execute(script, arguments).await.unwrap()
    }

    /// The violations of the rules of accessibility.
    pub async fn violations(&self) -> Value {
        let axe = fs::read_to_string(assets::axe()).unwrap();
        self.client.execute(&axe, Vec::new()).await.unwrap();
        self.client.execute_async(AXE, Vec::new()).await.unwrap()
    }

    /// Saves the whole page as a picture below `target`, for the eye.
    pub async fn photograph(&self, name: &str) {
        let options = json!({"format": "png", "captureBeyondViewport": true});
        let picture = self.dev_tools("Page.captureScreenshot", options).await;
        let picture = STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        fs::write(folder().join(format!("{name}.png")), picture).unwrap();
    }
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    fs::create_dir_all(&folder).unwrap();
    folder
}
