//! A place where a server runs: its folder, its database, its settings; and a client of it.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tidewaiter_testkit::{Postgres, Process, Program, Scratch, eventually, free_port};
use url::Url;

/// Longer than anything takes, on a machine that does ten things at once.
pub const SOON: Duration = Duration::from_mins(3);
pub const EMAIL: &str = "olivia@example.org";
pub const PASSWORD: &str = "correct horse battery staple";

/// On which database.
#[derive(Clone, Copy, Debug)]
pub enum On {
    Sqlite,
    Postgres,
}

/// The place in which a server runs.
pub struct Place {
    pub scratch: Scratch,
    pub data: PathBuf,
    pub port: u16,
    /// The port for operators.
    admin: u16,
    /// The password for the database, where there is one.
    pub database_password: Option<String>,
    runs: AtomicU32,
}

impl Place {
    /// A place that nobody has used yet.
    pub async fn new(on: On) -> Self {
        let scratch = Scratch::new("cloud");
        let data = scratch.path().join("data");
        Self::at(scratch, data, on).await
    }

    /// Another database, for the same keys.
    pub async fn beside(&self, on: On) -> Self {
        let scratch = Scratch::new("cloud-beside");
        let place = Self::at(scratch, self.data.clone(), on).await;
        if place.database_password.is_none() {
            place.add_setting(
                "database",
                &format!("sqlite://{}/copy.db", place.scratch.path().display()),
            );
        }
        place
    }

    async fn at(scratch: Scratch, data: PathBuf, on: On) -> Self {
        let port = free_port();
        let mut place = Self {
            scratch,
            data,
            port,
            admin: free_port(),
            database_password: None,
            runs: AtomicU32::new(0),
        };
        place.secret_file("settings.yaml", "");
        place.add_setting("data", &place.data.display().to_string());
        place.add_setting("address", &format!("127.0.0.1:{port}"));
        // A server that took over from another one has its tokens' issuer too.
        place.add_setting("publicUrl", "https://cloud.example.org");
        place.add_setting("requestsPerSecond", "100000");
        place.add_setting("requestsAtOnce", "512");
        place.secret_file("password", PASSWORD);
        if let On::Postgres = on {
            let postgres = Postgres::shared().await;
            place.use_database(postgres.url(&postgres.create_database().await).parse().unwrap());
        }
        place
    }

    /// A place whose database is this one of a PostgreSQL.
    pub async fn on(url: Url) -> Self {
        let mut place = Self::new(On::Sqlite).await;
        place.use_database(url);
        place
    }

    fn use_database(&mut self, mut url: Url) {
        self.database_password = url.password().map(str::to_owned);
        url.set_password(None).unwrap();
        self.add_setting("database", url.as_str());
        let password = self.database_password.clone().unwrap();
        let file = self.secret_file("database-password", &password);
        self.add_setting("databasePasswordFile", &file.display().to_string());
    }

    /// A file that only its owner may read.
    pub fn secret_file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub fn add_setting(&self, name: &str, value: &str) {
        let settings = fs::read_to_string(self.settings()).unwrap();
        self.secret_file("settings.yaml", &format!("{settings}{name}: {value}\n"));
    }

    /// Removes the public URL from the settings.
    pub fn without_public_url(&self) {
        let settings = fs::read_to_string(self.settings()).unwrap();
        let lines = settings.lines().filter(|line| !line.starts_with("publicUrl"));
        let settings: Vec<_> = lines.collect();
        self.secret_file("settings.yaml", &(settings.join("\n") + "\n"));
    }

    pub fn settings(&self) -> PathBuf {
        self.scratch.path().join("settings.yaml")
    }

    pub fn program(&self, words: &[&str]) -> Program {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .name(format!("tidewaiter-{number}"))
            .arg("cloud")
            .args(words)
            .arg("--settings")
            .arg(self.settings())
            .env("TIDEWAITER_HEALTH_ADDRESS", "127.0.0.1:0")
            .env("TIDEWAITER_ADMIN_ADDRESS", format!("127.0.0.1:{}", self.admin))
    }

    /// Runs a command to its end: its code, and what it wrote.
    pub async fn run(&self, words: &[&str]) -> (i32, String) {
        self.run_program(self.program(words)).await
    }

    pub async fn run_program(&self, program: Program) -> (i32, String) {
        let process = Process::start(&self.scratch, program);
        let status = process.exited(SOON).await;
        (status.code().unwrap_or(-1), process.log())
    }

    /// Makes the keys, the organization and its owner; what it says.
    pub async fn init(&self) -> String {
        let (code, said) = self.run_program(self.init_program()).await;
        assert_eq!(code, 0, "{said}");
        said
    }

    pub fn init_program(&self) -> Program {
        let password = self.scratch.path().join("password").display().to_string();
        self.program(&[
            "init",
            "--organization",
            "Acme",
            "--email",
            EMAIL,
            "--password-file",
            &password,
        ])
    }

    /// A server that answers.
    pub async fn serve(&self) -> Server {
        let server = self.start();
        server.ready().await;
        server
    }

    pub fn start(&self) -> Server {
        self.start_as(|program| program)
    }

