//! A cloud that keeps what it is sent, and a person with a home folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use tidewaiter_kit::settings::environment;
use tidewaiter_kit::{Clock as _, SystemClock};
use tidewaiter_testkit::Scratch;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;

pub const ORGANIZATION: &str = "11111111-1111-4111-8111-111111111111";
pub const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
pub const ALICE: &str = "33333333-3333-4333-8333-333333333333";
/// The password and the token: neither may be seen anywhere.
pub const PASSWORD: &str = "hunter2-password";
pub const TOKEN: &str = "eyJ.hunter2.token";
pub const API_KEY: &str = "twk_hunter2";

/// The time after this duration, in whole seconds.
pub fn after(duration: SignedDuration) -> Timestamp {
    let time = SystemClock.now() + duration;
    Timestamp::from_second(time.as_second()).unwrap()
}

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `POST /v3/…`
    pub line: String,
    pub body: Value,
    pub if_match: Option<String>,
}

#[derive(Default)]
struct Kept {
    lists: BTreeMap<String, Vec<Value>>,
    seen: Vec<Seen>,
    made: u32,
    logins: u32,
    /// Requests that begin so are refused.
    refused: Option<(String, StatusCode)>,
    /// The role that Alice is said to have; by default, she is an owner.
    role: Option<&'static str>,
}

/// A cloud in memory: lists, items, entity tags, merge patches. It believes everything.
#[derive(Clone)]
pub struct Cloud {
    kept: Arc<Mutex<Kept>>,
    pub url: String,
}

impl Cloud {
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let cloud = Self {
            kept: Arc::default(),
            url: format!("http://{}", listener.local_addr().unwrap()),
        };
        let alice =
            json!({"id": ALICE, "name": "Alice", "email": "alice@example.com", "avatar_url": null, "ssh_keys": []});
        cloud.put("account", vec![]);
        cloud.put(
            "organizations",
            vec![json!({"id": ORGANIZATION, "name": "acme", "locked": false})],
        );
        cloud.put(&of_organization("users"), vec![alice]);
        cloud.put(
            &of_organization("clusters"),
            vec![json!({"id": CLUSTER, "name": "production", "status": {"type": "RUNNING"}})],
        );
        let router = Router::new().fallback(answer).with_state(cloud.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        cloud
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    /// Makes a list hold these.
    pub fn put(&self, list: &str, objects: Vec<Value>) {
        self.kept().lists.insert(format!("/v3/{list}"), objects);
    }

    pub fn list(&self, list: &str) -> Vec<Value> {
        self.kept()
            .lists
            .get(&format!("/v3/{list}"))
            .cloned()
            .unwrap_or_default()
    }

    /// Refuses what begins so, as `DELETE /v3/…`.
    pub fn refuse(&self, begin: &str, status: StatusCode) {
        self.kept().refused = Some((begin.to_owned(), status));
    }

    /// Says that Alice has this role.
    pub fn has_role(&self, role: &'static str) {
        self.kept().role = Some(role);
    }

    /// Returns the requests since the last call, without logins.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.kept().seen)
    }

    /// Returns the number of login attempts.
    pub fn logins(&self) -> u32 {
        self.kept().logins
    }

    /// Returns the writes since the last call.
    pub fn writes(&self) -> Vec<Seen> {
        self.seen()
            .into_iter()
            .filter(|seen| !seen.line.starts_with("GET "))
            .collect()
    }
}

pub fn of_organization(list: &str) -> String {
    format!("organizations/{ORGANIZATION}/{list}")
}

pub fn of_cluster(list: &str) -> String {
    of_organization(&format!("clusters/{CLUSTER}/{list}"))
}

fn failure(status: StatusCode, message: &str) -> Response {
    let body = json!({"code": status.as_u16(), "message": message});
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}

fn tag(value: &Value) -> String {
    format!(
        "\"{:x}\"",
        value
            .to_string()
            .bytes()
            .fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    )
}

fn good(status: StatusCode, value: &Value) -> Response {
    (
        status,
        [("content-type", "application/json".to_owned()), ("etag", tag(value))],
        value.to_string(),
    )
        .into_response()
}

async fn answer(State(cloud): State<Cloud>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let path = parts.uri.path().to_owned();
    if path == "/v3/login/password" {
        let mut kept = cloud.kept();
        kept.logins += 1;
        if let Some((_, status)) = kept.refused.as_ref().filter(|(begin, _)| begin == "POST /v3/login") {
            return failure(*status, "not now");
        }
        drop(kept);
        let login: Value = serde_json::from_slice(&body).unwrap();
        let right = login == json!({"email": "alice@example.com", "password": PASSWORD});
        return if right {
            good(StatusCode::OK, &json!({"token": TOKEN}))
        } else {
            failure(StatusCode::UNAUTHORIZED, "wrong e-mail address or password")
        };
    }
    if parts
        .headers
        .get("authorization")
        .is_none_or(|value| value != format!("JWT {TOKEN}").as_str())
    {
        return failure(StatusCode::UNAUTHORIZED, "no valid token");
    }
    authorized(&mut cloud.kept(), &parts.method, &path, &parts.headers, &body)
}

