//! The way to the cloud: what a cluster's controllers and the command line ask, with every way to fail told apart.
//!
//! An answer is whole or an error. What is cut, empty, HTML or no array is never an empty list, which would mean that
//! everything is to go; and only the API's own words, in a 404 of its form, say that something is not ours. The token goes
//! to the three base URLs alone: redirects are not followed. It stands in no error and no `Debug`.

mod error;
mod path;
mod request;
mod settings;
mod token;
mod transport;
mod watch;

use std::time::Duration;

pub use http::Method;
use http::StatusCode;
use serde::Serialize;
use tidewaiter_kit::{Backoff, SharedClock};
use uuid::Uuid;

use crate::models::values::{KubernetesVersion, NodeId, PluginId, Version};
use crate::models::{Model, PluginManifests, Unknown, UpgradeScript, parse, parse_list};

pub use error::ClientError;
pub use path::{Cluster, Organization, Path};
pub use request::{Answer, Body, ETag, Request};
pub use settings::{BaseUrl, ClientSettings, CloudEnvironment, InvalidBaseUrl, SettingsError};
pub use token::{AccessToken, InvalidToken};
pub use watch::{ChangedKind, Wake};

use transport::Transport;

/// Between two attempts of one request.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// What a conditional request was answered with.
#[derive(Clone, Debug, PartialEq)]
pub enum Fetched<T> {
    /// It is as the entity tag that was sent along says.
    Unchanged,
    /// All of it.
    Complete {
        /// The object or the list.
        value: T,
        /// What to send along next time.
        etag: Option<ETag>,
    },
}

/// A list, whole or unchanged.
pub type Listing<T> = Fetched<Vec<T>>;

/// A client of the cloud. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    deadline: Duration,
    sync_interval: Duration,
    clock: SharedClock,
}

impl Client {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// When the settings cannot be used together, or the certificates cannot be read.
    pub fn new(settings: &ClientSettings, clock: SharedClock) -> Result<Self, SettingsError> {
        Ok(Self {
            transport: Transport::new(settings, clock.clone())?,
            deadline: settings.deadline,
            sync_interval: settings.sync_interval,
            clock,
        })
    }

    /// A list, unless it is as `known` says.
    ///
    /// # Errors
    /// When there is no whole answer; see [`ClientError`].
    pub async fn list<T: Model>(&self, path: Path, known: Option<&ETag>) -> Result<Listing<T>, ClientError> {
        self.fetch(path, known, parse_list).await
    }

    /// One object, unless it is as `known` says.
    ///
    /// # Errors
    /// When there is no whole answer; see [`ClientError`].
    pub async fn get<T: Model>(&self, path: Path, known: Option<&ETag>) -> Result<Fetched<T>, ClientError> {
        self.fetch(path, known, parse).await
    }

    async fn fetch<T>(
        &self,
        path: Path,
        known: Option<&ETag>,
        read: impl Fn(&[u8], Unknown) -> Result<T, crate::models::InvalidField>,
    ) -> Result<Fetched<T>, ClientError> {
        let mut request = Request::new(Method::GET, path);
        request.known = known.cloned();
        let answer = self.request(&request).await?;
        if answer.status == StatusCode::NOT_MODIFIED {
            return Ok(Fetched::Unchanged);
        }
        match read(answer.bytes(), Unknown::Ignore) {
            Ok(value) => Ok(Fetched::Complete {
                value,
                etag: answer.etag,
            }),
            Err(error) => Err(ClientError::invalid(&request, error.to_string())),
        }
    }

    /// Reports how a cluster, a node pool, a node or an upgrade is doing.
    ///
    /// # Errors
    /// When it was not taken; see [`ClientError`].
    pub async fn put_status(&self, path: Path, report: &impl Serialize) -> Result<(), ClientError> {
        let mut request = Request::new(Method::PUT, path);
        let json = serde_json::to_value(report);
        let json = json.map_err(|error| ClientError::invalid(&request, error.to_string()))?;
        request.body = Some(Body::Json(json));
        self.request(&request).await.map(drop)
    }

    /// The manifests of a plugin, and the jobs that lead there from the version that runs now.
    ///
    /// # Errors
    /// When there is no whole answer; see [`ClientError`].
    pub async fn manifests(
        &self,
        cluster: Cluster,
        plugin: PluginId,
        previous: Option<&Version>,
    ) -> Result<PluginManifests, ClientError> {
        let mut path = cluster.plugin(plugin);
        if let Some(version) = previous {
            path = path.query("previous_version", version);
        }
        let request = Request::new(Method::GET, path);
        let answer = self.request(&request).await?;
        parse(answer.bytes(), Unknown::Ignore).map_err(|error| ClientError::invalid(&request, error.to_string()))
    }

    /// The script with which a node goes to a version.
    ///
    /// # Errors
    /// When there is no whole answer; see [`ClientError`].
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

    /// Any request. It is repeated, with waits in between, until an answer or the settings' deadline; a POST with one key of
    /// idempotency throughout, and one that must not be repeated once alone.
    ///
    /// A conditional write whose first answer was lost may be told 412 by its repetition.
    ///
    /// # Errors
    /// When there is no whole answer of success, or of 304 to a conditional one; see [`ClientError`].
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
            // What was told to wait is drawn apart too: all were told the same.
            let wait = asked.saturating_add(BACKOFF.delay(failures));
            if self.clock.monotonic().saturating_add(wait) >= end {
                return Err(error);
            }
            self.clock.sleep(wait).await;
        }
    }
}
