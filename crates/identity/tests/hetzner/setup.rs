//! A provider that is pointed at a fake.

use tidewaiter_identity::hetzner::{Hetzner, client};
use tidewaiter_identity::{ClientSettings, Identity, Refusal};
use tidewaiter_kit::{CloudCalls, ManualClock, Metrics};
use tidewaiter_testkit::Call;
use tidewaiter_testkit::fake_hetzner::{FakeHetzner, FakeServer, TOKEN, server};

use crate::ask::{Results, ask, claim_of};

pub(crate) const CLUSTER: &str = "ours.example.com";

pub(crate) struct Provider {
    pub(crate) hetzner: Hetzner,
    pub(crate) calls: CloudCalls,
    pub(crate) clock: ManualClock,
}

impl Provider {
    pub(crate) fn with(token: &str, endpoint: &str) -> Self {
        let clock = ManualClock::default();
        let calls = Metrics::new(&clock.shared()).unwrap().cloud_calls();
        let settings = ClientSettings {
            endpoint: Some(endpoint.parse().unwrap()),
            ..ClientSettings::default()
        };
        let client = client(token.parse().unwrap(), &settings).unwrap();
        let hetzner = Hetzner::new(client, CLUSTER.parse().unwrap(), clock.shared(), calls.clone());
        Self { hetzner, calls, clock }
    }

    pub(crate) async fn ask(&self, servers: &[FakeServer]) -> Results {
        let claims: Vec<_> = servers.iter().map(|server| claim_of(&server.provider_id())).collect();
        ask(&self.hetzner, &claims).await
    }

    pub(crate) async fn ask_one(&self, server: &FakeServer) -> Result<Identity, Refusal> {
        self.ask(std::slice::from_ref(server)).await.remove(0)
    }
}

/// A fake that holds these, and a provider that asks it.
pub(crate) async fn fake(servers: &[FakeServer]) -> (FakeHetzner, Provider) {
    let fake = FakeHetzner::start().await;
    fake.launch(servers.to_vec());
    let provider = Provider::with(TOKEN, &fake.endpoint());
    (fake, provider)
}

/// A server of ours.
pub(crate) fn ours() -> FakeServer {
    server(42, "nodes-1a2b").kops(CLUSTER, "nodes")
}

pub(crate) fn fleet(count: u32) -> Vec<FakeServer> {
    (1..=count)
        .map(|number| FakeServer::numbered(number).kops(CLUSTER, "nodes"))
        .collect()
}

/// The servers in each page of a listing; what was asked one by one is left out.
pub(crate) fn pages(calls: &[Call]) -> Vec<usize> {
    calls
        .iter()
        .filter(|call| call.names.is_empty())
        .map(|call| call.rows)
        .collect()
}
