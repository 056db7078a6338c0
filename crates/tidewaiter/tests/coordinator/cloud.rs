//! The real cloud, in this process, with an organization, a cluster and its key; and in front of it a server that makes
//! faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidewaiter_cloud::models::values::{ClusterId, UserId};
use tidewaiter_cloud::server::keys::hash::Password;
use tidewaiter_cloud::server::keys::signing::KeyRing;
use tidewaiter_cloud::server::keys::token::{Claims, TokenUse, Tokens};
use tidewaiter_cloud::server::{
    AcmeSettings, CertificateSource, InitOptions, LimitSettings, ServerParts, SignInSettings, TokenLifetimes,
    TrustedProxies, create_organization, make_keys, start, store,
};
use tidewaiter_kit::{Clock as _, Kit, SystemClock, Tasks};
use tidewaiter_testkit::{Scratch, eventually, leaks};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use url::Url;

use crate::SOON;

pub const PASSWORD: &str = "correct horse battery";
const ISSUER: &str = "https://cloud.example.org";

/// The fate of a request.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It gets no answer.
    Hangs,
    /// It gets this status, and is asked to come again in a second.
    Status(u16),
    /// It gets this list.
    Lists(&'static str),
}

#[derive(Default)]
struct Front {
    base: Mutex<String>,
    http: reqwest::Client,
    /// Requests whose method and path contain the text, and what happens to them.
    faults: Mutex<Vec<(String, Fault)>>,
    seen: Mutex<Vec<String>>,
}

/// The cloud. It ends with the test's runtime.
pub struct Cloud {
    pub url: String,
    pub organization: String,
    pub cluster: String,
    pub key: String,
    /// A token of the owner, who is an operator, too.
    pub owner: String,
    pub owner_id: String,
    front: Arc<Front>,
    tokens: Tokens,
    scratch: Scratch,
    /// The server that runs.
    serving: Mutex<AbortHandle>,
}

/// Runs `task` beside the test.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
pub fn beside(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}

fn database(folder: &Path, name: &str) -> Url {
    format!("sqlite://{}", folder.join(name).display()).parse().unwrap()
}

/// The source of a certificate that is served although clients refuse it, until another one is ordered, which fails.
fn unchecked(folder: &Path) -> CertificateSource {
    CertificateSource::Acme(AcmeSettings {
        directory: "https://127.0.0.1:9/".parse().unwrap(),
        email: None,
        ca: None,
        address: ([127, 0, 0, 1], 0).into(),
        folder: folder.join("acme"),
    })
}

/// Serves a database, with the keys in the folder.
async fn serve(folder: &Path, database: Url, tls: Option<(PathBuf, PathBuf)>) -> (SocketAddr, AbortHandle) {
    let clock = SystemClock::shared();
    // A process that another test starts holds the lock of a database that was just closed, until it runs its program.
    let (address, tasks) = eventually("the database to be served", SOON, async || {
        let parts = ServerParts {
            database: database.clone(),
            address: ([127, 0, 0, 1], 0).into(),
            tls: tls.clone(),
            certificate: match &tls {
                Some(_) => unchecked(folder),
                None => CertificateSource::Files,
            },
            proxy_protocol: false,
            issuer: ISSUER.parse().unwrap(),
            keys: folder.join("keys"),
            sealing: folder.join("sealing"),
            script_keys: Vec::new(),
            limits: LimitSettings {
                requests_a_second: 100_000.try_into().unwrap(),
                requests_at_once: 512,
                streams: 64,
                proxies: TrustedProxies::default(),
            },
            connections: 1_000,
            quotas: BTreeMap::new(),
            audit: store::Retention::default(),
            storage: store::StorageLimits::default(),
            lives: TokenLifetimes::default(),
            sign_in: SignInSettings::default(),
        };
        let mut tasks = Tasks::new(clock.clone());
        let kit = Kit::new(clock.clone()).unwrap();
        let started = start(parts, &mut tasks, &kit).await;
        started
            .map(|address| (address, tasks))
            .map_err(|error| error.to_string())
    })
    .await;
    (
        address,
        beside(async move { drop(tasks.run_until(std::future::pending()).await) }),
    )
}

fn founder() -> InitOptions<'static> {
    InitOptions {
        organization: "Acme",
        name: "Olivia Owner",
        email: "olivia@example.org",
        password: Password::new(PASSWORD).unwrap(),
    }
}

