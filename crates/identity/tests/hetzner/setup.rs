//! A provider that is pointed at a fake.

use std::sync::Mutex;

use tidewaiter_identity::hetzner::{ClientSettings, Hetzner, client};
use tidewaiter_identity::{Claim, Identifier as _, Identity, Refusal};
use tidewaiter_kit::{CloudCalls, ManualClock, Metrics};
use tidewaiter_testkit::fake_hetzner::{Call, FakeHetzner, FakeServer, TOKEN, server};

pub(crate) const CLUSTER: &str = "ours.example.com";

/// What a question got, by the place of each claim.
pub(crate) type Results = Vec<Result<Identity, Refusal>>;

pub(crate) struct Provider {
    hetzner: Hetzner,
    pub(crate) calls: CloudCalls,
}

impl Provider {
    pub(crate) fn with(token: &str, endpoint: &str) -> Self {
        let calls = Metrics::new(&ManualClock::default().shared()).unwrap().cloud_calls();
        let settings = ClientSettings {
            endpoint: Some(endpoint.parse().unwrap()),
            ..ClientSettings::default()
        };
        let client = client(token.parse().unwrap(), &settings).unwrap();
        let hetzner = Hetzner::new(client, CLUSTER.parse().unwrap(), calls.clone());
        Self { hetzner, calls }
    }

    /// Asks, and makes sure that each claim was answered exactly once.
    pub(crate) async fn ask(&self, servers: &[FakeServer]) -> Results {
        let claims: Vec<Claim> = servers.iter().map(|server| claim(&server.provider_id())).collect();
        let results: Mutex<Vec<Results>> = Mutex::new(vec![Vec::new(); claims.len()]);
        self.hetzner
            .identify(&claims, &|place, result| results.lock().unwrap()[place].push(result))
            .await;
        let one = |(place, mut given): (usize, Results)| {
            assert_eq!(given.len(), 1, "answers for {:?}: {given:?}", claims[place]);
            given.remove(0)
        };
        results.into_inner().unwrap().into_iter().enumerate().map(one).collect()
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

fn claim(provider_id: &str) -> Claim {
    Claim {
        node: "nodes-1a2b".parse().unwrap(),
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

/// The servers in each page of a listing; what was asked one by one is left out.
pub(crate) fn pages(calls: &[Call]) -> Vec<usize> {
    calls
        .iter()
        .filter(|call| call.id.is_none())
        .map(|call| call.rows)
        .collect()
}
