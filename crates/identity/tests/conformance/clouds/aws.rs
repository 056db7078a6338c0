//! EC2: the fake.

use std::ops::RangeInclusive;
use std::sync::Arc;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use tidewaiter_identity::aws::{Ec2, client};
use tidewaiter_identity::{ClientSettings, Identifier};
use tidewaiter_testkit::FakeEc2;
use tidewaiter_testkit::fake_ec2::{Ec2 as Ec2Api, FakeInstance};

use crate::cloud::{CLUSTER, Cloud, Costs, Faults, Launched, NotApplicable, Wiring};

pub(crate) struct Aws(FakeEc2);

/// The provider through the real SDK, at this endpoint.
pub(crate) fn provider(endpoint: &str, wiring: &Wiring) -> Arc<dyn Identifier> {
    let credentials = Credentials::new("AKIDTEST", "the-secret-access-key", None, None, "test");
    let shared = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build();
    let settings = ClientSettings {
        endpoint: Some(endpoint.parse().unwrap()),
        call: wiring.deadline,
        ..ClientSettings::default()
    };
    let client = client(&shared, &settings);
    Arc::new(Ec2::new(
        client,
        CLUSTER.parse().unwrap(),
        wiring.clock.clone(),
        wiring.calls.clone(),
    ))
}

pub(crate) const UNKNOWN: &str = "aws:///us-east-1a/i-00000000000000bad";

pub(crate) const MALFORMED: [&str; 7] = [
    "aws:///us-east-1a/i-xyz",
    "aws:///us-east-1a/",
    "aws:///us-east-1a/*",
    "aws:///i-0123456789abcdef0",
    "aws:///US-EAST-1A/i-0123456789abcdef0",
    "aws:///us-east-1a/i-0123456789abcdef0,i-12345678",
    "aws://us-east-1a/i-0123456789abcdef0",
];

pub(crate) fn elsewhere(instance: &Launched) -> (String, &'static str) {
    (
        instance.provider_id.replace(&instance.zone, "us-east-1f"),
        "ZoneMismatch",
    )
}

impl Aws {
    fn change(&self, instance: &Launched, change: impl FnOnce(FakeInstance) -> FakeInstance) {
        self.0.change(&instance.instance, change);
    }
}

impl Cloud for Aws {
    async fn start() -> Self {
        Self(FakeEc2::start().await)
    }

    async fn provider(&self, wiring: &Wiring) -> Arc<dyn Identifier> {
        provider(&self.0.endpoint(), wiring)
    }

    async fn launch(&mut self, numbers: RangeInclusive<u32>, group: &str) -> Vec<Launched> {
        let instances: Vec<FakeInstance> = numbers
            .map(|number| FakeInstance::numbered(number).kops(CLUSTER, group))
            .collect();
        let launched = instances.iter().map(launched).collect();
        self.0.launch(instances);
        launched
    }

    async fn stop(&mut self, instance: &Launched) {
        self.change(instance, |it| it.state("stopped"));
    }

    async fn give_away(&mut self, instance: &Launched) {
        self.change(instance, |it| it.tag("KubernetesCluster", "other.example.com"));
    }

    async fn ungroup(&mut self, instance: &Launched) {
        self.change(instance, |it| it.without_tag("kops.k8s.io/instancegroup"));
    }

    fn unknown() -> &'static str {
        UNKNOWN
    }

    fn elsewhere(instance: &Launched) -> Result<(String, &'static str), NotApplicable> {
        Ok(elsewhere(instance))
    }

    fn malformed() -> Vec<&'static str> {
        MALFORMED.to_vec()
    }
}

impl Faults for Aws {
    type Api = Ec2Api;

    const COSTS: Costs = Costs {
        known: |count| count.div_ceil(1000),
        kept: 0,
        unknown: 1,
        // Halving, once; then apart by filter.
        bad: (19, 1),
        // Each zone, and both halves of the one that fails; then it and its halves apart.
        zone: (5, 3),
    };

    fn fake(&self) -> &FakeEc2 {
        &self.0
    }

    fn remove(&mut self, instance: &Launched) {
        self.0.forget(&instance.instance);
    }
}

fn launched(it: &FakeInstance) -> Launched {
    let provider_id = it.provider_id();
    let zone = provider_id.split('/').nth(3).unwrap().to_owned();
    Launched::new(it.id(), provider_id, it.node_name(), it.address(), &zone)
}
