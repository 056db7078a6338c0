//! A provider that is pointed at a test server.

use std::time::Duration;

use aws_config::identity::IdentityCache;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::credential_fn::provide_credentials_fn;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_credential_types::provider::error::CredentialsError;
use tidewaiter_identity::aws::{AutoScaling, Ec2, client, groups_client};
use tidewaiter_identity::{Claim, ClientSettings, Identity, Refusal};
use tidewaiter_kit::{CloudCalls, ManualClock, Metrics};

use crate::ask::{Results, ask, claim_of};

pub(crate) const CLUSTER: &str = "ours.example.com";
pub(crate) const SECRET: &str = "the-secret-access-key";
pub(crate) const TOKEN: &str = "the-session-token";

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

    pub(crate) async fn ask(&self, claims: &[Claim]) -> Results {
        ask(&self.ec2, claims).await
    }

    pub(crate) async fn ask_one(&self, provider_id: &str) -> Result<Identity, Refusal> {
        self.ask(&[claim_of(provider_id)]).await.remove(0)
    }
}

/// The groups of the cluster, and the count of the calls.
pub(crate) fn groups_at(endpoint: &str) -> (AutoScaling, CloudCalls) {
    groups_with(&credentials(), endpoint, Duration::from_secs(20))
}

pub(crate) fn groups_with(shared: &SdkConfig, endpoint: &str, call: Duration) -> (AutoScaling, CloudCalls) {
    let calls = Metrics::new(&ManualClock::default().shared()).unwrap().cloud_calls();
    let settings = ClientSettings {
        endpoint: Some(endpoint.parse().unwrap()),
        call,
        ..ClientSettings::default()
    };
    let clients = (groups_client(shared, &settings), client(shared, &settings));
    let groups = AutoScaling::new(clients.0, clients.1, CLUSTER.parse().unwrap(), calls.clone());
    (groups, calls)
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
