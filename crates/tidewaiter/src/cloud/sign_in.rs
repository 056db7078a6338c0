//! Logging in without a password: a person who is signed in to the console grants the login.
//!
//! On the same machine, the browser returns to a listener of this process (RFC 8252, with PKCE, RFC 7636). The listener
//! accepts only the answer with the state of this process, from the server that was asked (RFC 9207). Other connections
//! end within seconds and hold nothing up. On another machine, the person types a code (RFC 8628).

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use rustix::system::uname;
use serde_json::{Value, json};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{Client, ClientError, Method, Path, Request};
use tidewaiter_cloud::server::keys::codes::{random_code, s256};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::settings::environment;
use tidewaiter_kit::{Clock, SystemClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use url::Url;

use super::contexts::Login;
use super::login::{token, token_in};
use super::output::print;
use super::session::{client, settings, text, with_remedy};

/// The time for a person to sign in.
const SIGN_IN_TIMEOUT: Duration = Duration::from_mins(5);
/// The time for a connection to send its request and take the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 16;
/// The maximum size of the head of a request, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// The maximum length of the name of this machine, in characters.
const MAX_NAME: usize = 64;
/// The addition to the interval after each `slow_down` (RFC 8628, 3.5).
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// The maximum life of a code that a person types, in seconds.
const MAX_LIFE: u64 = 60 * 60;

/// Gets a token by the browser of this machine, which it opens if `opens`.
pub(super) async fn with_browser(login: &Login, opens: bool) -> Result<String> {
    let clock = SystemClock::shared();
    let client = client(&settings(login)?, login)?;
    let issuer = issuer(&client, login).await;
    let expected = Expected {
        issuer: issuer.with_context(|| format!("cannot log in to {}", login.server))?,
        state: random_code()?,
    };
    let failed = "the listener for the browser";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context(failed)?;
    let redirect_uri = format!("http://{}/", listener.local_addr().context(failed)?);
    let verifier = random_code()?;
    let mut link: Url = login.server.parse().context("the server of the context")?;
    link.set_path("/sign-in/cli");
    link.query_pairs_mut()
        .append_pair("redirect_uri", &redirect_uri)
        .append_pair("state", &expected.state)
        .append_pair("code_challenge", &s256(&verifier))
        .append_pair("name", &machine());
    print(&format!(
        "Sign in on this page (if no browser is on this machine, use --device):\n  {link}\n"
    ))?;
    if opens {
        open(link.as_str());
    }
    let code = timeout(&*clock, SIGN_IN_TIMEOUT, received(&*clock, &listener, &expected)).await;
    let code = code.map_err(|_| {
        let minutes = SIGN_IN_TIMEOUT.as_secs() / 60;
        anyhow!("nobody signed in within {minutes} minutes: run the command again")
    })??;
    let body = json!({ "code": code, "code_verifier": verifier, "redirect_uri": redirect_uri });
    token(&client, login, "browser", body).await
}

/// The issuer of the server's tokens, which its answers name.
async fn issuer(client: &Client, login: &Login) -> Result<String> {
    let request = Request::new(Method::GET, Path::well_known("openid-configuration"));
    let answer = client
        .request(&request)
        .await
        .map_err(|error| with_remedy(error, login))?;
    let found = answer
        .json()
        .map_err(|reason| anyhow!("the response to {request} {reason}"))?;
    Ok(text(&found, "issuer").to_owned())
}

/// The name of this machine, for the person who decides.
fn machine() -> String {
    let name = printable(&uname().nodename().to_string_lossy());
    let name: String = name.chars().take(MAX_NAME).collect();
    if name.is_empty() {
        return "a machine without a name".to_owned();
    }
    name
}

/// Opens the link in the browser, if there is a display. It was printed before, in case that this fails.
fn open(link: &str) {
    let environment = environment();
    let set = |name: &str| {
        let found = environment.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    };
    let browser = match set("BROWSER") {
        // A list, with the preferred one first.
        Some(list) => list.split(':').next(),
        None if cfg!(target_os = "macos") => Some("open"),
        None => set("DISPLAY").or_else(|| set("WAYLAND_DISPLAY")).map(|_| "xdg-open"),
    };
    let Some(browser) = browser else { return };
    // As with an editor, the variable may contain arguments.
    let _ = Command::new("sh")
        .arg("-c")
        .arg(format!("{browser} \"$1\""))
        .arg("sh")
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
}

/// The answer that the listener accepts.
struct Expected {
    issuer: String,
    state: String,
}

impl Expected {
    /// The code, or the reason why there is none; `None` if the request is not the answer.
    fn answer(&self, head: &[u8]) -> Option<Result<String>> {
        let line = str::from_utf8(head).ok()?.lines().next()?;
        let target = line.strip_prefix("GET ")?.split(' ').next()?;
        let (_, query) = target.split_once('?')?;
        let value = |name: &str| {
            let mut pairs = url::form_urlencoded::parse(query.as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        if value("state")? != self.state {
            return None;
        }
        if value("iss").as_ref() != Some(&self.issuer) {
            return Some(Err(anyhow!("the answer in the browser is not that of the server")));
        }
        match (value("code"), value("error")) {
            (Some(code), None) => Some(Ok(code)),
            (_, error) => {
                let error = printable(&error.unwrap_or_default());
                Some(Err(anyhow!("the login was not permitted in the browser: {error}")))
            }
        }
    }
}

/// Waits for the browser. Connections are answered concurrently, so that one that sends nothing delays no other.
async fn received(clock: &dyn Clock, listener: &TcpListener, expected: &Expected) -> Result<String> {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let (stream, _) = accepted.context("the listener for the browser")?;
                connections.push(timeout(clock, CONNECTION_TIMEOUT, answer(stream, expected)));
            }
            Some(answered) = connections.next() => {
                if let Ok(Some(outcome)) = answered {
                    return outcome;
                }
            }
        }
    }
}

