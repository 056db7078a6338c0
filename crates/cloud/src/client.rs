//! The client of the cloud API, for a cluster's controllers and the command line. Each kind of failure has its own
//! error.
//!
//! A response is complete or an error. A truncated, empty, HTML or non-array body never counts as an empty list, which
//! would mean that everything must be deleted. Only a 404 in the API's format means that an object does not exist for
//! this caller. The token is sent only to the three base URLs: redirects are not followed. It appears in no error and
//! no `Debug` output.

#![expect(missing_docs, reason = "a field or an error that its name explains has no comment")]
#![expect(clippy::missing_errors_doc, reason = "a request fails as ClientError says")]

mod budget;
mod caller;
mod error;
mod path;
mod recovery;
mod request;
mod settings;
mod token;
mod transport;
mod watch;

use std::time::Duration;

use bytes::Bytes;
pub use http::Method;
use http::StatusCode;
use serde::de::IgnoredAny;
use serde_json::Value;
use tidewaiter_kit::{Backoff, SharedClock};
use uuid::Uuid;

use crate::models::values::{KubernetesVersion, NodeId, PluginId};
use crate::models::{InvalidField, InvalidItem, Kind, Model, Unknown, UpgradeScript, parse, parse_each, parse_list};

pub use budget::{BudgetPart, ByteBudget};
pub use caller::{Audience, Caller, Membership, PublishedKeys};
pub(crate) use error::ACCESS_ENDED;
pub use error::ClientError;
pub use path::{Cluster, Organization, Path};
pub use recovery::Recoveries;
pub use request::{Answer, Body, ETag, Request};
pub use settings::{BaseUrl, ClientSettings, CloudEnvironment, InvalidBaseUrl, SettingsError, has_user};
pub use token::{AccessToken, InvalidToken, stated_expiry};
pub use watch::Wake;

use transport::Transport;

/// The delays between attempts of one request.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// The response to a conditional request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fetched<T> {
    /// Unchanged since the entity tag in the request.
    Unchanged,
    Complete {
        value: T,
        etag: Option<ETag>,
    },
}

/// The manifests of a plugin as the cloud sent them: JSON of any shape. Each object is validated when it is applied, so
/// that an error names it.
#[derive(Debug)]
pub struct SentManifests {
    /// The response. As values, it would take up to twenty times the memory.
    pub text: Bytes,
    /// The memory of the response.
    pub part: Option<BudgetPart>,
}

/// An object that the cloud deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Its kind, as the change stream names it.
    pub kind: Kind,
    pub id: Uuid,
}

impl Deletion {
    fn read(item: &Value) -> Option<Self> {
        let text = |field| item.get(field)?.as_str();
        Some(Self {
            kind: Kind::of_event(text("kind")?)?,
            id: Uuid::try_parse(text("id")?).ok()?,
        })
    }
}

/// A complete list, or unchanged.
pub type Listing<T> = Fetched<Vec<T>>;

/// A complete list, or unchanged, whose items are valid or not.
pub type EachListed<T> = Listing<Result<T, InvalidItem>>;

/// A client of the cloud API. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    deadline: Duration,
    sync_interval: Duration,
    clock: SharedClock,
}

impl Client {
    /// Creates a client without connecting.
    ///
    /// # Errors
    /// If the settings contradict each other, or the certificates cannot be read.
    pub fn new(settings: &ClientSettings, clock: SharedClock) -> Result<Self, SettingsError> {
        Ok(Self {
            transport: Transport::new(settings, clock.clone())?,
            deadline: settings.deadline,
            sync_interval: settings.sync_interval,
            clock,
        })
    }

