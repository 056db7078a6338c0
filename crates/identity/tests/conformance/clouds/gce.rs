//! Compute Engine: the fake, with one regional managed instance group for each group.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use google_cloud_auth::credentials::mds;
use tidewaiter_identity::Identifier;
use tidewaiter_identity::gce::{self, ClientSettings, CredentialsSource, client};
use tidewaiter_testkit::FakeGce;
use tidewaiter_testkit::fake_gce::{FakeInstance, Gce as GceApi, PROJECT, REGION, regional_group, template};

use crate::cloud::{CLUSTER, Cloud, Costs, Faults, Launched, NotApplicable, Wiring};

pub(crate) struct Gce {
    fake: FakeGce,
    /// By the name of the group, and that of the instance.
    groups: BTreeMap<String, BTreeMap<String, FakeInstance>>,
}

impl Gce {
    /// Has the group make these and no others.
    fn publish(&self, cluster: &str, name: &str, members: impl IntoIterator<Item = FakeInstance>) {
        let template = template(&format!("{name}-v1")).kops(cluster, name);
        let mut group = regional_group(REGION, name);
        for member in members {
            let member = member.kops(CLUSTER, &group);
            group = group.lists(&member, &template);
            self.fake.launch([member]);
        }
        self.fake.templates([template]);
        self.fake.groups([group]);
    }

    /// Takes an instance out of its group.
    fn take(&mut self, instance: &Launched) -> FakeInstance {
        let group = self
            .groups
            .values_mut()
            .find(|members| members.contains_key(&instance.node));
        group.and_then(|members| members.remove(&instance.node)).unwrap()
    }

    fn publish_all(&self) {
        for (name, members) in &self.groups {
            self.publish(CLUSTER, name, members.values().cloned());
        }
    }
}

impl Cloud for Gce {
    async fn start() -> Self {
        Self {
            fake: FakeGce::start().await,
            groups: BTreeMap::new(),
        }
    }

    async fn provider(&self, wiring: &Wiring) -> Arc<dyn Identifier> {
        let metadata = self.fake.endpoint();
        let credentials = CredentialsSource::new(move || {
            mds::Builder::default()
                .with_endpoint(&metadata)
                .with_universe_domain("googleapis.com")
                .build()
        });
        let settings = ClientSettings {
            endpoint: Some(self.fake.endpoint().parse().unwrap()),
            credentials,
            call: wiring.deadline,
            ..ClientSettings::default()
        };
        Arc::new(gce::Gce::new(
            client(&settings).await.unwrap(),
            PROJECT.parse().unwrap(),
            CLUSTER.parse().unwrap(),
            wiring.clock.clone(),
            wiring.calls.clone(),
        ))
    }

    async fn launch(&mut self, numbers: RangeInclusive<u32>, group: &str) -> Vec<Launched> {
        let instances: Vec<FakeInstance> = numbers.map(FakeInstance::numbered).collect();
        let members = self.groups.entry(group.to_owned()).or_default();
        members.extend(instances.iter().map(|it| (it.node_name().to_owned(), it.clone())));
        self.publish_all();
        instances.iter().map(launched).collect()
    }

    async fn stop(&mut self, instance: &Launched) {
        for members in self.groups.values_mut() {
            if let Some(member) = members.get_mut(&instance.node) {
                *member = member.clone().status("STOPPING");
            }
        }
        self.publish_all();
    }

    async fn give_away(&mut self, instance: &Launched) {
        let member = self.take(instance);
        self.publish("other.example.com", "theirs", [member]);
        self.publish_all();
    }

    async fn ungroup(&mut self, instance: &Launched) {
        let member = self.take(instance);
        self.publish_all();
        self.fake
            .launch([member.kops(CLUSTER, &regional_group(REGION, "nodes"))]);
    }

    fn unknown() -> &'static str {
        "gce://our-project/us-central1-a/no-such"
    }

    /// A name is unique in its zone only, so that is another instance, which is not there.
    fn elsewhere(instance: &Launched) -> Result<(String, &'static str), NotApplicable> {
        Ok((
            instance.provider_id.replace(&instance.zone, "us-central1-f"),
            "NotFound",
        ))
    }

    fn malformed() -> Vec<&'static str> {
        vec![
            "gce://our-project/us-central1-a/..",
            "gce://our-project/us-central1-a/",
            "gce://our-project/us-central1-a",
            "gce:///us-central1-a/nodes-x7k2",
            "gce://our-project/us-central1-a/nodes-x7k2/x",
            "gce://our-project/us-central1-a/*",
        ]
    }
}

impl Faults for Gce {
    type Api = GceApi;

    const COSTS: Costs = Costs {
        // Four by name, or pages of a listing; then the group and its template.
        known: |count| if count <= 4 { count } else { count.div_ceil(500) } + 2,
        // The template.
        kept: 1,
        unknown: 1,
        // A listing names none.
        bad: (0, 0),
        // Three zones one by one; then without trying all at once.
        zone: (3, 2),
    };

    fn fake(&self) -> &FakeGce {
        &self.fake
    }

    fn remove(&mut self, instance: &Launched) {
        self.take(instance);
        self.publish_all();
        self.fake.forget(&instance.zone, &instance.node);
    }
}

fn launched(it: &FakeInstance) -> Launched {
    Launched::new(it.key(), it.provider_id(), it.node_name(), it.address(), it.zone())
}
