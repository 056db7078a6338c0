//! The `object_store` client of a state store, and the region of its bucket.
//!
//! In kOps, one bucket may contain the state of clusters in many regions, so the bucket's region often differs from the
//! cluster's. The likely region is tried first, because a cluster without internet access can reach only that. If the
//! response says that the bucket is elsewhere, its region is looked up. A region or an endpoint that the operator has
//! set is never overridden. A redirect is never followed: otherwise a server at the address of the store could have
//! the definitions read from another host.
//!
//! `object_store` keeps a token of Google Cloud until it expires. When the store rejects it, the client is replaced,
//! and its token with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::provider::SharedCredentialsProvider;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use object_store::aws::{AmazonS3Builder, resolve_bucket_region};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ClientOptions, HeaderValue, ObjectStore, RetryConfig};
use parking_lot::RwLock;
use tidewaiter_kit::{Renewals, SharedClock, SystemClock};
use url::Url;

use super::credentials::AwsCredentials;
use super::error::{OpenError, is_elsewhere};
use super::http::{CONNECT_LIMIT, Connector, REQUEST_LIMIT, USER_AGENT};
use super::url::{Scheme, StateUrl};

/// The region of S3 itself: correct if nothing is known about the bucket.
const DEFAULT_REGION: &str = "us-east-1";

/// The options of a state store. The default is correct for a cluster that kOps created on its cloud.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// An endpoint other than the cloud's: a test server, or a store with the cloud's protocol. Buckets are then part
    /// of the path. Plain HTTP is used only if this starts with `http://`.
    pub endpoint: Option<Url>,
    /// The region of the bucket, if it is known; otherwise it is determined.
    pub region: Option<String>,
    /// The region that is tried first if [`region`](Self::region) is not set: the cluster's own.
    pub likely_region: Option<String>,
    /// The source of AWS credentials; by default the default chain of the AWS SDK.
    pub aws_credentials: Option<SharedCredentialsProvider>,
    /// A file with Google credentials of a service account or a user; by default those of `gcloud` or of the machine.
    pub google_credentials: Option<PathBuf>,
    /// Sends requests unsigned: for test servers and public buckets.
    pub anonymous: bool,
    /// The source of time.
    pub clock: SharedClock,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            likely_region: None,
            aws_credentials: None,
            google_credentials: None,
            anonymous: false,
            clock: SystemClock::shared(),
        }
    }
}

/// The client of one state store.
#[derive(Debug)]
pub(super) struct Client {
    url: StateUrl,
    options: StoreOptions,
    credentials: Arc<AwsCredentials>,
    renewals: Renewals,
    find_region: FindRegion,
    current: RwLock<Arc<dyn ObjectStore>>,
}

/// Looks up the region of a bucket in S3.
type FindRegion = fn(String, ClientOptions) -> BoxFuture<'static, object_store::Result<String>>;

fn ask_s3(bucket: String, options: ClientOptions) -> BoxFuture<'static, object_store::Result<String>> {
    async move { resolve_bucket_region(&bucket, &options).await }.boxed()
}

impl Client {
    pub(super) fn open(url: &StateUrl, options: StoreOptions) -> Result<Self, OpenError> {
        if let Some(endpoint) = &options.endpoint
            && (!matches!(endpoint.scheme(), "http" | "https") || endpoint.host().is_none())
        {
            return Err(OpenError::Endpoint {
                endpoint: endpoint.to_string(),
            });
        }
        let credentials = Arc::new(AwsCredentials::new(
            options.aws_credentials.clone(),
            options.clock.clone(),
        ));
        let region = options.region.as_ref().or(options.likely_region.as_ref());
        let region = region.map_or(DEFAULT_REGION, String::as_str);
        let store = connect(url, &options, &credentials, region).map_err(|source| OpenError::Client {
            url: url.to_string(),
            source,
        })?;
        Ok(Self {
            url: url.clone(),
            renewals: Renewals::new(options.clock.clone()),
            options,
            credentials,
            find_region: ask_s3,
            current: RwLock::new(store),
        })
    }

    pub(super) fn store(&self) -> Arc<dyn ObjectStore> {
        self.current.read().clone()
    }

    /// The client for another try, after a request by `used` failed with `error`, if another client may fare better:
    /// one for the region of the bucket, or one with new credentials.
    pub(super) async fn follow(
        &self,
        used: &Arc<dyn ObjectStore>,
        error: &object_store::Error,
    ) -> Option<Arc<dyn ObjectStore>> {
        let fixed = self.options.region.is_some() || self.options.endpoint.is_some();
        let is_rejected = matches!(error, object_store::Error::Unauthenticated { .. });
        match self.url.scheme() {
            Scheme::S3 if !fixed && is_elsewhere(error) => {}
            Scheme::Gs if is_rejected => {}
            _ => return None,
        }
        let current = self.store();
        if !Arc::ptr_eq(used, &current) {
            // Another read has already replaced it.
            return Some(current);
        }
        let store = if is_rejected {
            self.with_new_credentials()?
        } else {
            self.in_its_region().await?
        };
        *self.current.write() = Arc::clone(&store);
        Some(store)
    }

    async fn in_its_region(&self) -> Option<Arc<dyn ObjectStore>> {
        let found = (self.find_region)(self.url.bucket().to_owned(), client_options(&self.options)).await;
        let unknown = |error: &object_store::Error| {
            tracing::warn!(store = %self.url, %error, "the bucket is in another region, which cannot be determined");
        };
        let region = found.inspect_err(unknown).ok()?;
        let store = connect(&self.url, &self.options, &self.credentials, &region).ok()?;
        tracing::info!(store = %self.url, region, "the state store's bucket is in another region");
        Some(store)
    }

