//! Credentials that are obtained anew when Compute Engine rejects them.
//!
//! Google's library caches a token until it expires, for up to an hour, although it may be revoked. After an error that
//! it takes for a permanent one it never asks again. So the credentials are replaced as a whole.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use google_cloud_auth::build_errors::Error as BuildError;
use google_cloud_auth::credentials::{Builder, CacheableResource, Credentials, CredentialsProvider};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap};
use parking_lot::Mutex;
use tidewaiter_kit::{Renewals, SharedClock};
use tracing::{info, warn};

/// Creates credentials. New ones share no cached token with earlier ones.
#[derive(Clone)]
pub struct CredentialsSource(Arc<dyn Fn() -> Result<Credentials, BuildError> + Send + Sync>);

impl CredentialsSource {
    /// A source that calls `create`.
    #[must_use]
    pub fn new(create: impl Fn() -> Result<Credentials, BuildError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(create))
    }
}

impl Default for CredentialsSource {
    /// Application Default Credentials, which fall back to the metadata server.
    fn default() -> Self {
        Self::new(|| Builder::default().build())
    }
}

impl fmt::Debug for CredentialsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialsSource(…)")
    }
}

/// The credentials of all services, so that a token is requested once.
#[derive(Clone, Debug)]
pub(super) struct RenewableCredentials(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: CredentialsSource,
    renewals: Renewals,
    deadline: Duration,
    current: Mutex<Credentials>,
}

impl RenewableCredentials {
    /// The first credentials of `source`. Their universe is requested for at most `deadline`.
    ///
    /// # Errors
    /// If they are misconfigured.
    pub(super) fn new(source: CredentialsSource, clock: SharedClock, deadline: Duration) -> Result<Self, BuildError> {
        let current = Mutex::new((source.0)()?);
        Ok(Self(Arc::new(Shared {
            source,
            renewals: Renewals::new(clock),
            deadline,
            current,
        })))
    }

    /// Replaces the credentials, because they were rejected or could not be used.
    pub(super) fn renew(&self) {
        if !self.0.renewals.begin() {
            return;
        }
        match (self.0.source.0)() {
            Ok(credentials) => {
                *self.0.current.lock() = credentials;
                info!("obtains new credentials for Compute Engine");
            }
            Err(error) => {
                warn!(%error, "cannot obtain new credentials for Compute Engine: check GOOGLE_APPLICATION_CREDENTIALS");
            }
        }
    }

    fn current(&self) -> Credentials {
        self.0.current.lock().clone()
    }
}

impl CredentialsProvider for RenewableCredentials {
    async fn headers(&self, extensions: Extensions) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        self.current().headers(extensions).await
    }

    /// The universe; `None` means the public one. A metadata server that does not respond is treated like one that
    /// refuses connections.
    async fn universe_domain(&self) -> Option<String> {
        let credentials = self.current();
        let universe = tokio::time::timeout(self.0.deadline, credentials.universe_domain());
        universe.await.unwrap_or_default()
    }
}
