//! oidc-provider, the certified provider of OpenID Connect that others have written, with its pages for development.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Method, Response, redirect};
use url::Url;

use crate::assets;
use crate::process::Program;
use crate::server::Server;

/// The id of the only client.
pub const CLIENT_ID: &str = "tidewaiter";
/// The secret of the client.
pub const CLIENT_SECRET: &str = "not-a-real-secret";

/// The maximum number of pages of a sign-in.
const PAGES: usize = 10;

/// A running provider. It ends when this is dropped.
#[derive(Debug)]
pub struct OidcProvider(Server);

/// A browser, as far as the pages need one.
struct Visitor {
    http: Client,
    cookies: BTreeMap<String, String>,
}

impl OidcProvider {
    /// Starts one whose client gets people back at `redirect`, and waits until it answers.
    ///
    /// # Panics
    /// When it is not installed, with the line that installs it; when it does not come up, with its log.
    pub async fn start(redirect: &str) -> Self {
        let script = assets::oidc_provider().join("server.js");
        let program = |port: u16| {
            let program = Program::new("/usr/bin/env").arg("node").arg(&script);
            program.args([port.to_string(), redirect.to_owned()])
        };
        let health = "/.well-known/openid-configuration";
        Self(Server::start(Ipv4Addr::LOCALHOST, "oidc-provider", health, program).await)
    }

    /// Its issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.0.endpoint
    }

    /// Signs `login` in with the request `url`, on its pages, and consents. Returns where the person is sent back to.
    ///
    /// # Panics
    /// When it asks for more than that.
    pub async fn sign_in(&self, url: &Url, login: &str) -> Url {
        let http = Client::builder().no_proxy().redirect(redirect::Policy::none());
        let mut visitor = Visitor {
            http: http.build().expect("an HTTP client"),
            cookies: BTreeMap::new(),
        };
        let mut next = url.clone();
        for _ in 0..PAGES {
            if !next.as_str().starts_with(self.issuer()) {
                return next;
            }
            let answer = visitor.send(Method::GET, &next, String::new()).await;
            let Some(location) = location(&next, &answer) else {
                let page = answer.text().await.expect("a page");
                let prompt = if page.contains("value=\"login\"") {
                    "login"
                } else {
                    "consent"
                };
                let form = format!("prompt={prompt}&login={login}&password=any");
                let answer = visitor.send(Method::POST, &next, form).await;
                next = location(&next, &answer).unwrap_or_else(|| panic!("{next} does not go on: {answer:?}"));
                continue;
            };
            next = location;
        }
        panic!("the sign-in has more than {PAGES} pages: {next}");
    }
}

impl Visitor {
    async fn send(&mut self, method: Method, url: &Url, form: String) -> Response {
        let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        let request = self.http.request(method, url.clone()).header(COOKIE, cookies);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = request.body(form).send().await.expect("an answer");
        for cookie in answer.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().expect("a cookie").split(';').next().unwrap_or_default();
            let (name, value) = cookie.split_once('=').expect("a name and a value");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        answer
    }
}

/// Where the answer of `url` leads, if it does.
fn location(url: &Url, answer: &Response) -> Option<Url> {
    let location = answer.headers().get(LOCATION)?.to_str().ok()?;
    url.join(location).ok()
}
