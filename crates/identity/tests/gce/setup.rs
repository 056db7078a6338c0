//! A provider that is pointed at a fake, and a cluster in it.

use std::time::Duration;

use google_cloud_auth::credentials::mds;
use tidewaiter_identity::gce::{ClientSettings, CredentialsSource, Gce, InstanceGroupManagers, client};
use tidewaiter_identity::{Claim, Identity, Refusal};
use tidewaiter_kit::{CloudCalls, ManualClock, Metrics};
use tidewaiter_testkit::Call;
use tidewaiter_testkit::fake_gce::{
    FakeGce, FakeGroup, FakeInstance, FakeTemplate, PROJECT, REGION, regional_group, template, zonal_group,
};

use crate::ask::{Results, ask, claim_of};

pub(crate) const CLUSTER: &str = "ours.example.com";
pub(crate) const ZONE: &str = "us-central1-a";

pub(crate) struct Provider {
    pub(crate) gce: Gce,
    pub(crate) calls: CloudCalls,
    pub(crate) clock: ManualClock,
}

impl Provider {
    /// A provider with the credentials of the fake's own metadata server.
    pub(crate) async fn at(endpoint: &str) -> Self {
        Self::with(endpoint, endpoint, Duration::from_secs(20)).await
    }

    pub(crate) async fn with(endpoint: &str, metadata: &str, call: Duration) -> Self {
        Self::of(&settings(endpoint, metadata, call)).await
    }

    pub(crate) async fn of(settings: &ClientSettings) -> Self {
        let clock = ManualClock::default();
        let calls = Metrics::new(&clock.shared()).unwrap().cloud_calls();
        let settings = ClientSettings {
            clock: clock.shared(),
            ..settings.clone()
        };
        let gce = Gce::new(
            client(&settings).await.unwrap(),
            PROJECT.parse().unwrap(),
            CLUSTER.parse().unwrap(),
            clock.shared(),
            calls.clone(),
        );
        Self { gce, calls, clock }
    }

    /// Lets the templates expire that were read.
    pub(crate) fn forget_templates(&self) {
        self.clock.advance(Duration::from_mins(15));
    }

    pub(crate) async fn ask(&self, claims: &[Claim]) -> Results {
        ask(&self.gce, claims).await
    }

    pub(crate) async fn ask_one(&self, instance: &FakeInstance) -> Result<Identity, Refusal> {
        self.ask(&[claim_of(&instance.provider_id())]).await.remove(0)
    }
}

fn settings(endpoint: &str, metadata: &str, call: Duration) -> ClientSettings {
    let metadata = metadata.to_owned();
    let credentials = CredentialsSource::new(move || {
        mds::Builder::default()
            .with_endpoint(&metadata)
            .with_universe_domain("googleapis.com")
            .build()
    });
    ClientSettings {
        endpoint: Some(endpoint.parse().unwrap()),
        credentials,
        call,
        ..ClientSettings::default()
    }
}

/// The groups of the cluster, and the count of the calls.
pub(crate) async fn groups_at(endpoint: &str) -> (InstanceGroupManagers, CloudCalls) {
    groups_with(endpoint, Duration::from_secs(20)).await
}

pub(crate) async fn groups_with(endpoint: &str, call: Duration) -> (InstanceGroupManagers, CloudCalls) {
    let calls = Metrics::new(&ManualClock::default().shared()).unwrap().cloud_calls();
    let client = client(&settings(endpoint, endpoint, call)).await.unwrap();
    let (project, cluster) = (PROJECT.parse().unwrap(), CLUSTER.parse().unwrap());
    (
        InstanceGroupManagers::new(client, project, cluster, calls.clone()),
        calls,
    )
}

/// One instance of ours in a zonal group, and all that its way to the group `nodes` needs.
pub(crate) struct One {
    pub(crate) instance: FakeInstance,
    pub(crate) group: FakeGroup,
    pub(crate) template: FakeTemplate,
}

impl One {
    pub(crate) fn new() -> Self {
        let template = template("nodes-v1").kops(CLUSTER, "nodes");
        let group = zonal_group(ZONE, "a-nodes");
        let instance = tidewaiter_testkit::fake_gce::instance(ZONE, "nodes-x7k2").kops(CLUSTER, &group);
        let group = group.lists(&instance, &template);
        Self {
            instance,
            group,
            template,
        }
    }

    pub(crate) fn instance(self, change: impl FnOnce(FakeInstance) -> FakeInstance) -> Self {
        Self {
            instance: change(self.instance),
            ..self
        }
    }

    pub(crate) fn template(self, change: impl FnOnce(FakeTemplate) -> FakeTemplate) -> Self {
        Self {
            template: change(self.template),
            ..self
        }
    }

    pub(crate) fn group(self, change: impl FnOnce(&Self) -> FakeGroup) -> Self {
        let group = change(&self);
        Self { group, ..self }
    }

    /// A fake that holds it, and a provider that asks it.
    pub(crate) async fn start(&self) -> (FakeGce, Provider) {
        let fake = FakeGce::start().await;
        self.add_to(&fake);
        let provider = Provider::at(&fake.endpoint()).await;
        (fake, provider)
    }

    pub(crate) fn add_to(&self, fake: &FakeGce) {
        fake.launch([self.instance.clone()]);
        fake.groups([self.group.clone()]);
        fake.templates([self.template.clone()]);
    }
}

/// A fleet of ours in one regional group, over three zones.
pub(crate) async fn fleet(count: u32) -> (FakeGce, Provider, Vec<FakeInstance>) {
    let fake = FakeGce::start().await;
    let instances = add_fleet(&fake, count, |group| group);
    let provider = Provider::at(&fake.endpoint()).await;
    (fake, provider, instances)
}

pub(crate) fn add_fleet(fake: &FakeGce, count: u32, change: impl Fn(FakeGroup) -> FakeGroup) -> Vec<FakeInstance> {
    let template = template("nodes-v1").kops(CLUSTER, "nodes");
    let group = change(regional_group(REGION, "nodes"));
    let instances: Vec<FakeInstance> = (1..=count)
        .map(|number| FakeInstance::numbered(number).kops(CLUSTER, &group))
        .collect();
    let group = instances
        .iter()
        .fold(group, |group, instance| group.lists(instance, &template));
    fake.launch(instances.clone());
    fake.groups([group]);
    fake.templates([template]);
    instances
}

pub(crate) fn claims(instances: &[FakeInstance]) -> Vec<Claim> {
    instances
        .iter()
        .map(|instance| claim_of(&instance.provider_id()))
        .collect()
}

/// Each call's method and rows, in order.
pub(crate) fn rows(calls: &[Call]) -> Vec<(&'static str, usize)> {
    calls.iter().map(|call| (call.api, call.rows)).collect()
}

/// Returns the number of calls of this method.
pub(crate) fn count(calls: &[Call], api: &str) -> usize {
    calls.iter().filter(|call| call.api == api).count()
}
