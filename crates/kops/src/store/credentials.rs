//! AWS credentials for `object_store`, from the AWS SDK's chain, so that the whole process uses one.
//!
//! Nothing is loaded before a request needs it. Credentials are renewed before they expire; if that fails, they are
//! used as long as they are valid, whatever the time of day becomes meanwhile. Their secret is never printed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::clock::timeout;
use tokio::sync::Mutex;

/// Credentials that expire sooner are renewed.
const RENEW_BEFORE: Duration = Duration::from_mins(5);
/// Credentials without an expiry are loaded again after this time.
const KEEP: Duration = Duration::from_mins(15);
/// The pause between attempts to renew credentials that are still valid.
const PAUSE: Duration = Duration::from_secs(30);
/// The timeout of one attempt.
const LOAD_LIMIT: Duration = Duration::from_secs(8);

/// The credentials of this process, for `object_store`.
pub(super) struct AwsCredentials {
    provider: Mutex<Option<SharedCredentialsProvider>>,
    clock: SharedClock,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    credential: Arc<AwsCredential>,
    /// A monotonic time; None if they do not expire.
    expiry: Option<Duration>,
    /// A monotonic time.
    ask_again: Duration,
}

/// Contains its cause as text, because the SDK's errors have the useful part in their source.
#[derive(Debug, thiserror::Error)]
#[error(
    "no AWS credentials: {0}; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the instance has a role"
)]
struct NoCredentials(String);

impl AwsCredentials {
    pub(super) fn new(provider: Option<SharedCredentialsProvider>, clock: SharedClock) -> Self {
        Self {
            provider: Mutex::new(provider),
            clock,
            kept: Mutex::default(),
        }
    }

    async fn load(&self) -> Result<Credentials, NoCredentials> {
        let provider = self.provider().await;
        match timeout(&*self.clock, LOAD_LIMIT, provider.provide_credentials()).await {
            Ok(Ok(credentials)) => Ok(credentials),
            Ok(Err(error)) => Err(NoCredentials(error.to_string())),
            Err(elapsed) => Err(NoCredentials(elapsed.to_string())),
        }
    }

    async fn provider(&self) -> SharedCredentialsProvider {
        let mut provider = self.provider.lock().await;
        if let Some(provider) = &*provider {
            return provider.clone();
        }
        let chain = DefaultCredentialsChain::builder().build().await;
        provider.insert(SharedCredentialsProvider::new(chain)).clone()
    }

    fn keep(&self, credentials: &Credentials) -> Kept {
        let (now, time_of_day) = (self.clock.monotonic(), SystemTime::from(self.clock.now()));
        let left = credentials
            .expiry()
            .map(|expiry| expiry.duration_since(time_of_day).unwrap_or_default());
        let good_for = left.map_or(KEEP, |left| left.saturating_sub(RENEW_BEFORE).clamp(PAUSE, KEEP));
        Kept {
            credential: Arc::new(AwsCredential {
                key_id: credentials.access_key_id().to_owned(),
                secret_key: credentials.secret_access_key().to_owned(),
                token: credentials.session_token().map(ToOwned::to_owned),
            }),
            expiry: left.map(|left| now + left),
            ask_again: now + good_for,
        }
    }
}

#[async_trait]
impl CredentialProvider for AwsCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = &*kept
            && self.clock.monotonic() < kept.ask_again
        {
            return Ok(Arc::clone(&kept.credential));
        }
        match self.load().await {
            Ok(credentials) => Ok(Arc::clone(&kept.insert(self.keep(&credentials)).credential)),
            Err(error) => match &mut *kept {
                Some(kept) if kept.expiry.is_none_or(|expiry| self.clock.monotonic() < expiry) => {
                    tracing::warn!(%error, "AWS credentials cannot be renewed at present");
                    kept.ask_again = self.clock.monotonic() + PAUSE;
                    Ok(Arc::clone(&kept.credential))
                }
                _ => Err(object_store::Error::Generic {
                    store: "S3",
                    source: Box::new(error),
                }),
            },
        }
    }
}

impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsCredentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use aws_credential_types::provider::{self, ProvideCredentials, error::CredentialsError, future};
    use tidewaiter_kit::{Clock as _, ManualClock};

    use super::*;

    /// Returns numbered credentials that expire after a while, or fails.
    #[derive(Debug)]
    struct Source {
        clock: ManualClock,
        state: StdMutex<(u32, Option<Duration>)>,
    }

    impl ProvideCredentials for Source {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            let result: provider::Result = match state.1 {
                Some(ttl) => {
                    let expiry = SystemTime::from(self.clock.now()) + ttl;
                    Ok(Credentials::new(
                        format!("key-{}", state.0),
                        "secret",
                        None,
                        Some(expiry),
                        "test",
                    ))
                }
                None => Err(CredentialsError::not_loaded("the machine says nothing")),
            };
            future::ProvideCredentials::ready(result)
        }
    }

    struct World {
        clock: ManualClock,
        source: Arc<Source>,
        credentials: AwsCredentials,
    }

    fn world() -> World {
        let clock = ManualClock::default();
        let source = Arc::new(Source {
            clock: clock.clone(),
            state: StdMutex::new((0, Some(Duration::from_hours(1)))),
        });
        let provider: Arc<dyn ProvideCredentials> = Arc::clone(&source) as _;
        let credentials = AwsCredentials::new(Some(provider.into()), clock.shared());
        World {
            clock,
            source,
            credentials,
        }
    }

    impl World {
        async fn key(&self) -> Result<String, String> {
            let credential = self.credentials.get_credential().await;
            credential
                .map(|credential| credential.key_id.clone())
                .map_err(|error| error.to_string())
        }
    }

    #[tokio::test]
    async fn one_load_serves_many_requests_until_it_is_time_to_ask_again() {
        let world = world();
        for _ in 0..100 {
            assert_eq!(world.key().await.unwrap(), "key-1");
        }
        world.clock.advance(KEEP);
        assert_eq!(world.key().await.unwrap(), "key-2");
    }

    #[tokio::test]
    async fn credentials_are_renewed_before_they_expire_and_used_until_then() {
        let world = world();
        world.source.state.lock().unwrap().1 = Some(RENEW_BEFORE + Duration::from_mins(1));
        assert_eq!(world.key().await.unwrap(), "key-1");
        world.clock.advance(Duration::from_secs(59));
        assert_eq!(world.key().await.unwrap(), "key-1");
        world.source.state.lock().unwrap().1 = None;
        world.clock.advance(Duration::from_secs(1));
        assert_eq!(world.key().await.unwrap(), "key-1", "still good for five minutes");
        assert_eq!(world.source.state.lock().unwrap().0, 2);
        assert_eq!(world.key().await.unwrap(), "key-1");
        assert_eq!(world.source.state.lock().unwrap().0, 2, "not asked at every request");
        world.clock.advance(RENEW_BEFORE);
        let error = world.key().await.unwrap_err();
        assert!(
            error.contains("no AWS credentials: ") && error.contains("set AWS_PROFILE"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_jump_of_the_time_of_day_makes_credentials_neither_older_nor_younger() {
        for jump in [3 * 3600, -3 * 3600] {
            let world = world();
            assert_eq!(world.key().await.unwrap(), "key-1");
            world.source.state.lock().unwrap().1 = None;
            world.clock.jump(jump);
            world.clock.advance(Duration::from_mins(59));
            assert_eq!(world.key().await.unwrap(), "key-1", "good for an hour, {jump} s");
            world.clock.advance(Duration::from_mins(1));
            world.key().await.unwrap_err();
        }
    }

    #[tokio::test]
    async fn without_credentials_each_request_asks_again() {
        let world = world();
        world.source.state.lock().unwrap().1 = None;
        world.key().await.unwrap_err();
        world.source.state.lock().unwrap().1 = Some(KEEP);
        assert_eq!(world.key().await.unwrap(), "key-2");
    }
}
