//! EC2 as moto plays it, which others have written.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tidewaiter_identity::Identifier;
use tidewaiter_testkit::Moto;
use tidewaiter_testkit::moto::Launch;

use super::aws;
use crate::cloud::{CLUSTER, Cloud, Launched, NotApplicable, Wiring};

pub(crate) struct Aws(Moto);

const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

impl Cloud for Aws {
    async fn start() -> Self {
        Self(Moto::start().await)
    }

    async fn provider(&self, wiring: &Wiring) -> Arc<dyn Identifier> {
        aws::provider(self.0.endpoint(), wiring)
    }

    async fn launch(&mut self, numbers: RangeInclusive<u32>, group: &str) -> Vec<Launched> {
        let mut all = Vec::new();
        for number in numbers {
            let launch = Launch {
                tags: vec![("KubernetesCluster", CLUSTER), ("kops.k8s.io/instancegroup", group)],
                zone: ZONES[number as usize % ZONES.len()],
                ..Launch::default()
            };
            let launched = self.0.launch(&launch).await;
            all.push(Launched {
                provider_id: launched.provider_id(),
                instance: launched.id,
                node: launched.name,
                address: launched.address,
                zone: launched.zone,
            });
        }
        all
    }

    async fn stop(&mut self, instance: &Launched) {
        let form = [("InstanceId.1".to_owned(), instance.instance.clone())];
        self.0.ec2("StopInstances", &form).await;
    }

    async fn give_away(&mut self, instance: &Launched) {
        self.0
            .tag(&instance.instance, "KubernetesCluster", "other.example.com")
            .await;
    }

    async fn ungroup(&mut self, instance: &Launched) {
        let form = [
            ("ResourceId.1", instance.instance.as_str()),
            ("Tag.1.Key", "kops.k8s.io/instancegroup"),
        ];
        let form = form.map(|(key, value)| (key.to_owned(), value.to_owned()));
        self.0.ec2("DeleteTags", &form).await;
    }

    fn unknown() -> &'static str {
        aws::UNKNOWN
    }

    fn elsewhere(instance: &Launched) -> Result<(String, &'static str), NotApplicable> {
        Ok(aws::elsewhere(instance))
    }

    fn malformed() -> Vec<&'static str> {
        aws::MALFORMED.to_vec()
    }
}
