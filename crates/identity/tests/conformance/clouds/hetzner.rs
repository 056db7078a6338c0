//! Hetzner Cloud: the fake.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tidewaiter_identity::hetzner::{self, client};
use tidewaiter_identity::{ClientSettings, Identifier};
use tidewaiter_testkit::FakeHetzner;
use tidewaiter_testkit::fake_hetzner::{FakeServer, Hetzner as HetznerApi, TOKEN};

use crate::cloud::{CLUSTER, Cloud, Costs, Faults, Launched, NotApplicable, Wiring};

pub(crate) struct Hetzner {
    fake: FakeHetzner,
    /// By id as text.
    servers: BTreeMap<String, FakeServer>,
}

impl Hetzner {
    fn change(&mut self, instance: &Launched, change: impl FnOnce(FakeServer) -> FakeServer) {
        let server = self.servers.get_mut(&instance.instance).unwrap();
        *server = change(server.clone());
        self.fake.launch([server.clone()]);
    }
}

impl Cloud for Hetzner {
    async fn start() -> Self {
        Self {
            fake: FakeHetzner::start().await,
            servers: BTreeMap::new(),
        }
    }

    async fn provider(&self, wiring: &Wiring) -> Arc<dyn Identifier> {
        let settings = ClientSettings {
            endpoint: Some(self.fake.endpoint().parse().unwrap()),
            call: wiring.deadline,
            ..ClientSettings::default()
        };
        let client = client(TOKEN.parse().unwrap(), &settings).unwrap();
        Arc::new(hetzner::Hetzner::new(
            client,
            CLUSTER.parse().unwrap(),
            wiring.clock.clone(),
            wiring.calls.clone(),
        ))
    }

    async fn launch(&mut self, numbers: RangeInclusive<u32>, group: &str) -> Vec<Launched> {
        let servers = numbers.map(|number| FakeServer::numbered(number).kops(CLUSTER, group));
        let servers: Vec<FakeServer> = servers.collect();
        self.servers
            .extend(servers.iter().map(|server| (server.id().to_string(), server.clone())));
        self.fake.launch(servers.clone());
        servers.iter().map(launched).collect()
    }

    async fn stop(&mut self, instance: &Launched) {
        self.change(instance, |server| server.status("off"));
    }

    async fn give_away(&mut self, instance: &Launched) {
        self.change(instance, |server| {
            server.label("kops.k8s.io/cluster", "other.example.com")
        });
    }

    async fn ungroup(&mut self, instance: &Launched) {
        self.change(instance, |server| server.without_label("kops.k8s.io/instance-group"));
    }

    fn unknown() -> &'static str {
        "hcloud://999"
    }

    fn elsewhere(_: &Launched) -> Result<(String, &'static str), NotApplicable> {
        Err(NotApplicable("a providerID of Hetzner Cloud names no location"))
    }

    fn malformed() -> Vec<&'static str> {
        vec![
            "hcloud://0",
            "hcloud://042",
            "hcloud://-42",
            "hcloud://42/actions",
            "hcloud://..",
            "hcloud://nodes-1",
        ]
    }
}

impl Faults for Hetzner {
    type Api = HetznerApi;

    const COSTS: Costs = Costs {
        // Ten by id, or pages of a listing.
        known: |count| if count <= 10 { count } else { count.div_ceil(50) },
        kept: 0,
        unknown: 1,
        // A listing names none.
        bad: (0, 0),
        zone: (0, 0),
    };

    fn fake(&self) -> &FakeHetzner {
        &self.fake
    }

    fn remove(&mut self, instance: &Launched) {
        let server = self.servers.remove(&instance.instance).unwrap();
        self.fake.forget(server.id());
    }

    fn zones() -> Result<(), NotApplicable> {
        Err(NotApplicable(
            "no call names a location, and a listing gives all of them or fails",
        ))
    }
}

fn launched(it: &FakeServer) -> Launched {
    Launched::new(it.id(), it.provider_id(), it.node_name(), it.address(), it.place())
}