impl Cloud {
    pub async fn start() -> Self {
        let scratch = Scratch::new("coordinator-cloud");
        let folder = scratch.path().to_owned();
        let database = database(&folder, "cloud.db");
        let clock = SystemClock::shared();
        make_keys(&folder.join("keys"), &folder.join("sealing"), &clock).unwrap();
        leaks::secret(PASSWORD);
        let begun = create_organization(&database, clock, founder()).await.unwrap();
        let (address, serving) = serve(&folder, database, None).await;
        let front = Arc::new(Front {
            base: Mutex::new(format!("http://{address}")),
            ..Front::default()
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&front));
        beside(async move { axum::serve(listener, router).await.unwrap() });
        let mut cloud = Self {
            url,
            organization: begun.organization.to_string(),
            owner_id: begun.owner.to_string(),
            tokens: Tokens::new(ISSUER, KeyRing::load(&folder.join("keys")).unwrap()),
            cluster: String::new(),
            key: String::new(),
            owner: String::new(),
            front,
            scratch,
            serving: Mutex::new(serving),
        };
        cloud.owner = cloud.log_in("olivia@example.org").await;
        let made = cloud.post("~/clusters", json!({"name": "prod"})).await;
        cloud.cluster = text(&made, "id");
        cloud.key = key(&made);
        cloud
    }

    /// A backup of the database.
    pub async fn backup(&self) -> Vec<u8> {
        let mut copy = Vec::new();
        let database = database(self.scratch.path(), "cloud.db");
        store::backup(&database, &mut copy, &mut |_| ()).await.unwrap();
        copy
    }

    /// The server ends, and another one goes on at its address: with what is in the backup, else with a new database.
    pub async fn starts_anew(&self, backup: Option<&[u8]>) {
        let database = database(
            self.scratch.path(),
            if backup.is_some() { "restored.db" } else { "new.db" },
        );
        match backup {
            Some(mut copy) => drop(store::restore(&database, &mut copy, &mut |_| ()).await.unwrap()),
            None => drop(
                create_organization(&database, SystemClock::shared(), founder())
                    .await
                    .unwrap(),
            ),
        }
        let (address, serving) = serve(self.scratch.path(), database, None).await;
        *self.front.base.lock().unwrap() = format!("http://{address}");
        std::mem::replace(&mut *self.serving.lock().unwrap(), serving).abort();
    }

    /// The address at which a copy of the cloud is served with this certificate and key.
    pub async fn over_tls(&self, certificate: PathBuf, key: PathBuf) -> SocketAddr {
        let copy = self.backup().await;
        let database = database(self.scratch.path(), "tls.db");
        store::restore(&database, &mut &*copy, &mut |_| ()).await.unwrap();
        serve(self.scratch.path(), database, Some((certificate, key))).await.0
    }

