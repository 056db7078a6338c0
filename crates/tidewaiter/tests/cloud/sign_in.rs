//! Logging in by the browser and by a code, with the pages of the server; and what is said of a login that has ended.

use std::fs;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use jiff::SignedDuration;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde_json::json;
use tidewaiter_testkit::eventually;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout};
use url::Url;
use url::form_urlencoded::Serializer;

use crate::real::{LONG, Real, real};
use crate::world::{PASSWORD, Person, TOKEN, after};

/// The browser of Alice, who has signed in. It follows no redirect.
struct Browser {
    http: Client,
    url: String,
    cookie: String,
}

impl Browser {
    async fn signed_in(url: &str) -> Self {
        let mut browser = Self {
            http: Client::builder().redirect(Policy::none()).build().unwrap(),
            url: url.to_owned(),
            cookie: "none=".to_owned(),
        };
        let fields = [("email", "alice@example.com"), ("password", PASSWORD)];
        let answer = browser.post("/sign-in", &fields).await;
        assert_eq!(answer.status(), 303);
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().clone_into(&mut browser.cookie);
        browser
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.http.post(format!("{}{path}", self.url)).body(body);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.header("origin", &self.url).header("cookie", &self.cookie);
        request.send().await.unwrap()
    }

    /// Opens the page, and sends its form with the fields of the link and these.
    async fn submit(&self, link: &Url, fields: &[(&str, &str)]) -> Response {
        let page = self
            .http
            .get(link.clone())
            .header("cookie", &self.cookie)
            .send()
            .await
            .unwrap();
        assert_eq!(page.status(), 200);
        let page = page.text().await.unwrap();
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap();
        let csrf = csrf.split('"').next().unwrap();
        let asked: Vec<(String, String)> = link.query_pairs().into_owned().collect();
        let mut all: Vec<(&str, &str)> = asked.iter().map(|(name, value)| (&**name, &**value)).collect();
        all.extend(fields);
        all.push(("csrf", csrf));
        self.post(link.path(), &all).await
    }
}

/// A login that waits for a person.
struct Waiting {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Waiting {
    fn start(person: &Person, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = person.command(&[&["cloud", "login"][..], arguments].concat());
        command.envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The link that it prints.
    async fn link(&mut self) -> Url {
        self.lines.next_line().await.unwrap().unwrap();
        let line = self.lines.next_line().await.unwrap().unwrap();
        line.trim().parse().unwrap()
    }

    /// Its exit code, the rest of its output, and its errors.
    async fn end(mut self) -> (i32, String, String) {
        let mut rest = String::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            rest.push_str(&line);
            rest.push('\n');
        }
        let output = self.child.wait_with_output().await.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), rest, errors)
    }
}

fn value(link: &Url, name: &str) -> String {
    let found = link.query_pairs().find(|(key, _)| key == name);
    found.unwrap().1.into_owned()
}

