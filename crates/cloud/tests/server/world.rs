//! A server of a test's own, in this process, on a database of its own.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tidewaiter_cloud::server::keys::hash::Password;
use tidewaiter_cloud::server::store::{Retention, StorageLimits};
use tidewaiter_cloud::server::{
    CertificateSource, InitOptions, LimitSettings, ServeError, ServerParts, SignInSettings, TokenLifetimes,
    TrustedProxies, create_organization, make_keys, start,
};
use tidewaiter_kit::serve::{Options, bind, serve_with};
use tidewaiter_kit::{Kit, SystemClock, Tasks, admin};
use tidewaiter_testkit::Postgres;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

pub const PASSWORD: &str = "correct horse battery";

/// Runs `task` beside the test, until the test's runtime ends.
#[expect(clippy::disallowed_methods, reason = "a test supervises it")]
pub fn beside(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(task)
}

/// A running server; it stops when this is dropped.
pub struct World {
    pub base: String,
    /// The port for operators, which has metrics and the report of `/readyz`.
    admin: String,
    pub organization: String,
    pub owner: String,
    pub http: Client,
    pub database: Url,
    pub folder: Arc<tempfile::TempDir>,
    stop: CancellationToken,
    stopped: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> String {
        self.headers
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default()
    }

    pub fn field(&self, name: &str) -> String {
        self.json()[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
            .to_owned()
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }
}

impl World {
    pub async fn sqlite() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let url = sqlite_url(&folder.path().join("cloud.db"));
        Self::begun(url, folder).await
    }

    pub async fn postgres() -> Self {
        let server = Postgres::shared().await;
        let database = server.create_database().await;
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::begun(server.url(&database).parse().unwrap(), folder).await
    }

    /// On an empty database, with its first organization.
    pub async fn begun(database: Url, folder: Arc<tempfile::TempDir>) -> Self {
        let clock = SystemClock::shared();
        make_keys(&folder.path().join("keys"), &folder.path().join("sealing"), &clock).unwrap();
        let founder = InitOptions {
            organization: "Acme",
            name: "Olivia Owner",
            email: "olivia@example.org",
            password: Password::new(PASSWORD).unwrap(),
        };
        let begun = create_organization(&database, clock, founder).await.unwrap();
        let ids = (begun.organization.to_string(), begun.owner.to_string());
        Self::served(database, folder, ids, |_| {}).await.unwrap()
    }

    /// On a database that has everything already. `change` may set limits.
    pub async fn served(
        database: Url,
        folder: Arc<tempfile::TempDir>,
        (organization, owner): (String, String),
        change: impl FnOnce(&mut ServerParts),
    ) -> Result<Self, ServeError> {
        let clock = SystemClock::shared();
        let kit = Kit::new(clock).unwrap();
        let mut parts = ServerParts {
            database: database.clone(),
            address: ([127, 0, 0, 1], 0).into(),
            tls: None,
            certificate: CertificateSource::default(),
            proxy_protocol: false,
            issuer: "https://cloud.example.org".parse().unwrap(),
            keys: folder.path().join("keys"),
            sealing: folder.path().join("sealing"),
            script_keys: Vec::new(),
            limits: LimitSettings {
                requests_a_second: NonZeroU32::new(100_000).unwrap(),
                requests_at_once: 512,
                streams: 1_000,
                proxies: TrustedProxies::default(),
            },
            connections: 20_000,
            quotas: BTreeMap::new(),
            audit: Retention::default(),
            storage: StorageLimits::default(),
            lives: TokenLifetimes::default(),
            sign_in: SignInSettings::default(),
        };
        change(&mut parts);
        let mut tasks = Tasks::new(SystemClock::shared());
        let address = start(parts, &mut tasks, &kit).await?;
        let stop = tasks.shutdown_token();
        let operators = bind("adminAddress", ([127, 0, 0, 1], 0).into()).await?;
        let admin = format!("http://{}", operators.local_addr().unwrap());
        let (clock, router) = (kit.clock.clone(), admin::router(kit));
        tasks.spawn(
            "admin",
            serve_with(operators, router, Options::default(), clock, stop.clone()),
        );
        let stopped = beside(async move {
            let _ = tasks.run_until(std::future::pending()).await;
        });
        Ok(Self {
            base: format!("http://{address}"),
            admin,
            organization,
            owner,
            http: Client::builder().timeout(Duration::from_mins(1)).build().unwrap(),
            database,
            folder,
            stop,
            stopped,
        })
    }

