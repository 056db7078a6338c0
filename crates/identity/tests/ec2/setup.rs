//! A provider that is pointed at a test server.
#![expect(clippy::unwrap_used, reason = "what fails in here is the test's failure")]

use std::sync::Mutex;
use std::time::Duration;

use aws_config::identity::IdentityCache;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::credential_fn::provide_credentials_fn;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_credential_types::provider::error::CredentialsError;
use tidewaiter_identity::aws::{ClientSettings, Ec2, client};
use tidewaiter_identity::{Claim, Identifier, Identity, Refusal};
use tidewaiter_kit::{CloudCalls, ManualClock, Metrics};

pub(crate) const CLUSTER: &str = "ours.example.com";
pub(crate) const SECRET: &str = "the-secret-access-key";
pub(crate) const TOKEN: &str = "the-session-token";

/// What a question got, by the place of each claim.
pub(crate) type Results = Vec<Result<Identity, Refusal>>;

pub(crate) struct Provider {
    pub(crate) ec2: Ec2,
    pub(crate) calls: CloudCalls,
    pub(crate) clock: ManualClock,
}

impl Provider {
    pub(crate) fn at(endpoint: &str) -> Self {
        Self::with(&credentials(), endpoint, Duration::from_secs(20))
    }

    pub(crate) fn with(shared: &SdkConfig, endpoint: &str, call: Duration) -> Self {
        let clock = ManualClock::default();
        let calls = Metrics::new(&clock.shared()).unwrap().cloud_calls();
        let settings = ClientSettings {
            endpoint: Some(endpoint.parse().unwrap()),
            call,
            ..ClientSettings::default()
        };
        let ec2 = Ec2::new(
            client(shared, &settings),
            CLUSTER.parse().unwrap(),
            clock.shared(),
            calls.clone(),
        );
        Self { ec2, calls, clock }
    }

    /// Asks, and makes sure that each claim was answered exactly once.
    pub(crate) async fn ask(&self, claims: &[Claim]) -> Results {
        let results: Mutex<Vec<Vec<Result<Identity, Refusal>>>> = Mutex::new(vec![Vec::new(); claims.len()]);
        self.ec2
            .identify(claims, &|place, result| results.lock().unwrap()[place].push(result))
            .await;
        let results = results.into_inner().unwrap();
        let one = |(place, mut given): (usize, Vec<_>)| {
            assert_eq!(given.len(), 1, "answers for {:?}: {given:?}", claims[place]);
            given.remove(0)
        };
        results.into_iter().enumerate().map(one).collect()
    }

    pub(crate) async fn ask_one(&self, provider_id: &str) -> Result<Identity, Refusal> {
        self.ask(&[claim(provider_id)]).await.remove(0)
    }
}

pub(crate) fn credentials() -> SdkConfig {
    let credentials = Credentials::new("AKIDTEST", SECRET, Some(TOKEN.to_owned()), None, "test");
    shared(SharedCredentialsProvider::new(credentials))
}

/// As the SDK's own chain ends where there are none.
pub(crate) fn no_credentials() -> SdkConfig {
    let none = || async {
        Err(CredentialsError::not_loaded(
            "no providers in chain provided credentials",
        ))
    };
    shared(SharedCredentialsProvider::new(provide_credentials_fn(none)))
}

/// As a metadata service that a firewall keeps from the pod.
pub(crate) fn silent_credentials() -> SdkConfig {
    let silent = SharedCredentialsProvider::new(provide_credentials_fn(std::future::pending));
    let impatient = IdentityCache::lazy().load_timeout(Duration::from_millis(200)).build();
    shared(silent).into_builder().identity_cache(impatient).build()
}

fn shared(credentials: SharedCredentialsProvider) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials)
        .build()
}

pub(crate) fn claim(provider_id: &str) -> Claim {
    Claim {
        node: "ip-10-0-0-1.ec2.internal".parse().unwrap(),
        uid: "uid".parse().unwrap(),
        provider_id: provider_id.parse().unwrap(),
        addresses: Vec::new(),
        rivals: Vec::new(),
    }
}

/// `ok` or the reason, for each.
pub(crate) fn reasons(results: &Results) -> Vec<&'static str> {
    results.iter().map(reason).collect()
}

pub(crate) fn reason(result: &Result<Identity, Refusal>) -> &'static str {
    result.as_ref().map_or_else(Refusal::reason, |_| "ok")
}