fn location(answer: &Response) -> Url {
    answer.headers()["location"].to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_person_logs_in_by_the_browser() {
    let Real { person, url, .. } = &real().await;
    let browser = Browser::signed_in(url).await;
    let arguments = ["--server", url, "--context", "browser", "--no-browser"];
    let mut waiting = Waiting::start(person, &arguments, &[]);
    let link = waiting.link().await;
    let listener: Url = value(&link, "redirect_uri").parse().unwrap();
    // One that says nothing, and one that guesses.
    let silent = TcpStream::connect(("127.0.0.1", listener.port().unwrap()))
        .await
        .unwrap();
    let mut guess = listener.clone();
    guess.set_query(Some(&format!("code=mine&state=guessed&iss={url}")));
    let answer = browser.http.get(guess).send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let granted = browser.submit(&link, &[("decision", "approve")]).await;
    assert_eq!(granted.status(), 303);
    let answer = browser.http.get(location(&granted)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.unwrap().contains("Return to the terminal"));
    let (code, out, errors) = waiting.end().await;
    assert_eq!(code, 0, "{out}{errors}");
    assert!(
        out.contains(&format!("logged in to {url}")) && out.contains("as alice@example.com: context browser"),
        "{out}"
    );
    drop(silent);
    let whoami = person
        .run(&["cloud", "whoami", "--context", "browser", "-o", "name"])
        .await;
    assert_eq!(whoami.well(), "alice@example.com\n");
    let listed = person.run(&["cloud", "context", "list", "-o", "json"]).await.well();
    assert!(listed.contains("valid until 20"), "{listed}");
}

#[tokio::test]
async fn a_login_that_is_cancelled_or_answered_by_another_server_fails() {
    let Real { person, url, .. } = &real().await;
    let browser = Browser::signed_in(url).await;
    let arguments = ["--server", url, "--context", "browser"];
    let file = person.path("link");
    // The command that opens a browser gets the link.
    let opens = format!("echo >{}", file.display());
    let mut waiting = Waiting::start(person, &arguments, &[("BROWSER", &opens)]);
    let link = waiting.link().await;
    eventually("the browser to be opened", LONG, async || {
        let opened = fs::read_to_string(&file).unwrap_or_default();
        if opened.trim() == link.as_str() {
            Ok(())
        } else {
            Err(opened)
        }
    })
    .await;
    let cancelled = browser.submit(&link, &[("decision", "deny")]).await;
    browser.http.get(location(&cancelled)).send().await.unwrap();
    let (code, _, errors) = waiting.end().await;
    assert!(code == 1 && errors.contains("access_denied"), "{errors}");
    // A code with the right state that another server has sent.
    let mut waiting = Waiting::start(person, &[&arguments[..], &["--no-browser"]].concat(), &[]);
    let link = waiting.link().await;
    let granted = browser.submit(&link, &[("decision", "approve")]).await;
    let forged = location(&granted)
        .as_str()
        .replace("iss=", "iss=https%3A%2F%2Fevil.example%2F");
    browser.http.get(forged).send().await.unwrap();
    let (code, _, errors) = waiting.end().await;
    assert!(code == 1 && errors.contains("is not that of the server"), "{errors}");
    assert!(!fs::read_to_string(person.contexts()).unwrap().contains("browser"));
}

#[tokio::test]
async fn a_person_logs_in_by_a_code() {
    let Real { person, url, .. } = &real().await;
    let browser = Browser::signed_in(url).await;
    let arguments = ["--server", url, "--context", "device", "--device"];
    let mut waiting = Waiting::start(person, &arguments, &[]);
    let link = waiting.link().await;
    let code = waiting.lines.next_line().await.unwrap().unwrap();
    assert_eq!(code, format!("The code is {}", value(&link, "user_code")));
    let shown = browser.submit(&link, &[]).await;
    assert_eq!(shown.status(), 200);
    assert!(shown.text().await.unwrap().contains("127.0.0.1"));
    let approved = browser.submit(&link, &[("decision", "approve")]).await;
    assert_eq!(approved.status(), 200);
    let (code, out, errors) = waiting.end().await;
    assert!(
        code == 0 && out.contains("as alice@example.com: context device"),
        "{out}{errors}"
    );
    // And one that is denied.
    let mut waiting = Waiting::start(person, &arguments, &[]);
    let link = waiting.link().await;
    browser.submit(&link, &[("decision", "deny")]).await;
    let (code, _, errors) = waiting.end().await;
    assert!(code == 1 && errors.contains("the login was denied"), "{errors}");
}

#[tokio::test]
async fn every_command_says_how_to_log_in_again() {
    let person = Person::logged_in().await;
    person.cloud.refuse("GET /v3/", StatusCode::UNAUTHORIZED);
    for command in [&["credential"][..], &["cloud", "get", "users"], &["cloud", "whoami"]] {
        let ran = person.run(command).await;
        ran.refused(1, &["401"]);
        let first =
            "tidewaiter: the login of test has expired or was revoked: run tidewaiter cloud login --context test";
        assert!(ran.err.starts_with(first) && ran.out.is_empty(), "{}", ran.err);
    }
}

#[tokio::test]
async fn a_user_whose_access_has_ended_is_told_so() {
    let Real { person, url, .. } = &real().await;
    let end = after(SignedDuration::from_secs(15));
    let bob = format!(
        "kind: User\nspec: {{name: Bob, email: bob@example.com, password: {{fromEnv: BOB}}, expires_at: '{end}'}}\n"
    );
    let file = person.file("bob.yaml", &bob);
    let password = "hunter2-hunter2";
    person
        .run_with(&["cloud", "apply", "-f", &file], &[("BOB", password)])
        .await
        .well();
    person.log_in(url, "bob@example.com", "bob", password).await.well();
    let ran = eventually("the end", LONG, async || {
        let ran = person.run(&["cloud", "whoami", "--context", "bob"]).await;
        if ran.code == 0 { Err(ran.out) } else { Ok(ran) }
    })
    .await;
    ran.refused(
        1,
        &[
            "your access to ",
            url,
            " has ended",
            &format!("ended at {end}"),
            "ask an admin",
        ],
    );
    assert!(!ran.err.contains("cloud login"), "{}", ran.err);
}

#[tokio::test]
async fn the_state_of_each_login_is_listed_without_the_server() {
    let person = Person::logged_in().await;
    let text = fs::read_to_string(person.contexts()).unwrap();
    let token = |expires_at: i64| {
        let claims = URL_SAFE_NO_PAD.encode(json!({ "exp": expires_at }).to_string());
        format!("e30.{claims}.c2ln")
    };
    person.cloud.seen();
    for (token, state) in [
        (token(4_102_444_800), "valid until 2100-01-01T00:00:00Z"),
        (token(1_000_000_000), "expired"),
        (TOKEN.to_owned(), "logged in"),
    ] {
        person.file("config/tidewaiter/cloud.yaml", &text.replace(TOKEN, &token));
        let listed = person.run(&["cloud", "context", "list", "-o", "json"]).await.well();
        assert!(listed.contains(state), "{state}: {listed}");
    }
    assert!(person.cloud.seen().is_empty());
    person.run(&["cloud", "logout"]).await.well();
    let listed = person.run(&["cloud", "context", "list", "-o", "json"]).await.well();
    assert!(listed.contains("logged out"), "{listed}");
}

#[tokio::test]
async fn an_operator_is_recovered_on_the_servers_machine() {
    let person = Person::new().await;
    let data = person.path("data").to_str().unwrap().to_owned();
    let new = [("TIDEWAITER_CLOUD_NEW_PASSWORD", "hunter2-recovered")];
    let recover = ["cloud", "recover", "--data", &data, "--email", "rescue@example.com"];
    let missing = person.run_with(&recover, &new).await;
    missing.refused(1, &["cloud.db, which does not exist"]);
    person
        .run(&recover)
        .await
        .refused(2, &["no password", "--password-file"]);
    let init = [
        "cloud",
        "init",
        "--data",
        &data,
        "--organization",
        "acme",
        "--email",
        "alice@example.com",
    ];
    let founded = person
        .run_with(&init, &[("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)])
        .await
        .well();
    // A mistyped address makes no operator.
    let unknown = person.run_with(&recover, &new).await;
    unknown.refused(1, &["there is no user rescue@example.com", "--organization"]);
    let home = founded.split(['(', ')']).nth(1).unwrap();
    let out = person
        .run_with(&[&recover[..], &["--organization", home]].concat(), &new)
        .await
        .well();
    assert!(
        out.starts_with("rescue@example.com (a new user, ") && out.contains("is an operator."),
        "{out}"
    );
    // Once more: the same user.
    let again = person.run_with(&recover, &new).await.well();
    assert!(
        again.starts_with("rescue@example.com (") && !again.contains("a new user"),
        "{again}"
    );
    let Real { person, .. } = &real().await;
    let data = person.path("data").to_str().unwrap().to_owned();
    let recover = ["cloud", "recover", "--data", &data, "--email", "alice@example.com"];
    let used = person.run_with(&recover, &new).await;
    used.refused(1, &["which another process uses"]);
    let whoami = person.run(&["cloud", "whoami", "-o", "name"]).await;
    assert_eq!(whoami.well(), "alice@example.com\n");
}