    pub fn ids(&self) -> (String, String) {
        (self.organization.clone(), self.owner.clone())
    }

    /// Restarts the server; `change` may set limits.
    pub async fn restarted(mut self, change: impl FnOnce(&mut ServerParts)) -> Self {
        self.stop().await;
        let (database, folder) = (self.database.clone(), Arc::clone(&self.folder));
        Self::served(database, folder, self.ids(), change).await.unwrap()
    }

    /// Another server on the same database, with the same keys.
    pub async fn replica(&self) -> Self {
        Self::served(self.database.clone(), Arc::clone(&self.folder), self.ids(), |_| {})
            .await
            .unwrap()
    }

    /// Stops, and waits until it has.
    pub async fn stop(&mut self) {
        self.stop.cancel();
        (&mut self.stopped).await.unwrap();
    }

    pub fn request(&self, token: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        // The port of operators serves these.
        let base = if ["/metrics", "/readyz"].contains(&path) {
            &self.admin
        } else {
            &self.base
        };
        // `~` is the organization.
        let path = path.replacen('~', &format!("/v3/organizations/{}", self.organization), 1);
        let request = self.http.request(method, format!("{base}{path}"));
        if token.is_empty() {
            request
        } else {
            request.header("authorization", format!("JWT {token}"))
        }
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let answer = request.send().await.unwrap();
        let kind = answer.headers().get("content-type");
        let is_stream = kind.is_some_and(|kind| kind == "text/event-stream");
        Answer {
            status: answer.status(),
            headers: answer.headers().clone(),
            // A stream never ends.
            body: if is_stream {
                String::new()
            } else {
                answer.text().await.unwrap()
            },
        }
    }

    /// The changes in the audit log at `path`, the last one first, without the counts, which are written seconds later.
    pub async fn changes(&self, token: &str, path: &str) -> Vec<Value> {
        let rows = self.get(token, path).await.is(200).json();
        let mut rows = rows.as_array().unwrap().clone();
        rows.retain(|row| ["create", "update", "delete"].contains(&row["action"].as_str().unwrap()));
        rows
    }

    pub async fn get(&self, token: &str, path: &str) -> Answer {
        self.send(self.request(token, Method::GET, path)).await
    }

    pub async fn delete(&self, token: &str, path: &str) -> Answer {
        self.send(self.request(token, Method::DELETE, path)).await
    }

    pub async fn post(&self, token: &str, path: &str, body: Value) -> Answer {
        self.send(self.request(token, Method::POST, path).json(&body)).await
    }

    pub async fn put(&self, token: &str, path: &str, body: Value) -> Answer {
        self.send(self.request(token, Method::PUT, path).json(&body)).await
    }

    pub async fn patch(&self, token: &str, path: &str, body: Value) -> Answer {
        self.send(self.request(token, Method::PATCH, path).json(&body)).await
    }

    pub async fn log_in(&self, email: &str, password: &str) -> Answer {
        self.post(
            "",
            "/v3/login/password",
            json!({ "email": email, "password": password }),
        )
        .await
    }

    /// A token of the owner.
    pub async fn owner(&self) -> String {
        self.log_in("olivia@example.org", PASSWORD).await.is(200).field("token")
    }
}

pub fn sqlite_url(path: &Path) -> Url {
    format!("sqlite://{}", path.display()).parse().unwrap()
}

/// Each test once on `SQLite` and once on a real `PostgreSQL`.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::world::World::sqlite().await).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::world::World::postgres().await).await;
            })+
        }
    };
}
pub(crate) use on_both;