/// Reads one request, and responds.
async fn answer(mut stream: TcpStream, expected: &Expected) -> Option<Result<String>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let outcome = expected.answer(&head);
    let (status, message) = match &outcome {
        Some(Ok(_)) => ("200 OK", "Return to the terminal. You can close this page."),
        Some(Err(_)) => (
            "400 Bad Request",
            "You are not logged in. The terminal shows the reason. You can close this page.",
        ),
        None => ("404 Not Found", "There is nothing here."),
    };
    let page = format!("<!doctype html><html lang=\"en\"><title>Tidewaiter</title><p>{message}</p></html>\n");
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
         referrer-policy: no-referrer\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    // The answer counts even if the browser does not wait for the page.
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
    outcome
}

/// Gets a token by a code that a person types in any browser.
pub(super) async fn with_device(login: &Login) -> Result<String> {
    let clock = SystemClock::shared();
    let client = client(&settings(login)?, login)?;
    let path = Path::new(["login", "device", "authorization"]);
    let mut request = Request::new(Method::POST, path).json(json!({ "name": machine() }));
    // Each one is another code.
    request.once = true;
    let begun = client
        .request(&request)
        .await
        .map_err(|error| with_remedy(error, login));
    let begun = begun.with_context(|| format!("cannot log in to {}", login.server))?;
    let begun = begun
        .json()
        .map_err(|reason| anyhow!("the response to {request} {reason}"))?;
    print(&format!(
        "Open this page in a browser, on any machine, and sign in:\n  {}\nThe code is {}\n",
        printable(text(&begun, "verification_uri_complete")),
        printable(text(&begun, "user_code")),
    ))?;
    let seconds = |field: &str, least: u64| {
        let sent = begun.get(field).and_then(Value::as_u64).unwrap_or_default();
        Duration::from_secs(sent.clamp(least, MAX_LIFE))
    };
    let body = json!({ "device_code": text(&begun, "device_code") });
    let mut poll = Request::new(Method::POST, Path::new(["login", "device"])).json(body);
    poll.once = true;
    let approved = approved(&*clock, (&client, login), &poll, seconds("interval", 1));
    let approved = timeout(&*clock, seconds("expires_in", 1), approved).await;
    approved.map_err(|_| anyhow!("nobody approved the login in time: run the command again"))?
}

/// Asks for the token until the person has decided.
async fn approved(
    clock: &dyn Clock,
    (client, login): (&Client, &Login),
    poll: &Request,
    mut interval: Duration,
) -> Result<String> {
    loop {
        clock.sleep(interval).await;
        let failure = match client.request(poll).await {
            Ok(answer) => return token_in(&answer),
            Err(ClientError::Rejected { failure, .. }) => failure,
            // The network, or the server, may be away for a while.
            Err(ClientError::Unavailable { .. }) => {
                interval += SLOW_DOWN;
                continue;
            }
            Err(error) => return Err(with_remedy(error, login)),
        };
        let message = &failure.message;
        match message.split_once(": ") {
            Some(("authorization_pending", _)) => {}
            Some(("slow_down", _)) => interval += SLOW_DOWN,
            Some((_, reason)) => bail!("{reason}"),
            None => bail!("{message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_of_the_server_that_was_asked_is_accepted() {
        let expected = Expected {
            issuer: "https://cloud.example.com".to_owned(),
            state: "mine".to_owned(),
        };
        let answer = |target: &str| {
            let answer = expected.answer(format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes());
            answer.map(|answer| answer.map_err(|error| error.to_string()))
        };
        let issuer = "iss=https%3A%2F%2Fcloud.example.com";
        assert_eq!(
            answer(&format!("/?code=c&state=mine&{issuer}")),
            Some(Ok("c".to_owned()))
        );
        for other in [
            "/",
            "/favicon.ico",
            "/?code=c",
            &format!("/?code=c&{issuer}"),
            &format!("/?code=c&state=other&{issuer}"),
            &format!("/?error=access_denied&state=other&{issuer}"),
        ] {
            assert_eq!(answer(other), None, "{other}");
        }
        for (refused, reason) in [
            ("/?code=c&state=mine", "not that of the server"),
            (
                "/?code=c&state=mine&iss=https%3A%2F%2Fevil.example",
                "not that of the server",
            ),
            (&*format!("/?error=access_denied&state=mine&{issuer}"), "access_denied"),
            (
                &*format!("/?code=c&error=access_denied&state=mine&{issuer}"),
                "access_denied",
            ),
            (&*format!("/?state=mine&{issuer}"), "not permitted"),
        ] {
            let error = answer(refused).unwrap().unwrap_err();
            assert!(error.contains(reason), "{refused}: {error}");
        }
        assert!(expected.answer(b"POST /?state=mine HTTP/1.1\r\n\r\n").is_none());
        assert!(expected.answer(b"\xff\r\n\r\n").is_none());
    }
}