    pub fn start_as(&self, change: impl FnOnce(Program) -> Program) -> Server {
        Server {
            process: Process::start(&self.scratch, change(self.program(&["serve"]))),
            base: format!("http://127.0.0.1:{}", self.port),
            admin: format!("http://127.0.0.1:{}", self.admin),
            http: Client::builder().timeout(SOON).no_proxy().build().unwrap(),
        }
    }

    /// Writes a copy of the database.
    pub async fn backup(&self, name: &str) -> PathBuf {
        let file = self.scratch.path().join(name);
        let (code, said) = self.run(&["backup", &file.display().to_string()]).await;
        assert_eq!(code, 0, "{said}");
        file
    }
}

/// A running server. It ends when this is dropped.
pub struct Server {
    pub process: Process,
    pub base: String,
    /// The port for operators, which has metrics and the report of `/readyz`.
    pub admin: String,
    pub http: Client,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        let json = self.json();
        let text = json[name].as_str();
        text.unwrap_or_else(|| panic!("no {name} in {self:?}")).to_owned()
    }
}

impl Server {
    pub async fn ready(&self) {
        eventually("the server to be ready", SOON, async || {
            if let Some(status) = self.process.ended() {
                panic!("the server ended: {status}\n{}", self.process.log_tail());
            }
            let answer = self.http.get(format!("{}/readyz", self.base)).send().await;
            answer.and_then(reqwest::Response::error_for_status).map(drop)
        })
        .await;
    }

    /// Sends a request; an error is that no whole answer came.
    pub async fn send(&self, token: &str, method: Method, path: &str, more: Ask<'_>) -> reqwest::Result<Answer> {
        let base = if ["/metrics", "/readyz"].contains(&path) {
            &self.admin
        } else {
            &self.base
        };
        let mut request = self.http.request(method, format!("{base}{path}"));
        if !token.is_empty() {
            request = request.header("authorization", format!("JWT {token}"));
        }
        if let Some(key) = more.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = more.body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        Ok(Answer {
            status: answer.status(),
            headers: answer.headers().clone(),
            body: answer.text().await?,
        })
    }

    pub async fn get(&self, token: &str, path: &str) -> Answer {
        self.send(token, Method::GET, path, Ask::default()).await.unwrap()
    }

    pub async fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        self.send(token, Method::POST, path, Ask::body(body)).await.unwrap()
    }

    pub async fn log_in(&self) -> String {
        let body = json!({"email": EMAIL, "password": PASSWORD});
        self.post("", "/v3/login/password", &body).await.is(200).field("token")
    }

    /// The first event of a stream: its id, its name, its data.
    pub async fn first_event(&self, token: &str, path: &str, after: Option<&str>) -> (String, String, Value) {
        let mut request = self.http.get(format!("{}{path}", self.base));
        request = request.header("authorization", format!("JWT {token}"));
        if let Some(id) = after {
            request = request.header("last-event-id", id);
        }
        let mut answer = request.send().await.unwrap().error_for_status().unwrap();
        let mut text = String::new();
        while !text.contains("\n\n") {
            let chunk = answer.chunk().await.unwrap().expect("the stream goes on");
            text.push_str(str::from_utf8(&chunk).unwrap());
        }
        let line = |field: &str| {
            let found = text
                .lines()
                .find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
            found.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
        };
        (line("id"), line("event"), serde_json::from_str(&line("data")).unwrap())
    }
}

/// The parts of a request beside its path.
#[derive(Clone, Copy, Default)]
pub struct Ask<'a> {
    pub body: Option<&'a Value>,
    pub idempotency_key: Option<&'a str>,
}

impl<'a> Ask<'a> {
    pub fn body(body: &'a Value) -> Self {
        Self {
            body: Some(body),
            ..Self::default()
        }
    }
}

/// A cluster with a pool, and where they are.
#[derive(Clone, Debug)]
pub struct Land {
    pub token: String,
    pub organization: String,
    pub cluster: String,
    pub api_key: String,
    pub labels: String,
    pub nodes: String,
}

impl Land {
    /// In the organization of the first owner.
    pub async fn make(server: &Server) -> Self {
        let token = server.log_in().await;
        let organizations = server.get(&token, "/v3/organizations").await.is(200).json();
        let organization = format!("/v3/organizations/{}", organizations[0]["id"].as_str().unwrap());
        Self::of(server, token, organization).await
    }

    /// In an organization whose admin has this token.
    pub async fn of(server: &Server, token: String, organization: String) -> Self {
        let made = server
            .post(&token, &format!("{organization}/clusters"), &json!({"name": "prod"}))
            .await
            .is(201);
        let cluster = format!("{organization}/clusters/{}", made.field("id"));
        let pool = json!({"name": "workers", "count": 3, "kubernetes_mode": "worker", "kubernetes_version": "1.30.1", "etcd": false, "is_schedulable": true});
        let pool = server
            .post(&token, &format!("{cluster}/node-pools"), &pool)
            .await
            .is(201)
            .field("id");
        Self {
            token,
            api_key: made.field("api_key"),
            labels: format!("{cluster}/labels"),
            nodes: format!("{cluster}/node-pools/{pool}/nodes"),
            organization,
            cluster,
        }
    }
}

/// Returns the content of a file, as text.
pub fn content(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}