    /// Returns the client with `exchange` in place of a network: for simulations.
    #[must_use]
    pub fn over<F, Fut>(self, exchange: F) -> Self
    where
        F: Fn(reqwest::Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = reqwest::Result<reqwest::Response>> + Send + 'static,
    {
        let transport = self.transport.over(exchange);
        Self { transport, ..self }
    }

    /// Returns a client with this deadline for a request with all its retries. It shares the connections.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            deadline,
            ..self.clone()
        }
    }

    /// The base URL of the API.
    #[must_use]
    pub fn base_url(&self) -> &str {
        self.transport.base_url()
    }

    /// Notifies when the cloud responds again after a failure, for loops that wait to retry.
    #[must_use]
    pub fn recoveries(&self) -> Recoveries {
        self.transport.availability.recoveries()
    }

    /// A list, unless it is unchanged since `known`.
    pub async fn list<T: Model>(&self, path: Path, known: Option<&ETag>) -> Result<Listing<T>, ClientError> {
        Ok(self.fetch(path, known, parse_list).await?.0)
    }

    /// A list as by [`Client::list`], in which an invalid object does not hide the others.
    pub async fn list_each<T: Model>(&self, path: Path, known: Option<&ETag>) -> Result<EachListed<T>, ClientError> {
        Ok(self.list_each_as_of(path, known).await?.0)
    }

    /// A list as by [`Client::list_each`], and the number of the change up to which it is current, if the cloud says
    /// it.
    pub async fn list_each_as_of<T: Model>(
        &self,
        path: Path,
        known: Option<&ETag>,
    ) -> Result<(EachListed<T>, Option<u64>), ClientError> {
        self.fetch(path, known, parse_each).await
    }

    /// Reads one object, unless it is unchanged since `known`.
    pub async fn get<T: Model>(&self, path: Path, known: Option<&ETag>) -> Result<Fetched<T>, ClientError> {
        Ok(self.fetch(path, known, parse).await?.0)
    }

    async fn fetch<T>(
        &self,
        path: Path,
        known: Option<&ETag>,
        read: impl Fn(&[u8], Unknown) -> Result<T, InvalidField>,
    ) -> Result<(Fetched<T>, Option<u64>), ClientError> {
        let read = |answer: Answer| read(answer.bytes(), Unknown::Ignore).map_err(|error| error.to_string());
        let request = conditional(path, known);
        let fetched = self.fetch_complete(&request, read).await;
        match fetched {
            Ok(_) => self.transport.availability.succeeded(),
            Err(_) => self.transport.availability.failed(),
        }
        fetched
    }

    async fn fetch_complete<T>(
        &self,
        request: &Request,
        read: impl Fn(Answer) -> Result<T, String>,
    ) -> Result<(Fetched<T>, Option<u64>), ClientError> {
        let answer = self.request(request).await?;
        let change = answer.change;
        if answer.status == StatusCode::NOT_MODIFIED {
            return Ok((Fetched::Unchanged, change));
        }
        let etag = answer.etag.clone();
        let value = read(answer).map_err(|reason| ClientError::invalid(request, reason))?;
        Ok((Fetched::Complete { value, etag }, change))
    }

    /// The last deletions of objects that the cluster mirrors. A kind that this client does not know is left out.
    ///
    /// # Errors
    /// If there is no complete response, as from a cloud without this record; see [`ClientError`].
    pub async fn deletions(&self, cluster: Cluster) -> Result<Vec<Deletion>, ClientError> {
        let request = Request::new(Method::GET, cluster.deletions());
        let read = |answer: &Answer| {
            let json = answer.json()?;
            let items = json.as_array().ok_or("the response is not a list")?;
            Ok(items.iter().filter_map(Deletion::read).collect())
        };
        let answer = self.request(&request).await?;
        read(&answer).map_err(|reason: String| ClientError::invalid(&request, reason))
    }

    /// The manifests of a plugin, and the jobs for the upgrade from the version `previous`, unless they are unchanged
    /// since `known`. The response is read when `budget` has room for it.
    pub async fn manifests(
        &self,
        cluster: Cluster,
        plugin: PluginId,
        previous: Option<&str>,
        known: Option<&ETag>,
        budget: &ByteBudget,
    ) -> Result<Fetched<SentManifests>, ClientError> {
        let mut path = cluster.plugin(plugin);
        if let Some(version) = previous {
            path = path.query("previous_version", version);
        }
        let mut request = conditional(path, known);
        request.budget = Some(budget.clone());
        let read = |Answer { body: text, part, .. }| {
            // What is no JSON is no response of the API.
            let json = serde_json::from_slice::<IgnoredAny>(&text);
            let json = json.map_err(|error| format!("is not valid JSON: {error}"));
            json.map(|_| SentManifests { text, part })
        };
        Ok(self.fetch_complete(&request, read).await?.0)
    }

    /// The script that upgrades a node to a version.
    pub async fn script(
        &self,
        cluster: Cluster,
        node: NodeId,
        version: &KubernetesVersion,
    ) -> Result<UpgradeScript, ClientError> {
        let request = Request::new(Method::GET, cluster.upgrade_script(node, version));
        let answer = self.request(&request).await?;
        let text = answer.text().map_err(|reason| ClientError::invalid(&request, reason))?;
        text.parse::<UpgradeScript>()
            .map_err(|error| ClientError::invalid(&request, error.rule.to_owned()))
    }

    /// Sends any request. It is retried with delays until a response or the deadline of the settings; all attempts of a
    /// POST share one idempotency key, and a request that must not be repeated is sent once.
    ///
    /// A conditional write whose first response was lost may get 412 on its retry.
    ///
    /// # Errors
    /// If there is no complete successful response (or 304 to a conditional request); see [`ClientError`].
    pub async fn request(&self, request: &Request) -> Result<Answer, ClientError> {
        let key = (request.method == Method::POST && !request.once).then(|| Uuid::new_v4().to_string());
        let end = self.clock.monotonic().saturating_add(self.deadline);
        let mut failures = 0;
        loop {
            let error = match self.transport.attempt(request, key.as_deref()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            failures += 1;
            let Some(asked) = error.retry().filter(|_| !request.once) else {
                return Err(error);
            };
            // `Retry-After` gets jitter too, because all clients got the same value.
            let wait = asked.saturating_add(BACKOFF.delay(failures));
            if self.clock.monotonic().saturating_add(wait) >= end {
                return Err(error);
            }
            self.clock.sleep(wait).await;
        }
    }
}

/// A read, unless what it reads is unchanged since `known`.
fn conditional(path: Path, known: Option<&ETag>) -> Request {
    Request {
        known: known.cloned(),
        ..Request::new(Method::GET, path)
    }
}