    fn with_new_credentials(&self) -> Option<Arc<dyn ObjectStore>> {
        if !self.renewals.begin() {
            return None;
        }
        // The region is not read: Google Cloud has none in its addresses.
        let store = connect(&self.url, &self.options, &self.credentials, DEFAULT_REGION);
        let invalid = |error: &object_store::Error| {
            tracing::warn!(store = %self.url, %error, "cannot obtain new credentials: check GOOGLE_APPLICATION_CREDENTIALS");
        };
        let store = store.inspect_err(invalid).ok()?;
        tracing::info!(store = %self.url, "obtains new credentials for the state store");
        Some(store)
    }
}

fn connect(
    url: &StateUrl,
    options: &StoreOptions,
    credentials: &Arc<AwsCredentials>,
    region: &str,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let endpoint = options
        .endpoint
        .as_ref()
        .map(|endpoint| endpoint.as_str().trim_end_matches('/').to_owned());
    Ok(match url.scheme() {
        Scheme::File => Arc::new(LocalFileSystem::new()),
        Scheme::S3 => {
            let mut builder = AmazonS3Builder::new()
                .with_bucket_name(url.bucket())
                .with_region(region)
                .with_credentials(Arc::clone(credentials) as _)
                .with_skip_signature(options.anonymous)
                .with_http_connector(Connector)
                .with_client_options(client_options(options))
                .with_retry(retry());
            if let Some(endpoint) = endpoint.or_else(|| endpoint_in_china(region)) {
                builder = builder.with_endpoint(endpoint);
            }
            Arc::new(builder.build()?)
        }
        Scheme::Gs => {
            let mut builder = GoogleCloudStorageBuilder::new()
                .with_bucket_name(url.bucket())
                .with_skip_signature(options.anonymous)
                .with_http_connector(Connector)
                .with_client_options(client_options(options))
                .with_retry(retry());
            if let Some(endpoint) = endpoint {
                builder = builder.with_base_url(&endpoint);
            }
            if let Some(path) = &options.google_credentials {
                builder = builder.with_application_credentials(path.display().to_string());
            }
            Arc::new(builder.build()?)
        }
    })
}

/// `object_store` only has the endpoints of the partition `aws`.
fn endpoint_in_china(region: &str) -> Option<String> {
    region
        .starts_with("cn-")
        .then(|| format!("https://s3.{region}.amazonaws.com.cn"))
}

fn client_options(options: &StoreOptions) -> ClientOptions {
    ClientOptions::new()
        .with_user_agent(HeaderValue::from_static(USER_AGENT))
        .with_allow_http(
            options
                .endpoint
                .as_ref()
                .is_some_and(|endpoint| endpoint.scheme() == "http"),
        )
        .with_connect_timeout(CONNECT_LIMIT)
        .with_timeout(REQUEST_LIMIT)
}

/// Covers a short interruption. A longer one is left to the caller's backoff, which covers all files.
fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        },
        max_retries: 2,
        retry_timeout: Duration::from_secs(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elsewhere() -> object_store::Error {
        object_store::Error::Generic {
            store: "S3",
            source: "Received redirect without LOCATION".into(),
        }
    }

    fn client(url: &str, options: StoreOptions) -> Client {
        let mut client = Client::open(&url.parse().unwrap(), options).unwrap();
        client.find_region = |bucket, _| async move { Ok(format!("region-of-{bucket}")) }.boxed();
        client
    }

    async fn follow(client: &Client, error: &object_store::Error) -> Option<Arc<dyn ObjectStore>> {
        client.follow(&client.store(), error).await
    }

    #[tokio::test]
    async fn a_bucket_in_another_region_is_followed_once() {
        let options = StoreOptions {
            likely_region: Some("us-test-1".to_owned()),
            ..StoreOptions::default()
        };
        let client = client("s3://state/c", options);
        let first = client.store();
        assert!(
            format!("{first:?}").contains("us-test-1"),
            "the likely region is asked first"
        );
        let found = client.follow(&first, &elsewhere()).await.unwrap();
        assert!(
            format!("{found:?}").contains("https://s3.region-of-state.amazonaws.com/state"),
            "{found:?}"
        );
        assert!(Arc::ptr_eq(&found, &client.store()), "and stays");
        let late = client.follow(&first, &elsewhere()).await.unwrap();
        assert!(
            Arc::ptr_eq(&late, &found),
            "a read that began before uses what was found"
        );
    }

    #[tokio::test]
    async fn nothing_else_makes_it_move() {
        let fixed = StoreOptions {
            region: Some("us-test-1".to_owned()),
            ..StoreOptions::default()
        };
        let server = StoreOptions {
            endpoint: Some("http://127.0.0.1:1".parse().unwrap()),
            ..StoreOptions::default()
        };
        assert!(
            follow(&client("s3://state/c", fixed), &elsewhere()).await.is_none(),
            "the operator has set the region"
        );
        assert!(
            follow(&client("s3://state/c", server), &elsewhere()).await.is_none(),
            "the operator has set the address"
        );
        assert!(
            follow(&client("file:///state", StoreOptions::default()), &elsewhere())
                .await
                .is_none()
        );
        let away = object_store::Error::Generic {
            store: "S3",
            source: "connection refused".into(),
        };
        assert!(
            follow(&client("s3://state/c", StoreOptions::default()), &away)
                .await
                .is_none()
        );
    }

    #[test]
    fn china_has_names_of_its_own() {
        let options = StoreOptions {
            region: Some("cn-north-1".to_owned()),
            ..StoreOptions::default()
        };
        let store = client("s3://state/c", options).store();
        assert!(
            format!("{store:?}").contains("https://s3.cn-north-1.amazonaws.com.cn/state"),
            "{store:?}"
        );
    }
}