fn authorized(kept: &mut Kept, method: &Method, path: &str, headers: &HeaderMap, body: &Bytes) -> Response {
    let line = format!("{method} {path}");
    let if_match = headers.get("if-match").map(|value| value.to_str().unwrap().to_owned());
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    kept.seen.push(Seen {
        line: line.clone(),
        body: body.clone(),
        if_match: if_match.clone(),
    });
    if let Some((_, status)) = kept
        .refused
        .as_ref()
        .filter(|(begin, _)| line.starts_with(begin.as_str()))
    {
        return failure(*status, "not now");
    }
    if path == "/v3/account" {
        return good(
            StatusCode::OK,
            &json!({"id": ALICE, "name": "Alice", "email": "alice@example.com"}),
        );
    }
    if path == "/v3/authenticate" {
        let role = kept.role.unwrap_or("owner");
        return good(
            StatusCode::OK,
            &json!({"exp": 1_800_000_000, "organizations": [{"id": ORGANIZATION, "role": role}]}),
        );
    }
    if path.ends_with("/token") {
        return good(
            StatusCode::OK,
            &json!({"token": TOKEN, "expires_at": "2027-01-15T08:00:00Z"}),
        );
    }
    let (list, id) = path.rsplit_once('/').unwrap();
    let items = kept
        .lists
        .get(list)
        .map(|items| items.iter().position(|item| item["id"] == id));
    if let Some(Some(index)) = items {
        let found = kept.lists.get_mut(list).unwrap();
        if if_match.is_some_and(|expected| expected != tag(&found[index])) {
            return failure(StatusCode::PRECONDITION_FAILED, "it has changed");
        }
        return match *method {
            Method::GET | Method::PUT => good(StatusCode::OK, &found[index]),
            Method::PATCH => {
                merge(&mut found[index], &body);
                good(StatusCode::OK, &found[index])
            }
            _ => {
                found.remove(index);
                StatusCode::NO_CONTENT.into_response()
            }
        };
    }
    match *method {
        Method::GET if path.contains("/versions/") => failure(StatusCode::NOT_FOUND, "there is none"),
        Method::PUT => {
            let mut made = body;
            made["id"] = id.into();
            kept.lists.entry(list.to_owned()).or_default().push(made.clone());
            good(StatusCode::CREATED, &made)
        }
        Method::GET => good(
            StatusCode::OK,
            &kept.lists.get(path).cloned().unwrap_or_default().into(),
        ),
        Method::POST => {
            kept.made += 1;
            let mut made = body;
            made["id"] = format!("aaaaaaaa-0000-4000-8000-{:012}", kept.made).into();
            made["created_at"] = "2026-01-01T00:00:00Z".into();
            kept.lists.entry(path.to_owned()).or_default().push(made.clone());
            if path.ends_with("/clusters") || path.ends_with("/api-keys") {
                made["api_key"] = API_KEY.into();
            }
            good(StatusCode::CREATED, &made)
        }
        _ => failure(StatusCode::NOT_FOUND, "there is none"),
    }
}

fn merge(target: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().unwrap() {
        match value {
            Value::Null => target[key] = Value::Null,
            Value::Object(_) => {
                if !target[key].is_object() {
                    target[key] = Map::new().into();
                }
                merge(&mut target[key], value);
            }
            other => target[key] = other.clone(),
        }
    }
}

/// Somebody with a home folder and a cloud.
pub struct Person {
    pub home: Scratch,
    pub cloud: Cloud,
}

/// The result of a command.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn well(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    /// That it failed with `code` and says these words, in one line.
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        assert!(
            self.err.starts_with("tidewaiter: ") && self.err.lines().count() == 1,
            "{}",
            self.err
        );
        for word in words {
            assert!(self.err.contains(word), "{word} in {}", self.err);
        }
    }
}

impl Person {
    /// Not logged in.
    pub async fn new() -> Self {
        Self {
            home: Scratch::new("cloud"),
            cloud: Cloud::start().await,
        }
    }

    /// Logged in, on the cluster.
    pub async fn logged_in() -> Self {
        let person = Self::new().await;
        person.file("password", PASSWORD);
        let path = person.path("password");
        let (url, path) = (person.cloud.url.clone(), path.to_str().unwrap().to_owned());
        person
            .run(&[
                "cloud",
                "login",
                "--server",
                &url,
                "alice@example.com",
                "--password-file",
                &path,
                "--context",
                "test",
            ])
            .await
            .well();
        person
            .run(&["cloud", "context", "set", "--cluster", "production"])
            .await
            .well();
        person.cloud.seen();
        person
    }

    /// Logs in a user at this server, with a context of their own.
    pub async fn log_in(&self, server: &str, email: &str, context: &str, password: &str) -> Ran {
        let login = ["cloud", "login", "--server", server, "--context", context, email];
        let password = ("TIDEWAITER_CLOUD_PASSWORD", password);
        self.run_with(&login, &[password]).await
    }

    /// Creates an organization of the caller. Returns its id.
    pub async fn create_organization(&self, name: &str, more: &[&str]) -> String {
        let file = self.file("organization.yaml", &format!("name: {name}\n"));
        let create = ["cloud", "create", "organization", "-f", &file, "-o", "json"];
        let created: Value = serde_json::from_str(&self.run(&[&create[..], more].concat()).await.well()).unwrap();
        created["id"].as_str().unwrap().to_owned()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "nobody reads it yet")]
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn contexts(&self) -> PathBuf {
        self.path("config/tidewaiter/cloud.yaml")
    }

    pub async fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, &[]).await
    }

    /// Runs it with more variables. No secret may be told by it, whatever it is asked for.
    pub async fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let ran = self.run_open(arguments, variables).await;
        for text in [&ran.out, &ran.err] {
            assert!(!text.contains("hunter2"), "{arguments:?}: {text}");
        }
        ran
    }

    /// The same for what is meant to tell a secret.
    pub async fn run_open(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        Ran::of(command.output().await.unwrap())
    }

    /// Runs it with this standard input.
    pub async fn run_fed(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        Ran::of(child.wait_with_output().await.unwrap())
    }

    /// The command, with nobody before a terminal.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        command
            .args(arguments)
            .env_clear()
            .envs(environment().into_iter().filter(|(name, _)| name == "PATH"));
        command
            .env("HOME", self.home.path())
            .env("XDG_CONFIG_HOME", self.path("config"));
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}