    /// The variables of a coordinator of the cluster.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("CONTAINERSHIP_CLOUD_API_BASE_URL", self.url.clone()),
            ("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", self.organization.clone()),
            ("CONTAINERSHIP_CLOUD_CLUSTER_ID", self.cluster.clone()),
            ("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", self.key.clone()),
        ]
    }

    /// Sends a request past the faults. In `path`, `~` is the organization and `^` the cluster.
    pub async fn send(&self, token: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let cluster = format!("~/clusters/{}", self.cluster);
        let path = path.replace('^', &cluster);
        let path = path.replace('~', &format!("/v3/organizations/{}", self.organization));
        let url = format!("{}{path}", self.front.base.lock().unwrap());
        let mut request = self.front.http.request(method.clone(), url);
        if !token.is_empty() {
            request = request.header("authorization", format!("JWT {token}"));
        }
        if method != Method::GET {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// The owner creates an object.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        let (status, made) = self.send(&self.owner, Method::POST, path, body).await;
        assert!(status == 200 || status == 201, "{path}: {status} {made}");
        made
    }

    pub async fn log_in(&self, email: &str) -> String {
        let body = json!({"email": email, "password": PASSWORD});
        let (status, answer) = self.send("", Method::POST, "/v3/login/password", body).await;
        assert_eq!(status, 200, "{answer}");
        token(&text(&answer, "token"))
    }

    /// A token of a new user with a role in an organization.
    pub async fn user(&self, organization: &str, name: &str, role: &str) -> String {
        let email = format!("{name}@example.org");
        let body = json!({"name": name, "email": email, "role": role, "password": PASSWORD});
        self.post(&format!("/v3/organizations/{organization}/users"), body)
            .await;
        self.log_in(&email).await
    }

    /// The owner of the token becomes a member of our organization, too.
    pub async fn join(&self, token: &str, role: &str) {
        let (_, known) = self.send(token, Method::GET, "/v3/authenticate", Value::Null).await;
        let path = format!("~/users/{}/role", text(&known, "user_id"));
        let (status, answer) = self
            .send(&self.owner, Method::PUT, &path, json!({ "role": role }))
            .await;
        assert_eq!(status, 200, "{answer}");
    }

    /// The id of a new organization.
    pub async fn other_organization(&self) -> String {
        text(&self.post("/v3/organizations", json!({"name": "Other"})).await, "id")
    }

    /// A token that has the role `terminate` in this cluster.
    pub async fn terminator(&self) -> String {
        self.kubernetes_token(&self.owner, &self.cluster).await
    }

    /// A token for the kube-apiserver of a cluster, as the cloud gives it to this caller.
    pub async fn kubernetes_token(&self, caller: &str, cluster: &str) -> String {
        let path = format!("~/clusters/{cluster}/token");
        let (status, answer) = self.send(caller, Method::POST, &path, json!({})).await;
        assert_eq!(status, 200, "{answer}");
        token(&text(&answer, "token"))
    }

    /// The same for the owner, expired.
    pub fn expired_token(&self) -> String {
        let now = SystemClock.now() - SignedDuration::from_hours(1);
        let token_use = TokenUse::Kubernetes {
            user: self.owner_id.parse::<UserId>().unwrap(),
            cluster: self.cluster.parse::<ClusterId>().unwrap(),
            teams: Vec::new(),
        };
        self.signed(token_use, now)
    }

    fn signed(&self, token_use: TokenUse, now: Timestamp) -> String {
        let claims = Claims::new(token_use, now, SignedDuration::from_mins(10));
        token(&self.tokens.sign(&claims).unwrap())
    }

    pub async fn pool(&self) -> String {
        let pool = json!({"name": "workers", "count": 3, "os": "linux", "kubernetes_mode": "worker", "kubernetes_version": "v1.30.1",
            "docker_version": "20.10.7", "etcd": false, "etcd_version": null, "is_schedulable": true});
        text(&self.post("^/node-pools", pool).await, "id")
    }

    /// The id of a new node.
    pub async fn node(&self, pool: &str, name: Option<&str>) -> String {
        let node = self
            .post(&format!("^/node-pools/{pool}/nodes"), json!({ "name": name }))
            .await;
        text(&node, "id")
    }

    /// Returns the cloud's status of a node: `TYPE message`.
    pub async fn status(&self, node: &str) -> String {
        self.shown(&format!("^/nodes/{node}")).await
    }

    pub async fn shown(&self, path: &str) -> String {
        let (status, answer) = self.send(&self.owner, Method::GET, path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {answer}");
        let status = &answer["status"];
        format!("{} {}", text(status, "type"), text(status, "message"))
            .trim()
            .to_owned()
    }

    /// From now on this happens to requests whose `METHOD /path` contains the text.
    pub fn fault(&self, containing: &str, fault: Fault) {
        self.front.faults.lock().unwrap().push((containing.to_owned(), fault));
    }

    pub fn heal(&self) {
        self.front.faults.lock().unwrap().clear();
    }

    /// The requests of the coordinator so far, as `METHOD /path`, that contain the text.
    pub fn seen(&self, containing: &str) -> Vec<String> {
        let seen = self.front.seen.lock().unwrap();
        seen.iter().filter(|line| line.contains(containing)).cloned().collect()
    }
}

/// A token that nothing may show, nor its signature alone.
fn token(text: &str) -> String {
    leaks::secret(text.rsplit('.').next().unwrap());
    leaks::secret(text)
}

/// The API key of a cluster that was made, the same.
pub fn key(made: &Value) -> String {
    let key = text(made, "api_key");
    // The part after the id may contain the separator.
    leaks::secret(key.splitn(3, '_').last().unwrap());
    leaks::secret(key)
}

fn text(value: &Value, field: &str) -> String {
    value[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {value}"))
        .to_owned()
}

async fn answer(State(front): State<Arc<Front>>, request: Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri());
    front.seen.lock().unwrap().push(line.clone());
    let fault = {
        let faults = front.faults.lock().unwrap();
        faults
            .iter()
            .find(|(text, _)| line.contains(text.as_str()))
            .map(|(_, fault)| *fault)
    };
    match fault {
        None => forwarded(&front, request).await,
        Some(Fault::Hangs) => std::future::pending().await,
        Some(Fault::Lists(list)) => {
            let response = Response::builder().header("content-type", "application/json");
            response.body(list.into()).unwrap()
        }
        Some(Fault::Status(status)) => {
            let body = json!({"code": status, "message": "not now"}).to_string();
            let response = Response::builder().status(status).header("retry-after", "1");
            response
                .header("content-type", "application/json")
                .body(body.into())
                .unwrap()
        }
    }
}

async fn forwarded(front: &Front, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let url = format!("{}{}", front.base.lock().unwrap(), parts.uri);
    let mut headers = parts.headers;
    headers.remove("host");
    let sent = front.http.request(parts.method, url).headers(headers).body(body);
    let Ok(answer) = sent.send().await else {
        return Response::builder()
            .status(StatusCode::BAD_GATEWAY)
            .body(Body::empty())
            .unwrap();
    };
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if name != "transfer-encoding" && name != "content-length" {
            response = response.header(name, value);
        }
    }
    // The change stream never ends.
    response.body(Body::from_stream(answer.bytes_stream())).unwrap()
}
